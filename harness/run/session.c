#include "harness/run/session.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/int.h"
#include "base/text.h"
#include "harness/probes/calibration.h"
#include "harness/probes/probes.h"
#include "harness/quality/ppl.h"
#include "harness/run/config.h"
#include "harness/run/ideal.h"

/* Vocabularies keep control and single-byte tokens at their start; prompts are drawn from the words behind. */
#define FIRST_WORD 256
#define TEXT_MAX   ((size_t)256 << 20)
/* How many a server takes at once is its own; so many are sent to warm it up, at least. */
#define REMOTE_BATCH 16

struct dlab_session {
    dlab_session_opts opts;
    dlab_plan plan; /* requested */
    dlab_workload workload;
    dlab_measure measure;
    char *model_name;
    dlab_target *target;
    dlab_shape *shape;         /* until warmed, and … */
    dlab_tokenizer *tokenizer; /* … what it borrows, where that is ours; else NULL */
    dlab_requests requests;
    int32_t *handles; /* [requests.n] of the primed depths; −1: none */
    int32_t eos;
    dlab_calibrated peaks; /* of this machine for the plan, once warmed; without rows where there are none */
    bool primed, warmed;
};

static void tell(const dlab_session *s, const char *phase)
{
    if (s->opts.phase) s->opts.phase(s->opts.phase_ctx, phase);
}

/* A server knows its own; what it is told is only whether to heed it. */
static int32_t find_eos(const dlab_session *s, const dlab_tokenizer *t)
{
    const int32_t eos = t ? dlab_tokenizer_eos(t) : -1;
    if (s->workload.ignore_eos) return -1;
    return eos < 0 && s->opts.target->remote ? INT32_MAX : eos;
}

static dlab_workload_host workload_host(const dlab_session *s, const dlab_tokenizer *t)
{
    const dlab_model_info *m = s->opts.model ? dlab_model_get_info(s->opts.model) : NULL;
    const int32_t vocab = m ? m->vocab : t ? dlab_tokenizer_vocab(t) : 2 * FIRST_WORD;
    const int64_t batch_size = s->plan.batch_size;
    return (dlab_workload_host){.batch_size =
                                    s->opts.target->remote ? dlab_max_i64(batch_size, REMOTE_BATCH) : batch_size,
                                .context = m ? m->context : 0,
                                .first_id = vocab > FIRST_WORD ? FIRST_WORD : 0,
                                .vocab = vocab,
                                .tokenizer = t,
                                .n_before = s->opts.n_before,
                                .sent_before = s->opts.sent_before};
}

static dlab_target_setup target_setup(const dlab_session *s, const dlab_plan *plan, const dlab_engine_needs *needs)
{
    return (dlab_target_setup){.plan = plan,
                               .model = s->opts.model,
                               .needs = needs,
                               .clock = s->opts.clock,
                               .remote = s->opts.remote,
                               .null_step_ns = s->opts.null_step_ns,
                               .null_service_ns = s->opts.null_service_ns};
}

static dlab_status build_requests(dlab_session *s, dlab_error *err)
{
    DLAB_TRY(dlab_shape_build(s->shape, false, &s->requests, err));
    s->handles = malloc((s->requests.n > 0 ? (size_t)s->requests.n : 1) * sizeof *s->handles);
    if (!s->handles) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %" PRId64 " requests", s->requests.n);
    for (int64_t i = 0; i < s->requests.n; i++) s->handles[i] = -1;
    return DLAB_OK;
}

/* *out: NULL where none is needed. */
static dlab_status find_tokenizer(dlab_session *s, const dlab_tokenizer **out, dlab_error *err)
{
    *out = s->opts.remote ? s->opts.remote->tokenizer : NULL;
    if (*out || !s->opts.model || (s->workload.ignore_eos && !dlab_workload_tokenizes(&s->workload))) return DLAB_OK;
    DLAB_TRY(dlab_tokenizer_create(s->opts.model, &s->tokenizer, err));
    *out = s->tokenizer;
    return DLAB_OK;
}

dlab_status dlab_session_create(const dlab_session_opts *opts, dlab_session **out, dlab_error *err)
{
    *out = NULL;
    dlab_session *s = calloc(1, sizeof *s);
    if (!s) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a session");
    s->opts = *opts;
    if (!s->opts.clock) s->opts.clock = dlab_clock_real();
    s->plan = *opts->plan;
    s->workload = *opts->workload;
    s->measure = *opts->measure;
    s->model_name = strdup(opts->model_name ? opts->model_name : "");
    dlab_status st = s->model_name ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "no memory for a session");
    const dlab_tokenizer *tokenizer = NULL;
    if (st != DLAB_OK) goto done;
    DLAB_TRY_DONE(st, find_tokenizer(s, &tokenizer, err));
    const dlab_workload_host host = workload_host(s, tokenizer);
    DLAB_TRY_DONE(st, dlab_shape_create(&s->workload, &host, &s->shape, err));
    const dlab_engine_needs needs = dlab_shape_needs(s->shape);
    const dlab_target_setup setup = target_setup(s, &s->plan, &needs);
    DLAB_TRY_DONE(st, opts->target->create(&setup, &s->target, err));
    DLAB_TRY_DONE(st, build_requests(s, err));
    s->eos = find_eos(s, tokenizer);

done:
    if (st == DLAB_OK)
        *out = s;
    else
        dlab_session_destroy(s);
    return st;
}

static void forget_shape(dlab_session *s)
{
    dlab_shape_destroy(s->shape);
    dlab_tokenizer_destroy(s->tokenizer);
    s->shape = NULL;
    s->tokenizer = NULL;
}

void dlab_session_destroy(dlab_session *s)
{
    if (!s) return;
    forget_shape(s);
    if (s->target) s->target->ops->destroy(s->target);
    dlab_requests_free(&s->requests);
    free(s->handles);
    free(s->model_name);
    free(s);
}

const dlab_plan *dlab_session_plan(const dlab_session *s) { return s->target->ops->plan(s->target); }
const dlab_requests *dlab_session_requests(const dlab_session *s) { return &s->requests; }

/* What workload.requests counts: requests that follow no other. */
static int64_t conversations(const dlab_requests *q)
{
    int64_t n = q->after ? 0 : q->n;
    for (int64_t i = 0; q->after && i < q->n; i++) n += q->after[i] < 0;
    return n;
}

dlab_status dlab_session_settings(const dlab_session *s, dlab_settings *out, dlab_error *err)
{
    dlab_workload effective = s->workload;
    effective.requests = conversations(&s->requests);
    return dlab_config_settings(s->model_name, s->target->ops->plan(s->target), &effective, &s->measure, out, err);
}

static dlab_status prime(dlab_session *s, dlab_error *err)
{
    const dlab_requests *q = &s->requests;
    if (s->workload.depth > 0) tell(s, "prime");
    for (int64_t i = 0; i < q->n; i++) {
        int64_t n = dlab_requests_primed(q, i);
        if (n == 0) continue;
        dlab_status st = s->target->ops->prime(s->target, q->ids + q->offset[i], n, &s->handles[i], err);
        dlab_pulse_beat(s->opts.pulse);
        if (st != DLAB_OK) return dlab_error_prefix(err, st, "filling the cache to depth %" PRId64, q->depth[i]);
    }
    s->primed = true;
    return DLAB_OK;
}

static dlab_drive_opts drive_opts(const dlab_session *s)
{
    return (dlab_drive_opts){.time_limit_ns = s->measure.time_limit_ns,
                             .memory_sample_ns = s->measure.memory_sample_ns,
                             .eos = s->eos,
                             /* reading /proc at each step would cost more than some steps do */
                             .sample_rss = s->measure.memory_sample_ns > 0,
                             .interval_ns = llrint(s->target->ops->plan(s->target)->batch_interval_ms * 1e6),
                             .pulse = s->opts.pulse,
                             .interrupted = s->opts.interrupted};
}

/* Other targets than the engine do not compute, so that no peak bounds them. */
static void find_peaks(dlab_session *s)
{
    if (strcmp(s->target->ops->name, "engine") == 0) dlab_calibration_kept(s->target->ops->plan(s->target), &s->peaks);
}

static dlab_status warm_up(dlab_session *s, int64_t times, dlab_error *err)
{
    dlab_drive_opts o = drive_opts(s);
    dlab_requests requests = {0};
    dlab_status st = DLAB_OK;
    if (times > 0) {
        tell(s, "warmup");
        st = dlab_shape_build(s->shape, true, &requests, err);
    }
    for (int64_t i = 0; i < times && st == DLAB_OK; i++) {
        dlab_run thrown_away;
        dlab_run_init(&thrown_away);
        st = dlab_drive(s->target, s->opts.clock, &requests, s->handles, &o, &thrown_away, err);
        dlab_run_free(&thrown_away);
    }
    dlab_requests_free(&requests);
    if (st != DLAB_OK) return dlab_error_prefix(err, st, "warm-up");
    forget_shape(s);
    find_peaks(s);
    s->warmed = true;
    return DLAB_OK;
}

static double unix_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What plan and model say; NaN where there is no model, or a plan that only the null target takes. */
static double token_bytes(const dlab_session *s)
{
    double bytes = NAN;
    const dlab_plan *plan = s->target->ops->plan(s->target);
    if (!s->opts.model) return NAN;
    return dlab_kv_plan_token_bytes(plan, dlab_model_get_info(s->opts.model), &bytes, NULL) == DLAB_OK ? bytes : NAN;
}

static void keep_memory(const dlab_session *s, const dlab_kv_stats *before, bool rss_is_ours, dlab_run *out)
{
    dlab_mem_stats mem = {0};
    dlab_kv_stats kv = {0};
    out->memory_limit = s->target->ops->plan(s->target)->memory_limit_bytes;
    out->kv_token_bytes = token_bytes(s);
    if (rss_is_ours) out->rss_peak = dlab_probe_rss_peak_bytes();
    if (!s->target->ops->memory) return;
    s->target->ops->memory(s->target, &mem, &kv);
    for (int p = 0; p < DLAB_POOL_N; p++) out->pool_peak[p] = (int64_t)mem.pool[p].peak_bytes;
    out->mem_peak = (int64_t)mem.peak_bytes;
    out->weight_bytes = (int64_t)mem.pool[DLAB_POOL_WEIGHTS].used_bytes;
    if (out->kv_pool < 0) out->kv_pool = kv.pool_bytes; /* no step told */
    out->kv_growths = kv.n_growths - before->n_growths;
    out->kv_growth_ns = kv.growth_ns - before->growth_ns;
    out->kv_evictions = kv.n_evictions - before->n_evictions;
    out->kv_copies = kv.n_copies - before->n_copies;
    out->kv_hit_tokens = kv.hit_tokens - before->hit_tokens;
    out->kv_asked_tokens = kv.asked_tokens - before->asked_tokens;
}

static dlab_status add_peaks(const dlab_session *s, dlab_run *out, dlab_error *err)
{
    if (s->peaks.n == 0) return DLAB_OK;
    out->peaks_measured = (double)s->peaks.measured;
    out->peaks_quick = s->peaks.quick;
    for (size_t i = 0; i < s->peaks.n; i++) DLAB_TRY(dlab_run_add_peak(out, &s->peaks.rows[i], err));
    return DLAB_OK;
}

static dlab_status measure(dlab_session *s, dlab_run *out, dlab_error *err)
{
    dlab_drive_opts o = drive_opts(s);
    dlab_mem_stats mem = {0};
    dlab_kv_stats before = {0};
    o.keep_cache = s->measure.keep_cache; /* not that of a warm-up, which has other prompts */
    tell(s, "measure");
    if (s->target->ops->memory) {
        s->target->ops->memory(s->target, &mem, &before);
        s->target->ops->reset_peaks(s->target);
        out->kv_cached_start = before.cached_bytes;
    }
    malloc_trim(0); /* what writing the run before took is not this run's */
    bool rss_is_ours = dlab_probe_rss_reset();
    out->started_unix = unix_now();
    dlab_status st = dlab_drive(s->target, s->opts.clock, &s->requests, s->handles, &o, out, err);
    keep_memory(s, &before, rss_is_ours, out);
    out->kv_hit_ideal = dlab_ideal_hit(&s->requests, out);
    if (st == DLAB_OK) st = add_peaks(s, out, err);
    return st;
}

static dlab_status read_corpus(const dlab_session *s, char **owned, const char **text, size_t *n, dlab_error *err)
{
    *text = dlab_bundled_text(n);
    if (!*s->measure.ppl_text) return DLAB_OK;
    DLAB_TRY(dlab_file_read(s->measure.ppl_text, TEXT_MAX, owned, n, err));
    *text = *owned;
    return DLAB_OK;
}

static void beat_chunk(void *ctx, int64_t chunk, int64_t n_chunks, double ppl)
{
    (void)chunk, (void)n_chunks, (void)ppl;
    dlab_pulse_beat(((const dlab_session *)ctx)->opts.pulse);
}

/* On a target of its own, made for one text at a time, so that the measured target's memory is not blown up by it. */
static dlab_status quality(dlab_session *s, dlab_run *out, dlab_error *err)
{
    dlab_tokenizer *tok = NULL;
    dlab_target *t = NULL;
    char *owned = NULL;
    const char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    dlab_ppl_opts o = {.protocol = "llama.cpp",
                       .context = s->measure.ppl_context,
                       .chunks = s->measure.ppl_chunks,
                       .progress = beat_chunk,
                       .progress_ctx = s};
    dlab_engine_needs needs = {
        .max_seqs = 1, .max_tokens = o.context, .max_prompt = o.context, .max_logits = o.context};
    dlab_ppl_result result;
    dlab_plan plan = s->plan;
    plan.batch_size = 1;
    tell(s, "quality");
    dlab_status st = read_corpus(s, &owned, &text, &n, err);
    if (st != DLAB_OK) goto done;
    DLAB_TRY_DONE(st, dlab_tokenizer_create(s->opts.model, &tok, err));
    DLAB_TRY_DONE(st, dlab_tokenizer_encode(tok, text, n, false, true, &ids, &n_ids, err));
    const dlab_target_setup setup = target_setup(s, &plan, &needs);
    DLAB_TRY_DONE(st, s->opts.target->create(&setup, &t, err));
    int32_t bos = dlab_tokenizer_adds_bos(tok) ? dlab_tokenizer_bos(tok) : -1;
    DLAB_TRY_DONE(st, dlab_ppl_run(t, ids, (int64_t)n_ids, bos, &o, (int64_t)n, out, &result, err));
    snprintf(out->corpus_hash, sizeof out->corpus_hash, "%016" PRIx64, (uint64_t)XXH64(text, n, 0));

done:
    if (t) t->ops->destroy(t);
    dlab_tokenizer_destroy(tok);
    free(ids);
    free(owned);
    return st == DLAB_OK ? DLAB_OK : dlab_error_prefix(err, st, "quality pass");
}

dlab_run_status dlab_session_status(dlab_status st)
{
    switch (st) {
    case DLAB_OK:
        return DLAB_RUN_OK;
    case DLAB_EOOM:
    case DLAB_EFULL:
        return DLAB_RUN_OOM;
    case DLAB_EIMPOSSIBLE:
    case DLAB_ENOTBUILT:
        return DLAB_RUN_SKIPPED;
    default:
        return DLAB_RUN_FAILED;
    }
}

dlab_status dlab_session_run(dlab_session *s, int64_t repeat, int64_t warmup, dlab_run *out, dlab_error *err)
{
    dlab_error own = {0};
    dlab_error *e = err ? err : &own;
    out->repeat = (int32_t)repeat;
    dlab_status st = dlab_session_settings(s, &out->effective, e);
    if (st == DLAB_OK && !s->primed) st = prime(s, e);
    if (st == DLAB_OK && !s->warmed) st = warm_up(s, warmup, e);
    if (st == DLAB_OK) st = measure(s, out, e);
    if (st == DLAB_OK && repeat == 0 && s->measure.ppl_chunks > 0) st = quality(s, out, e);
    if (st != DLAB_OK) {
        out->status = dlab_session_status(st);
        dlab_text_copy(out->reason, sizeof out->reason, e->msg);
    }
    return st;
}

#include "harness/workload/workload.h"

#include <stdlib.h>

#include "base/int.h"
#include "harness/workload/workload_parts.h"

#define IDS_MAX ((int64_t)1 << 31) /* 8 GiB of ids: far above any run that ends */

static dlab_status alloc_requests(const dlab_shape *s, dlab_requests *out, dlab_error *err)
{
    const size_t n = (size_t)out->n;
    const bool turns = s->conversations < s->n;
    out->offset = calloc(n, sizeof *out->offset);
    out->depth = calloc(n, sizeof *out->depth);
    out->prompt = calloc(n, sizeof *out->prompt);
    out->output = calloc(n, sizeof *out->output);
    out->seed = calloc(n, sizeof *out->seed);
    out->arrival_ns = calloc(n, sizeof *out->arrival_ns);
    out->priority = calloc(n, sizeof *out->priority);
    out->think_ns = calloc(n, sizeof *out->think_ns);
    if (turns) out->after = calloc(n, sizeof *out->after);
    if (!out->offset || !out->depth || !out->prompt || !out->output || !out->seed || !out->arrival_ns ||
        !out->priority || !out->think_ns || (turns && !out->after)) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %zu requests", n);
    }
    return DLAB_OK;
}

/* Counts and places of ids. A request's sampling seed is of its number alone: seeds of the workload change no draw of an
 * answer, which the plan's sample.seed does. */
static dlab_status place_requests(const dlab_shape *s, dlab_requests *out, dlab_error *err)
{
    int64_t at = 0;
    for (int64_t i = 0; i < out->n; i++) {
        dlab_rng rng = dlab_stream_rng(0, DLAB_STREAM_SAMPLING, (uint64_t)i);
        out->seed[i] = dlab_rng_u64(&rng);
        out->offset[i] = at;
        out->depth[i] = s->w.depth;
        out->prompt[i] = s->prompt[i];
        out->output[i] = s->output[i];
        at += s->w.depth + s->prompt[i];
    }
    if (at > IDS_MAX) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: %lld requests of %lld tokens in all are more than %lld ids",
                         (long long)out->n, (long long)at, (long long)IDS_MAX);
    }
    out->ids = calloc((size_t)dlab_max_i64(at, 1), sizeof *out->ids);
    if (!out->ids) return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %lld token ids", (long long)at);
    return DLAB_OK;
}

static dlab_status time_requests(const dlab_shape *s, bool at_once, dlab_requests *out, dlab_error *err)
{
    const dlab_workload *w = &s->w;
    const bool closed = dlab_is(w->kind, "closed") && !at_once;
    dlab_priorities priorities;
    DLAB_TRY(dlab_priorities_read(w->priorities, &priorities, err));
    out->concurrency = closed ? w->concurrency : 0;
    out->duration_ns = at_once ? 0 : w->duration_ns;
    out->scarce = s->scarce && !at_once;
    out->n_fresh = s->n_fresh;
    for (int64_t i = 0; i < out->n; i++) {
        const int64_t c = s->conversation[i];
        const bool later = i > s->first[c];
        const int64_t start = s->arrival_ns && !at_once ? s->arrival_ns[c] : 0;
        out->priority[i] = dlab_priorities_draw(&priorities, w, c);
        if (out->after) out->after[i] = later ? i - 1 : -1;
        out->think_ns[i] = w->think_ns > 0 && !at_once ? dlab_think_draw(w, i) : 0;
        out->arrival_ns[i] = later || (closed && c >= w->concurrency) ? -1 : start;
    }
    return DLAB_OK;
}

/* As many as a closed loop has in flight, or as fill the batch: a warm-up need not take as long as arrivals do. */
static int64_t warm_conversations(const dlab_shape *s)
{
    const int64_t fill = dlab_max_i64(s->host.batch_size / s->w.samples, 1);
    return dlab_min_i64(s->conversations, dlab_is(s->w.kind, "closed") ? s->w.concurrency : fill);
}

dlab_status dlab_shape_build(dlab_shape *s, bool warmup, dlab_requests *out, dlab_error *err)
{
    const dlab_workload_host *host = &s->host;
    const bool batch = !s->w.kind || dlab_is(s->w.kind, "batch");
    *out = (dlab_requests){.n = s->n, .samples = (int32_t)s->w.samples};
    if (warmup && !batch) out->n = s->first[warm_conversations(s)];
    if (host->first_id < 0 || host->first_id >= host->vocab) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "workload: a vocabulary of %d ids has none from %d on", host->vocab,
                         host->first_id);
    }
    dlab_status st = alloc_requests(s, out, err);
    if (st == DLAB_OK) st = place_requests(s, out, err);
    if (st == DLAB_OK) st = time_requests(s, batch || warmup, out, err);
    if (st == DLAB_OK) st = dlab_prompts_fill(s, warmup, out, err);
    if (st != DLAB_OK) dlab_requests_free(out);
    return st;
}

void dlab_requests_free(dlab_requests *r)
{
    if (!r) return;
    free(r->ids);
    free(r->offset);
    free(r->depth);
    free(r->prompt);
    free(r->output);
    free(r->seed);
    free(r->arrival_ns);
    free(r->priority);
    free(r->after);
    free(r->think_ns);
    *r = (dlab_requests){0};
}

int64_t dlab_requests_primed(const dlab_requests *q, int64_t i)
{
    if (q->prompt[i] > 0 || q->depth[i] == 0) return q->depth[i];
    return q->depth[i] - 1;
}

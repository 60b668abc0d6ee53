/* A point of dlab load: its runs, in this process, and what there is to say about them. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "harness/cmd/cmd_load.h"
#include "harness/probes/calibration.h"
#include "results/warnings.h"

/* ---- what there is to say ------------------------------------------------------------------------------------------------ */

/* Sums over the requests of a point's runs. */
typedef struct {
    int64_t requests, served, failed, shorter, uncounted, prompt, cached;
} tally;

static void count(tally *t, const dlab_run *r, bool exact)
{
    for (size_t i = 0; i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        t->requests++;
        t->failed += q->failure != DLAB_FAILURE_NONE;
        if (q->failure != DLAB_FAILURE_NONE || !isfinite(q->t_done)) continue;
        t->served++;
        t->uncounted += q->new_tokens < 0;
        t->shorter += exact && q->new_tokens >= 0 && q->new_tokens < q->asked_tokens;
        if (q->cached_tokens < 0) continue;
        t->prompt += q->prompt_tokens;
        t->cached += q->cached_tokens;
    }
}

static void warn(dlab_point_result *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void warn(dlab_point_result *p, const char *fmt, ...)
{
    char text[sizeof p->warnings], all[2 * sizeof p->warnings + 4];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(all, sizeof all, "%s%s%s", p->warnings, p->warnings[0] ? "; " : "", text);
    dlab_text_copy(p->warnings, sizeof p->warnings, all);
}

/* Prompts that are the same on purpose. */
static bool shares_prompts(const dlab_load *l, const dlab_workload *w)
{
    return l->spec->measure.keep_cache || w->shared_prefix > 0 || w->turns > 1 || w->samples > 1 ||
           strcmp(w->kind, "trace") == 0;
}

static void warn_of(const dlab_load *l, const dlab_point *point, const tally *t, dlab_point_result *p)
{
    p->warnings[0] = 0;
    dlab_point_warn(p);
    if (t->failed > 0)
        warn(p, "%" PRId64 " of %" PRId64 " requests failed%s%s", t->failed, t->requests, *l->why ? ": " : "", l->why);
    if (!l->target.ops->remote) return;
    if (t->uncounted > 0)
        warn(p,
             "%" PRId64
             " answers came without usage: their tokens are not counted; give -m MODEL, the model served, to "
             "count them by its tokenizer",
             t->uncounted);
    if (t->shorter > 0)
        warn(p,
             "%" PRId64
             " answers are shorter than asked: this server does not know ignore_eos, or the context was full",
             t->shorter);
    if (t->cached > 0 && !shares_prompts(l, &point->workload))
        warn(p, "the server found %.3g %% of the prompts' tokens in its cache: another --seed makes them new to it",
             100.0 * (double)t->cached / (double)(t->prompt > 0 ? t->prompt : 1));
}

/* A reason why a request failed, from the target: at once to the person, later into the record. */
static void tell_why(void *ctx, const char *why)
{
    dlab_load *l = ctx;
    char line[DLAB_ERROR_MSG + 32];
    snprintf(line, sizeof line, "a request failed: %s", why);
    dlab_progress_note(&l->progress, line);
    const size_t used = strlen(l->why);
    if (strstr(l->why, why)) return;
    snprintf(l->why + used, sizeof l->why - used, "%s%s", used ? "; " : "", why);
}

static void tell_phase(void *ctx, const char *phase)
{
    dlab_load *l = ctx;
    dlab_progress_phase(&l->progress, phase);
}

static void say_line(void *ctx, const char *line) { dlab_progress_note(ctx, line); }

/* ---- runs ----------------------------------------------------------------------------------------------------------------- */

/* A server keeps its cache from run to run, and nobody can empty it from outside. So each run has prompts of its own, but
 * the same lengths and arrivals. */
static dlab_workload workload_of(dlab_load *l, const dlab_point *p)
{
    const int64_t distance = 1000003, seeds = INT64_C(1) << 53;
    dlab_workload w = p->workload;
    if (!l->target.ops->remote || l->spec->measure.keep_cache) return w;
    if (!w.seed_lengths) w.seed_lengths = w.seed;
    if (!w.seed_arrivals) w.seed_arrivals = w.seed;
    w.seed = (w.seed + distance * l->n_sent++) % seeds;
    return w;
}

static dlab_status open_session(dlab_load *l, const dlab_point *p, const dlab_workload *w, dlab_session **out,
                                dlab_error *err)
{
    l->target.remote.tell = tell_why;
    l->target.remote.tell_ctx = l;
    const dlab_session_opts opts = {.target = l->target.ops,
                                    .model = l->target.model,
                                    .model_name = p->model,
                                    .plan = &p->plan,
                                    .workload = w,
                                    .measure = &l->spec->measure,
                                    .phase = tell_phase,
                                    .phase_ctx = l,
                                    .remote = l->target.ops->remote ? &l->target.remote : NULL,
                                    .null_step_ns = l->target.null_step_ns,
                                    .null_service_ns = l->target.null_service_ns,
                                    .interrupted = l->interrupted};
    return dlab_session_create(&opts, out, err);
}

/* One run into the record. What was measured before an interruption stays, as a run that was cut short. */
static dlab_status run_once(dlab_load *l, dlab_session *s, size_t at, int64_t repeat, int64_t warmup, bool exact,
                            const char *key, tally *t, dlab_error *err)
{
    dlab_point_result *p = &l->rec.record.points[at];
    dlab_run run;
    tally own = {0};
    dlab_run_init(&run);
    if (l->progress.total <= l->n_done) l->progress.total = l->n_done + 1; /* how many a search needs is not known */
    dlab_progress_run(&l->progress, p->label, (int32_t)repeat, l->n_done, -1);
    dlab_status st = dlab_session_run(s, repeat, warmup, &run, err), kept = DLAB_OK;
    if (st == DLAB_EINTERRUPTED) {
        run.status = DLAB_RUN_TRUNCATED;
        dlab_text_copy(run.reason, sizeof run.reason, "interrupted");
    }
    count(&own, &run, exact);
    count(t, &run, exact);
    const double took = run.t_end * 1e-9;
    if (st == DLAB_OK && own.served == 0 && own.requests > 0) l->unserved = true;
    if (own.failed > 0) l->any_failed = true;
    p->status = run.status;
    dlab_text_copy(p->reason, sizeof p->reason, run.reason);
    if (st != DLAB_EINTERRUPTED || own.served > 0) {
        kept = dlab_load_target_settings(&l->target, &run.effective, st == DLAB_OK ? err : NULL);
        if (kept == DLAB_OK) kept = dlab_cmd_recorder_add(&l->rec, at, &run, key, st == DLAB_OK ? err : NULL);
    } else {
        p->status = DLAB_RUN_PENDING;
        p->reason[0] = 0;
    }
    dlab_run_free(&run);
    dlab_progress_ended(&l->progress, dlab_run_status_text(p->status), p->reason, isfinite(took) ? took : 0,
                        ++l->n_done, -1);
    return st != DLAB_OK ? st : kept;
}

static dlab_status effective_plan(const dlab_session *s, dlab_plan *plan, dlab_error *err)
{
    size_t n = 0;
    const dlab_param *table = dlab_plan_params(&n);
    dlab_settings settings = {0};
    dlab_status st = dlab_session_settings(s, &settings, err);
    for (size_t i = 0; st == DLAB_OK && i < n; i++) {
        const char *value = dlab_settings_get(&settings, table[i].key);
        if (value) st = dlab_param_set(&table[i], plan, value, err);
    }
    dlab_settings_free(&settings);
    return st;
}

static dlab_status find_key(const dlab_load *l, const dlab_plan *plan, const dlab_workload *w, char key[17],
                            dlab_error *err)
{
    const dlab_config_run run = {.target = l->target.ops->name,
                                 .plan = plan,
                                 .workload = w,
                                 .measure = &l->spec->measure,
                                 .model_hash = l->target.model_hash};
    return dlab_cmd_recorder_key(&l->rec, &run, key, err);
}

static dlab_status run_all(dlab_load *l, const dlab_point *p, size_t at, tally *t, dlab_error *err)
{
    const dlab_measure *m = &l->spec->measure;
    char key[17] = "";
    dlab_session *s = NULL;
    dlab_status st = DLAB_OK;
    for (int64_t i = 0; i < m->repeats; i++) {
        dlab_workload w = workload_of(l, p);
        if (!s) DLAB_TRY_DONE(st, open_session(l, p, &w, &s, err));
        if (i == 0) {
            dlab_plan plan = p->plan;
            DLAB_TRY_DONE(st, effective_plan(s, &plan, err));
            if (strcmp(l->target.ops->name, "engine") == 0)
                dlab_calibration_ensure(&plan, l->interrupted, say_line, &l->progress);
            DLAB_TRY_DONE(st, find_key(l, &plan, &w, key, err));
        }
        /* a search warms a server up once */
        const bool warm = l->target.ops->remote && (i > 0 || (l->opts->find && at > 0));
        DLAB_TRY_DONE(st, run_once(l, s, at, i, warm ? 0 : m->warmup, w.ignore_eos, key, t, err));
        if (!l->target.ops->remote) continue;
        dlab_session_destroy(s);
        s = NULL;
    }

done:
    dlab_session_destroy(s);
    return st;
}

/* ---- points ---------------------------------------------------------------------------------------------------------------- */

dlab_status dlab_load_frame(dlab_load *l, const dlab_point *p, dlab_error *err)
{
    dlab_record *r = &l->rec.record;
    dlab_point_result *more = realloc(r->points, (r->n_points + 1) * sizeof *more);
    if (!more) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a record of %zu points", r->n_points + 1);
    r->points = more;
    dlab_point_result *out = &r->points[r->n_points++];
    *out = (dlab_point_result){.status = DLAB_RUN_PENDING, .n_planned = (size_t)l->spec->measure.repeats};
    snprintf(out->label, sizeof out->label, "%s", p->label);
    DLAB_TRY(dlab_settings_copy(&p->axes, &out->axes, err));
    DLAB_TRY(dlab_config_settings(p->model, &p->plan, &p->workload, &l->spec->measure, &out->effective, err));
    return dlab_load_target_settings(&l->target, &out->effective, err);
}

/* A workload or a plan that cannot be is a point's fate; a file that is not there, or a flag, is the command's. */
static bool ends_the_command(dlab_status st)
{
    return st == DLAB_EUSAGE || st == DLAB_EIO || st == DLAB_EFORMAT || st == DLAB_EINTERRUPTED;
}

dlab_status dlab_load_measure(dlab_load *l, const dlab_point *p, size_t at, dlab_error *err)
{
    tally t = {0};
    dlab_error own = {0};
    l->why[0] = 0;
    dlab_status st = run_all(l, p, at, &t, &own);
    dlab_point_result *out = &l->rec.record.points[at];
    if (st != DLAB_OK && !ends_the_command(st)) {
        out->status = dlab_session_status(st);
        dlab_text_copy(out->reason, sizeof out->reason, own.msg);
        dlab_progress_note(&l->progress, own.msg);
    }
    warn_of(l, p, &t, out);
    if (out->n_runs > 0) {
        dlab_settings_free(&out->effective);
        DLAB_TRY(dlab_settings_copy(&out->runs[0]->effective, &out->effective, err));
    }
    DLAB_TRY(dlab_cmd_recorder_write(&l->rec, err));
    return ends_the_command(st) ? dlab_error_set(err, st, own.file, own.line, "%s", own.msg) : DLAB_OK;
}

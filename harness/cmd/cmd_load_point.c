/* A point of dlab load: its runs, in this process, and what there is to say about them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/int.h"
#include "base/text.h"
#include "harness/cmd/cmd_load.h"
#include "harness/probes/calibration.h"
#include "results/point.h"
#include "results/warnings.h"

#define REASONS_MAX 3 /* why requests of a point failed */

/* ---- what there is to say ------------------------------------------------------------------------------------------------ */

/* Sums over the requests of a point's runs. */
typedef struct {
    int64_t requests, served, failed, shorter, longer, uncounted, prompt, cached;
    bool http;     /* the first failure was a refusal of the server's */
    int64_t again; /* conversations that went to the server in a run before */
} tally;

static void count(tally *t, const dlab_run *r, bool exact)
{
    for (size_t i = 0; i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        t->requests++;
        if (t->failed == 0) t->http = q->failure == DLAB_FAILURE_HTTP && q->http_status >= 400;
        t->failed += q->failure != DLAB_FAILURE_NONE;
        if (q->failure != DLAB_FAILURE_NONE || !isfinite(q->t_done)) continue;
        t->served++;
        t->uncounted += q->new_tokens < 0;
        t->longer += q->asked_tokens >= 0 && q->new_tokens > q->asked_tokens;
        t->shorter += exact && q->new_tokens >= 0 && q->new_tokens < q->asked_tokens;
        if (q->cached_tokens < 0) continue;
        t->prompt += q->prompt_tokens;
        t->cached += q->cached_tokens;
    }
}

/* Prompts that are the same on purpose. */
static bool shares_prompts(const dlab_load *l, const dlab_workload *w)
{
    return l->spec->measure.keep_cache || w->shared_prefix > 0 || w->turns > 1 || w->samples > 1 ||
           strcmp(w->kind, "trace") == 0;
}

static void warn_of_server(const dlab_load *l, const dlab_workload *w, const tally *t, dlab_point_result *p)
{
    if (t->uncounted > 0)
        dlab_point_add_warning(p,
                               "%" PRId64
                               " answers came without usage: their tokens are not counted; give -m MODEL, the model "
                               "served, to count them by its tokenizer",
                               t->uncounted);
    if (t->shorter > 0)
        dlab_point_add_warning(
            p,
            "%" PRId64 " answers are shorter than asked: this server does not know ignore_eos, or the context was full",
            t->shorter);
    if (t->longer > 0)
        dlab_point_add_warning(
            p, "%" PRId64 " answers are longer than asked, says the server's usage: rates of tokens may be wrong",
            t->longer);
    if (t->again > 0)
        dlab_point_add_warning(
            p, "%" PRId64 " of the prompts went to the server before: %s has no more, and a cache may know them",
            t->again, w->prompts_file);
    else if (t->cached > 0 && !shares_prompts(l, w))
        dlab_point_add_warning(p, "the server found %.3g %% of the prompts' tokens in its cache%s",
                               100.0 * (double)t->cached / (double)(t->prompt > 0 ? t->prompt : 1),
                               *w->prompts_file ? "" : ": another --seed makes them new to it");
}

/* After what the runs say. What failed is last: its reasons are a server's, and are cut where the room ends. */
static void warn_of(const dlab_load *l, const dlab_workload *w, const tally *t, dlab_point_result *p)
{
    const dlab_remote *server = l->target.ops->remote ? &l->target.remote : NULL;
    if (server) warn_of_server(l, w, t, p);
    const bool ids = server && strcmp(server->prompt_as, "ids") == 0 && strcmp(server->endpoint, "chat") != 0;
    if (t->failed > 0)
        dlab_point_add_warning(p, "%" PRId64 " of %" PRId64 " requests failed%s%s%s", t->failed, t->requests,
                               ids && t->http && t->served == 0
                                   ? " (for a server that takes no prompts of ids: --prompt-as text -m MODEL)"
                                   : "",
                               *l->why ? ": " : "", l->why);
}

/* A reason why a request failed, from the target: at once to the person, later into the record. The first few of a point
 * alone: a server may give each request another. */
static void tell_why(void *ctx, const char *why)
{
    dlab_load *l = ctx;
    char line[DLAB_ERROR_MSG + 32];
    const size_t used = strlen(l->why);
    if (strstr(l->why, why) || l->n_why == REASONS_MAX) return;
    l->n_why++;
    snprintf(l->why + used, sizeof l->why - used, "%s%s", used ? "; " : "", why);
    snprintf(line, sizeof line, "a request failed: %s", why);
    dlab_progress_note(&l->progress, line);
}

static void tell_phase(void *ctx, const char *phase)
{
    dlab_load *l = ctx;
    dlab_progress_phase(&l->progress, phase);
}

static void say_line(void *ctx, const char *line) { dlab_progress_note(ctx, line); }

/* ---- runs ----------------------------------------------------------------------------------------------------------------- */

/* A server keeps its cache from run to run, and nobody can empty it from outside. So each run has prompts of its own, but
 * the same lengths and arrivals; those of a file go on where the run before ended. */
static dlab_status open_session(dlab_load *l, const dlab_point *p, dlab_session **out, dlab_error *err)
{
    const bool others = l->target.ops->remote && !l->spec->measure.keep_cache;
    l->target.remote.tell = tell_why;
    l->target.remote.tell_ctx = l;
    const dlab_session_opts opts = {.target = l->target.ops,
                                    .model = l->target.model,
                                    .model_name = p->model,
                                    .plan = &p->plan,
                                    .workload = &p->workload,
                                    .measure = &l->spec->measure,
                                    .phase = tell_phase,
                                    .phase_ctx = l,
                                    .remote = l->target.ops->remote ? &l->target.remote : NULL,
                                    .null_step_ns = l->target.null_step_ns,
                                    .null_service_ns = l->target.null_service_ns,
                                    .n_before = others ? l->n_runs : 0,
                                    .sent_before = others ? l->n_sent : 0,
                                    .interrupted = l->interrupted};
    return dlab_session_create(&opts, out, err);
}

/* Which of the prompts were new to the server. */
static void count_sent(dlab_load *l, const dlab_session *s, const dlab_run *r, tally *t)
{
    int64_t sent = 0;
    for (size_t i = 0; i < r->n_requests; i++) sent += r->requests[i].conversation == r->requests[i].id;
    sent /= dlab_max_i64(dlab_session_requests(s)->samples, 1);
    t->again += dlab_max_i64(sent - dlab_session_requests(s)->n_fresh, 0);
    l->n_runs++;
    l->n_sent += sent;
}

/* One run into the record. What was measured before an interruption stays, as a run that was cut short. */
static dlab_status run_once(dlab_load *l, dlab_session *s, size_t at, int64_t repeat, int64_t warmup, bool exact,
                            const char *key, tally *t, dlab_error *err)
{
    const dlab_point_result *p = &l->rec.record.points[at];
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
    count_sent(l, s, &run, t);
    const double took = run.t_end * 1e-9;
    const dlab_run_status status = run.status;
    char reason[sizeof run.reason];
    memcpy(reason, run.reason, sizeof reason);
    if (st == DLAB_OK && own.served == 0 && own.requests > 0) l->unserved = true;
    if (own.failed > 0) l->any_failed = true;
    if (st != DLAB_EINTERRUPTED || own.served > 0) {
        kept = dlab_load_target_settings(&l->target, &run.effective, st == DLAB_OK ? err : NULL);
        if (kept == DLAB_OK) kept = dlab_cmd_recorder_add(&l->rec, at, &run, key, st == DLAB_OK ? err : NULL);
    }
    dlab_run_free(&run);
    dlab_progress_ended(&l->progress, dlab_run_status_text(status), reason, isfinite(took) ? took : 0, ++l->n_done, -1);
    return st != DLAB_OK ? st : kept;
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
        if (!s) DLAB_TRY_DONE(st, open_session(l, p, &s, err));
        if (i == 0) {
            const dlab_plan plan = *dlab_session_plan(s);
            if (strcmp(l->target.ops->name, "engine") == 0)
                dlab_calibration_ensure(&plan, l->interrupted, say_line, &l->progress);
            DLAB_TRY_DONE(st, find_key(l, &plan, &p->workload, key, err));
        }
        /* a search warms a server up once */
        const bool warm = l->target.ops->remote && (i > 0 || (l->opts->find && at > 0));
        DLAB_TRY_DONE(st, run_once(l, s, at, i, warm ? 0 : m->warmup, p->workload.ignore_eos, key, t, err));
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
    l->n_why = 0;
    dlab_status st = run_all(l, p, at, &t, &own);
    dlab_point_result *out = &l->rec.record.points[at];
    DLAB_TRY(dlab_point_summarize(out, err));
    if (st != DLAB_OK && !ends_the_command(st)) {
        out->status = dlab_session_status(st);
        dlab_text_copy(out->reason, sizeof out->reason, own.msg);
        dlab_progress_note(&l->progress, own.msg);
    }
    warn_of(l, &p->workload, &t, out);
    DLAB_TRY(dlab_cmd_recorder_write(&l->rec, err));
    return ends_the_command(st) ? dlab_error_set(err, st, own.file, own.line, "%s", own.msg) : DLAB_OK;
}

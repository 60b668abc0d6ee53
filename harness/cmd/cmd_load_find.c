/* The highest rate that keeps the objectives: doubled (or halved) until it is bracketed, then bisected. Every rate tried is a
 * point of the record. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_load.h"
#include "results/metric.h"
#include "results/warnings.h"

#define CLOSE_ENOUGH 1.05 /* rates this near are one: a run's own chance is larger */
#define RUNS_MAX     16
#define HALVES_MAX   64 /* below the first rate divided by this nothing is sought */

static double worst_of(const dlab_point_result *p, const char *metric, bool highest)
{
    dlab_summary s;
    dlab_metric_summary(dlab_metric_find(metric), (const dlab_run *const *)p->runs, p->n_runs, &DLAB_WINDOW_ALL, &s);
    return highest ? s.max : s.min;
}

/* Every run of the point: nothing failed, what was intended was sent, and enough of the requests met every objective. */
static bool is_kept(const dlab_load *l, const dlab_point_result *p)
{
    return p->status == DLAB_RUN_OK && worst_of(p, "failed", true) == 0 && !dlab_point_falls_short(p) &&
           worst_of(p, "goodput_share", false) >= l->opts->good_share;
}

/* The pace of tokens is among the objectives, and a server did not tell how many there were. */
static bool is_unknown(const dlab_point_result *p)
{
    return p->status == DLAB_RUN_OK && worst_of(p, "failed", true) == 0 && isnan(worst_of(p, "goodput_share", false));
}

typedef enum { KEPT, MISSED, UNKNOWN } verdict;

static dlab_status try_rate(dlab_load *l, double rate, verdict *out, dlab_error *err)
{
    dlab_point p = l->spec->points[0];
    char value[32];
    const size_t at = l->rec.record.n_points;
    dlab_settings axes = {0};
    size_t n = 0;
    const dlab_param *table = dlab_workload_params(&n);
    p.workload.rate = rate;
    dlab_param_print(dlab_param_find(table, n, "workload.rate"), &p.workload, value, sizeof value);
    snprintf(p.label, sizeof p.label, "workload.rate=%s", value);
    dlab_status st = dlab_settings_set(&axes, "workload.rate", value, err);
    p.axes = axes;
    if (st == DLAB_OK) st = dlab_load_frame(l, &p, err);
    if (st == DLAB_OK) st = at == 0 ? dlab_cmd_recorder_open(&l->rec, err) : DLAB_OK;
    dlab_settings_free(&axes);
    p.axes = (dlab_settings){0};
    if (st == DLAB_OK) st = dlab_load_measure(l, &p, at, err);
    if (st != DLAB_OK) return st;
    const dlab_point_result *r = &l->rec.record.points[at];
    if (r->status != DLAB_RUN_OK && r->status != DLAB_RUN_TRUNCATED)
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "the search ends at %s: %s", r->label, r->reason);
    *out = is_unknown(r) ? UNKNOWN : is_kept(l, r) ? KEPT : MISSED;
    return DLAB_OK;
}

/* Three digits that count, so that rates read well: 1.4142 a second is 1.41. */
static double round_rate(double rate)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", rate); /* multiples of a power of ten need not be what is written so */
    return strtod(text, NULL);
}

typedef struct {
    double low, high; /* kept, not kept; 0: none yet */
    int runs;
    int64_t fewest; /* requests of a run */
    bool unknown;   /* whether the objectives are kept */
} bracket;

static dlab_status next(dlab_load *l, bracket *b, double rate, dlab_error *err)
{
    verdict v = UNKNOWN;
    DLAB_TRY(try_rate(l, rate, &v, err));
    if (v == KEPT) b->low = rate;
    if (v == MISSED) b->high = rate;
    b->unknown = v == UNKNOWN;
    const dlab_point_result *p = &l->rec.record.points[l->rec.record.n_points - 1];
    for (size_t i = 0; i < p->n_runs; i++) {
        const int64_t n = (int64_t)p->runs[i]->n_requests;
        if ((b->runs == 0 && i == 0) || n < b->fewest) b->fewest = n;
    }
    b->runs++;
    return DLAB_OK;
}

static dlab_status search(dlab_load *l, bracket *b, dlab_error *err)
{
    double rate = l->spec->points[0].workload.rate;
    const double least = rate / HALVES_MAX;
    while (!b->unknown && (!b->low || !b->high) && b->runs < RUNS_MAX && rate >= least && rate <= 1e6) {
        DLAB_TRY(next(l, b, rate, err));
        rate = b->low && b->high ? rate : b->high ? rate / 2 : rate * 2;
    }
    while (!b->unknown && b->low && b->high && b->high / b->low > CLOSE_ENOUGH && b->runs < RUNS_MAX) {
        rate = round_rate(sqrt(b->low * b->high));
        if (rate <= b->low || rate >= b->high) break; /* there is none between that one would write */
        DLAB_TRY(next(l, b, rate, err));
    }
    return DLAB_OK;
}

static void objective_text(const char *name, int64_t ns, char *buf, size_t size)
{
    const size_t used = strlen(buf);
    if (ns > 0) snprintf(buf + used, size - used, "%s%s within %g ms", used ? ", " : "", name, (double)ns * 1e-6);
}

static void say(const dlab_load *l, const bracket *b, char *sentence, size_t size)
{
    const dlab_measure *m = &l->spec->measure;
    char what[160] = "";
    objective_text("first token", m->slo_ttft_ns, what, sizeof what);
    objective_text("each later token", m->slo_tpot_ns, what, sizeof what);
    objective_text("end", m->slo_e2e_ns, what, sizeof what);
    const double share = 100 * l->opts->good_share;
    if (b->unknown)
        snprintf(
            sentence, size,
            "whether the objectives are kept (%s) is not known: the server does not say how many tokens its answers "
            "have; give -m MODEL, the model served, to count them by its tokenizer",
            what);
    else if (!b->low)
        snprintf(sentence, size, "no rate down to %g a second keeps the objectives for %g %% of the requests (%s)",
                 b->high, share, what);
    else if (!b->high)
        snprintf(sentence, size, "%g requests a second keep the objectives for %g %% (%s); higher rates were not tried",
                 b->low, share, what);
    else
        snprintf(sentence, size, "%g requests a second keep the objectives for %g %% (%s), %g do not", b->low, share,
                 what, b->high);
}

/* 99 % is not told from 100 % by fewer than a hundred requests. */
static void say_few(const dlab_load *l, const bracket *b, char *sentence, size_t size)
{
    const size_t used = strlen(sentence);
    const double left = 1 - l->opts->good_share, need = ceil(1 / left - 1e-6);
    if (b->unknown || left <= 0 || (double)b->fewest >= need) return;
    snprintf(sentence + used, size - used,
             "\nnote: %g %% takes at least %.0f requests a run to tell, and a run had %" PRId64
             ": give a longer --duration or more --requests",
             100 * l->opts->good_share, need, b->fewest);
}

static dlab_status keep_result(dlab_load *l, const bracket *b, dlab_error *err)
{
    char text[32];
    dlab_settings *meta = &l->rec.record.meta;
    snprintf(text, sizeof text, "%g", b->low);
    if (b->low) DLAB_TRY(dlab_settings_set(meta, "rate_kept", text, err));
    snprintf(text, sizeof text, "%g", b->high);
    if (b->high) DLAB_TRY(dlab_settings_set(meta, "rate_missed", text, err));
    return DLAB_OK;
}

dlab_status dlab_load_find(dlab_load *l, bool *found, char *sentence, size_t size, dlab_error *err)
{
    bracket b = {0};
    *sentence = 0;
    dlab_status st = search(l, &b, err);
    *found = b.low > 0;
    if (b.runs > 0) {
        say(l, &b, sentence, size);
        say_few(l, &b, sentence, size);
    }
    return st == DLAB_OK ? keep_result(l, &b, err) : st;
}

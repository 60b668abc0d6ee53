#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "harness/cmd/cmd_bench.h"
#include "harness/probes/calibration.h"
#include "results/metric.h"

/* ---- the list of cells ---------------------------------------------------------------------------------------------- */

typedef struct {
    dlab_bench_cell *cells;
    size_t n, cap;
} cell_list;

static dlab_status add_cell(cell_list *l, const dlab_bench_cell *base, int64_t n_prompt, int64_t n_gen, dlab_error *err)
{
    if (n_prompt == 0 && n_gen == 0) return DLAB_OK;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16;
        dlab_bench_cell *more = realloc(l->cells, cap * sizeof *more);
        if (!more) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the list of tests");
        l->cells = more;
        l->cap = cap;
    }
    l->cells[l->n] = *base;
    l->cells[l->n].n_prompt = n_prompt;
    l->cells[l->n].n_gen = n_gen;
    l->n++;
    return DLAB_OK;
}

/* llama-bench: all of -p, then all of -n, then all of -pg. */
static dlab_status add_tests(cell_list *l, const dlab_bench_opts *o, const dlab_bench_cell *base, dlab_error *err)
{
    for (size_t i = 0; i < o->prompt.n; i++) DLAB_TRY(add_cell(l, base, o->prompt.v[i], 0, err));
    for (size_t i = 0; i < o->gen.n; i++) DLAB_TRY(add_cell(l, base, 0, o->gen.v[i], err));
    for (size_t i = 0; i < o->pg_prompt.n; i++) DLAB_TRY(add_cell(l, base, o->pg_prompt.v[i], o->pg_gen.v[i], err));
    return DLAB_OK;
}

/* Every combination of the flags that make a configuration, one digit of a mixed-radix counter each. */
typedef struct {
    size_t n; /* values; a flag that was not given has one: the plan's own */
    size_t at;
} digit;

enum { D_DEPTH, D_CTK, D_CTV, D_FA, D_BATCH, D_UBATCH, D_THREADS, D_NPL, N_DIGITS };

static void apply(const dlab_bench_opts *o, const digit *d, dlab_bench_cell *c)
{
    c->plan = o->plan;
    c->depth = o->depth.v[d[D_DEPTH].at];
    if (o->ctk.n) c->plan.kv_k = o->ctk.v[d[D_CTK].at];
    if (o->ctv.n) c->plan.kv_v = o->ctv.v[d[D_CTV].at];
    if (o->fa.n) c->plan.attention_kernel = o->fa.v[d[D_FA].at];
    if (o->n_batch.n) c->plan.batch_token_budget = o->n_batch.v[d[D_BATCH].at];
    if (o->n_ubatch.n) c->plan.batch_chunk = o->n_ubatch.v[d[D_UBATCH].at];
    if (o->threads.n) c->plan.threads = o->threads.v[d[D_THREADS].at];
    if (o->npl.n) c->plan.batch_size = o->npl.v[d[D_NPL].at];
    c->npl = c->plan.batch_size;
}

dlab_status dlab_bench_cells(const dlab_bench_opts *o, dlab_bench_cell **out, size_t *n, dlab_error *err)
{
    digit d[N_DIGITS] = {
        [D_DEPTH] = {o->depth.n, 0},     [D_CTK] = {o->ctk.n, 0},       [D_CTV] = {o->ctv.n, 0},
        [D_FA] = {o->fa.n, 0},           [D_BATCH] = {o->n_batch.n, 0}, [D_UBATCH] = {o->n_ubatch.n, 0},
        [D_THREADS] = {o->threads.n, 0}, [D_NPL] = {o->npl.n, 0},
    };
    cell_list list = {0};
    for (;;) {
        dlab_bench_cell base = {0};
        apply(o, d, &base);
        dlab_status st = add_tests(&list, o, &base, err);
        if (st != DLAB_OK) {
            free(list.cells);
            return st;
        }
        size_t i = N_DIGITS;
        while (i > 0 && ++d[i - 1].at >= d[i - 1].n) d[--i].at = 0;
        if (i == 0) break;
    }
    *out = list.cells;
    *n = list.n;
    return DLAB_OK;
}

void dlab_bench_test_name(const dlab_bench_cell *c, char *buf, size_t size)
{
    char pp[32] = "", tg[32] = "", depth[32] = "", npl[32] = "";
    if (c->n_prompt) snprintf(pp, sizeof pp, "pp%" PRId64, c->n_prompt);
    if (c->n_gen) snprintf(tg, sizeof tg, "%stg%" PRId64, c->n_prompt ? "+" : "", c->n_gen);
    if (c->depth) snprintf(depth, sizeof depth, " @ d%" PRId64, c->depth);
    if (c->npl > 1) snprintf(npl, sizeof npl, " npl%" PRId64, c->npl);
    snprintf(buf, size, "%s%s%s%s", pp, tg, depth, npl);
}

/* ---- one cell ------------------------------------------------------------------------------------------------------- */

/* A prompt test ends with its first token. A generation test of N tokens is N steps of one row, as in llama-bench: the
 * one-token prompt gives the first. Both together are the prompt's steps and N more. */
dlab_workload dlab_bench_workload(const dlab_bench_cell *c)
{
    size_t n = 0;
    const dlab_param *table = dlab_workload_params(&n);
    dlab_workload w = {0};
    dlab_param_defaults(table, n, &w);
    w.prompt = c->n_prompt ? c->n_prompt : 1;
    w.output = !c->n_gen ? 1 : c->n_prompt ? c->n_gen + 1 : c->n_gen;
    w.depth = c->depth;
    return w;
}

dlab_measure dlab_bench_measure_of(const dlab_bench_opts *o)
{
    return (dlab_measure){.repeats = o->repeats, .warmup = o->no_warmup ? 0 : 1, .order = "grouped"};
}

static double metric_of(const char *name, const dlab_run *r)
{
    const dlab_metric *m = dlab_metric_find(name);
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_metric_value v = {.value = NAN};
    if (m) m->compute(r, &all, &v);
    return v.value;
}

/* When the last token of the test came, counted from the start: for prompts, the last request's first token. */
static double last_token_ns(const dlab_run *r)
{
    double last = NAN;
    for (size_t i = 0; i < r->n_tokens; i++) last = fmax(last, r->tokens[i].t);
    return last;
}

static void keep_sample(const dlab_bench_cell *c, const dlab_run *r, dlab_bench_row *out)
{
    size_t i = out->n++;
    double tokens = (double)((c->n_prompt + c->n_gen) * c->npl);
    out->time_ns[i] = last_token_ns(r);
    out->rate[i] = tokens / out->time_ns[i] * 1e9;
    out->ttft_ms[i] = metric_of("ttft", r) / 1e6;
    out->tpot_ms[i] = metric_of("tpot", r) / 1e6;
    out->roofline[i] = metric_of("roofline", r);
    out->mbu[i] = metric_of("mbu", r);
    out->mfu[i] = metric_of("mfu", r);
    out->mem_peak = fmax(out->mem_peak, metric_of("mem_peak", r));
}

typedef struct {
    const char *test;
    bool on;
} progress_line;

static void tell_phase(void *ctx, const char *phase)
{
    const progress_line *p = ctx;
    if (p->on && strcmp(phase, "measure") != 0) fprintf(stderr, "dlab bench: %s: %s\n", p->test, phase);
}

static dlab_status measure_once(const dlab_bench_opts *o, dlab_session *s, int64_t repeat, dlab_bench_row *out,
                                dlab_error *err)
{
    dlab_run run;
    dlab_run_init(&run);
    dlab_status st = dlab_session_run(s, repeat, o->no_warmup ? 0 : 1, &run, err);
    if (st == DLAB_OK) {
        if (repeat == 0) out->started_unix = run.started_unix;
        keep_sample(out->cell, &run, out);
    }
    if (o->record && st != DLAB_EINTERRUPTED)
        out->runs[out->n_runs++] = run;
    else
        dlab_run_free(&run);
    return st;
}

/* With a peer: ours, peer, peer, ours, ours, … so that a machine that gets slower or faster favours neither. */
static dlab_status measure_repeats(const dlab_bench_opts *o, dlab_session *s, const progress_line *p,
                                   const volatile sig_atomic_t *interrupted, dlab_bench_row *out, dlab_error *err)
{
    for (int64_t i = 0; i < o->repeats; i++) {
        if (i % 2 == 1) DLAB_TRY(dlab_bench_peer_turn(o, interrupted, out, err));
        if (p->on) fprintf(stderr, "dlab bench: %s: run %" PRId64 " of %" PRId64 "\n", p->test, i + 1, o->repeats);
        DLAB_TRY(measure_once(o, s, i, out, err));
        if (i % 2 == 0) DLAB_TRY(dlab_bench_peer_turn(o, interrupted, out, err));
    }
    return DLAB_OK;
}

static void say_line(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "dlab bench: %s\n", line);
}

static dlab_status run_cell(const dlab_bench_opts *o, const dlab_model *m, const volatile sig_atomic_t *interrupted,
                            dlab_bench_row *out, dlab_error *err)
{
    char test[96];
    dlab_bench_test_name(out->cell, test, sizeof test);
    progress_line p = {test, o->progress};
    dlab_workload w = dlab_bench_workload(out->cell);
    dlab_measure measure = dlab_bench_measure_of(o);
    dlab_session_opts opts = {.target = dlab_target_find("engine"),
                              .model = m,
                              .model_name = out->model_path,
                              .plan = &out->cell->plan,
                              .workload = &w,
                              .measure = &measure,
                              .phase = tell_phase,
                              .phase_ctx = &p,
                              .interrupted = interrupted};
    dlab_session *s = NULL;
    dlab_status st = dlab_session_create(&opts, &s, err);
    if (st == DLAB_OK) out->plan = *dlab_session_plan(s);
    if (st == DLAB_OK) dlab_calibration_ensure(&out->plan, interrupted, say_line, NULL);
    if (st == DLAB_OK) st = dlab_bench_peer_begin(o, interrupted, out, err);
    if (st == DLAB_OK) st = measure_repeats(o, s, &p, interrupted, out, err);
    dlab_session_destroy(s);
    return st;
}

dlab_status dlab_bench_measure(const dlab_bench_opts *o, const dlab_bench_cell *c, const dlab_model *m,
                               const char *model_path, const volatile sig_atomic_t *interrupted, dlab_bench_row *out,
                               dlab_error *err)
{
    size_t n = (size_t)o->repeats;
    *out = (dlab_bench_row){.cell = c,
                            .model = dlab_model_get_info(m),
                            .model_path = model_path,
                            .plan = c->plan,
                            .started_unix = NAN,
                            .mem_peak = NAN};
    out->peer = (dlab_bench_peer){.asked = o->peer_kind != NULL,
                                  .status = DLAB_RUN_PENDING,
                                  .model = o->peer_model ? o->peer_model : model_path,
                                  .test = {.flash = -1},
                                  .ratio = {NAN, NAN, NAN, 0}};
    out->time_ns = calloc(9 * n, sizeof *out->time_ns);
    if (o->record) out->runs = calloc(n, sizeof *out->runs);
    if (!out->time_ns || (o->record && !out->runs)) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu samples", n);
    out->rate = out->time_ns + n;
    out->ttft_ms = out->rate + n;
    out->tpot_ms = out->ttft_ms + n;
    out->peer.time_ns = out->tpot_ms + n;
    out->peer.rate = out->peer.time_ns + n;
    out->roofline = out->peer.rate + n;
    out->mbu = out->roofline + n;
    out->mfu = out->mbu + n;
    dlab_error own = {0};
    dlab_status st = run_cell(o, m, interrupted, out, &own);
    out->status = dlab_session_status(st);
    if (st == DLAB_EINTERRUPTED) return DLAB_FAIL(err, st, "interrupted");
    if (st != DLAB_OK) dlab_text_copy(out->reason, sizeof out->reason, own.msg);
    dlab_bench_peer_end(out);
    return DLAB_OK;
}

void dlab_bench_row_free(dlab_bench_row *r)
{
    for (size_t i = 0; i < r->n_runs; i++) dlab_run_free(&r->runs[i]);
    free(r->runs);
    r->runs = NULL;
    r->n_runs = 0;
    free(r->time_ns);
    r->peer.time_ns = r->peer.rate = NULL;
    r->time_ns = r->rate = r->ttft_ms = r->tpot_ms = r->roofline = r->mbu = r->mfu = NULL;
    r->n = 0;
}

dlab_bench_stat dlab_bench_stat_of(const double *x, size_t n)
{
    dlab_bench_stat s = {NAN, NAN, 0};
    double mean = 0, m2 = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        double d = x[i] - mean;
        mean += d / (double)++s.n;
        m2 += d * (x[i] - mean);
    }
    if (s.n > 0) s.mean = mean;
    if (s.n > 1) s.sd = sqrt(m2 / (double)(s.n - 1));
    return s;
}

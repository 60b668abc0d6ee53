/* Hand-made runs for the tests of this folder. */
#ifndef DLAB_TESTS_RESULTS_SYNTHETIC_H
#define DLAB_TESTS_RESULTS_SYNTHETIC_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/metric.h"
#include "results/record.h"

static inline double metric_value(const dlab_run *r, const char *name)
{
    const dlab_metric *m = dlab_metric_find(name);
    ck_assert_msg(m != NULL, "no metric %s", name);
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_metric_value v = {.value = 12345};
    m->compute(r, &all, &v);
    return v.value;
}

/* A static batch of `seqs` requests, all at once: a prefill step of ttft_ns, then steps of gap_ns + slope_ns × index. A
 * store that does not retain computes all rows again at each of them; those are decode rows, as the engine counts. */
typedef struct {
    int seqs, prompt, made;
    double ttft_ns, gap_ns, slope_ns;
    double step_bytes, step_flops;
    bool retains;
} batch_shape;

static inline void fill_batch(dlab_run *r, const batch_shape *b)
{
    dlab_run_init(r);
    r->status = DLAB_RUN_OK;
    double t = 0;
    for (int i = 0; i < b->made; i++) {
        double d = i == 0 ? b->ttft_ns : b->gap_ns + b->slope_ns * i;
        int again = b->retains ? 1 : b->prompt + i;
        dlab_ev_step s = {.t_begin = t,
                          .t_end = t + d,
                          .seqs = b->seqs,
                          .slots = b->seqs,
                          .launches = 7,
                          .bytes = b->step_bytes,
                          .flops = b->step_flops,
                          .kv_bytes = 10,
                          .prefill_rows = i == 0 ? b->seqs * b->prompt : 0,
                          .decode_rows = i > 0 ? b->seqs * again : 0,
                          .kv_reserved = b->retains ? 1000 : 0,
                          .kv_used = b->retains && i + 1 < b->made ? 10 * (i + 1) : 0};
        s.rows = s.prefill_rows + s.decode_rows;
        t += d;
        if (dlab_run_add_step(r, &s, NULL) != DLAB_OK) abort();
        for (int q = 0; q < b->seqs; q++) {
            dlab_ev_token e = {.request = q, .index = i, .token = 100 + q, .t = t};
            if (dlab_run_add_token(r, &e, NULL) != DLAB_OK) abort();
        }
    }
    for (int q = 0; q < b->seqs; q++) {
        dlab_ev_request e = {.id = q,
                             .prompt_tokens = b->prompt,
                             .new_tokens = b->made,
                             .t_first = b->ttft_ns,
                             .t_done = t,
                             .finish = 1};
        if (dlab_run_add_request(r, &e, NULL) != DLAB_OK) abort();
    }
    r->t_end = t;
}

static inline dlab_point_result *add_point(dlab_record *r, const char *const *axes)
{
    r->points = realloc(r->points, (r->n_points + 1) * sizeof *r->points);
    dlab_point_result *p = &r->points[r->n_points++];
    memset(p, 0, sizeof *p);
    for (int i = 0; axes[i]; i += 2) {
        if (dlab_settings_set(&p->axes, axes[i], axes[i + 1], NULL) != DLAB_OK) abort();
        if (dlab_settings_set(&p->effective, axes[i], axes[i + 1], NULL) != DLAB_OK) abort();
        size_t n = strlen(p->label);
        snprintf(p->label + n, sizeof p->label - n, "%s%s=%s", n ? " " : "", axes[i], axes[i + 1]);
    }
    return p;
}

/* A run with the batch's events, as the next repeat of the last point. */
static inline dlab_run *add_run(dlab_record *r, const batch_shape *b)
{
    dlab_point_result *p = &r->points[r->n_points - 1];
    p->runs = realloc(p->runs, (p->n_runs + 1) * sizeof(dlab_run *));
    dlab_run *run = malloc(sizeof *run);
    fill_batch(run, b);
    run->point = (int32_t)r->n_points - 1;
    run->repeat = (int32_t)p->n_runs;
    snprintf(run->key, sizeof run->key, "%014x%02x", (unsigned)r->n_points & 0xffff, (unsigned)run->repeat & 0xff);
    p->runs[p->n_runs++] = run;
    p->n_planned = p->n_runs;
    return run;
}

#endif

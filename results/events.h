/* What metrics need from a run's events: tokens by request, what kind of work a step was, percentiles with their n. */
#ifndef DLAB_RESULTS_EVENTS_H
#define DLAB_RESULTS_EVENTS_H

#include <math.h>

#include "results/metric.h"

/* Every metric starts from this and fills it in when it has what it needs. */
#define DLAB_METRIC_MISSING ((dlab_metric_value){.value = NAN})

bool dlab_event_in_window(const dlab_ev_token *t, const dlab_metric_window *w);
/* Neither the times nor the tokens of a request that failed are in any figure but the failures' own. */
bool dlab_event_served(const dlab_ev_request *q);
/* The run's tokens inside the window, by request and index; those without a time are left out, and unless all is set those
 * of failed requests. malloc'd, NULL when there are none (or memory is out: the metric is then missing). */
dlab_ev_token *dlab_events_tokens(const dlab_run *r, const dlab_metric_window *w, bool all, size_t *n);

/* How fast the tokens of one served request came. */
typedef struct {
    int64_t id;
    double tpot; /* (t_last - t_first)/(n - 1); NaN: n < 2. Over all of them n is what the request's row says, which may
                    differ from the tokens that came (a server's own count); in a narrower window what lies in it */
} dlab_request_pace;
/* One row a served request with a token in the window, by id. malloc'd or NULL, as above. */
dlab_request_pace *dlab_events_paces(const dlab_run *r, const dlab_metric_window *w, size_t *n);

/* What came out, by time: tokens of served requests. Of a request whose row counts others than those that have a time, as of
 * a server that tells the number alone, the first came with the first and the rest evenly until the last. NaN tokens: how
 * many is unknown. */
typedef struct {
    double t, tokens;
} dlab_output;
dlab_output *dlab_events_output(const dlab_run *r, size_t *n);

/* What its rows say. Its tokens say it only where there are no rows (a target that does not tell): with batch.release
 * at_end all tokens of a batch come in the step that ends it. */
typedef enum {
    DLAB_STEP_IDLE,    /* no rows, no tokens */
    DLAB_STEP_PREFILL, /* works towards first tokens, nothing else; padding of prompts alone is that too */
    DLAB_STEP_DECODE,  /* works towards tokens after the first, nothing else */
    DLAB_STEP_MIXED
} dlab_step_kind;

typedef struct {
    dlab_step_kind kind;
    int64_t n_first, n_later; /* tokens of index 0, and after it, that the step made */
    int64_t later_served;     /* those of n_later whose request was served */
    bool in_window;           /* none of its tokens lies outside the window */
} dlab_step_facts;

/* One entry a step. malloc'd; NULL when there are no steps or memory is out. */
dlab_step_facts *dlab_events_steps(const dlab_run *r, const dlab_metric_window *w);

/* Sum over the steps of one kind inside the window; DLAB_STEPS_ALL for every step of the run. */
#define DLAB_STEPS_ALL (-1)
typedef struct {
    int64_t steps, rows, prefill_rows, pad_rows, budget, budget_rows, budget_steps, seqs, slots, launches, later_tokens;
    double seconds, bytes, kv_bytes, kv_dense_bytes, inter_bytes, flops;
} dlab_step_sum;
dlab_step_sum dlab_events_sum(const dlab_run *r, const dlab_step_facts *facts, int kind);
/* Whether it has step i in it. facts may be NULL for DLAB_STEPS_ALL. */
bool dlab_events_counts(const dlab_step_facts *facts, size_t i, int kind);
/* The steps that say what a step moves and computes: pure decode steps, or DLAB_STEPS_ALL of a run that has none (prompts
 * only). A mean over prompt and decode steps together would describe neither. */
int dlab_events_work_kind(const dlab_run *r, const dlab_step_facts *facts);

/* Seconds of mixed steps ÷ seconds of all steps; NaN when no step took time. */
double dlab_events_mixed_share(const dlab_run *r, const dlab_step_facts *facts);

double dlab_event_step_seconds(const dlab_ev_step *s);

/* The run's length in ns: t_end, or the end of the last step. NaN when neither is known. */
double dlab_events_length_ns(const dlab_run *r);

/* Values and how they are put into one number. Non-finite values are dropped. x is sorted in place by a quantile. */
void dlab_events_mean(const double *x, size_t n, dlab_metric_value *out);
void dlab_events_quantile(double *x, size_t n, double q, dlab_metric_value *out);
/* The smallest sample whose largest value exceeds the quantile with 99 % confidence: 459 for p99, 44 for p90. */
int64_t dlab_events_quantile_min_n(double q);

#endif

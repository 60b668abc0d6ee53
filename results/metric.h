/* Metrics: pure functions from a run's events to numbers, one file a family in results/metrics, collected by the build.
 * Missing is NaN, never 0. Definitions: docs/metrics.md. */
#ifndef DLAB_RESULTS_METRIC_H
#define DLAB_RESULTS_METRIC_H

#include <stdbool.h>

#include "results/run.h"

typedef enum { DLAB_LOWER_IS_BETTER = -1, DLAB_NEITHER = 0, DLAB_HIGHER_IS_BETTER = 1 } dlab_better;

typedef struct dlab_metric_value {
    double value;
    int64_t n;  /* samples behind it */
    bool low_n; /* a percentile whose sample does not support it (p99 under 459) */
} dlab_metric_value;

/* Which tokens count in metrics of decode: first ≤ index ≤ last of the requests first_request ≤ id ≤ last_request. */
typedef struct {
    int32_t first, last;
    int64_t first_request, last_request;
} dlab_metric_window;

typedef struct {
    const char *name, *unit; /* unit: "ns", "tok/s", "B", "1", "nats", … */
    dlab_better better;
    bool windowed;           /* a metric of decode: counts only the window's token indices */
    const char *description; /* its definition, one sentence */
    void (*compute)(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out);
} dlab_metric;

typedef struct {
    const dlab_metric *metrics;
    size_t n;
} dlab_metric_family;

/* generated from the folder; NULL-terminated */
extern const dlab_metric_family *const dlab_metric_families[];

const dlab_metric *dlab_metric_find(const char *name); /* NULL if unknown */
const char *dlab_metric_nearest(const char *name);     /* for messages, or NULL */
/* All metrics in a stable order; returns how many. out may be NULL. */
size_t dlab_metric_all(const dlab_metric **out, size_t cap);

/* The default. */
#define DLAB_WINDOW_ALL ((dlab_metric_window){0, INT32_MAX, INT64_MIN, INT64_MAX})
bool dlab_metric_window_is_all(const dlab_metric_window *w);

/* One run's value. From what dlab_run_summarize kept where that is the same. */
void dlab_metric_run(const dlab_metric *m, const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out);

/* Over the repeats of a point. Runs that are neither ok nor truncated are left out. */
typedef struct {
    double median, mean, sd, min, max; /* sd with n − 1; NaN when n < 2 */
    int64_t n;                         /* runs that have the value */
    int64_t n_samples;                 /* samples behind them, summed */
    bool low_n;
} dlab_summary;
void dlab_metric_summary(const dlab_metric *m, const dlab_run *const *runs, size_t n, const dlab_metric_window *w,
                         dlab_summary *out);
/* sd with n − 1; NaN where there are too few: mean 0, sd 0 or 1. Either may be NULL. */
void dlab_mean_sd(const double *x, size_t n, double *mean, double *sd);
/* numpy's default quantile (linear interpolation); sorts x in place; NaN when n is 0. */
double dlab_quantile(double *x, size_t n, double q);

#endif

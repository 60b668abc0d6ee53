#include "results/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"

const dlab_metric *dlab_metric_find(const char *name)
{
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++)
        for (size_t i = 0; i < (*f)->n; i++)
            if (strcmp((*f)->metrics[i].name, name) == 0) return &(*f)->metrics[i];
    return NULL;
}

size_t dlab_metric_all(const dlab_metric **out, size_t cap)
{
    size_t n = 0;
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++)
        for (size_t i = 0; i < (*f)->n; i++, n++)
            if (out && n < cap) out[n] = &(*f)->metrics[i];
    return n;
}

const char *dlab_metric_nearest(const char *name)
{
    const char *words[257]; /* a test holds the number of metrics under 256 */
    size_t n = 0;
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++)
        for (size_t i = 0; i < (*f)->n && n < 256; i++) words[n++] = (*f)->metrics[i].name;
    words[n] = NULL;
    return dlab_nearest(name, words);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double dlab_quantile(double *x, size_t n, double q)
{
    if (n == 0) return NAN;
    qsort(x, n, sizeof *x, compare_doubles);
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n) return x[n - 1];
    double f = at - (double)i;
    return x[i] + f * (x[i + 1] - x[i]);
}

void dlab_mean_sd(const double *x, size_t n, double *mean, double *sd)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    const double m = n > 0 ? sum / (double)n : NAN;
    for (size_t i = 0; i < n; i++) squares += (x[i] - m) * (x[i] - m);
    if (mean) *mean = m;
    if (sd) *sd = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

/* ---- one run ------------------------------------------------------------------------------------------------------- */

dlab_status dlab_run_summarize(dlab_run *r, dlab_error *err)
{
    if (r->metrics) return DLAB_OK;
    dlab_metric_value *values = calloc(dlab_metric_all(NULL, 0) + 1, sizeof *values);
    if (!values) return DLAB_FAIL(err, DLAB_EOOM, "run %s: no memory for its metrics", r->key);
    size_t n = 0;
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++)
        for (size_t i = 0; i < (*f)->n; i++) (*f)->metrics[i].compute(r, &DLAB_WINDOW_ALL, &values[n++]);
    r->metrics = values;
    return DLAB_OK;
}

void dlab_run_drop_events(dlab_run *r)
{
    if (dlab_run_summarize(r, NULL) != DLAB_OK) return;
    dlab_run_free_events(r);
    r->dropped = true;
}

/* Where the metric stands in dlab_metric_all's order. */
static size_t number_of(const dlab_metric *m)
{
    size_t n = 0;
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++)
        for (size_t i = 0; i < (*f)->n; i++, n++)
            if (&(*f)->metrics[i] == m) return n;
    return n;
}

bool dlab_metric_window_is_all(const dlab_metric_window *w)
{
    return w->first <= 0 && w->last == INT32_MAX && w->first_request == INT64_MIN && w->last_request == INT64_MAX;
}

void dlab_metric_run(const dlab_metric *m, const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    *out = (dlab_metric_value){.value = NAN};
    if (r->metrics && (!m->windowed || dlab_metric_window_is_all(w)))
        *out = r->metrics[number_of(m)];
    else if (!r->dropped)
        m->compute(r, w, out);
}

/* ---- the repeats of a point ---------------------------------------------------------------------------------------- */

void dlab_metric_summary(const dlab_metric *m, const dlab_run *const *runs, size_t n, const dlab_metric_window *w,
                         dlab_summary *out)
{
    *out = (dlab_summary){.median = NAN, .mean = NAN, .sd = NAN, .min = NAN, .max = NAN};
    double *values = malloc((n ? n : 1) * sizeof *values);
    if (!values) return; /* missing, as documented: the caller sees n = 0 */
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        dlab_metric_value v;
        if (!runs[i] || !dlab_run_counts(runs[i])) continue;
        dlab_metric_run(m, runs[i], w, &v);
        if (!isfinite(v.value)) continue;
        values[k++] = v.value;
        out->n_samples += v.n;
        out->low_n = out->low_n || v.low_n;
    }
    out->n = (int64_t)k;
    if (k > 0) {
        dlab_mean_sd(values, k, &out->mean, &out->sd);
        out->median = dlab_quantile(values, k, 0.5);
        out->min = values[0];
        out->max = values[k - 1];
    }
    free(values);
}

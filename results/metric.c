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

static bool run_counts(const dlab_run *r) { return r->status == DLAB_RUN_OK || r->status == DLAB_RUN_TRUNCATED; }

void dlab_metric_summary(const dlab_metric *m, const dlab_run *const *runs, size_t n, const dlab_metric_window *w,
                         dlab_summary *out)
{
    *out = (dlab_summary){.median = NAN, .mean = NAN, .sd = NAN, .min = NAN, .max = NAN};
    double *values = malloc((n ? n : 1) * sizeof *values);
    if (!values) return; /* missing, as documented: the caller sees n = 0 */
    size_t k = 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        dlab_metric_value v = {.value = NAN};
        if (!runs[i] || !run_counts(runs[i])) continue;
        m->compute(runs[i], w, &v);
        if (!isfinite(v.value)) continue;
        values[k++] = v.value;
        sum += v.value;
        out->n_samples += v.n;
        out->low_n = out->low_n || v.low_n;
    }
    out->n = (int64_t)k;
    if (k > 0) {
        out->mean = sum / (double)k;
        out->median = dlab_quantile(values, k, 0.5);
        out->min = values[0];
        out->max = values[k - 1];
    }
    if (k > 1) {
        double squares = 0;
        for (size_t i = 0; i < k; i++) squares += (values[i] - out->mean) * (values[i] - out->mean);
        out->sd = sqrt(squares / (double)(k - 1));
    }
    free(values);
}

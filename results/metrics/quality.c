/* Perplexity from the per-token values of a quality pass; the protocol is stored beside them. Sums in double. */
#include <math.h>

#include "results/events.h"

/* Only positions of the protocol's span count; the others are kept in the record for other protocols. One value that
 * is not a number makes the figure missing: a mean without it would look better than the model is. */
static double nll_sum(const dlab_run *r, int64_t *n)
{
    double sum = 0;
    *n = 0;
    for (size_t i = 0; i < r->n_quality; i++) {
        if (r->quality[i].position < r->quality_first) continue;
        sum += r->quality[i].nll;
        (*n)++;
    }
    return *n > 0 && isfinite(sum) ? sum : NAN;
}

static void nll(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int64_t n;
    double sum = nll_sum(r, &n);
    *out = (dlab_metric_value){.value = sum / (double)n, .n = n};
}

static void ppl(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    nll(r, w, out);
    out->value = exp(out->value);
}

static void bits_per_byte(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int64_t n;
    double sum = nll_sum(r, &n);
    *out = DLAB_METRIC_MISSING;
    if (r->quality_bytes > 0)
        *out = (dlab_metric_value){.value = sum / 0.693147180559945309417 / (double)r->quality_bytes, .n = n};
}

static const dlab_metric metrics[] = {
    {"nll", "nats", DLAB_LOWER_IS_BETTER, false, "mean negative log likelihood of a scored token", nll},
    {"ppl", "1", DLAB_LOWER_IS_BETTER, false, "perplexity, exp(nll)", ppl},
    {"bits_per_byte", "bit/B", DLAB_LOWER_IS_BETTER, false,
     "sum of the scored tokens' negative log likelihoods in bits / bytes of text that they stand for", bits_per_byte},
};

const dlab_metric_family dlab_metrics_quality = {metrics, sizeof metrics / sizeof *metrics};

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/workload/workload_parts.h"

dlab_rng dlab_stream_rng(int64_t seed, dlab_stream kind, uint64_t number)
{
    const uint64_t distance = 0xD1342543DE82EF95u; /* between kinds; any large odd number: most numbers are small */
    dlab_rng rng;
    uint64_t state = (uint64_t)seed;
    state = dlab_splitmix64(&state) + (uint64_t)kind * distance + number;
    dlab_rng_seed(&rng, dlab_splitmix64(&state));
    return rng;
}

/* ---- gaps --------------------------------------------------------------------------------------------------------------- */

static double draw_exponential(dlab_rng *rng) { return -log1p(-dlab_rng_unit(rng)); }

/* Of the shape given, scale 1 (Marsaglia and Tsang, 2000). Below 1: a draw of shape + 1 times a power of a uniform one. */
static double draw_gamma(dlab_rng *rng, double shape)
{
    if (shape < 1) {
        const double u = 1 - dlab_rng_unit(rng);
        return draw_gamma(rng, shape + 1) * pow(u, 1 / shape);
    }
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = dlab_rng_normal(rng), v = 1 + c * x;
        if (v <= 0) continue;
        const double v3 = v * v * v;
        if (log(1 - dlab_rng_unit(rng)) < x * x / 2 + d * (1 - v3 + log(v3))) return d * v3;
    }
}

double dlab_gap_draw(const dlab_workload *w, dlab_rng *rng)
{
    if (dlab_is(w->arrivals, "constant")) return 1;
    if (dlab_is(w->arrivals, "gamma")) return draw_gamma(rng, w->burstiness) / w->burstiness;
    return draw_exponential(rng);
}

/* When the rate's integral, Λ(t) = r·t + (r₁ − r)·t²/2T, reaches u. NaN: never. */
static double time_of(const dlab_workload *w, double u)
{
    if (w->rate_end <= 0) return u / w->rate;
    const double a = (w->rate_end - w->rate) / (2 * (double)w->duration_ns * 1e-9);
    return u > 0 ? 2 * u / (w->rate + sqrt(w->rate * w->rate + 4 * a * u)) : 0;
}

static dlab_status check_open(const dlab_workload *w, int64_t max, dlab_error *err)
{
    if (w->rate <= 0 && w->rate_end <= 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.rate: kind open needs a rate above 0, in requests a second");
    }
    if (w->rate_end > 0 && w->duration_ns <= 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.rate_end: a rate that changes from %g to %g needs workload.duration, over which it "
                         "does",
                         w->rate, w->rate_end);
    }
    if (max <= 0 && w->duration_ns <= 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.kind: open goes on for ever: give workload.duration or workload.requests");
    }
    return DLAB_OK;
}

static dlab_status add_time(int64_t **times, size_t *room, int64_t n, int64_t ns, dlab_error *err)
{
    if (!*times || (size_t)n == *room) {
        *room = *room ? *room * 2 : 256;
        int64_t *bigger = realloc(*times, *room * sizeof **times);
        if (!bigger) return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %zu arrivals", *room);
        *times = bigger;
    }
    (*times)[n] = ns;
    return DLAB_OK;
}

/* Gaps are drawn for a rate of 1 and mapped through the rate's integral, which keeps their kind under any rate. They are
 * never stretched to fill a duration: that would make another process of them. A constant rate starts at 0; a drawn one
 * with its first gap. */
dlab_status dlab_arrivals_make(const dlab_workload *w, int64_t max, int64_t **times, int64_t *n, dlab_error *err)
{
    const double end = w->duration_ns > 0 ? (double)w->duration_ns * 1e-9 : INFINITY;
    size_t room = 0;
    double u = 0;
    *times = NULL;
    *n = 0;
    DLAB_TRY(check_open(w, max, err));
    for (; max <= 0 || *n < max; (*n)++) {
        dlab_rng rng = dlab_stream_rng(dlab_seed_arrivals(w), DLAB_STREAM_GAPS, (uint64_t)*n);
        u = dlab_is(w->arrivals, "constant") ? (double)*n : u + dlab_gap_draw(w, &rng);
        const double next = time_of(w, u);
        if (!(next < end)) break;
        if (*n == DLAB_REQUESTS_MAX || next > 9e9) {
            return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                             "workload.rate: at %g a second more than %lld requests come, or one only after centuries",
                             w->rate, (long long)*n);
        }
        DLAB_TRY(add_time(times, &room, *n, llround(next * 1e9), err));
    }
    return DLAB_OK;
}

int64_t dlab_think_draw(const dlab_workload *w, int64_t request)
{
    if (!dlab_is(w->think, "exponential")) return w->think_ns;
    dlab_rng rng = dlab_stream_rng(dlab_seed_arrivals(w), DLAB_STREAM_THINK, (uint64_t)request);
    return llround((double)w->think_ns * draw_exponential(&rng));
}

/* ---- priorities, groups ------------------------------------------------------------------------------------------------- */

dlab_status dlab_priorities_read(const char *text, dlab_priorities *out, dlab_error *err)
{
    const int most = (int)(sizeof out->priority / sizeof *out->priority);
    double sum = 0;
    *out = (dlab_priorities){0};
    for (const char *at = text; *at;) {
        char *end;
        const long priority = strtol(at, &end, 10);
        bool good = end != at && *end == ':' && priority >= -1000000 && priority <= 1000000;
        const char *weight_at = good ? end + 1 : at;
        const double weight = good ? strtod(weight_at, &end) : 0;
        good = good && end != weight_at && weight > 0 && weight <= 1e9 && (*end == ',' || *end == '\0');
        if (!good || out->n == most) {
            return DLAB_FAIL(
                err, DLAB_EUSAGE,
                "workload.priorities: '%s': expected PRIORITY:WEIGHT, at most %d with commas between, such "
                "as \"0:9, 5:1\"; weights are above 0",
                text, most);
        }
        sum += weight;
        out->priority[out->n] = (int32_t)priority;
        out->upto[out->n++] = sum;
        at = *end ? end + 1 : end;
    }
    return DLAB_OK;
}

int32_t dlab_priorities_draw(const dlab_priorities *p, const dlab_workload *w, int64_t conversation)
{
    if (p->n == 0) return 0;
    dlab_rng rng = dlab_stream_rng(dlab_seed_arrivals(w), DLAB_STREAM_PRIORITIES, (uint64_t)conversation);
    const double x = dlab_rng_unit(&rng) * p->upto[p->n - 1];
    int i = 0;
    while (i + 1 < p->n && x >= p->upto[i]) i++;
    return p->priority[i];
}

/* Of the first n conversations ⌊n·share⌋ have one, for every n, evenly spread; a product a hair below a whole number, as
 * 0.29 · 100 is, counts as that number. */
int64_t dlab_prefix_group(const dlab_workload *w, int64_t conversation)
{
    const double hair = 1e-9, share = w->prefix_share;
    if (w->shared_prefix <= 0 ||
        floor((double)(conversation + 1) * share + hair) <= floor((double)conversation * share + hair))
        return -1;
    if (w->prefix_groups <= 1) return 0;
    dlab_rng rng = dlab_stream_rng(dlab_seed_arrivals(w), DLAB_STREAM_GROUPS, (uint64_t)conversation);
    return (int64_t)dlab_rng_below(&rng, (uint64_t)w->prefix_groups);
}

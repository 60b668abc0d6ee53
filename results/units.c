#include "results/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/metric.h"

typedef struct {
    double from; /* used from this magnitude on */
    dlab_scale scale;
} step;

typedef struct {
    const char *unit;
    step steps[6]; /* ascending, ends where the unit is NULL */
} ladder;

#define KI 1024.0
static const ladder ladders[] = {
    {"ns", {{0, {1, "ns"}}, {1e3, {1e-3, "us"}}, {1e5, {1e-6, "ms"}}, {1e10, {1e-9, "s"}}}},
    {"B",
     {{0, {1, "B"}},
      {10 * KI, {1 / KI, "KiB"}},
      {KI * KI, {1 / KI / KI, "MiB"}},
      {10 * KI * KI * KI, {1 / KI / KI / KI, "GiB"}}}},
    {"FLOP", {{0, {1, "FLOP"}}, {1e6, {1e-6, "MFLOP"}}, {1e9, {1e-9, "GFLOP"}}, {1e13, {1e-12, "TFLOP"}}}},
    {"B/s", {{0, {1, "B/s"}}, {1e6, {1e-6, "MB/s"}}, {1e9, {1e-9, "GB/s"}}}},
    {"FLOP/s", {{0, {1, "FLOP/s"}}, {1e6, {1e-6, "MFLOP/s"}}, {1e9, {1e-9, "GFLOP/s"}}, {1e13, {1e-12, "TFLOP/s"}}}},
};

static double median_magnitude(const double *values, size_t n)
{
    double *x = malloc((n ? n : 1) * sizeof *x);
    size_t k = 0;
    if (!x) return 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i]) && values[i] != 0) x[k++] = fabs(values[i]);
    double m = k ? dlab_quantile(x, k, 0.5) : 0;
    free(x);
    return m;
}

dlab_scale dlab_scale_for(const char *unit, const double *values, size_t n)
{
    for (size_t i = 0; i < sizeof ladders / sizeof *ladders; i++) {
        if (strcmp(ladders[i].unit, unit) != 0) continue;
        double m = median_magnitude(values, n);
        const step *s = ladders[i].steps;
        while (s[1].scale.unit && m >= s[1].from) s++;
        return s->scale;
    }
    return (dlab_scale){1, unit};
}

void dlab_unit_column(const char *name, const char *unit, char *buf, size_t size)
{
    static const char *const silent[] = {"1", "tok", "tok/s", "req/s", "bit/B", ""};
    bool says = true;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) says = says && strcmp(unit, silent[i]) != 0;
    snprintf(buf, size, says ? "%s_%s" : "%s", name, unit);
    for (char *c = buf; *c; c++)
        if (*c == '/') *c = '_';
}

static int decimals_for(double v)
{
    v = fabs(v);
    if (v == 0 || v >= 1000) return 0;
    int d = 3 - (int)floor(log10(v));
    return d < 0 ? 0 : d > 9 ? 9 : d;
}

void dlab_figure_text(double value, double sd, char *buf, size_t size)
{
    if (!isfinite(value)) {
        snprintf(buf, size, "–");
        return;
    }
    int d = decimals_for(value), d_sd = 0;
    if (isfinite(sd) && sd > 0 && sd < 10) d_sd = 1 - (int)floor(log10(sd)); /* two digits of the spread are enough */
    if (isfinite(sd) && sd > 0 && d_sd < d) d = d_sd;
    bool whole = value == floor(value) && fabs(value) < 1e6 && !isfinite(sd);
    if (whole) d = 0;
    if (fabs(value) >= 1e9)
        snprintf(buf, size, "%.3e", value);
    else if (isfinite(sd))
        snprintf(buf, size, "%.*f ± %.*f", d, value, d, sd);
    else
        snprintf(buf, size, "%.*f", d, value);
}

void dlab_number_text(double v, char *buf, size_t size)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) return;
    }
}

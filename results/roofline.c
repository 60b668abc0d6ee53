#include "results/roofline.h"

#include <math.h>

double dlab_peak_bandwidth(const dlab_run *r, double bytes)
{
    const dlab_peak_row *p = r->peaks;
    const size_t n = r->n_peaks;
    if (n == 0 || isnan(bytes)) return NAN;
    if (bytes <= p[0].bytes) return p[0].read_ps;
    if (bytes >= p[n - 1].bytes) return p[n - 1].read_ps;
    size_t i = 1;
    while (i + 1 < n && p[i].bytes < bytes) i++;
    const double f = log(bytes / p[i - 1].bytes) / log(p[i].bytes / p[i - 1].bytes);
    return p[i - 1].read_ps + f * (p[i].read_ps - p[i - 1].read_ps);
}

dlab_step_bound dlab_step_bounds(const dlab_run *r, const dlab_ev_step *s)
{
    static const dlab_peak_row unknown = {NAN, NAN, NAN, NAN, NAN};
    const dlab_peak_row *p = r->n_peaks ? &r->peaks[0] : &unknown;
    const double others = s->flops - s->int8_flops - s->bf16_flops;
    dlab_step_bound b = {.bytes = s->bytes / dlab_peak_bandwidth(r, s->bytes),
                         .operations = s->int8_flops / p->int8_ps + s->bf16_flops / p->bf16_ps + others / p->f32_ps};
    b.allowed = isnan(b.bytes) || isnan(b.operations) ? NAN : fmax(b.bytes, b.operations);
    return b;
}

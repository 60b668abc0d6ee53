#include "results/ratio.h"

#include <math.h>

/* P(|T| < √df · tan(angle)). For whole df it is a finite sum over powers of the cosine (Abramowitz and Stegun, 26.7.3 and
 * 26.7.4). */
static double share_within(double angle, size_t df)
{
    const double c = cos(angle), s = sin(angle);
    const size_t odd = df % 2;
    double term = odd ? c : 1, sum = df > 1 ? term : 0;
    for (size_t k = 2 + odd; k + 2 <= df; k += 2) {
        term *= c * c * (double)(k - 1) / (double)k;
        sum += term;
    }
    return odd ? (angle + s * sum) * M_2_PI : s * sum;
}

double dlab_student_t(double level, size_t df)
{
    if (!(level > 0 && level < 1) || df < 1) return NAN;
    double low = 0, high = M_PI_2;
    for (int i = 0; i < 64; i++) {
        const double mid = (low + high) / 2;
        if (share_within(mid, df) < level)
            low = mid;
        else
            high = mid;
    }
    return sqrt((double)df) * tan((low + high) / 2);
}

dlab_ratio dlab_ratio_of_pairs(const double *a, const double *b, size_t n, double level)
{
    dlab_ratio r = {NAN, NAN, NAN, 0};
    double mean = 0, m2 = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(a[i] > 0 && b[i] > 0 && isfinite(a[i]) && isfinite(b[i]))) continue;
        const double x = log(a[i]) - log(b[i]), d = x - mean;
        mean += d / (double)++r.n;
        m2 += d * (x - mean);
    }
    if (r.n == 0) return r;
    r.ratio = exp(mean);
    if (r.n < 2 || !(m2 > 0)) return r;
    const double half = dlab_student_t(level, r.n - 1) * sqrt(m2 / (double)(r.n - 1) / (double)r.n);
    r.low = exp(mean - half);
    r.high = exp(mean + half);
    return r;
}

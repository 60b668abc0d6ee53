/* How many times faster, from runs that were made in pairs. */
#ifndef DLAB_RESULTS_RATIO_H
#define DLAB_RESULTS_RATIO_H

#include <stddef.h>

typedef struct {
    double ratio, low, high; /* NaN: missing */
    size_t n;                /* pairs */
} dlab_ratio;

/* The geometric mean of a[i] / b[i], with the interval that Student's t gives for the logarithms: what holds for both of a
 * pair (a slow moment of the machine, say) cancels. Pairs without two positive numbers are left out. Fewer than two pairs
 * have no interval, nor have ratios that are all the same: no spread seen is not certainty. */
dlab_ratio dlab_ratio_of_pairs(const double *a, const double *b, size_t n, double level);

/* What |T| stays below with probability `level` (0 < level < 1) at df ≥ 1 degrees of freedom. */
double dlab_student_t(double level, size_t df);

#endif

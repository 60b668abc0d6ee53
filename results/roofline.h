/* What a step could not be faster than. The peaks are the run's own: those of its threads and its instruction set. */
#ifndef DLAB_RESULTS_ROOFLINE_H
#define DLAB_RESULTS_ROOFLINE_H

#include "results/run.h"

/* Seconds; NaN: the peaks, or what the step declares, are not known. */
typedef struct {
    double bytes;      /* what it moves, at the bandwidth of a working set of that size */
    double operations; /* those of int8, bf16 and f32 at their peaks, one after the other */
    double allowed;    /* the longer of both */
} dlab_step_bound;

dlab_step_bound dlab_step_bounds(const dlab_run *r, const dlab_ev_step *s);
/* Bytes a second that can be read of a working set of this size: between two measured sizes along the logarithm of the size,
 * beyond them the nearest. NaN: not known. */
double dlab_peak_bandwidth(const dlab_run *r, double bytes);

#endif

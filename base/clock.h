/* One clock object gives all time: real (CLOCK_MONOTONIC) or virtual (tests, the analytic device). */
#ifndef DLAB_BASE_CLOCK_H
#define DLAB_BASE_CLOCK_H

#include <stdint.h>

typedef struct dlab_clock dlab_clock;

dlab_clock *dlab_clock_real(void); /* a shared constant object; never destroyed */
/* A virtual clock that starts at start_ns. NULL when memory is out. */
dlab_clock *dlab_clock_virtual_create(int64_t start_ns);
void dlab_clock_destroy(dlab_clock *c); /* the real clock and NULL are fine */

int64_t dlab_clock_now_ns(const dlab_clock *c);
/* Real: sleeps to an absolute deadline. Virtual: jumps there (never back). */
void dlab_clock_wait_until(dlab_clock *c, int64_t deadline_ns);
/* Virtual only: time goes on by d_ns (a step of the analytic device). The real clock ignores it. */
void dlab_clock_advance(dlab_clock *c, int64_t d_ns);

#endif

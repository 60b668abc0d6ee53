/* A counter that a worker and its runner share in one page of memory: whoever waits for the worker sees that it gets on,
 * and the measured loop pays one store for it, no system call. */
#ifndef DLAB_HARNESS_RUN_PULSE_H
#define DLAB_HARNESS_RUN_PULSE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef _Atomic uint64_t dlab_pulse;

/* *fd is a memory file of one zero count, close-on-exec. */
dlab_status dlab_pulse_create(int *fd, dlab_error *err);
dlab_status dlab_pulse_map(int fd, dlab_pulse **out, dlab_error *err);
void dlab_pulse_unmap(dlab_pulse *p); /* NULL is fine */

/* Another piece of work is done. One thread beats. NULL is fine. */
static inline void dlab_pulse_beat(dlab_pulse *p)
{
    if (p) atomic_store_explicit(p, atomic_load_explicit(p, memory_order_relaxed) + 1, memory_order_relaxed);
}
static inline uint64_t dlab_pulse_count(const dlab_pulse *p)
{
    return p ? atomic_load_explicit(p, memory_order_relaxed) : 0;
}

#endif

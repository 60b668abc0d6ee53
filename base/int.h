/* Arithmetic on 64-bit integers that everybody needs. */
#ifndef DLAB_BASE_INT_H
#define DLAB_BASE_INT_H

#include <stdint.h>

static inline int64_t dlab_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t dlab_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* a / b, rounded up; a ≥ 0, b ≥ 1. */
static inline int64_t dlab_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif

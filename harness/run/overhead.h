/* What the harness itself costs, measured on the null target with the same driver. */
#ifndef DLAB_HARNESS_RUN_OVERHEAD_H
#define DLAB_HARNESS_RUN_OVERHEAD_H

#include <stdint.h>

#include "base/status.h"

/* One request of n_tokens (≥ 2) tokens, one a step: nanoseconds a token event, its step and its memory event included. */
dlab_status dlab_harness_overhead(int64_t n_tokens, double *ns_per_token, dlab_error *err);

#endif

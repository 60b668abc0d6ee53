/* The null target computes nothing: every running request produces a token a step, after a fixed time. What a run of it
 * costs beyond that time is the harness's own. */
#ifndef DLAB_HARNESS_TARGET_NULL_H
#define DLAB_HARNESS_TARGET_NULL_H

#include "base/clock.h"
#include "harness/target/target.h"

typedef struct {
    int64_t step_ns;   /* a step's length; 0: instant */
    dlab_clock *clock; /* real: waits; virtual: goes on by step_ns. Borrowed; NULL: the real one */
} dlab_null_opts;

/* The target's table creates it instant. batch.size requests, at most needs->max_seqs, run at once, the others wait. */
dlab_status dlab_null_create(const dlab_plan *plan, const dlab_engine_needs *needs, const dlab_null_opts *opts,
                             dlab_target **out, dlab_error *err);

#endif

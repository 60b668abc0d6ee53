/* The null target computes nothing. Either every running request produces a token a step, after a fixed time, or each
 * occupies its place for a fixed service time. What a run of it costs beyond that is the harness's own. */
#ifndef DLAB_HARNESS_TARGET_NULL_H
#define DLAB_HARNESS_TARGET_NULL_H

#include "base/clock.h"
#include "harness/target/target.h"

typedef struct {
    int64_t step_ns; /* a step's length; 0: instant */
    /* > 0, instead of step_ns: a request keeps its place exactly so long, and its n tokens come at 1/n, 2/n … of that. It
     * begins when it is submitted or, where none was free, when a place became free. A step goes to the next token, or to
     * its deadline if that is earlier. */
    int64_t service_ns;
    dlab_clock *clock; /* real: waits; virtual: jumps. Borrowed; NULL: the real one */
} dlab_null_opts;

/* batch.size requests, at most needs->max_seqs, run at once, the others wait in order of arrival. */
dlab_status dlab_null_create(const dlab_plan *plan, const dlab_engine_needs *needs, const dlab_null_opts *opts,
                             dlab_target **out, dlab_error *err);

#endif

/* What the prompts of a run have in common: the most that a prefix cache can be worth. */
#ifndef DLAB_HARNESS_RUN_IDEAL_H
#define DLAB_HARNESS_RUN_IDEAL_H

#include "harness/workload/workload.h"
#include "results/run.h"

/* Of the tokens of the prompts that were sent, the share that an earlier prompt began with: what a cache that forgets
 * nothing, and knows single tokens, finds. NaN: not known before the answers are (conversations), nothing to look for
 * (prompts behind a depth of their own, or none sent), or memory is out. */
double dlab_ideal_hit(const dlab_requests *q, const dlab_run *run);

#endif

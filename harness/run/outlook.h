/* What is known of an experiment's points before anything runs: memory, the model's identity, the run key, and whether the
 * combination can work at all. */
#ifndef DLAB_HARNESS_RUN_OUTLOOK_H
#define DLAB_HARNESS_RUN_OUTLOOK_H

#include "harness/spec/spec.h"

typedef struct {
    size_t bytes[DLAB_POOL_N];
    int64_t total_bytes;
    dlab_plan plan; /* effective where the model is known, else as requested */
    uint64_t model_hash;
    char key[17];
    dlab_status status; /* not OK: the point is not run, for `reason` */
    char reason[512];
} dlab_outlook;

/* *out is malloc'd, [spec->n_points]. A model that cannot be opened is an error when no other point is left to run, else
 * the reason of its points. target: a name of dlab_targets; the null target needs no
 * model. environment: as probed; exe: the
 * program that will run. */
dlab_status dlab_outlook_make(const dlab_spec *spec, const char *target, const char *exe,
                              const dlab_settings *environment, dlab_outlook **out, dlab_error *err);

#endif

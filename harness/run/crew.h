/* The runner's workers: one a point, kept alive between rounds while memory allows. */
#ifndef DLAB_HARNESS_RUN_CREW_H
#define DLAB_HARNESS_RUN_CREW_H

#include <signal.h>

#include "harness/run/child.h"
#include "harness/run/outlook.h"
#include "harness/run/progress.h"
#include "harness/run/schedule.h"

typedef struct {
    const dlab_spec *spec;
    const dlab_outlook *outlook; /* [spec->n_points] */
    const char *exe, *target, *out_path;
    const char *fault; /* of dlab_runner_opts */
    const dlab_settings *meta;
    const volatile sig_atomic_t *interrupted; /* NULL: never */
    dlab_progress *progress;
    const dlab_slot *slots; /* the schedule, to know who is needed again */
    size_t n_slots;
    dlab_child **children; /* [spec->n_points]; NULL: no worker */
    bool *alive;           /* [spec->n_points] */
    int64_t *bytes;        /* [spec->n_points] what a point's worker takes */
    int64_t budget_bytes;
} dlab_crew;

/* The other fields are set by the caller first. */
dlab_status dlab_crew_start(dlab_crew *c, dlab_error *err);
/* Runs slot `at` of the schedule in its point's worker, and has its part written. *out is malloc'd, with whatever status
 * the run ended with; errors are DLAB_EINTERRUPTED and those of the output folder and of starting processes. */
dlab_status dlab_crew_run(dlab_crew *c, size_t at, dlab_run **out, dlab_error *err);
/* Lets a point's idle worker go; no worker is fine. */
void dlab_crew_dismiss(dlab_crew *c, int32_t point);
/* Kills all that live, frees. */
void dlab_crew_end(dlab_crew *c);

#endif

/* An experiment's points → runs in workers → the record. */
#ifndef DLAB_HARNESS_RUN_RUN_H
#define DLAB_HARNESS_RUN_RUN_H

#include <signal.h>

#include "harness/spec/spec.h"
#include "results/record.h"

typedef struct {
    const char *out_path;                     /* the record, "….h5" */
    const char *worker_exe;                   /* the program to re-execute as `dlab worker`; /proc/self/exe when NULL */
    const char *command_line;                 /* for /meta */
    const char *target;                       /* a name of dlab_targets; "engine" when NULL */
    const char *fault;                        /* for tests: "KIND@POINT,…", see docs/worker.md; NULL: none */
    bool resume;                              /* keep runs whose key is the same */
    bool progress;                            /* on stderr: a bar on a terminal, plain lines elsewhere */
    const volatile sig_atomic_t *interrupted; /* set by the caller's signal handler; NULL: never */
} dlab_runner_opts;

/* Runs everything that is not yet in the record. A failed point is a row, not an error: errors are those of the runner
 * itself (the output folder is full or read-only, …) and DLAB_EINTERRUPTED after a signal, with what is done kept.
 * *out is filled in any case and must be freed. */
dlab_status dlab_runner_run(const dlab_spec *spec, const dlab_runner_opts *opts, dlab_record *out, dlab_error *err);
/* 1 when a point failed unexpectedly (see DLAB_RUN_STATUS_LIST; all but ok with strict), else 0. */
int dlab_runner_exit_code(const dlab_record *r, bool strict);

typedef struct {
    int pulse_fd;      /* shared memory to count in, see harness/run/pulse.h; −1: none */
    const char *fault; /* of dlab_runner_opts */
} dlab_worker_opts;

/* DLAB_EUSAGE unless fault is a list as docs/worker.md has it. */
dlab_status dlab_fault_check(const char *fault, dlab_error *err);

/* `dlab worker`: reads versioned JSON lines from fd_in, answers on fd_out, until end of file. Protocol: docs/worker.md. */
dlab_status dlab_worker_serve(int fd_in, int fd_out, const dlab_worker_opts *opts, dlab_error *err);

/* --dry-run: the points with their memory by pool and the runs that would be made, as text on the caller's stream. */
dlab_status dlab_runner_plan_text(const dlab_spec *spec, char **out, dlab_error *err);

#endif

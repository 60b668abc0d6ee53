/* One point made ready, so that its repeats can be run again and again in one process: target, requests, primed depth. */
#ifndef DLAB_HARNESS_RUN_SESSION_H
#define DLAB_HARNESS_RUN_SESSION_H

#include <signal.h>

#include "harness/run/drive.h"

typedef struct dlab_session dlab_session;

typedef struct {
    const dlab_target_ops *target;
    const dlab_model *model; /* borrowed; NULL only where the target needs none */
    const char *model_name;  /* for the record */
    const dlab_plan *plan;   /* this and the next two are copied */
    const dlab_workload *workload;
    const dlab_measure *measure;
    /* Told when a run enters "prime", "warmup", "measure", "quality"; NULL: nobody. */
    void (*phase)(void *ctx, const char *name);
    void *phase_ctx;
    dlab_clock *clock;                        /* NULL: the real one */
    const dlab_remote *remote;                /* for the targets that need one; borrowed */
    int64_t null_step_ns, null_service_ns;    /* for the null target, as dlab_target_setup has them */
    dlab_pulse *pulse;                        /* beats after each step and each piece of text; NULL: none */
    int64_t n_before, sent_before;            /* as dlab_workload_host has them */
    const volatile sig_atomic_t *interrupted; /* NULL: never */
} dlab_session_opts;

/* Creates the target for the workload: DLAB_EIMPOSSIBLE and DLAB_EOOM come from there. */
dlab_status dlab_session_create(const dlab_session_opts *opts, dlab_session **out, dlab_error *err);
void dlab_session_destroy(dlab_session *s);
/* Effective values of the plan; the session's. */
const dlab_plan *dlab_session_plan(const dlab_session *s);
/* Effective values of every key that shapes a run. */
dlab_status dlab_session_settings(const dlab_session *s, dlab_settings *out, dlab_error *err);
/* What it sends in each run. */
const dlab_requests *dlab_session_requests(const dlab_session *s);
/* One repeat into out (initialised). The first run of a session fills the cache to the workload's depth and makes `warmup`
 * runs with other tokens (see measure.warmup), both untimed; peaks start again before each measured run; repeat 0 is
 * followed by the quality pass where measure.ppl_chunks asks for it. On an error out keeps what was measured. */
dlab_status dlab_session_run(dlab_session *s, int64_t repeat, int64_t warmup, dlab_run *out, dlab_error *err);
/* The status of a run that ended with st. */
dlab_run_status dlab_session_status(dlab_status st);

#endif

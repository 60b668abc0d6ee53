/* The one loop that measures: submits requests, steps the target, stamps events by one clock. */
#ifndef DLAB_HARNESS_RUN_DRIVE_H
#define DLAB_HARNESS_RUN_DRIVE_H

#include <signal.h>

#include "base/clock.h"
#include "harness/run/pulse.h"
#include "harness/target/target.h"
#include "harness/workload/workload.h"

typedef struct {
    int64_t time_limit_ns;    /* 0: none; the run ends after the step in progress with status truncated */
    int64_t memory_sample_ns; /* 0: each step */
    int32_t eos;              /* −1: ignore */
    bool sample_rss;
    bool keep_cache;     /* cached prefixes stay when the run ends */
    int64_t interval_ns; /* batch.interval_ms: requests may start at multiples of it only; 0: at any step */
    dlab_pulse *pulse;   /* beats after each step; NULL: none */
    const volatile sig_atomic_t *interrupted; /* DLAB_EINTERRUPTED after the step in progress; NULL: never */
} dlab_drive_opts;

/* Requests arrive as harness/workload/workload.h's source says: submitted when due, between two steps, whatever runs;
 * t_sched is when one should arrive (in a closed loop and between turns: when it could be sent). One that the target refuses
 * (DLAB_EIMPOSSIBLE) is a failed request of an ok run, whose reason says so; where it refuses every one, that is the run's
 * error. Where they were used up before the
 * duration that should end them, an ok run's reason says so too. Requests that were never sent are not in out.
 * A request's draws depend on its own seed and the plan's sample.seed. handles: [n] of dlab_engine_prime for each request
 * (−1: none), or NULL. Of a prompt with several samples each is a request of its own: ids count up by requests->samples.
 * Appends to out (reserved before the clock starts), and sets its status, t_end and kv_pool (the largest). Statuses other
 * than ok and truncated are returned as errors; what was measured stays in *out. */
dlab_status dlab_drive(dlab_target *t, dlab_clock *clock, const dlab_requests *requests, const int32_t *handles,
                       const dlab_drive_opts *opts, dlab_run *out, dlab_error *err);

#endif

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "harness/probes/calibration.h"
#include "harness/probes/probes.h"
#include "harness/run/config.h"
#include "harness/run/crew.h"
#include "harness/run/resume.h"
#include "harness/run/run.h"
#include "harness/run/wire.h"
#include "results/point.h"

#define STRIKES 2 /* crashes or hangs of a point, after which the rest of its repeats is not tried */

typedef struct {
    const dlab_spec *spec;
    const dlab_runner_opts *opts;
    dlab_record *record;
    dlab_outlook *outlook;
    dlab_slot *slots;
    size_t n_slots, n_done, n_left;
    double *again_s; /* [n_points] what one more repeat of the point takes; 0: not known */
    bool *counted;   /* [n_points] scratch of estimate_left */
    double first_s;  /* what first repeats took, with their warm-up and quality pass, together */
    size_t n_first;
    dlab_crew crew;
    dlab_progress progress;
    int lock_fd;
} runner;

/* ---- the record's frame --------------------------------------------------------------------------------------------- */

static dlab_status add_meta(const dlab_spec *spec, const dlab_runner_opts *opts, const dlab_outlook *outlook,
                            dlab_settings *meta, dlab_error *err)
{
    if (opts->command_line) DLAB_TRY(dlab_settings_set(meta, "command", opts->command_line, err));
    DLAB_TRY(dlab_settings_set(meta, "experiment", spec->name, err));
    if (opts->fault) DLAB_TRY(dlab_settings_set(meta, "fault", opts->fault, err));
    if (*spec->about) DLAB_TRY(dlab_settings_set(meta, "about", spec->about, err));
    if (*spec->covers) DLAB_TRY(dlab_settings_set(meta, "covers", spec->covers, err));
    DLAB_TRY(dlab_config_meta_started(meta, err));
    bool same_model = true, same_device = true;
    for (size_t i = 1; i < spec->n_points; i++) {
        same_model = same_model && strcmp(spec->points[i].model, spec->points[0].model) == 0;
        same_device = same_device && strcmp(spec->points[i].plan.device, spec->points[0].plan.device) == 0;
    }
    if (spec->n_points == 0) return DLAB_OK;
    if (same_device) DLAB_TRY(dlab_settings_set(meta, "device", spec->points[0].plan.device, err));
    if (!same_model) return DLAB_OK; /* each point says which */
    return dlab_config_meta_model(meta, spec->points[0].model, outlook[0].model_hash, err);
}

static dlab_status frame_point(const dlab_spec *spec, size_t i, const dlab_outlook *o, dlab_point_result *out,
                               dlab_error *err)
{
    const dlab_point *p = &spec->points[i];
    snprintf(out->label, sizeof out->label, "%s", p->label);
    out->n_planned = (size_t)spec->measure.repeats;
    out->status = DLAB_RUN_PENDING;
    if (o->status != DLAB_OK) {
        bool skipped = o->status == DLAB_EIMPOSSIBLE || o->status == DLAB_ENOTBUILT;
        out->status = skipped ? DLAB_RUN_SKIPPED : DLAB_RUN_FAILED;
        dlab_text_copy(out->reason, sizeof out->reason, o->reason);
    }
    DLAB_TRY(dlab_settings_copy(&p->axes, &out->axes, err));
    return dlab_config_settings(p->model, &p->plan, &p->workload, &spec->measure, &out->effective, err);
}

static dlab_status frame_record(runner *r, dlab_error *err)
{
    const dlab_spec *spec = r->spec;
    size_t n = 0;
    const char *text = spec->yaml ? dlab_yaml_text(spec->yaml, &n) : "";
    const char *name = spec->yaml ? dlab_yaml_name(spec->yaml) : spec->name;
    r->record->spec_text = malloc(n + 1);
    r->record->spec_name = strdup(name);
    r->record->points = calloc(spec->n_points ? spec->n_points : 1, sizeof *r->record->points);
    if (!r->record->spec_text || !r->record->spec_name || !r->record->points) {
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for a record of %zu points", spec->n_points);
    }
    memcpy(r->record->spec_text, text, n);
    r->record->spec_text[n] = 0;
    r->record->spec_bytes = n;
    r->record->n_points = spec->n_points;
    for (size_t i = 0; i < spec->n_points; i++) {
        DLAB_TRY(frame_point(spec, i, &r->outlook[i], &r->record->points[i], err));
    }
    return DLAB_OK;
}

/* ---- how far points have come -------------------------------------------------------------------------------------- */

static bool deterministic(dlab_run_status s)
{
    return s == DLAB_RUN_SKIPPED || s == DLAB_RUN_OOM || s == DLAB_RUN_FAILED;
}

/* The rest of its repeats would end the same way. */
static bool given_up(const dlab_point_result *p)
{
    int strikes = 0;
    if (p->n_runs == 0) return deterministic(p->status);
    for (size_t i = 0; i < p->n_runs; i++) {
        dlab_run_status s = p->runs[i]->status;
        if (deterministic(s)) return true;
        strikes += s == DLAB_RUN_CRASHED || s == DLAB_RUN_HUNG;
    }
    return strikes >= STRIKES;
}

/* ---- the sweep ------------------------------------------------------------------------------------------------------ */

static bool to_do(const runner *r, size_t at)
{
    const dlab_point_result *p = &r->record->points[r->slots[at].point];
    return !given_up(p) && !dlab_resume_find(p, r->slots[at].repeat);
}

/* What is left: known points as long as a repeat of theirs, unknown ones as the mean of those known, where a first repeat is
 * longer than the others by its warm-up and quality pass. */
static double estimate_left(const runner *r, size_t from)
{
    double again = 0, left = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < r->spec->n_points; i++) {
        again += r->again_s[i];
        n_known += r->again_s[i] > 0;
        r->counted[i] = r->again_s[i] > 0;
    }
    if (n_known == 0 || r->n_first == 0) return -1;
    for (size_t at = from; at < r->n_slots; at++) {
        int32_t point = r->slots[at].point;
        if (!to_do(r, at)) continue;
        if (r->again_s[point] > 0)
            left += r->again_s[point];
        else
            left += r->counted[point] ? again / (double)n_known : r->first_s / (double)r->n_first;
        r->counted[point] = true;
    }
    return left;
}

static void learn(runner *r, int32_t point, const dlab_run *run, double took_s)
{
    if (run->status != DLAB_RUN_OK && run->status != DLAB_RUN_TRUNCATED) return;
    if (r->again_s[point] > 0) {
        r->again_s[point] = took_s;
        return;
    }
    r->again_s[point] = run->t_end * 1e-9;
    r->first_s += took_s;
    r->n_first++;
}

static void count_done(runner *r, size_t from)
{
    size_t left = 0;
    for (size_t at = from; at < r->n_slots; at++) left += to_do(r, at);
    r->n_done = r->n_slots - left;
}

static dlab_status run_slot(runner *r, size_t at, dlab_error *err)
{
    dlab_slot slot = r->slots[at];
    dlab_point_result *p = &r->record->points[slot.point];
    dlab_run *run = NULL;
    dlab_progress_run(&r->progress, p->label, slot.repeat, r->n_done, estimate_left(r, at));
    int64_t begin = dlab_clock_now_ns(dlab_clock_real());
    DLAB_TRY(dlab_crew_run(&r->crew, at, &run, err));
    double took = (double)(dlab_clock_now_ns(dlab_clock_real()) - begin) * 1e-9;
    learn(r, slot.point, run, took);
    dlab_run_status status = run->status;
    char reason[sizeof run->reason];
    memcpy(reason, run->reason, sizeof reason);
    DLAB_TRY(dlab_resume_add(p, run, err));
    dlab_run_drop_events(run); /* its part has them; carrying them along would make each master slower to write */
    DLAB_TRY(dlab_point_summarize(p, err));
    if (given_up(p)) dlab_crew_dismiss(&r->crew, slot.point);
    count_done(r, at + 1);
    dlab_progress_ended(&r->progress, dlab_run_status_text(status), reason, took, r->n_done, estimate_left(r, at + 1));
    return dlab_record_write_master(r->opts->out_path, r->record, err);
}

static dlab_status sweep_points(runner *r, dlab_error *err)
{
    const volatile sig_atomic_t *stop = r->opts->interrupted;
    for (size_t at = 0; at < r->n_slots; at++) {
        if (stop && *stop) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted");
        if (to_do(r, at)) DLAB_TRY(run_slot(r, at, err));
    }
    return DLAB_OK;
}

static dlab_status prepare_output(runner *r, dlab_error *err)
{
    const dlab_runner_opts *o = r->opts;
    size_t kept = 0;
    char note[128];
    DLAB_TRY(dlab_resume_prepare(o->out_path, o->resume, &r->lock_fd, err));
    if (o->resume) {
        DLAB_TRY(dlab_resume_load(o->out_path, r->outlook, (size_t)r->spec->measure.repeats, r->record, &kept, err));
        for (size_t i = 0; i < r->record->n_points; i++) DLAB_TRY(dlab_point_summarize(&r->record->points[i], err));
        snprintf(note, sizeof note, "resuming: %zu of %zu runs kept", kept, r->n_slots);
        dlab_progress_note(&r->progress, note);
    }
    count_done(r, 0);
    return dlab_record_write_master(o->out_path, r->record, err);
}

/* Paths go to the worker in JSON. */
static dlab_status check_names(const runner *r, dlab_error *err)
{
    if (!dlab_wire_is_text(r->opts->out_path)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: the record's path must be UTF-8", r->opts->out_path);
    }
    for (size_t i = 0; i < r->spec->n_points; i++) {
        const char *model = r->spec->points[i].model;
        if (!dlab_wire_is_text(model)) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: a model's path must be UTF-8", model);
    }
    return DLAB_OK;
}

static dlab_status prepare(runner *r, const char *exe, const char *target, dlab_error *err)
{
    const dlab_spec *spec = r->spec;
    const dlab_measure *m = &spec->measure;
    dlab_settings *meta = &r->record->meta;
    DLAB_TRY(check_names(r, err));
    DLAB_TRY(dlab_probe_environment(meta, err));
    DLAB_TRY(dlab_outlook_make(spec, target, exe, meta, &r->outlook, err));
    DLAB_TRY(add_meta(spec, r->opts, r->outlook, meta, err));
    DLAB_TRY(frame_record(r, err));
    DLAB_TRY(dlab_schedule_make(m->order, spec->n_points, (size_t)m->repeats, (uint64_t)m->seed, &r->slots, err));
    r->n_slots = spec->n_points * (size_t)m->repeats;
    r->again_s = calloc(spec->n_points ? spec->n_points : 1, sizeof *r->again_s);
    r->counted = calloc(spec->n_points ? spec->n_points : 1, sizeof *r->counted);
    if (!r->again_s || !r->counted) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu points", spec->n_points);
    dlab_progress_init(&r->progress, r->opts->progress, r->n_slots);
    r->crew = (dlab_crew){.spec = spec,
                          .outlook = r->outlook,
                          .exe = exe,
                          .target = target,
                          .fault = r->opts->fault,
                          .out_path = r->opts->out_path,
                          .meta = meta,
                          .interrupted = r->opts->interrupted,
                          .progress = &r->progress,
                          .slots = r->slots,
                          .n_slots = r->n_slots};
    DLAB_TRY(prepare_output(r, err));
    return dlab_crew_start(&r->crew, err);
}

static void say_note(void *ctx, const char *line) { dlab_progress_note(ctx, line); }

static bool seen_before(const dlab_outlook *o, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (o[k].status == DLAB_OK && o[k].plan.threads == o[i].plan.threads &&
            strcmp(o[k].plan.isa, o[i].plan.isa) == 0 && strcmp(o[k].plan.device, o[i].plan.device) == 0)
            return true;
    }
    return false;
}

/* What the machine does at most, for the plans of this sweep; the workers find it where it is kept. */
static void calibrate(runner *r)
{
    if (strcmp(r->crew.target, "engine") != 0 || r->n_done == r->n_slots) return;
    for (size_t i = 0; i < r->spec->n_points; i++) {
        if (r->outlook[i].status != DLAB_OK || seen_before(r->outlook, i)) continue;
        dlab_calibration_ensure(&r->outlook[i].plan, r->opts->interrupted, say_note, &r->progress);
    }
}

dlab_status dlab_runner_run(const dlab_spec *spec, const dlab_runner_opts *opts, dlab_record *out, dlab_error *err)
{
    runner r = {.spec = spec, .opts = opts, .record = out, .lock_fd = -1};
    dlab_record_init(out);
    dlab_status st = prepare(&r, opts->worker_exe ? opts->worker_exe : "/proc/self/exe",
                             opts->target ? opts->target : "engine", err);
    if (st == DLAB_OK) calibrate(&r);
    if (st == DLAB_OK) st = sweep_points(&r, err);
    dlab_crew_end(&r.crew);
    if (st == DLAB_OK) {
        st = dlab_record_finish(opts->out_path, out, err);
        if (st == DLAB_OK) dlab_resume_clear(opts->out_path);
    }
    dlab_progress_finish(&r.progress);
    if (r.lock_fd >= 0) close(r.lock_fd);
    free(r.outlook);
    free(r.slots);
    free(r.again_s);
    free(r.counted);
    return st;
}

int dlab_runner_exit_code(const dlab_record *r, bool strict)
{
    for (size_t i = 0; i < r->n_points; i++) {
        dlab_run_status s = r->points[i].status;
        if (dlab_run_status_fails(s) || (strict && s != DLAB_RUN_OK)) return 1;
    }
    return 0;
}

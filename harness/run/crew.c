#include "harness/run/crew.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "harness/probes/probes.h"
#include "harness/run/config.h"
#include "harness/run/session.h"
#include "harness/run/wire.h"

#define MAX_ALIVE    32
#define MARGIN_BYTES ((int64_t)64 << 20) /* program, stacks and what the engine does not account for */
#define TICK_MS      250

typedef enum { ANSWER_DONE, ANSWER_ERROR, ANSWER_DIED, ANSWER_HUNG, ANSWER_LOST } answer_kind;

typedef struct {
    answer_kind kind;
    json_t *msg;      /* DONE, ERROR */
    char reason[512]; /* DIED, HUNG */
} answer;

dlab_status dlab_crew_start(dlab_crew *c, dlab_error *err)
{
    size_t n = c->spec->n_points ? c->spec->n_points : 1;
    int64_t available = dlab_probe_memory_available_bytes();
    c->budget_bytes = available > 0 ? available / 2 : 0;
    c->children = calloc(n, sizeof(dlab_child *));
    c->alive = calloc(n, sizeof *c->alive);
    c->bytes = calloc(n, sizeof *c->bytes);
    if (!c->children || !c->alive || !c->bytes) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu workers", n);
    for (size_t i = 0; i < c->spec->n_points; i++) c->bytes[i] = c->outlook[i].total_bytes + MARGIN_BYTES;
    return DLAB_OK;
}

static void forget(dlab_crew *c, int32_t point)
{
    dlab_child_destroy(c->children[point]);
    c->children[point] = NULL;
    c->alive[point] = false;
}

void dlab_crew_dismiss(dlab_crew *c, int32_t point)
{
    if (c->children[point]) dlab_child_close(c->children[point]);
    forget(c, point);
}

void dlab_crew_end(dlab_crew *c)
{
    for (size_t i = 0; c->children && i < c->spec->n_points; i++) dlab_child_destroy(c->children[i]);
    free(c->children);
    free(c->alive);
    free(c->bytes);
    c->children = NULL;
    c->alive = NULL;
    c->bytes = NULL;
}

static bool interrupted(const dlab_crew *c) { return c->interrupted && *c->interrupted; }

/* Done and error end the wait. */
static void take_message(dlab_crew *c, json_t *msg, bool *ended, answer *out)
{
    const char *event = json_string_value(json_object_get(msg, "event"));
    const char *phase = json_string_value(json_object_get(msg, "phase"));
    if (event && phase && strcmp(event, "phase") == 0) {
        dlab_progress_phase(c->progress, phase);
        json_decref(msg);
        return;
    }
    *ended = true;
    out->kind = event && strcmp(event, "done") == 0 ? ANSWER_DONE : ANSWER_ERROR;
    out->msg = msg;
}

static dlab_status await(dlab_crew *c, dlab_child *child, answer *out, dlab_error *err)
{
    int64_t heard = dlab_clock_now_ns(dlab_clock_real()), patience = c->spec->measure.hang_timeout_ns;
    uint64_t pulse = dlab_child_pulse(child);
    bool ended = false;
    while (!ended) {
        dlab_child_event event;
        json_t *msg = NULL;
        dlab_error e = {0};
        if (interrupted(c)) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted");
        dlab_status st = dlab_child_wait(child, TICK_MS, &event, &msg, &e);
        int64_t now = dlab_clock_now_ns(dlab_clock_real());
        if (dlab_child_pulse(child) != pulse) heard = now;
        pulse = dlab_child_pulse(child);
        if (st != DLAB_OK || event == DLAB_CHILD_DIED) {
            out->kind = ANSWER_DIED;
            dlab_text_copy(out->reason, sizeof out->reason, st != DLAB_OK ? e.msg : dlab_child_last_words(child));
            ended = true;
        } else if (event == DLAB_CHILD_MESSAGE) {
            heard = now;
            take_message(c, msg, &ended, out);
        } else if (patience > 0 && now - heard > patience) {
            char time[32];
            dlab_progress_duration((double)patience * 1e-9, time, sizeof time);
            out->kind = ANSWER_HUNG;
            snprintf(out->reason, sizeof out->reason, "no step ended and no answer came for %s (measure.hang_timeout)",
                     time);
            ended = true;
        }
    }
    return DLAB_OK;
}

static dlab_status ask(dlab_crew *c, int32_t point, json_t *msg, answer *out, dlab_error *err)
{
    dlab_error e = {0};
    *out = (answer){.kind = ANSWER_LOST};
    dlab_status st = dlab_child_send(c->children[point], msg, &e);
    if (st == DLAB_EOOM) return DLAB_FAIL(err, st, "%s", e.msg);
    st = st == DLAB_OK ? await(c, c->children[point], out, err) : DLAB_OK; /* cannot be sent to: LOST */
    if (out->kind != ANSWER_DONE) forget(c, point);
    return st;
}

/* Packs a table's settings; NULL when memory is out. */
static json_t *pack_table(const dlab_param *table, size_t n, const void *obj)
{
    dlab_settings s = {0};
    json_t *j = dlab_config_add(table, n, obj, &s, NULL) == DLAB_OK ? dlab_wire_settings(&s) : NULL;
    dlab_settings_free(&s);
    return j;
}

static json_t *open_message(const dlab_crew *c, int32_t point)
{
    const dlab_point *p = &c->spec->points[point];
    size_t n_plan = 0, n_workload = 0, n_measure = 0;
    const dlab_param *plan = dlab_plan_params(&n_plan), *workload = dlab_workload_params(&n_workload);
    const dlab_param *measure = dlab_measure_params(&n_measure);
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "cmd", "open", "point", (int)point, "key",
                     c->outlook[point].key, "target", c->target, "out", c->out_path, "model", p->model, "plan",
                     pack_table(plan, n_plan, &p->plan), "workload", pack_table(workload, n_workload, &p->workload),
                     "measure", pack_table(measure, n_measure, &c->spec->measure), "meta", dlab_wire_settings(c->meta));
}

static dlab_status hire(dlab_crew *c, size_t at, answer *out, dlab_error *err)
{
    int32_t point = c->slots[at].point, victim;
    dlab_room room = {.bytes = c->bytes,
                      .alive = c->alive,
                      .points = c->spec->n_points,
                      .budget_bytes = c->budget_bytes,
                      .max_alive = MAX_ALIVE};
    while ((victim = dlab_schedule_evict(&room, c->bytes[point], c->slots, c->n_slots, at)) >= 0) {
        dlab_crew_dismiss(c, victim);
    }
    DLAB_TRY(dlab_child_start(c->exe, c->fault, &c->children[point], err));
    c->alive[point] = true;
    return ask(c, point, open_message(c, point), out, err);
}

/* NULL when memory is out. */
static dlab_run *make_run(const dlab_crew *c, dlab_slot slot)
{
    dlab_run *r = malloc(sizeof *r);
    if (!r) return NULL;
    dlab_run_init(r);
    r->point = slot.point;
    r->repeat = slot.repeat;
    snprintf(r->key, sizeof r->key, "%s", c->outlook[slot.point].key);
    return r;
}

static void drop_run(dlab_run **out)
{
    if (*out) dlab_run_free(*out);
    free(*out);
    *out = NULL;
}

/* A run that has no worker any more to write it. */
static dlab_status write_ending(const dlab_crew *c, dlab_slot slot, dlab_run_status status, const char *reason,
                                dlab_run **out, dlab_error *err)
{
    const dlab_point *p = &c->spec->points[slot.point];
    struct timespec now;
    *out = make_run(c, slot);
    if (!*out) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a run");
    clock_gettime(CLOCK_REALTIME, &now);
    (*out)->started_unix = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    (*out)->status = status;
    dlab_text_copy((*out)->reason, sizeof(*out)->reason, reason);
    dlab_status st = dlab_config_settings(p->model, &p->plan, &p->workload, &c->spec->measure, &(*out)->effective, err);
    if (st == DLAB_OK) st = dlab_record_write_part(c->out_path, c->meta, *out, err);
    if (st != DLAB_OK) drop_run(out);
    return st;
}

static dlab_status read_ending(const dlab_crew *c, dlab_slot slot, dlab_run **out, dlab_error *err)
{
    char path[PATH_MAX];
    *out = malloc(sizeof **out);
    if (!*out) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a run");
    dlab_record_part_path(c->out_path, c->outlook[slot.point].key, slot.repeat, path, sizeof path);
    dlab_status st = dlab_record_read_part(path, *out, err);
    if (st != DLAB_OK) drop_run(out);
    return st;
}

static dlab_status status_of_name(const char *name)
{
    for (int s = 0; name && s < DLAB_STATUS_N; s++) {
        if (strcmp(dlab_status_name((dlab_status)s), name) == 0) return (dlab_status)s;
    }
    return DLAB_EINTERNAL;
}

static dlab_status settle(const dlab_crew *c, dlab_slot slot, const answer *a, dlab_run **out, dlab_error *err)
{
    const char *where = json_string_value(json_object_get(a->msg, "where"));
    const char *text = json_string_value(json_object_get(a->msg, "message"));
    dlab_status code = status_of_name(json_string_value(json_object_get(a->msg, "code")));
    if (!text) text = "the worker gave no reason";
    switch (a->kind) {
    case ANSWER_DONE:
        return read_ending(c, slot, out, err);
    case ANSWER_ERROR:
        if (where && strcmp(where, "write") == 0) return DLAB_FAIL(err, code, "%s", text);
        return write_ending(c, slot, dlab_session_status(code), text, out, err);
    case ANSWER_HUNG:
        return write_ending(c, slot, DLAB_RUN_HUNG, a->reason, out, err);
    case ANSWER_LOST:
        return write_ending(c, slot, DLAB_RUN_CRASHED, "the worker was gone before its run", out, err);
    default:
        return write_ending(c, slot, DLAB_RUN_CRASHED, a->reason, out, err);
    }
}

static json_t *run_message(const dlab_crew *c, dlab_slot slot)
{
    return json_pack("{s:s, s:i, s:I}", "cmd", "run", "repeat", (int)slot.repeat, "warmup",
                     (json_int_t)c->spec->measure.warmup);
}

dlab_status dlab_crew_run(dlab_crew *c, size_t at, dlab_run **out, dlab_error *err)
{
    dlab_slot slot = c->slots[at];
    answer a = {.kind = ANSWER_LOST};
    *out = NULL;
    /* A worker may have died between its runs; a second one gets the chance that the first one never had. */
    for (int attempt = 0; attempt < 2 && a.kind == ANSWER_LOST; attempt++) {
        if (!c->children[slot.point]) DLAB_TRY(hire(c, at, &a, err));
        if (c->children[slot.point]) {
            json_decref(a.msg);
            DLAB_TRY(ask(c, slot.point, run_message(c, slot), &a, err));
        }
    }
    dlab_status st = settle(c, slot, &a, out, err);
    json_decref(a.msg);
    if (st == DLAB_OK && dlab_schedule_next(c->slots, c->n_slots, at + 1, slot.point) == c->n_slots) {
        dlab_crew_dismiss(c, slot.point);
    }
    return st;
}

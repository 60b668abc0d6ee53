/* The other end of the runner's pipe: one point at a time, one run at a time. Protocol: docs/worker.md. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "harness/run/config.h"
#include "harness/run/run.h"
#include "harness/run/session.h"
#include "harness/run/wire.h"

typedef struct {
    int fd_out;
    const char *fault; /* or NULL */
    dlab_pulse *pulse;
    dlab_lines lines;
    dlab_model *model;
    dlab_session *session;
    dlab_settings meta;
    char out_path[PATH_MAX], key[17];
    int64_t point;
    bool lost; /* the runner does not listen any more */
    bool closed;
} worker;

static void send_message(worker *w, json_t *j)
{
    dlab_error ignored;
    if (dlab_wire_send(w->fd_out, j, &ignored) != DLAB_OK) w->lost = true;
}

static void send_error(worker *w, const char *where, const dlab_error *e)
{
    send_message(w, json_pack("{s:s, s:s, s:s, s:s}", "event", "error", "where", where, "code",
                              dlab_status_name(e->code), "message", e->msg));
}

static void send_phase(void *ctx, const char *name)
{
    send_message(ctx, json_pack("{s:s, s:s}", "event", "phase", "phase", name));
}

static void close_point(worker *w)
{
    dlab_session_destroy(w->session);
    dlab_model_close(w->model);
    dlab_settings_free(&w->meta);
    w->session = NULL;
    w->model = NULL;
    w->meta = (dlab_settings){0};
}

/* ---- faults on purpose, for the tests of the runner ---------------------------------------------------------------- */

static const char *const fault_kinds[] = {"crash", "hang", "oom", "skip", "fail", NULL};

/* One KIND@POINT of a list; moves *at behind it and its comma. */
static dlab_status read_fault(const char **at, const char **kind, int64_t *point, dlab_error *err)
{
    char word[16], *end = NULL;
    size_t n = strcspn(*at, "@,");
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), *at);
    for (size_t i = 0; (*kind = fault_kinds[i]); i++) {
        if (strcmp(*kind, word) == 0) break;
    }
    const char *digits = *at + n + (*kind && (*at)[n] == '@');
    *point = strtoll(digits, &end, 10);
    bool number = *digits >= '0' && *digits <= '9' && (*end == ',' || !*end);
    if (!*kind || !number) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "--fault: \"%.40s\" is not KIND@POINT with crash, hang, oom, skip or fail",
                         *at);
    }
    *at = *end ? end + 1 : end;
    return DLAB_OK;
}

dlab_status dlab_fault_check(const char *fault, dlab_error *err)
{
    const char *kind = NULL;
    int64_t point = 0;
    while (*fault) DLAB_TRY(read_fault(&fault, &kind, &point, err));
    return DLAB_OK;
}

static dlab_status inject_fault(const char *list, int64_t point, dlab_error *err)
{
    const char *kind = NULL;
    int64_t which = -1;
    while (list && *list && which != point) DLAB_TRY(read_fault(&list, &kind, &which, err));
    if (!kind || which != point) return DLAB_OK;
    if (strcmp(kind, "crash") == 0) abort();
    while (strcmp(kind, "hang") == 0) pause();
    if (strcmp(kind, "oom") == 0) return DLAB_FAIL(err, DLAB_EOOM, "injected refusal of memory");
    if (strcmp(kind, "skip") == 0) return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "injected impossibility");
    return DLAB_FAIL(err, DLAB_EINTERNAL, "injected failure");
}

/* ---- opening a point ------------------------------------------------------------------------------------------------ */

static dlab_status read_table(const json_t *msg, const char *key, const dlab_param *table, size_t n, void *obj,
                              dlab_error *err)
{
    dlab_settings s = {0};
    dlab_status st = dlab_wire_read_settings(msg, key, &s, err);
    dlab_param_defaults(table, n, obj);
    if (st == DLAB_OK) st = dlab_config_read(table, n, &s, obj, err);
    dlab_settings_free(&s);
    return st;
}

static dlab_status copy_text(const json_t *msg, const char *key, char *buf, size_t size, dlab_error *err)
{
    const char *text = NULL;
    DLAB_TRY(dlab_wire_text(msg, key, &text, err));
    if (strlen(text) >= size)
        return DLAB_FAIL(err, DLAB_EFORMAT, "message with a \"%s\" of over %zu bytes", key, size - 1);
    snprintf(buf, size, "%s", text);
    return DLAB_OK;
}

static dlab_status open_point(worker *w, const json_t *msg, dlab_error *err)
{
    dlab_plan plan = {0};
    dlab_workload workload = {0};
    dlab_measure measure = {0};
    const char *model = NULL, *target = NULL;
    size_t n = 0;
    close_point(w);
    DLAB_TRY(dlab_wire_text(msg, "model", &model, err));
    DLAB_TRY(dlab_wire_text(msg, "target", &target, err));
    DLAB_TRY(copy_text(msg, "out", w->out_path, sizeof w->out_path, err));
    DLAB_TRY(copy_text(msg, "key", w->key, sizeof w->key, err));
    DLAB_TRY(dlab_wire_int(msg, "point", 0, INT32_MAX, &w->point, err));
    DLAB_TRY(dlab_wire_read_settings(msg, "meta", &w->meta, err));
    const dlab_param *table = dlab_plan_params(&n);
    DLAB_TRY(read_table(msg, "plan", table, n, &plan, err));
    table = dlab_workload_params(&n);
    DLAB_TRY(read_table(msg, "workload", table, n, &workload, err));
    table = dlab_measure_params(&n);
    DLAB_TRY(read_table(msg, "measure", table, n, &measure, err));
    const dlab_target_ops *ops = dlab_target_find(target);
    if (!ops) return DLAB_FAIL(err, DLAB_EFORMAT, "unknown target \"%s\"", target);
    if (*model) DLAB_TRY(dlab_model_open(model, &w->model, err));
    dlab_session_opts o = {.target = ops,
                           .model = w->model,
                           .model_name = model,
                           .plan = &plan,
                           .workload = &workload,
                           .measure = &measure,
                           .phase = send_phase,
                           .phase_ctx = w,
                           .pulse = w->pulse};
    return dlab_session_create(&o, &w->session, err);
}

static void serve_open(worker *w, const json_t *msg)
{
    dlab_error e = {0};
    dlab_settings effective = {0};
    dlab_status st = open_point(w, msg, &e);
    if (st == DLAB_OK) st = dlab_session_settings(w->session, &effective, &e);
    if (st == DLAB_OK) {
        send_message(w, json_pack("{s:s, s:o}", "event", "done", "effective", dlab_wire_settings(&effective)));
    } else {
        send_error(w, "open", &e);
    }
    dlab_settings_free(&effective);
}

/* The run's own failure is written into its part like any other end; only a part that cannot be written is an error here. */
static dlab_status run_once(worker *w, const json_t *msg, dlab_run *run, dlab_error *err)
{
    int64_t repeat = 0, warmup = 0;
    dlab_error own = {0};
    if (!w->session) return DLAB_FAIL(err, DLAB_EFORMAT, "\"run\" before a successful \"open\"");
    DLAB_TRY(dlab_wire_int(msg, "repeat", 0, INT32_MAX, &repeat, err));
    DLAB_TRY(dlab_wire_int(msg, "warmup", 0, INT32_MAX, &warmup, err));
    snprintf(run->key, sizeof run->key, "%s", w->key);
    run->point = (int32_t)w->point;
    run->repeat = (int32_t)repeat;
    dlab_status st = inject_fault(w->fault, w->point, &own);
    if (st == DLAB_OK) {
        st = dlab_session_run(w->session, repeat, warmup, run, &own);
    } else {
        run->status = dlab_session_status(st);
        dlab_text_copy(run->reason, sizeof run->reason, own.msg);
        DLAB_TRY(dlab_session_settings(w->session, &run->effective, err));
    }
    if (st == DLAB_EINTERRUPTED) run->status = DLAB_RUN_PENDING;
    return dlab_record_write_part(w->out_path, &w->meta, run, err);
}

static void serve_run(worker *w, const json_t *msg)
{
    dlab_error e = {0};
    dlab_run run;
    dlab_run_init(&run);
    if (run_once(w, msg, &run, &e) == DLAB_OK) {
        send_message(w, json_pack("{s:s, s:s, s:s}", "event", "done", "status", dlab_run_status_text(run.status),
                                  "reason", run.reason));
    } else {
        send_error(w, "write", &e);
    }
    dlab_run_free(&run);
}

static dlab_status serve_line(worker *w, const char *line, dlab_error *err)
{
    json_t *msg = NULL;
    const char *cmd = NULL;
    DLAB_TRY(dlab_wire_parse(line, &msg, err));
    dlab_status st = dlab_wire_text(msg, "cmd", &cmd, err);
    if (st != DLAB_OK) {
        json_decref(msg);
        return st;
    }
    if (strcmp(cmd, "open") == 0) {
        serve_open(w, msg);
    } else if (strcmp(cmd, "run") == 0) {
        serve_run(w, msg);
    } else if (strcmp(cmd, "close") == 0) {
        w->closed = true;
        send_message(w, json_pack("{s:s}", "event", "done"));
    } else {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "unknown command \"%s\"; expected open, run or close", cmd);
    }
    json_decref(msg);
    return st;
}

dlab_status dlab_worker_serve(int fd_in, int fd_out, const dlab_worker_opts *opts, dlab_error *err)
{
    worker w = {.fd_out = fd_out, .fault = opts->fault};
    dlab_status st = opts->pulse_fd >= 0 ? dlab_pulse_map(opts->pulse_fd, &w.pulse, err) : DLAB_OK;
    bool eof = false;
    while (st == DLAB_OK && !eof && !w.closed && !w.lost) {
        st = dlab_lines_fill(&w.lines, fd_in, &eof, err);
        for (const char *line; st == DLAB_OK && !w.closed && (line = dlab_lines_next(&w.lines));) {
            st = serve_line(&w, line, err);
            if (st != DLAB_OK && err) send_error(&w, "message", err);
        }
    }
    close_point(&w);
    dlab_pulse_unmap(w.pulse);
    dlab_lines_free(&w.lines);
    return st;
}

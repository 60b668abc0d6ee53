/* dlab bench --record: the same record that `dlab run` makes, of cells instead of an experiment's points. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "harness/cmd/cmd_bench.h"
#include "results/warnings.h"

/* ---- the frame -------------------------------------------------------------------------------------------------------- */

static dlab_status add_meta(dlab_bench_record *b, const dlab_bench_opts *o, char (*paths)[PATH_MAX],
                            const uint64_t *hashes, dlab_error *err)
{
    dlab_settings *meta = &b->to.record.meta;
    DLAB_TRY(dlab_settings_set(meta, "device", o->plan.device, err));
    if (o->model.n != 1) return DLAB_OK; /* each point says which */
    return dlab_config_meta_model(meta, paths[0], hashes[0], err);
}

static bool differs(const dlab_record *r, const char *key)
{
    const char *first = dlab_settings_get(&r->points[0].effective, key);
    for (size_t i = 1; i < r->n_points; i++)
        if (strcmp(first, dlab_settings_get(&r->points[i].effective, key)) != 0) return true;
    return false;
}

/* Part of the test's name, so that the label need not say it again. */
static bool named_by_test(const char *key)
{
    static const char *const keys[] = {"workload.prompt", "workload.output", "workload.depth", "workload.requests",
                                       "batch.size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

/* The axes are the settings in which the cells differ. */
static dlab_status add_axes(dlab_record *r, dlab_error *err)
{
    const dlab_settings *keys = &r->points[0].effective;
    for (size_t k = 0; k < keys->n; k++) {
        const char *key = keys->items[k].key;
        if (!differs(r, key)) continue;
        for (size_t i = 0; i < r->n_points; i++) {
            dlab_point_result *p = &r->points[i];
            const char *value = dlab_settings_get(&p->effective, key);
            size_t used = strlen(p->label);
            DLAB_TRY(dlab_settings_set(&p->axes, key, value, err));
            if (!named_by_test(key)) snprintf(p->label + used, sizeof p->label - used, " %s=%s", key, value);
        }
    }
    for (size_t i = 0; i < r->n_points; i++)
        dlab_text_copy(r->points[i].label, sizeof r->points[i].label, r->points[i].label);
    return DLAB_OK;
}

static dlab_status frame_points(dlab_bench_record *b, const dlab_bench_opts *o, char (*paths)[PATH_MAX],
                                const dlab_bench_cell *cells, size_t n_cells, dlab_error *err)
{
    dlab_record *r = &b->to.record;
    r->points = calloc(o->model.n * n_cells, sizeof *r->points);
    if (!r->points) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a record of %zu tests", o->model.n * n_cells);
    for (size_t m = 0; m < o->model.n; m++) {
        for (size_t i = 0; i < n_cells; i++) {
            dlab_point_result *p = &r->points[r->n_points++];
            const dlab_workload w = dlab_bench_workload(&cells[i]);
            p->status = DLAB_RUN_PENDING;
            p->n_planned = (size_t)o->repeats;
            dlab_bench_test_name(&cells[i], p->label, sizeof p->label);
            DLAB_TRY(dlab_config_settings(paths[m], &cells[i].plan, &w, &b->measure, &p->effective, err));
        }
    }
    return add_axes(r, err);
}

static dlab_status add_peer(dlab_bench_record *b, const dlab_bench_opts *o, char (*paths)[PATH_MAX], dlab_error *err)
{
    dlab_settings *about = &b->to.record.peer.about;
    if (!o->peer_kind) return DLAB_OK;
    DLAB_TRY(dlab_settings_set(about, "kind", o->peer_kind->name, err));
    DLAB_TRY(dlab_settings_set(about, "path", o->peer_path, err));
    const char *same = o->model.n == 1 ? paths[0] : "each point's own";
    return dlab_settings_set(about, "model", o->peer_model ? o->peer_model : same, err);
}

dlab_status dlab_bench_record_begin(dlab_bench_record *b, const dlab_bench_opts *o, const char *command,
                                    char (*paths)[PATH_MAX], const uint64_t *hashes, const dlab_bench_cell *cells,
                                    size_t n_cells, dlab_error *err)
{
    *b = (dlab_bench_record){.to = {.lock_fd = -1}, .measure = dlab_bench_measure_of(o)};
    dlab_record_init(&b->to.record);
    if (!o->record) return DLAB_OK;
    DLAB_TRY(dlab_cmd_recorder_init(&b->to, o->record, "bench", command, err));
    DLAB_TRY(add_meta(b, o, paths, hashes, err));
    DLAB_TRY(frame_points(b, o, paths, cells, n_cells, err));
    DLAB_TRY(add_peer(b, o, paths, err));
    return dlab_cmd_recorder_open(&b->to, err);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------- */

static dlab_status add_runs(dlab_bench_record *b, dlab_bench_row *row, dlab_error *err)
{
    char key[17];
    dlab_point_result *p = &b->to.record.points[b->n_rows];
    const dlab_workload w = dlab_bench_workload(row->cell);
    const dlab_config_run run = {
        .target = "engine", .plan = &row->plan, .workload = &w, .measure = &b->measure, .model_hash = row->model_hash};
    DLAB_TRY(dlab_cmd_recorder_key(&b->to, &run, key, err));
    for (size_t i = 0; i < row->n_runs; i++)
        DLAB_TRY(dlab_cmd_recorder_add(&b->to, b->n_rows, &row->runs[i], key, err));
    p->status = row->status;
    dlab_text_copy(p->reason, sizeof p->reason, row->reason);
    dlab_point_warn(p);
    if (p->n_runs == 0) return DLAB_OK;
    return dlab_settings_copy(&p->runs[0]->effective, &p->effective, err);
}

static dlab_status add_peer_row(dlab_bench_record *b, const dlab_bench_row *row, dlab_error *err)
{
    const dlab_bench_peer *q = &row->peer;
    dlab_peer_result *to = &b->to.record.peer;
    dlab_peer_point point = {.point = (int32_t)b->n_rows,
                             .flash = q->test.flash,
                             .ratio = q->ratio.ratio,
                             .low = q->ratio.low,
                             .high = q->ratio.high};
    if (!q->asked) return DLAB_OK;
    for (size_t i = 0; i < q->n && i < row->n; i++) {
        const dlab_peer_pair pair = {.point = point.point,
                                     .pair = (int32_t)i,
                                     .peer_first = i % 2 == 1,
                                     .ours_rate = row->rate[i],
                                     .peer_rate = q->rate[i],
                                     .ours_ns = row->time_ns[i],
                                     .peer_ns = q->time_ns[i]};
        DLAB_TRY(dlab_peer_result_add_pair(to, &pair, err));
    }
    snprintf(point.status, sizeof point.status, "%s", dlab_run_status_text(q->status));
    dlab_text_copy(point.reason, sizeof point.reason, q->reason);
    snprintf(point.type_k, sizeof point.type_k, "%s", q->test.type_k ? q->test.type_k : "");
    snprintf(point.type_v, sizeof point.type_v, "%s", q->test.type_v ? q->test.type_v : "");
    if (*q->build) DLAB_TRY(dlab_settings_set(&to->about, "build", q->build, err));
    return dlab_peer_result_add_point(to, &point, err);
}

dlab_status dlab_bench_record_row(dlab_bench_record *b, dlab_bench_row *row, dlab_error *err)
{
    if (!b->to.path) return DLAB_OK;
    DLAB_TRY(add_runs(b, row, err));
    DLAB_TRY(add_peer_row(b, row, err));
    b->n_rows++;
    return dlab_cmd_recorder_write(&b->to, err);
}

dlab_status dlab_bench_record_end(dlab_bench_record *b, dlab_error *err)
{
    return dlab_cmd_recorder_finish(&b->to, err);
}

void dlab_bench_record_free(dlab_bench_record *b) { dlab_cmd_recorder_free(&b->to); }

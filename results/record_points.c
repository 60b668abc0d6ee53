/* The tables of points. /points is for people and pandas: one wide row a point with axes and summary metrics. What reading
 * needs beyond it, the settings with their order and absences, lies in two long tables (point, key, value). */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "results/metric.h"
#include "results/record_parts.h"

/* The fixed part of a row of /points. */
typedef struct {
    int32_t point, n_runs, n_planned;
    char label[160], status[16], reason[512], warnings[512];
} point_row;

#define N_FIXED 7
static const dlab_h5_column fixed_columns[N_FIXED] = {
    DLAB_H5_COLUMN(point_row, point, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "point, from 0"),
    DLAB_H5_COLUMN(point_row, n_runs, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "runs in this record"),
    DLAB_H5_COLUMN(point_row, n_planned, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "runs planned"),
    DLAB_H5_COLUMN(point_row, label, DLAB_H5_STR, DLAB_H5_NEEDED, "", "the swept axes"),
    DLAB_H5_COLUMN(point_row, status, DLAB_H5_STR, DLAB_H5_NEEDED, "",
                   "ok, truncated, skipped, oom, failed, crashed, hung, pending"),
    DLAB_H5_COLUMN(point_row, reason, DLAB_H5_STR, DLAB_H5_NEEDED, "", "why it is not ok"),
    DLAB_H5_COLUMN(point_row, warnings, DLAB_H5_STR, DLAB_H5_NEEDED, "", "joined by \"; \""),
};

static void take_point(const dlab_point_result *p, size_t index, point_row *row)
{
    row->point = (int32_t)index;
    row->n_runs = (int32_t)p->n_runs;
    row->n_planned = (int32_t)p->n_planned;
    snprintf(row->label, sizeof row->label, "%s", p->label);
    snprintf(row->status, sizeof row->status, "%s", dlab_run_status_text(p->status));
    snprintf(row->reason, sizeof row->reason, "%s", p->reason);
    snprintf(row->warnings, sizeof row->warnings, "%s", p->warnings);
}

/* ---- /points: a row made at run time ------------------------------------------------------------------------------- */

typedef struct {
    const dlab_record *record;
    dlab_h5_column *columns;
    size_t n_columns, capacity;
    size_t row_bytes;
    char **owned; /* names made here, one a column, NULL where the name is static */
    char *rows;
} wide_table;

static void wide_free(wide_table *w)
{
    for (size_t i = 0; i < w->n_columns; i++) free(w->owned[i]);
    free(w->owned);
    free(w->columns);
    free(w->rows);
}

static bool wide_has(const wide_table *w, const char *name)
{
    for (size_t i = 0; i < w->n_columns; i++)
        if (strcmp(w->columns[i].name, name) == 0) return true;
    return false;
}

/* Takes a copy of the name unless the column is one of the fixed ones. Room was made beforehand. */
static bool wide_add(wide_table *w, dlab_h5_column c, bool own)
{
    char *name = own ? strdup(c.name) : NULL;
    if (own && !name) return false;
    if (own) c.name = name;
    if (own) c.offset = w->row_bytes;
    w->owned[w->n_columns] = name;
    w->columns[w->n_columns++] = c;
    if (own) w->row_bytes += (c.size + 7) / 8 * 8;
    return true;
}

/* An axis whose values all are whole numbers, or numbers, becomes a number column. */
static dlab_h5_column axis_column(const dlab_record *r, const char *key)
{
    dlab_h5_column c = {key, DLAB_H5_I64, DLAB_H5_NEEDED, 0, 8, 0, "1", "swept axis"};
    size_t longest = 1;
    for (size_t i = 0; i < r->n_points; i++) {
        const char *v = dlab_settings_get(&r->points[i].axes, key);
        char *end;
        if (!v) {
            c.type = DLAB_H5_STR;
            continue;
        }
        if (strlen(v) + 1 > longest) longest = strlen(v) + 1;
        (void)strtoll(v, &end, 10);
        if (c.type == DLAB_H5_I64 && (*end || end == v)) c.type = DLAB_H5_F64;
        double number = strtod(v, &end);
        if (c.type == DLAB_H5_F64 && (*end || end == v || !isfinite(number))) c.type = DLAB_H5_STR;
    }
    if (c.type == DLAB_H5_STR) {
        c.size = longest < 65536 ? longest : 65536;
        c.unit = "";
    }
    return c;
}

static bool add_axes(wide_table *w)
{
    const dlab_record *r = w->record;
    for (size_t i = 0; i < r->n_points; i++) {
        for (size_t k = 0; k < r->points[i].axes.n; k++) {
            const char *key = r->points[i].axes.items[k].key;
            /* seen, or a name that /points uses otherwise: the long table has it */
            if (wide_has(w, key) || dlab_metric_find(key)) continue;
            if (!wide_add(w, axis_column(r, key), true)) return false;
        }
    }
    return true;
}

static const struct {
    const char *suffix, *description;
    dlab_h5_type type;
} figures[] = {
    {"", "median over the runs: ", DLAB_H5_F64},
    {".sd", "standard deviation over the runs (n - 1): ", DLAB_H5_F64},
    {".n", "runs that have a value: ", DLAB_H5_I64},
    {".samples", "samples behind the value, summed over the runs: ", DLAB_H5_I64},
};
#define N_FIGURES 4

static bool add_metrics(wide_table *w, const dlab_metric *const *metrics, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t f = 0; f < N_FIGURES; f++) {
            char name[128];
            snprintf(name, sizeof name, "%s%s", metrics[i]->name, figures[f].suffix);
            dlab_h5_column c = {name,
                                figures[f].type,
                                DLAB_H5_NEEDED,
                                0,
                                8,
                                0,
                                f < 2 ? metrics[i]->unit : "1",
                                metrics[i]->description};
            if (f > 0) c.description = figures[f].description;
            if (!wide_add(w, c, true)) return false;
        }
    }
    return true;
}

static void fill_axes(const wide_table *w, size_t first, size_t n, const dlab_point_result *p, char *row)
{
    for (size_t i = first; i < first + n; i++) {
        const dlab_h5_column *c = &w->columns[i];
        const char *v = dlab_settings_get(&p->axes, c->name);
        int64_t whole = v ? strtoll(v, NULL, 10) : 0;
        double number = v ? strtod(v, NULL) : NAN;
        if (c->type == DLAB_H5_I64) memcpy(row + c->offset, &whole, 8);
        if (c->type == DLAB_H5_F64) memcpy(row + c->offset, &number, 8);
        if (c->type == DLAB_H5_STR) snprintf(row + c->offset, c->size, "%s", v ? v : "");
    }
}

static void fill_metrics(const wide_table *w, size_t first, const dlab_metric *const *metrics, size_t n,
                         const dlab_point_result *p, char *row)
{
    for (size_t i = 0; i < n; i++) {
        dlab_summary s;
        dlab_metric_summary(metrics[i], (const dlab_run *const *)p->runs, p->n_runs, &DLAB_WINDOW_ALL, &s);
        const dlab_h5_column *c = &w->columns[first + i * N_FIGURES];
        memcpy(row + c[0].offset, &s.median, 8);
        memcpy(row + c[1].offset, &s.sd, 8);
        memcpy(row + c[2].offset, &s.n, 8);
        memcpy(row + c[3].offset, &s.n_samples, 8);
    }
}

/* Strings in the file are as long as the longest of them. */
static void fit_strings(wide_table *w)
{
    for (size_t c = 0; c < N_FIXED; c++) {
        size_t longest = 0;
        for (size_t i = 0; w->columns[c].type == DLAB_H5_STR && i < w->record->n_points; i++) {
            size_t n = strlen(w->rows + i * w->row_bytes + w->columns[c].offset);
            if (n > longest) longest = n;
        }
        w->columns[c].file_size = longest + 1;
    }
}

static dlab_status put_wide(const dlab_h5_out *o, const dlab_record *r, dlab_error *err)
{
    const dlab_metric *metrics[256];
    size_t n_metrics = dlab_metric_all(metrics, 256), n_axes = 0;
    for (size_t i = 0; i < r->n_points; i++) n_axes += r->points[i].axes.n;
    wide_table w = {.record = r, .capacity = N_FIXED + n_axes + n_metrics * N_FIGURES, .row_bytes = sizeof(point_row)};
    w.columns = calloc(w.capacity, sizeof *w.columns);
    w.owned = calloc(w.capacity, sizeof *w.owned);
    bool good = w.columns && w.owned;
    for (size_t i = 0; good && i < N_FIXED; i++) good = wide_add(&w, fixed_columns[i], false);
    good = good && add_axes(&w);
    size_t first_metric = w.n_columns;
    good = good && add_metrics(&w, metrics, n_metrics);
    if (good) w.rows = calloc(r->n_points ? r->n_points : 1, w.row_bytes);
    if (!good || !w.rows) {
        wide_free(&w);
        return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for the table of %zu points", o->path, r->n_points);
    }
    for (size_t i = 0; i < r->n_points; i++) {
        char *row = w.rows + i * w.row_bytes;
        point_row fixed = {0};
        take_point(&r->points[i], i, &fixed);
        memcpy(row, &fixed, sizeof fixed);
        fill_axes(&w, N_FIXED, first_metric - N_FIXED, &r->points[i], row);
        fill_metrics(&w, first_metric, metrics, n_metrics, &r->points[i], row);
    }
    fit_strings(&w);
    dlab_status st =
        dlab_h5_put_table(o, o->file, "points", w.columns, w.n_columns, w.rows, w.row_bytes, r->n_points, err);
    wide_free(&w);
    return st;
}

/* ---- the long tables ----------------------------------------------------------------------------------------------- */

#define KEY_MAX   128
#define VALUE_MAX 4096

typedef struct {
    int32_t point;
    char key[KEY_MAX], value[VALUE_MAX];
} setting_row;

static const dlab_h5_column setting_columns[3] = {
    DLAB_H5_COLUMN(setting_row, point, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "point, from 0"),
    DLAB_H5_COLUMN(setting_row, key, DLAB_H5_STR, DLAB_H5_NEEDED, "", "key of the experiment's language"),
    DLAB_H5_COLUMN(setting_row, value, DLAB_H5_STR, DLAB_H5_NEEDED, "", "its value as text"),
};

static const dlab_settings *settings_of(const dlab_point_result *p, bool effective)
{
    return effective ? &p->effective : &p->axes;
}

static dlab_status put_settings(const dlab_h5_out *o, const dlab_record *r, bool effective, dlab_error *err)
{
    size_t n = 0, k = 0, longest = 0;
    for (size_t i = 0; i < r->n_points; i++) n += settings_of(&r->points[i], effective)->n;
    setting_row *rows = calloc(n ? n : 1, sizeof *rows);
    if (!rows) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for the settings of the points", o->path);
    for (size_t i = 0; i < r->n_points; i++) {
        const dlab_settings *s = settings_of(&r->points[i], effective);
        for (size_t j = 0; j < s->n; j++, k++) {
            rows[k].point = (int32_t)i;
            snprintf(rows[k].key, KEY_MAX, "%s", s->items[j].key);
            snprintf(rows[k].value, VALUE_MAX, "%s", s->items[j].value);
            if (strlen(rows[k].value) > longest) longest = strlen(rows[k].value);
        }
    }
    dlab_h5_column columns[3];
    memcpy(columns, setting_columns, sizeof columns);
    columns[2].file_size = longest + 1;
    dlab_status st = dlab_h5_put_table(o, o->file, effective ? "points_effective" : "points_axes", columns, 3, rows,
                                       sizeof *rows, n, err);
    free(rows);
    return st;
}

dlab_status dlab_record_put_points(const dlab_h5_out *o, const dlab_record *r, dlab_error *err)
{
    DLAB_TRY(put_wide(o, r, err));
    DLAB_TRY(put_settings(o, r, false, err));
    return put_settings(o, r, true, err);
}

static dlab_status get_settings(const dlab_h5_in *in, dlab_record *r, bool effective, dlab_error *err)
{
    setting_row *rows;
    size_t n;
    DLAB_TRY(dlab_h5_get_table(in, in->file, effective ? "points_effective" : "points_axes", setting_columns, 3,
                               sizeof *rows, (void **)&rows, &n, err));
    dlab_status st = DLAB_OK;
    for (size_t i = 0; st == DLAB_OK && i < n; i++) {
        if (rows[i].point < 0 || (size_t)rows[i].point >= r->n_points) {
            st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: a setting belongs to point %d of %zu", in->path, rows[i].point,
                           r->n_points);
            break;
        }
        dlab_point_result *p = &r->points[rows[i].point];
        st = dlab_settings_set(effective ? &p->effective : &p->axes, rows[i].key, rows[i].value, err);
    }
    free(rows);
    return st;
}

static dlab_status give_point(const dlab_h5_in *in, const point_row *row, dlab_point_result *p, dlab_error *err)
{
    p->status = dlab_run_status_parse(row->status);
    if (p->status == DLAB_RUN_STATUS_N || row->n_planned < 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: point \"%s\" has no status or count that this version knows", in->path,
                         row->label);
    p->n_planned = (size_t)row->n_planned;
    memcpy(p->label, row->label, sizeof p->label);
    memcpy(p->reason, row->reason, sizeof p->reason);
    memcpy(p->warnings, row->warnings, sizeof p->warnings);
    return DLAB_OK;
}

dlab_status dlab_record_get_points(const dlab_h5_in *in, dlab_record *r, dlab_error *err)
{
    point_row *rows;
    size_t n;
    DLAB_TRY(dlab_h5_get_table(in, in->file, "points", fixed_columns, N_FIXED, sizeof *rows, (void **)&rows, &n, err));
    dlab_status st = DLAB_OK;
    r->points = calloc(n ? n : 1, sizeof *r->points);
    if (!r->points) {
        free(rows);
        return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for %zu points", in->path, n);
    }
    r->n_points = n;
    for (size_t i = 0; st == DLAB_OK && i < n; i++) st = give_point(in, &rows[i], &r->points[i], err);
    free(rows);
    if (st == DLAB_OK) st = get_settings(in, r, false, err);
    if (st == DLAB_OK) st = get_settings(in, r, true, err);
    return st;
}

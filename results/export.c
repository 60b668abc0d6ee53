#include "results/export.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "results/diagnosis.h"
#include "results/grid.h"
#include "results/metric.h"
#include "results/record_parts.h"
#include "results/units.h"

typedef enum { TEXT, SETTING, AXIS, FIGURE } column_kind;

/* A column is a name and how to get at its cells. */
typedef struct {
    char *name;
    column_kind kind;
    int which;       /* TEXT: which field; FIGURE: which of the summary */
    const char *key; /* SETTING, AXIS: owned by the record */
    const dlab_metric *metric;
    bool numeric;
} column;

typedef struct {
    const dlab_point_result *point;
    const dlab_run *run; /* NULL: the row is a point */
} row;

typedef struct {
    column *columns;
    row *rows;
    double *values; /* [n_rows, n_columns] */
    char **texts;   /* as a person reads the values, and what is made here; NULL where the text lies in the record */
    size_t n_columns, n_rows;
} sheet;

enum { F_LABEL, F_STATUS, F_REASON, F_WARNINGS, F_DIAGNOSIS, F_KEY, F_RUNS, F_PLANNED, F_REPEAT };
static const struct {
    const char *name;
    int which;
    bool numeric, points, runs; /* in which of the two kinds of export */
} fields[] = {
    {"label", F_LABEL, false, true, true},        {"repeat", F_REPEAT, true, false, true},
    {"status", F_STATUS, false, true, true},      {"reason", F_REASON, false, true, true},
    {"warnings", F_WARNINGS, false, true, false}, {"key", F_KEY, false, false, true},
    {"n_runs", F_RUNS, true, true, false},        {"n_planned", F_PLANNED, true, true, false},
};

enum { S_MEDIAN, S_SD, S_N, S_SAMPLES };

static bool add(sheet *s, const column *c, const char *name)
{
    column *columns = realloc(s->columns, (s->n_columns + 1) * sizeof *columns);
    if (columns) s->columns = columns;
    char *copy = strdup(name);
    if (!columns || !copy) {
        free(copy);
        return false;
    }
    s->columns[s->n_columns] = *c;
    s->columns[s->n_columns++].name = copy;
    return true;
}

static bool has_key(const sheet *s, column_kind kind, const char *key)
{
    for (size_t i = 0; i < s->n_columns; i++)
        if (s->columns[i].kind == kind && strcmp(s->columns[i].key, key) == 0) return true;
    return false;
}

static bool add_settings(sheet *s, const dlab_settings *settings, column_kind kind)
{
    for (size_t i = 0; i < settings->n; i++) {
        char name[256];
        const char *key = settings->items[i].key;
        if (has_key(s, kind, key)) continue;
        snprintf(name, sizeof name, "%s%s", kind == AXIS ? "" : "effective.", key);
        if (!add(s, &(column){.kind = kind, .key = key}, name)) return false;
    }
    return true;
}

static bool add_metric(sheet *s, const dlab_metric *m, bool per_run)
{
    static const char *const suffixes[] = {"", "_sd", "_n", "_samples"};
    for (int f = S_MEDIAN; f <= S_SAMPLES; f++) {
        char name[128], stem[96];
        if (per_run && (f == S_SD || f == S_N)) continue;
        dlab_unit_column(m->name, f <= S_SD ? m->unit : "1", stem, sizeof stem);
        snprintf(name, sizeof name, "%s%s", stem, suffixes[f]);
        if (!add(s, &(column){.kind = FIGURE, .which = f, .metric = m, .numeric = true}, name)) return false;
    }
    return true;
}

static bool build_columns(sheet *s, const dlab_record *r, bool per_run)
{
    const dlab_metric *metrics[256];
    size_t n_metrics = dlab_metric_all(metrics, 256);
    bool good = true;
    for (size_t i = 0; good && i < sizeof fields / sizeof *fields; i++)
        if (per_run ? fields[i].runs : fields[i].points)
            good =
                add(s, &(column){.kind = TEXT, .which = fields[i].which, .numeric = fields[i].numeric}, fields[i].name);
    for (size_t i = 0; good && i < r->n_points; i++) good = add_settings(s, &r->points[i].axes, AXIS);
    for (size_t i = 0; good && i < n_metrics; i++) good = add_metric(s, metrics[i], per_run);
    for (size_t i = 0; good && i < r->n_points; i++) good = add_settings(s, &r->points[i].effective, SETTING);
    /* Whole sentences come last: whoever cuts lines at commas still finds the columns before. */
    return good && (per_run || add(s, &(column){.kind = TEXT, .which = F_DIAGNOSIS}, "diagnosis"));
}

static bool build_rows(sheet *s, const dlab_record *r, bool per_run)
{
    size_t n = r->n_points;
    for (size_t i = 0; per_run && i < r->n_points; i++) n += r->points[i].n_runs;
    s->rows = calloc(n ? n : 1, sizeof *s->rows);
    if (!s->rows) return false;
    for (size_t i = 0; i < r->n_points; i++) {
        if (!per_run) s->rows[s->n_rows++] = (row){&r->points[i], NULL};
        for (size_t k = 0; per_run && k < r->points[i].n_runs; k++)
            s->rows[s->n_rows++] = (row){&r->points[i], r->points[i].runs[k]};
    }
    return true;
}

static double figure(const row *at, const column *c)
{
    assert(at->point);
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_summary s;
    if (at->run)
        dlab_metric_summary(c->metric, &at->run, 1, &all, &s);
    else
        dlab_metric_summary(c->metric, (const dlab_run *const *)at->point->runs, at->point->n_runs, &all, &s);
    if (c->which == S_MEDIAN) return s.median;
    if (c->which == S_SD) return s.sd;
    return (double)(c->which == S_N ? s.n : s.n_samples);
}

static double number(const row *at, const column *c)
{
    assert(at->point);
    if (c->kind == FIGURE) return figure(at, c);
    if (c->kind == TEXT && c->which == F_REPEAT) return at->run ? at->run->repeat : NAN;
    if (c->kind == TEXT && c->which == F_RUNS) return (double)at->point->n_runs;
    if (c->kind == TEXT && c->which == F_PLANNED) return (double)at->point->n_planned;
    return NAN;
}

static const char *word(const row *at, const column *c)
{
    if (c->kind == AXIS) {
        const char *v = dlab_settings_get(&at->point->axes, c->key);
        return v ? v : "";
    }
    if (c->kind == SETTING) {
        const char *v = at->run ? dlab_settings_get(&at->run->effective, c->key) : NULL;
        if (!v) v = dlab_settings_get(&at->point->effective, c->key);
        return v ? v : "";
    }
    if (c->which == F_LABEL) return at->point->label;
    if (c->which == F_STATUS) return dlab_run_status_text(at->run ? at->run->status : at->point->status);
    if (c->which == F_REASON) return at->run ? at->run->reason : at->point->reason;
    if (c->which == F_WARNINGS) return at->point->warnings;
    return c->which == F_KEY && at->run ? at->run->key : "";
}

/* An axis of numbers alone is written as numbers. */
static bool all_numbers(const sheet *s, size_t c)
{
    for (size_t r = 0; r < s->n_rows; r++) {
        char *end;
        const char *v = word(&s->rows[r], &s->columns[c]);
        if (!*v || !isfinite(strtod(v, &end)) || *end) return false;
    }
    return s->n_rows > 0;
}

static bool fill(sheet *s)
{
    size_t n = s->n_rows * s->n_columns;
    s->values = calloc(n + 1, sizeof *s->values);
    s->texts = calloc(n + 1, sizeof *s->texts);
    if (!s->values || !s->texts) return false;
    for (size_t c = 0; c < s->n_columns; c++) {
        column *col = &s->columns[c];
        if (col->kind == AXIS) col->numeric = all_numbers(s, c);
        for (size_t r = 0; col->kind == TEXT && col->which == F_DIAGNOSIS && r < s->n_rows; r++)
            if (dlab_diagnosis_text(s->rows[r].point, &s->texts[r * s->n_columns + c], NULL) != DLAB_OK) return false;
        for (size_t r = 0; col->numeric && r < s->n_rows; r++) {
            size_t at = r * s->n_columns + c;
            char text[48] = "";
            s->values[at] = col->kind == AXIS ? strtod(word(&s->rows[r], col), NULL) : number(&s->rows[r], col);
            if (isfinite(s->values[at])) dlab_number_text(s->values[at], text, sizeof text);
            s->texts[at] = strdup(text);
            if (!s->texts[at]) return false;
        }
    }
    return true;
}

static void sheet_free(sheet *s)
{
    for (size_t i = 0; s->texts && i < s->n_rows * s->n_columns; i++) free(s->texts[i]);
    for (size_t i = 0; i < s->n_columns; i++) free(s->columns[i].name);
    free(s->texts);
    free(s->values);
    free(s->columns);
    free(s->rows);
}

static const char *sheet_name(const void *ctx, size_t c) { return ((const sheet *)ctx)->columns[c].name; }
static bool sheet_numeric(const void *ctx, size_t c) { return ((const sheet *)ctx)->columns[c].numeric; }

static double sheet_value(const void *ctx, size_t r, size_t c)
{
    const sheet *s = ctx;
    return s->values[r * s->n_columns + c];
}

static const char *sheet_text(const void *ctx, size_t r, size_t c)
{
    const sheet *s = ctx;
    const char *made = s->texts[r * s->n_columns + c];
    return made ? made : word(&s->rows[r], &s->columns[c]);
}

/* ---- rendering ------------------------------------------------------------------------------------------------------ */

static dlab_status write_json(const dlab_record *r, const dlab_grid *g, const char *rows_name, FILE *out,
                              dlab_error *err)
{
    json_t *meta = json_object(), *rows = dlab_grid_json(g);
    for (size_t i = 0; i < r->meta.n; i++)
        json_object_set_new(meta, r->meta.items[i].key, json_string(r->meta.items[i].value));
    json_t *all =
        json_pack("{s:i, s:b, s:o, s:o}", "schema", 1, "complete", r->complete, "meta", meta, rows_name, rows);
    bool good = all && json_dumpf(all, out, JSON_INDENT(1)) == 0 && fputc('\n', out) != EOF;
    json_decref(all);
    return good ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "export: no memory for its JSON");
}

static dlab_status write_grid(const dlab_record *r, const dlab_grid *g, const char *format, const char *rows_name,
                              FILE *out, dlab_error *err)
{
    if (strcmp(format, "json") == 0) return write_json(r, g, rows_name, out, err);
    if (strcmp(format, "md") == 0) return dlab_grid_markdown(g, out, err);
    if (strcmp(format, "csv") != 0)
        return DLAB_FAIL(err, DLAB_EUSAGE, "format \"%s\" is not known; expected csv, json or md", format);
    dlab_grid_csv(g, out);
    return DLAB_OK;
}

dlab_status dlab_export(const dlab_record *r, const char *format, bool per_run, char **out, dlab_error *err)
{
    sheet s = {0};
    char *text = NULL;
    size_t n;
    dlab_status st = DLAB_OK;
    *out = NULL;
    FILE *f = open_memstream(&text, &n);
    if (!f || !build_columns(&s, r, per_run) || !build_rows(&s, r, per_run) || !fill(&s))
        st = DLAB_FAIL(err, DLAB_EOOM, "export: no memory for the record's %zu points", r->n_points);
    const dlab_grid g = {&s, s.n_rows, s.n_columns, sheet_name, sheet_numeric, sheet_value, sheet_text};
    if (st == DLAB_OK) st = write_grid(r, &g, format, per_run ? "runs" : "points", f, err);
    if (f && fclose(f) != 0 && st == DLAB_OK) st = DLAB_FAIL(err, DLAB_EOOM, "export: no memory to render it");
    sheet_free(&s);
    if (st == DLAB_OK)
        *out = text;
    else
        free(text);
    return st;
}

/* ---- tables of events ----------------------------------------------------------------------------------------------- */

const char *const dlab_export_tables[] = {"requests", "tokens", "steps", "memory", "quality", "peaks", NULL};

#define N_PLACE 3 /* label, point, repeat */

typedef struct {
    const dlab_run *run;
    const char *label, *row;
} event;

typedef struct {
    const dlab_run_table *table;
    event *events;
    size_t n;
    char (*names)[96]; /* with the units, [N_PLACE + n_columns] */
    char *shown;       /* a figure as it is read, until the next is asked for */
} event_list;

#define SHOWN 48

static bool list_events(const dlab_record *r, event_list *l)
{
    const dlab_run_table *t = l->table;
    size_t n = 0;
    for (int fill = 0; fill < 2; fill++) {
        if (fill) l->events = calloc(n + 1, sizeof *l->events);
        if (fill && !l->events) return false;
        for (size_t p = 0; p < r->n_points; p++) {
            for (size_t k = 0; k < r->points[p].n_runs; k++) {
                const dlab_run *run = r->points[p].runs[k];
                size_t n_rows;
                const char *rows = dlab_run_rows(run, t, &n_rows);
                for (size_t i = 0; fill && i < n_rows; i++)
                    l->events[l->n++] = (event){run, r->points[p].label, rows + i * t->row_bytes};
                n += fill ? 0 : n_rows;
            }
        }
    }
    return true;
}

static bool name_columns(event_list *l)
{
    static const char *const places[N_PLACE] = {"label", "point", "repeat"};
    l->names = calloc(N_PLACE + l->table->n_columns, sizeof *l->names);
    l->shown = calloc(1, SHOWN);
    if (!l->names || !l->shown) return false;
    for (size_t c = 0; c < N_PLACE; c++) snprintf(l->names[c], sizeof l->names[c], "%s", places[c]);
    for (size_t c = 0; c < l->table->n_columns; c++) {
        const dlab_h5_column *of = &l->table->columns[c];
        dlab_unit_column(of->name, of->unit, l->names[N_PLACE + c], sizeof l->names[0]);
    }
    return true;
}

static const char *event_name(const void *ctx, size_t c) { return ((const event_list *)ctx)->names[c]; }

static bool event_numeric(const void *ctx, size_t c)
{
    (void)ctx;
    return c > 0;
}

static double event_value(const void *ctx, size_t r, size_t c)
{
    const event_list *l = ctx;
    const event *e = &l->events[r];
    if (c < N_PLACE) return c == 1 ? e->run->point : e->run->repeat;
    const dlab_h5_column *of = &l->table->columns[c - N_PLACE];
    int32_t i32;
    int64_t i64;
    double v = NAN;
    if (of->type == DLAB_H5_F64) {
        memcpy(&v, e->row + of->offset, sizeof v);
        return v;
    }
    if (of->type == DLAB_H5_I32) {
        memcpy(&i32, e->row + of->offset, sizeof i32);
        v = i32;
    } else {
        memcpy(&i64, e->row + of->offset, sizeof i64);
        v = (double)i64;
    }
    return v == -1 && of->absent == DLAB_H5_UNKNOWN ? NAN : v;
}

static const char *event_text(const void *ctx, size_t r, size_t c)
{
    const event_list *l = ctx;
    if (c == 0) return l->events[r].label;
    double v = event_value(ctx, r, c);
    if (!isfinite(v)) return "–";
    dlab_number_text(v, l->shown, SHOWN);
    return l->shown;
}

dlab_status dlab_export_table(const dlab_record *r, const char *table, const char *format, char **out, dlab_error *err)
{
    event_list l = {.table = NULL};
    char *text = NULL;
    size_t n;
    dlab_status st = DLAB_OK;
    *out = NULL;
    for (size_t i = 0; i < DLAB_RUN_N_TABLES; i++)
        if (strcmp(dlab_run_tables[i].name, table) == 0) l.table = &dlab_run_tables[i];
    if (!l.table)
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "table \"%s\" is not known; expected requests, tokens, steps, memory, quality or peaks",
                         table);
    FILE *f = open_memstream(&text, &n);
    if (!f || !list_events(r, &l) || !name_columns(&l))
        st = DLAB_FAIL(err, DLAB_EOOM, "export: no memory for the table %s of the record's runs", table);
    const dlab_grid g = {&l, l.n, N_PLACE + l.table->n_columns, event_name, event_numeric, event_value, event_text};
    if (st == DLAB_OK) st = write_grid(r, &g, format, table, f, err);
    if (f && fclose(f) != 0 && st == DLAB_OK) st = DLAB_FAIL(err, DLAB_EOOM, "export: no memory to render it");
    free(l.events);
    free(l.names);
    free(l.shown);
    if (st == DLAB_OK)
        *out = text;
    else
        free(text);
    return st;
}

/* The table: columns, cells, and its rendering. */
#include "results/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/grid.h"
#include "results/report_parts.h"
#include "results/units.h"

/* Copies text into a cell without cutting a UTF-8 sequence in two. */
static void set_text(dlab_cell *c, const char *text)
{
    size_t n = strlen(text);
    if (n >= sizeof c->text) {
        n = sizeof c->text - 1 - strlen("…");
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
        memcpy(c->text, text, n);
        memcpy(c->text + n, "…", sizeof "…");
    } else {
        memcpy(c->text, text, n + 1);
    }
}

typedef struct {
    const dlab_record *record;
    const dlab_report_spec *spec;
    dlab_table *table;
} builder;

static dlab_cell *cell(const builder *b, size_t row, size_t column)
{
    return &b->table->cells[row * b->table->n_columns + column];
}

/* Names of swept axes, in the order in which they appear; owned by the record. */
static size_t swept_axes(const dlab_record *r, const char **keys, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_points; i++) {
        for (size_t k = 0; k < r->points[i].axes.n; k++) {
            size_t seen = 0;
            while (seen < n && strcmp(keys[seen], r->points[i].axes.items[k].key) != 0) seen++;
            if (seen == n && n < cap) keys[n++] = r->points[i].axes.items[k].key;
        }
    }
    return n;
}

static void fill_axis(const builder *b, size_t column, const char *key)
{
    bool numeric = true;
    for (size_t r = 0; r < b->record->n_points; r++) {
        const char *v = dlab_settings_get(&b->record->points[r].axes, key);
        dlab_cell *c = cell(b, r, column);
        numeric = dlab_value_number(v, &c->value) && numeric;
        set_text(c, v ? v : "–");
    }
    b->table->columns[column].numeric = numeric;
}

static void fill_metric(const builder *b, size_t column, const dlab_metric *m)
{
    const size_t n = b->record->n_points;
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_column *col = &b->table->columns[column];
    double *medians = malloc((n ? n : 1) * sizeof *medians);
    for (size_t r = 0; medians && r < n; r++) medians[r] = dlab_point_summary(&b->record->points[r], m, &all).median;
    dlab_scale scale = dlab_scale_for(m->unit, medians, medians ? n : 0);
    free(medians);
    dlab_unit_column(m->name, scale.unit, col->name, sizeof col->name);
    snprintf(col->unit, sizeof col->unit, "%s", scale.unit);
    for (size_t r = 0; r < n; r++) {
        dlab_summary s = dlab_point_summary(&b->record->points[r], m, &all);
        dlab_cell *c = cell(b, r, column);
        char text[48], marked[64];
        c->value = s.median * scale.factor;
        dlab_figure_text(c->value, s.n > 1 && s.sd > 0 ? s.sd * scale.factor : NAN, text, sizeof text);
        snprintf(marked, sizeof marked, "%s%s", text, s.low_n ? "*" : "");
        set_text(c, marked);
    }
}

static void fill_ratio(const builder *b, size_t column)
{
    for (size_t r = 0; r < b->record->n_points; r++) {
        const dlab_point_result *p = &b->record->points[r];
        const dlab_point_result *base = dlab_point_partner(b->record, p, &b->spec->baseline);
        dlab_cell *c = cell(b, r, column);
        dlab_metric_window w;
        char text[48] = "–";
        c->value = base ? dlab_report_ratio(b->spec->ratio, p, base, &w) : NAN;
        if (isfinite(c->value))
            snprintf(text, sizeof text, c->value < 10 ? "%.2f×" : c->value < 100 ? "%.1f×" : "%.0f×", c->value);
        set_text(c, text);
    }
}

static void fill_growth(const builder *b, size_t column)
{
    for (size_t r = 0; r < b->record->n_points; r++) {
        dlab_cell *c = cell(b, r, column);
        char text[48] = "–";
        c->value = dlab_report_growth(b->record, b->spec->growth, b->spec->growth_over, &b->record->points[r]);
        if (isfinite(c->value)) snprintf(text, sizeof text, "%.2f", c->value);
        set_text(c, text);
    }
}

/* What an article says about the points it speaks of, never mixed with what was measured. */
static void fill_claim(const builder *b, size_t column, bool growth)
{
    for (size_t r = 0; r < b->record->n_points; r++) {
        dlab_cell *c = cell(b, r, column);
        c->value = NAN;
        set_text(c, "–");
        for (size_t i = 0; i < b->spec->n_claims && !isfinite(c->value); i++) {
            const dlab_claim *claim = &b->spec->claims[i];
            double v = growth ? claim->growth : claim->ratio;
            char text[64];
            if (!isfinite(v) || !dlab_point_matches(&b->record->points[r], &claim->at)) continue;
            c->value = v;
            snprintf(text, sizeof text, growth ? "%g (%s, %s)" : "%g× (%s, %s)", v, claim->article, claim->id);
            set_text(c, text);
        }
    }
}

static bool any_claim(const dlab_report_spec *s, bool growth)
{
    for (size_t i = 0; i < s->n_claims; i++)
        if (isfinite(growth ? s->claims[i].growth : s->claims[i].ratio)) return true;
    return false;
}

static void fill_status(const builder *b, size_t column)
{
    for (size_t r = 0; r < b->record->n_points; r++) {
        cell(b, r, column)->value = NAN;
        set_text(cell(b, r, column), dlab_run_status_text(b->record->points[r].status));
    }
}

/* A ratio of times or rates is a speed-up; of anything else it carries the metric's name. */
static void ratio_name(const dlab_metric *m, char *buf, size_t size)
{
    bool speed = strcmp(m->unit, "ns") == 0 || strcmp(m->unit, "tok/s") == 0 || strcmp(m->unit, "req/s") == 0;
    if (speed)
        snprintf(buf, size, "speedup");
    else
        snprintf(buf, size, "%s_ratio", m->name);
}

#define AXES_MAX    64
#define COLUMNS_MAX (AXES_MAX + DLAB_REPORT_MAX + 5)

typedef enum { AXIS, STATUS, METRIC, RATIO, GROWTH, CLAIMED_RATIO, CLAIMED_GROWTH } column_kind;

typedef struct {
    column_kind kind;
    const char *key;           /* AXIS */
    const dlab_metric *metric; /* METRIC */
} column_plan;

static size_t plan_columns(const dlab_record *r, const dlab_report_spec *s, column_plan plan[COLUMNS_MAX])
{
    const char *axes[AXES_MAX];
    const size_t n_axes = swept_axes(r, axes, AXES_MAX);
    size_t n = 0;
    for (size_t i = 0; i < n_axes; i++) plan[n++] = (column_plan){.kind = AXIS, .key = axes[i]};
    plan[n++] = (column_plan){.kind = STATUS};
    for (size_t i = 0; i < s->n_metrics; i++) plan[n++] = (column_plan){.kind = METRIC, .metric = s->metrics[i]};
    if (s->ratio && s->baseline.n > 0) plan[n++] = (column_plan){.kind = RATIO};
    if (s->growth) plan[n++] = (column_plan){.kind = GROWTH};
    if (any_claim(s, false)) plan[n++] = (column_plan){.kind = CLAIMED_RATIO};
    if (any_claim(s, true)) plan[n++] = (column_plan){.kind = CLAIMED_GROWTH};
    return n;
}

static void name_column(const dlab_report_spec *s, const column_plan *p, dlab_column *c)
{
    char ratio[48] = "speedup";
    if (s->ratio) ratio_name(s->ratio, ratio, sizeof ratio);
    c->numeric = p->kind != STATUS;
    snprintf(c->unit, sizeof c->unit, "%s", p->kind >= RATIO ? "1" : "");
    if (p->kind == AXIS) snprintf(c->name, sizeof c->name, "%s", p->key);
    if (p->kind == STATUS) snprintf(c->name, sizeof c->name, "status");
    if (p->kind == RATIO) snprintf(c->name, sizeof c->name, "%s", ratio);
    if (p->kind == GROWTH) snprintf(c->name, sizeof c->name, "growth");
    if (p->kind == CLAIMED_RATIO) snprintf(c->name, sizeof c->name, "claimed_%s", ratio);
    if (p->kind == CLAIMED_GROWTH) snprintf(c->name, sizeof c->name, "claimed_growth");
}

static void fill_column(const builder *b, size_t at, const column_plan *p)
{
    if (p->kind == AXIS) fill_axis(b, at, p->key);
    if (p->kind == STATUS) fill_status(b, at);
    if (p->kind == METRIC) fill_metric(b, at, p->metric);
    if (p->kind == RATIO) fill_ratio(b, at);
    if (p->kind == GROWTH) fill_growth(b, at);
    if (p->kind == CLAIMED_RATIO) fill_claim(b, at, false);
    if (p->kind == CLAIMED_GROWTH) fill_claim(b, at, true);
}

dlab_status dlab_report_build(const dlab_record *r, const dlab_report_spec *s, dlab_table *out, dlab_error *err)
{
    column_plan plan[COLUMNS_MAX];
    const builder b = {r, s, out};
    *out = (dlab_table){.n_rows = r->n_points, .n_columns = plan_columns(r, s, plan)};
    out->columns = calloc(out->n_columns, sizeof *out->columns);
    out->cells = calloc(out->n_rows * out->n_columns + 1, sizeof *out->cells);
    if (!out->columns || !out->cells) {
        dlab_table_free(out);
        return DLAB_FAIL(err, DLAB_EOOM, "report: no memory for its %zu rows", r->n_points);
    }
    for (size_t i = 0; i < out->n_columns; i++) {
        name_column(s, &plan[i], &out->columns[i]);
        fill_column(&b, i, &plan[i]);
    }
    dlab_notes notes = {.err = err};
    dlab_report_notes(r, s, &notes);
    out->notes = notes.notes;
    out->n_notes = notes.n;
    if (notes.status != DLAB_OK) dlab_table_free(out);
    return notes.status;
}

void dlab_table_free(dlab_table *t)
{
    for (size_t i = 0; i < t->n_notes; i++) free(t->notes[i]);
    free(t->notes);
    free(t->columns);
    free(t->cells);
    *t = (dlab_table){0};
}

/* ---- rendering ----------------------------------------------------------------------------------------------------- */

static const char *table_name(const void *ctx, size_t c) { return ((const dlab_table *)ctx)->columns[c].name; }
static bool table_numeric(const void *ctx, size_t c) { return ((const dlab_table *)ctx)->columns[c].numeric; }

static double table_value(const void *ctx, size_t r, size_t c)
{
    const dlab_table *t = ctx;
    return t->cells[r * t->n_columns + c].value;
}

static const char *table_text(const void *ctx, size_t r, size_t c)
{
    const dlab_table *t = ctx;
    return t->cells[r * t->n_columns + c].text;
}

static dlab_status render_markdown(const dlab_table *t, const dlab_grid *g, FILE *out, dlab_error *err)
{
    DLAB_TRY(dlab_grid_markdown(g, out, err));
    if (t->n_notes) fputc('\n', out);
    for (size_t i = 0; i < t->n_notes; i++) fprintf(out, "- %s\n", t->notes[i]);
    return DLAB_OK;
}

static dlab_status render_json(const dlab_table *t, const dlab_grid *g, FILE *out, dlab_error *err)
{
    json_t *columns = json_array(), *notes = json_array(), *rows = dlab_grid_json(g);
    for (size_t c = 0; c < t->n_columns; c++)
        json_array_append_new(columns, json_pack("{s:s, s:s}", "name", t->columns[c].name, "unit", t->columns[c].unit));
    for (size_t i = 0; i < t->n_notes; i++) json_array_append_new(notes, json_string(t->notes[i]));
    json_t *all = json_pack("{s:i, s:o, s:o, s:o}", "schema", 1, "columns", columns, "rows", rows, "notes", notes);
    bool good = all && json_dumpf(all, out, JSON_INDENT(2)) == 0 && fputc('\n', out) != EOF;
    json_decref(all);
    return good ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "report: no memory for its JSON");
}

dlab_status dlab_table_render(const dlab_table *t, const char *format, char **out, dlab_error *err)
{
    const dlab_grid g = {t, t->n_rows, t->n_columns, table_name, table_numeric, table_value, table_text};
    size_t n;
    *out = NULL;
    char *text = NULL;
    FILE *f = open_memstream(&text, &n);
    if (!f) return DLAB_FAIL(err, DLAB_EOOM, "report: no memory to render it");
    dlab_status st = DLAB_OK;
    if (strcmp(format, "md") == 0)
        st = render_markdown(t, &g, f, err);
    else if (strcmp(format, "csv") == 0)
        dlab_grid_csv(&g, f);
    else if (strcmp(format, "json") == 0)
        st = render_json(t, &g, f, err);
    else
        st = DLAB_FAIL(err, DLAB_EUSAGE, "format \"%s\" is not known; expected md, csv or json", format);
    if (fclose(f) != 0 && st == DLAB_OK) st = DLAB_FAIL(err, DLAB_EOOM, "report: no memory to render it");
    if (st == DLAB_OK)
        *out = text;
    else
        free(text);
    return st;
}

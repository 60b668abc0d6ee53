/* The diagnosis of points as text and as a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/diagnosis.h"
#include "results/grid.h"
#include "results/units.h"

static dlab_status diagnose(const dlab_point_result *p, dlab_diagnosis *out, dlab_error *err)
{
    return dlab_diagnose((const dlab_run *const *)p->runs, p->n_runs, out, err);
}

dlab_status dlab_diagnosis_text(const dlab_point_result *p, char **out, dlab_error *err)
{
    dlab_diagnosis d;
    *out = NULL;
    DLAB_TRY(diagnose(p, &d, err));
    const size_t size = DLAB_FINDINGS_MAX * (sizeof d.items[0].text + 2);
    char *text = calloc(1, size);
    if (!text) return DLAB_FAIL(err, DLAB_EOOM, "diagnosis: no memory for its sentences");
    for (size_t i = 0, used = 0; i < d.n; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "; " : "", d.items[i].text);
    *out = text;
    return DLAB_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *label;
    dlab_finding finding;
    bool found;
    char share[24], nothing[64]; /* nothing: said where none was found */
} row;

enum { LABEL, CAUSE, SHARE, SENTENCE, N_COLUMNS };

static const char *name_of(const void *ctx, size_t c)
{
    static const char *const names[N_COLUMNS] = {"label", "cause", "share", "diagnosis"};
    (void)ctx;
    return names[c];
}

static bool is_numeric(const void *ctx, size_t c)
{
    (void)ctx;
    return c == SHARE;
}

static double value_of(const void *ctx, size_t r, size_t c)
{
    (void)c;
    return ((const row *)ctx)[r].finding.share;
}

static const char *text_of(const void *ctx, size_t r, size_t c)
{
    const row *at = (const row *)ctx + r;
    if (c == LABEL) return at->label;
    if (c == SHARE) return at->share;
    if (!at->found) return c == CAUSE ? "–" : at->nothing;
    return c == CAUSE ? dlab_cause_text(at->finding.cause) : at->finding.text;
}

static dlab_status fill_rows(const dlab_record *r, row *rows, size_t *n, dlab_error *err)
{
    for (size_t i = 0; i < r->n_points; i++) {
        dlab_diagnosis d;
        DLAB_TRY(diagnose(&r->points[i], &d, err));
        rows[*n] = (row){.label = r->points[i].label, .finding.share = NAN, .share = "–"};
        snprintf(rows[*n].nothing, sizeof rows[*n].nothing, "%s%s",
                 d.unjudged ? "not judged: " : "nothing makes up most of the requests' time",
                 d.unjudged ? d.unjudged : "");
        for (size_t k = 0; k < d.n; k++) {
            row *at = &rows[*n + k];
            *at = (row){.label = r->points[i].label, .finding = d.items[k], .found = true};
            dlab_figure_text(d.items[k].share, NAN, at->share, sizeof at->share);
        }
        *n += d.n ? d.n : 1;
    }
    return DLAB_OK;
}

static dlab_status render(const dlab_grid *g, const char *format, FILE *f, dlab_error *err)
{
    if (strcmp(format, "md") == 0) return dlab_grid_markdown(g, f, err);
    if (strcmp(format, "csv") == 0) {
        dlab_grid_csv(g, f);
        return DLAB_OK;
    }
    if (strcmp(format, "json") != 0)
        return DLAB_FAIL(err, DLAB_EUSAGE, "format \"%s\" is not known; expected md, csv or json", format);
    json_t *all = json_pack("{s:i, s:o}", "schema", 1, "diagnosis", dlab_grid_json(g));
    const bool good = all && json_dumpf(all, f, JSON_INDENT(1)) == 0 && fputc('\n', f) != EOF;
    json_decref(all);
    return good ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "diagnosis: no memory for its JSON");
}

dlab_status dlab_diagnosis_render(const dlab_record *r, const char *format, char **out, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    char *text = NULL;
    size_t n = 0, n_bytes;
    *out = NULL;
    row *rows = calloc(r->n_points * DLAB_FINDINGS_MAX + 1, sizeof *rows);
    if (!rows) return DLAB_FAIL(err, DLAB_EOOM, "diagnosis: no memory for %zu points", r->n_points);
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) st = DLAB_FAIL(err, DLAB_EOOM, "diagnosis: no memory to render it");
    if (st == DLAB_OK) st = fill_rows(r, rows, &n, err);
    const dlab_grid g = {rows, n, N_COLUMNS, name_of, is_numeric, value_of, text_of};
    if (st == DLAB_OK) st = render(&g, format, f, err);
    if (f && fclose(f) != 0 && st == DLAB_OK) st = DLAB_FAIL(err, DLAB_EOOM, "diagnosis: no memory to render it");
    free(rows);
    if (st == DLAB_OK)
        *out = text;
    else
        free(text);
    return st;
}

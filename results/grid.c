#include "results/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "results/units.h"

/* ---- Markdown ------------------------------------------------------------------------------------------------------ */

/* Columns on the screen: UTF-8 sequences count once; a pipe costs its backslash. */
static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80 ? (*s == '|' ? 2 : 1) : 0;
    return n;
}

static void put_padded(FILE *out, const char *s, size_t width, bool right)
{
    size_t pad = width > width_of(s) ? width - width_of(s) : 0;
    fprintf(out, "| %*s", right ? (int)pad : 0, "");
    for (; *s; s++) {
        if (*s == '|') fputc('\\', out);
        fputc(*s == '\n' || *s == '\r' ? ' ' : *s, out);
    }
    fprintf(out, "%*s ", right ? 0 : (int)pad, "");
}

static void put_rule(FILE *out, size_t width, bool right)
{
    fputs("| ", out);
    for (size_t i = 0; i + (right ? 1 : 0) < width; i++) fputc('-', out);
    fputs(right ? ": " : " ", out);
}

dlab_status dlab_grid_markdown(const dlab_grid *g, FILE *out, dlab_error *err)
{
    size_t *widths = calloc(g->n_columns ? g->n_columns : 1, sizeof *widths);
    if (!widths) return DLAB_FAIL(err, DLAB_EOOM, "table: no memory for its %zu columns", g->n_columns);
    for (size_t c = 0; c < g->n_columns; c++) {
        widths[c] = width_of(g->name(g->ctx, c));
        if (widths[c] < 3) widths[c] = 3;
        for (size_t r = 0; r < g->n_rows; r++) {
            size_t w = width_of(g->text(g->ctx, r, c));
            if (w > widths[c]) widths[c] = w;
        }
    }
    for (size_t c = 0; c < g->n_columns; c++) put_padded(out, g->name(g->ctx, c), widths[c], g->numeric(g->ctx, c));
    fputs("|\n", out);
    for (size_t c = 0; c < g->n_columns; c++) put_rule(out, widths[c], g->numeric(g->ctx, c));
    fputs("|\n", out);
    for (size_t r = 0; r < g->n_rows; r++) {
        for (size_t c = 0; c < g->n_columns; c++)
            put_padded(out, g->text(g->ctx, r, c), widths[c], g->numeric(g->ctx, c));
        fputs("|\n", out);
    }
    free(widths);
    return DLAB_OK;
}

/* ---- CSV ----------------------------------------------------------------------------------------------------------- */

static void put_field(FILE *out, const char *s)
{
    if (!s[strcspn(s, "\",\r\n")]) {
        fputs(s, out);
        return;
    }
    fputc('"', out);
    for (; *s; s++) {
        if (*s == '"') fputc('"', out);
        fputc(*s, out);
    }
    fputc('"', out);
}

void dlab_grid_csv(const dlab_grid *g, FILE *out)
{
    for (size_t c = 0; c < g->n_columns; c++) {
        if (c) fputc(',', out);
        put_field(out, g->name(g->ctx, c));
    }
    fputc('\n', out);
    for (size_t r = 0; r < g->n_rows; r++) {
        for (size_t c = 0; c < g->n_columns; c++) {
            char number[40] = "";
            if (c) fputc(',', out);
            if (!g->numeric(g->ctx, c)) {
                put_field(out, g->text(g->ctx, r, c));
                continue;
            }
            double v = g->value(g->ctx, r, c);
            if (isfinite(v)) dlab_number_text(v, number, sizeof number);
            fputs(number, out);
        }
        fputc('\n', out);
    }
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *json_cell(const dlab_grid *g, size_t r, size_t c)
{
    if (!g->numeric(g->ctx, c)) {
        json_t *s = json_string(g->text(g->ctx, r, c));
        return s ? s : json_string("?"); /* not UTF-8 */
    }
    double v = g->value(g->ctx, r, c);
    bool whole = isfinite(v) && v == floor(v) && fabs(v) < 9007199254740992.0;
    return whole ? json_integer((json_int_t)v) : dlab_json_number(v);
}

json_t *dlab_grid_json(const dlab_grid *g)
{
    json_t *rows = json_array();
    for (size_t r = 0; rows && r < g->n_rows; r++) {
        json_t *row = json_object();
        int bad = !row;
        for (size_t c = 0; !bad && c < g->n_columns; c++)
            bad = json_object_set_new_nocheck(row, g->name(g->ctx, c), json_cell(g, r, c));
        if (bad || json_array_append_new(rows, row)) {
            if (bad) json_decref(row);
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

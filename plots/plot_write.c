/* The .dat and the generated head of the .gp. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plots/plot_parts.h"

void dlab_plot_quote(const char *text, FILE *out)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', out);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    }
    fputc('\'', out);
}

void dlab_plot_comment(const char *text, FILE *out)
{
    for (; *text; text++) fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
}

/* ---- data ---------------------------------------------------------------------------------------------------------- */

static void gap(const dlab_plot_point *p, FILE *out)
{
    fprintf(out, "# %g is missing: ", p->x);
    dlab_plot_comment(dlab_run_status_text(p->point->status), out);
    fputs(p->point->reason[0] ? ": " : "", out);
    dlab_plot_comment(p->point->reason, out);
    fputc('\n', out);
}

/* Values that a logarithmic axis cannot show. */
static bool hides(const dlab_plot_data *d, double x, double y)
{
    return isfinite(y) && ((d->spec->logy && !(y > 0)) || (d->spec->logx && !(x > 0)));
}

static size_t count_hidden(const dlab_plot_data *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_series; i++) {
        for (size_t k = 0; k < d->series[i].n_points; k++) {
            const dlab_plot_point *p = &d->series[i].points[k];
            n += (size_t)hides(d, p->x, p->y) + (size_t)hides(d, p->x, p->ref);
        }
    }
    return n;
}

static void write_hidden(const dlab_plot_data *d, FILE *out)
{
    const size_t n = count_hidden(d);
    if (n == 1)
        fputs("# 1 value of 0 is left out of the picture: logarithmic axis\n", out);
    else if (n > 1)
        fprintf(out, "# %zu values of 0 are left out of the picture: logarithmic axis\n", n);
}

/* Where the value is missing only an empty line breaks the curve; a reference goes on across it. */
static void write_line_point(const dlab_plot_data *d, const dlab_plot_point *p, FILE *out)
{
    if (isfinite(p->y)) {
        fprintf(out, "%.10g %.10g %.10g %.10g %lld", p->x, p->y, p->lo, p->hi, (long long)p->n);
    } else {
        gap(p, out);
        if (isfinite(p->ref)) fprintf(out, "%.10g NaN NaN NaN 0", p->x);
    }
    if (isfinite(p->ref))
        fprintf(out, " %.10g", p->ref);
    else if (isfinite(p->y) && d->spec->reference)
        fputs(" NaN", out);
    fputc('\n', out);
}

static void write_lines(const dlab_plot_data *d, FILE *out)
{
    fprintf(out, "# x = %s; median, least, largest in %s; runs", d->spec->x, d->unit);
    if (d->spec->reference) fprintf(out, "; %s in %s", d->spec->reference->name, d->unit);
    fputc('\n', out);
    write_hidden(d, out);
    for (size_t i = 0; i < d->n_series; i++) {
        const dlab_plot_series *s = &d->series[i];
        fprintf(out, "%s# ", i ? "\n\n" : "");
        dlab_plot_comment(s->label, out);
        fputc('\n', out);
        bool any = false;
        for (size_t k = 0; k < s->n_points; k++) {
            write_line_point(d, &s->points[k], out);
            any = any || isfinite(s->points[k].y) || isfinite(s->points[k].ref);
        }
        if (!any)
            fputs(d->spec->reference ? "NaN NaN NaN NaN 0 NaN\n" : "NaN NaN NaN NaN 0\n",
                  out); /* keeps the numbers of the blocks */
    }
}

static const dlab_plot_point *bar_at(const dlab_plot_series *s, size_t category)
{
    for (size_t k = 0; k < s->n_points; k++)
        if ((size_t)s->points[k].x == category) return &s->points[k];
    return NULL;
}

static void write_bars(const dlab_plot_data *d, FILE *out)
{
    fprintf(out, "# category; then for each series median, least, largest in %s:\n", d->unit);
    write_hidden(d, out);
    for (size_t i = 0; i < d->n_series; i++) {
        fprintf(out, "#   columns %zu to %zu: ", 2 + 3 * i, 4 + 3 * i);
        dlab_plot_comment(d->series[i].label, out);
        fputc('\n', out);
    }
    for (size_t c = 0; c < d->n_categories; c++) {
        fputs("# ", out);
        dlab_plot_comment(d->categories[c], out);
        fprintf(out, "\n%zu", c);
        for (size_t i = 0; i < d->n_series; i++) {
            const dlab_plot_point *p = bar_at(&d->series[i], c);
            if (p && isfinite(p->y))
                fprintf(out, " %.10g %.10g %.10g", p->y, p->lo, p->hi);
            else
                fputs(" NaN NaN NaN", out);
        }
        fputc('\n', out);
    }
}

void dlab_plot_write_data(const dlab_plot_data *d, FILE *out)
{
    if (d->bars)
        write_bars(d, out);
    else
        write_lines(d, out);
}

/* ---- the head of the script ---------------------------------------------------------------------------------------- */

void dlab_plot_set(const char *name, const char *text, FILE *out)
{
    fprintf(out, "%s = ", name);
    dlab_plot_quote(text, out);
    fputc('\n', out);
}

static const char *meta(const dlab_record *r, const char *key) { return dlab_settings_get(&r->meta, key); }

static void write_caption(const dlab_record *r, FILE *out)
{
    char line[512] = "decodelab";
    const char *version = meta(r, "dlab_version"), *git = meta(r, "git_revision"), *dirty = meta(r, "git_dirty");
    const char *cpu = meta(r, "cpu_model"), *model = meta(r, "model"), *slash = model ? strrchr(model, '/') : NULL;
    size_t n = strlen(line);
    if (version) n += (size_t)snprintf(line + n, sizeof line - n, " %.20s", version);
    if (git) n += (size_t)snprintf(line + n, sizeof line - n, ", git %.10s", git);
    if (git && dirty && (strcmp(dirty, "true") == 0 || strcmp(dirty, "1") == 0))
        n += (size_t)snprintf(line + n, sizeof line - n, " with changes");
    if (model) n += (size_t)snprintf(line + n, sizeof line - n, ", %.80s", slash && slash[1] ? slash + 1 : model);
    if (cpu) snprintf(line + n, sizeof line - n, ", %.80s", cpu);
    dlab_plot_set("CAPTION", line, out);
}

void dlab_plot_write_head(const dlab_record *r, const dlab_plot_spec *spec, FILE *out)
{
    char data[80];
    fputs(
        "# Made by decodelab from a record. Draw it again: gnuplot on this file, in this folder.\nset encoding utf8\n",
        out);
    snprintf(data, sizeof data, "%s.dat", spec->name);
    dlab_plot_set("NAME", spec->name, out);
    dlab_plot_set("DATA", data, out);
    dlab_plot_set("TITLE", spec->title, out);
    write_caption(r, out);
}

typedef struct {
    double lo, hi; /* of what will be drawn, spread included */
    double x_lo, x_hi;
    size_t n;
} extent;

static void take(extent *e, const dlab_plot_data *d, double x, double y)
{
    if (!isfinite(y) || hides(d, x, y)) return;
    e->lo = fmin(e->lo, y);
    e->hi = fmax(e->hi, y);
    e->x_lo = fmin(e->x_lo, x);
    e->x_hi = fmax(e->x_hi, x);
    e->n++;
}

static extent measure(const dlab_plot_data *d)
{
    extent e = {INFINITY, -INFINITY, INFINITY, -INFINITY, 0};
    for (size_t i = 0; i < d->n_series; i++) {
        for (size_t k = 0; k < d->series[i].n_points; k++) {
            const dlab_plot_point *p = &d->series[i].points[k];
            take(&e, d, p->x, p->y);
            take(&e, d, p->x, p->lo);
            take(&e, d, p->x, p->hi);
            take(&e, d, p->x, p->ref);
        }
    }
    if (e.n == 0) e = (extent){1, 10, 1, 10, 0};
    return e;
}

/* On a logarithmic axis gnuplot labels whole decades only, which may be none at all: 1, 2, 5 for short spans. */
static void write_log_ticks(double lo, double hi, FILE *out)
{
    const double decades = log10(hi / lo);
    const char *digits = decades > 3 ? "1" : decades > 0.9 ? "125" : "1234568";
    bool first = true;
    fputs("set ytics (", out);
    for (int e = (int)floor(log10(lo)); e <= (int)ceil(log10(hi)); e++) {
        for (const char *d = digits; *d; d++) {
            double v = (*d - '0') * pow(10, e);
            if (v < lo * 0.999 || v > hi * 1.001) continue;
            fprintf(out, "%s'%g' %.10g", first ? "" : ", ", v, v);
            first = false;
        }
    }
    fputs(")\n", out);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The values that were measured are the ticks, as long as they have room. */
static void write_x_ticks(const dlab_plot_data *d, const extent *e, FILE *out)
{
    double x[256];
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < d->n_series; i++)
        for (size_t k = 0; k < d->series[i].n_points && n < 256; k++)
            if (isfinite(d->series[i].points[k].x)) x[n++] = d->series[i].points[k].x;
    if (n == 0) return;
    qsort(x, n, sizeof *x, compare_doubles);
    double span = d->spec->logx ? log(e->x_hi / e->x_lo) : e->x_hi - e->x_lo, last = 0;
    fputs("set xtics (", out);
    for (size_t i = 0; i < n; i++) {
        if (d->spec->logx && !(x[i] > 0)) continue;
        double at = d->spec->logx ? log(x[i]) : x[i];
        if (kept > 0 && !(at - last > span * 0.055)) continue;
        fprintf(out, "%s'%g' %.10g", kept ? ", " : "", x[i], x[i]);
        last = at;
        kept++;
    }
    fputs(")\n", out);
}

static void write_ranges(const dlab_plot_data *d, FILE *out)
{
    const extent e = measure(d);
    double lo = e.lo, hi = e.hi;
    if (d->spec->logy) {
        lo /= 1.3;
        hi *= 1.3;
        if (d->bars) lo = pow(10, floor(log10(e.lo / 1.02))); /* a bar begins somewhere round */
        write_log_ticks(lo, hi, out);
    } else {
        hi = hi > 0 ? hi * 1.08 : 1;
        lo = lo >= 0 ? 0 : lo * 1.08;
    }
    fprintf(out, "YMIN = %.10g\nYMAX = %.10g\n", lo, hi);
    if (d->bars) return;
    double pad = d->spec->logx ? exp(0.04 * log(e.x_hi / e.x_lo) + 0.02) : (e.x_hi - e.x_lo) * 0.04;
    if (d->spec->logx)
        fprintf(out, "XMIN = %.10g\nXMAX = %.10g\n", e.x_lo / pad, e.x_hi * pad);
    else
        fprintf(out, "XMIN = %.10g\nXMAX = %.10g\n", e.x_lo - (pad > 0 ? pad : 0.5), e.x_hi + (pad > 0 ? pad : 0.5));
    write_x_ticks(d, &e, out);
}

static void write_series(const dlab_plot_data *d, FILE *out)
{
    fprintf(out, "N = %zu\narray LABEL[%zu]\narray COLOUR[%zu]\narray MARK[%zu]\n", d->n_series,
            d->n_series ? d->n_series : 1, d->n_series ? d->n_series : 1, d->n_series ? d->n_series : 1);
    for (size_t i = 0; i < d->n_series; i++) {
        fprintf(out, "COLOUR[%zu] = %d; MARK[%zu] = %d; LABEL[%zu] = ", i + 1, d->series[i].colour, i + 1,
                d->series[i].mark, i + 1);
        dlab_plot_quote(d->series[i].label[0] ? d->series[i].label : d->spec->y->name, out);
        fputc('\n', out);
    }
}

/* Categories as ticks; where a bar is missing, its place says why. */
static void write_categories(const dlab_plot_data *d, FILE *out)
{
    size_t widest = 0;
    fprintf(out, "CATEGORIES = %zu\nset xtics (", d->n_categories);
    for (size_t c = 0; c < d->n_categories; c++) {
        if (strlen(d->categories[c]) > widest) widest = strlen(d->categories[c]);
        if (c) fputs(", ", out);
        dlab_plot_quote(d->categories[c], out);
        fprintf(out, " %zu", c);
    }
    fprintf(out, ")\nSLANTED = %d\n", widest * d->n_categories > 100);
    for (size_t i = 0; i < d->n_series; i++) {
        for (size_t k = 0; k < d->series[i].n_points; k++) {
            const dlab_plot_point *p = &d->series[i].points[k];
            if (isfinite(p->y) && !hides(d, p->x, p->y)) continue;
            const char *why = isfinite(p->y)                    ? "0"
                              : p->point->status == DLAB_RUN_OK ? "missing"
                                                                : dlab_run_status_text(p->point->status);
            double at = p->x + 0.8 / (double)d->n_series * ((double)i - ((double)d->n_series - 1) / 2);
            fputs("set label ", out);
            dlab_plot_quote(why, out);
            fprintf(out, " at first %.6g, graph 0.02 rotate by 90 left textcolor rgb '#8a8a8a' font 'sans-serif,11'\n",
                    at);
        }
    }
}

static void write_caption2(const dlab_plot_data *d, FILE *out)
{
    char line[512];
    size_t n, missing = 0, truncated = 0;
    const size_t hidden = count_hidden(d);
    for (size_t i = 0; i < d->n_series; i++) {
        for (size_t k = 0; k < d->series[i].n_points; k++) {
            missing += !isfinite(d->series[i].points[k].y);
            truncated += d->series[i].points[k].point->status == DLAB_RUN_TRUNCATED;
        }
    }
    if (d->most_runs > 1)
        n = (size_t)snprintf(line, sizeof line, "median of %zu runs, whiskers from the least to the largest",
                             d->most_runs);
    else
        n = (size_t)snprintf(line, sizeof line, "%s", d->most_runs ? "one run a point" : "nothing measured");
    if (truncated) n += (size_t)snprintf(line + n, sizeof line - n, "; %zu cut at the time limit", truncated);
    if (missing) n += (size_t)snprintf(line + n, sizeof line - n, "; %zu missing, named in the .dat", missing);
    if (hidden)
        snprintf(line + n, sizeof line - n, "; %zu value%s of 0 left out: logarithmic axis", hidden,
                 hidden == 1 ? "" : "s");
    dlab_plot_set("CAPTION2", line, out);
}

void dlab_plot_write_script(const dlab_plot_data *d, const char *template_text, FILE *out)
{
    const dlab_plot_spec *s = d->spec;
    char label[128];
    dlab_plot_write_head(d->record, s, out);
    snprintf(label, sizeof label, strcmp(d->unit, "1") == 0 ? "%s" : "%s (%s)", s->y->name, d->unit);
    dlab_plot_set("YLABEL", label, out);
    dlab_plot_set("XLABEL", d->bars ? d->category_title : s->x, out);
    dlab_plot_set("KEYTITLE", d->series_title, out);
    dlab_plot_set("REFERENCE", s->reference ? s->reference->name : "", out);
    fprintf(out, "LOGX = %d\nLOGY = %d\nSPREAD = %d\n", s->logx, s->logy, d->most_runs > 1);
    write_caption2(d, out);
    write_series(d, out);
    write_ranges(d, out);
    if (d->bars) write_categories(d, out);
    fputs("\n# ---- the template ----\n", out);
    fputs(template_text, out);
}

/* Memory of one run over its time: which point, which run, what each step held. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "plots/plot_parts.h"
#include "results/report_parts.h"

/* ---- the point that `at` names ------------------------------------------------------------------------------------- */

typedef struct {
    const dlab_record *record;
    const char *plot;
    dlab_setting items[DLAB_PLOT_AT_MAX]; /* borrowed from the spec */
    dlab_settings at;
    char text[512];
} chooser;

static void chooser_init(chooser *c, const dlab_record *r, const dlab_plot_spec *spec)
{
    *c = (chooser){.record = r, .plot = spec->name};
    for (size_t i = 0; i < spec->n_at; i++)
        c->items[i] = (dlab_setting){(char *)spec->at[i].key, (char *)spec->at[i].value};
    c->at = (dlab_settings){c->items, spec->n_at};
    dlab_settings_text(&c->at, c->text, sizeof c->text);
}

static void add_word(char *buf, size_t size, const char *between, const char *word)
{
    size_t n = strlen(buf);
    if (n + strlen(between) + strlen(word) + 1 < size) snprintf(buf + n, size - n, "%s%s", n ? between : "", word);
}

/* "8, 16, 32": what the points that match `at` have for the key, each value once; returns how many that are. */
static size_t values_of(const chooser *c, const dlab_settings *at, const char *key, char *buf, size_t size)
{
    const char *seen[64];
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < c->record->n_points; i++) {
        const dlab_point_result *p = &c->record->points[i];
        const char *v = dlab_point_get(p, key);
        if (!v || !dlab_point_matches(p, at)) continue;
        size_t k = 0;
        while (k < n && !dlab_value_same(seen[k], v)) k++;
        if (k < n || n == sizeof seen / sizeof *seen) continue;
        seen[n++] = v;
        add_word(buf, size, ", ", v);
    }
    return n;
}

static dlab_status fail_unknown(const chooser *c, const char *key, dlab_error *err)
{
    const char *words[128] = {NULL};
    const dlab_point_result *p = c->record->points;
    size_t n = 0;
    for (size_t i = 0; i < p->axes.n && n < 127; i++) words[n++] = p->axes.items[i].key;
    for (size_t i = 0; i < p->effective.n && n < 127; i++) words[n++] = p->effective.items[i].key;
    const char *near = dlab_nearest(key, words);
    char axes[256];
    dlab_settings_text(&p->axes, axes, sizeof axes);
    if (near)
        return DLAB_FAIL(err, DLAB_EUSAGE, "plot %s: at: no point has an axis \"%s\"; did you mean \"%s\"?", c->plot,
                         key, near);
    return DLAB_FAIL(err, DLAB_EUSAGE, "plot %s: at: no point has an axis \"%s\"; the first point is %s", c->plot, key,
                     axes);
}

static dlab_status fail_none(const chooser *c, dlab_error *err)
{
    const dlab_settings all = {0};
    char values[256];
    for (size_t i = 0; i < c->at.n; i++) {
        const dlab_settings one = {&c->at.items[i], 1};
        if (values_of(c, &one, c->at.items[i].key, values, sizeof values) > 0) continue;
        if (values_of(c, &all, c->at.items[i].key, values, sizeof values) == 0)
            return fail_unknown(c, c->at.items[i].key, err);
        return DLAB_FAIL(err, DLAB_EUSAGE, "plot %s: at: no point has %s=%s; the record has %s", c->plot,
                         c->at.items[i].key, c->at.items[i].value, values);
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "plot %s: at: no point has %s together", c->plot, c->text);
}

static dlab_status fail_several(const chooser *c, const dlab_point_result *first, size_t n, dlab_error *err)
{
    char values[160], more[320] = "", word[256];
    for (size_t i = 0; i < first->axes.n; i++) {
        const char *key = first->axes.items[i].key;
        if (values_of(c, &c->at, key, values, sizeof values) < 2) continue;
        snprintf(word, sizeof word, "%s (%s)", key, values);
        add_word(more, sizeof more, " and ", word);
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "plot %s: at: %zu points match %s, expected one: name %s too", c->plot, n,
                     c->text, more);
}

static dlab_status choose_point(const dlab_record *r, const dlab_plot_spec *spec, const dlab_point_result **out,
                                dlab_error *err)
{
    chooser c;
    size_t n = 0;
    *out = r->points;
    if (r->n_points == 0) return DLAB_FAIL(err, DLAB_EUSAGE, "plot %s: the record has no points", spec->name);
    chooser_init(&c, r, spec);
    for (size_t i = 0; i < r->n_points; i++) {
        if (!dlab_point_matches(&r->points[i], &c.at)) continue;
        if (n++ == 0) *out = &r->points[i];
    }
    if (n == 1) return DLAB_OK;
    return n == 0 ? fail_none(&c, err) : fail_several(&c, *out, n, err);
}

/* ---- its rows ------------------------------------------------------------------------------------------------------ */

/* Unknown is −1 in a record: an area that nobody knows is not drawn. */
static int64_t known(int64_t bytes) { return bytes > 0 ? bytes : 0; }

static dlab_stack_row row_of(const dlab_ev_step *e, const dlab_ev_memory *m)
{
    dlab_stack_row row = {.t = e->t_end};
    if (m) {
        row.bytes[DLAB_STACK_WEIGHTS] = known(m->weights);
        row.bytes[DLAB_STACK_ACTIVATIONS] = known(m->activations) + known(m->scratch);
    }
    row.bytes[DLAB_STACK_KV_USED] = known(e->kv_used);
    row.bytes[DLAB_STACK_KV_EMPTY] = known(e->kv_reserved - known(e->kv_used));
    row.bytes[DLAB_STACK_KV_CACHED] = known(e->kv_cached);
    row.bytes[DLAB_STACK_KV_FREE] = known(e->kv_free);
    return row;
}

static void fill(dlab_plot_stack *s)
{
    const dlab_run *run = s->run;
    size_t sample = 0;
    for (size_t i = 0; i < run->n_steps; i++) {
        const dlab_ev_step *e = &run->steps[i];
        if (!isfinite(e->t_end)) continue;
        while (sample + 1 < run->n_memory && run->memory[sample + 1].t <= e->t_end) sample++;
        s->rows[s->n_rows++] = row_of(e, run->n_memory ? &run->memory[sample] : NULL);
    }
}

/* The first step's row stands at its begin too, and the last one is held a little beyond the end: these two steps would
 * have no width otherwise. */
static void add_ends(dlab_plot_stack *s)
{
    if (s->n_rows == 0) return;
    memmove(s->rows + 1, s->rows, s->n_rows * sizeof *s->rows);
    if (s->run->steps[0].t_begin < s->rows[0].t) s->rows[0].t = s->run->steps[0].t_begin;
    dlab_stack_row last = s->rows[s->n_rows];
    last.t = 1.01 * fmax(last.t, s->run->t_end);
    s->rows[s->n_rows + 1] = last;
    s->n_rows += 2;
}

static int64_t sum(const dlab_stack_row *row, int first, int last)
{
    int64_t n = 0;
    for (int b = first; b <= last; b++) n += row->bytes[b];
    return n;
}

/* Buckets of rows leave those with the largest total, KV used, KV reserved and KV cached: every row that stays is one
 * that was there, and no peak is lost. */
enum { BUCKETS = 250, PEAKS = 4, ROWS_MAX = BUCKETS * PEAKS };

static void find_peaks(const dlab_stack_row *rows, size_t lo, size_t hi, size_t at[PEAKS])
{
    static const int bands[PEAKS][2] = {{0, DLAB_STACK_N - 1},
                                        {DLAB_STACK_KV_USED, DLAB_STACK_KV_USED},
                                        {DLAB_STACK_KV_USED, DLAB_STACK_KV_EMPTY},
                                        {DLAB_STACK_KV_CACHED, DLAB_STACK_KV_CACHED}};
    for (int k = 0; k < PEAKS; k++) {
        at[k] = lo;
        for (size_t i = lo + 1; i < hi; i++)
            if (sum(&rows[i], bands[k][0], bands[k][1]) > sum(&rows[at[k]], bands[k][0], bands[k][1])) at[k] = i;
    }
}

static void thin_out(dlab_plot_stack *s)
{
    const size_t n = s->n_rows;
    size_t kept = 0, at[PEAKS];
    if (n <= ROWS_MAX) return;
    for (size_t b = 0; b < BUCKETS; b++) {
        const size_t lo = b * n / BUCKETS, hi = (b + 1) * n / BUCKETS;
        find_peaks(s->rows, lo, hi, at);
        for (size_t i = lo; i < hi; i++) {
            bool stays = i == 0 || i == n - 1;
            for (int k = 0; k < PEAKS; k++) stays = stays || at[k] == i;
            if (stays) s->rows[kept++] = s->rows[i];
        }
    }
    s->n_rows = kept;
}

dlab_status dlab_plot_stack_collect(const dlab_record *r, const dlab_plot_spec *spec, dlab_plot_stack *out,
                                    dlab_error *err)
{
    *out = (dlab_plot_stack){.record = r, .spec = spec};
    DLAB_TRY(choose_point(r, spec, &out->point, err));
    for (size_t i = 0; i < out->point->n_runs && !out->run; i++)
        if (dlab_run_counts(out->point->runs[i])) out->run = out->point->runs[i];
    if (!out->run) return DLAB_OK;
    if (out->run->dropped)
        return DLAB_FAIL(err, DLAB_EINTERNAL, "plot %s: the run's events were dropped, they are in its part only",
                         spec->name);
    out->n_steps = out->run->n_steps;
    out->rows = malloc((out->n_steps + 2) * sizeof *out->rows);
    if (!out->rows) return DLAB_FAIL(err, DLAB_EOOM, "plot %s: no memory for %zu steps", spec->name, out->n_steps);
    fill(out);
    thin_out(out);
    out->n_drawn = out->n_rows;
    add_ends(out);
    return DLAB_OK;
}

void dlab_plot_stack_free(dlab_plot_stack *s)
{
    free(s->rows);
    *s = (dlab_plot_stack){0};
}

/* ---- the files ----------------------------------------------------------------------------------------------------- */

#define MIB (1024.0 * 1024)
static const char *const names[DLAB_STACK_N] = {
#define DLAB_STACK_TEXT(name, text) text,
    DLAB_STACK_LIST(DLAB_STACK_TEXT)
#undef DLAB_STACK_TEXT
};

static int first_band(const dlab_plot_stack *s) { return s->spec->only_kv ? DLAB_STACK_KV_USED : 0; }

static bool in_seconds(const dlab_plot_stack *s) { return s->n_rows > 0 && s->rows[s->n_rows - 1].t >= 2e9; }

static int64_t largest(const dlab_plot_stack *s, int first, int last)
{
    int64_t most = 0;
    for (size_t i = 0; i < s->n_rows; i++)
        if (sum(&s->rows[i], first, last) > most) most = sum(&s->rows[i], first, last);
    return most;
}

static void write_row(const dlab_plot_stack *s, double t, const int64_t bytes[DLAB_STACK_N], FILE *out)
{
    fprintf(out, "%.10g", t / (in_seconds(s) ? 1e9 : 1e6));
    for (int b = first_band(s); b < DLAB_STACK_N; b++) fprintf(out, " %.10g", (double)bytes[b] / MIB);
    fputc('\n', out);
}

/* The corners of the areas: where a row differs from the one before, that one once more at the new time. */
static void write_rows(const dlab_plot_stack *s, FILE *out)
{
    for (size_t i = 0; i < s->n_rows; i++) {
        const dlab_stack_row *row = &s->rows[i];
        if (i > 0 && memcmp(row->bytes, row[-1].bytes, sizeof row->bytes) != 0)
            write_row(s, row->t, row[-1].bytes, out);
        write_row(s, row->t, row->bytes, out);
    }
}

static void write_nothing(const dlab_plot_stack *s, FILE *out)
{
    if (s->run) {
        fputs("# the run has no steps\n", out);
    } else {
        fprintf(out, "# nothing measured: %s%s", dlab_run_status_text(s->point->status),
                s->point->reason[0] ? ": " : "");
        dlab_plot_comment(s->point->reason, out);
        fputc('\n', out);
    }
    fputs("NaN NaN NaN NaN NaN NaN NaN\n", out);
}

void dlab_plot_stack_write_data(const dlab_plot_stack *s, FILE *out)
{
    fputs("# ", out);
    dlab_plot_comment(s->point->label, out);
    if (s->run) fprintf(out, ", run %d of %zu", s->run->repeat + 1, s->point->n_planned);
    fprintf(out, "\n# time in %s, then in MiB, bottom to top: ", in_seconds(s) ? "s" : "ms");
    for (int b = first_band(s); b < DLAB_STACK_N; b++) fprintf(out, "%s%s", b > first_band(s) ? "; " : "", names[b]);
    fputs(
        "\n# figures hold from a step's end until the next one's; the first step's from its begin, the last one's on\n",
        out);
    if (s->n_drawn < s->n_steps)
        fprintf(out, "# %zu of %zu steps, the largest values among them\n", s->n_drawn, s->n_steps);
    if (s->run && s->run->memory_limit > 0) fprintf(out, "# memory limit: %.10g\n", (double)s->run->memory_limit / MIB);
    if (s->n_rows)
        write_rows(s, out);
    else
        write_nothing(s, out);
}

static void write_bands(const dlab_plot_stack *s, FILE *out)
{
    const int first = first_band(s);
    fprintf(out, "N = %d\nFIRST = %d\narray LABEL[N]\n", DLAB_STACK_N - first, first);
    for (int b = first; b < DLAB_STACK_N; b++) {
        char label[64];
        snprintf(label, sizeof label, "%s%s", names[b], s->n_rows && largest(s, b, b) == 0 ? ": none" : "");
        fprintf(out, "LABEL[%d] = ", b - first + 1);
        dlab_plot_quote(label, out);
        fputc('\n', out);
    }
}

static void write_range(const dlab_plot_stack *s, FILE *out)
{
    double top = (double)largest(s, first_band(s), DLAB_STACK_N - 1) / MIB, limit = 0;
    if (s->run && s->run->memory_limit > 0 && !s->spec->only_kv) limit = (double)s->run->memory_limit / MIB;
    if (limit > 1.5 * top) limit = 0; /* far away it would press the areas down */
    const double end = s->n_rows ? s->rows[s->n_rows - 1].t / (in_seconds(s) ? 1e9 : 1e6) : 1;
    fprintf(out, "LIMIT = %.10g\nXMAX = %.10g\nYMAX = %.10g\n", limit, end > 0 ? end : 1,
            top > 0 ? fmax(top, limit) * 1.08 : 1);
}

static void write_caption2(const dlab_plot_stack *s, FILE *out)
{
    char line[256] = "";
    if (s->run) {
        size_t n = (size_t)snprintf(line, sizeof line, "run %d of %zu, %zu steps", s->run->repeat + 1,
                                    s->point->n_planned, s->n_steps);
        if (s->n_drawn < s->n_steps)
            n += (size_t)snprintf(line + n, sizeof line - n, ", of which %zu are drawn, the largest values among them",
                                  s->n_drawn);
        if (s->run->status == DLAB_RUN_TRUNCATED) snprintf(line + n, sizeof line - n, "; cut at the time limit");
    }
    dlab_plot_set("CAPTION2", line, out);
}

void dlab_plot_stack_write_script(const dlab_plot_stack *s, const char *template_text, FILE *out)
{
    char empty[80] = "";
    dlab_plot_write_head(s->record, s->spec, out);
    dlab_plot_set("POINT", s->point->label, out);
    dlab_plot_set("XLABEL", in_seconds(s) ? "time since the run's start (s)" : "time since the run's start (ms)", out);
    dlab_plot_set("YLABEL", s->spec->only_kv ? "memory of the KV store (MiB)" : "memory (MiB)", out);
    write_caption2(s, out);
    if (!s->run)
        snprintf(empty, sizeof empty, "nothing measured: %s (see the .dat)", dlab_run_status_text(s->point->status));
    else if (s->n_rows == 0)
        snprintf(empty, sizeof empty, "the run has no steps");
    dlab_plot_set("EMPTY", empty, out);
    write_bands(s, out);
    write_range(s, out);
    fputs("\n# ---- the template ----\n", out);
    fputs(template_text, out);
}

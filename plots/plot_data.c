/* From points to series. Every swept axis is either on the x axis, in the series or in the category: figures of different
 * configurations never fall into one place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plots/plot_parts.h"
#include "results/report_parts.h"
#include "results/units.h"

#define AXES_MAX 32

typedef struct {
    const char *keys[AXES_MAX];
    size_t n;
} key_list;

static bool list_has(const key_list *l, const char *key)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->keys[i], key) == 0) return true;
    return false;
}

static void list_add(key_list *l, const char *key)
{
    if (l->n < AXES_MAX && !list_has(l, key)) l->keys[l->n++] = key;
}

static key_list swept(const dlab_record *r)
{
    key_list l = {.n = 0};
    for (size_t i = 0; i < r->n_points; i++)
        for (size_t k = 0; k < r->points[i].axes.n; k++) list_add(&l, r->points[i].axes.items[k].key);
    return l;
}

static void append(char *buf, size_t size, const char *word)
{
    size_t n = strlen(buf);
    snprintf(buf + n, size - n, "%s%s", n ? " / " : "", word);
}

static void title_of(const key_list *l, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 0; i < l->n; i++) append(buf, size, l->keys[i]);
}

static void values_of(const dlab_point_result *p, const key_list *l, size_t from, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = from; i < l->n; i++) {
        const char *v = dlab_point_get(p, l->keys[i]);
        append(buf, size, v ? v : "–");
    }
}

/* ---- which series, which category ---------------------------------------------------------------------------------- */

/* The number of a text among those seen so far; adds it. */
static int number_of(char (*seen)[160], size_t *n, const char *text)
{
    size_t i = 0;
    while (i < *n && strcmp(seen[i], text) != 0) i++;
    if (i == *n) snprintf(seen[(*n)++], 160, "%s", text);
    return (int)i;
}

typedef struct {
    key_list series, category;
    char (*first)[160], (*rest)[160]; /* values of the first series axis, of the others: colours and marks */
    size_t n_first, n_rest;
} sorter;

static dlab_plot_series *series_of(dlab_plot_data *d, sorter *s, const dlab_point_result *p)
{
    char label[160], first[160], rest[160];
    values_of(p, &s->series, 0, label, sizeof label);
    for (size_t i = 0; i < d->n_series; i++)
        if (strcmp(d->series[i].label, label) == 0) return &d->series[i];
    dlab_plot_series *made = &d->series[d->n_series++];
    snprintf(made->label, sizeof made->label, "%s", label);
    key_list one = s->series;
    if (one.n > 1) one.n = 1;
    values_of(p, &one, 0, first, sizeof first);
    values_of(p, &s->series, 1, rest, sizeof rest);
    made->colour = 1 + number_of(s->first, &s->n_first, first);
    made->mark = s->series.n > 1 ? 1 + number_of(s->rest, &s->n_rest, rest) : d->bars ? 1 : made->colour;
    return made;
}

static int compare_x(const void *a, const void *b)
{
    double x = ((const dlab_plot_point *)a)->x, y = ((const dlab_plot_point *)b)->x;
    return (x > y) - (x < y);
}

static bool place(dlab_plot_data *d, sorter *s, const dlab_point_result *p, double factor)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_plot_point q = {.point = p, .ref = NAN};
    if (!d->bars && !dlab_value_number(dlab_point_get(p, d->spec->x), &q.x)) return true; /* no place on the axis */
    if (d->bars) {
        char category[160];
        values_of(p, &s->category, 0, category, sizeof category);
        q.x = number_of(d->categories, &d->n_categories, category);
    }
    dlab_summary sum = dlab_point_summary(p, d->spec->y, &all);
    q.y = sum.median * factor;
    q.lo = sum.min * factor;
    q.hi = sum.max * factor;
    q.n = sum.n;
    if (d->spec->reference) q.ref = dlab_point_summary(p, d->spec->reference, &all).median * factor;
    if ((size_t)sum.n > d->most_runs) d->most_runs = (size_t)sum.n;
    dlab_plot_series *series = series_of(d, s, p);
    dlab_plot_point *points = realloc(series->points, (series->n_points + 1) * sizeof *points);
    if (!points) return false;
    series->points = points;
    series->points[series->n_points++] = q;
    return true;
}

/* ---- collecting ---------------------------------------------------------------------------------------------------- */

static double choose_unit(dlab_plot_data *d, double *medians)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    for (size_t i = 0; i < d->record->n_points; i++)
        medians[i] = dlab_point_summary(&d->record->points[i], d->spec->y, &all).median;
    dlab_scale scale = dlab_scale_for(d->spec->y->unit, medians, d->record->n_points);
    snprintf(d->unit, sizeof d->unit, "%s", scale.unit);
    return scale.factor;
}

static void share_axes(const dlab_plot_data *d, sorter *s)
{
    key_list axes = swept(d->record);
    for (size_t i = 0; i < d->spec->n_series; i++) list_add(&s->series, d->spec->series[i]);
    for (size_t i = 0; i < axes.n; i++) {
        if (list_has(&s->series, axes.keys[i])) continue;
        if (d->bars)
            list_add(&s->category, axes.keys[i]);
        else if (strcmp(axes.keys[i], d->spec->x) != 0)
            list_add(&s->series, axes.keys[i]);
    }
}

dlab_status dlab_plot_collect(const dlab_record *r, const dlab_plot_spec *spec, dlab_plot_data *out, dlab_error *err)
{
    const size_t n = r->n_points ? r->n_points : 1;
    *out = (dlab_plot_data){.record = r, .spec = spec, .bars = strcmp(spec->template_name, "bars") == 0};
    sorter s = {.first = calloc(n, 160), .rest = calloc(n, 160)};
    double *medians = malloc(n * sizeof *medians);
    out->series = calloc(n, sizeof *out->series);
    out->categories = calloc(n, 160);
    bool good = s.first && s.rest && medians && out->series && out->categories;
    if (good) {
        double factor = choose_unit(out, medians);
        share_axes(out, &s);
        title_of(&s.series, out->series_title, sizeof out->series_title);
        title_of(&s.category, out->category_title, sizeof out->category_title);
        for (size_t i = 0; good && i < r->n_points; i++) good = place(out, &s, &r->points[i], factor);
        for (size_t i = 0; i < out->n_series; i++)
            if (out->series[i].n_points > 1)
                qsort(out->series[i].points, out->series[i].n_points, sizeof(dlab_plot_point), compare_x);
    }
    free(s.first);
    free(s.rest);
    free(medians);
    if (good) return DLAB_OK;
    dlab_plot_data_free(out);
    return DLAB_FAIL(err, DLAB_EOOM, "plot %s: no memory for %zu points", spec->name, r->n_points);
}

void dlab_plot_data_free(dlab_plot_data *d)
{
    for (size_t i = 0; i < d->n_series; i++) free(d->series[i].points);
    free(d->series);
    free(d->categories);
    *d = (dlab_plot_data){0};
}

/* Points beside points: which belong together, what both measured, how one compares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/report_parts.h"

const char *dlab_point_get(const dlab_point_result *p, const char *key)
{
    const char *v = dlab_settings_get(&p->axes, key);
    return v ? v : dlab_settings_get(&p->effective, key);
}

bool dlab_value_number(const char *text, double *out)
{
    char *end;
    double v = text ? strtod(text, &end) : NAN;
    bool good = text && end != text && !*end && isfinite(v);
    *out = good ? v : NAN;
    return good;
}

bool dlab_value_same(const char *a, const char *b)
{
    double x, y;
    if (!a || !b) return a == b;
    return strcmp(a, b) == 0 || (dlab_value_number(a, &x) && dlab_value_number(b, &y) && x == y);
}

bool dlab_point_matches(const dlab_point_result *p, const dlab_settings *at)
{
    for (size_t i = 0; i < at->n; i++)
        if (!dlab_value_same(dlab_point_get(p, at->items[i].key), at->items[i].value)) return false;
    return true;
}

bool dlab_points_alike(const dlab_point_result *a, const dlab_point_result *b, const char *except,
                       const dlab_settings *but)
{
    for (size_t i = 0; i < a->axes.n; i++) {
        const char *key = a->axes.items[i].key;
        if ((except && strcmp(key, except) == 0) || (but && dlab_settings_get(but, key))) continue;
        if (!dlab_value_same(a->axes.items[i].value, dlab_settings_get(&b->axes, key))) return false;
    }
    return true;
}

const dlab_point_result *dlab_point_partner(const dlab_record *r, const dlab_point_result *a,
                                            const dlab_settings *change)
{
    for (size_t i = 0; i < r->n_points; i++)
        if (dlab_point_matches(&r->points[i], change) && dlab_points_alike(a, &r->points[i], NULL, change))
            return &r->points[i];
    return NULL;
}

dlab_summary dlab_point_summary(const dlab_point_result *p, const dlab_metric *m, const dlab_metric_window *w)
{
    dlab_summary s;
    dlab_metric_summary(m, (const dlab_run *const *)p->runs, p->n_runs, w, &s);
    return s;
}

/* The last index that all counted runs of the point reached; −1 when there is none. */
static int32_t last_index(const dlab_point_result *p)
{
    int32_t last = -1;
    bool any = false;
    for (size_t i = 0; i < p->n_runs; i++) {
        const dlab_run *r = p->runs[i];
        int32_t reached = -1;
        if (!r || (r->status != DLAB_RUN_OK && r->status != DLAB_RUN_TRUNCATED)) continue;
        for (size_t k = 0; k < r->n_tokens; k++)
            if (r->tokens[k].index > reached) reached = r->tokens[k].index;
        last = !any || reached < last ? reached : last;
        any = true;
    }
    return last;
}

dlab_metric_window dlab_points_window(const dlab_point_result *a, const dlab_point_result *b, bool *uneven)
{
    int32_t x = last_index(a), y = last_index(b);
    *uneven = x != y && x >= 0 && y >= 0;
    return (dlab_metric_window){0, x < y ? x : y};
}

double dlab_report_ratio(const dlab_metric *m, const dlab_point_result *a, const dlab_point_result *base,
                         dlab_metric_window *window)
{
    bool uneven;
    *window = m->windowed ? dlab_points_window(a, base, &uneven) : DLAB_WINDOW_ALL;
    double x = dlab_point_summary(a, m, window).median, y = dlab_point_summary(base, m, window).median;
    if (!(x > 0) || !(y > 0)) return NAN;
    return m->better == DLAB_HIGHER_IS_BETTER ? x / y : y / x;
}

double dlab_report_growth(const dlab_record *r, const dlab_metric *m, const char *over, const dlab_point_result *p)
{
    const dlab_point_result *before = NULL;
    double x, x_before = -INFINITY;
    if (!dlab_value_number(dlab_point_get(p, over), &x) || x <= 0) return NAN;
    for (size_t i = 0; i < r->n_points; i++) {
        double v;
        const dlab_point_result *q = &r->points[i];
        if (!dlab_value_number(dlab_point_get(q, over), &v) || v <= 0 || v >= x || v <= x_before) continue;
        if (!dlab_points_alike(p, q, over, NULL)) continue;
        before = q;
        x_before = v;
    }
    if (!before) return NAN;
    bool uneven;
    dlab_metric_window w = m->windowed ? dlab_points_window(p, before, &uneven) : DLAB_WINDOW_ALL;
    double y = dlab_point_summary(p, m, &w).median, y_before = dlab_point_summary(before, m, &w).median;
    return y > 0 && y_before > 0 ? log(y / y_before) / log(x / x_before) : NAN;
}

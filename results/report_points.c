/* Points beside points: which belong together, what both measured, how one compares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/events.h"
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

/* How far the runs that were looked at got in a request. */
typedef struct {
    int64_t request;
    int32_t last; /* index of the last token that all of them have; −1: one has none */
    bool same;    /* they all ended there */
} reach;

typedef struct {
    reach *items; /* by request */
    size_t n, n_runs;
} reaches;

/* One entry a request that has a token. */
static reaches reaches_of(const dlab_run *r)
{
    size_t n_tokens;
    dlab_ev_token *t = dlab_events_tokens(r, &DLAB_WINDOW_ALL, false, &n_tokens);
    reaches out = {.items = t ? malloc((n_tokens + 1) * sizeof *out.items) : NULL, .n_runs = 1};
    for (size_t i = 0; out.items && i < n_tokens; i++)
        if (i + 1 == n_tokens || t[i + 1].request != t[i].request)
            out.items[out.n++] = (reach){t[i].request, t[i].index, true};
    free(t);
    return out;
}

/* What both have; a request that only one knows stays, as one without tokens. Without memory nothing is common. */
static void join(reaches *into, const reaches *b)
{
    reach *joined = malloc((into->n + b->n + 1) * sizeof *joined);
    size_t n = 0, i = 0, k = 0;
    while (joined && (i < into->n || k < b->n)) {
        const reach *x = i < into->n ? &into->items[i] : NULL, *y = k < b->n ? &b->items[k] : NULL;
        if (x && y && x->request == y->request) {
            joined[n++] =
                (reach){x->request, x->last < y->last ? x->last : y->last, x->same && y->same && x->last == y->last};
            i++;
            k++;
        } else if (x && (!y || x->request < y->request)) {
            joined[n++] = (reach){x->request, -1, false};
            i++;
        } else if (y) {
            joined[n++] = (reach){y->request, -1, false};
            k++;
        }
    }
    free(into->items);
    into->items = joined;
    into->n = n;
    into->n_runs++;
}

/* Adds the point's counted runs; false when it has none. */
static bool join_point(reaches *all, const dlab_point_result *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n_runs; i++) {
        if (!p->runs[i] || !dlab_run_counts(p->runs[i])) continue;
        any = true;
        reaches one = reaches_of(p->runs[i]);
        if (all->n_runs == 0) {
            *all = one;
            continue;
        }
        join(all, &one);
        free(one.items);
    }
    return any;
}

/* The longest row of requests that all have two tokens or more, up to the smallest last index among them. One that ended
 * with its first token everywhere has no part in decoding and does not break the row. */
static dlab_metric_window common_window(const reaches *all)
{
    dlab_metric_window best = {0, 0, INT64_MIN, INT64_MAX}, w = best;
    size_t n = 0, most = 0;
    for (size_t i = 0; i < all->n; i++) {
        const reach *q = &all->items[i];
        if (q->last < 1) {
            if (q->last < 0 || !q->same) n = 0;
            continue;
        }
        w.last_request = q->request;
        if (n == 0) w.first_request = q->request;
        if (n == 0 || q->last < w.last) w.last = q->last;
        if (++n <= most) continue;
        most = n;
        best = w;
    }
    return best;
}

dlab_metric_window dlab_points_window(const dlab_point_result *a, const dlab_point_result *b, bool *uneven)
{
    reaches all = {0};
    dlab_metric_window w = DLAB_WINDOW_ALL;
    const bool both = join_point(&all, a) && join_point(&all, b);
    *uneven = false;
    for (size_t i = 0; both && i < all.n; i++) *uneven = *uneven || !all.items[i].same;
    if (*uneven) w = common_window(&all);
    free(all.items);
    return w;
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

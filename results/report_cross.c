/* Where the baseline and another choice cross along an axis, and why: from the work that their steps declared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/report_parts.h"

typedef struct {
    double x, ratio;
    const dlab_point_result *point, *base;
} sample;

static int compare_samples(const void *a, const void *b)
{
    const sample *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

/* What is followed along which axis. */
typedef struct {
    const dlab_record *record;
    const dlab_settings *baseline;
    const dlab_metric *metric;
    const char *over;
    bool memory; /* bytes: no work explains them, and only a crossing is worth a sentence */
} chase;

/* The points of p's group along `over` that have a ratio, by x. */
static size_t collect(const chase *c, const dlab_point_result *p, sample *out)
{
    const dlab_record *r = c->record;
    size_t n = 0;
    for (size_t i = 0; i < r->n_points; i++) {
        const dlab_point_result *q = &r->points[i];
        dlab_metric_window w;
        sample v = {.point = q, .base = dlab_point_partner(r, q, c->baseline)};
        if (!v.base || v.base == q || !dlab_points_alike(p, q, c->over, NULL)) continue;
        if (!dlab_value_number(dlab_point_get(q, c->over), &v.x) || v.x <= 0) continue;
        v.ratio = dlab_report_ratio(c->metric, q, v.base, &w);
        if (isfinite(v.ratio) && v.ratio > 0) out[n++] = v;
    }
    if (n > 1) qsort(out, n, sizeof *out, compare_samples);
    return n;
}

static double declared_ratio(const char *metric, const sample *v)
{
    bool uneven;
    const dlab_metric *m = dlab_metric_find(metric);
    dlab_metric_window w = dlab_points_window(v->point, v->base, &uneven);
    double mine = dlab_point_summary(v->point, m, &w).median, base = dlab_point_summary(v->base, m, &w).median;
    return mine > 0 && base > 0 ? base / mine : NAN;
}

static void times_text(double ratio, char *buf, size_t size)
{
    snprintf(buf, size, ratio < 10 ? "%.2f×" : ratio < 100 ? "%.1f×" : "%.0f×", ratio);
}

/* "; why: a step of BASE does 61.0× the flops and moves 1.10× the bytes at 64, 122× and 1.20× at 128"; "" when no work
 * was declared. */
static void why_text(const sample *a, const sample *b, const char *base, char *buf, size_t size)
{
    const double ratios[4] = {declared_ratio("flops_step", a), declared_ratio("bytes_step", a),
                              declared_ratio("flops_step", b), declared_ratio("bytes_step", b)};
    char t[4][24];
    buf[0] = '\0';
    for (int i = 0; i < 4; i++) {
        if (!isfinite(ratios[i])) return;
        times_text(ratios[i], t[i], sizeof t[i]);
    }
    snprintf(buf, size, "; why: a step of %s does %s the flops and moves %s the bytes at %g, %s and %s at %g", base,
             t[0], t[1], a->x, t[2], t[3], b->x);
}

typedef struct {
    char base[160], other[160], rest[160]; /* "kv.store=none", "kv.store=contiguous", " (batch.size=4)" */
} pair_names;

static pair_names name_pair(const chase *c, const dlab_point_result *p)
{
    pair_names n = {.base = ""};
    char rest[128];
    dlab_settings_text(c->baseline, n.base, sizeof n.base);
    for (size_t i = 0; i < c->baseline->n; i++) {
        size_t used = strlen(n.other);
        const char *key = c->baseline->items[i].key, *v = dlab_point_get(p, key);
        snprintf(n.other + used, sizeof n.other - used, "%s%s=%s", used ? " " : "", key, v ? v : "?");
    }
    dlab_axes_text(p, c->over, c->baseline, rest, sizeof rest);
    if (rest[0]) snprintf(n.rest, sizeof n.rest, " (%s)", rest);
    return n;
}

static void note_crossing(const chase *c, const pair_names *n, const sample *a, const sample *b, dlab_notes *out)
{
    double la = log(a->ratio), lb = log(b->ratio);
    double x = exp(log(a->x) + (log(b->x) - log(a->x)) * la / (la - lb));
    char why[480] = "";
    if (!c->memory) why_text(a, b, n->base, why, sizeof why);
    dlab_note(out, "%s: %s %s %s from %s ≈ %.3g on, interpolated between %g and %g%s%s", c->metric->name,
              la < lb ? n->other : n->base, c->memory ? "takes less than" : "is ahead of", la < lb ? n->base : n->other,
              c->over, x, a->x, b->x, n->rest, why);
}

static void note_no_crossing(const chase *c, const pair_names *n, const sample *v, size_t count, dlab_notes *out)
{
    const sample *a = &v[0], *b = &v[count - 1];
    const bool ahead = a->ratio >= 1;
    char from[24], to[24], why[480];
    times_text(ahead ? a->ratio : 1 / a->ratio, from, sizeof from);
    times_text(ahead ? b->ratio : 1 / b->ratio, to, sizeof to);
    why_text(a, b, n->base, why, sizeof why);
    dlab_note(out,
              "%s: %s and %s do not cross between %s = %g and %g%s; %s is ahead throughout, %s at %g and %s at %g%s",
              c->metric->name, n->other, n->base, c->over, a->x, b->x, n->rest, ahead ? n->other : n->base, from, a->x,
              to, b->x, why);
}

/* −1, 0, 1: which of the two is ahead. Bytes can be equal to the last one, and equal is no order. */
static int order_of(const chase *c, const sample *v)
{
    if (c->memory && v->ratio == 1) return 0;
    return v->ratio < 1 ? -1 : 1;
}

static void note_group(const chase *c, const dlab_point_result *p, sample *v, dlab_notes *out)
{
    size_t n = collect(c, p, v), crossings = 0, last = 0;
    if (n < 2) return;
    const pair_names names = name_pair(c, p);
    for (size_t i = 1; i < n; i++) {
        int before = order_of(c, &v[last]), now = order_of(c, &v[i]);
        if (now == 0) continue;
        if (before != 0 && before != now) {
            note_crossing(c, &names, &v[last], &v[i], out);
            crossings++;
        }
        last = i;
    }
    if (crossings == 0 && !c->memory) note_no_crossing(c, &names, v, n, out);
}

static void note_groups(const chase *c, sample *v, dlab_notes *out)
{
    const dlab_record *r = c->record;
    for (size_t i = 0; i < r->n_points; i++) {
        size_t first = 0;
        while (first < i && !dlab_points_alike(&r->points[i], &r->points[first], c->over, NULL)) first++;
        if (first == i && !dlab_point_matches(&r->points[i], c->baseline)) note_group(c, &r->points[i], v, out);
    }
}

/* How much memory something takes: not a metric of work, and not what is better when it is more. */
static bool is_memory(const dlab_metric *m)
{
    return strcmp(m->unit, "B") == 0 && !m->windowed && m->better == DLAB_LOWER_IS_BETTER;
}

/* growth.over, else the first swept axis of numbers that the baseline does not fix; NULL if there is none. */
static const char *axis_of(const dlab_record *r, const dlab_report_spec *s)
{
    if (s->growth_over[0]) return s->growth_over;
    for (size_t k = 0; r->n_points > 0 && k < r->points[0].axes.n; k++) {
        const char *key = r->points[0].axes.items[k].key;
        bool numbers = !dlab_settings_get(&s->baseline, key);
        for (size_t i = 0; numbers && i < r->n_points; i++) {
            double x;
            numbers = dlab_value_number(dlab_point_get(&r->points[i], key), &x);
        }
        if (numbers) return key;
    }
    return NULL;
}

static double median_of(const dlab_point_result *p, const char *metric)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    return dlab_point_summary(p, dlab_metric_find(metric), &all).median;
}

/* Over 10 %; anything differs from nothing. */
static bool differs(double a, double b)
{
    return isfinite(a) && isfinite(b) && fabs(a - b) > 0.1 * fmin(fabs(a), fabs(b));
}

static void append(char *buf, size_t size, const char *before, const char *text)
{
    const size_t n = strlen(buf);
    snprintf(buf + n, size - n, "%s%s%s", n ? ", " : "", before, text);
}

/* What a scheduler does differently shows in figures of the whole run, not in the work of one step. */
static void add_schedule(const sample *v, char *buf, size_t size)
{
    const double steps[2] = {median_of(v->base, "steps"), median_of(v->point, "steps")};
    const double slots[2] = {median_of(v->base, "slot_util"), median_of(v->point, "slot_util")};
    const double pad[2] = {median_of(v->base, "pad_share"), median_of(v->point, "pad_share")};
    char t[64], share[2][16];
    if (differs(steps[0], steps[1]) && steps[1] > 0) {
        times_text(steps[0] / steps[1], t, sizeof t);
        append(buf, size, t, " the steps");
    }
    if (differs(slots[0], slots[1])) {
        snprintf(t, sizeof t, "%.2f of its places used against %.2f", slots[0], slots[1]);
        append(buf, size, "", t);
    }
    if (differs(pad[0], pad[1])) {
        for (int i = 0; i < 2; i++) {
            snprintf(share[i], sizeof share[i], "%.0f %%", 100 * pad[i]);
            if (pad[i] == 0) snprintf(share[i], sizeof share[i], i ? "none" : "no");
        }
        snprintf(t, sizeof t, "%s padding against %s", share[0], share[1]);
        append(buf, size, "", t);
    }
}

/* A time of requests, or a rate of them or of tokens: what a scheduler changes. */
static bool is_scheduled(const dlab_metric *m)
{
    return strcmp(m->unit, "ns") == 0 || strcmp(m->unit, "tok/s") == 0 || strcmp(m->unit, "req/s") == 0;
}

/* "it has 1.37× the steps, and a decode step of it does 2.00× the flops"; "" when nothing differs. */
static void widest_why(const dlab_metric *m, const sample *v, char *buf, size_t size)
{
    const double f = declared_ratio("flops_step", v), b = declared_ratio("bytes_step", v);
    char schedule[200] = "", work[120] = "", t[24];
    if (is_scheduled(m)) add_schedule(v, schedule, sizeof schedule);
    if (differs(f, 1)) {
        times_text(f, t, sizeof t);
        snprintf(work, sizeof work, "does %s the flops", t);
    }
    if (differs(b, 1)) {
        const size_t n = strlen(work);
        times_text(b, t, sizeof t);
        snprintf(work + n, sizeof work - n, "%smoves %s the bytes", n ? " and " : "", t);
    }
    buf[0] = '\0';
    if (!schedule[0] && !work[0]) return;
    snprintf(buf, size, "; why: %s%s%s%s%s%s", schedule[0] ? "its baseline " : "a decode step of its baseline ",
             v->base->label, schedule[0] ? " has " : " ", schedule[0] ? schedule : work,
             schedule[0] && work[0] ? "; a decode step of it " : "", schedule[0] ? work : "");
}

/* Without an axis of growth: the widest gap, and why. */
static void note_widest(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    sample best = {0};
    for (size_t i = 0; i < r->n_points; i++) {
        dlab_metric_window w;
        sample v = {.point = &r->points[i], .base = dlab_point_partner(r, &r->points[i], &s->baseline)};
        if (!v.base || v.base == v.point) continue;
        v.ratio = dlab_report_ratio(s->ratio, v.point, v.base, &w);
        if (isfinite(v.ratio) && (!best.point || fabs(log(v.ratio)) > fabs(log(best.ratio)))) best = v;
    }
    if (!best.point) return;
    char gap[24], why[700];
    times_text(best.ratio, gap, sizeof gap);
    widest_why(s->ratio, &best, why, sizeof why);
    if (!why[0]) return;
    dlab_note(out, "widest gap: %s, %s on %s%s", best.point->label, gap, s->ratio->name, why);
}

void dlab_report_crossings(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    const char *over = axis_of(r, s);
    chase c = {.record = r, .baseline = &s->baseline, .metric = s->ratio, .over = over};
    if (s->baseline.n == 0) return;
    if (s->ratio && !s->growth_over[0]) note_widest(r, s, out);
    sample *v = malloc((r->n_points ? r->n_points : 1) * sizeof *v);
    if (!v) {
        out->status = DLAB_FAIL(out->err, DLAB_EOOM, "report: no memory to look for crossings");
        return;
    }
    if (s->ratio && s->growth_over[0]) note_groups(&c, v, out);
    c.memory = true;
    for (size_t i = 0; over && i < s->n_metrics; i++) {
        c.metric = s->metrics[i];
        if (is_memory(c.metric) && c.metric != s->ratio) note_groups(&c, v, out);
    }
    free(v);
}

/* The sentences below the table: what the figures are, what is missing and why. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/diagnosis.h"
#include "results/events.h"
#include "results/report_parts.h"

void dlab_note(dlab_notes *n, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    if (n->status != DLAB_OK) return;
    va_start(args, fmt);
    int made = vasprintf(&text, fmt, args);
    va_end(args);
    char **notes = made >= 0 ? realloc(n->notes, (n->n + 1) * sizeof *notes) : NULL;
    if (!notes) {
        if (made >= 0) free(text);
        n->status = DLAB_FAIL(n->err, DLAB_EOOM, "report: no memory for its notes");
        return;
    }
    n->notes = notes;
    n->notes[n->n++] = text;
}

static void add_word(char *buf, size_t size, const char *key, const char *value)
{
    size_t n = strlen(buf);
    snprintf(buf + n, size - n, "%s%s=%s", n ? " " : "", key, value);
}

void dlab_settings_text(const dlab_settings *s, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 0; i < s->n; i++) add_word(buf, size, s->items[i].key, s->items[i].value);
    if (!buf[0]) snprintf(buf, size, "all points");
}

void dlab_axes_text(const dlab_point_result *p, const char *except, const dlab_settings *but, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 0; i < p->axes.n; i++) {
        const char *key = p->axes.items[i].key;
        if ((except && strcmp(key, except) == 0) || (but && dlab_settings_get(but, key))) continue;
        add_word(buf, size, key, p->axes.items[i].value);
    }
}

static void note_repeats(const dlab_record *r, dlab_notes *out)
{
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < r->n_points; i++) {
        size_t n = r->points[i].n_runs;
        if (n == 0) continue;
        if (n < least) least = n;
        if (n > most) most = n;
    }
    if (most == 0)
        dlab_note(out, "nothing has been measured yet");
    else if (most == 1)
        dlab_note(out, "one run a point: no spread is known");
    else if (least == most)
        dlab_note(out, "medians of %zu runs ± standard deviation", most);
    else
        dlab_note(out, "medians of %zu to %zu runs ± standard deviation", least, most);
}

static void note_baseline(const dlab_report_spec *s, dlab_notes *out)
{
    char base[256];
    if (!s->ratio || s->baseline.n == 0) return;
    dlab_settings_text(&s->baseline, base, sizeof base);
    dlab_note(out, "ratios compare %s with that of %s, all else equal; above 1 is better", s->ratio->name, base);
}

static void window_text(const dlab_metric_window *w, char *buf, size_t size)
{
    if (w->first_request == w->last_request)
        snprintf(buf, size, "tokens 0 to %d of request %lld", w->last, (long long)w->first_request);
    else
        snprintf(buf, size, "tokens 0 to %d of requests %lld to %lld", w->last, (long long)w->first_request,
                 (long long)w->last_request);
}

static void note_windows(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    for (size_t i = 0; s->ratio && s->ratio->windowed && i < r->n_points; i++) {
        const dlab_point_result *p = &r->points[i], *base = dlab_point_partner(r, p, &s->baseline);
        bool uneven;
        if (!base || base == p) continue;
        dlab_metric_window w = dlab_points_window(p, base, &uneven);
        if (!uneven) continue;
        char which[128];
        const char *status = dlab_run_status_text(base->status);
        window_text(&w, which, sizeof which);
        if (w.last < 1)
            dlab_note(out, "%s: no ratio, no request has two tokens on both sides (%s is %s)", p->label, base->label,
                      status);
        else if (!isfinite(dlab_report_ratio(s->ratio, p, base, &w)))
            dlab_note(out, "%s: no ratio, %s is missing over %s, which both sides measured (%s is %s)", p->label,
                      s->ratio->name, which, base->label, status);
        else
            dlab_note(out, "%s: the ratio uses %s, which both sides measured (%s is %s)", p->label, which, base->label,
                      status);
    }
}

static void note_missing_baselines(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    char text[256];
    if (!s->ratio || s->baseline.n == 0) return;
    dlab_settings_text(&s->baseline, text, sizeof text);
    for (size_t i = 0; i < r->n_points; i++) {
        const dlab_point_result *p = &r->points[i], *base = dlab_point_partner(r, p, &s->baseline);
        if (!base)
            dlab_note(out, "%s: no ratio, the experiment has no point with %s and all else equal", p->label, text);
        else if (base != p && p->status == DLAB_RUN_OK && base->status != DLAB_RUN_OK &&
                 base->status != DLAB_RUN_TRUNCATED)
            dlab_note(out, "%s: no ratio, its baseline %s is %s", p->label, base->label,
                      dlab_run_status_text(base->status));
    }
}

static void note_statuses(const dlab_record *r, dlab_notes *out)
{
    for (size_t i = 0; i < r->n_points; i++) {
        const dlab_point_result *p = &r->points[i];
        if (p->status != DLAB_RUN_OK)
            dlab_note(out, "%s is %s%s%s", p->label, dlab_run_status_text(p->status), p->reason[0] ? ": " : "",
                      p->reason);
        if (p->warnings[0]) dlab_note(out, "%s: warning: %s", p->label, p->warnings);
    }
}

static bool shows_a_time(const dlab_report_spec *s)
{
    for (size_t i = 0; i < s->n_metrics; i++)
        if (strcmp(s->metrics[i]->unit, "ns") == 0) return true;
    return false;
}

/* Those cut off had waited longest: figures of the others are too good. */
static void note_unfinished(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    for (size_t i = 0; shows_a_time(s) && i < r->n_points; i++) {
        const dlab_summary sum = dlab_point_summary(&r->points[i], dlab_metric_find("unfinished"), &all);
        if (sum.max > 0)
            dlab_note(out,
                      "%s: up to %.0f of %.0f requests of a run had not ended: its latencies are of the others, "
                      "and so too low",
                      r->points[i].label, sum.max, (double)sum.n_samples / (double)sum.n);
    }
}

#define DIAGNOSES_MAX 12 /* points; of more a reader asks by name */

/* A line a point. Without peaks every one of them would say the same: that is said once. */
static void note_diagnoses(const dlab_record *r, dlab_notes *out)
{
    size_t unknown = 0, known = 0;
    for (size_t i = 0; i < r->n_points && out->status == DLAB_OK; i++) {
        const dlab_point_result *p = &r->points[i];
        dlab_diagnosis d;
        out->status = dlab_diagnose((const dlab_run *const *)p->runs, p->n_runs, &d, out->err);
        if (out->status != DLAB_OK || d.n == 0) continue;
        const bool two = d.n > 1 && d.items[1].cause != DLAB_CAUSE_UNCALIBRATED;
        if (d.items[0].cause == DLAB_CAUSE_UNCALIBRATED) {
            unknown++;
            continue;
        }
        known++;
        if (r->n_points <= DIAGNOSES_MAX)
            dlab_note(out, "%s: %s%s%s", p->label, d.items[0].text, two ? "; " : "", two ? d.items[1].text : "");
    }
    if (known > 0 && r->n_points > DIAGNOSES_MAX)
        dlab_note(out, "what bounds each of the %zu points: `dlab show RECORD.h5 --diagnose`", r->n_points);
    if (unknown > 0)
        dlab_note(out, "what bounds decoding is not known of %zu of %zu points: not calibrated, see `dlab calibrate`",
                  unknown, r->n_points);
}

static void note_claims(const dlab_report_spec *s, dlab_notes *out)
{
    for (size_t i = 0; i < s->n_claims; i++) {
        const dlab_claim *c = &s->claims[i];
        char at[256];
        dlab_settings_text(&c->at, at, sizeof at);
        dlab_note(out, "a claim, not a measurement: article %s (%s), %s%s%s", c->article, c->id, at,
                  c->text[0] ? ": " : "", c->text);
    }
}

static void note_small_samples(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    for (size_t m = 0; m < s->n_metrics; m++) {
        int64_t least = INT64_MAX;
        for (size_t i = 0; i < r->n_points; i++) {
            dlab_summary sum = dlab_point_summary(&r->points[i], s->metrics[m], &all);
            if (sum.low_n && sum.n > 0 && sum.n_samples / sum.n < least) least = sum.n_samples / sum.n;
        }
        if (least < INT64_MAX)
            dlab_note(out, "* %s: as few as %lld samples a run do not support it (p99 needs %lld, p90 %lld)",
                      s->metrics[m]->name, (long long)least, (long long)dlab_events_quantile_min_n(0.99),
                      (long long)dlab_events_quantile_min_n(0.9));
    }
}

static void note_progress(const dlab_record *r, dlab_notes *out)
{
    size_t made = 0, planned = 0;
    for (size_t i = 0; i < r->n_points; i++) {
        made += r->points[i].n_runs;
        planned += r->points[i].n_planned > r->points[i].n_runs ? r->points[i].n_planned : r->points[i].n_runs;
    }
    const char *experiment = dlab_settings_get(&r->meta, "experiment");
    const bool load = experiment && strcmp(experiment, "load") == 0; /* which cannot be resumed */
    if (!r->complete && made < planned)
        dlab_note(out, "not complete: %zu of %zu planned runs are in%s", made, planned,
                  load ? "" : "; `dlab run --resume` goes on with an experiment");
}

void dlab_report_notes(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out)
{
    note_repeats(r, out);
    note_baseline(s, out);
    dlab_report_crossings(r, s, out);
    note_windows(r, s, out);
    note_missing_baselines(r, s, out);
    note_statuses(r, out);
    note_unfinished(r, s, out);
    note_diagnoses(r, out);
    note_small_samples(r, s, out);
    note_claims(s, out);
    note_progress(r, out);
}

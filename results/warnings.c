#include "results/warnings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "results/metric.h"
#include "results/report_parts.h"

#define OCCUPANCY_MAX 0.7 /* K8 */

static void add(dlab_point_result *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(dlab_point_result *p, const char *fmt, ...)
{
    char text[sizeof p->warnings], all[2 * sizeof p->warnings + 4];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(all, sizeof all, "%s%s%s", p->warnings, p->warnings[0] ? "; " : "", text);
    dlab_text_copy(p->warnings, sizeof p->warnings, all);
}

/* The worst of the runs; NaN: none has it. */
static double most(const dlab_point_result *p, const char *metric)
{
    dlab_summary s;
    dlab_metric_summary(dlab_metric_find(metric), (const dlab_run *const *)p->runs, p->n_runs, &DLAB_WINDOW_ALL, &s);
    return s.max;
}

/* Whether what is computed again, in other pieces, may be stored otherwise: scales that tokens share, or a tail in f16. */
static bool depends_on_pieces(const dlab_point_result *p)
{
    static const char *const scales[] = {"kv.k_scales", "kv.v_scales"}, *const tails[] = {"kv.k_tail", "kv.v_tail"};
    for (int i = 0; i < 2; i++) {
        const char *s = dlab_point_get(p, scales[i]), *t = dlab_point_get(p, tails[i]);
        if ((s && strcmp(s, "token") != 0) || (t && strcmp(t, "0") != 0)) return true;
    }
    return false;
}

/* " on 2026-01-31 12:00 UTC, in passing", as far as a run knows. */
static void say_when(const dlab_run *r, char *out, size_t size)
{
    char date[32] = "";
    struct tm utc;
    const time_t t = r->peaks_measured > 0 && r->peaks_measured < UINT32_MAX ? (time_t)r->peaks_measured : 0;
    if (t > 0 && gmtime_r(&t, &utc)) strftime(date, sizeof date, " on %Y-%m-%d %H:%M UTC", &utc);
    snprintf(out, size, "%s%s", date, r->peaks_quick == 1 ? ", in passing" : "");
}

/* More than the machine can do at most. */
static void warn_of_peaks(dlab_point_result *p)
{
    static const char *const shares[] = {"mbu", "mfu"};
    char when[64] = "";
    for (size_t i = 0; i < p->n_runs && !*when; i++) say_when(p->runs[i], when, sizeof when);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const double share = most(p, shares[i]);
        if (share > 1)
            add(p,
                "%s is %.3g, above 1: was the machine busy when its peaks were measured%s? "
                "`dlab calibrate --force` measures again",
                shares[i], share, when);
    }
}

#define DELIVERY_MIN 0.99 /* of the intended rate */

/* The run that fell short most. */
static void warn_of_delivery(dlab_point_result *p)
{
    const dlab_metric *delivery = dlab_metric_find("delivery");
    dlab_metric_value worst = {.value = 1}, v, intended, achieved;
    const dlab_run *of = NULL;
    for (size_t i = 0; i < p->n_runs; i++) {
        if (!p->runs[i] || !dlab_run_counts(p->runs[i])) continue;
        dlab_metric_run(delivery, p->runs[i], &DLAB_WINDOW_ALL, &v);
        if (!(v.value < worst.value)) continue;
        worst = v;
        of = p->runs[i];
    }
    if (!of || worst.value >= DELIVERY_MIN) return;
    dlab_metric_run(dlab_metric_find("rate_intended"), of, &DLAB_WINDOW_ALL, &intended);
    dlab_metric_run(dlab_metric_find("rate_achieved"), of, &DLAB_WINDOW_ALL, &achieved);
    add(p, "%.4g requests a second were sent, not the %.4g intended (%.3g %%): the load is less than it is called",
        achieved.value, intended.value, 100 * worst.value);
}

void dlab_point_warn(dlab_point_result *p)
{
    const double preempted = most(p, "preemptions");
    if (preempted > 0 && depends_on_pieces(p))
        add(p, "%.0f sequences were computed again: with scales that tokens share, or a tail, not to the same bits",
            preempted);
    double occupancy = most(p, "kv_occupancy"), nonfinite = most(p, "nonfinite");
    if (occupancy > OCCUPANCY_MAX)
        add(p, "the KV cache takes %.3g %% of memory_limit at its peak; K8 asks for under %.0f %%", 100 * occupancy,
            100 * OCCUPANCY_MAX);
    if (nonfinite > 0)
        add(p, "NaN or infinity came up in %.0f row%s of a run (K9): the tokens that came of it mean nothing",
            nonfinite, nonfinite > 1 ? "s" : "");
    warn_of_delivery(p);
    warn_of_peaks(p);
}

#include "results/warnings.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "results/metric.h"
#include "results/report_parts.h"

#define OCCUPANCY_MAX 0.7 /* K8 */

void dlab_point_add_warning(dlab_point_result *p, const char *fmt, ...)
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
            dlab_point_add_warning(p,
                                   "%s is %.3g, above 1: was the machine busy when its peaks were measured%s? "
                                   "`dlab calibrate --force` measures again",
                                   shares[i], share, when);
    }
}

#define DELIVERY_MIN 0.99 /* of the intended rate */

static double value_of(const dlab_run *r, const char *metric)
{
    dlab_metric_value v;
    dlab_metric_run(dlab_metric_find(metric), r, &DLAB_WINDOW_ALL, &v);
    return v.value;
}

/* The run that fell short most; NULL: none did. One late request at the end is not enough: the lag must grow. */
static const dlab_run *least_delivered(const dlab_point_result *p)
{
    const dlab_run *of = NULL;
    double worst = DELIVERY_MIN;
    for (size_t i = 0; i < p->n_runs; i++) {
        if (!p->runs[i] || !dlab_run_counts(p->runs[i])) continue;
        const double delivery = value_of(p->runs[i], "delivery");
        if (!(delivery < worst) || !(value_of(p->runs[i], "lag_growth") > 1 / DELIVERY_MIN - 1)) continue;
        worst = delivery;
        of = p->runs[i];
    }
    return of;
}

bool dlab_point_falls_short(const dlab_point_result *p) { return least_delivered(p) != NULL; }

static void warn_of_delivery(dlab_point_result *p)
{
    const dlab_run *of = least_delivered(p);
    if (!of) return;
    dlab_point_add_warning(
        p, "%.4g requests a second were sent, not the %.4g intended (%.3g %%): the load is less than it is called",
        value_of(of, "rate_achieved"), value_of(of, "rate_intended"), 100 * value_of(of, "delivery"));
}

/* Of what gave its place back, that which was not copied out; the most of a run. Records from before there was swapping do
 * not know of any. */
static double most_computed_again(const dlab_point_result *p)
{
    double worst = 0;
    for (size_t i = 0; i < p->n_runs; i++) {
        if (!p->runs[i] || !dlab_run_counts(p->runs[i])) continue;
        const double swaps = value_of(p->runs[i], "swaps");
        worst = fmax(worst, value_of(p->runs[i], "preemptions") - (isnan(swaps) ? 0 : swaps));
    }
    return worst;
}

/* What was odd about a run that is ok; of several the first. */
static void warn_of_reason(dlab_point_result *p)
{
    for (size_t i = 0; i < p->n_runs; i++) {
        const dlab_run *r = p->runs[i];
        if (!r || r->status != DLAB_RUN_OK || !*r->reason) continue;
        dlab_point_add_warning(p, "%s", r->reason);
        return;
    }
}

void dlab_point_warn(dlab_point_result *p)
{
    const double again = most_computed_again(p);
    if (again > 0 && depends_on_pieces(p))
        dlab_point_add_warning(
            p, "%.0f sequences were computed again: with scales that tokens share, or a tail, not to the same bits",
            again);
    double occupancy = most(p, "kv_occupancy"), nonfinite = most(p, "nonfinite");
    if (occupancy > OCCUPANCY_MAX)
        dlab_point_add_warning(p, "the KV cache takes %.3g %% of memory_limit at its peak; K8 asks for under %.0f %%",
                               100 * occupancy, 100 * OCCUPANCY_MAX);
    if (nonfinite > 0)
        dlab_point_add_warning(
            p, "NaN or infinity came up in %.0f row%s of a run (K9): the tokens that came of it mean nothing",
            nonfinite, nonfinite > 1 ? "s" : "");
    warn_of_delivery(p);
    warn_of_reason(p);
    warn_of_peaks(p);
}

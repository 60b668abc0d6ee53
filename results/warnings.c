#include "results/warnings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "results/metric.h"

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

void dlab_point_warn(dlab_point_result *p)
{
    double occupancy = most(p, "kv_occupancy"), nonfinite = most(p, "nonfinite");
    if (occupancy > OCCUPANCY_MAX)
        add(p, "the KV cache takes %.3g %% of memory_limit at its peak; K8 asks for under %.0f %%", 100 * occupancy,
            100 * OCCUPANCY_MAX);
    if (nonfinite > 0)
        add(p, "NaN or infinity came up in %.0f row%s of a run (K9): the tokens that came of it mean nothing",
            nonfinite, nonfinite > 1 ? "s" : "");
}

/* What `dlab run --dry-run` says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "harness/probes/probes.h"
#include "harness/run/outlook.h"
#include "harness/run/progress.h"
#include "harness/run/run.h"

static void print_bytes(FILE *f, double bytes)
{
    char text[32];
    dlab_text_bytes(bytes, text, sizeof text);
    fprintf(f, "  %11s", text);
}

static int label_width(const dlab_spec *spec)
{
    size_t width = strlen("point");
    for (size_t i = 0; i < spec->n_points; i++) {
        if (strlen(spec->points[i].label) > width) width = strlen(spec->points[i].label);
    }
    return (int)width;
}

static void print_point(FILE *f, const dlab_point *p, const dlab_outlook *o, int64_t repeats, int width)
{
    fprintf(f, "%-*s", width, p->label);
    if (o->status != DLAB_OK) {
        fprintf(f, "  not run: %s\n", o->reason);
        return;
    }
    for (int i = 0; i < DLAB_POOL_N; i++) print_bytes(f, (double)o->bytes[i]);
    print_bytes(f, (double)o->total_bytes);
    fprintf(f, "  %4lld\n", (long long)repeats);
}

static void print_plan(FILE *f, const dlab_spec *spec, const dlab_outlook *o)
{
    const dlab_measure *m = &spec->measure;
    int width = label_width(spec);
    long long runs = 0, skipped = 0;
    fprintf(f, "%-*s", width, "point");
    for (int i = 0; i < DLAB_POOL_N; i++) fprintf(f, "  %11s", dlab_pool_name((dlab_pool)i));
    fprintf(f, "  %11s  runs\n", "together");
    for (size_t i = 0; i < spec->n_points; i++) {
        print_point(f, &spec->points[i], &o[i], m->repeats, width);
        if (o[i].status == DLAB_OK)
            runs += m->repeats;
        else
            skipped++;
    }
    fprintf(f, "\n%lld runs of %lld points, %s order, %lld warm-up each point; %lld not run.\n", runs,
            (long long)spec->n_points - skipped, m->order, (long long)m->warmup, skipped);
    if (m->time_limit_ns > 0) {
        char limit[32], total[32];
        double points = (double)spec->n_points - (double)skipped;
        dlab_progress_duration((double)m->time_limit_ns * 1e-9, limit, sizeof limit);
        dlab_progress_duration(((double)runs + points * (double)m->warmup) * (double)m->time_limit_ns * 1e-9, total,
                               sizeof total);
        fprintf(f,
                "Upper bound: about %s, if every run used its whole time limit of %s. Runs whose work is done "
                "earlier, usually most of them, end far earlier. Filling caches comes on top.\n",
                total, limit);
    } else {
        fprintf(f, "Time: not known before the first round; measure.time_limit would bound it.\n");
    }
    int64_t available = dlab_probe_memory_available_bytes();
    if (available > 0) {
        fprintf(f, "Memory available now:");
        print_bytes(f, (double)available);
        fprintf(f, "\n");
    }
}

dlab_status dlab_runner_plan_text(const dlab_spec *spec, char **out, dlab_error *err)
{
    dlab_outlook *o = NULL;
    dlab_settings environment = {0};
    size_t size = 0;
    *out = NULL;
    dlab_status st = dlab_probe_environment(&environment, err);
    if (st == DLAB_OK) st = dlab_outlook_make(spec, "engine", "/proc/self/exe", &environment, &o, err);
    FILE *f = st == DLAB_OK ? open_memstream(out, &size) : NULL;
    if (f) print_plan(f, spec, o);
    if (st == DLAB_OK && (!f || fclose(f) != 0)) st = DLAB_FAIL(err, DLAB_EOOM, "no memory for the plan");
    free(o);
    dlab_settings_free(&environment);
    return st;
}

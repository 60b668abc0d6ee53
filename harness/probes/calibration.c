#include "harness/probes/calibration.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/probes/probes.h"

#define LEAST_BYTES ((int64_t)32 << 10)
#define MOST_BYTES  ((int64_t)256 << 20)
/* Of a thread: whole KiB of it are read, and the size should be near what it says. */
#define LEAST_PART ((int64_t)8 << 10)
#define TRY_S      0.035 /* what even the shortest probe takes */
#define ASK_S      0.25  /* more tries than this allows find nothing better */

bool dlab_calibration_wanted(void)
{
    const char *text = getenv("DLAB_CALIBRATION");
    return !text || strcmp(text, "off") != 0;
}

/* ---- what is asked, and for how long --------------------------------------------------------------------------------- */

typedef struct {
    const dlab_calibration_opts *opts;
    dlab_clock *clock;
    int64_t sizes[DLAB_PEAK_ROWS];
    size_t n_sizes;
    size_t n_left; /* asks */
    int64_t end_ns;
} schedule;

/* Each is `times` the one before; the largest is always there. */
static void make_sizes(schedule *s, int64_t most, int64_t times)
{
    s->n_sizes = 0;
    for (int64_t bytes = LEAST_BYTES; bytes < most; bytes *= times) s->sizes[s->n_sizes++] = bytes;
    s->sizes[s->n_sizes++] = most;
}

/* No set that would press others out of memory. */
static int64_t most_bytes(const dlab_calibration_opts *opts)
{
    if (opts->most_bytes > 0) return opts->most_bytes < LEAST_BYTES ? LEAST_BYTES : opts->most_bytes;
    const int64_t available = dlab_probe_memory_available_bytes();
    int64_t most = MOST_BYTES;
    while (available > 0 && most > available / 4 && most > LEAST_BYTES) most /= 2;
    return most;
}

static schedule make_schedule(const dlab_calibration_opts *opts)
{
    schedule s = {.opts = opts, .clock = opts->clock ? opts->clock : dlab_clock_real()};
    const int64_t most = most_bytes(opts);
    for (int64_t times = 2; times <= 16; times *= times) {
        make_sizes(&s, most, times);
        s.n_left = opts->n_threads * (s.n_sizes + 3);
        if ((double)s.n_left * TRY_S <= opts->seconds) break;
    }
    s.end_ns = dlab_clock_now_ns(s.clock) + (int64_t)(opts->seconds * 1e9);
    return s;
}

/* What is left of the time is shared by the asks that are left: one that took longer shortens the others. */
static dlab_status ask(schedule *s, dlab_ask a, double *per_second, dlab_error *err)
{
    const volatile sig_atomic_t *stop = s->opts->interrupted;
    if (stop && *stop) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted");
    const double left = (double)(s->end_ns - dlab_clock_now_ns(s->clock)) * 1e-9;
    a.what.seconds = fmax(0, fmin(ASK_S, left / (double)s->n_left--));
    DLAB_TRY(s->opts->probe(s->opts->ctx, &a, per_second, err));
    if (isfinite(*per_second) && *per_second > 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "a probe of %" PRId64 " threads found %g a second", a.threads, *per_second);
}

static dlab_status measure_threads(schedule *s, int64_t threads, dlab_calibrated *out, dlab_error *err)
{
    double f32_ps = NAN, int8_ps = NAN, bf16_ps = NAN;
    *out = (dlab_calibrated){.threads = threads, .quick = s->opts->quick};
    DLAB_TRY(ask(s, (dlab_ask){.what.kind = DLAB_PEAK_F32, .threads = threads}, &f32_ps, err));
    DLAB_TRY(ask(s, (dlab_ask){.what.kind = DLAB_PEAK_INT8, .threads = threads}, &int8_ps, err));
    DLAB_TRY(ask(s, (dlab_ask){.what.kind = DLAB_PEAK_BF16, .threads = threads}, &bf16_ps, err));
    for (size_t i = 0; i < s->n_sizes; i++) {
        if (s->sizes[i] / threads < LEAST_PART && i + 1 < s->n_sizes) {
            s->n_left--;
            continue;
        }
        dlab_peak_row *row = &out->rows[out->n++];
        *row = (dlab_peak_row){.bytes = (double)s->sizes[i], .f32_ps = f32_ps, .int8_ps = int8_ps, .bf16_ps = bf16_ps};
        const dlab_peak what = {.kind = DLAB_PEAK_READ, .bytes = (size_t)s->sizes[i]};
        DLAB_TRY(ask(s, (dlab_ask){what, threads}, &row->read_ps, err));
    }
    out->measured = time(NULL);
    return DLAB_OK;
}

/* ---- the probes of the cpu device ------------------------------------------------------------------------------------- */

typedef struct {
    const char *isa;
    int64_t threads;
    dlab_prober *prober; /* of so many threads; NULL: none yet */
} cpu_probes;

static dlab_status probe_cpu(void *ctx, const dlab_ask *a, double *per_second, dlab_error *err)
{
    cpu_probes *p = ctx;
    if (p->threads != a->threads) {
        dlab_prober_destroy(p->prober);
        p->threads = a->threads;
        DLAB_TRY(dlab_prober_create("cpu", (int)a->threads, p->isa, &p->prober, err));
    }
    return dlab_prober_measure(p->prober, &a->what, per_second, err);
}

dlab_status dlab_calibration_measure(dlab_calibration *c, const dlab_calibration_opts *opts, dlab_error *err)
{
    cpu_probes probes = {.isa = c->isa};
    dlab_calibration_opts o = *opts;
    dlab_status st = DLAB_OK;
    if (!o.probe) {
        o.probe = probe_cpu;
        o.ctx = &probes;
    }
    if (o.n_threads > DLAB_CALIBRATION_THREADS)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%zu numbers of threads, at most %d can be calibrated at once", o.n_threads,
                         DLAB_CALIBRATION_THREADS);
    schedule s = make_schedule(&o);
    for (size_t i = 0; st == DLAB_OK && i < o.n_threads; i++) {
        dlab_calibrated of;
        st = measure_threads(&s, o.threads[i], &of, err);
        if (st == DLAB_OK) st = dlab_calibration_put(c, &of, err);
    }
    dlab_prober_destroy(probes.prober);
    return st;
}

/* ---- for runs --------------------------------------------------------------------------------------------------------- */

static bool on_cpu(const dlab_plan *plan) { return strcmp(plan->device, "cpu") == 0 && plan->threads > 0; }

static dlab_status measure_quickly(dlab_calibration *c, const dlab_plan *plan, const char *path,
                                   const volatile sig_atomic_t *interrupted, dlab_error *err)
{
    const dlab_calibration_opts opts = {.threads = &plan->threads,
                                        .n_threads = 1,
                                        .seconds = DLAB_CALIBRATION_QUICK_S,
                                        .quick = true,
                                        .interrupted = interrupted};
    DLAB_TRY(dlab_calibration_measure(c, &opts, err));
    return dlab_calibration_save_with(c, &plan->threads, 1, path, err);
}

void dlab_calibration_ensure(const dlab_plan *plan, const volatile sig_atomic_t *interrupted,
                             void (*say)(void *ctx, const char *line), void *ctx)
{
    dlab_calibration c;
    dlab_error e = {0};
    char path[PATH_MAX], line[DLAB_ERROR_MSG + 128];
    if (!dlab_calibration_wanted() || !on_cpu(plan)) return;
    if (dlab_calibration_init(&c, plan->isa, &e) != DLAB_OK) return;
    dlab_status st = dlab_calibration_path(&c, path, sizeof path, &e);
    if (st == DLAB_OK && dlab_calibration_load(&c, path, &e) != DLAB_OK) say(ctx, e.msg);
    if (st == DLAB_OK && dlab_calibration_find(&c, plan->threads)) goto done;
    if (st == DLAB_OK) st = dlab_calibration_make_room(path, &e);
    if (st == DLAB_OK) {
        snprintf(line, sizeof line,
                 "measuring what this machine does at most (threads: %" PRId64 ", isa: %s), about %.0f s, once; "
                 "`dlab calibrate` takes longer and is more exact",
                 plan->threads, c.isa, DLAB_CALIBRATION_QUICK_S);
        say(ctx, line);
        st = measure_quickly(&c, plan, path, interrupted, &e);
    }
    if (st != DLAB_OK && st != DLAB_EINTERRUPTED) {
        snprintf(line, sizeof line, "roofline, mbu and mfu will be missing: %s", e.msg);
        say(ctx, line);
    }
done:
    dlab_calibration_free(&c);
}

bool dlab_calibration_kept(const dlab_plan *plan, dlab_calibrated *out)
{
    dlab_calibration c;
    char path[PATH_MAX];
    const dlab_calibrated *of = NULL;
    *out = (dlab_calibrated){0};
    if (!dlab_calibration_wanted() || !on_cpu(plan)) return false;
    if (dlab_calibration_init(&c, plan->isa, NULL) != DLAB_OK) return false;
    if (dlab_calibration_path(&c, path, sizeof path, NULL) == DLAB_OK &&
        dlab_calibration_load(&c, path, NULL) == DLAB_OK)
        of = dlab_calibration_find(&c, plan->threads);
    if (of) *out = *of;
    dlab_calibration_free(&c);
    return out->n > 0;
}

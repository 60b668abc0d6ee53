/* A peak is the best of several short tries, so that what disturbs some of them does not lower it. All threads start
 * together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/int.h"
#include "kernels/cpu/cpu_peak.h"

#define TRY_NS        20000000 /* a try's least length: long against what starting and meeting costs */
#define ROUNDS_MAX    ((int64_t)1 << 40)
#define PART_MULTIPLE ((size_t)1024) /* a thread reads whole pieces of it: more would change what the size says */

typedef struct {
    dlab_team *team;
    const dlab_cpu_peaks *kernels;
    const dlab_peak *what;
    char *memory;      /* READ: [n_threads][part_bytes] */
    size_t part_bytes; /* of a thread */
    int64_t rounds;
    bool ahead;
    dlab_cpu_peak_part *parts; /* [n_threads] */
} trial;

static double thread_work(const trial *t, int thread, float *sink)
{
    switch (t->what->kind) {
    case DLAB_PEAK_READ:
        return t->kernels->read(t->memory + (size_t)thread * t->part_bytes, t->part_bytes, t->rounds, t->ahead, sink);
    case DLAB_PEAK_F32:
        return t->kernels->f32(t->rounds, sink);
    case DLAB_PEAK_INT8:
        return t->kernels->int8(t->rounds, sink);
    default:
        return t->kernels->bf16(t->rounds, sink);
    }
}

static void run_trial(void *ctx, int thread, int n_threads)
{
    trial *t = ctx;
    dlab_cpu_peak_part *part = &t->parts[thread];
    (void)n_threads;
    dlab_team_barrier(t->team);
    part->begin_ns = dlab_clock_now_ns(dlab_clock_real());
    part->work = thread_work(t, thread, &part->sink);
    part->end_ns = dlab_clock_now_ns(dlab_clock_real());
}

int64_t dlab_cpu_peak_took(const dlab_cpu_peak_part *parts, int n_threads)
{
    int64_t begin = parts[0].begin_ns, end = parts[0].end_ns;
    for (int i = 1; i < n_threads; i++) {
        begin = dlab_min_i64(begin, parts[i].begin_ns);
        end = dlab_max_i64(end, parts[i].end_ns);
    }
    return dlab_max_i64(end - begin, 1);
}

/* Each thread writes what it will read: pages then lie near it, and are not the system's one page of zeros. The bytes make
 * small normal numbers. */
static void touch_memory(void *ctx, int thread, int n_threads)
{
    const trial *t = ctx;
    (void)n_threads;
    memset(t->memory + (size_t)thread * t->part_bytes, 1, t->part_bytes);
}

/* What the team did in a second of the best try. The first tries find out how many rounds last long enough; they count too,
 * for a busy machine may leave time for nothing else. */
static double best_of(trial *t)
{
    const int64_t begin = dlab_clock_now_ns(dlab_clock_real()), limit = (int64_t)(t->what->seconds * 1e9);
    double best = 0;
    for (t->rounds = 1;; t->ahead = !t->ahead) {
        dlab_team_run(t->team, run_trial, t);
        const int64_t took = dlab_cpu_peak_took(t->parts, dlab_team_size(t->team));
        double work = 0;
        for (int i = 0; i < dlab_team_size(t->team); i++) work += t->parts[i].work;
        best = fmax(best, work / ((double)took * 1e-9));
        const int64_t left = limit - (dlab_clock_now_ns(dlab_clock_real()) - begin);
        if (took < TRY_NS) {
            if (left <= 0) return best;
            const int64_t times = dlab_ceil_div(TRY_NS, took);
            t->rounds = t->rounds < ROUNDS_MAX / times ? t->rounds * times : ROUNDS_MAX;
        } else if (left < took) {
            return best;
        }
    }
}

dlab_status dlab_cpu_peak_run(dlab_team *team, const char *isa, dlab_mem *mem, const dlab_peak *what,
                              double *per_second, dlab_error *err)
{
    const size_t n = (size_t)dlab_team_size(team);
    trial t = {.team = team, .what = what};
    size_t bytes = 0;
    void *memory = NULL;
    dlab_status st = DLAB_OK;
    *per_second = NAN;
    for (size_t i = 0; dlab_isa_list[i]; i++)
        if (strcmp(dlab_isa_list[i], isa) == 0) t.kernels = dlab_cpu_peak_table[i];
    t.parts = aligned_alloc(_Alignof(dlab_cpu_peak_part), n * sizeof *t.parts);
    if (!t.parts) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a probe of %zu threads", n);
    if (what->kind == DLAB_PEAK_READ) {
        const size_t pieces = what->bytes / n / PART_MULTIPLE;
        t.part_bytes = (pieces ? pieces : 1) * PART_MULTIPLE;
        bytes = n * t.part_bytes;
        DLAB_TRY_DONE(st, dlab_mem_alloc(mem, DLAB_POOL_SCRATCH, bytes, 1, &memory, err));
        t.memory = memory;
        dlab_team_run(team, touch_memory, &t);
    }
    *per_second = best_of(&t);
done:
    dlab_mem_free(mem, DLAB_POOL_SCRATCH, memory, bytes);
    free(t.parts);
    return st;
}

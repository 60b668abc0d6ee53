#include "base/team.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cores.h"

#define SPINS_BEFORE_YIELD 400 /* where every thread may have a core: some 10 µs, longer than most waits of a step */
#define SPINS_WHEN_CROWDED 16
#define NS_BEFORE_SLEEP    2000000 /* longer than the gap between two steps, shorter than a person notices */
#define CACHE_LINE         64
#define ALONE_BELOW        ((size_t)4 << 20) /* bytes */

typedef struct {
    dlab_team *team;
    int index;
    pthread_t thread;
} team_worker;

/* What different threads write often has cache lines of its own. */
struct dlab_team {
    alignas(CACHE_LINE) atomic_uint run;       /* number of the run, goes up by one when one starts */
    alignas(CACHE_LINE) atomic_int unfinished; /* workers that have not ended the run yet */
    alignas(CACHE_LINE) atomic_int arrived;    /* at the barrier */
    alignas(CACHE_LINE) atomic_uint meeting;   /* number of the barrier, goes up when all have arrived */
    alignas(CACHE_LINE) atomic_int sleepers;
    atomic_bool stop;
    int n;
    unsigned spins;       /* before a wait gives the core away */
    team_worker *workers; /* n − 1; thread i is workers[i − 1] */
    dlab_team_fn fn;      /* of the run; published by `run` */
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static void relax(const dlab_team *t, unsigned spin)
{
    if (spin >= t->spins) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The sleeper counts itself, then looks at the run; the starter moves the run on, then looks at the count. Both in the
 * one order of seq_cst operations, so one of them sees the other; and the wait drops the lock that the waker needs. */
static void sleep_until_run_changes(dlab_team *t, unsigned seen)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->run) == seen) pthread_cond_wait(&t->wake, &t->lock);
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&t->lock);
}

static void wait_for_run(dlab_team *t, unsigned seen)
{
    int64_t deadline = 0;
    for (unsigned spin = 0; atomic_load_explicit(&t->run, memory_order_acquire) == seen; spin++) {
        relax(t, spin);
        if (spin < t->spins) continue;
        const int64_t now = now_ns();
        if (deadline == 0) deadline = now + NS_BEFORE_SLEEP;
        if (now >= deadline) {
            sleep_until_run_changes(t, seen);
            return;
        }
    }
}

static void start_run(dlab_team *t)
{
    atomic_fetch_add(&t->run, 1);
    if (atomic_load(&t->sleepers) == 0) return;
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static void *worker_main(void *arg)
{
    const team_worker *w = arg;
    dlab_team *t = w->team;
    for (unsigned seen = 0;; seen++) {
        wait_for_run(t, seen);
        if (atomic_load_explicit(&t->stop, memory_order_relaxed)) return NULL;
        t->fn(t->ctx, w->index, t->n);
        atomic_fetch_sub_explicit(&t->unfinished, 1, memory_order_release);
    }
}

/* Signals meant for the program go to the caller's thread; faults stay with the thread that made them. */
static void block_signals(sigset_t *old)
{
    sigset_t set;
    sigfillset(&set);
    sigdelset(&set, SIGSEGV);
    sigdelset(&set, SIGBUS);
    sigdelset(&set, SIGFPE);
    sigdelset(&set, SIGILL);
    sigdelset(&set, SIGTRAP);
    pthread_sigmask(SIG_SETMASK, &set, old);
}

static int start_workers(dlab_team *t, int *n_started)
{
    sigset_t old;
    block_signals(&old);
    int rc = 0;
    for (*n_started = 0; *n_started < t->n - 1; ++*n_started) {
        team_worker *w = &t->workers[*n_started];
        *w = (team_worker){.team = t, .index = *n_started + 1};
        rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static void stop_workers(dlab_team *t, int n_started)
{
    atomic_store_explicit(&t->stop, true, memory_order_relaxed);
    start_run(t);
    for (int i = 0; i < n_started; i++) pthread_join(t->workers[i].thread, NULL);
}

static void release(dlab_team *t)
{
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t->workers);
    free(t);
}

dlab_status dlab_team_create(int n_threads, dlab_team **out, dlab_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > DLAB_TEAM_MAX)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%d threads, expected 1 to %d", n_threads, DLAB_TEAM_MAX);
    dlab_team *t = aligned_alloc(CACHE_LINE, sizeof *t);
    if (!t) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a team of %d threads", n_threads);
    memset(t, 0, sizeof *t);
    t->n = n_threads;
    t->spins = n_threads <= dlab_cores_usable() ? SPINS_BEFORE_YIELD : SPINS_WHEN_CROWDED;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->workers = calloc((size_t)n_threads, sizeof *t->workers);
    if (!t->workers) {
        release(t);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for a team of %d threads", n_threads);
    }
    int n_started;
    const int rc = start_workers(t, &n_started);
    if (rc != 0) {
        stop_workers(t, n_started);
        release(t);
        return DLAB_FAIL(err, DLAB_EOOM, "the system gave %d of %d threads: %s", n_started + 1, n_threads,
                         strerror(rc));
    }
    *out = t;
    return DLAB_OK;
}

void dlab_team_destroy(dlab_team *t)
{
    if (!t) return;
    stop_workers(t, t->n - 1);
    release(t);
}

int dlab_team_size(const dlab_team *t) { return t->n; }

void dlab_team_run(dlab_team *t, dlab_team_fn fn, void *ctx)
{
    if (t->n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    t->fn = fn;
    t->ctx = ctx;
    atomic_store_explicit(&t->unfinished, t->n - 1, memory_order_relaxed);
    start_run(t);
    fn(ctx, 0, t->n);
    for (unsigned spin = 0; atomic_load_explicit(&t->unfinished, memory_order_acquire) != 0; spin++) relax(t, spin);
}

void dlab_team_barrier(dlab_team *t)
{
    if (t->n == 1) return;
    const unsigned meeting = atomic_load_explicit(&t->meeting, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == t->n - 1) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&t->meeting, 1, memory_order_release);
        return;
    }
    for (unsigned spin = 0; atomic_load_explicit(&t->meeting, memory_order_acquire) == meeting; spin++) relax(t, spin);
}

typedef struct {
    void (*piece)(void *ctx, size_t i);
    void *ctx;
    size_t n;
    _Atomic size_t next;
} pieces;

static void take_pieces(void *ctx, int thread, int n_threads)
{
    (void)thread, (void)n_threads;
    pieces *p = ctx;
    for (;;) {
        const size_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->n) return;
        p->piece(p->ctx, i);
    }
}

dlab_status dlab_team_once(int n_threads, size_t bytes, size_t n, void (*piece)(void *ctx, size_t i), void *ctx,
                           dlab_error *err)
{
    pieces p = {.piece = piece, .ctx = ctx, .n = n};
    dlab_team *team;
    DLAB_TRY(dlab_team_create(bytes < ALONE_BELOW ? 1 : n_threads, &team, err));
    assert(team);
    dlab_team_run(team, take_pieces, &p);
    dlab_team_destroy(team);
    return DLAB_OK;
}

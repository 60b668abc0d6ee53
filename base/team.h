/* A team of threads for data-parallel work. The caller is thread 0; the others wait between runs, spinning briefly
 * (with sched_yield, the machine may be shared) before they sleep. C11 atomics only on the fast path: runs that follow
 * each other closely make no system call but sched_yield. */
#ifndef DLAB_BASE_TEAM_H
#define DLAB_BASE_TEAM_H

#include <stddef.h>

#include "base/status.h"

typedef struct dlab_team dlab_team;
typedef void (*dlab_team_fn)(void *ctx, int thread, int n_threads);

#define DLAB_TEAM_MAX 1024 /* threads */

/* 1 ≤ n_threads ≤ DLAB_TEAM_MAX. */
dlab_status dlab_team_create(int n_threads, dlab_team **out, dlab_error *err);
void dlab_team_destroy(dlab_team *t);
int dlab_team_size(const dlab_team *t);
/* Runs fn on every thread and returns when all are done; memory written by any is seen by the caller. */
void dlab_team_run(dlab_team *t, dlab_team_fn fn, void *ctx);
/* Inside a run: all threads meet; memory written before is seen after. */
void dlab_team_barrier(dlab_team *t);

/* Calls piece(ctx, i) for i = 0 … n − 1, in any order, on a team that is there for this alone. bytes: how much is read in all;
 * where that is little, starting threads would cost more than they save, and the caller does it by itself. */
dlab_status dlab_team_once(int n_threads, size_t bytes, size_t n, void (*piece)(void *ctx, size_t i), void *ctx,
                           dlab_error *err);

#endif

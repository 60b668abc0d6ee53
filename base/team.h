/* A team of threads for data-parallel work. The caller is thread 0; the others wait between runs, spinning briefly
 * (with sched_yield, the machine may be shared) before they sleep. C11 atomics only on the fast path: runs that follow
 * each other closely make no system call but sched_yield. */
#ifndef DLAB_BASE_TEAM_H
#define DLAB_BASE_TEAM_H

#include "base/status.h"

typedef struct dlab_team dlab_team;
typedef void (*dlab_team_fn)(void *ctx, int thread, int n_threads);

/* 1 ≤ n_threads ≤ 1024. */
dlab_status dlab_team_create(int n_threads, dlab_team **out, dlab_error *err);
void dlab_team_destroy(dlab_team *t);
int dlab_team_size(const dlab_team *t);
/* Runs fn on every thread and returns when all are done; memory written by any is seen by the caller. */
void dlab_team_run(dlab_team *t, dlab_team_fn fn, void *ctx);
/* Inside a run: all threads meet; memory written before is seen after. */
void dlab_team_barrier(dlab_team *t);

#endif

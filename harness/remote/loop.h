/* Transfers of libcurl's multi interface on one epoll: work goes with what happens, not with how many are open. One thread. */
#ifndef DLAB_HARNESS_REMOTE_LOOP_H
#define DLAB_HARNESS_REMOTE_LOOP_H

#include <curl/curl.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

typedef struct dlab_loop dlab_loop;

/* Told of each transfer that is over and removed. It may add transfers. */
typedef void (*dlab_loop_over)(void *ctx, CURL *easy, CURLcode result);

dlab_status dlab_loop_create(dlab_clock *clock, dlab_loop_over over, void *ctx, dlab_loop **out, dlab_error *err);
void dlab_loop_destroy(dlab_loop *l); /* its transfers must be removed */
/* Starts the transfer: what can be sent at once is sent. */
dlab_status dlab_loop_add(dlab_loop *l, CURL *easy, dlab_error *err);
void dlab_loop_remove(dlab_loop *l, CURL *easy); /* nobody is told */
/* Waits until something moves or the deadline, by the loop's clock, has come, and handles it. Signals end the wait too. */
dlab_status dlab_loop_turn(dlab_loop *l, int64_t deadline_ns, dlab_error *err);

#endif

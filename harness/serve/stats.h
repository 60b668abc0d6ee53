/* What a server counts, and Prometheus's text of it. */
#ifndef DLAB_HARNESS_SERVE_STATS_H
#define DLAB_HARNESS_SERVE_STATS_H

#include "engine/engine.h"

/* How a choice ended: word for metrics. */
#define DLAB_ANSWER_END_LIST(X)                                                                                        \
    X(NONE, "running")                                                                                                 \
    X(STOP, "stop")           /* an end token or a stop string */                                                      \
    X(LENGTH, "length")       /* max_tokens */                                                                         \
    X(CANCELLED, "cancelled") /* the client went away */                                                               \
    X(TIMEOUT, "timeout")                                                                                              \
    X(SHUTDOWN, "shutdown") /* the server ended first */                                                               \
    X(REFUSED, "refused")   /* it can never fit */                                                                     \
    X(FAILED, "failed")     /* of our own */

typedef enum {
#define DLAB_ANSWER_END_ENUM(name, text) DLAB_ANSWER_##name,
    DLAB_ANSWER_END_LIST(DLAB_ANSWER_END_ENUM)
#undef DLAB_ANSWER_END_ENUM
        DLAB_ANSWER_END_N
} dlab_answer_end;

const char *dlab_answer_end_name(dlab_answer_end e);

#define DLAB_BUCKETS_MAX 20

typedef struct {
    uint64_t count[DLAB_BUCKETS_MAX + 1]; /* by bucket, not cumulated; the last is +Inf */
    uint64_t n;
    double sum;
} dlab_histogram;

typedef struct {
    dlab_histogram ttft, tpot, itl, e2e, queue; /* seconds */
    uint64_t ended[DLAB_ANSWER_END_N];          /* choices */
    uint64_t refused_full;                      /* requests that found the queue full */
    uint64_t prompt_tokens, cached_tokens, generated_tokens, preemptions, steps;
    uint64_t swapped_out, swapped_in, swap_bytes;
    int64_t running, waiting;
    dlab_kv_stats kv;
} dlab_serve_stats;

/* Upper bounds of the buckets of all histograms, in seconds. */
const double *dlab_histogram_bounds(size_t *n);
void dlab_histogram_add(dlab_histogram *h, double seconds);

typedef struct {
    int code;
    uint64_t n;
} dlab_status_count;

/* Text exposition format 0.0.4; malloc'd, NULL when memory is out. */
char *dlab_prometheus_text(const dlab_serve_stats *s, const dlab_status_count *codes, size_t n_codes,
                           int64_t connections);

#endif

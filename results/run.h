/* What one run leaves: events stamped by one clock, and facts about the process. Everything else is computed from it.
 * Times are float64 nanoseconds since the run's start; NaN: did not happen. */
#ifndef DLAB_RESULTS_RUN_H
#define DLAB_RESULTS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* name, text, whether `dlab run` counts it as a failure without --strict */
#define DLAB_RUN_STATUS_LIST(X)                                                                                        \
    X(OK, "ok", 0)                                                                                                     \
    X(TRUNCATED, "truncated", 0) /* ended at measure.time_limit; figures come from what was measured */                \
    X(SKIPPED, "skipped", 0)     /* the combination cannot work */                                                     \
    X(OOM, "oom", 0)             /* a pool or the system refused memory */                                             \
    X(FAILED, "failed", 1)       /* an error, named in reason */                                                       \
    X(CRASHED, "crashed", 1)     /* the worker died of a signal or left without an answer */                           \
    X(HUNG, "hung", 1)           /* no answer within measure.hang_timeout: killed */                                   \
    X(PENDING, "pending", 1)     /* not measured yet (interrupted) */

typedef enum {
#define DLAB_RUN_ENUM(name, text, fails) DLAB_RUN_##name,
    DLAB_RUN_STATUS_LIST(DLAB_RUN_ENUM)
#undef DLAB_RUN_ENUM
        DLAB_RUN_STATUS_N
} dlab_run_status;

const char *dlab_run_status_text(dlab_run_status s);
dlab_run_status dlab_run_status_parse(const char *text); /* DLAB_RUN_STATUS_N if unknown */
int dlab_run_status_fails(dlab_run_status s);

/* How a request ended that was not served. name, text */
#define DLAB_FAILURE_LIST(X)                                                                                           \
    X(NONE, "none")         /* served, or not ended */                                                                 \
    X(REFUSED, "refused")   /* no connection */                                                                        \
    X(TIMEOUT, "timeout")   /* no answer, or no end of it, in time */                                                  \
    X(HTTP, "http")         /* an answer with a status other than 200: http_status */                                  \
    X(BROKEN, "broken")     /* the stream ended early, or is none */                                                   \
    X(REJECTED, "rejected") /* the engine can never serve it (too long, or over the budget) */                         \
    X(ABORTED, "aborted")   /* given up by us */

typedef enum {
#define DLAB_FAILURE_ENUM(name, text) DLAB_FAILURE_##name,
    DLAB_FAILURE_LIST(DLAB_FAILURE_ENUM)
#undef DLAB_FAILURE_ENUM
        DLAB_FAILURE_N
} dlab_failure;
const char *dlab_failure_text(dlab_failure f);

typedef struct {
    int64_t id, prompt_tokens, depth_tokens;            /* depth: tokens already in the cache at the start */
    int64_t new_tokens;                                 /* produced, not asked for; −1: a server did not tell */
    int64_t asked_tokens;                               /* asked for; −1: unknown */
    int64_t cached_tokens;                              /* of the prompt, found in the prefix cache; −1: unknown */
    double t_sched, t_submit, t_admit, t_first, t_done; /* of a failed one t_done is when it failed */
    int32_t finish;                                     /* 0 unfinished, 1 length, 2 end of sequence */
    int32_t failure, http_status;                       /* dlab_failure; 0: no answer */
    int32_t priority, turn;                             /* turn of its conversation, from 0 */
    int64_t conversation;                               /* the id of its first turn */
} dlab_ev_request;

typedef struct {
    int64_t request;
    int32_t index, token;
    double t;
} dlab_ev_token;

typedef struct {
    double t_begin, t_end;
    int32_t rows, prefill_rows, decode_rows, pad_rows; /* prefill: rows that lead to a request's first token; decode:
                                                          all later ones, computed again or not */
    int32_t seqs, slots, launches;
    int32_t budget;                /* rows that the budget allowed; 0: none set */
    double bytes, kv_bytes, flops; /* kv_bytes: read from the KV store */
    double int8_flops, bf16_flops; /* the parts of flops that multiply int8 with int8, bf16 with bf16 */
    double kv_dense_bytes;         /* what kv_bytes would be if attention visited everything */
    double inter_bytes;            /* attention's intermediate results, written and read back */
    /* bytes, after the step; dlab_kv_stats of engine/engine.h. pool = reserved + cached + free; unusable is part of free */
    int64_t kv_reserved, kv_used, kv_cached, kv_free, kv_unusable, kv_shared;
    int32_t preempted, growths, nonfinite; /* nonfinite: rows in which NaN or infinity came up */
    int32_t waiting;                       /* requests queued when it began; −1: unknown */
    int32_t pad_skipped;                   /* rows that padding would have taken, and did not; −1: unknown */
    int32_t swapped_out, swapped_in;       /* sequences copied out of the store and back; −1: unknown */
    int64_t swap_bytes;                    /* −1: unknown */
} dlab_ev_step;

typedef struct {
    double t;
    int64_t weights, kv, activations, scratch, rss; /* bytes in use */
} dlab_ev_memory;

typedef struct {
    int32_t chunk, position, token; /* token scored: ids[position + 1] of the chunk */
    int32_t top1;                   /* most likely id */
    double nll;                     /* nats */
} dlab_ev_quality;

/* What the machine does at most with the run's threads and instruction set, by how many bytes the threads read together,
 * again and again. Ascending. */
typedef struct {
    double bytes, read_ps;           /* working set; bytes a second */
    double f32_ps, int8_ps, bf16_ps; /* operations a second; the same in every row */
} dlab_peak_row;
#define DLAB_PEAK_ROWS 32 /* at most */

/* key = value, in order */
typedef struct {
    char *key, *value;
} dlab_setting;
typedef struct {
    dlab_setting *items;
    size_t n;
} dlab_settings;
dlab_status dlab_settings_set(dlab_settings *s, const char *key, const char *value,
                              dlab_error *err);                         /* adds or replaces */
const char *dlab_settings_get(const dlab_settings *s, const char *key); /* or NULL */
dlab_status dlab_settings_copy(const dlab_settings *from, dlab_settings *to, dlab_error *err);
void dlab_settings_free(dlab_settings *s);

typedef struct {
    dlab_run_status status;
    char reason[512];
    char key[17]; /* hex of the run's key hash */
    int32_t point, repeat;
    double started_unix;     /* wall time, seconds, metadata only */
    double t_end;            /* the run's length */
    dlab_settings effective; /* every key that shaped the run, effective values */
    dlab_ev_request *requests;
    dlab_ev_token *tokens;
    dlab_ev_step *steps;
    dlab_ev_memory *memory;
    dlab_ev_quality *quality;
    dlab_peak_row *peaks; /* none: not known, and what is computed from them is missing */
    size_t n_requests, n_tokens, n_steps, n_memory, n_quality, n_peaks;
    int64_t pool_peak[DLAB_POOL_N]; /* high-water marks of this run; −1: unknown */
    int64_t mem_peak;               /* of all pools together */
    int64_t rss_peak;               /* of the process, bytes; −1: unknown */
    int64_t kv_pool, kv_growths, kv_growth_ns;
    int64_t kv_evictions, kv_copies, kv_hit_tokens, kv_asked_tokens; /* of this run; −1: unknown */
    double kv_token_bytes;   /* K4: bytes of a token of one sequence by the formula; NaN: unknown */
    int64_t memory_limit;    /* 0: none */
    int64_t kv_cached_start; /* bytes of cached prefixes when the run began; −1: unknown */
    double kv_hit_ideal;     /* what a prefix cache that forgets nothing would have hit; NaN: unknown */
    int64_t weight_bytes;
    double peaks_measured;      /* when the peaks were, unix seconds; NaN: unknown */
    int64_t peaks_quick;        /* 1: in passing, 0: by `dlab calibrate`; −1: unknown */
    int64_t quality_bytes;      /* bytes of text that the scored tokens stand for; 0: unknown */
    char quality_protocol[160]; /* "chunks of 512, second half scored, no BOS" … */
    char corpus_hash[17];
    int32_t quality_first; /* the protocol counts positions ≥ this; the others are kept, not counted */
    size_t capacity[6];    /* rows that requests … peaks have room for; kept by the functions below */
    struct dlab_metric_value
        *metrics; /* every metric over the whole run, in dlab_metric_all's order; NULL: not computed */
    bool dropped; /* the events are in the run's part only */
} dlab_run;

void dlab_run_init(dlab_run *r); /* NaN and −1 where nothing is known */
void dlab_run_free(dlab_run *r);
void dlab_run_free_events(dlab_run *r); /* the tables alone */
void dlab_run_move_events(dlab_run *from, dlab_run *to);
bool dlab_run_counts(const dlab_run *r); /* ok or truncated: its figures enter summaries */
/* Growing arrays for the driver. Each reserves ahead; with enough reserved, appending allocates nothing. */
dlab_status dlab_run_reserve(dlab_run *r, size_t requests, size_t tokens, size_t steps, size_t memory, dlab_error *err);
dlab_status dlab_run_add_request(dlab_run *r, const dlab_ev_request *e, dlab_error *err);
dlab_status dlab_run_add_token(dlab_run *r, const dlab_ev_token *e, dlab_error *err);
dlab_status dlab_run_add_step(dlab_run *r, const dlab_ev_step *e, dlab_error *err);
dlab_status dlab_run_add_memory(dlab_run *r, const dlab_ev_memory *e, dlab_error *err);
dlab_status dlab_run_add_quality(dlab_run *r, const dlab_ev_quality *e, dlab_error *err);
dlab_status dlab_run_add_peak(dlab_run *r, const dlab_peak_row *e, dlab_error *err);

/* For a run that is over: computes every metric once and keeps the values in the run, so that whoever wants a figure of
 * the whole run later does not go through its events again. Fine when it was done before. */
dlab_status dlab_run_summarize(dlab_run *r, dlab_error *err);
/* For a run whose part is on the disk: summarizes it and frees its events. Its figures, attributes and settings stay; the
 * master links to the part for the tables, and dlab_record_finish reads them back. Until then what needs the events (a
 * window of tokens) is missing. A run that cannot be summarized for want of memory keeps its events. */
void dlab_run_drop_events(dlab_run *r);

#endif

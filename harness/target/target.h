/* What is measured, behind one table: the engine in process, a server over HTTP, the null target that measures the harness
 * itself. The driver (harness/run/drive.h) submits requests when they are due, steps the target, and stamps what comes
 * back. */
#ifndef DLAB_HARNESS_TARGET_TARGET_H
#define DLAB_HARNESS_TARGET_TARGET_H

#include "base/clock.h"
#include "engine/engine.h"
#include "results/run.h"

typedef struct dlab_target dlab_target;

/* A server, for targets that need one. */
typedef struct {
    const char *url;                 /* "http://127.0.0.1:8080" or with "/v1" behind; no slash at the end */
    const char *model;               /* the name that requests carry; NULL: the first that GET /v1/models names */
    const char *api_key;             /* bearer token, or NULL */
    const char *endpoint;            /* "completions" or "chat" */
    const char *prompt_as;           /* "ids", "text": text needs `tokenizer` */
    const dlab_tokenizer *tokenizer; /* to write prompts as text and to count tokens again; NULL: none */
    int64_t connect_timeout_ns, timeout_ns; /* to connect; of a whole request. 0: none */
    int64_t idle_timeout_ns;                /* longest silence, before the first byte too; 0: none */
    const char *extra;                      /* members of a JSON object to add to each body, or NULL */
    /* Told in one line why requests failed, the first few different reasons alone; NULL: nobody. */
    void (*tell)(void *ctx, const char *why);
    void *tell_ctx;
} dlab_remote;

typedef struct {
    const dlab_plan *plan;
    const dlab_model *model; /* NULL only where the target needs none */
    const dlab_engine_needs *needs;
    dlab_clock *clock;         /* the driver's; NULL: the real one */
    const dlab_remote *remote; /* openai; borrowed */
    int64_t null_step_ns;      /* null: a step's length; 0: instant … */
    int64_t null_service_ns;   /* … or, when > 0, a request's whole service time, spread evenly over its tokens */
} dlab_target_setup;

/* A request that ended otherwise than with its last token, or of which its end tells more than its tokens did. */
typedef struct {
    int64_t id;
    dlab_failure failure; /* NONE: served */
    int32_t http_status;  /* 0: none */
    dlab_finish finish;
    int64_t new_tokens, prompt_tokens, cached_tokens; /* as the server counts them; −1: does not tell */
    int64_t t_ns;                                     /* when, by the driver's clock */
} dlab_target_end;

typedef struct {
    dlab_step step;
    const int64_t *token_ns; /* [step.n_tokens] when each came, by the driver's clock; NULL: when the step ended */
    const dlab_target_end *ends;
    int32_t n_ends;
} dlab_target_step;

typedef struct {
    const char *name, *summary;
    bool remote; /* its steps are waits for what comes, not the device's: they do not enter the record */
    dlab_status (*create)(const dlab_target_setup *setup, dlab_target **out, dlab_error *err);
    void (*destroy)(dlab_target *t);
    /* DLAB_EIMPOSSIBLE: this request can never be served; the others can. */
    dlab_status (*submit)(dlab_target *t, const dlab_engine_request *r, dlab_error *err);
    bool (*busy)(const dlab_target *t);
    /* One step; a remote target waits for something to happen, at most until deadline_ns (INT64_MAX: for ever), the others
     * do not look at it. Nothing may have happened: no rows, no tokens, no ends. */
    dlab_status (*step)(dlab_target *t, int64_t deadline_ns, dlab_target_step *out, dlab_error *err);
    /* Drops all requests; a target with caches that outlive requests drops them too unless keep_cache. */
    void (*cancel)(dlab_target *t, bool keep_cache);
    void (*gate)(dlab_target *t, bool open); /* dlab_engine_gate; NULL: has none */
    dlab_status (*prime)(dlab_target *t, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err);
    dlab_status (*score)(dlab_target *t, const int32_t *ids, int64_t n, int64_t n_last, double *nll, int32_t *top1,
                         dlab_error *err); /* NULL: no quality on this target */
    /* NULL, like reset_peaks: its memory is not known. kv: NULL where it is not wanted; making it takes a walk over the
     * store's tables. */
    void (*memory)(const dlab_target *t, dlab_mem_stats *mem, dlab_kv_stats *kv);
    void (*reset_peaks)(dlab_target *t);
    const dlab_plan *(*plan)(const dlab_target *t); /* effective values */
} dlab_target_ops;

struct dlab_target {
    const dlab_target_ops *ops; /* first member */
};

/* generated from the folder; NULL-terminated: engine, null, openai */
extern const dlab_target_ops *const dlab_targets[];
const dlab_target_ops *dlab_target_find(const char *name); /* or NULL */

#endif

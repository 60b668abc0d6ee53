/* The engine behind a server. One thread owns it: questions reach it through a mailbox between steps, and what it makes of them
 * grows in answers that other threads read. It sleeps while there is nothing to do.
 *
 * One lock guards mailbox, answers and counters; it is never held while a step runs. */
#ifndef DLAB_HARNESS_SERVE_HOST_H
#define DLAB_HARNESS_SERVE_HOST_H

#include "base/clock.h"
#include "engine/engine.h"
#include "harness/serve/stats.h"
#include "harness/serve/text.h"

typedef struct dlab_host dlab_host;
typedef struct dlab_answer dlab_answer;

typedef struct {
    int32_t *ids; /* [n], malloc'd */
    int64_t n, max_new;
} dlab_prompt;

#define DLAB_ASK_SAMPLES 4096

/* What one HTTP request wants: `samples` answers to each prompt. Answer j of prompt i is choice i · samples + j. */
typedef struct {
    dlab_prompt *prompts; /* [n_prompts ≥ 1], malloc'd */
    size_t n_prompts;
    int32_t samples;  /* 1 to DLAB_ASK_SAMPLES */
    int32_t priority; /* as dlab_engine_request has it */
    float temperature, top_p;
    int32_t top_k;
    uint64_t seed;
    int32_t ends[2]; /* stop token ids: each ends an answer; −1: none */
    dlab_stops stops;
    int64_t arrived_ns;
    bool whole; /* news is the end of all choices; else each piece of text */
    int socket; /* its peer's closing cancels; shut down for a peer that does not read its answer; −1: none to watch */
    /* Called with the host's lock held: there is no news, and `wake` will follow (from the host's thread) when there is. */
    void (*sleep)(void *ctx), (*wake)(void *ctx);
    void *ctx;
} dlab_ask;

void dlab_ask_free(dlab_ask *a);

typedef struct {
    dlab_engine
        *engine; /* idle; made with needs.own_sampling, not with batch.release: at_end. Nobody else may touch it until
                            the host is stopped */
    const dlab_tokenizer *tok;
    dlab_clock *clock;
    int64_t queue;      /* prompts that may wait beyond those that find a place in the batch; more are refused */
    int64_t timeout_ns; /* of a whole answer, and then again for its reader; 0: none */
} dlab_host_opts;

dlab_status dlab_host_create(const dlab_host_opts *opts, dlab_host **out, dlab_error *err);
/* Ends the thread after the step in progress, and whatever has not ended, as DLAB_ANSWER_SHUTDOWN: all are woken. Answers
 * can still be read and released, and no new ones are taken. */
void dlab_host_stop(dlab_host *h);
/* Stops it if that was not done. All answers must have been released. */
void dlab_host_destroy(dlab_host *h);

/* Takes over what *ask owns, and returns an answer to be released. Else *ask stays the caller's: DLAB_EFULL (queue),
 * DLAB_EINTERRUPTED (draining). What the engine itself refuses ends the answer as DLAB_ANSWER_REFUSED. */
dlab_status dlab_host_submit(dlab_host *h, dlab_ask *ask, dlab_answer **out, dlab_error *err);
/* Nobody wants it any more: if it has not ended it is cancelled, and its places in the engine are free after the step in
 * progress. wake is not called any more. */
void dlab_host_release(dlab_host *h, dlab_answer *a);

/* True: there is news since the last call. False: `sleep` was called, and wake will be. */
bool dlab_answer_ready(dlab_host *h, dlab_answer *a);
/* What a choice says since the last call. */
typedef struct {
    size_t choice;
    char *text; /* malloc'd, NUL-terminated valid UTF-8; NULL: memory is out */
    size_t n;
    dlab_answer_end end; /* not NONE: the choice has ended; told once */
} dlab_answer_piece;
typedef struct {
    size_t n_choices;
    bool ended;
    dlab_answer_end end;          /* of all that failed together; NONE where each choice has an end of its own */
    char message[DLAB_ERROR_MSG]; /* why, for REFUSED and FAILED */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
} dlab_answer_sum;
void dlab_answer_get_sum(dlab_host *h, dlab_answer *a, dlab_answer_sum *out);
/* The choices with news since the last call, in no order: fills pieces [n_choices], returns how many. *sum is of the same
 * moment. */
size_t dlab_answer_take(dlab_host *h, dlab_answer *a, dlab_answer_piece *pieces, dlab_answer_sum *sum);

void dlab_host_get_stats(dlab_host *h, dlab_serve_stats *out);
/* Looks at peers and deadlines; to be called every so often, by one thread that is not the engine's. */
void dlab_host_watch(dlab_host *h);
/* No new questions. */
void dlab_host_drain(dlab_host *h);
bool dlab_host_draining(dlab_host *h);
int64_t dlab_host_live(dlab_host *h); /* answers that have not been released */
/* A step that failed ends the host: nothing can be said of the engine's state any more. DLAB_OK: all is well. */
dlab_status dlab_host_status(dlab_host *h, dlab_error *err);

#endif

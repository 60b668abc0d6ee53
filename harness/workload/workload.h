/* From a workload and a vocabulary to requests with exact token counts, and from requests to when each is due. Same seeds,
 * same requests, same schedule. */
#ifndef DLAB_HARNESS_WORKLOAD_WORKLOAD_H
#define DLAB_HARNESS_WORKLOAD_WORKLOAD_H

#include "harness/spec/spec.h"

typedef struct {
    int64_t n;                        /* prompts; every turn of a conversation is one */
    int32_t samples;                  /* answers to each of them */
    int32_t *ids;                     /* [Σ (depth + prompt)] what is known of each prompt before the run */
    int64_t *offset;                  /* [n] of a request's first id (its depth tokens, then its prompt) */
    int64_t *depth, *prompt, *output; /* [n] tokens. Of a later turn `prompt` is what this turn adds */
    uint64_t *seed;                   /* [n] for sampling: of the number alone, whatever the workload's seeds */
    int64_t *arrival_ns; /* [n] since the run's start, ascending; −1: when another has ended. NULL: all 0 */
    int32_t *priority;   /* [n], or NULL: 0 */
    int64_t *after;      /* [n] the turn before, whose prompt and answer this one's prompt begins with; −1:
                                         none. NULL: none at all */
    int64_t *think_ns;   /* [n] between the end of what it waits for and its own arrival, or NULL: 0 */
    int64_t concurrency; /* closed: first turns in flight; 0: not closed */
    int64_t duration_ns; /* nothing arrives after; 0: no end */
    bool scarce;         /* the duration should end them, but they may be used up before */
    int64_t n_fresh; /* so many conversations are in no run before (see the host's n_before): a file may have no more */
} dlab_requests;

/* What the requests are for. */
typedef struct {
    int64_t batch_size; /* the plan's, used when workload.requests is 0, and for warm-up */
    int64_t context;    /* the model's; 0: there is no model */
    /* ids are drawn from [first_id, vocab), control and unused ones left out where there is a tokenizer. Not read before
     * requests are built. */
    int32_t first_id, vocab;
    const dlab_tokenizer *tokenizer; /* borrowed; where dlab_workload_tokenizes; NULL: there is none */
    /* Runs before this one whose prompts a cache that outlives them may know, and the conversations that they sent: ids are
     * drawn anew at the same lengths and times, and a file of prompts goes on behind them. */
    int64_t n_before, sent_before;
} dlab_workload_host;

/* The prompts come from a text: requests need the host's tokenizer, and the shape does where the text gives the lengths. */
bool dlab_workload_tokenizes(const dlab_workload *w);

/* A workload's lengths and times, and what its files say: everything but the ids. */
typedef struct dlab_shape dlab_shape;

/* DLAB_EIMPOSSIBLE says what in the workload contradicts what; DLAB_EIO, DLAB_EFORMAT: a file (with its line). */
dlab_status dlab_shape_create(const dlab_workload *w, const dlab_workload_host *host, dlab_shape **out,
                              dlab_error *err);
void dlab_shape_destroy(dlab_shape *s);
/* What the engine must be able to hold for exactly these requests. */
dlab_engine_needs dlab_shape_needs(const dlab_shape *s);
/* warmup: other ids in requests of the same lengths, so that no cache knows the measured ones; of other kinds than batch as
 * many conversations as a closed loop has in flight, or as fill the batch, all due when it starts. */
dlab_status dlab_shape_build(dlab_shape *s, bool warmup, dlab_requests *out, dlab_error *err);
void dlab_requests_free(dlab_requests *r);
/* How many of request i's depth tokens are primed: all of them, or all but one where no prompt is measured, since a request
 * must hand at least one token over. */
int64_t dlab_requests_primed(const dlab_requests *q, int64_t i);

/* ---- source.c: which request is due when. Times are ns since the run's start; O(log n) a call -------------------------- */

typedef struct dlab_source dlab_source;

/* requests are borrowed. */
dlab_status dlab_source_create(const dlab_requests *q, dlab_source **out, dlab_error *err);
void dlab_source_destroy(dlab_source *s);
/* The next request that is due at or before now; −1: none is. Each is handed out once, in the order of *sched_ns, when it
 * should arrive (which may be long past), then of its number. */
int64_t dlab_source_take(dlab_source *s, int64_t now_ns, int64_t *sched_ns);
/* When the next one is due; INT64_MAX: not before another has ended, or never. */
int64_t dlab_source_due_ns(const dlab_source *s);
/* Request i has ended (its last sample too), well or not: what waits for it is scheduled: the next turn, or in a closed
 * loop the next conversation. A turn whose predecessor failed is dropped with all turns behind it. */
void dlab_source_ended(dlab_source *s, int64_t i, int64_t now_ns, bool failed);
/* When the requests ran out before the duration that should end them (see scarce); −1: they have not. */
int64_t dlab_source_used_up_ns(const dlab_source *s);
/* Nothing is left to hand out, now or later, whatever ends. */
bool dlab_source_over(const dlab_source *s);

#endif

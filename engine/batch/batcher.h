/* Batchers, one file each in engine/batch/modes: who runs in the next step, and with which rows. */
#ifndef DLAB_ENGINE_BATCH_BATCHER_H
#define DLAB_ENGINE_BATCH_BATCHER_H

#include "engine/batch/queue.h"

/* A sequence: the ids known so far and how many of them need not be computed again. */
typedef struct {
    int32_t *ids; /* [max_tokens + 1] */
    int64_t n_ids;
    int64_t n_stored; /* ids that no step has to compute any more */
    int64_t n_live;   /* ids whose K and V the store holds: n_stored, or one more where a whole prompt was cached */
    int64_t n_primed; /* ids that stay when the request ends; 0: not primed */
    bool open;        /* taken by a request or a prefix */
    bool held;        /* has its place in the store; false: not yet, or preempted, or given back early */
    bool running;     /* belongs to a request */
    int leader;       /* waits for this sequence's first token, to be forked from it; −1: does not */
    bool primed;
    dlab_finish finish; /* not NONE: the request has ended; a batcher may hold the sequence until it releases it */
    int64_t request, max_new, n_new;
    int64_t origin; /* id of the request as it was submitted: sample j is reported as origin + j */
    int32_t eos;
    uint64_t seed;
    float temperature, top_p; /* how its tokens are drawn: the request's, or the plan's */
    int32_t top_k;
} dlab_seq;

/* A sequence that nobody has taken. */
static inline dlab_seq dlab_seq_none(int32_t *ids) { return (dlab_seq){.ids = ids, .leader = -1, .eos = -1}; }

/* Rows of one sequence in a step: n_pad padding rows, which stand at positions pad_pos …, then n_rows real ones at
 * positions first …. */
typedef struct {
    int seq;
    int64_t first, pad_pos;
    int32_t n_rows, n_pad;
} dlab_slice;

/* What a batcher sees and changes. */
typedef struct {
    dlab_seq *seqs;
    int n_seqs;
    dlab_queue queue;                        /* who waits */
    int64_t n_live;                          /* sequences of requests that have started and not ended */
    int64_t lengths, max_lengths;            /* batch.budget: lengths: the live ones' prompts and asked tokens, and how
                                                much that may come to; 0: no such bound */
    bool retains;                            /* the store keeps K and V */
    int64_t batch_size, token_budget, chunk; /* effective: rows a step, rows of a sequence a step */
    bool pad;                                /* batch.padding: compute */
    bool shut;                               /* the gate is closed: no queued request starts */
    bool full;                               /* something was released in this step: nobody comes (back) in it */
    int64_t slack;                           /* tokens that a running sequence should find free when others come (back):
                                                elsewhere called a watermark */
    int64_t *admitted, *admitted_cached;     /* [batch_size] requests admitted in this step; their cached tokens */
    int n_admitted;
    int64_t pad_skipped;              /* batch.padding: skip: rows that padding would have had in this step */
    bool looks_up;                    /* kv.prefix_cache */
    int64_t asked_tokens, hit_tokens; /* since creation; dlab_kv_stats */
    int64_t n_prompts;                /* whose last token was computed, since creation */
    struct {
        int64_t order;           /* dlab_queued's; −1: nobody */
        int64_t room, n_prompts; /* as they were then */
    } refused;                   /* looks_up: the request that was last looked up and found no room */
    /* Gives a sequence whose ids are known its place, with room for `extra` tokens more (or goes on with a primed one):
     * sets held, n_stored, n_live. DLAB_EFULL: not now. */
    dlab_status (*open)(void *ctx, int seq, int64_t extra, dlab_error *err);
    /* Takes place and sequence back, or rewinds a primed one. */
    void (*close)(void *ctx, int seq);
    int64_t (*room)(void *ctx); /* the store's */
    /* Takes the place alone, to be computed again or copied back later. Of one whose request has ended, the copy too: that
     * cannot fail, and it need not have a place. */
    dlab_status (*release)(void *ctx, int seq, dlab_error *err);
    void *ctx;
} dlab_batch_state;

typedef struct dlab_batcher dlab_batcher;

typedef struct {
    const char *name, *summary;
    bool together; /* the requests of a batch end together: their tokens may be held back until then (batch.release) */
    bool pads;     /* to a common length (batch.padding) */
    dlab_status (*create)(const dlab_batch_state *st, dlab_batcher **out, dlab_error *err);
    void (*destroy)(dlab_batcher *b);
    /* Fills out [batch_size] with the next step's slices, *n of them; 0 when it can start nothing. May be asked again for
     * the same step, when the store had no room for an answer and something was released meanwhile. */
    dlab_status (*next)(dlab_batcher *b, dlab_batch_state *st, dlab_slice *out, int *n, dlab_error *err);
    /* The store is full: which running sequence should give its place back, to come back later; −1: none may. Ended ones
     * that still hold a place come first. Never the oldest: it must get on, or nothing would. */
    int (*victim)(const dlab_batcher *b, const dlab_batch_state *st);
    /* After each step: gives back the places of what has ended, as soon as the mode allows. */
    void (*settle)(dlab_batcher *b, dlab_batch_state *st);
    /* Between steps: the request of this sequence was given up and has ended (all its samples have); takes the place it has
     * in the store, and its place of the batch as soon as the mode allows. */
    void (*drop)(dlab_batcher *b, dlab_batch_state *st, int seq);
    void (*reset)(dlab_batcher *b); /* all sequences were dropped */
} dlab_batcher_ops;

struct dlab_batcher {
    const dlab_batcher_ops *ops; /* first member */
};

extern const dlab_batcher_ops *const dlab_batchers[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_batcher_ops *dlab_batcher_find(const char *name);

/* ---- what batchers share; seqs [n] are the sequences of a batch, the oldest first ---------------------------------- */

/* The first sequence behind `after` that nobody has taken, or −1. */
int dlab_batch_free_seq(const dlab_batch_state *st, int after);
/* Ids of a sequence that the next step must compute: those not in the store, or all of them. */
int64_t dlab_seq_due(const dlab_batch_state *st, const dlab_seq *s);
/* Has its place and something to compute. */
static inline bool dlab_seq_runs(const dlab_seq *s)
{
    return s->held && s->leader < 0 && s->finish == DLAB_FINISH_NONE;
}
int64_t dlab_batch_running(const dlab_batch_state *st, const int *seqs, int n);
/* Moves the queue's first request to as many sequences as it has samples, and appends them to seqs [batch_size], n of them so
 * far; *n stays as it is when none waits or may start, or when the batch, its budget, the sequences or the store have no
 * place for it now: nobody is let past it. Of several samples the first is the others' leader. running: how many sequences
 * it must leave room for (dlab_batch_state's slack). */
dlab_status dlab_batch_admit(dlab_batch_state *st, int64_t running, int *seqs, int *n, dlab_error *err);
/* Those that gave their place back go on, the oldest first, as soon as there is room; ended ones that still hold a place
 * make it. *all: nobody is left who waits for a place. */
dlab_status dlab_batch_resume(dlab_batch_state *st, const int *seqs, int n, bool *all, dlab_error *err);
/* dlab_batcher_ops' victim: an ended one that holds a place, else the newest that runs but the oldest; −1: none. */
int dlab_batch_victim(const dlab_batch_state *st, const int *seqs, int n);
/* A live sequence's request has ended. */
void dlab_batch_end(dlab_batch_state *st, dlab_seq *s, dlab_finish how);

#endif

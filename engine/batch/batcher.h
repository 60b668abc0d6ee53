/* Batchers, one file each in engine/batch/modes: who runs in the next step, and with which rows. */
#ifndef DLAB_ENGINE_BATCH_BATCHER_H
#define DLAB_ENGINE_BATCH_BATCHER_H

#include "engine/engine.h"

/* A sequence: the ids known so far and how many of them are in the store. */
typedef struct {
    int32_t *ids; /* [max_tokens + 1] */
    int64_t n_ids, n_stored;
    int64_t n_primed; /* ids that stay when the request ends; 0: not primed */
    bool open;        /* has a place in the store */
    bool running;     /* belongs to a request */
    bool primed;
    dlab_finish finish; /* not NONE: the request has ended; a batcher may hold the sequence until it releases it */
    int64_t request, max_new, n_new;
    int32_t eos;
    uint64_t seed;
} dlab_seq;

/* Rows of one sequence in a step: n_pad padding rows, which stand at positions pad_pos …, then n_rows real ones at
 * positions first …. */
typedef struct {
    int seq;
    int64_t first, pad_pos;
    int32_t n_rows, n_pad;
} dlab_slice;

typedef struct dlab_queued {
    struct dlab_queued *next;
    dlab_engine_request request; /* prompt points at `prompt` */
    int64_t cap;
    int32_t prompt[];
} dlab_queued;

/* What a batcher sees and changes. */
typedef struct {
    dlab_seq *seqs;
    int n_seqs;
    dlab_queued *head, *tail, *spare;        /* waiting requests in order of arrival; spare nodes */
    bool retains;                            /* the store keeps K and V */
    int64_t batch_size, token_budget, chunk; /* effective: rows a step, rows of a sequence a step */
    bool pad;                                /* batch.padding: compute */
    int64_t *admitted;                       /* [batch_size] requests admitted in this step */
    int n_admitted;
    dlab_status (*open)(void *ctx, int seq, dlab_error *err); /* gives a sequence its place */
    void (*close)(void *ctx, int seq);                        /* takes it back, or rewinds a primed one */
    void *ctx;
} dlab_batch_state;

typedef struct dlab_batcher dlab_batcher;

typedef struct {
    const char *name, *summary;
    dlab_status (*create)(const dlab_batch_state *st, dlab_batcher **out, dlab_error *err);
    void (*destroy)(dlab_batcher *b);
    /* Fills out [batch_size] with the next step's slices, *n of them; 0 when it can start nothing. */
    dlab_status (*next)(dlab_batcher *b, dlab_batch_state *st, dlab_slice *out, int *n, dlab_error *err);
    /* After each step: gives back the places of what has ended, as soon as the mode allows. */
    void (*settle)(dlab_batcher *b, dlab_batch_state *st);
    void (*reset)(dlab_batcher *b); /* all sequences were dropped */
} dlab_batcher_ops;

struct dlab_batcher {
    const dlab_batcher_ops *ops; /* first member */
};

extern const dlab_batcher_ops *const dlab_batchers[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_batcher_ops *dlab_batcher_find(const char *name);
/* Moves the first waiting request to a sequence; *seq is −1 when none is waiting or no sequence is free. */
dlab_status dlab_batch_admit(dlab_batch_state *st, int *seq, dlab_error *err);
/* Ids of a sequence that the next step must compute: those not in the store, or all of them. */
int64_t dlab_seq_due(const dlab_batch_state *st, const dlab_seq *s);

#endif

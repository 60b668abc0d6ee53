/* KV stores, one file each in engine/kv/stores: where each token's K and V live.
 *
 * A store hands out sequences, gives every position of a sequence a place (a region and an index in it, see dlab_kv_plane in
 * kernels/op.h), and shows attention a sequence as segments of its device buffers. It never computes: it moves bytes with
 * the device's copy. Positions are counted from 0; lengths are in tokens.
 *
 * A sequence's life: open (its prefix may be found in the cache) or fork → extend, place and segments for a step, commit
 * after it → … → retire when its request has ended but its place is not given back yet → close. */
#ifndef DLAB_ENGINE_KV_STORE_H
#define DLAB_ENGINE_KV_STORE_H

#include "engine/engine.h"
#include "engine/kv/format.h"
#include "kernels/device.h"

typedef struct {
    dlab_device *dev;
    dlab_kv_layout k, v;
    int32_t n_layers, n_kv_heads, head_dim;
    int64_t max_seqs;
    int64_t max_tokens;   /* longest sequence */
    int64_t first_tokens; /* where a growing store starts */
    bool grow;            /* kv.growth: double */
    int64_t block_tokens; /* kv.block_size */
    int64_t pool_bytes;   /* kv.pool in bytes: the store takes at most so much (while it
                             grows, the old size beside the new one); 0: what max_seqs and max_tokens need */
    bool prefix_cache;    /* kv.prefix_cache */
    /* Hash of a block's tokens on top of its prefix's; NULL: xxHash64. Tests force collisions with it. */
    uint64_t (*hash)(uint64_t prefix, const int32_t *ids, size_t n);
} dlab_kv_config;

typedef struct dlab_kv_store dlab_kv_store;

/* A sequence that was copied out of its store (engine/kv/swap.h). bytes 0: there is none. */
typedef struct {
    int64_t bytes, first_piece;
    int64_t live, from; /* tokens of the sequence; those below `from` are not in the image: the sequence kept them */
    int64_t k_sealed, v_sealed; /* of the tails */
} dlab_kv_image;
typedef struct dlab_kv_cursor dlab_kv_cursor;

typedef struct {
    const char *name, *summary;
    bool retains; /* false: K and V are gone after the step, so the whole prefix is submitted again */
    bool shares;  /* can keep prefixes for later sequences (kv.prefix_cache) */
    int64_t (*max_segs)(const dlab_kv_config *cfg); /* segments that one sequence may have */
    /* Bytes of the pool that create will allocate, tails included. */
    int64_t (*bytes)(const dlab_kv_config *cfg);
    /* DLAB_EIMPOSSIBLE when kv.pool holds not even one sequence of one token (or, reserved, of the maximum). */
    dlab_status (*create)(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err);
    void (*destroy)(dlab_kv_store *s);

    /* seq: 0 … max_seqs − 1, chosen by the caller, who opens each once before use and closes it after. ids [n]: what it
     * will hold, as far as known; *n_cached ≤ n: tokens that it holds already, from the prefix cache. DLAB_EFULL: the
     * store has no place for another sequence now. */
    dlab_status (*open)(dlab_kv_store *s, int seq, const int32_t *ids, int64_t n, int64_t *n_cached, dlab_error *err);
    /* Opens child with the first len tokens of parent (≤ its live tokens): shared, or copied. DLAB_EFULL as for open. */
    dlab_status (*fork)(dlab_kv_store *s, int parent, int child, int64_t len, dlab_error *err);
    void (*close)(dlab_kv_store *s, int seq);
    /* Between runs: closed sequences leave nothing behind (cached prefixes are dropped), and the store has its first size
     * again, or as much more as live sequences need. Where there is no memory for the smaller copy, it stays as it is. */
    void (*reset)(dlab_kv_store *s);
    /* Room for tokens 0 … len − 1, each of whose places from the live length on may then be written (a shared block is
     * copied first). Rows that only pad may look at tokens up to `span`, which need hold nothing. May move the whole store
     * (counted as a growth). DLAB_EFULL: no place left, the sequence is as it was. */
    dlab_status (*extend)(dlab_kv_store *s, int seq, int64_t len, int64_t span, dlab_error *err);
    /* After a step: the sequence's tokens 0 … len − 1 are ids [len], written. */
    void (*commit)(dlab_kv_store *s, int seq, const int32_t *ids, int64_t len);
    /* The sequence will be rewound to its length of now; kept until it is closed or marked again. */
    dlab_status (*mark)(dlab_kv_store *s, int seq, dlab_error *err);
    /* Back to the mark: later tokens are gone. */
    dlab_status (*rewind)(dlab_kv_store *s, int seq, dlab_error *err);
    /* The request has ended: the place is held, but no token in it is live. */
    void (*retire)(dlab_kv_store *s, int seq);
    /* What copying the sequence out would take: live, from and bytes (of all layers, K and V, tails), which follow from its
     * length and its mark alone. One that shares blocks counts them as its own. NULL, as swap: the store retains nothing. */
    void (*measure)(const dlab_kv_store *s, int seq, dlab_kv_image *out);
    /* Moves the sequence's bytes to the image, or (by the cursor) back, where the sequence is live then. See
     * dlab_kv_swap_out and dlab_kv_swap_in. What comes back is the sequence's alone, whoever shared it before. */
    dlab_status (*swap)(dlab_kv_store *s, int seq, dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err);

    /* Where position pos goes, as dlab_desc_row has it. Slots are −1 where the token is held already (pos below the live
     * length): it is computed for its logits only. */
    void (*place)(const dlab_kv_store *s, int seq, int64_t pos, dlab_desc_row *row);
    /* Fills out with segments that cover tokens 0 … len − 1; returns how many (≤ max_segs). */
    int32_t (*segments)(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seg *out);
    /* The tail's part of dlab_desc_seq, for a step after which the sequence holds len tokens. */
    void (*tails)(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seq *out);
    void (*view)(const dlab_kv_store *s, int layer, dlab_kv_view *out);
    void (*stats)(const dlab_kv_store *s, dlab_kv_stats *out);

    /* Tokens that one more sequence could be given now, cached prefixes evicted; INT64_MAX: no bound but max_tokens; 0: no
     * place. And the longest sequence that could ever fit, alone. */
    int64_t (*room)(const dlab_kv_store *s);
    int64_t (*capacity)(const dlab_kv_store *s);
} dlab_kv_store_ops;

struct dlab_kv_store {
    const dlab_kv_store_ops *ops; /* first member of every store */
};

extern const dlab_kv_store_ops *const dlab_kv_stores[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_kv_store_ops *dlab_kv_store_find(const char *name);

/* ---- tails: the most recent tokens of each sequence in f16, the common part of all stores; nothing where neither K nor V
 * has a tail ---- */

typedef struct {
    dlab_buf k, v;                /* [layers, seqs, heads, tail_cap, head_dim] f16; ptr NULL: no tail */
    dlab_buf k_marks, v_marks;    /* the same, as they were when a sequence was marked */
    int64_t *k_sealed, *v_sealed; /* [seqs] tokens that are in their regions */
    int64_t *k_marked, *v_marked;
} dlab_kv_tails;

int64_t dlab_kv_tails_bytes(const dlab_kv_config *cfg, int32_t layers);
dlab_status dlab_kv_tails_create(const dlab_kv_config *cfg, int32_t layers, dlab_kv_tails *out, dlab_error *err);
void dlab_kv_tails_destroy(const dlab_kv_config *cfg, dlab_kv_tails *t);
/* A new sequence of which the first n_cached tokens are sealed. */
void dlab_kv_tails_open(const dlab_kv_config *cfg, dlab_kv_tails *t, int seq, int64_t n_cached);
/* Can a sequence that goes on behind the first len tokens of seq use what seq has sealed? DLAB_EIMPOSSIBLE where len ends
 * inside a group: its scales know tokens that the other sequence does not have. Asked before a fork. */
dlab_status dlab_kv_tails_can_cut(const dlab_kv_config *cfg, const dlab_kv_tails *t, int seq, int64_t len,
                                  dlab_error *err);
/* After a fork at len < the parent's tokens: no more than len are sealed. */
void dlab_kv_tails_cut(const dlab_kv_config *cfg, dlab_kv_tails *t, int seq, int64_t len);
/* child gets parent's tails. */
dlab_status dlab_kv_tails_fork(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int parent, int child,
                               dlab_error *err);
void dlab_kv_tails_commit(const dlab_kv_config *cfg, dlab_kv_tails *t, int seq, int64_t len);
dlab_status dlab_kv_tails_mark(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq, dlab_error *err);
dlab_status dlab_kv_tails_rewind(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq, dlab_error *err);
void dlab_kv_tails_describe(const dlab_kv_config *cfg, const dlab_kv_tails *t, int seq, int64_t len,
                            dlab_desc_seq *out);
void dlab_kv_tails_view(const dlab_kv_config *cfg, const dlab_kv_tails *t, int layer, dlab_kv_view *out);
/* Tokens of a sequence that are sealed in both K and V: what may be shared. And of the `len` that it had when it was marked. */
int64_t dlab_kv_tails_sealed(const dlab_kv_tails *t, int seq, int64_t len);
int64_t dlab_kv_tails_marked(const dlab_kv_tails *t, int seq, int64_t len);
/* Bytes of one sequence's rings, without marks. */
int64_t dlab_kv_tails_ring_bytes(const dlab_kv_config *cfg, int32_t layers);
/* One sequence's part of dlab_kv_store_ops.swap. */
dlab_status dlab_kv_tails_swap(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq,
                               dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err);

#endif

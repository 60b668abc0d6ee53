/* KV stores, one file each in engine/kv/stores: where each token's K and V live.
 *
 * A store hands out sequences, gives every position of a sequence a place (a slot), and shows attention a sequence as
 * segments of its device buffers. It never computes. Positions are counted from 0; lengths are in tokens. */
#ifndef DLAB_ENGINE_KV_STORE_H
#define DLAB_ENGINE_KV_STORE_H

#include "engine/engine.h"
#include "engine/kv/format.h"
#include "kernels/device.h"

typedef struct {
    dlab_device *dev;
    const dlab_kv_format *k, *v;
    int32_t n_layers, n_kv_heads, head_dim;
    int64_t max_seqs;
    int64_t max_tokens;   /* longest sequence */
    int64_t first_tokens; /* where a growing store starts */
    bool grow;            /* kv.growth: double */
} dlab_kv_config;

typedef struct dlab_kv_store dlab_kv_store;

typedef struct {
    const char *name, *summary;
    bool retains; /* false: K and V are gone after the step, so the whole prefix is submitted again */
    int (*max_segs)(const dlab_kv_config *cfg); /* segments that one sequence may have */
    /* Bytes of the pool that create will allocate. */
    int64_t (*bytes)(const dlab_kv_config *cfg);
    dlab_status (*create)(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err);
    void (*destroy)(dlab_kv_store *s);
    /* seq: 0 … max_seqs − 1, chosen by the caller, who opens each once before use and closes it after. */
    dlab_status (*open)(dlab_kv_store *s, int seq, dlab_error *err);
    void (*close)(dlab_kv_store *s, int seq);
    /* Between runs: the store's first size again, or as much more as live sequences need. Where there is no memory for
     * the smaller copy, the store stays as it is. */
    void (*reset)(dlab_kv_store *s);
    /* Room for tokens 0 … len − 1. DLAB_EOOM when there is none. May move the whole store (counted as a growth). */
    dlab_status (*extend)(dlab_kv_store *s, int seq, int64_t len, dlab_error *err);
    /* The sequence's live tokens are 0 … len − 1 from now on: after a step, rewound, or 0 when its request has ended. */
    void (*set_live)(dlab_kv_store *s, int seq, int64_t len);
    /* Where position pos goes, as dlab_desc_row's slots. */
    void (*place)(const dlab_kv_store *s, int seq, int64_t pos, int64_t *k_slot, int64_t *v_slot);
    /* Fills out with segments that cover tokens 0 … len − 1; returns how many (≤ max_segs). */
    int (*segments)(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seg *out);
    void (*view)(const dlab_kv_store *s, int layer, dlab_kv_view *out);
    void (*stats)(const dlab_kv_store *s, dlab_kv_stats *out);
} dlab_kv_store_ops;

struct dlab_kv_store {
    const dlab_kv_store_ops *ops; /* first member of every store */
};

extern const dlab_kv_store_ops *const dlab_kv_stores[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_kv_store_ops *dlab_kv_store_find(const char *name);

/* ---- slab: a store as [layers, seqs, kv_heads, cap, head_dim] for K and for V, the common part of the stores that reserve
 * whole sequences. Such a store embeds it first and fills its table with these functions where it adds nothing. ---- */

typedef struct {
    dlab_kv_store base;
    dlab_kv_config cfg;
    int32_t layers; /* layers held at once */
    int64_t cap;    /* tokens a sequence */
    dlab_buf k, v;
    int64_t *live; /* [max_seqs] live tokens; −1: closed */
    int64_t n_growths;
} dlab_kv_slab;

int64_t dlab_kv_slab_bytes(const dlab_kv_config *cfg, int32_t layers, int64_t cap);
dlab_status dlab_kv_slab_create(const dlab_kv_store_ops *ops, const dlab_kv_config *cfg, int32_t layers, int64_t cap,
                                dlab_kv_store **out, dlab_error *err);
void dlab_kv_slab_destroy(dlab_kv_store *s);
dlab_status dlab_kv_slab_open(dlab_kv_store *s, int seq, dlab_error *err);
void dlab_kv_slab_close(dlab_kv_store *s, int seq);
void dlab_kv_slab_set_live(dlab_kv_store *s, int seq, int64_t len);
/* Room for len tokens a sequence, doubling the capacity (never beyond cfg.max_tokens): new buffers, live tokens copied, the
 * old buffers freed. DLAB_EOOM beyond the maximum. */
dlab_status dlab_kv_slab_extend(dlab_kv_store *s, int seq, int64_t len, dlab_error *err);
/* Back to first_cap tokens a sequence, or to what live sequences hold. */
void dlab_kv_slab_shrink(dlab_kv_store *s, int64_t first_cap);
int dlab_kv_slab_max_segs(const dlab_kv_config *cfg);
void dlab_kv_slab_place(const dlab_kv_store *s, int seq, int64_t pos, int64_t *k_slot, int64_t *v_slot);
int dlab_kv_slab_segments(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seg *out);
void dlab_kv_slab_view(const dlab_kv_store *s, int layer, dlab_kv_view *out);
void dlab_kv_slab_stats(const dlab_kv_store *s, dlab_kv_stats *out);

#endif

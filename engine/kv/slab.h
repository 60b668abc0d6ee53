/* Slab: a store that reserves a whole region for each sequence, [layers][slots][heads][region] for K and for V; the common
 * part of the stores that do so. Such a store fills its table with these functions where it adds nothing.
 *
 * A slot is the place of one sequence. Without kv.pool there are max_seqs; a fixed slab in a pool has as many as the pool
 * holds, and takes the whole pool: what is short of one more slot lies unusable behind V. A growing slab has max_seqs slots
 * always, and the pool bounds how many tokens each may grow to. */
#ifndef DLAB_ENGINE_KV_SLAB_H
#define DLAB_ENGINE_KV_SLAB_H

#include "engine/kv/store.h"

typedef struct {
    int64_t slots;
    int64_t first_cap, max_cap; /* tokens of a slot: at first, and what it may grow to */
    int64_t slack;              /* bytes behind the slots */
} dlab_kv_slab_shape;

typedef struct {
    int64_t live, mark; /* tokens now, and when it was marked; mark −1: it was not */
    int32_t slot;       /* −1: closed */
} dlab_kv_slab_seq;

typedef struct {
    dlab_kv_store base;
    dlab_kv_config cfg; /* max_seqs: the slots */
    dlab_kv_slab_shape shape;
    int32_t layers; /* layers held at once */
    int64_t cap;    /* tokens of a slot */
    dlab_buf k, v;
    dlab_kv_tails tails;    /* by slot */
    dlab_kv_slab_seq *seqs; /* [n_seqs] */
    int64_t n_seqs;
    int32_t *owner; /* [slots] the sequence, or −1 */
    int64_t n_growths, growth_ns;
} dlab_kv_slab;

/* Bytes of a slot of cap tokens with its tails. */
int64_t dlab_kv_slab_slot_bytes(const dlab_kv_config *cfg, int32_t layers, int64_t cap);
/* grow: slots start at cfg->first_tokens and double, else they have cfg->max_tokens. slots or max_cap is 0 where the pool is
 * too small. */
dlab_kv_slab_shape dlab_kv_slab_shape_of(const dlab_kv_config *cfg, int32_t layers, bool grow);
int64_t dlab_kv_slab_bytes(const dlab_kv_config *cfg, int32_t layers, bool grow);
dlab_status dlab_kv_slab_create(const dlab_kv_store_ops *ops, const dlab_kv_config *cfg, int32_t layers, bool grow,
                                dlab_kv_store **out, dlab_error *err);
void dlab_kv_slab_destroy(dlab_kv_store *s);

/* Members of dlab_kv_store_ops. */
int64_t dlab_kv_slab_max_segs(const dlab_kv_config *cfg);
dlab_status dlab_kv_slab_open(dlab_kv_store *s, int seq, const int32_t *ids, int64_t n, int64_t *n_cached,
                              dlab_error *err);
dlab_status dlab_kv_slab_fork(dlab_kv_store *s, int parent, int child, int64_t len, dlab_error *err);
void dlab_kv_slab_close(dlab_kv_store *s, int seq);
void dlab_kv_slab_reset(dlab_kv_store *s);
dlab_status dlab_kv_slab_extend(dlab_kv_store *s, int seq, int64_t len, int64_t span, dlab_error *err);
void dlab_kv_slab_commit(dlab_kv_store *s, int seq, const int32_t *ids, int64_t len);
dlab_status dlab_kv_slab_mark(dlab_kv_store *s, int seq, dlab_error *err);
dlab_status dlab_kv_slab_rewind(dlab_kv_store *s, int seq, dlab_error *err);
void dlab_kv_slab_retire(dlab_kv_store *s, int seq);
void dlab_kv_slab_measure(const dlab_kv_store *s, int seq, dlab_kv_image *out);
dlab_status dlab_kv_slab_swap(dlab_kv_store *s, int seq, dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err);
void dlab_kv_slab_place(const dlab_kv_store *s, int seq, int64_t pos, dlab_desc_row *row);
int32_t dlab_kv_slab_segments(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seg *out);
void dlab_kv_slab_describe_tails(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seq *out);
void dlab_kv_slab_view(const dlab_kv_store *s, int layer, dlab_kv_view *out);
void dlab_kv_slab_stats(const dlab_kv_store *s, dlab_kv_stats *out);
int64_t dlab_kv_slab_room(const dlab_kv_store *s);
int64_t dlab_kv_slab_capacity(const dlab_kv_store *s);

#endif

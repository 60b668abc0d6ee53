/* K2, K3: one reserved region a sequence, [layers, seqs, kv_heads, capacity, head_dim] for K and for V. Reserved to the
 * maximum at the start (kv.growth fixed), or doubled on demand by one reallocation and copy (double). */
#include "engine/kv/store.h"

extern const dlab_kv_store_ops dlab_kv_store_contiguous;

static int64_t first_cap(const dlab_kv_config *cfg)
{
    return cfg->grow && cfg->first_tokens < cfg->max_tokens ? cfg->first_tokens : cfg->max_tokens;
}

static int64_t bytes(const dlab_kv_config *cfg) { return dlab_kv_slab_bytes(cfg, cfg->n_layers, first_cap(cfg)); }

static dlab_status create(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err)
{
    return dlab_kv_slab_create(&dlab_kv_store_contiguous, cfg, cfg->n_layers, first_cap(cfg), out, err);
}

static void reset(dlab_kv_store *s) { dlab_kv_slab_shrink(s, first_cap(&((dlab_kv_slab *)s)->cfg)); }

const dlab_kv_store_ops dlab_kv_store_contiguous = {
    .name = "contiguous",
    .summary = "one reserved region a sequence; only new positions are projected",
    .retains = true,
    .max_segs = dlab_kv_slab_max_segs,
    .bytes = bytes,
    .create = create,
    .destroy = dlab_kv_slab_destroy,
    .open = dlab_kv_slab_open,
    .close = dlab_kv_slab_close,
    .reset = reset,
    .extend = dlab_kv_slab_extend,
    .set_live = dlab_kv_slab_set_live,
    .place = dlab_kv_slab_place,
    .segments = dlab_kv_slab_segments,
    .view = dlab_kv_slab_view,
    .stats = dlab_kv_slab_stats,
};

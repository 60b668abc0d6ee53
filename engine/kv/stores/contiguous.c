/* K2, K3: one reserved region a sequence, [layers, slots, kv_heads, region] for K and for V. Reserved to the maximum at the
 * start (kv.growth fixed), or doubled on demand by one reallocation and copy (double). */
#include "engine/kv/slab.h"

extern const dlab_kv_store_ops dlab_kv_store_contiguous;

static int64_t bytes(const dlab_kv_config *cfg) { return dlab_kv_slab_bytes(cfg, cfg->n_layers, cfg->grow); }

static dlab_status create(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err)
{
    return dlab_kv_slab_create(&dlab_kv_store_contiguous, cfg, cfg->n_layers, cfg->grow, out, err);
}

const dlab_kv_store_ops dlab_kv_store_contiguous = {
    .name = "contiguous",
    .summary = "one reserved region a sequence; only new positions are projected",
    .retains = true,
    .max_segs = dlab_kv_slab_max_segs,
    .bytes = bytes,
    .create = create,
    .destroy = dlab_kv_slab_destroy,
    .open = dlab_kv_slab_open,
    .fork = dlab_kv_slab_fork,
    .close = dlab_kv_slab_close,
    .reset = dlab_kv_slab_reset,
    .extend = dlab_kv_slab_extend,
    .commit = dlab_kv_slab_commit,
    .mark = dlab_kv_slab_mark,
    .rewind = dlab_kv_slab_rewind,
    .retire = dlab_kv_slab_retire,
    .measure = dlab_kv_slab_measure,
    .swap = dlab_kv_slab_swap,
    .place = dlab_kv_slab_place,
    .segments = dlab_kv_slab_segments,
    .tails = dlab_kv_slab_describe_tails,
    .view = dlab_kv_slab_view,
    .stats = dlab_kv_slab_stats,
    .room = dlab_kv_slab_room,
    .capacity = dlab_kv_slab_capacity,
};

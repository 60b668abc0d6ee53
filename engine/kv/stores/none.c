/* K1: no cache. K and V of the step's rows pass through a buffer of one layer, which the next layer overwrites, so every
 * step submits the whole prefix again, and no sequence ever has a live token. */
#include "engine/kv/slab.h"

extern const dlab_kv_store_ops dlab_kv_store_none;

static int64_t bytes(const dlab_kv_config *cfg) { return dlab_kv_slab_bytes(cfg, 1, false); }

static dlab_status create(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err)
{
    return dlab_kv_slab_create(&dlab_kv_store_none, cfg, 1, false, out, err);
}

static void view(const dlab_kv_store *s, int layer, dlab_kv_view *out)
{
    (void)layer;
    dlab_kv_slab_view(s, 0, out);
}

const dlab_kv_store_ops dlab_kv_store_none = {
    .name = "none",
    .summary = "no cache: every step recomputes the whole prefix (a buffer of one layer holds K and V meanwhile)",
    .retains = false,
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
    .place = dlab_kv_slab_place,
    .segments = dlab_kv_slab_segments,
    .tails = dlab_kv_slab_describe_tails,
    .view = view,
    .stats = dlab_kv_slab_stats,
    .room = dlab_kv_slab_room,
    .capacity = dlab_kv_slab_capacity,
};

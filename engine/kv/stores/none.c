/* K1: no cache. K and V of the step's rows pass through a buffer of one layer, which the next layer overwrites, so every
 * step submits the whole prefix again. */
#include "engine/kv/store.h"

extern const dlab_kv_store_ops dlab_kv_store_none;

static int64_t bytes(const dlab_kv_config *cfg) { return dlab_kv_slab_bytes(cfg, 1, cfg->max_tokens); }

static dlab_status create(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err)
{
    return dlab_kv_slab_create(&dlab_kv_store_none, cfg, 1, cfg->max_tokens, out, err);
}

static void view(const dlab_kv_store *s, int layer, dlab_kv_view *out)
{
    (void)layer;
    dlab_kv_slab_view(s, 0, out);
}

static void reset(dlab_kv_store *s) { (void)s; }

const dlab_kv_store_ops dlab_kv_store_none = {
    .name = "none",
    .summary = "no cache: every step recomputes the whole prefix (a buffer of one layer holds K and V meanwhile)",
    .retains = false,
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
    .view = view,
    .stats = dlab_kv_slab_stats,
};

/* batch.preemption: swap: what a sequence holds is copied out when it gives its place back, and copied back when it gets one
 * again. What does not fit in the area is computed again, as without one. */
#include <stdlib.h>

#include "engine/core.h"

dlab_status dlab_engine_swap_create(dlab_engine *e, dlab_error *err)
{
    const dlab_resolved *r = &e->plan;
    if (r->swap_pieces == 0) return DLAB_OK;
    e->images = calloc((size_t)r->needs.max_seqs, sizeof *e->images);
    if (!e->images) return DLAB_FAIL(err, DLAB_EOOM, "engine: no memory for %lld images", (long long)r->needs.max_seqs);
    const dlab_status st = dlab_kv_swap_create(e->fwd.dev, r->swap_piece_bytes, r->swap_pieces, &e->swap, err);
    return st == DLAB_OK ? st : dlab_error_prefix(err, st, "kv.swap of %lld bytes", (long long)r->plan.kv_swap_bytes);
}

void dlab_engine_swap_destroy(dlab_engine *e)
{
    dlab_kv_swap_destroy(&e->swap);
    free(e->images);
}

dlab_status dlab_engine_swap_out(dlab_engine *e, int seq, dlab_error *err)
{
    const dlab_seq *s = &e->batch.seqs[seq];
    if (!e->images || s->finish != DLAB_FINISH_NONE || s->n_live <= s->n_primed) return DLAB_OK;
    const dlab_status st = dlab_kv_swap_out(&e->swap, e->fwd.store, seq, &e->images[seq], err);
    if (st == DLAB_EFULL) return DLAB_OK;
    DLAB_TRY(st);
    e->swapped.n_out++;
    e->swapped.bytes += e->images[seq].bytes;
    return DLAB_OK;
}

bool dlab_engine_is_swapped(const dlab_engine *e, int seq) { return e->images && e->images[seq].bytes > 0; }

dlab_status dlab_engine_swap_in(dlab_engine *e, int seq, int64_t *n_held, dlab_error *err)
{
    const dlab_kv_image image = e->images[seq];
    DLAB_TRY(dlab_kv_swap_in(&e->swap, e->fwd.store, seq, &e->images[seq], err));
    *n_held = image.live;
    e->swapped.n_in++;
    e->swapped.bytes += image.bytes;
    return DLAB_OK;
}

void dlab_engine_swap_drop(dlab_engine *e, int seq)
{
    if (e->images) dlab_kv_swap_drop(&e->swap, &e->images[seq]);
}

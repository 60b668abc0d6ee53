/* A paged sequence's blocks to a swap area and back: whole blocks, each K and V of all layers, then the tails. */
#include <assert.h>

#include "base/int.h"
#include "engine/kv/paged.h"
#include "engine/kv/swap.h"

/* Of a marked sequence, the blocks before this token are final since the mark: a rewind leaves them, and nobody writes them. */
static int64_t kept_tokens(const dlab_kv_paged *s, int seq)
{
    const int64_t marked = s->seqs[seq].marked, tokens = s->cfg.block_tokens;
    return marked < 0 ? 0 : dlab_kv_tails_marked(&s->tails, seq, marked) / tokens * tokens;
}

void dlab_kv_paged_measure(const dlab_kv_store *base, int seq, dlab_kv_image *out)
{
    const dlab_kv_paged *s = (const dlab_kv_paged *)base;
    out->live = s->seqs[seq].live;
    out->from = kept_tokens(s, seq);
    const int64_t blocks = dlab_ceil_div(out->live - out->from, s->cfg.block_tokens);
    out->bytes =
        blocks * s->cfg.n_layers * (s->k_block + s->v_block) + dlab_kv_tails_ring_bytes(&s->cfg, s->cfg.n_layers);
}

dlab_status dlab_kv_paged_swap(dlab_kv_store *base, int seq, dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err)
{
    dlab_kv_paged *s = (dlab_kv_paged *)base;
    const int64_t tokens = s->cfg.block_tokens, *table = s->tables + seq * s->max_blocks;
    const int64_t end = dlab_ceil_div(image->live, tokens);
    assert(s->seqs[seq].n_blocks >= end);
    for (int64_t i = image->from / tokens; i < end; i++) {
        assert(c->out || (s->pool.blocks[table[i]].refs == 1 && !s->pool.blocks[table[i]].kept));
        for (int64_t layer = 0; layer < s->cfg.n_layers; layer++) {
            const int64_t block = layer * (1 + s->pool.n) + table[i];
            DLAB_TRY(dlab_kv_swap_move(c, (dlab_at){s->k, (size_t)(block * s->k_block)}, s->k_block, err));
            DLAB_TRY(dlab_kv_swap_move(c, (dlab_at){s->v, (size_t)(block * s->v_block)}, s->v_block, err));
        }
    }
    DLAB_TRY(dlab_kv_tails_swap(&s->cfg, &s->tails, s->cfg.n_layers, seq, image, c, err));
    s->seqs[seq].live = image->live;
    return DLAB_OK;
}

/* What must hold in a paged store at any time. */
#include <stdlib.h>

#include "engine/kv/paged.h"

dlab_status dlab_kv_paged_check(const dlab_kv_store *base, dlab_error *err)
{
    const dlab_kv_paged *s = (const dlab_kv_paged *)base;
    dlab_block_table *tables = calloc((size_t)s->cfg.max_seqs, sizeof *tables);
    if (!tables) return DLAB_FAIL(err, DLAB_EOOM, "no memory to check %lld sequences", (long long)s->cfg.max_seqs);
    dlab_status st = DLAB_OK;
    for (int seq = 0; seq < s->cfg.max_seqs && st == DLAB_OK; seq++) {
        const dlab_paged_seq *q = &s->seqs[seq];
        tables[seq] = (dlab_block_table){s->tables + seq * s->max_blocks, q->n_blocks};
        if (q->live > q->n_blocks * s->cfg.block_tokens || q->marked > q->live ||
            q->n_linked * s->cfg.block_tokens > q->live || (!q->open && q->n_blocks > 0)) {
            st = DLAB_FAIL(err, DLAB_EINTERNAL,
                           "sequence %d (open %d): %lld live tokens, mark %lld, %lld blocks, %lld linked", seq, q->open,
                           (long long)q->live, (long long)q->marked, (long long)q->n_blocks, (long long)q->n_linked);
        }
    }
    if (st == DLAB_OK) {
        st = dlab_block_pool_check(&s->pool, s->cfg.prefix_cache ? &s->index : NULL, tables, s->cfg.max_seqs, err);
    }
    free(tables);
    return st;
}

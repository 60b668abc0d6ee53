/* Where the cache has a token, and which tokens a row visits. */
#include <assert.h>
#include <stddef.h>

#include "kernels/ref/ref.h"

const dlab_desc_seg *dlab_ref_segment(const dlab_desc_head *desc, int32_t seq, int32_t token)
{
    const dlab_desc_seq *s = &dlab_desc_seqs(desc)[seq];
    const dlab_desc_seg *segs = dlab_desc_segs(desc) + s->seg_begin;
    for (int32_t i = 0; i < s->n_segs; i++)
        if (token >= segs[i].tok_begin && token - segs[i].tok_begin < segs[i].n_tok) return &segs[i];
    assert(!"a token that no segment holds");
    return NULL;
}

static char *region(const dlab_kv_plane *p, int64_t off, int32_t head)
{
    return (char *)dlab_host_ptr(p->base) + off + head * p->head_stride;
}

void *dlab_ref_vector(const dlab_kv_plane *p, int64_t off, int32_t head, int32_t index)
{
    return region(p, off, head) + index * p->token_stride;
}

uint32_t *dlab_ref_metas(const dlab_kv_plane *p, int64_t off, int32_t head)
{
    return (uint32_t *)(void *)(region(p, off, head) + p->meta_off);
}

int64_t dlab_ref_meta_index(const dlab_kv_plane *p, int32_t head_dim, int32_t index, int32_t i)
{
    const int32_t block = dlab_dtype_block(DLAB_U4), blocks = p->dtype == DLAB_U4 ? (head_dim + block - 1) / block : 1;
    switch (p->scales) {
    case DLAB_SCALES_BLOCK:
        return index / p->group;
    case DLAB_SCALES_CHANNEL:
        return (int64_t)(index / p->group) * head_dim + i;
    default:
        return (int64_t)index * blocks + (p->dtype == DLAB_U4 ? i / block : 0);
    }
}

void *dlab_ref_tail_vector(const dlab_kv_plane *p, int32_t head_dim, int32_t tail_slot, int32_t head, int32_t pos)
{
    return (char *)dlab_host_ptr(p->tail) + tail_slot * p->tail_seq_stride + head * p->tail_head_stride +
           (int64_t)(pos % p->tail_cap) * head_dim * (int64_t)sizeof(uint16_t);
}

static double stored(const dlab_kv_plane *p, int32_t head_dim, int64_t off, int32_t head, int32_t index, int32_t i)
{
    const void *vector = dlab_ref_vector(p, off, head, index);
    if (p->scales == DLAB_SCALES_NONE) return dlab_ref_element(vector, p->dtype, i);
    const uint32_t meta = dlab_ref_metas(p, off, head)[dlab_ref_meta_index(p, head_dim, index, i)];
    return dlab_ref_decode(p->dtype, meta, dlab_ref_get_code(vector, p->dtype, i));
}

static void cached(const dlab_kv_plane *p, int32_t head_dim, bool in_tail, int32_t tail_slot, int64_t off,
                   int32_t index, int32_t token, int32_t head, double *out)
{
    for (int32_t i = 0; i < head_dim; i++) {
        out[i] = in_tail ? dlab_ref_element(dlab_ref_tail_vector(p, head_dim, tail_slot, head, token), DLAB_F16, i)
                         : stored(p, head_dim, off, head, index, i);
    }
}

void dlab_ref_cached_k(const dlab_kv_view *kv, const dlab_desc_head *desc, int32_t seq, int32_t token, int32_t head,
                       double *out)
{
    const dlab_desc_seq *s = &dlab_desc_seqs(desc)[seq];
    const dlab_desc_seg *seg = dlab_ref_segment(desc, seq, token);
    cached(&kv->k, kv->head_dim, kv->k.tail_cap > 0 && token >= s->k_sealed, s->tail_slot, seg->k_off,
           token - seg->tok_begin, token, head, out);
}

void dlab_ref_cached_v(const dlab_kv_view *kv, const dlab_desc_head *desc, int32_t seq, int32_t token, int32_t head,
                       double *out)
{
    const dlab_desc_seq *s = &dlab_desc_seqs(desc)[seq];
    const dlab_desc_seg *seg = dlab_ref_segment(desc, seq, token);
    cached(&kv->v, kv->head_dim, kv->v.tail_cap > 0 && token >= s->v_sealed, s->tail_slot, seg->v_off,
           token - seg->tok_begin, token, head, out);
}

dlab_ref_walk dlab_ref_visit(const dlab_span_table *table, const dlab_desc_head *desc, int32_t n_rows, int64_t row,
                             int32_t kv_head)
{
    const dlab_desc_row *rows = dlab_desc_rows(desc);
    if (!table->at.buf.ptr) return (dlab_ref_walk){.dense = {0, rows[row].pos + 1, 1}, .n_spans = 1};
    const int32_t *first = dlab_host_ptr(table->at);
    const dlab_span *spans = (const dlab_span *)(first + (int64_t)n_rows * table->heads + 1);
    const int64_t list = row * table->heads + (table->heads > 1 ? kv_head : 0);
    return (dlab_ref_walk){.spans = spans + first[list], .n_spans = first[list + 1] - first[list]};
}

bool dlab_ref_next(dlab_ref_walk *w, int32_t *token)
{
    for (; w->span < w->n_spans; w->span++, w->i = 0) {
        const dlab_span *s = w->spans ? &w->spans[w->span] : &w->dense;
        if (w->i == s->count) continue;
        *token = s->begin + w->i++ * s->step;
        return true;
    }
    return false;
}

double dlab_ref_dot(const float *q, const double *k, int32_t dim)
{
    double sum = 0;
    for (int32_t i = 0; i < dim; i++) sum += (double)q[i] * k[i];
    return sum;
}

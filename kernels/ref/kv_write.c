#include <assert.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* A step's keys or values on their way into the store. */
typedef struct {
    const dlab_kv_plane *p;
    const dlab_desc_head *desc;
    const float *x; /* rows [R, G, d] */
    int32_t n_rows, n_heads, dim;
    bool keys;
} writer;

/* n tokens of a sequence from pos on, which lie at `index` and on in the region at off. */
typedef struct {
    int32_t row; /* which brings the one token; −1: rows of this step and the tail have them */
    int32_t seq, pos, n, index;
    int64_t off;
    dlab_ref_range step; /* DLAB_SCALES_STEP: of all that the sequence brings */
} piece;

static const dlab_desc_row *row_of(const writer *w, int32_t row) { return &dlab_desc_rows(w->desc)[row]; }

static int64_t slot_of(const writer *w, int32_t row)
{
    return w->keys ? row_of(w, row)->k_slot : row_of(w, row)->v_slot;
}

static const float *incoming(const writer *w, int32_t row, int32_t head)
{
    return w->x + ((int64_t)row * w->n_heads + head) * w->dim;
}

/* The values [d] of a piece's token n. */
static void values_of(const writer *w, const piece *t, int32_t n, int32_t head, float *out)
{
    const int32_t pos = t->pos + n;
    int32_t row = t->row;
    for (int32_t r = 0; r < w->n_rows && row < 0; r++)
        if (row_of(w, r)->seq == t->seq && row_of(w, r)->pos == pos && slot_of(w, r) >= 0) row = r;
    const void *tail =
        row < 0 ? dlab_ref_tail_vector(w->p, w->dim, dlab_desc_seqs(w->desc)[t->seq].tail_slot, head, pos) : NULL;
    for (int32_t i = 0; i < w->dim; i++)
        out[i] = tail ? (float)dlab_ref_element(tail, DLAB_F16, i) : incoming(w, row, head)[i];
}

/* Elements first … end − 1 of a piece's tokens share a scale. */
static void put_shared(const writer *w, const piece *t, int32_t head, int32_t first, int32_t end)
{
    const dlab_kv_plane *p = w->p;
    float x[DLAB_REF_MAX_HEAD_DIM];
    dlab_ref_range range = p->scales == DLAB_SCALES_STEP ? t->step : (dlab_ref_range){0, 0};
    for (int32_t n = 0; n < t->n && p->scales != DLAB_SCALES_STEP; n++) {
        values_of(w, t, n, head, x);
        for (int32_t i = first; i < end; i++) dlab_ref_range_add(&range, x[i]);
    }
    const uint32_t meta = dlab_ref_meta(p->dtype, range);
    dlab_ref_metas(p, t->off, head)[dlab_ref_meta_index(p, w->dim, t->index, first)] = meta;
    for (int32_t n = 0; n < t->n; n++) {
        values_of(w, t, n, head, x);
        void *vector = dlab_ref_vector(p, t->off, head, t->index + n);
        for (int32_t i = first; i < end; i++)
            dlab_ref_put_code(vector, p->dtype, i, dlab_ref_code(p->dtype, meta, x[i]));
    }
}

static int32_t elements_a_scale(const dlab_kv_plane *p, int32_t dim)
{
    if (p->scales == DLAB_SCALES_CHANNEL) return 1;
    if (p->scales == DLAB_SCALES_BLOCK || p->dtype != DLAB_U4) return dim;
    return dlab_dtype_block(DLAB_U4);
}

static void put_piece(const writer *w, const piece *t)
{
    const dlab_kv_plane *p = w->p;
    assert(w->dim <= DLAB_REF_MAX_HEAD_DIM);
    for (int32_t g = 0; g < w->n_heads; g++) {
        /* the padding of U4 is 0 */
        for (int32_t n = 0; n < t->n; n++)
            memset(dlab_ref_vector(p, t->off, g, t->index + n), 0, dlab_dtype_bytes(p->dtype, w->dim));
        if (p->scales == DLAB_SCALES_NONE) {
            float x[DLAB_REF_MAX_HEAD_DIM];
            values_of(w, t, 0, g, x);
            for (int32_t i = 0; i < w->dim; i++)
                dlab_ref_put_element(dlab_ref_vector(p, t->off, g, t->index), p->dtype, i, (double)x[i]);
            continue;
        }
        const int32_t share = elements_a_scale(p, w->dim);
        for (int32_t i = 0; i < w->dim; i += share) put_shared(w, t, g, i, i + share < w->dim ? i + share : w->dim);
    }
}

static dlab_ref_range range_of_step(const writer *w, int32_t seq)
{
    dlab_ref_range range = {0, 0};
    for (int32_t r = 0; r < w->n_rows; r++) {
        if (row_of(w, r)->seq != seq || slot_of(w, r) < 0) continue;
        for (int32_t i = 0; i < w->n_heads * w->dim; i++) dlab_ref_range_add(&range, incoming(w, r, 0)[i]);
    }
    return range;
}

static void write_rows(const writer *w)
{
    dlab_ref_range step = {0, 0};
    for (int32_t r = 0; r < w->n_rows; r++) {
        const dlab_desc_row *row = row_of(w, r);
        if (r == 0 || row->seq != row_of(w, r - 1)->seq) step = range_of_step(w, row->seq);
        if (slot_of(w, r) < 0) continue;
        put_piece(w, &(piece){.row = r, .n = 1, .index = row->index, .off = slot_of(w, r), .step = step});
    }
}

/* What is sealed leaves the tail before newer tokens take its place there. */
static void write_through_tails(const writer *w)
{
    const dlab_desc_seq *seqs = dlab_desc_seqs(w->desc);
    for (int32_t s = 0; s < w->desc->n_seqs; s++) {
        const int32_t end = w->keys ? seqs[s].k_sealed : seqs[s].v_sealed;
        for (int32_t pos = w->keys ? seqs[s].k_sealed_from : seqs[s].v_sealed_from; pos < end; pos += w->p->group) {
            const dlab_desc_seg *seg = dlab_ref_segment(w->desc, s, pos);
            put_piece(w, &(piece){.row = -1,
                                  .seq = s,
                                  .pos = pos,
                                  .n = w->p->group,
                                  .index = pos - seg->tok_begin,
                                  .off = w->keys ? seg->k_off : seg->v_off});
        }
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        const dlab_desc_row *row = row_of(w, r);
        const dlab_desc_seq *s = &seqs[row->seq];
        if (slot_of(w, r) < 0 || row->pos < (w->keys ? s->k_sealed : s->v_sealed)) continue;
        for (int32_t g = 0; g < w->n_heads; g++) {
            void *vector = dlab_ref_tail_vector(w->p, w->dim, s->tail_slot, g, row->pos);
            for (int32_t i = 0; i < w->dim; i++)
                dlab_ref_put_element(vector, DLAB_F16, i, (double)incoming(w, r, g)[i]);
        }
    }
}

static void write_plane(const dlab_kv_write_args *a, const dlab_kv_plane *p, const float *x, bool keys)
{
    const writer w = {p, dlab_host_ptr(a->desc), x, a->n_rows, a->kv.n_kv_heads, a->kv.head_dim, keys};
    if (p->tail_cap > 0)
        write_through_tails(&w);
    else
        write_rows(&w);
}

void dlab_ref_kv_write(const void *args)
{
    const dlab_kv_write_args *a = args;
    write_plane(a, &a->kv.k, dlab_host_ptr(a->k), true);
    write_plane(a, &a->kv.v, dlab_host_ptr(a->v), false);
}

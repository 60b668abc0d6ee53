/* Cases of kv_write: several steps into a small cache, whose every byte is the outcome. */
#ifndef DLAB_TESTS_KERNELS_TEST_CPU_WRITE_CASE_H
#define DLAB_TESTS_KERNELS_TEST_CPU_WRITE_CASE_H

#include "test_cpu_attn_case.h"

typedef struct {
    int kv_heads, dim, segment; /* tokens of a region */
    attn_format k, v;
} write_case;

static const write_case write_cases[] = {
    {3, 64, 64, FMT_F32, FMT_F16},
    {3, 21, 8, FMT_BF16, FMT_F32},
    {2, 64, 16, FMT_F16, FMT_BF16},
    {3, 64, 8, FMT_TOKEN(U8, 0), FMT_TOKEN(U4, 0)},
    {1, 80, 24, FMT_TOKEN(U4, 0), FMT_TOKEN(U8, 0)},
    {2, 33, 16, FMT_TOKEN(E4M3, 0), FMT_TOKEN(E5M2, 0)},
    {2, 128, 16, FMT_TOKEN(E5M2, 0), FMT_TOKEN(E4M3, 0)},
    {3, 64, 16, FMT_STEP(U8), FMT_STEP(E4M3)},
    {2, 20, 8, FMT_STEP(E5M2), FMT_STEP(U8)},
    {3, 64, 16, FMT_BLOCK(U8, 8, 8), FMT_BLOCK(U8, 8, 21)},
    {2, 33, 16, FMT_CHANNEL(U8, 8, 8), FMT_BLOCK(U8, 8, 10)},
    {1, 128, 24, FMT_CHANNEL(U8, 4, 16), FMT_TOKEN(U8, 9)},
    {2, 80, 8, FMT_TOKEN(U4, 17), FMT_TOKEN(U4, 5)},
    {1, 64, 64, FMT_TOKEN(E4M3, 3), FMT_TOKEN(E5M2, 2)},
    {1, 64, 16, FMT_TOKEN(U8, 12), FMT_F16},
    {2, 64, 16, FMT_STEP(U8), FMT_TOKEN(U4, 6)},
    {1, 16, 32, FMT_CHANNEL(U8, 32, 40), FMT_BLOCK(U8, 16, 16)},
};
#define N_WRITE_CASES ((int)(sizeof write_cases / sizeof write_cases[0]))

#define WRITE_SEQS  2
#define WRITE_STEPS 6
#define WRITE_MAX   80 /* tokens of a sequence */

/* Lengths after each step: prompts, single tokens, one sequence that pauses. */
static const int write_lens[WRITE_STEPS][WRITE_SEQS] = {{19, 3}, {20, 3}, {21, 4}, {45, 5}, {46, 31}, {79, 32}};

/* Values of all sizes; vectors of zeros, of one constant, with NaN and infinities, with one huge outlier, too small. */
static inline void fill_write_input(float *x, int rows, int width, dlab_rng *r)
{
    for (int row = 0; row < rows; row++, x += width) {
        const uint64_t kind = dlab_rng_below(r, 10);
        const double sd = pow(10, (double)dlab_rng_below(r, 5) - 3);
        for (int i = 0; i < width; i++) {
            x[i] = random_float(r, sd);
            if (kind == 0) x[i] = 0;
            if (kind == 1) x[i] = -2.5f;
            if (kind == 3) x[i] = (float)dlab_rng_below(r, 511) - 255; /* halves between two codes */
            if (kind == 4) x[i] *= 1e-38f;
            if (kind == 5) x[i] = fabsf(x[i]);
        }
        if (kind == 2) x[width / 2] = 3.3e38f;
        if (kind == 6) x[0] = NAN;
        if (kind == 6) x[width - 1] = -INFINITY;
        if (kind == 6) x[width / 3] = INFINITY;
        if (kind == 7) x[1] = -0.0f;
        if (kind == 7) x[2] = 1.00048828125f; /* halfway between two f16 */
        if (kind == 7) x[3] = 1.00390625f;    /* … two bf16 */
        if (kind == 7) x[4] = 1e9f;           /* infinity in f16 */
    }
}

/* Rows: in each sequence one that writes nothing stands before the new ones. */
static inline int write_rows(const write_case *c, int step, const attn_plane *k, const attn_plane *v, dlab_desc_head *d)
{
    const int segs = (WRITE_MAX + c->segment - 1) / c->segment;
    int row = 0;
    for (int s = 0; s < WRITE_SEQS; s++) {
        const int from = step ? write_lens[step - 1][s] : 0, len = write_lens[step][s];
        dlab_desc_seq seq = {
            .row_begin = row, .seg_begin = s * segs, .n_segs = segs, .len = len, .tail_slot = 5 - 3 * s};
        seq.k_sealed_from = attn_sealed(&c->k, from);
        seq.v_sealed_from = attn_sealed(&c->v, from);
        seq.k_sealed = attn_sealed(&c->k, len);
        seq.v_sealed = attn_sealed(&c->v, len);
        for (int i = 0; i < segs; i++) {
            const int64_t at = s * segs + segs - 1 - i;
            *desc_seg(d, s * segs + i) =
                (dlab_desc_seg){64 + at * (k->p.head_stride * c->kv_heads + 64),
                                64 + at * (v->p.head_stride * c->kv_heads + 64), i * c->segment, c->segment};
        }
        *desc_row(d, row++) = (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = len - 1, .seq = s};
        for (int pos = from; pos < len; pos++) {
            const dlab_desc_seg *seg = desc_seg(d, s * segs + pos / c->segment);
            *desc_row(d, row++) = (dlab_desc_row){
                .k_slot = seg->k_off, .v_slot = seg->v_off, .pos = pos, .seq = s, .index = pos % c->segment};
        }
        seq.n_rows = row - seq.row_begin;
        *desc_seq(d, s) = seq;
    }
    return row;
}

static inline int write_n_rows(int step)
{
    int n = WRITE_SEQS;
    for (int s = 0; s < WRITE_SEQS; s++) n += write_lens[step][s] - (step ? write_lens[step - 1][s] : 0);
    return n;
}

static inline outcome kv_write_outcome(lab *l, const write_case *c)
{
    const int segs = (WRITE_MAX + c->segment - 1) / c->segment * WRITE_SEQS, width = c->kv_heads * c->dim;
    const attn_case layout = {.kv_heads = c->kv_heads, .dim = c->dim, .segment = c->segment};
    attn_plane k = attn_new_plane(&layout, &c->k, WRITE_MAX, segs + 1, 0);
    attn_plane v = attn_new_plane(&layout, &c->v, WRITE_MAX, segs + 1, 0);
    memset(k.region, 0xa5, k.bytes);
    memset(v.region, 0xa5, v.bytes);
    dlab_kv_view kv = {.n_kv_heads = c->kv_heads, .head_dim = c->dim};
    kv.k = attn_put_plane(l, &k);
    kv.v = attn_put_plane(l, &v);
    const dlab_at work = lab_put(l, NULL, WRITE_SEQS * 4 * sizeof(float));
    const size_t room = (size_t)WRITE_MAX * (size_t)width * sizeof(float);
    dlab_rng r;
    dlab_rng_seed(&r, 31);
    for (int step = 0; step < WRITE_STEPS; step++) {
        const int rows = write_n_rows(step);
        size_t bytes;
        dlab_desc_head *d = new_desc(rows, WRITE_SEQS, segs, 0, &bytes);
        ck_assert_int_eq(write_rows(c, step, &k, &v, d), rows);
        float *x = malloc(2 * room);
        fill_write_input(x, 2 * rows, width, &r);
        const size_t used = (size_t)rows * (size_t)width;
        const int kept = l->n_bufs;
        dlab_kv_write_args a = {.k = lab_put(l, x, used * sizeof *x), .v = lab_put(l, x + used, used * sizeof *x)};
        a.desc = lab_put(l, d, bytes);
        a.work = work;
        a.kv = kv;
        a.n_rows = rows;
        lab_submit(l, DLAB_OP_kv_write, &a);
        while (l->n_bufs > kept) l->dev->ops->free(l->dev, DLAB_POOL_ACTIVATIONS, l->bufs[--l->n_bufs]);
        free(x);
        free(d);
    }
    const struct {
        dlab_at at;
        size_t bytes;
    } parts[] = {{kv.k.base, k.bytes}, {kv.v.base, v.bytes}, {kv.k.tail, k.tail_bytes}, {kv.v.tail, v.tail_bytes}};
    outcome o = new_outcome(k.bytes + v.bytes + k.tail_bytes + v.tail_bytes);
    unsigned char *got = malloc(o.n + 1);
    size_t n = 0;
    for (int i = 0; i < 4; i++) {
        lab_get(l, parts[i].at, got + n, parts[i].bytes);
        n += parts[i].bytes;
    }
    for (size_t i = 0; i < o.n; i++) o.value[i] = got[i];
    free(got);
    return o;
}

#endif

/* One sequence in a cache of any format on the ref device, filled step by step, beside what the store must hold. The places
 * are computed here from the words of kernels/op.h, not with the oracle's functions. */
#ifndef DLAB_TESTS_KERNELS_REF_KV_LAB_H
#define DLAB_TESTS_KERNELS_REF_KV_LAB_H

#include <math.h>

#include "base/rng.h"
#include "tests/kernels/ref_fixture.h"

#define LAB_HEADS  2
#define LAB_TOKENS 48
#define LAB_DIM    128
#define LAB_ROWS   (LAB_TOKENS + 2)
#define LAB_POISON 0xCC
#define LAB_FRONT  96 /* bytes before the layer */

typedef struct {
    dlab_dtype dtype;
    dlab_kv_scales scales;
    int group, tail; /* tail: recent tokens that stay in f16; with a group or a tail there is a ring of tail + group */
} kv_case;

/* Every way to keep a plane that the op describes. */
static const kv_case kv_cases[] = {
    {DLAB_F32, DLAB_SCALES_NONE, 1, 0},     {DLAB_F16, DLAB_SCALES_NONE, 1, 0},
    {DLAB_BF16, DLAB_SCALES_NONE, 1, 0},    {DLAB_U8, DLAB_SCALES_TOKEN, 1, 0},
    {DLAB_U8, DLAB_SCALES_STEP, 1, 0},      {DLAB_U8, DLAB_SCALES_BLOCK, 4, 0},
    {DLAB_U8, DLAB_SCALES_CHANNEL, 4, 0},   {DLAB_U8, DLAB_SCALES_TOKEN, 1, 7},
    {DLAB_U8, DLAB_SCALES_BLOCK, 8, 5},     {DLAB_U8, DLAB_SCALES_CHANNEL, 2, 3},
    {DLAB_E4M3, DLAB_SCALES_TOKEN, 1, 0},   {DLAB_E4M3, DLAB_SCALES_STEP, 1, 0},
    {DLAB_E4M3, DLAB_SCALES_BLOCK, 4, 2},   {DLAB_E4M3, DLAB_SCALES_TOKEN, 1, 4},
    {DLAB_E4M3, DLAB_SCALES_CHANNEL, 4, 0}, {DLAB_E5M2, DLAB_SCALES_TOKEN, 1, 0},
    {DLAB_E5M2, DLAB_SCALES_STEP, 1, 0},    {DLAB_E5M2, DLAB_SCALES_BLOCK, 8, 0},
    {DLAB_E5M2, DLAB_SCALES_CHANNEL, 8, 1}, {DLAB_U4, DLAB_SCALES_TOKEN, 1, 0},
    {DLAB_U4, DLAB_SCALES_STEP, 1, 0},      {DLAB_U4, DLAB_SCALES_BLOCK, 4, 0},
    {DLAB_U4, DLAB_SCALES_CHANNEL, 8, 8},   {DLAB_U4, DLAB_SCALES_TOKEN, 1, 16},
};

typedef struct {
    dlab_desc_head head;
    dlab_desc_row rows[LAB_ROWS];
    dlab_desc_seq seqs[2];
    dlab_desc_seg segs[LAB_TOKENS];
} lab_desc;

/* K or V. */
typedef struct {
    kv_case c;
    dlab_kv_plane p;
    int dim, cap, n_regions, sealed;         /* cap: tokens a region */
    float x[LAB_TOKENS][LAB_HEADS][LAB_DIM]; /* what was brought; once in the tail, its f16 */
    int step_of[LAB_TOKENS];                 /* which step brought a token */
} lab_plane;

typedef struct {
    ref_fixture *f;
    lab_plane k, v;
    int dim, len, steps;
    lab_desc desc; /* of the last step */
    dlab_at desc_at;
} kv_lab;

static inline int lab_blocks(const lab_plane *l) { return l->c.dtype == DLAB_U4 ? (l->dim + 31) / 32 : 1; }

static inline int64_t lab_metas(const lab_plane *l)
{
    switch (l->c.scales) {
    case DLAB_SCALES_NONE:
        return 0;
    case DLAB_SCALES_BLOCK:
        return l->cap / l->c.group;
    case DLAB_SCALES_CHANNEL:
        return (int64_t)(l->cap / l->c.group) * l->dim;
    default:
        return (int64_t)l->cap * lab_blocks(l);
    }
}

static inline int64_t lab_region_off(const lab_plane *l, int region)
{
    return (int64_t)(l->n_regions - 1 - region) * LAB_HEADS * l->p.head_stride; /* in the wrong order */
}

/* Regions of 16 tokens; a layer before and one after it, all poisoned. */
static inline void lab_plane_open(ref_fixture *f, lab_plane *l, kv_case c, int dim)
{
    static unsigned char poison[1 << 18];
    memset(poison, LAB_POISON, sizeof poison);
    memset(l, 0, sizeof *l);
    *l = (lab_plane){.c = c, .dim = dim, .cap = 16, .n_regions = LAB_TOKENS / 16};
    dlab_kv_plane *p = &l->p;
    *p = (dlab_kv_plane){.dtype = c.dtype, .scales = c.scales, .group = c.group};
    p->token_stride = ((int64_t)dlab_dtype_bytes(c.dtype, dim) + 7) / 8 * 8;
    p->meta_off = l->cap * p->token_stride + 8;
    p->head_stride = p->meta_off + 4 * lab_metas(l) + 12;
    p->bytes = (size_t)(l->n_regions * LAB_HEADS * p->head_stride);
    const size_t all = LAB_FRONT + p->bytes + LAB_FRONT;
    ck_assert_uint_le(all, sizeof poison);
    p->base = buffer_of(f, poison, all);
    p->base.off = LAB_FRONT;
    if (c.tail == 0 && c.group == 1) return;
    p->tail_cap = c.tail + c.group;
    p->tail_head_stride = p->tail_cap * dim * 2 + 6;
    p->tail_seq_stride = LAB_HEADS * p->tail_head_stride;
    p->tail_bytes = (size_t)(2 * p->tail_seq_stride);
    p->tail = buffer_of(f, poison, p->tail_bytes + 10);
    p->tail.off = 4;
}

static inline void lab_open(kv_lab *l, ref_fixture *f, kv_case k, kv_case v, int dim)
{
    memset(l, 0, sizeof *l);
    l->f = f;
    l->dim = dim;
    lab_plane_open(f, &l->k, k, dim);
    lab_plane_open(f, &l->v, v, dim);
    l->desc_at = buffer_of(f, NULL, sizeof l->desc);
}

static inline dlab_kv_view lab_view(const kv_lab *l)
{
    return (dlab_kv_view){.k = l->k.p, .v = l->v.p, .n_kv_heads = LAB_HEADS, .head_dim = l->dim};
}

static inline int lab_seal(const lab_plane *l, int len)
{
    if (l->p.tail_cap == 0) return len;
    const int full = (len - l->c.tail) / l->c.group * l->c.group;
    return full > l->sealed ? full : l->sealed;
}

/* The descriptor of a step that brings n tokens to sequence 1, after a row of sequence 0 and one of sequence 1 that write
 * nothing. */
static inline void lab_describe(kv_lab *l, int n)
{
    lab_desc *d = &l->desc;
    const int len = l->len + n;
    *d = (lab_desc){.head = {.n_rows = n + 2,
                             .n_seqs = 2,
                             .n_segs = l->k.n_regions,
                             .row_off = offsetof(lab_desc, rows),
                             .seq_off = offsetof(lab_desc, seqs),
                             .seg_off = offsetof(lab_desc, segs)}};
    d->rows[0] = (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = 9, .seq = 0};
    d->rows[1] = (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = l->len, .seq = 1};
    for (int i = 0; i < n; i++) {
        const int pos = l->len + i, region = pos / l->k.cap;
        d->rows[2 + i] = (dlab_desc_row){.k_slot = lab_region_off(&l->k, region),
                                         .v_slot = lab_region_off(&l->v, region),
                                         .pos = pos,
                                         .seq = 1,
                                         .index = pos % l->k.cap};
    }
    d->seqs[0] = (dlab_desc_seq){.n_rows = 1, .tail_slot = 0};
    d->seqs[1] = (dlab_desc_seq){.row_begin = 1,
                                 .n_rows = n + 1,
                                 .n_segs = l->k.n_regions,
                                 .len = len,
                                 .tail_slot = 1,
                                 .k_sealed_from = l->k.sealed,
                                 .k_sealed = lab_seal(&l->k, len),
                                 .v_sealed_from = l->v.sealed,
                                 .v_sealed = lab_seal(&l->v, len)};
    for (int r = 0; r < l->k.n_regions; r++)
        d->segs[r] = (dlab_desc_seg){lab_region_off(&l->k, r), lab_region_off(&l->v, r), r * l->k.cap, l->k.cap};
}

/* What the tail takes is what it can hold. */
static inline void lab_keep(lab_plane *l, const float *x, int begin, int n, int sealed, int step)
{
    for (int t = begin; t < begin + n; t++) {
        l->step_of[t] = step;
        for (int g = 0; g < LAB_HEADS; g++) {
            for (int i = 0; i < l->dim; i++) {
                const float v = x[((size_t)(t - begin) * LAB_HEADS + (size_t)g) * (size_t)l->dim + (size_t)i];
                l->x[t][g][i] = t >= sealed ? dlab_f16_to_f32(dlab_f32_to_f16(v)) : v;
            }
        }
    }
    l->sealed = sealed;
}

/* Brings n more tokens; k, v [n, heads, dim]. */
static inline void lab_step(kv_lab *l, int n, const float *k, const float *v)
{
    static float rows[2][LAB_ROWS * LAB_HEADS * LAB_DIM];
    const size_t width = (size_t)(LAB_HEADS * l->dim), bytes = ((size_t)n + 2) * width * sizeof(float);
    for (size_t i = 0; i < 2 * width; i++) rows[0][i] = rows[1][i] = 1e20f; /* of the rows that write nothing */
    memcpy(rows[0] + 2 * width, k, (size_t)n * width * sizeof(float));
    memcpy(rows[1] + 2 * width, v, (size_t)n * width * sizeof(float));
    lab_describe(l, n);
    ref_fixture *f = l->f;
    const int kept = f->n_bufs;
    ck_assert_int_eq(dlab_host_upload(l->desc_at, &l->desc, sizeof l->desc, NULL), DLAB_OK);
    const dlab_kv_write_args a = {.k = buffer_of(f, rows[0], bytes),
                                  .v = buffer_of(f, rows[1], bytes),
                                  .desc = l->desc_at,
                                  .work = buffer_of(f, NULL, 2 * 2 * 2 * sizeof(float)),
                                  .kv = lab_view(l),
                                  .n_rows = n + 2};
    dlab_error err = {0};
    submit_ok(dlab_submit_kv_write(f->dev, a, &err), &err);
    while (f->n_bufs > kept) f->dev->ops->free(f->dev, DLAB_POOL_SCRATCH, f->bufs[--f->n_bufs]);
    lab_keep(&l->k, k, l->len, n, l->desc.seqs[1].k_sealed, l->steps);
    lab_keep(&l->v, v, l->len, n, l->desc.seqs[1].v_sealed, l->steps);
    l->len += n;
    l->steps++;
}

/* ---- what the bytes say ---- */

static inline const unsigned char *lab_region(const lab_plane *l, int t, int g)
{
    return (const unsigned char *)dlab_host_ptr(l->p.base) + lab_region_off(l, t / l->cap) + g * l->p.head_stride;
}

static inline const unsigned char *lab_elements(const lab_plane *l, int t, int g)
{
    return lab_region(l, t, g) + t % l->cap * l->p.token_stride;
}

static inline const unsigned char *lab_meta_at(const lab_plane *l, int t, int g, int i)
{
    const int index = t % l->cap, group = l->c.group;
    const int64_t n = l->c.scales == DLAB_SCALES_BLOCK     ? index / group
                      : l->c.scales == DLAB_SCALES_CHANNEL ? (int64_t)(index / group) * l->dim + i
                                                           : (int64_t)index * lab_blocks(l) + i / 32 % lab_blocks(l);
    return lab_region(l, t, g) + l->p.meta_off + 4 * n;
}

static inline uint32_t lab_meta(const lab_plane *l, int t, int g, int i)
{
    uint32_t m;
    memcpy(&m, lab_meta_at(l, t, g, i), sizeof m);
    return m;
}

static inline float lab_scale(const lab_plane *l, int t, int g, int i)
{
    const uint32_t bits = lab_meta(l, t, g, i) & 0xFFFFFF00u;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline int lab_code(const lab_plane *l, int t, int g, int i)
{
    const unsigned char *e = lab_elements(l, t, g);
    if (l->c.dtype != DLAB_U4) return e[i];
    const int byte = e[i / 32 * 16 + i % 16];
    return i % 32 < 16 ? byte & 15 : byte >> 4;
}

/* The value of element i as the bytes of its region or of the tail say. */
static inline double lab_value(const lab_plane *l, int t, int g, int i)
{
    uint16_t h;
    float s;
    if (t >= l->sealed && l->p.tail_cap > 0) {
        memcpy(&h,
               (const char *)dlab_host_ptr(l->p.tail) + l->p.tail_seq_stride + g * l->p.tail_head_stride +
                   (t % l->p.tail_cap * l->dim + i) * 2,
               2);
        return (double)dlab_f16_to_f32(h);
    }
    const unsigned char *e = lab_elements(l, t, g);
    switch (l->c.dtype) {
    case DLAB_F32:
        memcpy(&s, e + 4 * i, 4);
        return (double)s;
    case DLAB_F16:
        memcpy(&h, e + 2 * i, 2);
        return (double)dlab_f16_to_f32(h);
    case DLAB_BF16:
        memcpy(&h, e + 2 * i, 2);
        return (double)dlab_bf16_to_f32(h);
    case DLAB_E4M3:
        return (double)dlab_e4m3_to_f32((uint8_t)lab_code(l, t, g, i)) * (double)lab_scale(l, t, g, i);
    case DLAB_E5M2:
        return (double)dlab_e5m2_to_f32((uint8_t)lab_code(l, t, g, i)) * (double)lab_scale(l, t, g, i);
    default:
        return (lab_code(l, t, g, i) - (int)(lab_meta(l, t, g, i) & 255)) * (double)lab_scale(l, t, g, i);
    }
}

#endif

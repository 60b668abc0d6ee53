/* The tokens that a group visits in one piece: where each one's elements are, and its scales. However the cache is cut,
 * the loops over keys and values see only this list. */
#ifndef DLAB_KERNELS_CPU_ATTN_LIST_H
#define DLAB_KERNELS_CPU_ATTN_LIST_H

#include "kernels/cpu/attn.h"
#include "kernels/cpu/simd.h"

#define LIST_TOKENS DLAB_ATTN_PIECE
#define LIST_AHEAD  32 /* so many tokens ahead of their use memory is asked for them */
#define LIST_BEHIND (LIST_AHEAD + VF)

typedef struct {
    int64_t n, n_sealed; /* the first n_sealed in the plane's format, the others in f16 */
    int64_t dim, blocks; /* of a head; scales a token */
    int64_t bytes;       /* of a token's elements */
    /* [token · blocks + block]: scale, and −zero·scale; tokens in regions only, and not where channels have scales */
    float *scale, *shift;
    const char *at[LIST_TOKENS + LIST_BEHIND];
    const char *words[LIST_TOKENS]; /* DLAB_SCALES_CHANNEL: the scales of the token's group */
} attn_list;

static inline int64_t attn_list_scales(const dlab_kv_view *kv)
{
    return LIST_TOKENS *
           dlab_max_i64(dlab_kv_vector_scales(&kv->k, kv->head_dim), dlab_kv_vector_scales(&kv->v, kv->head_dim));
}

/* One plane on its way into a list. */
typedef struct {
    attn_list *list;
    const dlab_kv_plane *p;
    float by; /* times each scale */
    bool keys;
} attn_source;

static inline void list_scales(const attn_list *l, int64_t at, const char *words, int64_t n, float by)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf scale, zero;
        vf_load_scales(words + 4 * i, &scale, &zero);
        scale = vf_mul(scale, vf_set1(by));
        vf_store(l->scale + at + i, scale);
        vf_store(l->shift + at + i, vf_sub(vf_set1(0), vf_mul(zero, scale)));
    }
    for (; i < n; i++) {
        const uint32_t word = load_u32(words + 4 * i), bits = word & ~255u;
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        scale *= by;
        l->scale[at + i] = scale;
        l->shift[at + i] = 0 - (float)(word & 255) * scale;
    }
}

/* Tokens index, index + step, … of a region: n of them, whose scales are shared by `group` tokens. */
static inline void list_groups(const attn_source *s, const char *words, int64_t words_each, int64_t index, int64_t n,
                               int64_t step)
{
    attn_list *l = s->list;
    for (int64_t i = 0; i < n;) {
        const int64_t at = index + i * step, g = at / s->p->group;
        const int64_t in_group = dlab_min_i64(n - i, dlab_ceil_div((g + 1) * s->p->group - at, step));
        const char *own = words + 4 * g * words_each;
        if (s->p->scales == DLAB_SCALES_BLOCK) list_scales(l, l->n + i, own, 1, s->by);
        for (int64_t j = i; j < i + in_group; j++) {
            if (s->p->scales == DLAB_SCALES_BLOCK) {
                l->scale[l->n + j] = l->scale[l->n + i];
                l->shift[l->n + j] = l->shift[l->n + i];
            } else {
                l->words[l->n + j] = own;
            }
        }
        i += in_group;
    }
}

static inline void list_region(const attn_source *s, const char *region, int64_t index, int64_t n, int64_t step)
{
    attn_list *l = s->list;
    const dlab_kv_plane *p = s->p;
    const char *first = region + index * p->token_stride, *words = region + p->meta_off;
    const int64_t apart = step * p->token_stride;
    for (int64_t i = 0; i < n; i++, first += apart) l->at[l->n + i] = first;
    switch (p->scales) {
    case DLAB_SCALES_NONE:
        break;
    case DLAB_SCALES_BLOCK:
        list_groups(s, words, 1, index, n, step);
        break;
    case DLAB_SCALES_CHANNEL:
        list_groups(s, words, l->dim, index, n, step);
        break;
    default:
        if (step == 1) {
            list_scales(l, l->n * l->blocks, words + 4 * index * l->blocks, n * l->blocks, s->by);
            break;
        }
        for (int64_t i = 0; i < n; i++)
            list_scales(l, (l->n + i) * l->blocks, words + 4 * (index + i * step) * l->blocks, l->blocks, s->by);
        break;
    }
    l->n += n;
}

/* The segment that holds `token`, or n_segs. */
static inline int64_t attn_find_segment(const attn_tile *t, int64_t token)
{
    int64_t low = 0, high = t->seq->n_segs;
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if ((int64_t)t->segs[mid].tok_begin + t->segs[mid].n_tok <= token)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Tokens of a span that are in regions; *seg: a segment at or before its first token, moved on to its last. */
static inline void list_sealed(const attn_source *s, const attn_tile *t, dlab_span span, int64_t *seg)
{
    const char *base = (const char *)dlab_host_ptr(s->p->base) + t->group * s->p->head_stride;
    while (span.count > 0) {
        const dlab_desc_seg *at = &t->segs[*seg];
        const int32_t n = (int32_t)span_below(&span, (int64_t)at->tok_begin + at->n_tok);
        if (n > 0) list_region(s, base + (s->keys ? at->k_off : at->v_off), span.begin - at->tok_begin, n, span.step);
        span.begin += n * span.step;
        span.count -= n;
        if (span.count > 0) ++*seg;
    }
}

static inline void list_tail(const attn_source *s, const attn_tile *t, dlab_span span)
{
    const dlab_kv_plane *p = s->p;
    attn_list *l = s->list;
    const char *ring =
        (const char *)dlab_host_ptr(p->tail) + t->seq->tail_slot * p->tail_seq_stride + t->group * p->tail_head_stride;
    int64_t place = span.begin % p->tail_cap;
    for (int32_t i = 0; i < span.count; i++) {
        l->at[l->n++] = ring + place * l->dim * (int64_t)sizeof(uint16_t);
        place += span.step;
        if (place >= p->tail_cap) place %= p->tail_cap;
    }
}

/* Puts behind the list what is worth asking for when it is nearly done: the first tokens of `next`, or its own last. */
static inline void attn_list_follow(attn_list *l, const attn_list *next)
{
    if (l->n == 0) return;
    const int64_t n = next ? dlab_min_i64(LIST_BEHIND, next->n) : 0;
    if (n > 0) memcpy(l->at + l->n, next->at, (size_t)n * sizeof l->at[0]);
    for (int64_t i = n; i < LIST_BEHIND; i++) l->at[l->n + i] = l->at[l->n - 1];
}

/* What `row` visits among positions [begin, end), at most a piece. by: a factor for the scales. */
static inline void attn_list_fill(attn_list *l, const attn_tile *t, bool keys, int64_t row, int64_t begin, int64_t end,
                                  float by)
{
    const dlab_kv_view *kv = t->a->kv;
    const attn_source s = {l, keys ? &kv->k : &kv->v, by, keys};
    const int64_t sealed = s.p->tail_cap == 0 ? INT32_MAX : keys ? t->seq->k_sealed : t->seq->v_sealed;
    l->n = l->n_sealed = 0;
    l->dim = kv->head_dim;
    l->blocks = dlab_kv_vector_scales(s.p, kv->head_dim);
    l->bytes = (int64_t)dlab_dtype_bytes(s.p->dtype, kv->head_dim);
    attn_visits v = attn_visits_of(t, row, begin, end);
    int64_t seg = attn_find_segment(t, begin);
    dlab_span span;
    while (attn_visits_next(&v, &span)) {
        dlab_span part = span;
        part.count = (int32_t)span_below(&span, sealed);
        list_sealed(&s, t, part, &seg);
        l->n_sealed += part.count;
        span.begin += part.count * span.step;
        span.count -= part.count;
        if (span.count > 0) list_tail(&s, t, span);
    }
}

#endif

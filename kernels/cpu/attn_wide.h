/* For many queries a list's tokens become f32 once, some at a time, instead of once for every few queries: the values that
 * the loops see are the same. */
#ifndef DLAB_KERNELS_CPU_ATTN_WIDE_H
#define DLAB_KERNELS_CPU_ATTN_WIDE_H

#include "kernels/cpu/attn_math.h"

#define WIDE_TOKENS  64 /* at a time: with heads of 64 they fill a third of the first cache */
#define WIDE_QUERIES 8  /* from so many on */

/* A list that shows the tokens of another in f32, as many as there is room for. */
typedef struct {
    attn_list *list;
    float *room; /* [WIDE_TOKENS, dim] */
} attn_wide;

static inline size_t attn_wide_floats(int64_t dim) { return (size_t)(WIDE_TOKENS * dim); }

static inline bool attn_widens(const attn_list *l, int64_t n_queries, dlab_dtype type)
{
    return type != DLAB_F32 && n_queries >= WIDE_QUERIES && l->dim % VF == 0;
}

DLAB_INLINE void widen_as(const attn_wide *w, const attn_list *l, int64_t begin, int64_t end, const dlab_dtype type)
{
    for (int64_t t = begin; t < end; t++) {
        float *to = w->room + (t - begin) * l->dim;
        fetch_token(l, t + LIST_AHEAD);
        w->list->at[t] = (const char *)to;
        for (int64_t i = 0; i < l->dim; i += VF) vf_store(to + i, load_token(l, t, i, type));
    }
}

/* Tokens [begin, end) of l, which w shows at the same places. */
static inline void attn_widen(const attn_wide *w, const attn_list *l, int64_t begin, int64_t end, dlab_dtype type)
{
    w->list->n = w->list->n_sealed = end;
    w->list->dim = l->dim;
    w->list->blocks = l->blocks;
    w->list->scale = l->scale;
    w->list->shift = l->shift;
    switch (type) {
#define CASE(t)                                                                                                        \
    case DLAB_##t:                                                                                                     \
        widen_as(w, l, begin, end, DLAB_##t);                                                                          \
        break;
        CASE(F16)
        CASE(BF16)
        CASE(U8)
        CASE(U4)
        CASE(E4M3)
        CASE(E5M2)
#undef CASE
    default:
        break;
    }
}

/* The next tokens of p that w shows, as a part of its list; *t: where they begin, moved on. False at the end. */
static inline bool attn_wide_next(const attn_wide *w, const attn_part *p, dlab_dtype type, int64_t *t, attn_part *out)
{
    if (*t >= p->end) return false;
    *out = *p;
    out->l = w->list;
    out->begin = *t;
    out->end = *t = dlab_min_i64(*t + WIDE_TOKENS, p->end);
    out->fetch = false;
    attn_widen(w, p->l, out->begin, out->end, type);
    return true;
}

static inline void wide_scores(const attn_wide *w, const attn_query *query, int64_t n, const attn_part *p,
                               dlab_dtype type)
{
    const bool scaled = type == DLAB_U8 || type == DLAB_E4M3 || type == DLAB_E5M2;
    attn_part part;
    for (int64_t t = p->begin; attn_wide_next(w, p, type, &t, &part);) {
        if (scaled)
            scores_as(query, n, &part, DLAB_F32, SCORE_SCALED);
        else
            scores_as(query, n, &part, DLAB_F32, SCORE_PLAIN);
    }
}

static inline void wide_values(const attn_wide *w, const attn_sum *sum, int64_t n, const attn_part *p, dlab_dtype type)
{
    attn_part part;
    for (int64_t t = p->begin; attn_wide_next(w, p, type, &t, &part);) values_as(sum, n, &part, DLAB_F32);
}

#endif

/* Scores and weighted values of one group of rows over one piece of positions, in whatever formats K and V are. */
#ifndef DLAB_KERNELS_CPU_ATTN_PIECE_H
#define DLAB_KERNELS_CPU_ATTN_PIECE_H

#include "kernels/cpu/attn_wide.h"

#define SCORES_STRIDE (DLAB_ATTN_PIECE + VF) /* floats from one query's scores to the next one's */

/* A thread's scratch for one group. */
typedef struct {
    attn_list *keys, *values;
    attn_wide wide;
    attn_query *query, *own; /* own: with the scales of channels */
    attn_sum *sum;
    float *scores; /* [queries, SCORES_STRIDE] */
    float *space;  /* own's vectors */
} attn_work;

static inline int64_t attn_most_queries(const attn *a) { return dlab_max_i64(TILE_QUERIES, a->per_row); }

static inline size_t attn_room(size_t n, size_t size) { return (n * size + 63) / 64 * 64; }

/* Bytes of a group's scratch; with at != NULL also where its parts are. */
static inline size_t attn_work_at(const attn *a, char *at, attn_work *out)
{
    const size_t n = (size_t)attn_most_queries(a),
                 scales = attn_room((size_t)attn_list_scales(a->kv) + VF, sizeof(float));
    const bool channel = a->kv->k.scales == DLAB_SCALES_CHANNEL;
    const size_t parts[] = {3 * attn_room(1, sizeof(attn_list)),
                            4 * scales,
                            attn_room(n * SCORES_STRIDE, sizeof(float)),
                            attn_room(n, sizeof(attn_query)),
                            attn_room(n, sizeof(attn_query)),
                            attn_room(n, sizeof(attn_sum)),
                            channel ? attn_room(n * (size_t)a->kv->head_dim, sizeof(float)) : 0,
                            attn_room(attn_wide_floats(a->kv->head_dim), sizeof(float))};
    void *place[sizeof parts / sizeof parts[0]];
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        place[i] = at ? at + bytes : NULL;
        bytes += parts[i];
    }
    if (!at) return bytes;
    *out = (attn_work){.scores = place[2], .query = place[3], .own = place[4], .sum = place[5], .space = place[6]};
    out->keys = place[0];
    out->values = (attn_list *)(void *)((char *)place[0] + attn_room(1, sizeof(attn_list)));
    out->wide.list = (attn_list *)(void *)((char *)place[0] + 2 * attn_room(1, sizeof(attn_list)));
    out->wide.room = place[7];
    float *words = place[1];
    const size_t apart = scales / sizeof(float);
    out->keys->scale = words;
    out->keys->shift = words + apart;
    out->values->scale = words + 2 * apart;
    out->values->shift = words + 3 * apart;
    return bytes;
}

/* What vf_load_as leaves out of the values of a type. */
static inline float attn_type_factor(dlab_dtype t) { return t == DLAB_E4M3 ? 256 : 1; }

/* Lists what the group's longest row visits among positions [begin, end). */
static inline void attn_list_keys(const attn_work *w, const attn_tile *t, const attn_group *g, int64_t begin,
                                  int64_t end)
{
    const dlab_dtype type = t->a->kv->k.dtype;
    attn_list_fill(w->keys, t, true, g->longest, begin, end,
                   type == DLAB_U4 ? 1 : t->a->scale * attn_type_factor(type));
}

static inline void attn_list_values(const attn_work *w, const attn_tile *t, const attn_group *g, int64_t begin,
                                    int64_t end)
{
    attn_list_fill(w->values, t, false, g->longest, begin, end, attn_type_factor(t->a->kv->v.dtype));
}

/* Scores of n queries for all tokens of the list of keys. */
static inline void attn_piece_scores(const attn_tile *t, int64_t n, const attn_work *w)
{
    const dlab_kv_plane *k = &t->a->kv->k;
    const float scale = t->a->scale;
    const attn_part sealed = {w->keys, 0, w->keys->n_sealed, w->keys->dim, scale, true};
    const attn_part tail = {w->keys, w->keys->n_sealed, w->keys->n, w->keys->dim, scale, true};
    const bool channels = k->scales == DLAB_SCALES_CHANNEL;
    if (k->dtype == DLAB_U8 && !channels)
        for (int64_t i = 0; i < n; i++) w->query[i].sum = sum_of(w->query[i].q, w->keys->dim);
    if (!channels && attn_widens(w->keys, n, k->dtype)) {
        wide_scores(&w->wide, w->query, n, &sealed, k->dtype);
        wide_scores(&w->wide, w->query, n, &tail, DLAB_F16);
        return;
    }
    switch (k->dtype) {
    case DLAB_F16:
        scores_as(w->query, n, &sealed, DLAB_F16, SCORE_PLAIN);
        break;
    case DLAB_BF16:
        scores_as(w->query, n, &sealed, DLAB_BF16, SCORE_PLAIN);
        break;
    case DLAB_U4:
        scores_as(w->query, n, &sealed, DLAB_U4, SCORE_PLAIN);
        break;
    case DLAB_E4M3:
        scores_as(w->query, n, &sealed, DLAB_E4M3, SCORE_SCALED);
        break;
    case DLAB_E5M2:
        scores_as(w->query, n, &sealed, DLAB_E5M2, SCORE_SCALED);
        break;
    case DLAB_U8:
        if (channels)
            scores_by_channel(w->query, n, &sealed, w->own, w->space);
        else
            scores_as(w->query, n, &sealed, DLAB_U8, SCORE_SCALED);
        break;
    default:
        scores_as(w->query, n, &sealed, DLAB_F32, SCORE_PLAIN);
        break;
    }
    if (tail.begin < tail.end) scores_as(w->query, n, &tail, DLAB_F16, SCORE_PLAIN);
}

/* Adds the list's values, by the weights of n sums; the weights change. */
static inline void attn_piece_values(const attn_tile *t, int64_t n, const attn_work *w)
{
    const dlab_kv_plane *v = &t->a->kv->v;
    const attn_part sealed = {w->values, 0, w->values->n_sealed, w->values->dim, 1, true};
    const attn_part tail = {w->values, w->values->n_sealed, w->values->n, w->values->dim, 1, true};
    if (v->dtype == DLAB_U8 || v->dtype == DLAB_E4M3 || v->dtype == DLAB_E5M2) fold_scales(w->sum, n, &sealed);
    if (attn_widens(w->values, n, v->dtype)) {
        wide_values(&w->wide, w->sum, n, &sealed, v->dtype);
        wide_values(&w->wide, w->sum, n, &tail, DLAB_F16);
        return;
    }
    switch (v->dtype) {
    case DLAB_F16:
        values_as(w->sum, n, &sealed, DLAB_F16);
        break;
    case DLAB_BF16:
        values_as(w->sum, n, &sealed, DLAB_BF16);
        break;
    case DLAB_U4:
        values_as(w->sum, n, &sealed, DLAB_U4);
        break;
    case DLAB_E4M3:
        values_as(w->sum, n, &sealed, DLAB_E4M3);
        break;
    case DLAB_E5M2:
        values_as(w->sum, n, &sealed, DLAB_E5M2);
        break;
    case DLAB_U8:
        values_as(w->sum, n, &sealed, DLAB_U8);
        break;
    default:
        values_as(w->sum, n, &sealed, DLAB_F32);
        break;
    }
    if (tail.begin < tail.end) values_as(w->sum, n, &tail, DLAB_F16);
}

#endif

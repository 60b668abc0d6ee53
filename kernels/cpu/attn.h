/* What the attention ops share: tiles of rows, which tokens their rows visit, and the work of one piece of positions.
 *
 * A tile is some rows of one sequence by one KV head; a group is those of its rows whose visited tokens of one piece begin
 * alike, so that their queries, all query heads of that KV head for each row, read every key and value together. Each
 * (row, head, token) or (row, head, element) is computed in an order of its own that depends on nothing else, so tiles,
 * groups and segments may be cut in any way. Pieces are cut by position. */
#ifndef DLAB_KERNELS_CPU_ATTN_H
#define DLAB_KERNELS_CPU_ATTN_H

#include "kernels/cpu/cpu.h"

#define TILE_QUERIES 32 /* about as many queries a tile as keep the loads shared and the scores in the first cache */
#define TILE_ROWS    8

/* The part of the args that all attention ops have. */
typedef struct {
    const dlab_desc_head *desc;
    const dlab_kv_view *kv;
    const int32_t *lists; /* of spans: first[R · span_heads + 1]; NULL: dense */
    const dlab_span *spans;
    int64_t span_heads, n_rows, n_heads, per_row; /* per_row: query heads of a KV head */
    float scale;
} attn;

static inline attn attn_of(dlab_at desc, const dlab_kv_view *kv, const dlab_span_table *spans, int64_t n_rows,
                           int64_t n_heads, float scale)
{
    attn a = {.desc = dlab_host_ptr(desc), .kv = kv, .n_rows = n_rows, .n_heads = n_heads, .scale = scale};
    a.per_row = n_heads / kv->n_kv_heads;
    if (!spans->at.buf.ptr) return a;
    a.lists = dlab_host_ptr(spans->at);
    a.span_heads = spans->heads;
    a.spans = (const dlab_span *)(a.lists + n_rows * spans->heads + 1);
    return a;
}

static inline attn attn_of_unfused(const dlab_attn_unfused_args *a)
{
    return attn_of(a->desc, &a->kv, &a->spans, a->n_rows, a->n_heads, a->scale);
}

/* Rows a tile: few when sequences bring few rows, so that there are tiles enough for all threads. */
static inline int64_t attn_tile_rows(const attn *a)
{
    const int64_t rows_per_seq = a->desc->n_seqs > 0 ? a->n_rows / a->desc->n_seqs : a->n_rows;
    const int64_t fit = dlab_min_i64(TILE_ROWS, dlab_max_i64(1, TILE_QUERIES / a->per_row));
    return dlab_max_i64(1, dlab_min_i64(fit, rows_per_seq));
}

static inline int64_t attn_tiles(const attn *a) { return dlab_ceil_div(a->n_rows, attn_tile_rows(a)); }

/* Rows first … first + n − 1, all of one sequence, by KV head `group`; query heads head … head + per_row − 1. */
typedef struct {
    const attn *a;
    const dlab_desc_row *rows; /* of the step */
    const dlab_desc_seq *seq;
    const dlab_desc_seg *segs; /* of the sequence */
    int64_t first, n, group, head;
} attn_tile;

/* The part of rows [first, last) that is one sequence's. */
static inline attn_tile attn_tile_at(const attn *a, int64_t first, int64_t last, int64_t group)
{
    attn_tile t = {.a = a, .rows = dlab_desc_rows(a->desc), .first = first, .n = 1, .group = group};
    t.head = group * a->per_row;
    t.seq = dlab_desc_seqs(a->desc) + t.rows[first].seq;
    t.segs = dlab_desc_segs(a->desc) + t.seq->seg_begin;
    while (first + t.n < last && t.rows[first + t.n].seq == t.rows[first].seq) t.n++;
    return t;
}

/* ---- which tokens a row visits ---- */

/* Tokens 0 … that a row may see. */
static inline int64_t attn_visible(const attn_tile *t, int64_t row)
{
    return dlab_max_i64(0, dlab_min_i64((int64_t)t->rows[row].pos + 1, t->seq->len));
}

static inline int64_t attn_most_visible(const attn_tile *t)
{
    int64_t most = 0;
    for (int64_t r = t->first; r < t->first + t->n; r++) most = dlab_max_i64(most, attn_visible(t, r));
    return most;
}

/* Tokens of a span at positions below `end`. */
static inline int64_t span_below(const dlab_span *s, int64_t end)
{
    const int64_t reach = end - s->begin;
    if (reach <= 0) return 0;
    return dlab_min_i64(s->count, s->step == 1 ? reach : dlab_ceil_div(reach, s->step));
}

/* Spans of one row, cut to positions [begin, end). */
typedef struct {
    const dlab_span *next, *last; /* of the table */
    dlab_span whole;              /* what a dense row visits */
    int64_t begin, end;
} attn_visits;

static inline attn_visits attn_visits_of(const attn_tile *t, int64_t row, int64_t begin, int64_t end)
{
    const attn *a = t->a;
    attn_visits v = {.begin = begin, .end = dlab_min_i64(end, attn_visible(t, row))};
    if (!a->lists) {
        v.whole = (dlab_span){(int32_t)begin, (int32_t)dlab_max_i64(0, v.end - begin), 1};
        return v;
    }
    const int32_t *list = a->lists + row * a->span_heads + (a->span_heads > 1 ? t->group : 0);
    const dlab_span *low = a->spans + list[0], *high = v.last = a->spans + list[1];
    while (low < high) {
        const dlab_span *mid = low + (high - low) / 2;
        if (mid->begin + (int64_t)(mid->count - 1) * mid->step < begin)
            low = mid + 1;
        else
            high = mid;
    }
    v.next = low;
    return v;
}

static inline bool attn_visits_next(attn_visits *v, dlab_span *out)
{
    if (v->whole.count > 0) {
        *out = v->whole;
        v->whole.count = 0;
        return true;
    }
    while (v->next < v->last && v->next->begin < v->end) {
        dlab_span s = *v->next++;
        const int32_t before = (int32_t)span_below(&s, v->begin);
        s.count = (int32_t)span_below(&s, v->end) - before;
        s.begin += before * s.step;
        *out = s;
        if (s.count > 0) return true;
    }
    return false;
}

static inline int64_t attn_count(const attn_tile *t, int64_t row, int64_t begin, int64_t end)
{
    attn_visits v = attn_visits_of(t, row, begin, end);
    dlab_span s;
    int64_t n = 0;
    while (attn_visits_next(&v, &s)) n += s.count;
    return n;
}

/* Whether one of two rows visits the first tokens of what the other visits. */
static inline bool attn_alike(const attn_tile *t, int64_t row, int64_t other, int64_t begin, int64_t end)
{
    if (!t->a->lists) return true;
    attn_visits v = attn_visits_of(t, row, begin, end), w = attn_visits_of(t, other, begin, end);
    dlab_span s, u;
    while (attn_visits_next(&v, &s) && attn_visits_next(&w, &u)) {
        if (s.begin != u.begin || s.step != u.step) return false;
        if (s.count != u.count) return !attn_visits_next(s.count < u.count ? &v : &w, &s);
    }
    return true;
}

/* Rows of a tile, from `first` on, that visit alike. */
typedef struct {
    int64_t first, n, longest, most; /* the row that visits most tokens, and how many */
    int64_t count[TILE_ROWS];        /* tokens of each row */
} attn_group;

static inline attn_group attn_group_at(const attn_tile *t, int64_t first, int64_t begin, int64_t end)
{
    attn_group g = {.first = first, .longest = first};
    for (int64_t r = first; r < t->first + t->n; r++, g.n++) {
        if (r > first && !attn_alike(t, g.longest, r, begin, end)) break;
        g.count[g.n] = attn_count(t, r, begin, end);
        if (r > first && g.count[g.n] <= g.most) continue;
        g.longest = r;
        g.most = g.count[g.n];
    }
    return g;
}

#endif

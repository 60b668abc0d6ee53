/* S1: the last `window` positions all, of the rest one block in `stride`, and the first `sinks` always. Which of the rest
 * are visited depends on their position alone, so that a token that was passed over stays passed over: the same bytes are
 * read at every step. */
#include "engine/attention/pattern.h"

typedef struct {
    dlab_span *out;
    int32_t n;
} list;

/* Tokens of [begin, end); joined to the list's last span where they go on from it. */
static void add(list *l, int64_t begin, int64_t end)
{
    if (begin >= end) return;
    dlab_span *last = l->n > 0 ? &l->out[l->n - 1] : NULL;
    if (last && last->step == 1 && (int64_t)last->begin + last->count >= begin) {
        last->count = (int32_t)(end - last->begin);
        return;
    }
    l->out[l->n++] = (dlab_span){.begin = (int32_t)begin, .count = (int32_t)(end - begin), .step = 1};
}

static int64_t max_spans(const dlab_pattern_opts *o, int64_t max_len)
{
    if (o->block == 1) return 3;
    return 3 + max_len / (o->block * o->stride);
}

/* Single tokens are one span, whatever the distance. */
static void add_strided_tokens(list *l, const dlab_pattern_opts *o, int64_t begin, int64_t end)
{
    const int64_t first = (begin + o->stride - 1) / o->stride * o->stride;
    if (first >= end) return;
    l->out[l->n++] = (dlab_span){.begin = (int32_t)first,
                                 .count = (int32_t)((end - first + o->stride - 1) / o->stride),
                                 .step = (int32_t)o->stride};
}

static void add_strided_blocks(list *l, const dlab_pattern_opts *o, int64_t begin, int64_t end)
{
    const int64_t distance = o->block * o->stride;
    for (int64_t at = begin / distance * distance; at < end; at += distance) {
        const int64_t from = at > begin ? at : begin, to = at + o->block < end ? at + o->block : end;
        add(l, from, to);
    }
}

static int32_t spans(const dlab_pattern_opts *o, int32_t layer, int32_t kv_head, int64_t pos, dlab_span *out)
{
    (void)layer, (void)kv_head;
    const int64_t len = pos + 1, local = len > o->window ? len - o->window : 0;
    const int64_t sinks = o->sinks < local ? o->sinks : local;
    list l = {.out = out};
    add(&l, 0, sinks);
    if (o->stride == 1)
        add(&l, sinks, local);
    else if (o->block == 1)
        add_strided_tokens(&l, o, sinks, local);
    else
        add_strided_blocks(&l, o, sinks, local);
    add(&l, local, len);
    return l.n;
}

const dlab_attn_pattern dlab_attn_pattern_local_strided = {
    .name = "local_strided",
    .summary = "the last attention.window positions, one block in attention.stride of the rest, and the first few",
    .max_spans = max_spans,
    .spans = spans,
};

/* B5: prompts of similar length together, so that less is padded. The request that has waited longest is the anchor; those
 * nearest to it in length fill the batch; after batch.size places the next anchor is again the one that has waited longest.
 * So whoever has k older ones before it waits for at most k groups, and nobody starves.
 *
 * Lengths are sorted into buckets, eight to a doubling: "nearest" is the nearest bucket that is not empty, of two equally near
 * ones the shorter, which pads nobody further. */
#include <stdlib.h>

#include "engine/batch/policy.h"

extern const dlab_policy_ops dlab_policy_length_grouped;

enum { PARTS = 8, BUCKETS = 30 * PARTS, WORD = 64, WORDS = (BUCKETS + WORD - 1) / WORD };

typedef struct {
    dlab_policy base;
    int64_t batch_size;
    dlab_queued_list all;             /* by links[0], the oldest first */
    dlab_queued_list bucket[BUCKETS]; /* by links[1], the oldest first */
    uint64_t filled[WORDS];           /* a bit for each bucket that is not empty */
    int64_t taken;                    /* places of the present group; 0: the next one is its anchor */
    int anchor;                       /* the anchor's bucket */
} grouped;

static dlab_status create(const dlab_policy_opts *o, dlab_policy **out, dlab_error *err)
{
    grouped *p = calloc(1, sizeof *p);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "policy length_grouped: out of memory");
    p->base.ops = &dlab_policy_length_grouped;
    p->batch_size = o->batch_size;
    *out = &p->base;
    return DLAB_OK;
}

static void destroy(dlab_policy *p) { free(p); }
static void begin(dlab_policy *p) { ((grouped *)p)->taken = 0; }

/* Lengths below PARTS have buckets of their own; above, the first bits behind the leading one tell them apart. */
static int bucket_of(const dlab_queued *q)
{
    const uint64_t n = (uint64_t)q->request.n_prompt;
    if (n < PARTS) return (int)n;
    int log2 = 63 - __builtin_clzll(n);
    return (log2 - 2) * PARTS + (int)((n >> (log2 - 3)) & (PARTS - 1));
}

static void push(dlab_policy *base, dlab_queued *q)
{
    grouped *p = (grouped *)base;
    const int b = bucket_of(q);
    dlab_queued_append(&p->all, q, 0);
    dlab_queued_append(&p->bucket[b], q, 1);
    p->filled[b / WORD] |= (uint64_t)1 << b % WORD;
}

/* The highest filled bucket up to b, or −1. */
static int below(const grouped *p, int b)
{
    uint64_t bits = p->filled[b / WORD] & (UINT64_MAX >> (WORD - 1 - b % WORD));
    for (int w = b / WORD; w >= 0; bits = --w >= 0 ? p->filled[w] : 0) {
        if (bits) return w * WORD + WORD - 1 - __builtin_clzll(bits);
    }
    return -1;
}

/* The lowest filled bucket from b on, or −1. */
static int above(const grouped *p, int b)
{
    uint64_t bits = p->filled[b / WORD] & (UINT64_MAX << b % WORD);
    for (int w = b / WORD; w < WORDS; bits = ++w < WORDS ? p->filled[w] : 0) {
        if (bits) return w * WORD + __builtin_ctzll(bits);
    }
    return -1;
}

static dlab_queued *first(const dlab_policy *base)
{
    const grouped *p = (const grouped *)base;
    if (p->taken == 0 || !p->all.first) return p->all.first;
    const int low = below(p, p->anchor), high = above(p, p->anchor);
    const bool shorter = low >= 0 && (high < 0 || p->anchor - low <= high - p->anchor);
    return p->bucket[shorter ? low : high].first;
}

static void take_out(dlab_policy *base, dlab_queued *q)
{
    grouped *p = (grouped *)base;
    const int b = bucket_of(q);
    dlab_queued_unlink(&p->all, q, 0);
    dlab_queued_unlink(&p->bucket[b], q, 1);
    if (!p->bucket[b].first) p->filled[b / WORD] &= ~((uint64_t)1 << b % WORD);
}

static void pop(dlab_policy *base)
{
    grouped *p = (grouped *)base;
    dlab_queued *q = first(base);
    if (p->taken == 0) p->anchor = bucket_of(q);
    p->taken += dlab_queued_places(q);
    if (p->taken >= p->batch_size) p->taken = 0;
    take_out(base, q);
}

const dlab_policy_ops dlab_policy_length_grouped = {
    .name = "length_grouped",
    .summary = "the one that has waited longest, with those nearest to it in prompt length (B5)",
    .create = create,
    .destroy = destroy,
    .push = push,
    .first = first,
    .pop = pop,
    .remove = take_out,
    .begin = begin,
};

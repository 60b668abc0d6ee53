#include "engine/kv/swap.h"

#include <assert.h>
#include <stdlib.h>

#include "base/int.h"

dlab_status dlab_kv_swap_create(dlab_device *dev, int64_t piece_bytes, int64_t n, dlab_kv_swap *out, dlab_error *err)
{
    *out = (dlab_kv_swap){.dev = dev, .piece_bytes = piece_bytes, .n = n, .n_free = n, .free = 1};
    out->next = malloc(((size_t)n + 1) * sizeof *out->next);
    if (!out->next) return DLAB_FAIL(err, DLAB_EOOM, "kv.swap: no memory for the books of %lld pieces", (long long)n);
    for (int64_t i = 1; i <= n; i++) out->next[i] = i < n ? i + 1 : 0;
    return dev->ops->alloc(dev, DLAB_POOL_SCRATCH, (size_t)(n * piece_bytes), &out->buf, err);
}

void dlab_kv_swap_destroy(dlab_kv_swap *a)
{
    if (a->buf.ptr) a->dev->ops->free(a->dev, DLAB_POOL_SCRATCH, a->buf);
    free(a->next);
    *a = (dlab_kv_swap){0};
}

/* The first n ≥ 1 of the free pieces become a chain; returns its first. */
static int64_t take(dlab_kv_swap *a, int64_t n)
{
    const int64_t first = a->free;
    int64_t last = first;
    for (int64_t i = 1; i < n; i++) last = a->next[last];
    a->free = a->next[last];
    a->next[last] = 0;
    a->n_free -= n;
    return first;
}

void dlab_kv_swap_drop(dlab_kv_swap *a, dlab_kv_image *image)
{
    if (image->bytes == 0) return;
    int64_t last = image->first_piece;
    a->n_free++;
    for (; a->next[last]; last = a->next[last]) a->n_free++;
    a->next[last] = a->free;
    a->free = image->first_piece;
    *image = (dlab_kv_image){0};
}

dlab_status dlab_kv_swap_out(dlab_kv_swap *a, dlab_kv_store *s, int seq, dlab_kv_image *out, dlab_error *err)
{
    *out = (dlab_kv_image){0};
    dlab_kv_image image = {0};
    s->ops->measure(s, seq, &image);
    const int64_t pieces = dlab_ceil_div(image.bytes, a->piece_bytes);
    if (pieces > a->n_free) {
        return DLAB_FAIL(err, DLAB_EFULL,
                         "kv.swap: sequence %d takes %lld pieces of %lld bytes; of %lld pieces %lld are free", seq,
                         (long long)pieces, (long long)a->piece_bytes, (long long)a->n, (long long)a->n_free);
    }
    image.first_piece = take(a, pieces);
    dlab_kv_cursor c = {.area = a, .piece = image.first_piece, .out = true};
    const dlab_status st = s->ops->swap(s, seq, &image, &c, err);
    if (st == DLAB_OK)
        *out = image;
    else
        dlab_kv_swap_drop(a, &image);
    return st;
}

dlab_status dlab_kv_swap_in(dlab_kv_swap *a, dlab_kv_store *s, int seq, dlab_kv_image *image, dlab_error *err)
{
    dlab_kv_cursor c = {.area = a, .piece = image->first_piece};
    DLAB_TRY(s->ops->swap(s, seq, image, &c, err));
    dlab_kv_swap_drop(a, image);
    return DLAB_OK;
}

dlab_status dlab_kv_swap_move(dlab_kv_cursor *c, dlab_at at, int64_t bytes, dlab_error *err)
{
    const dlab_kv_swap *a = c->area;
    while (bytes > 0) {
        if (c->off == a->piece_bytes) {
            c->piece = a->next[c->piece];
            c->off = 0;
        }
        assert(c->piece > 0 && "an image is as long as it was measured");
        const int64_t n = dlab_min_i64(bytes, a->piece_bytes - c->off);
        const dlab_at here = {a->buf, (size_t)((c->piece - 1) * a->piece_bytes + c->off)};
        DLAB_TRY(a->dev->ops->copy(a->dev, c->out ? here : at, c->out ? at : here, (size_t)n, err));
        at.off += (size_t)n;
        c->off += n;
        bytes -= n;
    }
    return DLAB_OK;
}

#include "engine/text/bpe.h"

#include <stdlib.h>

dlab_status dlab_ids_add(dlab_ids *list, int32_t id, dlab_error *err)
{
    if (list->n == list->room) {
        size_t room = list->room > 0 ? 2 * list->room : 64;
        int32_t *ids = realloc(list->ids, room * sizeof *ids);
        if (!ids) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu token ids", room);
        list->ids = ids;
        list->room = room;
    }
    list->ids[list->n++] = id;
    return DLAB_OK;
}

void dlab_bpe_free(dlab_bpe *b)
{
    free(b->symbol);
    free(b->prev);
    free(b->next);
    free(b->heap);
    *b = (dlab_bpe){0};
}

static dlab_status list_reserve(dlab_bpe *b, size_t n, dlab_error *err)
{
    size_t room = n < 256 ? 256 : n;
    if (n <= b->room) return DLAB_OK;
    free(b->symbol);
    free(b->prev);
    free(b->next);
    b->symbol = malloc(room * sizeof *b->symbol);
    b->prev = malloc(room * sizeof *b->prev);
    b->next = malloc(room * sizeof *b->next);
    b->room = b->symbol && b->prev && b->next ? room : 0;
    return b->room > 0 ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "no memory to tokenize a piece of %zu bytes", n);
}

/* ---- heap ----------------------------------------------------------------------------------------------------------- */

static dlab_status heap_push(dlab_bpe *b, uint64_t key, dlab_error *err)
{
    if (b->n_heap == b->heap_room) {
        size_t room = b->heap_room > 0 ? 2 * b->heap_room : 256;
        uint64_t *heap = realloc(b->heap, room * sizeof *heap);
        if (!heap) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu merges of a piece", room);
        b->heap = heap;
        b->heap_room = room;
    }
    size_t i = b->n_heap++;
    for (; i > 0 && b->heap[(i - 1) / 2] > key; i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = key;
    return DLAB_OK;
}

static uint64_t heap_pop(dlab_bpe *b)
{
    uint64_t top = b->heap[0], last = b->heap[--b->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < b->n_heap; child = 2 * i + 1) {
        if (child + 1 < b->n_heap && b->heap[child + 1] < b->heap[child]) child++;
        if (b->heap[child] >= last) break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

/* ---- merging -------------------------------------------------------------------------------------------------------- */

/* Puts the pair that begins at `at` on the heap if there is a merge for it. */
static dlab_status offer(dlab_bpe *b, const dlab_vocab *v, int32_t at, dlab_error *err)
{
    if (at < 0 || b->next[at] < 0) return DLAB_OK;
    int32_t rank = dlab_vocab_rank(v, b->symbol[at], b->symbol[b->next[at]]);
    return rank < 0 ? DLAB_OK : heap_push(b, (uint64_t)rank << 32 | (uint32_t)at, err);
}

static dlab_status merge_all(dlab_bpe *b, const dlab_vocab *v, dlab_error *err)
{
    while (b->n_heap > 0) {
        uint64_t key = heap_pop(b);
        int32_t at = (int32_t)(key & UINT32_MAX), right = b->next[at];
        const dlab_merge *m = &v->merges[key >> 32];
        /* An entry whose symbols have changed since is stale. Dead symbols are −1 and match no merge. */
        if (right < 0 || b->symbol[at] != m->left || b->symbol[right] != m->right) continue;
        b->symbol[at] = m->result;
        b->symbol[right] = -1;
        b->next[at] = b->next[right];
        if (b->next[at] >= 0) b->prev[b->next[at]] = at;
        DLAB_TRY(offer(b, v, b->prev[at], err));
        DLAB_TRY(offer(b, v, at, err));
    }
    return DLAB_OK;
}

/* A symbol that is no token falls apart into its bytes. */
static dlab_status emit(const dlab_vocab *v, const dlab_symbol *s, int32_t unknown, dlab_ids *out, dlab_error *err)
{
    size_t len = 0;
    if (s->token >= 0) return dlab_ids_add(out, s->token, err);
    for (size_t at = 0; at < s->n; at += len) {
        int byte = dlab_vocab_byte(s->text + at, s->n - at, &len);
        int32_t id = byte >= 0 && v->symbols[byte].token >= 0 ? v->symbols[byte].token : unknown;
        if (id < 0)
            return DLAB_FAIL(err, DLAB_EFORMAT,
                             "the model's vocabulary has no token for the byte 0x%02x and no unknown token",
                             byte >= 0 ? (unsigned)byte : (unsigned char)s->text[at]);
        DLAB_TRY(dlab_ids_add(out, id, err));
    }
    return DLAB_OK;
}

dlab_status dlab_bpe_encode(dlab_bpe *b, const dlab_vocab *v, const char *bytes, size_t n, int32_t unknown,
                            dlab_ids *out, dlab_error *err)
{
    if (n == 0) return DLAB_OK;
    DLAB_TRY(list_reserve(b, n, err));
    for (size_t i = 0; i < n; i++) {
        b->symbol[i] = (unsigned char)bytes[i]; /* the first 256 symbols are the bytes */
        b->prev[i] = (int32_t)i - 1;
        b->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    b->n_heap = 0;
    for (size_t i = 0; i < n; i++) DLAB_TRY(offer(b, v, (int32_t)i, err));
    DLAB_TRY(merge_all(b, v, err));
    for (int32_t i = 0; i >= 0; i = b->next[i]) DLAB_TRY(emit(v, &v->symbols[b->symbol[i]], unknown, out, err));
    return DLAB_OK;
}

/* Byte-pair encoding of one piece of text (Sennrich et al. 2016): of all neighbours that have a merge, the pair of lowest
 * rank is joined, the leftmost on a tie, until none is left. O(n log n) with a heap, whatever the text. */
#ifndef DLAB_ENGINE_TEXT_BPE_H
#define DLAB_ENGINE_TEXT_BPE_H

#include "engine/text/vocab.h"

/* A growing list of token ids. */
typedef struct {
    int32_t *ids;
    size_t n, room;
} dlab_ids;

dlab_status dlab_ids_add(dlab_ids *list, int32_t id, dlab_error *err);

/* Working memory, kept between pieces. Zero it first. */
typedef struct {
    int32_t *symbol, *prev, *next; /* [room] a doubly linked list over the piece */
    size_t room;
    uint64_t *heap; /* rank << 32 | position of the left symbol; the least on top */
    size_t n_heap, heap_room;
} dlab_bpe;

void dlab_bpe_free(dlab_bpe *b);
/* Appends the ids of bytes [n], n ≤ INT32_MAX. A byte that no token stands for becomes `unknown`, or DLAB_EFORMAT if −1. */
dlab_status dlab_bpe_encode(dlab_bpe *b, const dlab_vocab *v, const char *bytes, size_t n, int32_t unknown,
                            dlab_ids *out, dlab_error *err);

#endif

/* Where sequences that must give their place back are copied to, to come back later bit by bit (batch.preemption: swap): an
 * area of the device's scratch, made once, in pieces of one size (elsewhere: the swap space and its blocks). An image is the
 * bytes of one sequence, in the order in which its store visits them, laid end to end over a chain of pieces (elsewhere: a
 * sequence's swapped blocks). On a CPU the area is the same memory as the cache: what is
 * gained is the pool's room, for the price of two copies.
 * Copies are the device's: asynchronous, in order. Nothing here allocates but create. */
#ifndef DLAB_ENGINE_KV_SWAP_H
#define DLAB_ENGINE_KV_SWAP_H

#include <stdbool.h>

#include "engine/kv/store.h"

typedef struct {
    dlab_device *dev;
    dlab_buf buf; /* [n, piece_bytes] */
    int64_t piece_bytes, n, n_free;
    int64_t free;  /* the first free piece, counted from 1; 0: none */
    int64_t *next; /* [1 + n] in the list of free ones, or in an image's chain */
} dlab_kv_swap;

/* A place in an image, and which way bytes go. */
struct dlab_kv_cursor {
    const dlab_kv_swap *area;
    int64_t piece, off;
    bool out; /* out of the store, into the image */
};

dlab_status dlab_kv_swap_create(dlab_device *dev, int64_t piece_bytes, int64_t n, dlab_kv_swap *out, dlab_error *err);
void dlab_kv_swap_destroy(dlab_kv_swap *a); /* of all zeros is fine; its images are gone */
/* Copies what a sequence holds to an image of its own; the caller closes or rewinds it then. DLAB_EFULL: the area has no room
 * for it now. */
dlab_status dlab_kv_swap_out(dlab_kv_swap *a, dlab_kv_store *s, int seq, dlab_kv_image *out, dlab_error *err);
/* Copies it back to a sequence that holds nothing (or what the image's had when it was marked) and has room for image->live
 * tokens: it is as it was. The image is none then. */
dlab_status dlab_kv_swap_in(dlab_kv_swap *a, dlab_kv_store *s, int seq, dlab_kv_image *image, dlab_error *err);
/* Gives an image's pieces back and makes it none; nothing to do for none. */
void dlab_kv_swap_drop(dlab_kv_swap *a, dlab_kv_image *image);
/* For stores: the next `bytes` of the image are those at `at`. */
dlab_status dlab_kv_swap_move(dlab_kv_cursor *c, dlab_at at, int64_t bytes, dlab_error *err);

#endif

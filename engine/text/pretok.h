/* Pre-tokenizers: text is cut into pieces by patterns, and no merge crosses a cut. */
#ifndef DLAB_ENGINE_TEXT_PRETOK_H
#define DLAB_ENGINE_TEXT_PRETOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/model/gguf.h"

typedef struct dlab_pretok dlab_pretok;

/* name: tokenizer.ggml.pre. DLAB_ENOTBUILT names those there are. */
dlab_status dlab_pretok_create(dlab_gguf_str name, dlab_pretok **out, dlab_error *err);
void dlab_pretok_destroy(dlab_pretok *p);

/* Lengths of the pieces, in order; they add up to the text's. */
typedef struct {
    uint32_t *len;
    size_t n, room;
} dlab_pieces;

/* text [n] must be valid UTF-8, n ≤ INT32_MAX. Cuts `a` and `b` are both used; the result is in *a. Zero them before the
 * first call, free their `len` after the last. */
dlab_status dlab_pretok_split(const dlab_pretok *p, const char *text, size_t n, dlab_pieces *a, dlab_pieces *b,
                              dlab_error *err);

#endif

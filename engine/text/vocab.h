/* A byte-level BPE vocabulary: tokens, the bytes they stand for, and the merges between symbols.
 *
 * GGUF writes such a vocabulary in printable characters, one for each byte (the alphabet of GPT-2: Radford et al. 2019).
 * A symbol is a string in that alphabet: a byte, a side of a merge, what a merge makes, or a token. */
#ifndef DLAB_ENGINE_TEXT_VOCAB_H
#define DLAB_ENGINE_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/model/gguf.h"

/* GGUF's tokenizer.ggml.token_type. */
typedef enum {
    DLAB_TOKEN_NORMAL = 1,
    DLAB_TOKEN_UNKNOWN,
    DLAB_TOKEN_CONTROL,
    DLAB_TOKEN_USER,
    DLAB_TOKEN_UNUSED,
    DLAB_TOKEN_BYTE
} dlab_token_type;

typedef struct {
    const char *text;
    uint32_t n;
    int32_t token; /* −1: no token is written so */
} dlab_symbol;

typedef struct {
    int32_t left, right, result; /* symbols */
} dlab_merge;

typedef struct {
    int32_t n_tokens;
    uint8_t *types;       /* [n_tokens] dlab_token_type */
    size_t *byte_offs;    /* [n_tokens + 1] into bytes */
    char *bytes;          /* what the tokens stand for, one after the other */
    dlab_symbol *symbols; /* the first 256 are the bytes */
    int32_t n_symbols;
    dlab_merge *merges; /* by rank */
    int32_t n_merges;
    char *arena;           /* the symbols' text */
    int32_t *symbol_slots; /* hash tables with open addressing, −1: free */
    int32_t *merge_slots;
    size_t symbol_mask, merge_mask; /* slots − 1 */
} dlab_vocab;

dlab_status dlab_vocab_create(const dlab_gguf *g, dlab_vocab **out, dlab_error *err);
void dlab_vocab_destroy(dlab_vocab *v);
/* The rank of the merge of two symbols, or −1. */
int32_t dlab_vocab_rank(const dlab_vocab *v, int32_t left, int32_t right);
/* The byte that a character of the alphabet stands for (*n: its length in UTF-8), or −1. */
int dlab_vocab_byte(const char *text, size_t left, size_t *n);

#endif

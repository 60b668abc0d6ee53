#include "engine/text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

#define MAX_MERGES (1 << 26)

/* ---- the alphabet --------------------------------------------------------------------------------------------------- */

/* Printable bytes of Latin-1 are written as themselves; the others, in order, as the characters from 256 on. */
static bool is_printable(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

static int letter_of(int byte)
{
    int letter = 256;
    if (is_printable(byte)) return byte;
    for (int b = 0; b < byte; b++) letter += !is_printable(b);
    return letter;
}

static int byte_of(utf8proc_int32_t letter)
{
    if (letter < 256) return is_printable(letter) ? letter : -1;
    for (int b = 0; b < 256; b++)
        if (!is_printable(b) && letter-- == 256) return b;
    return -1;
}

int dlab_vocab_byte(const char *text, size_t left, size_t *n)
{
    utf8proc_int32_t letter = 0;
    utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)left, &letter);
    *n = got > 0 ? (size_t)got : 1;
    return got > 0 ? byte_of(letter) : -1;
}

/* ---- symbols and merges --------------------------------------------------------------------------------------------- */

static size_t symbol_hash(const char *text, size_t n) { return (size_t)XXH3_64bits(text, n); }

static size_t merge_hash(int32_t left, int32_t right)
{
    const int32_t pair[2] = {left, right};
    return (size_t)XXH3_64bits(pair, sizeof pair);
}

/* The symbol of this text, made if there is none. The text stays where it is. */
static int32_t intern(dlab_vocab *v, const char *text, size_t n)
{
    size_t slot = symbol_hash(text, n) & v->symbol_mask;
    for (; v->symbol_slots[slot] >= 0; slot = (slot + 1) & v->symbol_mask) {
        const dlab_symbol *s = &v->symbols[v->symbol_slots[slot]];
        if (s->n == n && memcmp(s->text, text, n) == 0) return v->symbol_slots[slot];
    }
    v->symbols[v->n_symbols] = (dlab_symbol){text, (uint32_t)n, -1};
    v->symbol_slots[slot] = v->n_symbols;
    return v->n_symbols++;
}

/* The same, where it is probably `guess`: to compare is cheaper than to look up. */
static int32_t intern_near(dlab_vocab *v, const char *text, size_t n, int32_t guess)
{
    if (guess < v->n_symbols && v->symbols[guess].n == n && memcmp(v->symbols[guess].text, text, n) == 0) return guess;
    return intern(v, text, n);
}

int32_t dlab_vocab_rank(const dlab_vocab *v, int32_t left, int32_t right)
{
    size_t slot = merge_hash(left, right) & v->merge_mask;
    for (; v->merge_slots[slot] >= 0; slot = (slot + 1) & v->merge_mask) {
        const dlab_merge *m = &v->merges[v->merge_slots[slot]];
        if (m->left == left && m->right == right) return v->merge_slots[slot];
    }
    return -1;
}

/* A pair that was there before keeps its rank. */
static void add_merge(dlab_vocab *v, int32_t left, int32_t right, int32_t result)
{
    v->merges[v->n_merges] = (dlab_merge){left, right, result};
    if (dlab_vocab_rank(v, left, right) < 0) {
        size_t slot = merge_hash(left, right) & v->merge_mask;
        while (v->merge_slots[slot] >= 0) slot = (slot + 1) & v->merge_mask;
        v->merge_slots[slot] = v->n_merges;
    }
    v->n_merges++;
}

/* ---- loading -------------------------------------------------------------------------------------------------------- */

/* All free; NULL when memory is out. */
static int32_t *slots_create(size_t n_entries, size_t *mask)
{
    size_t n = 16;
    while (n < 2 * n_entries) n *= 2;
    int32_t *slots = malloc(n * sizeof *slots);
    if (slots) memset(slots, 0xff, n * sizeof *slots);
    *mask = n - 1;
    return slots;
}

/* Sum of the strings' lengths. */
static size_t text_bytes(dlab_gguf_array a)
{
    size_t sum = 0;
    dlab_gguf_str s;
    while (dlab_gguf_next_str(&a, &s)) sum += s.n;
    return sum;
}

static bool vocab_alloc(dlab_vocab *v, dlab_gguf_array tokens, dlab_gguf_array merges)
{
    const size_t n_bytes = text_bytes(tokens), likely = 256 + tokens.left, n_symbols = likely + 3 * merges.left;
    v->n_tokens = (int32_t)tokens.left;
    v->types = malloc(tokens.left);
    v->byte_offs = malloc((tokens.left + 1) * sizeof *v->byte_offs);
    v->bytes = malloc(n_bytes + 1);
    v->symbols = malloc(n_symbols * sizeof *v->symbols);
    v->merges = malloc((merges.left + 1) * sizeof *v->merges);
    v->arena = malloc(512 + n_bytes + text_bytes(merges));
    v->symbol_slots = slots_create(likely, &v->symbol_mask);
    v->merge_slots = slots_create(merges.left, &v->merge_mask);
    return v->types && v->byte_offs && v->bytes && v->symbols && v->merges && v->arena && v->symbol_slots &&
           v->merge_slots;
}

/* Slots for the symbols of one more merge. They are made for as many as there are tokens: merges seldom bring others, and a
 * small table stays in the cache. */
static dlab_status make_room(dlab_vocab *v, dlab_error *err)
{
    if (2 * ((size_t)v->n_symbols + 3) <= v->symbol_mask + 1) return DLAB_OK;
    size_t mask = 0;
    int32_t *slots = slots_create(v->symbol_mask + 1, &mask);
    if (!slots) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a vocabulary of %d symbols", v->n_symbols);
    for (int32_t i = 0; i < v->n_symbols; i++) {
        size_t slot = symbol_hash(v->symbols[i].text, v->symbols[i].n) & mask;
        while (slots[slot] >= 0) slot = (slot + 1) & mask;
        slots[slot] = i;
    }
    free(v->symbol_slots);
    v->symbol_slots = slots;
    v->symbol_mask = mask;
    return DLAB_OK;
}

static char *add_bytes(dlab_vocab *v, char *arena)
{
    for (int b = 0; b < 256; b++) {
        size_t n = (size_t)utf8proc_encode_char(letter_of(b), (utf8proc_uint8_t *)arena);
        intern(v, arena, n);
        arena += n;
    }
    return arena;
}

static dlab_status load_types(dlab_vocab *v, const dlab_gguf *g, dlab_error *err)
{
    dlab_gguf_array types = {0};
    int64_t type = 0;
    memset(v->types, DLAB_TOKEN_NORMAL, (size_t)v->n_tokens);
    if (!dlab_gguf_has(g, "tokenizer.ggml.token_type")) return DLAB_OK;
    DLAB_TRY(dlab_gguf_get_ints(g, "tokenizer.ggml.token_type", &types, err));
    if (types.left != (size_t)v->n_tokens)
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: the key 'tokenizer.ggml.token_type' has %zu entries, expected %d, one a token",
                         dlab_gguf_label(g), types.left, v->n_tokens);
    for (int32_t i = 0; dlab_gguf_next_int(&types, &type); i++) {
        if (type < DLAB_TOKEN_NORMAL || type > DLAB_TOKEN_BYTE)
            return DLAB_FAIL(err, DLAB_EFORMAT,
                             "%s: the key 'tokenizer.ggml.token_type' has %lld for token %d, expected 1 to %d",
                             dlab_gguf_label(g), (long long)type, i, DLAB_TOKEN_BYTE);
        v->types[i] = (uint8_t)type;
    }
    return DLAB_OK;
}

/* The bytes that a token stands for. Control and user-defined tokens are written literally, and so is anything that the
 * alphabet does not have. */
static size_t token_bytes(uint8_t type, dlab_gguf_str s, char *out)
{
    size_t n = 0, len = 0;
    bool literal = type == DLAB_TOKEN_UNKNOWN || type == DLAB_TOKEN_CONTROL || type == DLAB_TOKEN_USER;
    for (size_t at = 0; !literal && at < s.n; at += len) {
        int b = dlab_vocab_byte(s.text + at, s.n - at, &len);
        if (b < 0)
            literal = true;
        else
            out[n++] = (char)b;
    }
    if (!literal) return n;
    memcpy(out, s.text, s.n);
    return s.n;
}

static dlab_status add_tokens(dlab_vocab *v, const dlab_gguf *g, dlab_gguf_array tokens, char **arena, dlab_error *err)
{
    dlab_gguf_str s = {0};
    size_t at = 0;
    for (int32_t i = 0; dlab_gguf_next_str(&tokens, &s); i++) {
        if (s.n > UINT16_MAX)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: token %d has %zu bytes, expected at most %d", dlab_gguf_label(g),
                             i, s.n, UINT16_MAX);
        memcpy(*arena, s.text, s.n);
        v->byte_offs[i] = at;
        at += token_bytes(v->types[i], s, v->bytes + at);
        v->byte_offs[i + 1] = at;
        /* A control token is never made by merging: text that spells it out is text unless special tokens are asked for. */
        if (v->types[i] != DLAB_TOKEN_CONTROL && v->types[i] != DLAB_TOKEN_UNKNOWN)
            v->symbols[intern(v, *arena, s.n)].token = i;
        *arena += s.n;
    }
    return DLAB_OK;
}

/* "LEFT RIGHT". Both sides and what they make lie side by side in the arena. What merges make is usually listed among the tokens
 * in the order of the merges. */
static dlab_status add_merges(dlab_vocab *v, const dlab_gguf *g, dlab_gguf_array merges, char *arena, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    dlab_gguf_str s = {0};
    int32_t made = v->n_symbols;
    while (dlab_gguf_next_str(&merges, &s)) {
        const char *space = s.n > 2 && s.n <= UINT16_MAX ? memchr(s.text + 1, ' ', s.n - 2) : NULL;
        if (!space)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: merge %d is '%s', expected two parts with a space between",
                             dlab_gguf_label(g), v->n_merges, dlab_gguf_show(shown, s));
        size_t n_left = (size_t)(space - s.text), n_right = s.n - n_left - 1;
        memcpy(arena, s.text, n_left);
        memcpy(arena + n_left, space + 1, n_right);
        DLAB_TRY(make_room(v, err));
        int32_t left = intern(v, arena, n_left), right = intern(v, arena + n_left, n_right);
        made = intern_near(v, arena, n_left + n_right, made + 1);
        add_merge(v, left, right, made);
        arena += n_left + n_right;
    }
    return DLAB_OK;
}

dlab_status dlab_vocab_create(const dlab_gguf *g, dlab_vocab **out, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    dlab_gguf_array tokens = {0}, merges = {0};
    char *arena = NULL;
    *out = NULL;
    dlab_vocab *v = calloc(1, sizeof *v);
    if (!v) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a vocabulary");
    DLAB_TRY_DONE(st, dlab_gguf_get_strings(g, "tokenizer.ggml.tokens", &tokens, err));
    DLAB_TRY_DONE(st, dlab_gguf_get_strings(g, "tokenizer.ggml.merges", &merges, err));
    if (tokens.left < 1 || tokens.left > MAX_MERGES || merges.left > MAX_MERGES) {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: a vocabulary of %zu tokens and %zu merges, expected 1 to %d of either",
                       dlab_gguf_label(g), tokens.left, merges.left, MAX_MERGES);
        goto done;
    }
    if (!vocab_alloc(v, tokens, merges)) {
        st = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for a vocabulary of %zu tokens", dlab_gguf_label(g), tokens.left);
        goto done;
    }
    arena = add_bytes(v, v->arena);
    DLAB_TRY_DONE(st, load_types(v, g, err));
    DLAB_TRY_DONE(st, add_tokens(v, g, tokens, &arena, err));
    DLAB_TRY_DONE(st, add_merges(v, g, merges, arena, err));
    *out = v;
    v = NULL;
done:
    dlab_vocab_destroy(v);
    return st;
}

void dlab_vocab_destroy(dlab_vocab *v)
{
    if (!v) return;
    free(v->types);
    free(v->byte_offs);
    free(v->bytes);
    free(v->symbols);
    free(v->merges);
    free(v->arena);
    free(v->symbol_slots);
    free(v->merge_slots);
    free(v);
}

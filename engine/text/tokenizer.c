#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/text/bpe.h"
#include "engine/text/pretok.h"
#include "engine/text/vocab.h"

/* A token that is looked for in the text before anything is split. */
typedef struct {
    const char *text;
    size_t n;
    int32_t id;
    bool control; /* only where special tokens are asked for */
} special_token;

struct dlab_tokenizer {
    int32_t vocab_size, bos, eos, unknown;
    bool adds_bos;
    dlab_vocab *vocab; /* NULL: ids are bytes */
    dlab_pretok *pretok;
    special_token *specials; /* longest first */
    size_t n_specials;
};

/* ---- creation ------------------------------------------------------------------------------------------------------- */

static int compare_specials(const void *a, const void *b)
{
    const special_token *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static dlab_status collect_specials(dlab_tokenizer *t, dlab_error *err)
{
    const dlab_vocab *v = t->vocab;
    size_t room = 0;
    for (int32_t i = 0; i < v->n_tokens; i++)
        room +=
            v->types[i] == DLAB_TOKEN_CONTROL || v->types[i] == DLAB_TOKEN_USER || v->types[i] == DLAB_TOKEN_UNKNOWN;
    t->specials = malloc((room + 1) * sizeof *t->specials);
    if (!t->specials) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu special tokens", room);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        size_t n = v->byte_offs[i + 1] - v->byte_offs[i];
        bool control = v->types[i] == DLAB_TOKEN_CONTROL || v->types[i] == DLAB_TOKEN_UNKNOWN;
        if (n > 0 && (control || v->types[i] == DLAB_TOKEN_USER))
            t->specials[t->n_specials++] = (special_token){v->bytes + v->byte_offs[i], n, i, control};
    }
    if (t->n_specials > 1) qsort(t->specials, t->n_specials, sizeof *t->specials, compare_specials);
    return DLAB_OK;
}

static dlab_status maybe_id(const dlab_gguf *g, const char *key, int32_t vocab, int32_t *out, dlab_error *err)
{
    int64_t id = -1;
    if (dlab_gguf_has(g, key)) DLAB_TRY(dlab_gguf_get_int(g, key, 0, vocab - 1, &id, err));
    *out = (int32_t)id;
    return DLAB_OK;
}

static dlab_status read_ids(dlab_tokenizer *t, const dlab_gguf *g, dlab_error *err)
{
    bool adds_eos = false;
    DLAB_TRY(maybe_id(g, "tokenizer.ggml.bos_token_id", t->vocab_size, &t->bos, err));
    DLAB_TRY(maybe_id(g, "tokenizer.ggml.eos_token_id", t->vocab_size, &t->eos, err));
    DLAB_TRY(maybe_id(g, "tokenizer.ggml.unknown_token_id", t->vocab_size, &t->unknown, err));
    if (dlab_gguf_has(g, "tokenizer.ggml.add_bos_token"))
        DLAB_TRY(dlab_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, err));
    if (dlab_gguf_has(g, "tokenizer.ggml.add_eos_token"))
        DLAB_TRY(dlab_gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &adds_eos, err));
    if (adds_eos)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the key 'tokenizer.ggml.add_eos_token' is true: not built; false is",
                         dlab_gguf_label(g));
    if (t->adds_bos && t->bos < 0)
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: the key 'tokenizer.ggml.bos_token_id' is missing, but the model asks for BOS",
                         dlab_gguf_label(g));
    return DLAB_OK;
}

static dlab_status load_bpe(dlab_tokenizer *t, const dlab_gguf *g, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    dlab_gguf_str kind = {0}, pre = {0};
    DLAB_TRY(dlab_gguf_get_str(g, "tokenizer.ggml.model", &kind, err));
    if (!dlab_gguf_str_is(kind, "gpt2"))
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the tokenizer '%s' (tokenizer.ggml.model) is not built; built: gpt2",
                         dlab_gguf_label(g), dlab_gguf_show(shown, kind));
    DLAB_TRY(dlab_gguf_get_str(g, "tokenizer.ggml.pre", &pre, err));
    DLAB_TRY(dlab_pretok_create(pre, &t->pretok, err));
    DLAB_TRY(dlab_vocab_create(g, &t->vocab, err));
    DLAB_TRY(read_ids(t, g, err));
    return collect_specials(t, err);
}

dlab_status dlab_tokenizer_create(const dlab_model *m, dlab_tokenizer **out, dlab_error *err)
{
    const dlab_gguf *g = dlab_model_gguf(m);
    *out = NULL;
    dlab_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a tokenizer");
    t->vocab_size = dlab_model_get_info(m)->vocab;
    t->bos = t->eos = t->unknown = -1;
    dlab_status st = g ? load_bpe(t, g, err) : DLAB_OK;
    if (st == DLAB_OK && !g && t->vocab_size < 256)
        st = DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s: a vocabulary of %d has no room for the 256 bytes",
                       dlab_model_label(m), t->vocab_size);
    if (st == DLAB_OK)
        *out = t;
    else
        dlab_tokenizer_destroy(t);
    return st;
}

void dlab_tokenizer_destroy(dlab_tokenizer *t)
{
    if (!t) return;
    dlab_vocab_destroy(t->vocab);
    dlab_pretok_destroy(t->pretok);
    free(t->specials);
    free(t);
}

int32_t dlab_tokenizer_eos(const dlab_tokenizer *t) { return t->eos; }
int32_t dlab_tokenizer_bos(const dlab_tokenizer *t) { return t->bos; }
bool dlab_tokenizer_adds_bos(const dlab_tokenizer *t) { return t->adds_bos; }
int32_t dlab_tokenizer_vocab(const dlab_tokenizer *t) { return t->vocab_size; }

bool dlab_tokenizer_is_control(const dlab_tokenizer *t, int32_t id)
{
    return t->vocab && (t->vocab->types[id] == DLAB_TOKEN_CONTROL || t->vocab->types[id] == DLAB_TOKEN_UNKNOWN);
}

bool dlab_tokenizer_is_text(const dlab_tokenizer *t, int32_t id)
{
    if (!t->vocab) return true;
    return id < t->vocab->n_tokens && !dlab_tokenizer_is_control(t, id) && t->vocab->types[id] != DLAB_TOKEN_UNUSED;
}

/* ---- special tokens in the text ------------------------------------------------------------------------------------- */

typedef struct {
    size_t at, n;
    int32_t id; /* −1: plain text */
} fragment;

typedef struct {
    fragment *all;
    size_t n, room;
} fragments;

static dlab_status add_fragment(fragments *f, fragment x, dlab_error *err)
{
    if (x.n == 0) return DLAB_OK;
    if (f->n == f->room) {
        size_t room = f->room > 0 ? 2 * f->room : 16;
        fragment *grown = realloc(f->all, room * sizeof *grown);
        if (!grown) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu fragments of text", room);
        f->all = grown;
        f->room = room;
    }
    f->all[f->n++] = x;
    return DLAB_OK;
}

/* The plain fragments of `in`, cut at each occurrence of one special token. */
static dlab_status cut_special(const char *text, const special_token *s, const fragments *in, fragments *out,
                               dlab_error *err)
{
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        fragment rest = in->all[i];
        const char *hit = NULL;
        while (rest.id < 0 && (hit = memmem(text + rest.at, rest.n, s->text, s->n)) != NULL) {
            size_t before = (size_t)(hit - (text + rest.at));
            DLAB_TRY(add_fragment(out, (fragment){rest.at, before, -1}, err));
            DLAB_TRY(add_fragment(out, (fragment){rest.at + before, s->n, s->id}, err));
            rest.at += before + s->n;
            rest.n -= before + s->n;
        }
        DLAB_TRY(add_fragment(out, rest, err));
    }
    return DLAB_OK;
}

/* Longest tokens first; the result is in *f. */
static dlab_status find_specials(const dlab_tokenizer *t, const char *text, size_t n, bool special, fragments *f,
                                 fragments *spare, dlab_error *err)
{
    DLAB_TRY(add_fragment(f, (fragment){0, n, -1}, err));
    for (size_t i = 0; i < t->n_specials; i++) {
        const special_token *s = &t->specials[i];
        if ((s->control && !special) || !memmem(text, n, s->text, s->n)) continue;
        DLAB_TRY(cut_special(text, s, f, spare, err));
        fragments swap = *f;
        *f = *spare;
        *spare = swap;
    }
    return DLAB_OK;
}

/* ---- encoding ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const dlab_tokenizer *t;
    dlab_bpe bpe;
    dlab_pieces pieces, spare_pieces;
    fragments fragments, spare_fragments;
    dlab_ids out;
} encoder;

static void encoder_free(encoder *e)
{
    dlab_bpe_free(&e->bpe);
    free(e->pieces.len);
    free(e->spare_pieces.len);
    free(e->fragments.all);
    free(e->spare_fragments.all);
    free(e->out.ids);
}

/* Length of the valid UTF-8 that text begins with. */
static size_t valid_run(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        utf8proc_int32_t c = 0;
        utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
        if (got <= 0) break;
        at += (size_t)got;
    }
    return at;
}

static dlab_status encode_run(encoder *e, const char *text, size_t n, dlab_error *err)
{
    const dlab_tokenizer *t = e->t;
    DLAB_TRY(dlab_pretok_split(t->pretok, text, n, &e->pieces, &e->spare_pieces, err));
    for (size_t i = 0; i < e->pieces.n; text += e->pieces.len[i++])
        DLAB_TRY(dlab_bpe_encode(&e->bpe, t->vocab, text, e->pieces.len[i], t->unknown, &e->out, err));
    return DLAB_OK;
}

/* Bytes that are not UTF-8 are pieces of their own. */
static dlab_status encode_plain(encoder *e, const char *text, size_t n, dlab_error *err)
{
    while (n > 0) {
        size_t run = valid_run(text, n);
        if (run > 0)
            DLAB_TRY(encode_run(e, text, run, err));
        else {
            run = 1;
            DLAB_TRY(dlab_bpe_encode(&e->bpe, e->t->vocab, text, 1, e->t->unknown, &e->out, err));
        }
        text += run;
        n -= run;
    }
    return DLAB_OK;
}

static dlab_status encode_bpe(encoder *e, const char *text, size_t n, bool special, dlab_error *err)
{
    DLAB_TRY(find_specials(e->t, text, n, special, &e->fragments, &e->spare_fragments, err));
    for (size_t i = 0; i < e->fragments.n; i++) {
        const fragment *f = &e->fragments.all[i];
        if (f->id >= 0)
            DLAB_TRY(dlab_ids_add(&e->out, f->id, err));
        else
            DLAB_TRY(encode_plain(e, text + f->at, f->n, err));
    }
    return DLAB_OK;
}

static dlab_status encode_bytes(encoder *e, const char *text, size_t n, dlab_error *err)
{
    for (size_t i = 0; i < n; i++) DLAB_TRY(dlab_ids_add(&e->out, (unsigned char)text[i], err));
    return DLAB_OK;
}

dlab_status dlab_tokenizer_encode(const dlab_tokenizer *t, const char *text, size_t n, bool special, bool add_bos,
                                  int32_t **ids, size_t *n_ids, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    encoder e = {.t = t};
    *ids = NULL;
    *n_ids = 0;
    if (n > INT32_MAX)
        return DLAB_FAIL(err, DLAB_EUSAGE, "a text of %zu bytes cannot be tokenized at once, expected at most %d", n,
                         INT32_MAX);
    if (add_bos && t->adds_bos) DLAB_TRY_DONE(st, dlab_ids_add(&e.out, t->bos, err));
    DLAB_TRY_DONE(st, t->vocab ? encode_bpe(&e, text, n, special, err) : encode_bytes(&e, text, n, err));
    if (!e.out.ids) { /* nothing to say, but *ids is the caller's to free, and not NULL */
        DLAB_TRY_DONE(st, dlab_ids_add(&e.out, 0, err));
        e.out.n = 0;
    }
    *ids = e.out.ids;
    *n_ids = e.out.n;
    e.out.ids = NULL;
done:
    encoder_free(&e);
    return st;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------- */

/* The text of one id; `byte` is room for a byte tokenizer's. Ids past the bytes stand for no text: U+FFFD shows them. */
static const char *token_text(const dlab_tokenizer *t, int32_t id, char *byte, size_t *n)
{
    if (t->vocab) {
        *n = t->vocab->byte_offs[id + 1] - t->vocab->byte_offs[id];
        return t->vocab->bytes + t->vocab->byte_offs[id];
    }
    if (id > 255) {
        *n = 3;
        return "\xef\xbf\xbd";
    }
    *byte = (char)id;
    *n = 1;
    return byte;
}

dlab_status dlab_tokenizer_decode(const dlab_tokenizer *t, const int32_t *ids, size_t n_ids, char **text, size_t *n,
                                  dlab_error *err)
{
    size_t total = 0, len = 0;
    char byte = 0;
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return DLAB_FAIL(err, DLAB_EUSAGE, "the token id %d is not in the vocabulary, expected 0 to %d", ids[i],
                             t->vocab_size - 1);
        token_text(t, ids[i], &byte, &len);
        total += len;
    }
    char *out = malloc(total + 1);
    if (!out) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu bytes of text", total);
    for (size_t i = 0, at = 0; i < n_ids; i++, at += len) {
        const char *piece = token_text(t, ids[i], &byte, &len);
        memcpy(out + at, piece, len);
    }
    out[total] = 0;
    *text = out;
    *n = total;
    return DLAB_OK;
}

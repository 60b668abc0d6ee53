#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretok.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATTERNS 4

/* White space as Unicode's White_Space has it; PCRE2's own \s also takes U+180E. */
#define SPACE  "\\p{Z}\\x{09}-\\x{0d}\\x{85}"
#define SP     "[" SPACE "]"
#define NOT_SP "[^" SPACE "]"
/* What GPT-2 splits by: contractions, then words, numbers and signs, each with one space before it, then spaces. */
#define GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SP "+(?!" NOT_SP ")"

/* Each pattern cuts the pieces that the one before left: what it matches is a piece, and so is what lies between. */
static const struct {
    const char *name;
    const char *patterns[MAX_PATTERNS];
} rows[] = {
    {"gpt-2", {GPT2}}, {"smollm", {"\\p{N}", GPT2}}, /* digits one by one */
};
#define N_ROWS (sizeof rows / sizeof *rows)

struct dlab_pretok {
    pcre2_code *codes[MAX_PATTERNS];
    size_t n_codes;
};

static dlab_status unknown_row(dlab_gguf_str name, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN], built[256] = "";
    for (size_t i = 0, used = 0; i < N_ROWS && used < sizeof built; i++)
        used += (size_t)snprintf(built + used, sizeof built - used, "%s%s", i > 0 ? ", " : "", rows[i].name);
    return DLAB_FAIL(err, DLAB_ENOTBUILT, "the pre-tokenizer '%s' (tokenizer.ggml.pre) is not built; built: %s",
                     dlab_gguf_show(shown, name), built);
}

dlab_status dlab_pretok_create(dlab_gguf_str name, dlab_pretok **out, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    size_t row = 0;
    *out = NULL;
    while (row < N_ROWS && !dlab_gguf_str_is(name, rows[row].name)) row++;
    if (row == N_ROWS) return unknown_row(name, err);
    dlab_pretok *p = calloc(1, sizeof *p);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a pre-tokenizer");
    for (; p->n_codes < MAX_PATTERNS && rows[row].patterns[p->n_codes]; p->n_codes++) {
        int code = 0;
        PCRE2_SIZE at = 0;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)rows[row].patterns[p->n_codes], PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (!re) {
            st = DLAB_FAIL(err, DLAB_EINTERNAL, "pattern %zu of the pre-tokenizer '%s' fails at %zu: PCRE2 error %d",
                           p->n_codes, rows[row].name, (size_t)at, code);
            goto done;
        }
        pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* where it cannot, matching is merely slower */
        p->codes[p->n_codes] = re;
    }
    *out = p;
    p = NULL;
done:
    dlab_pretok_destroy(p);
    return st;
}

void dlab_pretok_destroy(dlab_pretok *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n_codes; i++) pcre2_code_free(p->codes[i]);
    free(p);
}

static dlab_status add_piece(dlab_pieces *pieces, size_t len, dlab_error *err)
{
    if (len == 0) return DLAB_OK;
    if (pieces->n == pieces->room) {
        size_t room = pieces->room > 0 ? 2 * pieces->room : 256;
        uint32_t *grown = realloc(pieces->len, room * sizeof *grown);
        if (!grown) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu pieces of text", room);
        pieces->len = grown;
        pieces->room = room;
    }
    pieces->len[pieces->n++] = (uint32_t)len;
    return DLAB_OK;
}

typedef struct {
    pcre2_match_data *data;
    pcre2_match_context *limits;
} matcher;

static void matcher_free(matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
}

static dlab_status matcher_create(matcher *m, dlab_error *err)
{
    m->data = pcre2_match_data_create(1, NULL);
    m->limits = pcre2_match_context_create(NULL);
    if (!m->data || !m->limits) {
        matcher_free(m);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory to match a pattern");
    }
    /* The patterns are linear; the limits only stand in the way of long texts. */
    pcre2_set_match_limit(m->limits, UINT32_MAX);
    pcre2_set_depth_limit(m->limits, UINT32_MAX);
    return DLAB_OK;
}

/* Cuts one piece: matches and gaps in turn. The text was found valid once, so PCRE2 need not look again each time. */
static dlab_status cut(const pcre2_code *re, const matcher *m, const char *text, size_t n, dlab_pieces *out,
                       dlab_error *err)
{
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(m->data);
    size_t at = 0;
    while (at < n) {
        int rc = pcre2_match(re, (PCRE2_SPTR)text, n, at, options, m->data, m->limits);
        if (rc < PCRE2_ERROR_NOMATCH) /* the JIT's stack may be too small: the interpreter has no such bound */
            rc = pcre2_match(re, (PCRE2_SPTR)text, n, at, options | PCRE2_NO_JIT, m->data, m->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return DLAB_FAIL(err, DLAB_EINTERNAL, "a pre-tokenizer's pattern fails at byte %zu: PCRE2 error %d", at,
                             rc);
        DLAB_TRY(add_piece(out, bounds[0] - at, err));
        DLAB_TRY(add_piece(out, bounds[1] - bounds[0], err));
        at = bounds[1];
    }
    return add_piece(out, n - at, err);
}

dlab_status dlab_pretok_split(const dlab_pretok *p, const char *text, size_t n, dlab_pieces *a, dlab_pieces *b,
                              dlab_error *err)
{
    dlab_status st = DLAB_OK;
    matcher m;
    a->n = 0;
    DLAB_TRY(matcher_create(&m, err));
    DLAB_TRY_DONE(st, add_piece(a, n, err));
    for (size_t c = 0; c < p->n_codes; c++) {
        const char *at = text;
        b->n = 0;
        for (size_t i = 0; i < a->n; at += a->len[i++]) DLAB_TRY_DONE(st, cut(p->codes[c], &m, at, a->len[i], b, err));
        dlab_pieces swap = *a;
        *a = *b;
        *b = swap;
    }
done:
    matcher_free(&m);
    return st;
}

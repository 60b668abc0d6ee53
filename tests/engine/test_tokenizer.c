/* Byte-level BPE on small vocabularies made here, and the byte tokenizer of synthetic models. */
#include <check.h>
#include <stdbool.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "tests/engine/tiny_gguf.h"

enum { AA = 256, AAAA, AB, BC, SPACE_A, SPACES, BOS, BOS_X, USER, E_ACUTE, TWELVE, N_VOCAB };

static const char *const words[] = {"aa", "aaaa", "ab", "bc", "Ġa", "ĠĠ", "<s>", "<s>x", "USER", "Ã©", "12", NULL};
static const int word_types[] = {1, 1, 1, 1, 1, 1, 3, 3, 4, 1, 1, 0};
static const char *const merges[] = {"a b", "b c", "a a", "aa aa", "Ġ a", "Ġ Ġ", "Ã ©", "1 2", NULL};
static const tiny_options plain = {.tokens = words, .types = word_types, .merges = merges, .bytes = true};

typedef struct {
    gguf_writer w;
    dlab_model *m;
    dlab_tokenizer *t;
} fixture;

static fixture open_tokenizer(tiny_options o)
{
    fixture f = {0};
    dlab_error err = {0};
    tiny_build(&f.w, &o);
    ck_assert_msg(dlab_model_from_memory("tiny.gguf", f.w.data, f.w.n, &f.m, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_tokenizer_create(f.m, &f.t, &err) == DLAB_OK, "%s", err.msg);
    return f;
}

static void close_tokenizer(fixture *f)
{
    dlab_tokenizer_destroy(f->t);
    dlab_model_close(f->m);
    gw_free(&f->w);
}

/* text encodes to ids and, since every byte has a token, decodes back to itself. */
static void check_ids(const dlab_tokenizer *t, const char *text, size_t n, bool special, const int32_t *want,
                      size_t n_want)
{
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n_ids = 0, n_back = 0;
    dlab_error err = {0};
    ck_assert_msg(dlab_tokenizer_encode(t, text, n, special, false, &ids, &n_ids, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_ptr_nonnull(ids);
    ck_assert_msg(n_ids == n_want, "'%s' gives %zu ids, expected %zu", text, n_ids, n_want);
    for (size_t i = 0; i < n_ids; i++)
        ck_assert_msg(ids[i] == want[i], "'%s': id %zu is %d, expected %d", text, i, ids[i], want[i]);
    ck_assert_int_eq(dlab_tokenizer_decode(t, ids, n_ids, &back, &n_back, NULL), DLAB_OK);
    ck_assert_uint_eq(n_back, n);
    ck_assert_int_eq(memcmp(back, text, n), 0);
    ck_assert_int_eq(back[n_back], 0);
    free(back);
    free(ids);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)
#define TEXT(s)  s, sizeof(s) - 1

START_TEST(merges_go_by_rank_then_from_the_left)
{
    fixture f = open_tokenizer(plain);
    check_ids(f.t, TEXT("abc"), false, IDS(AB, 'c'));
    check_ids(f.t, TEXT("bcb"), false, IDS(BC, 'b'));
    check_ids(f.t, TEXT("aab"), false, IDS('a', AB));
    check_ids(f.t, TEXT("aaa"), false, IDS(AA, 'a'));
    check_ids(f.t, TEXT("aaaaaaa"), false, IDS(AAAA, AA, 'a'));
    check_ids(f.t, TEXT("\xc3\xa9"), false, IDS(E_ACUTE));
    check_ids(f.t, "", 0, false, NULL, 0);
    check_ids(f.t, TEXT("a\0b"), false, IDS('a', 0, 'b'));
    close_tokenizer(&f);
}
END_TEST

START_TEST(pieces_are_cut_as_the_row_says)
{
    tiny_options o = plain;
    fixture smollm = open_tokenizer(o);
    o.pre = "gpt-2";
    fixture gpt2 = open_tokenizer(o);
    check_ids(smollm.t, TEXT("12"), false, IDS('1', '2'));
    check_ids(gpt2.t, TEXT("12"), false, IDS(TWELVE));
    check_ids(smollm.t, TEXT("  a"), false, IDS(' ', SPACE_A));
    check_ids(gpt2.t, TEXT("  a"), false, IDS(' ', SPACE_A));
    check_ids(smollm.t, TEXT("b  1"), false, IDS('b', SPACES, '1'));
    check_ids(gpt2.t, TEXT("b  1"), false, IDS('b', ' ', ' ', '1'));
    check_ids(gpt2.t, TEXT("b  "), false, IDS('b', SPACES));
    check_ids(gpt2.t, TEXT("b\ta"), false, IDS('b', '\t', 'a'));
    close_tokenizer(&smollm);
    close_tokenizer(&gpt2);
}
END_TEST

START_TEST(special_tokens_are_parsed_when_asked_longest_first)
{
    fixture f = open_tokenizer(plain);
    check_ids(f.t, TEXT("a<s>xa<s>"), true, IDS('a', BOS_X, 'a', BOS));
    check_ids(f.t, TEXT("<s><s>"), true, IDS(BOS, BOS));
    check_ids(f.t, TEXT("a<s>xa"), false, IDS('a', '<', 's', '>', 'x', 'a'));
    check_ids(f.t, TEXT("aUSERa"), true, IDS('a', USER, 'a'));
    check_ids(f.t, TEXT("aUSERa"), false, IDS('a', USER, 'a'));
    check_ids(f.t, TEXT("<s"), true, IDS('<', 's'));
    close_tokenizer(&f);
}
END_TEST

START_TEST(bytes_that_are_not_utf8_stay_bytes)
{
    fixture f = open_tokenizer(plain);
    check_ids(f.t,
              TEXT("a\xff\xfe"
                   "b"),
              false, IDS('a', 0xff, 0xfe, 'b'));
    check_ids(f.t, TEXT("\xa9\xc3"), false, IDS(0xa9, 0xc3));
    check_ids(f.t, TEXT("\xc3"), false, IDS(0xc3));
    check_ids(f.t, TEXT("\xed\xa0\x80"), false, IDS(0xed, 0xa0, 0x80));           /* a surrogate */
    check_ids(f.t, TEXT("\xc0\x80"), false, IDS(0xc0, 0x80));                     /* overlong */
    check_ids(f.t, TEXT("\xf4\x90\x80\x80"), false, IDS(0xf4, 0x90, 0x80, 0x80)); /* past U+10FFFF */
    check_ids(f.t, TEXT("\xe6\x97"), false, IDS(0xe6, 0x97));                     /* cut inside a character */
    close_tokenizer(&f);
}
END_TEST

START_TEST(random_bytes_come_back)
{
    fixture f = open_tokenizer(plain);
    dlab_rng r;
    char text[64];
    dlab_rng_seed(&r, 1);
    for (int round = 0; round < 2000; round++) {
        int32_t *ids = NULL;
        char *back = NULL;
        size_t n = dlab_rng_below(&r, sizeof text), n_ids = 0, n_back = 0;
        for (size_t i = 0; i < n; i++) text[i] = (char)dlab_rng_below(&r, round % 2 ? 256 : 128);
        ck_assert_int_eq(dlab_tokenizer_encode(f.t, text, n, round % 3 == 0, false, &ids, &n_ids, NULL), DLAB_OK);
        ck_assert_int_eq(dlab_tokenizer_decode(f.t, ids, n_ids, &back, &n_back, NULL), DLAB_OK);
        ck_assert_uint_eq(n_back, n);
        ck_assert_int_eq(memcmp(back, text, n), 0);
        free(back);
        free(ids);
    }
    close_tokenizer(&f);
}
END_TEST

START_TEST(a_long_run_of_one_letter_is_no_trap)
{
    enum { N = 1 << 20 };
    fixture f = open_tokenizer(plain);
    char *text = malloc(N);
    static const char letters[] = {'a', ' ', '1', '\n', '\xff', '!'};
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof letters; i++) {
        int32_t *ids = NULL;
        size_t n_ids = 0;
        dlab_error err = {0};
        memset(text, letters[i], N);
        ck_assert_msg(dlab_tokenizer_encode(f.t, text, N, true, false, &ids, &n_ids, &err) == DLAB_OK, "%s", err.msg);
        ck_assert_uint_eq(n_ids, letters[i] == 'a' ? N / 4 : letters[i] == ' ' ? N / 2 : N);
        free(ids);
    }
    free(text);
    close_tokenizer(&f);
}
END_TEST

/* ---- against the definition ----------------------------------------------------------------------------------------- */

#define N_RANDOM 48
#define LONGEST  9

typedef struct {
    char symbols[N_RANDOM + 3][LONGEST]; /* a, b, c and what the merges make */
    char lines[N_RANDOM][2 * LONGEST];
    const char *tokens[N_RANDOM + 4], *merges[N_RANDOM + 1];
    int ids[N_RANDOM + 3]; /* of the symbols, −1: no token */
    int left[N_RANDOM], right[N_RANDOM];
    int n;
} random_vocab;

static void make_vocab(random_vocab *v, dlab_rng *r)
{
    int n_tokens = 0;
    memset(v, 0, sizeof *v);
    for (int i = 0; i < 3; i++) {
        v->symbols[i][0] = (char)('a' + i);
        v->ids[i] = 'a' + i;
    }
    while (v->n < N_RANDOM) {
        uint64_t n_symbols = 3 + (uint64_t)v->n;
        char made[2 * LONGEST], line[2 * LONGEST];
        int left = (int)dlab_rng_below(r, n_symbols), right = (int)dlab_rng_below(r, n_symbols);
        bool known = false;
        snprintf(made, sizeof made, "%s%s", v->symbols[left], v->symbols[right]);
        for (int i = 0; i < v->n + 3; i++) known = known || strcmp(made, v->symbols[i]) == 0;
        if (known || strlen(made) >= LONGEST) continue;
        int s = v->n + 3;
        memcpy(v->symbols[s], made, strlen(made) + 1);
        snprintf(line, sizeof line, "%s %s", v->symbols[left], v->symbols[right]);
        memcpy(v->lines[v->n], line, sizeof line);
        v->merges[v->n] = v->lines[v->n];
        v->left[v->n] = left;
        v->right[v->n] = right;
        v->ids[s] = v->n % 7 == 6 ? -1 : 256 + n_tokens; /* some merges only lead to others */
        if (v->ids[s] >= 0) v->tokens[n_tokens++] = v->symbols[s];
        v->n++;
    }
}

/* The definition, one rank after the other over the whole word. */
static size_t encode_slowly(const random_vocab *v, const char *text, size_t n, int32_t *out)
{
    int word[256];
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) word[i] = text[i] - 'a';
    for (;;) {
        size_t at = n;
        int best = v->n;
        for (size_t i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (v->left[k] == word[i] && v->right[k] == word[i + 1]) {
                    best = k;
                    at = i;
                }
        if (at == n) break;
        word[at] = best + 3;
        memmove(word + at + 1, word + at + 2, (n - at - 2) * sizeof *word);
        n--;
    }
    for (size_t i = 0; i < n; i++)
        if (v->ids[word[i]] >= 0)
            out[n_out++] = v->ids[word[i]];
        else
            for (const char *p = v->symbols[word[i]]; *p; p++) out[n_out++] = (unsigned char)*p;
    return n_out;
}

START_TEST(merging_agrees_with_the_definition)
{
    dlab_rng r;
    dlab_rng_seed(&r, 7 + (uint64_t)_i);
    random_vocab v;
    make_vocab(&v, &r);
    fixture f = open_tokenizer((tiny_options){.tokens = v.tokens, .merges = v.merges, .bytes = true});
    for (int round = 0; round < 200; round++) {
        char text[201] = "";
        int32_t want[201];
        size_t n = 1 + dlab_rng_below(&r, 200);
        for (size_t i = 0; i < n; i++) text[i] = (char)('a' + dlab_rng_below(&r, round % 2 ? 3 : 2));
        size_t n_want = encode_slowly(&v, text, n, want);
        check_ids(f.t, text, n, false, want, n_want);
    }
    close_tokenizer(&f);
}
END_TEST

/* ---- the model's wishes --------------------------------------------------------------------------------------------- */

static void with_bos(gguf_writer *w)
{
    gw_key_u32(w, "tokenizer.ggml.bos_token_id", BOS);
    gw_key_u32(w, "tokenizer.ggml.eos_token_id", BOS_X);
    gw_key_bool(w, "tokenizer.ggml.add_bos_token", 1);
}

/* Far more symbols than tokens: parts of merges, and what they make, that no token is written as. */
START_TEST(merges_may_bring_symbols_of_their_own)
{
    enum { N = 1500 };
    static const char *const tokens[] = {"ab", "yz", "xa", NULL};
    static char lines[N][8];
    static const char *list[N + 4] = {"a b"};
    for (int i = 0; i < N; i++) {
        snprintf(lines[i], sizeof lines[i], "%c%c%c x", 'c' + i / 400, 'c' + i / 20 % 20, 'c' + i % 20);
        list[i + 1] = lines[i];
    }
    list[N + 1] = "y z";
    list[N + 2] = "x a";
    fixture f = open_tokenizer((tiny_options){.tokens = tokens, .merges = list, .bytes = true});
    check_ids(f.t, TEXT("xab"), false, IDS('x', 256));
    check_ids(f.t, TEXT("abyz"), false, IDS(256, 257));
    check_ids(f.t, TEXT("cccxa"), false, IDS('c', 'c', 'c', 258));
    close_tokenizer(&f);
}
END_TEST

START_TEST(bos_comes_first_when_both_sides_want_it)
{
    int32_t *ids = NULL;
    size_t n = 0;
    tiny_options o = plain;
    o.more_keys = with_bos;
    fixture f = open_tokenizer(o);
    ck_assert_int_eq(dlab_tokenizer_bos(f.t), BOS);
    ck_assert_int_eq(dlab_tokenizer_eos(f.t), BOS_X);
    ck_assert_int_eq(dlab_tokenizer_vocab(f.t), N_VOCAB);
    ck_assert(dlab_tokenizer_adds_bos(f.t));
    ck_assert_int_eq(dlab_tokenizer_encode(f.t, "a", 1, false, true, &ids, &n, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(ids[0], BOS);
    free(ids);
    check_ids(f.t, TEXT("a"), false, IDS('a'));
    close_tokenizer(&f);
    f = open_tokenizer(plain);
    ck_assert_int_eq(dlab_tokenizer_bos(f.t), -1);
    ck_assert_int_eq(dlab_tokenizer_encode(f.t, "a", 1, false, true, &ids, &n, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 1);
    free(ids);
    close_tokenizer(&f);
}
END_TEST

static void bos_only_asked(gguf_writer *w) { gw_key_bool(w, "tokenizer.ggml.add_bos_token", 1); }
static void bos_past_end(gguf_writer *w) { gw_key_u32(w, "tokenizer.ggml.bos_token_id", N_VOCAB); }
static void adds_eos(gguf_writer *w) { gw_key_bool(w, "tokenizer.ggml.add_eos_token", 1); }
static void not_a_bool(gguf_writer *w) { gw_key_bool(w, "tokenizer.ggml.add_bos_token", 2); }
static const char *const no_space[] = {"a b", "ab", NULL}, *const one_side[] = {"a ", NULL},
                         *const no_text[] = {"", NULL};
static const int odd_types[] = {1, 1, 1, 7, 1, 1, 3, 3, 4, 1, 1, 0};

static const struct {
    const char *kind, *pre, *const *merges;
    const int *types;
    void (*keys)(gguf_writer *w);
    dlab_status status;
    const char *expect[2];
} refusals[] = {
    {"llama", NULL, NULL, NULL, NULL, DLAB_ENOTBUILT, {"'llama'", "gpt2"}},
    {NULL, "qwen2", NULL, NULL, NULL, DLAB_ENOTBUILT, {"'qwen2'", "gpt-2, smollm"}},
    {NULL, "smoll\n", NULL, NULL, NULL, DLAB_ENOTBUILT, {"'smoll?'", "tokenizer.ggml.pre"}},
    {NULL, NULL, no_space, NULL, NULL, DLAB_EFORMAT, {"merge 1 is 'ab'", "tiny.gguf"}},
    {NULL, NULL, one_side, NULL, NULL, DLAB_EFORMAT, {"merge 0", "tiny.gguf"}},
    {NULL, NULL, no_text, NULL, NULL, DLAB_EFORMAT, {"merge 0", "tiny.gguf"}},
    {NULL, NULL, NULL, odd_types, NULL, DLAB_EFORMAT, {"has 7 for token 259", "tiny.gguf"}},
    {NULL, NULL, NULL, NULL, bos_only_asked, DLAB_EFORMAT, {"bos_token_id", "tiny.gguf"}},
    {NULL, NULL, NULL, NULL, bos_past_end, DLAB_EFORMAT, {"bos_token_id", "expected 0 to 266"}},
    {NULL, NULL, NULL, NULL, adds_eos, DLAB_ENOTBUILT, {"add_eos_token", "tiny.gguf"}},
    {NULL, NULL, NULL, NULL, not_a_bool, DLAB_EFORMAT, {"add_bos_token", "expected 0 or 1"}},
};

static void check_refusal(const tiny_options *o, const char *rename, dlab_status status, const char *a, const char *b)
{
    gguf_writer w;
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    dlab_error err = {0};
    tiny_build(&w, o);
    if (rename) w.data[gw_after(&w, rename) - 1] = 'X';
    ck_assert_msg(dlab_model_from_memory("tiny.gguf", w.data, w.n, &m, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_tokenizer_create(m, &t, &err) == status, "%s: %s", dlab_status_name(err.code), err.msg);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(err.msg, a) && strstr(err.msg, b), "'%s' and '%s' in '%s'", a, b, err.msg);
    dlab_model_close(m);
    gw_free(&w);
}

START_TEST(what_is_not_built_or_broken_is_named)
{
    tiny_options o = plain;
    o.kind = refusals[_i].kind;
    o.pre = refusals[_i].pre;
    if (refusals[_i].merges) o.merges = refusals[_i].merges;
    if (refusals[_i].types) o.types = refusals[_i].types;
    o.more_keys = refusals[_i].keys;
    check_refusal(&o, NULL, refusals[_i].status, refusals[_i].expect[0], refusals[_i].expect[1]);
}
END_TEST

static void one_type(gguf_writer *w)
{
    gw_key_array(w, "tokenizer.ggml.token_type", GW_I32, 1);
    gw_u32(w, 1);
}

START_TEST(missing_or_uneven_arrays_are_named)
{
    tiny_options o = plain;
    check_refusal(&o, "tokenizer.ggml.model", DLAB_EFORMAT, "'tokenizer.ggml.model' is missing", "tiny.gguf");
    check_refusal(&o, "tokenizer.ggml.pre", DLAB_EFORMAT, "'tokenizer.ggml.pre' is missing", "tiny.gguf");
    check_refusal(&o, "tokenizer.ggml.merges", DLAB_EFORMAT, "'tokenizer.ggml.merges' is missing", "tiny.gguf");
    o.more_keys = one_type;
    check_refusal(&o, "tokenizer.ggml.token_type", DLAB_EFORMAT, "has 1 entries, expected 267", "tiny.gguf");
}
END_TEST

static void with_unknown(gguf_writer *w) { gw_key_u32(w, "tokenizer.ggml.unknown_token_id", 1); }

START_TEST(a_byte_without_token_is_unknown_or_an_error)
{
    static const char *const few[] = {"a", "?", "ab", NULL}, *const few_merges[] = {"a b", "b c", NULL};
    int32_t *ids = NULL;
    size_t n = 0;
    dlab_error err = {0};
    tiny_options o = {.tokens = few, .merges = few_merges};
    fixture f = open_tokenizer(o);
    ck_assert_int_eq(dlab_tokenizer_encode(f.t, "abz", 3, false, false, &ids, &n, &err), DLAB_EFORMAT);
    ck_assert_ptr_null(ids);
    ck_assert_ptr_nonnull(strstr(err.msg, "0x7a"));
    close_tokenizer(&f);
    o.more_keys = with_unknown;
    f = open_tokenizer(o);
    ck_assert_int_eq(dlab_tokenizer_encode(f.t, "bcab", 4, false, false, &ids, &n, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 3);
    ck_assert(ids[0] == 1 && ids[1] == 1 && ids[2] == 2);
    free(ids);
    close_tokenizer(&f);
}
END_TEST

START_TEST(ids_out_of_range_are_refused)
{
    char *text = NULL;
    size_t n = 0;
    dlab_error err = {0};
    fixture f = open_tokenizer(plain);
    ck_assert_int_eq(dlab_tokenizer_decode(f.t, IDS('a', N_VOCAB), &text, &n, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(text);
    ck_assert_ptr_nonnull(strstr(err.msg, "267"));
    ck_assert_int_eq(dlab_tokenizer_decode(f.t, IDS(-1), &text, &n, NULL), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_tokenizer_decode(f.t, NULL, 0, &text, &n, NULL), DLAB_OK);
    ck_assert_str_eq(text, "");
    free(text);
    close_tokenizer(&f);
}
END_TEST

START_TEST(a_synthetic_model_has_bytes)
{
    char all[256], *text = NULL;
    int32_t want[256];
    size_t n = 0;
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    ck_assert_int_eq(dlab_model_open("synthetic:tiny", &m, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_tokenizer_create(m, &t, NULL), DLAB_OK);
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
        want[i] = i;
    }
    check_ids(t, all, 256, true, want, 256);
    check_ids(t, "", 0, true, NULL, 0);
    ck_assert_int_eq(dlab_tokenizer_eos(t), -1);
    ck_assert_int_eq(dlab_tokenizer_bos(t), -1);
    ck_assert(!dlab_tokenizer_adds_bos(t));
    ck_assert_int_eq(dlab_tokenizer_vocab(t), 288);
    ck_assert_int_eq(dlab_tokenizer_decode(t, IDS('h', 287, 'i'), &text, &n, NULL), DLAB_OK);
    ck_assert_str_eq(text, "h\xef\xbf\xbdi");
    free(text);
    ck_assert_int_eq(dlab_tokenizer_decode(t, IDS(288), &text, &n, NULL), DLAB_EUSAGE);
    dlab_tokenizer_destroy(t);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("tokenizer");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, merges_go_by_rank_then_from_the_left);
    tcase_add_test(c, pieces_are_cut_as_the_row_says);
    tcase_add_test(c, special_tokens_are_parsed_when_asked_longest_first);
    tcase_add_test(c, bytes_that_are_not_utf8_stay_bytes);
    tcase_add_test(c, random_bytes_come_back);
    tcase_add_test(c, a_long_run_of_one_letter_is_no_trap);
    tcase_add_loop_test(c, merging_agrees_with_the_definition, 0, 10);
    tcase_add_test(c, merges_may_bring_symbols_of_their_own);
    tcase_add_test(c, bos_comes_first_when_both_sides_want_it);
    tcase_add_loop_test(c, what_is_not_built_or_broken_is_named, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(c, missing_or_uneven_arrays_are_named);
    tcase_add_test(c, a_byte_without_token_is_unknown_or_an_error);
    tcase_add_test(c, ids_out_of_range_are_refused);
    tcase_add_test(c, a_synthetic_model_has_bytes);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* The real vocabulary against the ids that another program gives for the same texts. Skipped where the model is absent. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "tests/engine/real_model.h"

static dlab_tokenizer *tokenizer;
static json_t *texts;

static void check_text(const json_t *row, bool special, const char *key)
{
    const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, key);
    const char *bytes = json_string_value(text);
    size_t n = json_string_length(text), n_ids = 0, n_back = 0;
    int32_t *ids = NULL;
    char *back = NULL;
    dlab_error err = {0};
    ck_assert(json_is_array(want));
    ck_assert_msg(dlab_tokenizer_encode(tokenizer, bytes, n, special, true, &ids, &n_ids, &err) == DLAB_OK, "%s",
                  err.msg);
    ck_assert_msg(n_ids == json_array_size(want), "'%s' %s: %zu ids, expected %zu", bytes, key, n_ids,
                  json_array_size(want));
    for (size_t i = 0; i < n_ids; i++)
        ck_assert_msg(ids[i] == json_integer_value(json_array_get(want, i)), "'%s' %s: id %zu is %d", bytes, key, i,
                      ids[i]);
    ck_assert_int_eq(dlab_tokenizer_decode(tokenizer, ids, n_ids, &back, &n_back, NULL), DLAB_OK);
    ck_assert_msg(n_back == n && memcmp(back, bytes, n) == 0, "'%s' comes back as '%s'", bytes, back);
    free(back);
    free(ids);
}

START_TEST(every_text_has_the_reference_ids)
{
    size_t n = json_array_size(texts), n_special = 0;
    ck_assert_uint_eq(n, 36);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(texts, i);
        check_text(row, true, "ids");
        check_text(row, false, "ids_no_special");
        n_special += !json_equal(json_object_get(row, "ids"), json_object_get(row, "ids_no_special"));
    }
    ck_assert_uint_gt(n_special, 0);
}
END_TEST

START_TEST(the_model_names_its_special_tokens)
{
    ck_assert_int_eq(dlab_tokenizer_vocab(tokenizer), 49152);
    ck_assert_int_eq(dlab_tokenizer_bos(tokenizer), 1);
    ck_assert_int_eq(dlab_tokenizer_eos(tokenizer), 2);
    ck_assert(!dlab_tokenizer_adds_bos(tokenizer));
}
END_TEST

/* The vocabulary has no token for some bytes (0x04 is one): they become its unknown token. */
START_TEST(a_byte_without_token_is_unknown)
{
    int32_t *ids = NULL;
    size_t n = 0;
    ck_assert_int_eq(dlab_tokenizer_encode(tokenizer, "\x04", 1, false, false, &ids, &n, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(ids[0], 0);
    free(ids);
}
END_TEST

static dlab_status load_texts(dlab_error *err)
{
    char *json = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_file_read(DLAB_FIXTURES "/smollm2_tokens.json", 1 << 20, &json, &n, err));
    dlab_status st = dlab_json_parse("smollm2_tokens.json", json, n, &texts, err);
    free(json);
    return st;
}

int main(void)
{
    dlab_model *m = NULL;
    dlab_error err = {0};
    dlab_status st = DLAB_OK;
    if (!open_real_model(&m, &st, &err)) {
        fprintf(stderr, "skipped: the SmolLM2 tokenizer (%s)\n", err.msg);
        return 77;
    }
    if (st == DLAB_OK) st = dlab_tokenizer_create(m, &tokenizer, &err);
    dlab_model_close(m); /* the tokenizer keeps what it needs */
    if (st == DLAB_OK) st = load_texts(&err);
    if (st != DLAB_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    Suite *s = suite_create("tokenizer_smollm2");
    TCase *c = tcase_create("tokenizer_smollm2");
    tcase_add_test(c, every_text_has_the_reference_ids);
    tcase_add_test(c, the_model_names_its_special_tokens);
    tcase_add_test(c, a_byte_without_token_is_unknown);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    json_decref(texts);
    dlab_tokenizer_destroy(tokenizer);
    return failed ? 1 : 0;
}

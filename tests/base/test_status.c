#include <check.h>
#include <string.h>

#include "base/status.h"

START_TEST(every_status_has_a_name_and_a_text)
{
    for (int s = 0; s < DLAB_STATUS_N; s++) {
        ck_assert(strlen(dlab_status_text((dlab_status)s)) > 0);
        ck_assert(strlen(dlab_status_name((dlab_status)s)) > 0);
    }
    ck_assert_str_eq(dlab_status_text(DLAB_EFORMAT), "bad input");
    ck_assert_str_eq(dlab_status_name(DLAB_EFORMAT), "EFORMAT");
    ck_assert_str_eq(dlab_status_text(DLAB_STATUS_N), "unknown status");
    ck_assert_str_eq(dlab_status_name((dlab_status)-1), "UNKNOWN");
}
END_TEST

START_TEST(fail_fills_code_place_and_message)
{
    dlab_error err = {0};
    ck_assert_int_eq(DLAB_FAIL(&err, DLAB_EIO, "%s: %d", "x", 7), DLAB_EIO);
    const int line = __LINE__ - 1;
    ck_assert_int_eq(err.code, DLAB_EIO);
    ck_assert_str_eq(err.msg, "x: 7");
    ck_assert_int_eq(err.line, line);
    ck_assert_ptr_nonnull(strstr(err.file, "test_status.c"));
    ck_assert_int_eq(DLAB_FAIL(NULL, DLAB_EIO, "nobody listens"), DLAB_EIO);
}
END_TEST

START_TEST(a_message_may_quote_the_one_it_replaces)
{
    dlab_error err = {0};
    (void)DLAB_FAIL(&err, DLAB_EIO, "inner");
    (void)DLAB_FAIL(&err, DLAB_EUSAGE, "outer (%s)", err.msg);
    ck_assert_str_eq(err.msg, "outer (inner)");
}
END_TEST

START_TEST(prefix_goes_in_front)
{
    dlab_error err = {0};
    (void)DLAB_FAIL(&err, DLAB_EFORMAT, "bad magic");
    ck_assert_int_eq(dlab_error_prefix(&err, DLAB_EFORMAT, "%s", "m.gguf"), DLAB_EFORMAT);
    ck_assert_str_eq(err.msg, "m.gguf: bad magic");
    ck_assert_int_eq(dlab_error_prefix(NULL, DLAB_EIO, "x"), DLAB_EIO);
}
END_TEST

/* "é" is two bytes; whatever the parity, a cut must not leave half of it. */
START_TEST(long_messages_are_cut_between_characters)
{
    for (size_t lead = 0; lead < 2; lead++) {
        char text[DLAB_ERROR_MSG + 16];
        memset(text, 'x', sizeof text);
        for (size_t i = lead; i < sizeof text; i++) text[i] = (i - lead) % 2 ? '\xA9' : '\xC3';
        text[sizeof text - 1] = '\0';
        dlab_error err = {0};
        (void)DLAB_FAIL(&err, DLAB_EIO, "%s", text);
        const size_t n = strlen(err.msg);
        ck_assert_uint_lt(n, DLAB_ERROR_MSG);
        ck_assert_uint_gt(n, DLAB_ERROR_MSG - 4);
        ck_assert_uint_eq((n - lead) % 2, 0);
        ck_assert_int_eq((unsigned char)err.msg[n - 1], 0xA9);
    }
}
END_TEST

static dlab_status gives(dlab_status s, int *after)
{
    DLAB_TRY(s);
    *after = 1;
    return DLAB_OK;
}

START_TEST(try_returns_at_the_first_failure)
{
    int after = 0;
    ck_assert_int_eq(gives(DLAB_EOOM, &after), DLAB_EOOM);
    ck_assert_int_eq(after, 0);
    ck_assert_int_eq(gives(DLAB_OK, &after), DLAB_OK);
    ck_assert_int_eq(after, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("status");
    TCase *t = tcase_create("all");
    tcase_add_test(t, every_status_has_a_name_and_a_text);
    tcase_add_test(t, fail_fills_code_place_and_message);
    tcase_add_test(t, a_message_may_quote_the_one_it_replaces);
    tcase_add_test(t, prefix_goes_in_front);
    tcase_add_test(t, long_messages_are_cut_between_characters);
    tcase_add_test(t, try_returns_at_the_first_failure);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

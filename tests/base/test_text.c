#include <check.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

static void becomes(const char *src, size_t size, const char *want)
{
    char buf[64];
    memset(buf, 'z', sizeof buf);
    dlab_text_copy(buf, size, src);
    ck_assert_str_eq(buf, want);
    ck_assert_int_eq(buf[size], 'z');
}

START_TEST(text_is_cut_before_a_character_that_does_not_fit)
{
    becomes("plain", 16, "plain");
    becomes("plain", 5, "plai");
    becomes("plain", 1, "");
    becomes("", 4, "");
    becomes("a\xC3\xA9", 4, "a\xC3\xA9");
    becomes("a\xC3\xA9", 3, "a");
    becomes("\xE2\x80\xA6", 4, "\xE2\x80\xA6");
    becomes("\xE2\x80\xA6", 3, "");
    becomes("\xF0\x9F\x98\x80", 4, "");
}
END_TEST

START_TEST(bytes_that_are_no_utf8_become_question_marks)
{
    static const char *const wrong[][2] = {{"\xFFx", "?x"},
                                           {"a\xC3", "a?"},
                                           {"\xC3(", "?("},
                                           {"\xC0\xAF", "??"},
                                           {"\xE0\x80\x80", "???"},
                                           {"\xED\xA0\x80", "???"},
                                           {"\xE2\x80", "??"},
                                           {"\xF0\x80\x80\x80", "????"},
                                           {"\xF4\x90\x80\x80", "????"},
                                           {"\xF5\x80\x80\x80", "????"},
                                           {"\x80", "?"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) becomes(wrong[i][0], 32, wrong[i][1]);
    becomes("\xF4\x8F\xBF\xBF \xED\x9F\xBF", 32, "\xF4\x8F\xBF\xBF \xED\x9F\xBF");
}
END_TEST

START_TEST(a_copy_onto_itself_cleans)
{
    char text[] = "a\xFF b\xC3\xA9\xC3";
    dlab_text_copy(text, sizeof text, text);
    ck_assert_str_eq(text, "a? b\xC3\xA9?");
}
END_TEST

START_TEST(a_message_with_a_strange_file_name_is_text)
{
    dlab_error err = {0};
    (void)DLAB_FAIL(&err, DLAB_EIO, "%s: no such file", "caf\xE9.gguf");
    ck_assert_str_eq(err.msg, "caf?.gguf: no such file");
    (void)dlab_error_prefix(&err, DLAB_EIO, "\xFE");
    ck_assert_str_eq(err.msg, "?: caf?.gguf: no such file");
}
END_TEST

START_TEST(bytes_are_readable)
{
    static const struct {
        double bytes;
        const char *want;
    } cases[] = {{0, "0 B"},          {1023, "1023 B"},       {1024, "1.0 KiB"}, {1536.0 * 1024, "1.5 MiB"},
                 {0x1p63, "8.0 EiB"}, {0x1p74, "16384.0 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[32];
        dlab_text_bytes(cases[i].bytes, buf, sizeof buf);
        ck_assert_str_eq(buf, cases[i].want);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *c = tcase_create("text");
    tcase_add_test(c, text_is_cut_before_a_character_that_does_not_fit);
    tcase_add_test(c, bytes_that_are_no_utf8_become_question_marks);
    tcase_add_test(c, a_copy_onto_itself_cleans);
    tcase_add_test(c, a_message_with_a_strange_file_name_is_text);
    tcase_add_test(c, bytes_are_readable);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

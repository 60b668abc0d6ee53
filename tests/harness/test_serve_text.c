/* An answer's text as it grows: whole characters, and nothing of a stop string. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "harness/serve/text.h"

static dlab_stops stops_of(const char *a, const char *b)
{
    dlab_stops s = {0};
    if (a) ck_assert_int_eq(dlab_stops_add(&s, a, strlen(a), NULL), DLAB_OK);
    if (b) ck_assert_int_eq(dlab_stops_add(&s, b, strlen(b), NULL), DLAB_OK);
    return s;
}

static void add(dlab_answer_text *t, const dlab_stops *s, const char *bytes)
{
    ck_assert_int_eq(dlab_answer_text_add(t, s, bytes, strlen(bytes), NULL), DLAB_OK);
}

static void ready_is(const dlab_answer_text *t, const char *want)
{
    ck_assert_uint_eq(t->ready, strlen(want));
    ck_assert(t->ready == 0 || memcmp(t->text, want, t->ready) == 0);
}

START_TEST(characters_come_whole)
{
    const dlab_stops none = {0};
    dlab_answer_text t = {0};
    add(&t, &none, "a\xe2");
    ready_is(&t, "a");
    add(&t, &none, "\x82");
    ready_is(&t, "a");
    add(&t, &none, "\xac\xf0\x9f");
    ready_is(&t, "a\xe2\x82\xac");
    add(&t, &none, "\x99\x82!");
    ready_is(&t, "a\xe2\x82\xac\xf0\x9f\x99\x82!");
    add(&t, &none, "\xc3");
    dlab_answer_text_end(&t); /* half a character is not shown */
    ready_is(&t, "a\xe2\x82\xac\xf0\x9f\x99\x82!");
    dlab_answer_text_free(&t);
}
END_TEST

/* Unicode's recommendation: one U+FFFD for each longest run that could have begun a character. */
START_TEST(what_is_no_utf8_is_replaced)
{
    static const struct {
        const char *in, *out;
    } rows[] = {{"\xff", "\xef\xbf\xbd"},
                {"\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xe2\x82x", "\xef\xbf\xbdx"},
                {"\xe2\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
                {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf0\x9f\x99z", "\xef\xbf\xbdz"}};
    const dlab_stops none = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlab_answer_text whole = {0}, bytes = {0};
        add(&whole, &none, rows[i].in);
        for (const char *c = rows[i].in; *c; c++)
            ck_assert_int_eq(dlab_answer_text_add(&bytes, &none, c, 1, NULL), DLAB_OK);
        ready_is(&whole, rows[i].out);
        ready_is(&bytes, rows[i].out);
        dlab_answer_text_free(&whole);
        dlab_answer_text_free(&bytes);
    }
}
END_TEST

START_TEST(a_stop_string_over_several_tokens_never_shows)
{
    dlab_stops s = stops_of("\nUser:", "END");
    dlab_answer_text t = {0};
    add(&t, &s, "Hello\nUs");
    ready_is(&t, "Hello");
    add(&t, &s, "eful\nUse");
    ready_is(&t, "Hello\nUseful");
    add(&t, &s, "r");
    ready_is(&t, "Hello\nUseful");
    add(&t, &s, ": more");
    ready_is(&t, "Hello\nUseful");
    ck_assert(t.stopped);
    add(&t, &s, "x");
    ready_is(&t, "Hello\nUseful");
    dlab_answer_text_free(&t);
    dlab_stops_free(&s);
}
END_TEST

START_TEST(what_only_began_is_shown_at_the_end)
{
    dlab_stops s = stops_of("aab", NULL);
    dlab_answer_text t = {0};
    add(&t, &s, "aaa");
    ready_is(&t, "a");
    dlab_answer_text_end(&t);
    ready_is(&t, "aaa");
    dlab_answer_text_free(&t);
    dlab_stops_free(&s);
}
END_TEST

START_TEST(of_two_that_end_together_the_longer_is_cut)
{
    dlab_stops s = stops_of("b", "ab");
    dlab_answer_text t = {0};
    add(&t, &s, "xa");
    ready_is(&t, "x");
    add(&t, &s, "b");
    ready_is(&t, "x");
    ck_assert(t.stopped);
    dlab_answer_text_free(&t);
    dlab_stops_free(&s);
}
END_TEST

/* Against a plain search, over texts of few letters in which stop strings overlap themselves. */
START_TEST(agrees_with_a_plain_search)
{
    dlab_rng rng;
    size_t n_stopped = 0;
    dlab_rng_seed(&rng, 7);
    for (int run = 0; run < 3000; run++) {
        char text[41] = "", stop[6] = "";
        const size_t n_stop = 1 + dlab_rng_below(&rng, 5);
        for (size_t i = 0; i < 40; i++) text[i] = (char)('a' + dlab_rng_below(&rng, 2));
        for (size_t i = 0; i < n_stop; i++) stop[i] = (char)('a' + dlab_rng_below(&rng, 2));
        dlab_stops s = stops_of(stop, NULL);
        dlab_answer_text t = {0};
        const char *hit = strstr(text, stop);
        const size_t end = hit ? (size_t)(hit - text) : 40;
        for (size_t at = 0; at < 40;) {
            const size_t n = 1 + dlab_rng_below(&rng, 40 - at < 6 ? 40 - at : 6);
            ck_assert_int_eq(dlab_answer_text_add(&t, &s, text + at, n, NULL), DLAB_OK);
            at += n;
            ck_assert_uint_le(t.ready, end); /* never a part of the stop string */
        }
        dlab_answer_text_end(&t);
        ck_assert_uint_eq(t.n, end);
        ck_assert_mem_eq(t.text, text, t.n);
        ck_assert(t.stopped == (hit != NULL));
        n_stopped += t.stopped;
        dlab_answer_text_free(&t);
        dlab_stops_free(&s);
    }
    ck_assert_uint_gt(n_stopped, 500);
    ck_assert_uint_lt(n_stopped, 3000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve_text");
    TCase *t = tcase_create("serve_text");
    tcase_add_test(t, characters_come_whole);
    tcase_add_test(t, what_is_no_utf8_is_replaced);
    tcase_add_test(t, a_stop_string_over_several_tokens_never_shows);
    tcase_add_test(t, what_only_began_is_shown_at_the_end);
    tcase_add_test(t, of_two_that_end_together_the_longer_is_cut);
    tcase_add_test(t, agrees_with_a_plain_search);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

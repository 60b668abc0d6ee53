#include <check.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"

typedef struct {
    int64_t count, size, wait;
    double ratio;
    bool on;
    const char *store;
    char name[DLAB_PARAM_STR];
} settings;

static const char *const *stores(void)
{
    static const char *const words[] = {"contiguous", "none", "paged", NULL};
    return words;
}

static const dlab_param table[] = {
    {"n", DLAB_PARAM_INT, offsetof(settings, count), "3", 1, 100, NULL, "a count"},
    {"mem", DLAB_PARAM_SIZE, offsetof(settings, size), "64KiB", 1024, 1e19, NULL, "a size"},
    {"wait", DLAB_PARAM_DURATION, offsetof(settings, wait), "250ms", 0, 60e9, NULL, "a time"},
    {"ratio", DLAB_PARAM_FLOAT, offsetof(settings, ratio), "0.1", 0, 1, NULL, "a share"},
    {"on", DLAB_PARAM_BOOL, offsetof(settings, on), "yes", 0, 0, NULL, "a switch"},
    {"store", DLAB_PARAM_CHOICE, offsetof(settings, store), "paged", 0, 0, stores, "a store"},
    {"name", DLAB_PARAM_STRING, offsetof(settings, name), "x y", 0, 0, NULL, "a text"},
};
#define N (sizeof table / sizeof *table)

static settings s;
static dlab_error err;

static const dlab_param *row(const char *key)
{
    const dlab_param *p = dlab_param_find(table, N, key);
    ck_assert_ptr_nonnull(p);
    return p;
}

static void takes(const char *key, const char *text)
{
    ck_assert_msg(dlab_param_set(row(key), &s, text, &err) == DLAB_OK, "%s", err.msg);
}

static void refuses(const char *key, const char *text, const char *message)
{
    const settings before = s;
    ck_assert_msg(dlab_param_set(row(key), &s, text, &err) == DLAB_EUSAGE, "took '%s'", text);
    ck_assert_str_eq(err.msg, message);
    ck_assert_mem_eq(&before, &s, sizeof s); /* nothing changed */
}

static void setup(void)
{
    memset(&s, 0, sizeof s);
    dlab_param_defaults(table, N, &s);
}

START_TEST(defaults_are_set)
{
    ck_assert_int_eq(s.count, 3);
    ck_assert_int_eq(s.size, 65536);
    ck_assert_int_eq(s.wait, 250000000);
    ck_assert_double_eq(s.ratio, 0.1);
    ck_assert(s.on);
    ck_assert_str_eq(s.store, "paged");
    ck_assert_str_eq(s.name, "x y");
    ck_assert_ptr_null(dlab_param_find(table, N, "nothing"));
}
END_TEST

START_TEST(whole_numbers)
{
    takes("n", "100");
    ck_assert_int_eq(s.count, 100);
    refuses("n", "101", "n: 101 is out of range, expected 1 to 100");
    refuses("n", "0", "n: 0 is out of range, expected 1 to 100");
    refuses("n", "ten", "n: 'ten' is not a whole number");
    refuses("n", "1.5", "n: '1.5' is not a whole number");
    refuses("n", "", "n: '' is not a whole number");
    refuses("n", " 1", "n: ' 1' is not a whole number");
    refuses("n", "99999999999999999999", "n: 99999999999999999999 is too large a number");
}
END_TEST

START_TEST(sizes_have_units)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"1024", 1024},      {"64KiB", 65536},           {"1.5GiB", INT64_C(3) << 29},
                {"2GB", 2000000000}, {"2 MiB", 2097152},         {"1mib", 1048576},
                {"4096B", 4096},     {"3TiB", INT64_C(3) << 40}, {"9007199254740993", 9007199254740993}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        takes("mem", good[i].text);
        ck_assert_int_eq(s.size, good[i].bytes);
    }
    refuses("mem", "1KB", "mem: 1KB is out of range, expected at least 1KiB");
    refuses("mem", "5 bytes",
            "mem: '5 bytes' is not a size, expected bytes or a number with KiB, MiB, GiB, KB, MB, GB");
    refuses("mem", "MiB", "mem: 'MiB' is not a size, expected bytes or a number with KiB, MiB, GiB, KB, MB, GB");
    refuses("mem", "9999999TiB", "mem: 9999999TiB is too large");
    refuses("mem", "1e300", "mem: 1e300 is too large");
}
END_TEST

START_TEST(durations_have_units)
{
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"250ms", 250000000},
                {"20s", INT64_C(20000000000)},
                {"1", 1000000000},
                {"0.5", 500000000},
                {"1min", INT64_C(60000000000)},
                {"7us", 7000},
                {"3ns", 3},
                {"0", 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        takes("wait", good[i].text);
        ck_assert_int_eq(s.wait, good[i].ns);
    }
    refuses("wait", "2h", "wait: 2h is out of range, expected 0 to 1min");
    refuses("wait", "-1s", "wait: -1s is out of range, expected 0 to 1min");
    refuses("wait", "soon", "wait: 'soon' is not a duration, expected seconds or a number with ns, us, ms, s, min, h");
}
END_TEST

START_TEST(floats_are_finite_decimals)
{
    takes("ratio", "1e-3");
    ck_assert_double_eq(s.ratio, 1e-3);
    takes("ratio", ".5");
    ck_assert_double_eq(s.ratio, 0.5);
    refuses("ratio", "1.5", "ratio: 1.5 is out of range, expected 0 to 1");
    refuses("ratio", "nan", "ratio: 'nan' is not a number");
    refuses("ratio", "inf", "ratio: 'inf' is not a number");
    refuses("ratio", "0x1", "ratio: '0x1' is not a number");
    refuses("ratio", "1e999", "ratio: '1e999' is not a number");
    refuses("ratio", "0.5x", "ratio: '0.5x' is not a number");
}
END_TEST

START_TEST(switches_have_six_words)
{
    static const char *const words[] = {"true", "false", "on", "off", "yes", "no"};
    for (int i = 0; i < 6; i++) {
        takes("on", words[i]);
        ck_assert_int_eq(s.on, i % 2 == 0);
    }
    refuses("on", "1", "on: '1' is not a switch, expected true or false (on/off, yes/no)");
}
END_TEST

START_TEST(a_wrong_choice_is_told_the_nearest)
{
    takes("store", "none");
    ck_assert_ptr_eq(s.store, stores()[1]);
    refuses("store", "contigous",
            "store: 'contigous' is unknown, did you mean 'contiguous'? (known: contiguous, none, paged)");
    refuses("store", "Paged", "store: 'Paged' is unknown, did you mean 'paged'? (known: contiguous, none, paged)");
    refuses("store", "zzzzzzzz", "store: 'zzzzzzzz' is unknown, expected one of contiguous, none, paged");
    refuses("store", "", "store: '' is unknown, expected one of contiguous, none, paged");
}
END_TEST

START_TEST(texts_have_a_greatest_length)
{
    char text[DLAB_PARAM_STR + 1];
    memset(text, 'a', sizeof text);
    text[DLAB_PARAM_STR - 1] = '\0';
    takes("name", text);
    ck_assert_str_eq(s.name, text);
    text[DLAB_PARAM_STR - 1] = 'a';
    text[DLAB_PARAM_STR] = '\0';
    refuses("name", text, "name: a text of 512 bytes, expected at most 511");
}
END_TEST

START_TEST(what_is_printed_is_taken_back)
{
    static const char *const values[][2] = {
        {"n", "17"},        {"mem", "1536"},  {"mem", "3MiB"},   {"mem", "1.5GiB"},
        {"wait", "1500us"}, {"wait", "61ms"}, {"wait", "0"},     {"ratio", "0.3333333333333333"},
        {"ratio", "0.1"},   {"on", "off"},    {"store", "none"}, {"name", "a: b"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char first[DLAB_PARAM_STR], again[DLAB_PARAM_STR];
        takes(values[i][0], values[i][1]);
        const settings want = s;
        dlab_param_print(row(values[i][0]), &s, first, sizeof first);
        takes(values[i][0], first);
        ck_assert_mem_eq(&want, &s, sizeof s);
        dlab_param_print(row(values[i][0]), &s, again, sizeof again);
        ck_assert_str_eq(first, again);
    }
    char buf[32];
    takes("mem", "1.5GiB");
    dlab_param_print(row("mem"), &s, buf, sizeof buf);
    ck_assert_str_eq(buf, "1536MiB");
    takes("ratio", "0.1");
    dlab_param_print(row("ratio"), &s, buf, sizeof buf);
    ck_assert_str_eq(buf, "0.1");
    takes("wait", "0.25");
    dlab_param_print(row("wait"), &s, buf, sizeof buf);
    ck_assert_str_eq(buf, "250ms");
}
END_TEST

START_TEST(nearest_counts_swaps_as_one_edit)
{
    static const char *const words[] = {"ab", "kv.store", "kv.growth", "threads", NULL};
    ck_assert_str_eq(dlab_nearest("kv.stroe", words), "kv.store");    /* a swap */
    ck_assert_str_eq(dlab_nearest("theads", words), "threads");       /* one missing */
    ck_assert_str_eq(dlab_nearest("kv.growht!", words), "kv.growth"); /* a swap and one too many: 2 */
    ck_assert_str_eq(dlab_nearest("ba", words), "ab");
    ck_assert_ptr_null(dlab_nearest("temperature", words));
    ck_assert_ptr_null(dlab_nearest("", words));
    ck_assert_ptr_null(dlab_nearest("xy", words)); /* two edits, but nothing in common with "ab" */
    static const char *const twins[] = {"axis", "axes", NULL};
    ck_assert_str_eq(dlab_nearest("axs", twins), "axis"); /* equally near: the first */
    /* 2 edits are allowed to 8 letters, 3 from 9 on */
    static const char *const one[] = {"abcdefgh", "0123456789", NULL};
    ck_assert_str_eq(dlab_nearest("abcdef", one), "abcdefgh");
    ck_assert_ptr_null(dlab_nearest("abcde", one));
    ck_assert_str_eq(dlab_nearest("0123456xyz", one), "0123456789");
    char long_word[200];
    memset(long_word, 'a', sizeof long_word);
    long_word[199] = '\0';
    ck_assert_ptr_null(dlab_nearest(long_word, one));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("param");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, defaults_are_set);
    tcase_add_test(t, whole_numbers);
    tcase_add_test(t, sizes_have_units);
    tcase_add_test(t, durations_have_units);
    tcase_add_test(t, floats_are_finite_decimals);
    tcase_add_test(t, switches_have_six_words);
    tcase_add_test(t, a_wrong_choice_is_told_the_nearest);
    tcase_add_test(t, texts_have_a_greatest_length);
    tcase_add_test(t, what_is_printed_is_taken_back);
    tcase_add_test(t, nearest_counts_swaps_as_one_edit);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

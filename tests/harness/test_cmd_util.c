/* What the commands share: numbers, lists, words, flags, model look-up, JSON of any bytes. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/cmd/cmd_util.h"

static void list_is(const char *text, const int64_t *want, size_t n_want)
{
    int64_t got[16];
    size_t n = 0;
    dlab_error err = {0};
    ck_assert_msg(dlab_cmd_int_list("-p", text, 0, 100000, got, &n, 16, &err) == DLAB_OK, "%s: %s", text, err.msg);
    ck_assert_msg(n == n_want, "%s: %zu values, expected %zu", text, n, n_want);
    for (size_t i = 0; i < n; i++) ck_assert_int_eq(got[i], want[i]);
}
#define LIST_IS(text, ...) list_is(text, (int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t))

START_TEST(lists_are_read_as_llama_bench_reads_them)
{
    LIST_IS("512", 512);
    LIST_IS("512,1024", 512, 1024);
    LIST_IS("1-4", 1, 2, 3, 4);
    LIST_IS("1-9+4", 1, 5, 9);
    LIST_IS("1-10+4", 1, 5, 9);
    LIST_IS("1-64*4", 1, 4, 16, 64);
    LIST_IS("3,8-16*2,0", 3, 8, 16, 0);
    LIST_IS("7-7", 7);
    LIST_IS("0-0*2", 0);
}
END_TEST

START_TEST(bad_lists_name_the_flag)
{
    static const char *const bad[] = {
        "",      "x",   "4x",    "1,", ",1", "1-",  "-1",   "1-4+",   "1-4+0",      "1-4*1",
        "0-4*2", "4-1", "1-4/2", " 1", "1 ", "1.5", "0x10", "100001", "1-100001*2", "99999999999999999999",
        "1-17"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t got[16];
        size_t n = 0;
        dlab_error err = {0};
        ck_assert_msg(dlab_cmd_int_list("-npl", bad[i], 0, 100000, got, &n, 16, &err) == DLAB_EUSAGE, "\"%s\" passed",
                      bad[i]);
        ck_assert_msg(strncmp(err.msg, "-npl: ", 6) == 0, "\"%s\": %s", bad[i], err.msg);
    }
}
END_TEST

START_TEST(huge_ranges_do_not_overflow)
{
    int64_t got[4];
    size_t n = 0;
    ck_assert_int_eq(
        dlab_cmd_int_list("-p", "9223372036854775806-9223372036854775807+2", 0, INT64_MAX, got, &n, 4, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 1);
    n = 0;
    ck_assert_int_eq(
        dlab_cmd_int_list("-p", "4611686018427387904-9223372036854775807*2", 0, INT64_MAX, got, &n, 4, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(whole_numbers_only)
{
    int64_t v = 0;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_cmd_int("-n", "12", 1, 20, &v, &err), DLAB_OK);
    ck_assert_int_eq(v, 12);
    ck_assert_int_eq(dlab_cmd_int("-n", "-3", -5, 20, &v, &err), DLAB_OK);
    ck_assert_int_eq(v, -3);
    static const char *const bad[] = {"", "-", "x", "1x", " 1", "+1", "1.0", "0", "21", "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(dlab_cmd_int("-n", bad[i], 1, 20, &v, &err) == DLAB_EUSAGE, "\"%s\" passed", bad[i]);
        ck_assert_msg(strncmp(err.msg, "-n: ", 4) == 0, "%s", err.msg);
    }
    ck_assert_int_eq(v, -3); /* untouched by errors */
}
END_TEST

/* ---- flags ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    int64_t n;
    const char *word, *arg;
    int quiet;
} seen;

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    seen *s = opts;
    if (key == ARGP_KEY_ARG) return dlab_cmd_one_arg("record", arg, &s->arg, err);
    if (key == 'n') return dlab_cmd_int("-n", arg, 0, 9, &s->n, err);
    if (key == DLAB_CMD_KEY) s->word = arg;
    if (key == DLAB_CMD_KEY + 1) s->quiet++;
    return DLAB_OK;
}

static const struct argp_option flags[] = {{"number", 'n', "N", 0, "a number", 0},
                                           {"ctk", DLAB_CMD_KEY, "WORD", 0, "a word", 0},
                                           {"quiet", DLAB_CMD_KEY + 1, NULL, 0, "silent", 0},
                                           {0}};

static dlab_status parse(const char *args, bool long_only, int *argc_out, seen *s, dlab_error *err)
{
    dlab_cmd_cli cli = {.name = "x",
                        .args = *args == '@' ? "RECORD" : NULL,
                        .about = "a",
                        .example = "e",
                        .options = flags,
                        .set = set,
                        .long_only = long_only};
    char *copy = strdup(*args == '@' ? args + 1 : args), *argv[16] = {"x"}, *rest = copy, *word;
    int argc = 1;
    bool helped = false;
    while ((word = strsep(&rest, " "))) {
        if (*word) argv[argc++] = word;
    }
    *s = (seen){.n = -1};
    dlab_status st = dlab_cmd_parse(&cli, argc, argv, s, &helped, err);
    *argc_out = argc;
    ck_assert(!helped);
    if (s->word) s->word = strcmp(s->word, "f16") == 0 ? "f16" : "?"; /* copy goes */
    s->arg = s->arg ? "given" : NULL;
    free(copy);
    return st;
}

START_TEST(flags_in_every_spelling)
{
    static const char *const spellings[] = {"-n 4 -ctk f16 --quiet", "--number 4 --ctk f16 -quiet",
                                            "--number=4 -ctk=f16 --quiet", "-n4 --ctk=f16 --quiet"};
    for (size_t i = 0; i < 4; i++) {
        seen s;
        int argc;
        dlab_error err = {0};
        ck_assert_msg(parse(spellings[i], true, &argc, &s, &err) == DLAB_OK, "%s: %s", spellings[i], err.msg);
        ck_assert_int_eq(s.n, 4);
        ck_assert_str_eq(s.word, "f16");
        ck_assert_int_eq(s.quiet, 1);
    }
}
END_TEST

static void fails_with(const char *args, bool long_only, const char *want)
{
    seen s;
    int argc;
    dlab_error err = {0};
    ck_assert_msg(parse(args, long_only, &argc, &s, &err) == DLAB_EUSAGE, "\"%s\" passed", args);
    ck_assert_msg(strstr(err.msg, want) != NULL, "\"%s\": %s", args, err.msg);
    ck_assert_ptr_null(strchr(err.msg, '\n'));
}

START_TEST(bad_flags_are_named)
{
    fails_with("-ctl f16", true, "unknown flag -ctl; did you mean -ctk?");
    fails_with("--numbr 3", false, "unknown flag --numbr; did you mean --number?");
    fails_with("--frobnicate", false, "unknown flag --frobnicate; `dlab x --help`");
    fails_with("-z", false, "unknown flag -z");
    fails_with("-n", false, "-n: needs a value, N");
    fails_with("--number", false, "--number: needs a value, N");
    fails_with("-ctk", true, "-ctk: needs a value, WORD");
    fails_with("--quiet=3", false, "--quiet=3: takes no value");
    fails_with("-n x", false, "-n: \"x\" is not a whole number");
    fails_with("-n 3 stray", false, "unexpected argument \"stray\"");
    fails_with("@one two", false, "one record is expected, but \"two\" follows \"one\"");
}
END_TEST

START_TEST(positional_argument_is_taken)
{
    seen s;
    int argc;
    ck_assert_int_eq(parse("@-n 3 file.h5", false, &argc, &s, NULL), DLAB_OK);
    ck_assert_ptr_nonnull(s.arg);
    ck_assert_int_eq(s.n, 3);
}
END_TEST

/* ---- models ------------------------------------------------------------------------------------------------------------ */

START_TEST(model_is_looked_up_in_order)
{
    char buf[PATH_MAX], dir[] = "/tmp/dlab-test-XXXXXX", path[PATH_MAX];
    dlab_error err = {0};
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    unsetenv("DLAB_MODEL");
    ck_assert_int_eq(dlab_cmd_model_path(NULL, buf, sizeof buf, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(err.msg, "make demo"));
    ck_assert_ptr_nonnull(strstr(err.msg, "synthetic:smollm2-135m"));

    snprintf(path, sizeof path, "%s/decodelab", dir);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/decodelab/%s", dir, DLAB_CMD_MODEL_FILE);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    ck_assert_int_eq(dlab_cmd_model_path(NULL, buf, sizeof buf, &err), DLAB_OK);
    ck_assert_str_eq(buf, path);

    setenv("DLAB_MODEL", "synthetic:tiny", 1);
    ck_assert_int_eq(dlab_cmd_model_path(NULL, buf, sizeof buf, &err), DLAB_OK);
    ck_assert_str_eq(buf, "synthetic:tiny");
    ck_assert_int_eq(dlab_cmd_model_path("given.gguf", buf, sizeof buf, &err), DLAB_OK);
    ck_assert_str_eq(buf, "given.gguf");
    ck_assert_int_eq(dlab_cmd_model_path("", buf, sizeof buf, &err), DLAB_EUSAGE);
    char small[4];
    ck_assert_int_eq(dlab_cmd_model_path("given.gguf", small, sizeof small, &err), DLAB_EUSAGE);
    unlink(path);
    snprintf(path, sizeof path, "%s/decodelab", dir);
    rmdir(path);
    rmdir(dir);
    unsetenv("DLAB_MODEL");
    unsetenv("XDG_CACHE_HOME");
}
END_TEST

START_TEST(our_own_files_are_found)
{
    char buf[PATH_MAX];
    ck_assert(dlab_cmd_share_path("experiments/text/corpus.txt", buf, sizeof buf));
    ck_assert_int_eq(access(buf, R_OK), 0);
    ck_assert(!dlab_cmd_share_path("experiments/no-such-file", buf, sizeof buf));
    ck_assert_str_eq(buf, "");
}
END_TEST

/* ---- output ------------------------------------------------------------------------------------------------------------ */

START_TEST(any_bytes_become_a_json_string)
{
    static const char text[] = "a\xc3\xa9\xff\0\xe2\x82z";
    json_t *j = dlab_cmd_text_json(text, sizeof text - 1);
    ck_assert_ptr_nonnull(j);
    static const char want[] = "a\xc3\xa9\xef\xbf\xbd\0\xef\xbf\xbd\xef\xbf\xbdz";
    ck_assert_uint_eq(json_string_length(j), sizeof want - 1);
    ck_assert_mem_eq(json_string_value(j), want, sizeof want);
    json_decref(j);
    j = dlab_cmd_text_json("", 0);
    ck_assert_str_eq(json_string_value(j), "");
    json_decref(j);
}
END_TEST

START_TEST(plan_has_every_key)
{
    dlab_plan plan;
    size_t n = 0;
    dlab_plan_default(&plan);
    const dlab_param *table = dlab_plan_params(&n);
    json_t *j = dlab_cmd_plan_json(&plan);
    ck_assert_uint_eq(json_object_size(j), n);
    ck_assert_uint_gt(n, 10);
    for (size_t i = 0; i < n; i++) ck_assert_ptr_nonnull(json_object_get(j, table[i].key));
    ck_assert_str_eq(json_string_value(json_object_get(j, "kv.store")), "contiguous");
    ck_assert(json_is_integer(json_object_get(j, "batch.size")));
    ck_assert(json_is_real(json_object_get(j, "sample.temperature")));
    json_decref(j);
}
END_TEST

START_TEST(only_a_bug_of_ours_shows_its_place)
{
    char buf[256], want[256];
    dlab_error err = {0};
    (void)DLAB_FAIL(&err, DLAB_EINTERNAL, "a bug");
    snprintf(want, sizeof want, "a bug [tests/harness/test_cmd_util.c:%d]", __LINE__ - 1);
    dlab_cmd_error_text(&err, buf, sizeof buf);
    ck_assert_str_eq(buf, want);
    (void)DLAB_FAIL(&err, DLAB_EIO, "two\nlines");
    dlab_cmd_error_text(&err, buf, sizeof buf);
    ck_assert_str_eq(buf, "two lines");
    err = (dlab_error){.code = DLAB_EUSAGE};
    dlab_cmd_error_text(&err, buf, sizeof buf);
    ck_assert_str_eq(buf, "wrong use");
}
END_TEST

START_TEST(exit_codes)
{
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_OK), 0);
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_EUSAGE), 2);
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_EFORMAT), 2);
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_EIO), 2);
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_ENOTBUILT), 2);
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_EINTERRUPTED), 130);
    ck_assert_int_eq(dlab_cmd_exit_code(DLAB_EINTERNAL), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cmd_util");
    TCase *t = tcase_create("cmd_util");
    tcase_add_test(t, lists_are_read_as_llama_bench_reads_them);
    tcase_add_test(t, bad_lists_name_the_flag);
    tcase_add_test(t, huge_ranges_do_not_overflow);
    tcase_add_test(t, whole_numbers_only);
    tcase_add_test(t, flags_in_every_spelling);
    tcase_add_test(t, bad_flags_are_named);
    tcase_add_test(t, positional_argument_is_taken);
    tcase_add_test(t, model_is_looked_up_in_order);
    tcase_add_test(t, our_own_files_are_found);
    tcase_add_test(t, any_bytes_become_a_json_string);
    tcase_add_test(t, plan_has_every_key);
    tcase_add_test(t, only_a_bug_of_ours_shows_its_place);
    tcase_add_test(t, exit_codes);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* The commands on the real model: every hard text of the fixture, with and without special tokens. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cmd/cmd_util.h"

static const volatile sig_atomic_t never;

static const dlab_command *command(const char *name)
{
    for (size_t i = 0; dlab_commands[i]; i++) {
        if (strcmp(dlab_commands[i]->name, name) == 0) return dlab_commands[i];
    }
    return NULL;
}

/* Runs the command with standard output in a file and reads the document from it. */
static json_t *document(int argc, char **argv)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), code = 0;
    dup2(fileno(file), STDOUT_FILENO);
    dlab_cmd_ctx ctx = {.interrupted = &never, .exe = "dlab"};
    dlab_error err = {0};
    dlab_status st = command(argv[0])->run(&ctx, argc, argv, &code, &err);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    ck_assert_msg(st == DLAB_OK, "%s: %s", argv[0], err.msg);
    rewind(file);
    json_error_t e;
    json_t *j = json_loadf(file, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(j != NULL, "%s: %s", argv[0], e.text);
    fclose(file);
    return j;
}

static json_t *tokenized(const char *path, char *flag)
{
    char *argv[] = {"tokenize", "-f", (char *)(uintptr_t)path, "-o", "json", flag, NULL};
    return document(flag ? 6 : 5, argv);
}

START_TEST(every_text_becomes_the_reference_ids)
{
    json_error_t e;
    json_t *cases = json_load_file(DLAB_FIXTURES "/smollm2_tokens.json", JSON_ALLOW_NUL, &e), *one;
    ck_assert_msg(json_array_size(cases) >= 36, "%s", e.text);
    char path[] = "/tmp/dlab-test-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    size_t i;
    json_array_foreach(cases, i, one)
    {
        const json_t *text = json_object_get(one, "text");
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(pwrite(fd, json_string_value(text), json_string_length(text), 0),
                         (ssize_t)json_string_length(text));
        json_t *ids = tokenized(path, NULL), *plain = tokenized(path, "--no-special");
        ck_assert_msg(json_equal(ids, json_object_get(one, "ids")), "text %zu", i);
        ck_assert_msg(json_equal(plain, json_object_get(one, "ids_no_special")), "text %zu without special tokens", i);
        json_decref(ids);
        json_decref(plain);
    }
    close(fd);
    unlink(path);
    json_decref(cases);
}
END_TEST

START_TEST(generation_stops_at_the_end_only_when_asked)
{
    char *all[] = {"generate", "-p",          "The capital of France is",
                   "-n",       "32",          "--greedy",
                   "--set",    "compute=f32", "--set",
                   "kv.k=f32", "--set",       "kv.v=f32",
                   "-o",       "json",        "--eos",
                   NULL};
    json_t *whole = document(14, all), *ended = document(15, all);
    ck_assert_uint_eq(json_array_size(json_object_get(whole, "ids")), 32);
    ck_assert_str_eq(json_string_value(json_object_get(whole, "finish")), "length");
    ck_assert_uint_eq(json_array_size(json_object_get(ended, "ids")), 30); /* the 30th is the end of the sequence */
    ck_assert_str_eq(json_string_value(json_object_get(ended, "finish")), "eos");
    json_decref(whole);
    json_decref(ended);
}
END_TEST

int main(void)
{
    char path[PATH_MAX];
    dlab_error err = {0};
    if (dlab_cmd_model_path(NULL, path, sizeof path, &err) != DLAB_OK || access(path, R_OK) != 0) {
        const char *required = getenv("DLAB_REQUIRE_MODEL");
        fprintf(stderr, "test_cmd_model: skipped, needs the real model: %s\n", err.msg);
        return required && strcmp(required, "1") == 0 ? 1 : 77;
    }
    Suite *s = suite_create("cmd_model");
    TCase *t = tcase_create("cmd_model");
    tcase_add_test(t, every_text_becomes_the_reference_ids);
    tcase_add_test(t, generation_stops_at_the_end_only_when_asked);
    tcase_set_timeout(t, 300);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

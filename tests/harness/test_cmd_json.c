/* With -o json, standard output is one strict JSON document: every command that has it, run in this process. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cmd/cmd_util.h"

static const volatile sig_atomic_t never;

/* Runs a command line with standard output in a file; *text is malloc'd. */
static dlab_status run(const char *line, int *code, char **text, dlab_error *err)
{
    char *copy = strdup(line), *argv[32], *rest = copy, *word;
    int argc = 0;
    while (argc < 31 && (word = strsep(&rest, " "))) argv[argc++] = word;
    ck_assert_int_gt(argc, 0);
    argv[argc] = NULL;
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    dlab_cmd_ctx ctx = {.interrupted = &never, .exe = "dlab"};
    dlab_status st = DLAB_EINTERNAL;
    for (size_t i = 0; dlab_commands[i]; i++) {
        if (strcmp(dlab_commands[i]->name, argv[0]) == 0) st = dlab_commands[i]->run(&ctx, argc, argv, code, err);
    }
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    *text = calloc((size_t)size + 1, 1);
    ck_assert_ptr_nonnull(*text);
    ck_assert_uint_eq(fread(*text, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    free(copy);
    return st;
}

static json_t *document(const char *line)
{
    char *text = NULL;
    int code = 0;
    dlab_error err = {0};
    ck_assert_msg(run(line, &code, &text, &err) == DLAB_OK, "%s: %s", line, err.msg);
    ck_assert_int_eq(code, 0);
    json_error_t e;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(j != NULL, "%s: %d:%d %s", line, e.line, e.column, e.text);
    free(text);
    return j;
}

static json_int_t int_at(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    ck_assert_msg(json_is_integer(v), "%s is no whole number", key);
    return json_integer_value(v);
}

START_TEST(env_and_list)
{
    json_t *j = document("env -o json");
    ck_assert(json_is_string(json_object_get(j, "cpu_model")) || json_is_string(json_object_get(j, "cores")));
    json_decref(j);
    j = document("list -o json");
    static const char *const parts[] = {"axes", "keys", "metrics", "experiments", "models"};
    for (size_t i = 0; i < 5; i++) ck_assert_msg(json_array_size(json_object_get(j, parts[i])) > 0, "no %s", parts[i]);
    json_decref(j);
    j = document("list -o json metrics");
    ck_assert_uint_eq(json_object_size(j), 1);
    json_decref(j);
}
END_TEST

START_TEST(tokenize_prints_the_ids)
{
    json_t *j = document("tokenize -m synthetic:tiny -p Hi -o json");
    ck_assert_uint_eq(json_array_size(j), 2); /* the byte tokenizer */
    ck_assert_int_eq(json_integer_value(json_array_get(j, 0)), 'H');
    json_decref(j);
    j = document("tokenize -m synthetic:tiny -f /dev/null -o json");
    ck_assert_uint_eq(json_array_size(j), 0);
    json_decref(j);
}
END_TEST

START_TEST(generate_prints_ids_text_and_timing)
{
    json_t *j = document("generate -m synthetic:tiny -p Hi -n 5 --greedy -o json");
    ck_assert_uint_eq(json_array_size(json_object_get(j, "ids")), 5);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "prompt_ids")), 2);
    ck_assert_str_eq(json_string_value(json_object_get(j, "finish")), "length");
    ck_assert(json_is_string(json_object_get(j, "text")));
    ck_assert_double_gt(json_real_value(json_object_get(json_object_get(j, "timing"), "ttft_ms")), 0);
    json_decref(j);
    /* one token: no time between tokens, so it is missing, not 0 */
    j = document("generate -m synthetic:tiny -p Hi -n 1 -o json");
    ck_assert(json_is_null(json_object_get(json_object_get(j, "timing"), "tpot_ms")));
    json_decref(j);
}
END_TEST

START_TEST(sampling_is_seeded)
{
    const char *line =
        "generate -m synthetic:tiny -p Hi -n 12 --set sample.temperature=1.5 --set sample.seed=7 -o json";
    json_t *a = document(line), *b = document(line);
    json_t *c =
        document("generate -m synthetic:tiny -p Hi -n 12 --set sample.temperature=1.5 --set sample.seed=8 -o json");
    ck_assert(json_equal(json_object_get(a, "ids"), json_object_get(b, "ids")));
    ck_assert(!json_equal(json_object_get(a, "ids"), json_object_get(c, "ids")));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}
END_TEST

START_TEST(ppl_states_its_protocol)
{
    json_t *j = document("ppl -m synthetic:tiny -c 32 --chunks 3 --set attention.kernel=unfused -o json");
    ck_assert_int_eq(int_at(j, "chunks"), 3);
    ck_assert_int_eq(int_at(j, "context"), 32);
    ck_assert_int_eq(int_at(j, "n_scored"), 3 * 15);
    ck_assert_str_eq(json_string_value(json_object_get(j, "protocol")), "llama.cpp");
    ck_assert_double_gt(json_real_value(json_object_get(j, "ppl")), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(j, "plan"), "attention.kernel")), "unfused");
    static const char *const keys[] = {"nll", "bits_per_byte", "se", "bos", "corpus_hash", "corpus_bytes", "model"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) ck_assert_ptr_nonnull(json_object_get(j, keys[i]));
    json_decref(j);
    j = document("ppl -m synthetic:tiny -c 32 --chunks 3 --protocol full -o json");
    ck_assert_int_eq(int_at(j, "n_scored"), 3 * 31);
    json_decref(j);
}
END_TEST

static json_t *memory_row(const json_t *document, const char *dtype)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(document, "rows"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "kv_dtype")), dtype) == 0) return row;
    }
    ck_abort_msg("no row of %s", dtype);
    return NULL;
}

START_TEST(memory_has_the_articles_numbers)
{
    json_t *j = document("memory --layers 28 --heads 28 --kv-heads 4 --head-dim 128 --tokens 4096 -o json");
    json_t *row = memory_row(j, "f16");
    ck_assert_int_eq(int_at(row, "bytes"), 234881024);
    ck_assert_int_eq(int_at(row, "multi_head_bytes"), 1644167168);
    ck_assert_double_eq(json_real_value(json_object_get(row, "overstated")), 7);
    json_decref(j);
    j = document("memory --layers 32 --kv-heads 32 --head-dim 128 --tokens 4096 --batch 1,3 -o json");
    row = memory_row(j, "f16");
    ck_assert_int_eq(int_at(row, "bytes"), 2147483648);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "gb")), 2.147, 0.0005);
    ck_assert(json_is_null(json_object_get(row, "multi_head_bytes")));
    json_decref(j);
}
END_TEST

/* What is planned is what the pool of a run holds: 2 tokens of the prompt and all new ones but the last, which is never
 * fed back. Scales count. */
START_TEST(memory_agrees_with_the_pools)
{
    static const char *const dtypes[] = {"f16", "f32", "bf16", "int8", "fp8", "fp8_e5m2", "int4"};
    const char *dtype = dtypes[_i];
    char line[160];
    snprintf(line, sizeof line, "generate -m synthetic:tiny -p Hi -n 23 --set kv.k=%s --set kv.v=%s -o json", dtype,
             dtype);
    json_t *plan = document("memory -m synthetic:tiny --tokens 24 -o json"), *made = document(line);
    const json_int_t want = int_at(memory_row(plan, dtype), "bytes");
    ck_assert_int_gt(want, 0);
    ck_assert_int_eq(int_at(json_object_get(made, "memory"), "kv_pool_bytes"), want);
    json_decref(made);
    json_decref(plan);
}
END_TEST

/* One prompt of 2 tokens and three answers of 5. */
START_TEST(samples_are_in_the_document)
{
    json_t *j = document("generate -m synthetic:tiny -p Hi -n 5 --samples 3 --set kv.store=paged -o json");
    const json_t *others = json_object_get(j, "other_samples"), *ids = json_object_get(j, "ids");
    ck_assert_uint_eq(json_array_size(others), 2);
    ck_assert_uint_eq(json_array_size(ids), 5);
    for (size_t i = 0; i < 2; i++) {
        const json_t *other = json_array_get(others, i);
        ck_assert(json_equal(json_object_get(other, "ids"), ids)); /* greedy */
        ck_assert_ptr_nonnull(json_object_get(other, "text"));
        ck_assert_str_eq(json_string_value(json_object_get(other, "finish")), "length");
    }
    ck_assert_int_eq(int_at(json_object_get(j, "plan"), "batch.size"), 3);
    json_decref(j);
    j = document("generate -m synthetic:tiny -p Hi -n 5 -o json");
    ck_assert_uint_eq(json_array_size(json_object_get(j, "other_samples")), 0);
    json_decref(j);
}
END_TEST

START_TEST(bench_and_its_overhead)
{
    json_t *j = document("bench -m synthetic:tiny -p 8 -n 4 -r 2 -o json");
    ck_assert_uint_eq(json_array_size(j), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(j, 1), "test")), "tg4");
    json_decref(j);
    j = document("bench --overhead -o json");
    ck_assert_double_gt(json_real_value(json_object_get(j, "overhead_ns_per_token")), 0);
    json_decref(j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cmd_json");
    TCase *t = tcase_create("cmd_json");
    tcase_add_test(t, env_and_list);
    tcase_add_test(t, tokenize_prints_the_ids);
    tcase_add_test(t, generate_prints_ids_text_and_timing);
    tcase_add_test(t, sampling_is_seeded);
    tcase_add_test(t, ppl_states_its_protocol);
    tcase_add_test(t, memory_has_the_articles_numbers);
    tcase_add_loop_test(t, memory_agrees_with_the_pools, 0, 7);
    tcase_add_test(t, samples_are_in_the_document);
    tcase_add_test(t, bench_and_its_overhead);
    tcase_set_timeout(t, 120);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

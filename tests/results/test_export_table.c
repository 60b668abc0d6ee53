#include <jansson.h>

#include "results/export.h"
#include "tests/results/synthetic.h"

static const batch_shape small = {.seqs = 2, .prompt = 5, .made = 3, .ttft_ns = 5e8, .gap_ns = 1e7, .retains = true};

static dlab_record record;
static dlab_error err;
static char *text;

/* Two points of one and two runs. */
static void setup(void)
{
    dlab_record_init(&record);
    err = (dlab_error){0};
    text = NULL;
    add_point(&record, (const char *[]){"kv.store", "contiguous", NULL});
    add_run(&record, &small);
    add_point(&record, (const char *[]){"kv.store", "paged, shared", NULL});
    add_run(&record, &small);
    dlab_run *run = add_run(&record, &small);
    run->steps[1].kv_reserved = 1234567890123;
    run->steps[1].kv_free = 77;
    run->steps[1].kv_shared = -1;
    run->steps[1].kv_dense_bytes = NAN;
    run->steps[1].nonfinite = 2;
}

static void teardown(void)
{
    free(text);
    dlab_record_free(&record);
}

static json_t *rows_of(const char *table)
{
    json_error_t e;
    free(text);
    ck_assert_msg(dlab_export_table(&record, table, "json", &text, &err) == DLAB_OK, "%s", err.msg);
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(j != NULL, "%s", e.text);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "schema")), 1);
    json_t *rows = json_incref(json_object_get(j, table));
    ck_assert(json_is_array(rows));
    json_decref(j);
    return rows;
}

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    ck_assert_msg(json_is_number(v), "%s", key);
    return json_number_value(v);
}

START_TEST(steps_are_a_series_of_each_run)
{
    json_t *rows = rows_of("steps");
    ck_assert_uint_eq(json_array_size(rows), 9);
    const json_t *row = json_array_get(rows, 7); /* the second step of the last run */
    ck_assert_str_eq(json_string_value(json_object_get(row, "label")), "kv.store=paged, shared");
    ck_assert_double_eq(number(row, "point"), 1);
    ck_assert_double_eq(number(row, "repeat"), 1);
    ck_assert_double_eq(number(row, "t_begin_ns"), 5e8);
    ck_assert_double_eq(number(row, "t_end_ns"), 5.1e8);
    ck_assert_double_eq(number(row, "decode_rows"), 2);
    ck_assert_double_eq(number(row, "kv_reserved_B"), 1234567890123);
    ck_assert_double_eq(number(row, "kv_free_B"), 77);
    ck_assert_double_eq(number(row, "nonfinite"), 2);
    ck_assert_double_eq(number(row, "preempted"), 0);
    ck_assert(json_is_null(json_object_get(row, "kv_shared_B"))); /* unknown is missing, not -1 */
    ck_assert(json_is_null(json_object_get(row, "kv_dense_bytes_B")));
    for (const char *const *name = (const char *[]){"kv_used_B", "kv_cached_B", "kv_unusable_B", "growths", NULL};
         *name; name++)
        number(row, *name);
    ck_assert_double_eq(number(json_array_get(rows, 0), "point"), 0);
    json_decref(rows);
}
END_TEST

START_TEST(every_table_can_be_had)
{
    static const size_t expected[] = {6, 18, 9, 0, 0, 0};
    for (size_t i = 0; dlab_export_tables[i]; i++) {
        json_t *rows = rows_of(dlab_export_tables[i]);
        ck_assert_uint_eq(json_array_size(rows), expected[i]);
        json_decref(rows);
    }
}
END_TEST

START_TEST(csv_has_units_in_its_names)
{
    ck_assert_int_eq(dlab_export_table(&record, "requests", "csv", &text, &err), DLAB_OK);
    static const char head[] = "label,point,repeat,id,prompt_tokens,depth_tokens,new_tokens,asked_tokens,cached_tokens,"
                               "t_sched_ns,t_submit_ns,t_admit_ns,t_first_ns,t_done_ns,finish,failure,http_status,"
                               "priority,turn,conversation\n"
                               "kv.store=contiguous,0,0,0,5,0,3,0,0,0,0,0,5e+08,5.2e+08,1,0,0,0,0,0\n";
    ck_assert_msg(strncmp(text, head, strlen(head)) == 0, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "\n\"kv.store=paged, shared\",1,1,1,"));
}
END_TEST

START_TEST(markdown_shows_missing_as_a_dash)
{
    ck_assert_int_eq(dlab_export_table(&record, "steps", "md", &text, &err), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "| 1234567890123 |"));
    ck_assert_ptr_nonnull(strstr(text, "– |"));
}
END_TEST

START_TEST(unknown_words_are_refused)
{
    ck_assert_int_eq(dlab_export_table(&record, "stepz", "csv", &text, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(text);
    ck_assert_ptr_nonnull(
        strstr(err.msg, "\"stepz\" is not known; expected requests, tokens, steps, memory, quality or peaks"));
    ck_assert_int_eq(dlab_export_table(&record, "steps", "xml", &text, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("export table");
    TCase *c = tcase_create("table");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, steps_are_a_series_of_each_run);
    tcase_add_test(c, every_table_can_be_had);
    tcase_add_test(c, csv_has_units_in_its_names);
    tcase_add_test(c, markdown_shows_missing_as_a_dash);
    tcase_add_test(c, unknown_words_are_refused);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

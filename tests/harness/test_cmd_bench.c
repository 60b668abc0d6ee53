/* dlab bench: which cells, what they are called, how a row is printed, also one that failed. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_bench.h"

static dlab_bench_opts base_opts(void)
{
    dlab_bench_opts o = {.repeats = 2, .no_warmup = true, .format = "json"};
    dlab_plan_default(&o.plan);
    o.prompt = (dlab_bench_ints){.v = {16}, .n = 1};
    o.gen = (dlab_bench_ints){.v = {4}, .n = 1};
    o.depth = (dlab_bench_ints){.v = {0}, .n = 1};
    return o;
}

static void name_is(dlab_bench_cell c, const char *want)
{
    char name[96];
    dlab_bench_test_name(&c, name, sizeof name);
    ck_assert_str_eq(name, want);
}

START_TEST(tests_are_named_as_in_llama_bench)
{
    name_is((dlab_bench_cell){.n_prompt = 512, .npl = 1}, "pp512");
    name_is((dlab_bench_cell){.n_gen = 128, .npl = 1}, "tg128");
    name_is((dlab_bench_cell){.n_prompt = 512, .n_gen = 128, .npl = 1}, "pp512+tg128");
    name_is((dlab_bench_cell){.n_gen = 128, .depth = 1024, .npl = 1}, "tg128 @ d1024");
    name_is((dlab_bench_cell){.n_gen = 128, .depth = 64, .npl = 4}, "tg128 @ d64 npl4");
}
END_TEST

START_TEST(cells_are_all_combinations)
{
    dlab_bench_opts o = base_opts();
    o.prompt = (dlab_bench_ints){.v = {16, 0}, .n = 2}; /* a test of nothing is none */
    o.pg_prompt = (dlab_bench_ints){.v = {8}, .n = 1};
    o.pg_gen = (dlab_bench_ints){.v = {2}, .n = 1};
    o.depth = (dlab_bench_ints){.v = {0, 32}, .n = 2};
    o.threads = (dlab_bench_ints){.v = {1, 2}, .n = 2};
    o.npl = (dlab_bench_ints){.v = {3}, .n = 1};
    o.ctk = (dlab_bench_words){.v = {"f16", "f32"}, .n = 2};
    dlab_bench_cell *cells = NULL;
    size_t n = 0;
    ck_assert_int_eq(dlab_bench_cells(&o, &cells, &n, NULL), DLAB_OK);
    ck_assert_uint_eq(n, 3 * 2 * 2 * 2);
    for (size_t i = 0; i < n; i += 3) {
        name_is((dlab_bench_cell){.n_prompt = cells[i].n_prompt, .npl = 1}, "pp16");
        ck_assert_int_eq(cells[i + 1].n_gen, 4);
        ck_assert_int_eq(cells[i + 2].n_prompt + cells[i + 2].n_gen, 10);
        ck_assert_int_eq(cells[i].plan.batch_size, 3);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            bool same = cells[i].depth == cells[k].depth && cells[i].plan.threads == cells[k].plan.threads &&
                        cells[i].plan.kv_k == cells[k].plan.kv_k && cells[i].n_prompt == cells[k].n_prompt &&
                        cells[i].n_gen == cells[k].n_gen;
            ck_assert(!same);
        }
    }
    free(cells);
}
END_TEST

START_TEST(spread_is_the_samples)
{
    const double x[] = {1, 2, NAN, 4};
    dlab_bench_stat s = dlab_bench_stat_of(x, 4);
    ck_assert_uint_eq(s.n, 3);
    ck_assert_double_eq_tol(s.mean, 7.0 / 3, 1e-15);
    ck_assert_double_eq_tol(s.sd, 1.5275252316519468, 1e-12); /* n − 1 */
    ck_assert(isnan(dlab_bench_stat_of(x, 1).sd));
    ck_assert(isnan(dlab_bench_stat_of(x, 0).mean));
}
END_TEST

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

static char *printed(const char *format, const dlab_bench_opts *o, const dlab_bench_row *rows, size_t n)
{
    char *text = NULL;
    size_t size = 0;
    dlab_bench_out out = {.to = open_memstream(&text, &size), .format = format, .opts = o};
    ck_assert_ptr_nonnull(out.to);
    dlab_bench_out_begin(&out);
    for (size_t i = 0; i < n; i++) ck_assert_int_eq(dlab_bench_out_row(&out, &rows[i], NULL), DLAB_OK);
    dlab_bench_out_end(&out);
    fclose(out.to);
    return text;
}

typedef struct {
    dlab_bench_opts opts;
    dlab_bench_cell cell;
    dlab_model_info model;
    double samples[14];
    dlab_bench_row rows[2]; /* one that is ok, one that failed */
} row_fixture;

static void set_up(row_fixture *f)
{
    *f =
        (row_fixture){.opts = base_opts(),
                      .cell = {.n_prompt = 16, .npl = 1},
                      .model = {.name = "a \"model\", it's", .type = "Q4_1", .n_params = 1000000, .weight_bytes = 2048},
                      .samples = {1e6, 3e6, 16000, 5333, 1, 3, NAN, NAN, 0.25, 0.75, 0.5, 0.5, NAN, NAN}};
    f->cell.plan = f->opts.plan;
    f->rows[0] = (dlab_bench_row){.cell = &f->cell,
                                  .model = &f->model,
                                  .model_path = "dir/it's a \"model\", too.gguf",
                                  .plan = f->opts.plan,
                                  .status = DLAB_RUN_OK,
                                  .started_unix = 0,
                                  .time_ns = f->samples,
                                  .rate = f->samples + 2,
                                  .ttft_ms = f->samples + 4,
                                  .tpot_ms = f->samples + 6,
                                  .roofline = f->samples + 8,
                                  .mbu = f->samples + 10,
                                  .mfu = f->samples + 12,
                                  .n = 2,
                                  .mem_peak = 1048576};
    f->rows[1] = f->rows[0];
    f->rows[1].status = DLAB_RUN_OOM;
    snprintf(f->rows[1].reason, sizeof f->rows[1].reason, "asked \"1\" GB, 2 B left");
    f->rows[1].n = 0;
    f->rows[1].started_unix = f->rows[1].mem_peak = NAN;
}

static json_t *strict(const char *text)
{
    json_error_t e;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(j != NULL, "%d:%d %s in %s", e.line, e.column, e.text, text);
    return j;
}

START_TEST(json_is_one_document_with_raw_samples)
{
    row_fixture f;
    set_up(&f);
    char *text = printed("json", &f.opts, f.rows, 2);
    json_t *j = strict(text), *ok = json_array_get(j, 0), *failed = json_array_get(j, 1);
    ck_assert_uint_eq(json_array_size(j), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(ok, "samples_ts")), 2);
    ck_assert_double_eq(json_real_value(json_array_get(json_object_get(ok, "samples_ts"), 0)), 16000);
    ck_assert_double_eq_tol(json_real_value(json_object_get(ok, "avg_ts")), 10666.5, 1e-9);
    ck_assert_double_eq(json_real_value(json_object_get(ok, "ttft_ms")), 2);
    ck_assert(json_is_null(json_object_get(ok, "tpot_ms")));
    ck_assert_double_eq(json_real_value(json_object_get(ok, "roofline")), 0.5);
    ck_assert_double_eq(json_real_value(json_object_get(ok, "mbu")), 0.5);
    ck_assert(json_is_null(json_object_get(ok, "mfu")));
    ck_assert(json_is_null(json_object_get(ok, "reason")));
    ck_assert_str_eq(json_string_value(json_object_get(failed, "status")), "oom");
    ck_assert(json_is_null(json_object_get(failed, "avg_ts")));
    ck_assert(json_is_null(json_object_get(failed, "mem_peak_bytes")));
    ck_assert(json_is_object(json_object_get(ok, "plan")));
    json_decref(j);
    free(text);
    text = printed("json", &f.opts, f.rows, 0);
    json_decref(strict(text));
    free(text);
}
END_TEST

START_TEST(jsonl_is_a_document_a_line)
{
    row_fixture f;
    set_up(&f);
    char *text = printed("jsonl", &f.opts, f.rows, 2), *rest = text, *line;
    int n = 0;
    while ((line = strsep(&rest, "\n")) && *line) {
        json_decref(strict(line));
        n++;
    }
    ck_assert_int_eq(n, 2);
    free(text);
}
END_TEST

/* Fields of a CSV line, quotes respected. */
static size_t csv_fields(const char *line)
{
    size_t n = 1;
    bool quoted = false;
    for (; *line && *line != '\n'; line++) {
        if (*line == '"') quoted = !quoted;
        if (*line == ',' && !quoted) n++;
    }
    ck_assert(!quoted);
    return n;
}

START_TEST(csv_has_as_many_fields_as_its_head)
{
    row_fixture f;
    set_up(&f);
    char *text = printed("csv", &f.opts, f.rows, 2), *rest = text, *line;
    size_t n = csv_fields(text), lines = 0;
    ck_assert_uint_gt(n, 20);
    while ((line = strsep(&rest, "\n")) && *line) {
        ck_assert_uint_eq(csv_fields(line), n);
        lines++;
    }
    ck_assert_uint_eq(lines, 3);
    free(text);
}
END_TEST

START_TEST(sql_doubles_its_quotes)
{
    row_fixture f;
    set_up(&f);
    char *text = printed("sql", &f.opts, f.rows, 2);
    ck_assert_ptr_nonnull(strstr(text, "CREATE TABLE IF NOT EXISTS dlab_bench"));
    ck_assert_ptr_nonnull(strstr(text, "'dir/it''s a \"model\", too.gguf'"));
    ck_assert_ptr_nonnull(strstr(text, "NULL"));
    ck_assert_ptr_null(strstr(text, "nan"));
    free(text);
}
END_TEST

START_TEST(md_rows_have_the_heads_columns)
{
    row_fixture f;
    set_up(&f);
    f.opts.ctk = (dlab_bench_words){.v = {"f16"}, .n = 1};
    char *text = printed("md", &f.opts, f.rows, 2), *rest = text, *line;
    size_t want = 0, lines = 0;
    ck_assert_ptr_nonnull(strstr(text, "type_k"));
    ck_assert_ptr_null(strstr(text, "type_v"));
    ck_assert_ptr_nonnull(strstr(text, "oom: asked"));
    while ((line = strsep(&rest, "\n")) && *line) {
        size_t bars = 0;
        for (const char *c = line; *c; c++) bars += *c == '|';
        if (!lines++) want = bars;
        ck_assert_uint_eq(bars, want);
    }
    ck_assert_uint_eq(lines, 4);
    free(text);
}
END_TEST

/* ---- measuring -------------------------------------------------------------------------------------------------------- */

static void measured(const dlab_bench_cell *c, dlab_run_status want)
{
    dlab_bench_opts o = base_opts();
    dlab_model *m = NULL;
    dlab_bench_row row;
    dlab_error err = {0};
    ck_assert_msg(dlab_model_open("synthetic:tiny", &m, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(dlab_bench_measure(&o, c, m, "synthetic:tiny", NULL, &row, &err), DLAB_OK);
    ck_assert_msg(row.status == want, "%s: %s", dlab_run_status_text(row.status), row.reason);
    if (want == DLAB_RUN_OK) {
        double tokens = (double)((c->n_prompt + c->n_gen) * c->npl);
        ck_assert_uint_eq(row.n, 2);
        for (size_t i = 0; i < row.n; i++) {
            ck_assert_double_gt(row.time_ns[i], 0);
            ck_assert_double_eq_tol(row.rate[i] * row.time_ns[i] / 1e9, tokens, 1e-6);
            ck_assert_double_le(row.ttft_ms[i] * 1e6, row.time_ns[i] + 1);
            ck_assert(isnan(row.tpot_ms[i]) == (c->n_gen == 0));
        }
        ck_assert_double_gt(row.mem_peak, 0);
        ck_assert_int_gt(row.plan.threads, 0); /* effective, not "all" */
    } else {
        ck_assert_uint_eq(row.n, 0);
        ck_assert_str_ne(row.reason, "");
    }
    dlab_bench_row_free(&row);
    dlab_model_close(m);
}

START_TEST(every_kind_of_test_is_measured)
{
    dlab_bench_cell c = {.npl = 1};
    dlab_plan_default(&c.plan);
    c.n_prompt = 16;
    measured(&c, DLAB_RUN_OK);
    c.n_gen = 4;
    measured(&c, DLAB_RUN_OK);
    c.n_prompt = 0;
    measured(&c, DLAB_RUN_OK);
    c.depth = 32;
    measured(&c, DLAB_RUN_OK);
    c.npl = c.plan.batch_size = 3;
    measured(&c, DLAB_RUN_OK);
}
END_TEST

START_TEST(cells_that_cannot_work_are_rows)
{
    dlab_bench_cell c = {.n_prompt = 16, .npl = 1};
    dlab_plan_default(&c.plan);
    ck_assert_int_eq(dlab_plan_set(&c.plan, "memory_limit=1KiB", NULL), DLAB_OK);
    measured(&c, DLAB_RUN_OOM);
    dlab_plan_default(&c.plan);
    c.n_prompt = 100000; /* longer than the model's context */
    measured(&c, DLAB_RUN_SKIPPED);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cmd_bench");
    TCase *t = tcase_create("cmd_bench");
    tcase_add_test(t, tests_are_named_as_in_llama_bench);
    tcase_add_test(t, cells_are_all_combinations);
    tcase_add_test(t, spread_is_the_samples);
    tcase_add_test(t, json_is_one_document_with_raw_samples);
    tcase_add_test(t, jsonl_is_a_document_a_line);
    tcase_add_test(t, csv_has_as_many_fields_as_its_head);
    tcase_add_test(t, sql_doubles_its_quotes);
    tcase_add_test(t, md_rows_have_the_heads_columns);
    tcase_add_test(t, every_kind_of_test_is_measured);
    tcase_add_test(t, cells_that_cannot_work_are_rows);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

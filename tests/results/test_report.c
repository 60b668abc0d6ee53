#include <jansson.h>

#include "results/export.h"
#include "tests/results/report_test.h"

START_TEST(figures_in_human_units)
{
    dlab_record r;
    dlab_table t;
    fill_curve(&r);
    for (size_t i = 0; i < r.n_points; i++)
        for (size_t k = 0; k < 3; k++) r.points[i].runs[k]->mem_peak = 100 << 20;
    build(&r, curve_spec, &t);
    ck_assert_uint_eq(t.n_rows, 8);
    ck_assert_double_eq_tol(cell(&t, 0, "tpot_ms")->value, 4, 1e-9);
    ck_assert_str_eq(cell(&t, 0, "tpot_ms")->text, "4.000 ± 0.040");
    ck_assert_str_eq(cell(&t, 0, "mem_peak_MiB")->text, "100");
    ck_assert_str_eq(cell(&t, 0, "status")->text, "ok");
    ck_assert_str_eq(cell(&t, 5, "kv.store")->text, "contiguous");
    ck_assert_double_eq(cell(&t, 5, "workload.depth")->value, 32);
    note_with(&t, "medians of 3 runs");
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(ratio_growth_and_claims_have_their_own_columns)
{
    dlab_record r;
    dlab_table t;
    fill_curve(&r);
    build(&r, curve_spec, &t);
    ck_assert_double_eq_tol(cell(&t, 0, "speedup")->value, 1, 1e-12);
    ck_assert_double_eq_tol(cell(&t, 7, "speedup")->value, 4, 1e-9);
    ck_assert_str_eq(cell(&t, 7, "speedup")->text, "4.00×");
    ck_assert(isnan(cell(&t, 0, "growth")->value));
    ck_assert_str_eq(cell(&t, 0, "growth")->text, "–");
    for (size_t i = 1; i < 4; i++) ck_assert_double_eq_tol(cell(&t, i, "growth")->value, 1, 1e-9);
    for (size_t i = 5; i < 8; i++) ck_assert_double_eq_tol(cell(&t, i, "growth")->value, 0, 1e-9);
    ck_assert_double_eq(cell(&t, 2, "claimed_growth")->value, 2);
    ck_assert_str_eq(cell(&t, 2, "claimed_growth")->text, "2 (C, K1)");
    ck_assert(isnan(cell(&t, 6, "claimed_growth")->value));
    ck_assert_double_eq(cell(&t, 6, "claimed_speedup")->value, 3.12);
    ck_assert(isnan(cell(&t, 2, "claimed_speedup")->value));
    ck_assert_ptr_nonnull(strstr(note_with(&t, "O(n²) a step"), "not a measurement"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(missing_baseline_is_a_dash_and_a_reason)
{
    dlab_record r;
    dlab_table t;
    fill_curve(&r);
    dlab_point_result *p = &r.points[3];
    p->status = DLAB_RUN_OOM;
    snprintf(p->reason, sizeof p->reason, "asked for 9 GiB, 1 GiB was left");
    for (size_t k = 0; k < 3; k++) p->runs[k]->status = DLAB_RUN_OOM;
    build(&r, curve_spec, &t);
    ck_assert_str_eq(cell(&t, 3, "status")->text, "oom");
    ck_assert_str_eq(cell(&t, 3, "tpot_ms")->text, "–");
    ck_assert_str_eq(cell(&t, 7, "speedup")->text, "–");
    ck_assert(isfinite(cell(&t, 6, "speedup")->value));
    note_with(&t,
              "kv.store=contiguous workload.depth=256: no ratio, its baseline kv.store=none workload.depth=256 is oom");
    note_with(&t, "kv.store=none workload.depth=256 is oom: asked for 9 GiB, 1 GiB was left");
    ck_assert(isnan(cell(&t, 3, "growth")->value));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* The baseline was cut after 5 tokens of growing cost: only those count on both sides. */
START_TEST(truncated_points_share_their_tokens)
{
    dlab_record r;
    dlab_table t;
    dlab_metric_window w;
    batch_shape slow = {.seqs = 1, .prompt = 8, .made = 5, .ttft_ns = 5 * MS, .gap_ns = 10 * MS, .slope_ns = 10 * MS};
    batch_shape fast = {
        .seqs = 1, .prompt = 8, .made = 50, .ttft_ns = 5 * MS, .gap_ns = 1 * MS, .slope_ns = 1 * MS, .retains = true};
    dlab_record_init(&r);
    dlab_point_result *p = add_point(&r, (const char *[]){"kv.store", "none", NULL});
    p->status = DLAB_RUN_TRUNCATED;
    add_run(&r, &slow)->status = DLAB_RUN_TRUNCATED;
    add_point(&r, (const char *[]){"kv.store", "contiguous", NULL});
    add_run(&r, &fast);
    build(&r, "baseline: {kv.store: none}\n", &t);
    ck_assert_double_eq_tol(cell(&t, 1, "speedup")->value, 10, 1e-9);
    note_with(&t, "uses tokens 0 to 4 of request 0, which both sides measured");
    ck_assert(!notes_say(&t, "had not ended")); /* every request did */
    ck_assert_double_eq_tol(dlab_report_ratio(dlab_metric_find("tpot"), &r.points[1], &r.points[0], &w), 10, 1e-9);
    ck_assert_int_eq(w.last, 4);
    dlab_report_ratio(dlab_metric_find("ttft"), &r.points[1], &r.points[0], &w);
    ck_assert_int_eq(w.last, INT32_MAX);
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* Those that a time limit cut off had waited longest. */
START_TEST(latencies_without_the_cut_off_are_said)
{
    static const batch_shape b = {.seqs = 3, .prompt = 8, .made = 5, .ttft_ns = 5 * MS, .gap_ns = 10 * MS};
    dlab_record r;
    dlab_table t;
    dlab_record_init(&r);
    add_point(&r, (const char *[]){"workload.rate", "9", NULL})->status = DLAB_RUN_TRUNCATED;
    dlab_run *run = add_run(&r, &b);
    run->status = DLAB_RUN_TRUNCATED;
    run->requests[2].t_done = run->requests[2].t_first = NAN;
    build(&r, "metrics: [ttft_p99]\n", &t);
    note_with(&t, "workload.rate=9: up to 1 of 3 requests of a run had not ended");
    dlab_table_free(&t);
    build(&r, "metrics: [out_tps]\n", &t); /* no latency, nothing to say of it */
    ck_assert(!notes_say(&t, "had not ended"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* Two requests one step at a time, of which each makes its own number of tokens; from index `late` on the gap is wide. */
static void add_group(dlab_run *r, int64_t first, const int made[2], double gap_ns, int late)
{
    double t = r->n_steps ? r->steps[r->n_steps - 1].t_end : 0;
    for (int i = 0; i < made[0] || i < made[1]; i++) {
        const double d = i >= late ? 100 * gap_ns : gap_ns;
        dlab_ev_step s = {.t_begin = t, .t_end = t + d, .slots = 2, .bytes = 1e6, .flops = 1e6};
        for (int q = 0; q < 2; q++) s.seqs += i < made[q];
        s.prefill_rows = i == 0 ? 16 : 0;
        s.decode_rows = i > 0 ? s.seqs : 0;
        s.rows = s.prefill_rows + s.decode_rows;
        t += d;
        ck_assert_int_eq(dlab_run_add_step(r, &s, NULL), DLAB_OK);
        for (int q = 0; q < 2; q++) {
            dlab_ev_token e = {.request = first + q, .index = i, .t = t};
            if (i < made[q]) ck_assert_int_eq(dlab_run_add_token(r, &e, NULL), DLAB_OK);
        }
    }
    r->t_end = t;
}

static dlab_run *empty_run(dlab_record *r, dlab_run_status status)
{
    const batch_shape none = {0};
    dlab_run *run = add_run(r, &none);
    run->status = status;
    return run;
}

/* Four requests in batches of two; the baseline was cut short at the first token of the second batch. */
static void fill_groups(dlab_record *r)
{
    dlab_record_init(r);
    add_point(r, (const char *[]){"kv.store", "none", NULL})->status = DLAB_RUN_TRUNCATED;
    for (int k = 0; k < 2; k++) {
        dlab_run *run = empty_run(r, DLAB_RUN_TRUNCATED);
        add_group(run, 0, (const int[]){6, 4}, 10 * MS, 4);
        add_group(run, 2, (const int[]){k == 0, k == 0}, 10 * MS, 4);
    }
    add_point(r, (const char *[]){"kv.store", "contiguous", NULL});
    for (int k = 0; k < 2; k++) {
        dlab_run *run = empty_run(r, DLAB_RUN_OK);
        add_group(run, 0, (const int[]){6, 4}, 5 * MS, 5);
        add_group(run, 2, (const int[]){20, 9}, 50 * MS, 99);
    }
}

START_TEST(ratios_compare_the_same_prompts)
{
    dlab_record r;
    dlab_table t;
    dlab_metric_window w;
    fill_groups(&r);
    build(&r, "baseline: {kv.store: none}\n", &t);
    ck_assert_double_eq_tol(cell(&t, 1, "speedup")->value, 2, 1e-9);
    note_with(&t, "kv.store=contiguous: the ratio uses tokens 0 to 3 of requests 0 to 1, which both sides measured "
                  "(kv.store=none is truncated)");
    dlab_table_free(&t);
    static const char *const names[] = {"tpot", "itl", "decode_tps"};
    for (int i = 0; i < 3; i++) {
        const dlab_metric *m = dlab_metric_find(names[i]);
        ck_assert_double_eq_tol(dlab_report_ratio(m, &r.points[1], &r.points[0], &w), 2, 1e-9);
        ck_assert_int_eq(w.last, 3);
        ck_assert_int_eq(w.first_request, 0);
        ck_assert_int_eq(w.last_request, 1);
    }
    dlab_record_free(&r);
}
END_TEST

/* Ended early, but at the same tokens on both sides: nothing is left out. */
START_TEST(ragged_output_of_both_counts_whole)
{
    dlab_record r;
    dlab_table t;
    dlab_metric_window w;
    dlab_record_init(&r);
    for (int p = 0; p < 2; p++) {
        add_point(&r, (const char *[]){"kv.store", p ? "contiguous" : "none", NULL});
        dlab_run *run = empty_run(&r, DLAB_RUN_OK);
        add_group(run, 0, (const int[]){6, 1}, (p ? 5 : 10) * MS, 99);
        add_group(run, 2, (const int[]){3, 9}, (p ? 5 : 10) * MS, 99);
    }
    build(&r, "baseline: {kv.store: none}\n", &t);
    ck_assert(!notes_say(&t, "which both sides measured"));
    dlab_table_free(&t);
    ck_assert_double_eq_tol(dlab_report_ratio(dlab_metric_find("tpot"), &r.points[1], &r.points[0], &w), 2, 1e-9);
    ck_assert_int_eq(w.last, INT32_MAX);
    /* one side alone goes on: all requests stay, each to the least of them; request 1 has no part in decoding */
    add_group(r.points[1].runs[0], 4, (const int[]){2, 2}, 50 * MS, 99);
    ck_assert_double_eq_tol(dlab_report_ratio(dlab_metric_find("tpot"), &r.points[1], &r.points[0], &w), 2, 1e-9);
    ck_assert_int_eq(w.last, 2);
    ck_assert_int_eq(w.first_request, 0);
    ck_assert_int_eq(w.last_request, 3);
    dlab_record_free(&r);
}
END_TEST

START_TEST(nothing_in_common_is_said)
{
    dlab_record r;
    dlab_table t;
    dlab_record_init(&r);
    add_point(&r, (const char *[]){"kv.store", "none", NULL})->status = DLAB_RUN_TRUNCATED;
    add_group(empty_run(&r, DLAB_RUN_TRUNCATED), 0, (const int[]){1, 1}, 10 * MS, 99);
    add_point(&r, (const char *[]){"kv.store", "contiguous", NULL});
    add_group(empty_run(&r, DLAB_RUN_OK), 0, (const int[]){5, 5}, 10 * MS, 99);
    build(&r, "baseline: {kv.store: none}\n", &t);
    ck_assert_str_eq(cell(&t, 1, "speedup")->text, "–");
    note_with(&t, "no ratio, no request has two tokens on both sides (kv.store=none is truncated)");
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(ratio_looks_up_the_direction)
{
    dlab_record r;
    dlab_metric_window w;
    fill_curve(&r);
    const dlab_point_result *none = &r.points[3], *cache = &r.points[7];
    ck_assert_double_eq_tol(dlab_report_ratio(dlab_metric_find("tpot"), cache, none, &w), 4, 1e-9);
    ck_assert_double_eq_tol(dlab_report_ratio(dlab_metric_find("decode_tps"), cache, none, &w), 4, 1e-9);
    ck_assert(isnan(dlab_report_ratio(dlab_metric_find("ppl"), cache, none, &w)));
    dlab_record_free(&r);
}
END_TEST

START_TEST(small_samples_are_marked)
{
    dlab_record r;
    dlab_table t;
    fill_curve(&r);
    build(&r, "metrics: [itl_p99, tpot]\n", &t);
    ck_assert_ptr_nonnull(strchr(cell(&t, 0, "itl_p99_ms")->text, '*'));
    ck_assert_ptr_null(strchr(cell(&t, 0, "tpot_ms")->text, '*'));
    note_with(&t, "* itl_p99: as few as 5 samples");
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

static json_t *strict(const char *text)
{
    json_error_t e;
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(strstr(text, "inf"));
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(j != NULL, "%s", e.text);
    return j;
}

START_TEST(json_is_strict)
{
    dlab_record r;
    dlab_table t;
    dlab_error err = {0};
    char *text;
    fill_curve(&r);
    r.points[0].runs[0]->t_end = INFINITY;
    for (size_t k = 0; k < 3; k++) r.points[1].runs[k]->requests[0].t_first = NAN;
    build(&r, curve_spec, &t);
    t.cells[3].value = INFINITY;
    ck_assert_msg(dlab_table_render(&t, "json", &text, &err) == DLAB_OK, "%s", err.msg);
    json_t *j = strict(text);
    const json_t *rows = json_object_get(j, "rows");
    ck_assert_uint_eq(json_array_size(rows), 8);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "schema")), 1);
    ck_assert(json_is_null(json_object_get(json_array_get(rows, 1), "ttft_ms")));
    ck_assert(json_is_null(json_object_get(json_array_get(rows, 0), "growth")));
    ck_assert_double_eq_tol(json_number_value(json_object_get(json_array_get(rows, 7), "speedup")), 4, 1e-9);
    json_decref(j);
    free(text);
    for (int per_run = 0; per_run < 2; per_run++) {
        ck_assert_int_eq(dlab_export(&r, "json", per_run, &text, &err), DLAB_OK);
        j = strict(text);
        ck_assert_uint_eq(json_array_size(json_object_get(j, per_run ? "runs" : "points")), per_run ? 24 : 8);
        json_decref(j);
        free(text);
    }
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(csv_is_quoted_and_missing_is_empty)
{
    dlab_record r;
    dlab_table t;
    dlab_error err = {0};
    char *text;
    dlab_record_init(&r);
    dlab_point_result *p = add_point(&r, (const char *[]){"model", "a, \"b\"\nc", NULL});
    p->status = DLAB_RUN_FAILED;
    build(&r, "metrics: [tpot]\n", &t);
    ck_assert_int_eq(dlab_table_render(&t, "csv", &text, &err), DLAB_OK);
    ck_assert_str_eq(text, "model,status,tpot_ns\n\"a, \"\"b\"\"\nc\",failed,\n");
    free(text);
    ck_assert_int_eq(dlab_table_render(&t, "md", &text, &err), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "| a, \"b\" c | failed |"));
    free(text);
    ck_assert_int_eq(dlab_table_render(&t, "xml", &text, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(text);
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(export_has_every_axis_and_metric)
{
    dlab_record r;
    dlab_error err = {0};
    char *text;
    fill_curve(&r);
    ck_assert_int_eq(dlab_export(&r, "csv", false, &text, &err), DLAB_OK);
    char *line = strchr(text, '\n');
    *line = '\0';
    ck_assert_ptr_nonnull(strstr(text, "label,status,reason,warnings,n_runs,n_planned,kv.store,workload.depth,"));
    ck_assert_str_eq(line - strlen(",diagnosis"), ",diagnosis"); /* sentences last */
    ck_assert_ptr_nonnull(strstr(text, ",tpot_ns,tpot_ns_sd,tpot_n,tpot_samples,"));
    ck_assert_ptr_nonnull(strstr(text, ",decode_tps,decode_tps_sd,decode_tps_n,"));
    ck_assert_ptr_nonnull(strstr(text, ",mem_peak_B,"));
    ck_assert_ptr_nonnull(strstr(text, ",effective.kv.store,"));
    free(text);
    ck_assert_int_eq(dlab_export(&r, "parquet", false, &text, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(mistakes_are_named_with_their_place)
{
    static const struct {
        const char *yaml, *says;
    } bad[] = {
        {"metrics: [tpott]\n", "x.yaml:1:11: unknown metric \"tpott\"; did you mean \"tpot\"?"},
        {"metric: [tpot]\n", "did you mean \"metrics\"?"},
        {"ratio: tpot\n", "needs a baseline"},
        {"baseline: none\n", "expected axes and their values"},
        {"growth: {metric: tpot}\n", "needs both"},
        {"claims: [{id: K1, article: C, ratio: fast}]\n", "a number above 0"},
        {"claims: [{ratio: 2}]\n", "needs its id"},
        {"claims: [{id: K1, article: C, rati: 2}]\n", "did you mean \"ratio\"?"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlab_yaml *y;
        dlab_report_spec s;
        dlab_error err = {0};
        ck_assert_int_eq(dlab_yaml_parse("x.yaml", bad[i].yaml, strlen(bad[i].yaml), &y, &err), DLAB_OK);
        ck_assert_int_ne(dlab_report_parse(y, dlab_yaml_root(y), &s, &err), DLAB_OK);
        ck_assert_msg(strstr(err.msg, bad[i].says) != NULL, "%s\n  does not say: %s", err.msg, bad[i].says);
        dlab_yaml_destroy(y);
    }
}
END_TEST

START_TEST(without_a_section_there_are_defaults)
{
    dlab_report_spec s;
    ck_assert_int_eq(dlab_report_parse(NULL, NULL, &s, NULL), DLAB_OK);
    ck_assert_uint_eq(s.n_metrics, 4);
    ck_assert_ptr_null(s.ratio);
    dlab_report_free(&s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("report");
    TCase *c = tcase_create("report");
    tcase_add_test(c, figures_in_human_units);
    tcase_add_test(c, ratio_growth_and_claims_have_their_own_columns);
    tcase_add_test(c, missing_baseline_is_a_dash_and_a_reason);
    tcase_add_test(c, truncated_points_share_their_tokens);
    tcase_add_test(c, latencies_without_the_cut_off_are_said);
    tcase_add_test(c, ratios_compare_the_same_prompts);
    tcase_add_test(c, ragged_output_of_both_counts_whole);
    tcase_add_test(c, nothing_in_common_is_said);
    tcase_add_test(c, ratio_looks_up_the_direction);
    tcase_add_test(c, small_samples_are_marked);
    tcase_add_test(c, json_is_strict);
    tcase_add_test(c, csv_is_quoted_and_missing_is_empty);
    tcase_add_test(c, export_has_every_axis_and_metric);
    tcase_add_test(c, mistakes_are_named_with_their_place);
    tcase_add_test(c, without_a_section_there_are_defaults);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

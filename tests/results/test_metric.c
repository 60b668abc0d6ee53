#include "tests/results/synthetic.h"

#define MS 1e6

static double windowed(const dlab_run *r, const char *name, int first, int last)
{
    const dlab_metric_window w = {first, last, INT64_MIN, INT64_MAX};
    dlab_metric_value v;
    dlab_metric_find(name)->compute(r, &w, &v);
    return v.value;
}

static int64_t samples(const dlab_run *r, const char *name)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_metric_value v;
    dlab_metric_find(name)->compute(r, &all, &v);
    return v.n;
}

static const batch_shape plain = {.seqs = 1,
                                  .prompt = 16,
                                  .made = 100,
                                  .ttft_ns = 500 * MS,
                                  .gap_ns = 10 * MS,
                                  .step_bytes = 1e6,
                                  .step_flops = 2e6,
                                  .retains = true};

START_TEST(one_token_has_no_tpot)
{
    batch_shape b = plain;
    dlab_run r;
    b.made = 1;
    b.seqs = 3;
    fill_batch(&r, &b);
    ck_assert(isnan(metric_value(&r, "tpot")));
    ck_assert(isnan(metric_value(&r, "itl")));
    ck_assert(isnan(metric_value(&r, "decode_tps")));
    ck_assert_double_eq(metric_value(&r, "tpot_missing"), 3);
    ck_assert_double_eq_tol(metric_value(&r, "ttft"), 500 * MS, 1);
    dlab_run_free(&r);
}
END_TEST

START_TEST(nothing_measured_is_missing_everywhere)
{
    dlab_run r;
    const dlab_metric *all[256];
    size_t n = dlab_metric_all(all, 256);
    ck_assert_uint_gt(n, 50);
    ck_assert_uint_lt(n, 256);
    dlab_run_init(&r);
    r.status = DLAB_RUN_OK;
    for (size_t i = 0; i < n; i++) ck_assert_msg(isnan(metric_value(&r, all[i]->name)), "%s", all[i]->name);
    dlab_run_free(&r);
}
END_TEST

START_TEST(names_are_unique_and_described)
{
    const dlab_metric *all[256];
    size_t n = dlab_metric_all(all, 256);
    for (size_t i = 0; i < n; i++) {
        ck_assert_ptr_eq(dlab_metric_find(all[i]->name), all[i]);
        ck_assert_uint_gt(strlen(all[i]->description), 10);
        ck_assert_uint_gt(strlen(all[i]->unit), 0);
    }
    const char *kv = dlab_metric_find("kv_bytes_step")->description; /* what the ops declare: reads only */
    ck_assert_ptr_nonnull(strstr(kv, "read"));
    ck_assert_ptr_null(strstr(kv, "writ"));
    ck_assert_ptr_null(dlab_metric_find("tpott"));
    ck_assert_str_eq(dlab_metric_nearest("tpott"), "tpot");
}
END_TEST

START_TEST(queue_and_service_add_up)
{
    dlab_run r;
    dlab_run_init(&r);
    dlab_ev_request e = {
        .t_sched = 100 * MS, .t_submit = 110 * MS, .t_admit = 140 * MS, .t_first = 200 * MS, .t_done = NAN};
    dlab_run_add_request(&r, &e, NULL);
    ck_assert_double_eq(metric_value(&r, "ttft"), 100 * MS);
    ck_assert_double_eq(metric_value(&r, "ttft_client"), 90 * MS);
    ck_assert_double_eq(metric_value(&r, "queue"), 40 * MS);
    ck_assert_double_eq(metric_value(&r, "ttft_service"), 60 * MS);
    ck_assert(isnan(metric_value(&r, "e2e")));
    dlab_run_free(&r);
}
END_TEST

/* Steps grow by 1 ms a token: only the window's indices count. */
START_TEST(window_limits_decode)
{
    batch_shape b = plain;
    dlab_run r;
    b.slope_ns = 1 * MS;
    b.made = 50;
    fill_batch(&r, &b);
    ck_assert_double_eq_tol(windowed(&r, "tpot", 0, 10), (10 + 5.5) * MS, 1);
    ck_assert_double_eq_tol(windowed(&r, "itl_max", 0, 10), 20 * MS, 1);
    ck_assert_double_eq_tol(windowed(&r, "decode_tps", 0, 10), 1000 / 15.5, 1e-6);
    ck_assert_double_eq_tol(windowed(&r, "tpot", 10, 12), (10 + 11.5) * MS, 1);
    ck_assert(isnan(windowed(&r, "tpot", 0, 0)));
    ck_assert(isnan(windowed(&r, "decode_tps", 0, 0)));
    ck_assert_double_eq_tol(windowed(&r, "ttft", 0, 0), 500 * MS, 1);
    dlab_run_free(&r);
}
END_TEST

/* Without a cache each step computes the prompt again: that is the cost of decoding, not a prefill. */
START_TEST(recomputation_is_decode)
{
    batch_shape b = plain;
    dlab_run r;
    b.retains = false;
    b.seqs = 2;
    fill_batch(&r, &b);
    ck_assert_double_eq(metric_value(&r, "mixed_share"), 0);
    ck_assert_double_eq_tol(metric_value(&r, "decode_tps"), 200, 1e-6);
    ck_assert_double_eq_tol(metric_value(&r, "prefill_tps"), 32 / 0.5, 1e-6);
    dlab_run_free(&r);
}
END_TEST

START_TEST(mixed_steps_hide_phase_rates)
{
    dlab_run r;
    fill_batch(&r, &plain);
    r.steps[3].prefill_rows = 8; /* 10 of 1490 ms */
    ck_assert_double_eq_tol(metric_value(&r, "mixed_share"), 10 / 1490.0, 1e-9);
    ck_assert_double_eq_tol(metric_value(&r, "decode_tps"), 100, 1e-6);
    for (int i = 4; i < 12; i++) r.steps[i].prefill_rows = 8; /* 90 of 1490 ms */
    ck_assert(isnan(metric_value(&r, "decode_tps")));
    ck_assert(isnan(metric_value(&r, "prefill_tps")));
    ck_assert_double_eq_tol(metric_value(&r, "mixed_share"), 90 / 1490.0, 1e-9);
    dlab_run_free(&r);
}
END_TEST

START_TEST(fullness)
{
    dlab_run r;
    dlab_run_init(&r);
    dlab_ev_step a = {.t_begin = 0,
                      .t_end = 1e9,
                      .rows = 10,
                      .pad_rows = 4,
                      .seqs = 2,
                      .slots = 4,
                      .budget = 20,
                      .kv_reserved = 100,
                      .kv_used = 50};
    dlab_ev_step b = {.t_begin = 2e9,
                      .t_end = 5e9,
                      .rows = 10,
                      .pad_rows = 0,
                      .seqs = 3,
                      .slots = 4,
                      .budget = 0,
                      .kv_reserved = 100,
                      .kv_used = 90};
    dlab_run_add_step(&r, &a, NULL);
    dlab_run_add_step(&r, &b, NULL);
    r.t_end = 8e9;
    ck_assert_double_eq_tol(metric_value(&r, "pad_util"), 0.8, 1e-12);
    ck_assert_double_eq_tol(metric_value(&r, "slot_util"), 5.0 / 8, 1e-12);
    ck_assert_double_eq_tol(metric_value(&r, "budget_util"), 0.5, 1e-12);
    ck_assert_int_eq(samples(&r, "budget_util"), 1);
    ck_assert_double_eq_tol(metric_value(&r, "device_busy"), 0.5, 1e-12);
    ck_assert_double_eq_tol(metric_value(&r, "kv_used"), 80, 1e-9);
    ck_assert_double_eq_tol(metric_value(&r, "kv_reserved"), 100, 1e-9);
    ck_assert_double_eq_tol(metric_value(&r, "kv_util"), 0.8, 1e-12);
    r.steps[0].budget = 0;
    ck_assert(isnan(metric_value(&r, "budget_util")));
    dlab_run_free(&r);
}
END_TEST

START_TEST(work_is_that_of_decode_steps)
{
    dlab_run r;
    fill_batch(&r, &plain);
    r.steps[0].bytes = 9e9; /* the prefill does not enter */
    ck_assert_double_eq_tol(metric_value(&r, "bytes_step"), 1e6, 1e-3);
    ck_assert_double_eq_tol(metric_value(&r, "flops_step"), 2e6, 1e-3);
    ck_assert_double_eq_tol(metric_value(&r, "launches"), 7, 1e-12);
    ck_assert_double_eq_tol(metric_value(&r, "bytes_ps"), 1e6 / 10e-3, 1);
    ck_assert_double_eq_tol(metric_value(&r, "flops_ps"), 2e6 / 10e-3, 1);
    ck_assert_double_eq_tol(metric_value(&r, "flops_token"), 2e6, 1e-3);
    ck_assert_double_eq(metric_value(&r, "steps"), 100);
    dlab_run_free(&r);
}
END_TEST

START_TEST(perplexity_counts_the_span)
{
    dlab_run r;
    dlab_run_init(&r);
    for (int p = 0; p < 8; p++) {
        dlab_ev_quality q = {.chunk = 0, .position = p, .nll = p < 4 ? 100 : 0.5 * p};
        dlab_run_add_quality(&r, &q, NULL);
    }
    r.quality_first = 4;
    r.quality_bytes = 20;
    ck_assert_double_eq_tol(metric_value(&r, "nll"), 2.75, 1e-12);
    ck_assert_double_eq_tol(metric_value(&r, "ppl"), exp(2.75), 1e-9);
    ck_assert_double_eq_tol(metric_value(&r, "bits_per_byte"), 11 / log(2) / 20, 1e-12);
    r.quality[5].nll = NAN;
    ck_assert(isnan(metric_value(&r, "ppl")));
    dlab_run_free(&r);
}
END_TEST

/* numpy.quantile([3, 1, 4, 1, 5, 9, 2, 6], [0, .5, .9, .99, 1]) */
START_TEST(quantiles_are_numpys)
{
    const double q[] = {0, 0.5, 0.9, 0.99, 1}, expected[] = {1, 3.5, 6.9, 8.79, 9};
    for (int i = 0; i < 5; i++) {
        double x[] = {3, 1, 4, 1, 5, 9, 2, 6};
        ck_assert_double_eq_tol(dlab_quantile(x, 8, q[i]), expected[i], 1e-12);
    }
    double one[] = {7};
    ck_assert_double_eq(dlab_quantile(one, 1, 0.99), 7);
    ck_assert(isnan(dlab_quantile(one, 0, 0.5)));
}
END_TEST

START_TEST(p99_needs_459_samples)
{
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    for (int gaps = 458; gaps <= 459; gaps++) {
        batch_shape b = plain;
        dlab_run r;
        dlab_metric_value v;
        b.made = gaps + 1;
        fill_batch(&r, &b);
        dlab_metric_find("itl_p99")->compute(&r, &all, &v);
        ck_assert_int_eq(v.n, gaps);
        ck_assert_int_eq(v.low_n, gaps < 459);
        dlab_metric_find("itl_p50")->compute(&r, &all, &v);
        ck_assert(!v.low_n);
        dlab_run_free(&r);
    }
}
END_TEST

START_TEST(summary_leaves_out_what_failed)
{
    dlab_run a, b, c;
    batch_shape s = plain;
    fill_batch(&a, &s);
    s.gap_ns = 14 * MS;
    fill_batch(&b, &s);
    s.gap_ns = 99 * MS;
    fill_batch(&c, &s);
    b.status = DLAB_RUN_TRUNCATED;
    c.status = DLAB_RUN_CRASHED;
    const dlab_run *runs[] = {&a, &b, &c};
    const dlab_metric_window all = DLAB_WINDOW_ALL;
    dlab_summary sum;
    dlab_metric_summary(dlab_metric_find("tpot"), runs, 3, &all, &sum);
    ck_assert_int_eq(sum.n, 2);
    ck_assert_double_eq_tol(sum.median, 12 * MS, 1);
    ck_assert_double_eq_tol(sum.mean, 12 * MS, 1);
    ck_assert_double_eq_tol(sum.sd, sqrt(8) * MS, 1);
    ck_assert_double_eq_tol(sum.min, 10 * MS, 1);
    ck_assert_double_eq_tol(sum.max, 14 * MS, 1);
    dlab_metric_summary(dlab_metric_find("tpot"), runs, 1, &all, &sum);
    ck_assert(isnan(sum.sd));
    dlab_metric_summary(dlab_metric_find("tpot"), runs + 2, 1, &all, &sum);
    ck_assert_int_eq(sum.n, 0);
    ck_assert(isnan(sum.median));
    dlab_run_free(&a);
    dlab_run_free(&b);
    dlab_run_free(&c);
}
END_TEST

/* Ids that are no small numbers, tokens out of order: the same figures. */
START_TEST(any_request_ids_will_do)
{
    batch_shape b = plain;
    dlab_run r;
    b.seqs = 3;
    fill_batch(&r, &b);
    double before = metric_value(&r, "tpot_p90");
    for (size_t i = 0; i < r.n_tokens; i++) r.tokens[i].request = -5000000000 * (r.tokens[i].request + 1);
    dlab_ev_token t = r.tokens[0];
    r.tokens[0] = r.tokens[250];
    r.tokens[250] = t;
    ck_assert_double_eq(metric_value(&r, "tpot_p90"), before);
    ck_assert_int_eq(samples(&r, "itl"), 3 * 99);
    dlab_run_free(&r);
}
END_TEST

START_TEST(appending_within_the_reserve_moves_nothing)
{
    dlab_run r;
    dlab_run_init(&r);
    ck_assert_int_eq(dlab_run_reserve(&r, 10, 1000, 100, 5, NULL), DLAB_OK);
    const dlab_ev_token *tokens = r.tokens;
    for (int i = 0; i < 1000; i++) {
        dlab_ev_token t = {.index = i};
        ck_assert_int_eq(dlab_run_add_token(&r, &t, NULL), DLAB_OK);
        ck_assert_ptr_eq(r.tokens, tokens);
    }
    ck_assert_int_eq(dlab_run_add_token(&r, &(dlab_ev_token){.index = 1000}, NULL), DLAB_OK);
    ck_assert_int_eq(r.tokens[1000].index, 1000);
    dlab_run_free(&r);
}
END_TEST

START_TEST(status_words)
{
    for (int s = 0; s < DLAB_RUN_STATUS_N; s++)
        ck_assert_int_eq(dlab_run_status_parse(dlab_run_status_text((dlab_run_status)s)), s);
    ck_assert_int_eq(dlab_run_status_parse("fine"), DLAB_RUN_STATUS_N);
    ck_assert_int_eq(dlab_run_status_fails(DLAB_RUN_OOM), 0);
    ck_assert_int_eq(dlab_run_status_fails(DLAB_RUN_CRASHED), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("metric");
    TCase *c = tcase_create("metric");
    tcase_add_test(c, one_token_has_no_tpot);
    tcase_add_test(c, nothing_measured_is_missing_everywhere);
    tcase_add_test(c, names_are_unique_and_described);
    tcase_add_test(c, queue_and_service_add_up);
    tcase_add_test(c, window_limits_decode);
    tcase_add_test(c, recomputation_is_decode);
    tcase_add_test(c, mixed_steps_hide_phase_rates);
    tcase_add_test(c, fullness);
    tcase_add_test(c, work_is_that_of_decode_steps);
    tcase_add_test(c, perplexity_counts_the_span);
    tcase_add_test(c, quantiles_are_numpys);
    tcase_add_test(c, p99_needs_459_samples);
    tcase_add_test(c, summary_leaves_out_what_failed);
    tcase_add_test(c, any_request_ids_will_do);
    tcase_add_test(c, appending_within_the_reserve_moves_nothing);
    tcase_add_test(c, status_words);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

#include "results/events.h"
#include "tests/results/synthetic.h"

#define MS 1e6

static const batch_shape plain = {.seqs = 1,
                                  .prompt = 16,
                                  .made = 100,
                                  .ttft_ns = 500 * MS,
                                  .gap_ns = 10 * MS,
                                  .step_bytes = 1e6,
                                  .step_flops = 2e6,
                                  .retains = true};

/* Chunks of a padded prompt: the last of them holds nothing but padding, and its time is the prefill's. */
START_TEST(padding_of_a_prompt_is_prefill)
{
    dlab_run r;
    dlab_run_init(&r);
    const dlab_ev_step steps[] = {{.t_begin = 0, .t_end = 1e9, .rows = 8, .prefill_rows = 6, .pad_rows = 2},
                                  {.t_begin = 1e9, .t_end = 2e9, .rows = 8, .pad_rows = 8},
                                  {.t_begin = 2e9, .t_end = 6e9, .rows = 4, .decode_rows = 1, .pad_rows = 3}};
    for (int i = 0; i < 3; i++) dlab_run_add_step(&r, &steps[i], NULL);
    dlab_run_add_token(&r, &(dlab_ev_token){.index = 0, .t = 2e9}, NULL);
    dlab_run_add_token(&r, &(dlab_ev_token){.index = 1, .t = 6e9}, NULL);
    dlab_step_facts *facts = dlab_events_steps(&r, &DLAB_WINDOW_ALL);
    ck_assert_ptr_nonnull(facts);
    ck_assert_int_eq(facts[1].kind, DLAB_STEP_PREFILL);
    free(facts);
    r.steps[0].t_end = r.steps[1].t_begin = 1.5e9;
    r.tokens[0].t = 1.5e9; /* the token was there before the padding was done */
    facts = dlab_events_steps(&r, &DLAB_WINDOW_ALL);
    ck_assert_ptr_nonnull(facts);
    ck_assert_int_eq(facts[0].kind, DLAB_STEP_PREFILL);
    ck_assert_int_eq(facts[1].kind, DLAB_STEP_PREFILL);
    ck_assert_int_eq(facts[2].kind, DLAB_STEP_DECODE);
    free(facts);
    ck_assert_double_eq_tol(metric_value(&r, "prefill_tps"), 6 / 2.0, 1e-9);
    ck_assert_double_eq_tol(metric_value(&r, "decode_tps"), 1 / 4.0, 1e-9);
    dlab_run_free(&r);
}
END_TEST

/* What kind of work a step did is what its rows say, whatever is left in the store after it. */
START_TEST(rows_tell_the_kind_of_a_step)
{
    batch_shape b = plain;
    dlab_run r;
    b.retains = false;
    fill_batch(&r, &b);
    r.steps[3].prefill_rows = 8; /* another prompt came in */
    ck_assert_double_eq_tol(metric_value(&r, "mixed_share"), 10 / 1490.0, 1e-9);
    for (size_t i = 0; i < r.n_steps; i++) r.steps[i].kv_used = 1;
    ck_assert_double_eq_tol(metric_value(&r, "mixed_share"), 10 / 1490.0, 1e-9);
    dlab_run_free(&r);
}
END_TEST

/* Two batches of two, one after the other, the second three times as slow. */
START_TEST(window_limits_requests)
{
    batch_shape b = plain;
    dlab_run r, second;
    b.seqs = 2;
    b.made = 10;
    fill_batch(&r, &b);
    b.gap_ns = 30 * MS;
    fill_batch(&second, &b);
    const double t0 = r.t_end;
    for (size_t i = 0; i < second.n_steps; i++) {
        second.steps[i].t_begin += t0;
        second.steps[i].t_end += t0;
        dlab_run_add_step(&r, &second.steps[i], NULL);
    }
    for (size_t i = 0; i < second.n_tokens; i++) {
        second.tokens[i].t += t0;
        second.tokens[i].request += 2;
        dlab_run_add_token(&r, &second.tokens[i], NULL);
    }
    for (size_t i = 0; i < second.n_requests; i++) {
        second.requests[i].id += 2;
        dlab_run_add_request(&r, &second.requests[i], NULL);
    }
    const dlab_metric_window w = {0, 5, 2, 3};
    static const struct {
        const char *name;
        double value;
        int64_t n;
    } expected[] = {{"tpot", 30 * MS, 2},
                    {"itl_max", 30 * MS, 10},
                    {"decode_tps", 2 / 30e-3, 10},
                    {"bytes_ps", 1e6 / 30e-3, 5},
                    {"tpot_missing", 0, 2}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        dlab_metric_value v;
        dlab_metric_find(expected[i].name)->compute(&r, &w, &v);
        ck_assert_double_eq_tol(v.value, expected[i].value, 1e-6 * (1 + expected[i].value));
        ck_assert_int_eq(v.n, expected[i].n);
    }
    ck_assert_double_eq_tol(metric_value(&r, "tpot"), 20 * MS, 1);
    dlab_run_free(&second);
    dlab_run_free(&r);
}
END_TEST

static void same_values(const dlab_run *r, const dlab_metric_value *expected)
{
    const dlab_metric *all[256];
    size_t n = dlab_metric_all(all, 256);
    for (size_t i = 0; i < n; i++) {
        dlab_metric_value v;
        dlab_metric_run(all[i], r, &DLAB_WINDOW_ALL, &v);
        ck_assert_msg(v.value == expected[i].value || (isnan(v.value) && isnan(expected[i].value)), "%s", all[i]->name);
        ck_assert_int_eq(v.n, expected[i].n);
        ck_assert_int_eq(v.low_n, expected[i].low_n);
    }
}

START_TEST(figures_outlive_the_events)
{
    const dlab_metric *all[256];
    dlab_metric_value before[256], v;
    const dlab_metric_window w = {0, 5, 0, 0};
    size_t n = dlab_metric_all(all, 256);
    dlab_run r;
    fill_batch(&r, &plain);
    for (size_t i = 0; i < n; i++) all[i]->compute(&r, &DLAB_WINDOW_ALL, &before[i]);
    ck_assert_int_eq(dlab_run_summarize(&r, NULL), DLAB_OK);
    const struct dlab_metric_value *kept = r.metrics;
    ck_assert_int_eq(dlab_run_summarize(&r, NULL), DLAB_OK);
    ck_assert_ptr_eq(r.metrics, kept);
    same_values(&r, before);
    dlab_metric_run(dlab_metric_find("itl"), &r, &w, &v);
    ck_assert_int_eq(v.n, 5);
    dlab_run_drop_events(&r);
    ck_assert(r.dropped);
    ck_assert_ptr_null(r.tokens);
    ck_assert_uint_eq(r.n_tokens + r.n_steps + r.n_requests, 0);
    same_values(&r, before);
    dlab_metric_run(dlab_metric_find("itl"), &r, &w, &v); /* needs the events */
    ck_assert(isnan(v.value));
    dlab_metric_run(dlab_metric_find("ttft"), &r, &w, &v); /* knows no window */
    ck_assert_double_eq_tol(v.value, 500 * MS, 1);
    const dlab_run *runs[] = {&r};
    dlab_summary s;
    dlab_metric_summary(dlab_metric_find("tpot"), runs, 1, &DLAB_WINDOW_ALL, &s);
    ck_assert_double_eq_tol(s.median, 10 * MS, 1);
    dlab_run_free(&r);
    ck_assert_ptr_null(r.metrics);
}
END_TEST

START_TEST(mean_and_deviation)
{
    const double x[] = {2, 4, 9};
    double mean, sd;
    dlab_mean_sd(x, 3, &mean, &sd);
    ck_assert_double_eq_tol(mean, 5, 1e-12);
    ck_assert_double_eq_tol(sd, sqrt(13), 1e-12);
    dlab_mean_sd(x, 1, &mean, &sd);
    ck_assert_double_eq(mean, 2);
    ck_assert(isnan(sd));
    dlab_mean_sd(x, 0, &mean, NULL);
    ck_assert(isnan(mean));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("events");
    TCase *c = tcase_create("events");
    tcase_add_test(c, padding_of_a_prompt_is_prefill);
    tcase_add_test(c, rows_tell_the_kind_of_a_step);
    tcase_add_test(c, window_limits_requests);
    tcase_add_test(c, figures_outlive_the_events);
    tcase_add_test(c, mean_and_deviation);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* Loads by hand: what failed, what met its objectives, what was delivered, what was in flight, what was flushed at once. */
#include "tests/results/synthetic.h"

#define MS 1e6
#define S  1e9

static dlab_run run;

static void setup(void)
{
    dlab_run_init(&run);
    run.status = DLAB_RUN_OK;
}

static void teardown(void) { dlab_run_free(&run); }

static double value(const char *name) { return metric_value(&run, name); }

static void is(const char *name, double expected)
{
    const double v = value(name);
    ck_assert_msg(fabs(v - expected) <= 1e-9 * (1 + fabs(expected)), "%s is %.12g, expected %.12g", name, v, expected);
}

static void missing(const char *name) { ck_assert_msg(isnan(value(name)), "%s is %g", name, value(name)); }

static void add(const dlab_ev_request *q) { ck_assert_int_eq(dlab_run_add_request(&run, q, NULL), DLAB_OK); }

static void token(int64_t request, int32_t index, double t)
{
    const dlab_ev_token e = {.request = request, .index = index, .t = t};
    ck_assert_int_eq(dlab_run_add_token(&run, &e, NULL), DLAB_OK);
}

static void set(const char *key, const char *text)
{
    ck_assert_int_eq(dlab_settings_set(&run.effective, key, text, NULL), DLAB_OK);
}

static void shape(const char *kind) { snprintf(run.load_shape, sizeof run.load_shape, "%s", kind); }

/* A request that arrives and is sent at `at`, whose n tokens come after `first` and then every `gap`. */
static void served(int64_t id, double at, double first, double gap, int32_t n)
{
    const double t_first = at + first;
    add(&(dlab_ev_request){.id = id,
                           .prompt_tokens = 10,
                           .new_tokens = n,
                           .t_sched = at,
                           .t_submit = at,
                           .t_admit = at,
                           .t_first = t_first,
                           .t_done = t_first + gap * (n - 1),
                           .finish = 1});
    for (int32_t i = 0; i < n; i++) token(id, i, t_first + gap * i);
}

/* ---- failures ------------------------------------------------------------------------------------------------------- */

/* Two served, two failed: one at once, one after 40 of its tokens. */
static void fill_failures(void)
{
    served(0, 0, 100 * MS, 10 * MS, 11); /* e2e 200 ms */
    served(1, 0, 300 * MS, 20 * MS, 6);  /* e2e 400 ms */
    add(&(dlab_ev_request){.id = 2,
                           .prompt_tokens = 10,
                           .t_admit = NAN,
                           .t_first = NAN,
                           .t_done = 5 * MS,
                           .failure = DLAB_FAILURE_REFUSED});
    add(&(dlab_ev_request){.id = 3,
                           .prompt_tokens = 10,
                           .new_tokens = 40,
                           .t_first = 1 * MS,
                           .t_done = 1900 * MS,
                           .failure = DLAB_FAILURE_BROKEN});
    for (int i = 0; i < 40; i++) token(3, i, (1 + 40 * i) * MS);
    run.t_end = 2 * S;
}

START_TEST(failures_are_in_no_latency)
{
    fill_failures();
    is("failed", 2);
    is("failed_share", 0.5);
    is("ttft", 200 * MS);
    is("ttft_client", 200 * MS);
    is("e2e", 300 * MS);
    is("queue", 0);
    is("tpot", 15 * MS);
    is("itl_max", 20 * MS);
    is("itl", (10 * 10 + 5 * 20) / 15.0 * MS);
    is("norm_latency", (200 / 11.0 + 400 / 6.0) / 2 * MS);
    is("tpot_missing", 0);
}
END_TEST

/* 17 tokens and 2 requests in the 2 s that the whole run took, prompts of 20 tokens. */
START_TEST(failures_are_in_the_time_of_rates_only)
{
    fill_failures();
    is("out_tps", 8.5);
    is("total_tps", 18.5);
    is("req_ps", 1);
    run.requests[0].failure = run.requests[1].failure = DLAB_FAILURE_TIMEOUT;
    is("out_tps", 0); /* that is measured, not missing */
    is("req_ps", 0);
    is("failed_share", 1);
    missing("ttft");
    missing("e2e");
}
END_TEST

/* A request that was cut off by the end of the run has not failed. */
START_TEST(unfinished_is_not_failed)
{
    fill_failures();
    run.requests[0].t_done = NAN;
    is("failed", 2);
    is("e2e", 400 * MS);
    is("ttft", 200 * MS);
    is("out_tps", 8.5);
    is("req_ps", 0.5);
}
END_TEST

START_TEST(decode_rate_without_the_tokens_of_failures)
{
    for (int i = 0; i < 3; i++) {
        const dlab_ev_step s = {.t_begin = i * S, .t_end = (i + 1) * S, .rows = 2, .decode_rows = 2, .seqs = 2};
        dlab_run_add_step(&run, &s, NULL);
        token(0, i + 1, (i + 1) * S);
        token(1, i + 1, (i + 1) * S);
    }
    add(&(dlab_ev_request){.id = 0, .new_tokens = 4});
    add(&(dlab_ev_request){.id = 1, .new_tokens = 4});
    is("decode_tps", 2);
    run.requests[1].failure = DLAB_FAILURE_ABORTED;
    is("decode_tps", 1);
}
END_TEST

/* ---- objectives ----------------------------------------------------------------------------------------------------- */

static void fill_objectives(void)
{
    served(0, 0, 100 * MS, 10 * MS, 11); /* ttft 100, tpot 10, e2e 200 ms */
    served(1, 0, 200 * MS, 10 * MS, 11); /* ttft 200, tpot 10, e2e 300 */
    served(2, 0, 100 * MS, 30 * MS, 11); /* ttft 100, tpot 30, e2e 400 */
    served(3, 0, 150 * MS, 0, 1);        /* ttft and e2e 150, no tpot */
    add(&(dlab_ev_request){.id = 4, .t_first = 1, .t_done = 2, .new_tokens = 1, .failure = DLAB_FAILURE_HTTP});
    run.t_end = 2 * S;
}

START_TEST(goodput_needs_an_objective)
{
    fill_objectives();
    missing("goodput");
    missing("goodput_share");
    set("measure.slo_ttft", "0");
    set("measure.slo_tpot", "0");
    set("measure.slo_e2e", "0");
    missing("goodput");
    set("measure.slo_ttft", "nonsense");
    missing("goodput");
}
END_TEST

START_TEST(goodput_is_every_objective_at_once)
{
    fill_objectives();
    set("measure.slo_ttft", "150ms"); /* 0, 2, 3: the bound itself meets it; what failed misses */
    is("goodput_share", 3 / 5.0);
    is("goodput", 3 / 2.0);
    set("measure.slo_tpot", "20ms"); /* 0, 3: with one token there is none to miss */
    is("goodput_share", 2 / 5.0);
    set("measure.slo_e2e", "160ms"); /* 3 */
    is("goodput_share", 1 / 5.0);
    set("measure.slo_e2e", "1us");
    is("goodput", 0);
    is("goodput_share", 0);
}
END_TEST

START_TEST(what_did_not_end_misses)
{
    fill_objectives();
    set("measure.slo_tpot", "20ms");
    is("goodput_share", 3 / 5.0); /* 0, 1, 3 */
    run.requests[0].t_done = NAN;
    is("goodput_share", 2 / 5.0);
}
END_TEST

/* ---- flushes -------------------------------------------------------------------------------------------------------- */

/* Three at once, then two at once, then one: the gaps are 0, 0, 50, 50, 30. */
START_TEST(a_flush_shares_its_gap)
{
    const double at[] = {100, 100, 100, 200, 200, 230};
    for (int i = 0; i < 6; i++) token(0, i, at[i] * MS);
    add(&(dlab_ev_request){.new_tokens = 6, .t_first = 100 * MS, .t_done = 230 * MS, .finish = 1});
    dlab_metric_value v;
    dlab_metric_find("itl")->compute(&run, &DLAB_WINDOW_ALL, &v);
    ck_assert_int_eq(v.n, 5);
    is("itl", 26 * MS);
    is("itl_max", 50 * MS);
    is("itl_p50", 30 * MS);
    is("tpot", 26 * MS); /* as the mean gap of one request must be */
    const dlab_metric_window w = {3, 5, INT64_MIN, INT64_MAX};
    dlab_metric_find("itl")->compute(&run, &w, &v); /* its own gap of the flush, whatever else lies outside */
    ck_assert_int_eq(v.n, 2);
    ck_assert_double_eq_tol(v.value, 40 * MS, 1);
}
END_TEST

/* Everything in one flush at the end: gaps and tpot of 0, which is what its reader saw. */
START_TEST(one_flush_has_no_gaps)
{
    for (int i = 0; i < 8; i++) token(0, i, 500 * MS);
    add(&(dlab_ev_request){.new_tokens = 8, .t_first = 500 * MS, .t_done = 500 * MS, .finish = 1});
    is("itl_max", 0);
    is("tpot", 0);
    is("ttft", 500 * MS);
}
END_TEST

/* A server counted 21 tokens where 11 pieces came: its count is that of tpot, norm_latency and rates. */
START_TEST(the_requests_count_is_the_count)
{
    served(0, 0, 100 * MS, 20 * MS, 11);
    run.requests[0].new_tokens = 21;
    run.t_end = 300 * MS;
    is("tpot", 10 * MS);
    is("out_tps", 70);
    is("norm_latency", 300 / 21.0 * MS);
    dlab_metric_value v;
    const dlab_metric_window w = {0, 5, INT64_MIN, INT64_MAX};
    dlab_metric_find("tpot")->compute(&run, &w, &v); /* of a part of the tokens only what came is known */
    ck_assert_double_eq_tol(v.value, 20 * MS, 1);
}
END_TEST

/* ---- peaks ---------------------------------------------------------------------------------------------------------- */

/* Ten a second for 4 s, thirty in the third second. */
START_TEST(peak_of_a_second)
{
    int32_t n = 0;
    for (int s = 0; s < 4; s++)
        for (int i = 1; i <= (s == 2 ? 30 : 10); i++) token(0, n++, s * S + i * S / (s == 2 ? 30 : 10));
    add(&(dlab_ev_request){.new_tokens = n, .t_done = 4 * S});
    run.t_end = 4 * S;
    is("out_tps", 15);
    is("out_tps_peak", 30);
}
END_TEST

START_TEST(peak_of_a_short_run_is_its_mean)
{
    for (int i = 0; i < 10; i++) token(0, i, 90 * MS + i * MS);
    add(&(dlab_ev_request){.new_tokens = 10, .t_done = 99 * MS});
    run.t_end = 100 * MS;
    is("out_tps", 100);
    is("out_tps_peak", 100);
}
END_TEST

/* ---- delivery ------------------------------------------------------------------------------------------------------- */

/* n arrivals, sched_gap apart, each sent sent_gap after the one before and `late` behind. */
static void arrivals(int n, double sched_gap, double sent_gap, double late)
{
    for (int i = 0; i < n; i++)
        add(&(dlab_ev_request){
            .id = i, .t_sched = i * sched_gap, .t_submit = i * sent_gap + late, .t_done = i * sent_gap + late + 1});
    run.t_end = n * sent_gap + late;
}

START_TEST(on_schedule_is_delivered_whole)
{
    arrivals(10000, 5 * MS, 5 * MS, 0.25 * MS);
    shape("open");
    is("delivery", 1);
    is("rate_intended", 200);
    is("rate_achieved", 200);
    is("lag", 0.25 * MS);
    is("lag_p50", 0.25 * MS);
    is("lag_p99", 0.25 * MS);
    is("lag_max", 0.25 * MS);
}
END_TEST

/* Several at one time: 6 requests after the first instant in 2 s. */
START_TEST(bursts_have_a_rate)
{
    for (int i = 0; i < 9; i++) {
        const int third = i / 3;
        const double t = third * S;
        add(&(dlab_ev_request){.id = i, .t_sched = t, .t_submit = t, .t_done = t + 1});
    }
    shape("trace");
    run.t_end = 3 * S;
    is("rate_intended", 3);
    is("delivery", 1);
}
END_TEST

START_TEST(only_a_schedule_can_be_kept)
{
    static const char *const names[] = {"rate_intended", "rate_achieved", "delivery", "lag",
                                        "lag_p50",       "lag_p99",       "lag_max"};
    arrivals(10, 5 * MS, 6 * MS, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    shape("closed");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    shape("batch");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    shape("trace");
    is("delivery", 5 / 6.0);
    run.n_requests = 1; /* one arrival has no rate */
    missing("delivery");
    is("lag", 0);
}
END_TEST

/* A second turn is due when the first has ended: no part of the schedule. */
START_TEST(later_turns_are_no_schedule)
{
    arrivals(11, 100 * MS, 100 * MS, 0);
    add(&(dlab_ev_request){.id = 11, .turn = 1, .t_sched = 99 * S, .t_submit = 99 * S, .t_done = 100 * S});
    shape("open");
    is("rate_intended", 10);
    is("delivery", 1);
}
END_TEST

/* ---- in flight ------------------------------------------------------------------------------------------------------ */

/* A from 0 to 10 s, B from 1 to 10, C from 2 to 8; the peak, 3, from 2 to 8. */
static void fill_flights(void)
{
    static const double from[] = {0, 1, 2}, to[] = {10, 10, 8};
    for (int i = 0; i < 3; i++) {
        add(&(dlab_ev_request){.id = i,
                               .new_tokens = (int64_t)(to[i] - from[i]),
                               .t_sched = from[i] * S,
                               .t_submit = from[i] * S,
                               .t_done = to[i] * S});
        for (int k = 0; k < to[i] - from[i]; k++) token(i, k, (from[i] + k + 1) * S);
    }
    run.t_end = 12 * S;
}

START_TEST(concurrency_over_time)
{
    fill_flights();
    is("concurrency", (10 + 9 + 6) / 12.0);
    is("concurrency_peak", 3);
    run.requests[0].t_done = NAN; /* cut off: to the end */
    is("concurrency", (12 + 9 + 6) / 12.0);
}
END_TEST

/* Three tokens a second in the 6 s, those at 3, 4, … 8 s; one request ended in it. */
START_TEST(steady_is_the_longest_time_near_the_peak)
{
    fill_flights();
    is("steady_share", 0.5);
    is("out_tps_steady", 3);
    is("req_ps_steady", 1 / 6.0);
    run.requests[1].failure = DLAB_FAILURE_BROKEN; /* in flight all the same */
    is("steady_share", 0.5);
    is("out_tps_steady", 2);
    run.requests[2].failure = DLAB_FAILURE_BROKEN;
    is("req_ps_steady", 0);
}
END_TEST

/* 20 in flight from 0 to 9 s, 18 to 10 s (nine tenths), 17 to 11 s, 20 to 12 s. */
START_TEST(nine_tenths_are_near)
{
    static const double ends[][2] = {{0, 12}, {0, 9}, {0, 10}, {11, 12}};
    static const int n[] = {17, 2, 1, 3};
    int64_t id = 0;
    for (int g = 0; g < 4; g++)
        for (int i = 0; i < n[g]; i++)
            add(&(dlab_ev_request){.id = id++, .t_submit = ends[g][0] * S, .t_done = ends[g][1] * S});
    run.t_end = 12 * S;
    is("concurrency_peak", 20);
    is("steady_share", 10 / 12.0);
}
END_TEST

/* In a closed loop the next request is due when one ends; that it is sent a little later is no fall of the load. */
START_TEST(a_closed_load_is_steady)
{
    for (int i = 0; i < 8; i++)
        add(&(dlab_ev_request){
            .id = i, .t_sched = i * S, .t_submit = i ? i * S + 20e3 : 0, .t_done = (i + 1) * S, .new_tokens = 1});
    run.t_end = 8 * S;
    is("steady_share", (1 * S) / (8 * S)); /* an open load of one at a time */
    shape("closed");
    is("steady_share", 1);
    is("concurrency", 1);
    is("req_ps_steady", 1);
}
END_TEST

START_TEST(nothing_in_flight_has_no_window)
{
    static const char *const names[] = {"concurrency", "concurrency_peak", "out_tps_steady", "req_ps_steady",
                                        "steady_share"};
    add(&(dlab_ev_request){.t_submit = NAN, .t_done = NAN});
    add(&(dlab_ev_request){.id = 1, .t_submit = 5, .t_done = 5}); /* served in no time */
    run.t_end = 10;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
}
END_TEST

/* ---- steps ---------------------------------------------------------------------------------------------------------- */

static void step(const dlab_ev_step *s) { ck_assert_int_eq(dlab_run_add_step(&run, s, NULL), DLAB_OK); }

/* One second, a pause of five, three seconds. */
static void fill_steps(void)
{
    step(&(dlab_ev_step){.t_end = 1 * S,
                         .rows = 10,
                         .pad_rows = 4,
                         .pad_skipped = 2,
                         .seqs = 2,
                         .slots = 4,
                         .budget = 20,
                         .waiting = 8,
                         .preempted = 3,
                         .swapped_out = 2,
                         .swap_bytes = 1000});
    step(&(dlab_ev_step){.t_begin = 6 * S,
                         .t_end = 9 * S,
                         .rows = 10,
                         .pad_skipped = 8,
                         .seqs = 4,
                         .slots = 4,
                         .budget = 20,
                         .waiting = 4,
                         .swapped_in = 2,
                         .swap_bytes = 1000});
    run.t_end = 10 * S;
}

/* A pause is in device_busy and in nothing else. */
START_TEST(fullness_across_a_pause)
{
    fill_steps();
    is("pad_util", 16 / 20.0);
    is("pad_share", 14 / 30.0);
    is("slot_util", 6 / 8.0);
    is("budget_util", 20 / 40.0);
    is("device_busy", 4 / 10.0);
    is("waiting_mean", (8 + 3 * 4) / 4.0);
    is("waiting_peak", 8);
}
END_TEST

START_TEST(swaps_are_counted_once)
{
    fill_steps();
    is("preemptions", 3);
    is("swaps", 2);
    is("swap_bytes", 2000);
}
END_TEST

START_TEST(an_older_record_does_not_know)
{
    static const char *const names[] = {"pad_share", "waiting_mean", "waiting_peak", "swaps", "swap_bytes"};
    fill_steps();
    run.steps[1].pad_skipped = run.steps[1].waiting = run.steps[1].swapped_out = -1;
    run.steps[1].swap_bytes = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    is("pad_util", 16 / 20.0);
}
END_TEST

/* All tokens of a batch come in the step that ends it, a decode step: its first tokens do not make it a mixed one, and its
 * later ones are what the three decode steps made. */
START_TEST(release_at_the_end_keeps_the_rates)
{
    step(&(dlab_ev_step){.t_end = 1 * S, .rows = 8, .prefill_rows = 8, .seqs = 2});
    for (int i = 1; i < 4; i++)
        step(&(dlab_ev_step){.t_begin = i * S, .t_end = (i + 1) * S, .rows = 2, .decode_rows = 2, .seqs = 2});
    for (int i = 0; i < 4; i++) {
        token(0, i, 4 * S);
        token(1, i, 4 * S);
    }
    is("mixed_share", 0);
    is("decode_tps", 6 / 3.0);
    is("prefill_tps", 8);
}
END_TEST

START_TEST(the_cache_at_the_start)
{
    missing("cache_start");
    run.kv_cached_start = 0;
    is("cache_start", 0); /* cold, which is known */
    run.kv_cached_start = 4096;
    is("cache_start", 4096);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("load_metrics");
    TCase *c = tcase_create("load");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, failures_are_in_no_latency);
    tcase_add_test(c, failures_are_in_the_time_of_rates_only);
    tcase_add_test(c, unfinished_is_not_failed);
    tcase_add_test(c, decode_rate_without_the_tokens_of_failures);
    tcase_add_test(c, goodput_needs_an_objective);
    tcase_add_test(c, goodput_is_every_objective_at_once);
    tcase_add_test(c, what_did_not_end_misses);
    tcase_add_test(c, a_flush_shares_its_gap);
    tcase_add_test(c, one_flush_has_no_gaps);
    tcase_add_test(c, the_requests_count_is_the_count);
    tcase_add_test(c, peak_of_a_second);
    tcase_add_test(c, peak_of_a_short_run_is_its_mean);
    tcase_add_test(c, on_schedule_is_delivered_whole);
    tcase_add_test(c, bursts_have_a_rate);
    tcase_add_test(c, only_a_schedule_can_be_kept);
    tcase_add_test(c, later_turns_are_no_schedule);
    tcase_add_test(c, concurrency_over_time);
    tcase_add_test(c, steady_is_the_longest_time_near_the_peak);
    tcase_add_test(c, nine_tenths_are_near);
    tcase_add_test(c, a_closed_load_is_steady);
    tcase_add_test(c, nothing_in_flight_has_no_window);
    tcase_add_test(c, fullness_across_a_pause);
    tcase_add_test(c, swaps_are_counted_once);
    tcase_add_test(c, an_older_record_does_not_know);
    tcase_add_test(c, release_at_the_end_keeps_the_rates);
    tcase_add_test(c, the_cache_at_the_start);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

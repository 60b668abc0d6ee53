/* Loads by hand: what was in flight, what was flushed at once, how full steps were. */
#include "tests/results/load_test.h"

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
    kind("closed");
    is("steady_share", 1);
    is("concurrency", 1);
    is("req_ps_steady", 1);
}
END_TEST

/* Twenty streams of 4000 tokens at one pace, of each of which only the first and the last have a time: 20 000 tokens a
 * second all along, nothing at the begin and nothing at the end. */
START_TEST(untimed_tokens_came_in_between)
{
    for (int i = 0; i < 20; i++) {
        add(&(dlab_ev_request){.id = i, .new_tokens = 4000, .t_first = 1 * MS, .t_done = 4 * S, .finish = 1});
        token(i, 0, 1 * MS);
        token(i, 3999, 4 * S);
    }
    run.t_end = 4 * S;
    is("out_tps", 20000);
    const double steady = value("out_tps_steady"), peak = value("out_tps_peak");
    ck_assert_msg(fabs(steady / 20000 - 1) < 0.005, "%g", steady);
    ck_assert_msg(fabs(peak / 20000 - 1) < 0.005, "%g", peak);
}
END_TEST

/* With their number unknown there is no rate at all. */
START_TEST(untold_tokens_have_no_rate)
{
    add(&(dlab_ev_request){.new_tokens = -1, .t_first = 1 * S, .t_done = 2 * S, .finish = 1});
    token(0, 0, 1 * S);
    run.t_end = 2 * S;
    missing("out_tps");
    missing("out_tps_steady");
    missing("out_tps_peak");
    is("req_ps_steady", 0.5);
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
    tcase_add_test(c, a_flush_shares_its_gap);
    tcase_add_test(c, one_flush_has_no_gaps);
    tcase_add_test(c, the_requests_count_is_the_count);
    tcase_add_test(c, peak_of_a_second);
    tcase_add_test(c, peak_of_a_short_run_is_its_mean);
    tcase_add_test(c, concurrency_over_time);
    tcase_add_test(c, steady_is_the_longest_time_near_the_peak);
    tcase_add_test(c, nine_tenths_are_near);
    tcase_add_test(c, a_closed_load_is_steady);
    tcase_add_test(c, untimed_tokens_came_in_between);
    tcase_add_test(c, untold_tokens_have_no_rate);
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

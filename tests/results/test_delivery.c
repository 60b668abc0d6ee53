/* Loads by hand: what failed, what met its objectives, what was intended and what was delivered. */
#include "tests/results/load_test.h"

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
    missing("unfinished");
    fill_failures();
    is("unfinished", 0);
    run.requests[0].t_done = NAN;
    is("unfinished", 1);
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

/* A server that tells neither its tokens' number nor gives a way to count them: whether its pace was kept is not known. */
START_TEST(goodput_of_untold_tokens_is_unknown)
{
    fill_objectives();
    set("measure.slo_ttft", "150ms");
    run.requests[1].new_tokens = -1;
    is("goodput_share", 3 / 5.0); /* that asks for no count */
    set("measure.slo_tpot", "20ms");
    missing("goodput");
    missing("goodput_share");
    run.requests[1].failure = DLAB_FAILURE_BROKEN; /* misses, whatever its tokens were */
    is("goodput_share", 2 / 5.0);
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
    kind("open");
    is("delivery", 49995 / 49995.25); /* the last one is sent a quarter of a ms after its time */
    is("rate_intended", 200);
    is("rate_achieved", 9999 / 49.99525);
    is("lag_growth", 0);
    is("lag", 0.25 * MS);
    is("lag_p50", 0.25 * MS);
    is("lag_p99", 0.25 * MS);
    is("lag_max", 0.25 * MS);
}
END_TEST

/* Nothing is sent for 900 ms, then all ten within 90: that is late, and no rate of 100. */
START_TEST(sent_late_and_fast_is_not_sent_more)
{
    arrivals(10, 100 * MS, 10 * MS, 900 * MS);
    kind("open");
    is("rate_intended", 10);
    is("rate_achieved", 9 / 0.99);
    is("delivery", 900 / 990.0);
    is("lag_growth", 0);
}
END_TEST

/* Twelve that each wait for a step of 300 ms to end, wherever they fall in it: late by chance, on schedule all the same. The
 * same lags in another order grow, by 25 ms in 333. */
START_TEST(lags_by_chance_do_not_grow)
{
    static const double lags[] = {25, 200, 100, 275, 50, 225, 0, 150, 250, 75, 125, 175};
    for (int i = 0; i < 12; i++)
        add(&(dlab_ev_request){
            .id = i, .t_sched = i * S / 3, .t_submit = i * S / 3 + lags[i] * MS, .t_done = i * S / 3 + 500 * MS});
    kind("open");
    run.t_end = 4.2 * S;
    is("delivery", 11 / (11 + 3 * 0.175));
    is("lag_growth", 0);
    for (int i = 0; i < 12; i++) run.requests[i].t_submit = run.requests[i].t_sched + i * 25 * MS;
    const double grown = value("lag_growth"); /* on a line, but for roundings */
    ck_assert_msg(fabs(grown - 0.075) < 1e-6, "%g", grown);
    run.n_requests = 4;
    missing("lag_growth"); /* too few to tell */
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
    kind("trace");
    run.t_end = 3 * S;
    is("rate_intended", 3);
    is("delivery", 1);
}
END_TEST

START_TEST(only_a_schedule_can_be_kept)
{
    static const char *const names[] = {"rate_intended", "rate_achieved", "delivery", "lag",
                                        "lag_p50",       "lag_p99",       "lag_max",  "lag_growth"};
    arrivals(10, 5 * MS, 6 * MS, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    kind("closed");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    kind("batch");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) missing(names[i]);
    kind("trace");
    is("delivery", 5 / 6.0);
    run.n_requests = 1; /* one arrival has no rate */
    missing("delivery");
    missing("lag_growth");
    is("lag", 0);
}
END_TEST

/* A second turn is due when the first has ended: no part of the schedule. */
START_TEST(later_turns_are_no_schedule)
{
    arrivals(11, 100 * MS, 100 * MS, 0);
    add(&(dlab_ev_request){.id = 11, .turn = 1, .t_sched = 99 * S, .t_submit = 99 * S, .t_done = 100 * S});
    kind("open");
    is("rate_intended", 10);
    is("delivery", 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("delivery");
    TCase *c = tcase_create("load");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, failures_are_in_no_latency);
    tcase_add_test(c, failures_are_in_the_time_of_rates_only);
    tcase_add_test(c, unfinished_is_not_failed);
    tcase_add_test(c, decode_rate_without_the_tokens_of_failures);
    tcase_add_test(c, goodput_needs_an_objective);
    tcase_add_test(c, goodput_is_every_objective_at_once);
    tcase_add_test(c, what_did_not_end_misses);
    tcase_add_test(c, goodput_of_untold_tokens_is_unknown);
    tcase_add_test(c, on_schedule_is_delivered_whole);
    tcase_add_test(c, sent_late_and_fast_is_not_sent_more);
    tcase_add_test(c, lags_by_chance_do_not_grow);
    tcase_add_test(c, bursts_have_a_rate);
    tcase_add_test(c, only_a_schedule_can_be_kept);
    tcase_add_test(c, later_turns_are_no_schedule);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

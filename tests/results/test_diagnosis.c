/* Runs of a made-up machine, each with one thing wrong: exactly that is named, with the numbers that show it. */
#include <jansson.h>

#include "results/export.h"
#include "tests/results/diagnosis_test.h"

START_TEST(operations_at_their_peak_are_no_cause) { names_nothing(&run); }
END_TEST

/* 70 of 100 steps compute prompts: 700 of 1000 ms, 2 × 8 rows in each. */
START_TEST(prefill)
{
    for (int i = 1; i < 70; i++) {
        run.steps[i].prefill_rows = run.steps[i].rows = 16;
        run.steps[i].decode_rows = 0;
    }
    names(&run, DLAB_CAUSE_PREFILL, 0.7,
          WORDS("560 prompt rows a request at 1600 rows/s", "700 ms of the steps' 1000 ms"));
}
END_TEST

/* A mixed step is prefill by its share of rows: 18 of 20. */
START_TEST(prefill_in_mixed_steps)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].prefill_rows = 18;
        run.steps[i].rows = 20;
    }
    names(&run, DLAB_CAUSE_PREFILL, 0.9 * 0.99 + 0.01, WORDS("prefill"));
}
END_TEST

/* Admitted after 4 s, served for 1 s, 3 others waiting all the time. */
START_TEST(queue)
{
    shift(&run, 4000 * MS);
    for (size_t i = 0; i < run.n_steps; i++) run.steps[i].waiting = 3;
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("4000 ms of the 5000 ms", "3 wait for one of 2 places"));
    run.requests[0].t_submit = 1000 * MS;
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("of a request (500 ms before it was submitted)"));
    for (size_t i = 0; i < run.n_steps; i++) run.steps[i].waiting = -1; /* an older record */
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("4000 ms of the 5000 ms"));
    ck_assert_ptr_null(strstr(diagnose(&run).items[0].text, "places"));
}
END_TEST

/* Places are free, and live sequences hold most of the pool: what they wait for is room, where the batcher would let them in. */
START_TEST(queue_for_room)
{
    shift(&run, 4000 * MS);
    for (size_t i = 0; i < run.n_steps; i++) {
        run.steps[i].waiting = 3;
        run.steps[i].slots = 8;
        run.steps[i].kv_reserved = 3 << 20;
        run.steps[i].kv_free = 1 << 20;
    }
    ck_assert_int_eq(dlab_settings_set(&run.effective, "batch.mode", "static", NULL), DLAB_OK);
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("3 wait for one of 8 places"));
    ck_assert_int_eq(dlab_settings_set(&run.effective, "batch.mode", "continuous", NULL), DLAB_OK);
    names(&run, DLAB_CAUSE_QUEUE, 0.8,
          WORDS("3 wait for room in the KV pool (kv.pool), of whose ", " used by 2 of 8 places"));
    ck_assert_ptr_null(strstr(diagnose(&run).items[0].text, "gave its place back"));
    run.steps[9].preempted = 27;
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("27 times a sequence gave its place back"));
    for (size_t i = 0; i < run.n_steps; i++) run.steps[i].slots = 2;
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("3 wait for one of 2 places"));
}
END_TEST

/* Four more came at once and never got in before the run was cut off: 4 × 1 s beside 2 × 1 s of service. */
START_TEST(queue_of_those_never_admitted)
{
    for (int i = 2; i < 6; i++) {
        const dlab_ev_request q = {.id = i, .t_admit = NAN, .t_first = NAN, .t_done = NAN};
        ck_assert_int_eq(dlab_run_add_request(&run, &q, NULL), DLAB_OK);
    }
    run.status = DLAB_RUN_TRUNCATED;
    names(&run, DLAB_CAUSE_QUEUE, 4.0 / 6, WORDS("4 of 6 never had one"));
}
END_TEST

/* 95 MB a step: 9.5 of 10 ms, 85 of the 95 MB from the cache. */
START_TEST(kv_bandwidth)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].bytes = 95e6;
        run.steps[i].kv_bytes = 80e6;
        run.steps[i].inter_bytes = 5e6;
        run.steps[i].flops = 1e6;
    }
    names(&run, DLAB_CAUSE_KV_BANDWIDTH, 0.99 * 0.85,
          WORDS("81.1 MiB of the 90.6 MiB", "decode step of 2 sequences", "9.5 GB/s",
                "in 10 ms where the peaks allow 9.5 ms"));
}
END_TEST

START_TEST(weight_bandwidth)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].bytes = 95e6;
        run.steps[i].kv_bytes = 5e6;
        run.steps[i].flops = 1e6;
    }
    names(&run, DLAB_CAUSE_WEIGHT_BANDWIDTH, 0.99 * 0.9, WORDS("85.8 MiB of the 90.6 MiB", "9.5 GB/s"));
}
END_TEST

/* Neither 10 MB (1 ms) nor 0.01 GFLOP explain 10 ms. */
START_TEST(overhead_in_steps)
{
    for (int i = 1; i < 100; i++) run.steps[i].flops = 0.01e9;
    names(&run, DLAB_CAUSE_OVERHEAD, 0.99 * 0.9,
          WORDS("0 ns pass between two steps", "a decode step of 40 ops takes 10 ms where the peaks allow 1 ms"));
}
END_TEST

/* 90 ms between steps of 10 ms, with both requests in them: the host's time. Of the run's 100 steps 99 have one before. */
START_TEST(overhead_between_steps)
{
    for (int i = 0; i < 100; i++) {
        run.steps[i].t_begin = i * 100 * MS;
        run.steps[i].t_end = run.steps[i].t_begin + 10 * MS;
    }
    run.requests[0].t_done = run.requests[1].t_done = run.t_end = 9910 * MS;
    names(&run, DLAB_CAUSE_OVERHEAD, (99 * 90 + 0.5 * 99) / 9910, WORDS("89.1 ms pass between two steps"));
}
END_TEST

/* The same gaps with nobody in service: the load is light, nothing is slow. */
START_TEST(idle_time_is_nobodys)
{
    for (int i = 0; i < 100; i++) {
        run.steps[i].t_begin = i * 100 * MS;
        run.steps[i].t_end = run.steps[i].t_begin + 10 * MS;
    }
    run.n_requests = 0;
    for (int i = 0; i < 100; i++) {
        const double t = i * 100 * MS;
        const dlab_ev_request q = {.id = i, .t_sched = t, .t_admit = t, .t_first = t + 10 * MS, .t_done = t + 10 * MS};
        ck_assert_int_eq(dlab_run_add_request(&run, &q, NULL), DLAB_OK);
    }
    names_nothing(&run);
}
END_TEST

/* 6 of 8 rows of each decode step. */
START_TEST(padding)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].pad_rows = 6;
        run.steps[i].rows = 8;
    }
    names(&run, DLAB_CAUSE_PADDING, 0.99 * 0.75, WORDS("594 of 808 rows computed"));
}
END_TEST

/* Ten requests of which eight end in the first step and are held to the end of the batch. */
START_TEST(padding_by_release_at_the_end)
{
    for (int i = 2; i < 10; i++) {
        dlab_ev_request q = run.requests[0];
        q.id = i;
        ck_assert_int_eq(dlab_run_add_request(&run, &q, NULL), DLAB_OK);
    }
    run.steps[0].seqs = 10;
    names_nothing(&run); /* streamed: who has ended is gone, and the times say otherwise for some other reason */
    ck_assert_int_eq(dlab_settings_set(&run.effective, "batch.release", "at_end", NULL), DLAB_OK);
    names(&run, DLAB_CAUSE_PADDING, 0.99 * 0.8, WORDS("0 of 214 rows", "792 ms a request held"));
}
END_TEST

/* Half of the steps compute 18 rows of a sequence again beside 2 new ones. */
START_TEST(preemption_by_recomputation)
{
    for (int i = 1; i < 100; i++) run.steps[i].decode_rows = run.steps[i].rows = 20;
    names_nothing(&run); /* a store that keeps nothing does that at every step */
    run.steps[50].preempted = 3;
    names(&run, DLAB_CAUSE_PREEMPTION, 0.99 * 0.9, WORDS("3 times", "1782 of 1996 rows were computed again"));
}
END_TEST

/* 60 MB there and back in each step are 6 of 10 ms, which the operations, 3 ms, do not explain. */
START_TEST(preemption_by_swapping)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].flops = 0.3e9;
        run.steps[i].preempted = run.steps[i].swapped_out = run.steps[i].swapped_in = 1;
        run.steps[i].swap_bytes = 60000000;
    }
    names(&run, DLAB_CAUSE_PREEMPTION, 0.99 * 0.6, WORDS("99 times", "5665 MiB"));
}
END_TEST

/* Eight of ten requests are out of their places, all of the time but for the first step. */
START_TEST(preemption_by_waiting)
{
    for (int i = 2; i < 10; i++) {
        dlab_ev_request q = run.requests[0];
        q.id = i;
        ck_assert_int_eq(dlab_run_add_request(&run, &q, NULL), DLAB_OK);
    }
    run.steps[0].seqs = 10;
    run.steps[0].preempted = 8;
    names(&run, DLAB_CAUSE_PREEMPTION, 0.99 * 0.8, WORDS("8 times", "792 ms a request out of place"));
}
END_TEST

/* A prompt that is computed twice, both times before its first token. */
START_TEST(preemption_of_a_prefill)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].prefill_rows = run.steps[i].rows = 16;
        run.steps[i].decode_rows = 0;
    }
    run.requests[0].prompt_tokens = run.requests[1].prompt_tokens = 160; /* of 1600 rows 320 are new */
    run.steps[9].preempted = 1;
    names(&run, DLAB_CAUSE_PREEMPTION, 0.8, WORDS("1280 of 1600 rows"));
}
END_TEST

/* The second copy of a prompt's rows is what was computed again, whoever else asked for the same prompt, never came in, or
 * failed before. */
START_TEST(preemption_counts_a_prompt_once)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].prefill_rows = run.steps[i].rows = 16;
        run.steps[i].decode_rows = 0;
    }
    run.requests[0].prompt_tokens = run.requests[1].prompt_tokens =
        320; /* two samples of one: of 1600 rows 320 are new */
    ck_assert_int_eq(dlab_settings_set(&run.effective, "workload.samples", "2", NULL), DLAB_OK);
    for (int i = 2; i < 6; i++) {
        const dlab_ev_request q = {.id = i,
                                   .prompt_tokens = 320,
                                   .t_admit = NAN,
                                   .t_first = NAN,
                                   .t_done = 1,
                                   .failure = DLAB_FAILURE_REJECTED};
        ck_assert_int_eq(dlab_run_add_request(&run, &q, NULL), DLAB_OK);
    }
    run.steps[9].preempted = 1;
    names(&run, DLAB_CAUSE_PREEMPTION, 0.8, WORDS("1280 of 1600 rows"));
}
END_TEST

/* Half of the time each: both, the larger first. */
START_TEST(two_causes_of_a_kind)
{
    for (int i = 1; i < 100; i++) {
        run.steps[i].bytes = 95e6;
        run.steps[i].kv_bytes = 55e6;
        run.steps[i].flops = 1e6;
    }
    const dlab_diagnosis d = diagnose(&run);
    ck_assert_uint_eq(d.n, 1); /* 5.5 of 10 ms are half of the time alone */
    ck_assert_int_eq(d.items[0].cause, DLAB_CAUSE_KV_BANDWIDTH);
    for (int i = 1; i < 100; i++) run.steps[i].kv_bytes = 46e6; /* 4.6 and 4.9 ms */
    const dlab_diagnosis e = diagnose(&run);
    ck_assert_uint_eq(e.n, 2);
    ck_assert_int_eq(e.items[0].cause, DLAB_CAUSE_WEIGHT_BANDWIDTH);
    ck_assert_int_eq(e.items[1].cause, DLAB_CAUSE_KV_BANDWIDTH);
}
END_TEST

/* Four shares of a quarter or less: nothing makes up most of the time together with one other. */
START_TEST(nothing_dominates)
{
    shift(&run, 240 * MS); /* queue 0.24/1.24 = 19 % */
    for (int i = 1; i < 100; i++) {
        run.steps[i].rows = 10;
        run.steps[i].pad_rows = 2; /* 16 % */
        run.steps[i].prefill_rows = 2;
        run.steps[i].decode_rows = 6; /* 48 %, of which: */
        run.steps[i].seqs = 6;
        run.steps[i].bytes = 70e6; /* 34 % */
        run.steps[i].kv_bytes = 35e6;
        run.steps[i].flops = 1e6;
    }
    names_nothing(&run);
}
END_TEST

START_TEST(without_peaks_no_bandwidth_is_claimed)
{
    for (int i = 1; i < 100; i++) run.steps[i].bytes = 95e6;
    run.n_peaks = 0;
    names(&run, DLAB_CAUSE_UNCALIBRATED, 0.99, WORDS("990 ms of the steps' 1000 ms"));
    shift(&run, 4000 * MS); /* what needs no peaks is named all the same */
    names(&run, DLAB_CAUSE_QUEUE, 0.8, WORDS("waiting"));
}
END_TEST

START_TEST(who_declares_no_work_is_not_judged)
{
    for (int i = 0; i < 100; i++) run.steps[i].bytes = run.steps[i].kv_bytes = run.steps[i].flops = 0;
    is_not_judged(&run, "its steps declare no work");
    run.n_peaks = 0;
    is_not_judged(&run, "its steps declare no work");
}
END_TEST

START_TEST(senseless_peaks_do_no_harm)
{
    static const double bad[] = {NAN, 0, -1, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        run.peaks[0] = (dlab_peak_row){bad[i], bad[i], bad[i], bad[i], bad[i]};
        const dlab_diagnosis d = diagnose(&run);
        for (size_t k = 0; k < d.n; k++) ck_assert(d.items[k].share >= 0 && d.items[k].share <= 1);
    }
}
END_TEST

/* Requests that failed have no latency: 20 that waited for 4 s and were rejected change nothing. */
START_TEST(failures_do_not_count)
{
    for (int i = 2; i < 22; i++) {
        const dlab_ev_request q = {
            .id = i, .t_admit = NAN, .t_first = NAN, .t_done = 4000 * MS, .failure = DLAB_FAILURE_REJECTED};
        ck_assert_int_eq(dlab_run_add_request(&run, &q, NULL), DLAB_OK);
    }
    names_nothing(&run);
}
END_TEST

START_TEST(nothing_measured_has_no_cause)
{
    dlab_diagnosis d;
    ck_assert_int_eq(dlab_diagnose(NULL, 0, &d, NULL), DLAB_OK);
    ck_assert_uint_eq(d.n, 0);
    run.status = DLAB_RUN_CRASHED;
    is_not_judged(&run, "nothing was measured");
    run.status = DLAB_RUN_OK;
    run.n_requests = 0;
    is_not_judged(&run, "no request was in service");
    run.n_steps = 0; /* a server's run has none */
    is_not_judged(&run, "its steps are not known");
}
END_TEST

/* ---- where it is shown ---------------------------------------------------------------------------------------------- */

/* Points of which each waits for 4 s of 5. */
static void fill_record_with(dlab_record *r, int n_points, bool peaks)
{
    dlab_record_init(r);
    r->complete = true;
    for (int i = 0; i < n_points; i++) {
        char size[16];
        snprintf(size, sizeof size, "%d", i + 1);
        add_point(r, (const char *[]){"batch.size", size, NULL});
        dlab_run *one = add_run(r, &(batch_shape){.seqs = 1, .prompt = 4, .made = 2, .ttft_ns = 1, .gap_ns = 1});
        dlab_run_free(one);
        fill_healthy(one);
        if (peaks)
            shift(one, 4000 * MS);
        else
            one->n_peaks = 0;
    }
}

START_TEST(notes_have_a_line_a_point)
{
    dlab_record r;
    dlab_table t;
    fill_record_with(&r, 3, true);
    build(&r, "metrics: [ttft]\n", &t);
    ck_assert_ptr_nonnull(note_with(&t, "batch.size=1: queue-bound: 80 %"));
    ck_assert_ptr_nonnull(note_with(&t, "batch.size=3: queue-bound: 80 %"));
    dlab_table_free(&t);
    dlab_record_free(&r);
    fill_record_with(&r, 13, true); /* so many lines would hide the rest */
    build(&r, "metrics: [ttft]\n", &t);
    ck_assert(!notes_say(&t, "queue-bound"));
    ck_assert_ptr_nonnull(note_with(&t, "each of the 13 points: `dlab show RECORD.h5 --diagnose`"));
    dlab_table_free(&t);
    dlab_record_free(&r);
    fill_record_with(&r, 3, false);
    build(&r, "metrics: [ttft]\n", &t);
    ck_assert_ptr_nonnull(note_with(&t, "not known of 3 of 3 points: not calibrated"));
    ck_assert(!notes_say(&t, "-bound"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(every_point_has_a_row)
{
    dlab_record r;
    char *text;
    fill_record_with(&r, 2, true);
    dlab_run *second = r.points[1].runs[0];
    dlab_run_free(second);
    fill_healthy(second);
    ck_assert_int_eq(dlab_diagnosis_render(&r, "csv", &text, NULL), DLAB_OK);
    ck_assert_msg(strstr(text, "label,cause,share,diagnosis\nbatch.size=1,queue-bound,0.7"), "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "\nbatch.size=2,–,,nothing makes up most"));
    free(text);
    second->n_steps = 0; /* as a server's run, or one whose events are elsewhere */
    ck_assert_int_eq(dlab_diagnosis_render(&r, "csv", &text, NULL), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "\nbatch.size=2,–,,not judged: its steps are not known"));
    free(text);
    second->n_steps = 100;
    ck_assert_int_eq(dlab_diagnosis_render(&r, "json", &text, NULL), DLAB_OK);
    json_t *j = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "diagnosis")), 2);
    json_decref(j);
    free(text);
    ck_assert_int_eq(dlab_export(&r, "json", false, &text, NULL), DLAB_OK);
    j = json_loads(text, 0, NULL);
    const json_t *points = json_object_get(j, "points");
    const char *first = json_string_value(json_object_get(json_array_get(points, 0), "diagnosis"));
    ck_assert_ptr_eq(strstr(first, "queue-bound: 80 %"), first);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(points, 1), "diagnosis")), "");
    json_decref(j);
    free(text);
    dlab_error err = {0};
    ck_assert_int_eq(dlab_diagnosis_render(&r, "xml", &text, &err), DLAB_EUSAGE);
    dlab_record_free(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("diagnosis");
    TCase *c = tcase_create("causes");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, operations_at_their_peak_are_no_cause);
    tcase_add_test(c, prefill);
    tcase_add_test(c, prefill_in_mixed_steps);
    tcase_add_test(c, queue);
    tcase_add_test(c, queue_for_room);
    tcase_add_test(c, queue_of_those_never_admitted);
    tcase_add_test(c, kv_bandwidth);
    tcase_add_test(c, weight_bandwidth);
    tcase_add_test(c, overhead_in_steps);
    tcase_add_test(c, overhead_between_steps);
    tcase_add_test(c, idle_time_is_nobodys);
    tcase_add_test(c, padding);
    tcase_add_test(c, padding_by_release_at_the_end);
    tcase_add_test(c, preemption_by_recomputation);
    tcase_add_test(c, preemption_by_swapping);
    tcase_add_test(c, preemption_by_waiting);
    tcase_add_test(c, preemption_of_a_prefill);
    tcase_add_test(c, preemption_counts_a_prompt_once);
    tcase_add_test(c, two_causes_of_a_kind);
    tcase_add_test(c, nothing_dominates);
    tcase_add_test(c, without_peaks_no_bandwidth_is_claimed);
    tcase_add_test(c, who_declares_no_work_is_not_judged);
    tcase_add_test(c, senseless_peaks_do_no_harm);
    tcase_add_test(c, failures_do_not_count);
    tcase_add_test(c, nothing_measured_has_no_cause);
    suite_add_tcase(s, c);
    TCase *shown = tcase_create("shown");
    tcase_add_test(shown, notes_have_a_line_a_point);
    tcase_add_test(shown, every_point_has_a_row);
    suite_add_tcase(s, shown);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* Where choices cross along an axis: times, and memory. */
#include "tests/results/report_test.h"

START_TEST(crossing_is_found_and_explained)
{
    dlab_record r;
    dlab_table t;
    fill_curve(&r);
    build(&r, curve_spec, &t);
    const char *n = note_with(&t, "is ahead of");
    ck_assert_ptr_nonnull(strstr(n, "kv.store=contiguous is ahead of kv.store=none from workload.depth ≈ 64 on"));
    ck_assert_ptr_nonnull(strstr(n, "between 32 and 128"));
    ck_assert_ptr_nonnull(strstr(n, "does 32.0× the flops and moves 0.50× the bytes at 32, 128× and 0.50× at 128"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

START_TEST(no_crossing_says_who_is_ahead)
{
    dlab_record r;
    dlab_table t;
    fill_curve(&r);
    for (size_t i = 4; i < 8; i++) /* the cache becomes slower than anything */
        for (size_t k = 0; k < 3; k++)
            for (size_t j = 0; j < r.points[i].runs[k]->n_tokens; j++) r.points[i].runs[k]->tokens[j].t *= 100;
    build(&r, curve_spec, &t);
    ck_assert(!notes_say(&t, "is ahead of"));
    ck_assert_ptr_nonnull(strstr(note_with(&t, "do not cross between workload.depth = 16 and 256"),
                                 "kv.store=none is ahead throughout, 400× at 16 and 25.0× at 256"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* Bytes of all three runs of a point. */
static void set_peak(dlab_point_result *p, int64_t bytes)
{
    for (size_t k = 0; k < p->n_runs; k++) p->runs[k]->mem_peak = bytes;
}

/* At 16, 32, 128, 256: none takes as much as the length, contiguous 64 throughout. */
static void fill_peaks(dlab_record *r)
{
    static const int64_t lengths[] = {16, 32, 128, 256};
    fill_curve(r);
    for (size_t i = 0; i < 8; i++) set_peak(&r->points[i], i < 4 ? lengths[i] : 64);
}

START_TEST(memory_crosses_too)
{
    dlab_record r;
    dlab_table t;
    fill_peaks(&r);
    build(&r, curve_spec, &t);
    const char *n = note_with(&t, "mem_peak: ");
    ck_assert_str_eq(n, "mem_peak: kv.store=contiguous takes less than kv.store=none from workload.depth ≈ 64 on, "
                        "interpolated between 32 and 128");
    note_with(&t, "tpot: kv.store=contiguous is ahead of");
    dlab_table_free(&t);
    build(&r, "metrics: [tpot]\nbaseline: {kv.store: none}\ngrowth: {metric: tpot, over: workload.depth}\n", &t);
    ck_assert(!notes_say(&t, "mem_peak")); /* not in the table */
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* Without growth the axis is the one that is swept over numbers. */
START_TEST(memory_crosses_along_the_axis_of_numbers)
{
    dlab_record r;
    dlab_table t;
    fill_peaks(&r);
    build(&r, "metrics: [tpot, mem_peak]\nbaseline: {kv.store: none}\n", &t);
    note_with(&t, "mem_peak: kv.store=contiguous takes less than kv.store=none from workload.depth ≈ 64 on");
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* Equal is no order: less, equal, equal, more crosses once; equal and less never. */
START_TEST(equal_memory_does_not_cross)
{
    dlab_record r;
    dlab_table t;
    fill_peaks(&r);
    for (size_t i = 0; i < 4; i++) set_peak(&r.points[i], i < 2 ? 64 : 100);
    build(&r, curve_spec, &t);
    ck_assert(!notes_say(&t, "mem_peak"));
    dlab_table_free(&t);
    set_peak(&r.points[0], 32);
    set_peak(&r.points[2], 64);
    set_peak(&r.points[3], 128);
    build(&r, curve_spec, &t);
    ck_assert_ptr_nonnull(strstr(note_with(&t, "mem_peak: kv.store=contiguous takes less than kv.store=none from "),
                                 "workload.depth ≈ 64 on, interpolated between 16 and 256"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* The same work a step: what differs is how many steps there are, and how full they are. */
START_TEST(a_gap_of_schedulers_is_explained_by_their_steps)
{
    dlab_record r;
    dlab_table t;
    dlab_record_init(&r);
    r.complete = true;
    for (int i = 0; i < 2; i++) {
        add_point(&r, (const char *[]){"batch.mode", i ? "continuous" : "static", NULL});
        dlab_run *one = add_run(&r, &(batch_shape){.seqs = 4,
                                                   .prompt = 8,
                                                   .made = i ? 10 : 15,
                                                   .ttft_ns = 5 * MS,
                                                   .gap_ns = 5 * MS,
                                                   .retains = true,
                                                   .step_flops = 1e9,
                                                   .step_bytes = 1e8});
        for (size_t k = 0; !i && k < one->n_steps; k++) {
            one->steps[k].slots = 8;
            one->steps[k].pad_skipped = one->steps[k].rows;
        }
    }
    build(&r, "metrics: [req_ps]\nbaseline: {batch.mode: static}\nratio: req_ps\n", &t);
    const char *n = note_with(&t, "widest gap: ");
    ck_assert_msg(strstr(n, "batch.mode=static has 1.50× the steps, 0.50 of its places used against 1.00, 50 % padding "
                            "against none"),
                  "%s", n);
    ck_assert_ptr_null(strstr(n, "flops"));
    dlab_table_free(&t);
    build(&r, "metrics: [flops_token]\nbaseline: {batch.mode: static}\nratio: flops_token\n", &t);
    ck_assert(!notes_say(&t, "the steps")); /* no time, no rate */
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("report cross");
    TCase *c = tcase_create("cross");
    tcase_add_test(c, crossing_is_found_and_explained);
    tcase_add_test(c, no_crossing_says_who_is_ahead);
    tcase_add_test(c, memory_crosses_too);
    tcase_add_test(c, memory_crosses_along_the_axis_of_numbers);
    tcase_add_test(c, equal_memory_does_not_cross);
    tcase_add_test(c, a_gap_of_schedulers_is_explained_by_their_steps);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

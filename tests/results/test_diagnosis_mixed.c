/* Each cause where every step computes prompts too, as a continuous batch can have it. */
#include "tests/results/diagnosis_test.h"

/* 2 of 20 rows of each step are of prompts, 18 decode, one each of 18 sequences; prompts alone never have a step. */
static void mix(void)
{
    for (int i = 0; i < 100; i++) {
        run.steps[i].rows = 20;
        run.steps[i].prefill_rows = 2;
        run.steps[i].decode_rows = run.steps[i].seqs = run.steps[i].slots = 18;
    }
}

/* Every word of a sentence must be one: averages over steps that there are none of would show. */
static void names_mixed(dlab_cause cause, double share, const char *const *words)
{
    names(&run, cause, share, words);
    const char *text = diagnose(&run).items[0].text;
    ck_assert_msg(!strstr(text, "nan") && !strstr(text, "inf"), "%s", text);
}

START_TEST(mixed_operations_are_no_cause)
{
    mix();
    names_nothing(&run);
}
END_TEST

START_TEST(mixed_queue)
{
    mix();
    shift(&run, 4000 * MS);
    names_mixed(DLAB_CAUSE_QUEUE, 0.8, WORDS("4000 ms of the 5000 ms"));
}
END_TEST

START_TEST(mixed_kv_bandwidth)
{
    mix();
    for (int i = 0; i < 100; i++) {
        run.steps[i].bytes = 95e6;
        run.steps[i].kv_bytes = 85e6;
        run.steps[i].flops = 1e6;
    }
    names_mixed(DLAB_CAUSE_KV_BANDWIDTH, 0.9 * 0.85,
                WORDS("81.1 MiB of the 90.6 MiB", "mixed step of 18 sequences", "9.5 GB/s",
                      "in 10 ms where the peaks allow 9.5 ms"));
}
END_TEST

START_TEST(mixed_weight_bandwidth)
{
    mix();
    for (int i = 0; i < 100; i++) {
        run.steps[i].bytes = 95e6;
        run.steps[i].flops = 1e6;
    }
    names_mixed(DLAB_CAUSE_WEIGHT_BANDWIDTH, 0.9 * 0.9, WORDS("85.8 MiB of the 90.6 MiB", "mixed step of 18"));
    for (int i = 90; i < 100; i++) run.steps[i].prefill_rows = 0, run.steps[i].rows = 18;
    names_mixed(DLAB_CAUSE_WEIGHT_BANDWIDTH, 0.91 * 0.9, WORDS("mixed step of 18"));
    for (int i = 10; i < 90; i++) run.steps[i].prefill_rows = 0, run.steps[i].rows = 18;
    names_mixed(DLAB_CAUSE_WEIGHT_BANDWIDTH, 0.99 * 0.9, WORDS("decode step of 18"));
}
END_TEST

START_TEST(mixed_overhead_in_steps)
{
    mix();
    for (int i = 0; i < 100; i++) run.steps[i].flops = 0.01e9;
    names_mixed(DLAB_CAUSE_OVERHEAD, 0.9 * 0.9, WORDS("a mixed step of 40 ops takes 10 ms where the peaks allow 1 ms"));
}
END_TEST

START_TEST(mixed_overhead_between_steps)
{
    mix();
    for (int i = 0; i < 100; i++) {
        run.steps[i].t_begin = i * 100 * MS;
        run.steps[i].t_end = run.steps[i].t_begin + 10 * MS;
    }
    run.requests[0].t_done = run.requests[1].t_done = run.t_end = 9910 * MS;
    names_mixed(DLAB_CAUSE_OVERHEAD, (99 * 90 + 0.5 * 90) / 9910, WORDS("89.1 ms pass between two steps"));
}
END_TEST

START_TEST(mixed_padding)
{
    mix();
    for (int i = 0; i < 100; i++) {
        run.steps[i].pad_rows = 60;
        run.steps[i].rows = 80;
    }
    names_mixed(DLAB_CAUSE_PADDING, 0.75, WORDS("6000 of 8000 rows computed"));
}
END_TEST

START_TEST(mixed_preemption)
{
    mix();
    for (int i = 0; i < 100; i++) {
        run.steps[i].decode_rows = 78; /* 60 of them again */
        run.steps[i].rows = 80;
    }
    run.requests[0].prompt_tokens = run.requests[1].prompt_tokens = 100;
    run.steps[50].preempted = 3;
    names_mixed(DLAB_CAUSE_PREEMPTION, 0.75, WORDS("3 times", "6000 of 8000 rows were computed again"));
}
END_TEST

/* 60 MB there and back are 6 of 10 ms of a step, of whose 9 ms of decoding the operations, 3 ms, explain 2.7. */
START_TEST(mixed_swapping)
{
    mix();
    run.requests[0].prompt_tokens = run.requests[1].prompt_tokens = 100;
    for (int i = 0; i < 100; i++) {
        run.steps[i].flops = 0.3e9;
        run.steps[i].preempted = run.steps[i].swapped_out = run.steps[i].swapped_in = 1;
        run.steps[i].swap_bytes = 60000000;
    }
    names_mixed(DLAB_CAUSE_PREEMPTION, 0.6, WORDS("100 times", "5722 MiB"));
}
END_TEST

START_TEST(mixed_without_peaks)
{
    mix();
    run.n_peaks = 0;
    names_mixed(DLAB_CAUSE_UNCALIBRATED, 0.9, WORDS("900 ms of the steps' 1000 ms"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("diagnosis of mixed steps");
    TCase *c = tcase_create("causes");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, mixed_operations_are_no_cause);
    tcase_add_test(c, mixed_queue);
    tcase_add_test(c, mixed_kv_bandwidth);
    tcase_add_test(c, mixed_weight_bandwidth);
    tcase_add_test(c, mixed_overhead_in_steps);
    tcase_add_test(c, mixed_overhead_between_steps);
    tcase_add_test(c, mixed_padding);
    tcase_add_test(c, mixed_preemption);
    tcase_add_test(c, mixed_swapping);
    tcase_add_test(c, mixed_without_peaks);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* Rooflines of made-up runs on a made-up machine, worked out by hand. */
#include "tests/results/synthetic.h"

#define MS 1e6

/* 100 GB/s up to 1 MB, 10 GB/s from 100 MB on; 1 TFLOP/s in int8, 100 GFLOP/s in f32, 200 in bf16. */
static const dlab_peak_row machine[] = {{1e6, 100e9, 100e9, 1e12, 200e9}, {1e8, 10e9, 100e9, 1e12, 200e9}};

static void give_peaks(dlab_run *r)
{
    for (int i = 0; i < 2; i++) ck_assert_int_eq(dlab_run_add_peak(r, &machine[i], NULL), DLAB_OK);
}

/* A prompt of 16 in one step of 40 ms, then three steps of 20 ms. */
static void fill(dlab_run *r, double bytes, double flops, double int8_flops)
{
    const batch_shape b = {.seqs = 1,
                           .prompt = 16,
                           .made = 4,
                           .ttft_ns = 40 * MS,
                           .gap_ns = 20 * MS,
                           .step_bytes = bytes,
                           .step_flops = flops,
                           .retains = true};
    fill_batch(r, &b);
    for (size_t i = 0; i < r->n_steps; i++) r->steps[i].int8_flops = int8_flops;
    give_peaks(r);
}

static void is(const dlab_run *r, const char *name, double expected)
{
    const double v = metric_value(r, name);
    ck_assert_msg(fabs(v - expected) < 1e-9, "%s is %.9g, expected %.9g", name, v, expected);
}

static void missing(const dlab_run *r)
{
    static const char *const names[] = {"roofline", "mbu", "mfu", "roofline_prefill"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(isnan(metric_value(r, names[i])), "%s is %g", names[i], metric_value(r, names[i]));
}

/* 100 MB at 10 GB/s: 10 of 20 ms. 2 GFLOP of int8 and 0.2 of f32: 2 ms and 2 ms. */
START_TEST(bytes_bind)
{
    dlab_run r;
    fill(&r, 1e8, 2.2e9, 2e9);
    is(&r, "roofline", 0.5);
    is(&r, "mbu", 0.5);
    is(&r, "mfu", 0.2);
    is(&r, "roofline_prefill", 0.25);
    dlab_run_free(&r);
}
END_TEST

/* 1 MB at 100 GB/s: 10 µs. 10 GFLOP of int8, then 0.4 of f32: 10 and 4 ms, one after the other. */
START_TEST(operations_bind)
{
    dlab_run r;
    fill(&r, 1e6, 10.4e9, 10e9);
    is(&r, "roofline", 0.7);
    is(&r, "mbu", 0.0005);
    is(&r, "mfu", 0.7);
    is(&r, "roofline_prefill", 0.35);
    dlab_run_free(&r);
}
END_TEST

/* As above, and 1 GFLOP of bf16, which is not counted with those of f32: 10, 5 and 4 ms. */
START_TEST(bf16_has_a_peak_of_its_own)
{
    dlab_run r;
    fill(&r, 1e6, 11.4e9, 10e9);
    for (size_t i = 0; i < r.n_steps; i++) r.steps[i].bf16_flops = 1e9;
    is(&r, "roofline", 0.95);
    is(&r, "mfu", 0.95);
    is(&r, "roofline_prefill", 0.475);
    for (size_t i = 0; i < r.n_steps; i++) r.steps[i].bf16_flops = NAN; /* an older record */
    ck_assert(isnan(metric_value(&r, "roofline")) && isnan(metric_value(&r, "mfu")));
    is(&r, "mbu", 0.0005);
    dlab_run_free(&r);
}
END_TEST

/* 10 MB lie halfway between 1 and 100 MB as factors go: 55 GB/s. Outside the nearest size is taken. */
START_TEST(bandwidth_is_that_of_the_working_set)
{
    static const struct {
        double bytes, read_ps;
    } of[] = {{1e3, 100e9}, {1e6, 100e9}, {1e7, 55e9}, {1e8, 10e9}, {1e9, 10e9}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        dlab_run r;
        fill(&r, of[i].bytes, 1, 0);
        is(&r, "mbu", of[i].bytes / of[i].read_ps / 20e-3);
        dlab_run_free(&r);
    }
}
END_TEST

/* 1 GB at 10 GB/s cannot be had in 20 ms: something is wrong with the peaks, which the shares show. */
START_TEST(roofline_is_at_most_one)
{
    dlab_run r;
    fill(&r, 1e9, 1e9, 1e9);
    is(&r, "roofline", 1);
    is(&r, "mbu", 5);
    is(&r, "roofline_prefill", 1);
    dlab_run_free(&r);
}
END_TEST

/* A mean of each step's own bound, weighted by time: 10 of 20, then 10 of 40 ms. */
START_TEST(steps_count_by_their_time)
{
    dlab_run r;
    fill(&r, 1e8, 1, 0);
    r.n_steps = 3;
    r.n_tokens = 3;
    r.steps[2].t_end = r.steps[2].t_begin + 40 * MS;
    r.tokens[2].t = r.steps[2].t_end;
    is(&r, "roofline", 20.0 / 60.0);
    dlab_run_free(&r);
}
END_TEST

/* As the work of a step: of a run without decode steps all of them. */
START_TEST(prompts_alone_are_their_own_roofline)
{
    dlab_run r;
    fill(&r, 1e8, 1, 0);
    r.n_steps = r.n_tokens = 1;
    is(&r, "roofline", 0.25);
    is(&r, "roofline_prefill", 0.25);
    dlab_run_free(&r);
}
END_TEST

START_TEST(what_is_not_known_is_missing)
{
    dlab_run r;
    fill(&r, 1e8, 1e9, 1e9);
    ck_assert(isfinite(metric_value(&r, "roofline")));
    r.n_peaks = 0; /* no calibration */
    missing(&r);
    r.n_peaks = 2;
    for (size_t i = 0; i < r.n_steps; i++) r.steps[i].int8_flops = NAN; /* an older record */
    ck_assert(isnan(metric_value(&r, "roofline")) && isnan(metric_value(&r, "mfu")));
    is(&r, "mbu", 0.5);
    dlab_run_free(&r);

    fill(&r, 0, 0, 0); /* a target that does nothing */
    missing(&r);
    dlab_run_free(&r);

    fill(&r, 1e8, 1e9, 1e9); /* a clock that stands still */
    for (size_t i = 0; i < r.n_steps; i++) r.steps[i].t_end = r.steps[i].t_begin;
    missing(&r);
    dlab_run_free(&r);
}
END_TEST

/* A record may say anything. */
START_TEST(senseless_peaks_do_no_harm)
{
    static const double bad[] = {NAN, 0, -1, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        dlab_run r;
        fill(&r, 1e7, 1e9, 1e9);
        r.peaks[0] = r.peaks[1] = (dlab_peak_row){bad[i], bad[i], bad[i], bad[i], bad[i]};
        const double v = metric_value(&r, "roofline");
        ck_assert_msg(isnan(v) || (v > 0 && v <= 1), "peaks of %g make a roofline of %g", bad[i], v);
        dlab_run_free(&r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("peaks");
    TCase *c = tcase_create("peaks");
    tcase_add_test(c, bytes_bind);
    tcase_add_test(c, operations_bind);
    tcase_add_test(c, bf16_has_a_peak_of_its_own);
    tcase_add_test(c, bandwidth_is_that_of_the_working_set);
    tcase_add_test(c, roofline_is_at_most_one);
    tcase_add_test(c, steps_count_by_their_time);
    tcase_add_test(c, prompts_alone_are_their_own_roofline);
    tcase_add_test(c, what_is_not_known_is_missing);
    tcase_add_test(c, senseless_peaks_do_no_harm);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

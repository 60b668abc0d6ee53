/* What other tools for measuring got wrong, with the values of their reports: docs/regressions.md. */
#include <jansson.h>

#include "base/rng.h"
#include "results/events.h"
#include "results/export.h"
#include "results/ratio.h"
#include "results/warnings.h"
#include "tests/results/report_test.h"

static const batch_shape plain = {.seqs = 1,
                                  .prompt = 16,
                                  .made = 100,
                                  .ttft_ns = 500 * MS,
                                  .gap_ns = 10 * MS,
                                  .step_bytes = 1e6,
                                  .step_flops = 2e6,
                                  .retains = true};

static dlab_metric_value value_of(const dlab_run *r, const char *name)
{
    dlab_metric_value v;
    dlab_metric_find(name)->compute(r, &DLAB_WINDOW_ALL, &v);
    return v;
}

static void add_request(dlab_run *r, const dlab_ev_request *q)
{
    ck_assert_int_eq(dlab_run_add_request(r, q, NULL), DLAB_OK);
}

static void add_token(dlab_run *r, int64_t request, int32_t index, double t)
{
    const dlab_ev_token e = {.request = request, .index = index, .t = t};
    ck_assert_int_eq(dlab_run_add_token(r, &e, NULL), DLAB_OK);
}

/* TTFT stood among the gaps. TTFT 500 ms, gaps of 10 ms: none is longer, and there are n − 1. */
START_TEST(vllm_7242_the_first_token_is_no_gap)
{
    dlab_run r;
    fill_batch(&r, &plain);
    ck_assert_double_eq_tol(value_of(&r, "itl_max").value, 10 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "itl_p99").value, 10 * MS, 1);
    ck_assert_int_eq(value_of(&r, "itl_max").n, 99);
    ck_assert_double_eq_tol(value_of(&r, "ttft").value, 500 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "e2e").value, 1490 * MS, 1);
    dlab_run_free(&r);
}
END_TEST

/* A peak of 5 tok/s beside a mean of 223. 446 tokens in 2 s, all in one flush, wherever it falls. */
START_TEST(sglang_36272_no_peak_below_the_mean)
{
    static const double at[] = {0, 0.3e9, 1e9, 1.7e9, 2e9};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        dlab_run r;
        dlab_run_init(&r);
        r.t_end = 2e9;
        add_request(&r, &(dlab_ev_request){.new_tokens = 446, .t_first = at[i], .t_done = at[i]});
        for (int k = 0; k < 446; k++) add_token(&r, 0, k, at[i]);
        ck_assert_double_eq_tol(value_of(&r, "out_tps").value, 223, 1e-9);
        ck_assert_double_eq_tol(value_of(&r, "out_tps_peak").value, 446, 1e-9);
        dlab_run_free(&r);
    }
    dlab_run r; /* half at the very begin, half at the very end of 1.5 s: no second has more than half */
    dlab_run_init(&r);
    r.t_end = 1.5e9;
    add_request(&r, &(dlab_ev_request){.new_tokens = 300, .t_done = 1.5e9});
    for (int k = 0; k < 300; k++) add_token(&r, 0, k, k < 150 ? 0 : 1.5e9);
    ck_assert_double_ge(value_of(&r, "out_tps_peak").value, value_of(&r, "out_tps").value);
    dlab_run_free(&r);
}
END_TEST

/* What waited in the client was not counted: 506 instead of 1932 ms. Service of 500 ms, exactly 10 requests a second, one at a
 * time, 8 of them: request i ends at 500 × (i + 1) and should have arrived at 100 × i. */
START_TEST(vllm_54101_waiting_in_the_client_counts)
{
    dlab_run r;
    dlab_run_init(&r);
    for (int i = 0; i < 8; i++) {
        const double begin = 500 * MS * i;
        add_request(&r, &(dlab_ev_request){.id = i,
                                           .new_tokens = 1,
                                           .t_sched = 100 * MS * i,
                                           .t_submit = begin,
                                           .t_admit = begin,
                                           .t_first = begin + 500 * MS,
                                           .t_done = begin + 500 * MS});
    }
    ck_assert_int_eq(dlab_settings_set(&r.effective, "workload.kind", "open", NULL), DLAB_OK);
    r.t_end = 4000 * MS;
    ck_assert_double_eq_tol(value_of(&r, "e2e").value, 1900 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "ttft").value, 1900 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "queue").value, 1400 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "ttft_client").value, 500 * MS, 1); /* has a name of its own */
    ck_assert_double_eq_tol(value_of(&r, "lag").value, 1400 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "delivery").value, 0.2, 1e-9);
    dlab_run_free(&r);
}
END_TEST

/* 10 000 arrivals, `sent` a second where 200 were intended. */
static void fill_arrivals(dlab_record *r, double sent)
{
    dlab_record_init(r);
    add_point(r, (const char *[]){"workload.rate", "200", NULL});
    dlab_run *run = add_run(r, &plain);
    dlab_run_free_events(run);
    for (int i = 0; i < 10000; i++)
        add_request(run, &(dlab_ev_request){.id = i,
                                            .new_tokens = 1,
                                            .t_sched = i * 1e9 / 200,
                                            .t_submit = i * 1e9 / sent,
                                            .t_first = i * 1e9 / sent + 1,
                                            .t_done = i * 1e9 / sent + 1});
    ck_assert_int_eq(dlab_settings_set(&run->effective, "workload.kind", "open", NULL), DLAB_OK);
    run->t_end = 10000 * 1e9 / sent;
}

/* 183.5 requests a second were delivered where 200 were asked for, and nothing said so. */
START_TEST(vllm_21104_a_load_that_is_not_delivered_is_said)
{
    static const struct {
        double sent;
        bool warns;
    } of[] = {{200, false}, {199, false}, {197.9, true}, {183.5, true}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        dlab_record r;
        fill_arrivals(&r, of[i].sent);
        const dlab_run *run = r.points[0].runs[0];
        ck_assert_double_eq_tol(value_of(run, "rate_intended").value, 200, 1e-6);
        ck_assert_double_eq_tol(value_of(run, "rate_achieved").value, of[i].sent, 1e-6);
        ck_assert_double_eq_tol(value_of(run, "delivery").value, of[i].sent / 200, 1e-9);
        dlab_point_warn(&r.points[0]);
        const char *w = r.points[0].warnings;
        ck_assert_msg((strstr(w, "200 intended") != NULL) == of[i].warns, "at %g: %s", of[i].sent, w);
        if (of[i].sent == 183.5) ck_assert_msg(strstr(w, "183.5 requests a second were sent"), "%s", w);
        dlab_record_free(&r);
    }
}
END_TEST

/* TPOT and ITL included TTFT. Only TTFT varies. */
START_TEST(guidellm_1144_and_llmperf_99_tpot_knows_no_ttft)
{
    static const double ttfts[] = {1 * MS, 500 * MS, 30000 * MS};
    for (int i = 0; i < 3; i++) {
        batch_shape b = plain;
        dlab_run r;
        b.ttft_ns = ttfts[i];
        fill_batch(&r, &b);
        ck_assert_double_eq_tol(value_of(&r, "tpot").value, 10 * MS, 1);
        ck_assert_double_eq_tol(value_of(&r, "itl").value, 10 * MS, 1);
        ck_assert_double_eq_tol(value_of(&r, "decode_tps").value, 100, 1e-6);
        ck_assert_double_eq_tol(value_of(&r, "ttft").value, ttfts[i], 1);
        ck_assert_double_eq_tol(value_of(&r, "norm_latency").value, (ttfts[i] + 990 * MS) / 100, 1); /* this one does */
        dlab_run_free(&r);
    }
}
END_TEST

/* What was asked for was taken for what was produced. End of sequence at 7 of 128. */
START_TEST(sglang_10746_and_vllm_13691_produced_counts)
{
    batch_shape b = plain;
    dlab_run r;
    b.made = 7;
    fill_batch(&r, &b);
    r.requests[0].asked_tokens = 128;
    r.requests[0].finish = 2;
    ck_assert_double_eq_tol(value_of(&r, "tpot").value, 10 * MS, 1);
    ck_assert_int_eq(value_of(&r, "itl").n, 6);
    ck_assert_int_eq(value_of(&r, "out_tps").n, 7);
    ck_assert_double_eq_tol(value_of(&r, "out_tps").value, 7 / 0.56, 1e-9);
    dlab_run_free(&r);
}
END_TEST

/* Throughput was multiplied by the batch twice. A constant step and batches of 1, 2 and 4. */
START_TEST(openvino_genai_4484_the_batch_counts_once)
{
    for (int seqs = 1; seqs <= 4; seqs *= 2) {
        batch_shape b = plain;
        dlab_run r;
        b.seqs = seqs;
        fill_batch(&r, &b);
        ck_assert_double_eq_tol(value_of(&r, "tpot").value, 10 * MS, 1);
        ck_assert_double_eq_tol(value_of(&r, "decode_tps").value, 100.0 * seqs, 1e-6);
        ck_assert_double_eq_tol(value_of(&r, "prefill_tps").value, 16.0 * seqs / 0.5, 1e-6);
        ck_assert_double_eq_tol(value_of(&r, "out_tps").value, 100.0 * seqs / 1.49, 1e-6);
        ck_assert_double_eq_tol(value_of(&r, "total_tps").value, 116.0 * seqs / 1.49, 1e-6);
        ck_assert_double_eq_tol(value_of(&r, "req_ps").value, seqs / 1.49, 1e-6);
        dlab_run_free(&r);
    }
}
END_TEST

/* Where the KV pool holds fewer sequences than the batch has, decoding comes between prefills, and went into TTFT's rate of
 * prefill: two prompts of 100 rows in 100 ms each, 800 ms of decoding in between. */
START_TEST(sglang_9968_prefill_time_is_that_of_prefill_steps)
{
    dlab_run r;
    dlab_run_init(&r);
    for (int i = 0; i < 10; i++) {
        const bool prefill = i % 9 == 0;
        const dlab_ev_step s = {.t_begin = i * 100 * MS,
                                .t_end = (i + 1) * 100 * MS,
                                .rows = prefill ? 100 : 1,
                                .prefill_rows = prefill ? 100 : 0,
                                .decode_rows = prefill ? 0 : 1};
        ck_assert_int_eq(dlab_run_add_step(&r, &s, NULL), DLAB_OK);
        add_token(&r, i / 9, i % 9, (i + 1) * 100 * MS);
    }
    add_request(&r, &(dlab_ev_request){.id = 0, .new_tokens = 9, .t_first = 100 * MS, .t_done = 900 * MS});
    add_request(&r, &(dlab_ev_request){
                        .id = 1, .new_tokens = 1, .t_admit = 900 * MS, .t_first = 1000 * MS, .t_done = 1000 * MS});
    r.t_end = 1000 * MS;
    ck_assert_double_eq_tol(value_of(&r, "prefill_tps").value, 200 / 0.2, 1e-6);
    ck_assert_double_eq_tol(value_of(&r, "decode_tps").value, 8 / 0.8, 1e-6);
    ck_assert_double_eq_tol(value_of(&r, "ttft").value, 550 * MS, 1); /* of which: */
    ck_assert_double_eq_tol(value_of(&r, "queue").value, 450 * MS, 1);
    ck_assert_double_eq_tol(value_of(&r, "ttft_service").value, 100 * MS, 1);
    dlab_run_free(&r);
}
END_TEST

/* Rows were compared, and averaged, over columns that nobody looked at: here a baseline that differs in one more axis is none. */
START_TEST(llama_cpp_7673_only_like_is_compared_with_like)
{
    dlab_record r;
    dlab_table t;
    dlab_record_init(&r);
    r.complete = true;
    add_point(&r, (const char *[]){"kv.store", "none", "threads", "1", NULL});
    add_run(&r, &plain);
    add_point(&r, (const char *[]){"kv.store", "contiguous", "threads", "2", NULL});
    add_run(&r, &plain);
    build(&r, "metrics: [tpot]\nbaseline: {kv.store: none}\nratio: tpot\n", &t);
    ck_assert(isnan(cell(&t, 1, "speedup")->value));
    ck_assert_ptr_nonnull(note_with(&t, "no ratio, the experiment has no point with kv.store=none and all else equal"));
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* Every sample thrown away left a row of NaN and success. Nothing is thrown away here; a point of which no run counts shows its
 * status, has no figure, and the status is what the command's exit says. */
START_TEST(nvbench_231_no_sample_is_no_success)
{
    dlab_record r;
    dlab_table t;
    char *text;
    dlab_record_init(&r);
    add_point(&r, (const char *[]){"threads", "1", NULL});
    add_run(&r, &plain)->status = DLAB_RUN_FAILED;
    r.points[0].status = DLAB_RUN_FAILED;
    build(&r, "metrics: [tpot, out_tps, req_ps]\n", &t);
    ck_assert_str_eq(cell(&t, 0, "status")->text, "failed");
    ck_assert_str_eq(cell(&t, 0, "tpot_ns")->text, "–");
    ck_assert_int_ne(dlab_run_status_fails(DLAB_RUN_FAILED), 0);
    ck_assert_int_eq(dlab_table_render(&t, "json", &text, NULL), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"tpot_ns\": null"));
    free(text);
    dlab_table_free(&t);
    dlab_record_free(&r);
}
END_TEST

/* What was measured first changed the verdict. Here a figure of a point is one of its own runs, in whatever order they lie. */
START_TEST(nvbench_310_the_order_of_points_changes_no_figure)
{
    dlab_record r;
    dlab_table a, b;
    fill_curve(&r);
    build(&r, curve_spec, &a);
    for (size_t i = 0; i < r.n_points / 2; i++) {
        const dlab_point_result p = r.points[i];
        r.points[i] = r.points[r.n_points - 1 - i];
        r.points[r.n_points - 1 - i] = p;
    }
    build(&r, curve_spec, &b);
    static const char *const columns[] = {"tpot_ms", "speedup", "growth"};
    for (size_t i = 0; i < r.n_points; i++)
        for (size_t c = 0; c < 3; c++)
            ck_assert_str_eq(cell(&a, i, columns[c])->text, cell(&b, r.n_points - 1 - i, columns[c])->text);
    dlab_table_free(&a);
    dlab_table_free(&b);
    dlab_record_free(&r);
}
END_TEST

/* NaN and infinity stood in JSON. Every time of a run is one or the other, in every export. */
START_TEST(benchmark_784_and_memtier_271_json_is_strict)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        dlab_record r;
        dlab_record_init(&r);
        add_point(&r, (const char *[]){"threads", "1", NULL});
        dlab_run *run = add_run(&r, &plain);
        for (size_t k = 0; k < run->n_tokens; k++) run->tokens[k].t = bad[i];
        for (size_t k = 0; k < run->n_steps; k++) run->steps[k].t_end = run->steps[k].bytes = bad[i];
        run->requests[0].t_first = run->requests[0].t_done = bad[i];
        run->t_end = bad[i];
        for (int kind = 0; kind < 4; kind++) {
            char *text;
            const dlab_status st = kind < 2
                                       ? dlab_export(&r, "json", kind == 1, &text, NULL)
                                       : dlab_export_table(&r, kind == 2 ? "tokens" : "steps", "json", &text, NULL);
            ck_assert_int_eq(st, DLAB_OK);
            json_error_t e;
            json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
            ck_assert_msg(j != NULL, "%s", e.text);
            json_decref(j);
            free(text);
        }
        dlab_record_free(&r);
    }
}
END_TEST

/* A rule for when a sample suffices fell to nothing above 1024. The flag against the binomial itself, to 5000 samples: all of n
 * lie below the quantile q with a probability of qⁿ. */
START_TEST(inference_1083_samples_that_suffice)
{
    static const struct {
        double q;
        int64_t least;
    } of[] = {{0.99, 459}, {0.9, 44}};
    for (int i = 0; i < 2; i++) {
        double all_below = 1;
        ck_assert_int_eq(dlab_events_quantile_min_n(of[i].q), of[i].least);
        for (int64_t n = 1; n <= 5000; n++) {
            all_below *= of[i].q;
            ck_assert_int_eq(n<of[i].least, all_below> 0.01);
        }
    }
    double *x = calloc(5000, sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t n = 1; n <= 5000; n += n < 500 ? 1 : 97) {
        dlab_metric_value v;
        dlab_events_quantile(x, n, 0.99, &v);
        ck_assert_int_eq(v.low_n, n < 459);
        ck_assert_int_eq(v.n, (int64_t)n);
    }
    free(x);
}
END_TEST

/* The interval of a mean judged single values: a thing against itself was found different more often than stated. A against A,
 * 8 pairs, 95 %: at most 5 % of the intervals leave 1 out (4000 trials: 5 % ± 1.1 % in all but one of a thousand). */
START_TEST(bencher_795_a_against_a)
{
    enum { TRIALS = 4000, PAIRS = 8 };
    dlab_rng rng;
    int wrong = 0;
    dlab_rng_seed(&rng, 795);
    for (int i = 0; i < TRIALS; i++) {
        double a[PAIRS], b[PAIRS];
        for (int k = 0; k < PAIRS; k++) {
            const double moment = exp(0.2 * dlab_rng_normal(&rng)); /* of the machine, which both share */
            a[k] = moment * exp(0.03 * dlab_rng_normal(&rng));
            b[k] = moment * exp(0.03 * dlab_rng_normal(&rng));
        }
        const dlab_ratio r = dlab_ratio_of_pairs(a, b, PAIRS, 0.95);
        wrong += r.low > 1 || r.high < 1;
    }
    ck_assert_int_ge(wrong, TRIALS * 39 / 1000);
    ck_assert_int_le(wrong, TRIALS * 61 / 1000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bug_reports");
    TCase *c = tcase_create("bug_reports");
    tcase_add_test(c, vllm_7242_the_first_token_is_no_gap);
    tcase_add_test(c, sglang_36272_no_peak_below_the_mean);
    tcase_add_test(c, vllm_54101_waiting_in_the_client_counts);
    tcase_add_test(c, vllm_21104_a_load_that_is_not_delivered_is_said);
    tcase_add_test(c, guidellm_1144_and_llmperf_99_tpot_knows_no_ttft);
    tcase_add_test(c, sglang_10746_and_vllm_13691_produced_counts);
    tcase_add_test(c, openvino_genai_4484_the_batch_counts_once);
    tcase_add_test(c, sglang_9968_prefill_time_is_that_of_prefill_steps);
    tcase_add_test(c, llama_cpp_7673_only_like_is_compared_with_like);
    tcase_add_test(c, nvbench_231_no_sample_is_no_success);
    tcase_add_test(c, nvbench_310_the_order_of_points_changes_no_figure);
    tcase_add_test(c, benchmark_784_and_memtier_271_json_is_strict);
    tcase_add_test(c, inference_1083_samples_that_suffice);
    tcase_add_test(c, bencher_795_a_against_a);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* The memory of the KV store, sharing, preemption, patterns and the warnings, by figures worked out by hand. */
#include "results/warnings.h"
#include "tests/results/synthetic.h"

static dlab_run run;

static void setup(void)
{
    dlab_run_init(&run);
    run.status = DLAB_RUN_OK;
}

static void teardown(void) { dlab_run_free(&run); }

static void step(const dlab_ev_step *s) { ck_assert_int_eq(dlab_run_add_step(&run, s, NULL), DLAB_OK); }

static double value(const char *name) { return metric_value(&run, name); }

static int better(const char *name) { return dlab_metric_find(name)->better; }

/* ---- how the pool is divided ---------------------------------------------------------------------------------------- */

/* A pool of 1000: one second so, three seconds otherwise. */
static void two_steps(void)
{
    step(&(dlab_ev_step){.t_begin = 0,
                         .t_end = 1e9,
                         .kv_reserved = 400,
                         .kv_used = 300,
                         .kv_cached = 0,
                         .kv_free = 600,
                         .kv_unusable = 100,
                         .kv_shared = 0});
    step(&(dlab_ev_step){.t_begin = 2e9,
                         .t_end = 5e9,
                         .kv_reserved = 800,
                         .kv_used = 640,
                         .kv_cached = 100,
                         .kv_free = 100,
                         .kv_unusable = 100,
                         .kv_shared = 40});
}

START_TEST(shares_of_the_pool_are_weighted_by_time)
{
    two_steps();
    ck_assert_double_eq_tol(value("kv_reserved"), 700, 1e-9); /* (1·400 + 3·800)/4 */
    ck_assert_double_eq_tol(value("kv_used"), 555, 1e-9);
    ck_assert_double_eq_tol(value("kv_util"), 555.0 / 700, 1e-12);
    ck_assert_double_eq_tol(value("kv_util_full"), 640.0 / 800, 1e-12);
    ck_assert_double_eq_tol(value("kv_waste"), 145, 1e-9);
    ck_assert_double_eq_tol(value("kv_cached"), 75, 1e-9);
    ck_assert_double_eq_tol(value("kv_free"), 225, 1e-9);
    ck_assert_double_eq_tol(value("kv_reserved") + value("kv_cached") + value("kv_free"), 1000, 1e-9);
    ck_assert_double_eq_tol(value("kv_frag"), 100.0 / 225, 1e-12);
    ck_assert_double_eq_tol(value("kv_shared"), 30, 1e-9);
}
END_TEST

/* One step that does not know spoils the mean of what it does not know, and of nothing else. */
START_TEST(what_one_step_does_not_know_is_missing)
{
    two_steps();
    run.steps[0].kv_free = run.steps[1].kv_shared = -1;
    ck_assert(isnan(value("kv_free")) && isnan(value("kv_frag")) && isnan(value("kv_shared")));
    ck_assert_double_eq_tol(value("kv_waste"), 145, 1e-9);
    ck_assert_double_eq_tol(value("kv_cached"), 75, 1e-9);
}
END_TEST

START_TEST(a_full_pool_has_no_fragmentation)
{
    two_steps();
    for (int i = 0; i < 2; i++) run.steps[i].kv_free = run.steps[i].kv_unusable = 0;
    ck_assert(isnan(value("kv_frag")));
    ck_assert_double_eq(value("kv_free"), 0);
}
END_TEST

START_TEST(a_store_that_holds_nothing_has_no_utilisation)
{
    step(&(dlab_ev_step){.t_end = 1e9});
    ck_assert(isnan(value("kv_util")));
    ck_assert_double_eq(value("kv_reserved"), 0);
}
END_TEST

/* ---- facts ---------------------------------------------------------------------------------------------------------- */

START_TEST(counts_are_those_of_the_run)
{
    run.kv_pool = 4096;
    run.kv_growths = 2;
    run.kv_growth_ns = 5000;
    run.kv_evictions = 7;
    run.kv_copies = 0;
    run.kv_hit_tokens = 96;
    run.kv_asked_tokens = 128;
    ck_assert_double_eq(value("kv_pool"), 4096);
    ck_assert_double_eq(value("kv_growths"), 2);
    ck_assert_double_eq(value("kv_growth_time"), 5000);
    ck_assert_str_eq(dlab_metric_find("kv_growth_time")->unit, "ns");
    ck_assert_double_eq(value("kv_evictions"), 7);
    ck_assert_double_eq(value("kv_copies"), 0);
    ck_assert_double_eq(value("kv_hit"), 0.75);
    run.kv_hit_tokens = 0;
    ck_assert_double_eq(value("kv_hit"), 0); /* looked for and not found */
    run.kv_asked_tokens = 0;
    ck_assert(isnan(value("kv_hit"))); /* never looked for */
}
END_TEST

START_TEST(occupancy_needs_a_limit)
{
    run.pool_peak[DLAB_POOL_KV] = 830;
    ck_assert(isnan(value("kv_occupancy")));
    run.memory_limit = 1000;
    ck_assert_double_eq(value("kv_occupancy"), 0.83);
    run.pool_peak[DLAB_POOL_KV] = -1;
    ck_assert(isnan(value("kv_occupancy")));
}
END_TEST

/* ---- K4 ------------------------------------------------------------------------------------------------------------- */

static void request(int64_t id, int64_t depth, int64_t prompt, double t_done)
{
    dlab_ev_request e = {.id = id, .depth_tokens = depth, .prompt_tokens = prompt, .t_done = t_done};
    ck_assert_int_eq(dlab_run_add_request(&run, &e, NULL), DLAB_OK);
}

static void tokens(int64_t id, int n, double first, double gap)
{
    for (int i = 0; i < n; i++) {
        dlab_ev_token e = {.request = id, .index = i, .t = first + i * gap};
        ck_assert_int_eq(dlab_run_add_token(&run, &e, NULL), DLAB_OK);
    }
}

/* 4 + 10 tokens and 3 produced, the last of which is never fed back: 16 places of 2.5 bytes. */
START_TEST(formula_of_one_request)
{
    request(0, 4, 10, 30);
    tokens(0, 3, 10, 10);
    ck_assert(isnan(value("kv_formula"))); /* the bytes of a token are not known */
    run.kv_token_bytes = 2.5;
    ck_assert_double_eq(value("kv_formula"), 2.5 * 16);
    run.requests[0].depth_tokens = -1;
    ck_assert(isnan(value("kv_formula")));
}
END_TEST

/* Request 0 grows to 12 at t = 30 and goes; request 1 is at 22 then, and request 2 comes after and reaches 9 while request 1
 * ends at 24. The fullest moment is t = 30: 12 + 22. With request 2 from t = 30 on it would be that and its 7. */
static void three_requests(double third)
{
    request(2, 0, 7, third + 20);
    request(0, 0, 10, 30);
    request(1, 0, 20, 50);
    tokens(2, 3, third, 10);
    tokens(0, 3, 10, 10);
    tokens(1, 5, 10, 10);
    run.kv_token_bytes = 1;
}

START_TEST(formula_takes_the_fullest_moment)
{
    three_requests(40);
    ck_assert_double_eq(value("kv_formula"), 34);
}
END_TEST

START_TEST(a_request_holds_its_place_through_its_last_step)
{
    three_requests(30);
    ck_assert_double_eq(value("kv_formula"), 41);
}
END_TEST

/* Cut short: nobody has ended, nothing is given back. */
START_TEST(formula_of_requests_without_an_end)
{
    three_requests(40);
    for (int i = 0; i < 3; i++) run.requests[i].t_done = NAN;
    ck_assert_double_eq(value("kv_formula"), 12 + 24 + 9);
}
END_TEST

/* A prompt that was still being computed at the end has no token: it says nothing. */
START_TEST(a_request_counts_from_its_first_token)
{
    three_requests(40);
    request(3, 0, 5000, NAN);
    ck_assert_double_eq(value("kv_formula"), 34);
    run.n_tokens = 0;
    ck_assert(isnan(value("kv_formula")));
}
END_TEST

/* ---- sequences and rows --------------------------------------------------------------------------------------------- */

START_TEST(sequences_preemptions_and_nonfinite_rows)
{
    step(&(dlab_ev_step){.t_end = 1, .seqs = 3, .preempted = 0, .nonfinite = 1});
    step(&(dlab_ev_step){.t_begin = 1, .t_end = 2, .seqs = 5, .preempted = 2, .nonfinite = 0});
    step(&(dlab_ev_step){.t_begin = 2, .t_end = 3, .seqs = 4, .preempted = 1, .nonfinite = 4});
    ck_assert_double_eq(value("seqs_peak"), 5);
    ck_assert_double_eq(value("preemptions"), 3);
    ck_assert_double_eq(value("nonfinite"), 5);
    run.steps[0].preempted = run.steps[2].nonfinite = -1;
    ck_assert(isnan(value("preemptions")) && isnan(value("nonfinite")));
}
END_TEST

/* A prefill step (its cache is short), two decode steps, a mixed one: only the two count. */
START_TEST(rho_is_of_decode_steps)
{
    step(&(dlab_ev_step){.t_end = 1, .prefill_rows = 8, .kv_bytes = 50, .kv_dense_bytes = 50, .inter_bytes = 7});
    step(&(dlab_ev_step){
        .t_begin = 1, .t_end = 2, .decode_rows = 1, .kv_bytes = 30, .kv_dense_bytes = 40, .inter_bytes = 10});
    step(&(dlab_ev_step){
        .t_begin = 2, .t_end = 3, .decode_rows = 1, .kv_bytes = 10, .kv_dense_bytes = 60, .inter_bytes = 30});
    step(&(dlab_ev_step){.t_begin = 3,
                         .t_end = 4,
                         .prefill_rows = 1,
                         .decode_rows = 1,
                         .kv_bytes = 90,
                         .kv_dense_bytes = 90,
                         .inter_bytes = 900});
    ck_assert_double_eq_tol(value("rho"), 0.4, 1e-12);
    ck_assert_double_eq_tol(value("inter_bytes"), 20, 1e-12);
    run.steps[1].kv_dense_bytes = NAN;
    ck_assert(isnan(value("rho")));
}
END_TEST

START_TEST(without_decode_steps_there_is_no_rho)
{
    step(&(dlab_ev_step){.t_end = 1, .prefill_rows = 8, .kv_bytes = 50, .kv_dense_bytes = 50});
    ck_assert(isnan(value("rho")));
}
END_TEST

START_TEST(directions_are_right)
{
    static const char *const lower[] = {"kv_waste",     "kv_frag",        "kv_formula",  "kv_occupancy",
                                        "kv_evictions", "kv_copies",      "rho",         "inter_bytes",
                                        "nonfinite",    "kv_growth_time", "preemptions", "kv_growths"};
    static const char *const higher[] = {"kv_util", "kv_util_full", "kv_shared", "kv_hit", "seqs_peak"};
    static const char *const neither[] = {"kv_free", "kv_cached"};
    for (size_t i = 0; i < sizeof lower / sizeof *lower; i++) ck_assert_int_eq(better(lower[i]), DLAB_LOWER_IS_BETTER);
    for (size_t i = 0; i < sizeof higher / sizeof *higher; i++)
        ck_assert_int_eq(better(higher[i]), DLAB_HIGHER_IS_BETTER);
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++) ck_assert_int_eq(better(neither[i]), DLAB_NEITHER);
}
END_TEST

/* ---- warnings ------------------------------------------------------------------------------------------------------- */

static const batch_shape small = {.seqs = 1, .prompt = 4, .made = 2, .ttft_ns = 1e6, .gap_ns = 1e6, .retains = true};

/* Two repeats of a point; the second takes the given part of a limit of 1000 and has so many rows of NaN in its last step. */
static const char *warnings_of(dlab_record *r, int64_t kv_peak, int32_t nonfinite)
{
    dlab_record_init(r);
    add_point(r, (const char *[]){"kv.store", "paged", NULL});
    dlab_run *a = add_run(r, &small), *b = add_run(r, &small);
    a->memory_limit = b->memory_limit = 1000;
    a->pool_peak[DLAB_POOL_KV] = 10;
    b->pool_peak[DLAB_POOL_KV] = kv_peak;
    b->steps[1].nonfinite = nonfinite;
    dlab_point_warn(&r->points[0]);
    return r->points[0].warnings;
}

START_TEST(nothing_to_warn_of)
{
    dlab_record r;
    ck_assert_str_eq(warnings_of(&r, 700, 0), "");
    dlab_record_free(&r);
}
END_TEST

START_TEST(a_full_cache_is_warned_of)
{
    dlab_record r;
    ck_assert_str_eq(warnings_of(&r, 830, 0),
                     "the KV cache takes 83 % of memory_limit at its peak; K8 asks for under 70 %");
    dlab_record_free(&r);
}
END_TEST

/* 30 GB in a step of 1 ms, and a peak of 10 TB/s. */
START_TEST(peaks_that_are_too_low_are_warned_of)
{
    dlab_record r;
    warnings_of(&r, 10, 0);
    dlab_run *second = r.points[0].runs[1];
    for (size_t i = 0; i < second->n_steps; i++) second->steps[i].bytes = 30e9;
    ck_assert_int_eq(dlab_run_add_peak(second, &(dlab_peak_row){1e6, 30e12, 1e12, 1e12, 1e12}, NULL), DLAB_OK);
    dlab_point_warn(&r.points[0]);
    ck_assert_str_eq(r.points[0].warnings, ""); /* as much as the peak */
    second->peaks[0].read_ps = 10e12;
    r.points[0].runs[0]->peaks_measured = 1.7e9;
    r.points[0].runs[0]->peaks_quick = 1;
    dlab_point_warn(&r.points[0]);
    ck_assert_ptr_nonnull(strstr(r.points[0].warnings, "mbu is 3, above 1"));
    ck_assert_ptr_nonnull(strstr(r.points[0].warnings, "on 2023-11-14 22:13 UTC, in passing?"));
    ck_assert_ptr_nonnull(strstr(r.points[0].warnings, "dlab calibrate --force"));
    dlab_record_free(&r);
}
END_TEST

START_TEST(nan_is_warned_of_after_other_warnings)
{
    dlab_record r;
    ck_assert_ptr_nonnull(strstr(warnings_of(&r, 10, 2), "NaN or infinity came up in 2 rows of a run (K9)"));
    snprintf(r.points[0].warnings, sizeof r.points[0].warnings, "1 of 2 repeats measured");
    dlab_point_warn(&r.points[0]);
    ck_assert_ptr_nonnull(strstr(r.points[0].warnings, "1 of 2 repeats measured; NaN or infinity"));
    dlab_record_free(&r);
}
END_TEST

/* Only what is computed again can come out otherwise; what was copied out comes back as it was. */
START_TEST(copying_out_is_no_computing_again)
{
    dlab_record r;
    warnings_of(&r, 10, 0);
    dlab_run *second = r.points[0].runs[1];
    ck_assert_int_eq(dlab_settings_set(&r.points[0].effective, "kv.k_scales", "step", NULL), DLAB_OK);
    second->steps[0].preempted = 3;
    second->steps[0].swapped_out = 3;
    dlab_point_warn(&r.points[0]);
    ck_assert_str_eq(r.points[0].warnings, "");
    second->steps[0].swapped_out = 1;
    dlab_point_warn(&r.points[0]);
    ck_assert_ptr_nonnull(strstr(r.points[0].warnings, "2 sequences were computed again"));
    r.points[0].warnings[0] = '\0';
    second->steps[0].swapped_out = -1; /* a record from before there was swapping */
    dlab_point_warn(&r.points[0]);
    ck_assert_ptr_nonnull(strstr(r.points[0].warnings, "3 sequences were computed again"));
    dlab_record_free(&r);
}
END_TEST

/* The runner drops the events of a run before it looks at its point. */
START_TEST(warnings_need_no_events)
{
    dlab_record r;
    warnings_of(&r, 990, 1);
    char before[512];
    snprintf(before, sizeof before, "%s", r.points[0].warnings);
    for (int i = 0; i < 2; i++) dlab_run_drop_events(r.points[0].runs[i]);
    r.points[0].warnings[0] = '\0';
    dlab_point_warn(&r.points[0]);
    ck_assert_str_eq(r.points[0].warnings, before);
    ck_assert_ptr_nonnull(strstr(before, "1 row of a run"));
    dlab_record_free(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv metrics");
    TCase *c = tcase_create("kv");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, shares_of_the_pool_are_weighted_by_time);
    tcase_add_test(c, what_one_step_does_not_know_is_missing);
    tcase_add_test(c, a_full_pool_has_no_fragmentation);
    tcase_add_test(c, a_store_that_holds_nothing_has_no_utilisation);
    tcase_add_test(c, counts_are_those_of_the_run);
    tcase_add_test(c, occupancy_needs_a_limit);
    tcase_add_test(c, formula_of_one_request);
    tcase_add_test(c, formula_takes_the_fullest_moment);
    tcase_add_test(c, a_request_holds_its_place_through_its_last_step);
    tcase_add_test(c, formula_of_requests_without_an_end);
    tcase_add_test(c, a_request_counts_from_its_first_token);
    tcase_add_test(c, sequences_preemptions_and_nonfinite_rows);
    tcase_add_test(c, rho_is_of_decode_steps);
    tcase_add_test(c, without_decode_steps_there_is_no_rho);
    tcase_add_test(c, directions_are_right);
    tcase_add_test(c, nothing_to_warn_of);
    tcase_add_test(c, a_full_cache_is_warned_of);
    tcase_add_test(c, peaks_that_are_too_low_are_warned_of);
    tcase_add_test(c, nan_is_warned_of_after_other_warnings);
    tcase_add_test(c, warnings_need_no_events);
    tcase_add_test(c, copying_out_is_no_computing_again);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

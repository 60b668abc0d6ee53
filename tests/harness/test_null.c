/* The null target, on a virtual clock, and what the harness itself costs. */
#include <check.h>
#include <stdlib.h>

#include "harness/run/overhead.h"
#include "harness/target/null.h"
#include "tests/harness/drive_test.h"

static fixed_requests requests;
static dlab_clock *virtual_time;
static dlab_run run;
static dlab_error err;
static const dlab_drive_opts opts = {.eos = -1};

static void setup(void)
{
    virtual_time = dlab_clock_virtual_create(12345);
    dlab_run_init(&run);
    err = (dlab_error){0};
}

static void teardown(void)
{
    dlab_run_free(&run);
    dlab_clock_destroy(virtual_time);
}

static double tokens_per_second(int64_t batch, double *tpot)
{
    dlab_target *t = NULL;
    dlab_run r;
    dlab_plan plan = {0};
    make_requests(&requests, batch, 0, 4, 10);
    dlab_run_init(&r);
    ck_assert_int_eq(dlab_null_create(&plan, &(dlab_engine_needs){.max_seqs = batch},
                                      &(dlab_null_opts){.step_ns = 20 * MS, .clock = virtual_time}, &t, &err),
                     DLAB_OK);
    ck_assert_int_eq(dlab_drive(t, virtual_time, &requests.q, NULL, &opts, &r, &err), DLAB_OK);
    ck_assert_uint_eq(r.n_tokens, (size_t)batch * 10);
    double rate = (double)r.n_tokens / (r.t_end * 1e-9);
    const dlab_ev_request *q = &r.requests[batch - 1];
    *tpot = (q->t_done - q->t_first) / (double)(q->new_tokens - 1);
    t->ops->destroy(t);
    dlab_run_free(&r);
    return rate;
}

START_TEST(a_constant_step_gives_equal_tpot_and_linear_throughput)
{
    double tpot1, tpot2, tpot4, one = tokens_per_second(1, &tpot1);
    ck_assert_double_eq_tol(tokens_per_second(2, &tpot2), 2 * one, 1e-9 * one);
    ck_assert_double_eq_tol(tokens_per_second(4, &tpot4), 4 * one, 1e-9 * one);
    ck_assert(tpot1 == 20.0 * MS && tpot2 == 20.0 * MS && tpot4 == 20.0 * MS);
}
END_TEST

START_TEST(requests_beyond_the_batch_wait)
{
    dlab_target *t = NULL;
    dlab_plan plan = {0};
    make_requests(&requests, 3, 0, 4, 2);
    ck_assert_int_eq(dlab_null_create(&plan, &(dlab_engine_needs){.max_seqs = 2},
                                      &(dlab_null_opts){.step_ns = 10 * MS, .clock = virtual_time}, &t, &err),
                     DLAB_OK);
    ck_assert_int_eq(dlab_drive(t, virtual_time, &requests.q, NULL, &opts, &run, &err), DLAB_OK);
    ck_assert(run.requests[1].t_admit == 0 && run.requests[2].t_admit == 20.0 * MS);
    ck_assert(run.requests[2].t_done == 40.0 * MS);
    ck_assert_uint_eq(run.n_tokens, 6);
    t->ops->destroy(t);
}
END_TEST

/* Three samples of two prompts in a batch of four: the last two wait; nothing was in a cache. */
START_TEST(the_null_target_answers_each_sample)
{
    dlab_target *t = NULL;
    dlab_plan plan = {0};
    make_requests(&requests, 2, 0, 4, 2);
    requests.q.samples = 3;
    ck_assert_int_eq(dlab_null_create(&plan, &(dlab_engine_needs){.max_seqs = 4},
                                      &(dlab_null_opts){.step_ns = 10 * MS, .clock = virtual_time}, &t, &err),
                     DLAB_OK);
    ck_assert_int_eq(dlab_drive(t, virtual_time, &requests.q, NULL, &opts, &run, &err), DLAB_OK);
    ck_assert_uint_eq(run.n_requests, 6);
    ck_assert_uint_eq(run.n_tokens, 12);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(run.requests[i].new_tokens, 2);
        ck_assert_int_eq(run.requests[i].cached_tokens, 0);
        ck_assert(run.requests[i].t_admit == (i < 4 ? 0 : 20.0 * MS));
    }
    ck_assert_int_eq(run.steps[0].prefill_rows, 8); /* each prompt once */
    t->ops->destroy(t);
}
END_TEST

START_TEST(the_harness_knows_its_own_cost)
{
    double ns = 0;
    int64_t begin = dlab_clock_now_ns(dlab_clock_real());
    ck_assert_int_eq(dlab_harness_overhead(20000, &ns, &err), DLAB_OK);
    double took = (double)(dlab_clock_now_ns(dlab_clock_real()) - begin);
    ck_assert(ns > 0 && ns * 20000 <= took); /* the run is part of the call */
    ck_assert_int_eq(dlab_harness_overhead(1, &ns, &err), DLAB_EUSAGE);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("null");
    TCase *c = tcase_create("null");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_constant_step_gives_equal_tpot_and_linear_throughput);
    tcase_add_test(c, requests_beyond_the_batch_wait);
    tcase_add_test(c, the_null_target_answers_each_sample);
    tcase_add_test(c, the_harness_knows_its_own_cost);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

/* A run of a made-up machine with nothing wrong, and what is said of it. */
#ifndef DLAB_TESTS_RESULTS_DIAGNOSIS_TEST_H
#define DLAB_TESTS_RESULTS_DIAGNOSIS_TEST_H

#include "results/diagnosis.h"
#include "tests/results/report_test.h"

#define GB 1e9

/* 10 GB/s and 100 GFLOP/s of any kind, at any size: 10 ms are 100 MB, or 1 GFLOP. */
static const dlab_peak_row machine = {1e6, 10 * GB, 100e9, 100e9, 100e9};

/* Two requests, a prompt of 8 rows each in a step of 10 ms, then 99 steps of 10 ms whose operations take 9.5 of them. */
static inline void fill_healthy(dlab_run *r)
{
    dlab_run_init(r);
    r->status = DLAB_RUN_OK;
    for (int i = 0; i < 100; i++) {
        const dlab_ev_step s = {.t_begin = i * 10 * MS,
                                .t_end = (i + 1) * 10 * MS,
                                .rows = i ? 2 : 16,
                                .prefill_rows = i ? 0 : 16,
                                .decode_rows = i ? 2 : 0,
                                .seqs = 2,
                                .slots = 2,
                                .launches = 40,
                                .bytes = 10e6,
                                .kv_bytes = 5e6,
                                .flops = 0.95e9};
        ck_assert_int_eq(dlab_run_add_step(r, &s, NULL), DLAB_OK);
    }
    for (int i = 0; i < 2; i++) {
        const dlab_ev_request q = {
            .id = i, .prompt_tokens = 8, .new_tokens = 100, .t_first = 10 * MS, .t_done = 1000 * MS, .finish = 1};
        ck_assert_int_eq(dlab_run_add_request(r, &q, NULL), DLAB_OK);
    }
    ck_assert_int_eq(dlab_run_add_peak(r, &machine, NULL), DLAB_OK);
    r->t_end = 1000 * MS;
}

static inline dlab_diagnosis diagnose(const dlab_run *r)
{
    dlab_diagnosis d;
    dlab_error err = {0};
    ck_assert_msg(dlab_diagnose(&r, 1, &d, &err) == DLAB_OK, "%s", err.msg);
    return d;
}

/* One cause, its share to a percent, and words of its evidence. */
static inline void names(const dlab_run *r, dlab_cause cause, double share, const char *const *words)
{
    const dlab_diagnosis d = diagnose(r);
    ck_assert_msg(d.n == 1, "%zu causes: %s; %s", d.n, d.n ? d.items[0].text : "", d.n > 1 ? d.items[1].text : "");
    ck_assert_msg(d.items[0].cause == cause, "%s", d.items[0].text);
    ck_assert_double_eq_tol(d.items[0].share, share, 0.01);
    ck_assert_ptr_eq(strstr(d.items[0].text, dlab_cause_text(cause)), d.items[0].text);
    for (size_t i = 0; words[i]; i++)
        ck_assert_msg(strstr(d.items[0].text, words[i]), "no \"%s\" in: %s", words[i], d.items[0].text);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline void names_nothing(const dlab_run *r)
{
    const dlab_diagnosis d = diagnose(r);
    ck_assert_msg(d.n == 0, "%s", d.items[0].text);
    ck_assert_msg(!d.unjudged, "%s", d.unjudged);
}

static inline void is_not_judged(const dlab_run *r, const char *why)
{
    const dlab_diagnosis d = diagnose(r);
    ck_assert_uint_eq(d.n, 0);
    ck_assert_str_eq(d.unjudged, why);
}

static inline void shift(dlab_run *r, double ns)
{
    for (size_t i = 0; i < r->n_steps; i++) {
        r->steps[i].t_begin += ns;
        r->steps[i].t_end += ns;
    }
    for (size_t i = 0; i < r->n_requests; i++) {
        r->requests[i].t_admit += ns;
        r->requests[i].t_first += ns;
        r->requests[i].t_done += ns;
    }
    r->t_end += ns;
}

static dlab_run run;

static inline void setup(void) { fill_healthy(&run); }
static inline void teardown(void) { dlab_run_free(&run); }

#endif

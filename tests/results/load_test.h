/* A run made by hand for the tests of loads, and looking at its figures. */
#ifndef DLAB_TESTS_RESULTS_LOAD_TEST_H
#define DLAB_TESTS_RESULTS_LOAD_TEST_H

#include "tests/results/synthetic.h"

#define MS 1e6
#define S  1e9

static dlab_run run;

static inline void setup(void)
{
    dlab_run_init(&run);
    run.status = DLAB_RUN_OK;
}

static inline void teardown(void) { dlab_run_free(&run); }

static inline double value(const char *name) { return metric_value(&run, name); }

static inline void is(const char *name, double expected)
{
    const double v = value(name);
    ck_assert_msg(fabs(v - expected) <= 1e-9 * (1 + fabs(expected)), "%s is %.12g, expected %.12g", name, v, expected);
}

static inline void missing(const char *name) { ck_assert_msg(isnan(value(name)), "%s is %g", name, value(name)); }

static inline void add(const dlab_ev_request *q) { ck_assert_int_eq(dlab_run_add_request(&run, q, NULL), DLAB_OK); }

static inline void token(int64_t request, int32_t index, double t)
{
    const dlab_ev_token e = {.request = request, .index = index, .t = t};
    ck_assert_int_eq(dlab_run_add_token(&run, &e, NULL), DLAB_OK);
}

static inline void set(const char *key, const char *text)
{
    ck_assert_int_eq(dlab_settings_set(&run.effective, key, text, NULL), DLAB_OK);
}

static inline void kind(const char *text) { set("workload.kind", text); }

/* A request that arrives and is sent at `at`, whose n tokens come after `first` and then every `gap`. */
static inline void served(int64_t id, double at, double first, double gap, int32_t n)
{
    const double t_first = at + first;
    add(&(dlab_ev_request){.id = id,
                           .prompt_tokens = 10,
                           .new_tokens = n,
                           .t_sched = at,
                           .t_submit = at,
                           .t_admit = at,
                           .t_first = t_first,
                           .t_done = t_first + gap * (n - 1),
                           .finish = 1});
    for (int32_t i = 0; i < n; i++) token(id, i, t_first + gap * i);
}

#endif

/* A point from its runs. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/point.h"

static dlab_run *make_run(dlab_run_status status, const char *reason, const char *batch)
{
    dlab_run *r = malloc(sizeof *r);
    ck_assert_ptr_nonnull(r);
    dlab_run_init(r);
    r->status = status;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    ck_assert_int_eq(dlab_settings_set(&r->effective, "batch.size", batch, NULL), DLAB_OK);
    return r;
}

static void expect(const dlab_run_status *runs, size_t n, dlab_run_status status, const char *reason)
{
    static const char *const reasons[] = {"first", "second", "third"};
    dlab_record record;
    dlab_record_init(&record);
    record.points = calloc(1, sizeof *record.points);
    ck_assert_ptr_nonnull(record.points);
    record.n_points = 1;
    dlab_point_result *p = record.points;
    p->runs = calloc(n, sizeof *p->runs);
    ck_assert_ptr_nonnull(p->runs);
    for (size_t i = 0; i < n; i++) p->runs[p->n_runs++] = make_run(runs[i], reasons[i], i ? "9" : "8");
    p->n_planned = n;
    snprintf(p->warnings, sizeof p->warnings, "old");
    ck_assert_int_eq(dlab_point_summarize(p, NULL), DLAB_OK);
    ck_assert_int_eq(p->status, status);
    ck_assert_str_eq(p->reason, reason);
    ck_assert_ptr_null(strstr(p->warnings, "old"));
    ck_assert_str_eq(dlab_settings_get(&p->effective, "batch.size"), "8");
    dlab_record_free(&record);
}

START_TEST(the_worst_run_speaks_for_the_point)
{
    expect((const dlab_run_status[]){DLAB_RUN_OK, DLAB_RUN_OK}, 2, DLAB_RUN_OK, "first");
    expect((const dlab_run_status[]){DLAB_RUN_TRUNCATED, DLAB_RUN_OK}, 2, DLAB_RUN_TRUNCATED, "first");
    expect((const dlab_run_status[]){DLAB_RUN_OK, DLAB_RUN_FAILED, DLAB_RUN_TRUNCATED}, 3, DLAB_RUN_FAILED, "second");
}
END_TEST

START_TEST(a_point_without_runs_stays_as_it_is)
{
    dlab_point_result p = {.status = DLAB_RUN_SKIPPED, .reason = "no room", .warnings = "odd"};
    ck_assert_int_eq(dlab_point_summarize(&p, NULL), DLAB_OK);
    ck_assert_int_eq(p.status, DLAB_RUN_SKIPPED);
    ck_assert_str_eq(p.reason, "no room");
    ck_assert_str_eq(p.warnings, "odd");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("point");
    TCase *c = tcase_create("point");
    tcase_add_test(c, the_worst_run_speaks_for_the_point);
    tcase_add_test(c, a_point_without_runs_stays_as_it_is);
    suite_add_tcase(suite, c);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

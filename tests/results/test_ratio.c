/* Ratios of pairs: Student's quantiles and intervals against SciPy 1.17's (stats.t.ppf, ttest_1samp on the logarithms). */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "results/ratio.h"

START_TEST(quantiles_are_scipys)
{
    static const struct {
        double level; /* two-sided: ppf((1 + level) / 2) */
        size_t df;
        double t;
    } want[] = {
        {0.95, 1, 12.706204736174694},   {0.95, 2, 4.302652729749462},     {0.95, 3, 3.1824463052837078},
        {0.95, 5, 2.5705818356363146},   {0.95, 9, 2.262157162798205},     {0.95, 30, 2.0422724563012378},
        {0.95, 100, 1.9839715185235518}, {0.95, 1000, 1.9623390808264083}, {0.9, 5, 2.0150483733330233},
        {0.99, 5, 4.032142983555228},    {0.99, 29, 2.756385903670605},    {0.998, 1, 318.30883898555015},
        {0.998, 2, 22.327124770119866},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const double t = dlab_student_t(want[i].level, want[i].df);
        ck_assert_msg(fabs(t / want[i].t - 1) < 1e-10, "t(%g, %zu) = %.15g, expected %.15g", want[i].level, want[i].df,
                      t, want[i].t);
    }
    ck_assert(isnan(dlab_student_t(0.95, 0)));
    ck_assert(isnan(dlab_student_t(1, 5)));
    ck_assert(isnan(dlab_student_t(0, 5)));
    ck_assert(isnan(dlab_student_t(NAN, 5)));
}
END_TEST

static void ratio_is(dlab_ratio r, double ratio, double low, double high, size_t n)
{
    ck_assert_uint_eq(r.n, n);
    ck_assert_double_eq_tol(r.ratio, ratio, 1e-12);
    ck_assert_double_eq_tol(r.low, low, 1e-11);
    ck_assert_double_eq_tol(r.high, high, 1e-11);
}

START_TEST(intervals_are_scipys)
{
    const double a[] = {210, 205, 198, 220, 207, 211}, b[] = {100, 104, 99, 101, 97, 103};
    ratio_is(dlab_ratio_of_pairs(a, b, 6, 0.95), 2.0707094246823283, 1.9886825512389765, 2.156119647551007, 6);
    ratio_is(dlab_ratio_of_pairs(a, b, 6, 0.99), 2.0707094246823283, 1.9435016813315935, 2.206243278642497, 6);
    const double c[] = {3, 1, 2}, d[] = {1, 2, 3};
    ratio_is(dlab_ratio_of_pairs(c, d, 3, 0.95), 1, 0.09159929554509266, 10.917114526363559, 3);
    ratio_is(dlab_ratio_of_pairs(d, d + 1, 2, 0.95), 0.5773502691896257, 0.09283052128708069, 3.5907730422248925, 2);
}
END_TEST

START_TEST(the_other_way_round_is_the_reciprocal)
{
    const double a[] = {21, 20.5, 19.8, 22}, b[] = {10, 10.4, 9.9, 10.1};
    const dlab_ratio ab = dlab_ratio_of_pairs(a, b, 4, 0.95), ba = dlab_ratio_of_pairs(b, a, 4, 0.95);
    ck_assert_double_eq_tol(ab.ratio * ba.ratio, 1, 1e-12);
    ck_assert_double_eq_tol(ab.low * ba.high, 1, 1e-12);
}
END_TEST

/* What slows both of a pair alike does not widen the interval. */
START_TEST(what_both_share_cancels)
{
    const double a[] = {200, 210, 190, 205}, b[] = {100, 100, 100, 100};
    double slow_a[4], slow_b[4];
    for (size_t i = 0; i < 4; i++) {
        slow_a[i] = a[i] * (double)(i + 1);
        slow_b[i] = b[i] * (double)(i + 1);
    }
    const dlab_ratio r = dlab_ratio_of_pairs(a, b, 4, 0.95), s = dlab_ratio_of_pairs(slow_a, slow_b, 4, 0.95);
    ratio_is(s, r.ratio, r.low, r.high, 4);
}
END_TEST

START_TEST(too_little_has_no_interval)
{
    const double a[] = {2, 4, NAN, 3, INFINITY}, b[] = {1, 2, 1, 0, 1};
    dlab_ratio r = dlab_ratio_of_pairs(a, b, 0, 0.95);
    ck_assert(isnan(r.ratio) && isnan(r.low) && isnan(r.high) && r.n == 0);
    r = dlab_ratio_of_pairs(a, b, 1, 0.95);
    ck_assert(r.ratio == 2 && isnan(r.low) && isnan(r.high) && r.n == 1);
    /* the third to fifth are no pairs; two that agree to the bit prove nothing about the next */
    r = dlab_ratio_of_pairs(a, b, 5, 0.95);
    ck_assert(r.ratio == 2 && isnan(r.low) && isnan(r.high) && r.n == 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ratio");
    TCase *c = tcase_create("ratio");
    tcase_add_test(c, quantiles_are_scipys);
    tcase_add_test(c, intervals_are_scipys);
    tcase_add_test(c, the_other_way_round_is_the_reciprocal);
    tcase_add_test(c, what_both_share_cancels);
    tcase_add_test(c, too_little_has_no_interval);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

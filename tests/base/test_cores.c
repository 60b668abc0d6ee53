/* How many cores a process may use: affinity and control-group quotas. */
#include <check.h>
#include <sched.h>

#include "base/cores.h"

START_TEST(quotas_are_read_as_whole_cores)
{
    ck_assert_int_eq(dlab_cores_of_quota("max 100000"), 0);
    ck_assert_int_eq(dlab_cores_of_quota("200000 100000"), 2);
    ck_assert_int_eq(dlab_cores_of_quota("150000 100000"), 2);
    ck_assert_int_eq(dlab_cores_of_quota("1000 100000"), 1);
    ck_assert_int_eq(dlab_cores_of_quota("50000"), 0);
    ck_assert_int_eq(dlab_cores_of_quota("50000 0"), 0);
    ck_assert_int_eq(dlab_cores_of_quota(""), 0);
    ck_assert_int_eq(dlab_cores_of_quota("99999999999999 1"), 0);
}
END_TEST

START_TEST(an_affinity_mask_bounds_the_cores)
{
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ck_assert_int_ge(dlab_cores_usable(), 1);
    ck_assert_int_le(dlab_cores_usable(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &before)) continue;
        CPU_SET(i, &one);
        break;
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(dlab_cores_usable(), 1);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cores");
    TCase *t = tcase_create("all");
    tcase_add_test(t, quotas_are_read_as_whole_cores);
    tcase_add_test(t, an_affinity_mask_bounds_the_cores);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

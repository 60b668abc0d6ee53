#include <check.h>
#include <stdint.h>

#include "base/clock.h"

START_TEST(the_virtual_clock_jumps_and_never_goes_back)
{
    dlab_clock *c = dlab_clock_virtual_create(100);
    ck_assert_ptr_nonnull(c);
    ck_assert_int_eq(dlab_clock_now_ns(c), 100);
    dlab_clock_wait_until(c, INT64_C(3600) * 1000000000); /* an hour, at once */
    ck_assert_int_eq(dlab_clock_now_ns(c), INT64_C(3600) * 1000000000);
    dlab_clock_wait_until(c, 5);
    ck_assert_int_eq(dlab_clock_now_ns(c), INT64_C(3600) * 1000000000);
    dlab_clock_advance(c, 7);
    ck_assert_int_eq(dlab_clock_now_ns(c), INT64_C(3600) * 1000000000 + 7);
    dlab_clock_advance(c, -7);
    ck_assert_int_eq(dlab_clock_now_ns(c), INT64_C(3600) * 1000000000 + 7);
    dlab_clock_destroy(c);
}
END_TEST

START_TEST(virtual_clocks_are_independent)
{
    dlab_clock *a = dlab_clock_virtual_create(0), *b = dlab_clock_virtual_create(0);
    dlab_clock_advance(a, 10);
    ck_assert_int_eq(dlab_clock_now_ns(b), 0);
    dlab_clock_destroy(a);
    dlab_clock_destroy(b);
}
END_TEST

START_TEST(the_real_clock_waits_to_the_deadline)
{
    dlab_clock *c = dlab_clock_real();
    const int64_t start = dlab_clock_now_ns(c), deadline = start + 3000000;
    dlab_clock_wait_until(c, deadline);
    const int64_t end = dlab_clock_now_ns(c);
    ck_assert_int_ge(end, deadline);
    dlab_clock_wait_until(c, start); /* past: returns */
    dlab_clock_wait_until(c, -1);
    dlab_clock_advance(c, INT64_C(1) << 60); /* ignored */
    ck_assert_int_lt(dlab_clock_now_ns(c) - end, INT64_C(1) << 50);
    dlab_clock_destroy(c);
    dlab_clock_destroy(NULL);
    ck_assert_ptr_eq(c, dlab_clock_real());
}
END_TEST

int main(void)
{
    Suite *s = suite_create("clock");
    TCase *t = tcase_create("all");
    tcase_add_test(t, the_virtual_clock_jumps_and_never_goes_back);
    tcase_add_test(t, virtual_clocks_are_independent);
    tcase_add_test(t, the_real_clock_waits_to_the_deadline);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

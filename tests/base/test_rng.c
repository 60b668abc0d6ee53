#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

START_TEST(splitmix_gives_the_published_numbers)
{
    uint64_t state = 0;
    ck_assert(dlab_splitmix64(&state) == UINT64_C(0xE220A8397B1DCDAF));
    ck_assert(dlab_splitmix64(&state) == UINT64_C(0x6E789E6AA1B965F4));
    ck_assert(dlab_splitmix64(&state) == UINT64_C(0x06C45D188009454F));
}
END_TEST

/* From the state {1, 2, 3, 4}, worked out from the algorithm's text: rotl(2·5, 7)·9 = 11520; then s[1] = 2 ^ (3 ^ 1) = 0. */
START_TEST(xoshiro_first_steps_by_hand)
{
    dlab_rng r = {.s = {1, 2, 3, 4}};
    ck_assert(dlab_rng_u64(&r) == 11520);
    ck_assert(r.s[0] == 7 && r.s[1] == 0 && r.s[2] == 262146 && r.s[3] == UINT64_C(6) << 45);
    ck_assert(dlab_rng_u64(&r) == 0);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_numbers)
{
    dlab_rng a, b, c;
    dlab_rng_seed(&a, 42);
    dlab_rng_seed(&b, 42);
    dlab_rng_seed(&c, 43);
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        const uint64_t x = dlab_rng_u64(&a);
        ck_assert(x == dlab_rng_u64(&b));
        differ += x != dlab_rng_u64(&c);
    }
    ck_assert_int_eq(differ, 100);
}
END_TEST

START_TEST(below_stays_below_and_is_even)
{
    dlab_rng r;
    dlab_rng_seed(&r, 1);
    int count[6] = {0};
    for (int i = 0; i < 60000; i++) {
        const uint64_t x = dlab_rng_below(&r, 6);
        ck_assert(x < 6);
        count[x]++;
    }
    for (int i = 0; i < 6; i++) ck_assert_int_lt(abs(count[i] - 10000), 500); /* 5 sigma */
    for (int i = 0; i < 100; i++) ck_assert(dlab_rng_below(&r, 1) == 0);
    /* with n just over 2⁶³ nearly half of the draws are drawn again; the result must still be below */
    for (int i = 0; i < 100; i++) ck_assert(dlab_rng_below(&r, (UINT64_C(1) << 63) + 1) <= UINT64_C(1) << 63);
}
END_TEST

START_TEST(unit_is_in_range_with_the_right_mean)
{
    dlab_rng r;
    dlab_rng_seed(&r, 2);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        const double x = dlab_rng_unit(&r);
        ck_assert(x >= 0 && x < 1);
        sum += x;
    }
    ck_assert(fabs(sum / 100000 - 0.5) < 0.005);
}
END_TEST

/* Against libm: the same formula through log and cos. */
START_TEST(normal_is_box_muller)
{
    dlab_rng a, b;
    dlab_rng_seed(&a, 5);
    dlab_rng_seed(&b, 5);
    double sum = 0, squares = 0, cubes = 0;
    for (int i = 0; i < 200000; i++) {
        const double x = dlab_rng_normal(&a);
        const double u = 1 - dlab_rng_unit(&b), turn = dlab_rng_unit(&b);
        const double want = sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * turn);
        ck_assert_msg(fabs(x - want) <= 1e-14 * (1 + fabs(want)), "%.17g and %.17g", x, want);
        sum += x;
        squares += x * x;
        cubes += x * x * x;
    }
    ck_assert(fabs(sum / 200000) < 0.012);
    ck_assert(fabs(squares / 200000 - 1) < 0.016);
    ck_assert(fabs(cubes / 200000) < 0.045);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rng");
    TCase *t = tcase_create("all");
    tcase_add_test(t, splitmix_gives_the_published_numbers);
    tcase_add_test(t, xoshiro_first_steps_by_hand);
    tcase_add_test(t, the_same_seed_gives_the_same_numbers);
    tcase_add_test(t, below_stays_below_and_is_even);
    tcase_add_test(t, unit_is_in_range_with_the_right_mean);
    tcase_add_test(t, normal_is_box_muller);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

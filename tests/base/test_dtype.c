#include <check.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/rng.h"

/* The value of a binary16 by its definition, in double. */
static double half_value(unsigned h)
{
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, -24);
    return sign * ldexp(1024 + mantissa, exponent - 25);
}

START_TEST(f16_all_values_by_definition_and_back)
{
    for (unsigned h = 0; h < 65536; h++) {
        const float f = dlab_f16_to_f32((uint16_t)h);
        const double want = half_value(h);
        if (isnan(want)) {
            ck_assert(isnan(f));
            ck_assert(isnan(dlab_f16_to_f32(dlab_f32_to_f16(f))));
            continue;
        }
        ck_assert_msg((double)f == want && !signbit(f) == !signbit(want), "0x%04x", h);
        ck_assert_msg(dlab_f32_to_f16(f) == h, "0x%04x comes back as 0x%04x", h, dlab_f32_to_f16(f));
    }
}
END_TEST

/* Between each two neighbours: the middle goes to the even one, just beside it to the nearer one. */
START_TEST(f16_rounds_to_nearest_even)
{
    for (unsigned h = 0; h < 0x7BFF; h++) {
        const float lo = dlab_f16_to_f32((uint16_t)h), hi = dlab_f16_to_f32((uint16_t)(h + 1));
        const float middle = (float)(((double)lo + (double)hi) / 2); /* exact: one bit more */
        const unsigned even = h & 1 ? h + 1 : h;
        ck_assert_uint_eq(dlab_f32_to_f16(middle), even);
        ck_assert_uint_eq(dlab_f32_to_f16(-middle), even | 0x8000);
        ck_assert_uint_eq(dlab_f32_to_f16(nextafterf(middle, 0)), h);
        ck_assert_uint_eq(dlab_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
}
END_TEST

START_TEST(f16_edges)
{
    ck_assert_uint_eq(dlab_f32_to_f16(65504.0f), 0x7BFF);
    ck_assert_uint_eq(dlab_f32_to_f16(65519.996f), 0x7BFF);
    ck_assert_uint_eq(dlab_f32_to_f16(65520.0f), 0x7C00);
    ck_assert_uint_eq(dlab_f32_to_f16(1e30f), 0x7C00);
    ck_assert_uint_eq(dlab_f32_to_f16(-INFINITY), 0xFC00);
    ck_assert_uint_eq(dlab_f32_to_f16(-0.0f), 0x8000);
    ck_assert_uint_eq(dlab_f32_to_f16(0x1p-25f), 0);
    ck_assert_uint_eq(dlab_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    ck_assert_uint_eq(dlab_f32_to_f16(1e-45f), 0);
}
END_TEST

START_TEST(bf16_all_values_and_back)
{
    for (unsigned h = 0; h < 65536; h++) {
        const float f = dlab_bf16_to_f32((uint16_t)h);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        ck_assert_uint_eq(bits, h << 16);
        if (isnan(f))
            ck_assert(isnan(dlab_bf16_to_f32(dlab_f32_to_bf16(f))));
        else
            ck_assert_uint_eq(dlab_f32_to_bf16(f), h);
    }
}
END_TEST

START_TEST(bf16_rounds_to_nearest_even)
{
    ck_assert_uint_eq(dlab_f32_to_bf16(0x1.01p0f), 0x3F80);       /* the middle of 1 and 1 + 2⁻⁷, down to even */
    ck_assert_uint_eq(dlab_f32_to_bf16(0x1.03p0f), 0x3F82);       /* the next middle, up to even */
    ck_assert_uint_eq(dlab_f32_to_bf16(0x1.010002p0f), 0x3F81);   /* above the middle */
    ck_assert_uint_eq(dlab_f32_to_bf16(0x1.fffffep127f), 0x7F80); /* the largest f32 is nearer to infinity */
    ck_assert_uint_eq(dlab_f32_to_bf16(-0x1.fffffep127f), 0xFF80);
    uint32_t bits = 0x7F800001u; /* a NaN whose payload lies in the dropped half */
    float nan_low;
    memcpy(&nan_low, &bits, sizeof nan_low);
    ck_assert(isnan(dlab_bf16_to_f32(dlab_f32_to_bf16(nan_low))));
}
END_TEST

START_TEST(f16_random_floats_are_never_further_than_half_a_step)
{
    dlab_rng r;
    dlab_rng_seed(&r, 3);
    for (int i = 0; i < 100000; i++) {
        const float f = (float)ldexp(dlab_rng_unit(&r) * 2 - 1, (int)dlab_rng_below(&r, 40) - 24);
        const float back = dlab_f16_to_f32(dlab_f32_to_f16(f));
        const double step = fmax(ldexp(1, -24), ldexp(1, ilogb(fmax(fabs((double)f), 1e-30)) - 10));
        ck_assert(fabs((double)back - (double)f) <= step / 2 || (isinf(back) && fabsf(f) >= 65520.0f));
    }
}
END_TEST

START_TEST(block_layouts)
{
    ck_assert_str_eq(dlab_dtype_name(DLAB_Q4_1), "q4_1");
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_F32, 10), 40);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_F16, 10), 20);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_BF16, 10), 20);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_Q8_0, 64), 68);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_Q4_0, 64), 36);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_Q4_1, 64), 40);
    ck_assert_int_eq(dlab_dtype_block(DLAB_Q4_1), 32);
    ck_assert_int_eq(dlab_dtype_block_bytes(DLAB_Q4_1), 20);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_F32, INT64_C(1) << 40), (size_t)1 << 42);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dtype");
    TCase *t = tcase_create("all");
    tcase_add_test(t, f16_all_values_by_definition_and_back);
    tcase_add_test(t, f16_rounds_to_nearest_even);
    tcase_add_test(t, f16_edges);
    tcase_add_test(t, bf16_all_values_and_back);
    tcase_add_test(t, bf16_rounds_to_nearest_even);
    tcase_add_test(t, f16_random_floats_are_never_further_than_half_a_step);
    tcase_add_test(t, block_layouts);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

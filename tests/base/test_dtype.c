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

typedef struct {
    const char *name;
    float (*decode)(uint8_t);
    uint8_t (*encode)(float);
    int bits, bias; /* of mantissa; of the exponent */
    unsigned most;  /* code of the largest finite number */
    double largest;
} fp8;

static const fp8 fp8s[] = {{"e4m3", dlab_e4m3_to_f32, dlab_f32_to_e4m3, 3, 7, 0x7E, 448},
                           {"e5m2", dlab_e5m2_to_f32, dlab_f32_to_e5m2, 2, 15, 0x7B, 57344}};

/* By the definition in the OCP's specification: e4m3 has one NaN a sign and no infinity, e5m2 is like binary16. */
static double fp8_value(const fp8 *t, unsigned b)
{
    const int exponent = (int)(b & 127) >> t->bits, mantissa = (int)b & ((1 << t->bits) - 1);
    const double sign = b & 128 ? -1 : 1;
    if (t->bits == 3 && (b & 127) == 127) return NAN;
    if (t->bits == 2 && exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - t->bias - t->bits);
    return sign * ldexp((1 << t->bits) + mantissa, exponent - t->bias - t->bits);
}

START_TEST(fp8_all_codes_by_definition_and_back)
{
    const fp8 *t = &fp8s[_i];
    int numbers = 0;
    for (unsigned b = 0; b < 256; b++) {
        const float f = t->decode((uint8_t)b);
        const double want = fp8_value(t, b);
        if (isnan(want)) {
            ck_assert_msg(isnan(f), "%s 0x%02x", t->name, b);
            ck_assert(isnan(t->decode(t->encode(f))));
            continue;
        }
        ck_assert_msg((double)f == want && !signbit(f) == !signbit(want), "%s 0x%02x is %g", t->name, b, (double)f);
        if (isinf(f)) continue;
        ck_assert_msg(t->encode(f) == b, "%s 0x%02x comes back as 0x%02x", t->name, b, t->encode(f));
        numbers++;
    }
    ck_assert_int_eq(numbers, 2 * (int)(t->most + 1));
    ck_assert_double_eq((double)t->decode((uint8_t)t->most), t->largest);
}
END_TEST

START_TEST(fp8_rounds_to_nearest_even)
{
    const fp8 *t = &fp8s[_i];
    for (unsigned b = 0; b < t->most; b++) {
        const double lo = fp8_value(t, b), hi = fp8_value(t, b + 1);
        const float middle = (float)((lo + hi) / 2); /* exact: one bit more */
        const unsigned even = b & 1 ? b + 1 : b;
        ck_assert_msg(t->encode(middle) == even, "%s between 0x%02x and the next", t->name, b);
        ck_assert_uint_eq(t->encode(-middle), even | 128);
        ck_assert_uint_eq(t->encode(nextafterf(middle, 0)), b);
        ck_assert_uint_eq(t->encode(nextafterf(middle, INFINITY)), b + 1);
        ck_assert_uint_eq(t->encode(nextafterf(-middle, -INFINITY)), (b + 1) | 128);
    }
}
END_TEST

START_TEST(fp8_saturates)
{
    const fp8 *t = &fp8s[_i];
    const float beyond[] = {(float)t->largest * 1.01f,
                            (float)t->largest * 1.25f,
                            (float)t->largest * 2,
                            1e6f,
                            1e30f,
                            0x1.fffffep127f,
                            INFINITY};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        ck_assert_msg(t->encode(beyond[i]) == t->most, "%s of %g", t->name, (double)beyond[i]);
        ck_assert_uint_eq(t->encode(-beyond[i]), t->most | 128);
    }
    const float tiny[] = {1e-30f, 0x1p-126f, 0x1p-149f, 0x1.fffffcp-127f}; /* the last are subnormal in f32 */
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++) {
        ck_assert_uint_eq(t->encode(tiny[i]), 0);
        ck_assert_uint_eq(t->encode(-tiny[i]), 128);
    }
    ck_assert_uint_eq(t->encode(-0.0f), 128);
    ck_assert(isnan(t->decode(t->encode(NAN))) && isnan(t->decode(t->encode(-NAN))));
    uint32_t bits = 0x7F800001u; /* a NaN whose payload lies in the dropped bits */
    float nan_low;
    memcpy(&nan_low, &bits, sizeof nan_low);
    ck_assert(isnan(t->decode(t->encode(nan_low))));
}
END_TEST

/* No number of the type is nearer. */
START_TEST(fp8_random_floats_go_to_the_nearest)
{
    const fp8 *t = &fp8s[_i];
    dlab_rng r;
    dlab_rng_seed(&r, 8);
    for (int i = 0; i < 5000; i++) {
        const float f = (float)ldexp(dlab_rng_unit(&r) * 2 - 1, (int)dlab_rng_below(&r, 40) - 22);
        const double got = fabs((double)t->decode(t->encode(f)) - (double)f);
        for (unsigned b = 0; b <= t->most; b++)
            ck_assert_msg(got <= fabs(fp8_value(t, b) - fabs((double)f)), "%s of %.9g", t->name, (double)f);
    }
}
END_TEST

START_TEST(names_and_blocks_of_all)
{
    static const struct {
        const char *name;
        int block, bytes;
    } want[DLAB_DTYPE_N] = {
        [DLAB_F32] = {"f32", 1, 4},     [DLAB_F16] = {"f16", 1, 2},       [DLAB_BF16] = {"bf16", 1, 2},
        [DLAB_Q8_0] = {"q8_0", 32, 34}, [DLAB_Q4_0] = {"q4_0", 32, 18},   [DLAB_Q4_1] = {"q4_1", 32, 20},
        [DLAB_U8] = {"int8", 1, 1},     [DLAB_E4M3] = {"fp8_e4m3", 1, 1}, [DLAB_E5M2] = {"fp8_e5m2", 1, 1},
        [DLAB_U4] = {"int4", 32, 16}};
    for (int t = 0; t < DLAB_DTYPE_N; t++) {
        ck_assert_str_eq(dlab_dtype_name((dlab_dtype)t), want[t].name);
        ck_assert_int_eq(dlab_dtype_block((dlab_dtype)t), want[t].block);
        ck_assert_int_eq(dlab_dtype_block_bytes((dlab_dtype)t), want[t].bytes);
        ck_assert_uint_eq(dlab_dtype_bytes((dlab_dtype)t, 96), (size_t)(96 / want[t].block * want[t].bytes));
    }
    ck_assert_str_eq(dlab_dtype_name(DLAB_DTYPE_N), "unknown");
}
END_TEST

START_TEST(int4_vectors_are_padded_to_whole_blocks)
{
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_U4, 0), 0);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_U4, 1), 16);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_U4, 32), 16);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_U4, 33), 32);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_U4, 80), 48);
    ck_assert_uint_eq(dlab_dtype_bytes(DLAB_U8, 80), 80);
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
    tcase_add_test(t, names_and_blocks_of_all);
    tcase_add_test(t, int4_vectors_are_padded_to_whole_blocks);
    tcase_add_loop_test(t, fp8_all_codes_by_definition_and_back, 0, 2);
    tcase_add_loop_test(t, fp8_rounds_to_nearest_even, 0, 2);
    tcase_add_loop_test(t, fp8_saturates, 0, 2);
    tcase_add_loop_test(t, fp8_random_floats_go_to_the_nearest, 0, 2);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

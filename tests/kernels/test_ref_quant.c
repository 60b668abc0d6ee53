/* The quantizer of the cache: the promises of kernels/op.h at dlab_kv_plane. */
#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "tests/kernels/ref_fixture.h"

static const dlab_dtype types[] = {DLAB_U8, DLAB_U4, DLAB_E4M3, DLAB_E5M2};

static bool is_integer(dlab_dtype t) { return t == DLAB_U8 || t == DLAB_U4; }

static int largest_code(dlab_dtype t) { return t == DLAB_U4 ? 15 : 255; }

static uint32_t meta_of(dlab_dtype t, const float *x, int n)
{
    dlab_ref_range r = {0, 0};
    for (int i = 0; i < n; i++) dlab_ref_range_add(&r, x[i]);
    return dlab_ref_meta(t, r);
}

static double through(dlab_dtype t, uint32_t meta, float x)
{
    return dlab_ref_decode(t, meta, dlab_ref_code(t, meta, x));
}

static double bound(dlab_dtype t, double scale, double x)
{
    const double slack = 1 + 0x1p-14;
    if (t == DLAB_E4M3) return fmax(fabs(x) * 0x1p-4, scale * 0x1p-10) * slack;
    if (t == DLAB_E5M2) return fmax(fabs(x) * 0x1p-3, scale * 0x1p-17) * slack;
    return scale / 2 * slack;
}

static void check_bound(dlab_dtype t, const float *x, int n)
{
    const uint32_t meta = meta_of(t, x, n);
    const double scale = (double)dlab_ref_meta_scale(meta);
    for (int i = 0; i < n; i++) {
        const double got = through(t, meta, x[i]);
        if (!isfinite(x[i])) continue;
        if (fabs(got - (double)x[i]) > bound(t, scale, (double)x[i]))
            ck_abort_msg("%s, scale %.9g: %.9g comes back as %.9g", dlab_dtype_name(t), scale, (double)x[i], got);
    }
}

START_TEST(integers_by_hand)
{
    const float up[2] = {0, 255}, down[2] = {0, -255};
    const uint32_t a = meta_of(DLAB_U8, up, 2), b = meta_of(DLAB_U8, down, 2);
    ck_assert_uint_eq(a, 0x3F800000); /* scale 1, zero 0 */
    ck_assert_uint_eq(b, 0x3F8000FF); /* scale 1, zero 255 */
    static const struct {
        float x;
        int code;
    } rounds[] = {{0, 0},     {17, 17},   {0.5f, 0}, {1.5f, 2},       {2.5f, 2},      {254.5f, 254},
                  {255, 255}, {300, 255}, {-7, 0},   {INFINITY, 255}, {-INFINITY, 0}, {NAN, 0}};
    for (size_t i = 0; i < N_OF(rounds); i++) ck_assert_int_eq(dlab_ref_code(DLAB_U8, a, rounds[i].x), rounds[i].code);
    ck_assert_int_eq(dlab_ref_code(DLAB_U8, b, 0), 255);
    ck_assert_int_eq(dlab_ref_code(DLAB_U8, b, NAN), 255);
    ck_assert_int_eq(dlab_ref_code(DLAB_U8, b, -255), 0);
    ck_assert_int_eq(dlab_ref_code(DLAB_U8, b, -1.5f), 253); /* −2 + 255 */
    ck_assert_double_eq(dlab_ref_decode(DLAB_U8, b, 253), -2);
    const float four[2] = {15, 3};
    const uint32_t c = meta_of(DLAB_U4, four, 2);
    ck_assert_uint_eq(c, 0x3F800000);
    ck_assert_int_eq(dlab_ref_code(DLAB_U4, c, 15), 15);
    ck_assert_int_eq(dlab_ref_code(DLAB_U4, c, INFINITY), 15);
    ck_assert_double_eq(dlab_ref_decode(DLAB_U4, c, 9), 9);
}
END_TEST

/* 1 / 255 is 0x3B808081: its last byte goes up. */
START_TEST(scales_are_rounded_up_to_make_room_for_the_zero)
{
    const float x[1] = {1};
    ck_assert_uint_eq(meta_of(DLAB_U8, x, 1), 0x3B808100);
    dlab_rng r;
    dlab_rng_seed(&r, 1);
    for (int i = 0; i < 10000; i++) {
        const dlab_ref_range range = {(float)-dlab_rng_unit(&r), (float)dlab_rng_unit(&r)};
        for (size_t t = 0; t < N_OF(types); t++) {
            const uint32_t meta = dlab_ref_meta(types[t], range);
            const float n = (float)largest_code(types[t]), most = fmaxf(-range.lo, range.hi);
            const float step = types[t] == DLAB_E4M3   ? most / 448
                               : types[t] == DLAB_E5M2 ? most / 57344
                                                       : range.hi / n - range.lo / n;
            const float scale = dlab_ref_meta_scale(meta);
            ck_assert(scale >= step && scale <= step * (1 + 0x1p-15f));
            const int zero = dlab_ref_meta_zero(meta);
            ck_assert_int_le(zero, is_integer(types[t]) ? largest_code(types[t]) : 0);
        }
    }
}
END_TEST

START_TEST(fp8_by_hand)
{
    const float x[2] = {-448, 1}, y[2] = {57344 * 4, 3};
    const uint32_t a = meta_of(DLAB_E4M3, x, 2), b = meta_of(DLAB_E5M2, y, 2);
    ck_assert_uint_eq(a, 0x3F800000); /* scale 1 */
    ck_assert_uint_eq(b, 0x40800000); /* scale 4 */
    ck_assert_int_eq(dlab_ref_code(DLAB_E4M3, a, -448), 0xFE);
    ck_assert_int_eq(dlab_ref_code(DLAB_E4M3, a, 1), 0x38);
    ck_assert_int_eq(dlab_ref_code(DLAB_E4M3, a, INFINITY), 0x7E);
    ck_assert_int_eq(dlab_ref_code(DLAB_E4M3, a, NAN), 0);
    ck_assert_int_eq(dlab_ref_code(DLAB_E5M2, b, -INFINITY), 0xFB);
    ck_assert_int_eq(dlab_ref_code(DLAB_E5M2, b, 8), 0x40);
    ck_assert_double_eq(dlab_ref_decode(DLAB_E5M2, b, 0x40), 8);
}
END_TEST

/* Numbers of many sizes, of both signs or of one, from groups of 1 to 64. */
START_TEST(values_are_within_the_bound)
{
    dlab_rng r;
    dlab_rng_seed(&r, 2);
    float x[64];
    for (int i = 0; i < 20000; i++) {
        const int n = 1 + (int)dlab_rng_below(&r, 64), sign = (int)dlab_rng_below(&r, 3);
        const int spread = (int)dlab_rng_below(&r, 12) + 1, size = (int)dlab_rng_below(&r, 200) - 100;
        for (int k = 0; k < n; k++) {
            const double v = ldexp(dlab_rng_unit(&r) * 2 - 1, size + (int)dlab_rng_below(&r, (uint64_t)spread));
            x[k] = (float)(sign == 0 ? v : sign == 1 ? fabs(v) : -fabs(v));
        }
        for (size_t t = 0; t < N_OF(types); t++) check_bound(types[t], x, n);
    }
}
END_TEST

/* A decoded code is that code's: nothing drifts when values are stored again. */
START_TEST(all_codes_come_back)
{
    static const float ranges[][2] = {{-1, 1}, {-0.1f, 3}, {-77, 0.5f}, {0, 1e20f}, {-1e-20f, 0}};
    for (size_t t = 0; t < N_OF(types); t++) {
        for (size_t i = 0; i < N_OF(ranges); i++) {
            const uint32_t meta = meta_of(types[t], ranges[i], 2);
            for (int c = 0; c <= largest_code(types[t]); c++) {
                const double v = dlab_ref_decode(types[t], meta, (uint8_t)c);
                if (!isfinite(v)) continue; /* codes of fp8 that nothing is stored as */
                ck_assert_int_eq(dlab_ref_code(types[t], meta, (float)v), c);
            }
        }
    }
}
END_TEST

/* The scale carries the size and the codes the shape: x · 2ⁿ gives the codes of x and 2ⁿ times its scale. A scale that is
 * lost or applied twice shows at ½ and 4. */
START_TEST(bug_19_scales_carry_the_size_and_codes_the_shape)
{
    dlab_rng r;
    dlab_rng_seed(&r, 3);
    float x[32], y[32];
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 32; k++) x[k] = (float)(dlab_rng_unit(&r) * 2 - 1) * (k == 9 ? 30 : 1);
        for (size_t t = 0; t < N_OF(types); t++) {
            const uint32_t meta = meta_of(types[t], x, 32);
            for (int n = -20; n <= 20; n++) {
                for (int k = 0; k < 32; k++) y[k] = ldexpf(x[k], n);
                const uint32_t m = meta_of(types[t], y, 32);
                ck_assert_float_eq(dlab_ref_meta_scale(m), ldexpf(dlab_ref_meta_scale(meta), n));
                ck_assert_int_eq(dlab_ref_meta_zero(m), dlab_ref_meta_zero(meta));
                for (int k = 0; k < 32; k++) {
                    const uint8_t c = dlab_ref_code(types[t], m, y[k]);
                    if (c != dlab_ref_code(types[t], meta, x[k]))
                        ck_abort_msg("%s at 2^%d, element %d", dlab_dtype_name(types[t]), n, k);
                    if (dlab_ref_decode(types[t], m, c) != ldexp(dlab_ref_decode(types[t], meta, c), n))
                        ck_abort_msg("%s at 2^%d, element %d: value", dlab_dtype_name(types[t]), n, k);
                }
            }
        }
    }
}
END_TEST

START_TEST(values_that_are_no_numbers_do_no_harm)
{
    static const float groups[][4] = {
        {INFINITY, 1, -2, 0},
        {-INFINITY, 1, 2, 0.5f},
        {NAN, 1, -2, 3},
        {NAN, NAN, NAN, NAN},
        {INFINITY, -INFINITY, 0, 0},
        {INFINITY, INFINITY, NAN, -0.0f},
        {NAN, -1, -1, -1},
        {INFINITY, -3, -3, -3},
        {FLT_MAX, -FLT_MAX, 1, 0},
        {1e30f, 1, -1, 1e-30f},
        {-1e38f, 0, 5, 5},
        {-0.0f, -0.0f, 0, 0},
        {7, 7, 7, 7},
        {-7, -7, -7, -7},
        {0x1p-149f, 0, 0, 0},
        {0x1p-126f, -0x1p-130f, 0, 0},
    };
    for (size_t t = 0; t < N_OF(types); t++) {
        for (size_t i = 0; i < N_OF(groups); i++) {
            const uint32_t meta = meta_of(types[t], groups[i], 4);
            ck_assert(isfinite(dlab_ref_meta_scale(meta)) && dlab_ref_meta_scale(meta) >= 0);
            for (int k = 0; k < 4; k++) {
                const float x = groups[i][k];
                const double got = through(types[t], meta, x);
                ck_assert_msg(isfinite(got), "%s, group %zu, element %d", dlab_dtype_name(types[t]), i, k);
                if (x == 0 || isnan(x)) ck_assert_double_eq(got, 0);
                if (isinf(x)) ck_assert(x > 0 ? got >= 0 : got <= 0);
            }
            if (dlab_ref_meta_scale(meta) > 0) check_bound(types[t], groups[i], 4);
        }
        const float inf[3] = {INFINITY, 4, -4}; /* the last codes of the range that the finite values make */
        const uint32_t meta = meta_of(types[t], inf, 3);
        const double step = fmax((double)dlab_ref_meta_scale(meta), 4 * 0x1p-15);
        ck_assert_double_le(fabs(through(types[t], meta, INFINITY) - 4), step);
        ck_assert_double_le(fabs(through(types[t], meta, -INFINITY) + 4), step);
    }
}
END_TEST

/* A constant is an end of its range, so it is as exact as its scale. */
START_TEST(constant_groups_keep_their_value)
{
    static const float values[] = {1, -3.7f, 1e-20f, -1e20f, 0.1f};
    for (size_t t = 0; t < N_OF(types); t++) {
        for (size_t i = 0; i < N_OF(values); i++) {
            const float x[3] = {values[i], values[i], values[i]};
            const double got = through(types[t], meta_of(types[t], x, 3), values[i]);
            ck_assert_double_le(fabs(got - (double)values[i]), fabs((double)values[i]) * 0x1p-15);
        }
    }
}
END_TEST

/* What shares a scale with an outlier is coarse, but no more than by the outlier's step; zero stays zero. */
START_TEST(one_outlier)
{
    float x[32];
    for (int k = 0; k < 32; k++) x[k] = (float)(k - 16) / 16;
    x[11] = 1e30f;
    for (size_t t = 0; t < N_OF(types); t++) {
        const uint32_t meta = meta_of(types[t], x, 32);
        check_bound(types[t], x, 32);
        ck_assert_double_eq(through(types[t], meta, x[16]), 0);
        ck_assert_double_le(fabs(through(types[t], meta, 1e30f) - 1e30), 1e30 * 0x1p-14);
    }
}
END_TEST

/* Below the smallest normal step everything is 0, and the bound of what is lost is that step's. */
START_TEST(subnormal_groups_are_zero)
{
    const float x[3] = {0x1p-127f, -0x1p-140f, 0x1p-149f};
    for (size_t t = 0; t < N_OF(types); t++) {
        const uint32_t meta = meta_of(types[t], x, 3);
        ck_assert_uint_eq(meta, 0);
        for (int k = 0; k < 3; k++) ck_assert_int_eq(dlab_ref_code(types[t], meta, x[k]), 0);
    }
    const float just[1] = {255 * FLT_MIN}, below[1] = {254 * FLT_MIN};
    ck_assert_float_eq(dlab_ref_meta_scale(meta_of(DLAB_U8, just, 1)), FLT_MIN);
    ck_assert_uint_eq(meta_of(DLAB_U8, below, 1), 0);
}
END_TEST

START_TEST(nibbles_lie_as_in_the_blocks_of_weights)
{
    unsigned char v[32];
    memset(v, 0xFF, sizeof v);
    dlab_ref_put_code(v, DLAB_U4, 0, 3);
    dlab_ref_put_code(v, DLAB_U4, 16, 5);
    dlab_ref_put_code(v, DLAB_U4, 15, 0);
    dlab_ref_put_code(v, DLAB_U4, 47, 9); /* the next block: low half of its byte 15 */
    dlab_ref_put_code(v, DLAB_U4, 63, 8);
    ck_assert_int_eq(v[0], 0x53);
    ck_assert_int_eq(v[15], 0xF0);
    ck_assert_int_eq(v[31], 0x89);
    ck_assert_int_eq(v[1], 0xFF);
    static const int where[] = {0, 16, 15, 47, 63, 1}, what[] = {3, 5, 0, 9, 8, 15};
    for (int i = 0; i < 6; i++) ck_assert_int_eq(dlab_ref_get_code(v, DLAB_U4, where[i]), what[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ref_quant");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, integers_by_hand);
    tcase_add_test(t, scales_are_rounded_up_to_make_room_for_the_zero);
    tcase_add_test(t, fp8_by_hand);
    tcase_add_test(t, values_are_within_the_bound);
    tcase_add_test(t, all_codes_come_back);
    tcase_add_test(t, bug_19_scales_carry_the_size_and_codes_the_shape);
    tcase_add_test(t, values_that_are_no_numbers_do_no_harm);
    tcase_add_test(t, constant_groups_keep_their_value);
    tcase_add_test(t, one_outlier);
    tcase_add_test(t, subnormal_groups_are_zero);
    tcase_add_test(t, nibbles_lie_as_in_the_blocks_of_weights);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

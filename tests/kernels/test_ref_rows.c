/* The oracle's ops that work row by row, against figures worked out by hand. */
#include <math.h>

#include "tests/kernels/ref_fixture.h"

static ref_fixture f;
static dlab_error err;

static void setup(void) { fixture_open(&f); }
static void teardown(void) { fixture_close(&f); }

#define F16_HALF  0x3800 /* 0.5 */
#define F16_M2    0xC000 /* −2 */
#define F16_ONE_5 0x3E00 /* 1.5 */

static void put_u16(unsigned char *p, unsigned v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

START_TEST(q8_0_is_decoded)
{
    unsigned char w[2 * 34] = {0};
    put_u16(w, F16_HALF);
    w[2] = 127;
    w[3] = 0x80; /* −128 */
    w[2 + 31] = 0xFF;
    put_u16(w + 34, F16_M2);
    w[34 + 2] = 3;
    const dlab_matrix m = {.at = buffer_of(&f, w, sizeof w), .dtype = DLAB_Q8_0, .n = 1, .k = 64};
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 0), 63.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 1), -64);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 2), 0);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 31), -0.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 32), -6);
}
END_TEST

START_TEST(q4_0_is_decoded)
{
    unsigned char w[2 * 18] = {0};
    put_u16(w + 18, F16_HALF); /* row 1 */
    w[18 + 2] = 0xF0;          /* element 0 is 0, element 16 is 15 */
    w[18 + 3] = 0x19;          /* element 1 is 9, element 17 is 1 */
    w[18 + 17] = 0x8A;         /* element 15 is 10, element 31 is 8 */
    const dlab_matrix m = {.at = buffer_of(&f, w, sizeof w), .dtype = DLAB_Q4_0, .n = 2, .k = 32};
    ck_assert_double_eq(dlab_ref_weight(&m, 1, 0), -4);
    ck_assert_double_eq(dlab_ref_weight(&m, 1, 16), 3.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 1, 1), 0.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 1, 17), -3.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 1, 15), 1);
    ck_assert_double_eq(dlab_ref_weight(&m, 1, 31), 0);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 5), 0); /* scale 0 */
}
END_TEST

START_TEST(q4_1_is_decoded)
{
    unsigned char w[20] = {0};
    put_u16(w, F16_HALF);
    put_u16(w + 2, F16_M2);
    w[4] = 0xF0;
    w[5] = 0x19;
    const dlab_matrix m = {.at = buffer_of(&f, w, sizeof w), .dtype = DLAB_Q4_1, .n = 1, .k = 32};
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 0), -2);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 16), 5.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 1), 2.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 17), -1.5);
    ck_assert_double_eq(dlab_ref_weight(&m, 0, 2), -2);
}
END_TEST

START_TEST(embed_takes_the_rows_of_the_tokens)
{
    const uint16_t table[3][2] = {{0x3C00, F16_HALF}, {F16_M2, F16_ONE_5}, {0, 0x3C00}};
    small_desc d = desc_of(2, 1, 0, 0);
    d.rows[0].token = 1;
    d.rows[1].token = 0;
    const dlab_at out = buffer_of(&f, NULL, 4 * sizeof(float));
    const dlab_embed_args a = {.table = {.at = buffer_of(&f, table, sizeof table), .dtype = DLAB_F16, .n = 3, .k = 2},
                               .desc = buffer_of(&f, &d, sizeof d),
                               .out = out,
                               .n_rows = 2};
    submit_ok(dlab_submit_embed(f.dev, a, &err), &err);
    float got[4];
    read_back(&f, got, out, sizeof got);
    floats_near(got, (const double[]){-2, 1.5, 1, 0.5}, 4, 0);
}
END_TEST

/* rms of {1, 2, 2, 4} is √(25/4) = 2.5. In place, on the second row of two, with the first in f32 too small for eps 0. */
START_TEST(rmsnorm_by_hand)
{
    const float x[2][4] = {{3, 3, 3, 3}, {1, 2, 2, 4}}, w[4] = {1, 0.5f, -1, 10};
    const dlab_at at = buffer_of(&f, x, sizeof x), weights = buffer_of(&f, w, sizeof w);
    dlab_rmsnorm_args a = {.x = at, .w = weights, .y = at, .n_rows = 2, .dim = 4};
    submit_ok(dlab_submit_rmsnorm(f.dev, a, &err), &err);
    float got[8];
    read_back(&f, got, at, sizeof got);
    floats_near(got, (const double[]){1, 0.5, -1, 10, 0.4, 0.4, -0.8, 16}, 8, 1e-7);
    /* all zero: eps keeps it finite; {1, …} with eps 3: 1/√(1 + 3) */
    const float y[2][4] = {{0, 0, 0, 0}, {1, 1, 1, 1}};
    a.x = buffer_of(&f, y, sizeof y);
    a.eps = 3;
    submit_ok(dlab_submit_rmsnorm(f.dev, a, &err), &err);
    read_back(&f, got, at, sizeof got);
    floats_near(got, (const double[]){0, 0, 0, 0, 0.5, 0.25, -0.5, 5}, 8, 1e-7);
}
END_TEST

/* By recursion: H of 2n has H, H over H, −H; each level divides by √2. */
static void walsh(const double *x, double *y, int n)
{
    if (n == 1) {
        *y = *x;
        return;
    }
    double sum[64] = {0}, difference[64] = {0};
    for (int i = 0; i < n / 2; i++) {
        sum[i] = (x[i] + x[i + n / 2]) / sqrt(2);
        difference[i] = (x[i] - x[i + n / 2]) / sqrt(2);
    }
    walsh(sum, y, n / 2);
    walsh(difference, y + n / 2, n / 2);
}

static void rotate_by_hadamard(float *x, int rows, int heads, int dim)
{
    const size_t bytes = (size_t)(rows * heads * dim) * sizeof *x;
    const dlab_at at = buffer_of(&f, x, bytes);
    const dlab_hadamard_args a = {.x = at, .n_rows = rows, .n_heads = heads, .head_dim = dim};
    submit_ok(dlab_submit_hadamard(f.dev, a, &err), &err);
    read_back(&f, x, at, bytes);
}

START_TEST(hadamard_by_hand)
{
    float x[2][4] = {{1, 2, 3, 4}, {0, 0, 1, 0}};
    rotate_by_hadamard(&x[0][0], 1, 2, 4);
    floats_near(&x[0][0], (const double[]){5, -1, -2, 0, 0.5, 0.5, -0.5, -0.5}, 8, 1e-7);
    float six[6] = {1, 1, 2, 0, 0, 3}; /* blocks of 2 */
    rotate_by_hadamard(six, 1, 1, 6);
    const double r = sqrt(2);
    floats_near(six, (const double[]){2 / r, 0, 2 / r, 2 / r, 3 / r, -3 / r}, 6, 1e-7);
    float odd[3] = {1, 2, 3}; /* blocks of 1: nothing to do */
    rotate_by_hadamard(odd, 1, 1, 3);
    floats_near(odd, (const double[]){1, 2, 3}, 3, 0);
}
END_TEST

/* Blocks of 16 in 80 and of 64: the recursion's values; products stay; twice is the identity. */
START_TEST(hadamard_keeps_products)
{
    static const int dims[][2] = {{80, 16}, {64, 64}, {48, 16}};
    for (size_t c = 0; c < N_OF(dims); c++) {
        const int dim = dims[c][0], block = dims[c][1];
        float x[2][80], y[2 * 80];
        double in[2][80] = {{0}}, want[80] = {0}, before = 0, after = 0;
        for (int i = 0; i < dim; i++) {
            in[0][i] = (double)(x[0][i] = (float)sin(i + 1.0));
            in[1][i] = (double)(x[1][i] = (float)cos(3.0 * i));
            before += in[0][i] * in[1][i];
        }
        memcpy(y, x[0], (size_t)dim * sizeof(float));
        memcpy(y + dim, x[1], (size_t)dim * sizeof(float));
        rotate_by_hadamard(y, 2, 1, dim);
        for (int b = 0; b < dim; b += block) walsh(in[0] + b, want + b, block);
        floats_near(y, want, (size_t)dim, 1e-6);
        for (int i = 0; i < dim; i++) after += (double)y[i] * (double)y[dim + i];
        ck_assert_double_eq_tol(after, before, 1e-5);
        rotate_by_hadamard(y, 2, 1, dim);
        floats_near(y, in[0], (size_t)dim, 1e-6);
        floats_near(y + dim, in[1], (size_t)dim, 1e-6);
    }
}
END_TEST

START_TEST(rmsnorm_watches_for_what_is_no_number)
{
    const float x[4][2] = {{1, 2}, {NAN, 1}, {1, -INFINITY}, {1e30f, 0}}, w[2] = {1, 1}; /* 1e60 is none in f32 */
    const int32_t before[4] = {5, 5, 5, 5};
    int32_t got[4];
    dlab_rmsnorm_args a = {.x = buffer_of(&f, x, sizeof x),
                           .w = buffer_of(&f, w, sizeof w),
                           .y = buffer_of(&f, NULL, sizeof x),
                           .watch = buffer_of(&f, before, sizeof before),
                           .n_rows = 4,
                           .dim = 2,
                           .watch_first = true};
    submit_ok(dlab_submit_rmsnorm(f.dev, a, &err), &err);
    read_back(&f, got, a.watch, sizeof got);
    ck_assert_mem_eq(got, ((const int32_t[]){0, 1, 1, 1}), sizeof got);
    const float y[4][2] = {{INFINITY, 2}, {1, 1}, {NAN, 1}, {0, 0}};
    a.x = buffer_of(&f, y, sizeof y);
    a.watch = buffer_of(&f, (const int32_t[]){0, 1, 0, 0}, sizeof got);
    a.watch_first = false; /* what came up before stays */
    submit_ok(dlab_submit_rmsnorm(f.dev, a, &err), &err);
    read_back(&f, got, a.watch, sizeof got);
    ck_assert_mem_eq(got, ((const int32_t[]){1, 1, 1, 0}), sizeof got);
}
END_TEST

static void quantize(const float *x, size_t n_blocks, dlab_qact_block *out)
{
    const dlab_at y = buffer_of(&f, NULL, n_blocks * sizeof *out);
    const dlab_quant_act_args a = {.x = buffer_of(&f, x, n_blocks * 32 * sizeof *x),
                                   .y = y,
                                   .n_rows = 1,
                                   .k = (int32_t)n_blocks * 32,
                                   .to = DLAB_ACT_INT8};
    submit_ok(dlab_submit_quant_act(f.dev, a, &err), &err);
    read_back(&f, out, y, n_blocks * sizeof *out);
}

START_TEST(quant_act_by_hand)
{
    float x[64] = {0};
    /* amax 254: scale 2 */
    x[0] = -254;
    x[1] = 5;  /* 2.5: away from zero, to 3 */
    x[2] = -5; /* to −3 */
    x[3] = 0.9f;
    x[31] = 253;
    dlab_qact_block b[2];
    quantize(x, 2, b);
    ck_assert_float_eq(b[0].scale, 2);
    ck_assert_int_eq(b[0].q[0], -127);
    ck_assert_int_eq(b[0].q[1], 3);
    ck_assert_int_eq(b[0].q[2], -3);
    ck_assert_int_eq(b[0].q[3], 0);
    ck_assert_int_eq(b[0].q[31], 127); /* 126.5 */
    ck_assert_float_eq(b[0].scale_sum, 0);
    ck_assert_float_eq(b[1].scale, 0); /* zeros stay zeros */
    ck_assert_float_eq(b[1].scale_sum, 0);
    for (int i = 0; i < 32; i++) ck_assert_int_eq(b[1].q[i], 0);
    for (int i = 0; i < 32; i++) x[i] = 127;
    quantize(x, 1, b);
    ck_assert_float_eq(b[0].scale_sum, 32 * 127);
}
END_TEST

START_TEST(quant_act_of_odd_numbers)
{
    float x[96] = {0};
    x[3] = NAN;
    x[4] = 7;
    x[32 + 5] = INFINITY;
    x[64] = 0x1p-149f * 190; /* scale rounds to one subnormal step: the quotient 190 is cut to 127 */
    x[65] = -x[64];
    dlab_qact_block b[3];
    quantize(x, 3, b);
    for (int i = 0; i < 2; i++) {
        ck_assert(!isfinite(b[i].scale));
        ck_assert(isnan(b[i].scale_sum));
        for (int j = 0; j < 32; j++) ck_assert_int_eq(b[i].q[j], 0);
    }
    ck_assert(b[2].scale > 0);
    ck_assert_int_eq(b[2].q[0], 127);
    ck_assert_int_eq(b[2].q[1], -127);
}
END_TEST

START_TEST(matmul_f32_by_hand)
{
    const float x[2][3] = {{1, 2, 3}, {-1, 0, 0.5f}}, w[2][3] = {{1, 1, 1}, {2, 0, -4}}, y0[4] = {100, 200, 300, 400};
    const dlab_at y = buffer_of(&f, y0, sizeof y0);
    dlab_matmul_args a = {.x = buffer_of(&f, x, sizeof x),
                          .y = y,
                          .w = {.at = buffer_of(&f, w, sizeof w), .dtype = DLAB_F32, .n = 2, .k = 3},
                          .n_rows = 2};
    submit_ok(dlab_submit_matmul(f.dev, a, &err), &err);
    float got[4];
    read_back(&f, got, y, sizeof got);
    floats_near(got, (const double[]){6, -10, -0.5, -4}, 4, 0);
    a.accumulate = true;
    submit_ok(dlab_submit_matmul(f.dev, a, &err), &err);
    read_back(&f, got, y, sizeof got);
    floats_near(got, (const double[]){12, -20, -1, -8}, 4, 0);
}
END_TEST

/* x: scale 0.5, q[0] = 4, q[16] = −2; w (Q4_1): 0.5·q − 2 with q[0] = 6, q[16] = 15, else 0.
 * Σ = 0.5·(4·(0.5·6 − 2) + −2·(0.5·15 − 2)) = 0.5·(4 − 11) = −3.5 */
START_TEST(matmul_of_quantized_activations_by_hand)
{
    dlab_qact_block x = {.scale = 0.5f, .scale_sum = 1};
    x.q[0] = 4;
    x.q[16] = -2;
    unsigned char w[20] = {0};
    put_u16(w, F16_HALF);
    put_u16(w + 2, F16_M2);
    w[4] = 0xF6;
    const dlab_at y = buffer_of(&f, NULL, sizeof(float));
    const dlab_matmul_args a = {.x = buffer_of(&f, &x, sizeof x),
                                .y = y,
                                .w = {.at = buffer_of(&f, w, sizeof w), .dtype = DLAB_Q4_1, .n = 1, .k = 32},
                                .n_rows = 1,
                                .input = DLAB_ACT_INT8};
    submit_ok(dlab_submit_matmul(f.dev, a, &err), &err);
    float got;
    read_back(&f, &got, y, sizeof got);
    ck_assert_float_eq(got, -3.5f);
}
END_TEST

START_TEST(bf16_inputs_by_hand)
{
    const float x[2][3] = {{0x1.01p0f, 0x1.03p0f, -3}, {0x1p-149f * 0x18000, 3e38f * 2, NAN}};
    uint16_t h[2][4];
    memset(h, 0xff, sizeof h);
    const dlab_at rounded = buffer_of(&f, h, sizeof h);
    const dlab_quant_act_args q = {
        .x = buffer_of(&f, x, sizeof x), .y = rounded, .n_rows = 2, .k = 3, .to = DLAB_ACT_BF16};
    submit_ok(dlab_submit_quant_act(f.dev, q, &err), &err);
    read_back(&f, h, rounded, sizeof h);
    ck_assert_mem_eq(h[0], ((const uint16_t[]){0x3f80, 0x3f82, 0xc040, 0}), sizeof h[0]);
    ck_assert_mem_eq(h[1], ((const uint16_t[]){0x0002, 0x7f80}), 4); /* 1.5 of the least number, to even */
    ck_assert_uint_eq(h[1][2] & 0x7fc0, 0x7fc0);
    ck_assert_uint_eq(h[1][3], 0);
    const uint16_t w[2][3] = {{0x3f80, 0x4000, 0x3f00}, {0, 0, 0xbf80}}; /* 1, 2, 0.5; 0, 0, −1 */
    const dlab_at y = buffer_of(&f, NULL, 2 * sizeof(float));
    const dlab_matmul_args a = {.x = rounded,
                                .y = y,
                                .w = {.at = buffer_of(&f, w, sizeof w), .dtype = DLAB_BF16, .n = 2, .k = 3},
                                .n_rows = 1,
                                .input = DLAB_ACT_BF16};
    submit_ok(dlab_submit_matmul(f.dev, a, &err), &err);
    float got[2];
    read_back(&f, got, y, sizeof got);
    floats_near(got, (const double[]){1 + 2 * 0x1.04p0 - 1.5, 3}, 2, 0);
}
END_TEST

/* At position 2 of the table the first pair turns by 90° and the second by 180°. */
static void rotate(bool norm, float *x, size_t n, int heads, int head_dim, int rot_dim)
{
    const float table[3][2][2] = {{{1, 0}, {1, 0}}, {{9, 9}, {9, 9}}, {{0, 1}, {-1, 0}}};
    small_desc d = desc_of(2, 1, 0, 0);
    d.rows[0].pos = 0;
    d.rows[1].pos = 2;
    const dlab_at at = buffer_of(&f, x, n * sizeof *x);
    const dlab_rope_args a = {.x = at,
                              .table = buffer_of(&f, table, sizeof table),
                              .desc = buffer_of(&f, &d, sizeof d),
                              .n_rows = 2,
                              .n_heads = heads,
                              .head_dim = head_dim,
                              .rot_dim = rot_dim,
                              .norm = norm};
    submit_ok(dlab_submit_rope(f.dev, a, &err), &err);
    read_back(&f, x, at, n * sizeof *x);
}

START_TEST(rope_norm_turns_neighbours)
{
    float x[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 4}};
    rotate(true, &x[0][0], 8, 1, 4, 4);
    floats_near(&x[0][0], (const double[]){1, 2, 3, 4, -2, 1, -3, -4}, 8, 0);
}
END_TEST

START_TEST(rope_neox_turns_halves)
{
    float x[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 4}};
    rotate(false, &x[0][0], 8, 1, 4, 4);
    floats_near(&x[0][0], (const double[]){1, 2, 3, 4, -3, -2, 1, -4}, 8, 0);
}
END_TEST

START_TEST(rope_leaves_the_rest_of_a_head_alone)
{
    float x[2][2][6] = {{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}}, {{1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}}};
    rotate(false, &x[0][0][0], 24, 2, 6, 4);
    floats_near(&x[1][0][0], (const double[]){-3, -2, 1, -4, 5, 6, -30, -20, 10, -40, 50, 60}, 12, 0);
    floats_near(&x[0][1][0], (const double[]){1, 2, 3, 4, 5, 6}, 6, 0);
}
END_TEST

/* silu(0) = 0; silu(ln 3) = ln 3 · 3/4; silu(−ln 3) = −ln 3 / 4 */
START_TEST(swiglu_by_hand)
{
    const float ln3 = 1.0986123f, gate[4] = {0, ln3, -ln3, 100}, up[4] = {5, 2, 4, -1};
    const dlab_at g = buffer_of(&f, gate, sizeof gate);
    const dlab_swiglu_args a = {.gate = g, .up = buffer_of(&f, up, sizeof up), .out = g, .n_rows = 1, .dim = 4};
    submit_ok(dlab_submit_swiglu(f.dev, a, &err), &err);
    float got[4];
    read_back(&f, got, g, sizeof got);
    floats_near(got, (const double[]){0, 1.0986123 * 1.5, -1.0986123, -100}, 4, 1e-7);
}
END_TEST

START_TEST(gather_takes_the_wanted_rows)
{
    const float x[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    small_desc d = desc_of(3, 1, 0, 3);
    d.logits[0].row = 0;
    d.logits[1].row = 2;
    d.logits[2].row = 1;
    const dlab_at out = buffer_of(&f, NULL, 4 * sizeof(float));
    const dlab_gather_args a = {.x = buffer_of(&f, x, sizeof x),
                                .out = out,
                                .desc = buffer_of(&f, &d, sizeof d),
                                .first = 1,
                                .n_logits = 2,
                                .dim = 2};
    submit_ok(dlab_submit_gather(f.dev, a, &err), &err);
    float got[4];
    read_back(&f, got, out, sizeof got);
    floats_near(got, (const double[]){5, 6, 3, 4}, 4, 0);
}
END_TEST

START_TEST(operands_that_leave_their_buffer_are_refused)
{
    const dlab_at small = buffer_of(&f, NULL, 4), large = buffer_of(&f, NULL, 64);
    const dlab_swiglu_args a = {.gate = large, .up = small, .out = large, .n_rows = 1, .dim = 2};
    ck_assert_int_eq(dlab_submit_swiglu(f.dev, a, &err), DLAB_EINTERNAL);
    ck_assert_str_eq(err.msg, "op swiglu, operand 1: 8 bytes at 0 leave a buffer of 4");
    ck_assert_uint_eq(f.dev->ops->launches(f.dev), 0);
    ck_assert_str_eq(f.dev->ops->variant(f.dev), "ref");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ref_rows");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, q8_0_is_decoded);
    tcase_add_test(t, q4_0_is_decoded);
    tcase_add_test(t, q4_1_is_decoded);
    tcase_add_test(t, embed_takes_the_rows_of_the_tokens);
    tcase_add_test(t, rmsnorm_by_hand);
    tcase_add_test(t, rmsnorm_watches_for_what_is_no_number);
    tcase_add_test(t, hadamard_by_hand);
    tcase_add_test(t, hadamard_keeps_products);
    tcase_add_test(t, quant_act_by_hand);
    tcase_add_test(t, quant_act_of_odd_numbers);
    tcase_add_test(t, matmul_f32_by_hand);
    tcase_add_test(t, matmul_of_quantized_activations_by_hand);
    tcase_add_test(t, bf16_inputs_by_hand);
    tcase_add_test(t, rope_norm_turns_neighbours);
    tcase_add_test(t, rope_neox_turns_halves);
    tcase_add_test(t, rope_leaves_the_rest_of_a_head_alone);
    tcase_add_test(t, swiglu_by_hand);
    tcase_add_test(t, gather_takes_the_wanted_rows);
    tcase_add_test(t, operands_that_leave_their_buffer_are_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

/* Products whose weights and inputs are all the lowest, all the highest, or each in turn: whatever sum of products has too
 * few bits anywhere shows here, and all results are whole numbers that f32 holds exactly. On every instruction set, with
 * outputs that do not fill a vector, 49152 of them once, from aligned and from unaligned buffers. */
#include <stdio.h>

#include "test_cpu_lab.h"

enum { LOWEST, HIGHEST, TURNS, PATTERNS };

static const dlab_dtype types[] = {DLAB_Q4_0, DLAB_Q4_1, DLAB_Q8_0};
static const struct {
    int32_t rows, n, k;
} shapes[] = {{1, 33, 32}, {5, 17, 576}, {1, 3, 1376}, {9, 47, 1376}, {40, 33, 1376}, {2, 49152, 32}};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static int value_at(int pattern, int64_t i, int lowest, int highest)
{
    return pattern == LOWEST || (pattern == TURNS && i % 2 == 0) ? lowest : highest;
}

static int weight_at(dlab_dtype t, int64_t output, int64_t i)
{
    return t == DLAB_Q8_0 ? value_at((int)(output % PATTERNS), i, -128, 127)
                          : value_at((int)(output % PATTERNS), i, -8, 7);
}

static int input_at(int64_t row, int64_t i) { return value_at((int)(row % PATTERNS), i, -127, 127); }

/* Output o of inputs k as blocks of scale 1; Q4_1 with a minimum of −8. */
static void fill_row(uint8_t *p, dlab_dtype t, int64_t o, int64_t k)
{
    const uint16_t one = dlab_f32_to_f16(1), least = dlab_f32_to_f16(-8);
    for (int64_t i = 0; i < k; i += 32, p += dlab_dtype_block_bytes(t)) {
        uint8_t *q = p + 2;
        memcpy(p, &one, 2);
        if (t == DLAB_Q4_1) {
            memcpy(q, &least, 2);
            q += 2;
        }
        for (int j = 0; j < 32 && t == DLAB_Q8_0; j++) q[j] = (uint8_t)weight_at(t, o, i + j);
        for (int j = 0; j < 16 && t != DLAB_Q8_0; j++)
            q[j] = (uint8_t)((weight_at(t, o, i + j) + 8) | (weight_at(t, o, i + j + 16) + 8) << 4);
    }
}

static dlab_at put_inputs(lab *l, dlab_act act, int32_t rows, int32_t k)
{
    const size_t n = (size_t)rows * (size_t)k;
    float *x = malloc(n * sizeof *x);
    dlab_qact_block *q = calloc(n / DLAB_QACT_BLOCK, sizeof *q);
    for (size_t i = 0; i < n; i++) {
        const int v = input_at((int64_t)i / k, (int64_t)i % k);
        dlab_qact_block *b = q + i / DLAB_QACT_BLOCK;
        x[i] = (float)v;
        b->scale = 1;
        b->scale_sum += (float)v;
        b->q[i % DLAB_QACT_BLOCK] = (int8_t)v;
    }
    const dlab_at at = lab_put(l, act == DLAB_ACT_F32 ? (void *)x : q, dlab_act_bytes(act, rows, k));
    free(x);
    free(q);
    return at;
}

static void check_product(lab *l, dlab_dtype t, size_t shape, dlab_act act, const char *isa)
{
    const int32_t rows = shapes[shape].rows, n = shapes[shape].n, k = shapes[shape].k;
    const size_t row_bytes = dlab_dtype_bytes(t, k), n_out = (size_t)rows * (size_t)n;
    double want[PATTERNS][PATTERNS] = {0};
    for (int r = 0; r < PATTERNS; r++)
        for (int o = 0; o < PATTERNS; o++)
            for (int64_t i = 0; i < k; i++) want[r][o] += input_at(r, i) * weight_at(t, o, i);
    uint8_t *w = malloc((size_t)n * row_bytes);
    for (int64_t o = 0; o < n; o++) fill_row(w + (size_t)o * row_bytes, t, o, k);
    float *y = malloc(n_out * sizeof *y);
    memset(y, 0xff, n_out * sizeof *y);
    const dlab_at out = lab_put(l, y, n_out * sizeof *y);
    dlab_matmul_args a = {
        .x = put_inputs(l, act, rows, k), .y = out, .w = lab_weights(l, w, t, n, k), .n_rows = rows, .input = act};
    lab_submit(l, DLAB_OP_matmul, &a);
    lab_get(l, out, y, n_out * sizeof *y);
    for (int64_t i = 0; i < (int64_t)n_out; i++)
        ck_assert_msg((double)y[i] == want[i / n % PATTERNS][i % n % PATTERNS],
                      "%s, %s [%d, %d], row %d, output %d: %.9g, expected %.9g", isa, dlab_dtype_name(t), n, k,
                      (int)(i / n), (int)(i % n), (double)y[i], want[i / n % PATTERNS][i % n % PATTERNS]);
    lab_clear(l);
    free(w);
    free(y);
}

START_TEST(sums_have_room_for_the_extremes)
{
    for (int i = 0; dlab_isa_list[i]; i++) {
        if (!dlab_isa_supported(dlab_isa_list[i])) continue;
        lab l = lab_open("cpu", dlab_isa_list[i], 2);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            for (size_t shape = 0; shape < N_SHAPES; shape++) {
                l.shift = shape % 2 ? 4 : 0;
                check_product(&l, types[t], shape, DLAB_ACT_INT8, dlab_isa_list[i]);
                check_product(&l, types[t], shape, DLAB_ACT_F32, dlab_isa_list[i]);
            }
        }
        lab_close(&l);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpu extremes");
    TCase *t = tcase_create("products");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, sums_have_room_for_the_extremes);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

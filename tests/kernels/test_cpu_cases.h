/* For each op a list of cases: inputs of fixed seeds, run on any device. A case's outcome carries the tolerance that
 * kernels/op.h states. */
#ifndef DLAB_TESTS_KERNELS_TEST_CPU_CASES_H
#define DLAB_TESTS_KERNELS_TEST_CPU_CASES_H

#include "kernels/ref/ref.h"
#include "test_cpu_attn_case.h"
#include "test_cpu_write_case.h"

static inline outcome case_embed(lab *l, int variant)
{
    static const struct {
        dlab_dtype t;
        int k;
    } of[] = {{DLAB_F32, 576},  {DLAB_F16, 576},   {DLAB_BF16, 77}, {DLAB_F16, 33},
              {DLAB_Q8_0, 576}, {DLAB_Q4_0, 1376}, {DLAB_Q4_1, 64}, {DLAB_F32, 1}};
    if (variant >= 8) return (outcome){0};
    const int n = 11, rows = 5, k = of[variant].k;
    dlab_rng r;
    dlab_rng_seed(&r, (uint64_t)variant);
    size_t bytes, desc_bytes;
    uint8_t *w = random_weights(&r, of[variant].t, n, k, &bytes);
    dlab_desc_head *d = new_desc(rows, 0, 0, 0, &desc_bytes);
    for (int i = 0; i < rows; i++) desc_row(d, i)->token = i * 7 % n;
    dlab_embed_args a = {.table = {.at = lab_put(l, w, bytes), .dtype = of[variant].t, .n = n, .k = k}, .n_rows = rows};
    const dlab_at out = lab_put(l, NULL, (size_t)rows * (size_t)k * sizeof(float));
    a.desc = lab_put(l, d, desc_bytes);
    a.out = out;
    lab_submit(l, DLAB_OP_embed, &a);
    free(w);
    free(d);
    return floats_outcome(l, out, (size_t)rows * (size_t)k, 0, 0);
}

/* The outcome ends with the watch: rows with a NaN, an infinity and an overflow are in it; what was seen before stays. */
static inline outcome case_rmsnorm(lab *l, int variant)
{
    static const int dims[] = {576, 1, 33, 80, 1376, 1536};
    if (variant >= 9) return (outcome){0};
    const bool in_place = variant == 6, watch = variant > 6;
    const int dim = dims[variant % 6], rows = variant % 2 && !watch ? 1 : 5;
    const size_t n = (size_t)dim * (size_t)rows;
    dlab_rng r;
    dlab_rng_seed(&r, 11);
    float *x = random_floats(&r, n, 3), *w = random_floats(&r, (size_t)dim, 1);
    const int32_t seen[5] = {1, 7, 0, 0, 0};
    if (watch) {
        x[2 * dim] = NAN;
        x[4 * dim - 1] = -INFINITY;
        x[4 * dim] = 3e38f;
    }
    dlab_rmsnorm_args a = {.x = lab_put(l, x, n * sizeof *x), .n_rows = rows, .dim = dim, .eps = 1e-5f};
    a.w = lab_put(l, w, (size_t)dim * sizeof *w);
    a.y = in_place ? a.x : lab_put(l, NULL, n * sizeof *x);
    if (watch) a.watch = lab_put(l, seen, sizeof seen);
    a.watch_first = variant == 8;
    const dlab_at y = a.y, at = a.watch;
    lab_submit(l, DLAB_OP_rmsnorm, &a);
    free(x);
    free(w);
    outcome o = floats_outcome(l, y, watch ? (size_t)dim * 2 : n, 2e-6, 0);
    if (!watch) return o;
    int32_t got[5];
    lab_get(l, at, got, sizeof got);
    o.value = realloc(o.value, (o.n + 5) * sizeof *o.value);
    o.allow = realloc(o.allow, (o.n + 5) * sizeof *o.allow);
    for (int i = 0; i < 5; i++) {
        o.value[o.n] = got[i];
        o.allow[o.n++] = 0;
    }
    return o;
}

/* Rows of everything that is special: zeros, true and near halves, subnormals, infinity, NaN. */
static inline void fill_quant_input(float *x, int k, int rows)
{
    for (int i = 0; i < k; i++) {
        const float half = (float)(i % 127 - 63) + 0.5f;
        if (rows > 1) x[k + i] = 0;
        if (rows > 2) x[2 * k + i] = i % 32 == 0 ? 127 : half;
        if (rows > 3) x[3 * k + i] = i % 32 == 0 ? -127 : nextafterf(half, i % 2 ? 1e9f : -1e9f);
        if (rows > 4) x[4 * k + i] = (float)(i % 191 - 95) * 1.4e-45f * 2;
        if (rows > 5) x[5 * k + i] = i == 3 ? NAN : i == 35 ? INFINITY : i == 64 ? -INFINITY : (float)i;
        if (rows > 6) x[6 * k + i] = i % 32 == 31 ? 3e38f : -2e38f;
    }
}

/* To bf16; an odd row ends with a zero, whatever was there before. */
static inline outcome rounded_outcome(lab *l, int variant)
{
    static const int ks[] = {576, 1, 33};
    if (variant >= 3) return (outcome){0};
    const int k = ks[variant], rows = 7;
    const size_t n = (size_t)rows * (size_t)dlab_bf16_row(k);
    dlab_rng r;
    dlab_rng_seed(&r, (uint64_t)variant + 5);
    float *x = random_floats(&r, (size_t)rows * (size_t)k, 2);
    fill_quant_input(x, k, rows);
    x[0] = 0x1.01p0f; /* between two bf16, even below; and one more than the largest */
    x[k - 1] = k > 1 ? 0x1.ffp127f : 0x1.03p-140f;
    uint16_t *y = malloc(n * sizeof *y);
    memset(y, 0xff, n * sizeof *y);
    const dlab_at out = lab_put(l, y, n * sizeof *y);
    dlab_quant_act_args a = {lab_put(l, x, (size_t)rows * (size_t)k * sizeof *x), out, rows, k, DLAB_ACT_BF16};
    lab_submit(l, DLAB_OP_quant_act, &a);
    lab_get(l, out, y, n * sizeof *y);
    outcome o = new_outcome(n);
    for (size_t i = 0; i < n; i++) o.value[i] = y[i];
    free(x);
    free(y);
    return o;
}

static inline outcome case_quant_act(lab *l, int variant)
{
    static const int ks[] = {576, 32, 1376};
    if (variant >= 3) return rounded_outcome(l, variant - 3);
    const int k = ks[variant], rows = variant == 1 ? 1 : 7;
    const size_t n = (size_t)k * (size_t)rows, blocks = n / DLAB_QACT_BLOCK;
    dlab_rng r;
    dlab_rng_seed(&r, (uint64_t)variant + 3);
    float *x = random_floats(&r, n, 2);
    fill_quant_input(x, k, rows);
    const dlab_at y = lab_put(l, NULL, blocks * sizeof(dlab_qact_block));
    dlab_quant_act_args a = {lab_put(l, x, n * sizeof *x), y, rows, k, DLAB_ACT_INT8};
    lab_submit(l, DLAB_OP_quant_act, &a);
    dlab_qact_block *b = calloc(blocks, sizeof *b);
    lab_get(l, y, b, blocks * sizeof *b);
    outcome o = new_outcome(blocks * 34);
    for (size_t i = 0; i < blocks; i++) {
        o.value[i * 34] = (double)b[i].scale;
        o.value[i * 34 + 1] = (double)b[i].scale_sum;
        for (size_t j = 0; j < 32; j++) o.value[i * 34 + 2 + j] = b[i].q[j];
    }
    free(b);
    free(x);
    return o;
}

typedef struct {
    int rows, n, k;
    dlab_dtype t;
    dlab_act input;
    bool accumulate;
    bool odd; /* bf16: among inputs and weights are subnormal numbers, and an infinity and a NaN among the inputs */
} matmul_case;

static inline double input_value(const matmul_case *c, const void *x, int64_t row, int64_t k)
{
    const int64_t i = row * c->k + k;
    if (c->input == DLAB_ACT_F32) return (double)((const float *)x)[i];
    if (c->input == DLAB_ACT_BF16)
        return (double)dlab_bf16_to_f32(((const uint16_t *)x)[row * dlab_bf16_row(c->k) + k]);
    const dlab_qact_block *b = (const dlab_qact_block *)x + i / DLAB_QACT_BLOCK;
    return (double)b->scale * b->q[i % DLAB_QACT_BLOCK];
}

/* Row 0 has subnormal numbers of both signs, row 1 only numbers whose products are subnormal, row 2 an infinity, row 3 NaN. */
static inline void make_odd(const matmul_case *c, uint16_t *x, uint16_t *w)
{
    const int64_t row = dlab_bf16_row(c->k);
    for (int64_t i = 0; i < c->k; i++) {
        if (i % 3 == 0) x[i] = (uint16_t)(i % 2 << 15 | (i * 5 + 1) % 128);
        x[row + i] = dlab_f32_to_bf16(i % 2 ? -0x1p-126f : 0x1.8p-125f);
    }
    x[2 * row + c->k - 1] = 0x7f80;
    x[3 * row + 1] = 0xffc1;
    for (int64_t o = 0; o < c->n; o++) w[o * c->k] = (uint16_t)(o % 2 << 15 | (o * 7 + 1) % 128);
}

/* What kernels/op.h allows for output n of a row. */
static inline double product_tolerance(const matmul_case *c, const dlab_matrix *w, const void *x, int64_t row,
                                       int64_t n)
{
    const double least = 0x1p-126; /* normal number */
    double sum = 0, flushed = 0;
    for (int64_t k = 0; k < c->k; k++) {
        const double a = fabs(input_value(c, x, row, k)), b = fabs(dlab_ref_weight(w, n, k));
        sum += a * b;
        if (a < least || b < least) flushed += a * b;
    }
    return 1e-5 * sum + (c->input == DLAB_ACT_BF16 ? flushed + c->k * least : 0);
}

static inline outcome matmul_outcome(lab *l, const matmul_case *c, int first, int rows)
{
    dlab_rng r;
    dlab_rng_seed(&r, (uint64_t)c->n + (uint64_t)c->k);
    size_t w_bytes;
    const size_t row_bytes = dlab_act_bytes(c->input, 1, c->k);
    uint8_t *w = random_weights(&r, c->t, c->n, c->k, &w_bytes);
    char *x = random_inputs(&r, c->input, c->rows, c->k);
    if (c->odd) make_odd(c, (uint16_t *)(void *)x, (uint16_t *)(void *)w);
    float *y = random_floats(&r, (size_t)c->rows * (size_t)c->n, 1);
    const size_t n = (size_t)rows * (size_t)c->n;
    const dlab_at out = lab_put(l, y + first * c->n, n * sizeof *y);
    dlab_matmul_args a = {.y = out, .n_rows = rows, .input = c->input, .accumulate = c->accumulate};
    a.x = lab_put(l, x + (size_t)first * row_bytes, (size_t)rows * row_bytes);
    a.w = lab_weights(l, w, c->t, c->n, c->k);
    lab_submit(l, DLAB_OP_matmul, &a);
    outcome o = floats_outcome(l, out, n, 0, 0);
    const dlab_matrix host = {.at = {{w, w_bytes}, 0}, .dtype = c->t, .n = c->n, .k = c->k};
    for (size_t i = 0; i < n && l->dev->ops == &dlab_device_ref; i++) {
        const int64_t row = first + (int64_t)i / c->n;
        o.allow[i] = product_tolerance(c, &host, x, row, (int64_t)i % c->n);
        if (c->accumulate) o.allow[i] += fabs(o.value[i]) * 1e-7;
        if (c->odd) ck_assert(isfinite(o.value[i]) == (row != 2 && row != 3));
    }
    free(w);
    free(x);
    free(y);
    lab_clear(l);
    return o;
}

static const matmul_case matmul_cases[] = {
    {1, 192, 576, DLAB_F32, DLAB_ACT_F32, false, false},    {5, 17, 100, DLAB_F32, DLAB_ACT_F32, true, false},
    {3, 1, 1, DLAB_F32, DLAB_ACT_F32, false, false},        {1, 50, 577, DLAB_F16, DLAB_ACT_F32, false, false},
    {9, 16, 80, DLAB_F16, DLAB_ACT_F32, true, false},       {7, 33, 7, DLAB_BF16, DLAB_ACT_F32, false, false},
    {66, 20, 64, DLAB_BF16, DLAB_ACT_F32, false, false},    {33, 19, 1376, DLAB_Q8_0, DLAB_ACT_F32, false, false},
    {1, 40, 576, DLAB_Q4_0, DLAB_ACT_F32, true, false},     {6, 21, 1536, DLAB_Q4_1, DLAB_ACT_F32, false, false},
    {1, 100, 576, DLAB_Q8_0, DLAB_ACT_INT8, false, false},  {130, 17, 64, DLAB_Q8_0, DLAB_ACT_INT8, true, false},
    {2, 31, 1376, DLAB_Q8_0, DLAB_ACT_INT8, false, false},  {1, 67, 1536, DLAB_Q4_0, DLAB_ACT_INT8, false, false},
    {33, 16, 32, DLAB_Q4_0, DLAB_ACT_INT8, true, false},    {1, 192, 576, DLAB_Q4_1, DLAB_ACT_INT8, true, false},
    {35, 30, 1536, DLAB_Q4_1, DLAB_ACT_INT8, false, false}, {3, 3, 1376, DLAB_Q4_1, DLAB_ACT_INT8, false, false},
    {1, 192, 576, DLAB_BF16, DLAB_ACT_BF16, false, false},  {3, 1, 1, DLAB_BF16, DLAB_ACT_BF16, false, false},
    {9, 33, 7, DLAB_BF16, DLAB_ACT_BF16, true, false},      {67, 21, 98, DLAB_BF16, DLAB_ACT_BF16, false, false},
    {2, 19, 1376, DLAB_BF16, DLAB_ACT_BF16, true, false},   {5, 18, 65, DLAB_BF16, DLAB_ACT_BF16, false, true},
};
#define N_MATMUL_CASES ((int)(sizeof matmul_cases / sizeof matmul_cases[0]))

static inline outcome case_matmul(lab *l, int variant)
{
    if (variant >= N_MATMUL_CASES) return (outcome){0};
    return matmul_outcome(l, &matmul_cases[variant], 0, matmul_cases[variant].rows);
}

static inline outcome case_rope(lab *l, int variant)
{
    static const struct {
        int dim, rot;
        bool norm;
    } of[] = {{64, 64, true}, {64, 64, false}, {80, 32, false}, {80, 30, true}};
    if (variant >= 4) return (outcome){0};
    const int rows = 7, heads = variant == 2 ? 1 : 3, dim = of[variant].dim, rot = of[variant].rot, positions = 50;
    const size_t n = (size_t)rows * (size_t)heads * (size_t)dim;
    dlab_rng r;
    dlab_rng_seed(&r, 21);
    float *x = random_floats(&r, n, 1), *table = random_floats(&r, (size_t)positions * (size_t)rot, 1);
    for (int i = 0; i < positions * rot / 2; i++) {
        table[2 * i] = cosf((float)i);
        table[2 * i + 1] = sinf((float)i);
    }
    size_t desc_bytes;
    dlab_desc_head *d = new_desc(rows, 0, 0, 0, &desc_bytes);
    for (int i = 0; i < rows; i++) desc_row(d, i)->pos = i * 8;
    const dlab_at out = lab_put(l, x, n * sizeof *x);
    dlab_rope_args a = {out,
                        lab_put(l, table, (size_t)positions * (size_t)rot * sizeof *table),
                        lab_put(l, d, desc_bytes),
                        rows,
                        heads,
                        dim,
                        rot,
                        of[variant].norm};
    lab_submit(l, DLAB_OP_rope, &a);
    free(x);
    free(table);
    free(d);
    return floats_outcome(l, out, n, 2e-6, 1);
}

static inline outcome case_hadamard(lab *l, int variant)
{
    static const struct {
        int rows, heads, dim;
    } of[] = {{1, 3, 64}, {7, 2, 128}, {3, 9, 80}, {2, 1, 33}, {2, 5, 16}, {1, 1, 1}, {3, 2, 4}};
    if (variant >= 7) return (outcome){0};
    const int rows = of[variant].rows, heads = of[variant].heads, dim = of[variant].dim;
    const size_t n = (size_t)rows * (size_t)heads * (size_t)dim;
    dlab_rng r;
    dlab_rng_seed(&r, 33);
    float *x = random_floats(&r, n, 1);
    const dlab_at out = lab_put(l, x, n * sizeof *x);
    dlab_hadamard_args a = {out, rows, heads, dim};
    lab_submit(l, DLAB_OP_hadamard, &a);
    free(x);
    outcome o = floats_outcome(l, out, n, 0, 0);
    for (size_t i = 0; i < n; i++) o.allow[i] = 2e-6 * sqrt(dim);
    return o;
}

static inline outcome case_kv_write(lab *l, int variant)
{
    return variant < N_WRITE_CASES ? kv_write_outcome(l, &write_cases[variant]) : (outcome){0};
}

static inline outcome case_attn_fused(lab *l, int variant)
{
    return variant < N_ATTN_CASES ? attn_fused_outcome(l, &attn_cases[variant], -1) : (outcome){0};
}
static inline outcome case_attn_scores(lab *l, int variant)
{
    return variant < N_ATTN_CASES ? attn_unfused_outcome(l, &attn_cases[variant], DLAB_OP_attn_scores, -1)
                                  : (outcome){0};
}
static inline outcome case_attn_softmax(lab *l, int variant)
{
    return variant < N_ATTN_CASES ? attn_unfused_outcome(l, &attn_cases[variant], DLAB_OP_attn_softmax, -1)
                                  : (outcome){0};
}
static inline outcome case_attn_values(lab *l, int variant)
{
    return variant < N_ATTN_CASES ? attn_unfused_outcome(l, &attn_cases[variant], DLAB_OP_attn_values, -1)
                                  : (outcome){0};
}

static inline outcome case_swiglu(lab *l, int variant)
{
    static const struct {
        int rows, dim, in_place;
    } of[] = {{1, 1536, 0}, {3, 1001, 1}, {2, 5, 2}};
    if (variant >= 3) return (outcome){0};
    const size_t n = (size_t)of[variant].rows * (size_t)of[variant].dim;
    dlab_rng r;
    dlab_rng_seed(&r, 41);
    float *g = random_floats(&r, n, 5), *up = random_floats(&r, n, 1);
    static const float special[] = {0, -0.0f, -100, 100, -87.5f, 88.5f, -3e38f, 3e38f, NAN, 1e-30f};
    memcpy(g, special, (n < 10 ? n : 10) * sizeof *g);
    dlab_swiglu_args a = {.gate = lab_put(l, g, n * sizeof *g), .up = lab_put(l, up, n * sizeof *up)};
    a.out = of[variant].in_place == 1 ? a.gate : of[variant].in_place == 2 ? a.up : lab_put(l, NULL, n * sizeof *g);
    a.n_rows = of[variant].rows;
    a.dim = of[variant].dim;
    const dlab_at out = a.out;
    lab_submit(l, DLAB_OP_swiglu, &a);
    outcome o = floats_outcome(l, out, n, 3e-6, 0);
    for (size_t i = 0; i < n; i++)
        if (g[i] < -80) o.allow[i] = 1e-30; /* e⁻ˣ ends at 2¹²⁷ */
    free(g);
    free(up);
    return o;
}

static inline outcome case_gather(lab *l, int variant)
{
    if (variant >= 2) return (outcome){0};
    const int dim = variant ? 33 : 576, rows = 9, first = 1, n = 4;
    dlab_rng r;
    dlab_rng_seed(&r, 51);
    float *x = random_floats(&r, (size_t)rows * (size_t)dim, 1);
    size_t desc_bytes;
    dlab_desc_head *d = new_desc(0, 0, 0, first + n, &desc_bytes);
    for (int i = 0; i < first + n; i++) desc_logit(d, i)->row = (i * 5 + 3) % rows;
    const dlab_at out = lab_put(l, NULL, (size_t)n * (size_t)dim * sizeof *x);
    dlab_gather_args a = {
        lab_put(l, x, (size_t)rows * (size_t)dim * sizeof *x), out, lab_put(l, d, desc_bytes), first, n, dim};
    lab_submit(l, DLAB_OP_gather, &a);
    free(x);
    free(d);
    return floats_outcome(l, out, (size_t)n * (size_t)dim, 0, 0);
}

/* Logits of n rows: the second has ties, the third a NaN (in the last place), the fourth infinities. */
static inline float *sample_logits(dlab_rng *r, int n, int vocab)
{
    float *x = random_floats(r, (size_t)n * (size_t)vocab, 2);
    for (int i = 0; i < vocab && n > 1; i++) x[vocab + i] = roundf(x[vocab + i]);
    if (n > 1) x[vocab] = -0.0f;
    if (n > 2) x[3 * vocab - 1] = NAN;
    if (n > 3) x[3 * vocab] = INFINITY;
    if (n > 3) x[3 * vocab + 2] = -INFINITY;
    return x;
}

static inline outcome case_sample(lab *l, int variant)
{
    static const struct {
        int vocab, top_k;
        float temperature, top_p;
    } of[] = {{1000, 0, 0, 1}, {49152, 0, 0.8f, 0.9f}, {1000, 40, 1, 0.95f}, {1003, 1, 0.7f, 1}, {1003, 5, 2, 0},
              {50, 0, 1, 1},   {3, 7, 0.01f, 0.5f},    {1, 0, 1, 1},         {1000, 0, 0, 0}};
    if (variant >= 9) return (outcome){0};
    const int vocab = of[variant].vocab, n = vocab > 2000 ? 2 : 12, first = 2;
    dlab_rng r;
    dlab_rng_seed(&r, 61 + (uint64_t)variant);
    float *x = sample_logits(&r, n, vocab);
    size_t desc_bytes;
    dlab_desc_head *d = new_desc(0, 0, 0, first + n, &desc_bytes);
    const bool mixed = variant == 8; /* each row in a way of its own */
    for (int i = 0; i < first + n; i++) {
        dlab_desc_logit *row = desc_logit(d, i);
        row->draw = i == 7 ? UINT64_MAX : i == 8 ? 0 : dlab_rng_u64(&r);
        row->top_k = of[mixed ? i % 8 : variant].top_k;
        row->temperature = of[mixed ? i % 8 : variant].temperature;
        row->top_p = of[mixed ? i % 8 : variant].top_p;
    }
    const dlab_at tokens = lab_put(l, NULL, ((size_t)first + (size_t)n) * sizeof(int32_t));
    dlab_sample_args a = {.tokens = tokens, .first = first, .n_logits = n, .vocab = vocab, .draws = variant != 0};
    a.logits = lab_put(l, x, (size_t)n * (size_t)vocab * sizeof *x);
    a.desc = lab_put(l, d, desc_bytes);
    a.work = lab_put(l, NULL, (size_t)n * (size_t)vocab * 8);
    lab_submit(l, DLAB_OP_sample, &a);
    int32_t got[16];
    lab_get(l, tokens, got, ((size_t)first + (size_t)n) * sizeof *got);
    outcome o = new_outcome((size_t)first + (size_t)n);
    for (int i = 0; i < first + n; i++) o.value[i] = got[i];
    free(x);
    free(d);
    return o;
}

static inline outcome case_score(lab *l, int variant)
{
    if (variant >= 2) return (outcome){0};
    const int vocab = variant ? 4096 : 37, n = 3, first = 1;
    dlab_rng r;
    dlab_rng_seed(&r, 71);
    float *x = sample_logits(&r, variant ? n : 2, vocab);
    if (!variant) x = realloc(x, (size_t)n * (size_t)vocab * sizeof *x);
    if (!variant) memcpy(x + 2 * vocab, x, (size_t)vocab * sizeof *x);
    size_t desc_bytes;
    dlab_desc_head *d = new_desc(0, 0, 0, first + n, &desc_bytes);
    for (int i = 0; i < first + n; i++) desc_logit(d, i)->target = i == 2 ? -1 : i * 9;
    const dlab_at nll = lab_put(l, NULL, 4 * sizeof(double)), top1 = lab_put(l, NULL, 4 * sizeof(int32_t));
    dlab_score_args a = {
        lab_put(l, x, (size_t)n * (size_t)vocab * sizeof *x), nll, top1, lab_put(l, d, desc_bytes), first, n, vocab};
    lab_submit(l, DLAB_OP_score, &a);
    double got[4];
    int32_t best[4];
    lab_get(l, nll, got, sizeof got);
    lab_get(l, top1, best, sizeof best);
    outcome o = new_outcome(8);
    for (int i = 0; i < 4; i++) {
        o.value[i] = got[i];
        o.allow[i] = 1e-12 * fabs(got[i]);
        o.value[4 + i] = best[i];
    }
    free(x);
    free(d);
    return o;
}

/* No outcome (n = 0): the op has no such variant. */
typedef outcome (*case_fn)(lab *l, int variant);
static const case_fn cases[DLAB_OP_N] = {
#define CASE(name, args) [DLAB_OP_##name] = case_##name,
    DLAB_OP_LIST(CASE)
#undef CASE
};

static inline outcome run_case(lab *l, dlab_op op, int variant)
{
    outcome o = cases[op](l, variant);
    lab_clear(l);
    return o;
}

#endif

/* The oracle's kv_write in every format: the bytes are those that kernels/op.h describes, and what is read back is as near
 * as it promises. */
#include "tests/kernels/ref_kv_lab.h"

static ref_fixture f;
static void setup(void) { fixture_open(&f); }
static void teardown(void) { fixture_close(&f); }

/* One of very many: Check writes a note for each of its own. */
static void require(bool ok, const char *what, int t, int i, double got)
{
    if (!ok) ck_abort_msg("%s of token %d element %d: %.9g", what, t, i, got);
}

static kv_lab lab; /* large */
static dlab_rng rng;

static const int dims[] = {16, 32, 33, 80, 128};
static const int chunks[] = {1, 3, 11, 1, 1, 20, 2, 1};

typedef enum { NORMAL, CONSTANT, ZEROS, WILD, TINY, N_KINDS } kind;

/* WILD: an outlier among small numbers, infinities, NaN, −0. TINY: subnormals. */
static float value_of(kind k, int i)
{
    switch (k) {
    case CONSTANT:
        return -3.7f;
    case ZEROS:
        return i % 2 ? 0.0f : -0.0f;
    case WILD:
        return i % 61 == 7    ? 1e30f
               : i % 53 == 5  ? INFINITY
               : i % 53 == 30 ? -INFINITY
               : i % 47 == 3  ? NAN
               : i % 5 == 0   ? -0.0f
                              : (float)(dlab_rng_unit(&rng) - 0.5);
    case TINY:
        return (float)(dlab_rng_unit(&rng) - 0.5) * 0x1p-126f;
    default:
        return (float)((dlab_rng_unit(&rng) + dlab_rng_unit(&rng) - 1) * 4 + (i % 17 == 0 ? 20 : 0));
    }
}

static void fill(kind k, kv_case a, kv_case b, int dim, int n_chunks, void (*after)(void))
{
    static float x[2][LAB_TOKENS * LAB_HEADS * LAB_DIM];
    dlab_rng_seed(&rng, 4);
    lab_open(&lab, &f, a, b, dim);
    for (int c = 0; c < n_chunks; c++) {
        const int n = chunks[c] * LAB_HEADS * dim;
        for (int i = 0; i < n; i++) {
            x[0][i] = value_of(k, i);
            x[1][i] = value_of(k, i + 1);
        }
        lab_step(&lab, chunks[c], x[0], x[1]);
        if (after) after();
    }
}

/* ---- the bytes ---- */

/* Over all that shares a scale with element i of a token. */
static dlab_ref_range range_of(const lab_plane *l, int t, int g, int i)
{
    dlab_ref_range r = {0, 0};
    const bool by_group = l->c.scales == DLAB_SCALES_BLOCK || l->c.scales == DLAB_SCALES_CHANNEL;
    for (int s = 0; s < lab.len; s++) {
        if (l->c.scales == DLAB_SCALES_STEP ? l->step_of[s] != l->step_of[t]
            : by_group                      ? s / l->c.group != t / l->c.group
                                            : s != t)
            continue;
        for (int h = 0; h < LAB_HEADS; h++) {
            if (l->c.scales != DLAB_SCALES_STEP && h != g) continue;
            for (int j = 0; j < l->dim; j++) {
                const bool shares = l->c.scales == DLAB_SCALES_CHANNEL                          ? j == i
                                    : l->c.scales == DLAB_SCALES_TOKEN && l->c.dtype == DLAB_U4 ? j / 32 == i / 32
                                                                                                : true;
                if (shares) dlab_ref_range_add(&r, l->x[s][h][j]);
            }
        }
    }
    return r;
}

static void check_bytes(const lab_plane *l)
{
    for (int t = 0; t < l->sealed; t++) {
        for (int g = 0; g < LAB_HEADS; g++) {
            uint32_t meta = 0;
            for (int i = 0; i < l->dim; i++) {
                if (i % 32 == 0 || l->c.scales == DLAB_SCALES_CHANNEL)
                    meta = dlab_ref_meta(l->c.dtype, range_of(l, t, g, i));
                require(lab_meta(l, t, g, i) == meta, "the scale", t, i, (double)lab_scale(l, t, g, i));
                const int code = lab_code(l, t, g, i);
                require(code == dlab_ref_code(l->c.dtype, meta, l->x[t][g][i]), "the code", t, i, code);
            }
            for (int i = l->dim; l->c.dtype == DLAB_U4 && i % 32; i++)
                require(lab_code(l, t, g, i) == 0, "padding", t, i, lab_code(l, t, g, i));
        }
    }
}

/* Nothing is written but elements and scales of what is sealed, and the tail of this sequence. */
static void check_rest(const lab_plane *l)
{
    static bool written[1 << 18];
    memset(written, 0, sizeof written);
    const unsigned char *all = l->p.base.buf.ptr;
    for (int t = 0; t < l->sealed; t++) {
        for (int g = 0; g < LAB_HEADS; g++) {
            memset(written + (lab_elements(l, t, g) - all), 1, dlab_dtype_bytes(l->c.dtype, l->dim));
            for (int i = 0; i < l->dim && l->c.scales != DLAB_SCALES_NONE; i++)
                memset(written + (lab_meta_at(l, t, g, i) - all), 1, 4);
        }
    }
    for (size_t b = 0; b < l->p.base.buf.bytes; b++)
        if (!written[b] && all[b] != LAB_POISON) ck_abort_msg("byte %zu of %zu", b, l->p.base.buf.bytes);
    const unsigned char *tail = l->p.tail.buf.ptr;
    for (size_t b = 0; b < l->p.tail.buf.bytes; b++) {
        const int64_t own = (int64_t)(b - l->p.tail.off) - l->p.tail_seq_stride;
        if (own >= 0 && own % l->p.tail_head_stride < l->p.tail_head_stride - 6 && own < l->p.tail_seq_stride) continue;
        if (tail[b] != LAB_POISON) ck_abort_msg("byte %zu of the tails", b);
    }
}

/* And the oracle reads the bytes as they are meant. */
static void check_read_back(const lab_plane *l, bool keys)
{
    const dlab_kv_view view = lab_view(&lab);
    double got[LAB_DIM];
    for (int t = 0; t < lab.len; t++) {
        for (int g = 0; g < LAB_HEADS; g++) {
            (keys ? dlab_ref_cached_k : dlab_ref_cached_v)(&view, &lab.desc.head, 1, t, g, got);
            for (int i = 0; i < l->dim; i++) require(got[i] == lab_value(l, t, g, i), "the value read", t, i, got[i]);
        }
    }
}

static void check_step(void)
{
    check_read_back(&lab.k, true);
    check_read_back(&lab.v, false);
}

static kv_case other_case(int i) { return kv_cases[(i + 7) % (int)N_OF(kv_cases)]; }

START_TEST(every_byte_is_as_described)
{
    for (size_t d = 0; d < N_OF(dims); d++) {
        fill(NORMAL, kv_cases[_i], other_case(_i), dims[d], (int)N_OF(chunks), check_step);
        ck_assert_int_ge(lab.len, 40);
        ck_assert_int_ge(lab.k.sealed, 24);
        if (lab.k.c.scales != DLAB_SCALES_NONE) check_bytes(&lab.k);
        if (lab.v.c.scales != DLAB_SCALES_NONE) check_bytes(&lab.v);
        check_rest(&lab.k);
        check_rest(&lab.v);
        teardown();
        setup();
    }
}
END_TEST

/* ---- the bounds ---- */

static double bound_of(const lab_plane *l, int t, int g, int i)
{
    const double x = fabs((double)l->x[t][g][i]), slack = 1 + 0x1p-14;
    if (l->c.dtype == DLAB_F32) return 0;
    if (l->c.dtype == DLAB_F16) return fmax(x * 0x1p-11, 0x1p-25);
    if (l->c.dtype == DLAB_BF16) return fmax(x * 0x1p-8, 0x1p-134);
    const double scale = (double)lab_scale(l, t, g, i);
    if (scale == 0) return 255 * 0x1p-126; /* what is lost is below the smallest normal step */
    if (l->c.dtype == DLAB_E4M3) return fmax(x * 0x1p-4, scale * 0x1p-10) * slack;
    if (l->c.dtype == DLAB_E5M2) return fmax(x * 0x1p-3, scale * 0x1p-17) * slack;
    return scale / 2 * slack;
}

static void check_bounds(const lab_plane *l)
{
    for (int t = 0; t < lab.len; t++) {
        for (int g = 0; g < LAB_HEADS; g++) {
            for (int i = 0; i < l->dim; i++) {
                const double x = (double)l->x[t][g][i], got = lab_value(l, t, g, i);
                const bool scaled = l->c.scales != DLAB_SCALES_NONE;
                if (t >= l->sealed) { /* x is the f16 that the tail took */
                    require(got == x || (isnan(got) && isnan(x)), "the tail's value", t, i, got);
                    continue;
                }
                require(!scaled || isfinite(got), "the value", t, i, got);
                require(x != 0 || got == 0, "zero", t, i, got);
                require(!scaled || !isnan(x) || got == 0, "NaN", t, i, got);
                if (isfinite(x) && isfinite(got))
                    require(fabs(got - x) <= bound_of(l, t, g, i), "the error", t, i, got - x);
            }
        }
    }
}

START_TEST(values_come_back_within_the_bound)
{
    for (kind k = NORMAL; k < N_KINDS; k++) {
        for (size_t d = 0; d < N_OF(dims); d += 3) { /* 16 and 80 */
            fill(k, kv_cases[_i], kv_cases[_i], dims[d], (int)N_OF(chunks), NULL);
            check_bounds(&lab.k);
            check_bounds(&lab.v);
            if (k == ZEROS) {
                for (int t = 0; t < lab.k.sealed && lab.k.c.scales != DLAB_SCALES_NONE; t++)
                    ck_assert_uint_eq(lab_meta(&lab.k, t, 0, 0), 0);
            }
            teardown();
            setup();
        }
    }
}
END_TEST

/* Dimensions that are no multiple of a block of 32: each value within its bound, in every format, and the padding 0. */
START_TEST(bug_20_dimensions_that_are_no_multiple_of_a_block)
{
    static const int odd[] = {1, 2, 31, 33, 63, 65, 80, 97};
    for (size_t c = 0; c < N_OF(kv_cases); c++) {
        for (size_t d = 0; d < N_OF(odd); d++) {
            fill(NORMAL, kv_cases[c], kv_cases[c], odd[d], 4, NULL);
            check_bounds(&lab.k);
            if (lab.v.c.scales != DLAB_SCALES_NONE) check_bytes(&lab.v);
            teardown();
            setup();
        }
    }
}
END_TEST

/* A token is quantized from what this step brings, or from the f16 that the tail has: the ring is large enough that nothing
 * is overwritten before it is sealed, whatever the sizes of the steps. */
START_TEST(steps_larger_than_the_tail)
{
    static float x[LAB_TOKENS * LAB_HEADS * LAB_DIM];
    for (int first = 1; first <= 12; first++) {
        const kv_case c = {DLAB_U8, DLAB_SCALES_BLOCK, 4, 2};
        lab_open(&lab, &f, c, c, 16);
        for (size_t i = 0; i < N_OF(x); i++) x[i] = (float)(i % 97) - 40;
        lab_step(&lab, first, x, x);
        lab_step(&lab, 30, x, x);
        check_step();
        check_bytes(&lab.k);
        check_bounds(&lab.k);
        check_bounds(&lab.v);
        teardown();
        setup();
    }
}
END_TEST

/* A scale shared by a step: the sequences of the step do not share it with each other. */
START_TEST(each_sequence_of_a_step_has_its_own_scale)
{
    const float x[3][16] = {{1, -1}, {100, 7}, {2, 2}};
    small_desc d = desc_of(3, 2, 0, 0);
    d.seqs[0] = (dlab_desc_seq){.n_rows = 1, .len = 1};
    d.seqs[1] = (dlab_desc_seq){.row_begin = 1, .n_rows = 2, .len = 2};
    for (int r = 0; r < 3; r++)
        d.rows[r] = (dlab_desc_row){.k_slot = r * 32, .v_slot = r * 32, .pos = r == 2, .seq = r > 0};
    dlab_kv_plane p = {.base = buffer_of(&f, NULL, 96), .bytes = 96, .dtype = DLAB_U8, .scales = DLAB_SCALES_STEP};
    p.group = 1;
    p.token_stride = 16;
    p.meta_off = 16;
    p.head_stride = 32;
    const dlab_at in = buffer_of(&f, x, sizeof x);
    const dlab_kv_write_args a = {.k = in,
                                  .v = in,
                                  .desc = buffer_of(&f, &d, sizeof d),
                                  .work = buffer_of(&f, NULL, 32),
                                  .kv = {.k = p, .v = p, .n_kv_heads = 1, .head_dim = 16},
                                  .n_rows = 3};
    dlab_error err;
    submit_ok(dlab_submit_kv_write(f.dev, a, &err), &err);
    uint32_t cache[3][8];
    read_back(&f, cache, p.base, sizeof cache);
    ck_assert_uint_eq(cache[0][4], dlab_ref_meta(DLAB_U8, (dlab_ref_range){-1, 1}));
    ck_assert_uint_eq(cache[1][4], dlab_ref_meta(DLAB_U8, (dlab_ref_range){0, 100}));
    ck_assert_uint_eq(cache[2][4], cache[1][4]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ref_kv");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_byte_is_as_described, 0, (int)N_OF(kv_cases));
    tcase_add_loop_test(t, values_come_back_within_the_bound, 0, (int)N_OF(kv_cases));
    tcase_add_test(t, bug_20_dimensions_that_are_no_multiple_of_a_block);
    tcase_add_test(t, steps_larger_than_the_tail);
    tcase_add_test(t, each_sequence_of_a_step_has_its_own_scale);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

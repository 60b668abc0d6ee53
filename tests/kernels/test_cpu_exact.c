/* On one instruction set results are bit-equal whatever the threads, the other rows of the step, and the way in which
 * the cache is cut into segments. */
#include <stdio.h>

#include "test_cpu_cases.h"

/* Rows [first, first + rows) of an outcome over a step of n rows. */
static outcome rows_of(const outcome *whole, int n, int first, int rows)
{
    const size_t width = whole->n / (size_t)n;
    outcome o = new_outcome(width * (size_t)rows);
    memcpy(o.value, whole->value + width * (size_t)first, o.n * sizeof *o.value);
    return o;
}

static const matmul_case exact_cases[] = {
    {33, 35, 577, DLAB_F32, DLAB_ACT_F32, false, false},   {33, 20, 64, DLAB_F16, DLAB_ACT_F32, true, false},
    {33, 18, 100, DLAB_BF16, DLAB_ACT_F32, false, false},  {33, 33, 96, DLAB_Q8_0, DLAB_ACT_F32, false, false},
    {33, 17, 96, DLAB_Q4_0, DLAB_ACT_F32, false, false},   {33, 36, 96, DLAB_Q4_1, DLAB_ACT_F32, true, false},
    {33, 35, 576, DLAB_Q8_0, DLAB_ACT_INT8, false, false}, {33, 34, 96, DLAB_Q4_0, DLAB_ACT_INT8, true, false},
    {33, 17, 160, DLAB_Q4_1, DLAB_ACT_INT8, false, false}, {129, 5, 64, DLAB_Q4_1, DLAB_ACT_INT8, false, false},
    {129, 5, 33, DLAB_F32, DLAB_ACT_F32, false, false},    {33, 35, 577, DLAB_BF16, DLAB_ACT_BF16, false, false},
    {129, 5, 66, DLAB_BF16, DLAB_ACT_BF16, true, false},
};
#define N_EXACT_CASES ((int)(sizeof exact_cases / sizeof exact_cases[0]))

static void check_product_rows(const char *isa, const matmul_case *c)
{
    lab one = lab_open("cpu", isa, 1), four = lab_open("cpu", isa, 4);
    outcome whole = matmul_outcome(&one, c, 0, c->rows), threaded = matmul_outcome(&four, c, 0, c->rows);
    char what[80];
    snprintf(what, sizeof what, "%s, %s, %d inputs", isa, dlab_dtype_name(c->t), c->k);
    assert_same(&threaded, &whole, what);
    /* 1, 2, 3 … rows a step until all are done; then each row alone */
    for (int first = 0, n = 1; first < c->rows; first += n, n++) {
        const int rows = n < c->rows - first ? n : c->rows - first;
        outcome part = matmul_outcome(&four, c, first, rows), want = rows_of(&whole, c->rows, first, rows);
        assert_same(&part, &want, what);
        outcome_free(&part);
        outcome_free(&want);
    }
    for (int first = 0; first < c->rows; first += 3) {
        outcome part = matmul_outcome(&one, c, first, 1), want = rows_of(&whole, c->rows, first, 1);
        assert_same(&part, &want, what);
        outcome_free(&part);
        outcome_free(&want);
    }
    outcome_free(&whole);
    outcome_free(&threaded);
    lab_close(&one);
    lab_close(&four);
}

START_TEST(product_of_a_row_ignores_the_other_rows)
{
    for (int i = 0; dlab_isa_list[i]; i++)
        if (dlab_isa_supported(dlab_isa_list[i])) check_product_rows(dlab_isa_list[i], &exact_cases[_i]);
}
END_TEST

/* fused, or the three unfused ops */
static outcome attend(lab *l, const attn_case *c, bool fused, int only)
{
    return fused ? attn_fused_outcome(l, c, only) : attn_unfused_outcome(l, c, DLAB_OP_N, only);
}

static int n_rows_of(const attn_case *c)
{
    int n = 0;
    for (int s = 0; s < attn_n_seqs(c); s++) n += c->seqs[s].rows;
    return n;
}

static void check_attention(const char *isa, const attn_case *c, bool fused)
{
    lab one = lab_open("cpu", isa, 1), four = lab_open("cpu", isa, 4);
    outcome whole = attend(&one, c, fused, -1), threaded = attend(&four, c, fused, -1);
    assert_same(&threaded, &whole, "threads");
    outcome_free(&threaded);
    /* a prefill's row is the row that a decode step would have computed */
    const int n = n_rows_of(c);
    for (int row = 0; row<n; row += n> 10 ? 7 : 1) {
        outcome alone = attend(&one, c, fused, row), want = rows_of(&whole, n, row, 1);
        assert_same(&alone, &want, "a row alone");
        outcome_free(&alone);
        outcome_free(&want);
    }
    static const int segments[] = {0, 16, 5, 100};
    for (int i = 0; i < 4; i++) {
        attn_case cut = *c;
        cut.segment = segments[i];
        cut.token_major = !c->token_major;
        cut.max_len = 1000 + i;
        /* all tokens through a table, in one span or in several, are all tokens */
        if (c->spans == SPANS_NONE || c->spans == SPANS_CUT) cut.spans = (attn_spans)(SPANS_NONE + i % 3);
        outcome got = attend(&one, &cut, fused, -1);
        assert_same(&got, &whole, "segments");
        outcome_free(&got);
    }
    outcome_free(&whole);
    lab_close(&one);
    lab_close(&four);
}

START_TEST(attention_of_a_row_ignores_rows_and_segments)
{
    for (int i = 0; dlab_isa_list[i]; i++) {
        if (!dlab_isa_supported(dlab_isa_list[i])) continue;
        check_attention(dlab_isa_list[i], &attn_cases[_i], true);
        check_attention(dlab_isa_list[i], &attn_cases[_i], false);
    }
}
END_TEST

/* Both kernels compute the same thing, each in its own order. */
START_TEST(fused_and_unfused_attention_agree)
{
    lab l = lab_open("cpu", "auto", 2);
    outcome fused = attend(&l, &attn_cases[_i], true, -1), unfused = attend(&l, &attn_cases[_i], false, -1);
    assert_near(&fused, &unfused, "fused and unfused");
    outcome_free(&fused);
    outcome_free(&unfused);
    lab_close(&l);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cpu exactness");
    TCase *t = tcase_create("bits");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, product_of_a_row_ignores_the_other_rows, 0, N_EXACT_CASES);
    tcase_add_loop_test(t, attention_of_a_row_ignores_rows_and_segments, 0, N_ATTN_CASES);
    tcase_add_loop_test(t, fused_and_unfused_attention_agree, 0, N_ATTN_CASES);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

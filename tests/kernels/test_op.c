/* What ops declare: names and operands. Their costs: test_op_cost.c. */
#include <check.h>
#include <string.h>

#include "tests/kernels/ref_fixture.h"

/* Buffers that nobody follows: operands are about ranges only. */
static dlab_at at(uintptr_t where, size_t bytes, size_t off)
{
    return (dlab_at){.buf = {.ptr = (void *)(where << 20), .bytes = bytes}, .off = off};
}

static const dlab_operand *operand_at(const dlab_operand *o, int n, dlab_at where)
{
    for (int i = 0; i < n; i++)
        if (o[i].at.buf.ptr == where.buf.ptr && o[i].at.off == where.off) return &o[i];
    ck_abort_msg("an operand is missing");
    return NULL;
}

static void expect(const dlab_operand *o, int n, dlab_at where, size_t bytes, int access)
{
    const dlab_operand *p = operand_at(o, n, where);
    ck_assert_uint_eq(p->bytes, bytes);
    ck_assert_int_eq(p->access & ~DLAB_ANYWHERE, access);
}

START_TEST(every_op_has_a_name_and_a_size)
{
    ck_assert_str_eq(dlab_op_name(DLAB_OP_embed), "embed");
    ck_assert_str_eq(dlab_op_name(DLAB_OP_attn_values), "attn_values");
    ck_assert_uint_eq(dlab_op_args_size(DLAB_OP_matmul), sizeof(dlab_matmul_args));
    for (int op = 0; op < DLAB_OP_N; op++) {
        ck_assert_uint_gt(strlen(dlab_op_name((dlab_op)op)), 2);
        ck_assert_uint_gt(dlab_op_args_size((dlab_op)op), 0);
        ck_assert_uint_le(dlab_op_args_size((dlab_op)op), sizeof(dlab_op_args));
    }
    ck_assert_str_eq(dlab_op_name(DLAB_OP_N), "unknown");
    ck_assert_uint_eq(dlab_op_args_size(DLAB_OP_N), 0);
    ck_assert_int_eq(dlab_op_check(DLAB_OP_N, NULL, NULL), DLAB_EINTERNAL);
}
END_TEST

START_TEST(matmul_operands)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    dlab_matmul_args a = {.x = at(1, 10000, 64),
                          .y = at(2, 10000, 128),
                          .w = {.at = at(3, 10000, 256), .dtype = DLAB_Q4_1, .n = 7, .k = 64},
                          .n_rows = 3};
    int n = dlab_op_operands(DLAB_OP_matmul, &a, o);
    ck_assert_int_eq(n, 3);
    expect(o, n, a.x, 3 * 64 * 4, DLAB_READ);
    expect(o, n, a.w.at, 7 * 2 * 20, DLAB_READ);
    expect(o, n, a.y, 3 * 7 * 4, DLAB_WRITE);
    a.input = DLAB_ACT_INT8;
    a.accumulate = true;
    n = dlab_op_operands(DLAB_OP_matmul, &a, o);
    expect(o, n, a.x, 3 * 2 * 40, DLAB_READ);
    expect(o, n, a.y, 3 * 7 * 4, DLAB_READ | DLAB_WRITE);
    a.input = DLAB_ACT_BF16;
    a.w.dtype = DLAB_BF16;
    a.w.k = 63; /* rows of whole pairs */
    n = dlab_op_operands(DLAB_OP_matmul, &a, o);
    expect(o, n, a.x, 3 * 64 * 2, DLAB_READ);
    expect(o, n, a.w.at, 7 * 63 * 2, DLAB_READ);
}
END_TEST

START_TEST(in_place_is_one_operand)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    const dlab_rmsnorm_args a = {.x = at(1, 1000, 0), .w = at(2, 1000, 0), .y = at(1, 1000, 0), .n_rows = 2, .dim = 8};
    const int n = dlab_op_operands(DLAB_OP_rmsnorm, &a, o);
    ck_assert_int_eq(n, 2);
    expect(o, n, a.x, 64, DLAB_READ | DLAB_WRITE);
    expect(o, n, a.w, 32, DLAB_READ);
}
END_TEST

/* Layers inside of larger buffers; K has a tail. */
static dlab_kv_view view(void)
{
    return (dlab_kv_view){.k = {.base = at(8, 5000, 1000),
                                .bytes = 2000,
                                .dtype = DLAB_F16,
                                .group = 1,
                                .tail = at(10, 9000, 3000),
                                .tail_bytes = 700,
                                .tail_cap = 5},
                          .v = {.base = at(9, 6000, 500), .bytes = 1500, .dtype = DLAB_F32, .group = 1},
                          .n_kv_heads = 2,
                          .head_dim = 16};
}

START_TEST(attention_operands_are_one_layer_of_the_cache)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    const dlab_attn_fused_args a = {.q = at(1, 1 << 20, 0),
                                    .out = at(2, 1 << 20, 0),
                                    .desc = at(3, 400, 16),
                                    .partials = at(4, 1 << 20, 0),
                                    .kv = view(),
                                    .n_rows = 3,
                                    .n_heads = 4,
                                    .max_len = 257};
    int n = dlab_op_operands(DLAB_OP_attn_fused, &a, o);
    ck_assert_int_eq(n, 7);
    expect(o, n, a.q, 3 * 4 * 16 * 4, DLAB_READ);
    expect(o, n, a.out, 3 * 4 * 16 * 4, DLAB_WRITE);
    expect(o, n, a.desc, 384, DLAB_READ); /* the rest of the descriptor's buffer */
    expect(o, n, a.kv.k.base, 2000, DLAB_READ);
    expect(o, n, a.kv.k.tail, 700, DLAB_READ);
    expect(o, n, a.kv.v.base, 1500, DLAB_READ);
    expect(o, n, a.partials, 3 * 4 * 2 * 18 * 4, DLAB_READ | DLAB_WRITE); /* 257 tokens are two pieces */
    dlab_attn_fused_args many = a;
    many.n_rows = DLAB_ATTN_SPLIT_ROWS + 1; /* no partials, so none need be there */
    many.partials = (dlab_at){0};
    ck_assert_int_eq(dlab_op_operands(DLAB_OP_attn_fused, &many, o), 6);
    dlab_attn_fused_args most = a; /* all that there can be */
    most.spans = (dlab_span_table){at(5, 300, 100), 1};
    most.kv.v.tail = at(11, 800, 0);
    most.kv.v.tail_bytes = 800;
    most.kv.v.tail_cap = 1;
    n = dlab_op_operands(DLAB_OP_attn_fused, &most, o);
    ck_assert_int_eq(n, DLAB_MAX_OPERANDS);
    expect(o, n, most.spans.at, 200, DLAB_READ);
    expect(o, n, most.kv.v.tail, 800, DLAB_READ);
}
END_TEST

START_TEST(unfused_attention_operands)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    dlab_attn_unfused_args u = {.q = at(1, 1 << 20, 0),
                                .out = at(2, 1 << 20, 0),
                                .desc = at(3, 400, 16),
                                .scores = at(4, 1 << 20, 0),
                                .kv = view(),
                                .n_rows = 3,
                                .n_heads = 4,
                                .max_len = 257};
    int n = dlab_op_operands(DLAB_OP_attn_scores, &u, o);
    ck_assert_int_eq(n, 5);
    expect(o, n, u.scores, 4 * 3 * 257 * 4, DLAB_WRITE);
    expect(o, n, u.kv.k.base, 2000, DLAB_READ);
    expect(o, n, u.kv.k.tail, 700, DLAB_READ);
    n = dlab_op_operands(DLAB_OP_attn_softmax, &u, o);
    ck_assert_int_eq(n, 2);
    expect(o, n, u.scores, 4 * 3 * 257 * 4, DLAB_READ | DLAB_WRITE);
    n = dlab_op_operands(DLAB_OP_attn_values, &u, o);
    ck_assert_int_eq(n, 4);
    expect(o, n, u.kv.v.base, 1500, DLAB_READ);
    expect(o, n, u.out, 3 * 4 * 16 * 4, DLAB_WRITE);
    u.spans = (dlab_span_table){at(3, 400, 200), 2}; /* behind the descriptor in its buffer */
    for (int op = DLAB_OP_attn_scores; op <= DLAB_OP_attn_values; op++) {
        n = dlab_op_operands((dlab_op)op, &u, o);
        expect(o, n, u.spans.at, 200, DLAB_READ);
    }
}
END_TEST

START_TEST(kv_write_operands)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    dlab_kv_write_args a = {
        .k = at(1, 5000, 8), .v = at(2, 5000, 16), .desc = at(3, 400, 0), .kv = view(), .n_rows = 3};
    int n = dlab_op_operands(DLAB_OP_kv_write, &a, o);
    ck_assert_int_eq(n, 6);
    expect(o, n, a.k, 3 * 2 * 16 * 4, DLAB_READ);
    expect(o, n, a.v, 3 * 2 * 16 * 4, DLAB_READ);
    expect(o, n, a.kv.k.base, 2000, DLAB_WRITE);
    expect(o, n, a.kv.k.tail, 700, DLAB_READ | DLAB_WRITE);
    expect(o, n, a.kv.v.base, 1500, DLAB_WRITE);
    a.work = at(5, 64, 32);
    n = dlab_op_operands(DLAB_OP_kv_write, &a, o);
    ck_assert_int_eq(n, 7);
    expect(o, n, a.work, 32, DLAB_READ | DLAB_WRITE);
}
END_TEST

START_TEST(operands_of_hadamard_and_of_a_watched_norm)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    const dlab_hadamard_args h = {.x = at(1, 5000, 8), .n_rows = 3, .n_heads = 2, .head_dim = 10};
    ck_assert_int_eq(dlab_op_operands(DLAB_OP_hadamard, &h, o), 1);
    expect(o, 1, h.x, 240, DLAB_READ | DLAB_WRITE);
    dlab_rmsnorm_args r = {.x = at(1, 1000, 0),
                           .w = at(2, 1000, 0),
                           .y = at(3, 1000, 0),
                           .watch = at(4, 100, 4),
                           .n_rows = 2,
                           .dim = 8,
                           .watch_first = true};
    int n = dlab_op_operands(DLAB_OP_rmsnorm, &r, o);
    ck_assert_int_eq(n, 4);
    expect(o, n, r.watch, 8, DLAB_WRITE);
    r.watch_first = false; /* what it does not set stays */
    n = dlab_op_operands(DLAB_OP_rmsnorm, &r, o);
    expect(o, n, r.watch, 8, DLAB_READ | DLAB_WRITE);
}
END_TEST

START_TEST(logit_operands_begin_at_first)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    dlab_sample_args a = {.logits = at(1, 4000, 0),
                          .tokens = at(2, 400, 8),
                          .desc = at(3, 400, 0),
                          .work = at(4, 4000, 0),
                          .first = 3,
                          .n_logits = 2,
                          .vocab = 100,
                          .draws = true};
    int n = dlab_op_operands(DLAB_OP_sample, &a, o);
    ck_assert_int_eq(n, 4);
    expect(o, n, at(2, 400, 8 + 12), 8, DLAB_WRITE);
    expect(o, n, a.logits, 800, DLAB_READ);
    expect(o, n, a.work, 1600, DLAB_READ | DLAB_WRITE);
    a.draws = false; /* the largest needs no scratch, and none need be there */
    a.work = (dlab_at){0};
    ck_assert_int_eq(dlab_op_operands(DLAB_OP_sample, &a, o), 3);
    ck_assert_int_eq(dlab_op_check(DLAB_OP_sample, &a, NULL), DLAB_OK);
    const dlab_score_args s = {.logits = a.logits,
                               .nll = at(5, 400, 0),
                               .top1 = at(6, 400, 0),
                               .desc = a.desc,
                               .first = 3,
                               .n_logits = 2,
                               .vocab = 100};
    n = dlab_op_operands(DLAB_OP_score, &s, o);
    expect(o, n, at(5, 400, 24), 16, DLAB_WRITE);
    expect(o, n, at(6, 400, 12), 8, DLAB_WRITE);
    const dlab_gather_args g = {.x = at(1, 4000, 40), .out = at(2, 4000, 0), .desc = a.desc, .n_logits = 2, .dim = 10};
    n = dlab_op_operands(DLAB_OP_gather, &g, o);
    expect(o, n, g.x, 3960, DLAB_READ);
    expect(o, n, g.out, 80, DLAB_WRITE);
}
END_TEST

START_TEST(check_finds_what_leaves_its_buffer)
{
    dlab_error err = {0};
    dlab_quant_act_args a = {.x = at(1, 256, 0), .y = at(2, 80, 0), .n_rows = 1, .k = 64, .to = DLAB_ACT_INT8};
    ck_assert_int_eq(dlab_op_check(DLAB_OP_quant_act, &a, &err), DLAB_OK);
    a.y.off = 1;
    ck_assert_int_eq(dlab_op_check(DLAB_OP_quant_act, &a, &err), DLAB_EINTERNAL);
    ck_assert_str_eq(err.msg, "op quant_act, operand 1: 80 bytes at 1 leave a buffer of 80");
    a.y.off = SIZE_MAX; /* no wrap around */
    ck_assert_int_eq(dlab_op_check(DLAB_OP_quant_act, &a, &err), DLAB_EINTERNAL);
    dlab_attn_unfused_args u = {.desc = at(3, 100, 0), .kv = view()};
    ck_assert_int_eq(dlab_op_check(DLAB_OP_attn_values, &u, &err), DLAB_OK);
    u.kv.v.bytes = 5501; /* a layer that is larger than what is left of its buffer */
    ck_assert_int_eq(dlab_op_check(DLAB_OP_attn_values, &u, &err), DLAB_EINTERNAL);
    u.kv.k.tail_bytes = 6001;
    ck_assert_int_eq(dlab_op_check(DLAB_OP_attn_scores, &u, &err), DLAB_EINTERNAL);
    ck_assert_str_eq(err.msg, "op attn_scores, operand 3: 6001 bytes at 3000 leave a buffer of 9000");
    dlab_gather_args g = {.x = at(1, 100, 101), .out = at(2, 100, 0), .desc = at(3, 100, 0), .dim = 1};
    ck_assert_int_eq(dlab_op_check(DLAB_OP_gather, &g, &err), DLAB_EINTERNAL); /* a view past its buffer's end */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("op");
    TCase *t = tcase_create("all");
    tcase_add_test(t, every_op_has_a_name_and_a_size);
    tcase_add_test(t, matmul_operands);
    tcase_add_test(t, in_place_is_one_operand);
    tcase_add_test(t, attention_operands_are_one_layer_of_the_cache);
    tcase_add_test(t, unfused_attention_operands);
    tcase_add_test(t, kv_write_operands);
    tcase_add_test(t, operands_of_hadamard_and_of_a_watched_norm);
    tcase_add_test(t, logit_operands_begin_at_first);
    tcase_add_test(t, check_finds_what_leaves_its_buffer);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

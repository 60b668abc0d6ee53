/* What ops declare: names, operands, costs. */
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
    ck_assert_int_eq(p->access, access);
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
    dlab_matmul_args a = {
        .x = at(1, 10000, 64), .y = at(2, 10000, 128), .w = {at(3, 10000, 256), DLAB_Q4_1, 7, 64}, .n_rows = 3};
    int n = dlab_op_operands(DLAB_OP_matmul, &a, o);
    ck_assert_int_eq(n, 3);
    expect(o, n, a.x, 3 * 64 * 4, DLAB_READ);
    expect(o, n, a.w.at, 7 * 2 * 20, DLAB_READ);
    expect(o, n, a.y, 3 * 7 * 4, DLAB_WRITE);
    a.quantized = a.accumulate = true;
    n = dlab_op_operands(DLAB_OP_matmul, &a, o);
    expect(o, n, a.x, 3 * 2 * 40, DLAB_READ);
    expect(o, n, a.y, 3 * 7 * 4, DLAB_READ | DLAB_WRITE);
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

static dlab_kv_view view(void)
{
    return (dlab_kv_view){.k = at(8, 5000, 1000),
                          .v = at(9, 6000, 500),
                          .k_dtype = DLAB_F16,
                          .v_dtype = DLAB_F32,
                          .n_kv_heads = 2,
                          .head_dim = 16};
}

START_TEST(attention_operands_take_the_rest_of_cache_and_descriptor)
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
    ck_assert_int_eq(n, 6);
    expect(o, n, a.q, 3 * 4 * 16 * 4, DLAB_READ);
    expect(o, n, a.out, 3 * 4 * 16 * 4, DLAB_WRITE);
    expect(o, n, a.desc, 384, DLAB_READ);
    expect(o, n, a.kv.k, 4000, DLAB_READ);
    expect(o, n, a.kv.v, 5500, DLAB_READ);
    expect(o, n, a.partials, 3 * 4 * 2 * 18 * 4, DLAB_READ | DLAB_WRITE); /* 257 tokens are two pieces */
    dlab_attn_fused_args many = a;
    many.n_rows = DLAB_ATTN_SPLIT_ROWS + 1; /* no partials, so none need be there */
    many.partials = (dlab_at){0};
    ck_assert_int_eq(dlab_op_operands(DLAB_OP_attn_fused, &many, o), 5);
    const dlab_attn_unfused_args u = {.q = a.q,
                                      .out = a.out,
                                      .desc = a.desc,
                                      .scores = a.partials,
                                      .kv = view(),
                                      .n_rows = 3,
                                      .n_heads = 4,
                                      .max_len = 257};
    n = dlab_op_operands(DLAB_OP_attn_scores, &u, o);
    ck_assert_int_eq(n, 4);
    expect(o, n, u.scores, 4 * 3 * 257 * 4, DLAB_WRITE);
    expect(o, n, u.kv.k, 4000, DLAB_READ);
    n = dlab_op_operands(DLAB_OP_attn_softmax, &u, o);
    ck_assert_int_eq(n, 2);
    expect(o, n, u.scores, 4 * 3 * 257 * 4, DLAB_READ | DLAB_WRITE);
    n = dlab_op_operands(DLAB_OP_attn_values, &u, o);
    ck_assert_int_eq(n, 4);
    expect(o, n, u.kv.v, 5500, DLAB_READ);
    expect(o, n, u.out, 3 * 4 * 16 * 4, DLAB_WRITE);
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
                          .temperature = 1};
    int n = dlab_op_operands(DLAB_OP_sample, &a, o);
    ck_assert_int_eq(n, 4);
    expect(o, n, at(2, 400, 8 + 12), 8, DLAB_WRITE);
    expect(o, n, a.logits, 800, DLAB_READ);
    expect(o, n, a.work, 1600, DLAB_READ | DLAB_WRITE);
    a.temperature = 0; /* the largest needs no scratch, and none need be there */
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
    dlab_quant_act_args a = {.x = at(1, 256, 0), .y = at(2, 80, 0), .n_rows = 1, .k = 64};
    ck_assert_int_eq(dlab_op_check(DLAB_OP_quant_act, &a, &err), DLAB_OK);
    a.y.off = 1;
    ck_assert_int_eq(dlab_op_check(DLAB_OP_quant_act, &a, &err), DLAB_EINTERNAL);
    ck_assert_str_eq(err.msg, "op quant_act, operand 1: 80 bytes at 1 leave a buffer of 80");
    a.y.off = SIZE_MAX; /* no wrap around */
    ck_assert_int_eq(dlab_op_check(DLAB_OP_quant_act, &a, &err), DLAB_EINTERNAL);
    dlab_gather_args g = {.x = at(1, 100, 101), .out = at(2, 100, 0), .desc = at(3, 100, 0), .dim = 1};
    ck_assert_int_eq(dlab_op_check(DLAB_OP_gather, &g, &err), DLAB_EINTERNAL); /* a view past its buffer's end */
}
END_TEST

static dlab_op_cost cost_of(dlab_op op, const void *args, const small_desc *d)
{
    dlab_op_cost c = {0};
    dlab_op_add_cost(op, args, &d->head, &c);
    return c;
}

static void costs(dlab_op_cost c, double read, double written, double kv, double flops)
{
    ck_assert_double_eq(c.bytes_read, read);
    ck_assert_double_eq(c.bytes_written, written);
    ck_assert_double_eq(c.kv_bytes, kv);
    ck_assert_double_eq(c.flops, flops);
}

START_TEST(matmul_cost)
{
    const small_desc d = desc_of(0, 0, 0, 0);
    dlab_matmul_args a = {.w = {.dtype = DLAB_Q4_1, .n = 7, .k = 64}, .n_rows = 3};
    costs(cost_of(DLAB_OP_matmul, &a, &d), 3 * 64 * 4 + 7 * 40, 3 * 7 * 4, 0, 2 * 3 * 7 * 64);
    a.quantized = a.accumulate = true;
    costs(cost_of(DLAB_OP_matmul, &a, &d), 3 * 80 + 7 * 40 + 84, 84, 0, 2 * 3 * 7 * 64);
    dlab_op_cost sum = {0}; /* adds */
    dlab_op_add_cost(DLAB_OP_matmul, &a, &d.head, &sum);
    dlab_op_add_cost(DLAB_OP_matmul, &a, &d.head, &sum);
    ck_assert_double_eq(sum.flops, 2 * 2 * 3 * 7 * 64);
}
END_TEST

/* Rows: sequence 0 at 4 and 5, sequence 1 at 0 after a padding row at 9. Visited: 5 + 6 + 10 + 1; read once: 6 + 10. */
START_TEST(attention_cost_follows_what_is_visited)
{
    small_desc d = desc_of(4, 2, 0, 0);
    d.rows[0] = (dlab_desc_row){.pos = 4, .seq = 0};
    d.rows[1] = (dlab_desc_row){.pos = 5, .seq = 0};
    d.rows[2] = (dlab_desc_row){.pos = 9, .seq = 1, .k_slot = -1, .v_slot = -1};
    d.rows[3] = (dlab_desc_row){.pos = 0, .seq = 1};
    const double visited = 22, cached = 16, q = 4 * 4 * 16 * 4, h = 4, k = 2 * 16 * 2, v = 2 * 16 * 4;
    const dlab_attn_fused_args a = {.kv = view(), .n_rows = 4, .n_heads = 4, .max_len = 10};
    const dlab_op_cost fused = cost_of(DLAB_OP_attn_fused, &a, &d);
    costs(fused, q + cached * (k + v), q, cached * (k + v), 4 * 16 * h * visited);
    const dlab_attn_unfused_args u = {.kv = view(), .n_rows = 4, .n_heads = 4, .max_len = 10};
    const double scores = 4 * h * visited;
    costs(cost_of(DLAB_OP_attn_scores, &u, &d), q + cached * k, scores, cached * k, 2 * 16 * h * visited);
    costs(cost_of(DLAB_OP_attn_softmax, &u, &d), scores, scores, 0, 0);
    costs(cost_of(DLAB_OP_attn_values, &u, &d), scores + cached * v, q, cached * v, 2 * 16 * h * visited);
    const dlab_kv_write_args w = {.kv = view(), .n_rows = 4};
    costs(cost_of(DLAB_OP_kv_write, &w, &d), 3 * 2 * 2 * 16 * 4, 3 * (k + v), 0, 0); /* not the padding row */
}
END_TEST

START_TEST(costs_of_the_small_ops)
{
    const small_desc d = desc_of(0, 0, 0, 0);
    const dlab_embed_args e = {.table = {.dtype = DLAB_F16, .n = 100, .k = 10}, .n_rows = 3};
    costs(cost_of(DLAB_OP_embed, &e, &d), 60, 120, 0, 0);
    const dlab_rmsnorm_args r = {.n_rows = 3, .dim = 10};
    costs(cost_of(DLAB_OP_rmsnorm, &r, &d), 160, 120, 0, 120);
    const dlab_quant_act_args q = {.n_rows = 3, .k = 64};
    costs(cost_of(DLAB_OP_quant_act, &q, &d), 768, 240, 0, 576);
    const dlab_rope_args p = {.n_rows = 3, .n_heads = 2, .head_dim = 10, .rot_dim = 8};
    costs(cost_of(DLAB_OP_rope, &p, &d), 192 + 96, 192, 0, 6 * 3 * 2 * 4);
    const dlab_swiglu_args s = {.n_rows = 3, .dim = 10};
    costs(cost_of(DLAB_OP_swiglu, &s, &d), 240, 120, 0, 120);
    const dlab_gather_args g = {.n_logits = 3, .dim = 10};
    costs(cost_of(DLAB_OP_gather, &g, &d), 120, 120, 0, 0);
    dlab_sample_args a = {.n_logits = 3, .vocab = 100};
    costs(cost_of(DLAB_OP_sample, &a, &d), 1200, 12, 0, 300);
    a.temperature = 0.5f;
    costs(cost_of(DLAB_OP_sample, &a, &d), 1200, 12, 0, 1200);
    const dlab_score_args c = {.n_logits = 3, .vocab = 100};
    costs(cost_of(DLAB_OP_score, &c, &d), 1200, 36, 0, 1200);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("op");
    TCase *t = tcase_create("all");
    tcase_add_test(t, every_op_has_a_name_and_a_size);
    tcase_add_test(t, matmul_operands);
    tcase_add_test(t, in_place_is_one_operand);
    tcase_add_test(t, attention_operands_take_the_rest_of_cache_and_descriptor);
    tcase_add_test(t, logit_operands_begin_at_first);
    tcase_add_test(t, check_finds_what_leaves_its_buffer);
    tcase_add_test(t, matmul_cost);
    tcase_add_test(t, attention_cost_follows_what_is_visited);
    tcase_add_test(t, costs_of_the_small_ops);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

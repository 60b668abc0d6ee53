/* What ops declare to move and to do, against figures worked out by hand and, for spans, against counting one by one. */
#include <check.h>
#include <string.h>

#include "base/rng.h"
#include "tests/kernels/ref_fixture.h"

/* Buffers that nobody follows. */
static dlab_at at(uintptr_t where)
{
    return (dlab_at){.buf = {.ptr = (void *)(where << 20), .bytes = 1 << 20}, .off = 64};
}

static dlab_op_cost cost_of(dlab_op op, const void *args, const dlab_desc_head *d)
{
    dlab_op_cost c = {0};
    dlab_op_add_cost(op, args, d, &c);
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
    costs(cost_of(DLAB_OP_matmul, &a, &d.head), 3 * 64 * 4 + 7 * 40, 3 * 7 * 4, 0, 2 * 3 * 7 * 64);
    ck_assert_double_eq(cost_of(DLAB_OP_matmul, &a, &d.head).int8_flops, 0);
    a.input = DLAB_ACT_INT8;
    a.accumulate = true;
    ck_assert_double_eq(cost_of(DLAB_OP_matmul, &a, &d.head).int8_flops, 2 * 3 * 7 * 64);
    ck_assert_double_eq(cost_of(DLAB_OP_matmul, &a, &d.head).bf16_flops, 0);
    costs(cost_of(DLAB_OP_matmul, &a, &d.head), 3 * 80 + 7 * 40 + 84, 84, 0, 2 * 3 * 7 * 64);
    const dlab_matmul_args b = {.w = {.dtype = DLAB_BF16, .n = 7, .k = 63}, .n_rows = 3, .input = DLAB_ACT_BF16};
    costs(cost_of(DLAB_OP_matmul, &b, &d.head), 3 * 64 * 2 + 7 * 126, 84, 0, 2 * 3 * 7 * 63);
    ck_assert_double_eq(cost_of(DLAB_OP_matmul, &b, &d.head).int8_flops, 0);
    ck_assert_double_eq(cost_of(DLAB_OP_matmul, &b, &d.head).bf16_flops, 2 * 3 * 7 * 63);
    dlab_op_cost sum = {0}; /* adds */
    dlab_op_add_cost(DLAB_OP_matmul, &a, &d.head, &sum);
    dlab_op_add_cost(DLAB_OP_matmul, &a, &d.head, &sum);
    ck_assert_double_eq(sum.flops, 2 * 2 * 3 * 7 * 64);
}
END_TEST

/* ---- dense attention ---- */

static dlab_kv_plane plane(dlab_dtype dtype, dlab_kv_scales scales, int group, int tail_cap)
{
    return (dlab_kv_plane){.dtype = dtype, .scales = scales, .group = group, .tail_cap = tail_cap};
}

static dlab_kv_view plain_view(void)
{
    return (dlab_kv_view){.k = plane(DLAB_F16, DLAB_SCALES_NONE, 1, 0),
                          .v = plane(DLAB_F32, DLAB_SCALES_NONE, 1, 0),
                          .n_kv_heads = 2,
                          .head_dim = 16};
}

/* Rows: sequence 0 at 4 and 5, sequence 1 at 0 after a padding row at 9. Visited: 5 + 6 + 10 + 1; read once: 6 + 10. */
START_TEST(attention_cost_follows_what_is_visited)
{
    small_desc d = desc_of(4, 2, 0, 0);
    d.rows[0] = (dlab_desc_row){.pos = 4, .seq = 0};
    d.rows[1] = (dlab_desc_row){.pos = 5, .seq = 0};
    d.rows[2] = (dlab_desc_row){.pos = 9, .seq = 1, .k_slot = -1, .v_slot = -1};
    d.rows[3] = (dlab_desc_row){.pos = 0, .seq = 1};
    const double visited = 22, cached = 16, q = 4 * 4 * 16 * 4, h = 4, k = 2 * 16 * 2, v = 2 * 16 * 4;
    const dlab_attn_fused_args a = {.kv = plain_view(), .n_rows = 4, .n_heads = 4, .max_len = 10};
    dlab_op_cost c = cost_of(DLAB_OP_attn_fused, &a, &d.head);
    costs(c, q + cached * (k + v), q, cached * (k + v), 4 * 16 * h * visited);
    ck_assert_double_eq(c.kv_dense_bytes, c.kv_bytes);
    ck_assert_double_eq(c.inter_bytes, 2 * 4 * 4 * h * (16 + 2)); /* each row one piece, out and in */
    const dlab_attn_unfused_args u = {.kv = plain_view(), .n_rows = 4, .n_heads = 4, .max_len = 10};
    const double scores = 4 * h * visited;
    c = cost_of(DLAB_OP_attn_scores, &u, &d.head);
    costs(c, q + cached * k, scores, cached * k, 2 * 16 * h * visited);
    ck_assert_double_eq(c.inter_bytes, scores);
    ck_assert_double_eq(c.kv_dense_bytes, cached * k);
    c = cost_of(DLAB_OP_attn_softmax, &u, &d.head);
    costs(c, scores, scores, 0, 0);
    ck_assert_double_eq(c.inter_bytes, 2 * scores);
    ck_assert_double_eq(c.kv_dense_bytes, 0);
    c = cost_of(DLAB_OP_attn_values, &u, &d.head);
    costs(c, scores + cached * v, q, cached * v, 2 * 16 * h * visited);
    ck_assert_double_eq(c.inter_bytes, scores);
    const dlab_kv_write_args w = {.kv = plain_view(), .n_rows = 4};
    costs(cost_of(DLAB_OP_kv_write, &w, &d.head), 3 * 2 * 2 * 16 * 4, 3 * (k + v), 0, 0); /* not the padding row */
}
END_TEST

/* 65 rows at 300 … 364 have 2 pieces each, which meet in memory only when there are at most 64. */
START_TEST(partial_results_of_pieces)
{
    struct {
        dlab_desc_head head;
        dlab_desc_row rows[DLAB_ATTN_SPLIT_ROWS + 1];
        dlab_desc_seq seq;
    } d = {.head = {.row_off = sizeof(dlab_desc_head)}};
    d.head.seq_off = (uint32_t)((char *)&d.seq - (char *)&d);
    for (int r = 0; r <= DLAB_ATTN_SPLIT_ROWS; r++) d.rows[r].pos = 300 + r;
    dlab_attn_fused_args a = {.kv = plain_view(), .n_rows = DLAB_ATTN_SPLIT_ROWS, .n_heads = 4, .max_len = 365};
    ck_assert_double_eq(cost_of(DLAB_OP_attn_fused, &a, &d.head).inter_bytes, 2.0 * 64 * 4 * 2 * 18 * 4);
    a.n_rows++;
    ck_assert_double_eq(cost_of(DLAB_OP_attn_fused, &a, &d.head).inter_bytes, 0);
}
END_TEST

/* One row at 9, of whose 10 tokens 8 are sealed where there is a tail; head_dim 80; bytes of one head. */
START_TEST(every_format_with_its_scales)
{
    static const struct {
        dlab_dtype dtype;
        dlab_kv_scales scales;
        int group, tail_cap;
        double bytes;
    } c[] = {
        {DLAB_F32, DLAB_SCALES_NONE, 1, 0, 10 * 320},
        {DLAB_BF16, DLAB_SCALES_NONE, 1, 0, 10 * 160},
        {DLAB_U8, DLAB_SCALES_TOKEN, 1, 0, 10 * 84},
        {DLAB_U8, DLAB_SCALES_STEP, 1, 0, 10 * 84},
        {DLAB_E4M3, DLAB_SCALES_TOKEN, 1, 0, 10 * 84},
        {DLAB_E5M2, DLAB_SCALES_STEP, 1, 0, 10 * 84},
        {DLAB_U4, DLAB_SCALES_TOKEN, 1, 0, 10 * (48 + 12)}, /* 80 elements are 3 blocks of 32 */
        {DLAB_U4, DLAB_SCALES_TOKEN, 1, 3, 8 * (48 + 12) + 2 * 160},
        {DLAB_U8, DLAB_SCALES_BLOCK, 4, 4, 8 * 80 + 2 * 4 + 2 * 160},
        {DLAB_U8, DLAB_SCALES_CHANNEL, 4, 4, 8 * 80 + 2 * 320 + 2 * 160},
        {DLAB_U4, DLAB_SCALES_CHANNEL, 8, 8, 8 * 48 + 320 + 2 * 160},
        {DLAB_E4M3, DLAB_SCALES_BLOCK, 2, 6, 8 * 80 + 4 * 4 + 2 * 160},
    };
    small_desc d = desc_of(1, 1, 0, 0);
    d.rows[0] = (dlab_desc_row){.pos = 9};
    d.seqs[0] = (dlab_desc_seq){.n_rows = 1, .len = 10, .k_sealed = 8, .v_sealed = 8};
    for (size_t i = 0; i < N_OF(c); i++) {
        const dlab_kv_plane p = plane(c[i].dtype, c[i].scales, c[i].group, c[i].tail_cap);
        const dlab_attn_fused_args a = {
            .kv = {.k = p, .v = p, .n_kv_heads = 3, .head_dim = 80}, .n_rows = 1, .n_heads = 3, .max_len = 10};
        ck_assert_double_eq(cost_of(DLAB_OP_attn_fused, &a, &d.head).kv_bytes, 2 * 3 * c[i].bytes);
    }
}
END_TEST

/* Two sequences. The first brings 5 tokens at 3 … 7, groups of 4: tokens 0 … 3 are sealed now, of which 3 come from the
 * tail, 4 … 7 go to the tail. The second brings a token at 12, nothing is sealed. Of V every token goes to its place. */
START_TEST(writes_with_a_tail)
{
    small_desc d = desc_of(6, 2, 0, 0);
    for (int r = 0; r < 5; r++) d.rows[r] = (dlab_desc_row){.pos = 3 + r, .seq = 0};
    d.rows[5] = (dlab_desc_row){.pos = 12, .seq = 1};
    d.seqs[0] = (dlab_desc_seq){.n_rows = 5, .len = 8, .k_sealed_from = 0, .k_sealed = 4};
    d.seqs[1] = (dlab_desc_seq){.row_begin = 5, .n_rows = 1, .len = 13, .k_sealed_from = 8, .k_sealed = 8};
    const dlab_kv_write_args a = {.kv = {.k = plane(DLAB_U8, DLAB_SCALES_CHANNEL, 4, 8),
                                         .v = plane(DLAB_U4, DLAB_SCALES_TOKEN, 1, 0),
                                         .n_kv_heads = 2,
                                         .head_dim = 32},
                                  .n_rows = 6};
    const double read = 2 * 6 * 2 * 32 * 4 + 3 * 2 * 32 * 2;
    const double k = 2 * (4 * 32 + 32 * 4) + 5 * 2 * 32 * 2, v = 6 * 2 * (16 + 4);
    costs(cost_of(DLAB_OP_kv_write, &a, &d.head), read, k + v, 0, 0);
}
END_TEST

/* ---- spans ---- */

#define MAX_ROWS  12
#define MAX_SPANS 40

/* A descriptor with a span table behind it. */
typedef struct {
    dlab_desc_head head;
    dlab_desc_row rows[MAX_ROWS];
    dlab_desc_seq seq;
    int32_t table[2 * MAX_ROWS + 1 + 3 * 2 * MAX_ROWS * MAX_SPANS];
} spanned;

/* n lists (rows · heads) of count[i] spans each */
static void put_table(spanned *d, int n, dlab_span (*spans)[MAX_SPANS], const int *count)
{
    int32_t *first = d->table, total = 0;
    for (int i = 0; i < n; i++) {
        first[i] = total;
        memcpy(first + n + 1 + 3 * total, spans[i], (size_t)count[i] * sizeof(dlab_span));
        total += count[i];
    }
    first[n] = total;
}

static spanned spanned_of(int n_rows, int first_pos, int sealed)
{
    spanned d = {
        .head = {.n_rows = n_rows, .n_seqs = 1, .row_off = offsetof(spanned, rows), .seq_off = offsetof(spanned, seq)},
        .seq = {.n_rows = n_rows, .len = first_pos + n_rows, .k_sealed = sealed, .v_sealed = sealed}};
    for (int r = 0; r < n_rows; r++) d.rows[r].pos = first_pos + r;
    return d;
}

static dlab_attn_fused_args args_of(const spanned *d, dlab_kv_plane p, int heads)
{
    const dlab_at desc = at(7);
    return (dlab_attn_fused_args){.desc = desc,
                                  .spans = {{desc.buf, desc.off + offsetof(spanned, table)}, heads},
                                  .kv = {.k = p, .v = p, .n_kv_heads = 2, .head_dim = 32},
                                  .n_rows = d->head.n_rows,
                                  .n_heads = 6,
                                  .max_len = d->seq.len};
}

/* A row at 999 visits 0 … 3, 8, 16, … 936, 944 … 999: 4 + 117 + 56 tokens in all four pieces. */
START_TEST(a_strided_row)
{
    spanned d = spanned_of(1, 999, 0);
    const int count[] = {3};
    put_table(&d, 1, (dlab_span[][MAX_SPANS]){{{0, 4, 1}, {8, 117, 8}, {944, 56, 1}}}, count);
    dlab_attn_fused_args a = args_of(&d, plane(DLAB_F16, DLAB_SCALES_NONE, 1, 0), 1);
    const double q = 6 * 32 * 4, token = 2 * 2 * 32 * 2;
    const dlab_op_cost c = cost_of(DLAB_OP_attn_fused, &a, &d.head);
    costs(c, q + 177 * token, q, 177 * token, 4 * 32 * 6 * 177);
    ck_assert_double_eq(c.kv_dense_bytes, 1000 * token);
    ck_assert_double_eq(c.inter_bytes, 2 * 4 * 6 * 4 * 34);
    a.spans.at.buf = at(9).buf; /* a table of which the host has no copy */
    ck_assert_double_eq(cost_of(DLAB_OP_attn_fused, &a, &d.head).kv_bytes, 1000 * token);
    const int far[] = {1};
    put_table(&d, 1, (dlab_span[][MAX_SPANS]){{{990, 10, 1}}}, far);
    a = args_of(&d, plane(DLAB_F16, DLAB_SCALES_NONE, 1, 0), 1);
    ck_assert_double_eq(cost_of(DLAB_OP_attn_fused, &a, &d.head).inter_bytes, 2 * 1 * 6 * 4 * 34); /* one piece */
}
END_TEST

/* KV head 0 visits 10 tokens, head 1 visits 4 of the 100. */
START_TEST(lists_of_each_head)
{
    spanned d = spanned_of(1, 99, 0);
    const int count[] = {1, 1};
    put_table(&d, 2, (dlab_span[][MAX_SPANS]){{{90, 10, 1}}, {{96, 4, 1}}}, count);
    const dlab_attn_fused_args a = args_of(&d, plane(DLAB_U8, DLAB_SCALES_TOKEN, 1, 0), 2);
    const dlab_op_cost c = cost_of(DLAB_OP_attn_fused, &a, &d.head);
    ck_assert_double_eq(c.kv_bytes, 2 * 14 * 36);
    ck_assert_double_eq(c.flops, 4 * 32 * 3 * 14); /* 3 query heads each */
    ck_assert_double_eq(c.kv_dense_bytes, 2 * 200 * 36);
}
END_TEST

/* Tokens, groups below `sealed` and tokens from there on that rows visit, counted one by one. */
typedef struct {
    double sealed, groups, tail;
} counted;

#define MAX_LEN 700

static counted count_union(int n_rows, dlab_span (*spans)[MAX_SPANS], const int *count, int sealed, int group)
{
    static bool token[MAX_LEN], of_group[MAX_LEN];
    memset(token, 0, sizeof token);
    memset(of_group, 0, sizeof of_group);
    counted c = {0, 0, 0};
    for (int r = 0; r < n_rows; r++)
        for (int s = 0; s < count[r]; s++)
            for (int i = 0; i < spans[r][s].count; i++) token[spans[r][s].begin + i * spans[r][s].step] = true;
    for (int t = 0; t < MAX_LEN; t++) {
        if (!token[t]) continue;
        if (t >= sealed)
            c.tail++;
        else
            c.sealed++, c.groups += !of_group[t / group], of_group[t / group] = true;
    }
    return c;
}

static double bytes_of(counted c) { return 2 * 2 * (c.sealed * 32 + c.groups * 4 + c.tail * 64); }

static int random_spans(dlab_rng *r, int pos, dlab_span *out)
{
    int n = 0;
    for (int t = (int)dlab_rng_below(r, 40); t <= pos && n < MAX_SPANS; n++) {
        dlab_span s = {t, 1 + (int)dlab_rng_below(r, 30), 1 + (int)dlab_rng_below(r, 12)};
        if (s.begin + (s.count - 1) * s.step > pos) s.count = (pos - s.begin) / s.step + 1;
        out[n] = s;
        t = s.begin + (s.count - 1) * s.step + 1 + (int)dlab_rng_below(r, 20);
    }
    return n;
}

START_TEST(one_row_is_exact_whatever_its_spans)
{
    dlab_rng r;
    dlab_rng_seed(&r, 5);
    for (int i = 0; i < 2000; i++) {
        const int pos = 50 + (int)dlab_rng_below(&r, MAX_LEN - 50), group = 1 << dlab_rng_below(&r, 6);
        const int sealed = (int)dlab_rng_below(&r, (uint64_t)(pos / group) + 1) * group;
        static spanned d;
        d = spanned_of(1, pos, sealed);
        dlab_span spans[1][MAX_SPANS];
        const int count[1] = {random_spans(&r, pos, spans[0])};
        put_table(&d, 1, spans, count);
        const dlab_attn_fused_args a = args_of(&d, plane(DLAB_U8, DLAB_SCALES_BLOCK, group, 2 * group), 1);
        const counted c = count_union(1, spans, count, sealed, group);
        ck_assert_msg(cost_of(DLAB_OP_attn_fused, &a, &d.head).kv_bytes == bytes_of(c), "case %d", i);
    }
}
END_TEST

/* sinks, every stride-th block of the rest counted from 0, the last `window` tokens */
static int local_strided(int pos, int sinks, int window, int stride, int block, dlab_span *out)
{
    const int near = pos + 1 > window ? pos + 1 - window : 0;
    int n = 0, begin = -1;
    for (int t = 0; t <= pos + 1; t++) {
        const bool visits = t <= pos && (t < sinks || t >= near || t / block % stride == 0);
        if (visits && begin < 0) begin = t;
        if (visits || begin < 0) continue;
        out[n++] = (dlab_span){begin, t - begin, 1};
        begin = -1;
    }
    return n;
}

START_TEST(sliding_windows_are_exact_together)
{
    static const int cases[][5] = {/* sinks, window, stride, block, first pos */
                                   {4, 32, 8, 4, 200}, {0, 16, 16, 16, 500}, {4, 64, 1000, 1, 300},
                                   {1, 1, 20, 8, 600}, {40, 8, 50, 2, 30},   {0, 700, 4, 1, 100}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        const int *c = cases[i], n_rows = MAX_ROWS, sealed = c[4] / 16 * 16;
        static spanned d;
        d = spanned_of(n_rows, c[4], sealed);
        dlab_span spans[MAX_ROWS][MAX_SPANS];
        int count[MAX_ROWS];
        for (int r = 0; r < n_rows; r++) {
            count[r] = local_strided(c[4] + r, c[0], c[1], c[2], c[3], spans[r]);
            ck_assert_int_le(count[r], MAX_SPANS);
        }
        put_table(&d, MAX_ROWS, spans, count);
        const dlab_attn_fused_args a = args_of(&d, plane(DLAB_U8, DLAB_SCALES_BLOCK, 16, 32), 1);
        const counted want = count_union(n_rows, spans, count, sealed, 16);
        ck_assert_double_eq(cost_of(DLAB_OP_attn_fused, &a, &d.head).kv_bytes, bytes_of(want));
    }
}
END_TEST

START_TEST(rows_of_any_spans_are_bounded)
{
    dlab_rng r;
    dlab_rng_seed(&r, 6);
    for (int i = 0; i < 300; i++) {
        static spanned d;
        const int pos = 50 + (int)dlab_rng_below(&r, MAX_LEN - 50 - MAX_ROWS), sealed = pos / 2 / 8 * 8;
        d = spanned_of(MAX_ROWS, pos, sealed);
        dlab_span spans[MAX_ROWS][MAX_SPANS];
        int count[MAX_ROWS];
        for (int k = 0; k < MAX_ROWS; k++) count[k] = random_spans(&r, pos + k, spans[k]);
        put_table(&d, MAX_ROWS, spans, count);
        const dlab_attn_fused_args a = args_of(&d, plane(DLAB_U8, DLAB_SCALES_BLOCK, 8, 16), 1);
        const dlab_op_cost c = cost_of(DLAB_OP_attn_fused, &a, &d.head);
        ck_assert_double_ge(c.kv_bytes, bytes_of(count_union(MAX_ROWS, spans, count, sealed, 8)));
        ck_assert_double_le(c.kv_bytes, c.kv_dense_bytes);
    }
}
END_TEST

/* A table that visits everything costs what no table costs. */
START_TEST(spans_of_everything_are_dense)
{
    for (int group = 1; group <= 16; group *= 4) {
        static spanned d;
        d = spanned_of(MAX_ROWS, 77, 64);
        dlab_span spans[MAX_ROWS][MAX_SPANS];
        int count[MAX_ROWS];
        for (int r = 0; r < MAX_ROWS; r++) {
            spans[r][0] = (dlab_span){0, 78 + r, 1};
            count[r] = 1;
        }
        put_table(&d, MAX_ROWS, spans, count);
        dlab_attn_fused_args a = args_of(&d, plane(DLAB_U4, DLAB_SCALES_CHANNEL, group, 2 * group), 1);
        const dlab_op_cost all = cost_of(DLAB_OP_attn_fused, &a, &d.head);
        a.spans = (dlab_span_table){0};
        const dlab_op_cost dense = cost_of(DLAB_OP_attn_fused, &a, &d.head);
        ck_assert_mem_eq(&all, &dense, sizeof all);
        const int groups = 64 / group;
        ck_assert_double_eq(dense.kv_bytes, 2 * 2 * (64 * 16 + groups * 128 + (77 + MAX_ROWS - 64) * 64));
    }
}
END_TEST

/* ---- the others ---- */

START_TEST(costs_of_the_small_ops)
{
    const small_desc d = desc_of(0, 0, 0, 0);
    const dlab_embed_args e = {.table = {.dtype = DLAB_F16, .n = 100, .k = 10}, .n_rows = 3};
    costs(cost_of(DLAB_OP_embed, &e, &d.head), 60, 120, 0, 0);
    const dlab_rmsnorm_args r = {.n_rows = 3, .dim = 10};
    costs(cost_of(DLAB_OP_rmsnorm, &r, &d.head), 160, 120, 0, 120);
    const dlab_rmsnorm_args watched = {.watch = at(1), .n_rows = 3, .dim = 10};
    costs(cost_of(DLAB_OP_rmsnorm, &watched, &d.head), 160, 132, 0, 120);
    const dlab_hadamard_args h = {
        .n_rows = 3, .n_heads = 2, .head_dim = 80}; /* blocks of 16: 4 additions and a product */
    costs(cost_of(DLAB_OP_hadamard, &h, &d.head), 1920, 1920, 0, 5 * 480);
    dlab_quant_act_args q = {.n_rows = 3, .k = 64, .to = DLAB_ACT_INT8};
    costs(cost_of(DLAB_OP_quant_act, &q, &d.head), 768, 240, 0, 576);
    q.to = DLAB_ACT_BF16;
    costs(cost_of(DLAB_OP_quant_act, &q, &d.head), 768, 384, 0, 0);
    const dlab_rope_args p = {.n_rows = 3, .n_heads = 2, .head_dim = 10, .rot_dim = 8};
    costs(cost_of(DLAB_OP_rope, &p, &d.head), 192 + 96, 192, 0, 6 * 3 * 2 * 4);
    const dlab_swiglu_args s = {.n_rows = 3, .dim = 10};
    costs(cost_of(DLAB_OP_swiglu, &s, &d.head), 240, 120, 0, 120);
    const dlab_gather_args g = {.n_logits = 3, .dim = 10};
    costs(cost_of(DLAB_OP_gather, &g, &d.head), 120, 120, 0, 0);
    small_desc w = desc_of(0, 0, 0, 4);
    const dlab_sample_args a = {.first = 1, .n_logits = 3, .vocab = 100};
    w.logits[0].temperature = 1; /* not one of the three */
    costs(cost_of(DLAB_OP_sample, &a, &w.head), 1200, 12, 0, 300);
    w.logits[2].temperature = 0.5f; /* the only one that draws */
    costs(cost_of(DLAB_OP_sample, &a, &w.head), 1200, 12, 0, 600);
    const dlab_score_args c = {.n_logits = 3, .vocab = 100};
    costs(cost_of(DLAB_OP_score, &c, &d.head), 1200, 36, 0, 1200);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("op_cost");
    TCase *t = tcase_create("all");
    tcase_add_test(t, matmul_cost);
    tcase_add_test(t, attention_cost_follows_what_is_visited);
    tcase_add_test(t, partial_results_of_pieces);
    tcase_add_test(t, every_format_with_its_scales);
    tcase_add_test(t, writes_with_a_tail);
    tcase_add_test(t, a_strided_row);
    tcase_add_test(t, lists_of_each_head);
    tcase_add_test(t, one_row_is_exact_whatever_its_spans);
    tcase_add_test(t, sliding_windows_are_exact_together);
    tcase_add_test(t, rows_of_any_spans_are_bounded);
    tcase_add_test(t, spans_of_everything_are_dense);
    tcase_add_test(t, costs_of_the_small_ops);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

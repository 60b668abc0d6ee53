/* Attention over every format of the cache, every way to cut and to visit it, on every instruction set, against the
 * oracle; and places beyond 2³¹ bytes. */
#include <stdio.h>
#include <sys/mman.h>

#include "test_cpu_attn_case.h"

/* Values have no scales for channels: those formats come last. */
static const attn_format formats[] = {
    FMT_F32,
    FMT_F16,
    FMT_BF16,
    FMT_TOKEN(U8, 0),
    FMT_TOKEN(U8, 21),
    FMT_STEP(U8),
    FMT_BLOCK(U8, 8, 8),
    FMT_BLOCK(U8, 8, 30),
    FMT_TOKEN(E4M3, 0),
    FMT_TOKEN(E4M3, 300),
    FMT_STEP(E4M3),
    FMT_TOKEN(E5M2, 0),
    FMT_STEP(E5M2),
    FMT_TOKEN(U4, 0),
    FMT_TOKEN(U4, 5),
    FMT_CHANNEL(U8, 8, 8),
    FMT_CHANNEL(U8, 8, 40),
};
#define N_FORMATS       ((int)(sizeof formats / sizeof formats[0]))
#define N_VALUE_FORMATS (N_FORMATS - 2)

static const int segments[] = {0, 8, 16, 24, 40, 0}; /* with 40 and 24 the segments are of odd lengths */
static const int dims[] = {64, 16, 80, 128};
/* around every unrolling (4, 8 and 16 tokens, pieces of 256), and what ends in the middle of one */
static const int lens[] = {1,  3,  4,   5,   7,   8,   9,   15,  16,  17,  31, 33,
                           47, 49, 255, 256, 257, 271, 273, 511, 512, 513, 530};
#define N_LENS ((int)(sizeof lens / sizeof lens[0]))

/* The n-th of many cases with this format of K: V's format, the shape and the lengths go round. */
static attn_case nth_case(int format, int n, int segment, attn_spans spans)
{
    attn_case c = {.dim = dims[n % 4], .kv_heads = 1 + n % 3 / 2, .k = formats[format], .segment = segment};
    c.heads = c.kv_heads * (1 + n % 9);
    c.v = formats[(format * 7 + n) % N_VALUE_FORMATS];
    c.spans = spans;
    for (int s = 0; s < 2; s++) {
        c.seqs[s].len = lens[(n * 2 + s + format * 3) % (s ? N_LENS / 2 : N_LENS)];
        c.seqs[s].rows = 1 + (n + s) % 3 * 2;
        if (c.seqs[s].rows > c.seqs[s].len) c.seqs[s].rows = c.seqs[s].len;
    }
    return c;
}

static void check_case(lab *oracle, lab *isas, int n_isas, const attn_case *c)
{
    char what[200];
    outcome fused = attn_fused_outcome(oracle, c, -1), unfused = attn_unfused_outcome(oracle, c, DLAB_OP_N, -1);
    for (int i = 0; i < n_isas; i++) {
        snprintf(what, sizeof what,
                 "%s, K %s %d tail %d, V %s %d tail %d, dim %d, heads %d/%d, segments %d, spans %d, lengths %d %d",
                 isas[i].dev->ops->variant(isas[i].dev), dlab_dtype_name(c->k.dtype), c->k.scales, c->k.tail,
                 dlab_dtype_name(c->v.dtype), c->v.scales, c->v.tail, c->dim, c->heads, c->kv_heads, c->segment,
                 c->spans, c->seqs[0].len, c->seqs[1].len);
        outcome got = attn_fused_outcome(&isas[i], c, -1);
        assert_near(&got, &fused, what);
        outcome_free(&got);
        got = attn_unfused_outcome(&isas[i], c, DLAB_OP_N, -1);
        assert_near(&got, &unfused, what);
        outcome_free(&got);
    }
    /* NaN equals NaN above: here there must be none */
    for (size_t i = 0; i < fused.n; i++)
        ck_assert_msg(isfinite(fused.value[i]), "%s: the oracle's is not finite", what);
    outcome_free(&fused);
    outcome_free(&unfused);
}

START_TEST(every_format_agrees_with_the_oracle)
{
    lab oracle = lab_open("ref", "auto", 1), isas[8];
    int n_isas = 0, n = 0;
    for (int i = 0; dlab_isa_list[i]; i++)
        if (dlab_isa_supported(dlab_isa_list[i])) isas[n_isas++] = lab_open("cpu", dlab_isa_list[i], 2);
    /* each pattern with three ways to cut; which three turns with the format */
    for (attn_spans spans = SPANS_NONE; spans < SPANS_N; spans++) {
        for (int cut = 0; cut < 3; cut++, n++) {
            const attn_case c = nth_case(_i, n, segments[(cut * 2 + (int)spans + _i) % 6], spans);
            check_case(&oracle, isas, n_isas, &c);
        }
    }
    for (int i = 0; i < n_isas; i++) lab_close(&isas[i]);
    lab_close(&oracle);
}
END_TEST

/* llama.cpp PR#13852: partial results are merged wrongly where there are more of them than a head has elements. */
START_TEST(bug_5_more_pieces_than_elements)
{
    static const int pieces[] = {1, 15, 16, 17, 31, 32, 33};
    lab oracle = lab_open("ref", "auto", 1), isas[8];
    int n_isas = 0;
    for (int i = 0; dlab_isa_list[i]; i++)
        if (dlab_isa_supported(dlab_isa_list[i])) isas[n_isas++] = lab_open("cpu", dlab_isa_list[i], 2);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        for (int around = -1; around <= 1; around++) {
            const attn_case c = {.dim = 16,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .k = FMT_F32,
                                 .v = FMT_F16,
                                 .seqs = {{pieces[p] * DLAB_ATTN_PIECE + around, 1 + (int)p % 2}},
                                 .segment = p % 2 ? 64 : 0};
            check_case(&oracle, isas, n_isas, &c);
        }
    }
    for (int i = 0; i < n_isas; i++) lab_close(&isas[i]);
    lab_close(&oracle);
}
END_TEST

/* ---- far away ---- */

#define FAR_BYTES  ((size_t)11 << 30)
#define FAR_K      ((int64_t)5 << 30)
#define FAR_V      (((int64_t)9 << 30) + 4096)
#define FAR_TOKENS 20
#define FAR_DIM    64

/* One sequence in a cache whose offsets need more than 32 bits: written, then attended to. */
static void far_step(lab *l, const float *x, float *out)
{
    dlab_buf far;
    void *map = mmap(NULL, FAR_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_int_eq(l->dev->ops->import(l->dev, DLAB_POOL_KV, map, FAR_BYTES, &far, NULL), DLAB_OK);
    size_t bytes;
    dlab_desc_head *d = new_desc(FAR_TOKENS, 1, 1, 0, &bytes);
    *desc_seq(d, 0) = (dlab_desc_seq){.n_rows = FAR_TOKENS, .n_segs = 1, .len = FAR_TOKENS};
    *desc_seg(d, 0) = (dlab_desc_seg){FAR_K, FAR_V, 0, FAR_TOKENS};
    for (int i = 0; i < FAR_TOKENS; i++)
        *desc_row(d, i) = (dlab_desc_row){.k_slot = FAR_K, .v_slot = FAR_V, .pos = i, .index = i};
    const dlab_kv_plane plane = {.base = {far, 0},
                                 .bytes = FAR_BYTES,
                                 .dtype = DLAB_U8,
                                 .scales = DLAB_SCALES_TOKEN,
                                 .group = 1,
                                 .head_stride = (int64_t)1 << 30,
                                 .token_stride = (int64_t)3 << 20,
                                 .meta_off = (int64_t)100 << 20};
    const size_t n = (size_t)FAR_TOKENS * 2 * FAR_DIM;
    dlab_kv_write_args w = {.kv = {plane, plane, 2, FAR_DIM}, .n_rows = FAR_TOKENS};
    w.k = lab_put(l, x, n * sizeof *x);
    w.v = lab_put(l, x + n, n * sizeof *x);
    w.desc = lab_put(l, d, bytes);
    dlab_attn_fused_args a = {.q = w.k, .desc = w.desc, .kv = w.kv, .n_rows = FAR_TOKENS, .n_heads = 2, .scale = 0.1f};
    a.max_len = FAR_TOKENS;
    a.out = lab_put(l, NULL, n * sizeof *x);
    a.partials = lab_put(l, NULL, (size_t)FAR_TOKENS * 2 * (FAR_DIM + 2) * sizeof *x);
    const dlab_at at = a.out;
    lab_submit(l, DLAB_OP_kv_write, &w);
    lab_submit(l, DLAB_OP_attn_fused, &a);
    lab_get(l, at, out, n * sizeof *out);
    /* offsets cut to 32 bits would have come here */
    const char *near = map;
    int written = 0;
    for (int64_t i = 0; i < (int64_t)1 << 20; i++)
        written |= near[(FAR_K & 0xffffffff) + i] | near[(FAR_V & 0xffffffff) + i];
    ck_assert_int_eq(written, 0);
    free(d);
    lab_clear(l);
    l->dev->ops->free(l->dev, DLAB_POOL_KV, far);
    munmap(map, FAR_BYTES);
}

START_TEST(bug_8_offsets_beyond_32_bits_are_right)
{
    const size_t n = (size_t)FAR_TOKENS * 2 * FAR_DIM;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    dlab_rng r;
    dlab_rng_seed(&r, 3);
    float *x = random_floats(&r, 2 * n, 1);
    lab oracle = lab_open("ref", "auto", 1);
    far_step(&oracle, x, want);
    lab_close(&oracle);
    for (int i = 0; dlab_isa_list[i]; i++) {
        if (!dlab_isa_supported(dlab_isa_list[i])) continue;
        lab l = lab_open("cpu", dlab_isa_list[i], 2);
        far_step(&l, x, got);
        for (size_t j = 0; j < n; j++) ck_assert_float_eq_tol(got[j], want[j], 1e-4f);
        lab_close(&l);
    }
    free(x);
    free(want);
    free(got);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cpu attention");
    TCase *t = tcase_create("formats");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_format_agrees_with_the_oracle, 0, N_FORMATS);
    tcase_add_test(t, bug_5_more_pieces_than_elements);
    tcase_add_test(t, bug_8_offsets_beyond_32_bits_are_right);
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

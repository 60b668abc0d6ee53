/* The oracle's cache and attention ops, against figures worked out by hand.
 *
 * The cache of the tests: 2 KV heads of dimension 2; tokens of a sequence in two segments that lie apart and in the
 * wrong order in memory, so that only an op that follows the descriptor finds them. */
#include <math.h>

#include "tests/kernels/ref_fixture.h"

#define DIM 2
#define G   2
#define H   4 /* query heads 0, 1 read KV head 0; 2, 3 read KV head 1 */

static ref_fixture f;
static dlab_error err;

static void setup(void) { fixture_open(&f); }
static void teardown(void) { fixture_close(&f); }

/* off: the layer's base is not the buffer's start */
static dlab_kv_plane plane_of(dlab_dtype dtype, size_t bytes, size_t off)
{
    const int64_t element = dlab_dtype_block_bytes(dtype);
    dlab_at base = buffer_of(&f, NULL, bytes);
    base.off = off;
    return (dlab_kv_plane){.base = base,
                           .bytes = bytes - off,
                           .dtype = dtype,
                           .group = 1,
                           .token_stride = DIM * element,
                           .head_stride = 4 * DIM * element}; /* 4 tokens a segment and head */
}

static dlab_kv_view view_of(dlab_dtype k, dlab_dtype v, size_t bytes)
{
    return (dlab_kv_view){.k = plane_of(k, bytes, 8), .v = plane_of(v, bytes, 16), .n_kv_heads = G, .head_dim = DIM};
}

START_TEST(kv_write_puts_rows_where_the_slots_say)
{
    const dlab_kv_view kv = view_of(DLAB_F32, DLAB_F16, 256);
    const float k[3][G * DIM] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
    const float v[3][G * DIM] = {{0.5f, 1, 1.5f, 2}, {-1, -2, 65520, 0x1.004p0f}, {9, 9, 9, 9}};
    small_desc d = desc_of(3, 1, 0, 0);
    d.rows[0].index = 1; /* of the region at 0 */
    d.rows[1].index = 0;
    d.rows[2].k_slot = -1;
    d.rows[2].v_slot = -1;
    const dlab_kv_write_args a = {.k = buffer_of(&f, k, sizeof k),
                                  .v = buffer_of(&f, v, sizeof v),
                                  .desc = buffer_of(&f, &d, sizeof d),
                                  .kv = kv,
                                  .n_rows = 3};
    submit_ok(dlab_submit_kv_write(f.dev, a, &err), &err);
    float kc[64], want_k[64] = {0};
    read_back(&f, kc, (dlab_at){kv.k.base.buf, 0}, sizeof kc);
    const int base = 2, head = 8; /* in floats */
    memcpy(want_k + base, (const float[]){5, 6, 1, 2}, 16);
    memcpy(want_k + base + head, (const float[]){7, 8, 3, 4}, 16);
    ck_assert_mem_eq(kc, want_k, sizeof kc);
    uint16_t vc[128], want_v[128] = {0};
    read_back(&f, vc, (dlab_at){kv.v.base.buf, 0}, sizeof vc);
    memcpy(want_v + 8, (const uint16_t[]){0xBC00, 0xC000, 0x3800, 0x3C00}, 8);
    memcpy(want_v + 16, (const uint16_t[]){0x7C00, 0x3C01, 0x3E00, 0x4000}, 8); /* 65520 is past f16: infinity */
    ck_assert_mem_eq(vc, want_v, sizeof vc);
}
END_TEST

START_TEST(kv_write_rounds_to_bf16)
{
    const dlab_kv_view kv = view_of(DLAB_BF16, DLAB_BF16, 64);
    const float k[G * DIM] = {1, 0x1.01p0f, 0x1.03p0f, -2}, v[G * DIM] = {0, 1, 0, 0};
    small_desc d = desc_of(1, 1, 0, 0);
    const dlab_kv_write_args a = {.k = buffer_of(&f, k, sizeof k),
                                  .v = buffer_of(&f, v, sizeof v),
                                  .desc = buffer_of(&f, &d, sizeof d),
                                  .kv = kv,
                                  .n_rows = 1};
    submit_ok(dlab_submit_kv_write(f.dev, a, &err), &err);
    uint16_t kc[32];
    read_back(&f, kc, (dlab_at){kv.k.base.buf, 0}, sizeof kc);
    ck_assert_uint_eq(kc[4], 0x3F80);
    ck_assert_uint_eq(kc[5], 0x3F80); /* halfway, to even */
    ck_assert_uint_eq(kc[12], 0x3F82);
    ck_assert_uint_eq(kc[13], 0xC000);
}
END_TEST

/* Sequence 0: tokens 0, 1 in the second segment of the buffer, token 2 in the first. Sequence 1: one token.
 *
 * K of head 0: t0 (ln 2, 0), t1 (0, ln 3), t2 (0, 0); head 1: −1 times that.  V: t0 (1, 10), t1 (2, 20), t2 (4, 40); head
 * 1: plus 100.  Queries of (1, 1), so that the scores of head 0 are ln 2, ln 3, 0: weights 2 : 3 : 1; of head 1
 * ½ : ⅓ : 1 = 3 : 2 : 6. */
#define LN2 0.69314718f
#define LN3 1.09861229f

typedef struct {
    dlab_kv_view kv;
    dlab_at q, out, desc, partials, scores;
} attention_case;

static void put_token(char *k, char *v, int64_t off, int token, const dlab_kv_view *kv, const float *kt, float vt)
{
    const dlab_kv_plane *kp = &kv->k, *vp = &kv->v;
    for (int g = 0; g < G; g++) {
        char *key =
            k + kp->base.off + off * dlab_dtype_block_bytes(kp->dtype) + g * kp->head_stride + token * kp->token_stride;
        char *value =
            v + vp->base.off + off * dlab_dtype_block_bytes(vp->dtype) + g * vp->head_stride + token * vp->token_stride;
        for (int i = 0; i < DIM; i++) {
            dlab_ref_put_element(key, kp->dtype, i, (double)(g ? -kt[i] : kt[i]));
            dlab_ref_put_element(value, vp->dtype, i, (double)(vt * (i ? 10 : 1) + (g ? 100.0f : 0)));
        }
    }
}

#define CACHE_BYTES 512
#define MAX_LEN     5

static attention_case make_case(dlab_dtype k_dtype, dlab_dtype v_dtype)
{
    attention_case c = {.kv = view_of(k_dtype, v_dtype, CACHE_BYTES)};
    char k[CACHE_BYTES] = {0}, v[CACHE_BYTES] = {0};
    const int64_t block = 2 * 4 * DIM; /* elements of a segment: 2 heads of 4 tokens */
    put_token(k, v, block, 0, &c.kv, (const float[]){LN2, 0}, 1);
    put_token(k, v, block, 1, &c.kv, (const float[]){0, LN3}, 2);
    put_token(k, v, 0, 0, &c.kv, (const float[]){0, 0}, 4);
    put_token(k, v, 2 * block, 0, &c.kv, (const float[]){5, 5}, 8);
    ck_assert_int_eq(dlab_host_upload((dlab_at){c.kv.k.base.buf, 0}, k, sizeof k, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_host_upload((dlab_at){c.kv.v.base.buf, 0}, v, sizeof v, NULL), DLAB_OK);
    const int64_t kb = block * dlab_dtype_block_bytes(k_dtype), vb = block * dlab_dtype_block_bytes(v_dtype);
    small_desc d = desc_of(3, 2, 3, 0);
    d.seqs[0] = (dlab_desc_seq){.row_begin = 0, .n_rows = 2, .seg_begin = 0, .n_segs = 2, .len = 3};
    d.seqs[1] = (dlab_desc_seq){.row_begin = 2, .n_rows = 1, .seg_begin = 2, .n_segs = 1, .len = 1};
    d.segs[0] = (dlab_desc_seg){.k_off = kb, .v_off = vb, .tok_begin = 0, .n_tok = 2};
    d.segs[1] = (dlab_desc_seg){.k_off = 0, .v_off = 0, .tok_begin = 2, .n_tok = 1};
    d.segs[2] = (dlab_desc_seg){.k_off = 2 * kb, .v_off = 2 * vb, .tok_begin = 0, .n_tok = 1};
    d.rows[0] = (dlab_desc_row){.pos = 1, .seq = 0};
    d.rows[1] = (dlab_desc_row){.pos = 2, .seq = 0};
    d.rows[2] = (dlab_desc_row){.pos = 0, .seq = 1};
    float q[3 * H * DIM], scores[H * 3 * MAX_LEN];
    for (size_t i = 0; i < N_OF(q); i++) q[i] = 2; /* times a scale of ½ */
    for (size_t i = 0; i < N_OF(scores); i++) scores[i] = 77;
    c.q = buffer_of(&f, q, sizeof q);
    c.out = buffer_of(&f, NULL, sizeof q);
    c.desc = buffer_of(&f, &d, sizeof d);
    c.partials = buffer_of(&f, NULL, 3 * H * (DIM + 2) * sizeof(float));
    c.scores = buffer_of(&f, scores, sizeof scores);
    return c;
}

/* Row 0 sees tokens 0, 1 (weights 2 : 3 and 3 : 2), row 1 all three, row 2 the one of its own sequence. */
static void check_out(const attention_case *c, double tol)
{
    const double w00 = (2 * 1 + 3 * 2) / 5.0, w01 = (3 * 1 + 2 * 2) / 5.0;
    const double w10 = (2 * 1 + 3 * 2 + 1 * 4) / 6.0, w11 = (3 * 1 + 2 * 2 + 6 * 4) / 11.0;
    const double want[3][G] = {{w00, w01}, {w10, w11}, {8, 8}};
    float got[3][H][DIM];
    read_back(&f, got, c->out, sizeof got);
    for (int r = 0; r < 3; r++) {
        for (int h = 0; h < H; h++) {
            const int g = h / (H / G);
            const double row[DIM] = {want[r][g] + 100 * g, 10 * want[r][g] + 100 * g};
            floats_near(got[r][h], row, DIM, tol);
        }
    }
}

static dlab_attn_unfused_args unfused_of(const attention_case *c)
{
    return (dlab_attn_unfused_args){.q = c->q,
                                    .out = c->out,
                                    .desc = c->desc,
                                    .scores = c->scores,
                                    .kv = c->kv,
                                    .n_rows = 3,
                                    .n_heads = H,
                                    .max_len = MAX_LEN,
                                    .scale = 0.5f};
}

START_TEST(fused_attention_by_hand)
{
    static const dlab_dtype types[][2] = {{DLAB_F32, DLAB_F32}, {DLAB_F16, DLAB_F32}, {DLAB_F32, DLAB_BF16}};
    const dlab_dtype *t = types[_i];
    const attention_case c = make_case(t[0], t[1]);
    const dlab_attn_fused_args a = {.q = c.q,
                                    .out = c.out,
                                    .desc = c.desc,
                                    .partials = c.partials,
                                    .kv = c.kv,
                                    .n_rows = 3,
                                    .n_heads = H,
                                    .max_len = MAX_LEN,
                                    .scale = 0.5f};
    submit_ok(dlab_submit_attn_fused(f.dev, a, &err), &err);
    /* ln 2 and ln 3 in f16 are off by up to 2.5e-4; 100 + 10 … in bf16 by up to ¼ */
    check_out(&c, t[0] == DLAB_F16 ? 5e-4 : t[1] == DLAB_BF16 ? 4e-3 : 1e-6);
}
END_TEST

START_TEST(unfused_attention_by_hand)
{
    const attention_case c = make_case(DLAB_F32, DLAB_F32);
    submit_ok(dlab_submit_attn_scores(f.dev, unfused_of(&c), &err), &err);
    float s[H][3][MAX_LEN];
    read_back(&f, s, c.scores, sizeof s);
    floats_near(s[1][1], (const double[]){LN2, LN3, 0, 77, 77}, 5, 1e-6); /* the rest is not touched */
    floats_near(s[2][0], (const double[]){-LN2, -LN3, 77, 77, 77}, 5, 1e-6);
    floats_near(s[0][2], (const double[]){10, 77, 77, 77, 77}, 5, 1e-6);
    submit_ok(dlab_submit_attn_softmax(f.dev, unfused_of(&c), &err), &err);
    read_back(&f, s, c.scores, sizeof s);
    floats_near(s[1][1], (const double[]){2 / 6.0, 3 / 6.0, 1 / 6.0, 77, 77}, 5, 1e-6);
    floats_near(s[3][1], (const double[]){3 / 11.0, 2 / 11.0, 6 / 11.0, 77, 77}, 5, 1e-6);
    floats_near(s[0][2], (const double[]){1, 77, 77, 77, 77}, 5, 1e-6);
    submit_ok(dlab_submit_attn_values(f.dev, unfused_of(&c), &err), &err);
    check_out(&c, 1e-6);
}
END_TEST

/* Scores far from zero: only differences matter. */
START_TEST(softmax_of_large_scores)
{
    attention_case c = make_case(DLAB_F32, DLAB_F32);
    float s[H][3][MAX_LEN] = {{{0}}};
    memcpy(s[0][1], (const float[]){10000, 10000, -10000}, 12);
    memcpy(s[0][0], (const float[]){-3e38f, -3e38f}, 8);
    ck_assert_int_eq(dlab_host_upload(c.scores, s, sizeof s, NULL), DLAB_OK);
    submit_ok(dlab_submit_attn_softmax(f.dev, unfused_of(&c), &err), &err);
    read_back(&f, s, c.scores, sizeof s);
    floats_near(s[0][1], (const double[]){0.5, 0.5, 0}, 3, 0);
    floats_near(s[0][0], (const double[]){0.5, 0.5}, 2, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ref_attention");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, kv_write_puts_rows_where_the_slots_say);
    tcase_add_test(t, kv_write_rounds_to_bf16);
    tcase_add_loop_test(t, fused_attention_by_hand, 0, 3);
    tcase_add_test(t, unfused_attention_by_hand);
    tcase_add_test(t, softmax_of_large_scores);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

/* Packed weights are the same weights: embedding rows equal those of the file's layout bit by bit, and a row's product is
 * the same whatever rows go along, on every instruction set, with outputs that do not fill a tile. llama.cpp#12657, #16479,
 * #19561: repacked weights that are wrong on one instruction set only; −128 among them. */
#include <stdio.h>
#include <xxhash.h>

#include "kernels/cpu/cpu_pack.h"
#include "test_cpu_lab.h"

static const dlab_dtype types[] = {DLAB_Q4_0, DLAB_Q4_1, DLAB_Q8_0, DLAB_F32, DLAB_F16, DLAB_BF16};
static const int32_t shapes[][2] = {{1, 32}, {3, 64}, {16, 32}, {17, 96}, {40, 576}, {33, 1376}};

typedef struct {
    lab l;
    dlab_matrix stored, packed;
} bench;

static bench open_bench(const char *device, const char *isa, dlab_dtype t, const int32_t shape[2], uint64_t seed)
{
    dlab_rng r;
    dlab_rng_seed(&r, seed);
    bench b = {.l = lab_open(device, isa, 2)};
    size_t bytes = 0;
    uint8_t *w = random_weights(&r, t, shape[0], shape[1], &bytes);
    b.stored = (dlab_matrix){.at = lab_put(&b.l, w, bytes), .dtype = t, .n = shape[0], .k = shape[1]};
    free(w);
    dlab_error err = {0};
    const dlab_device_opts opts = {2, isa, b.l.mem};
    const size_t room = b.l.dev->ops->packed_bytes(&opts, &b.stored);
    dlab_at to = {0};
    ck_assert_int_eq(b.l.dev->ops->alloc(b.l.dev, DLAB_POOL_WEIGHTS, room, &to.buf, &err), DLAB_OK);
    ck_assert_msg(b.l.dev->ops->pack(b.l.dev, &b.stored, to, &b.packed, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_int_ne(b.packed.layout, 0);
    ck_assert_uint_eq(b.packed.packed_bytes, room);
    return b;
}

static void close_bench(bench *b)
{
    b->l.dev->ops->free(b->l.dev, DLAB_POOL_WEIGHTS, b->packed.at.buf);
    lab_close(&b->l);
}

static float *product(bench *b, dlab_at x, int32_t n_rows, dlab_act input)
{
    const size_t n = (size_t)n_rows * (size_t)b->packed.n;
    float *y = malloc(n * sizeof *y);
    for (size_t i = 0; i < n; i++) y[i] = (float)(i % (size_t)b->packed.n);
    dlab_matmul_args a = {.x = x,
                          .y = lab_put(&b->l, y, n * sizeof *y),
                          .w = b->packed,
                          .n_rows = n_rows,
                          .input = input,
                          .accumulate = true};
    const dlab_at out = a.y;
    lab_submit(&b->l, DLAB_OP_matmul, &a);
    lab_get(&b->l, out, y, n * sizeof *y);
    return y;
}

/* However many rows go along, which decides whether a tile is widened first. */
static void compare_rows(bench *b, dlab_act input, const char *what)
{
    enum { ROWS = 41 };
    dlab_rng r;
    dlab_rng_seed(&r, 3);
    const size_t n = (size_t)b->stored.n, row = dlab_act_bytes(input, 1, b->stored.k);
    void *x = random_inputs(&r, input, ROWS, b->stored.k);
    const int kept = b->l.n_bufs;
    float *all = product(b, lab_put(&b->l, x, ROWS * row), ROWS, input);
    for (int32_t n_rows = 1, first = 0; first + n_rows <= ROWS; first += n_rows, n_rows += n_rows / 3 + 1) {
        float *some = product(b, lab_put(&b->l, (char *)x + (size_t)first * row, (size_t)n_rows * row), n_rows, input);
        ck_assert_msg(memcmp(some, all + (size_t)first * n, (size_t)n_rows * n * sizeof *all) == 0, "%s, %d rows", what,
                      n_rows);
        free(some);
        while (b->l.n_bufs > kept) b->l.dev->ops->free(b->l.dev, DLAB_POOL_ACTIVATIONS, b->l.bufs[--b->l.n_bufs]);
    }
    free(all);
    free(x);
}

static void compare_embedding(bench *b, const char *what)
{
    const size_t n = (size_t)b->stored.n, k = (size_t)b->stored.k;
    struct {
        dlab_desc_head head;
        dlab_desc_row row[64];
    } desc = {.head = {.n_rows = (int32_t)n, .row_off = offsetof(__typeof__(desc), row)}};
    for (size_t i = 0; i < n; i++) desc.row[i].token = (int32_t)(n - 1 - i);
    float *out[2];
    for (int p = 0; p < 2; p++) {
        out[p] = malloc(n * k * sizeof **out);
        dlab_embed_args a = {.table = p ? b->packed : b->stored,
                             .desc = lab_put(&b->l, &desc, sizeof desc),
                             .out = lab_put(&b->l, NULL, n * k * sizeof **out),
                             .n_rows = (int32_t)n};
        const dlab_at at = a.out;
        lab_submit(&b->l, DLAB_OP_embed, &a);
        lab_get(&b->l, at, out[p], n * k * sizeof **out);
    }
    ck_assert_msg(memcmp(out[0], out[1], n * k * sizeof **out) == 0, "%s: embedding", what);
    free(out[0]);
    free(out[1]);
}

START_TEST(packed_weights_are_the_same_weights)
{
    int tried = 0;
    for (int i = 0; dlab_isa_list[i]; i++) {
        if (!dlab_isa_supported(dlab_isa_list[i])) continue;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                char what[96];
                snprintf(what, sizeof what, "%s, %s [%d, %d]", dlab_isa_list[i], dlab_dtype_name(types[t]),
                         shapes[s][0], shapes[s][1]);
                bench b = open_bench(s == 3 ? "guard" : "cpu", dlab_isa_list[i], types[t], shapes[s], 10 * s + t);
                for (dlab_act input = DLAB_ACT_F32; input <= DLAB_ACT_BF16; input++)
                    if (dlab_act_fits(input, types[t])) compare_rows(&b, input, what);
                compare_embedding(&b, what);
                close_bench(&b);
                tried++;
            }
        }
    }
    ck_assert_int_ge(tried, 30);
}
END_TEST

/* Integer products are exact, so what adds them faster changes nothing. */
START_TEST(instruction_sets_of_one_width_give_the_same_bits)
{
    static const char *const pairs[][2] = {{"avx2", "avxvnni"}, {"avx512", "vnni"}, {"vnni", "bf16"}};
    for (size_t p = 0; p < 3; p++) {
        if (!dlab_isa_supported(pairs[p][0]) || !dlab_isa_supported(pairs[p][1])) continue;
        for (size_t t = 0; t < 3; t++) {
            dlab_rng r;
            float *y[2];
            for (int side = 0; side < 2; side++) {
                bench b = open_bench("cpu", pairs[p][side], types[t], shapes[4], t);
                dlab_rng_seed(&r, 9);
                dlab_qact_block *q = random_qact(&r, 9 * 576 / 32);
                y[side] = product(&b, lab_put(&b.l, q, 9 * 576 / 32 * sizeof *q), 9, DLAB_ACT_INT8);
                free(q);
                close_bench(&b);
            }
            ck_assert_mem_eq(y[0], y[1], 9 * 40 * sizeof *y[0]);
            free(y[0]);
            free(y[1]);
        }
    }
}
END_TEST

static uint64_t packed_hash(const dlab_matrix *m, int32_t lanes)
{
    const size_t bytes = dlab_pack_bytes(m, lanes);
    void *to = aligned_alloc(64, (bytes + 63) / 64 * 64);
    ck_assert_ptr_nonnull(to);
    memset(to, 0xff, bytes);
    const dlab_pack_args args = {*m, dlab_packed_matrix(m, (dlab_at){{to, bytes}, 0}, lanes)};
    dlab_cpu_pack_kernel.run(&args, 0, 0, dlab_cpu_pack_kernel.tasks(&args, 0), NULL);
    const uint64_t hash = XXH3_64bits(to, bytes);
    free(to);
    return hash;
}

/* Packed bytes of every element type, by lanes, of matrices that fill no tile. Should this fail, weights are packed in another
 * way than before: raise DLAB_PACK_LAYOUT, so that files in people's caches are made anew, and put the new hashes here. */
START_TEST(another_layout_has_another_number)
{
    static const struct {
        int32_t lanes;
        uint64_t hash;
    } rows[] = {
        {4, UINT64_C(0x73aebc9903ca568c)}, {8, UINT64_C(0xdf9fd5cb010d24f0)}, {16, UINT64_C(0x968ca830653c217a)}};
    enum { N_TYPES = sizeof types / sizeof *types, N = 21, K = 96 };
    static uint8_t bytes[N * K * sizeof(float)];
    uint64_t hashes[N_TYPES];
    dlab_rng r;
    for (int t = 0; t < N_TYPES; t++) {
        dlab_rng_seed(&r, (uint64_t)t);
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)dlab_rng_below(&r, 256);
        const dlab_matrix m = {.at = {{bytes, sizeof bytes}, 0}, .dtype = types[t], .n = N, .k = K};
        hashes[t] = packed_hash(&m, rows[_i].lanes);
    }
    const uint64_t hash = XXH3_64bits(hashes, sizeof hashes);
    ck_assert_msg(DLAB_PACK_LAYOUT == 1 && hash == rows[_i].hash, "layout %d of %d lanes: 0x%016llx", DLAB_PACK_LAYOUT,
                  rows[_i].lanes, (unsigned long long)hash);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpu pack");
    TCase *t = tcase_create("pack");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, packed_weights_are_the_same_weights);
    tcase_add_test(t, instruction_sets_of_one_width_give_the_same_bits);
    tcase_add_loop_test(t, another_layout_has_another_number, 0, 3);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

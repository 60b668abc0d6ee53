/* How K and V lie in memory: every figure here is worked out by hand. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/kv/format.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static dlab_kv_layout layout_of(const char *what, const char *format, const char *scales, int64_t block, int64_t tail)
{
    dlab_kv_layout l;
    dlab_error err = {0};
    const dlab_kv_format *f = dlab_kv_format_find(format);
    ck_assert_ptr_nonnull(f);
    ck_assert_msg(dlab_kv_layout_make(what, f, scales, block, tail, &l, &err) == DLAB_OK, "%s", err.msg);
    return l;
}

START_TEST(every_format_is_found_by_its_name_and_no_other_is)
{
    enum {
        PLAIN = 1 << DLAB_SCALES_NONE,
        TOKEN = 1 << DLAB_SCALES_TOKEN,
        STEP = 1 << DLAB_SCALES_STEP,
        BLOCK = 1 << DLAB_SCALES_BLOCK,
        CHANNEL = 1 << DLAB_SCALES_CHANNEL
    };
    static const struct {
        const char *name;
        dlab_dtype dtype;
        unsigned scales;
    } want[] = {{"f32", DLAB_F32, PLAIN},
                {"f16", DLAB_F16, PLAIN},
                {"bf16", DLAB_BF16, PLAIN},
                {"int8", DLAB_U8, TOKEN | STEP | BLOCK | CHANNEL},
                {"fp8", DLAB_E4M3, TOKEN | STEP | BLOCK},
                {"fp8_e5m2", DLAB_E5M2, TOKEN | STEP | BLOCK},
                {"int4", DLAB_U4, TOKEN}};
    for (size_t i = 0; i < N_OF(want); i++) {
        const dlab_kv_format *f = dlab_kv_format_find(want[i].name);
        ck_assert_msg(f != NULL, "%s is missing", want[i].name);
        ck_assert_str_eq(f->name, want[i].name);
        ck_assert_int_eq(f->dtype, want[i].dtype);
        ck_assert_uint_eq(f->scales, want[i].scales);
        ck_assert_uint_gt(strlen(f->summary), 0);
    }
    size_t n = 0;
    while (dlab_kv_formats[n]) n++;
    ck_assert_uint_eq(n, N_OF(want));
    ck_assert_ptr_null(dlab_kv_format_find("fp16"));
    ck_assert_ptr_null(dlab_kv_format_find(""));
}
END_TEST

START_TEST(regions_have_the_size_that_a_hand_computes)
{
    static const struct {
        const char *format, *scales;
        int64_t block, dim, cap, stride, meta, region;
    } cases[] = {
        {"f32", "token", 16, 64, 10, 256, 2560, 2560},
        {"f16", "token", 16, 64, 10, 128, 1280, 1280},
        {"bf16", "token", 16, 80, 3, 160, 480, 480},
        {"int8", "token", 16, 64, 16, 64, 1024, 1024 + 16 * 4},
        {"int8", "tensor", 16, 64, 16, 64, 1024, 1024 + 16 * 4},
        {"int8", "block", 16, 64, 32, 64, 2048, 2048 + 2 * 4},
        {"int8", "channel", 16, 64, 32, 64, 2048, 2048 + 2 * 64 * 4},
        {"int8", "token", 16, 80, 5, 80, 400, 400 + 5 * 4},
        {"int8", "token", 16, 5, 3, 5, 16, 16 + 3 * 4}, /* 15 bytes of elements: scales begin on a word */
        {"fp8", "token", 16, 16, 7, 16, 112, 112 + 7 * 4},
        {"fp8_e5m2", "block", 8, 16, 8, 16, 128, 128 + 4},
        {"int4", "token", 16, 64, 16, 32, 512, 512 + 16 * 2 * 4},
        {"int4", "token", 16, 80, 10, 48, 480, 480 + 10 * 3 * 4}, /* two and a half blocks take three */
        {"int4", "token", 16, 16, 10, 16, 160, 160 + 10 * 4},     /* half a block takes one */
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        dlab_kv_layout l = layout_of("kv.k", cases[i].format, cases[i].scales, cases[i].block, 0);
        ck_assert_msg(dlab_kv_token_stride(&l, cases[i].dim) == cases[i].stride, "case %zu: stride %lld", i,
                      (long long)dlab_kv_token_stride(&l, cases[i].dim));
        ck_assert_msg(dlab_kv_meta_off(&l, cases[i].dim, cases[i].cap) == cases[i].meta, "case %zu: scales at %lld", i,
                      (long long)dlab_kv_meta_off(&l, cases[i].dim, cases[i].cap));
        ck_assert_msg(dlab_kv_region_bytes(&l, cases[i].dim, cases[i].cap) == cases[i].region,
                      "case %zu: a region of %lld bytes", i,
                      (long long)dlab_kv_region_bytes(&l, cases[i].dim, cases[i].cap));
        ck_assert_int_eq(dlab_kv_region_bytes(&l, cases[i].dim, 0), 0);
    }
}
END_TEST

START_TEST(groups_and_tails_wait_in_a_ring_as_long_as_both)
{
    static const struct {
        const char *format, *scales;
        int64_t block, tail;
        int32_t group, cap;
        int64_t bytes_64; /* of the ring at head_dim 64 */
    } cases[] = {
        {"f16", "token", 16, 0, 1, 0, 0},
        {"int8", "token", 16, 0, 1, 0, 0},
        {"int8", "tensor", 16, 0, 1, 0, 0},
        {"int8", "token", 16, 8, 1, 9, 9 * 128},
        {"int8", "block", 16, 0, 16, 16, 16 * 128},
        {"int8", "channel", 16, 20, 16, 36, 36 * 128},
        {"int4", "token", 256, 128, 1, 129, 129 * 128},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        dlab_kv_layout l = layout_of("kv.k", cases[i].format, cases[i].scales, cases[i].block, cases[i].tail);
        ck_assert_int_eq(l.group, cases[i].group);
        ck_assert_int_eq(l.tail, cases[i].tail);
        ck_assert_int_eq(l.tail_cap, cases[i].cap);
        ck_assert_int_eq(dlab_kv_tail_bytes(&l, 64), cases[i].bytes_64);
    }
    dlab_kv_layout block = layout_of("kv.k", "int8", "block", 16, 0), token = layout_of("kv.k", "int8", "token", 16, 0);
    static const int64_t tokens[] = {0, 1, 15, 16, 17}, rounded[] = {0, 16, 16, 16, 32};
    for (size_t i = 0; i < N_OF(tokens); i++) {
        ck_assert_int_eq(dlab_kv_round_cap(&block, tokens[i]), rounded[i]);
        ck_assert_int_eq(dlab_kv_round_cap(&token, tokens[i]), tokens[i]);
    }
}
END_TEST

START_TEST(what_is_sealed_leaves_the_tail_in_whole_groups)
{
    static const struct {
        const char *scales;
        int64_t tail, len, from, sealed;
    } cases[] = {{"token", 0, 7, 0, 7},     {"token", 8, 8, 0, 0},      {"token", 8, 9, 0, 1},
                 {"token", 8, 100, 0, 92},  {"token", 8, 100, 95, 95},  {"block", 0, 15, 0, 0},
                 {"block", 0, 16, 0, 16},   {"block", 0, 31, 0, 16},    {"block", 0, 31, 32, 32},
                 {"channel", 20, 35, 0, 0}, {"channel", 20, 36, 0, 16}, {"channel", 20, 51, 16, 16},
                 {"channel", 20, 52, 0, 32}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        dlab_kv_layout l = layout_of("kv.k", "int8", cases[i].scales, 16, cases[i].tail);
        ck_assert_msg(dlab_kv_sealed(&l, cases[i].len, cases[i].from) == cases[i].sealed, "case %zu: %lld", i,
                      (long long)dlab_kv_sealed(&l, cases[i].len, cases[i].from));
    }
    /* Whatever the steps: whole groups are sealed, the recent tokens are not, and the others fit the ring. */
    static const int64_t tails[] = {0, 1, 15, 16, 17, 40};
    for (size_t t = 0; t < N_OF(tails); t++) {
        dlab_kv_layout l = layout_of("kv.k", "int8", "channel", 16, tails[t]);
        for (int64_t len = 0; len < 200; len++) {
            int64_t sealed = dlab_kv_sealed(&l, len, 0), waiting = len - sealed;
            ck_assert_int_eq(sealed % 16, 0);
            ck_assert_int_ge(waiting, len < tails[t] ? len : tails[t]);
            ck_assert_int_lt(waiting, l.tail_cap);
        }
    }
}
END_TEST

START_TEST(a_token_costs_its_elements_and_its_share_of_scales)
{
    dlab_kv_layout channel = layout_of("kv.k", "int8", "channel", 16, 0),
                   int4 = layout_of("kv.v", "int4", "token", 16, 0), block = layout_of("kv.v", "fp8", "block", 16, 64),
                   f16 = layout_of("kv.k", "f16", "token", 16, 0);
    /* 64 + 64·4/16 = 80 for K, 32 + 2·4 = 40 for V, of 2 layers with 3 heads */
    ck_assert_double_eq(dlab_kv_token_bytes(&channel, &int4, 2, 3, 64), (80 + 40) * 6);
    ck_assert_double_eq(dlab_kv_token_bytes(&f16, &block, 30, 3, 64), (128 + 64.25) * 90);
}
END_TEST

START_TEST(layouts_that_cannot_be_say_why)
{
    static const struct {
        const char *what, *format, *scales;
        int64_t block, tail;
        const char *says;
    } cases[] = {
        {"kv.k", "f16", "tensor", 16, 0, "kv.k_scales: f16 has no scales"},
        {"kv.v", "bf16", "block", 16, 0, "kv.v_scales: bf16 has no scales"},
        {"kv.k", "f32", "token", 16, 4, "kv.k_tail: 4 recent tokens"},
        {"kv.v", "int8", "channel", 16, 0, "channel is for keys"},
        {"kv.k", "int8", "tensor", 16, 4, "kv.k_tail: with kv.k_scales tensor"},
        {"kv.k", "int4", "token", 16, -1, "kv.k_tail: -1 tokens"},
        {"kv.k", "int8", "block", 0, 0, "groups of 0 tokens"},
        {"kv.k", "int4", "channel", 16, 0, "channel, which int4 does not have; it has: token"},
        {"kv.v", "fp8", "channel", 16, 0, "it has: token, tensor, block"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        dlab_kv_layout l;
        dlab_error err = {0};
        dlab_status st = dlab_kv_layout_make(cases[i].what, dlab_kv_format_find(cases[i].format), cases[i].scales,
                                             cases[i].block, cases[i].tail, &l, &err);
        ck_assert_int_eq(st, DLAB_EIMPOSSIBLE);
        ck_assert_msg(strstr(err.msg, cases[i].says) != NULL, "'%s' does not say '%s'", err.msg, cases[i].says);
        ck_assert_ptr_null(strchr(err.msg, '\n'));
    }
    dlab_kv_layout l;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_kv_layout_make("kv.k", dlab_kv_format_find("int8"), "row", 16, 0, &l, &err), DLAB_EUSAGE);
    /* Without groups the block size is of no concern. */
    ck_assert_int_eq(dlab_kv_layout_make("kv.k", dlab_kv_format_find("int8"), "token", 0, 0, &l, &err), DLAB_OK);
}
END_TEST

START_TEST(the_planner_counts_scales_in_exact_integers)
{
    static const struct {
        const char *format;
        int64_t dim, vector;
    } cases[] = {{"f32", 64, 256}, {"f16", 64, 128},     {"bf16", 80, 160}, {"int8", 64, 68}, {"int8", 80, 84},
                 {"fp8", 64, 68},  {"fp8_e5m2", 16, 20}, {"int4", 64, 40},  {"int4", 80, 60}, {"int4", 16, 20}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        dlab_kv_need need;
        ck_assert_int_eq(dlab_kv_plan(cases[i].format, "f16", 30, 3, cases[i].dim, 2048, 4, &need, NULL), DLAB_OK);
        int64_t vectors = 30LL * 3 * 2048 * 4;
        ck_assert_int_eq(need.k_bytes, vectors * cases[i].vector);
        ck_assert_int_eq(need.v_bytes, vectors * 2 * cases[i].dim);
        ck_assert_int_eq(need.total_bytes, need.k_bytes + need.v_bytes);
        ck_assert_int_eq(need.bytes_per_token, 90 * (cases[i].vector + 2 * cases[i].dim));
    }
    /* The plan's formula is the region's arithmetic. */
    for (size_t i = 0; dlab_kv_formats[i]; i++) {
        dlab_kv_layout l = layout_of("kv.k", dlab_kv_formats[i]->name, "token", 16, 0);
        for (int64_t dim = 16; dim <= 128; dim += 16) {
            dlab_kv_need need;
            ck_assert_int_eq(dlab_kv_plan(l.format->name, "f16", 1, 1, dim, 100, 1, &need, NULL), DLAB_OK);
            ck_assert_int_eq(need.k_bytes, dlab_kv_region_bytes(&l, dim, 100));
            ck_assert_double_eq(dlab_kv_token_bytes(&l, &l, 1, 1, dim), 2 * (double)need.k_bytes / 100);
        }
    }
}
END_TEST

START_TEST(a_plan_that_overflows_is_refused_and_the_largest_is_not)
{
    dlab_kv_need need;
    dlab_error err = {0};
    /* 68 bytes a vector, K and V: the sum is the last to overflow. */
    const int64_t most = INT64_MAX / (2 * 68);
    ck_assert_int_eq(dlab_kv_plan("int8", "int8", 1, 1, 64, most, 1, &need, &err), DLAB_OK);
    ck_assert_int_eq(need.total_bytes, most * 136);
    ck_assert_int_eq(dlab_kv_plan("int8", "int8", 1, 1, 64, most + 1, 1, &need, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(err.msg, "overflows"));
    ck_assert_int_eq(dlab_kv_plan("int4", "f16", 1, 1, 64, 1LL << 32, 1LL << 32, &need, NULL), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_kv_plan("int4", "f16", 1LL << 40, 1LL << 40, 64, 1, 1, &need, NULL), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_kv_plan("int4", "f16", 1, 1, INT64_MAX, 1, 1, &need, NULL), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_kv_plan("int4", "f16", 1, 1, 64, -1, 1, &need, NULL), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_kv_plan("int3", "f16", 1, 1, 64, 1, 1, &need, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(err.msg, "'int3'"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv_format");
    TCase *t = tcase_create("arithmetic");
    tcase_add_test(t, every_format_is_found_by_its_name_and_no_other_is);
    tcase_add_test(t, regions_have_the_size_that_a_hand_computes);
    tcase_add_test(t, groups_and_tails_wait_in_a_ring_as_long_as_both);
    tcase_add_test(t, what_is_sealed_leaves_the_tail_in_whole_groups);
    tcase_add_test(t, a_token_costs_its_elements_and_its_share_of_scales);
    tcase_add_test(t, layouts_that_cannot_be_say_why);
    tcase_add_test(t, the_planner_counts_scales_in_exact_integers);
    tcase_add_test(t, a_plan_that_overflows_is_refused_and_the_largest_is_not);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

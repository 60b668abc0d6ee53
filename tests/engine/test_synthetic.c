/* Synthetic models: the shapes that their names promise, sane random weights, the same ones every time. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/engine.h"
#include "engine/model/model_own.h"
#include "tests/engine/real_model.h"

static dlab_model *open_model(const char *name)
{
    char spec[128];
    dlab_model *m = NULL;
    dlab_error err = {0};
    snprintf(spec, sizeof spec, "synthetic:%s", name);
    ck_assert_msg(dlab_model_open(spec, &m, &err) == DLAB_OK, "%s: %s", spec, err.msg);
    ck_assert_str_eq(dlab_model_get_info(m)->name, spec);
    return m;
}

START_TEST(every_name_opens_twice_the_same)
{
    int n_names = 0;
    for (; dlab_synthetic_names[n_names]; n_names++) {
        dlab_model *m = open_model(dlab_synthetic_names[n_names]), *again = open_model(dlab_synthetic_names[n_names]);
        const dlab_model_info *info = dlab_model_get_info(m);
        ck_assert_uint_eq(m->map_bytes, again->map_bytes);
        ck_assert_ptr_ne(m->map, again->map);
        ck_assert_int_eq(memcmp(m->map, again->map, m->map_bytes), 0);
        ck_assert_uint_eq(info->hash, dlab_model_get_info(again)->hash);
        ck_assert(info->synthetic && info->tied_head);
        ck_assert_ptr_null(dlab_model_gguf(m));
        dlab_model_close(again);
        dlab_model_close(m);
    }
    ck_assert_int_ge(n_names, 3);
}
END_TEST

START_TEST(different_names_have_different_hashes)
{
    dlab_model *a = open_model("tiny"), *b = open_model("tiny-q4");
    ck_assert_uint_ne(dlab_model_get_info(a)->hash, dlab_model_get_info(b)->hash);
    dlab_model_close(a);
    dlab_model_close(b);
}
END_TEST

/* Integers and one multiplication make these bytes, so that they are the same on every machine. */
START_TEST(the_recipe_has_not_changed)
{
    dlab_model *m = open_model("tiny-q4");
    const dlab_tensor *t = dlab_model_tensor(m, "token_embd.weight");
    ck_assert_uint_eq(XXH64(t->data, t->bytes, 0), UINT64_C(0x800a7af4ed4f1451));
    dlab_model_close(m);
}
END_TEST

START_TEST(smollm2_has_the_real_shapes)
{
    dlab_model *m = open_model("smollm2-135m");
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n = 0;
    ck_assert_str_eq(info->arch, "llama");
    ck_assert_str_eq(info->type, "Q4_1 (mixed)");
    ck_assert_int_eq(info->n_layers, 30);
    ck_assert_int_eq(info->width, 576);
    ck_assert_int_eq(info->ffn, 1536);
    ck_assert_int_eq(info->n_heads, 9);
    ck_assert_int_eq(info->n_kv_heads, 3);
    ck_assert_int_eq(info->head_dim, 64);
    ck_assert_int_eq(info->vocab, 49152);
    ck_assert_int_eq(info->context, 8192);
    ck_assert_float_eq(info->rope_base, 100000);
    ck_assert_float_eq(info->eps, 1e-5f);
    ck_assert_int_eq(info->n_params, 134515008);
    ck_assert_int_eq(info->weight_bytes, 96576768);
    dlab_model_tensors(m, &n);
    ck_assert_uint_eq(n, 272);
    dlab_model_close(m);
}
END_TEST

/* Skipped by name when the real file is absent. */
START_TEST(smollm2_mirrors_the_real_file)
{
    dlab_model *real = NULL;
    dlab_status st = DLAB_OK;
    dlab_error err = {0};
    size_t n = 0, n_made = 0;
    if (!open_real_model(&real, &st, &err)) {
        fprintf(stderr, "skipped: smollm2_mirrors_the_real_file (%s)\n", err.msg);
        return;
    }
    ck_assert_msg(st == DLAB_OK, "%s", err.msg);
    dlab_model *made = open_model("smollm2-135m");
    const dlab_tensor *t = dlab_model_tensors(real, &n), *u = dlab_model_tensors(made, &n_made);
    ck_assert_uint_eq(n, n_made);
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(t[i].name, u[i].name);
        ck_assert_int_eq(t[i].dtype, u[i].dtype);
        ck_assert_int_eq(memcmp(t[i].dims, u[i].dims, sizeof t[i].dims), 0);
    }
    ck_assert_int_eq(dlab_model_get_info(real)->context, dlab_model_get_info(made)->context);
    ck_assert_float_eq(dlab_model_get_info(real)->rope_base, dlab_model_get_info(made)->rope_base);
    ck_assert_float_eq(dlab_model_get_info(real)->eps, dlab_model_get_info(made)->eps);
    dlab_model_close(made);
    dlab_model_close(real);
}
END_TEST

/* Element i of a tensor, by the layouts of base/dtype.h. */
static double element(const dlab_tensor *t, int64_t i)
{
    const uint8_t *p = t->data;
    uint16_t d = 0, m = 0;
    float f = 0;
    switch (t->dtype) {
    case DLAB_F32:
        memcpy(&f, p + 4 * i, sizeof f);
        return (double)f;
    case DLAB_BF16:
        memcpy(&d, p + 2 * i, sizeof d);
        return (double)dlab_bf16_to_f32(d);
    case DLAB_Q8_0:
        memcpy(&d, p + i / 32 * 34, sizeof d);
        return (double)dlab_f16_to_f32(d) * (int8_t)p[i / 32 * 34 + 2 + i % 32];
    case DLAB_Q4_1:
        p += i / 32 * 20;
        memcpy(&d, p, sizeof d);
        memcpy(&m, p + 2, sizeof m);
        return (double)dlab_f16_to_f32(d) * (p[4 + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15) + (double)dlab_f16_to_f32(m);
    default:
        ck_abort_msg("no %s in a synthetic model", dlab_dtype_name(t->dtype));
    }
    return NAN;
}

/* Matrices: mean 0 and sd 1/√K; norms: around 1. */
START_TEST(weights_have_sane_sizes)
{
    static const char *const names[] = {"tiny", "tiny-q4", "tiny-bf16"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t n = 0;
        dlab_model *m = open_model(names[k]);
        const dlab_tensor *all = dlab_model_tensors(m, &n);
        for (size_t i = 0; i < n; i++) {
            int64_t count = all[i].dims[0] * all[i].dims[1];
            double sum = 0, squares = 0, want = all[i].n_dims > 1 ? 1 / sqrt((double)all[i].dims[0]) : 0.1;
            for (int64_t j = 0; j < count; j++) sum += element(&all[i], j);
            for (int64_t j = 0; j < count; j++) squares += pow(element(&all[i], j) - sum / (double)count, 2);
            double mean = sum / (double)count, sd = sqrt(squares / (double)count), slack = 5 / sqrt((double)count);
            ck_assert_msg(fabs(mean - (all[i].n_dims > 1 ? 0 : 1)) < want * (slack + 0.05), "%s: mean %g", all[i].name,
                          mean);
            ck_assert_msg(fabs(sd / want - 1) < slack + 0.05, "%s: sd %g, expected %g", all[i].name, sd, want);
        }
        dlab_model_close(m);
    }
}
END_TEST

START_TEST(an_unknown_name_gets_the_nearest)
{
    dlab_model *m = NULL;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_model_open("synthetic:smolm2-135m", &m, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(m);
    ck_assert_ptr_nonnull(strstr(err.msg, "did you mean 'smollm2-135m'"));
    ck_assert_int_eq(dlab_model_open("synthetic:", &m, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(err.msg, "there are smollm2-135m, tiny, tiny-q4"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("synthetic");
    TCase *c = tcase_create("synthetic");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, every_name_opens_twice_the_same);
    tcase_add_test(c, different_names_have_different_hashes);
    tcase_add_test(c, the_recipe_has_not_changed);
    tcase_add_test(c, smollm2_has_the_real_shapes);
    tcase_add_test(c, smollm2_mirrors_the_real_file);
    tcase_add_test(c, weights_have_sane_sizes);
    tcase_add_test(c, an_unknown_name_gets_the_nearest);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* Small helps for tests of the engine: plans from "KEY=VALUE" lists, engines, texts of token ids. */
#ifndef DLAB_TESTS_ENGINE_ENGINE_TEST_H
#define DLAB_TESTS_ENGINE_ENGINE_TEST_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/core.h"
#include "engine/engine.h"
#include "kernels/device.h"

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        dlab_error err_ = {0}, *err __attribute__((unused)) = &err_;                                                   \
        ck_assert_msg((expr) == DLAB_OK, "%s: %s", #expr, err_.msg);                                                   \
    } while (0)

/* sets: words separated by spaces. */
static inline dlab_plan plan_of(const char *sets)
{
    dlab_plan p;
    dlab_plan_default(&p);
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", sets);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) OK(dlab_plan_set(&p, w, err));
    return p;
}

static inline dlab_model *open_model(const char *spec)
{
    dlab_model *m = NULL;
    OK(dlab_model_open(spec, &m, err));
    return m;
}

static inline dlab_engine *open_engine(const dlab_model *m, const char *sets, int64_t seqs, int64_t tokens,
                                       int64_t logits)
{
    dlab_plan p = plan_of(sets);
    dlab_engine_needs needs = {.max_seqs = seqs, .max_tokens = tokens, .max_prompt = tokens, .max_logits = logits};
    dlab_engine *e = NULL;
    OK(dlab_engine_create(&p, m, &needs, &e, err));
    return e;
}

static inline void fill_ids(int32_t *ids, int n, int32_t vocab, uint64_t seed)
{
    dlab_rng r;
    dlab_rng_seed(&r, seed);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)dlab_rng_below(&r, (uint64_t)vocab);
}

/* malloc'd logits [n, vocab] of every position. */
static inline float *logits_of(const dlab_model *m, const char *sets, const int32_t *ids, int n)
{
    int32_t vocab = dlab_model_get_info(m)->vocab;
    dlab_engine *e = open_engine(m, sets, 1, n, n);
    float *out = malloc((size_t)n * (size_t)vocab * sizeof *out);
    OK(dlab_engine_score(e, ids, n, n, NULL, NULL, out, err));
    dlab_engine_destroy(e);
    return out;
}

static inline double largest_difference(const float *a, const float *b, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        if (!(d >= 0)) d = -d;
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static inline int run_suite(Suite *s)
{
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

#endif

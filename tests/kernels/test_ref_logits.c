/* The oracle's sampling and scoring, against figures worked out by hand. */
#include <math.h>

#include "tests/kernels/ref_fixture.h"

#define V 5

static ref_fixture f;
static dlab_error err;

static void setup(void) { fixture_open(&f); }
static void teardown(void) { fixture_close(&f); }

/* The draw whose u is (about) x. */
static uint64_t draw_at(double x) { return (uint64_t)(x * 0x1p53) << 11; }

static int32_t sample(const float *logits, float temperature, int32_t top_k, float top_p, double u)
{
    small_desc d = desc_of(1, 1, 0, 1);
    d.logits[0] = (dlab_desc_logit){.draw = draw_at(u), .temperature = temperature, .top_p = top_p, .top_k = top_k};
    const dlab_at tokens = buffer_of(&f, NULL, sizeof(int32_t));
    const dlab_sample_args a = {.logits = buffer_of(&f, logits, V * sizeof(float)),
                                .tokens = tokens,
                                .desc = buffer_of(&f, &d, sizeof d),
                                .work = buffer_of(&f, NULL, V * 8),
                                .n_logits = 1,
                                .vocab = V,
                                .draws = temperature != 0};
    submit_ok(dlab_submit_sample(f.dev, a, &err), &err);
    int32_t got;
    read_back(&f, &got, tokens, sizeof got);
    fixture_close(&f);
    fixture_open(&f);
    return got;
}

/* Probabilities 0.1, 0.4, 0.2, 0.25, 0.05: in order 1, 3, 2, 0, 4 with sums 0.4, 0.65, 0.85, 0.95, 1. */
static const float *usual(void)
{
    static float logits[V];
    const double p[V] = {0.1, 0.4, 0.2, 0.25, 0.05};
    for (int i = 0; i < V; i++) logits[i] = (float)(log(p[i]) + 3);
    return logits;
}

START_TEST(greedy_takes_the_largest_and_the_lowest_id_on_a_tie)
{
    ck_assert_int_eq(sample(usual(), 0, 0, 1, 0.99), 1);
    ck_assert_int_eq(sample((const float[]){1, 3, 3, 2, 3}, 0, 0, 1, 0.5), 1);
    ck_assert_int_eq(sample((const float[]){-0.0f, 0, -1, -1, -1}, 0, 0, 1, 0), 0);
    ck_assert_int_eq(sample((const float[]){-INFINITY, -5, -INFINITY, -4, -6}, 0, 0, 1, 0), 3);
}
END_TEST

START_TEST(draws_follow_the_sorted_sums)
{
    static const struct {
        double u;
        int32_t token;
    } cases[] = {{0, 1},    {0.39, 1}, {0.41, 3}, {0.64, 3}, {0.66, 2},
                 {0.84, 2}, {0.86, 0}, {0.94, 0}, {0.96, 4}, {0.999999, 4}};
    for (size_t i = 0; i < N_OF(cases); i++) ck_assert_int_eq(sample(usual(), 1, 0, 1, cases[i].u), cases[i].token);
}
END_TEST

START_TEST(top_k_keeps_so_many)
{
    /* of 0.4 and 0.25: 0.615 and the rest */
    ck_assert_int_eq(sample(usual(), 1, 2, 1, 0.60), 1);
    ck_assert_int_eq(sample(usual(), 1, 2, 1, 0.63), 3);
    ck_assert_int_eq(sample(usual(), 1, 2, 1, 0.999999), 3);
    ck_assert_int_eq(sample(usual(), 1, 1, 1, 0.999999), 1);
    ck_assert_int_eq(sample(usual(), 1, 50, 1, 0.999999), 4); /* more than there are: all */
}
END_TEST

START_TEST(top_p_keeps_the_shortest_head_that_reaches_it)
{
    ck_assert_int_eq(sample(usual(), 1, 0, 0.39f, 0.999999), 1);
    ck_assert_int_eq(sample(usual(), 1, 0, 0.41f, 0.999999), 3);
    ck_assert_int_eq(sample(usual(), 1, 0, 0.64f, 0.999999), 3);
    ck_assert_int_eq(sample(usual(), 1, 0, 0.66f, 0.999999), 2);
    ck_assert_int_eq(sample(usual(), 1, 0, 0.66f, 0.0), 1);
    ck_assert_int_eq(sample(usual(), 1, 0, 0.0f, 0.999999), 1); /* at least one */
    /* after top_k 3 the sums are 0.4/0.85 = 0.47, 0.76, 1 */
    ck_assert_int_eq(sample(usual(), 1, 3, 0.46f, 0.999999), 1);
    ck_assert_int_eq(sample(usual(), 1, 3, 0.48f, 0.999999), 3);
    ck_assert_int_eq(sample(usual(), 1, 3, 0.78f, 0.999999), 2);
}
END_TEST

/* Temperature ½ squares the probabilities: 0.01, 0.16, 0.04, 0.0625, 0.0025 of 0.275: 0.58, 0.81, 0.95, 0.99, 1. */
START_TEST(temperature_sharpens)
{
    ck_assert_int_eq(sample(usual(), 0.5f, 0, 1, 0.57), 1);
    ck_assert_int_eq(sample(usual(), 0.5f, 0, 1, 0.60), 3);
    ck_assert_int_eq(sample(usual(), 0.5f, 0, 1, 0.80), 3);
    ck_assert_int_eq(sample(usual(), 0.5f, 0, 1, 0.83), 2);
    ck_assert_int_eq(sample(usual(), 1e-6f, 0, 1, 0.999999), 1);
}
END_TEST

START_TEST(ties_are_drawn_in_order_of_id)
{
    const float even[V] = {2, 2, 2, 2, 2};
    for (int i = 0; i < V; i++) ck_assert_int_eq(sample(even, 1, 0, 1, 0.2 * i + 0.1), i);
    for (int i = 0; i < V; i++) ck_assert_int_lt(sample(even, 1, 2, 1, 0.2 * i + 0.1), 2);
}
END_TEST

START_TEST(nan_gives_minus_one)
{
    for (int i = 0; i < V; i++) {
        float logits[V] = {1, 2, 3, 4, 5};
        logits[i] = NAN;
        ck_assert_int_eq(sample(logits, 0, 0, 1, 0.5), -1);
        ck_assert_int_eq(sample(logits, 1, 1, 1, 0.5), -1);
    }
    ck_assert_int_eq(sample((const float[]){0, INFINITY, 0, 0, 0}, 1, 0, 1, 0.5), 1);
    ck_assert_int_eq(sample((const float[]){-INFINITY, 1, -INFINITY, 1, -INFINITY}, 1, 0, 1, 0.75), 3);
}
END_TEST

START_TEST(rows_are_counted_from_first)
{
    const float logits[2][V] = {{9, 0, 0, 0, 0}, {0, 0, 0, 9, 0}};
    const int32_t before[4] = {-7, -7, -7, -7};
    small_desc d = desc_of(4, 1, 0, 4);
    d.logits[1] = (dlab_desc_logit){.draw = draw_at(0.9999999), .temperature = 1, .top_p = 1};
    d.logits[2] = (dlab_desc_logit){.temperature = 1, .top_p = 1};
    const dlab_at tokens = buffer_of(&f, before, sizeof before);
    const dlab_sample_args a = {.logits = buffer_of(&f, logits, sizeof logits),
                                .tokens = tokens,
                                .desc = buffer_of(&f, &d, sizeof d),
                                .work = buffer_of(&f, NULL, 2 * V * 8),
                                .first = 1,
                                .n_logits = 2,
                                .vocab = V,
                                .draws = true};
    submit_ok(dlab_submit_sample(f.dev, a, &err), &err);
    int32_t got[4];
    read_back(&f, got, tokens, sizeof got);
    ck_assert_mem_eq(got, ((const int32_t[]){-7, 4, 3, -7}), sizeof got); /* e⁻⁹ leaves u = 0.9999999 to the last */
}
END_TEST

START_TEST(score_by_hand)
{
    /* weights 1, 2, 3, 4 and 0; then 1000 more than anything; then one with no target; then NaN */
    const float logits[4][V] = {
        {0, 0.69314718f, 1.09861229f, 1.38629436f, -INFINITY}, {0, 1000, 0, 0, 0}, {1, 5, 5, 0, 0}, {1, NAN, 0, 0, 0}};
    small_desc d = desc_of(5, 1, 0, 5);
    d.logits[1].target = 2;
    d.logits[2].target = 3;
    d.logits[3].target = -1;
    d.logits[4].target = 0;
    const dlab_at nll = buffer_of(&f, NULL, 5 * sizeof(double)), top1 = buffer_of(&f, NULL, 5 * sizeof(int32_t));
    const dlab_score_args a = {.logits = buffer_of(&f, logits, sizeof logits),
                               .nll = nll,
                               .top1 = top1,
                               .desc = buffer_of(&f, &d, sizeof d),
                               .first = 1,
                               .n_logits = 4,
                               .vocab = V};
    submit_ok(dlab_submit_score(f.dev, a, &err), &err);
    double got[5];
    int32_t ids[5];
    read_back(&f, got, nll, sizeof got);
    read_back(&f, ids, top1, sizeof ids);
    ck_assert_double_eq_tol(got[1], log(10.0 / 3), 1e-7);
    ck_assert_double_eq_tol(got[2], 1000, 1e-9);
    ck_assert_double_eq(got[3], 0);
    ck_assert(isnan(got[4]));
    ck_assert_mem_eq(ids, ((const int32_t[]){0, 3, 1, 1, -1}), sizeof ids);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ref_logits");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, greedy_takes_the_largest_and_the_lowest_id_on_a_tie);
    tcase_add_test(t, draws_follow_the_sorted_sums);
    tcase_add_test(t, top_k_keeps_so_many);
    tcase_add_test(t, top_p_keeps_the_shortest_head_that_reaches_it);
    tcase_add_test(t, temperature_sharpens);
    tcase_add_test(t, ties_are_drawn_in_order_of_id);
    tcase_add_test(t, nan_gives_minus_one);
    tcase_add_test(t, rows_are_counted_from_first);
    tcase_add_test(t, score_by_hand);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

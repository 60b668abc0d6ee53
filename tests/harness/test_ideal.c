/* What an ideal prefix cache finds, by hand. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "harness/run/ideal.h"

static int32_t ids[64];
static int64_t offset[8], depth[8], length[8], after[8];
static dlab_requests q;
static dlab_run run;

/* The prompts are words; their letters are tokens. */
static void fill(const char *const *words, int32_t samples)
{
    dlab_run_init(&run);
    q = (dlab_requests){.samples = samples, .ids = ids, .offset = offset, .depth = depth, .prompt = length};
    for (int64_t n = 0; words[q.n]; q.n++) {
        offset[q.n] = n;
        depth[q.n] = 0;
        after[q.n] = -1;
        length[q.n] = (int64_t)strlen(words[q.n]);
        for (int64_t k = 0; k < length[q.n]; k++) ids[n++] = (unsigned char)words[q.n][k];
        for (int32_t j = 0; j < samples; j++) {
            const dlab_ev_request e = {.id = q.n * samples + j};
            ck_assert_int_eq(dlab_run_add_request(&run, &e, NULL), DLAB_OK);
        }
    }
}

static void teardown(void) { dlab_run_free(&run); }

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* 2 prefixes of 4 tokens, 5 requests of 6 begin with one: (5 − 2) · 4 of 35. */
START_TEST(groups_of_prefixes)
{
    fill(WORDS("ABCDx", "EFGHxy", "ABCDyz", "none12", "EFGHzz", "ABCDzz"), 1);
    ck_assert_double_eq_tol(dlab_ideal_hit(&q, &run), 12 / 35.0, 1e-12);
}
END_TEST

START_TEST(nothing_in_common_is_zero)
{
    fill(WORDS("abc", "bcd", "c"), 1);
    ck_assert_double_eq(dlab_ideal_hit(&q, &run), 0);
}
END_TEST

/* Begun alike to different lengths, as in a trace: AB is new once, ABC once; of the same prompt again one token is computed. */
START_TEST(trees_and_repetitions)
{
    fill(WORDS("ABx", "ABCy", "ABCz", "ABCz"), 1);
    ck_assert_double_eq_tol(dlab_ideal_hit(&q, &run), (2 + 3 + 3) / 15.0, 1e-12);
}
END_TEST

/* A prompt is looked for once, however many answers it gets, and only if it was sent. */
START_TEST(what_was_sent_once)
{
    fill(WORDS("ABCDx", "ABCDy", "ABCDz"), 3);
    ck_assert_double_eq_tol(dlab_ideal_hit(&q, &run), 8 / 15.0, 1e-12);
    run.requests[6].t_submit = run.requests[7].t_submit = run.requests[8].t_submit = NAN;
    ck_assert_double_eq_tol(dlab_ideal_hit(&q, &run), 4 / 10.0, 1e-12);
    run.n_requests = 0;
    ck_assert(isnan(dlab_ideal_hit(&q, &run)));
}
END_TEST

START_TEST(what_is_not_known_is_missing)
{
    fill(WORDS("ABx", "ABy"), 1);
    q.after = after;
    ck_assert_double_eq_tol(dlab_ideal_hit(&q, &run), 2 / 6.0, 1e-12);
    after[1] = 0; /* its prompt has an answer in it */
    ck_assert(isnan(dlab_ideal_hit(&q, &run)));
    after[1] = -1;
    depth[0] = 1;
    ck_assert(isnan(dlab_ideal_hit(&q, &run)));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ideal");
    TCase *c = tcase_create("ideal");
    tcase_add_checked_fixture(c, NULL, teardown);
    tcase_add_test(c, groups_of_prefixes);
    tcase_add_test(c, nothing_in_common_is_zero);
    tcase_add_test(c, trees_and_repetitions);
    tcase_add_test(c, what_was_sent_once);
    tcase_add_test(c, what_is_not_known_is_missing);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

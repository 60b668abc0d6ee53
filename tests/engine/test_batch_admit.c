/* Who is let in: how long a request may be, what it finds in the prefix cache, and how often that is looked up. */
#include "batch_lab.h"

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

START_TEST(the_longest_request_is_let_in_and_no_longer_one)
{
    static const struct {
        const char *sets;
        int64_t longest; /* of needs of 64 positions: the last token takes none */
    } cases[] = {
        {"", 65},
        {"kv.store=none", 65},
        {"kv.max_tokens=80", 65},
        {"kv.store=paged kv.block_size=8", 65},
        {"kv.store=paged kv.block_size=8 kv.pool=3blocks", 25},
        {"batch.budget=lengths batch.token_budget=20", 20},
        {"batch.budget=lengths batch.token_budget=200", 65},
        {"kv.store=paged kv.block_size=8 kv.pool=2blocks batch.budget=lengths batch.token_budget=18", 17},
    };
    dlab_model *m = lab_model();
    for (size_t i = 0; i < N_OF(cases); i++) {
        dlab_engine *e = open_engine(m, cases[i].sets, 2, 64, 0);
        const int64_t longest = dlab_engine_longest(e);
        ck_assert_msg(longest == cases[i].longest, "%s: %lld tokens", cases[i].sets, (long long)longest);
        dlab_engine_request r = lab_request(0, longest - 5, 6);
        ck_assert_int_eq(dlab_engine_submit(e, &r, NULL), DLAB_EIMPOSSIBLE);
        r.max_new = 5;
        OK(dlab_engine_submit(e, &r, err));
        lab_log l = {0};
        lab_run(e, &l);
        ck_assert_int_eq(l.n[0], 5);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* A pool of no size of its own is made for a whole batch at its longest: every place is taken as long as someone waits, in
 * every store and mode. */
START_TEST(a_pool_made_for_the_batch_leaves_no_place_empty)
{
    static const char *const plans[] = {"batch.size=4", "batch.size=4 kv.store=paged kv.block_size=8",
                                        "batch.size=4 kv.store=paged kv.prefix_cache=true",
                                        "batch.size=4 kv.store=none"};
    enum { PLACES = 4, PROMPT = 24, NEW = 9, REQUESTS = 12 };
    dlab_model *m = lab_model();
    for (size_t i = 0; i < N_OF(plans); i++) {
        dlab_engine *e = open_engine(m, plans[i], PLACES, PROMPT + NEW - 1, 0);
        lab_log l = {0};
        for (int64_t id = 0; id < REQUESTS; id++) lab_submit(e, id, PROMPT, NEW);
        while (dlab_engine_busy(e)) {
            dlab_engine_load before;
            dlab_engine_get_load(e, &before);
            const int64_t there = before.waiting + before.running;
            const dlab_step st = lab_step(e, &l);
            ck_assert_msg(st.seqs == (there < PLACES ? there : PLACES), "%s: %d of %d places in step %lld", plans[i],
                          st.seqs, PLACES, (long long)l.steps);
            ck_assert_int_eq(st.preempted, 0);
        }
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* ---- looked up --------------------------------------------------------------------------------------------------------- */

static dlab_status (*real_open)(void *ctx, int seq, int64_t extra, dlab_error *err);
static int n_opened, n_refused;

static dlab_status counted_open(void *ctx, int seq, int64_t extra, dlab_error *err)
{
    const dlab_status st = real_open(ctx, seq, extra, err);
    n_opened++;
    n_refused += st == DLAB_EFULL;
    return st;
}

static dlab_engine *open_counted(const dlab_model *m, const char *sets)
{
    dlab_engine *e = open_engine(m, sets, 3, 64, 0);
    real_open = e->batch.open;
    e->batch.open = counted_open;
    n_opened = n_refused = 0;
    return e;
}

#define CACHE "kv.store=paged kv.block_size=8 kv.prefix_cache=on batch.size=3 "

/* 0 takes 3 blocks of 8, and a fourth later: 1 needs 6 and waits until 0 has ended. It is looked up when it comes and when
 * the prompt of 0 was computed, not at each of the 14 steps. */
START_TEST(who_waits_for_room_is_not_looked_up_at_every_step)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_counted(m, CACHE "kv.pool=8blocks");
    lab_log l = {0};
    lab_submit(e, 0, 17, 14);
    lab_submit(e, 1, 40, 2);
    lab_run(e, &l);
    ck_assert_int_eq(l.done[0], 14);
    ck_assert_int_eq(l.begun[1], 15);
    ck_assert_int_eq(n_refused, 2);
    ck_assert_int_eq(n_opened, 4);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* 1 has 0's prompt and one token more: it needs 5 blocks, and 2 are free; with what 0 has computed, one is enough. */
START_TEST(who_waits_comes_in_when_another_has_computed_its_prompt)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_counted(m, CACHE "kv.pool=7blocks");
    lab_log l = {0};
    dlab_engine_request r = lab_request(0, 32, 8);
    OK(dlab_engine_submit(e, &r, err));
    r.id = 1;
    r.n_prompt = 33;
    r.max_new = 1;
    OK(dlab_engine_submit(e, &r, err));
    ck_assert_int_eq(lab_step(e, &l).n_admitted, 1);
    ck_assert_int_eq(n_refused, 1);
    const dlab_step st = lab_step(e, &l);
    ck_assert_int_eq(st.n_admitted, 1);
    ck_assert_int_eq(st.admitted[0], 1);
    ck_assert_int_eq(st.admitted_cached[0], 32);
    lab_run(e, &l);
    ck_assert_int_eq(n_refused, 1);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- what need not be computed ----------------------------------------------------------------------------------------- */

/* Of each request, prompt less cached are the rows that are computed for it, one at least: further samples compute none. */
START_TEST(cached_is_what_a_request_need_not_compute)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, CACHE, 3, 64, 0);
    for (int round = 0; round < 2; round++) {
        lab_log l = {0};
        dlab_engine_request r = lab_request(0, 20, 3);
        r.samples = 3;
        OK(dlab_engine_submit(e, &r, err));
        const dlab_step st = lab_step(e, &l);
        ck_assert_int_eq(st.n_admitted, 3);
        int64_t computed = 0;
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(st.admitted[i], i);
            ck_assert_int_eq(st.admitted_cached[i], i > 0 ? 20 : round * 16);
            computed += 20 - st.admitted_cached[i];
        }
        ck_assert_int_eq(st.prefill_rows, computed);
        lab_run(e, &l);
    }
    dlab_kv_stats kv = lab_kv(e); /* the store was asked once for all samples */
    ck_assert_int_eq(kv.asked_tokens, 2 * 20);
    ck_assert_int_eq(kv.hit_tokens, 16);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("batch admission");
    TCase *t = tcase_create("let in");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_longest_request_is_let_in_and_no_longer_one);
    tcase_add_test(t, a_pool_made_for_the_batch_leaves_no_place_empty);
    tcase_add_test(t, who_waits_for_room_is_not_looked_up_at_every_step);
    tcase_add_test(t, who_waits_comes_in_when_another_has_computed_its_prompt);
    tcase_add_test(t, cached_is_what_a_request_need_not_compute);
    suite_add_tcase(s, t);
    return run_suite(s);
}

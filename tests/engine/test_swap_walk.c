/* batch.preemption: thousands of steps with requests that come at random and a pool that is always too small: computed again or
 * swapped, the answers are those of a pool without end. */
#include "swap_lab.h"

enum { WALK_REQUESTS = 400, WALK_NEW = 40 };

typedef struct {
    int32_t ids[WALK_REQUESTS][WALK_NEW];
    int n[WALK_REQUESTS];
    int steps, preempted, out, in;
} walk;

/* What a request is follows from its id alone; the dice choose when it comes. */
static void submit_random(dlab_engine *e, int id)
{
    dlab_rng r;
    dlab_rng_seed(&r, 1000 + (uint64_t)id);
    const int64_t n = 1 + (int64_t)dlab_rng_below(&r, 40), max_new = 1 + (int64_t)dlab_rng_below(&r, WALK_NEW);
    const int32_t *prompt = ids + (dlab_rng_below(&r, 2) ? 0 : dlab_rng_below(&r, 4000));
    dlab_engine_request q = request_of(id, prompt, n, max_new);
    q.eos = dlab_rng_below(&r, 3) ? -1 : 7;
    OK(dlab_engine_submit(e, &q, err));
}

static void walk_through(const dlab_model *m, const char *sets, walk *w)
{
    memset(w, 0, sizeof *w);
    dlab_engine *e = open_as_harness(m, sets, 5, 80, 40);
    dlab_rng r;
    dlab_rng_seed(&r, 99);
    int sent = 0;
    while (sent < WALK_REQUESTS || dlab_engine_busy(e)) {
        while (sent < WALK_REQUESTS && (dlab_rng_below(&r, 7) == 0 || !dlab_engine_busy(e))) submit_random(e, sent++);
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        ck_assert_int_gt(st.rows, 0);
        ck_assert_int_eq(st.kv.pool_bytes, st.kv.reserved_bytes + st.kv.cached_bytes + st.kv.free_bytes);
        ck_assert_int_eq(e->swap.n - e->swap.n_free, pieces_of_images(e));
        ck_assert_int_lt(++w->steps, 100000);
        w->preempted += st.preempted;
        w->out += st.swapped_out;
        w->in += st.swapped_in;
        for (int i = 0; i < st.n_tokens; i++) {
            const dlab_step_token *t = &st.tokens[i];
            ck_assert_int_eq(t->index, w->n[t->request]);
            w->ids[t->request][w->n[t->request]++] = t->token;
        }
    }
    check_left(e);
    dlab_engine_destroy(e);
}

START_TEST(thousands_of_steps_answer_the_same)
{
    static const char *const plans[] = {"", "kv.pool=10blocks", "kv.pool=10blocks" SWAPPING,
                                        "kv.pool=10blocks kv.prefix_cache=on kv.swap=40KiB" SWAPPING,
                                        "kv.pool=10blocks batch.mode=static" SWAPPING};
    static walk want, got;
    dlab_model *m = tiny();
    for (size_t p = 0; p < N_OF(plans); p++) {
        char sets[256];
        snprintf(sets, sizeof sets, F32 "batch.size=5 kv.store=paged kv.block_size=8 sample.temperature=1.5 %s",
                 plans[p]);
        walk_through(m, sets, p ? &got : &want);
        if (p == 0) continue;
        for (int i = 0; i < WALK_REQUESTS; i++) {
            ck_assert_msg(want.n[i] > 0 && want.n[i] == got.n[i] &&
                              memcmp(want.ids[i], got.ids[i], sizeof want.ids[i]) == 0,
                          "%s: request %d", sets, i);
        }
        ck_assert_int_gt(got.steps, 1000);
        ck_assert_int_gt(got.preempted, 50);
        ck_assert_int_eq(got.out > 0, p > 1);
        ck_assert_int_eq(got.in, got.out);
    }
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("swap walk");
    TCase *t = tcase_create("swap walk");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, thousands_of_steps_answer_the_same);
    suite_add_tcase(s, t);
    return run_suite(s);
}

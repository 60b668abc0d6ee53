/* Requests that are given up, in every state in which one can be: they leave nothing behind, and nobody else notices. */
#include "batch_lab.h"

enum { N = 5 };

/* 0 … 2 are single requests, 10 has three samples (10, 11, 12), 20 waits behind. */
static const struct {
    int64_t id, prompt, output;
    int32_t samples;
} work[N] = {{0, 9, 16, 1}, {10, 11, 12, 3}, {1, 20, 9, 1}, {2, 3, 22, 1}, {20, 8, 5, 1}};

static void submit_work(dlab_engine *e)
{
    for (int i = 0; i < N; i++) {
        dlab_engine_request r = lab_request(work[i].id, work[i].prompt, work[i].output);
        r.samples = work[i].samples;
        r.priority = i % 2;
        OK(dlab_engine_submit(e, &r, err));
    }
}

static bool is_of(int64_t request, int i) { return request >= work[i].id && request < work[i].id + work[i].samples; }

/* Who is not of request `gone` has all its tokens; who is has those that it had when it was given up: with batch.release
 * at_end all or none. */
static void assert_neighbours(const lab_log *want, const lab_log *before, const lab_log *got, int gone, bool at_end,
                              const char *what)
{
    for (int64_t r = 0; r < LAB_IDS; r++) {
        const int n = is_of(r, gone) ? before->n[r] : want->n[r];
        ck_assert_msg(got->n[r] == n, "%s: request %lld has %d tokens", what, (long long)r, got->n[r]);
        ck_assert(!at_end || n == 0 || n == want->n[r]);
        ck_assert_msg(memcmp(got->ids[r], want->ids[r], (size_t)got->n[r] * sizeof got->ids[r][0]) == 0,
                      "%s: request %lld has other tokens", what, (long long)r);
    }
}

/* Each request is given up before every one of the first steps and many of the later, from one that is still queued to one
 * that has just ended. */
static int abort_everywhere(const dlab_model *m, const char *sets)
{
    lab_log want = {0};
    dlab_engine *e = open_engine(m, sets, 4, 48, 0);
    submit_work(e);
    lab_run(e, &want);
    lab_assert_idle(e, sets);
    if (strstr(sets, "8blocks")) ck_assert_msg(want.preempted > 0, "%s: nobody was preempted", sets);
    int hit = 0;
    for (int i = 0; i < N; i++) {
        for (int64_t at = 0; at < want.steps; at += at < 8 ? 1 : 2 + i % 3) {
            char what[400];
            snprintf(what, sizeof what, "%s: %lld given up before step %lld", sets, (long long)work[i].id,
                     (long long)at + 1);
            lab_log l = {0};
            submit_work(e);
            for (int64_t s = 0; s < at; s++) lab_step(e, &l);
            bool ended = true;
            for (int64_t r = work[i].id; r < work[i].id + work[i].samples; r++) ended = ended && l.done[r];
            const lab_log before = l;
            const bool found = dlab_engine_abort(e, work[i].id);
            ck_assert_msg(found == !ended, "%s: found %d", what, found);
            ck_assert(!dlab_engine_abort(e, work[i].id));
            ck_assert(!dlab_engine_abort(e, 33));
            lab_run(e, &l);
            assert_neighbours(&want, &before, &l, i, e->at_end, what);
            lab_assert_idle(e, what);
            hit += found;
        }
    }
    dlab_engine_destroy(e);
    return hit;
}

START_TEST(given_up_in_every_state_a_request_leaves_nothing)
{
    static const char *const plans[] = {
        "",
        "kv.store=paged kv.block_size=8",
        "kv.store=paged kv.block_size=8 kv.pool=8blocks", /* some are preempted */
        "kv.store=paged kv.block_size=8 kv.pool=8blocks kv.prefix_cache=on batch.policy=priority",
        "kv.store=none batch.policy=length_grouped",
        "batch.chunk=4 batch.token_budget=5",
        "batch.budget=lengths batch.token_budget=75",
    };
    dlab_model *m = lab_model();
    for (size_t b = 0; dlab_batchers[b]; b++) {
        for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
            char sets[256];
            snprintf(sets, sizeof sets, "compute=f32 threads=1 sample.temperature=1 batch.size=4 batch.mode=%s %s",
                     dlab_batchers[b]->name, plans[p]);
            ck_assert_int_ge(abort_everywhere(m, sets), 30);
        }
    }
    ck_assert_int_ge(
        abort_everywhere(m, "threads=1 batch.size=4 batch.mode=static batch.release=at_end kv.store=paged"), 30);
    dlab_model_close(m);
}
END_TEST

/* In a static batch the place of one that is given up is not padded, and what it held is free at once. */
START_TEST(a_static_batch_goes_on_without_the_one_given_up)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.mode=static batch.size=2 kv.store=paged", 2, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 8, 9);
    lab_submit(e, 1, 8, 4);
    lab_submit(e, 2, 8, 1);
    lab_step(e, &l);
    lab_step(e, &l);
    const int64_t both = lab_kv(e).reserved_bytes;
    ck_assert(dlab_engine_abort(e, 0));
    ck_assert_int_eq(2 * lab_kv(e).reserved_bytes, both);
    dlab_engine_load load;
    dlab_engine_get_load(e, &load);
    ck_assert_int_eq(load.running, 1);
    const dlab_step st = lab_step(e, &l);
    ck_assert_int_eq(st.rows, 1);
    ck_assert_int_eq(st.seqs, 1);
    ck_assert_int_eq(st.n_admitted, 0); /* the batch ends with its last, not before */
    lab_step(e, &l);
    ck_assert_int_eq(l.done[1], 4);
    ck_assert_int_eq(lab_step(e, &l).n_admitted, 1);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* Under at_end a request has not ended before its tokens were handed over: given up after its last one, it leaves none behind,
 * whether its batch goes on or is gone, and its id is free. */
START_TEST(what_was_held_back_goes_with_the_one_given_up)
{
    dlab_model *m = lab_model();
    for (int gone = 0; gone < 2; gone++) {
        dlab_engine *e = open_engine(m, "batch.mode=static batch.size=2 batch.release=at_end kv.store=paged", 2, 64, 0);
        lab_log l = {0};
        lab_submit(e, 0, 8, 2);
        lab_submit(e, 9, 8, 9);
        for (int i = 0; i < 4; i++) ck_assert_int_eq(lab_step(e, &l).n_tokens, 0);
        const int64_t both = lab_kv(e).reserved_bytes;
        if (gone) {
            ck_assert(dlab_engine_abort(e, 9));
            ck_assert_int_eq(lab_kv(e).reserved_bytes, 0);
            ck_assert(dlab_engine_busy(e)); /* with 0's tokens alone */
        }
        ck_assert(dlab_engine_abort(e, 0));
        ck_assert(!dlab_engine_abort(e, 0));
        ck_assert_int_eq(2 * lab_kv(e).reserved_bytes, gone ? 0 : both);
        ck_assert_int_eq(dlab_engine_busy(e), !gone);
        lab_submit(e, 0, 5, 3); /* another one */
        lab_run(e, &l);
        ck_assert_int_eq(l.n[0], 3);
        ck_assert_int_eq(l.n[9], gone ? 0 : 9);
        lab_assert_idle(e, "held back");
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* The next in the queue has the place in the very next step. */
START_TEST(a_continuous_batch_fills_the_place_at_once)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=2", 2, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 8, 9);
    lab_submit(e, 1, 8, 9);
    lab_submit(e, 2, 8, 2);
    lab_step(e, &l);
    ck_assert(dlab_engine_abort(e, 0));
    const dlab_step st = lab_step(e, &l);
    ck_assert_int_eq(st.n_admitted, 1);
    ck_assert_int_eq(st.admitted[0], 2);
    lab_run(e, &l);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* A primed prefix survives the request that went on behind it. */
START_TEST(a_primed_prefix_outlives_a_request_given_up)
{
    static const char *const stores[] = {"contiguous", "paged", "none"};
    dlab_model *m = lab_model();
    for (size_t b = 0; dlab_batchers[b]; b++) {
        for (size_t k = 0; k < 3; k++) {
            char sets[128];
            snprintf(sets, sizeof sets, "batch.mode=%s kv.store=%s", dlab_batchers[b]->name, stores[k]);
            dlab_engine *e = open_engine(m, sets, 1, 64, 0);
            int32_t handle;
            OK(dlab_engine_prime(e, lab_text + 500, 20, &handle, err));
            const int64_t held = lab_kv(e).reserved_bytes;
            lab_log want = {0};
            for (int cut = 0; cut <= 8; cut++) {
                lab_log l = {0};
                dlab_engine_request r = lab_request(0, 5, 8);
                r.primed = handle;
                OK(dlab_engine_submit(e, &r, err));
                for (int s = 0; s < cut; s++) lab_step(e, &l);
                ck_assert_int_eq(dlab_engine_abort(e, 0), cut < 8);
                ck_assert(!dlab_engine_busy(e));
                ck_assert_int_eq(lab_kv(e).reserved_bytes, held);
                l = (lab_log){0};
                OK(dlab_engine_submit(e, &r, err));
                lab_run(e, &l);
                if (cut == 0) want = l;
                ck_assert_mem_eq(l.ids, want.ids, sizeof l.ids);
            }
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* Given up, cancelled and submitted at random. */
START_TEST(a_storm_leaves_the_engine_empty)
{
    dlab_model *m = lab_model();
    dlab_rng rng;
    dlab_rng_seed(&rng, 77);
    for (size_t b = 0; dlab_batchers[b]; b++) {
        for (size_t k = 0; dlab_policies[k]; k++) {
            char sets[256];
            snprintf(
                sets, sizeof sets,
                "threads=1 batch.size=5 kv.store=paged kv.block_size=8 kv.pool=12blocks batch.chunk=6 batch.mode=%s "
                "batch.policy=%s kv.prefix_cache=%s",
                dlab_batchers[b]->name, dlab_policies[k]->name, k % 2 ? "on" : "off");
            dlab_engine *e = open_engine(m, sets, 5, 80, 0);
            for (int i = 0; i < 600; i++) {
                const int64_t id = 4 * (int64_t)dlab_rng_below(&rng, 15);
                dlab_step st;
                switch (dlab_rng_below(&rng, 8)) {
                case 0:
                case 1: {
                    dlab_engine_abort(e, id); /* one that is there or not */
                    dlab_engine_request r =
                        lab_request(id, 1 + (int64_t)dlab_rng_below(&rng, 50), 1 + (int64_t)dlab_rng_below(&rng, 20));
                    r.samples = (int32_t)dlab_rng_below(&rng, 4);
                    r.priority = (int32_t)dlab_rng_below(&rng, 3);
                    OK(dlab_engine_submit(e, &r, err));
                    break;
                }
                case 2:
                    dlab_engine_abort(e, id);
                    break;
                case 3:
                    if (i % 40 == 0) dlab_engine_cancel(e, i % 80 == 0);
                    break;
                default:
                    OK(dlab_engine_step(e, &st, err));
                }
            }
            for (int64_t id = 0; id < LAB_IDS; id++) {
                while (dlab_engine_abort(e, id)) {
                }
            }
            lab_assert_idle(e, sets);
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("batch abort");
    TCase *t = tcase_create("given up");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, given_up_in_every_state_a_request_leaves_nothing);
    tcase_add_test(t, a_static_batch_goes_on_without_the_one_given_up);
    tcase_add_test(t, what_was_held_back_goes_with_the_one_given_up);
    tcase_add_test(t, a_continuous_batch_fills_the_place_at_once);
    tcase_add_test(t, a_primed_prefix_outlives_a_request_given_up);
    tcase_add_test(t, a_storm_leaves_the_engine_empty);
    suite_add_tcase(s, t);
    return run_suite(s);
}

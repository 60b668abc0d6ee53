/* Batchers, step by step: schedules worked out by hand, and what no step may exceed. Covers B1, B2, B3, B4, X10. */
#include "batch_lab.h"

#define STEPS(...)                                                                                                     \
    ((const char *const[]){__VA_ARGS__}), (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* ---- schedules by hand ---------------------------------------------------------------------------------------------- */

/* Prompts of 6, 4 and 1 are padded to 6; who has ended is padded too; request 3 waits for the longest. */
START_TEST(a_static_batch_step_by_step)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.mode=static batch.size=3", 3, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 6, 2);
    lab_submit(e, 1, 4, 4);
    lab_submit(e, 2, 1, 1);
    lab_submit(e, 3, 2, 2);
    lab_expect(e, &l,
               STEPS("0:0+6 1:0+4~2 2:0+1~5", "0:6+1 1:4+1 2:2+0~1", "0:8+0~1 1:5+1 2:2+0~1", "0:8+0~1 1:6+1 2:2+0~1",
                     "3:0+2", "3:2+1"));
    ck_assert_int_eq(l.done[1], 4);
    ck_assert_int_eq(l.begun[3], 5);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* A budget of 6 rows, chunks of 4. 1 has what 0 leaves; tokens go before prompts; 2 joins when 1 has left. */
START_TEST(a_continuous_batch_step_by_step)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=2 batch.chunk=4 batch.token_budget=6", 2, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 10, 3);
    lab_submit(e, 1, 3, 2);
    lab_submit(e, 2, 5, 2);
    lab_expect(e, &l, STEPS("0:0+4 1:0+2", "0:4+4 1:2+1", "1:3+1 0:8+2", "0:10+1 2:0+4", "0:11+1 2:4+1", "2:5+1"));
    ck_assert_int_eq(l.first[0], 3);
    ck_assert_int_eq(l.begun[2], 4);
    ck_assert_int_eq(l.pad_rows + l.pad_skipped, 0);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* Without a cache every step computes whole prefixes; those that produce still come first. */
START_TEST(a_continuous_batch_without_a_cache)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=2 kv.store=none", 2, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 5, 1);
    lab_submit(e, 1, 3, 3);
    lab_submit(e, 2, 4, 2);
    lab_expect(e, &l, STEPS("0:0+5 1:0+3", "1:0+4 2:0+4", "1:0+5 2:0+5"));
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* Four samples of one prompt take four places; the prompt is computed once, and nobody comes past them. */
START_TEST(samples_in_a_continuous_batch)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=4 kv.store=paged", 4, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 5, 3);
    dlab_engine_request r = lab_request(1, 4, 2);
    r.samples = 4;
    OK(dlab_engine_submit(e, &r, err));
    lab_submit(e, 9, 2, 1);
    lab_expect(e, &l, STEPS("0:0+5", "0:5+1", "0:6+1", "1:0+4", "1:4+1 2:4+1 3:4+1 4:4+1", "9:0+2"));
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* Ten blocks of 8. 0 takes four; 1 may come while it leaves a block for either to grow into (31 + 2 · 8 ≤ 48); 2 may not
 * (3 + 3 · 8 > 16). At step 3 both take their fifth block. At step 11 both want a sixth, and there is none: the newer gives
 * way, with 31 + 10 tokens. In the four blocks that are free then 2 would fit (3 + 2 · 8 ≤ 32), and 1 would not: nobody is
 * let past it. */
START_TEST(the_newest_is_preempted_and_comes_back_before_anyone_new)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=3 kv.store=paged kv.block_size=8 kv.pool=10blocks", 3, 48, 0);
    lab_log l = {0};
    lab_submit(e, 0, 31, 12);
    lab_submit(e, 1, 31, 12);
    lab_submit(e, 2, 3, 1);
    lab_expect(e, &l,
               STEPS("0:0+31 1:0+31", "0:31+1 1:31+1", "0:32+1 1:32+1", "0:33+1 1:33+1", "0:34+1 1:34+1",
                     "0:35+1 1:35+1", "0:36+1 1:36+1", "0:37+1 1:37+1", "0:38+1 1:38+1", "0:39+1 1:39+1", "0:40+1",
                     "0:41+1", "1:0+41 2:0+3", "1:41+1"));
    ck_assert_int_eq(l.preempted, 1);
    lab_assert_idle(e, "all done");
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- bounds, and that everybody gets on ----------------------------------------------------------------------------- */

typedef struct {
    int64_t prompt, output;
} shape;

static void check_step(const dlab_engine *e, const lab_log *l, const shape *s, int64_t budget, int64_t chunk)
{
    int64_t rows = 0;
    bool oldest_prompt_seen = false;
    for (int i = 0; i < spy.n; i++) {
        const lab_row *r = &spy.row[i];
        rows += r->rows;
        ck_assert_int_ge(r->rows, 1);
        ck_assert_int_le(r->rows, chunk);
        ck_assert_int_le(r->first + r->rows, s[r->request].prompt + s[r->request].output - 1);
        if (r->produces) ck_assert_msg(r->rows == 1 && !oldest_prompt_seen, "a token behind a prompt: %s", spy.text);
        oldest_prompt_seen |= !r->produces;
    }
    ck_assert_int_le(rows, budget);
    ck_assert_int_le(spy.n, e->plan.plan.batch_size);
    /* everyone who is in the batch and produces has its row, and the oldest prompt gets on */
    int64_t producing = 0, shown = 0, oldest = -1;
    for (int64_t id = 0; id < LAB_IDS; id++) {
        if (!l->begun[id] || (l->done[id] && l->done[id] < l->steps)) continue;
        producing += l->first[id] > 0 && l->first[id] < l->steps;
        const bool before = oldest < 0 || l->begun[id] < l->begun[oldest];
        if ((l->first[id] == 0 || l->first[id] == l->steps) && before) oldest = id;
    }
    for (int i = 0; i < spy.n; i++) {
        shown += spy.row[i].produces;
        if (spy.row[i].request == oldest) oldest = -1;
    }
    ck_assert_msg(producing == shown, "%lld produce, %lld have a row: %s", (long long)producing, (long long)shown,
                  spy.text);
    ck_assert_msg(oldest < 0, "the oldest prompt, %lld, has no row: %s", (long long)oldest, spy.text);
}

START_TEST(budget_and_chunk_hold_and_nobody_is_starved_by_the_others_rows)
{
    static const struct {
        int64_t size, budget, chunk;
    } cases[] = {{4, 4, 4}, {4, 5, 2}, {8, 9, 16}, {6, 40, 7}, {1, 1, 1}, {3, 64, 64}};
    dlab_model *m = lab_model();
    dlab_rng rng;
    dlab_rng_seed(&rng, 4);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char sets[160];
        snprintf(sets, sizeof sets, "batch.size=%d batch.token_budget=%d batch.chunk=%d", (int)cases[c].size,
                 (int)cases[c].budget, (int)cases[c].chunk);
        dlab_engine *e = open_engine(m, sets, cases[c].size, 64, 0);
        lab_watch(e);
        lab_log l = {0};
        shape s[LAB_IDS];
        int next = 0;
        while (next < 40 || dlab_engine_busy(e)) {
            while (next < 40 && dlab_rng_below(&rng, 3) == 0) { /* arrivals at random */
                s[next] = (shape){1 + (int64_t)dlab_rng_below(&rng, 40), 1 + (int64_t)dlab_rng_below(&rng, 20)};
                lab_submit(e, next, s[next].prompt, s[next].output);
                next++;
            }
            if (!dlab_engine_busy(e)) continue;
            lab_step(e, &l);
            check_step(e, &l, s, cases[c].budget, cases[c].chunk);
        }
        for (int i = 0; i < next; i++) ck_assert_int_eq(l.n[i], s[i].output);
        lab_assert_idle(e, sets);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* What `skip` says it saved is what `compute` computes. */
START_TEST(skipped_padding_is_counted_as_it_would_have_been_computed)
{
    static const char *const stores[] = {"contiguous", "none", "paged"};
    dlab_model *m = lab_model();
    for (size_t k = 0; k < 3; k++) {
        lab_log l[2] = {{.n = {0}}, {.n = {0}}};
        for (int skip = 0; skip < 2; skip++) {
            char sets[160];
            snprintf(sets, sizeof sets, "batch.mode=static batch.size=3 batch.padding=%s kv.store=%s",
                     skip ? "skip" : "compute", stores[k]);
            dlab_engine *e = open_engine(m, sets, 3, 64, 0);
            for (int i = 0; i < 7; i++) lab_submit(e, i, 3 + 5 * i % 17, 1 + 3 * i % 8);
            lab_run(e, &l[skip]);
            dlab_engine_destroy(e);
        }
        ck_assert_int_gt(l[0].pad_rows, 10);
        ck_assert_int_eq(l[0].pad_skipped, 0);
        ck_assert_int_eq(l[1].pad_rows, 0);
        ck_assert_int_eq(l[1].pad_skipped, l[0].pad_rows);
        ck_assert_int_eq(l[1].rows + l[1].pad_skipped, l[0].rows);
        ck_assert_mem_eq(l[0].ids, l[1].ids, sizeof l[0].ids);
    }
    dlab_model_close(m);
}
END_TEST

/* ---- B3: the sum of lengths ----------------------------------------------------------------------------------------- */

/* 20 in all: 0 and 1 take 10 + 6, 2 takes 5 and must wait, and so must 3, which would fit. */
START_TEST(the_sum_of_lengths_bounds_who_runs_and_the_head_is_waited_for)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=4 batch.budget=lengths batch.token_budget=20", 4, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 7, 3);
    lab_submit(e, 1, 4, 2);
    lab_submit(e, 2, 4, 1);
    lab_submit(e, 3, 1, 1);
    lab_expect(e, &l, STEPS("0:0+7 1:0+4", "0:7+1 1:4+1", "0:8+1 2:0+4 3:0+1"));
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

START_TEST(the_sum_of_lengths_is_never_exceeded)
{
    dlab_model *m = lab_model();
    for (size_t b = 0; dlab_batchers[b]; b++) {
        for (size_t k = 0; dlab_kv_stores[k]; k++) {
            char sets[160];
            snprintf(sets, sizeof sets,
                     "batch.mode=%s batch.size=8 batch.budget=lengths batch.token_budget=70 kv.store=%s",
                     dlab_batchers[b]->name, dlab_kv_stores[k]->name);
            dlab_engine *e = open_engine(m, sets, 8, 64, 0);
            lab_log l = {0};
            dlab_rng rng;
            dlab_rng_seed(&rng, 6);
            int64_t length[LAB_IDS], most = 0;
            for (int i = 0; i < 30; i++) {
                const int64_t prompt = 1 + (int64_t)dlab_rng_below(&rng, 30),
                              output = 1 + (int64_t)dlab_rng_below(&rng, 20);
                length[i] = prompt + output;
                lab_submit(e, i, prompt, output);
            }
            while (dlab_engine_busy(e)) {
                lab_step(e, &l);
                int64_t sum = 0;
                for (int i = 0; i < 30; i++) sum += l.begun[i] && (!l.done[i] || l.done[i] == l.steps) ? length[i] : 0;
                ck_assert_int_le(sum, 70);
                most = sum > most ? sum : most;
            }
            ck_assert_int_ge(most, 55); /* and it is used */
            lab_assert_idle(e, sets);
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* A request over the whole budget would block the queue for good. */
START_TEST(x10_a_request_over_the_budget_is_refused_with_the_sum)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=4 batch.budget=lengths batch.token_budget=20", 4, 64, 0);
    dlab_engine_request r = lab_request(3, 14, 7);
    dlab_error err = {0};
    ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EIMPOSSIBLE);
    ck_assert_msg(strstr(err.msg, "14 prompt + 7 new") && strstr(err.msg, "= 21") && strstr(err.msg, "20 (batch.tok"),
                  "%s", err.msg);
    r = lab_request(3, 8, 3);
    r.samples = 2;
    ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EIMPOSSIBLE);
    ck_assert_msg(strstr(err.msg, "2 x") && strstr(err.msg, "= 22"), "%s", err.msg);
    ck_assert(!dlab_engine_busy(e));
    lab_log l = {0};
    lab_submit(e, 3, 14, 6); /* exactly the budget */
    lab_submit(e, 4, 10, 10);
    lab_run(e, &l);
    ck_assert_int_eq(l.n[3], 6);
    ck_assert_int_eq(l.n[4], 10);
    dlab_engine_destroy(e);
    e = open_engine(m, "batch.budget=lengths", 1, 64, 0);
    ck_assert_int_eq(dlab_engine_plan(e)->batch_token_budget, 8192);
    lab_submit(e, 0, 3, 1);
    ck_assert_int_eq(lab_step(e, &l).budget, 0); /* it is none of rows */
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- B4: the gate ---------------------------------------------------------------------------------------------------- */

START_TEST(nobody_starts_while_the_gate_is_shut)
{
    dlab_model *m = lab_model();
    for (size_t b = 0; dlab_batchers[b]; b++) {
        char sets[96];
        snprintf(sets, sizeof sets, "batch.size=3 batch.mode=%s", dlab_batchers[b]->name);
        dlab_engine *e = open_engine(m, sets, 3, 64, 0);
        lab_log l = {0};
        lab_submit(e, 0, 4, 6);
        dlab_engine_gate(e, false);
        const dlab_step idle = lab_step(e, &l);
        ck_assert_int_eq(idle.rows + idle.n_tokens + idle.n_admitted, 0);
        ck_assert_int_eq(idle.waiting, 1);
        ck_assert(dlab_engine_busy(e));
        dlab_engine_gate(e, true);
        lab_step(e, &l);
        dlab_engine_gate(e, false);
        lab_submit(e, 1, 4, 1);
        for (int i = 0; i < 2; i++) {
            const dlab_step st = lab_step(e, &l);
            ck_assert_int_eq(st.n_tokens, 1); /* who runs goes on */
            ck_assert_int_eq(st.waiting, 1);
        }
        ck_assert_int_eq(l.begun[1], 0);
        dlab_engine_gate(e, true);
        lab_run(e, &l);
        ck_assert_int_eq(l.begun[0], 2);
        ck_assert_int_eq(l.begun[1], dlab_batchers[b]->together ? 8 : 5);
        dlab_engine_gate(e, false);
        dlab_engine_cancel(e, false); /* opens it */
        lab_submit(e, 2, 4, 1);
        ck_assert_int_eq(lab_step(e, &l).n_tokens, 1);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* ---- batch.release --------------------------------------------------------------------------------------------------- */

START_TEST(at_the_end_all_tokens_of_a_batch_come_in_its_last_step)
{
    dlab_model *m = lab_model();
    lab_log streamed = {0}, l = {0};
    for (int at_end = 0; at_end < 2; at_end++) {
        char sets[160];
        snprintf(sets, sizeof sets, "batch.mode=static batch.size=3 kv.store=paged batch.release=%s",
                 at_end ? "at_end" : "streamed");
        dlab_engine *e = open_engine(m, sets, 3, 64, 0);
        lab_submit(e, 0, 4, 2);
        lab_submit(e, 1, 9, 5);
        lab_submit(e, 2, 2, 3);
        lab_submit(e, 3, 6, 2);
        lab_log *to = at_end ? &l : &streamed;
        for (int i = 1; i <= 7; i++) {
            dlab_step st = lab_step(e, to);
            if (!at_end) continue;
            ck_assert_int_eq(st.n_tokens, i == 5 ? 2 + 5 + 3 : i == 7 ? 2 : 0);
            for (int t = 1; t < st.n_tokens; t++) ck_assert_int_le(st.tokens[t - 1].index, st.tokens[t].index);
            if (i == 4) ck_assert(dlab_engine_busy(e));
        }
        lab_assert_idle(e, sets);
        dlab_engine_destroy(e);
    }
    ck_assert_mem_eq(l.ids, streamed.ids, sizeof l.ids);
    ck_assert_int_eq(l.first[0], 5);
    ck_assert_int_eq(streamed.first[0], 1);
    dlab_model_close(m);
}
END_TEST

/* When the last of a batch is given up, what the others had comes with the next step, which computes nothing. */
START_TEST(tokens_held_back_survive_the_one_who_was_waited_for)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.mode=static batch.size=2 batch.release=at_end", 2, 64, 0);
    lab_log l = {0};
    lab_submit(e, 0, 4, 2);
    lab_submit(e, 1, 4, 9);
    lab_submit(e, 2, 4, 1);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(lab_step(e, &l).n_tokens, 0);
    ck_assert(dlab_engine_abort(e, 1));
    ck_assert(dlab_engine_busy(e));
    const dlab_step st = lab_step(e, &l);
    ck_assert_int_eq(st.rows, 0);
    ck_assert_int_eq(st.n_tokens, 2);
    ck_assert_int_eq(l.n[1], 0); /* nobody wants its tokens */
    lab_run(e, &l);
    ck_assert_int_eq(l.n[2], 1);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- counts and refusals ---------------------------------------------------------------------------------------------- */

START_TEST(load_counts_samples_and_steps_tell_who_waited)
{
    dlab_model *m = lab_model();
    dlab_engine *e = open_engine(m, "batch.size=2", 2, 64, 0);
    dlab_engine_load load;
    lab_log l = {0};
    dlab_engine_request r = lab_request(0, 4, 3);
    r.samples = 2;
    OK(dlab_engine_submit(e, &r, err));
    r.id = 5;
    OK(dlab_engine_submit(e, &r, err));
    dlab_engine_get_load(e, &load);
    ck_assert_int_eq(load.waiting, 4);
    ck_assert_int_eq(load.running, 0);
    ck_assert_int_eq(lab_step(e, &l).waiting, 4);
    dlab_engine_get_load(e, &load);
    ck_assert_int_eq(load.waiting, 2);
    ck_assert_int_eq(load.running, 2);
    ck_assert_int_eq(lab_step(e, &l).waiting, 2);
    lab_run(e, &l);
    lab_assert_idle(e, "all done");
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

static void refuses(const dlab_model *m, const char *sets, const char *word)
{
    dlab_plan p = plan_of(sets), out;
    dlab_engine_needs needs = {.max_seqs = 4, .max_tokens = 64, .max_prompt = 64};
    dlab_error err = {0};
    ck_assert_int_eq(dlab_engine_effective(&p, m, &needs, &out, &err), DLAB_EIMPOSSIBLE);
    ck_assert_msg(strstr(err.msg, word) != NULL, "%s: %s", sets, err.msg);
}

START_TEST(plans_that_contradict_themselves_say_so)
{
    dlab_model *m = lab_model();
    refuses(m, "batch.release=at_end", "batch.release: at_end needs a batch that ends together");
    refuses(m, "batch.size=8 batch.token_budget=7", "batch.token_budget: 7 rows a step cannot hold");
    refuses(m, "kv.store=none batch.token_budget=64", "keeps nothing between steps");
    refuses(m, "kv.store=none batch.budget=lengths batch.chunk=8", "keeps nothing between steps");
    dlab_plan p;
    dlab_plan_default(&p);
    ck_assert_str_eq(p.batch_mode, "continuous");
    ck_assert_str_eq(p.batch_policy, "fcfs");
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("batch");
    TCase *t = tcase_create("steps");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_static_batch_step_by_step);
    tcase_add_test(t, a_continuous_batch_step_by_step);
    tcase_add_test(t, a_continuous_batch_without_a_cache);
    tcase_add_test(t, samples_in_a_continuous_batch);
    tcase_add_test(t, the_newest_is_preempted_and_comes_back_before_anyone_new);
    tcase_add_test(t, budget_and_chunk_hold_and_nobody_is_starved_by_the_others_rows);
    tcase_add_test(t, skipped_padding_is_counted_as_it_would_have_been_computed);
    tcase_add_test(t, the_sum_of_lengths_bounds_who_runs_and_the_head_is_waited_for);
    tcase_add_test(t, the_sum_of_lengths_is_never_exceeded);
    tcase_add_test(t, x10_a_request_over_the_budget_is_refused_with_the_sum);
    tcase_add_test(t, nobody_starts_while_the_gate_is_shut);
    tcase_add_test(t, at_the_end_all_tokens_of_a_batch_come_in_its_last_step);
    tcase_add_test(t, tokens_held_back_survive_the_one_who_was_waited_for);
    tcase_add_test(t, load_counts_samples_and_steps_tell_who_waited);
    tcase_add_test(t, plans_that_contradict_themselves_say_so);
    suite_add_tcase(s, t);
    return run_suite(s);
}

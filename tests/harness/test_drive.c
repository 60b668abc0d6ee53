/* The measuring loop, on a virtual clock with scripted targets: stamps are exact, so the tests are. */
#include <check.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/metric.h"
#include "tests/harness/drive_test.h"

/* ---- a target that does what a script says -------------------------------------------------------------------------- */

typedef struct {
    int64_t ms;               /* the step's length */
    dlab_step_token token[4]; /* request −1: end of list */
    int64_t admit;            /* request admitted, −1: none */
    dlab_status fails;
    bool idle;      /* no rows */
    int64_t cached; /* tokens of the admitted one that were in the prefix cache */
    int64_t pool;   /* of the store */
} script_step;

typedef struct {
    dlab_target base;
    dlab_plan plan;
    dlab_clock *clock;
    const script_step *steps;
    size_t n_steps, at;
    dlab_engine_request seen[8];
    int32_t first_id[8];
    size_t n_seen;
    int cancelled;
    bool kept;               /* the cache, by the last cancel */
    sig_atomic_t *interrupt; /* set during the second step */
    size_t heap[64];
} script;

static dlab_status script_submit(dlab_target *t, const dlab_engine_request *r, dlab_error *err)
{
    (void)err;
    script *s = (script *)t;
    ck_assert_uint_lt(s->n_seen, 8);
    s->first_id[s->n_seen] = r->prompt[0];
    s->seen[s->n_seen++] = *r;
    return DLAB_OK;
}

static bool script_busy(const dlab_target *t)
{
    const script *s = (const script *)t;
    return s->at < s->n_steps;
}

static dlab_status script_step_fn(dlab_target *t, int64_t deadline_ns, dlab_target_step *result, dlab_error *err)
{
    (void)deadline_ns;
    script *s = (script *)t;
    dlab_step *out = &result->step;
    *result = (dlab_target_step){0};
    const script_step *k = &s->steps[s->at];
    if (s->at < 64) s->heap[s->at] = mallinfo2().uordblks;
    if (s->interrupt && s->at == 1) *s->interrupt = 1;
    s->at++;
    dlab_clock_advance(s->clock, k->ms * MS);
    if (k->fails != DLAB_OK) return DLAB_FAIL(err, k->fails, "scripted");
    *out = (dlab_step){.tokens = k->token,
                       .admitted = &k->admit,
                       .admitted_cached = &k->cached,
                       .n_admitted = k->admit >= 0,
                       .rows = 3,
                       .budget = 9,
                       .kv_bytes = 7,
                       .kv_dense_bytes = 8,
                       .inter_bytes = 10,
                       .preempted = 11,
                       .growths = 12,
                       .nonfinite_rows = 13,
                       .waiting = 20,
                       .pad_skipped = 21,
                       .swapped_out = 22,
                       .swapped_in = 23,
                       .swap_bytes = 24,
                       .kv = {.pool_bytes = k->pool,
                              .reserved_bytes = 14,
                              .used_bytes = 15,
                              .cached_bytes = 16,
                              .free_bytes = 17,
                              .unusable_bytes = 18,
                              .shared_bytes = 19}};
    if (k->idle) out->rows = 0;
    while (out->n_tokens < 4 && k->token[out->n_tokens].request >= 0) out->n_tokens++;
    return DLAB_OK;
}

static void script_cancel(dlab_target *t, bool keep_cache)
{
    script *s = (script *)t;
    s->cancelled++;
    s->kept = keep_cache;
    s->at = s->n_steps;
}

static void script_memory(const dlab_target *t, dlab_mem_stats *mem, dlab_kv_stats *kv)
{
    *mem = (dlab_mem_stats){0};
    if (kv) *kv = (dlab_kv_stats){0};
    mem->pool[DLAB_POOL_KV].used_bytes = 100 + ((const script *)t)->at;
}

static const dlab_plan *script_plan(const dlab_target *t) { return &((const script *)t)->plan; }

static const dlab_target_ops script_ops = {.name = "script",
                                           .submit = script_submit,
                                           .busy = script_busy,
                                           .step = script_step_fn,
                                           .cancel = script_cancel,
                                           .memory = script_memory,
                                           .plan = script_plan};

#define NO_TOKEN                                                                                                       \
    {                                                                                                                  \
        .request = -1                                                                                                  \
    }
#define TOKEN(r, i, f)                                                                                                 \
    {                                                                                                                  \
        .request = (r), .index = (i), .token = 40 + (i), .finish = (f)                                                 \
    }

/* ---- requests ------------------------------------------------------------------------------------------------------- */

static fixed_requests requests;
static script target;
static dlab_run run;
static dlab_error err;
static dlab_drive_opts opts;

static void setup(void)
{
    make_requests(&requests, 1, 0, 4, 4);
    target = (script){.base = {&script_ops}, .clock = dlab_clock_virtual_create(12345)};
    target.plan.sample_seed = 1;
    dlab_run_init(&run);
    err = (dlab_error){0};
    opts = (dlab_drive_opts){.eos = -1};
}

static void teardown(void)
{
    dlab_run_free(&run);
    dlab_clock_destroy(target.clock);
}

static dlab_status drive(const script_step *steps, size_t n, const int32_t *handles)
{
    target.steps = steps;
    target.n_steps = n;
    return dlab_drive(&target.base, target.clock, &requests.q, handles, &opts, &run, &err);
}

#define DRIVE(steps, handles) drive(steps, sizeof(steps) / sizeof(*(steps)), handles)

/* ---- stamps --------------------------------------------------------------------------------------------------------- */

/* TTFT must not leak into the gaps: 500 ms to the first token, then 10 ms each. */
static const script_step four_tokens[] = {
    {.ms = 500, .token = {TOKEN(0, 0, DLAB_FINISH_NONE), NO_TOKEN}, .admit = 0},
    {.ms = 10, .token = {TOKEN(0, 1, DLAB_FINISH_NONE), NO_TOKEN}, .admit = -1},
    {.ms = 10, .token = {TOKEN(0, 2, DLAB_FINISH_NONE), NO_TOKEN}, .admit = -1},
    {.ms = 10, .token = {TOKEN(0, 3, DLAB_FINISH_LENGTH), NO_TOKEN}, .admit = -1},
};

START_TEST(stamps_are_those_of_the_clock_since_the_start)
{
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_OK);
    ck_assert_int_eq(run.status, DLAB_RUN_OK);
    ck_assert_uint_eq(run.n_requests, 1);
    const dlab_ev_request *r = &run.requests[0];
    ck_assert(r->t_sched == 0 && r->t_submit == 0 && r->t_admit == 0);
    ck_assert(r->t_first == 500.0 * MS && r->t_done == 530.0 * MS);
    ck_assert_int_eq(r->new_tokens, 4);
    ck_assert_int_eq(r->finish, 1);
    ck_assert_uint_eq(run.n_tokens, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(run.tokens[i].index, (int)i);
        ck_assert_int_eq(run.tokens[i].token, 40 + (int)i);
        ck_assert(run.tokens[i].t == (500.0 + 10.0 * (double)i) * MS);
    }
    ck_assert_uint_eq(run.n_steps, 4);
    ck_assert(run.steps[1].t_begin == 500.0 * MS && run.steps[1].t_end == 510.0 * MS);
    ck_assert_int_eq(run.steps[1].budget, 9);
    ck_assert_int_eq(run.steps[1].rows, 3);
    ck_assert(run.steps[1].kv_bytes == 7);
    ck_assert(run.t_end == 530.0 * MS);
}
END_TEST

START_TEST(a_request_is_admitted_when_its_step_begins)
{
    static const script_step late[] = {{.ms = 100, .token = {NO_TOKEN}, .admit = -1},
                                       {.ms = 50, .token = {TOKEN(0, 0, DLAB_FINISH_LENGTH), NO_TOKEN}, .admit = 0}};
    ck_assert_int_eq(DRIVE(late, NULL), DLAB_OK);
    ck_assert(run.requests[0].t_admit == 100.0 * MS);
    ck_assert(run.requests[0].t_first == 150.0 * MS);
}
END_TEST

/* sglang#10746, vllm#13691: the length asked for was taken for the one produced. The end at 7 of 128: 6 gaps. */
START_TEST(an_early_end_counts_what_was_produced)
{
    static script_step early[7];
    dlab_metric_value tpot;
    for (int i = 0; i < 7; i++) {
        early[i] = (script_step){.ms = i == 0 ? 500 : 12,
                                 .token = {TOKEN(0, i, i == 6 ? DLAB_FINISH_EOS : DLAB_FINISH_NONE), NO_TOKEN},
                                 .admit = i == 0 ? 0 : -1};
    }
    make_requests(&requests, 1, 0, 4, 128);
    opts.eos = 46;
    ck_assert_int_eq(DRIVE(early, NULL), DLAB_OK);
    ck_assert_int_eq(target.seen[0].eos, 46);
    ck_assert_int_eq(run.requests[0].new_tokens, 7);
    ck_assert_int_eq(run.requests[0].asked_tokens, 128);
    ck_assert_int_eq(run.requests[0].finish, 2);
    dlab_metric_run(dlab_metric_find("tpot"), &run, &DLAB_WINDOW_ALL, &tpot);
    ck_assert_double_eq_tol(tpot.value, 12.0 * MS, 1e-3);
}
END_TEST

START_TEST(a_time_limit_ends_after_the_step_in_progress)
{
    static const script_step two[] = {
        {.ms = 10, .token = {TOKEN(0, 0, DLAB_FINISH_LENGTH), TOKEN(1, 0, DLAB_FINISH_NONE), NO_TOKEN}, .admit = 0},
        {.ms = 10, .token = {TOKEN(1, 1, DLAB_FINISH_NONE), NO_TOKEN}, .admit = -1},
        {.ms = 10, .token = {TOKEN(1, 2, DLAB_FINISH_LENGTH), NO_TOKEN}, .admit = -1}};
    make_requests(&requests, 2, 0, 4, 4);
    opts.time_limit_ns = 15 * MS;
    ck_assert_int_eq(DRIVE(two, NULL), DLAB_OK);
    ck_assert_int_eq(run.status, DLAB_RUN_TRUNCATED);
    ck_assert_uint_eq(run.n_steps, 2);
    ck_assert(run.requests[0].t_done == 10.0 * MS);
    ck_assert(isnan(run.requests[1].t_done));
    ck_assert_int_eq(run.requests[1].finish, 0);
    ck_assert_int_eq(run.requests[1].new_tokens, 2);
    ck_assert_int_eq(target.cancelled, 1);
}
END_TEST

START_TEST(a_limit_reached_by_the_last_step_truncates_nothing)
{
    opts.time_limit_ns = 530 * MS;
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_OK);
    ck_assert_int_eq(run.status, DLAB_RUN_OK);
    ck_assert_uint_eq(run.n_tokens, 4);
}
END_TEST

START_TEST(a_failing_step_is_the_error_and_what_came_before_stays)
{
    static const script_step oom[] = {{.ms = 10, .token = {TOKEN(0, 0, DLAB_FINISH_NONE), NO_TOKEN}, .admit = 0},
                                      {.ms = 10, .token = {NO_TOKEN}, .admit = -1, .fails = DLAB_EOOM}};
    ck_assert_int_eq(DRIVE(oom, NULL), DLAB_EOOM);
    ck_assert_str_eq(err.msg, "scripted");
    ck_assert_uint_eq(run.n_tokens, 1);
    ck_assert_uint_eq(run.n_steps, 1);
    ck_assert(isnan(run.requests[0].t_done));
    ck_assert_int_eq(target.cancelled, 1);
}
END_TEST

START_TEST(an_unknown_request_is_an_internal_error)
{
    static const script_step wild[] = {{.ms = 1, .token = {TOKEN(5, 0, DLAB_FINISH_NONE), NO_TOKEN}, .admit = -1}};
    static const script_step admitted[] = {{.ms = 1, .token = {NO_TOKEN}, .admit = 7}};
    ck_assert_int_eq(DRIVE(wild, NULL), DLAB_EINTERNAL);
    target.at = 0;
    ck_assert_int_eq(DRIVE(admitted, NULL), DLAB_EINTERNAL);
}
END_TEST

START_TEST(a_step_that_does_nothing_is_an_error_and_no_endless_loop)
{
    static const script_step idle[] = {{.ms = 1, .token = {NO_TOKEN}, .admit = -1},
                                       {.ms = 1, .token = {NO_TOKEN}, .admit = -1, .idle = true},
                                       {.ms = 1, .token = {TOKEN(0, 0, DLAB_FINISH_LENGTH), NO_TOKEN}, .admit = -1}};
    ck_assert_int_eq(DRIVE(idle, NULL), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "did nothing"));
    ck_assert_int_eq(target.cancelled, 1);
}
END_TEST

START_TEST(each_step_beats_the_pulse)
{
    dlab_pulse pulse = 0;
    opts.pulse = &pulse;
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_OK);
    ck_assert_uint_eq(dlab_pulse_count(&pulse), 4);
}
END_TEST

static const script_step one_step[] = {{.ms = 1, .token = {NO_TOKEN}, .admit = -1}};

static uint64_t seed_of(int64_t sample_seed, uint64_t request_seed)
{
    target.n_seen = target.at = 0;
    target.plan.sample_seed = sample_seed;
    requests.seed[0] = request_seed;
    ck_assert_int_eq(DRIVE(one_step, NULL), DLAB_OK);
    return target.seen[0].seed;
}

START_TEST(draws_depend_on_the_plans_seed_and_the_requests)
{
    uint64_t seed = seed_of(1, 7);
    ck_assert_uint_eq(seed_of(1, 7), seed);
    ck_assert_uint_ne(seed_of(2, 7), seed);
    ck_assert_uint_ne(seed_of(1, 8), seed);
}
END_TEST

START_TEST(an_interruption_ends_after_the_step_in_progress)
{
    static sig_atomic_t flag;
    flag = 0;
    target.interrupt = &flag;
    opts.interrupted = &flag;
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_EINTERRUPTED);
    ck_assert_uint_eq(run.n_steps, 2);
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------------------------------- */

START_TEST(memory_is_sampled_at_the_start_and_each_step)
{
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_OK);
    ck_assert_uint_eq(run.n_memory, 5);
    for (size_t i = 0; i < 5; i++) ck_assert_int_eq(run.memory[i].kv, 100 + (int64_t)i);
    ck_assert(run.memory[0].t == 0 && run.memory[1].t == 500.0 * MS);
    ck_assert_int_eq(run.memory[1].rss, -1);
}
END_TEST

START_TEST(memory_samples_keep_their_distance)
{
    opts.memory_sample_ns = 15 * MS;
    opts.sample_rss = true;
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_OK);
    ck_assert_uint_eq(run.n_memory, 3); /* 0, 500, 520 ms */
    ck_assert(run.memory[2].t == 520.0 * MS);
    ck_assert_int_gt(run.memory[2].rss, 0);
}
END_TEST

START_TEST(the_loop_allocates_nothing)
{
    ck_assert_int_eq(DRIVE(four_tokens, NULL), DLAB_OK);
    for (size_t i = 1; i < 4; i++) ck_assert_uint_eq(target.heap[i], target.heap[0]);
}
END_TEST

START_TEST(a_step_tells_what_it_read_and_what_the_store_held)
{
    static const script_step steps[] = {
        {.ms = 10, .token = {TOKEN(0, 0, DLAB_FINISH_NONE), NO_TOKEN}, .admit = 0, .pool = 400},
        {.ms = 10, .token = {TOKEN(0, 1, DLAB_FINISH_NONE), NO_TOKEN}, .admit = -1, .pool = 800},
        {.ms = 10, .token = {TOKEN(0, 2, DLAB_FINISH_LENGTH), NO_TOKEN}, .admit = -1, .pool = 500}};
    ck_assert_int_eq(DRIVE(steps, NULL), DLAB_OK);
    const dlab_ev_step *s = &run.steps[1];
    ck_assert(s->kv_bytes == 7 && s->kv_dense_bytes == 8 && s->inter_bytes == 10);
    ck_assert_int_eq(s->preempted, 11);
    ck_assert_int_eq(s->growths, 12);
    ck_assert_int_eq(s->nonfinite, 13);
    ck_assert_int_eq(s->kv_reserved, 14);
    ck_assert_int_eq(s->kv_used, 15);
    ck_assert_int_eq(s->kv_cached, 16);
    ck_assert_int_eq(s->kv_free, 17);
    ck_assert_int_eq(s->kv_unusable, 18);
    ck_assert_int_eq(s->kv_shared, 19);
    ck_assert_int_eq(s->waiting, 20);
    ck_assert_int_eq(s->pad_skipped, 21);
    ck_assert_int_eq(s->swapped_out, 22);
    ck_assert_int_eq(s->swapped_in, 23);
    ck_assert_int_eq(s->swap_bytes, 24);
    ck_assert_int_eq(run.kv_pool, 800); /* the store is small again when the run is over */
}
END_TEST

/* ---- samples -------------------------------------------------------------------------------------------------------- */

/* Two prompts of three answers each: requests 0 to 2 and 3 to 5. */
START_TEST(each_sample_is_a_request)
{
    static const script_step steps[] = {{.ms = 10,
                                         .token = {TOKEN(0, 0, DLAB_FINISH_NONE), TOKEN(2, 0, DLAB_FINISH_LENGTH),
                                                   TOKEN(4, 0, DLAB_FINISH_EOS), NO_TOKEN},
                                         .admit = 4,
                                         .cached = 3},
                                        {.ms = 10, .token = {TOKEN(5, 0, DLAB_FINISH_LENGTH), NO_TOKEN}, .admit = 5}};
    make_requests(&requests, 2, 0, 4, 2);
    requests.prompt[1] = 6;
    requests.q.samples = 3;
    ck_assert_int_eq(DRIVE(steps, NULL), DLAB_OK);
    ck_assert_uint_eq(target.n_seen, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(target.seen[i].id, 3 * i);
        ck_assert_int_eq(target.seen[i].samples, 3);
    }
    ck_assert_int_eq(target.first_id[1], 16);
    ck_assert_uint_eq(run.n_requests, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(run.requests[i].id, i);
        ck_assert_int_eq(run.requests[i].prompt_tokens, i < 3 ? 4 : 6);
    }
    ck_assert_int_eq(run.requests[0].new_tokens, 1);
    ck_assert_int_eq(run.requests[1].new_tokens, 0);
    ck_assert_int_eq(run.requests[2].finish, 1);
    ck_assert_int_eq(run.requests[4].finish, 2);
    ck_assert_int_eq(run.requests[4].cached_tokens, 3);
    ck_assert(run.requests[4].t_admit == 0 && run.requests[5].t_admit == 10.0 * MS);
    ck_assert(run.requests[5].t_done == 20.0 * MS);
}
END_TEST

START_TEST(a_sample_beyond_the_last_is_an_internal_error)
{
    static const script_step steps[] = {{.ms = 1, .token = {TOKEN(2, 0, DLAB_FINISH_NONE), NO_TOKEN}, .admit = -1}};
    requests.q.samples = 2;
    ck_assert_int_eq(DRIVE(steps, NULL), DLAB_EINTERNAL);
}
END_TEST

/* ---- depth ---------------------------------------------------------------------------------------------------------- */

START_TEST(a_primed_depth_is_not_submitted_again)
{
    int32_t handles[2] = {3, -1};
    make_requests(&requests, 2, 5, 4, 1);
    ck_assert_int_eq(DRIVE(one_step, handles), DLAB_OK);
    ck_assert_int_eq(target.seen[0].primed, 3);
    ck_assert_int_eq(target.seen[0].n_prompt, 4);
    ck_assert_int_eq(target.first_id[0], 5);
    ck_assert_int_eq(target.seen[1].primed, -1);
    ck_assert_int_eq(target.seen[1].n_prompt, 9);
    ck_assert_int_eq(target.first_id[1], 16);
    ck_assert_int_eq(run.requests[1].depth_tokens, 5);
    ck_assert_int_eq(run.requests[1].prompt_tokens, 4);
}
END_TEST

START_TEST(without_a_prompt_the_last_token_of_the_depth_is_handed_over)
{
    int32_t handles[1] = {0};
    make_requests(&requests, 1, 5, 0, 1);
    ck_assert_int_eq(dlab_requests_primed(&requests.q, 0), 4);
    ck_assert_int_eq(DRIVE(one_step, handles), DLAB_OK);
    ck_assert_int_eq(target.seen[0].n_prompt, 1);
    ck_assert_int_eq(target.first_id[0], 4);
    ck_assert_int_eq(run.requests[0].prompt_tokens, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("drive");
    TCase *c = tcase_create("drive");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, stamps_are_those_of_the_clock_since_the_start);
    tcase_add_test(c, a_request_is_admitted_when_its_step_begins);
    tcase_add_test(c, an_early_end_counts_what_was_produced);
    tcase_add_test(c, a_time_limit_ends_after_the_step_in_progress);
    tcase_add_test(c, a_limit_reached_by_the_last_step_truncates_nothing);
    tcase_add_test(c, a_failing_step_is_the_error_and_what_came_before_stays);
    tcase_add_test(c, an_unknown_request_is_an_internal_error);
    tcase_add_test(c, a_step_that_does_nothing_is_an_error_and_no_endless_loop);
    tcase_add_test(c, each_step_beats_the_pulse);
    tcase_add_test(c, draws_depend_on_the_plans_seed_and_the_requests);
    tcase_add_test(c, an_interruption_ends_after_the_step_in_progress);
    tcase_add_test(c, memory_is_sampled_at_the_start_and_each_step);
    tcase_add_test(c, memory_samples_keep_their_distance);
    tcase_add_test(c, the_loop_allocates_nothing);
    tcase_add_test(c, a_step_tells_what_it_read_and_what_the_store_held);
    tcase_add_test(c, each_sample_is_a_request);
    tcase_add_test(c, a_sample_beyond_the_last_is_an_internal_error);
    tcase_add_test(c, a_primed_depth_is_not_submitted_again);
    tcase_add_test(c, without_a_prompt_the_last_token_of_the_depth_is_handed_over);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

/* How requests reach the target: open and closed loops, conversations, ticks, refusals, limits. The null target serves them
 * on a virtual clock, so that every time is exact. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/target/null.h"
#include "tests/harness/drive_test.h"

static fixed_requests requests;
static dlab_clock *virtual_time;
static dlab_target *target;
static dlab_run run;
static dlab_error err;
static dlab_drive_opts opts;

static void setup(void)
{
    virtual_time = dlab_clock_virtual_create(12345);
    dlab_run_init(&run);
    err = (dlab_error){0};
    opts = (dlab_drive_opts){.eos = -1};
    target = NULL;
}

static void teardown(void)
{
    if (target) target->ops->destroy(target);
    dlab_run_free(&run);
    dlab_clock_destroy(virtual_time);
}

static void serve(int64_t places, int64_t step_ms, int64_t service_ms)
{
    const dlab_plan plan = {0};
    const dlab_null_opts o = {.step_ns = step_ms * MS, .service_ns = service_ms * MS, .clock = virtual_time};
    ck_assert_int_eq(dlab_null_create(&plan, &(dlab_engine_needs){.max_seqs = places}, &o, &target, &err), DLAB_OK);
}

static void drive(void)
{
    const dlab_status st = dlab_drive(target, virtual_time, &requests.q, NULL, &opts, &run, &err);
    ck_assert_msg(st == DLAB_OK, "%s", err.msg);
}

static void arrive(int64_t every_ms)
{
    requests.q.arrival_ns = requests.arrival;
    for (int64_t i = 0; i < requests.q.n; i++) requests.arrival[i] = i * every_ms * MS;
}

static void check_ms(double t_ns, double ms) { ck_assert_double_eq_tol(t_ns, ms * MS, 1e-3); }

/* ---- open loops ----------------------------------------------------------------------------------------------------- */

START_TEST(requests_are_sent_when_due_and_not_before)
{
    make_requests(&requests, 4, 0, 4, 1);
    arrive(100);
    serve(4, 0, 30);
    drive();
    ck_assert_uint_eq(run.n_requests, 4);
    for (int i = 0; i < 4; i++) {
        const dlab_ev_request *r = &run.requests[i];
        check_ms(r->t_sched, 100 * i);
        check_ms(r->t_submit, 100 * i);
        check_ms(r->t_admit, 100 * i);
        check_ms(r->t_done, 100 * i + 30);
        ck_assert_int_eq(r->asked_tokens, 1);
        ck_assert_int_eq(r->conversation, i);
    }
    check_ms(run.t_end, 330);
    ck_assert_uint_eq(run.n_steps, 4); /* waiting for the next arrival is none */
}
END_TEST

/* A step of 250 ms is in progress at 100 and at 200 ms: both are in the queue from then on, and what they wait for its end is
 * the target's. */
START_TEST(what_comes_due_during_a_step_waits_for_the_target)
{
    make_requests(&requests, 3, 0, 4, 1);
    arrive(100);
    serve(1, 250, 0);
    drive();
    check_ms(run.requests[1].t_sched, 100);
    check_ms(run.requests[1].t_submit, 100);
    check_ms(run.requests[1].t_admit, 250);
    check_ms(run.requests[2].t_sched, 200);
    check_ms(run.requests[2].t_submit, 200);
    check_ms(run.requests[2].t_done, 750);
    ck_assert_int_eq(run.steps[1].waiting, 2);
}
END_TEST

/* A service time's end and an arrival fall between each other without moving each other. */
START_TEST(a_wait_for_the_target_does_not_delay_arrivals)
{
    make_requests(&requests, 3, 0, 4, 2);
    arrive(70);
    serve(4, 0, 200);
    drive();
    for (int i = 0; i < 3; i++) {
        check_ms(run.requests[i].t_submit, 70 * i);
        check_ms(run.requests[i].t_first, 70 * i + 100);
        check_ms(run.requests[i].t_done, 70 * i + 200);
    }
}
END_TEST

START_TEST(nothing_is_sent_after_the_duration_and_what_runs_ends)
{
    make_requests(&requests, 5, 0, 4, 1);
    arrive(100);
    requests.q.duration_ns = 250 * MS;
    serve(1, 0, 150);
    drive();
    ck_assert_int_eq(run.status, DLAB_RUN_OK);
    ck_assert_uint_eq(run.n_requests, 3); /* those that were not sent are not in it */
    check_ms(run.requests[2].t_done, 450);
    check_ms(run.t_end, 450);
}
END_TEST

START_TEST(priorities_reach_target_and_record)
{
    int32_t priority[2] = {3, -1};
    make_requests(&requests, 2, 0, 4, 1);
    requests.q.priority = priority;
    serve(1, 1, 0);
    drive();
    ck_assert_int_eq(run.requests[0].priority, 3);
    ck_assert_int_eq(run.requests[1].priority, -1);
}
END_TEST

/* ---- closed loops and conversations --------------------------------------------------------------------------------- */

/* Two users, each thinks 50 ms after an answer of 100 ms: they send at 0, 150, 300 … */
START_TEST(a_closed_loop_sends_when_an_answer_has_been_thought_about)
{
    make_requests(&requests, 6, 0, 4, 1);
    requests.q.arrival_ns = requests.arrival;
    requests.q.think_ns = requests.think;
    requests.q.concurrency = 2;
    for (int i = 0; i < 6; i++) {
        requests.arrival[i] = i < 2 ? 0 : -1;
        requests.think[i] = 50 * MS;
    }
    serve(2, 0, 100);
    drive();
    ck_assert_uint_eq(run.n_requests, 6);
    for (int i = 0; i < 6; i++) {
        const int at = i / 2 * 150;
        check_ms(run.requests[i].t_sched, at);
        check_ms(run.requests[i].t_submit, at);
        check_ms(run.requests[i].t_done, at + 100);
        ck_assert_int_eq(run.requests[i].turn, 0);
    }
}
END_TEST

/* ---- a target that answers each request in one step with ids of its own, and keeps what it was asked ---------------- */

#define SAID 32
typedef struct {
    dlab_target base;
    dlab_plan plan;
    dlab_clock *clock;
    int32_t said[MAX_REQUESTS][SAID];
    int64_t n_said[MAX_REQUESTS];
    int64_t refuses; /* requests of at least so many tokens; 0: none */
    int64_t waiting[MAX_REQUESTS], asked[MAX_REQUESTS];
    size_t n_waiting, n_submitted;
    bool server; /* its tokens have no ids, and an end follows them */
    dlab_target_end ends[2];
    dlab_step_token tokens[16];
    int64_t times[16];
    bool open;
    int cancelled;
} parrot;

static dlab_status parrot_submit(dlab_target *t, const dlab_engine_request *r, dlab_error *e)
{
    parrot *p = (parrot *)t;
    ck_assert_int_le(r->n_prompt, SAID);
    p->n_said[r->id] = r->n_prompt;
    memcpy(p->said[r->id], r->prompt, (size_t)r->n_prompt * sizeof *r->prompt);
    p->n_submitted++;
    if (p->refuses > 0 && r->n_prompt >= p->refuses)
        return DLAB_FAIL(e, DLAB_EIMPOSSIBLE, "request %lld: too long", (long long)r->id);
    p->waiting[p->n_waiting] = r->id;
    p->asked[p->n_waiting++] = r->max_new;
    return DLAB_OK;
}

static bool parrot_busy(const dlab_target *t) { return ((const parrot *)t)->n_waiting > 0; }

/* The answer to request r is 1000 + 100 r, 1001 + 100 r, …; 10 ms. */
static dlab_status parrot_step(dlab_target *t, int64_t deadline_ns, dlab_target_step *out, dlab_error *e)
{
    (void)deadline_ns, (void)e;
    parrot *p = (parrot *)t;
    const int64_t id = p->waiting[0], n = p->asked[0];
    *out = (dlab_target_step){0};
    dlab_clock_advance(p->clock, 10 * MS);
    for (int32_t i = 0; i < n; i++) {
        const bool last = i + 1 == n && !p->server;
        p->tokens[i] = (dlab_step_token){.request = id,
                                         .index = i,
                                         .token = p->server ? -1 : (int32_t)(1000 + 100 * id) + i,
                                         .finish = last ? DLAB_FINISH_LENGTH : DLAB_FINISH_NONE};
        p->times[i] = dlab_clock_now_ns(p->clock) - (n - i) * MS;
    }
    out->step = (dlab_step){.tokens = p->tokens, .n_tokens = (int32_t)n, .rows = 1};
    if (p->server) {
        p->ends[0] = (dlab_target_end){.id = id,
                                       .http_status = 200,
                                       .finish = DLAB_FINISH_EOS,
                                       .new_tokens = n + 1,
                                       .prompt_tokens = 77,
                                       .cached_tokens = 5,
                                       .t_ns = dlab_clock_now_ns(p->clock) - MS / 2};
        out->ends = p->ends;
        out->n_ends = 1;
        out->token_ns = p->times;
    }
    p->n_waiting--;
    memmove(p->waiting, p->waiting + 1, p->n_waiting * sizeof *p->waiting);
    memmove(p->asked, p->asked + 1, p->n_waiting * sizeof *p->asked);
    return DLAB_OK;
}

static void parrot_cancel(dlab_target *t, bool keep_cache)
{
    (void)keep_cache;
    ((parrot *)t)->cancelled++;
    ((parrot *)t)->n_waiting = 0;
}

static const dlab_plan *parrot_plan(const dlab_target *t) { return &((const parrot *)t)->plan; }

static const dlab_target_ops parrot_ops = {.name = "parrot",
                                           .submit = parrot_submit,
                                           .busy = parrot_busy,
                                           .step = parrot_step,
                                           .cancel = parrot_cancel,
                                           .plan = parrot_plan};
static const dlab_target_ops remote_ops = {.name = "remote",
                                           .remote = true,
                                           .submit = parrot_submit,
                                           .busy = parrot_busy,
                                           .step = parrot_step,
                                           .cancel = parrot_cancel,
                                           .plan = parrot_plan};

static parrot bird;

static dlab_status drive_bird(const dlab_target_ops *ops)
{
    bird.base.ops = ops;
    bird.clock = virtual_time;
    return dlab_drive(&bird.base, virtual_time, &requests.q, NULL, &opts, &run, &err);
}

/* Two conversations of three and two turns; prompts of 3 own ids, answers of 2; each thought about for 5 ms. */
static void make_conversations(void)
{
    make_requests(&requests, 5, 0, 3, 2);
    requests.q.after = requests.after;
    requests.q.think_ns = requests.think;
    requests.q.arrival_ns = requests.arrival;
    requests.after[2] = 0;
    requests.after[3] = 1;
    requests.after[4] = 2;
    for (int i = 2; i < 5; i++) {
        requests.arrival[i] = -1;
        requests.think[i] = 5 * MS;
    }
}

START_TEST(a_turn_begins_with_all_that_was_said)
{
    static const int32_t third[] = {0, 1, 2, 1000, 1001, 32, 33, 34, 1200, 1201, 64, 65, 66};
    bird = (parrot){0};
    make_conversations();
    ck_assert_msg(drive_bird(&parrot_ops) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(bird.n_said[0], 3);
    ck_assert_int_eq(bird.n_said[2], 8);
    ck_assert_int_eq(bird.n_said[3], 8);
    ck_assert_int_eq(bird.n_said[4], 13);
    ck_assert_mem_eq(bird.said[4], third, sizeof third);
    ck_assert_int_eq(bird.said[3][3], 1100); /* the other conversation's answer */
    static const int turn[5] = {0, 0, 1, 1, 2}, conversation[5] = {0, 1, 0, 1, 0};
    static const double sched[5] = {0, 0, 15, 25, 35}; /* answers end at 10, 20, 30, 40, 50 ms */
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(run.requests[i].turn, turn[i]);
        ck_assert_int_eq(run.requests[i].conversation, conversation[i]);
        check_ms(run.requests[i].t_sched, sched[i]);
        ck_assert_int_eq(run.requests[i].prompt_tokens, bird.n_said[i]);
    }
    check_ms(run.requests[4].t_done, 50);
}
END_TEST

START_TEST(answers_without_ids_keep_their_length)
{
    static const int32_t third[] = {0, 1, 2, 0, 1, 32, 33, 34, 32, 33, 64, 65, 66};
    bird = (parrot){.server = true};
    make_conversations();
    ck_assert_msg(drive_bird(&remote_ops) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(bird.n_said[4], 13);
    ck_assert_mem_eq(bird.said[4], third, sizeof third);
}
END_TEST

START_TEST(after_a_failed_turn_its_conversation_is_over)
{
    bird = (parrot){.refuses = 8};
    make_conversations();
    requests.prompt[3] = 2; /* the second one's turn has 7 tokens */
    ck_assert_msg(drive_bird(&parrot_ops) == DLAB_OK, "%s", err.msg);
    ck_assert_uint_eq(run.n_requests, 4); /* the third turn was never sent */
    ck_assert_int_eq(run.requests[2].failure, DLAB_FAILURE_REJECTED);
    ck_assert_int_eq(run.requests[3].id, 3);
    ck_assert_int_eq(run.requests[3].failure, DLAB_FAILURE_NONE);
    ck_assert_int_eq(run.requests[3].new_tokens, 2);
}
END_TEST

START_TEST(several_answers_cannot_be_gone_on_from)
{
    bird = (parrot){0};
    make_conversations();
    requests.q.samples = 2;
    ck_assert_int_eq(drive_bird(&parrot_ops), DLAB_EIMPOSSIBLE);
    requests.q.samples = 1;
    requests.after[4] = 0; /* has been followed */
    ck_assert_int_eq(drive_bird(&parrot_ops), DLAB_EUSAGE);
    ck_assert_uint_eq(run.n_requests, 0);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------------------- */

START_TEST(a_refused_request_does_not_end_the_run)
{
    bird = (parrot){.refuses = 6};
    make_requests(&requests, 3, 0, 4, 2);
    requests.prompt[1] = 6;
    ck_assert_msg(drive_bird(&parrot_ops) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(run.status, DLAB_RUN_OK);
    ck_assert_str_eq(run.reason, "1 of 3 requests refused; the first: request 1: too long");
    ck_assert_int_eq(run.requests[1].failure, DLAB_FAILURE_REJECTED);
    check_ms(run.requests[1].t_done, 0);
    ck_assert(isnan(run.requests[1].t_first));
    ck_assert_int_eq(run.requests[1].new_tokens, 0);
    ck_assert_int_eq(run.requests[1].finish, 0);
    ck_assert_int_eq(run.requests[2].failure, DLAB_FAILURE_NONE);
    check_ms(run.requests[2].t_done, 20);
}
END_TEST

START_TEST(where_all_are_refused_that_is_the_error)
{
    bird = (parrot){.refuses = 1};
    make_requests(&requests, 3, 0, 4, 2);
    ck_assert_int_eq(drive_bird(&parrot_ops), DLAB_EIMPOSSIBLE);
    ck_assert_str_eq(err.msg, "request 0: too long");
    ck_assert_int_eq(bird.cancelled, 1);
}
END_TEST

/* A closed loop goes on to the next one. */
START_TEST(a_refused_request_gives_its_place_in_a_closed_loop)
{
    bird = (parrot){.refuses = 6};
    make_requests(&requests, 3, 0, 4, 2);
    requests.q.arrival_ns = requests.arrival;
    requests.q.concurrency = 1;
    requests.arrival[1] = requests.arrival[2] = -1;
    requests.prompt[1] = 6;
    ck_assert_msg(drive_bird(&parrot_ops) == DLAB_OK, "%s", err.msg);
    ck_assert_uint_eq(run.n_requests, 3);
    check_ms(run.requests[2].t_sched, 10);
    check_ms(run.requests[2].t_done, 20);
}
END_TEST

/* A server counts for itself, stamps its own tokens, and its waits are no steps. */
START_TEST(what_a_server_says_at_the_end_counts)
{
    bird = (parrot){.server = true};
    make_requests(&requests, 1, 0, 4, 3);
    ck_assert_msg(drive_bird(&remote_ops) == DLAB_OK, "%s", err.msg);
    const dlab_ev_request *r = &run.requests[0];
    ck_assert_int_eq(r->new_tokens, 4);
    ck_assert_int_eq(r->prompt_tokens, 77);
    ck_assert_int_eq(r->cached_tokens, 5);
    ck_assert_int_eq(r->http_status, 200);
    ck_assert_int_eq(r->finish, DLAB_FINISH_EOS);
    check_ms(r->t_first, 7);
    check_ms(r->t_done, 9.5);
    ck_assert_uint_eq(run.n_tokens, 3);
    check_ms(run.tokens[2].t, 9);
    ck_assert_uint_eq(run.n_steps, 0);
}
END_TEST

/* ---- ticks ---------------------------------------------------------------------------------------------------------- */

/* Steps of 30 ms, three tokens each, ticks at 0, 100, 200 …: what comes between starts at the next, if the target rests;
 * where it works across a tick, at the step behind it. */
START_TEST(requests_start_at_ticks)
{
    static const int64_t arrivals[] = {0, 10, 105, 195}; /* ms */
    static const double admitted[] = {0, 120, 120, 210};
    make_requests(&requests, 4, 0, 4, 3);
    requests.output[0] = 4; /* until 120 ms */
    requests.q.arrival_ns = requests.arrival;
    for (int i = 0; i < 4; i++) requests.arrival[i] = arrivals[i] * MS;
    opts.interval_ns = 100 * MS;
    serve(4, 30, 0);
    drive();
    for (int i = 0; i < 4; i++) check_ms(run.requests[i].t_admit, admitted[i]);
    /* a rest: 2 and 3 of them come again when all is over */
    requests.arrival[1] = 200 * MS; /* at a tick */
    requests.arrival[2] = 301 * MS;
    requests.arrival[3] = 350 * MS;
    dlab_run_free(&run);
    drive();
    check_ms(run.requests[1].t_admit, 200);
    check_ms(run.requests[2].t_admit, 400);
    check_ms(run.requests[2].t_submit, 301);
    check_ms(run.requests[3].t_admit, 400);
}
END_TEST

/* ---- ends ----------------------------------------------------------------------------------------------------------- */

START_TEST(a_limit_ends_a_wait)
{
    make_requests(&requests, 3, 0, 4, 1);
    arrive(100);
    opts.time_limit_ns = 150 * MS;
    serve(1, 1, 0);
    drive();
    ck_assert_int_eq(run.status, DLAB_RUN_TRUNCATED);
    check_ms(run.t_end, 150);
    ck_assert_uint_eq(run.n_requests, 2);
    check_ms(run.requests[1].t_done, 101);
}
END_TEST

/* A step of 250 ms, a limit of 220: what came at 100 and 200 waits for its end, which is the run's; what comes at 230 was
 * beyond the limit. */
START_TEST(what_came_due_before_the_limit_is_seen_to_wait)
{
    make_requests(&requests, 4, 0, 4, 1);
    arrive(100);
    requests.arrival[3] = 230 * MS;
    opts.time_limit_ns = 220 * MS;
    serve(1, 250, 0);
    drive();
    ck_assert_int_eq(run.status, DLAB_RUN_TRUNCATED);
    ck_assert_uint_eq(run.n_requests, 3);
    for (int i = 1; i < 3; i++) {
        check_ms(run.requests[i].t_sched, 100 * i);
        check_ms(run.requests[i].t_submit, 100 * i);
        ck_assert(isnan(run.requests[i].t_admit) && isnan(run.requests[i].t_done));
    }
    ck_assert(!target->ops->busy(target));
}
END_TEST

/* Three requests of 100 ms, one at a time, are through at 300 ms; the loop was to go on for a second. */
START_TEST(a_run_that_used_its_requests_up_says_so)
{
    make_requests(&requests, 3, 0, 4, 1);
    requests.q.arrival_ns = requests.arrival;
    requests.q.concurrency = 1;
    requests.arrival[1] = requests.arrival[2] = -1;
    requests.q.duration_ns = 1000 * MS;
    serve(1, 0, 100);
    drive();
    ck_assert_str_eq(run.reason, ""); /* so many were asked for */
    dlab_run_free(&run);
    requests.q.scarce = true;
    drive();
    ck_assert_int_eq(run.status, DLAB_RUN_OK);
    ck_assert_str_eq(run.reason, "its requests were used up after 0.3 of 1 s");
    dlab_run_free(&run);
    dlab_run_init(&run);
    requests.q.duration_ns = 300 * MS; /* when the last one ends */
    drive();
    ck_assert_str_eq(run.reason, "");
}
END_TEST

/* The clock goes on by itself in a wait; whoever interrupts sees the flag heeded within a slice of it. */
static volatile sig_atomic_t flag;
static bool rests(const dlab_target *t)
{
    (void)t;
    flag = 1;
    return false;
}

START_TEST(an_interruption_ends_a_wait)
{
    dlab_target_ops ops = parrot_ops;
    bird = (parrot){0};
    ops.busy = rests;
    make_requests(&requests, 1, 0, 4, 1);
    requests.q.arrival_ns = requests.arrival;
    requests.arrival[0] = (int64_t)3600 * 1000 * MS;
    flag = 0;
    opts.interrupted = &flag;
    ck_assert_int_eq(drive_bird(&ops), DLAB_EINTERRUPTED);
    ck_assert_int_le(dlab_clock_now_ns(virtual_time), 12345 + 100 * MS);
    ck_assert_uint_eq(run.n_requests, 0);
}
END_TEST

/* Somebody watches whether the worker lives. */
START_TEST(a_long_wait_beats_the_pulse)
{
    dlab_pulse pulse = 0;
    make_requests(&requests, 2, 0, 4, 1);
    arrive(10000);
    opts.pulse = &pulse;
    serve(1, 1, 0);
    drive();
    ck_assert_uint_ge(dlab_pulse_count(&pulse), 200);
    check_ms(run.requests[1].t_submit, 10000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("drive arrivals");
    TCase *c = tcase_create("arrivals");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, requests_are_sent_when_due_and_not_before);
    tcase_add_test(c, what_comes_due_during_a_step_waits_for_the_target);
    tcase_add_test(c, a_wait_for_the_target_does_not_delay_arrivals);
    tcase_add_test(c, nothing_is_sent_after_the_duration_and_what_runs_ends);
    tcase_add_test(c, priorities_reach_target_and_record);
    tcase_add_test(c, a_closed_loop_sends_when_an_answer_has_been_thought_about);
    tcase_add_test(c, a_turn_begins_with_all_that_was_said);
    tcase_add_test(c, answers_without_ids_keep_their_length);
    tcase_add_test(c, after_a_failed_turn_its_conversation_is_over);
    tcase_add_test(c, several_answers_cannot_be_gone_on_from);
    tcase_add_test(c, a_refused_request_does_not_end_the_run);
    tcase_add_test(c, where_all_are_refused_that_is_the_error);
    tcase_add_test(c, a_refused_request_gives_its_place_in_a_closed_loop);
    tcase_add_test(c, what_a_server_says_at_the_end_counts);
    tcase_add_test(c, requests_start_at_ticks);
    tcase_add_test(c, a_limit_ends_a_wait);
    tcase_add_test(c, what_came_due_before_the_limit_is_seen_to_wait);
    tcase_add_test(c, a_run_that_used_its_requests_up_says_so);
    tcase_add_test(c, an_interruption_ends_a_wait);
    tcase_add_test(c, a_long_wait_beats_the_pulse);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

/* Which request is due when: schedules worked out by hand, in milliseconds. */
#include "tests/harness/workload_test.h"

#define MS INT64_C(1000000)

/* Requests without ids: the schedule looks at times and at what follows what. */
typedef struct {
    dlab_requests q;
    dlab_source *s;
} fixture;

static fixture open_source(const dlab_requests *q)
{
    fixture f = {.q = *q};
    dlab_error err = {0};
    ck_assert_msg(dlab_source_create(q, &f.s, &err) == DLAB_OK, "%s", err.msg);
    return f;
}

/* The next one due by now is `request`, and should have come at sched. */
static void check_take(dlab_source *s, int64_t now_ms, int64_t request, int64_t sched_ms)
{
    int64_t sched = -1;
    ck_assert_int_eq(dlab_source_take(s, now_ms * MS, &sched), request);
    ck_assert_int_eq(sched, sched_ms * MS);
}

static void check_none(dlab_source *s, int64_t now_ms)
{
    int64_t sched = 77;
    ck_assert_int_eq(dlab_source_take(s, now_ms * MS, &sched), -1);
    ck_assert_int_eq(sched, 77);
}

START_TEST(a_batch_is_due_at_once_in_order)
{
    const dlab_requests q = {.n = 3};
    fixture f = open_source(&q);
    ck_assert_int_eq(dlab_source_due_ns(f.s), 0);
    for (int64_t i = 0; i < 3; i++) check_take(f.s, 0, i, 0);
    check_none(f.s, 1000);
    ck_assert(dlab_source_over(f.s));
    ck_assert_int_eq(dlab_source_due_ns(f.s), INT64_MAX);
    dlab_source_destroy(f.s);
    dlab_source_destroy(NULL);
}
END_TEST

START_TEST(an_open_loop_waits_for_nobody)
{
    int64_t at[] = {0, 100 * MS, 200 * MS, 300 * MS};
    const dlab_requests q = {.n = 4, .arrival_ns = at};
    fixture f = open_source(&q);
    check_take(f.s, 0, 0, 0);
    check_none(f.s, 99);
    ck_assert_int_eq(dlab_source_due_ns(f.s), 100 * MS);
    check_take(f.s, 250, 1, 100); /* late: both are told when they should have come */
    check_take(f.s, 250, 2, 200);
    check_none(f.s, 250);
    ck_assert(!dlab_source_over(f.s));
    check_take(f.s, 300, 3, 300);
    ck_assert(dlab_source_over(f.s)); /* though none has ended */
    dlab_source_destroy(f.s);
}
END_TEST

/* Two at a time, 30 ms of thought:
 *   0 and 1 from 0; 1 ends at 40, so 2 at 70; 0 ends at 50, so 3 at 80; 2 ends at 90, so 4 at 120. */
START_TEST(a_closed_loop_sends_when_one_ends)
{
    int64_t at[] = {0, 0, -1, -1, -1}, think[] = {30 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS};
    const dlab_requests q = {.n = 5, .arrival_ns = at, .think_ns = think, .concurrency = 2};
    fixture f = open_source(&q);
    check_take(f.s, 0, 0, 0);
    check_take(f.s, 0, 1, 0);
    check_none(f.s, 1000);
    ck_assert_int_eq(dlab_source_due_ns(f.s), INT64_MAX);
    ck_assert(!dlab_source_over(f.s));
    dlab_source_ended(f.s, 1, 40 * MS, false);
    ck_assert_int_eq(dlab_source_due_ns(f.s), 70 * MS);
    dlab_source_ended(f.s, 0, 50 * MS, false);
    check_none(f.s, 69);
    check_take(f.s, 75, 2, 70);
    check_take(f.s, 80, 3, 80);
    dlab_source_ended(f.s, 2, 90 * MS, true); /* a failure ends it as well */
    check_take(f.s, 120, 4, 120);
    ck_assert(dlab_source_over(f.s));
    dlab_source_ended(f.s, 3, 130 * MS, false);
    dlab_source_ended(f.s, 4, 140 * MS, false);
    check_none(f.s, 1000);
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);
}
END_TEST

/* Two conversations of three turns, both from an open loop. */
START_TEST(a_turn_follows_the_answer_before_it)
{
    int64_t at[] = {0, -1, -1, 10 * MS, -1, -1}, after[] = {-1, 0, 1, -1, 3, 4},
            think[] = {0, 5 * MS, 20 * MS, 0, 0, 0};
    const dlab_requests q = {.n = 6, .arrival_ns = at, .think_ns = think, .after = after};
    fixture f = open_source(&q);
    check_take(f.s, 0, 0, 0);
    dlab_source_ended(f.s, 0, 8 * MS, false);
    check_take(f.s, 20, 3, 10);
    check_take(f.s, 20, 1, 13);
    check_none(f.s, 20);
    dlab_source_ended(f.s, 1, 21 * MS, false);
    ck_assert_int_eq(dlab_source_due_ns(f.s), 41 * MS);
    dlab_source_ended(f.s, 3, 30 * MS, true); /* 4 and 5 have nothing to go on from */
    check_take(f.s, 50, 2, 41);
    check_none(f.s, 1000);
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);
}
END_TEST

/* One conversation in flight: the next one starts when the last turn has ended, or when one has failed. */
START_TEST(a_closed_loop_of_conversations_starts_one_when_one_is_through)
{
    int64_t at[] = {0, -1, -1, -1, -1, -1}, after[] = {-1, 0, -1, 2, -1, 4};
    const dlab_requests q = {.n = 6, .arrival_ns = at, .after = after, .concurrency = 1};
    fixture f = open_source(&q);
    check_take(f.s, 0, 0, 0);
    dlab_source_ended(f.s, 0, 5 * MS, false);
    check_take(f.s, 5, 1, 5);
    check_none(f.s, 100);
    dlab_source_ended(f.s, 1, 9 * MS, false);
    check_take(f.s, 9, 2, 9);
    dlab_source_ended(f.s, 2, 12 * MS, true); /* 3 is dropped */
    check_take(f.s, 12, 4, 12);
    ck_assert(!dlab_source_over(f.s));
    dlab_source_ended(f.s, 4, 15 * MS, false);
    check_take(f.s, 15, 5, 15);
    dlab_source_ended(f.s, 5, 16 * MS, false);
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);
}
END_TEST

START_TEST(nothing_comes_after_the_duration)
{
    int64_t at[] = {0, 0, -1, -1, -1}, think[] = {0, 0, 10 * MS, 90 * MS, 0};
    const dlab_requests q = {.n = 5, .arrival_ns = at, .think_ns = think, .concurrency = 2, .duration_ns = 100 * MS};
    fixture f = open_source(&q);
    check_take(f.s, 0, 0, 0);
    check_take(f.s, 0, 1, 0);
    dlab_source_ended(f.s, 0, 50 * MS, false);
    check_take(f.s, 60, 2, 60);
    dlab_source_ended(f.s, 1, 60 * MS, false); /* 3 would come at 150 */
    check_none(f.s, 1000);
    ck_assert(!dlab_source_over(f.s));
    dlab_source_ended(f.s, 2, 99 * MS, false); /* 4 comes at once */
    check_take(f.s, 99, 4, 99);
    dlab_source_ended(f.s, 4, 100 * MS, false);
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);

    const dlab_requests late = {.n = 2, .arrival_ns = (int64_t[]){99 * MS, 100 * MS}, .duration_ns = 100 * MS};
    f = open_source(&late);
    check_take(f.s, 100, 0, 99);
    check_none(f.s, 1000);
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);
}
END_TEST

START_TEST(a_loop_that_its_duration_ended_is_over_with_requests_left)
{
    int64_t at[] = {0, -1, -1};
    const dlab_requests q = {.n = 3, .arrival_ns = at, .concurrency = 1, .duration_ns = 10 * MS};
    fixture f = open_source(&q);
    check_take(f.s, 0, 0, 0);
    ck_assert(!dlab_source_over(f.s));
    dlab_source_ended(f.s, 0, 10 * MS, false);
    check_none(f.s, 1000);
    ck_assert(dlab_source_over(f.s));
    dlab_source_ended(f.s, 0, 11 * MS, false); /* a second time: nothing */
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);
}
END_TEST

/* A closed loop that looks for one more before its end; an open one whose requests are fewer than come. */
START_TEST(it_is_known_when_requests_were_used_up)
{
    int64_t at[] = {0, -1, -1};
    dlab_requests q = {.n = 3, .arrival_ns = at, .concurrency = 1, .duration_ns = 40 * MS, .scarce = true};
    fixture f = open_source(&q);
    for (int64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(dlab_source_used_up_ns(f.s), -1);
        check_take(f.s, 10 * i, i, 10 * i);
        dlab_source_ended(f.s, i, 10 * (i + 1) * MS, false);
    }
    ck_assert_int_eq(dlab_source_used_up_ns(f.s), 30 * MS);
    dlab_source_destroy(f.s);

    q.duration_ns = 30 * MS;
    f = open_source(&q);
    for (int64_t i = 0; i < 3; i++) {
        check_take(f.s, 10 * i, i, 10 * i);
        dlab_source_ended(f.s, i, 10 * (i + 1) * MS, false);
    }
    ck_assert_int_eq(dlab_source_used_up_ns(f.s), -1);
    dlab_source_destroy(f.s);

    int64_t times[] = {0, 5 * MS, 20 * MS};
    q = (dlab_requests){.n = 3, .arrival_ns = times, .duration_ns = 100 * MS};
    f = open_source(&q);
    ck_assert_int_eq(dlab_source_used_up_ns(f.s), -1);
    dlab_source_destroy(f.s);
    q.scarce = true;
    f = open_source(&q);
    ck_assert_int_eq(dlab_source_used_up_ns(f.s), 20 * MS);
    dlab_source_destroy(f.s);
}
END_TEST

/* A hundred thousand conversations whose second turns come in a scrambled order are handed out in the order of time. */
START_TEST(many_come_in_order)
{
    enum { N = 100000 };
    int64_t *at = malloc(2 * N * sizeof *at), *after = malloc(2 * N * sizeof *after);
    for (int64_t i = 0; i < N; i++) {
        at[2 * i] = i;
        at[2 * i + 1] = -1;
        after[2 * i] = -1;
        after[2 * i + 1] = 2 * i;
    }
    const dlab_requests q = {.n = 2 * N, .arrival_ns = at, .after = after};
    fixture f = open_source(&q);
    int64_t sched, taken = 0, last = -1;
    for (int64_t i = 0; i < N; i++) {
        ck_assert_int_eq(dlab_source_take(f.s, i, &sched), 2 * i);
        ck_assert_int_eq(sched, i);
    }
    for (int64_t i = 0; i < N; i++) dlab_source_ended(f.s, 2 * i, N + i * 7919 % N, false);
    for (int64_t i; (i = dlab_source_take(f.s, INT64_MAX, &sched)) >= 0; taken++) {
        ck_assert_int_eq(sched, N + i / 2 * 7919 % N);
        ck_assert_int_gt(sched, last);
        last = sched;
    }
    ck_assert_int_eq(taken, N);
    ck_assert(dlab_source_over(f.s));
    dlab_source_destroy(f.s);
    free(at);
    free(after);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, a_batch_is_due_at_once_in_order);
    tcase_add_test(tc, an_open_loop_waits_for_nobody);
    tcase_add_test(tc, a_closed_loop_sends_when_one_ends);
    tcase_add_test(tc, a_turn_follows_the_answer_before_it);
    tcase_add_test(tc, a_closed_loop_of_conversations_starts_one_when_one_is_through);
    tcase_add_test(tc, nothing_comes_after_the_duration);
    tcase_add_test(tc, a_loop_that_its_duration_ended_is_over_with_requests_left);
    tcase_add_test(tc, it_is_known_when_requests_were_used_up);
    tcase_add_test(tc, many_come_in_order);
}

int main(void) { return run_suite("source", add); }

#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/team.h"

#define MAX_N 8

static dlab_team *team_of(int n)
{
    dlab_team *t;
    ck_assert_int_eq(dlab_team_create(n, &t, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_team_size(t), n);
    return t;
}

typedef struct {
    long count[MAX_N * 16]; /* plain memory, a cache line a thread */
    int n;
    atomic_int wrong;
} counts;

static void count_me(void *ctx, int thread, int n)
{
    counts *c = ctx;
    if (n != c->n || thread < 0 || thread >= n) atomic_fetch_add(&c->wrong, 1);
    c->count[thread * 16]++;
}

START_TEST(every_thread_runs_once_a_run)
{
    for (int n = 1; n <= MAX_N; n++) {
        dlab_team *t = team_of(n);
        counts c = {.n = n};
        for (int run = 1; run <= 300; run++) {
            dlab_team_run(t, count_me, &c);
            for (int i = 0; i < n; i++) ck_assert_int_eq(c.count[i * 16], run);
        }
        ck_assert_int_eq(atomic_load(&c.wrong), 0);
        dlab_team_destroy(t);
    }
}
END_TEST

typedef struct {
    dlab_team *team;
    int value[MAX_N], n_phases;
    atomic_int wrong;
} relay;

/* In every phase each thread writes its place and, past the barrier, reads its neighbour's. */
static void pass_on(void *ctx, int thread, int n)
{
    relay *r = ctx;
    for (int phase = 1; phase <= r->n_phases; phase++) {
        r->value[thread] = phase * 100 + thread;
        dlab_team_barrier(r->team);
        const int other = (thread + 1) % n;
        if (r->value[other] != phase * 100 + other) atomic_fetch_add(&r->wrong, 1);
        dlab_team_barrier(r->team);
    }
}

START_TEST(barriers_show_what_was_written_before)
{
    for (int n = 1; n <= MAX_N; n++) {
        relay r = {.team = team_of(n), .n_phases = 200};
        for (int run = 0; run < 3; run++) dlab_team_run(r.team, pass_on, &r);
        ck_assert_int_eq(atomic_load(&r.wrong), 0);
        dlab_team_destroy(r.team);
    }
}
END_TEST

/* Longer than the workers stay awake: they have gone to sleep and must be woken. */
START_TEST(sleeping_workers_wake_up)
{
    dlab_team *t = team_of(4);
    counts c = {.n = 4};
    for (int run = 1; run <= 5; run++) {
        const struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        dlab_team_run(t, count_me, &c);
        for (int i = 0; i < 4; i++) ck_assert_int_eq(c.count[i * 16], run);
    }
    dlab_team_destroy(t); /* also while asleep, below */
    t = team_of(3);
    const struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
    dlab_team_destroy(t);
}
END_TEST

typedef struct {
    atomic_int seen[100], calls;
} seen_pieces;

static void see_piece(void *ctx, size_t i)
{
    seen_pieces *s = ctx;
    atomic_fetch_add(&s->seen[i], 1);
    atomic_fetch_add(&s->calls, 1);
}

/* Little and much data, fewer and more pieces than threads. */
START_TEST(every_piece_is_called_once)
{
    static const size_t bytes[] = {0, (size_t)1 << 30}, counts_of[] = {0, 1, 3, 100};
    for (size_t b = 0; b < 2; b++) {
        for (size_t k = 0; k < 4; k++) {
            seen_pieces s = {.calls = 0};
            ck_assert_int_eq(dlab_team_once(4, bytes[b], counts_of[k], see_piece, &s, NULL), DLAB_OK);
            ck_assert_int_eq(atomic_load(&s.calls), (int)counts_of[k]);
            for (size_t i = 0; i < counts_of[k]; i++) ck_assert_int_eq(atomic_load(&s.seen[i]), 1);
        }
    }
    ck_assert_int_eq(dlab_team_once(DLAB_TEAM_MAX + 1, (size_t)1 << 30, 1, see_piece, NULL, NULL), DLAB_EUSAGE);
}
END_TEST

START_TEST(sizes_out_of_range_are_refused)
{
    dlab_error err = {0};
    dlab_team *t = (dlab_team *)&err;
    ck_assert_int_eq(dlab_team_create(0, &t, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(t);
    ck_assert_str_eq(err.msg, "0 threads, expected 1 to 1024");
    ck_assert_int_eq(dlab_team_create(1025, &t, &err), DLAB_EUSAGE);
    dlab_team_destroy(NULL);
}
END_TEST

static void note_mask(void *ctx, int thread, int n)
{
    (void)n;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ((int *)ctx)[thread] = sigismember(&set, SIGINT);
}

START_TEST(interrupts_go_to_the_callers_thread)
{
    dlab_team *t = team_of(3);
    int blocked[3] = {-1, -1, -1};
    dlab_team_run(t, note_mask, blocked);
    ck_assert_int_eq(blocked[0], 0);
    ck_assert_int_eq(blocked[1], 1);
    ck_assert_int_eq(blocked[2], 1);
    dlab_team_destroy(t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("team");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_thread_runs_once_a_run);
    tcase_add_test(t, barriers_show_what_was_written_before);
    tcase_add_test(t, sleeping_workers_wake_up);
    tcase_add_test(t, every_piece_is_called_once);
    tcase_add_test(t, sizes_out_of_range_are_refused);
    tcase_add_test(t, interrupts_go_to_the_callers_thread);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

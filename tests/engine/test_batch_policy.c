/* Queue policies: their order against a plain model of it, that nobody starves under any of them, and that the work does
 * not grow with the number that wait. Covers B4, B5. */
#include <time.h>

#include "batch_lab.h"

/* ---- a plain queue: an array, searched from end to end ---------------------------------------------------------------- */

typedef struct {
    int64_t id, priority, length, step;
} plain;

typedef struct {
    const char *policy;
    plain q[512];
    int n;
    int64_t size, ageing, taken, anchor;
} model;

/* Eight lengths to a doubling are told apart. */
static int64_t bucket_of(int64_t n)
{
    int64_t width = 1;
    int64_t doublings = 0;
    while (n / width >= 16) {
        width *= 2;
        doublings++;
    }
    return n < 8 ? n : doublings * 8 + n / width;
}

static int64_t key_of(const model *m, int i)
{
    if (strcmp(m->policy, "priority") == 0) return m->q[i].step - m->q[i].priority * m->ageing;
    if (strcmp(m->policy, "length_grouped") != 0 || m->taken == 0) return 0;
    const int64_t far = bucket_of(m->q[i].length) - m->anchor;
    return far > 0 ? 2 * far : -2 * far - 1; /* of two equally near ones the shorter */
}

/* Of equals the first in the array, which came first. */
static int first_of(const model *m)
{
    int best = 0;
    for (int i = 1; i < m->n; i++) {
        if (key_of(m, i) < key_of(m, best)) best = i;
    }
    return m->n ? best : -1;
}

static plain drop(model *m, int at)
{
    const plain gone = m->q[at];
    memmove(&m->q[at], &m->q[at + 1], (size_t)(--m->n - at) * sizeof m->q[0]);
    return gone;
}

static void pop(model *m)
{
    const plain p = drop(m, first_of(m));
    if (m->taken == 0) m->anchor = bucket_of(p.length);
    if (++m->taken == m->size) m->taken = 0;
}

static void push_both(dlab_queue *q, model *m, const plain *p)
{
    static const int32_t prompt[512];
    const dlab_engine_request r = {
        .id = p->id, .prompt = prompt, .n_prompt = p->length, .max_new = 1, .priority = (int32_t)p->priority};
    OK(dlab_queue_push(q, &r, p->step, err));
    m->q[m->n++] = *p;
}

static dlab_queue open_queue(const dlab_policy_ops *policy, int64_t size, int64_t ageing)
{
    dlab_queue q;
    const dlab_policy_opts opts = {.batch_size = size, .ageing = ageing};
    OK(dlab_queue_create(policy, &opts, &q, err));
    return q;
}

START_TEST(every_policy_orders_like_its_plain_model)
{
    dlab_rng rng;
    dlab_rng_seed(&rng, 12);
    for (size_t k = 0; dlab_policies[k]; k++) {
        for (int round = 0; round < 20; round++) {
            model m = {.policy = dlab_policies[k]->name, .size = 1 + round % 5, .ageing = 1 + 7 * (round % 3)};
            dlab_queue q = open_queue(dlab_policies[k], m.size, m.ageing);
            int64_t step = 0;
            for (int64_t id = 0, done = 0; done < 3000; done++) {
                const uint64_t what = dlab_rng_below(&rng, round % 2 ? 9 : 10);
                step += what % 2;
                if (what < 5 && m.n < 500) {
                    const plain p = {id++, (int64_t)dlab_rng_below(&rng, 9) - 4, 1 + (int64_t)dlab_rng_below(&rng, 400),
                                     step};
                    push_both(&q, &m, &p);
                } else if (what < 8 && m.n > 0) {
                    ck_assert_int_eq(dlab_queue_first(&q)->request.id, m.q[first_of(&m)].id);
                    dlab_queue_pop(&q);
                    pop(&m);
                } else if (m.n > 0) {
                    const plain gone = drop(&m, (int)dlab_rng_below(&rng, (uint64_t)m.n));
                    ck_assert(dlab_queue_remove(&q, gone.id));
                    ck_assert(!dlab_queue_remove(&q, gone.id));
                }
                ck_assert_int_eq(q.n, m.n);
                ck_assert_int_eq(q.n_places, m.n);
            }
            for (; m.n > 0; pop(&m)) {
                ck_assert_int_eq(dlab_queue_first(&q)->request.id, m.q[first_of(&m)].id);
                dlab_queue_pop(&q);
            }
            ck_assert_ptr_null(dlab_queue_first(&q));
            dlab_queue_destroy(&q);
        }
    }
}
END_TEST

/* ---- by hand ----------------------------------------------------------------------------------------------------------- */

static void expect_order(const dlab_policy_ops *policy, int64_t size, int64_t ageing, const plain *p, int n,
                         const int64_t *want)
{
    dlab_queue q = open_queue(policy, size, ageing);
    model m = {.policy = policy->name};
    for (int i = 0; i < n; i++) push_both(&q, &m, &p[i]);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(dlab_queue_first(&q)->request.id == want[i], "%s: %lld is number %d, by hand it is %lld",
                      policy->name, (long long)dlab_queue_first(&q)->request.id, i, (long long)want[i]);
        dlab_queue_pop(&q);
    }
    dlab_queue_destroy(&q);
}

START_TEST(orders_by_hand)
{
    /* places: 0, 2 − 10 = −8, 5, 9 − 10 = −1, 12 − 20 = −8 behind its equal */
    static const plain by_priority[] = {{0, 0, 1, 0}, {1, 1, 1, 2}, {2, 0, 1, 5}, {3, 1, 1, 9}, {4, 2, 1, 12}};
    expect_order(dlab_policy_find("priority"), 4, 10, by_priority, 5, (const int64_t[]){1, 4, 3, 0, 2});
    expect_order(dlab_policy_find("fcfs"), 4, 10, by_priority, 5, (const int64_t[]){0, 1, 2, 3, 4});
    /* the anchor is 0 of 100 tokens; 3 (96) and 5 (120) are nearest; then 1 of 10 leads, with 4 (12) and 2 (300) */
    static const plain by_length[] = {{0, 0, 100, 0}, {1, 0, 10, 0}, {2, 0, 300, 0},
                                      {3, 0, 96, 0},  {4, 0, 12, 0}, {5, 0, 120, 0}};
    expect_order(dlab_policy_find("length_grouped"), 3, 1, by_length, 6, (const int64_t[]){0, 3, 5, 1, 4, 2});
}
END_TEST

/* ---- nobody starves ----------------------------------------------------------------------------------------------------- */

/* One of priority 0 behind 20 of priority 5, which is worth 50 steps; one more of these comes a step, and one is served. It
 * comes when the 20 and those of steps 1 … 49 are through: that of step 50 stands level with it, and came later. */
START_TEST(low_priority_is_served_although_high_ones_keep_coming)
{
    enum { AGEING = 10, LEVELS = 5, AHEAD = 20 };
    dlab_queue q = open_queue(dlab_policy_find("priority"), 1, AGEING);
    model m = {.policy = "priority"};
    int64_t id = 0, step = 0;
    for (; id < AHEAD; id++) push_both(&q, &m, &(plain){id, LEVELS, 1, step});
    const int64_t low = id++;
    push_both(&q, &m, &(plain){low, 0, 1, step});
    int served = 0;
    for (; dlab_queue_first(&q)->request.id != low; served++) {
        ck_assert_int_le(served, AHEAD + LEVELS * AGEING);
        dlab_queue_pop(&q);
        m.n = 0; /* the plain queue is only a place to write to */
        push_both(&q, &m, &(plain){id++, LEVELS, 1, ++step});
    }
    ck_assert_int_eq(served, AHEAD + LEVELS * AGEING - 1);
    dlab_queue_destroy(&q);
}
END_TEST

/* How many later ones may pass a request with k before it: none; those of the steps that priorities are worth; the rest of
 * its own group and of those that the k before it lead. */
static int64_t passes_allowed(const char *policy, int64_t size, int64_t ahead, int64_t ageing, int64_t levels,
                              int64_t each_step)
{
    if (strcmp(policy, "priority") == 0) return (levels * ageing + 1) * each_step;
    if (strcmp(policy, "length_grouped") == 0) return (ahead + 1) * (size - 1);
    return 0;
}

START_TEST(at_most_so_many_later_ones_pass)
{
    enum { SIZE = 4, AGEING = 6, LEVELS = 3, N = 2000, EACH = 2 };
    dlab_rng rng;
    dlab_rng_seed(&rng, 31);
    for (size_t k = 0; dlab_policies[k]; k++) {
        static int64_t ahead[N], passed[N];
        memset(passed, 0, sizeof passed);
        dlab_queue q = open_queue(dlab_policies[k], SIZE, AGEING);
        model m = {.policy = dlab_policies[k]->name};
        bool waits[N] = {false};
        int64_t id = 0, most = 0;
        for (int64_t step = 0; id < N || q.n > 0; step++) {
            for (uint64_t c = dlab_rng_below(&rng, EACH + 1); c > 0 && id < N; c--) {
                ahead[id] = q.n;
                waits[id] = true;
                m.n = 0;
                push_both(&q, &m,
                          &(plain){id, (int64_t)dlab_rng_below(&rng, LEVELS + 1),
                                   1 + (int64_t)dlab_rng_below(&rng, 300), step});
                id++;
            }
            if (q.n == 0) continue;
            const int64_t served = dlab_queue_first(&q)->request.id;
            dlab_queue_pop(&q);
            waits[served] = false;
            for (int64_t w = 0; w < served; w++) passed[w] += waits[w];
        }
        for (int64_t w = 0; w < N; w++) {
            ck_assert_int_le(passed[w], passes_allowed(dlab_policies[k]->name, SIZE, ahead[w], AGEING, LEVELS, EACH));
            most = passed[w] > most ? passed[w] : most;
        }
        ck_assert_int_eq(most > 0, strcmp(dlab_policies[k]->name, "fcfs") != 0);
        dlab_queue_destroy(&q);
    }
}
END_TEST

/* In the engine: arrivals at random, a pool that is nearly full, sequences that are preempted. Everybody ends, with the
 * tokens that it has when it runs alone. */
START_TEST(everybody_is_served_and_answers_as_if_alone)
{
    enum { N = 40 };
    dlab_model *m = lab_model();
    int64_t prompt[N], output[N];
    dlab_rng rng;
    dlab_rng_seed(&rng, 8);
    for (int i = 0; i < N; i++) {
        prompt[i] = 1 + (int64_t)dlab_rng_below(&rng, 40);
        output[i] = 1 + (int64_t)dlab_rng_below(&rng, 30);
    }
    static lab_log want;
    dlab_engine *alone = open_engine(m, "compute=f32 threads=1 sample.temperature=1", 1, 80, 0);
    for (int i = 0; i < N; i++) {
        lab_submit(alone, i, prompt[i], output[i]);
        lab_run(alone, &want);
    }
    dlab_engine_destroy(alone);
    static const char *const more[] = {"kv.pool=10blocks", "kv.pool=10blocks batch.chunk=5 batch.token_budget=9",
                                       "kv.pool=12blocks kv.prefix_cache=on",
                                       "batch.budget=lengths batch.token_budget=90"};
    int64_t preempted = 0;
    for (size_t b = 0; dlab_batchers[b]; b++) {
        for (size_t k = 0; dlab_policies[k]; k++) {
            for (size_t c = 0; c < sizeof more / sizeof *more; c++) {
                char sets[256];
                snprintf(sets, sizeof sets,
                         "compute=f32 threads=1 sample.temperature=1 batch.size=6 kv.store=paged kv.block_size=8 "
                         "batch.mode=%s "
                         "batch.policy=%s batch.ageing=5 %s",
                         dlab_batchers[b]->name, dlab_policies[k]->name, more[c]);
                dlab_engine *e = open_engine(m, sets, 6, 80, 0);
                lab_log l = {0};
                for (int i = 0; i < N || dlab_engine_busy(e);) {
                    while (i < N && dlab_rng_below(&rng, 4) == 0) {
                        dlab_engine_request r = lab_request(i, prompt[i], output[i]);
                        r.priority = (int32_t)dlab_rng_below(&rng, 4);
                        OK(dlab_engine_submit(e, &r, err));
                        i++;
                    }
                    if (dlab_engine_busy(e)) lab_step(e, &l);
                    ck_assert_int_lt(l.steps, 20000);
                }
                ck_assert_msg(memcmp(l.ids, want.ids, sizeof l.ids) == 0, "%s: other tokens", sets);
                lab_assert_idle(e, sets);
                preempted += l.preempted;
                dlab_engine_destroy(e);
            }
        }
    }
    ck_assert_int_ge(preempted, 20);
    dlab_model_close(m);
}
END_TEST

/* ---- 100 000 that wait --------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU time of one more that comes, one that starts and one that is withdrawn, the least of several tries. */
static double exchange_cost(const dlab_policy_ops *policy, int64_t waiting)
{
    enum { TRIES = 7, EACH = 200 };
    dlab_queue q = open_queue(policy, 16, 64);
    model m = {.policy = policy->name};
    int64_t id = 0;
    double least = 1e9;
    for (; id < waiting; id++) {
        m.n = 0;
        push_both(&q, &m, &(plain){id, id % 5, 1 + id * 37 % 400, id / 3});
    }
    for (int t = 0; t < TRIES; t++) {
        const double begin = cpu_seconds();
        for (int i = 0; i < EACH; i++, id += 2) {
            m.n = 0;
            push_both(&q, &m, &(plain){id, id % 5, 1 + id * 37 % 400, id / 3});
            push_both(&q, &m, &(plain){id + 1, id % 7, 1 + id * 31 % 400, id / 3});
            dlab_queue_pop(&q);
            if (!dlab_queue_remove(&q, id - waiting / 2)) dlab_queue_pop(&q);
        }
        const double took = cpu_seconds() - begin;
        least = took < least ? took : least;
    }
    ck_assert_int_eq(q.n, waiting);
    dlab_queue_destroy(&q);
    return least;
}

/* A thousand times as many wait. A walk over them would take a thousand times as long; a heap has 17 levels instead of 7. */
START_TEST(a_queue_of_100000_costs_no_more_than_one_of_100)
{
    for (size_t k = 0; dlab_policies[k]; k++) {
        const double few = exchange_cost(dlab_policies[k], 100), many = exchange_cost(dlab_policies[k], 100000);
        ck_assert_msg(many < 60 * few, "%s: %.3g s with 100 waiting, %.3g s with 100 000", dlab_policies[k]->name, few,
                      many);
    }
}
END_TEST

/* CPU time of asking for the load and of giving a running request up, and of steps that nobody may start in. */
static double upkeep_cost(const dlab_model *m, int waiting)
{
    enum { TRIES = 7, EACH = 300 };
    dlab_engine *e = open_engine(m, "batch.size=4 threads=1", 4, 16, 0);
    for (int i = 0; i < waiting; i++) lab_submit(e, i, 2, 1);
    dlab_engine_gate(e, false);
    double least = 1e9;
    for (int t = 0; t < TRIES; t++) {
        const double begin = cpu_seconds();
        for (int i = 0; i < EACH; i++) {
            dlab_step st;
            dlab_engine_load load;
            ck_assert(dlab_engine_busy(e));
            dlab_engine_get_load(e, &load);
            ck_assert_int_eq(load.waiting, waiting);
            ck_assert(!dlab_engine_abort(e, waiting + i));
            OK(dlab_engine_step(e, &st, err));
            ck_assert_int_eq(st.waiting, waiting);
        }
        const double took = cpu_seconds() - begin;
        least = took < least ? took : least;
    }
    dlab_engine_destroy(e);
    return least;
}

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* CPU time of a step in which somebody starts, the median: others would hide what is done only for who starts. */
static double step_cost(const dlab_model *m, const char *policy, int waiting)
{
    enum { STEPS = 60 };
    char sets[128];
    snprintf(sets, sizeof sets, "batch.size=4 threads=1 batch.policy=%s", policy);
    dlab_engine *e = open_engine(m, sets, 4, 16, 0);
    for (int i = 0; i < waiting; i++) lab_submit(e, i, 1 + i % 3, 1 + i % 4);
    double took[STEPS];
    int n = 0;
    while (n < STEPS) {
        dlab_step st;
        ck_assert(dlab_engine_busy(e));
        const double begin = cpu_seconds();
        OK(dlab_engine_step(e, &st, err));
        if (st.n_admitted > 0) took[n++] = cpu_seconds() - begin;
    }
    dlab_engine_destroy(e);
    qsort(took, STEPS, sizeof took[0], compare_seconds);
    return took[STEPS / 2];
}

START_TEST(steps_do_not_look_at_those_that_wait)
{
    dlab_model *m = lab_model();
    const double few = upkeep_cost(m, 100), many = upkeep_cost(m, 100000);
    ck_assert_msg(many < 60 * few, "%.3g s with 100 waiting, %.3g s with 100 000", few, many);
    for (size_t k = 0; dlab_policies[k]; k++) {
        const double short_queue = step_cost(m, dlab_policies[k]->name, 300),
                     long_queue = step_cost(m, dlab_policies[k]->name, 100000);
        ck_assert_msg(long_queue < 10 * short_queue, "%s: a step takes %.3g s with 300 waiting, %.3g s with 100 000",
                      dlab_policies[k]->name, short_queue, long_queue);
    }
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("batch policies");
    TCase *t = tcase_create("queue");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, every_policy_orders_like_its_plain_model);
    tcase_add_test(t, orders_by_hand);
    tcase_add_test(t, low_priority_is_served_although_high_ones_keep_coming);
    tcase_add_test(t, at_most_so_many_later_ones_pass);
    tcase_add_test(t, everybody_is_served_and_answers_as_if_alone);
    tcase_add_test(t, a_queue_of_100000_costs_no_more_than_one_of_100);
    tcase_add_test(t, steps_do_not_look_at_those_that_wait);
    suite_add_tcase(s, t);
    return run_suite(s);
}

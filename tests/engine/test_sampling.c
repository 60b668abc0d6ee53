/* Sampling of each request's own: what a request answers depends on its temperature, top_k, top_p and seed, never on those of
 * its neighbours or on the plan's. */
#include <math.h>

#include "engine_test.h"

#define PLAN    "compute=f32 kv.k=f32 kv.v=f32 "
#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

enum { REQUESTS = 6, NEW = 24, PROMPT = 9 };

/* Greedy and drawn, with and without bounds. */
static const struct {
    float temperature, top_p;
    int32_t top_k;
} ways[REQUESTS] = {{0, 1, 0}, {1, 1, 0}, {0.7f, 0.9f, 40}, {0, 0.5f, 3}, {3, 1, 5}, {1.5f, 0.6f, 0}};

static int32_t ids[64];

static dlab_model *tiny(void)
{
    dlab_model *m = open_model("synthetic:tiny");
    fill_ids(ids, (int)N_OF(ids), dlab_model_get_info(m)->vocab, 41);
    return m;
}

static dlab_engine *open_own(const dlab_model *m, const char *sets, bool own)
{
    const dlab_plan p = plan_of(sets);
    const dlab_engine_needs needs = {
        .max_seqs = REQUESTS, .max_tokens = PROMPT + NEW, .max_prompt = PROMPT, .own_sampling = own};
    dlab_engine *e = NULL;
    OK(dlab_engine_create(&p, m, &needs, &e, err));
    return e;
}

static dlab_engine_request request_of(int i, bool own)
{
    return (dlab_engine_request){.id = i,
                                 .prompt = ids + 3 * i,
                                 .n_prompt = PROMPT - i,
                                 .max_new = NEW,
                                 .eos = -1,
                                 .seed = 17 + (uint64_t)i,
                                 .primed = -1,
                                 .own_sampling = own,
                                 .temperature = ways[i].temperature,
                                 .top_p = ways[i].top_p,
                                 .top_k = ways[i].top_k};
}

static void run(dlab_engine *e, int32_t out[REQUESTS][NEW])
{
    while (dlab_engine_busy(e)) {
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        for (int i = 0; i < st.n_tokens; i++) out[st.tokens[i].request][st.tokens[i].index] = st.tokens[i].token;
    }
}

START_TEST(a_row_depends_on_nothing_of_its_neighbours)
{
    static const char *const plans[] = {PLAN "batch.size=6",
                                        PLAN "batch.size=6 batch.mode=static batch.chunk=4",
                                        PLAN "batch.size=6 sample.temperature=2 sample.top_k=2 threads=3",
                                        PLAN "batch.size=6 device=ref",
                                        PLAN "batch.size=6 device=guard",
                                        PLAN "batch.size=4 kv.store=paged kv.block_size=8 kv.pool=7blocks"};
    dlab_model *m = tiny();
    for (size_t p = 0; p < N_OF(plans); p++) {
        int32_t alone[REQUESTS][NEW], by_plan[REQUESTS][NEW], mixed[REQUESTS][NEW];
        for (int i = 0; i < REQUESTS; i++) {
            dlab_engine *e = open_own(m, plans[p], true);
            const dlab_engine_request r = request_of(i, true);
            OK(dlab_engine_submit(e, &r, err));
            run(e, alone);
            dlab_engine_destroy(e);
            char sets[320]; /* the same from the plan */
            snprintf(sets, sizeof sets, "%s sample.temperature=%.9g sample.top_p=%.9g sample.top_k=%d", plans[p],
                     (double)ways[i].temperature, (double)ways[i].top_p, ways[i].top_k);
            e = open_own(m, sets, false);
            const dlab_engine_request plain = request_of(i, false);
            OK(dlab_engine_submit(e, &plain, err));
            run(e, by_plan);
            dlab_engine_destroy(e);
        }
        dlab_engine *e = open_own(m, plans[p], true);
        for (int i = 0; i < REQUESTS; i++) {
            const dlab_engine_request r = request_of(i, true);
            OK(dlab_engine_submit(e, &r, err));
        }
        run(e, mixed);
        dlab_engine_destroy(e);
        ck_assert_msg(memcmp(mixed, alone, sizeof mixed) == 0, "%s: together and alone", plans[p]);
        ck_assert_msg(memcmp(mixed, by_plan, sizeof mixed) == 0, "%s: by request and by plan", plans[p]);
        for (int i = 1; i < REQUESTS; i++) ck_assert(memcmp(mixed[0], mixed[i], sizeof mixed[0]) != 0);
    }
    dlab_model_close(m);
}
END_TEST

/* One that says nothing is drawn as the plan says, beside others; a number of samples shares what their request brought. */
START_TEST(the_plan_holds_for_who_brings_nothing)
{
    dlab_model *m = tiny();
    int32_t want[REQUESTS][NEW] = {{0}}, got[REQUESTS][NEW] = {{0}};
    for (int own = 0; own < 2; own++) {
        dlab_engine *e = open_own(m, PLAN "batch.size=6 sample.temperature=1.2 sample.top_k=20", own == 1);
        dlab_engine_request plain = request_of(1, false), three = request_of(2, own == 1);
        OK(dlab_engine_submit(e, &plain, err));
        three.samples = 3;
        three.temperature = 0;
        if (own == 1) OK(dlab_engine_submit(e, &three, err));
        run(e, own ? got : want);
        dlab_engine_destroy(e);
    }
    ck_assert_mem_eq(got[1], want[1], sizeof want[1]);
    ck_assert_mem_eq(got[3], got[2], sizeof got[2]); /* greedy: all alike, whatever their seeds */
    ck_assert_mem_eq(got[4], got[2], sizeof got[2]);
    dlab_model_close(m);
}
END_TEST

/* The shortest head that reaches nothing is one token. */
START_TEST(top_p_0_is_the_most_likely_alone)
{
    dlab_model *m = tiny();
    int32_t got[2][REQUESTS][NEW] = {{{0}}};
    for (int greedy = 0; greedy < 2; greedy++) {
        dlab_engine *e = open_own(m, PLAN "batch.size=6", true);
        for (int i = 0; i < REQUESTS; i++) {
            dlab_engine_request r = request_of(i, true);
            r.temperature = greedy ? 0 : 2;
            r.top_p = 0;
            r.top_k = 0;
            OK(dlab_engine_submit(e, &r, err));
        }
        run(e, got[greedy]);
        dlab_engine_destroy(e);
    }
    ck_assert_mem_eq(got[0], got[1], sizeof got[0]);
    dlab_model_close(m);
}
END_TEST

START_TEST(what_is_no_sampling_is_refused_at_submit)
{
    static const struct {
        float temperature, top_p;
        int32_t top_k;
        const char *says;
    } wrong[] = {{-0.1f, 1, 0, "temperature -0.1"},
                 {NAN, 1, 0, "temperature"},
                 {INFINITY, 1, 0, "temperature inf"},
                 {1, 1.01f, 0, "top_p 1.01"},
                 {1, NAN, 0, "top_p"},
                 {1, -1, 0, "top_p -1"},
                 {1, 1, -1, "top_k -1"}};
    dlab_model *m = tiny();
    dlab_engine *e = open_own(m, PLAN, true);
    for (size_t i = 0; i < N_OF(wrong); i++) {
        dlab_engine_request r = request_of(1, true);
        r.temperature = wrong[i].temperature;
        r.top_p = wrong[i].top_p;
        r.top_k = wrong[i].top_k;
        dlab_error err = {0};
        ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EUSAGE);
        ck_assert_msg(strstr(err.msg, "request 1") && strstr(err.msg, wrong[i].says) && !strchr(err.msg, '\n'), "%s",
                      err.msg);
        r.own_sampling = false; /* not looked at */
        ck_assert_int_eq(dlab_engine_submit(e, &r, NULL), DLAB_OK);
    }
    dlab_engine_destroy(e);
    e = open_own(m, PLAN, false);
    const dlab_engine_request r = request_of(1, true);
    dlab_error err = {0};
    ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EUSAGE);
    ck_assert_msg(strstr(err.msg, "own_sampling"), "%s", err.msg);
    ck_assert(!dlab_engine_busy(e));
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* The scratch is there from the start: neither the first who draws nor any later one makes a step allocate. */
START_TEST(who_draws_first_allocates_nothing)
{
    dlab_model *m = tiny();
    dlab_engine *e = open_own(m, PLAN "batch.size=2", true), *greedy = open_own(m, PLAN "batch.size=2", false);
    dlab_mem_stats before, after, less;
    size_t bytes[DLAB_POOL_N];
    const dlab_engine_needs needs = {
        .max_seqs = REQUESTS, .max_tokens = PROMPT + NEW, .max_prompt = PROMPT, .own_sampling = true};
    const dlab_plan p = plan_of(PLAN "batch.size=2");
    OK(dlab_engine_estimate(&p, m, &needs, bytes, err));
    dlab_engine_memory(e, &before);
    dlab_engine_memory(greedy, &less);
    ck_assert_uint_eq(before.pool[DLAB_POOL_SCRATCH].used_bytes, bytes[DLAB_POOL_SCRATCH]);
    ck_assert_uint_eq(before.pool[DLAB_POOL_SCRATCH].used_bytes - less.pool[DLAB_POOL_SCRATCH].used_bytes,
                      2 * 8 * (size_t)dlab_model_get_info(m)->vocab);
    int32_t out[REQUESTS][NEW];
    for (int i = 0; i < 3; i++) {
        const dlab_engine_request r = request_of(i, true);
        OK(dlab_engine_submit(e, &r, err));
        run(e, out);
        if (i == 0) dlab_engine_memory(e, &before); /* the first is greedy */
    }
    dlab_engine_memory(e, &after);
    ck_assert_uint_eq(after.n_allocs, before.n_allocs);
    dlab_engine_destroy(e);
    dlab_engine_destroy(greedy);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sampling");
    TCase *t = tcase_create("sampling");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_row_depends_on_nothing_of_its_neighbours);
    tcase_add_test(t, the_plan_holds_for_who_brings_nothing);
    tcase_add_test(t, top_p_0_is_the_most_likely_alone);
    tcase_add_test(t, what_is_no_sampling_is_refused_at_submit);
    tcase_add_test(t, who_draws_first_allocates_nothing);
    suite_add_tcase(s, t);
    return run_suite(s);
}

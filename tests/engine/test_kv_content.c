/* A million random operations on every store of the table, against the content oracle (kv_oracle.h). DLAB_KV_SEED=N and
 * DLAB_KV_OPERATIONS=N choose another walk, and a longer one; a failure names the seed. */
#include "tests/engine/kv_oracle.h"

#include "engine_test.h"

#define OPERATIONS 1000000
#define MAX_CASES  256

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static const struct {
    const char *k, *v, *k_scales;
    int64_t k_tail, v_tail;
} formats[] = {{"f32", "f32", "token", 0, 0}, {"int8", "int8", "channel", 5, 3}};

/* All stores, block sizes that divide and do not divide the lengths, with and without what a store can do. */
static int all_cases(oracle_case *out)
{
    static const int64_t blocks[] = {3, 4, 8, 16};
    int n = 0;
    for (size_t s = 0; dlab_kv_stores[s]; s++) {
        const dlab_kv_store_ops *ops = dlab_kv_stores[s];
        int shares = ops->shares ? 2 : 0; /* prefix cache off, on, on with a hash that always collides */
        for (int i = 0; i < 4 * 2 * 2; i++) {
            for (int share = 0; share <= shares; share++) {
                ck_assert_int_lt(n, MAX_CASES);
                out[n++] = (oracle_case){
                    .ops = ops,
                    .k = formats[i / 8].k,
                    .v = formats[i / 8].v,
                    .k_scales = formats[i / 8].k_scales,
                    .k_tail = formats[i / 8].k_tail,
                    .v_tail = formats[i / 8].v_tail,
                    .block = blocks[i % 4],
                    .tight = i / 4 % 2,
                    .grow = i % 2,
                    .prefix_cache = share > 0,
                    .same_hash = share == 2,
                };
            }
        }
    }
    return n;
}

START_TEST(a_million_operations_leave_every_token_what_it_must_be)
{
    static oracle_case cases[MAX_CASES];
    static oracle o;
    int n = all_cases(cases);
    ck_assert_int_gt(n, 0);
    uint64_t seed = from_environment("DLAB_KV_SEED", 20240601);
    long operations = (long)from_environment("DLAB_KV_OPERATIONS", OPERATIONS), each = operations / n + 1, done = 0,
         refused = 0;
    for (int i = 0; i < n; i++) {
        char origin[64];
        oracle_dice dice = {0};
        dlab_rng_seed(&dice.rng, seed + (uint64_t)i);
        snprintf(origin, sizeof origin, "DLAB_KV_SEED=%llu, case %d", (unsigned long long)seed, i);
        oracle_create(&o, &cases[i], &dice, origin);
        for (long k = 0; k < each; k++) oracle_operate(&o);
        oracle_destroy(&o);
        done += each;
        /* The walk has met what it is for. */
        if (each < 2000) continue;
        ck_assert_msg(o.seen.compared > each, "%s: %ld comparisons", o.name, o.seen.compared);
        if (!cases[i].tight || cases[i].ops->shares) ck_assert_msg(o.seen.forks > 0, "%s: no forks", o.name);
        if (cases[i].tight) ck_assert_msg(o.seen.full > 0, "%s: never full", o.name);
        if (cases[i].ops->swap) ck_assert_msg(o.seen.swaps > 0, "%s: nothing came back", o.name);
        refused += o.seen.swaps_refused;
        if (cases[i].prefix_cache) ck_assert_msg(o.seen.hits > 0, "%s: no hits", o.name);
        if (cases[i].ops->shares) ck_assert_msg(o.seen.stats.n_copies > 0, "%s: nothing copied", o.name);
        if (cases[i].prefix_cache && cases[i].tight) {
            ck_assert_msg(o.seen.stats.n_evictions > 0, "%s: nothing evicted", o.name);
        }
    }
    ck_assert_int_ge(done, operations);
    if (done / n > 2000) ck_assert_int_gt(refused, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv content");
    TCase *t = tcase_create("kv content");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_million_operations_leave_every_token_what_it_must_be);
    suite_add_tcase(s, t);
    return run_suite(s);
}

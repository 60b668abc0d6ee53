/* "Exact means exact" for the stores: block sizes and lengths around them, the same prompt twice with its prefix cached,
 * forked samples, sequences that are preempted and computed again, a pool that is nearly full; every element format gives
 * the same bits in every store. Covers K2, K3, K5. Named regressions of other projects' bugs stand beside what they test. */
#include "engine_test.h"

#define F32 "compute=f32 kv.k=f32 kv.v=f32 "

enum { LONGEST = 515, MAX_REQUESTS = 8, MAX_NEW = 48 };

typedef struct {
    int32_t ids[MAX_REQUESTS][MAX_NEW];
    int n[MAX_REQUESTS];
    int steps, rows, preempted, seqs_peak;
    int64_t cached[MAX_REQUESTS];
    int64_t reserved_peak;
} outcome;

static void submit(dlab_engine *e, int64_t id, const int32_t *prompt, int64_t n, int64_t max_new, int32_t samples)
{
    dlab_engine_request r = {.id = id,
                             .prompt = prompt,
                             .n_prompt = n,
                             .max_new = max_new,
                             .eos = -1,
                             .seed = 77 + (uint64_t)id,
                             .primed = -1,
                             .samples = samples};
    OK(dlab_engine_submit(e, &r, err));
}

static outcome run_all(dlab_engine *e)
{
    outcome o = {0};
    while (dlab_engine_busy(e)) {
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        ck_assert_msg(st.rows > 0, "a step without rows while requests wait");
        ck_assert_int_eq(st.kv.pool_bytes, st.kv.reserved_bytes + st.kv.cached_bytes + st.kv.free_bytes);
        ck_assert_int_ge(st.kv.reserved_bytes, st.kv.used_bytes);
        ck_assert_int_eq(st.nonfinite_rows, 0);
        ck_assert_msg(++o.steps < 10000, "no end in sight");
        o.rows += st.rows;
        o.preempted += st.preempted;
        if (st.seqs > o.seqs_peak) o.seqs_peak = st.seqs;
        if (st.kv.reserved_bytes > o.reserved_peak) o.reserved_peak = st.kv.reserved_bytes;
        for (int i = 0; i < st.n_admitted; i++) o.cached[st.admitted[i]] = st.admitted_cached[i];
        for (int i = 0; i < st.n_tokens; i++) {
            const dlab_step_token *t = &st.tokens[i];
            ck_assert_int_eq(t->index, o.n[t->request]);
            o.ids[t->request][o.n[t->request]++] = t->token;
        }
    }
    return o;
}

static int32_t ids[4 * LONGEST];

static dlab_model *tiny(void)
{
    dlab_model *m = open_model("synthetic:tiny");
    fill_ids(ids, 4 * LONGEST, dlab_model_get_info(m)->vocab, 21);
    return m;
}

/* ---- blocks and lengths ---- */

static void assert_same_logits(const dlab_model *m, const char *base, const char *other, int n)
{
    const size_t bytes = (size_t)n * (size_t)dlab_model_get_info(m)->vocab * sizeof(float);
    float *want = logits_of(m, base, ids, n), *got = logits_of(m, other, ids, n);
    ck_assert_msg(memcmp(want, got, bytes) == 0, "%d tokens: '%s' is not bit-equal to '%s'", n, other, base);
    free(want);
    free(got);
}

/* Also "yalm 6cd1ef6": lengths around every unrolled loop and every block. */
START_TEST(bug_6_every_block_size_at_lengths_around_it)
{
    static const int blocks[] = {8, 16, 24, 32, 64, 128, 255, 256};
    dlab_model *m = tiny();
    int tried = 0;
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        for (int around = -1; around <= 1; around++) {
            const int k = blocks[b] < 64 ? 1 + (int)b % 3 : 1, n = k * blocks[b] + around;
            for (size_t a = 0; dlab_attn_kernels[a]; a++) {
                for (size_t i = 0; dlab_isa_list[i]; i++) {
                    if (!dlab_isa_supported(dlab_isa_list[i])) continue;
                    char base[256], paged[320];
                    snprintf(base, sizeof base, F32 "attention.kernel=%s isa=%s", dlab_attn_kernels[a]->name,
                             dlab_isa_list[i]);
                    snprintf(paged, sizeof paged, "%s kv.store=paged kv.block_size=%d batch.chunk=%d", base, blocks[b],
                             1 + n / 2);
                    assert_same_logits(m, base, paged, n);
                    tried++;
                }
            }
        }
    }
    ck_assert_int_ge(tried, 48);
    dlab_model_close(m);
}
END_TEST

/* ---- prefixes ---- */

/* nano-vllm#144 and PR#199: a prompt that is cached whole leaves no row to compute; MinivLLM PR#98: a hit whose positions
 * start again. The second answer must equal the first, which must equal that of a store without sharing. */
START_TEST(bug_10_and_16_the_same_prompt_twice)
{
    static const int blocks[] = {8, 16, 64};
    dlab_model *m = tiny();
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        for (int around = -1; around <= 1; around++) {
            const int block = blocks[b], n = 3 * block + around;
            char sets[256];
            snprintf(sets, sizeof sets, F32 "kv.store=paged kv.block_size=%d kv.prefix_cache=on", block);
            dlab_engine *plain = open_engine(m, F32, 1, 256, 0), *e = open_engine(m, sets, 1, 256, 0);
            submit(plain, 0, ids, n, 20, 0);
            const outcome want = run_all(plain);
            for (int again = 0; again < 3; again++) {
                submit(e, 0, ids, n, 20, 0);
                const outcome got = run_all(e);
                ck_assert_msg(memcmp(got.ids[0], want.ids[0], sizeof got.ids[0]) == 0, "block %d, %d tokens, time %d",
                              block, n, again);
                const int64_t hit = again == 0 ? 0 : (int64_t)n / block * block;
                ck_assert_int_eq(got.cached[0], hit);
                ck_assert_int_eq(got.rows, (n - hit > 0 ? n - hit : 1) + 19);
            }
            dlab_engine_destroy(plain);
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* Prompts that share a beginning, some of them the beginning alone, in one batch and one after another. */
START_TEST(shared_prefixes_change_no_token)
{
    static const int lengths[] = {40, 48, 47, 49, 64, 33, 48, 100};
    dlab_model *m = tiny();
    outcome want = {0};
    for (int sharing = 0; sharing < 2; sharing++) {
        dlab_engine *e = open_engine(m,
                                     sharing ? F32 "kv.store=paged kv.prefix_cache=on batch.size=2 kv.pool=40blocks"
                                             : F32 "kv.store=contiguous batch.size=2",
                                     2, 160, 0);
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 8; i++) {
                int32_t prompt[160];
                memcpy(prompt, ids, sizeof prompt);
                if (i % 2) memcpy(prompt + 32, ids + 700 + 100 * (i % 3), 100 * sizeof *prompt);
                submit(e, i, prompt, lengths[i], 12, 0);
            }
            const outcome got = run_all(e);
            if (sharing == 0) want = got;
            ck_assert_mem_eq(got.ids, want.ids, sizeof got.ids);
            if (sharing && round == 1) ck_assert_int_ge(got.cached[7], 32);
        }
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* ---- samples ---- */

START_TEST(samples_of_one_prompt_equal_separate_requests)
{
    static const char *const stores[] = {"contiguous", "none", "paged kv.block_size=8", "paged kv.prefix_cache=on",
                                         "contiguous kv.growth=double"};
    dlab_model *m = tiny();
    for (size_t k = 0; k < sizeof stores / sizeof *stores; k++) {
        for (int n = 15; n <= 17; n++) {
            char sets[256];
            snprintf(sets, sizeof sets, F32 "sample.temperature=1 batch.size=4 kv.store=%s", stores[k]);
            dlab_engine *apart = open_engine(m, sets, 4, 128, 0), *e = open_engine(m, sets, 4, 128, 0);
            for (int i = 0; i < 3; i++) submit(apart, i, ids, n, 30, 0);
            const outcome want = run_all(apart);
            submit(e, 0, ids, n, 30, 3);
            const outcome got = run_all(e);
            ck_assert_msg(memcmp(got.ids, want.ids, sizeof got.ids) == 0, "kv.store=%s, prompt of %d", stores[k], n);
            ck_assert(memcmp(got.ids[0], got.ids[1], sizeof got.ids[0]) != 0);
            if (k != 1) ck_assert_int_lt(got.rows, want.rows); /* the prompt is computed once */
            dlab_engine_destroy(apart);
            dlab_engine_destroy(e);
        }
    }
    /* a paged store shares the prompt's blocks: three samples of 64 tokens take 4 blocks of 16, not 12 */
    dlab_engine *e = open_engine(m, F32 "kv.store=paged batch.size=3", 3, 128, 0);
    submit(e, 0, ids, 64, 8, 3);
    outcome o = {0};
    dlab_kv_stats kv = {0};
    for (int step = 0; step < 3; step++) {
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        kv = st.kv;
        o.steps++;
    }
    const int64_t block = 2LL * 2 * 2 * 16 * 16 * 4; /* K and V · layers · heads · dim · tokens · bytes */
    ck_assert_int_eq(kv.reserved_bytes, (4 + 3) * block);
    ck_assert_int_eq(kv.shared_bytes, 2 * 4 * block);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- a pool that runs out ---- */

/* vLLM#16832 (recomputation cuts the text short), nano-vllm PR#211 and vLLM PR#18957 (counts are stale after a failed
 * step): whatever the pool, the tokens are those of a pool without end. */
START_TEST(bug_13_preempted_sequences_answer_the_same)
{
    static const char *const pools[] = {"8blocks", "9blocks", "11blocks", "14blocks", "40blocks"};
    static const char *const more[] = {"",
                                       "kv.prefix_cache=on",
                                       "batch.padding=skip batch.chunk=7",
                                       "sample.temperature=1",
                                       "kv.block_size=8",
                                       "batch.chunk=3 batch.token_budget=5 batch.policy=length_grouped"};
    dlab_model *m = tiny();
    outcome wants[sizeof more / sizeof *more] = {{.n = {0}}}; /* whatever the batcher */
    for (size_t b = 0; dlab_batchers[b]; b++) {
        int preempted = 0;
        for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
            for (int p = (int)(sizeof pools / sizeof *pools) - 1; p >= 0; p--) {
                char with[320];
                if (k == 4 && p < 2) continue; /* 8 or 9 blocks of 8 tokens hold none of the longest */
                snprintf(with, sizeof with, F32 "batch.size=4 kv.store=paged batch.mode=%s %s kv.pool=%s",
                         dlab_batchers[b]->name, more[k], pools[p]);
                dlab_engine *e = open_engine(m, with, 4, 100, 0);
                for (int i = 0; i < 6; i++) submit(e, i, ids + 31 * i, 10 + 9 * i, 40 - 2 * i, 0);
                const outcome got = run_all(e);
                outcome *want = &wants[k];
                if (want->n[0] == 0) *want = got;
                ck_assert_msg(memcmp(got.ids, want->ids, sizeof got.ids) == 0, "%s: other tokens", with);
                preempted += got.preempted;
                dlab_kv_stats kv;
                dlab_engine_kv(e, &kv);
                ck_assert_int_eq(kv.reserved_bytes, 0);
                dlab_engine_destroy(e);
            }
        }
        ck_assert_msg(preempted >= 10, "%s: %d preempted", dlab_batchers[b]->name, preempted);
    }
    dlab_model_close(m);
}
END_TEST

static dlab_engine *open_as_harness(const dlab_model *m, const char *sets, int64_t seqs, int64_t tokens, int64_t prompt)
{
    const dlab_plan p = plan_of(sets);
    const dlab_engine_needs needs = {.max_seqs = seqs, .max_tokens = tokens, .max_prompt = prompt};
    dlab_engine *e = NULL;
    OK(dlab_engine_create(&p, m, &needs, &e, err));
    return e;
}

/* A step has fewer rows than its last one has samples. */
START_TEST(more_samples_than_rows)
{
    static const char *const stores[] = {"contiguous", "paged", "none", "paged device=guard", "contiguous device=ref"};
    static const int prompts[] = {1, 2, 17, 33};
    dlab_model *m = tiny();
    for (size_t k = 0; k < sizeof stores / sizeof *stores; k++) {
        for (size_t n = 0; n < sizeof prompts / sizeof *prompts; n++) {
            char sets[256];
            snprintf(sets, sizeof sets, F32 "batch.size=8 sample.temperature=1 %s kv.store=%s",
                     k == 2 ? "" : "batch.chunk=16", stores[k]);
            dlab_engine *apart = open_as_harness(m, sets, 8, 64, prompts[n]),
                        *e = open_as_harness(m, sets, 8, 64, prompts[n]);
            for (int i = 0; i < 7; i++) submit(apart, i, ids, prompts[n], 9, 0);
            submit(e, 0, ids, prompts[n], 9, 7);
            const outcome want = run_all(apart), got = run_all(e);
            ck_assert_msg(memcmp(got.ids, want.ids, sizeof got.ids) == 0, "kv.store=%s, prompt of %d", stores[k],
                          prompts[n]);
            dlab_engine_destroy(apart);
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* What is computed again is longer than any prompt. */
START_TEST(answers_longer_than_prompts_are_computed_again)
{
    static const char *const pools[] = {"auto", "6blocks", "5blocks", "9blocks"};
    dlab_model *m = tiny();
    outcome want = {0};
    for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
        char sets[256];
        snprintf(sets, sizeof sets, F32 "batch.size=3 kv.store=paged kv.pool=%s", pools[p]);
        dlab_engine *e = open_as_harness(m, sets, 3, 64, 5);
        for (int i = 0; i < 8; i++) submit(e, i, ids + 9 * i, 5, 48, 0);
        const outcome got = run_all(e);
        if (p == 0) want = got;
        ck_assert_msg(memcmp(got.ids, want.ids, sizeof got.ids) == 0, "%s: other tokens", sets);
        if (p > 0) ck_assert_int_gt(got.preempted, 0);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* Quantized with a scale a token, what is computed again is the same to the bit, as it is in f32. */
START_TEST(quantized_sequences_are_computed_again_to_the_same_bits)
{
    static const char *const layouts[] = {"kv.k=int8 kv.v=int8", "kv.k=fp8 kv.v=fp8_e5m2",
                                          "kv.k=int4 kv.v=int4 kv.rotation=hadamard", "kv.k=f16 kv.v=bf16"};
    dlab_model *m = tiny();
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        outcome want = {0};
        for (int tight = 0; tight < 2; tight++) {
            char sets[256];
            snprintf(sets, sizeof sets, "compute=f32 batch.size=4 sample.temperature=2 kv.store=paged kv.pool=%s %s",
                     tight ? "9blocks" : "auto", layouts[l]);
            dlab_engine *e = open_as_harness(m, sets, 4, 80, 30);
            for (int i = 0; i < 6; i++) submit(e, i, ids + 31 * i, 10 + 4 * i, 40, 0);
            const outcome got = run_all(e);
            if (!tight) want = got;
            ck_assert_msg(memcmp(got.ids, want.ids, sizeof got.ids) == 0, "%s: other tokens", sets);
            ck_assert_int_eq(got.preempted > 0, tight);
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* Padding of an ended member stands at the last position that the member held: its last token was never fed back. With needs
 * that leave no slack, one position more would be outside of every buffer. */
START_TEST(padding_of_an_ended_member_stays_inside)
{
    static const char *const plans[] = {
        "device=guard kv.store=contiguous", "device=guard kv.store=paged kv.block_size=8",
        "kv.store=paged kv.block_size=8 kv.pool=6blocks", "kv.store=none", "kv.store=contiguous kv.headroom=2"};
    dlab_model *m = tiny();
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        char sets[256];
        snprintf(sets, sizeof sets, F32 "batch.mode=static batch.size=2 %s", plans[p]);
        dlab_engine *e = open_engine(m, sets, 2, 16, 0);
        submit(e, 0, ids, 6, 11, 0);
        submit(e, 1, ids + 40, 3, 14, 0);
        int pads = 0, preempted = 0;
        while (dlab_engine_busy(e)) {
            dlab_step st;
            OK(dlab_engine_step(e, &st, err));
            pads += st.pad_rows;
            preempted += st.preempted;
        }
        if (p != 2 && p != 3) ck_assert_int_eq(pads, 3 + 3); /* of the prompt, and of three steps */
        if (p != 2) ck_assert_int_eq(preempted, 0);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

START_TEST(bug_12_samples_survive_a_pool_that_runs_out)
{
    dlab_model *m = tiny();
    outcome want = {0};
    static const char *const pools[] = {"64blocks", "8blocks", "7blocks", "6blocks"};
    for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
        char sets[256];
        snprintf(sets, sizeof sets, F32 "batch.size=4 kv.store=paged sample.temperature=1 kv.pool=%s", pools[p]);
        dlab_engine *e = open_engine(m, sets, 4, 80, 0);
        submit(e, 0, ids, 33, 40, 3);
        submit(e, 3, ids + 50, 20, 40, 1);
        const outcome got = run_all(e);
        if (p == 0) want = got;
        ck_assert_msg(memcmp(got.ids, want.ids, sizeof got.ids) == 0, "%s: other tokens", sets);
        if (p > 0) ck_assert_int_gt(got.preempted, 0);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* vLLM#39734 and PR#21809: a prompt larger than the pool waits for ever. */
START_TEST(bug_14_a_prompt_larger_than_the_pool_is_refused)
{
    dlab_model *m = tiny();
    static const char *const plans[] = {"kv.store=paged kv.pool=4blocks",
                                        "kv.store=paged kv.pool=4blocks kv.prefix_cache=on"};
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        dlab_engine *e = open_engine(m, plans[p], 1, 200, 0);
        dlab_engine_request r = {.id = 1, .prompt = ids, .n_prompt = 60, .max_new = 6, .eos = -1, .primed = -1};
        dlab_error err = {0};
        ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EIMPOSSIBLE);
        ck_assert_msg(strstr(err.msg, "65") && strstr(err.msg, "64") && strstr(err.msg, "kv.pool"), "%s", err.msg);
        r.max_new = 5; /* 64 positions: exactly the pool, and it runs to its end */
        ck_assert_msg(dlab_engine_submit(e, &r, &err) == DLAB_OK, "%s", err.msg);
        const outcome o = run_all(e);
        ck_assert_int_eq(o.n[1], 5);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* How many fit is the pool's business: a reservation of the maximum fits less often than blocks on demand. */
START_TEST(admission_follows_the_room_that_there_is)
{
    dlab_model *m = tiny();
    static const struct {
        const char *sets;
        int at_once;
    } cases[] = {
        /* 4 · 128 tokens of 2 · 2 · 2 · 16 · 2 bytes = 256 each, and for the paged store block 0 */
        {"kv.store=contiguous kv.max_tokens=128 kv.pool=131072", 4},
        {"kv.store=paged kv.pool=32blocks", 6},
    };
    for (size_t c = 0; c < 2; c++) {
        char sets[256];
        snprintf(sets, sizeof sets, "batch.size=6 batch.padding=skip %s", cases[c].sets);
        dlab_engine *e = open_engine(m, sets, 6, 64, 0);
        for (int i = 0; i < 6; i++) submit(e, i, ids + i, 40, 8, 0);
        const outcome o = run_all(e);
        ck_assert_int_eq(o.seqs_peak, cases[c].at_once);
        ck_assert_int_eq(o.preempted, 0);
        for (int i = 0; i < 6; i++) ck_assert_int_eq(o.n[i], 8);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

/* ---- formats ---- */

/* llama.cpp#12253: moving a quantized cache gives garbage. Every format, with every way of sharing scales and with tails,
 * is bit-equal in a store that reserves, in one that moves itself at growth, and in blocks. */
START_TEST(bug_1_every_format_gives_the_same_bits_in_every_store)
{
    static const char *const layouts[] = {
        "kv.k=bf16 kv.v=bf16",
        "kv.k=f32 kv.v=f16",
        "kv.k=int8 kv.v=int8",
        "kv.k=int8 kv.v=int8 kv.k_scales=tensor kv.v_scales=tensor",
        "kv.k=int8 kv.v=int8 kv.k_scales=block kv.v_scales=block",
        "kv.k=int8 kv.v=int8 kv.k_scales=channel",
        "kv.k=int8 kv.v=f16 kv.k_tail=20",
        "kv.k=int8 kv.v=int8 kv.k_scales=channel kv.v_scales=block kv.k_tail=33 kv.v_tail=5",
        "kv.k=fp8 kv.v=fp8",
        "kv.k=fp8_e5m2 kv.v=fp8 kv.k_scales=tensor kv.v_tail=7",
        "kv.k=int4 kv.v=int4",
        "kv.k=int4 kv.v=int4 kv.rotation=hadamard kv.k_tail=16 kv.v_tail=16",
    };
    static const char *const stores[] = {"kv.store=contiguous kv.growth=double", "kv.store=paged",
                                         "kv.store=paged kv.pool=30blocks"};
    static const char *const chunks[] = {"batch.chunk=512", "batch.chunk=41", "batch.chunk=1"};
    dlab_model *m = tiny();
    const int n = 290;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        for (size_t c = 0; c < 3; c++) {
            for (size_t a = 0; dlab_attn_kernels[a]; a++) {
                char base[320];
                snprintf(base, sizeof base, "compute=f32 attention.kernel=%s %s %s", dlab_attn_kernels[a]->name,
                         chunks[c], layouts[l]);
                for (size_t s = 0; s < 3; s++) {
                    char other[400];
                    snprintf(other, sizeof other, "%s %s%s", base, stores[s], s == 1 ? " threads=3" : "");
                    assert_same_logits(m, base, other, n);
                }
                if (l < 2 || !strstr(layouts[l], "_")) { /* a scale a token: nothing depends on what came together */
                    char other[400];
                    snprintf(other, sizeof other, "%s device=guard batch.chunk=100", base);
                    assert_same_logits(m, base, other, n);
                }
            }
        }
    }
    dlab_model_close(m);
}
END_TEST

/* llama.cpp#5652 and #9743: shifting a quantized cache. Nothing here shifts: a text beyond the context is refused, and a
 * rewound prefix with any layout goes on as it did the first time. */
START_TEST(bug_2_a_rewound_quantized_prefix_goes_on_alike)
{
    static const char *const layouts[] = {"kv.k=int8 kv.v=int8", "kv.k=int8 kv.k_scales=channel kv.k_tail=9",
                                          "kv.k=int4 kv.v=int4 kv.k_tail=20 kv.v_tail=20 kv.rotation=hadamard",
                                          "kv.k=int8 kv.v=int8 kv.k_scales=block kv.v_scales=block", "kv.k=fp8"};
    static const char *const stores[] = {"contiguous", "contiguous kv.growth=double", "paged",
                                         "paged kv.prefix_cache=on"};
    dlab_model *m = tiny();
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        for (size_t s = 0; s < sizeof stores / sizeof *stores; s++) {
            char sets[320];
            snprintf(sets, sizeof sets, "compute=f32 kv.store=%s %s", stores[s], layouts[l]);
            dlab_engine *e = open_engine(m, sets, 1, 400, 0);
            int32_t handle = -1;
            OK(dlab_engine_prime(e, ids, 250, &handle, err));
            outcome first = {0};
            for (int run = 0; run < 3; run++) {
                dlab_engine_request r = {
                    .prompt = ids + 300, .n_prompt = 3, .max_new = MAX_NEW, .eos = -1, .primed = handle};
                OK(dlab_engine_submit(e, &r, err));
                const outcome got = run_all(e);
                if (run == 0) first = got;
                ck_assert_msg(memcmp(got.ids, first.ids, sizeof got.ids) == 0, "%s: run %d", sets, run);
                dlab_engine_cancel(e, false);
            }
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* Attention reads the quantized bytes: with a quarter of f32's bytes in the cache, no pool grows to make up for them. */
START_TEST(no_wide_copy_of_a_quantized_cache_exists)
{
    dlab_model *m = tiny();
    dlab_mem_stats wide, narrow;
    for (int k = 0; k < 2; k++) {
        dlab_engine *e = open_engine(m, k ? "compute=f32 kv.k=int8 kv.v=int8" : F32, 1, 500, 0);
        submit(e, 0, ids, 440, 30, 0);
        run_all(e);
        dlab_engine_memory(e, k ? &narrow : &wide);
        dlab_engine_destroy(e);
    }
    const size_t f32_kv = 2u * 2 * 2 * 16 * 500 * 4, int8_kv = 2u * 2 * 2 * (16 + 4) * 500;
    ck_assert_uint_eq(wide.pool[DLAB_POOL_KV].peak_bytes, f32_kv);
    ck_assert_uint_eq(narrow.pool[DLAB_POOL_KV].peak_bytes, int8_kv);
    ck_assert_uint_eq(narrow.pool[DLAB_POOL_SCRATCH].peak_bytes, wide.pool[DLAB_POOL_SCRATCH].peak_bytes);
    ck_assert_uint_eq(narrow.pool[DLAB_POOL_ACTIVATIONS].peak_bytes, wide.pool[DLAB_POOL_ACTIVATIONS].peak_bytes);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv exact");
    TCase *t = tcase_create("walk");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, bug_6_every_block_size_at_lengths_around_it);
    tcase_add_test(t, bug_10_and_16_the_same_prompt_twice);
    tcase_add_test(t, shared_prefixes_change_no_token);
    tcase_add_test(t, samples_of_one_prompt_equal_separate_requests);
    tcase_add_test(t, bug_13_preempted_sequences_answer_the_same);
    tcase_add_test(t, more_samples_than_rows);
    tcase_add_test(t, answers_longer_than_prompts_are_computed_again);
    tcase_add_test(t, quantized_sequences_are_computed_again_to_the_same_bits);
    tcase_add_test(t, padding_of_an_ended_member_stays_inside);
    tcase_add_test(t, bug_12_samples_survive_a_pool_that_runs_out);
    tcase_add_test(t, bug_14_a_prompt_larger_than_the_pool_is_refused);
    tcase_add_test(t, admission_follows_the_room_that_there_is);
    tcase_add_test(t, bug_1_every_format_gives_the_same_bits_in_every_store);
    tcase_add_test(t, bug_2_a_rewound_quantized_prefix_goes_on_alike);
    tcase_add_test(t, no_wide_copy_of_a_quantized_cache_exists);
    suite_add_tcase(s, t);
    return run_suite(s);
}

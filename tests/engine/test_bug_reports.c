/* Bugs that other engines had, where batches and sizes are concerned: docs/regressions.md. */
#include "engine/model/model_own.h"
#include "engine_test.h"

/* ---- mlx-lm#1855: padding was scored, so that results depended on the batch ------------------------------------------------ */

enum { N_TEXTS = 16, N_NEW = 6, LONGEST = 64 };

/* 16 prompts of 3 to 48 tokens, no two neighbours alike. */
static int length_of(int i) { return 3 + i * 21 % 46; }

/* The first tokens of each, greedily, in static batches of so many, padded and computed; returns the rows of padding. */
static int continue_in_batches(const dlab_model *m, const char *sets, int size, int32_t out[N_TEXTS][N_NEW])
{
    char plan[256];
    int32_t ids[N_TEXTS][LONGEST];
    int pad_rows = 0;
    snprintf(plan, sizeof plan, "batch.mode=static batch.padding=compute batch.size=%d threads=2 %s", size, sets);
    dlab_engine *e = open_engine(m, plan, N_TEXTS, LONGEST, 0);
    for (int i = 0; i < N_TEXTS; i++) {
        fill_ids(ids[i], length_of(i), dlab_model_get_info(m)->vocab, 7 + (uint64_t)i);
        const dlab_engine_request r = {
            .id = i, .prompt = ids[i], .n_prompt = length_of(i), .max_new = N_NEW, .eos = -1, .primed = -1};
        OK(dlab_engine_submit(e, &r, err));
    }
    while (dlab_engine_busy(e)) {
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        pad_rows += st.pad_rows;
        for (int k = 0; k < st.n_tokens; k++) out[st.tokens[k].request][st.tokens[k].index] = st.tokens[k].token;
    }
    dlab_engine_destroy(e);
    return pad_rows;
}

START_TEST(mlx_lm_1855_ragged_batches_equal_single_texts)
{
    static const char *const plans[] = {"kv.store=contiguous", "kv.store=paged", "kv.store=none",
                                        "kv.store=contiguous compute=f32 kv.k=f32 kv.v=f32"};
    static const int sizes[] = {8, 16};
    dlab_model *m = open_model("synthetic:tiny");
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        int32_t alone[N_TEXTS][N_NEW], together[N_TEXTS][N_NEW];
        ck_assert_int_eq(continue_in_batches(m, plans[p], 1, alone), 0);
        ck_assert_int_ne(memcmp(alone[0], alone[1], sizeof alone[0]), 0); /* it is the prompt that decides */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            memset(together, -1, sizeof together);
            ck_assert_int_gt(continue_in_batches(m, plans[p], sizes[s], together), 100);
            for (int i = 0; i < N_TEXTS; i++)
                ck_assert_msg(memcmp(alone[i], together[i], sizeof alone[i]) == 0,
                              "%s: text %d of %d tokens goes on otherwise in a batch of %d", plans[p], i, length_of(i),
                              sizes[s]);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* ---- llama.cpp#23490, #23569: context times vocabulary in 32 bits ---------------------------------------------------------- */

/* Nothing is allocated: a plan says what would be. */
START_TEST(llama_cpp_23490_context_times_vocabulary)
{
    static const struct {
        int32_t context, vocab;
        int64_t logits_bytes; /* of all positions at once: beyond 32 bits */
    } of[] = {{16384, 151940, INT64_C(9957539840)}, {32768, 248320, INT64_C(32547799040)}};
    static const char *const plans[] = {"temperature", "kv.store=none", "attention.kernel=unfused"};
    dlab_model *m = open_model("synthetic:tiny");
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        dlab_model large = *m;
        large.info.vocab = of[i].vocab;
        large.info.context = of[i].context;
        for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
            const int64_t n = of[i].context;
            char sets[128];
            snprintf(sets, sizeof sets, "batch.size=1 %s",
                     p ? plans[p] : "sample.temperature=1 batch.chunk=65536 batch.token_budget=65536");
            const dlab_plan plan = plan_of(sets);
            const dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = n, .max_prompt = n, .max_logits = n};
            dlab_resolved r;
            OK(dlab_plan_resolve(&plan, &large, &needs, &r, err));
            /* logits of every position are wanted; they exist for 64 at a time */
            if (p < 2) ck_assert_int_eq(r.max_logits, n);
            ck_assert_uint_eq(r.bytes[DLAB_BUFFER_LOGITS], (size_t)64 * (size_t)of[i].vocab * 4);
            ck_assert_uint_eq(r.bytes[DLAB_BUFFER_SAMPLE_SCRATCH], p ? 0 : (size_t)64 * (size_t)of[i].vocab * 8);
            ck_assert_uint_eq(r.bytes[DLAB_BUFFER_NLL], (size_t)r.max_logits * 8);
        }
        /* the same product where it is one: a cache with a vector of that size for each position, and its K alone */
        dlab_kv_need need;
        OK(dlab_kv_plan("f32", "f32", 1, 1, of[i].vocab, of[i].context, 1, &need, err));
        ck_assert_int_eq(need.k_bytes, of[i].logits_bytes);
        ck_assert_int_eq(need.total_bytes, 2 * of[i].logits_bytes);
        ck_assert_int_gt(need.k_bytes, UINT32_MAX);
    }
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bug reports");
    TCase *t = tcase_create("bug reports");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, mlx_lm_1855_ragged_batches_equal_single_texts);
    tcase_add_test(t, llama_cpp_23490_context_times_vocabulary);
    suite_add_tcase(s, t);
    return run_suite(s);
}

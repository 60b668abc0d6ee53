/* "Exact means exact": with f32 KV and f32 compute, every store, growth, chunking, attention kernel, device, ISA and thread
 * count gives the logits of the plainest configuration, and on one ISA the very same bits. Walks the tables, so that a new
 * entry is tested unasked. Covers K1, K2, K3. */
#include "engine_test.h"

#define F32 "compute=f32 kv.k=f32 kv.v=f32 "
/* Logits of these models are of the order of 10; rounding of sums over at most 96 terms in f32, two layers. */
#define TOLERANCE 2e-4
/* Eight bits for a factor: 2⁻⁹ of each of them, at random, through as many layers. */
#define BF16_TOLERANCE 0.1

enum { N = 290 }; /* beyond DLAB_ATTN_PIECE and beyond the first capacity of a growing store */

/* The arithmetic that each is made for, besides f32. */
static const struct {
    const char *name, *compute;
} models[] = {{"synthetic:tiny", "auto"}, {"synthetic:tiny-q4", "int8"}, {"synthetic:tiny-bf16", "bf16"}};
enum { N_MODELS = sizeof models / sizeof *models };

static void text_of(const dlab_model *m, int32_t *ids, int n, uint64_t seed)
{
    fill_ids(ids, n, dlab_model_get_info(m)->vocab, seed);
}

/* The oracle device: plain C, double sums, scores in memory. */
static float *plainest(const dlab_model *m, const int32_t *ids, int n)
{
    return logits_of(m, F32 "device=ref kv.store=contiguous attention.kernel=unfused threads=1", ids, n);
}

static void assert_close(const float *want, const float *got, size_t n, size_t vocab, const char *what)
{
    double worst = largest_difference(want, got, n * vocab);
    ck_assert_msg(worst <= TOLERANCE, "%s: logits differ by %.3g, allowed %.3g", what, worst, TOLERANCE);
    for (size_t i = 0; i < n; i++) {
        const float *w = want + i * vocab, *g = got + i * vocab;
        size_t first = 0, second = 1, mine = 0;
        for (size_t v = 1; v < vocab; v++) {
            if (w[v] > w[first]) {
                second = first;
                first = v;
            } else if (v != first && w[v] > w[second]) {
                second = v;
            }
            if (g[v] > g[mine]) mine = v;
        }
        if ((double)w[first] - (double)w[second] > 2 * TOLERANCE) {
            ck_assert_msg(mine == first, "%s: greedy token %zu at position %zu, expected %zu", what, mine, i, first);
        }
    }
}

START_TEST(stores_kernels_and_isas_agree_with_the_oracle)
{
    dlab_model *m = open_model(models[_i].name);
    size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    int32_t ids[N];
    text_of(m, ids, N, 7);
    float *want = plainest(m, ids, N);
    int tried = 0;
    for (size_t s = 0; dlab_kv_stores[s]; s++) {
        for (size_t a = 0; dlab_attn_kernels[a]; a++) {
            for (size_t i = 0; dlab_isa_list[i]; i++) {
                if (!dlab_isa_supported(dlab_isa_list[i])) continue;
                char sets[256];
                snprintf(sets, sizeof sets, F32 "kv.store=%s attention.kernel=%s isa=%s threads=2",
                         dlab_kv_stores[s]->name, dlab_attn_kernels[a]->name, dlab_isa_list[i]);
                float *got = logits_of(m, sets, ids, N);
                assert_close(want, got, N, vocab, sets);
                free(got);
                tried++;
            }
        }
    }
    ck_assert_int_ge(tried, 4);
    free(want);
    dlab_model_close(m);
}
END_TEST

START_TEST(threads_chunks_growth_and_devices_give_the_same_bits)
{
    static const char *const variants[] = {
        "device=guard kv.growth=double batch.chunk=40",
        "threads=1",
        "threads=2",
        "threads=3",
        "threads=7",
        "batch.chunk=1",
        "batch.chunk=3",
        "batch.chunk=64",
        "batch.chunk=255",
        "batch.chunk=257",
        "kv.growth=double batch.chunk=40",
        "kv.max_tokens=1000",
        "batch.token_budget=17",
        "device=guard",
        "device=guard batch.chunk=100 threads=2",
        "kv.store=none",
        "kv.store=none device=guard",
        "kv.store=paged",
        "kv.store=paged device=guard kv.block_size=8",
        "kv.store=paged kv.block_size=256 batch.chunk=100 threads=2",
        "kv.headroom=2",
        "attention.pattern=local_strided attention.stride=1 attention.window=32",
        "attention.pattern=local_strided attention.window=290 attention.sinks=0",
        "kv.store=paged attention.pattern=local_strided attention.stride=1 attention.block=16 attention.window=1",
    };
    dlab_model *m = open_model(models[_i].name);
    size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    int32_t ids[N];
    text_of(m, ids, N, 8);
    for (size_t a = 0; dlab_attn_kernels[a]; a++) {
        for (size_t i = 0; dlab_isa_list[i]; i++) {
            if (!dlab_isa_supported(dlab_isa_list[i])) continue;
            char sets[256];
            snprintf(sets, sizeof sets, F32 "attention.kernel=%s isa=%s", dlab_attn_kernels[a]->name, dlab_isa_list[i]);
            float *want = logits_of(m, sets, ids, N);
            for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
                char with[384];
                snprintf(with, sizeof with, "%s %s", sets, variants[v]);
                float *got = logits_of(m, with, ids, N);
                ck_assert_msg(memcmp(want, got, N * vocab * sizeof *got) == 0, "%s: not bit-equal (worst %.3g)", with,
                              largest_difference(want, got, N * vocab));
                free(got);
            }
            free(want);
        }
    }
    dlab_model_close(m);
}
END_TEST

static void assert_schedules_do_not_show(const dlab_model *m, const char *sets, const int32_t *ids)
{
    static const char *const variants[] = {"threads=3",     "batch.chunk=5", "batch.chunk=256 threads=2",
                                           "kv.store=none", "device=guard",  "kv.growth=double",
                                           "kv.store=paged"};
    const size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    float *want = logits_of(m, sets, ids, N);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        char with[384];
        snprintf(with, sizeof with, "%s %s", sets, variants[v]);
        float *got = logits_of(m, with, ids, N);
        ck_assert_msg(memcmp(want, got, N * vocab * sizeof *got) == 0, "%s: not bit-equal", with);
        free(got);
    }
    free(want);
}

/* Quantized compute and formats are not exact, yet neighbours, threads and chunks must not show in them either. */
START_TEST(quantized_paths_give_the_same_bits_whatever_the_schedule)
{
    dlab_model *m = open_model("synthetic:tiny-q4");
    int32_t ids[N];
    text_of(m, ids, N, 9);
    for (size_t k = 0; dlab_kv_formats[k]; k++) {
        for (size_t i = 0; dlab_isa_list[i]; i++) {
            if (!dlab_isa_supported(dlab_isa_list[i])) continue;
            char sets[256];
            snprintf(sets, sizeof sets, "compute=int8 kv.k=%s kv.v=%s isa=%s threads=1", dlab_kv_formats[k]->name,
                     dlab_kv_formats[k]->name, dlab_isa_list[i]);
            assert_schedules_do_not_show(m, sets, ids);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* The same of products of bf16; they stay near those of f32, and are not the same. */
START_TEST(bf16_products_give_the_same_bits_whatever_the_schedule)
{
    dlab_model *m = open_model("synthetic:tiny-bf16");
    const size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    int32_t ids[N];
    text_of(m, ids, N, 9);
    float *exact = plainest(m, ids, N);
    for (size_t i = 0; dlab_isa_list[i]; i++) {
        if (!dlab_isa_supported(dlab_isa_list[i])) continue;
        char sets[256];
        snprintf(sets, sizeof sets, "compute=bf16 isa=%s threads=1 kv.k=f32 kv.v=f32", dlab_isa_list[i]);
        assert_schedules_do_not_show(m, sets, ids);
        float *got = logits_of(m, sets, ids, N);
        const double off = largest_difference(exact, got, N * vocab);
        ck_assert_msg(off > TOLERANCE && off < BF16_TOLERANCE, "%s: logits differ from f32's by %.3g", sets, off);
        free(got);
    }
    free(exact);
    dlab_model_close(m);
}
END_TEST

enum { RAGGED = 16 };

/* Logits of the last position of each of n sequences that run in the same steps. */
static void ragged_logits(dlab_engine *e, const int32_t *ids, const int *lengths, int n, int decode_steps, float *out)
{
    dlab_slice slices[RAGGED];
    for (int i = 0; i < n; i++) {
        memcpy(e->batch.seqs[i].ids, ids + i * N, (size_t)lengths[i] * sizeof *ids);
        e->batch.seqs[i].n_ids = lengths[i] - decode_steps;
        OK(dlab_engine_open_seq(e, i, decode_steps, err));
    }
    for (int step = 0; step <= decode_steps; step++) {
        for (int i = 0; i < n; i++) {
            dlab_seq *s = &e->batch.seqs[i];
            int64_t due = dlab_seq_due(&e->batch, s);
            slices[i] = (dlab_slice){.seq = i, .first = s->n_ids - due, .n_rows = (int32_t)due};
        }
        dlab_step_want want = {.want = DLAB_WANT_SAMPLE, .logits = out};
        dlab_step_work work;
        OK(dlab_step_reserve(e, slices, n, err));
        OK(dlab_step_execute(e, slices, n, &want, &work, err));
        for (int i = 0; i < n; i++) e->batch.seqs[i].n_ids++;
    }
    for (int i = 0; i < n; i++) dlab_engine_close_seq(e, i);
}

START_TEST(bug_18_one_sequence_alone_equals_the_same_among_sixteen)
{
    dlab_model *m = open_model(models[_i].name);
    size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    int32_t *ids = malloc(RAGGED * N * sizeof *ids);
    int lengths[RAGGED];
    for (int i = 0; i < RAGGED; i++) {
        fill_ids(ids + i * N, N, (int32_t)vocab, 100 + (uint64_t)i);
        lengths[i] = i % 5 == 0 ? 250 + 2 * i : 4 + (i * 37) % 90; /* within the default budget of rows */
    }
    float *together = malloc(RAGGED * vocab * sizeof *together), *alone = malloc(vocab * sizeof *alone);
    const char *const computes[] = {"f32", models[_i].compute};
    for (size_t c = 0; c < 2; c++) {
        for (size_t s = 0; dlab_kv_stores[s]; s++) {
            for (size_t i = 0; dlab_isa_list[i]; i++) {
                if (!dlab_isa_supported(dlab_isa_list[i])) continue;
                char sets[256];
                snprintf(sets, sizeof sets, "compute=%s kv.store=%s isa=%s threads=2 batch.size=16", computes[c],
                         dlab_kv_stores[s]->name, dlab_isa_list[i]);
                dlab_engine *e = open_engine(m, sets, RAGGED, N, RAGGED);
                ragged_logits(e, ids, lengths, RAGGED, 2, together);
                for (int q = 0; q < RAGGED; q += 5) {
                    ragged_logits(e, ids + q * N, lengths + q, 1, 2, alone);
                    ck_assert_msg(memcmp(together + (size_t)q * vocab, alone, vocab * sizeof *alone) == 0,
                                  "%s: sequence %d differs by %.3g", sets, q,
                                  largest_difference(together + (size_t)q * vocab, alone, vocab));
                }
                dlab_engine_destroy(e);
            }
        }
    }
    free(together);
    free(alone);
    free(ids);
    dlab_model_close(m);
}
END_TEST

/* Logits of the last position of one text: computed alone, or in chunks, each beside the rows of neighbours that produce. */
static void chunked_logits(dlab_engine *e, const int32_t *ids, int n, int chunk, int neighbours, float *out)
{
    const size_t vocab = (size_t)dlab_model_get_info(e->model)->vocab;
    float *all = malloc((size_t)(neighbours + 1) * vocab * sizeof *all);
    for (int i = 0; i <= neighbours; i++) {
        const int known = i < neighbours ? 5 + 3 * i : n;
        memcpy(e->batch.seqs[i].ids, ids + (i < neighbours ? i + 1 : 0) * N, N * sizeof *ids);
        e->batch.seqs[i].n_ids = known;
        OK(dlab_engine_open_seq(e, i, N - known, err));
    }
    const dlab_seq *s = &e->batch.seqs[neighbours];
    for (bool more = true; more;) {
        dlab_slice slices[RAGGED];
        const int64_t due = dlab_seq_due(&e->batch, s), rows = due < chunk ? due : chunk;
        for (int i = 0; i < neighbours; i++) {
            const dlab_seq *q = &e->batch.seqs[i];
            const int64_t own = dlab_seq_due(&e->batch, q);
            slices[i] = (dlab_slice){.seq = i, .first = q->n_ids - own, .n_rows = (int32_t)own};
        }
        slices[neighbours] = (dlab_slice){.seq = neighbours, .first = s->n_ids - due, .n_rows = (int32_t)rows};
        const dlab_step_want want = {.want = DLAB_WANT_SAMPLE, .logits = all};
        dlab_step_work work;
        OK(dlab_step_reserve(e, slices, neighbours + 1, err));
        OK(dlab_step_execute(e, slices, neighbours + 1, &want, &work, err));
        for (int i = 0; i < neighbours; i++) e->batch.seqs[i].n_ids++;
        more = due > rows;
    }
    memcpy(out, all + (size_t)neighbours * vocab, vocab * sizeof *out);
    for (int i = 0; i <= neighbours; i++) dlab_engine_close_seq(e, i);
    free(all);
}

/* What a continuous batch does to a prompt. */
START_TEST(a_prompt_in_chunks_beside_others_tokens_gives_the_same_bits)
{
    static const int chunks[] = {N, 100, 17, 3};
    dlab_model *m = open_model(models[_i].name);
    const size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    int32_t *ids = malloc(RAGGED * N * sizeof *ids);
    for (int i = 0; i < RAGGED; i++) text_of(m, ids + i * N, N, 40 + (uint64_t)i);
    float *want = malloc(vocab * sizeof *want), *got = malloc(vocab * sizeof *got);
    const char *const computes[] = {"f32", models[_i].compute};
    for (size_t c = 0; c < 2; c++) {
        for (size_t s = 0; dlab_kv_stores[s]; s++) {
            if (!dlab_kv_stores[s]->retains) continue;
            char sets[256];
            snprintf(sets, sizeof sets, "compute=%s kv.store=%s threads=2 batch.size=8", computes[c],
                     dlab_kv_stores[s]->name);
            dlab_engine *e = open_engine(m, sets, RAGGED, N, RAGGED);
            chunked_logits(e, ids, 150, N, 0, want);
            for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
                chunked_logits(e, ids, 150, chunks[k], 7, got);
                ck_assert_msg(memcmp(want, got, vocab * sizeof *got) == 0, "%s: chunks of %d: logits differ by %.3g",
                              sets, chunks[k], largest_difference(want, got, vocab));
            }
            dlab_engine_destroy(e);
        }
    }
    free(want);
    free(got);
    free(ids);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("exact");
    TCase *t = tcase_create("walk");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, stores_kernels_and_isas_agree_with_the_oracle, 0, N_MODELS);
    tcase_add_loop_test(t, threads_chunks_growth_and_devices_give_the_same_bits, 0, N_MODELS);
    tcase_add_test(t, quantized_paths_give_the_same_bits_whatever_the_schedule);
    tcase_add_test(t, bf16_products_give_the_same_bits_whatever_the_schedule);
    tcase_add_loop_test(t, bug_18_one_sequence_alone_equals_the_same_among_sixteen, 0, N_MODELS);
    tcase_add_loop_test(t, a_prompt_in_chunks_beside_others_tokens_gives_the_same_bits, 0, N_MODELS);
    suite_add_tcase(s, t);
    return run_suite(s);
}

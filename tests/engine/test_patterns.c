/* Which tokens a pattern visits, by definition; that attention over the spans equals dense attention with a mask; what it
 * costs. Covers S1, X8. */
#include "engine/attention/pattern.h"
#include "engine_test.h"

#define F32 "compute=f32 kv.k=f32 kv.v=f32 "

static int32_t spans_of(const dlab_attn_pattern *p, const dlab_pattern_opts *o, int64_t pos, dlab_span *out)
{
    const int32_t n = p->spans(o, 0, 0, pos, out);
    ck_assert_int_ge(n, 1);
    ck_assert_int_le(n, p->max_spans(o, pos + 1));
    int64_t last = -1;
    for (int32_t i = 0; i < n; i++) {
        ck_assert_int_ge(out[i].count, 1);
        ck_assert_int_ge(out[i].step, 1);
        ck_assert_int_gt(out[i].begin, last);
        last = out[i].begin + (int64_t)(out[i].count - 1) * out[i].step;
    }
    ck_assert_int_eq(last, pos); /* the query sees itself, and nothing behind */
    return n;
}

static bool visits(const dlab_span *spans, int32_t n, int64_t t)
{
    for (int32_t i = 0; i < n; i++) {
        const int64_t d = t - spans[i].begin;
        if (d >= 0 && d % spans[i].step == 0 && d / spans[i].step < spans[i].count) return true;
    }
    return false;
}

static bool by_definition(const dlab_pattern_opts *o, int64_t pos, int64_t t)
{
    return t <= pos && (t > pos - o->window || t < o->sinks || t / o->block % o->stride == 0);
}

START_TEST(local_strided_visits_what_it_says)
{
    static dlab_span out[2048];
    const dlab_attn_pattern *p = dlab_attn_pattern_find("local_strided");
    ck_assert_ptr_nonnull(p);
    for (int64_t window = 1; window <= 64; window = window * 3 + 1) {
        for (int64_t stride = 1; stride <= 9; stride++) {
            for (int64_t block = 1; block <= 32; block *= 4) {
                for (int64_t sinks = 0; sinks <= 20; sinks += 5) {
                    const dlab_pattern_opts o = {window, stride, block, sinks};
                    for (int64_t pos = 0; pos < 200; pos += 1 + pos % 3) {
                        const int32_t n = spans_of(p, &o, pos, out);
                        for (int64_t t = 0; t <= pos; t++) {
                            ck_assert_msg(visits(out, n, t) == by_definition(&o, pos, t),
                                          "window %d, stride %d, block %d, sinks %d: token %d of query %d", (int)window,
                                          (int)stride, (int)block, (int)sinks, (int)t, (int)pos);
                        }
                    }
                }
            }
        }
    }
}
END_TEST

/* X8: the last 1024 positions and every 8th of the rest read 34.4 % of the cache at depth 4096, and 50.8 % over the
 * generation of 4096 tokens. */
START_TEST(the_share_of_the_cache_is_the_articles)
{
    dlab_span out[8];
    const dlab_attn_pattern *p = dlab_attn_pattern_find("local_strided");
    const dlab_pattern_opts o = {1024, 8, 1, 0};
    double visited = 0, all = 0, at_end = 0;
    for (int64_t pos = 0; pos < 4096; pos++) {
        const int32_t n = spans_of(p, &o, pos, out);
        double here = 0;
        for (int32_t i = 0; i < n; i++) here += out[i].count;
        visited += here;
        all += (double)(pos + 1);
        at_end = here / (double)(pos + 1);
    }
    ck_assert_double_eq_tol(at_end, 0.34375, 1e-12);
    ck_assert_double_eq_tol(visited / all, 0.508, 5e-4);
}
END_TEST

START_TEST(every_pattern_gives_well_formed_spans)
{
    static dlab_span out[4096];
    int tried = 0;
    for (size_t k = 0; dlab_attn_patterns[k]; k++, tried++) {
        const dlab_pattern_opts o = {16, 4, 4, 2};
        for (int64_t pos = 0; pos < 300; pos++) spans_of(dlab_attn_patterns[k], &o, pos, out);
        ck_assert_ptr_eq(dlab_attn_pattern_find(dlab_attn_patterns[k]->name), dlab_attn_patterns[k]);
    }
    ck_assert_int_ge(tried, 2);
    ck_assert_ptr_null(dlab_attn_pattern_find("nothing"));
}
END_TEST

/* ---- in the engine ---- */

enum { N = 290 };

static int32_t ids[N];

/* The oracle device walks the spans one token at a time, in double. */
START_TEST(sparse_logits_agree_with_the_oracle_whatever_the_schedule)
{
    static const char *const patterns[] = {"attention.window=16 attention.stride=4",
                                           "attention.window=1 attention.stride=7 attention.sinks=0",
                                           "attention.window=40 attention.stride=3 attention.block=16",
                                           "attention.window=280 attention.stride=100 attention.block=2"};
    static const char *const schedules[] = {"batch.chunk=1", "batch.chunk=33 threads=3",
                                            "kv.store=paged kv.block_size=8 batch.chunk=100", "kv.store=none",
                                            "device=guard kv.store=paged"};
    dlab_model *m = open_model("synthetic:tiny");
    const size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    fill_ids(ids, N, (int32_t)vocab, 5);
    float *dense = logits_of(m, F32, ids, N);
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        char sets[400];
        snprintf(sets, sizeof sets, F32 "attention.pattern=local_strided %s device=ref attention.kernel=unfused",
                 patterns[p]);
        float *oracle = logits_of(m, sets, ids, N);
        ck_assert(largest_difference(dense, oracle, N * vocab) > 1e-3); /* it does leave something out */
        for (size_t a = 0; dlab_attn_kernels[a]; a++) {
            for (size_t i = 0; dlab_isa_list[i]; i++) {
                if (!dlab_isa_supported(dlab_isa_list[i])) continue;
                snprintf(sets, sizeof sets, F32 "attention.pattern=local_strided %s attention.kernel=%s isa=%s",
                         patterns[p], dlab_attn_kernels[a]->name, dlab_isa_list[i]);
                float *want = logits_of(m, sets, ids, N);
                const double worst = largest_difference(oracle, want, N * vocab);
                ck_assert_msg(worst < 2e-4, "%s: off by %g", sets, worst);
                for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
                    char with[512];
                    snprintf(with, sizeof with, "%s %s", sets, schedules[s]);
                    float *got = logits_of(m, with, ids, N);
                    ck_assert_msg(memcmp(want, got, N * vocab * sizeof *got) == 0, "%s: not bit-equal", with);
                    free(got);
                }
                free(want);
            }
        }
        free(oracle);
    }
    free(dense);
    dlab_model_close(m);
}
END_TEST

/* A pattern may differ from layer to layer and from head to head: tables of its own for each. */
static int32_t spans_by_head(const dlab_pattern_opts *o, int32_t layer, int32_t kv_head, int64_t pos, dlab_span *out)
{
    const dlab_pattern_opts mine = {
        .window = 1 + 8 * layer + 100 * kv_head, .stride = 5, .block = o->block, .sinks = 1};
    return dlab_attn_pattern_find("local_strided")->spans(&mine, layer, kv_head, pos, out);
}

static int64_t many_spans(const dlab_pattern_opts *o, int64_t max_len)
{
    (void)o;
    return 3 + max_len;
}

static float *logits_by_head(const dlab_model *m, const char *sets)
{
    static const dlab_attn_pattern by_head = {
        .name = "by_head", .by_layer = true, .by_head = true, .max_spans = many_spans, .spans = spans_by_head};
    const size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    /* room in the descriptor for tables as large as these: blocks of one token, one in one */
    dlab_engine *e = open_engine(m, sets, 1, N, N);
    const int32_t layers = dlab_model_get_info(m)->n_layers;
    ck_assert(!e->plan.pattern->dense);
    e->plan.pattern = &by_head;
    size_t *offsets = realloc(e->span_off, (size_t)layers * sizeof *offsets);
    ck_assert_ptr_nonnull(offsets);
    e->span_off = offsets;
    e->fwd.span_off = offsets;
    float *out = malloc(N * vocab * sizeof *out);
    OK(dlab_engine_score(e, ids, N, N, NULL, NULL, out, err));
    dlab_engine_destroy(e);
    return out;
}

START_TEST(spans_of_each_layer_and_head_are_their_own)
{
    dlab_model *m = open_model("synthetic:tiny");
    const size_t vocab = (size_t)dlab_model_get_info(m)->vocab;
    fill_ids(ids, N, (int32_t)vocab, 5);
    const char *sets = "attention.pattern=local_strided attention.block=2 attention.stride=1";
    char ref[300], cpu[300];
    snprintf(ref, sizeof ref, F32 "%s device=ref attention.kernel=unfused batch.chunk=16", sets);
    float *oracle = logits_by_head(m, ref);
    for (size_t a = 0; dlab_attn_kernels[a]; a++) {
        snprintf(cpu, sizeof cpu, F32 "%s attention.kernel=%s kv.store=paged batch.chunk=16", sets,
                 dlab_attn_kernels[a]->name);
        float *got = logits_by_head(m, cpu);
        ck_assert(largest_difference(oracle, got, N * vocab) < 2e-4);
        free(got);
    }
    snprintf(cpu, sizeof cpu, F32 "%s", sets);
    float *same_for_all = logits_of(m, cpu, ids, N);
    ck_assert(largest_difference(oracle, same_for_all, N * vocab) > 1e-3);
    free(same_for_all);
    free(oracle);
    dlab_model_close(m);
}
END_TEST

START_TEST(cost_follows_what_is_visited)
{
    dlab_model *m = open_model("synthetic:tiny");
    static const char *const plans[] = {"", "attention.pattern=local_strided attention.window=100 attention.stride=10 "
                                            "attention.sinks=0"};
    double kv[2] = {0}, dense[2] = {0};
    fill_ids(ids, N, 288, 5);
    for (int p = 0; p < 2; p++) {
        dlab_engine *e = open_engine(m, plans[p], 1, N, 0);
        dlab_engine_request r = {.prompt = ids, .n_prompt = 200, .max_new = 2, .eos = -1, .primed = -1};
        OK(dlab_engine_submit(e, &r, err));
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        OK(dlab_engine_step(e, &st, err)); /* one token at depth 201 */
        kv[p] = st.kv_bytes;
        dense[p] = st.kv_dense_bytes;
        dlab_engine_destroy(e);
    }
    const double token = 2.0 * 2 * 2 * 16 * 2; /* K and V · layers · heads · dim · bytes */
    ck_assert_double_eq(kv[0], 201 * token);
    ck_assert_double_eq(dense[0], 201 * token);
    ck_assert_double_eq(kv[1],
                        (100 + 11) * token); /* positions 0, 10, … 100 lie before the window, which begins at 101 */
    ck_assert_double_eq(dense[1], 201 * token);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("patterns");
    TCase *t = tcase_create("patterns");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, local_strided_visits_what_it_says);
    tcase_add_test(t, the_share_of_the_cache_is_the_articles);
    tcase_add_test(t, every_pattern_gives_well_formed_spans);
    tcase_add_test(t, sparse_logits_agree_with_the_oracle_whatever_the_schedule);
    tcase_add_test(t, spans_of_each_layer_and_head_are_their_own);
    tcase_add_test(t, cost_follows_what_is_visited);
    suite_add_tcase(s, t);
    return run_suite(s);
}

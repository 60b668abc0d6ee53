/* The oracle's attention over caches of every format and over spans, against a plain computation over all tokens in which
 * what a row does not visit is masked out. */
#include "tests/kernels/ref_kv_lab.h"

#define HEADS 4 /* query heads: 0, 1 read KV head 0 */
#define N_NEW 9 /* rows of the last step */
#define N_OLD 33
#define LEN   (N_OLD + N_NEW)
#define ROWS  (N_NEW + 2) /* with the two that write nothing */
#define SCALE 0.25f

/* Row 0 is of a sequence that has no tokens: no test looks at what comes of it. */

static ref_fixture f;
static void setup(void) { fixture_open(&f); }
static void teardown(void) { fixture_close(&f); }

static kv_lab lab;
static float q[ROWS * HEADS * LAB_DIM]; /* [rows, heads, d] */

/* which tokens a row visits for a KV head */
typedef bool visit_map[ROWS][LAB_HEADS][LEN];

static void fill(kv_case k, kv_case v, int dim)
{
    static float x[2][N_OLD * LAB_HEADS * LAB_DIM];
    dlab_rng r;
    dlab_rng_seed(&r, 9);
    lab_open(&lab, &f, k, v, dim);
    for (int step = 0; step < 2; step++) {
        const int n = step ? N_NEW : N_OLD;
        for (int i = 0; i < n * LAB_HEADS * dim; i++) {
            x[0][i] = (float)(dlab_rng_unit(&r) * 3 - 1);
            x[1][i] = (float)(dlab_rng_unit(&r) * 2 + 5); /* V is unlike K */
        }
        lab_step(&lab, n, x[0], x[1]);
    }
    for (int i = 0; i < ROWS * HEADS * dim; i++) q[i] = (float)(dlab_rng_unit(&r) * 2 - 1);
}

static const float *query(int row, int head) { return q + (row * HEADS + head) * lab.dim; }

static void expected(int row, int head, const bool *visited, double *out)
{
    const int g = head / (HEADS / LAB_HEADS), dim = lab.dim;
    double score[LEN], largest = -INFINITY, total = 0;
    for (int t = 0; t < LEN; t++) {
        double dot = 0;
        for (int i = 0; i < dim; i++) dot += (double)query(row, head)[i] * lab_value(&lab.k, t, g, i);
        score[t] = visited[t] ? dot * (double)SCALE : -INFINITY;
        largest = fmax(largest, score[t]);
    }
    for (int i = 0; i < dim; i++) out[i] = 0;
    for (int t = 0; t < LEN; t++) {
        const double w = exp(score[t] - largest);
        total += w;
        for (int i = 0; i < dim; i++) out[i] += w * lab_value(&lab.v, t, g, i);
    }
    for (int i = 0; i < dim; i++) out[i] /= total;
}

/* Runs of visited tokens become spans; where every other or every third is visited, one span of that step. */
static int32_t spans_of(const bool *visited, dlab_span *out)
{
    int32_t n = 0;
    for (int32_t t = 0; t < LEN; t++) {
        if (!visited[t]) continue;
        dlab_span s = {t, 1, 1};
        for (int32_t step = 3; step >= 1; step--) {
            int32_t count = 1;
            while (t + count * step < LEN && visited[t + count * step]) {
                bool gap = false;
                for (int32_t i = 1; i < step; i++) gap = gap || visited[t + (count - 1) * step + i];
                if (gap) break;
                count++;
            }
            if (count > s.count) s = (dlab_span){t, count, step};
        }
        out[n++] = s;
        t = s.begin + (s.count - 1) * s.step;
    }
    return n;
}

static dlab_span_table table_of(visit_map map, int heads)
{
    static int32_t words[ROWS * LAB_HEADS + 1 + 3 * ROWS * LAB_HEADS * LEN];
    const int lists = ROWS * heads;
    dlab_span *spans = (dlab_span *)(void *)(words + lists + 1);
    int32_t n = 0;
    for (int i = 0; i < lists; i++) {
        words[i] = n;
        if (i / heads > 0) n += spans_of(map[i / heads][i % heads], spans + n);
    }
    words[lists] = n;
    dlab_at at = buffer_of(&f, NULL, sizeof words + 8);
    at.off = 8;
    ck_assert_int_eq(dlab_host_upload(at, words, sizeof words, NULL), DLAB_OK);
    return (dlab_span_table){at, heads};
}

typedef float results[ROWS * HEADS * LAB_DIM];

static void run(dlab_span_table spans, bool fused, float *out)
{
    const size_t bytes = (size_t)(ROWS * HEADS * lab.dim) * sizeof(float);
    const dlab_at in = buffer_of(&f, q, bytes), to = buffer_of(&f, NULL, bytes);
    dlab_error err = {0};
    if (fused) {
        const dlab_attn_fused_args a = {.q = in,
                                        .out = to,
                                        .desc = lab.desc_at,
                                        .partials =
                                            buffer_of(&f, NULL, dlab_attn_partials_bytes(ROWS, HEADS, lab.dim, LEN)),
                                        .kv = lab_view(&lab),
                                        .spans = spans,
                                        .n_rows = ROWS,
                                        .n_heads = HEADS,
                                        .max_len = LEN,
                                        .scale = SCALE};
        submit_ok(dlab_submit_attn_fused(f.dev, a, &err), &err);
    } else {
        const dlab_attn_unfused_args a = {.q = in,
                                          .out = to,
                                          .desc = lab.desc_at,
                                          .scores = buffer_of(&f, NULL, (size_t)(HEADS * ROWS * LEN) * sizeof(float)),
                                          .kv = lab_view(&lab),
                                          .spans = spans,
                                          .n_rows = ROWS,
                                          .n_heads = HEADS,
                                          .max_len = LEN,
                                          .scale = SCALE};
        submit_ok(dlab_submit_attn_scores(f.dev, a, &err), &err);
        submit_ok(dlab_submit_attn_softmax(f.dev, a, &err), &err);
        submit_ok(dlab_submit_attn_values(f.dev, a, &err), &err);
    }
    read_back(&f, out, to, bytes);
}

/* Dense attention of row 0 must find something to read. */
static void give_row_0_tokens(void)
{
    lab.desc.seqs[0] = lab.desc.seqs[1];
    lab.desc.rows[0].pos = 0;
    ck_assert_int_eq(dlab_host_upload(lab.desc_at, &lab.desc, sizeof lab.desc, NULL), DLAB_OK);
}

static void compare(const float *got, visit_map map, int heads, double tol)
{
    double want[LAB_DIM];
    for (int r = 1; r < ROWS; r++) {
        for (int h = 0; h < HEADS; h++) {
            expected(r, h, map[r][heads > 1 ? h / (HEADS / LAB_HEADS) : 0], want);
            floats_near(got + (r * HEADS + h) * lab.dim, want, (size_t)lab.dim, tol);
        }
    }
}

static void map_causal(visit_map map)
{
    for (int r = 0; r < ROWS; r++)
        for (int g = 0; g < LAB_HEADS; g++)
            for (int t = 0; t < LEN; t++) map[r][g][t] = t <= lab.desc.rows[r].pos;
}

/* K and V differ in format, places, tails and values, so that one read as the other shows. */
START_TEST(bug_7_keys_and_values_are_not_mixed_up_in_any_format)
{
    static results out;
    static visit_map map;
    fill(kv_cases[_i], kv_cases[(_i + 5) % (int)N_OF(kv_cases)], _i % 2 ? 80 : 32);
    give_row_0_tokens();
    map_causal(map);
    for (int fused = 0; fused < 2; fused++) {
        run((dlab_span_table){0}, fused, out);
        compare(out, map, 1, 1e-5);
    }
}
END_TEST

/* Windows, strides, blocks with a stride, sinks, and random tokens, the same for all heads or of each head its own. */
static void map_pattern(visit_map map, int pattern, int heads)
{
    dlab_rng rng;
    dlab_rng_seed(&rng, (uint64_t)pattern);
    for (int r = 0; r < ROWS; r++) {
        for (int g = 0; g < heads; g++) {
            const int pos = lab.desc.rows[r].pos;
            for (int t = 0; t < LEN; t++) {
                const bool visit = pattern == 0   ? pos - t < 4 + g
                                   : pattern == 1 ? t % (2 + g) == 0
                                   : pattern == 2 ? pos - t < 3 || t / 4 % 3 == g
                                   : pattern == 3 ? t < 2 + g || pos - t < 5
                                                  : dlab_rng_below(&rng, 3) == 0 || t == pos;
                map[r][g][t] = visit && t <= pos;
            }
        }
    }
}

START_TEST(spans_are_dense_attention_with_a_mask)
{
    static const int formats[] = {0, 8, 19, 23}; /* without and with tails */
    static results out;
    static visit_map map;
    for (size_t c = 0; c < N_OF(formats); c++) {
        fill(kv_cases[formats[c]], kv_cases[(formats[c] + 1) % (int)N_OF(kv_cases)], 32);
        for (int heads = 1; heads <= LAB_HEADS; heads++) {
            map_pattern(map, _i, heads);
            const dlab_span_table spans = table_of(map, heads);
            for (int fused = 0; fused < 2; fused++) {
                run(spans, fused, out);
                compare(out, map, heads, 1e-5);
            }
        }
        teardown();
        setup();
    }
}
END_TEST

/* One span of everything, or all tokens in many spans: the bits of dense attention. */
START_TEST(spans_of_everything_are_dense_bit_by_bit)
{
    static results dense, out;
    static visit_map map;
    fill(kv_cases[3], kv_cases[9], 33);
    give_row_0_tokens();
    map_causal(map);
    const size_t own = (size_t)(HEADS * lab.dim), bytes = (size_t)(ROWS - 1) * own * sizeof(float);
    for (int fused = 0; fused < 2; fused++) {
        run((dlab_span_table){0}, fused, dense);
        run(table_of(map, 1), fused, out);
        ck_assert_mem_eq(out + own, dense + own, bytes);
        static struct {
            int32_t first[ROWS + 1];
            dlab_span spans[ROWS * LEN];
        } single;
        int32_t n = 0;
        for (int r = 0; r < ROWS; r++) {
            single.first[r] = n;
            for (int t = 0; t <= lab.desc.rows[r].pos; t++) single.spans[n++] = (dlab_span){t, 1, 7};
        }
        single.first[ROWS] = n;
        run((dlab_span_table){buffer_of(&f, &single, sizeof single), 1}, fused, out);
        ck_assert_mem_eq(out + own, dense + own, bytes);
    }
}
END_TEST

/* The i-th score is the i-th visited token's, and nothing else is touched. */
START_TEST(scores_lie_in_the_order_of_the_visit)
{
    static visit_map map;
    static float scores[HEADS][ROWS][LEN], in[HEADS * ROWS * LEN];
    fill(kv_cases[0], kv_cases[0], 16);
    map_pattern(map, 4, LAB_HEADS);
    for (size_t i = 0; i < N_OF(in); i++) in[i] = 77;
    const dlab_at at = buffer_of(&f, in, sizeof in);
    const dlab_attn_unfused_args a = {.q = buffer_of(&f, q, sizeof q),
                                      .out = buffer_of(&f, NULL, sizeof q),
                                      .desc = lab.desc_at,
                                      .scores = at,
                                      .kv = lab_view(&lab),
                                      .spans = table_of(map, LAB_HEADS),
                                      .n_rows = ROWS,
                                      .n_heads = HEADS,
                                      .max_len = LEN,
                                      .scale = SCALE};
    dlab_error err;
    submit_ok(dlab_submit_attn_scores(f.dev, a, &err), &err);
    read_back(&f, scores, at, sizeof scores);
    for (int h = 0; h < HEADS; h++) {
        for (int r = 1; r < ROWS; r++) {
            int n = 0;
            for (int t = 0; t < LEN; t++) {
                if (!map[r][h / 2][t]) continue;
                double dot = 0;
                for (int i = 0; i < 16; i++) dot += (double)query(r, h)[i] * (double)lab.k.x[t][h / 2][i];
                floats_near(&scores[h][r][n++], &(double){dot * (double)SCALE}, 1, 1e-6);
            }
            for (; n < LEN; n++) ck_assert_float_eq(scores[h][r][n], 77);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ref_spans");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, bug_7_keys_and_values_are_not_mixed_up_in_any_format, 0, (int)N_OF(kv_cases));
    tcase_add_loop_test(t, spans_are_dense_attention_with_a_mask, 0, 5);
    tcase_add_test(t, spans_of_everything_are_dense_bit_by_bit);
    tcase_add_test(t, scores_lie_in_the_order_of_the_visit);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

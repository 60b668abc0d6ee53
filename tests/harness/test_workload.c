/* Requests with exact token counts, the same for the same seed. */
#include <math.h>

#include "engine/model/model.h"
#include "tests/engine/tiny_gguf.h"
#include "tests/harness/workload_test.h"

static dlab_workload workload(int64_t prompt, int64_t depth, int64_t output)
{
    dlab_workload w = default_workload();
    w.prompt = prompt;
    w.depth = depth;
    w.output = output;
    return w;
}

START_TEST(counts_are_exact)
{
    const dlab_workload w = workload(7, 5, 3);
    dlab_requests r = build(&w, 4);
    ck_assert_int_eq(r.n, 4);
    for (int64_t i = 0; i < 4; i++) {
        ck_assert_int_eq(r.depth[i], 5);
        ck_assert_int_eq(r.prompt[i], 7);
        ck_assert_int_eq(r.output[i], 3);
        ck_assert_int_eq(r.offset[i], i * 12);
    }
    for (int64_t i = 0; i < 48; i++) {
        ck_assert_int_ge(r.ids[i], 100);
        ck_assert_int_lt(r.ids[i], 1000);
    }
    dlab_requests_free(&r);
    ck_assert_ptr_null(r.ids);
}
END_TEST

START_TEST(requests_may_outnumber_the_batch)
{
    dlab_workload w = workload(2, 0, 1);
    w.requests = 9;
    dlab_requests r = build(&w, 4);
    ck_assert_int_eq(r.n, 9);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(same_seed_same_tokens)
{
    dlab_workload w = workload(50, 0, 1);
    dlab_requests a = build(&w, 3), b = build(&w, 3);
    ck_assert_mem_eq(a.ids, b.ids, 150 * sizeof *a.ids);
    ck_assert_mem_eq(a.seed, b.seed, 3 * sizeof *a.seed);
    ck_assert_mem_ne(a.ids, a.ids + 50, 50 * sizeof *a.ids); /* requests differ */
    ck_assert(a.seed[0] != a.seed[1]);
    w.seed = 2;
    dlab_requests c = build(&w, 3);
    ck_assert_mem_ne(a.ids, c.ids, 50 * sizeof *a.ids);
    dlab_requests_free(&a);
    dlab_requests_free(&b);
    dlab_requests_free(&c);
}
END_TEST

/* A vocabulary that is padded behind its tokens, and has a control token and an unused one among its words. */
START_TEST(no_drawn_id_is_control_or_unused)
{
    static const char *const words[] = {"alpha", "<control>", "<unused>", "beta", NULL}, *const no_merges[] = {NULL};
    static const int types[] = {1, 3, 5, 1, 0};
    gguf_writer g = {0};
    dlab_model *model = NULL;
    dlab_tokenizer *tok = NULL;
    dlab_error err = {0};
    tiny_build(&g, &(tiny_options){.tokens = words, .types = types, .merges = no_merges, .bytes = true});
    ck_assert_msg(dlab_model_from_memory("tiny.gguf", g.data, g.n, &model, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_tokenizer_create(model, &tok, &err) == DLAB_OK, "%s", err.msg);
    const dlab_workload_host host = {.batch_size = 4, .first_id = 256, .vocab = 270, .tokenizer = tok};
    const dlab_workload w = workload(500, 0, 1);
    dlab_requests r = build_on(&w, &host);
    int seen[2] = {0};
    for (int64_t i = 0; i < 2000; i++) {
        ck_assert(r.ids[i] == 256 || r.ids[i] == 259);
        seen[r.ids[i] == 259]++;
    }
    ck_assert(seen[0] > 800 && seen[1] > 800);
    dlab_requests_free(&r);
    dlab_tokenizer_destroy(tok);
    dlab_model_close(model);
    gw_free(&g);
}
END_TEST

START_TEST(more_requests_or_longer_prompts_change_no_id_before)
{
    const dlab_workload small = workload(10, 0, 1), large = workload(6, 20, 1);
    dlab_requests a = build(&small, 2), b = build(&large, 5);
    for (int64_t i = 0; i < 2; i++) ck_assert_mem_eq(a.ids + a.offset[i], b.ids + b.offset[i], 10 * sizeof *a.ids);
    dlab_requests_free(&a);
    dlab_requests_free(&b);
}
END_TEST

START_TEST(spread_lengths_cover_half_to_whole_evenly)
{
    dlab_workload w = workload(33, 4, 1);
    w.lengths = "spread";
    dlab_requests r = build(&w, 17);
    int seen[34] = {0};
    int64_t total = 0, sorted = 0;
    for (int64_t i = 0; i < 17; i++) {
        ck_assert_int_ge(r.prompt[i], 17);
        ck_assert_int_le(r.prompt[i], 33);
        seen[r.prompt[i]]++;
        ck_assert_int_eq(r.offset[i], total);
        total += 4 + r.prompt[i];
        if (i > 0) sorted += r.prompt[i] > r.prompt[i - 1];
    }
    for (int n = 17; n <= 33; n++) ck_assert_int_eq(seen[n], 1);
    ck_assert_int_lt(sorted, 16); /* not in order of length */
    dlab_requests_free(&r);
    r = build(&w, 1);
    ck_assert_int_eq(r.prompt[0], 33);
    dlab_requests_free(&r);
    w.prompt = 1;
    r = build(&w, 5);
    for (int64_t i = 0; i < 5; i++) ck_assert_int_eq(r.prompt[i], 1);
    dlab_requests_free(&r);
}
END_TEST

/* ---- lognormal lengths ---- */

#define DRAWS 10000

static dlab_workload lognormal(int64_t mean, int64_t sd, int64_t max)
{
    dlab_workload w = workload(mean, 0, 1);
    w.lengths = "lognormal";
    w.prompt_sd = sd;
    w.prompt_max = max;
    return w;
}

/* Of DRAWS lengths; the largest one too. */
static void moments(const dlab_workload *w, int64_t context, double *mean, double *sd, int64_t *least, int64_t *largest)
{
    dlab_requests r;
    dlab_error err = {0};
    const dlab_workload_host host = {.batch_size = DRAWS, .context = context, .first_id = 0, .vocab = 2};
    ck_assert_msg(try_build(w, &host, false, &r, &err) == DLAB_OK, "%s", err.msg);
    double sum = 0, squares = 0;
    *least = INT64_MAX;
    *largest = 0;
    for (int64_t i = 0; i < r.n; i++) {
        sum += (double)r.prompt[i];
        squares += (double)r.prompt[i] * (double)r.prompt[i];
        if (r.prompt[i] > *largest) *largest = r.prompt[i];
        if (r.prompt[i] < *least) *least = r.prompt[i];
    }
    *mean = sum / DRAWS;
    *sd = sqrt(squares / DRAWS - *mean * *mean);
    dlab_requests_free(&r);
}

/* Four standard errors: of the mean sd/√n; of the standard deviation sd·√((kurtosis − 1)/4n), where a lognormal with
 * w = 1 + (sd/mean)² has the kurtosis w⁴ + 2w³ + 3w² − 3. */
START_TEST(lognormal_lengths_have_the_mean_and_the_deviation_asked_for)
{
    static const int64_t shapes[][2] = {{512, 300}, {100, 30}, {1000, 20}, {40, 40}};
    const int64_t *shape = shapes[_i / 3];
    const double mean = (double)shape[0], sd = (double)shape[1];
    dlab_workload w = lognormal(shape[0], shape[1], 0);
    w.seed = 1 + _i % 3;
    const double f = 1 + sd / mean * (sd / mean), kurtosis = f * f * f * f + 2 * f * f * f + 3 * f * f - 3;
    double got_mean, got_sd;
    int64_t least, largest;
    moments(&w, 0, &got_mean, &got_sd, &least, &largest);
    ck_assert_double_eq_tol(got_mean, mean, 4 * sd / sqrt(DRAWS));
    ck_assert_double_eq_tol(got_sd, sd, 4 * sd * sqrt((kurtosis - 1) / 4 / DRAWS));
    ck_assert_int_ge(least, 1);
}
END_TEST

/* The logarithm is normal: half of all lengths are below the median, 15.87 % above the median times e^σ. */
START_TEST(lognormal_lengths_have_a_lognormal_s_quantiles)
{
    const dlab_workload w = lognormal(512, 300, 0);
    dlab_requests r;
    dlab_error err = {0};
    const dlab_workload_host host = {.batch_size = DRAWS, .first_id = 0, .vocab = 2};
    ck_assert_int_eq(try_build(&w, &host, false, &r, &err), DLAB_OK);
    const double variance = log(1 + 300.0 * 300 / 512 / 512), median = 512 / exp(variance / 2);
    double below = 0, above = 0;
    for (int64_t i = 0; i < r.n; i++) {
        below += (double)r.prompt[i] < median;
        above += (double)r.prompt[i] > median * exp(sqrt(variance));
    }
    ck_assert_double_eq_tol(below / DRAWS, 0.5, 4 * 0.5 / sqrt(DRAWS));
    ck_assert_double_eq_tol(above / DRAWS, 0.1587, 4 * 0.3654 / sqrt(DRAWS));
    dlab_requests_free(&r);
}
END_TEST

START_TEST(no_drawn_length_is_beyond_its_bound)
{
    double mean, sd;
    int64_t least, largest;
    dlab_workload w = lognormal(512, 300, 600);
    moments(&w, 2048, &mean, &sd, &least, &largest);
    ck_assert_int_le(largest, 600);
    ck_assert_int_ge(largest, 590); /* drawn again, not cut off: but the bound is reached */
    w = lognormal(512, 512, 0);
    w.output = 49; /* 48 of them take a place in the context */
    moments(&w, 1048, &mean, &sd, &least, &largest);
    ck_assert_int_le(largest, 1000);
    ck_assert_int_ge(largest, 990);
    w = lognormal(1, 3, 1);
    moments(&w, 0, &mean, &sd, &least, &largest);
    ck_assert_int_eq(least, 1);
    ck_assert_int_eq(largest, 1);
}
END_TEST

START_TEST(a_drawn_length_depends_on_the_seed_and_the_request_alone)
{
    dlab_workload w = lognormal(200, 150, 0);
    dlab_requests a = build(&w, 8), b = build(&w, 40);
    ck_assert_mem_eq(a.prompt, b.prompt, 8 * sizeof *a.prompt);
    dlab_requests_free(&b);
    w.output = 9;
    w.shared_prefix = 1;
    b = build(&w, 8);
    ck_assert_mem_eq(a.prompt, b.prompt, 8 * sizeof *a.prompt);
    dlab_requests_free(&b);
    w.seed = 2;
    b = build(&w, 8);
    ck_assert_mem_ne(a.prompt, b.prompt, 8 * sizeof *a.prompt);
    dlab_requests_free(&a);
    dlab_requests_free(&b);
}
END_TEST

/* Warm-up must take no place that the measured run does not need, and leave no token of it in a cache. */
START_TEST(warm_up_has_the_same_lengths_and_other_tokens)
{
    dlab_workload w = lognormal(200, 150, 0);
    w.shared_prefix = 4;
    const dlab_workload_host host = host_of(16);
    dlab_requests a = build_on(&w, &host), b = build_warmup(&w, &host);
    ck_assert_mem_eq(a.prompt, b.prompt, 16 * sizeof *a.prompt);
    for (int64_t i = 0; i < 16; i++) {
        ck_assert_mem_ne(a.ids + a.offset[i], b.ids + b.offset[i], 4 * sizeof *a.ids);
        ck_assert_mem_ne(a.ids + a.offset[i] + 4, b.ids + b.offset[i] + 4, (size_t)(a.prompt[i] - 4) * sizeof *a.ids);
    }
    dlab_requests_free(&a);
    dlab_requests_free(&b);
}
END_TEST

/* ---- shared prefixes, samples ---- */

START_TEST(a_shared_prefix_is_the_same_in_all_and_changes_nothing_behind_it)
{
    dlab_workload w = workload(30, 0, 1);
    w.lengths = "spread";
    dlab_requests plain = build(&w, 6);
    w.shared_prefix = 14; /* the shortest has 15 */
    dlab_requests r = build(&w, 6);
    for (int64_t i = 0; i < 6; i++) {
        const int32_t *ids = r.ids + r.offset[i];
        ck_assert_int_eq(r.prompt[i], plain.prompt[i]);
        ck_assert_mem_eq(ids, r.ids, 14 * sizeof *ids);
        ck_assert_mem_ne(ids, plain.ids + plain.offset[i], 14 * sizeof *ids);
        ck_assert_mem_eq(ids + 14, plain.ids + plain.offset[i] + 14, (size_t)(r.prompt[i] - 14) * sizeof *ids);
    }
    ck_assert_mem_ne(r.ids + 14, r.ids + r.offset[1] + 14, sizeof *r.ids);
    w.shared_prefix = 5;
    dlab_requests shorter = build(&w, 6);
    ck_assert_mem_eq(shorter.ids, r.ids, 5 * sizeof *r.ids);
    dlab_requests_free(&plain);
    dlab_requests_free(&shorter);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(a_prefix_as_long_as_a_prompt_is_refused_with_both_lengths)
{
    dlab_workload w = workload(30, 0, 1);
    w.shared_prefix = 30;
    check_impossible(&w, 6,
                     "workload.shared_prefix: prompts begin with the same 30 tokens and need one more of their own; "
                     "the shortest has 30 (workload.prompt 30, lengths fixed)");
    w.lengths = "spread";
    w.shared_prefix = 15;
    check_impossible(&w, 6,
                     "workload.shared_prefix: prompts begin with the same 15 tokens and need one more of their own; "
                     "the shortest has 15 (workload.prompt 30, lengths spread)");
    w = lognormal(100, 50, 0);
    w.shared_prefix = 99;
    dlab_requests r;
    dlab_error err = {0};
    const dlab_workload_host host = host_of(20);
    ck_assert_int_eq(try_build(&w, &host, false, &r, &err), DLAB_EIMPOSSIBLE);
    ck_assert_ptr_nonnull(strstr(err.msg, "(workload.prompt 100, lengths lognormal)"));
    w = workload(30, 8, 1);
    w.shared_prefix = 4;
    check_impossible(&w, 6,
                     "workload.shared_prefix: 4 tokens behind a workload.depth of 8, which differs from request to "
                     "request, are no prefix; keep one of the two");
}
END_TEST

START_TEST(samples_take_places_of_the_batch)
{
    dlab_workload w = workload(10, 0, 2);
    w.samples = 3;
    dlab_requests r = build(&w, 8); /* two prompts and their six answers fit */
    ck_assert_int_eq(r.n, 2);
    ck_assert_int_eq(r.samples, 3);
    ck_assert_int_eq(r.offset[1], 10);
    dlab_requests_free(&r);
    ck_assert_int_eq(needs_of(&w, 8).max_seqs, 6);
    w.requests = 1;
    ck_assert_int_eq(needs_of(&w, 8).max_seqs, 3);
    w.requests = 5;
    ck_assert_int_eq(needs_of(&w, 8).max_seqs, 8);
    check_impossible(&w, 2, "workload.samples: 3 answers to a prompt run at once; batch.size has 2 places");
    w.depth = 4;
    check_impossible(
        &w, 8,
        "workload.samples: 3 answers to a prompt behind a workload.depth of 4: what is there already belongs "
        "to one sequence; keep one of the two");
}
END_TEST

/* ---- needs ---- */

START_TEST(needs_hold_the_longest_sequence)
{
    dlab_workload w = workload(30, 100, 8);
    dlab_engine_needs needs = needs_of(&w, 4);
    ck_assert_int_eq(needs.max_seqs, 4);
    ck_assert_int_eq(needs.max_tokens, 137);
    ck_assert_int_eq(needs.max_prompt,
                     130); /* the depth is one prompt of the filling pass; without a cache, of each step */
    ck_assert_int_eq(needs.max_logits, 0);
    w.requests = 2;
    ck_assert_int_eq(needs_of(&w, 4).max_seqs, 2);
    w.requests = 50;
    ck_assert_int_eq(needs_of(&w, 4).max_seqs, 50); /* each keeps its depth while it waits */
    w.depth = 0;
    ck_assert_int_eq(needs_of(&w, 4).max_seqs, 4);
}
END_TEST

/* No request is beyond what the engine was made for, and one is at it: a bound far above would reserve memory for nothing. */
START_TEST(needs_are_the_longest_that_is_drawn)
{
    static const char *const lengths[] = {"fixed", "spread", "lognormal"};
    dlab_workload w = lognormal(150, 120, 0);
    w.lengths = lengths[_i % 3];
    w.depth = _i % 2 ? 7 : 0;
    w.output = 5;
    w.seed = _i;
    w.requests = 1 + _i;
    const dlab_engine_needs needs = needs_of(&w, 4);
    dlab_requests r = build(&w, 4);
    int64_t longest = 0;
    for (int64_t i = 0; i < r.n; i++) {
        const int64_t prompt = r.depth[i] + r.prompt[i];
        if (prompt > longest) longest = prompt;
    }
    ck_assert_int_eq(needs.max_prompt, longest);
    ck_assert_int_eq(needs.max_tokens, longest + 4);
    ck_assert_int_le(needs.max_tokens, 2048);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(what_cannot_be_built_says_why)
{
    dlab_requests r;
    dlab_error err = {0};
    dlab_workload w = workload(0, 0, 1);
    check_impossible(&w, 1, "workload: 1 requests of 0 tokens; expected at least one of each");
    w = lognormal(0, 3, 0);
    w.depth = 1;
    check_impossible(&w, 1, "workload.lengths: lognormal needs a mean of at least 1 token: workload.prompt is 0");
    w = lognormal(500, 3, 499);
    check_impossible(&w, 1,
                     "workload.lengths: a mean of 500 tokens (workload.prompt) is above workload.prompt_max 499");
    w = lognormal(1900, 3, 0);
    w.depth = 100;
    w.output = 50;
    check_impossible(&w, 1,
                     "workload.lengths: a mean of 1900 tokens (workload.prompt) does not fit: the model's context of "
                     "2048, less 100 of depth and 49 of output, leaves 1899");
    w = workload(1, 0, 1);
    dlab_workload_host host = {.batch_size = 1, .first_id = 10, .vocab = 10};
    ck_assert_int_eq(try_build(&w, &host, false, &r, &err), DLAB_EUSAGE);
    ck_assert_str_eq(err.msg, "workload: a vocabulary of 10 ids has none from 10 on");
    w = workload(1048576, 1048576, 1);
    w.requests = 65536;
    err = (dlab_error){0};
    host.first_id = 0;
    ck_assert_int_eq(try_build(&w, &host, false, &r, &err), DLAB_EOOM);
    ck_assert_ptr_null(r.ids);
    dlab_requests_free(&r);
    dlab_requests_free(NULL);
}
END_TEST

START_TEST(a_depth_alone_is_a_workload)
{
    const dlab_workload w = workload(0, 6, 2);
    dlab_requests r = build(&w, 2);
    ck_assert_int_eq(r.prompt[1], 0);
    ck_assert_int_eq(r.depth[1], 6);
    ck_assert_int_eq(r.offset[1], 6);
    ck_assert_int_eq(needs_of(&w, 2).max_tokens, 7);
    dlab_requests_free(&r);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, counts_are_exact);
    tcase_add_test(tc, requests_may_outnumber_the_batch);
    tcase_add_test(tc, same_seed_same_tokens);
    tcase_add_test(tc, no_drawn_id_is_control_or_unused);
    tcase_add_test(tc, more_requests_or_longer_prompts_change_no_id_before);
    tcase_add_test(tc, spread_lengths_cover_half_to_whole_evenly);
    tcase_add_loop_test(tc, lognormal_lengths_have_the_mean_and_the_deviation_asked_for, 0, 12);
    tcase_add_test(tc, lognormal_lengths_have_a_lognormal_s_quantiles);
    tcase_add_test(tc, no_drawn_length_is_beyond_its_bound);
    tcase_add_test(tc, a_drawn_length_depends_on_the_seed_and_the_request_alone);
    tcase_add_test(tc, warm_up_has_the_same_lengths_and_other_tokens);
    tcase_add_test(tc, a_shared_prefix_is_the_same_in_all_and_changes_nothing_behind_it);
    tcase_add_test(tc, a_prefix_as_long_as_a_prompt_is_refused_with_both_lengths);
    tcase_add_test(tc, samples_take_places_of_the_batch);
    tcase_add_test(tc, needs_hold_the_longest_sequence);
    tcase_add_loop_test(tc, needs_are_the_longest_that_is_drawn, 0, 30);
    tcase_add_test(tc, what_cannot_be_built_says_why);
    tcase_add_test(tc, a_depth_alone_is_a_workload);
}

int main(void) { return run_suite("workload", add); }

/* Requests with exact token counts, the same for the same seed. */
#include "harness/workload/workload.h"
#include "tests/harness/spec_test.h"

static dlab_workload workload(int64_t prompt, int64_t depth, int64_t output)
{
    return (dlab_workload){
        .kind = "batch", .prompt = prompt, .depth = depth, .output = output, .ignore_eos = true, .seed = 1};
}

static dlab_requests build(const dlab_workload *w, int64_t batch_size)
{
    dlab_requests r;
    dlab_error err = {0};
    ck_assert_msg(dlab_workload_build(w, batch_size, 100, 1000, &r, &err) == DLAB_OK, "%s", err.msg);
    return r;
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

START_TEST(more_requests_or_longer_prompts_change_no_id_before)
{
    const dlab_workload small = workload(10, 0, 1), large = workload(6, 20, 1);
    dlab_requests a = build(&small, 2), b = build(&large, 5);
    for (int64_t i = 0; i < 2; i++) ck_assert_mem_eq(a.ids + a.offset[i], b.ids + b.offset[i], 10 * sizeof *a.ids);
    dlab_requests_free(&a);
    dlab_requests_free(&b);
}
END_TEST

START_TEST(ragged_lengths_cover_half_to_whole_evenly)
{
    dlab_workload w = workload(33, 4, 1);
    w.ragged = true;
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

START_TEST(needs_hold_the_longest_sequence)
{
    dlab_workload w = workload(30, 100, 8);
    dlab_engine_needs needs;
    dlab_workload_needs(&w, 4, &needs);
    ck_assert_int_eq(needs.max_seqs, 4);
    ck_assert_int_eq(needs.max_tokens, 137);
    ck_assert_int_eq(needs.max_prompt,
                     130); /* the depth is one prompt of the filling pass; without a cache, of each step */
    ck_assert_int_eq(needs.max_logits, 0);
    w.requests = 2;
    dlab_workload_needs(&w, 4, &needs);
    ck_assert_int_eq(needs.max_seqs, 2);
    w.requests = 50;
    dlab_workload_needs(&w, 4, &needs);
    ck_assert_int_eq(needs.max_seqs, 50); /* each keeps its depth while it waits */
    w.depth = 0;
    dlab_workload_needs(&w, 4, &needs);
    ck_assert_int_eq(needs.max_seqs, 4);
}
END_TEST

START_TEST(what_cannot_be_built_says_why)
{
    dlab_requests r;
    dlab_error err = {0};
    dlab_workload w = workload(0, 0, 1);
    ck_assert_int_eq(dlab_workload_build(&w, 1, 0, 10, &r, &err), DLAB_EIMPOSSIBLE);
    w = workload(1, 0, 1);
    err = (dlab_error){0};
    ck_assert_int_eq(dlab_workload_build(&w, 1, 10, 10, &r, &err), DLAB_EUSAGE);
    ck_assert_str_eq(err.msg, "workload: a vocabulary of 10 ids has none from 10 on");
    w = workload(1048576, 1048576, 1);
    w.requests = 65536;
    err = (dlab_error){0};
    ck_assert_int_eq(dlab_workload_build(&w, 1, 0, 10, &r, &err), DLAB_EOOM);
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
    dlab_engine_needs needs;
    dlab_workload_needs(&w, 2, &needs);
    ck_assert_int_eq(needs.max_tokens, 7);
    dlab_requests_free(&r);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, counts_are_exact);
    tcase_add_test(tc, requests_may_outnumber_the_batch);
    tcase_add_test(tc, same_seed_same_tokens);
    tcase_add_test(tc, more_requests_or_longer_prompts_change_no_id_before);
    tcase_add_test(tc, ragged_lengths_cover_half_to_whole_evenly);
    tcase_add_test(tc, needs_hold_the_longest_sequence);
    tcase_add_test(tc, what_cannot_be_built_says_why);
    tcase_add_test(tc, a_depth_alone_is_a_workload);
}

int main(void) { return run_suite("workload", add); }

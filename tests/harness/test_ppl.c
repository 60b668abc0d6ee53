/* Perplexity's protocols on a target whose likelihoods are known. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/quality/ppl.h"

/* Position p of chunk c costs values[c·(context − 1) + p]; the last of a chunk has no successor. */
typedef struct {
    dlab_target base;
    const double *values;
    int64_t n_calls;
    int32_t first_id[8]; /* of the ids that each call was given */
} fake_target;

static dlab_status fake_score(dlab_target *t, const int32_t *ids, int64_t n, int64_t n_last, double *nll, int32_t *top1,
                              dlab_error *err)
{
    fake_target *f = (fake_target *)t;
    (void)err;
    ck_assert_int_eq(n, n_last);
    ck_assert_int_lt(f->n_calls, 8);
    f->first_id[f->n_calls] = ids[0];
    for (int64_t p = 0; p < n; p++) {
        nll[p] = p + 1 < n ? f->values[f->n_calls * (n - 1) + p] : 0;
        top1[p] = (int32_t)p + 1000;
    }
    f->n_calls++;
    return DLAB_OK;
}

static const dlab_target_ops scoring = {.name = "fake", .score = fake_score};
static const dlab_target_ops mute = {.name = "mute"};

typedef struct {
    fake_target target;
    int32_t ids[32];
    double values[32];
    dlab_run run;
    dlab_ppl_result result;
    dlab_error err;
} fixture;

static void set_up(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->target.base.ops = &scoring;
    f->target.values = f->values;
    for (int i = 0; i < 32; i++) {
        f->ids[i] = i;
        f->values[i] = 0.25 * (i % 7);
    }
    dlab_run_init(&f->run);
}

static dlab_status score(fixture *f, int64_t n, int32_t bos, dlab_ppl_opts opts)
{
    return dlab_ppl_run(&f->target.base, f->ids, n, bos, &opts, 100, &f->run, &f->result, &f->err);
}

START_TEST(second_half_is_scored_and_all_is_kept)
{
    fixture f;
    set_up(&f);
    ck_assert_int_eq(score(&f, 19, -1, (dlab_ppl_opts){.protocol = "llama.cpp", .context = 8}), DLAB_OK);
    ck_assert_int_eq(f.result.n_chunks, 2); /* the three tokens left over are no chunk */
    ck_assert_int_eq(f.result.n_scored, 6);
    ck_assert_uint_eq(f.run.n_quality, 14);
    double sum = 0;
    for (int c = 0; c < 2; c++) {
        for (int p = 4; p < 7; p++) sum += f.values[7 * c + p];
    }
    ck_assert_double_eq_tol(f.result.nll_sum, sum, 1e-12);
    ck_assert_double_eq_tol(f.result.ppl, exp(sum / 6), 1e-12);
    ck_assert_double_eq_tol(f.result.bits_per_byte, sum / log(2) / (100.0 * 6 / 19), 1e-12);
    ck_assert_int_eq(f.run.quality_first, 4);
    ck_assert_int_eq(f.run.quality[7].chunk, 1);
    ck_assert_int_eq(f.run.quality[7].position, 0);
    ck_assert_int_eq(f.run.quality[7].token, 9);
    ck_assert_int_eq(f.run.quality[7].top1, 1000);
    ck_assert_str_eq(f.run.quality_protocol, "chunks of 8, second half scored, no BOS");
    dlab_run_free(&f.run);
}
END_TEST

START_TEST(full_scores_all_but_the_first)
{
    fixture f;
    set_up(&f);
    ck_assert_int_eq(score(&f, 16, -1, (dlab_ppl_opts){.protocol = "full", .context = 8, .chunks = 1}), DLAB_OK);
    ck_assert_int_eq(f.result.n_chunks, 1);
    ck_assert_int_eq(f.result.n_scored, 7);
    double mean = 0, m2 = 0;
    for (int p = 0; p < 7; p++) mean += f.values[p] / 7;
    for (int p = 0; p < 7; p++) m2 += (f.values[p] - mean) * (f.values[p] - mean);
    ck_assert_double_eq_tol(f.result.nll_mean, mean, 1e-12);
    ck_assert_double_eq_tol(f.result.se, exp(mean) * sqrt(m2 / 6 / 7), 1e-12);
    dlab_run_free(&f.run);
}
END_TEST

START_TEST(bos_takes_the_first_place_of_every_chunk)
{
    fixture f;
    set_up(&f);
    ck_assert_int_eq(score(&f, 16, 77, (dlab_ppl_opts){.protocol = "full", .context = 8}), DLAB_OK);
    ck_assert_int_eq(f.target.n_calls, 2);
    ck_assert_int_eq(f.target.first_id[0], 77);
    ck_assert_int_eq(f.target.first_id[1], 77);
    ck_assert_ptr_nonnull(strstr(f.run.quality_protocol, "BOS in the first place"));
    ck_assert_int_eq(f.ids[0], 0); /* the caller's ids are not touched */
    dlab_run_free(&f.run);
}
END_TEST

START_TEST(smallest_chunk_has_one_value)
{
    fixture f;
    set_up(&f);
    ck_assert_int_eq(score(&f, 2, -1, (dlab_ppl_opts){.protocol = "llama.cpp", .context = 2}), DLAB_OK);
    ck_assert_int_eq(f.result.n_scored, 1);
    ck_assert(isnan(f.result.se));
    dlab_run_free(&f.run);
}
END_TEST

START_TEST(short_text_is_refused_with_both_numbers)
{
    fixture f;
    set_up(&f);
    ck_assert_int_eq(score(&f, 7, -1, (dlab_ppl_opts){.protocol = "full", .context = 8}), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(f.err.msg, "7 tokens"));
    ck_assert_ptr_nonnull(strstr(f.err.msg, "needs 8"));
    ck_assert_uint_eq(f.run.n_quality, 0);
    ck_assert(isnan(f.result.ppl));
    dlab_run_free(&f.run);
}
END_TEST

START_TEST(what_cannot_be_scored_is_an_error)
{
    fixture f;
    set_up(&f);
    ck_assert_int_eq(score(&f, 16, -1, (dlab_ppl_opts){.protocol = "fulll", .context = 8}), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(f.err.msg, "did you mean full"));
    ck_assert_int_eq(score(&f, 16, -1, (dlab_ppl_opts){.protocol = "full", .context = 1}), DLAB_EUSAGE);
    f.values[3] = NAN;
    ck_assert_int_eq(score(&f, 16, -1, (dlab_ppl_opts){.protocol = "full", .context = 8}), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(f.err.msg, "chunk 0, token 4"));
    f.target.base.ops = &mute;
    ck_assert_int_eq(score(&f, 16, -1, (dlab_ppl_opts){.protocol = "full", .context = 8}), DLAB_EIMPOSSIBLE);
    dlab_run_free(&f.run);
}
END_TEST

START_TEST(interruption_ends_between_chunks)
{
    fixture f;
    set_up(&f);
    volatile sig_atomic_t flag = 1;
    ck_assert_int_eq(score(&f, 16, -1, (dlab_ppl_opts){.protocol = "full", .context = 8, .interrupted = &flag}),
                     DLAB_EINTERRUPTED);
    ck_assert_int_eq(f.target.n_calls, 0);
    dlab_run_free(&f.run);
}
END_TEST

static double *fixture_values(const json_t *chunks, size_t *context)
{
    *context = json_array_size(json_array_get(chunks, 0)) + 1;
    double *values = calloc(json_array_size(chunks) * (*context - 1), sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (size_t c = 0; c < json_array_size(chunks); c++) {
        for (size_t p = 0; p + 1 < *context; p++) {
            values[c * (*context - 1) + p] = json_number_value(json_array_get(json_array_get(chunks, c), p));
        }
    }
    return values;
}

/* The oracle's values of a real text: the protocol makes the oracle's perplexity of them. */
START_TEST(protocol_agrees_with_the_oracle)
{
    json_error_t e;
    json_t *doc = json_load_file(DLAB_FIXTURES "/corpus_nll.json", 0, &e);
    ck_assert_msg(doc != NULL, "%s", e.text);
    const char *name;
    json_t *entry;
    int n = 0;
    json_object_foreach(json_object_get(doc, "contexts"), name, entry)
    {
        fixture f;
        size_t context;
        set_up(&f);
        double *values = fixture_values(json_object_get(entry, "nll"), &context);
        size_t chunks = json_array_size(json_object_get(entry, "nll"));
        int32_t *ids = calloc(chunks * context, sizeof *ids);
        f.target.values = values;
        dlab_ppl_opts opts = {.protocol = "llama.cpp", .context = (int64_t)context};
        ck_assert_int_eq(
            dlab_ppl_run(&f.target.base, ids, (int64_t)(chunks * context), -1, &opts, 0, &f.run, &f.result, &f.err),
            DLAB_OK);
        double want = json_number_value(json_object_get(entry, "ppl_second_half"));
        ck_assert_double_gt(want, 1);
        ck_assert_double_eq_tol(f.result.ppl, want, 1e-6 * want);
        ck_assert(isnan(f.result.bits_per_byte));
        free(ids);
        free(values);
        dlab_run_free(&f.run);
        n++;
    }
    ck_assert_int_ge(n, 1);
    json_decref(doc);
}
END_TEST

START_TEST(bundled_text_is_the_file)
{
    size_t n = 0;
    const char *text = dlab_bundled_text(&n);
    FILE *file = fopen(DLAB_SOURCE_DIR "/experiments/text/corpus.txt", "rb");
    ck_assert_ptr_nonnull(file);
    char *want = malloc(n + 1);
    ck_assert_ptr_nonnull(want);
    ck_assert_uint_gt(n, 1000);
    ck_assert_uint_eq(fread(want, 1, n + 1, file), n);
    ck_assert_mem_eq(text, want, n);
    free(want);
    fclose(file);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ppl");
    TCase *t = tcase_create("ppl");
    tcase_add_test(t, second_half_is_scored_and_all_is_kept);
    tcase_add_test(t, full_scores_all_but_the_first);
    tcase_add_test(t, bos_takes_the_first_place_of_every_chunk);
    tcase_add_test(t, smallest_chunk_has_one_value);
    tcase_add_test(t, short_text_is_refused_with_both_numbers);
    tcase_add_test(t, what_cannot_be_scored_is_an_error);
    tcase_add_test(t, interruption_ends_between_chunks);
    tcase_add_test(t, protocol_agrees_with_the_oracle);
    tcase_add_test(t, bundled_text_is_the_file);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* Order, workers, statuses, resuming. Workers are this very program, re-executed, mostly with the null target. */
#include <check.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "harness/cmd/cmd.h"
#include "harness/run/run.h"

static char folder[PATH_MAX], out[PATH_MAX + 16];
static dlab_error err;

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/dlab runner XXXXXX", tmp && *tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/a b.h5", folder);
    err = (dlab_error){0};
}

static void teardown(void)
{
    char parts[PATH_MAX + 32];
    unlink(out);
    snprintf(parts, sizeof parts, "%s/a b.h5.parts", folder);
    char command[2 * PATH_MAX + 64];
    snprintf(command, sizeof command, "rm -rf '%s'", parts);
    if (dlab_file_exists(parts)) ck_assert_int_eq(system(command), 0);
    rmdir(folder);
}

#define EXPERIMENT                                                                                                     \
    "name: t\nmodel: synthetic:tiny\nplan: {batch.size: [1, 2, 3]}\n"                                                  \
    "workload: {prompt: 8, output: 4}\nmeasure: {repeats: 2, warmup: 1, hang_timeout: 400ms}\n"

static dlab_spec *parse(const char *text, const char *set)
{
    dlab_spec *s = NULL;
    dlab_status st = dlab_spec_parse("t.yaml", text, strlen(text), &set, set ? 1 : 0, NULL, &s, &err);
    ck_assert_msg(st == DLAB_OK, "%s", err.msg);
    return s;
}

static dlab_status run_with_fault(const char *text, const char *set, const char *target, bool resume, const char *fault,
                                  dlab_record *r)
{
    static volatile sig_atomic_t never;
    dlab_spec *s = parse(text, set);
    dlab_runner_opts o = {.out_path = out,
                          .target = target,
                          .fault = fault,
                          .resume = resume,
                          .command_line = "a test",
                          .interrupted = &never};
    dlab_status st = dlab_runner_run(s, &o, r, &err);
    dlab_spec_destroy(s);
    return st;
}

static dlab_status run_experiment(const char *text, const char *set, const char *target, bool resume, dlab_record *r)
{
    return run_with_fault(text, set, target, resume, NULL, r);
}

static void expect_ok(dlab_status st) { ck_assert_msg(st == DLAB_OK, "%s", err.msg); }

static bool parts_are_gone(void)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/a b.h5.parts", folder);
    return !dlab_file_exists(path);
}

/* ---- whole sweeps --------------------------------------------------------------------------------------------------- */

START_TEST(a_sweep_leaves_every_run_in_one_file)
{
    dlab_record r, read;
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", false, &r));
    ck_assert_int_eq(dlab_runner_exit_code(&r, true), 0);
    dlab_record_free(&r);
    expect_ok(dlab_record_read(out, &read, &err));
    ck_assert(read.complete);
    ck_assert(parts_are_gone());
    ck_assert_uint_eq(read.n_points, 3);
    ck_assert_str_eq(dlab_settings_get(&read.meta, "command"), "a test");
    ck_assert_ptr_nonnull(dlab_settings_get(&read.meta, "started"));
    for (size_t i = 0; i < 3; i++) {
        const dlab_point_result *p = &read.points[i];
        ck_assert_int_eq(p->status, DLAB_RUN_OK);
        ck_assert_uint_eq(p->n_runs, 2);
        for (size_t k = 0; k < 2; k++) {
            ck_assert_int_eq(p->runs[k]->repeat, (int)k);
            ck_assert_uint_eq(p->runs[k]->n_requests, i + 1);
            ck_assert_uint_eq(p->runs[k]->n_tokens, 4 * (i + 1));
            const dlab_run *one = p->runs[k]; /* what has no memory does not say 0 */
            ck_assert(one->mem_peak == -1 && one->pool_peak[DLAB_POOL_WEIGHTS] == -1 && one->kv_pool == -1);
            ck_assert(one->kv_growths == -1 && one->kv_evictions == -1 && one->kv_copies == -1);
            ck_assert(one->n_memory > 0 && one->memory[0].weights == -1 && one->steps[0].kv_reserved == -1);
            ck_assert_uint_eq(strlen(p->runs[k]->key), 16);
            ck_assert_ptr_nonnull(dlab_settings_get(&p->runs[k]->effective, "workload.prompt"));
        }
    }
    ck_assert_str_ne(read.points[0].runs[0]->key, read.points[1].runs[0]->key);
    dlab_record_free(&read);
}
END_TEST

START_TEST(interleaved_rounds_visit_every_point)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", false, &r));
    for (size_t i = 0; i + 1 < 3; i++) {
        ck_assert(r.points[i].runs[0]->started_unix <= r.points[i + 1].runs[0]->started_unix);
        ck_assert(r.points[i + 1].runs[0]->started_unix <= r.points[i].runs[1]->started_unix);
    }
    dlab_record_free(&r);
}
END_TEST

START_TEST(the_engine_runs_too)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, "workload.depth=6", NULL, false, &r));
    for (size_t i = 0; i < 3; i++) {
        const dlab_run *a = r.points[i].runs[0], *b = r.points[i].runs[1];
        ck_assert_msg(r.points[i].status == DLAB_RUN_OK, "%s", r.points[i].reason);
        ck_assert_uint_eq(a->n_tokens, 4 * (i + 1));
        ck_assert_uint_eq(b->n_tokens, a->n_tokens);
        /* the cache was rewound: a repeat sees the same tokens */
        for (size_t k = 0; k < a->n_tokens; k++) ck_assert_int_eq(a->tokens[k].token, b->tokens[k].token);
        ck_assert_int_eq(a->requests[0].depth_tokens, 6);
        ck_assert_int_gt(a->mem_peak, 0);
        ck_assert_int_gt(a->rss_peak, 0);
        ck_assert_int_gt(a->weight_bytes, 0);
    }
    dlab_record_free(&r);
}
END_TEST

START_TEST(the_first_repeat_has_the_quality_pass)
{
    dlab_record r;
    const char *text = "name: t\nmodel: synthetic:tiny\nworkload: {prompt: 8, output: 2}\n"
                       "measure: {repeats: 2, warmup: 0, ppl_chunks: 2, ppl_context: 16}\n";
    expect_ok(run_experiment(text, NULL, NULL, false, &r));
    ck_assert_msg(r.points[0].status == DLAB_RUN_OK, "%s", r.points[0].reason);
    ck_assert_uint_eq(r.points[0].runs[0]->n_quality, 30);
    ck_assert_uint_eq(r.points[0].runs[1]->n_quality, 0);
    ck_assert_uint_eq(strlen(r.points[0].runs[0]->corpus_hash), 16);
    dlab_record_free(&r);
}
END_TEST

START_TEST(a_time_limit_truncates)
{
    dlab_record r;
    const char *text = "name: t\nmodel: synthetic:tiny\nworkload: {prompt: 8, output: 400}\n"
                       "measure: {repeats: 1, warmup: 0, time_limit: 1us}\n";
    expect_ok(run_experiment(text, NULL, NULL, false, &r));
    ck_assert_int_eq(r.points[0].status, DLAB_RUN_TRUNCATED);
    ck_assert_uint_eq(r.points[0].runs[0]->n_steps, 1);
    ck_assert_int_eq(dlab_runner_exit_code(&r, false), 0);
    ck_assert_int_eq(dlab_runner_exit_code(&r, true), 1);
    dlab_record_free(&r);
}
END_TEST

/* Each step, each filled cache and each piece of text is short, all of them together are not. */
START_TEST(a_long_run_that_gets_on_is_not_hung)
{
    dlab_record r;
    const char *text = "name: t\nmodel: synthetic:tiny\nworkload: {prompt: 4, output: 64, requests: 60000}\n"
                       "measure: {repeats: 1, warmup: 1, time_limit: 4s, hang_timeout: 1500ms}\n";
    expect_ok(run_experiment(text, NULL, NULL, false, &r));
    ck_assert_msg(r.points[0].status == DLAB_RUN_TRUNCATED, "%s: %s", dlab_run_status_text(r.points[0].status),
                  r.points[0].reason);
    ck_assert(r.points[0].runs[0]->t_end >= 4e9);
    dlab_record_free(&r);
}
END_TEST

START_TEST(every_request_has_its_depth)
{
    dlab_record r;
    const char *text = "name: t\nmodel: synthetic:tiny\nplan: {batch.size: 2}\n"
                       "workload: {prompt: 4, output: 3, depth: 8, requests: 5}\nmeasure: {repeats: 2, warmup: 1}\n";
    expect_ok(run_experiment(text, NULL, NULL, false, &r));
    ck_assert_msg(r.points[0].status == DLAB_RUN_OK, "%s", r.points[0].reason);
    for (size_t i = 0; i < 2; i++) ck_assert_uint_eq(r.points[0].runs[i]->n_tokens, 15);
    dlab_record_free(&r);
}
END_TEST

START_TEST(another_seed_draws_other_tokens)
{
    dlab_record a, b;
    const char *text = "name: t\nmodel: synthetic:tiny\nplan: {sample.temperature: 2}\n"
                       "workload: {prompt: 4, output: 32}\nmeasure: {repeats: 1, warmup: 0}\n";
    expect_ok(run_experiment(text, "sample.seed=1", NULL, false, &a));
    expect_ok(run_experiment(text, "sample.seed=2", NULL, false, &b));
    const dlab_run *x = a.points[0].runs[0], *y = b.points[0].runs[0];
    size_t same = 0;
    ck_assert_uint_eq(x->n_tokens, 32);
    ck_assert_uint_eq(y->n_tokens, 32);
    for (size_t i = 0; i < 32; i++) same += x->tokens[i].token == y->tokens[i].token;
    ck_assert_uint_lt(same, 32);
    dlab_record_free(&a);
    dlab_record_free(&b);
}
END_TEST

/* ---- what goes wrong ------------------------------------------------------------------------------------------------ */

START_TEST(faults_are_rows_and_the_sweep_goes_on)
{
    dlab_record r;
    const char *text = "name: t\nmodel: synthetic:tiny\nplan: {batch.size: [1, 2, 3, 4, 5, 6]}\n"
                       "workload: {prompt: 8, output: 4}\nmeasure: {repeats: 3, warmup: 0, hang_timeout: 300ms}\n";
    expect_ok(run_with_fault(text, NULL, "null", false, "crash@0,hang@1,oom@2,fail@3,skip@4", &r));
    ck_assert_str_eq(dlab_settings_get(&r.meta, "fault"), "crash@0,hang@1,oom@2,fail@3,skip@4");
    static const dlab_run_status want[] = {DLAB_RUN_CRASHED, DLAB_RUN_HUNG,    DLAB_RUN_OOM,
                                           DLAB_RUN_FAILED,  DLAB_RUN_SKIPPED, DLAB_RUN_OK};
    static const size_t runs[] = {2, 2, 1, 1, 1, 3}; /* crashes and hangs get a second chance, the others none */
    for (size_t i = 0; i < 6; i++) {
        ck_assert_msg(r.points[i].status == want[i], "point %zu is %s (%s)", i,
                      dlab_run_status_text(r.points[i].status), r.points[i].reason);
        ck_assert_uint_eq(r.points[i].n_runs, runs[i]);
    }
    ck_assert_ptr_nonnull(strstr(r.points[0].reason, "signal 6"));
    ck_assert_ptr_nonnull(strstr(r.points[1].reason, "hang_timeout"));
    ck_assert_ptr_nonnull(strstr(r.points[3].reason, "injected"));
    ck_assert_ptr_nonnull(dlab_settings_get(&r.points[0].effective, "batch.size"));
    ck_assert_int_eq(dlab_runner_exit_code(&r, false), 1);
    dlab_record_free(&r);
    expect_ok(dlab_record_read(out, &r, &err));
    ck_assert(r.complete);
    ck_assert_int_eq(r.points[1].status, DLAB_RUN_HUNG);
    dlab_record_free(&r);
}
END_TEST

START_TEST(memory_that_is_refused_is_a_status)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, "memory_limit=[1GiB, 1KiB]", NULL, false, &r));
    ck_assert_uint_eq(r.n_points, 6);
    size_t oom = 0;
    for (size_t i = 0; i < 6; i++) oom += r.points[i].status == DLAB_RUN_OOM;
    ck_assert_uint_eq(oom, 3);
    ck_assert_int_eq(dlab_runner_exit_code(&r, false), 0);
    ck_assert_int_eq(dlab_runner_exit_code(&r, true), 1);
    dlab_record_free(&r);
}
END_TEST

START_TEST(a_model_that_is_not_there_is_an_error_before_anything_runs)
{
    dlab_record r;
    ck_assert_int_ne(run_experiment(EXPERIMENT, "model=/nowhere/x.gguf", NULL, false, &r), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/x.gguf"));
    ck_assert(!dlab_file_exists(out));
    dlab_record_free(&r);
}
END_TEST

START_TEST(one_missing_model_among_several_is_a_row)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, "model=[synthetic:tiny, /nowhere/x.gguf]", NULL, false, &r));
    size_t failed = 0, ok = 0;
    for (size_t i = 0; i < r.n_points; i++) {
        failed += r.points[i].status == DLAB_RUN_FAILED && strstr(r.points[i].reason, "/nowhere/x.gguf");
        ok += r.points[i].status == DLAB_RUN_OK;
    }
    ck_assert_uint_eq(failed, 3);
    ck_assert_uint_eq(ok, 3);
    dlab_record_free(&r);
}
END_TEST

START_TEST(an_output_folder_that_cannot_be_is_found_before_anything_runs)
{
    dlab_record r;
    dlab_spec *s = parse(EXPERIMENT, NULL);
    dlab_runner_opts o = {.out_path = "/proc/none/x.h5", .target = "null"};
    ck_assert_int_eq(dlab_runner_run(s, &o, &r, &err), DLAB_EIO);
    dlab_record_free(&r);
    /* its folder is a file */
    char path[sizeof out + 8];
    expect_ok(dlab_file_write_atomic(out, "x", 1, &err));
    snprintf(path, sizeof path, "%s/x.h5", out);
    o.out_path = path;
    ck_assert_int_eq(dlab_runner_run(s, &o, &r, &err), DLAB_EIO);
    dlab_record_free(&r);
    dlab_spec_destroy(s);
}
END_TEST

/* ---- interrupted, resumed ------------------------------------------------------------------------------------------- */

START_TEST(an_interruption_keeps_a_readable_record)
{
    static volatile sig_atomic_t now = 1;
    dlab_record r;
    dlab_spec *s = parse(EXPERIMENT, NULL);
    dlab_runner_opts o = {.out_path = out, .target = "null", .interrupted = &now};
    ck_assert_int_eq(dlab_runner_run(s, &o, &r, &err), DLAB_EINTERRUPTED);
    dlab_record_free(&r);
    dlab_spec_destroy(s);
    expect_ok(dlab_record_read(out, &r, &err));
    ck_assert(!r.complete);
    ck_assert_int_eq(r.points[0].status, DLAB_RUN_PENDING);
    dlab_record_free(&r);
}
END_TEST

START_TEST(resuming_keeps_what_is_the_same_and_makes_the_rest)
{
    dlab_record r;
    double started[3];
    expect_ok(run_with_fault(EXPERIMENT, NULL, "null", false, "fail@1", &r));
    ck_assert_int_eq(r.points[1].status, DLAB_RUN_FAILED);
    for (size_t i = 0; i < 3; i++) started[i] = r.points[i].runs[0]->started_unix;
    dlab_record_free(&r);
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", true, &r));
    ck_assert(r.points[0].runs[0]->started_unix == started[0]);
    ck_assert(r.points[1].runs[0]->started_unix != started[1]);
    ck_assert(r.points[2].runs[0]->started_unix == started[2]);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(r.points[i].status, DLAB_RUN_OK);
        ck_assert_uint_eq(r.points[i].n_runs, 2);
    }
    ck_assert(parts_are_gone());
    dlab_record_free(&r);
}
END_TEST

START_TEST(resuming_with_more_repeats_keeps_the_former)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", false, &r));
    double started = r.points[2].runs[1]->started_unix;
    dlab_record_free(&r);
    expect_ok(run_experiment(EXPERIMENT, "measure.repeats=4", "null", true, &r));
    ck_assert_uint_eq(r.points[2].n_runs, 4);
    ck_assert(r.points[2].runs[1]->started_unix == started);
    dlab_record_free(&r);
}
END_TEST

START_TEST(resuming_measures_what_has_changed)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", false, &r));
    double started = r.points[0].runs[0]->started_unix;
    char key[17];
    memcpy(key, r.points[0].runs[0]->key, sizeof key);
    dlab_record_free(&r);
    expect_ok(run_experiment(EXPERIMENT, "workload.output=5", "null", true, &r));
    ck_assert(r.points[0].runs[0]->started_unix != started);
    ck_assert_str_ne(r.points[0].runs[0]->key, key);
    ck_assert_uint_eq(r.points[0].runs[0]->n_tokens, 5);
    dlab_record_free(&r);
}
END_TEST

START_TEST(resuming_on_fewer_cpus_measures_again)
{
    dlab_record r;
    cpu_set_t all, one;
    CPU_ZERO(&one);
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    }
    if (CPU_COUNT(&all) < 2) {
        fprintf(stderr, "skipped: resuming on fewer CPUs needs two\n");
        return;
    }
    expect_ok(run_experiment(EXPERIMENT, NULL, NULL, false, &r));
    double started = r.points[0].runs[0]->started_unix;
    dlab_record_free(&r);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    dlab_status st = run_experiment(EXPERIMENT, NULL, NULL, true, &r);
    ck_assert_int_eq(sched_setaffinity(0, sizeof all, &all), 0);
    expect_ok(st);
    ck_assert(r.points[0].runs[0]->started_unix != started);
    ck_assert_str_eq(dlab_settings_get(&r.points[0].effective, "threads"), "1");
    dlab_record_free(&r);
}
END_TEST

START_TEST(another_target_is_another_run)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", false, &r));
    dlab_record_free(&r);
    expect_ok(run_experiment(EXPERIMENT, NULL, NULL, true, &r));
    ck_assert_int_gt(r.points[0].runs[0]->weight_bytes, 0);
    dlab_record_free(&r);
}
END_TEST

START_TEST(resuming_follows_a_point_that_moved)
{
    dlab_record r;
    expect_ok(run_experiment(EXPERIMENT, NULL, "null", false, &r));
    double started = r.points[2].runs[0]->started_unix;
    dlab_record_free(&r);
    expect_ok(run_experiment(EXPERIMENT, "batch.size=[3, 7]", "null", true, &r));
    ck_assert(r.points[0].runs[0]->started_unix == started);
    ck_assert_int_eq(r.points[0].runs[0]->point, 0);
    ck_assert_uint_eq(r.points[1].runs[0]->n_requests, 7);
    dlab_record_free(&r);
}
END_TEST

START_TEST(resuming_refuses_a_file_that_is_no_record)
{
    dlab_record r;
    char *text = NULL;
    size_t n = 0;
    expect_ok(dlab_file_write_atomic(out, "my notes", 8, &err));
    ck_assert_int_ne(run_experiment(EXPERIMENT, NULL, "null", true, &r), DLAB_OK);
    dlab_record_free(&r);
    expect_ok(dlab_file_read(out, 100, &text, &n, &err));
    ck_assert_str_eq(text, "my notes");
    free(text);
}
END_TEST

START_TEST(the_plan_says_what_would_be_run)
{
    char *text = NULL;
    dlab_spec *s = parse(EXPERIMENT, "measure.time_limit=2s");
    expect_ok(dlab_runner_plan_text(s, &text, &err));
    ck_assert_ptr_nonnull(strstr(text, "batch.size=3"));
    ck_assert_ptr_nonnull(strstr(text, "6 runs of 3 points, interleaved order"));
    ck_assert_ptr_nonnull(strstr(text, "Upper bound: about 18.0 s"));
    free(text);
    dlab_spec_destroy(s);
}
END_TEST

extern const dlab_command dlab_command_worker;

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        int code = 0;
        dlab_cmd_ctx ctx = {.exe = argv[0]};
        return dlab_command_worker.run(&ctx, argc - 1, argv + 1, &code, &err) == DLAB_OK ? 0 : 2;
    }
    Suite *s = suite_create("runner");
    TCase *c = tcase_create("runner");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_sweep_leaves_every_run_in_one_file);
    tcase_add_test(c, interleaved_rounds_visit_every_point);
    tcase_add_test(c, the_engine_runs_too);
    tcase_add_test(c, the_first_repeat_has_the_quality_pass);
    tcase_add_test(c, a_time_limit_truncates);
    tcase_add_test(c, a_long_run_that_gets_on_is_not_hung);
    tcase_add_test(c, every_request_has_its_depth);
    tcase_add_test(c, another_seed_draws_other_tokens);
    tcase_add_test(c, resuming_on_fewer_cpus_measures_again);
    tcase_add_test(c, another_target_is_another_run);
    tcase_add_test(c, faults_are_rows_and_the_sweep_goes_on);
    tcase_add_test(c, memory_that_is_refused_is_a_status);
    tcase_add_test(c, a_model_that_is_not_there_is_an_error_before_anything_runs);
    tcase_add_test(c, one_missing_model_among_several_is_a_row);
    tcase_add_test(c, an_output_folder_that_cannot_be_is_found_before_anything_runs);
    tcase_add_test(c, an_interruption_keeps_a_readable_record);
    tcase_add_test(c, resuming_keeps_what_is_the_same_and_makes_the_rest);
    tcase_add_test(c, resuming_with_more_repeats_keeps_the_former);
    tcase_add_test(c, resuming_measures_what_has_changed);
    tcase_add_test(c, resuming_follows_a_point_that_moved);
    tcase_add_test(c, resuming_refuses_a_file_that_is_no_record);
    tcase_add_test(c, the_plan_says_what_would_be_run);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

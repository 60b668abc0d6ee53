/* A peer is another program: what it is asked, what it may answer, and how it may misbehave. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/peer/peer.h"

static const dlab_peer_kind *kind(const char *name)
{
    for (size_t i = 0; i < dlab_n_peer_kinds; i++)
        if (strcmp(dlab_peer_kinds[i].name, name) == 0) return &dlab_peer_kinds[i];
    ck_abort_msg("no kind %s", name);
}

/* ---- the answer -------------------------------------------------------------------------------------------------------- */

static const dlab_peer_test asked = {.n_prompt = 0,
                                     .n_gen = 32,
                                     .depth = 128,
                                     .npl = 4,
                                     .n_batch = 2048,
                                     .n_ubatch = 512,
                                     .threads = 2,
                                     .n_params = 1000,
                                     .type_k = "q8_0",
                                     .type_v = "f16",
                                     .flash = 1};

#define SIZES    "\"n_threads\":2,\"n_batch\":2048,\"n_ubatch\":512"
#define SETTINGS SIZES ",\"flash_attn\":true,\"model_n_params\":1000,\"type_k\":\"q8_0\",\"type_v\":\"f16\""
#define SHAPE    "\"n_prompt\":0,\"n_gen\":32,\"n_depth\":128,\"npl\":4"
#define DIMS     SHAPE "," SETTINGS

static dlab_status read_text(const char *text, dlab_peer_sample *out, dlab_error *err)
{
    *err = (dlab_error){0};
    return dlab_peer_read("peer", text, strlen(text), &asked, out, err);
}

START_TEST(an_answer_is_read)
{
    dlab_peer_sample s;
    dlab_error err;
    ck_assert_msg(read_text("loading…\n{" DIMS
                            ",\"samples_ns\":[2000000000],\"build_commit\":\"0c1e570\",\"build_number\":"
                            "6123,\"backends\":\"CPU\"}\n\n",
                            &s, &err) == DLAB_OK,
                  "%s", err.msg);
    ck_assert_double_eq(s.time_ns, 2e9);
    ck_assert_double_eq_tol(s.rate, 64, 1e-12); /* 4 sequences of 32 tokens in 2 s */
    ck_assert_str_eq(s.build, "0c1e570 (6123), CPU");
    ck_assert_int_eq(read_text("{" DIMS ",\"samples_ns\":[1.5e9],\"backend\":\"x\"}", &s, &err), DLAB_OK);
    ck_assert_double_eq(s.time_ns, 1.5e9);
    ck_assert_str_eq(s.build, "unknown build, x");
}
END_TEST

START_TEST(a_name_cannot_spoil_the_table)
{
    dlab_peer_sample s;
    dlab_error err;
    char text[4096] = "{" DIMS ",\"samples_ns\":[1e9],\"build_commit\":\"a\\nb\\u001bc";
    for (size_t n = strlen(text); n < 3000; n++) text[n] = 'x';
    memcpy(text + strlen(text), "\"}", 3);
    ck_assert_int_eq(read_text(text, &s, &err), DLAB_OK);
    ck_assert_uint_lt(strlen(s.build), sizeof s.build);
    ck_assert_int_eq(strncmp(s.build, "a b cxx", 7), 0);
}
END_TEST

START_TEST(anything_else_is_refused_in_one_line)
{
    static const struct {
        const char *text, *said;
    } bad[] = {
        {"", "printed no line of JSON"},
        {"Segmentation fault\nsorry\n", "printed no line of JSON, but \"Segmentation fault sorry"},
        {"{\"n_prompt\":0", "not valid JSON"},
        {"{]", "not valid JSON"},
        {"{" DIMS "}", "samples_ns is not a list of one number"},
        {"{" DIMS ",\"samples_ns\":[]}", "samples_ns is not a list"},
        {"{" DIMS ",\"samples_ns\":[1e9,1e9]}", "samples_ns is not a list of one number"},
        {"{" DIMS ",\"samples_ns\":5}", "samples_ns is not a list"},
        {"{" DIMS ",\"samples_ns\":[\"1e9\"]}", "no time that could be one"},
        {"{" DIMS ",\"samples_ns\":[0]}", "no time that could be one"},
        {"{" DIMS ",\"samples_ns\":[-5]}", "no time that could be one"},
        {"{" DIMS ",\"samples_ns\":[1e300]}", "no time that could be one"},
        {"{" DIMS ",\"samples_ns\":[1e999]}", "not valid JSON"},
        {"{" DIMS ",\"samples_ns\":[1e9]}\n{" DIMS ",\"samples_ns\":[1e9]}", "more than one test"},
        {"{\"n_gen\":32,\"n_depth\":128,\"npl\":4,\"samples_ns\":[1e9]}", "asked for n_prompt 0"},
        {"{\"n_prompt\":512,\"n_gen\":32,\"n_depth\":128,\"npl\":4,\"samples_ns\":[1e9]}",
         "asked for n_prompt 0, it answers 512"},
        {"{\"n_prompt\":0,\"n_gen\":32,\"npl\":4,\"samples_ns\":[1e9]}", "asked for n_depth 128"},
        {"{\"n_prompt\":0,\"n_gen\":32,\"n_depth\":128,\"samples_ns\":[1e9]}", "asked for npl 4"},
        {"{" SHAPE ",\"n_threads\":8}", "asked for n_threads 2, it answers 8"},
        {"{" SHAPE "}", "asked for n_threads 2, it answers nothing of the kind"},
        {"{" SHAPE ",\"n_threads\":2}", "asked for n_batch 2048, it answers nothing"},
        {"{" SHAPE ",\"n_threads\":2,\"n_batch\":2048}", "asked for n_ubatch 512, it answers nothing"},
        {"{" SHAPE "," SIZES "}", "asked for flash_attn 1, it answers nothing of the kind"},
        {"{" SHAPE "," SIZES ",\"flash_attn\":false}", "asked for flash_attn 1, it answers false"},
        {"{" SHAPE "," SIZES ",\"flash_attn\":1}", "asked for model_n_params 1000, it answers nothing"},
        {"{" SHAPE "," SIZES ",\"flash_attn\":1,\"model_n_params\":7}", "asked for model_n_params 1000, it answers 7"},
        {"{" SHAPE "," SIZES ",\"flash_attn\":1,\"model_n_params\":1000}", "asked for type_k q8_0, it answers nothing"},
        {"{" SHAPE "," SIZES ",\"flash_attn\":1,\"model_n_params\":1000,\"type_k\":\"a\\nb\"}",
         "asked for type_k q8_0, it answers a b"},
        {"{" SHAPE "," SIZES ",\"flash_attn\":1,\"model_n_params\":1000,\"type_k\":\"q8_0\"}",
         "asked for type_v f16, it answers nothing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlab_peer_sample s;
        dlab_error err;
        ck_assert_msg(read_text(bad[i].text, &s, &err) == DLAB_EFORMAT, "accepted: %s", bad[i].text);
        ck_assert_msg(strstr(err.msg, bad[i].said) != NULL, "%s: \"%s\"", bad[i].text, err.msg);
        ck_assert_ptr_null(strchr(err.msg, '\n'));
    }
}
END_TEST

/* ---- the process -------------------------------------------------------------------------------------------------------- */

static dlab_status shell(const char *script, int64_t timeout_ns, char **out, size_t *n, dlab_error *err)
{
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    *err = (dlab_error){0};
    return dlab_peer_exec(argv, timeout_ns, NULL, out, n, err);
}

#define SECOND ((int64_t)1000000000)

START_TEST(output_comes_back_whole)
{
    char *out;
    size_t n;
    dlab_error err;
    ck_assert_int_eq(shell("echo one; echo noise >&2; echo two; cat", 60 * SECOND, &out, &n, &err), DLAB_OK);
    ck_assert_str_eq(out, "one\ntwo\n");
    ck_assert_uint_eq(n, 8);
    free(out);
    ck_assert_int_eq(
        shell("i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done",
              60 * SECOND, &out, &n, &err),
        DLAB_OK);
    ck_assert_uint_eq(n, 2000 * 41); /* more than a pipe holds */
    free(out);
}
END_TEST

static void fails(const char *script, dlab_status code, const char *said)
{
    char *out;
    size_t n;
    dlab_error err;
    ck_assert_msg(shell(script, 60 * SECOND, &out, &n, &err) == code, "%s", script);
    ck_assert_ptr_null(out);
    ck_assert_msg(strstr(err.msg, said) != NULL, "%s: \"%s\"", script, err.msg);
    ck_assert_ptr_null(strchr(err.msg, '\n'));
}

START_TEST(an_end_that_is_none_is_told)
{
    fails("echo '{}'; echo first >&2; echo cannot load >&2; exit 3", DLAB_EIO, "exit code 3; it said: cannot load");
    fails("kill -SEGV $$", DLAB_EIO, "killed by signal 11");
    fails("while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done", DLAB_EFORMAT,
          "printed over 1048576 bytes");
}
END_TEST

START_TEST(a_program_that_cannot_be_run_is_told)
{
    char *out;
    size_t n;
    dlab_error err = {0};
    char *argv[] = {(char[]){"/nowhere/llama-bench"}, NULL};
    ck_assert_int_eq(dlab_peer_exec(argv, SECOND, NULL, &out, &n, &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/llama-bench cannot be run: "));
}
END_TEST

/* A script that leaves a child behind, of which we become the parent and see the end. %s is a file for its number; it would
 * end by itself, and not by a signal, well before this test's time is over. */
#define LEAVES "trap '' TERM; sleep 60 & echo $! >'%s'; %s"

typedef struct {
    char script[512], file[64];
} leaver;

static void leaver_make(leaver *l, const char *then)
{
    snprintf(l->file, sizeof l->file, "/tmp/dlab-peer-XXXXXX");
    int fd = mkstemp(l->file);
    ck_assert_int_ge(fd, 0);
    close(fd);
    snprintf(l->script, sizeof l->script, LEAVES, l->file, then);
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
}

static void leaver_was_killed(leaver *l)
{
    char text[32] = "";
    int status = 0;
    FILE *f = fopen(l->file, "r");
    ck_assert(f && fgets(text, sizeof text, f));
    fclose(f);
    unlink(l->file);
    const pid_t pid = (pid_t)strtol(text, NULL, 10);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child was not killed: %#x",
                  (unsigned)status);
}

/* Also where it has children that hold the pipes open, and takes no notice of a polite request. */
START_TEST(a_hang_is_killed)
{
    char *out;
    size_t n;
    dlab_error err;
    leaver l;
    leaver_make(&l, "sleep 1000");
    ck_assert_int_eq(shell(l.script, 2 * SECOND, &out, &n, &err), DLAB_ETIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, "killed"));
    leaver_was_killed(&l);
    leaver_make(&l, "echo done");
    ck_assert_int_eq(shell(l.script, 60 * SECOND, &out, &n, &err), DLAB_OK);
    ck_assert_str_eq(out, "done\n");
    free(out);
    leaver_was_killed(&l);
}
END_TEST

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    (void)sig;
    interrupted = 1;
}

/* In the middle of its run: it says itself when it has got so far. */
START_TEST(an_interruption_ends_it)
{
    char *out;
    size_t n;
    dlab_error err = {0};
    leaver l;
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    ck_assert_int_eq(sigaction(SIGUSR1, &act, NULL), 0);
    leaver_make(&l, "kill -USR1 $PPID; sleep 1000");
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, l.script, NULL};
    ck_assert_int_eq(dlab_peer_exec(argv, 60 * SECOND, &interrupted, &out, &n, &err), DLAB_EINTERRUPTED);
    leaver_was_killed(&l);
}
END_TEST

/* A process that inherits an ignored SIGCHLD learns no exit codes: nothing may pass for success then. */
START_TEST(an_end_that_nobody_saw_is_told)
{
    char *out;
    size_t n;
    dlab_error err;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigemptyset(&ignore.sa_mask);
    ck_assert_int_eq(sigaction(SIGCHLD, &ignore, &before), 0);
    ck_assert_int_eq(shell("echo done; exit 3", 60 * SECOND, &out, &n, &err), DLAB_EIO);
    ck_assert_int_eq(sigaction(SIGCHLD, &before, NULL), 0);
    ck_assert_msg(strstr(err.msg, "how it ended is not known") != NULL, "%s", err.msg);
    ck_assert_ptr_null(out);
}
END_TEST

/* ---- what it is asked ---------------------------------------------------------------------------------------------------- */

START_TEST(a_peer_is_named_and_there)
{
    static const struct {
        const char *text, *said;
    } bad[] = {
        {"llama-bench", "is not KIND=PATH"},
        {"llama-bench=", "is not KIND=PATH"},
        {"ollama=/bin/true", "\"ollama\" is not one of llama-bench, llama-python"},
        {"llama-bench=/nowhere/x", "/nowhere/x is not there or not executable"},
        {"llama-bench=/tmp", "/tmp is not there or not executable"},
        {"llama-bench=" DLAB_SOURCE_DIR "/LICENSE", "not there or not executable"},
        {"llama-bench=no-such-program-here", "is not a program on PATH"},
    };
    const dlab_peer_kind *k;
    const char *path;
    dlab_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(dlab_peer_parse(bad[i].text, &k, &path, &err) == DLAB_EUSAGE, "%s", bad[i].text);
        ck_assert_msg(strstr(err.msg, bad[i].said) != NULL, "%s", err.msg);
    }
    ck_assert_int_eq(dlab_peer_parse("llama-bench=/bin/sh", &k, &path, &err), DLAB_OK);
    ck_assert_str_eq(path, "/bin/sh");
    ck_assert_ptr_eq(k, kind("llama-bench"));
    ck_assert_int_eq(dlab_peer_parse("llama-python=sh", &k, &path, &err), DLAB_OK);
    ck_assert_ptr_eq(k, kind("llama-python"));
}
END_TEST

START_TEST(what_it_cannot_do_has_a_reason)
{
    dlab_peer p = {.kind = kind("llama-bench"), .path = "x", .model = "x.gguf"};
    dlab_peer_test t = {.n_gen = 8, .npl = 1};
    dlab_plan plan;
    dlab_error err = {0};
    dlab_plan_default(&plan);
    plan.threads = 3;
    plan.batch_token_budget = 1024;
    plan.batch_chunk = 256;
    plan.kv_k = "int8";
    plan.kv_v = "bf16";
    ck_assert_int_eq(dlab_peer_test_fit(&p, &plan, &t, &err), DLAB_OK);
    ck_assert(t.threads == 3 && t.n_batch == 1024 && t.n_ubatch == 256);
    ck_assert_str_eq(t.type_k, "q8_0");
    ck_assert_str_eq(t.type_v, "bf16");

    t.npl = 8;
    ck_assert_int_eq(dlab_peer_test_fit(&p, &plan, &t, &err), DLAB_EIMPOSSIBLE);
    ck_assert_str_eq(err.msg, "llama-bench has no -npl");
    p.kind = kind("llama-python");
    ck_assert_int_eq(dlab_peer_test_fit(&p, &plan, &t, &err), DLAB_OK);

    dlab_plan other = plan;
    other.kv_v = "fp8";
    ck_assert_int_eq(dlab_peer_test_fit(&p, &other, &t, &err), DLAB_EIMPOSSIBLE);
    ck_assert_ptr_nonnull(strstr(err.msg, "kv.v=fp8"));
    other = plan;
    other.attention_pattern = "local_strided";
    ck_assert_int_eq(dlab_peer_test_fit(&p, &other, &t, &err), DLAB_EIMPOSSIBLE);
    other = plan;
    other.kv_store = "none";
    ck_assert_int_eq(dlab_peer_test_fit(&p, &other, &t, &err), DLAB_EIMPOSSIBLE);
    p.model = "synthetic:tiny";
    ck_assert_int_eq(dlab_peer_test_fit(&p, &plan, &t, &err), DLAB_EIMPOSSIBLE);
    ck_assert_ptr_nonnull(strstr(err.msg, "--peer-model"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("peer");
    TCase *c = tcase_create("peer");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, an_answer_is_read);
    tcase_add_test(c, a_name_cannot_spoil_the_table);
    tcase_add_test(c, anything_else_is_refused_in_one_line);
    tcase_add_test(c, output_comes_back_whole);
    tcase_add_test(c, an_end_that_is_none_is_told);
    tcase_add_test(c, a_program_that_cannot_be_run_is_told);
    tcase_add_test(c, a_hang_is_killed);
    tcase_add_test(c, an_interruption_ends_it);
    tcase_add_test(c, an_end_that_nobody_saw_is_told);
    tcase_add_test(c, a_peer_is_named_and_there);
    tcase_add_test(c, what_it_cannot_do_has_a_reason);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

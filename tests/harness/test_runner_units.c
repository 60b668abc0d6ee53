/* The parts of the runner by themselves: schedule, keys, protocol lines, the worker's answers. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/file.h"
#include "harness/probes/read.h"
#include "harness/run/config.h"
#include "harness/run/progress.h"
#include "harness/run/pulse.h"
#include "harness/run/run.h"
#include "harness/run/schedule.h"
#include "harness/run/wire.h"

static dlab_error err;

/* ---- schedule ------------------------------------------------------------------------------------------------------- */

static dlab_slot *make(const char *order, size_t points, size_t repeats, uint64_t seed)
{
    dlab_slot *s = NULL;
    ck_assert_int_eq(dlab_schedule_make(order, points, repeats, seed, &s, &err), DLAB_OK);
    return s;
}

START_TEST(interleaved_is_a_round_over_all_points_a_repeat)
{
    dlab_slot *s = make("interleaved", 3, 2, 0);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(s[i].point, i % 3);
        ck_assert_int_eq(s[i].repeat, i / 3);
    }
    free(s);
}
END_TEST

START_TEST(grouped_is_all_repeats_of_a_point_together)
{
    dlab_slot *s = make("grouped", 3, 2, 0);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(s[i].point, i / 2);
        ck_assert_int_eq(s[i].repeat, i % 2);
    }
    free(s);
}
END_TEST

START_TEST(random_is_a_seeded_permutation)
{
    dlab_slot *a = make("random", 10, 4, 7), *b = make("random", 10, 4, 7), *c = make("random", 10, 4, 8);
    int seen[40] = {0};
    for (int i = 0; i < 40; i++) seen[a[i].point * 4 + a[i].repeat]++;
    for (int i = 0; i < 40; i++) ck_assert_int_eq(seen[i], 1);
    ck_assert_mem_eq(a, b, 40 * sizeof *a);
    ck_assert_mem_ne(a, c, 40 * sizeof *a);
    free(a);
    free(b);
    free(c);
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
    dlab_slot *s = NULL;
    ck_assert_int_eq(dlab_schedule_make("grouped", SIZE_MAX / 2, 8, 0, &s, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(s);
}
END_TEST

START_TEST(the_worker_needed_latest_goes_first)
{
    dlab_slot *s = make("interleaved", 4, 2, 0);
    int64_t bytes[4] = {10, 10, 10, 10};
    bool alive[4] = {true, true, true, false};
    dlab_room room = {.bytes = bytes, .alive = alive, .points = 4, .budget_bytes = 30, .max_alive = 32};
    /* at slot 3 the points 0, 1, 2 follow in this order: 2 is needed last */
    ck_assert_int_eq(dlab_schedule_evict(&room, 10, s, 8, 3), 2);
    /* in the last round, point 0 is never needed again */
    ck_assert_int_eq(dlab_schedule_evict(&room, 10, s, 8, 5), 0);
    room.budget_bytes = 40;
    ck_assert_int_eq(dlab_schedule_evict(&room, 10, s, 8, 3), -1);
    room.max_alive = 3;
    ck_assert_int_eq(dlab_schedule_evict(&room, 10, s, 8, 3), 2);
    memset(alive, 0, sizeof alive);
    room.budget_bytes = 0;
    ck_assert_int_eq(dlab_schedule_evict(&room, 10, s, 8, 3), -1);
    free(s);
}
END_TEST

/* ---- keys ----------------------------------------------------------------------------------------------------------- */

static void key_on(const char *target, const char *set, uint64_t model, const dlab_config_site *site, char key[17])
{
    dlab_spec *s = NULL;
    const char *text = "name: t\nmodel: synthetic:tiny\nworkload: {prompt: 8, output: 4}\n";
    dlab_status st = dlab_spec_parse("t.yaml", text, strlen(text), &set, set ? 1 : 0, NULL, &s, &err);
    ck_assert_msg(st == DLAB_OK, "%s", err.msg);
    const dlab_point *p = &s->points[0];
    const dlab_config_run r = {target, &p->plan, &p->workload, &s->measure, model};
    ck_assert_int_eq(dlab_config_key(&r, site, 0, key, &err), DLAB_OK);
    ck_assert_uint_eq(strlen(key), 16);
    dlab_spec_destroy(s);
}

static void key_of(const char *set, uint64_t model, const dlab_config_site *site, char key[17])
{
    key_on("engine", set, model, site, key);
}

START_TEST(a_key_depends_on_all_that_shapes_a_run)
{
    const dlab_config_site site = {1, 2}, other_program = {3, 2}, other_machine = {1, 3};
    char base[17], key[17];
    key_of(NULL, 5, &site, base);
    key_of(NULL, 5, &site, key);
    ck_assert_str_eq(key, base);
    static const char *const shaping[] = {
        "batch.size=2",         "kv.store=none",         "kv.k=f32",         "threads=1",
        "workload.prompt=9",    "workload.seed=2",       "measure.warmup=3", "measure.time_limit=9s",
        "measure.ppl_chunks=1", "sample.temperature=0.5"};
    for (size_t i = 0; i < sizeof shaping / sizeof *shaping; i++) {
        key_of(shaping[i], 5, &site, key);
        ck_assert_msg(strcmp(key, base) != 0, "%s leaves the key as it is", shaping[i]);
    }
    key_of(NULL, 6, &site, key);
    ck_assert_str_ne(key, base);
    key_of(NULL, 5, &other_program, key);
    ck_assert_str_ne(key, base);
    key_of(NULL, 5, &other_machine, key);
    ck_assert_str_ne(key, base);
    key_on("null", NULL, 5, &site, key);
    ck_assert_str_ne(key, base);
    static const char *const others[] = {"measure.repeats=9", "measure.order=random", "measure.hang_timeout=1s"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        key_of(others[i], 5, &site, key);
        ck_assert_msg(strcmp(key, base) == 0, "%s changes the key", others[i]);
    }
}
END_TEST

/* What the requests come from shapes them, whatever the file is called. */
START_TEST(a_changed_file_of_the_workload_changes_the_key)
{
    static const char *const keys[] = {"prompts_file", "lengths_file", "trace"};
    const dlab_config_site site = {1, 2};
    char path[] = "/tmp/dlab_unitsXXXXXX", set[80], before[17], same[17], after[17];
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    snprintf(set, sizeof set, "workload.%s=%s", keys[_i], path);
    ck_assert_int_eq(dlab_file_write_atomic(path, "1 2", 3, &err), DLAB_OK);
    key_of(set, 5, &site, before);
    key_of(set, 5, &site, same);
    ck_assert_int_eq(dlab_file_write_atomic(path, "1 3", 3, &err), DLAB_OK);
    key_of(set, 5, &site, after);
    ck_assert_str_eq(same, before);
    ck_assert_str_ne(after, before);
    unlink(path);
}
END_TEST

START_TEST(one_flipped_byte_of_a_model_changes_its_hash)
{
    char path[] = "/tmp/dlab_unitsXXXXXX", text[5000] = {0};
    uint64_t a = 0, b = 0;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(dlab_file_write_atomic(path, text, sizeof text, &err), DLAB_OK);
    ck_assert_int_eq(dlab_config_model_hash(path, &a, &err), DLAB_OK);
    text[4321] = 1;
    ck_assert_int_eq(dlab_file_write_atomic(path, text, sizeof text, &err), DLAB_OK);
    ck_assert_int_eq(dlab_config_model_hash(path, &b, &err), DLAB_OK);
    ck_assert_uint_ne(a, b);
    unlink(path);
    ck_assert_int_ne(dlab_config_model_hash(path, &b, &err), DLAB_OK);
}
END_TEST

START_TEST(settings_come_back_as_they_went)
{
    dlab_workload a = {0}, b = {0};
    dlab_settings s = {0};
    size_t n = 0;
    const dlab_param *table = dlab_workload_params(&n);
    dlab_param_defaults(table, n, &a);
    dlab_param_defaults(table, n, &b);
    a.prompt = 77;
    a.lengths = dlab_param_find(table, n, "workload.lengths")->choices()[1];
    ck_assert_int_eq(dlab_config_add(table, n, &a, &s, &err), DLAB_OK);
    ck_assert_int_eq(dlab_config_read(table, n, &s, &b, &err), DLAB_OK);
    ck_assert_int_eq(b.prompt, 77);
    ck_assert_str_eq(b.lengths, "spread");
    ck_assert_int_eq(dlab_settings_set(&s, "workload.nonsense", "1", &err), DLAB_OK);
    ck_assert_int_eq(dlab_config_read(table, n, &s, &b, &err), DLAB_EFORMAT);
    dlab_settings_free(&s);
}
END_TEST

/* ---- lines ---------------------------------------------------------------------------------------------------------- */

START_TEST(lines_come_out_whole_however_they_come_in)
{
    int fd[2];
    bool eof = false;
    dlab_lines l = {0};
    ck_assert_int_eq(pipe(fd), 0);
    ck_assert_int_eq(write(fd[1], "one\ntw", 6), 6);
    ck_assert_int_eq(dlab_lines_fill(&l, fd[0], &eof, &err), DLAB_OK);
    ck_assert_str_eq(dlab_lines_next(&l), "one");
    ck_assert_ptr_null(dlab_lines_next(&l));
    ck_assert_int_eq(write(fd[1], "o\n\nrest", 7), 7);
    close(fd[1]);
    ck_assert_int_eq(dlab_lines_fill(&l, fd[0], &eof, &err), DLAB_OK);
    ck_assert_str_eq(dlab_lines_next(&l), "two");
    ck_assert_str_eq(dlab_lines_next(&l), "");
    ck_assert_ptr_null(dlab_lines_next(&l));
    ck_assert(!eof);
    ck_assert_int_eq(dlab_lines_fill(&l, fd[0], &eof, &err), DLAB_OK);
    ck_assert(eof);
    dlab_lines_free(&l);
    close(fd[0]);
}
END_TEST

START_TEST(a_line_without_an_end_is_refused)
{
    bool eof = false;
    dlab_lines l = {0};
    int fd = open("/dev/zero", O_RDONLY);
    dlab_status st = DLAB_OK;
    for (int i = 0; i < 1000 && st == DLAB_OK; i++) st = dlab_lines_fill(&l, fd, &eof, &err);
    ck_assert_int_eq(st, DLAB_EFORMAT);
    dlab_lines_free(&l);
    close(fd);
}
END_TEST

START_TEST(messages_of_another_version_are_refused)
{
    json_t *j = NULL;
    static const char *const bad[] = {"{\"v\": 2}", "{}", "[1]", "{\"v\": \"1\"}", "nonsense", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(dlab_wire_parse(bad[i], &j, &err), DLAB_EFORMAT);
        ck_assert_ptr_null(j);
    }
    ck_assert_int_eq(dlab_wire_parse("{\"v\": 1}", &j, &err), DLAB_OK);
    json_decref(j);
}
END_TEST

START_TEST(a_peer_that_is_gone_is_an_error_and_no_signal)
{
    int fd[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    close(fd[1]);
    ck_assert_int_eq(dlab_wire_send(fd[0], json_object(), &err), DLAB_EIO);
    close(fd[0]);
}
END_TEST

/* ---- the worker ----------------------------------------------------------------------------------------------------- */

/* Gives the worker its whole input at once, and returns what it said. */
static char *converse(const char *input, dlab_status want)
{
    int in[2], said[2];
    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(pipe(said), 0);
    ck_assert_int_eq(write(in[1], input, strlen(input)), (ssize_t)strlen(input));
    close(in[1]);
    ck_assert_int_eq(dlab_worker_serve(in[0], said[1], &(dlab_worker_opts){.pulse_fd = -1}, &err), want);
    close(said[1]);
    char *text = calloc(1, 65536);
    size_t n = 0;
    for (ssize_t got; (got = read(said[0], text + n, 65535 - n)) > 0;) n += (size_t)got;
    close(in[0]);
    close(said[0]);
    return text;
}

START_TEST(a_worker_answers_what_makes_no_sense)
{
    char *text = converse("{\"v\":1,\"cmd\":\"dance\"}\n", DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(text, "\"where\":\"message\""));
    ck_assert_ptr_nonnull(strstr(text, "dance"));
    free(text);
    text = converse("{\"v\":1,\"cmd\":\"run\",\"repeat\":0,\"warmup\":0}\n{\"v\":1,\"cmd\":\"close\"}\n", DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"event\":\"error\""));
    ck_assert_ptr_nonnull(strstr(text, "\"event\":\"done\""));
    free(text);
}
END_TEST

#define OPEN(model, target, plan)                                                                                      \
    "{\"v\":1,\"cmd\":\"open\",\"point\":0,\"key\":\"k\",\"target\":\"" target                                         \
    "\",\"out\":\"/proc/none/x.h5\",\"model\":\"" model "\",\"plan\":" plan                                            \
    ",\"workload\":{\"workload.output\":\"2\"},\"measure\":{},\"meta\":{}}\n"

START_TEST(a_worker_tells_effective_settings)
{
    char *text = converse(OPEN("synthetic:tiny", "engine", "{\"batch.size\":\"3\"}"), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"batch.size\":\"3\""));
    ck_assert_ptr_nonnull(strstr(text, "\"workload.requests\":\"3\""));
    ck_assert_ptr_null(strstr(text, "\"auto\""));
    free(text);
}
END_TEST

START_TEST(a_worker_refuses_what_it_cannot_open)
{
    static const char *const bad[] = {OPEN("/nowhere.gguf", "engine", "{}"),
                                      OPEN("synthetic:tiny", "oracle", "{}"),
                                      OPEN("synthetic:tiny", "engine", "{\"batch.sise\":\"3\"}"),
                                      OPEN("synthetic:tiny", "engine", "{\"batch.size\":3}"),
                                      OPEN("synthetic:tiny", "engine", "[]"),
                                      "{\"v\":1,\"cmd\":\"open\"}\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = converse(bad[i], DLAB_OK);
        ck_assert_msg(strstr(text, "\"where\":\"open\"") != NULL, "%s answered %s", bad[i], text);
        free(text);
    }
}
END_TEST

START_TEST(a_part_that_cannot_be_written_is_said)
{
    char *text = converse(OPEN("", "null", "{}") "{\"v\":1,\"cmd\":\"run\",\"repeat\":0,\"warmup\":0}\n", DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"where\":\"write\""));
    ck_assert_ptr_nonnull(strstr(text, "EIO"));
    free(text);
}
END_TEST

START_TEST(faults_are_checked_before_anything_runs)
{
    static const char *const bad[] = {"crash",          "crash@",   "crash@x", "crush@1",
                                      "crash@1,,oom@2", "crash@-1", "@1",      "oom@1 "};
    ck_assert_int_eq(dlab_fault_check("", &err), DLAB_OK);
    ck_assert_int_eq(dlab_fault_check("crash@0,hang@12,oom@2,skip@3,fail@4", &err), DLAB_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(dlab_fault_check(bad[i], &err) == DLAB_EUSAGE, "\"%s\" passed", bad[i]);
    }
}
END_TEST

START_TEST(a_pulse_is_seen_through_another_mapping)
{
    int fd = -1;
    dlab_pulse *a = NULL, *b = NULL;
    ck_assert_int_eq(dlab_pulse_create(&fd, &err), DLAB_OK);
    ck_assert_int_eq(dlab_pulse_map(fd, &a, &err), DLAB_OK);
    ck_assert_int_eq(dlab_pulse_map(fd, &b, &err), DLAB_OK);
    close(fd);
    ck_assert_uint_eq(dlab_pulse_count(b), 0);
    dlab_pulse_beat(a);
    dlab_pulse_beat(a);
    ck_assert_uint_eq(dlab_pulse_count(b), 2);
    dlab_pulse_beat(NULL);
    ck_assert_uint_eq(dlab_pulse_count(NULL), 0);
    dlab_pulse_unmap(a);
    dlab_pulse_unmap(b);
    ck_assert_int_eq(dlab_pulse_map(-1, &a, &err), DLAB_EIO);
    ck_assert_ptr_null(a);
}
END_TEST

START_TEST(a_cpu_quota_is_read)
{
    ck_assert(dlab_cpu_quota_of("150000 100000\n") == 1.5);
    ck_assert(dlab_cpu_quota_of("max 100000\n") == 0);
    ck_assert(dlab_cpu_quota_of("") == 0);
    ck_assert(dlab_cpu_quota_of("100000") == 0);
    ck_assert(dlab_cpu_quota_of("100000 0") == 0);
}
END_TEST

START_TEST(a_reason_of_strange_bytes_still_gets_to_the_runner)
{
    char *text = converse(OPEN("/nowhere/\xE2\x80\xA6.gguf", "engine", "{}"), DLAB_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"where\":\"open\""));
    free(text);
    dlab_error strange = {0};
    (void)DLAB_FAIL(&strange, DLAB_EIO, "caf\xE9: %0700d", 0);
    json_t *j = json_pack("{s:s}", "message", strange.msg);
    ck_assert_ptr_nonnull(j);
    json_decref(j);
}
END_TEST

START_TEST(durations_are_readable)
{
    char text[32];
    dlab_progress_duration(3.14159, text, sizeof text);
    ck_assert_str_eq(text, "3.14 s");
    dlab_progress_duration(42.25, text, sizeof text);
    ck_assert_str_eq(text, "42.2 s");
    dlab_progress_duration(245, text, sizeof text);
    ck_assert_str_eq(text, "4 min 05 s");
    dlab_progress_duration(7800, text, sizeof text);
    ck_assert_str_eq(text, "2 h 10 min");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runner units");
    TCase *c = tcase_create("runner units");
    tcase_set_timeout(c, 30);
    tcase_add_test(c, interleaved_is_a_round_over_all_points_a_repeat);
    tcase_add_test(c, grouped_is_all_repeats_of_a_point_together);
    tcase_add_test(c, random_is_a_seeded_permutation);
    tcase_add_test(c, absurd_sizes_are_refused);
    tcase_add_test(c, the_worker_needed_latest_goes_first);
    tcase_add_test(c, a_key_depends_on_all_that_shapes_a_run);
    tcase_add_loop_test(c, a_changed_file_of_the_workload_changes_the_key, 0, 3);
    tcase_add_test(c, one_flipped_byte_of_a_model_changes_its_hash);
    tcase_add_test(c, settings_come_back_as_they_went);
    tcase_add_test(c, lines_come_out_whole_however_they_come_in);
    tcase_add_test(c, a_line_without_an_end_is_refused);
    tcase_add_test(c, messages_of_another_version_are_refused);
    tcase_add_test(c, a_peer_that_is_gone_is_an_error_and_no_signal);
    tcase_add_test(c, a_worker_answers_what_makes_no_sense);
    tcase_add_test(c, a_worker_tells_effective_settings);
    tcase_add_test(c, a_worker_refuses_what_it_cannot_open);
    tcase_add_test(c, a_part_that_cannot_be_written_is_said);
    tcase_add_test(c, faults_are_checked_before_anything_runs);
    tcase_add_test(c, a_pulse_is_seen_through_another_mapping);
    tcase_add_test(c, a_cpu_quota_is_read);
    tcase_add_test(c, a_reason_of_strange_bytes_still_gets_to_the_runner);
    tcase_add_test(c, durations_are_readable);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

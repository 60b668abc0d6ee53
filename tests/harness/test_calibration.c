/* Calibrations: who is asked for how long, what is kept, what is made of a file that somebody else wrote. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "harness/probes/calibration.h"

static char folder[64];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/dlab calibration XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    unsetenv("DLAB_CALIBRATION");
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* ---- measuring, with probes and a clock that are made up ---- */

typedef struct {
    dlab_clock *clock;
    double least_s, times; /* an ask takes times · what it was given, at least least_s */
    int n, n_f32, n_int8, n_bf16;
    double longest_s;
    int64_t last_bytes;
    dlab_status fails;
    sig_atomic_t stop_at;
    volatile sig_atomic_t stop;
} fake;

static dlab_status fake_probe(void *ctx, const dlab_ask *a, double *per_second, dlab_error *err)
{
    fake *f = ctx;
    f->n++;
    f->n_f32 += a->what.kind == DLAB_PEAK_F32;
    f->n_int8 += a->what.kind == DLAB_PEAK_INT8;
    f->n_bf16 += a->what.kind == DLAB_PEAK_BF16;
    f->longest_s = fmax(f->longest_s, a->what.seconds);
    f->last_bytes = (int64_t)a->what.bytes;
    dlab_clock_advance(f->clock, (int64_t)(fmax(f->least_s, f->times * a->what.seconds) * 1e9));
    *per_second = a->what.kind == DLAB_PEAK_F32    ? 1e9 * (double)a->threads
                  : a->what.kind == DLAB_PEAK_INT8 ? 4e9 * (double)a->threads
                  : a->what.kind == DLAB_PEAK_BF16 ? 2e9 * (double)a->threads
                                                   : 1e15 / (double)a->what.bytes;
    if (f->n == f->stop_at) f->stop = 1;
    if (f->fails != DLAB_OK) return DLAB_FAIL(err, f->fails, "made up");
    return DLAB_OK;
}

static dlab_status measure(dlab_calibration *c, fake *f, double seconds, const int64_t *threads, size_t n,
                           dlab_error *err)
{
    const dlab_calibration_opts opts = {.threads = threads,
                                        .n_threads = n,
                                        .seconds = seconds,
                                        .most_bytes = (int64_t)256 << 20,
                                        .interrupted = &f->stop,
                                        .clock = f->clock,
                                        .probe = fake_probe,
                                        .ctx = f};
    return dlab_calibration_measure(c, &opts, err);
}

static double seconds_for(double seconds, size_t n_threads, double least_s, double times)
{
    int64_t threads[DLAB_CALIBRATION_THREADS];
    dlab_calibration c;
    fake f = {.clock = dlab_clock_virtual_create(5), .least_s = least_s, .times = times};
    for (size_t i = 0; i < n_threads; i++) threads[i] = (int64_t)i + 1;
    ck_assert_int_eq(dlab_calibration_init(&c, "plain", NULL), DLAB_OK);
    ck_assert_int_eq(measure(&c, &f, seconds, threads, n_threads, NULL), DLAB_OK);
    ck_assert_uint_eq(c.n, n_threads);
    ck_assert_int_eq(f.n_f32, (int)n_threads);
    ck_assert_int_eq(f.n_int8, (int)n_threads);
    ck_assert_int_eq(f.n_bf16, (int)n_threads);
    const double took = (double)(dlab_clock_now_ns(f.clock) - 5) * 1e-9;
    for (size_t i = 0; i < c.n; i++) {
        const dlab_calibrated *of = &c.threads[i];
        ck_assert_uint_ge(of->n, 4);
        ck_assert_double_eq(of->rows[of->n - 1].bytes, 256 << 20);
    }
    dlab_calibration_free(&c);
    dlab_clock_destroy(f.clock);
    return took;
}

/* However many numbers of threads: a machine of 1024 cores has 11, the flag takes 64. */
START_TEST(time_is_shared)
{
    for (size_t n = 1; n <= DLAB_CALIBRATION_THREADS; n++) {
        ck_assert_double_le(seconds_for(DLAB_CALIBRATION_S, n, 0.03, 1), DLAB_CALIBRATION_S + 0.5);
        ck_assert_double_lt(seconds_for(DLAB_CALIBRATION_S, n, 0.035, 1.5), 20); /* some take longer than they should */
    }
    ck_assert_double_le(seconds_for(DLAB_CALIBRATION_QUICK_S, 1, 0.03, 1), DLAB_CALIBRATION_QUICK_S + 0.1);
}
END_TEST

START_TEST(figures_are_where_they_belong)
{
    static const int64_t threads[] = {4, 2};
    dlab_calibration c;
    fake f = {.clock = dlab_clock_virtual_create(0), .least_s = 0.01, .times = 1};
    ck_assert_int_eq(dlab_calibration_init(&c, "plain", NULL), DLAB_OK);
    ck_assert_int_eq(measure(&c, &f, DLAB_CALIBRATION_S, threads, 2, NULL), DLAB_OK);
    ck_assert_uint_eq(c.n, 2);
    ck_assert_int_eq(c.threads[0].threads, 2);
    ck_assert_ptr_null(dlab_calibration_find(&c, 3));
    const dlab_calibrated *of = dlab_calibration_find(&c, 4);
    ck_assert_uint_eq(of->n, 14);
    for (size_t i = 0; i < of->n; i++) {
        ck_assert_double_eq(of->rows[i].bytes, (double)((int64_t)32768 << i));
        ck_assert_double_eq(of->rows[i].read_ps, 1e15 / of->rows[i].bytes);
        ck_assert_double_eq(of->rows[i].f32_ps, 4e9);
        ck_assert_double_eq(of->rows[i].int8_ps, 16e9);
        ck_assert_double_eq(of->rows[i].bf16_ps, 8e9);
    }
    ck_assert_double_le(f.longest_s, 0.25);
    dlab_calibration_free(&c);
    dlab_clock_destroy(f.clock);
}
END_TEST

/* Of many threads each would read so little that the set would not be what it says; the time goes to the others. */
START_TEST(parts_of_threads_are_not_tiny)
{
    static const int64_t threads[] = {1, 64, 1024};
    static const double first[] = {32 << 10, 512 << 10, 8 << 20};
    dlab_calibration c;
    fake f = {.clock = dlab_clock_virtual_create(0), .least_s = 0.01, .times = 1};
    ck_assert_int_eq(dlab_calibration_init(&c, "plain", NULL), DLAB_OK);
    ck_assert_int_eq(measure(&c, &f, 3, threads, 3, NULL), DLAB_OK);
    for (size_t i = 0; i < 3; i++) {
        const dlab_calibrated *of = dlab_calibration_find(&c, threads[i]);
        ck_assert_double_eq(of->rows[0].bytes, first[i]);
        ck_assert_double_eq(of->rows[of->n - 1].bytes, 256 << 20);
    }
    ck_assert_double_eq_tol((double)dlab_clock_now_ns(f.clock) * 1e-9, 3, 0.1);
    dlab_calibration_free(&c);
    dlab_clock_destroy(f.clock);
}
END_TEST

START_TEST(measuring_can_be_stopped_and_can_fail)
{
    static const int64_t threads[] = {1, 2};
    dlab_calibration c;
    dlab_error err = {0};
    fake f = {.clock = dlab_clock_virtual_create(0), .stop_at = 3};
    ck_assert_int_eq(dlab_calibration_init(&c, "plain", NULL), DLAB_OK);
    ck_assert_int_eq(measure(&c, &f, DLAB_CALIBRATION_S, threads, 2, &err), DLAB_EINTERRUPTED);
    ck_assert_int_eq(f.n, 3);
    f = (fake){.clock = f.clock, .fails = DLAB_EOOM};
    ck_assert_int_eq(measure(&c, &f, DLAB_CALIBRATION_S, threads, 2, &err), DLAB_EOOM);
    ck_assert_int_eq(f.n, 1);
    ck_assert_uint_eq(c.n, 0);
    dlab_calibration_free(&c);
    dlab_clock_destroy(f.clock);
}
END_TEST

/* ---- the file ---- */

static void make_some(dlab_calibration *c)
{
    ck_assert_int_eq(dlab_calibration_init(c, "plain", NULL), DLAB_OK);
    dlab_calibrated of = {.threads = 2, .quick = true, .measured = 1769860800, .n = 2};
    of.rows[0] = (dlab_peak_row){32768, 1.25e11, 1e11, 7e11, 2e11};
    of.rows[1] = (dlab_peak_row){65536, 1.1e11 / 3, 1e11, 7e11, 2e11};
    ck_assert_int_eq(dlab_calibration_put(c, &of, NULL), DLAB_OK);
    of.threads = 1;
    of.quick = false;
    ck_assert_int_eq(dlab_calibration_put(c, &of, NULL), DLAB_OK);
}

START_TEST(what_is_kept_comes_back)
{
    dlab_calibration c, back;
    char path[PATH_MAX];
    dlab_error err = {0};
    make_some(&c);
    ck_assert_int_eq(dlab_calibration_path(&c, path, sizeof path, &err), DLAB_OK);
    ck_assert_msg(strstr(path, folder) == path && strstr(path, "/decodelab/calibration/"), "%s", path);
    ck_assert_msg(dlab_calibration_save(&c, path, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(dlab_calibration_init(&back, "plain", NULL), DLAB_OK);
    ck_assert_str_eq(back.fingerprint, c.fingerprint);
    ck_assert_msg(dlab_calibration_load(&back, path, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_uint_eq(back.n, 2);
    for (size_t i = 0; i < 2; i++) {
        const dlab_calibrated *a = &c.threads[i], *b = &back.threads[i];
        ck_assert_int_eq(a->threads, b->threads);
        ck_assert_int_eq(a->quick, b->quick);
        ck_assert_int_eq(a->measured, b->measured);
        ck_assert_uint_eq(a->n, b->n);
        ck_assert_mem_eq(a->rows, b->rows, a->n * sizeof *a->rows);
    }
    dlab_calibration_free(&back);
    ck_assert_int_eq(dlab_calibration_init(&back, "auto", NULL),
                     DLAB_OK); /* another instruction set, if there is one */
    if (strcmp(back.isa, "plain") != 0) {
        ck_assert_str_ne(back.fingerprint, c.fingerprint);
        ck_assert_int_eq(dlab_calibration_load(&back, path, &err), DLAB_EFORMAT);
        ck_assert_ptr_nonnull(strstr(err.msg, "\"fingerprint\" is not"));
    }
    dlab_calibration_free(&back);
    dlab_calibration_free(&c);
}
END_TEST

/* Two processes that began before either had saved. */
START_TEST(what_another_process_saved_meanwhile_stays)
{
    static const int64_t one[] = {1}, two[] = {2};
    dlab_calibration first, second, back;
    char path[PATH_MAX];
    dlab_error err = {0};
    make_some(&first);
    make_some(&second);
    second.threads[0].rows[0].f32_ps = 7;
    second.threads[1].rows[0].f32_ps = 8;
    ck_assert_int_eq(dlab_calibration_path(&first, path, sizeof path, &err), DLAB_OK);
    ck_assert_msg(dlab_calibration_save_with(&first, one, 1, path, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_calibration_save_with(&second, two, 1, path, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(dlab_calibration_init(&back, "plain", NULL), DLAB_OK);
    ck_assert_msg(dlab_calibration_load(&back, path, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_uint_eq(back.n, 2);
    ck_assert_double_eq(back.threads[0].rows[0].f32_ps, first.threads[0].rows[0].f32_ps);
    ck_assert_double_eq(back.threads[1].rows[0].f32_ps, 8);
    dlab_calibration_free(&first);
    dlab_calibration_free(&second);
    dlab_calibration_free(&back);
}
END_TEST

START_TEST(no_file_is_no_error)
{
    dlab_calibration c;
    ck_assert_int_eq(dlab_calibration_init(&c, "plain", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_calibration_load(&c, "/nowhere/at all.json", NULL), DLAB_OK);
    ck_assert_uint_eq(c.n, 0);
    dlab_calibration_free(&c);
}
END_TEST

/* text with the first `what` replaced */
static char *replaced(const char *text, const char *what, const char *with)
{
    const char *at = strstr(text, what);
    char *out = NULL;
    ck_assert_msg(at != NULL, "%s is not in %s", what, text);
    ck_assert_int_gt(asprintf(&out, "%.*s%s%s", (int)(at - text), text, with, at + strlen(what)), 0);
    return out;
}

static void refused(const char *path, const char *text, const char *said)
{
    dlab_calibration c;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_calibration_init(&c, "plain", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_file_write_atomic(path, text, strlen(text), NULL), DLAB_OK);
    ck_assert_msg(dlab_calibration_load(&c, path, &err) == DLAB_EFORMAT, "%s is taken", text);
    ck_assert_msg(strstr(err.msg, said) && strstr(err.msg, path), "\"%s\" does not say \"%s\"", err.msg, said);
    ck_assert_ptr_null(strchr(err.msg, '\n'));
    ck_assert_uint_eq(c.n, 0);
    dlab_calibration_free(&c);
}

START_TEST(damage_is_refused_whole)
{
    static const struct {
        const char *what, *with, *said;
    } faults[] = {
        {"\"v\": 2", "\"v\": 1", "version 2"},
        {"\"v\": 2", "\"v\": \"2\"", "version 2"},
        {"\"isa\": \"plain\"", "\"isa\": \"none\"", "\"isa\" is not \"plain\""},
        {"\"fingerprint\": \"", "\"fingerprint\": \"\\n", "\"fingerprint\" is not"},
        {"\"fingerprint\"", "\"x\"", "\"fingerprint\" is not"},
        {"\"peaks\"", "\"peak\"", "\"peaks\" is not a list"},
        {"\"threads\": 2", "\"threads\": 1", "twice"},
        {"\"threads\": 2", "\"threads\": 0", "\"threads\""},
        {"\"threads\": 2", "\"threads\": 1e3", "\"threads\""},
        {"\"threads\": 2", "\"threads\": 4000", "\"threads\""},
        {"\"quick\": true", "\"quick\": 1", "\"quick\""},
        {"\"measured\": \"2026-01-31T12:00:00Z", "\"measured\": \"2026-01-31T12:00:00Zx", "\"measured\""},
        {"\"measured\": \"2026", "\"measured\": \"\", \"g\": \"", "\"measured\""},
        {"\"bf16_flop_ps\": 2", "\"bf16_flop_ps\": 0, \"g\": 2", "\"bf16_flop_ps\""},
        {"\"f32_flop_ps\": 1", "\"f32_flop_ps\": -1", "\"f32_flop_ps\""},
        {"\"f32_flop_ps\": 1", "\"f32_flop_ps\": 1e300, \"g\": 1", "\"f32_flop_ps\""},
        {"\"int8_op_ps\"", "\"op\"", "\"int8_op_ps\""},
        {"\"bytes\": 65536", "\"bytes\": 32768", "ascend"},
        {"\"bytes_ps\": 1", "\"bytes_ps\": null, \"g\": 1", "\"bytes_ps\""},
        {"\"read\": [", "\"read\": [], \"g\": [", "\"read\""},
    };
    dlab_calibration c;
    char path[PATH_MAX];
    make_some(&c);
    ck_assert_int_eq(dlab_calibration_path(&c, path, sizeof path, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_calibration_save(&c, path, NULL), DLAB_OK);
    char *text = NULL;
    size_t n = 0;
    ck_assert_int_eq(dlab_file_read(path, 1 << 20, &text, &n, NULL), DLAB_OK);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char *bad = replaced(text, faults[i].what, faults[i].with);
        refused(path, bad, faults[i].said);
        free(bad);
    }
    for (size_t cut = 0; cut + 1 < n; cut += 37) { /* cut short anywhere */
        char *part = strndup(text, cut);
        refused(path, part, "not valid JSON");
        free(part);
    }
    refused(path, "[]", "version 2");
    refused(path, "{\"v\": 2, \"v\": 2}", "not valid JSON");
    free(text);
    dlab_calibration_free(&c);
}
END_TEST

/* ---- for runs ---- */

static void count_line(void *ctx, const char *line)
{
    ck_assert_ptr_null(strchr(line, '\n'));
    ++*(int *)ctx;
}

static dlab_plan plan_of(int64_t threads)
{
    dlab_plan p;
    dlab_plan_default(&p);
    p.threads = threads;
    ck_assert_int_eq(dlab_plan_set(&p, "isa=plain", NULL), DLAB_OK);
    return p;
}

START_TEST(a_run_gets_what_is_kept)
{
    dlab_calibration c;
    char path[PATH_MAX];
    dlab_calibrated kept;
    int n_lines = 0;
    make_some(&c);
    ck_assert_int_eq(dlab_calibration_path(&c, path, sizeof path, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_calibration_save(&c, path, NULL), DLAB_OK);
    dlab_plan p = plan_of(2);
    dlab_calibration_ensure(&p, NULL, count_line, &n_lines);
    ck_assert(dlab_calibration_kept(&p, &kept));
    ck_assert_int_eq(kept.threads, 2);
    ck_assert(kept.quick);
    ck_assert_int_eq(kept.measured, c.threads[1].measured);
    ck_assert_uint_eq(kept.n, 2);
    ck_assert_mem_eq(kept.rows, c.threads[1].rows, 2 * sizeof *kept.rows);
    p.threads = 3;
    ck_assert(!dlab_calibration_kept(&p, &kept));
    ck_assert_uint_eq(kept.n, 0);
    p.threads = 2;
    ck_assert_int_eq(dlab_plan_set(&p, "device=ref", NULL), DLAB_OK);
    dlab_calibration_ensure(&p, NULL, count_line, &n_lines);
    ck_assert(!dlab_calibration_kept(&p, &kept));
    p = plan_of(2);
    setenv("DLAB_CALIBRATION", "off", 1);
    dlab_calibration_ensure(&p, NULL, count_line, &n_lines);
    ck_assert(!dlab_calibration_kept(&p, &kept));
    ck_assert_int_eq(n_lines, 0);
    dlab_calibration_free(&c);
}
END_TEST

/* Nothing is measured that could not be kept. */
START_TEST(a_cache_that_takes_no_file_is_said)
{
    char file[128];
    int n_lines = 0;
    dlab_calibrated kept;
    const dlab_plan p = plan_of(1);
    snprintf(file, sizeof file, "%s/decodelab", folder);
    ck_assert_int_eq(dlab_file_write_atomic(file, "x", 1, NULL), DLAB_OK);
    dlab_calibration_ensure(&p, NULL, count_line, &n_lines);
    ck_assert_int_eq(n_lines, 1);
    ck_assert(!dlab_calibration_kept(&p, &kept));
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    dlab_calibration_ensure(&p, NULL, count_line, &n_lines);
    ck_assert_int_eq(n_lines, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("calibration");
    TCase *c = tcase_create("calibration");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, time_is_shared);
    tcase_add_test(c, figures_are_where_they_belong);
    tcase_add_test(c, parts_of_threads_are_not_tiny);
    tcase_add_test(c, measuring_can_be_stopped_and_can_fail);
    tcase_add_test(c, what_is_kept_comes_back);
    tcase_add_test(c, what_another_process_saved_meanwhile_stays);
    tcase_add_test(c, no_file_is_no_error);
    tcase_add_test(c, damage_is_refused_whole);
    tcase_add_test(c, a_run_gets_what_is_kept);
    tcase_add_test(c, a_cache_that_takes_no_file_is_said);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

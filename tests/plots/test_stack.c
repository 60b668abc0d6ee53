/* Memory over time: the point, the rows, thinning, the limit, what is missing. */
#include "tests/plots/fixture.h"

#define MIB ((int64_t)1 << 20)

static void add_step(dlab_run *r, double begin_ms, double end_ms, int64_t reserved, int64_t used, int64_t cached,
                     int64_t spare)
{
    dlab_ev_step e = {.t_begin = begin_ms * 1e6,
                      .t_end = end_ms * 1e6,
                      .kv_reserved = reserved,
                      .kv_used = used,
                      .kv_cached = cached,
                      .kv_free = spare};
    ck_assert_int_eq(dlab_run_add_step(r, &e, NULL), DLAB_OK);
}

static void add_sample(dlab_run *r, double t_ms, int64_t weights, int64_t activations, int64_t scratch)
{
    dlab_ev_memory e = {.t = t_ms * 1e6, .weights = weights, .activations = activations, .scratch = scratch, .kv = 77};
    ck_assert_int_eq(dlab_run_add_memory(r, &e, NULL), DLAB_OK);
}

static dlab_run *empty_run(dlab_record *r)
{
    const batch_shape nothing = {.seqs = 0};
    dlab_run *run = add_run(r, &nothing);
    dlab_run_free_events(run);
    run->memory_limit = 0;
    return run;
}

/* Two stores, two block sizes; one run of the paged one at 16 that failed and one that counts. */
static dlab_run *fill(dlab_record *r)
{
    dlab_run *shown = NULL;
    dlab_record_init(r);
    for (int i = 0; i < 4; i++) {
        add_point(r, (const char *[]){"kv.store", i < 2 ? "contiguous" : "paged", "kv.block_size", i % 2 ? "16" : "32",
                                      NULL});
        empty_run(r)->status = i == 3 ? DLAB_RUN_FAILED : DLAB_RUN_OK;
    }
    shown = empty_run(r);
    add_sample(shown, 0, 100 * MIB, 2 * MIB, MIB);
    add_sample(shown, 30, 100 * MIB, 4 * MIB, MIB);
    add_sample(shown, 31, 100 * MIB, 5 * MIB, MIB);
    add_step(shown, 2, 10, 8 * MIB, 5 * MIB, 0, 24 * MIB);
    add_step(shown, 10, 20, 16 * MIB, 15 * MIB, 0, 16 * MIB);
    add_step(shown, 25, 30, 4 * MIB, MIB / 2, 12 * MIB, 16 * MIB);
    shown->t_end = 40e6;
    return shown;
}

static dlab_plot_spec stack_spec(const char *block_size)
{
    dlab_plot_spec s = {.name = "memory",
                        .template_name = "stack",
                        .title = "Memory over time",
                        .at = {{"kv.store", "paged"}, {"kv.block_size", ""}},
                        .n_at = block_size ? 2 : 1};
    if (block_size) snprintf(s.at[1].value, sizeof s.at[1].value, "%s", block_size);
    return s;
}

START_TEST(rows_are_the_steps_bands)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = stack_spec("16.0"); /* numbers are the same by value */
    draw(&r, &s);
    char *text = read_out("memory", "dat");
    ck_assert_str_eq(
        text,
        "# kv.store=paged kv.block_size=16, run 2 of 2\n"
        "# time in ms, then in MiB, bottom to top: weights; activations, scratch; KV used; KV reserved, empty; "
        "KV cached prefixes; KV free in the pool\n"
        "# figures hold from a step's end until the next one's; the first step's from its begin, the last one's on\n"
        "2 100 3 5 3 0 24\n"
        "10 100 3 5 3 0 24\n"
        "20 100 3 5 3 0 24\n"
        "20 100 3 15 1 0 16\n"
        "30 100 3 15 1 0 16\n"
        "30 100 5 0.5 3.5 12 16\n"
        "40.4 100 5 0.5 3.5 12 16\n");
    free(text);
    text = read_out("memory", "gp");
    ck_assert_ptr_nonnull(strstr(text, "POINT = 'kv.store=paged kv.block_size=16'\n"));
    ck_assert_ptr_nonnull(strstr(text, "CAPTION2 = 'run 2 of 2, 3 steps'\n"));
    ck_assert_ptr_nonnull(strstr(text, "XLABEL = 'time since the run''s start (ms)'\n"));
    ck_assert_ptr_nonnull(strstr(text, "LABEL[1] = 'weights'\n"));
    ck_assert_ptr_nonnull(strstr(text, "LABEL[6] = 'KV free in the pool'\n"));
    ck_assert_ptr_nonnull(strstr(text, "LIMIT = 0\nXMAX = 40.4\nYMAX = 147.96\n")); /* 1.08 · 137 */
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(only_kv_leaves_the_rest_out)
{
    dlab_record r;
    dlab_run *run = fill(&r);
    run->memory_limit = 34 * MIB; /* of all memory: says nothing about the store alone */
    for (size_t i = 0; i < run->n_steps; i++) run->steps[i].kv_cached = -1; /* unknown */
    dlab_plot_spec s = stack_spec("16");
    s.only_kv = true;
    draw(&r, &s);
    char *text = read_out("memory", "dat");
    ck_assert_ptr_nonnull(strstr(text, "bottom to top: KV used; KV reserved, empty;"));
    ck_assert_ptr_nonnull(strstr(text, "\n20 15 1 0 16\n30 15 1 0 16\n30 0.5 3.5 0 16\n"));
    free(text);
    text = read_out("memory", "gp");
    ck_assert_ptr_nonnull(strstr(text, "N = 4\nFIRST = 2\n"));
    ck_assert_ptr_nonnull(strstr(text, "LABEL[3] = 'KV cached prefixes: none'\n"));
    ck_assert_ptr_nonnull(strstr(text, "LIMIT = 0\n"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(limit_is_drawn_where_it_is_near)
{
    static const struct {
        int64_t limit;
        const char *says;
    } at[] = {{200 * MIB, "LIMIT = 200\nXMAX = 40.4\nYMAX = 216\n"},
              {206 * MIB, "LIMIT = 0\nXMAX = 40.4\nYMAX = 147.96\n"}, /* over 1.5 · 137 */
              {120 * MIB, "LIMIT = 120\nXMAX = 40.4\nYMAX = 147.96\n"}};
    dlab_record r;
    dlab_run *run = fill(&r);
    dlab_plot_spec s = stack_spec("16");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        run->memory_limit = at[i].limit;
        draw(&r, &s);
        char *text = read_out("memory", "gp");
        ck_assert_msg(strstr(text, at[i].says) != NULL, "%zu: no %s", i, at[i].says);
        free(text);
    }
    dlab_record_free(&r);
}
END_TEST

START_TEST(long_runs_are_in_seconds)
{
    dlab_record r;
    dlab_run *run = fill(&r);
    add_step(run, 5000, 7500, 4 * MIB, 3 * MIB, 0, 28 * MIB);
    run->status = DLAB_RUN_TRUNCATED;
    dlab_plot_spec s = stack_spec("16");
    draw(&r, &s);
    char *text = read_out("memory", "dat");
    ck_assert_ptr_nonnull(strstr(text, "# time in s,"));
    ck_assert_ptr_nonnull(strstr(text, "\n7.5 100 6 3 1 0 28\n7.575 100 6 3 1 0 28\n"));
    free(text);
    text = read_out("memory", "gp");
    ck_assert_ptr_nonnull(strstr(text, "run 2 of 2, 4 steps; cut at the time limit'\n"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

static size_t lines_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* Every peak stays, each in a row of its own that was there. */
START_TEST(thousands_of_steps_are_thinned_out)
{
    enum { STEPS = 50000 };
    dlab_record r;
    dlab_run *run = fill(&r);
    for (int i = 1; i <= STEPS; i++) {
        int64_t used = i % 1000, reserved = 1000, cached = 0, spare = 9000;
        if (i == 12345) used = 1500, reserved = 1500; /* most used */
        if (i == 12347) reserved = 2500;              /* most reserved */
        if (i == 34567) cached = 4321;                /* most cached */
        if (i == 45678) spare = 20000;                /* largest in all */
        add_step(run, 100 + i - 1, 100 + i, reserved * MIB, used * MIB, cached * MIB, spare * MIB);
    }
    dlab_plot_spec s = stack_spec("16");
    s.only_kv = true;
    draw(&r, &s);
    char *text = read_out("memory", "dat");
    ck_assert_uint_le(lines_of(text), 2010);
    ck_assert_uint_ge(lines_of(text), 500);
    ck_assert_ptr_nonnull(strstr(text, "\n0.002 5 3 0 24\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n12.445 1500 0 0 9000\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n12.447 347 2153 0 9000\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n34.667 567 433 4321 9000\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n45.778 678 322 0 20000\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n50.1 0 1000 0 9000\n"));
    ck_assert_ptr_nonnull(strstr(text, " of 50003 steps, the largest values among them\n"));
    double last = -1;
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *end;
        const double t = strtod(line, &end);
        if (end == line) continue; /* a comment */
        ck_assert_double_ge(t, last);
        last = t;
    }
    ck_assert_double_gt(last, 50.1);
    free(text);
    text = read_out("memory", "gp");
    ck_assert_ptr_nonnull(strstr(text, "run 2 of 2, 50003 steps, of which "));
    free(text);
    dlab_record_free(&r);
}
END_TEST

/* A point that nothing was measured at, and a run without steps: a plot that says so. */
START_TEST(nothing_to_see_is_told)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = stack_spec("32");
    draw(&r, &s);
    char *text = read_out("memory", "gp");
    ck_assert_ptr_nonnull(strstr(text, "EMPTY = 'the run has no steps'\n"));
    free(text);
    r.points[2].runs[0]->status = r.points[2].status = DLAB_RUN_OOM;
    snprintf(r.points[2].reason, sizeof r.points[2].reason, "no room\nat all");
    draw(&r, &s);
    text = read_out("memory", "gp");
    ck_assert_ptr_nonnull(strstr(text, "EMPTY = 'nothing measured: oom (see the .dat)'\n"));
    free(text);
    text = read_out("memory", "dat");
    ck_assert_ptr_nonnull(strstr(text, "# nothing measured: oom: no room at all\nNaN"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(one_point_has_to_be_named)
{
    static const struct {
        const char *key, *value, *says;
    } bad[] = {
        {"kv.store", "paged",
         "plot memory: at: 2 points match kv.store=paged, expected one: name kv.block_size (32, 16) too"},
        {"kv.block_size", "8", "plot memory: at: no point has kv.block_size=8; the record has 32, 16"},
        {"kv.blocksize", "16",
         "plot memory: at: no point has an axis \"kv.blocksize\"; did you mean \"kv.block_size\"?"},
        {"colour", "16",
         "plot memory: at: no point has an axis \"colour\"; the first point is kv.store=contiguous kv.block_size=32"},
    };
    dlab_record r;
    bool made;
    fill(&r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlab_error err = {0};
        dlab_plot_spec s = stack_spec(NULL);
        snprintf(s.at[0].key, sizeof s.at[0].key, "%s", bad[i].key);
        snprintf(s.at[0].value, sizeof s.at[0].value, "%s", bad[i].value);
        ck_assert_int_eq(dlab_plot_render(&r, &s, TEMPLATES, folder, &made, &err), DLAB_EUSAGE);
        ck_assert_str_eq(err.msg, bad[i].says);
    }
    dlab_error err = {0};
    dlab_plot_spec s = stack_spec("16");
    s.n_at = 0;
    ck_assert_int_eq(dlab_plot_render(&r, &s, TEMPLATES, folder, &made, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(
        strstr(err.msg, "4 points match all points, expected one: name kv.store (contiguous, paged) and"));
    s = stack_spec("16");
    ck_assert_int_eq(dlab_settings_set(&r.points[3].axes, "kv.store", "none", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_plot_render(&r, &s, TEMPLATES, folder, &made, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(err.msg, "no point has kv.store=paged kv.block_size=16 together"));
    dlab_record_free(&r);
    dlab_record_init(&r);
    ck_assert_int_eq(dlab_plot_render(&r, &s, TEMPLATES, folder, &made, &err), DLAB_EUSAGE);
    ck_assert_ptr_nonnull(strstr(err.msg, "no points"));
    dlab_record_free(&r);
}
END_TEST

/* Events that are on the disk only would give an empty picture of a full run. */
START_TEST(dropped_events_are_refused)
{
    dlab_record r;
    dlab_error err = {0};
    bool made;
    fill(&r)->dropped = true;
    dlab_plot_spec s = stack_spec("16");
    ck_assert_int_eq(dlab_plot_render(&r, &s, TEMPLATES, folder, &made, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "in its part only"));
    dlab_record_free(&r);
}
END_TEST

static long stands(const char *text, const char *what)
{
    long at = 0;
    while (text[at] && strncmp(text + at, what, strlen(what)) != 0) at++;
    ck_assert_msg(text[at] != 0, "no %s", what);
    return at;
}

START_TEST(pictures_are_drawn)
{
    dlab_record r;
    dlab_run *run = fill(&r);
    run->memory_limit = 150 * MIB;
    for (int i = 0; i < 3; i++) {
        dlab_plot_spec s = stack_spec(i == 2 ? "32" : "16");
        s.only_kv = i == 1;
        if (!draw(&r, &s)) {
            fprintf(stderr, "skipped: pictures_are_drawn (there is no gnuplot)\n");
            break;
        }
        char *png = read_out(s.name, "png"), *svg = read_out(s.name, "svg");
        ck_assert_mem_eq(png, "\x89PNG", 4);
        /* the legend goes down as the stack does */
        ck_assert(stands(svg, ">KV free in the pool</text>") < stands(svg, ">KV used</text>"));
        if (i != 1) ck_assert(stands(svg, ">KV used</text>") < stands(svg, ">weights</text>"));
        if (i == 1) ck_assert_ptr_null(strstr(svg, ">weights"));
        ck_assert_int_eq(strstr(svg, ">memory limit</text>") != NULL, i == 0);
        ck_assert_int_eq(strstr(svg, "the run has no steps") != NULL, i == 2);
        free(png);
        free(svg);
    }
    dlab_record_free(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stack");
    TCase *c = tcase_create("stack");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, rows_are_the_steps_bands);
    tcase_add_test(c, only_kv_leaves_the_rest_out);
    tcase_add_test(c, limit_is_drawn_where_it_is_near);
    tcase_add_test(c, long_runs_are_in_seconds);
    tcase_add_test(c, thousands_of_steps_are_thinned_out);
    tcase_add_test(c, nothing_to_see_is_told);
    tcase_add_test(c, one_point_has_to_be_named);
    tcase_add_test(c, dropped_events_are_refused);
    tcase_add_test(c, pictures_are_drawn);
    suite_add_tcase(s, c);
    return run_suite(s);
}

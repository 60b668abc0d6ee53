#include "tests/plots/fixture.h"

/* The point at 256 failed. */
static void fill(dlab_record *r)
{
    const char *const lengths[] = {"256", "64", "1024"}; /* not in order: the plot sorts */
    dlab_record_init(r);
    ck_assert_int_eq(dlab_settings_set(&r->meta, "git_revision", "0123456789abcdef", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->meta, "cpu_model", "A `CPU` of 'note' @FOO $HOME \"x\"", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->meta, "model", "/models/some model.gguf", NULL), DLAB_OK);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 3; i++) {
            dlab_point_result *p =
                add_point(r, (const char *[]){"kv.store", s ? "it's" : "none", "workload.depth", lengths[i], NULL});
            if (s == 0 && i == 0) {
                p->status = DLAB_RUN_OOM;
                snprintf(p->reason, sizeof p->reason, "no room\nat all");
                continue;
            }
            for (int k = 0; k < 3; k++) {
                batch_shape b = {
                    .seqs = 1, .prompt = 4, .made = 5, .ttft_ns = 1e6, .gap_ns = (20 + i + k) * 1e6, .retains = true};
                add_run(r, &b);
            }
        }
    }
}

static dlab_plot_spec line_spec(const char *name)
{
    dlab_plot_spec s = {.template_name = "lines",
                        .title = "It's `date` @A",
                        .x = "workload.depth",
                        .y = dlab_metric_find("tpot"),
                        .series = {"kv.store"},
                        .n_series = 1,
                        .logx = true,
                        .logy = true};
    snprintf(s.name, sizeof s.name, "%s", name);
    return s;
}

START_TEST(lines_data_has_gaps_not_zeros)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = line_spec("cost of a token");
    draw(&r, &s);
    char *text = read_out(s.name, "dat");
    ck_assert_str_eq(text, "# x = workload.depth; median, least, largest in ms; runs\n"
                           "# none\n"
                           "64 22 21 23 3\n"
                           "# 256 is missing: oom: no room at all\n"
                           "\n"
                           "1024 23 22 24 3\n"
                           "\n"
                           "\n"
                           "# it's\n"
                           "64 22 21 23 3\n"
                           "256 21 20 22 3\n"
                           "1024 23 22 24 3\n");
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(bars_data_has_a_column_a_series)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = line_spec("bars");
    snprintf(s.template_name, sizeof s.template_name, "bars");
    s.logx = s.logy = false;
    draw(&r, &s);
    char *text = read_out("bars", "dat");
    ck_assert_ptr_nonnull(strstr(text, "# 256\n0 NaN NaN NaN 21 20 22\n"));
    ck_assert_ptr_nonnull(strstr(text, "# 1024\n2 23 22 24 23 22 24\n"));
    free(text);
    text = read_out("bars", "gp");
    ck_assert_ptr_nonnull(strstr(text, "set label 'oom' at first -0.2,"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

/* Beside what is measured, in the same unit; it goes on where a point was not measured. */
START_TEST(reference_is_a_column)
{
    dlab_record r;
    fill(&r);
    for (size_t i = 0; i < r.n_points; i++) {
        for (size_t k = 0; k < r.points[i].n_runs; k++) {
            r.points[i].runs[k]->pool_peak[DLAB_POOL_KV] = (int64_t)(i + 1) << 20;
            r.points[i].runs[k]->mem_peak = (int64_t)(i + 1) << 21;
        }
    }
    for (size_t k = 0; k < 3; k++) {
        r.points[4].runs[k]->pool_peak[DLAB_POOL_KV] = -1; /* "it's" at 64: no value, but its reference */
        r.points[5].runs[k]->mem_peak = -1;
    }
    dlab_plot_spec s = line_spec("ref");
    s.y = dlab_metric_find("mem_kv");
    s.reference = dlab_metric_find("mem_peak");
    draw(&r, &s);
    char *text = read_out("ref", "dat");
    ck_assert_str_eq(text, "# x = workload.depth; median, least, largest in MiB; runs; mem_peak in MiB\n"
                           "# none\n"
                           "64 2 2 2 3 4\n"
                           "# 256 is missing: oom: no room at all\n"
                           "\n"
                           "1024 3 3 3 3 6\n"
                           "\n"
                           "\n"
                           "# it's\n"
                           "# 64 is missing: ok\n"
                           "64 NaN NaN NaN 0 10\n"
                           "256 4 4 4 3 8\n"
                           "1024 6 6 6 3 NaN\n");
    free(text);
    text = read_out("ref", "gp");
    ck_assert_ptr_nonnull(strstr(text, "REFERENCE = 'mem_peak'\n"));
    ck_assert_ptr_nonnull(strstr(text, "YMAX = 13\n")); /* 10, of the reference, has room: 1.3 times that */
    free(text);
    dlab_record_free(&r);
}
END_TEST

/* What a logarithmic axis cannot show is told, and has no say in the range. */
START_TEST(zeros_on_a_logarithmic_axis_are_told)
{
    dlab_record r;
    fill(&r);
    for (size_t i = 0; i < r.n_points; i++)
        for (size_t k = 0; k < r.points[i].n_runs; k++)
            r.points[i].runs[k]->pool_peak[DLAB_POOL_KV] = i < 3 ? 0 : (int64_t)i << 20;
    dlab_plot_spec s = line_spec("zeros");
    s.y = dlab_metric_find("mem_kv");
    draw(&r, &s);
    char *text = read_out("zeros", "dat");
    ck_assert_ptr_nonnull(strstr(text, "\n# 2 values of 0 are left out of the picture: logarithmic axis\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n64 0 0 0 3\n"));
    free(text);
    text = read_out("zeros", "gp");
    ck_assert_ptr_nonnull(strstr(text, "; 1 missing, named in the .dat; 2 values of 0 left out: logarithmic axis'\n"));
    ck_assert_ptr_nonnull(strstr(text, "YMAX = 6.5\n"));
    free(text);
    s.logy = false;
    draw(&r, &s);
    text = read_out("zeros", "gp");
    ck_assert_ptr_null(strstr(text, "left out"));
    free(text);
    s.logx = false;
    s.logy = true;
    snprintf(s.template_name, sizeof s.template_name, "bars");
    draw(&r, &s);
    text = read_out("zeros", "gp");
    ck_assert_ptr_nonnull(strstr(text, "2 values of 0 left out: logarithmic axis"));
    ck_assert_ptr_nonnull(strstr(text, "set label '0' at first 0.8,"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

/* A depth of 0 has no place on a logarithmic x axis. */
START_TEST(zero_on_the_x_axis_is_told)
{
    dlab_record r;
    const batch_shape b = {.seqs = 1, .prompt = 4, .made = 5, .ttft_ns = 1e6, .gap_ns = 2e7, .retains = true};
    dlab_record_init(&r);
    for (int i = 0; i < 3; i++) {
        add_point(&r,
                  (const char *[]){"kv.store", "none", "workload.depth", ((const char *[]){"0", "8", "64"})[i], NULL});
        add_run(&r, &b);
    }
    dlab_plot_spec s = line_spec("zero");
    draw(&r, &s);
    char *text = read_out("zero", "gp");
    ck_assert_ptr_nonnull(strstr(text, "CAPTION2 = 'one run a point; 1 value of 0 left out: logarithmic axis'\n"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(script_quotes_what_it_is_given)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = line_spec("it's");
    draw(&r, &s);
    char *text = read_out(s.name, "gp");
    ck_assert_ptr_nonnull(strstr(text, "NAME = 'it''s'\n"));
    ck_assert_ptr_nonnull(strstr(text, "TITLE = 'It''s `date` @A'\n"));
    ck_assert_ptr_nonnull(strstr(text, "LABEL[2] = 'it''s'\n"));
    ck_assert_ptr_nonnull(strstr(text, "YLABEL = 'tpot (ms)'\n"));
    ck_assert_ptr_nonnull(strstr(text, "git 0123456789, some model.gguf, A `CPU` of ''note'' @FOO $HOME \"x\"'\n"));
    ck_assert_ptr_nonnull(strstr(text, "1 missing, named in the .dat"));
    ck_assert_ptr_nonnull(strstr(text, "set xtics ('64' 64, '256' 256, '1024' 1024)"));
    ck_assert_ptr_nonnull(strstr(text, "array SHAPE")); /* the template is inside: the script stands alone */
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(pictures_are_drawn)
{
    static const char *const templates[] = {"lines", "bars"};
    dlab_record r;
    fill(&r);
    for (int i = 0; i < 2; i++) {
        dlab_plot_spec s = line_spec("a 'quoted' name");
        snprintf(s.template_name, sizeof s.template_name, "%s", templates[i]);
        if (i) s.logx = false;
        if (!draw(&r, &s)) {
            fprintf(stderr, "skipped: pictures_are_drawn (there is no gnuplot)\n");
            break;
        }
        char *png = read_out(s.name, "png"), *svg = read_out(s.name, "svg");
        ck_assert_mem_eq(png, "\x89PNG", 4);
        ck_assert_ptr_nonnull(strstr(svg, "</svg>"));
        ck_assert_ptr_nonnull(strstr(svg, "It's `date` @A"));
        free(png);
        free(svg);
    }
    dlab_record_free(&r);
}
END_TEST

START_TEST(nothing_measured_is_still_a_plot)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = line_spec("empty");
    s.y = dlab_metric_find("ppl");
    draw(&r, &s);
    char *text = read_out("empty", "dat");
    ck_assert_ptr_nonnull(strstr(text, "NaN NaN NaN NaN 0"));
    free(text);
    dlab_record_free(&r);
}
END_TEST

START_TEST(without_gnuplot_data_and_script_stay)
{
    dlab_record r;
    fill(&r);
    dlab_plot_spec s = line_spec("plain");
    const char *was = getenv("PATH");
    char *path = strdup(was ? was : "");
    ck_assert_int_eq(setenv("PATH", "/nowhere", 1), 0);
    bool made = draw(&r, &s);
    ck_assert_int_eq(setenv("PATH", path, 1), 0);
    ck_assert(!made);
    free(path);
    free(read_out("plain", "dat"));
    free(read_out("plain", "gp"));
    dlab_record_free(&r);
}
END_TEST

/* A gnuplot that fails: its words are in the error and no half picture stays. */
START_TEST(gnuplots_complaint_is_told)
{
    dlab_record r;
    dlab_error err = {0};
    bool made;
    char path[PATH_MAX + 64];
    fill(&r);
    dlab_plot_spec s = line_spec("plain");
    const char *text = "set output NAME.'.svg'\nthis is no command\n";
    snprintf(path, sizeof path, "%s/lines.gp", folder);
    ck_assert_int_eq(dlab_file_write_atomic(path, text, strlen(text), NULL), DLAB_OK);
    dlab_status st = dlab_plot_render(&r, &s, folder, folder, &made, &err);
    if (st == DLAB_OK && !made) {
        fprintf(stderr, "skipped: gnuplots_complaint_is_told (there is no gnuplot)\n");
    } else {
        ck_assert_int_eq(st, DLAB_EIO);
        ck_assert_ptr_nonnull(strstr(err.msg, "invalid command"));
        ck_assert_ptr_null(strchr(err.msg, '\n'));
        snprintf(path, sizeof path, "%s/plain.svg", folder);
        ck_assert(!dlab_file_exists(path));
    }
    ck_assert_int_eq(dlab_plot_render(&r, &s, "/nowhere", folder, &made, &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/lines.gp"));
    dlab_record_free(&r);
}
END_TEST

START_TEST(section_is_read)
{
    dlab_plot_spec s[DLAB_PLOT_MAX];
    size_t n;
    dlab_error err = {0};
    ck_assert_msg(
        parse("- {name: a b, template: lines, title: T, x: workload.depth, y: tpot, series: [kv.store], logx: on}\n"
              "- {name: c, template: bars, y: mem_peak, logy: true}\n",
              s, &n, &err) == DLAB_OK,
        "%s", err.msg);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(s[0].name, "a b");
    ck_assert(s[0].logx && !s[0].logy && s[1].logy);
    ck_assert_str_eq(s[1].title, "c");
    ck_assert_ptr_eq(s[1].y, dlab_metric_find("mem_peak"));
}
END_TEST

START_TEST(stack_and_reference_are_read)
{
    dlab_plot_spec s[DLAB_PLOT_MAX];
    size_t n;
    dlab_error err = {0};
    ck_assert_msg(parse("- {name: m, template: stack, at: {kv.store: paged, kv.block_size: 16}, only: kv}\n"
                        "- {name: n, template: stack, only: all}\n"
                        "- {name: l, x: workload.depth, y: mem_kv, reference: mem_peak}\n",
                        s, &n, &err) == DLAB_OK,
                  "%s", err.msg);
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(s[0].n_at, 2);
    ck_assert_str_eq(s[0].at[0].key, "kv.store");
    ck_assert_str_eq(s[0].at[1].value, "16");
    ck_assert(s[0].only_kv && !s[1].only_kv);
    ck_assert_uint_eq(s[1].n_at, 0);
    ck_assert_ptr_eq(s[2].reference, dlab_metric_find("mem_peak"));
    ck_assert_ptr_null(s[0].reference);
}
END_TEST

START_TEST(mistakes_are_named)
{
    static const struct {
        const char *yaml, *says;
    } bad[] = {
        {"- {name: ../x, y: tpot, x: a}\n", "cannot be a file's name"},
        {"- {name: a, y: tpt, x: a}\n", "x.yaml:1:16: unknown metric \"tpt\"; did you mean \"tpot\"?"},
        {"- {name: a, y: tpot}\n", "needs x"},
        {"- {name: a, y: tpot, x: a, template: pie}\n", "expected lines, bars or stack"},
        {"- {name: a, y: mem_kv, x: a, reference: tpot}\n",
         "x.yaml:1:41: reference: tpot is in ns and y, mem_kv, in B; expected a metric of the same unit"},
        {"- {name: a, y: mem_kv, x: a, reference: mem_kw}\n", "unknown metric \"mem_kw\"; did you mean \"mem_kv\"?"},
        {"- {name: a, y: mem_kv, template: bars, reference: mem_kv}\n", "reference: is for the template lines alone"},
        {"- {name: a, y: tpot, x: a, at: {kv.store: paged}}\n", "at: is for the template stack alone"},
        {"- {name: a, y: tpot, template: bars, only: kv}\n", "only: is for the template stack alone"},
        {"- {name: a, template: stack, x: a}\n", "x.yaml:1:33: x: not for the template stack"},
        {"- {name: a, template: stack, y: tpot}\n", "y: not for the template stack"},
        {"- {name: a, template: stack, series: [kv.store]}\n", "series: not for the template stack"},
        {"- {name: a, template: stack, reference: mem_kv}\n", "reference: not for the template stack"},
        {"- {name: a, template: stack, logy: false}\n", "logy: not for the template stack"},
        {"- {name: a, template: stack, only: weights}\n", "x.yaml:1:36: expected all or kv"},
        {"- {name: a, template: stack, at: [kv.store]}\n", "expected at most 16 axes and their values"},
        {"- {name: a, template: stack, at: {kv.store: [paged]}}\n", "expected a text"},
        {"- {template: stack}\n", "needs its name"},
        {"- {name: a, y: tpot, x: a, tittle: pie}\n", "did you mean \"title\"?"},
        {"- {name: a, y: tpot, x: a, logx: maybe}\n", "true or false"},
        {"- {name: a, y: tpot, x: a}\n- {name: a, y: tpot, x: a}\n", "two plots have the name"},
        {"- {y: tpot, x: a}\n", "needs its name"},
        {"name: a\n", "a list of plots"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlab_plot_spec s[DLAB_PLOT_MAX];
        size_t n;
        dlab_error err = {0};
        ck_assert_int_ne(parse(bad[i].yaml, s, &n, &err), DLAB_OK);
        ck_assert_uint_eq(n, 0);
        ck_assert_msg(strstr(err.msg, bad[i].says) != NULL, "%s\n  does not say: %s", err.msg, bad[i].says);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plot");
    TCase *c = tcase_create("plot");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, lines_data_has_gaps_not_zeros);
    tcase_add_test(c, bars_data_has_a_column_a_series);
    tcase_add_test(c, reference_is_a_column);
    tcase_add_test(c, zeros_on_a_logarithmic_axis_are_told);
    tcase_add_test(c, zero_on_the_x_axis_is_told);
    tcase_add_test(c, script_quotes_what_it_is_given);
    tcase_add_test(c, pictures_are_drawn);
    tcase_add_test(c, nothing_measured_is_still_a_plot);
    tcase_add_test(c, without_gnuplot_data_and_script_stay);
    tcase_add_test(c, gnuplots_complaint_is_told);
    tcase_add_test(c, section_is_read);
    tcase_add_test(c, stack_and_reference_are_read);
    tcase_add_test(c, mistakes_are_named);
    suite_add_tcase(s, c);
    return run_suite(s);
}

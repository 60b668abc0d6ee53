#include <limits.h>
#include <unistd.h>

#include "base/file.h"
#include "plots/plot.h"
#include "tests/results/synthetic.h"

#define TEMPLATES DLAB_SOURCE_DIR "/plots/templates"

static char folder[PATH_MAX];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/dlab plots %ld XXXXXX", (long)getpid());
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[PATH_MAX + 32];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

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

static char *read_out(const char *name, const char *extension)
{
    char path[PATH_MAX + 128], *text;
    size_t n;
    dlab_error err = {0};
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, extension);
    ck_assert_msg(dlab_file_read(path, 1 << 24, &text, &n, &err) == DLAB_OK, "%s", err.msg);
    return text;
}

static bool draw(const dlab_record *r, const dlab_plot_spec *s)
{
    dlab_error err = {0};
    bool made = false;
    ck_assert_msg(dlab_plot_render(r, s, TEMPLATES, folder, &made, &err) == DLAB_OK, "%s", err.msg);
    return made;
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

static dlab_status parse(const char *yaml, dlab_plot_spec *out, size_t *n, dlab_error *err)
{
    dlab_yaml *y;
    ck_assert_int_eq(dlab_yaml_parse("x.yaml", yaml, strlen(yaml), &y, err), DLAB_OK);
    dlab_status st = dlab_plot_parse(y, dlab_yaml_root(y), out, n, err);
    dlab_yaml_destroy(y);
    return st;
}

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

START_TEST(mistakes_are_named)
{
    static const struct {
        const char *yaml, *says;
    } bad[] = {
        {"- {name: ../x, y: tpot, x: a}\n", "cannot be a file's name"},
        {"- {name: a, y: tpt, x: a}\n", "x.yaml:1:16: unknown metric \"tpt\"; did you mean \"tpot\"?"},
        {"- {name: a, y: tpot}\n", "needs x"},
        {"- {name: a, y: tpot, x: a, template: pie}\n", "expected lines or bars"},
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
    tcase_add_test(c, script_quotes_what_it_is_given);
    tcase_add_test(c, pictures_are_drawn);
    tcase_add_test(c, nothing_measured_is_still_a_plot);
    tcase_add_test(c, without_gnuplot_data_and_script_stay);
    tcase_add_test(c, gnuplots_complaint_is_told);
    tcase_add_test(c, section_is_read);
    tcase_add_test(c, mistakes_are_named);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* What the tests of plots share: a folder to draw in, and reading back what was drawn. */
#ifndef DLAB_TESTS_PLOTS_FIXTURE_H
#define DLAB_TESTS_PLOTS_FIXTURE_H

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

static inline char *read_out(const char *name, const char *extension)
{
    char path[PATH_MAX + 128], *text;
    size_t n;
    dlab_error err = {0};
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, extension);
    ck_assert_msg(dlab_file_read(path, 1 << 24, &text, &n, &err) == DLAB_OK, "%s", err.msg);
    return text;
}

/* Whether there are pictures: not without gnuplot. */
static inline bool draw(const dlab_record *r, const dlab_plot_spec *s)
{
    dlab_error err = {0};
    bool made = false;
    ck_assert_msg(dlab_plot_render(r, s, TEMPLATES, folder, &made, &err) == DLAB_OK, "%s", err.msg);
    return made;
}

static inline dlab_status parse(const char *yaml, dlab_plot_spec *out, size_t *n, dlab_error *err)
{
    dlab_yaml *y;
    ck_assert_int_eq(dlab_yaml_parse("x.yaml", yaml, strlen(yaml), &y, err), DLAB_OK);
    dlab_status st = dlab_plot_parse(y, dlab_yaml_root(y), out, n, err);
    dlab_yaml_destroy(y);
    return st;
}

static inline int run_suite(Suite *s)
{
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

#endif

/* dlab plot: the pictures that a record's experiment asks for. */
#include <string.h>

#include "base/file.h"
#include "harness/cmd/cmd_record.h"
#include "harness/cmd/cmd_util.h"

typedef struct {
    const char *record, *dir;
} plot_opts;

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    plot_opts *o = opts;
    if (key == ARGP_KEY_ARG) return dlab_cmd_one_arg("record", arg, &o->record, err);
    o->dir = arg;
    return DLAB_OK;
}

static const struct argp_option options[] = {
    {"dir", 'd', "DIR", 0, "where the files go (default: RECORD.plots beside the record)", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "plot",
    .args = "RECORD.h5",
    .about = "Draws the plots of a record's experiment: for each a .dat, an editable .gp, an .svg and a .png.",
    .example = "  dlab plot quickstart.h5 -d pictures",
    .options = options,
    .set = set,
};

static dlab_status default_dir(const char *record, char *buf, size_t size, dlab_error *err)
{
    size_t n = strlen(record);
    if (n > 3 && strcmp(record + n - 3, ".h5") == 0) n -= 3;
    int len = snprintf(buf, size, "%.*s.plots", (int)n, record);
    if (len < 0 || (size_t)len >= size) return DLAB_FAIL(err, DLAB_EUSAGE, "the record's path is too long");
    return DLAB_OK;
}

static dlab_status draw(const dlab_cmd_record *r, const char *dir, dlab_error *err)
{
    char templates[PATH_MAX];
    if (!dlab_cmd_share_path("plots/templates", templates, sizeof templates)) {
        return DLAB_FAIL(err, DLAB_EIO, "the plot templates are not found: neither beside the program nor in %s",
                         DLAB_DATA_DIR);
    }
    DLAB_TRY(dlab_dir_make(dir, err));
    bool pictures = true;
    for (size_t i = 0; i < r->n_plots; i++) {
        bool made = false;
        DLAB_TRY(dlab_plot_render(&r->record, &r->plots[i], templates, dir, &made, err));
        pictures = pictures && made;
        printf("%s/%s.%s\n", dir, r->plots[i].name, made ? "svg" : "gp");
        if (made) printf("%s/%s.png\n", dir, r->plots[i].name);
    }
    if (!pictures) fprintf(stderr, "dlab plot: gnuplot is not on PATH: only .dat and .gp were written\n");
    return DLAB_OK;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    plot_opts o = {0};
    bool helped = false;
    char dir[PATH_MAX];
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    if (!o.record) return DLAB_FAIL(err, DLAB_EUSAGE, "a record is expected: dlab plot RECORD.h5");
    if (o.dir && !*o.dir) return DLAB_FAIL(err, DLAB_EUSAGE, "-d: empty, expected a folder");
    if (!o.dir) DLAB_TRY(default_dir(o.record, dir, sizeof dir, err));
    dlab_cmd_record r;
    dlab_status st = dlab_cmd_record_read(o.record, &r, err);
    if (st == DLAB_OK && !r.n_plots) {
        st = DLAB_FAIL(err, DLAB_EUSAGE, "%s: its experiment has no `plots:` section, so there is nothing to draw",
                       o.record);
    }
    if (st == DLAB_OK) st = draw(&r, o.dir ? o.dir : dir, err);
    dlab_cmd_record_free(&r);
    return st;
}

const dlab_command dlab_command_plot = {
    .name = "plot", .summary = "the pictures of a record, through gnuplot", .run = run};

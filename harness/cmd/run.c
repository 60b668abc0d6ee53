/* dlab run: an experiment file → measured runs in a record, a table, plots. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "harness/cmd/cmd_record.h"
#include "harness/cmd/cmd_util.h"
#include "harness/run/run.h"

enum { KEY_DRY = DLAB_CMD_KEY, KEY_RESUME, KEY_FORCE, KEY_STRICT, KEY_PLOTS, KEY_FORMAT, KEY_FAULT };

#define MAX_SETS 256

typedef struct {
    const char *file, *out, *model, *format, *plots, *fault;
    char isa[64]; /* "isa=NAME" */
    const char *sets[MAX_SETS];
    size_t n_sets;
    bool dry_run, resume, force, strict, quiet;
} run_opts;

static const char *const formats[] = {"md", "csv", "json", NULL};

static dlab_status not_empty(const char *flag, const char *arg, const char **out, dlab_error *err)
{
    if (!*arg) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: empty, expected a path", flag);
    *out = arg;
    return DLAB_OK;
}

static dlab_status add_set(run_opts *o, const char *arg, dlab_error *err)
{
    if (o->n_sets == MAX_SETS) return DLAB_FAIL(err, DLAB_EUSAGE, "--set: more than %d of them", MAX_SETS);
    o->sets[o->n_sets++] = arg;
    return DLAB_OK;
}

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    run_opts *o = opts;
    switch (key) {
    case ARGP_KEY_ARG:
        return dlab_cmd_one_arg("experiment file", arg, &o->file, err);
    case 'o':
        return not_empty("-o", arg, &o->out, err);
    case 'm':
        return not_empty("-m", arg, &o->model, err);
    case DLAB_CMD_KEY_SET:
        return add_set(o, arg, err);
    case DLAB_CMD_KEY_ISA:
        snprintf(o->isa, sizeof o->isa, "isa=%.48s", arg);
        return add_set(o, o->isa, err);
    case KEY_PLOTS:
        return not_empty("--plots", arg, &o->plots, err);
    case KEY_FORMAT:
        return dlab_cmd_choice("--format", arg, formats, &o->format, err);
    case KEY_FAULT:
        o->fault = arg;
        return dlab_fault_check(arg, err);
    case KEY_DRY:
        o->dry_run = true;
        break;
    case KEY_RESUME:
        o->resume = true;
        break;
    case KEY_FORCE:
        o->force = true;
        break;
    case KEY_STRICT:
        o->strict = true;
        break;
    default:
        o->quiet = true;
        break;
    }
    return DLAB_OK;
}

static const struct argp_option options[] = {
    {"out", 'o', "OUT.h5", 0, "the record (default: NAME-TIME.h5 in this folder)", 0},
    {"model", 'm', "MODEL", 0, "in place of the experiment's model: a GGUF file or synthetic:NAME", 0},
    {"set", DLAB_CMD_KEY_SET, "KEY=VALUE", 0,
     "over the file: an axis, workload. or measure. key; a list sweeps; repeatable", 0},
    DLAB_CMD_OPT_ISA,
    {"dry-run", KEY_DRY, NULL, 0, "only say what would be run, with the memory of each point", 0},
    {"resume", KEY_RESUME, NULL, 0, "go on with the record given by -o: what is there and unchanged is not run again",
     0},
    {"force", KEY_FORCE, NULL, 0, "replace a record that exists", 0},
    {"strict", KEY_STRICT, NULL, 0, "exit 1 also when a point is oom, skipped or truncated", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {"plots", KEY_PLOTS, "DIR", 0, "where the plots go (default: OUT.plots); none: no plots", 0},
    {"format", KEY_FORMAT, "FORMAT", 0, "of the table: md (default), csv or json", 0},
    {"fault", KEY_FAULT, "KIND@POINT,...", OPTION_HIDDEN, "for tests: docs/worker.md", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "run",
    .args = "EXPERIMENT.yaml",
    .about =
        "Runs an experiment: every point of its sweep in a worker process, every run kept in a record, then the table "
        "and the plots that the experiment asks for.",
    .example = "  dlab run experiments/quickstart.yaml\n"
               "  dlab run experiments/quickstart.yaml --dry-run -m synthetic:tiny\n"
               "  dlab run experiments/quickstart.yaml -o q.h5 --set measure.repeats=10 --resume",
    .options = options,
    .set = set,
};

/* ---- names ---------------------------------------------------------------------------------------------------------- */

/* An experiment of ours is found from anywhere by the path that it has in the source, experiments/quickstart.yaml, or by
 * its name, quickstart. */
static const char *find_experiment(const char *file, char *buf, size_t size)
{
    char by_name[160];
    if (dlab_file_exists(file) || *file == '/') return file;
    if (dlab_cmd_share_path(file, buf, size)) return buf;
    if (strchr(file, '/') || strlen(file) > 100) return file;
    snprintf(by_name, sizeof by_name, "experiments/%s.yaml", file);
    return dlab_cmd_share_path(by_name, buf, size) ? buf : file;
}

static dlab_status default_out(const char *name, char *buf, size_t size, dlab_error *err)
{
    char stamp[32];
    struct tm utc;
    time_t now = time(NULL);
    if (!gmtime_r(&now, &utc) || strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc) == 0) {
        return DLAB_FAIL(err, DLAB_EINTERNAL, "the time cannot be written");
    }
    snprintf(buf, size, "%s-%s.h5", name, stamp);
    for (int i = 2; dlab_file_exists(buf); i++) snprintf(buf, size, "%s-%s-%d.h5", name, stamp, i);
    return DLAB_OK;
}

static dlab_status check_out(const run_opts *o, dlab_error *err)
{
    if (o->resume && !o->out) return DLAB_FAIL(err, DLAB_EUSAGE, "--resume: which record? give it with -o");
    if (o->resume && o->force) return DLAB_FAIL(err, DLAB_EUSAGE, "--resume and --force contradict each other");
    if (!o->out) return DLAB_OK;
    return dlab_cmd_record_check_out("-o", o->out, o->resume || o->force, "go on with --resume, ", err);
}

/* ---- after the sweep ------------------------------------------------------------------------------------------------ */

static dlab_status print_table(const dlab_spec *spec, const dlab_record *r, const char *format, dlab_error *err)
{
    dlab_table table = {0};
    char *text = NULL;
    dlab_status st = dlab_report_build(r, &spec->report, &table, err);
    if (st == DLAB_OK) st = dlab_table_render(&table, format, &text, err);
    if (st == DLAB_OK) st = dlab_cmd_print(text, err);
    free(text);
    dlab_table_free(&table);
    return st;
}

/* With json or csv standard output is that document alone; the paths go to standard error then. */
static FILE *paths_stream(const run_opts *o) { return o->format == formats[0] ? stdout : stderr; }

static bool wants_plots(const run_opts *o, const dlab_spec *spec)
{
    return spec->n_plots > 0 && !(o->plots && strcmp(o->plots, "none") == 0);
}

/* Made before anything is measured: a folder that cannot be written should not be found out after the sweep. */
static dlab_status make_plots_dir(const run_opts *o, const char *out, char *dir, size_t size, dlab_error *err)
{
    size_t n = strlen(out);
    if (n > 3 && strcmp(out + n - 3, ".h5") == 0) n -= 3;
    int len = o->plots ? snprintf(dir, size, "%s", o->plots) : snprintf(dir, size, "%.*s.plots", (int)n, out);
    if (len < 0 || (size_t)len >= size) return DLAB_FAIL(err, DLAB_EUSAGE, "--plots: the path is too long");
    DLAB_TRY(dlab_dir_make(dir, err));
    if (access(dir, W_OK | X_OK) == 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "%s: cannot be written: %s (--plots DIR names another folder)", dir,
                     strerror(errno));
}

static dlab_status draw_plots(const run_opts *o, const dlab_spec *spec, const dlab_record *r, const char *dir,
                              dlab_error *err)
{
    char templates[PATH_MAX];
    if (!wants_plots(o, spec)) return DLAB_OK;
    if (!dlab_cmd_share_path("plots/templates", templates, sizeof templates)) {
        return DLAB_FAIL(err, DLAB_EIO,
                         "the plot templates are not found beside the program; --plots none does without");
    }
    bool pictures = true;
    for (size_t i = 0; i < spec->n_plots; i++) {
        bool made = false;
        dlab_error e = {0};
        dlab_status st = dlab_plot_render(r, &spec->plots[i], templates, dir, &made, &e);
        if (st == DLAB_EUSAGE && o->n_sets > 0) { /* the point that it speaks of is set away */
            fprintf(stderr, "dlab run: %s\n", e.msg);
            continue;
        }
        if (st != DLAB_OK) return DLAB_FAIL(err, st, "%s", e.msg);
        fprintf(paths_stream(o), "plots: %s/%s.%s\n", dir, spec->plots[i].name, made ? "svg" : "gp");
        pictures = pictures && made;
    }
    if (!pictures) fprintf(stderr, "dlab run: gnuplot is not on PATH: only .dat and .gp were written\n");
    return DLAB_OK;
}

static void warn_synthetic(const dlab_spec *spec)
{
    for (size_t i = 0; i < spec->n_points; i++) {
        if (strncmp(spec->points[i].model, "synthetic:", 10) != 0) continue;
        fprintf(stderr, "dlab run: %s has random weights: times and memory are real, quality figures mean nothing\n",
                spec->points[i].model);
        return;
    }
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static dlab_status sweep(const dlab_cmd_ctx *ctx, const run_opts *o, const dlab_spec *spec, const char *command,
                         int *exit_code, dlab_error *err)
{
    char unique[PATH_MAX], dir[PATH_MAX] = "";
    const char *out = o->out;
    dlab_record record;
    if (!out) {
        DLAB_TRY(default_out(spec->name, unique, sizeof unique, err));
        out = unique;
    }
    if (wants_plots(o, spec)) DLAB_TRY(make_plots_dir(o, out, dir, sizeof dir, err));
    if (!o->quiet) warn_synthetic(spec);
    dlab_runner_opts opts = {.out_path = out,
                             .command_line = command,
                             .fault = o->fault,
                             .resume = o->resume,
                             .progress = !o->quiet,
                             .interrupted = ctx->interrupted};
    dlab_status st = dlab_runner_run(spec, &opts, &record, err);
    if (st == DLAB_EINTERRUPTED) {
        dlab_record_free(&record);
        return DLAB_FAIL(err, st, "interrupted; %s keeps what is done, --resume -o %s goes on", out, out);
    }
    if (st == DLAB_OK) st = print_table(spec, &record, o->format, err);
    if (st == DLAB_OK) fprintf(paths_stream(o), "%srecord: %s\n", o->format == formats[0] ? "\n" : "", out);
    if (st == DLAB_OK) st = draw_plots(o, spec, &record, dir, err);
    *exit_code = dlab_runner_exit_code(&record, o->strict);
    dlab_record_free(&record);
    return st;
}

/* A model that is only looked for because the experiment may name none must not be an error when it does. */
static dlab_status read_spec(run_opts *o, dlab_spec **spec, dlab_error *err)
{
    char path[PATH_MAX], model[PATH_MAX], model_set[PATH_MAX + 8];
    if (o->model) {
        DLAB_TRY(dlab_cmd_model_path(o->model, model, sizeof model, err));
        snprintf(model_set, sizeof model_set, "model=%s", model);
        DLAB_TRY(add_set(o, model_set, err));
    }
    const char *fallback = dlab_cmd_model_path(NULL, model, sizeof model, NULL) == DLAB_OK ? model : NULL;
    return dlab_spec_read(find_experiment(o->file, path, sizeof path), o->sets, o->n_sets, fallback, spec, err);
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    run_opts o = {.format = formats[0]};
    bool helped = false;
    dlab_spec *spec = NULL;
    char *plan = NULL, *command = dlab_cmd_line(argc, argv); /* before argp sorts the words */
    dlab_status st = DLAB_OK;
    DLAB_TRY_DONE(st, dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) goto done;
    if (!o.file) {
        st = DLAB_FAIL(err, DLAB_EUSAGE, "an experiment file is expected: dlab run EXPERIMENT.yaml");
        goto done;
    }
    if (!o.dry_run) DLAB_TRY_DONE(st, check_out(&o, err));
    DLAB_TRY_DONE(st, read_spec(&o, &spec, err));
    if (o.dry_run) {
        st = dlab_runner_plan_text(spec, &plan, err);
        if (st == DLAB_OK) st = dlab_cmd_print(plan, err);
    } else {
        st = sweep(ctx, &o, spec, command, exit_code, err);
    }

done:
    free(plan);
    free(command);
    dlab_spec_destroy(spec);
    return st;
}

const dlab_command dlab_command_run = {.name = "run", .summary = "an experiment, from its file to a table", .run = run};

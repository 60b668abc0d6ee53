/* dlab calibrate: what this machine does at most, for the metrics that compare a run with it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/int.h"
#include "base/team.h"
#include "base/text.h"
#include "harness/cmd/cmd_util.h"
#include "harness/probes/calibration.h"

enum { KEY_FORCE = DLAB_CMD_KEY };

typedef struct {
    int64_t threads[DLAB_CALIBRATION_THREADS];
    size_t n_threads;
    const char *isa, *format;
    bool force;
} calibrate_opts;

static const char *const formats[] = {"md", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    calibrate_opts *o = opts;
    dlab_plan plan;
    switch (key) {
    case 't':
        return dlab_cmd_int_list("-t", arg, 1, DLAB_TEAM_MAX, o->threads, &o->n_threads, DLAB_CALIBRATION_THREADS, err);
    case DLAB_CMD_KEY_ISA:
        dlab_plan_default(&plan);
        DLAB_TRY(dlab_cmd_set_isa(&plan, arg, err));
        o->isa = plan.isa; /* the table's own word */
        return DLAB_OK;
    case KEY_FORCE:
        o->force = true;
        return DLAB_OK;
    default:
        return dlab_cmd_choice("-o", arg, formats, &o->format, err);
    }
}

static const struct argp_option options[] = {
    {"threads", 't', "LIST", 0, "numbers of threads: 2 or 1,2,4 or 1-8*2 (default: 1, 2, 4 … all cores we may use)", 0},
    DLAB_CMD_OPT_ISA,
    {"force", KEY_FORCE, NULL, 0, "measure again what is kept already", 0},
    {"output", 'o', "FORMAT", 0, "md (default) or json", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "calibrate",
    .about =
        "Measures what this machine does at most: bytes read a second by working set, FP32, int8 and bf16 operations a "
        "second, for each number of threads, in under 20 seconds. The figures are kept in the cache folder and give "
        "every later run its roofline, mbu and mfu. `bench` and `run` make a quick calibration themselves where "
        "there is none; DLAB_CALIBRATION=off in the environment stops them. The machine should do nothing else.",
    .example = "  dlab calibrate\n  dlab calibrate -t 1-8*2 --isa avx2 --force -o json",
    .options = options,
    .set = set,
};

static void default_threads(calibrate_opts *o)
{
    const int64_t all = dlab_min_i64(dlab_cores_usable(), DLAB_TEAM_MAX);
    for (int64_t n = 1; n < all && o->n_threads + 1 < DLAB_CALIBRATION_THREADS; n *= 2) o->threads[o->n_threads++] = n;
    o->threads[o->n_threads++] = all;
}

/* What was measured in passing is measured again, with more tries. */
static size_t select_missing(const calibrate_opts *o, const dlab_calibration *c, int64_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_threads; i++) {
        const dlab_calibrated *of = dlab_calibration_find(c, o->threads[i]);
        bool twice = false;
        for (size_t k = 0; k < n; k++) twice = twice || out[k] == o->threads[i];
        if (!twice && (o->force || !of || of->quick)) out[n++] = o->threads[i];
    }
    return n;
}

/* ---- output ---------------------------------------------------------------------------------------------------------- */

static void print_operations(const dlab_calibration *c, const char *name, size_t offset)
{
    printf("| %-24s |", name);
    for (size_t i = 0; i < c->n; i++) {
        double per_second;
        memcpy(&per_second, (const char *)c->threads[i].rows + offset, sizeof per_second);
        printf(" %11.1f |", per_second / 1e9);
    }
    putchar('\n');
}

/* Thread counts that were measured at other times may have other working sets: their rows are those that fit. */
static void print_reads(const dlab_calibration *c)
{
    const dlab_calibrated *most = &c->threads[0];
    for (size_t i = 1; i < c->n; i++)
        if (c->threads[i].n > most->n) most = &c->threads[i];
    for (size_t r = 0; r < most->n; r++) {
        char size[32], name[64];
        const double bytes = most->rows[r].bytes;
        dlab_text_bytes(bytes, size, sizeof size);
        snprintf(name, sizeof name, "read %s, GB/s", size);
        printf("| %-24s |", name);
        for (size_t i = 0; i < c->n; i++) {
            const dlab_calibrated *of = &c->threads[i];
            size_t k = 0;
            while (k < of->n && of->rows[k].bytes != bytes) k++;
            if (k < of->n)
                printf(" %11.1f |", of->rows[k].read_ps / 1e9);
            else
                printf(" %*s |", 13, "–"); /* three bytes, one character */
        }
        putchar('\n');
    }
}

static void print_table(const dlab_calibration *c, const char *path)
{
    const char *cpu = dlab_settings_get(&c->machine, "cpu_model");
    printf("%s, isa %s\n\n| %-24s |", cpu ? cpu : "this machine", c->isa, "at most");
    for (size_t i = 0; i < c->n; i++)
        printf(" %3" PRId64 " %-7s |", c->threads[i].threads, c->threads[i].threads == 1 ? "thread" : "threads");
    printf("\n| ------------------------ |");
    for (size_t i = 0; i < c->n; i++) printf(" ----------: |");
    putchar('\n');
    print_operations(c, "FP32, GFLOP/s", offsetof(dlab_peak_row, f32_ps));
    print_operations(c, "bf16, GFLOP/s", offsetof(dlab_peak_row, bf16_ps));
    print_operations(c, "int8, GOP/s", offsetof(dlab_peak_row, int8_ps));
    print_reads(c);
    printf("\nkept in %s\n", path);
}

static dlab_status print(const calibrate_opts *o, const dlab_calibration *c, const char *path, dlab_error *err)
{
    if (o->format == formats[1]) return dlab_cmd_print_json(dlab_calibration_json(c), err);
    print_table(c, path);
    return DLAB_OK;
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static dlab_status calibrate(const dlab_cmd_ctx *ctx, const calibrate_opts *o, dlab_calibration *c, const char *path,
                             dlab_error *err)
{
    int64_t missing[DLAB_CALIBRATION_THREADS];
    dlab_error e = {0};
    if (dlab_calibration_load(c, path, &e) != DLAB_OK) fprintf(stderr, "dlab calibrate: %s\n", e.msg);
    const size_t n = select_missing(o, c, missing);
    if (n == 0) {
        fprintf(stderr, "dlab calibrate: nothing to measure, the figures are kept; --force measures again\n");
        return DLAB_OK;
    }
    const dlab_calibration_opts opts = {
        .threads = missing, .n_threads = n, .seconds = DLAB_CALIBRATION_S, .interrupted = ctx->interrupted};
    DLAB_TRY(dlab_calibration_make_room(path, err));
    DLAB_TRY(dlab_calibration_measure(c, &opts, err));
    return dlab_calibration_save_with(c, missing, n, path, err);
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    calibrate_opts o = {.isa = "auto", .format = formats[0]};
    dlab_calibration c = {0};
    char path[PATH_MAX];
    bool helped = false;
    *exit_code = 0;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    if (o.n_threads == 0) default_threads(&o);
    dlab_status st;
    DLAB_TRY_DONE(st, dlab_calibration_init(&c, o.isa, err));
    DLAB_TRY_DONE(st, dlab_calibration_path(&c, path, sizeof path, err));
    DLAB_TRY_DONE(st, calibrate(ctx, &o, &c, path, err));
    st = print(&o, &c, path, err);
done:
    dlab_calibration_free(&c);
    return st;
}

const dlab_command dlab_command_calibrate = {
    .name = "calibrate", .summary = "what this machine does at most", .run = run};

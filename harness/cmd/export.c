/* dlab export: a whole record for other programs. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "harness/cmd/cmd_util.h"
#include "results/export.h"

enum { KEY_FORMAT = DLAB_CMD_KEY, KEY_RUNS, KEY_TABLE };

typedef struct {
    const char *record, *format, *file, *table;
    bool runs;
} export_opts;

static const char *const formats[] = {"csv", "json", "md", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    export_opts *o = opts;
    switch (key) {
    case ARGP_KEY_ARG:
        return dlab_cmd_one_arg("record", arg, &o->record, err);
    case 'o':
        o->file = arg;
        return DLAB_OK;
    case KEY_RUNS:
        o->runs = true;
        return DLAB_OK;
    case KEY_TABLE:
        return dlab_cmd_choice("--table", arg, dlab_export_tables, &o->table, err);
    default:
        return dlab_cmd_choice("--format", arg, formats, &o->format, err);
    }
}

static const struct argp_option options[] = {
    {"format", KEY_FORMAT, "FORMAT", 0, "csv (default), json or md", 0},
    {"runs", KEY_RUNS, NULL, 0, "a row for each run instead of each point", 0},
    {"table", KEY_TABLE, "TABLE", 0,
     "a row for each event of each run: requests, tokens, steps (memory of the KV store over time), memory or quality; "
     "or for each working set: peaks (what the machine does at most)",
     0},
    {"output", 'o', "FILE", 0, "write there (whole or not at all) instead of to standard output", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "export",
    .args = "RECORD.h5",
    .about = "Prints every axis and every metric of a record, one row a point. Units are in the column names.",
    .example =
        "  dlab export quickstart.h5 --format csv -o quickstart.csv\n  dlab export quickstart.h5 --format json --runs\n"
        "  dlab export quickstart.h5 --table steps -o steps.csv",
    .options = options,
    .set = set,
};

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    export_opts o = {.format = formats[0]};
    bool helped = false;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    if (!o.record) return DLAB_FAIL(err, DLAB_EUSAGE, "a record is expected: dlab export RECORD.h5");
    if (o.runs && o.table) return DLAB_FAIL(err, DLAB_EUSAGE, "--runs and --table exclude each other");
    dlab_record rec;
    char *text = NULL;
    dlab_status st = DLAB_OK;
    dlab_record_init(&rec);
    DLAB_TRY_DONE(st, dlab_record_read(o.record, &rec, err));
    st = o.table ? dlab_export_table(&rec, o.table, o.format, &text, err)
                 : dlab_export(&rec, o.format, o.runs, &text, err);
    if (st != DLAB_OK) goto done;
    if (o.file)
        st = dlab_file_write_atomic(o.file, text, strlen(text), err);
    else
        st = dlab_cmd_print(text, err);
done:
    free(text);
    dlab_record_free(&rec);
    return st;
}

const dlab_command dlab_command_export = {
    .name = "export", .summary = "a record as CSV, JSON or Markdown, for other programs", .run = run};

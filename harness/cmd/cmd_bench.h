/* dlab bench in three parts: flags and flow (bench.c), cells and their measurement (cmd_bench_cell.c), rows in five formats
 * (cmd_bench_out.c). */
#ifndef DLAB_HARNESS_CMD_CMD_BENCH_H
#define DLAB_HARNESS_CMD_CMD_BENCH_H

#include "harness/cmd/cmd_util.h"
#include "harness/run/session.h"

#define DLAB_BENCH_LIST 64 /* values of one flag */

typedef struct {
    int64_t v[DLAB_BENCH_LIST];
    size_t n;
} dlab_bench_ints;

typedef struct {
    const char *v[DLAB_BENCH_LIST];
    size_t n;
} dlab_bench_words;

typedef struct {
    dlab_bench_words model, ctk, ctv, fa; /* ctk, ctv: names of kv.k; fa: names of attention.kernel */
    dlab_bench_ints prompt, gen, pg_prompt, pg_gen, depth, n_batch, n_ubatch, threads, npl;
    int64_t repeats, delay_s;
    bool no_warmup, progress, overhead, strict;
    const char *format, *err_format; /* err_format NULL: nothing on standard error */
    dlab_plan plan;
} dlab_bench_opts;

/* One row: a test of one configuration. */
typedef struct {
    dlab_plan plan;
    int64_t n_prompt, n_gen, depth, npl;
} dlab_bench_cell;

typedef struct {
    double mean, sd; /* over the repeats; NaN: missing */
    size_t n;
} dlab_bench_stat;

typedef struct {
    const dlab_bench_cell *cell;
    const dlab_model_info *model;
    const char *model_path;
    dlab_plan plan; /* effective where the cell ran, else as asked */
    dlab_run_status status;
    char reason[DLAB_ERROR_MSG];
    double started_unix;
    double *time_ns, *rate, *ttft_ms, *tpot_ms; /* [n], by repeat */
    size_t n;
    double mem_peak; /* bytes, the highest of the repeats; NaN: unknown */
} dlab_bench_row;

/* All cells of one model, in llama-bench's order. *out is malloc'd. */
dlab_status dlab_bench_cells(const dlab_bench_opts *o, dlab_bench_cell **out, size_t *n, dlab_error *err);
/* "pp512", "tg128", "pp512+tg128", with " @ d1024" and " npl4" where they apply. */
void dlab_bench_test_name(const dlab_bench_cell *c, char *buf, size_t size);
/* Measures the cell. Its failure is the row's status; errors are DLAB_EINTERRUPTED and memory for the row itself. */
dlab_status dlab_bench_measure(const dlab_bench_opts *o, const dlab_bench_cell *c, const dlab_model *m,
                               const char *model_path, const volatile sig_atomic_t *interrupted, dlab_bench_row *out,
                               dlab_error *err);
void dlab_bench_row_free(dlab_bench_row *r);
/* Sample standard deviation (n − 1), missing under two values. */
dlab_bench_stat dlab_bench_stat_of(const double *x, size_t n);

extern const char *const dlab_bench_formats[]; /* md, csv, json, jsonl, sql */

typedef struct {
    FILE *to;
    const char *format;
    const dlab_bench_opts *opts;
    char cpu[128];   /* the machine's, for the rows */
    int model_width; /* of the longest model's name and type; md only */
    size_t n_rows;
} dlab_bench_out;

/* "NAME TYPE", as the model column has it. */
void dlab_bench_model_type(const dlab_model_info *m, char *buf, size_t size);
/* Rows are printed as they come; between begin and end, "json" is one document. */
void dlab_bench_out_begin(dlab_bench_out *o);
dlab_status dlab_bench_out_row(dlab_bench_out *o, const dlab_bench_row *r, dlab_error *err);
void dlab_bench_out_end(dlab_bench_out *o);

#endif

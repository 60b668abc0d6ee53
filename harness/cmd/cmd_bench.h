/* dlab bench in five parts: flags and flow (bench.c), cells and their measurement (cmd_bench_cell.c), a peer in turns with
 * it (cmd_bench_peer.c), rows in five formats (cmd_bench_out.c), the record (cmd_bench_record.c). */
#ifndef DLAB_HARNESS_CMD_CMD_BENCH_H
#define DLAB_HARNESS_CMD_CMD_BENCH_H

#include "harness/cmd/cmd_record.h"
#include "harness/cmd/cmd_util.h"
#include "harness/peer/peer.h"
#include "harness/run/config.h"
#include "harness/run/session.h"
#include "results/ratio.h"
#include "results/record.h"

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
    const dlab_peer_kind *peer_kind;    /* NULL: ours alone */
    const char *peer_path, *peer_model; /* peer_model NULL: the model that ours runs */
    int64_t peer_flash;                 /* its fused attention: 1, 0, or −1: what is faster */
    int64_t peer_timeout_s;
    const char *record; /* NULL: none */
    bool force;
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

/* The peer's part of a row: pair i is our repeat i and the peer's run i, ours first where i is even. */
typedef struct {
    bool asked;
    dlab_run_status status; /* PENDING until the pairs are done; SKIPPED: it cannot do this cell */
    char reason[DLAB_ERROR_MSG];
    const char *model;
    dlab_peer_test test;
    char build[DLAB_PEER_BUILD];
    double *time_ns, *rate; /* [n], of the row's memory */
    size_t n;
    dlab_ratio ratio; /* ours over the peer's rate */
} dlab_bench_peer;

#define DLAB_BENCH_LEVEL 0.95 /* of the ratio's interval */

typedef struct {
    const dlab_bench_cell *cell;
    const dlab_model_info *model;
    const char *model_path;
    uint64_t model_hash; /* of the file, as in records */
    dlab_plan plan;      /* effective where the cell ran, else as asked */
    dlab_run_status status;
    char reason[DLAB_ERROR_MSG];
    double started_unix;
    double *time_ns, *rate, *ttft_ms, *tpot_ms; /* [n], by repeat */
    double *roofline, *mbu, *mfu;               /* the metrics of these names; NaN without a calibration */
    size_t n;
    double mem_peak; /* bytes, the highest of the repeats; NaN: unknown */
    dlab_run *runs;  /* [n_runs], kept where a record is written */
    size_t n_runs;
    dlab_bench_peer peer;
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
/* What a cell is in the words of an experiment. */
dlab_workload dlab_bench_workload(const dlab_bench_cell *c);
dlab_measure dlab_bench_measure_of(const dlab_bench_opts *o);

/* The peer's turns in a row. Its failure is the row's peer.status and reason; errors are DLAB_EINTERRUPTED alone. Without a
 * peer, or after its failure, they do nothing. begin: the row's plan is effective. */
dlab_status dlab_bench_peer_begin(const dlab_bench_opts *o, const volatile sig_atomic_t *interrupted,
                                  dlab_bench_row *row, dlab_error *err);
dlab_status dlab_bench_peer_turn(const dlab_bench_opts *o, const volatile sig_atomic_t *interrupted,
                                 dlab_bench_row *row, dlab_error *err);
void dlab_bench_peer_end(dlab_bench_row *row); /* the row's own status is set */
/* Sample standard deviation (n − 1), missing under two values. */
dlab_bench_stat dlab_bench_stat_of(const double *x, size_t n);

extern const char *const dlab_bench_formats[]; /* md, csv, json, jsonl, sql */

typedef struct {
    FILE *to;
    const char *format;
    const dlab_bench_opts *opts;
    char cpu[128];                 /* the machine's, for the rows */
    int model_width;               /* of the longest model's name and type; md only */
    char (*model_paths)[PATH_MAX]; /* of opts->model, as they were found */
    char peer_build[DLAB_PEER_BUILD];
    size_t n_rows, n_compared; /* n_compared: with a ratio */
} dlab_bench_out;

/* "NAME TYPE", as the model column has it. */
void dlab_bench_model_type(const dlab_model_info *m, char *buf, size_t size);
/* Rows are printed as they come; between begin and end, "json" is one document. */
void dlab_bench_out_begin(dlab_bench_out *o);
dlab_status dlab_bench_out_row(dlab_bench_out *o, const dlab_bench_row *r, dlab_error *err);
void dlab_bench_out_end(dlab_bench_out *o);

/* ---- the record ----------------------------------------------------------------------------------------------------- */

typedef struct {
    dlab_cmd_recorder to; /* without a path nothing is kept */
    dlab_measure measure;
    size_t n_rows;
} dlab_bench_record;

/* Frames a point for each cell of each model (paths and hashes are o->model's; rows come in this order), and writes the first
 * state. The machine's facts are in the record's meta afterwards. */
dlab_status dlab_bench_record_begin(dlab_bench_record *b, const dlab_bench_opts *o, const char *command,
                                    char (*paths)[PATH_MAX], const uint64_t *hashes, const dlab_bench_cell *cells,
                                    size_t n_cells, dlab_error *err);
/* Takes the next row's runs and writes the record again. */
dlab_status dlab_bench_record_row(dlab_bench_record *b, dlab_bench_row *row, dlab_error *err);
/* All rows are in. Without it the record stays as it is after the last row, incomplete but readable. */
dlab_status dlab_bench_record_end(dlab_bench_record *b, dlab_error *err);
void dlab_bench_record_free(dlab_bench_record *b);

#endif

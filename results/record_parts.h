/* The pieces of a record: one run's group, the tables of points. For record_*.c and export.c only. */
#ifndef DLAB_RESULTS_RECORD_PARTS_H
#define DLAB_RESULTS_RECORD_PARTS_H

#include "results/record.h"
#include "results/record_h5.h"

/* A run's table of events: its columns, and where dlab_run has the rows and their number. */
typedef struct {
    const char *name;
    const dlab_h5_column *columns;
    size_t n_columns, row_bytes, rows_at, n_at;
    bool later; /* older records do not have it: no rows */
} dlab_run_table;
#define DLAB_RUN_N_TABLES 6
extern const dlab_run_table dlab_run_tables[DLAB_RUN_N_TABLES];
const void *dlab_run_rows(const dlab_run *run, const dlab_run_table *t, size_t *n);

/* The group /runs/NAME with its tables and attributes. */
dlab_status dlab_record_put_run(const dlab_h5_out *o, hid_t runs, const char *name, const dlab_run *run,
                                dlab_error *err);
dlab_status dlab_record_get_run(const dlab_h5_in *in, hid_t runs, const char *name, dlab_run *run, dlab_error *err);

/* /points, /points_axes, /points_effective. Reading fills r->points without their runs. */
dlab_status dlab_record_put_points(const dlab_h5_out *o, const dlab_record *r, dlab_error *err);
dlab_status dlab_record_get_points(const dlab_h5_in *in, dlab_record *r, dlab_error *err);

/* /peer, /peer_points: written where there is something, read where they are. */
dlab_status dlab_record_put_peer(const dlab_h5_out *o, const dlab_peer_result *r, dlab_error *err);
dlab_status dlab_record_get_peer(const dlab_h5_in *in, size_t n_points, dlab_peer_result *r, dlab_error *err);

#define DLAB_RUN_NAME 24 /* "0003" */

/* /runs_index: where each run is. file is "" for a run inside this file, else relative to it. */
typedef struct {
    int32_t run, point, repeat;
    char key[17], status[16], file[512];
} dlab_record_index;
extern const dlab_h5_column dlab_record_index_columns[];
extern const size_t dlab_record_index_n_columns;

#endif

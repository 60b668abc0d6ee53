/* The HDF5 record. Layout and guarantees: docs/record.md.
 *
 * One file a run, <out>.parts/<key>.rNN.h5, then the master <out>.h5 rewritten after each run with external links to the
 * parts; at the end dlab_record_finish copies everything in and removes the parts. Every file is written as a temporary,
 * closed, synced, renamed, its folder synced. Reading takes no lock and writes nothing. */
#ifndef DLAB_RESULTS_RECORD_H
#define DLAB_RESULTS_RECORD_H

#include <stdbool.h>

#include "results/peer.h"
#include "results/run.h"

#define DLAB_SCHEMA_VERSION     4
#define DLAB_SCHEMA_VERSION_MIN 1 /* the oldest that is read */

typedef struct {
    char label[160];    /* the swept axes, "kv.store=none batch.size=4"; "the only point" if nothing is swept */
    dlab_settings axes; /* swept keys only, in the order of the experiment */
    dlab_settings effective;
    dlab_run_status status;
    char reason[512];
    char warnings[512]; /* joined by "; " */
    dlab_run **runs;    /* by repeat; owned */
    size_t n_runs, n_planned;
} dlab_point_result;

typedef struct {
    dlab_settings
        meta;        /* attributes of /meta, in order: dlab_version, command, git_revision, git_dirty, compiler, flags,
                            host, cpu_model, isa, memory_bytes, governor, device, model, model_hash, started, … */
    char *spec_text; /* /spec, the experiment file verbatim */
    size_t spec_bytes;
    char *spec_name; /* its path */
    bool complete;   /* all planned runs are in; parts are gone */
    dlab_point_result *points;
    size_t n_points;
    dlab_peer_result peer; /* of `dlab bench --peer`; empty without one */
} dlab_record;

void dlab_record_init(dlab_record *r);
void dlab_record_free(dlab_record *r);

/* The path of a run's part: "<out without .h5>.h5.parts/<key>.rNN.h5". buf of at least PATH_MAX. */
void dlab_record_part_path(const char *out_path, const char *key, int repeat, char *buf, size_t size);
dlab_status dlab_record_write_part(const char *out_path, const dlab_settings *meta, const dlab_run *run,
                                   dlab_error *err);
/* Reads a part if it is there and whole: DLAB_EIO if absent, DLAB_EFORMAT if it is not ours or damaged. */
dlab_status dlab_record_read_part(const char *path, dlab_run *out, dlab_error *err);
/* Writes the master; runs that have a part file are linked, their tables are not copied. Every run is summarized, so that
 * writing it again does not go through old runs' events. */
dlab_status dlab_record_write_master(const char *out_path, const dlab_record *r, dlab_error *err);
/* Copies everything in, writes the final file, removes the parts. Runs whose events were dropped are read back from their
 * parts first: afterwards the record in memory has every run's tables, and windows of tokens can be computed. */
dlab_status dlab_record_finish(const char *out_path, dlab_record *r, dlab_error *err);
/* Reads a master or a final file, with every run's tables. Columns that came with a later version may be missing. Bounds-checked: any damage is DLAB_EFORMAT in one line. */
dlab_status dlab_record_read(const char *path, dlab_record *out, dlab_error *err);

#endif

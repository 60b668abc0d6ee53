/* A record with the sections of its experiment that say how to show it. */
#ifndef DLAB_HARNESS_CMD_CMD_RECORD_H
#define DLAB_HARNESS_CMD_CMD_RECORD_H

#include "harness/run/config.h"
#include "plots/plot.h"
#include "results/record.h"
#include "results/report.h"

typedef struct {
    dlab_record record;
    dlab_yaml *spec; /* of record.spec_text; NULL where the record has none */
    dlab_report_spec report;
    dlab_plot_spec plots[DLAB_PLOT_MAX];
    size_t n_plots;
} dlab_cmd_record;

/* *out must be freed in any case. */
dlab_status dlab_cmd_record_read(const char *path, dlab_cmd_record *out, dlab_error *err);
void dlab_cmd_record_free(dlab_cmd_record *r);

/* Where a record is to be written: not a folder, and nothing that is there already but a record that may be replaced or
 * gone on with. flag and other ("go on with --resume, " or "") are for the messages; path is not empty. */
dlab_status dlab_cmd_record_check_out(const char *flag, const char *path, bool may_be_there, const char *other,
                                      dlab_error *err);

/* ---- a record in the making, of the commands that measure in this process ------------------------------------------- */

typedef struct {
    dlab_record record;
    const char *path; /* borrowed; NULL: none is written, the runs keep their events */
    int lock_fd;
    dlab_config_site site;
} dlab_cmd_recorder;

/* Must be freed in any case. Its meta says the machine's facts, the command (NULL: none is known) and what was measured. */
dlab_status dlab_cmd_recorder_init(dlab_cmd_recorder *r, const char *path, const char *experiment, const char *command,
                                   dlab_error *err);
/* The first points are framed: makes the folder ready and writes the first state. */
dlab_status dlab_cmd_recorder_open(dlab_cmd_recorder *r, dlab_error *err);
/* The key of a run that is no repeat of any run there is: an equal one before has the same but for a copy's number. */
dlab_status dlab_cmd_recorder_key(const dlab_cmd_recorder *r, const dlab_config_run *run, char key[17],
                                  dlab_error *err);
/* Takes *from as a run of the point. Its part is written first, so that the record never links to what is not there. */
dlab_status dlab_cmd_recorder_add(dlab_cmd_recorder *r, size_t point, dlab_run *from, const char key[17],
                                  dlab_error *err);
/* A point has changed. */
dlab_status dlab_cmd_recorder_write(const dlab_cmd_recorder *r, dlab_error *err);
/* All runs are in, and have their events again. Without it the record stays as it was written last, incomplete but readable. */
dlab_status dlab_cmd_recorder_finish(dlab_cmd_recorder *r, dlab_error *err);
void dlab_cmd_recorder_free(dlab_cmd_recorder *r);

#endif

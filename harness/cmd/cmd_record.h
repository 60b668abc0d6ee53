/* A record with the sections of its experiment that say how to show it. */
#ifndef DLAB_HARNESS_CMD_CMD_RECORD_H
#define DLAB_HARNESS_CMD_CMD_RECORD_H

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

#endif

/* The whole record for other programs: one row a point with every axis and every metric (median, sd, n), units in the
 * column names. Formats: csv, json, md. JSON is strict and has "schema": 1. */
#ifndef DLAB_RESULTS_EXPORT_H
#define DLAB_RESULTS_EXPORT_H

#include "results/record.h"

/* The tables of events that dlab_export_table knows; NULL-terminated: requests, tokens, steps, memory, quality, peaks. */
extern const char *const dlab_export_tables[];

/* Rows of points, or of runs when per_run. malloc'd text in *out. */
dlab_status dlab_export(const dlab_record *r, const char *format, bool per_run, char **out, dlab_error *err);
/* One table of every run, a row an event, behind the point's label, the point and the repeat: `steps` is the memory of the
 * KV store over time. What a run does not know is missing. The runs' events are needed. DLAB_EUSAGE: no such table. */
dlab_status dlab_export_table(const dlab_record *r, const char *table, const char *format, char **out, dlab_error *err);

#endif

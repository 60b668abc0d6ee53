/* The whole record for other programs: one row a point with every axis and every metric (median, sd, n), units in the
 * column names. Formats: csv, json, md. JSON is strict and has "schema": 1. */
#ifndef DLAB_RESULTS_EXPORT_H
#define DLAB_RESULTS_EXPORT_H

#include "results/record.h"

/* Rows of points, or of runs when per_run. malloc'd text in *out. */
dlab_status dlab_export(const dlab_record *r, const char *format, bool per_run, char **out, dlab_error *err);

#endif

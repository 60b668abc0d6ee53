/* What is already there of a record: its folder made ready, and the runs that need not be made again. */
#ifndef DLAB_HARNESS_RUN_RESUME_H
#define DLAB_HARNESS_RUN_RESUME_H

#include "harness/run/outlook.h"
#include "results/record.h"

/* Makes the folder of the parts, holds it against a second runner through *lock_fd (close it at the end), and removes what
 * a killed process left half-written; all parts as well unless `keep`. */
dlab_status dlab_resume_prepare(const char *out_path, bool keep, int *lock_fd, dlab_error *err);
/* Adds to r's points the runs of the record at out_path, and of its parts, that have the point's key and ended ok, truncated
 * or skipped. Each has a part afterwards. No record yet is fine. *n: how many. */
dlab_status dlab_resume_load(const char *out_path, const dlab_outlook *outlook, size_t repeats, dlab_record *r,
                             size_t *n, dlab_error *err);
/* Removes the folder of the parts with everything of ours in it. */
void dlab_resume_clear(const char *out_path);
/* Puts run, which it takes in any case, into its point by repeat. */
dlab_status dlab_resume_add(dlab_point_result *p, dlab_run *run, dlab_error *err);
/* NULL if the point has no such run. */
const dlab_run *dlab_resume_find(const dlab_point_result *p, int32_t repeat);

#endif

/* A point from its runs. */
#ifndef DLAB_RESULTS_POINT_H
#define DLAB_RESULTS_POINT_H

#include "results/record.h"

/* Its status and reason are those of its worst run, its warnings and effective settings follow from the runs. Without a run
 * it stays as it is. */
dlab_status dlab_point_summarize(dlab_point_result *p, dlab_error *err);

#endif

/* What a reader must know of a point that is `ok`: articles K8 and K9 watch for it, peaks that were too low, a load that was
 * not delivered. */
#ifndef DLAB_RESULTS_WARNINGS_H
#define DLAB_RESULTS_WARNINGS_H

#include "results/record.h"

/* Adds to p->warnings, after a "; " where there are some. From the runs that count; cut where the room ends. */
void dlab_point_warn(dlab_point_result *p);

#endif

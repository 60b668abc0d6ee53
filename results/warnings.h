/* What a reader must know of a point that is `ok`: articles K8 and K9 watch for it, peaks that were too low, a load that was
 * not delivered. */
#ifndef DLAB_RESULTS_WARNINGS_H
#define DLAB_RESULTS_WARNINGS_H

#include "results/record.h"

/* One more, after a "; " where there are some; cut where the room ends. */
void dlab_point_add_warning(dlab_point_result *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds to p->warnings, after a "; " where there are some. From the runs that count; cut where the room ends. */
void dlab_point_warn(dlab_point_result *p);
/* Whether the load of one of its runs that count was under 99 % of the intended: `delivery`, where the lag grew beyond chance. */
bool dlab_point_falls_short(const dlab_point_result *p);

#endif

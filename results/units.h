/* How figures are shown: stored in ns, B, FLOP; read in ms, MiB, GFLOP. */
#ifndef DLAB_RESULTS_UNITS_H
#define DLAB_RESULTS_UNITS_H

#include <stddef.h>

typedef struct {
    double factor; /* shown = stored × factor */
    const char *unit;
} dlab_scale;

/* One scale for a whole column, chosen by its median magnitude; values that are not finite or 0 have no say. */
dlab_scale dlab_scale_for(const char *unit, const double *values, size_t n);
/* "tpot" and "ms" → "tpot_ms"; units that the name carries already (tok/s) and "1" add nothing. */
void dlab_unit_column(const char *name, const char *unit, char *buf, size_t size);
/* "12.34", or "12.34 ± 0.10" when sd is finite; "–" when value is not. Four significant
 * digits, fewer where the spread makes them meaningless. */
void dlab_figure_text(double value, double sd, char *buf, size_t size);
/* The shortest decimal that reads back as v; for files. v must be finite. */
void dlab_number_text(double v, char *buf, size_t size);

#endif

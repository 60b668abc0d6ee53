/* A rectangle of figures and words, rendered as Markdown, CSV or JSON. Tables and exports look at their own data through
 * it. */
#ifndef DLAB_RESULTS_GRID_H
#define DLAB_RESULTS_GRID_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

typedef struct {
    const void *ctx;
    size_t n_rows, n_columns;
    const char *(*name)(const void *ctx, size_t column);
    bool (*numeric)(const void *ctx, size_t column);
    double (*value)(const void *ctx, size_t row, size_t column);     /* numeric columns; NaN: missing */
    const char *(*text)(const void *ctx, size_t row, size_t column); /* as a person reads it */
} dlab_grid;

/* Aligned, so that it reads well in a terminal too. */
dlab_status dlab_grid_markdown(const dlab_grid *g, FILE *out, dlab_error *err);
/* RFC 4180 quoting; lines end in LF. A missing number is an empty field. */
void dlab_grid_csv(const dlab_grid *g, FILE *out);
/* Array of one object a row; a missing number is null. NULL when memory is out. */
json_t *dlab_grid_json(const dlab_grid *g);

#endif

/* What the files of the plots share: the figures of one plot, ready to be written. */
#ifndef DLAB_PLOTS_PLOT_PARTS_H
#define DLAB_PLOTS_PLOT_PARTS_H

#include <stdio.h>

#include "plots/plot.h"

typedef struct {
    double x;         /* lines: the axis's value; bars: the category's number, from 0 */
    double y, lo, hi; /* shown unit: median, least and largest run; NaN: missing */
    int64_t n;        /* runs */
    const dlab_point_result *point;
} dlab_plot_point;

typedef struct {
    char label[160];
    int colour, mark; /* from 1: the first series axis has the colour, the others the mark */
    dlab_plot_point *points;
    size_t n_points;
} dlab_plot_series;

typedef struct {
    const dlab_record *record;
    const dlab_plot_spec *spec;
    bool bars;
    char unit[16];
    char series_title[256];   /* "kv.store / batch.size" */
    char category_title[256]; /* bars: "batch.size / kv.k" */
    dlab_plot_series *series;
    size_t n_series;
    char (*categories)[160]; /* bars */
    size_t n_categories;
    size_t most_runs; /* of any point */
} dlab_plot_data;

dlab_status dlab_plot_collect(const dlab_record *r, const dlab_plot_spec *spec, dlab_plot_data *out, dlab_error *err);
void dlab_plot_data_free(dlab_plot_data *d);

void dlab_plot_write_data(const dlab_plot_data *d, FILE *out);
/* The generated head, then the template's text. */
void dlab_plot_write_script(const dlab_plot_data *d, const char *template_text, FILE *out);
/* Text in gnuplot's single quotes: nothing in it is special but the quote. */
void dlab_plot_quote(const char *text, FILE *out);

/* Runs gnuplot on dir/script. *ran is false when there is no gnuplot; its complaint is in err when it fails. */
dlab_status dlab_plot_run(const char *dir, const char *script, bool *ran, dlab_error *err);

#endif

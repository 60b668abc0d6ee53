/* What the files of the plots share: the figures of one plot, ready to be written. */
#ifndef DLAB_PLOTS_PLOT_PARTS_H
#define DLAB_PLOTS_PLOT_PARTS_H

#include <stdio.h>

#include "plots/plot.h"

typedef struct {
    double x;         /* lines: the axis's value; bars: the category's number, from 0 */
    double y, lo, hi; /* shown unit: median, least and largest run; NaN: missing */
    double ref;       /* shown unit: median of the reference; NaN: missing or none asked for */
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

/* ---- memory over time ---- */

/* Bottom to top. */
#define DLAB_STACK_LIST(X)                                                                                             \
    X(WEIGHTS, "weights")                                                                                              \
    X(ACTIVATIONS, "activations, scratch")                                                                             \
    X(KV_USED, "KV used")                                                                                              \
    X(KV_EMPTY, "KV reserved, empty")                                                                                  \
    X(KV_CACHED, "KV cached prefixes")                                                                                 \
    X(KV_FREE, "KV free in the pool")

typedef enum {
#define DLAB_STACK_ENUM(name, text) DLAB_STACK_##name,
    DLAB_STACK_LIST(DLAB_STACK_ENUM)
#undef DLAB_STACK_ENUM
        DLAB_STACK_N
} dlab_stack_band;

typedef struct {
    double t; /* ns */
    int64_t bytes[DLAB_STACK_N];
} dlab_stack_row;

typedef struct {
    const dlab_record *record;
    const dlab_plot_spec *spec;
    const dlab_point_result *point;
    const dlab_run *run;  /* NULL: none of the point counts */
    dlab_stack_row *rows; /* each holds until the next; the first and the last repeat their neighbours */
    size_t n_rows, n_steps, n_drawn;
} dlab_plot_stack;

dlab_status dlab_plot_stack_collect(const dlab_record *r, const dlab_plot_spec *spec, dlab_plot_stack *out,
                                    dlab_error *err);
void dlab_plot_stack_free(dlab_plot_stack *s);
void dlab_plot_stack_write_data(const dlab_plot_stack *s, FILE *out);
void dlab_plot_stack_write_script(const dlab_plot_stack *s, const char *template_text, FILE *out);

/* ---- what every script and data file needs ---- */

/* Text in gnuplot's single quotes: nothing in it is special but the quote. */
void dlab_plot_quote(const char *text, FILE *out);
/* NAME = 'text' */
void dlab_plot_set(const char *name, const char *text, FILE *out);
/* A comment of the data file: one line whatever the text. */
void dlab_plot_comment(const char *text, FILE *out);
/* The script's first lines: NAME, DATA, TITLE and CAPTION, which says what made the record. */
void dlab_plot_write_head(const dlab_record *r, const dlab_plot_spec *spec, FILE *out);

/* Runs gnuplot on dir/script. *ran is false when there is no gnuplot; its complaint is in err when it fails. */
dlab_status dlab_plot_run(const char *dir, const char *script, bool *ran, dlab_error *err);

#endif

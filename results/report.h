/* From a record to the table that a person reads: points, their metrics, ratios to a baseline, measured and claimed growth,
 * and the sentences below it. Driven by the experiment's `report:` section (docs/experiments.md). */
#ifndef DLAB_RESULTS_REPORT_H
#define DLAB_RESULTS_REPORT_H

#include "base/yaml.h"
#include "results/metric.h"
#include "results/record.h"

#define DLAB_REPORT_MAX 24

/* report:
 *   metrics: [ttft, tpot, decode_tps, mem_peak]
 *   baseline: {kv.store: none}           # ratio of each point to the one that differs in these axes alone
 *   ratio: tpot                          # the metric of the ratio; above 1 is better than the baseline
 *   growth: {metric: tpot, over: workload.depth}   # exponent between successive lengths, all else equal
 *   claims: [{id: K1, article: C, at: {kv.store: none}, growth: 2, text: "attention O(n²) a step"}, {… ratio: 3.12}] */
typedef struct {
    char id[16], article[16], text[200];
    dlab_settings at;
    double ratio, growth; /* NaN: not claimed */
} dlab_claim;

typedef struct {
    const dlab_metric *metrics[DLAB_REPORT_MAX];
    size_t n_metrics;
    dlab_settings baseline;
    const dlab_metric *ratio;
    const dlab_metric *growth;
    char growth_over[64];
    dlab_claim claims[DLAB_REPORT_MAX];
    size_t n_claims;
} dlab_report_spec;

/* node: the `report:` value, or NULL for the defaults. axis_known(key) tells whether a key is an axis of the experiment's
 * language (errors name the nearest metric). */
dlab_status dlab_report_parse(const dlab_yaml *y, const dlab_yaml_node *node, dlab_report_spec *out, dlab_error *err);
void dlab_report_free(dlab_report_spec *s);

typedef struct {
    double value;  /* NaN: missing */
    char text[48]; /* as a person reads it: "12.3 ms ± 0.1", "–" when missing */
} dlab_cell;

typedef struct {
    char name[64], unit[16]; /* "tpot_ms", "ms" */
    bool numeric;
} dlab_column;

/* Columns: each swept axis, status, each metric, then ratio, growth, claimed where asked. */
typedef struct {
    dlab_column *columns;
    size_t n_columns, n_rows;
    dlab_cell *cells; /* [n_rows, n_columns] */
    char **notes;     /* sentences below: the baseline, shared token windows, failures with reason, crossings and why */
    size_t n_notes;
} dlab_table;

dlab_status dlab_report_build(const dlab_record *r, const dlab_report_spec *s, dlab_table *out, dlab_error *err);
void dlab_table_free(dlab_table *t);
/* md (aligned for a terminal too), csv, json (strict: a missing number is null). malloc'd text. */
dlab_status dlab_table_render(const dlab_table *t, const char *format, char **out, dlab_error *err);

/* The ratio of two points on one metric, above 1 when `a` is better than `base`; on metrics of decode only tokens that
 * both measured are used, and *window tells which. NaN when either is missing. */
double dlab_report_ratio(const dlab_metric *m, const dlab_point_result *a, const dlab_point_result *base,
                         dlab_metric_window *window);

#endif

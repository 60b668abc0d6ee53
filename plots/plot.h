/* Plots from a record through gnuplot: for each entry of the experiment's `plots:` section a .dat (the numbers), a .gp (the
 * script, editable), an .svg and a .png in the output folder. Templates are plots/templates/NAME.gp. */
#ifndef DLAB_PLOTS_PLOT_H
#define DLAB_PLOTS_PLOT_H

#include "base/yaml.h"
#include "results/record.h"
#include "results/report.h"

#define DLAB_PLOT_MAX 16

/* plots:
 *   - name: tpot            # file stem
 *     template: lines       # or bars
 *     title: "Cost of the next token"
 *     x: workload.depth     # axis (lines: a number; bars: a label made of the axes not in series)
 *     y: tpot               # metric
 *     series: [kv.store, batch.size]
 *     reference: METRIC     # lines only: a second metric of y's unit, thin and dashed in the colours of the series
 *     logx: true            # lines only
 *     logy: true
 *   - name: memory-over-time
 *     template: stack       # memory of one run over its time; neither x nor y, series or logarithms
 *     title: "Memory over time"
 *     at: {kv.store: paged} # which point; the run is its first that counts
 *     only: kv              # leaves weights and activations out; default: all */
#define DLAB_PLOT_AT_MAX 16
typedef struct {
    char name[64], template_name[32], title[160];
    char x[64];
    const dlab_metric *y, *reference; /* NULL: none */
    char series[8][64];
    size_t n_series;
    size_t n_at;
    struct {
        char key[64], value[160];
    } at[DLAB_PLOT_AT_MAX];
    bool logx, logy, only_kv;
} dlab_plot_spec;

dlab_status dlab_plot_parse(const dlab_yaml *y, const dlab_yaml_node *node, dlab_plot_spec out[DLAB_PLOT_MAX],
                            size_t *n, dlab_error *err);
/* template_dir: where the .gp templates lie. Writes out_dir/NAME.{dat,gp,svg,png}. Without gnuplot on PATH the .dat and .gp
 * are written and *made_pictures is false. DLAB_EUSAGE when a stack's `at` does not name one point of the record. */
dlab_status dlab_plot_render(const dlab_record *r, const dlab_plot_spec *spec, const char *template_dir,
                             const char *out_dir, bool *made_pictures, dlab_error *err);

#endif

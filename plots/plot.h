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
 *     logx: true            # lines only
 *     logy: true */
typedef struct {
    char name[64], template_name[32], title[160];
    char x[64];
    const dlab_metric *y;
    char series[8][64];
    size_t n_series;
    bool logx, logy;
} dlab_plot_spec;

dlab_status dlab_plot_parse(const dlab_yaml *y, const dlab_yaml_node *node, dlab_plot_spec out[DLAB_PLOT_MAX],
                            size_t *n, dlab_error *err);
/* template_dir: where the .gp templates lie. Writes out_dir/NAME.{dat,gp,svg,png}. Without gnuplot on PATH the .dat and .gp
 * are written and *made_pictures is false. */
dlab_status dlab_plot_render(const dlab_record *r, const dlab_plot_spec *spec, const char *template_dir,
                             const char *out_dir, bool *made_pictures, dlab_error *err);

#endif

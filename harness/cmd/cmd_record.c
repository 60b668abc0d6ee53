#include "harness/cmd/cmd_record.h"

#include <string.h>

dlab_status dlab_cmd_record_read(const char *path, dlab_cmd_record *out, dlab_error *err)
{
    memset(out, 0, sizeof *out);
    dlab_record_init(&out->record);
    DLAB_TRY(dlab_record_read(path, &out->record, err));
    const dlab_yaml_node *report = NULL, *plots = NULL;
    if (out->record.spec_bytes) {
        const char *name = out->record.spec_name ? out->record.spec_name : path;
        DLAB_TRY(dlab_yaml_parse(name, out->record.spec_text, out->record.spec_bytes, &out->spec, err));
        report = dlab_yaml_get(dlab_yaml_root(out->spec), "report");
        plots = dlab_yaml_get(dlab_yaml_root(out->spec), "plots");
    }
    DLAB_TRY(dlab_report_parse(out->spec, report, &out->report, err));
    return plots ? dlab_plot_parse(out->spec, plots, out->plots, &out->n_plots, err) : DLAB_OK;
}

void dlab_cmd_record_free(dlab_cmd_record *r)
{
    dlab_report_free(&r->report);
    dlab_yaml_destroy(r->spec);
    dlab_record_free(&r->record);
}

#include "harness/cmd/cmd_record.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* Only a record may be replaced: never a device, nor the experiment file itself. An empty file counts as nothing. */
static bool is_record(const char *path, const struct stat *s)
{
    static const char signature[] = "\211HDF\r\n\032\n";
    char head[sizeof signature - 1];
    if (!S_ISREG(s->st_mode)) return false;
    if (s->st_size == 0) return true;
    FILE *f = fopen(path, "rbe");
    if (!f) return true; /* what is wrong with it is said by whoever opens it */
    bool same = fread(head, sizeof head, 1, f) == 1 && memcmp(head, signature, sizeof head) == 0;
    fclose(f);
    return same;
}

dlab_status dlab_cmd_record_check_out(const char *flag, const char *path, bool may_be_there, const char *other,
                                      dlab_error *err)
{
    struct stat s;
    size_t n = strlen(path);
    if (n + 32 > PATH_MAX) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: the path is too long", flag);
    bool there = stat(path, &s) == 0;
    if (path[n - 1] == '/' || (there && S_ISDIR(s.st_mode)))
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s %s: a folder; the name of a file is expected", flag, path);
    if (there && !is_record(path, &s))
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s %s: is there already and is no record: give another name", flag, path);
    if (there && !may_be_there)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s exists: %sreplace it with --force, or give another name", path, other);
    return DLAB_OK;
}

#include "harness/cmd/cmd_record.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/probes/probes.h"
#include "harness/run/resume.h"

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

/* ---- a record in the making ------------------------------------------------------------------------------------------- */

dlab_status dlab_cmd_recorder_init(dlab_cmd_recorder *r, const char *path, const char *experiment, const char *command,
                                   dlab_error *err)
{
    *r = (dlab_cmd_recorder){.path = path, .lock_fd = -1};
    dlab_record_init(&r->record);
    dlab_settings *meta = &r->record.meta;
    DLAB_TRY(dlab_probe_environment(meta, err));
    if (command) DLAB_TRY(dlab_settings_set(meta, "command", command, err));
    DLAB_TRY(dlab_settings_set(meta, "experiment", experiment, err));
    DLAB_TRY(dlab_config_meta_started(meta, err));
    return path ? dlab_config_site_get("/proc/self/exe", meta, &r->site, err) : DLAB_OK;
}

dlab_status dlab_cmd_recorder_open(dlab_cmd_recorder *r, dlab_error *err)
{
    if (!r->path) return DLAB_OK;
    DLAB_TRY(dlab_resume_prepare(r->path, false, &r->lock_fd, err));
    return dlab_cmd_recorder_write(r, err);
}

static bool is_taken(const dlab_record *r, const char *key)
{
    for (size_t i = 0; i < r->n_points; i++)
        for (size_t k = 0; k < r->points[i].n_runs; k++)
            if (strcmp(r->points[i].runs[k]->key, key) == 0) return true;
    return false;
}

dlab_status dlab_cmd_recorder_key(const dlab_cmd_recorder *r, const dlab_config_run *run, char key[17], dlab_error *err)
{
    *key = 0;
    if (!r->path) return DLAB_OK;
    for (int copy = 0;; copy++) {
        DLAB_TRY(dlab_config_key(run, &r->site, copy, key, err));
        if (!is_taken(&r->record, key)) return DLAB_OK;
    }
}

dlab_status dlab_cmd_recorder_add(dlab_cmd_recorder *r, size_t point, dlab_run *from, const char key[17],
                                  dlab_error *err)
{
    dlab_run *run = malloc(sizeof *run);
    if (!run) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a run");
    *run = *from;
    dlab_run_init(from); /* what it owned is run's now */
    memcpy(run->key, key, sizeof run->key);
    run->point = (int32_t)point;
    const dlab_status st = r->path ? dlab_record_write_part(r->path, &r->record.meta, run, err) : DLAB_OK;
    if (st != DLAB_OK) {
        dlab_run_free(run);
        free(run);
        return st;
    }
    DLAB_TRY(dlab_resume_add(&r->record.points[point], run, err));
    if (r->path) dlab_run_drop_events(run);
    return DLAB_OK;
}

dlab_status dlab_cmd_recorder_write(const dlab_cmd_recorder *r, dlab_error *err)
{
    return r->path ? dlab_record_write_master(r->path, &r->record, err) : DLAB_OK;
}

dlab_status dlab_cmd_recorder_finish(dlab_cmd_recorder *r, dlab_error *err)
{
    if (!r->path) return DLAB_OK;
    DLAB_TRY(dlab_record_finish(r->path, &r->record, err));
    dlab_resume_clear(r->path);
    return DLAB_OK;
}

void dlab_cmd_recorder_free(dlab_cmd_recorder *r)
{
    dlab_record_free(&r->record);
    if (r->lock_fd >= 0) close(r->lock_fd);
    r->lock_fd = -1;
}

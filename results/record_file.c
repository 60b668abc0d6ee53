/* Whole files: a part for a run, the master with links to parts, the final file. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "results/record_parts.h"

const dlab_h5_column dlab_record_index_columns[] = {
    DLAB_H5_COLUMN(dlab_record_index, run, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "its group is /runs/NNNN of this number"),
    DLAB_H5_COLUMN(dlab_record_index, point, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "point, from 0"),
    DLAB_H5_COLUMN(dlab_record_index, repeat, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "repeat, from 0"),
    DLAB_H5_COLUMN(dlab_record_index, key, DLAB_H5_STR, DLAB_H5_NEEDED, "",
                   "hash of effective configuration, weights, binary, environment, schema"),
    DLAB_H5_COLUMN(dlab_record_index, status, DLAB_H5_STR, DLAB_H5_NEEDED, "", "status of the run"),
    DLAB_H5_COLUMN(dlab_record_index, file, DLAB_H5_STR, DLAB_H5_NEEDED, "",
                   "part that holds the run, relative to this file; empty: this file"),
};
const size_t dlab_record_index_n_columns = sizeof dlab_record_index_columns / sizeof *dlab_record_index_columns;

void dlab_record_init(dlab_record *r) { *r = (dlab_record){0}; }

static void point_free(dlab_point_result *p)
{
    for (size_t i = 0; i < p->n_runs; i++) {
        if (p->runs[i]) dlab_run_free(p->runs[i]);
        free(p->runs[i]);
    }
    free(p->runs);
    dlab_settings_free(&p->axes);
    dlab_settings_free(&p->effective);
}

void dlab_record_free(dlab_record *r)
{
    for (size_t i = 0; i < r->n_points; i++) point_free(&r->points[i]);
    free(r->points);
    dlab_peer_result_free(&r->peer);
    free(r->spec_text);
    free(r->spec_name);
    dlab_settings_free(&r->meta);
    dlab_record_init(r);
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static int stem_length(const char *out_path)
{
    size_t n = strlen(out_path);
    return (int)(n > 3 && strcmp(out_path + n - 3, ".h5") == 0 ? n - 3 : n);
}

void dlab_record_part_path(const char *out_path, const char *key, int repeat, char *buf, size_t size)
{
    snprintf(buf, size, "%.*s.h5.parts/%s.r%02d.h5", stem_length(out_path), out_path, key, repeat);
}

/* The part's path as the master knows it, relative to its own folder. */
static const char *relative_part(const char *part_path)
{
    const char *last = strrchr(part_path, '/');
    while (last && last > part_path && last[-1] != '/') last--;
    return last ? last : part_path;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

static dlab_status put_meta(const dlab_h5_out *o, const dlab_settings *meta, bool complete, dlab_error *err)
{
    hid_t group;
    DLAB_TRY(dlab_h5_make_group(o, o->file, "meta", &group, err));
    dlab_status st = dlab_h5_put_i64(o, group, "schema_version", DLAB_SCHEMA_VERSION, err);
    if (st == DLAB_OK) st = dlab_h5_put_i64(o, group, "complete", complete, err);
    for (size_t i = 0; st == DLAB_OK && i < meta->n; i++)
        st = dlab_h5_put_str(o, group, meta->items[i].key, meta->items[i].value, err);
    H5Gclose(group);
    return st;
}

static dlab_status put_spec(const dlab_h5_out *o, const dlab_record *r, dlab_error *err)
{
    DLAB_TRY(dlab_h5_put_text(o, o->file, "spec", r->spec_text, r->spec_text ? r->spec_bytes : 0, err));
    return dlab_h5_put_text(o, o->file, "spec_name", r->spec_name, r->spec_name ? strlen(r->spec_name) : 0, err);
}

static size_t count_runs(const dlab_record *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_points; i++) n += r->points[i].n_runs;
    return n;
}

/* Gives a run whose events were dropped its tables again, from its part. */
static dlab_status load_events(const char *out_path, dlab_run *run, dlab_error *err)
{
    char part[PATH_MAX];
    dlab_run whole;
    if (!run->dropped) return DLAB_OK;
    dlab_record_part_path(out_path, run->key, run->repeat, part, sizeof part);
    DLAB_TRY(dlab_record_read_part(part, &whole, err));
    dlab_status st = DLAB_OK;
    if (strcmp(whole.key, run->key) == 0)
        dlab_run_move_events(&whole, run);
    else
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: holds run %s, expected %s", part, whole.key, run->key);
    dlab_run_free(&whole);
    return st;
}

/* Puts the run into the file, or a link when its part is there. */
static dlab_status put_or_link(const dlab_h5_out *o, hid_t runs, dlab_run *run, bool link, dlab_record_index *row,
                               dlab_error *err)
{
    char name[DLAB_RUN_NAME], part[PATH_MAX];
    snprintf(name, sizeof name, "%04d", row->run);
    dlab_record_part_path(o->path, run->key, run->repeat, part, sizeof part);
    snprintf(row->key, sizeof row->key, "%s", run->key);
    snprintf(row->status, sizeof row->status, "%s", dlab_run_status_text(run->status));
    if (!link || !run->key[0] || strlen(relative_part(part)) >= sizeof row->file || !dlab_file_exists(part)) {
        DLAB_TRY(load_events(o->path, run, err));
        return dlab_record_put_run(o, runs, name, run, err);
    }
    snprintf(row->file, sizeof row->file, "%.*s", (int)sizeof row->file - 1, relative_part(part));
    return dlab_h5_put_link(o, runs, name, row->file, "/runs/0000", err);
}

static dlab_status put_runs(const dlab_h5_out *o, const dlab_record *r, bool link, dlab_error *err)
{
    hid_t runs;
    size_t n = 0, total = count_runs(r);
    dlab_record_index *index = calloc(total ? total : 1, sizeof *index);
    if (!index) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for the index of %zu runs", o->path, total);
    dlab_status st = dlab_h5_make_group(o, o->file, "runs", &runs, err);
    for (size_t i = 0; i < r->n_points; i++) {
        for (size_t k = 0; st == DLAB_OK && k < r->points[i].n_runs; k++, n++) {
            dlab_run *run = r->points[i].runs[k];
            index[n] = (dlab_record_index){.run = (int32_t)n, .point = (int32_t)i, .repeat = run->repeat};
            st = put_or_link(o, runs, run, link, &index[n], err);
        }
    }
    if (runs >= 0) H5Gclose(runs);
    if (st == DLAB_OK)
        st = dlab_h5_put_table(o, o->file, "runs_index", dlab_record_index_columns, dlab_record_index_n_columns, index,
                               sizeof *index, n, err);
    free(index);
    return st;
}

/* Each of the record's runs in turn. */
static dlab_status for_runs(const dlab_record *r, const char *out_path,
                            dlab_status (*act)(const char *out_path, dlab_run *run, dlab_error *err), dlab_error *err)
{
    for (size_t i = 0; i < r->n_points; i++)
        for (size_t k = 0; k < r->points[i].n_runs; k++) DLAB_TRY(act(out_path, r->points[i].runs[k], err));
    return DLAB_OK;
}

static dlab_status summarize(const char *out_path, dlab_run *run, dlab_error *err)
{
    (void)out_path;
    return dlab_run_summarize(run, err);
}

static dlab_status write_record(const char *path, const dlab_record *r, bool link, bool complete, dlab_error *err)
{
    DLAB_TRY(for_runs(r, path, summarize, err));
    dlab_h5_quiet quiet = dlab_h5_quiet_begin();
    dlab_h5_out o;
    dlab_status st = dlab_h5_create(path, &o, err);
    if (st == DLAB_OK) st = put_meta(&o, &r->meta, complete, err);
    if (st == DLAB_OK) st = put_spec(&o, r, err);
    if (st == DLAB_OK) st = dlab_record_put_points(&o, r, err);
    if (st == DLAB_OK) st = put_runs(&o, r, link, err);
    if (st == DLAB_OK) st = dlab_record_put_peer(&o, &r->peer, err);
    if (st == DLAB_OK) st = dlab_h5_save(&o, err);
    dlab_h5_discard(&o);
    dlab_h5_quiet_end(&quiet);
    return st;
}

dlab_status dlab_record_write_part(const char *out_path, const dlab_settings *meta, const dlab_run *run,
                                   dlab_error *err)
{
    char part[PATH_MAX], folder[PATH_MAX];
    dlab_record_part_path(out_path, run->key, run->repeat, part, sizeof part);
    if (run->dropped)
        return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: the run's events were dropped, they are in its part only", part);
    snprintf(folder, sizeof folder, "%.*s.h5.parts", stem_length(out_path), out_path);
    DLAB_TRY(dlab_dir_make(folder, err));
    dlab_h5_quiet quiet = dlab_h5_quiet_begin();
    dlab_h5_out o;
    hid_t runs = H5I_INVALID_HID;
    dlab_status st = dlab_h5_create(part, &o, err);
    if (st == DLAB_OK) st = put_meta(&o, meta, true, err);
    if (st == DLAB_OK) st = dlab_h5_make_group(&o, o.file, "runs", &runs, err);
    if (st == DLAB_OK) st = dlab_record_put_run(&o, runs, "0000", run, err);
    if (runs >= 0) H5Gclose(runs);
    if (st == DLAB_OK) st = dlab_h5_save(&o, err);
    dlab_h5_discard(&o);
    dlab_h5_quiet_end(&quiet);
    return st;
}

dlab_status dlab_record_write_master(const char *out_path, const dlab_record *r, dlab_error *err)
{
    return write_record(out_path, r, true, r->complete, err);
}

/* Temporaries that a killed process left behind go too. Parts of other configurations stay, and with them the folder. */
static void remove_parts(const char *out_path, const dlab_record *r)
{
    char path[PATH_MAX], folder[PATH_MAX];
    for (size_t i = 0; i < r->n_points; i++) {
        for (size_t k = 0; k < r->points[i].n_runs; k++) {
            const dlab_run *run = r->points[i].runs[k];
            dlab_record_part_path(out_path, run->key, run->repeat, path, sizeof path);
            if (run->key[0]) unlink(path);
        }
    }
    snprintf(folder, sizeof folder, "%.*s.h5.parts", stem_length(out_path), out_path);
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".h5.tmp.")) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(folder);
}

dlab_status dlab_record_finish(const char *out_path, dlab_record *r, dlab_error *err)
{
    DLAB_TRY(for_runs(r, out_path, load_events, err));
    DLAB_TRY(write_record(out_path, r, false, true, err));
    r->complete = true;
    remove_parts(out_path, r);
    return DLAB_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

static dlab_status get_meta(const dlab_h5_in *in, dlab_settings *meta, bool *complete, dlab_error *err)
{
    hid_t group;
    int64_t schema = 0, whole = 0;
    DLAB_TRY(dlab_h5_get_group(in, in->file, "meta", &group, err));
    dlab_status st = dlab_h5_get_i64(in, group, "schema_version", &schema, err);
    if (st == DLAB_OK && (schema < DLAB_SCHEMA_VERSION_MIN || schema > DLAB_SCHEMA_VERSION))
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: has schema version %lld, this program reads %d to %d", in->path,
                       (long long)schema, DLAB_SCHEMA_VERSION_MIN, DLAB_SCHEMA_VERSION);
    if (st == DLAB_OK) st = dlab_h5_get_i64(in, group, "complete", &whole, err);
    if (st == DLAB_OK && meta) st = dlab_h5_get_settings(in, group, meta, err);
    if (complete) *complete = whole != 0;
    H5Gclose(group);
    return st;
}

dlab_status dlab_record_read_part(const char *path, dlab_run *out, dlab_error *err)
{
    dlab_h5_quiet quiet = dlab_h5_quiet_begin();
    dlab_h5_in in;
    hid_t runs = H5I_INVALID_HID;
    dlab_run_init(out);
    dlab_status st = dlab_h5_open(path, &in, err);
    if (st == DLAB_OK) st = get_meta(&in, NULL, NULL, err);
    if (st == DLAB_OK) st = dlab_h5_get_group(&in, in.file, "runs", &runs, err);
    if (st == DLAB_OK) st = dlab_record_get_run(&in, runs, "0000", out, err);
    if (runs >= 0) H5Gclose(runs);
    dlab_h5_close(&in);
    dlab_h5_quiet_end(&quiet);
    return st;
}

/* A part lies beside its master, in one folder: nothing else is opened on a file's word. */
static dlab_status part_beside(const char *master, const char *file, char *buf, size_t size, dlab_error *err)
{
    const char *slash = strchr(file, '/'), *folder = strrchr(master, '/');
    if (!slash || slash == file || strchr(slash + 1, '/') || !slash[1] || strncmp(file, "./", 2) == 0 ||
        strncmp(file, "../", 3) == 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: names a part \"%.80s\", expected FOLDER/FILE beside it", master, file);
    int n = snprintf(buf, size, "%.*s%s", folder ? (int)(folder - master + 1) : 0, master, file);
    if (n < 0 || (size_t)n >= size) return DLAB_FAIL(err, DLAB_EIO, "%s: the path of its part is too long", master);
    return DLAB_OK;
}

/* By repeat; two of the same number are damage. */
static dlab_status insert_run(const dlab_h5_in *in, dlab_point_result *p, dlab_run *run, dlab_error *err)
{
    dlab_run **runs = realloc(p->runs, (p->n_runs + 1) * sizeof(dlab_run *));
    if (!runs) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its runs", in->path);
    p->runs = runs;
    size_t at = p->n_runs;
    while (at > 0 && runs[at - 1]->repeat > run->repeat) at--;
    if (at > 0 && runs[at - 1]->repeat == run->repeat)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: repeat %d of point \"%s\" is there twice", in->path, run->repeat,
                         p->label);
    memmove(runs + at + 1, runs + at, (p->n_runs - at) * sizeof(dlab_run *));
    runs[at] = run;
    p->n_runs++;
    return DLAB_OK;
}

static dlab_status get_indexed(const dlab_h5_in *in, hid_t runs, const dlab_record_index *row, dlab_record *r,
                               dlab_error *err)
{
    char name[DLAB_RUN_NAME], part[PATH_MAX];
    if (row->point < 0 || (size_t)row->point >= r->n_points || row->run < 0 || row->repeat < 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: run %d belongs to point %d of %zu, repeat %d", in->path, row->run,
                         row->point, r->n_points, row->repeat);
    dlab_run *run = malloc(sizeof *run);
    if (!run) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for a run", in->path);
    dlab_run_init(run);
    snprintf(name, sizeof name, "%04d", row->run);
    dlab_status st = DLAB_OK;
    if (!row->file[0]) {
        st = dlab_record_get_run(in, runs, name, run, err);
    } else {
        st = part_beside(in->path, row->file, part, sizeof part, err);
        if (st == DLAB_OK) st = dlab_record_read_part(part, run, err);
    }
    if (st == DLAB_OK) {
        /* a resumed experiment may have its points in another order than the one that made the part */
        run->point = row->point;
        run->repeat = row->repeat;
        st = insert_run(in, &r->points[row->point], run, err);
    }
    if (st != DLAB_OK) {
        dlab_run_free(run);
        free(run);
    }
    return st;
}

static dlab_status get_runs(const dlab_h5_in *in, dlab_record *r, dlab_error *err)
{
    dlab_record_index *index;
    size_t n;
    hid_t runs = H5I_INVALID_HID;
    DLAB_TRY(dlab_h5_get_table(in, in->file, "runs_index", dlab_record_index_columns, dlab_record_index_n_columns,
                               sizeof *index, (void **)&index, &n, err));
    dlab_status st = dlab_h5_get_group(in, in->file, "runs", &runs, err);
    for (size_t i = 0; st == DLAB_OK && i < n; i++) st = get_indexed(in, runs, &index[i], r, err);
    if (runs >= 0) H5Gclose(runs);
    free(index);
    return st;
}

dlab_status dlab_record_read(const char *path, dlab_record *out, dlab_error *err)
{
    dlab_h5_quiet quiet = dlab_h5_quiet_begin();
    dlab_h5_in in;
    size_t name_bytes;
    dlab_record_init(out);
    dlab_status st = dlab_h5_open(path, &in, err);
    if (st == DLAB_OK) st = get_meta(&in, &out->meta, &out->complete, err);
    if (st == DLAB_OK) st = dlab_h5_get_text(&in, in.file, "spec", &out->spec_text, &out->spec_bytes, err);
    if (st == DLAB_OK) st = dlab_h5_get_text(&in, in.file, "spec_name", &out->spec_name, &name_bytes, err);
    if (st == DLAB_OK) st = dlab_record_get_points(&in, out, err);
    if (st == DLAB_OK) st = get_runs(&in, out, err);
    if (st == DLAB_OK) st = dlab_record_get_peer(&in, out->n_points, &out->peer, err);
    dlab_h5_close(&in);
    dlab_h5_quiet_end(&quiet);
    if (st != DLAB_OK) dlab_record_free(out);
    return st;
}

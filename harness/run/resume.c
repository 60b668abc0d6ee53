#include "harness/run/resume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"

/* The folder of a path, "." if it names none; the rest after the last slash. */
static const char *split(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        snprintf(folder, size, ".");
        return path;
    }
    snprintf(folder, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return slash + 1;
}

/* Removes `folder`'s files whose names begin with prefix and contain `with`. What cannot be removed does no harm. */
static void sweep(const char *folder, const char *prefix, const char *with)
{
    DIR *d = opendir(folder);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 && strstr(e->d_name, with))
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

dlab_status dlab_resume_prepare(const char *out_path, bool keep, int *lock_fd, dlab_error *err)
{
    char part[PATH_MAX], parts[PATH_MAX], folder[PATH_MAX], prefix[NAME_MAX + 8];
    *lock_fd = -1;
    dlab_record_part_path(out_path, "x", 0, part, sizeof part);
    split(part, parts, sizeof parts);
    DLAB_TRY(dlab_dir_make(parts, err));
    int fd = open(parts, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: %s", parts, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return DLAB_FAIL(err, DLAB_EIO,
                         "%s: another dlab is writing this record; wait for it or choose another name with -o",
                         out_path);
    }
    snprintf(prefix, sizeof prefix, "%s.tmp.", split(out_path, folder, sizeof folder));
    sweep(folder, prefix, ".tmp.");
    sweep(parts, "", keep ? ".tmp." : ".h5");
    *lock_fd = fd;
    return DLAB_OK;
}

const dlab_run *dlab_resume_find(const dlab_point_result *p, int32_t repeat)
{
    for (size_t i = 0; i < p->n_runs; i++) {
        if (p->runs[i]->repeat == repeat) return p->runs[i];
    }
    return NULL;
}

dlab_status dlab_resume_add(dlab_point_result *p, dlab_run *run, dlab_error *err)
{
    dlab_run **runs = realloc(p->runs, (p->n_runs + 1) * sizeof(dlab_run *));
    if (!runs) {
        dlab_run_free(run);
        free(run);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu runs", p->n_runs + 1);
    }
    size_t i = p->n_runs++;
    p->runs = runs;
    for (; i > 0 && runs[i - 1]->repeat > run->repeat; i--) runs[i] = runs[i - 1];
    runs[i] = run;
    return DLAB_OK;
}

void dlab_resume_clear(const char *out_path)
{
    char part[PATH_MAX], parts[PATH_MAX];
    dlab_record_part_path(out_path, "x", 0, part, sizeof part);
    split(part, parts, sizeof parts);
    sweep(parts, "", ".h5");
    rmdir(parts);
}

static bool worth_keeping(const dlab_run *r, const char *key, int32_t repeat)
{
    return strcmp(r->key, key) == 0 && r->repeat == repeat &&
           (r->status == DLAB_RUN_OK || r->status == DLAB_RUN_TRUNCATED || r->status == DLAB_RUN_SKIPPED);
}

/* A part of that name whose content is the run's; NULL if there is none. */
static dlab_run *load_part(const char *out_path, const char *key, int32_t repeat)
{
    char path[PATH_MAX];
    dlab_error ignored;
    dlab_record_part_path(out_path, key, repeat, path, sizeof path);
    dlab_run *r = dlab_file_exists(path) ? calloc(1, sizeof *r) : NULL;
    if (!r) return NULL;
    if (dlab_record_read_part(path, r, &ignored) == DLAB_OK && worth_keeping(r, key, repeat)) return r;
    dlab_run_free(r);
    free(r);
    return NULL;
}

/* Takes the run out of an older record. */
static dlab_run *take_run(dlab_record *old, const char *key, int32_t repeat)
{
    for (size_t i = 0; i < old->n_points; i++) {
        for (size_t j = 0; j < old->points[i].n_runs; j++) {
            dlab_run **slot = &old->points[i].runs[j];
            if (!worth_keeping(*slot, key, repeat)) continue;
            dlab_run *r = *slot;
            *slot = old->points[i].runs[--old->points[i].n_runs];
            return r;
        }
    }
    return NULL;
}

static dlab_status load_point(const char *out_path, dlab_record *old, const char *key, int32_t point, size_t repeats,
                              dlab_record *r, size_t *n, dlab_error *err)
{
    for (int32_t repeat = 0; repeat < (int32_t)repeats; repeat++) {
        dlab_run *part = load_part(out_path, key, repeat), *run = part ? part : take_run(old, key, repeat);
        if (!run) continue;
        /* written elsewhere, or by an experiment whose points were others */
        bool stale = !part || run->point != point;
        run->point = point;
        dlab_status st = stale ? dlab_record_write_part(out_path, &r->meta, run, err) : DLAB_OK;
        if (st != DLAB_OK) {
            dlab_run_free(run);
            free(run);
            return st;
        }
        dlab_run_drop_events(run);
        DLAB_TRY(dlab_resume_add(&r->points[point], run, err));
        ++*n;
    }
    return DLAB_OK;
}

dlab_status dlab_resume_load(const char *out_path, const dlab_outlook *outlook, size_t repeats, dlab_record *r,
                             size_t *n, dlab_error *err)
{
    dlab_record old;
    dlab_error unread = {0};
    *n = 0;
    dlab_record_init(&old);
    dlab_status whole = dlab_file_exists(out_path) ? dlab_record_read(out_path, &old, &unread) : DLAB_OK, st = DLAB_OK;
    for (size_t i = 0; st == DLAB_OK && i < r->n_points; i++) {
        if (outlook[i].status != DLAB_OK) continue;
        st = load_point(out_path, &old, outlook[i].key, (int32_t)i, repeats, r, n, err);
    }
    dlab_record_free(&old);
    /* A master whose parts were tampered with is rebuilt from those that are left; a file that is no record is not ours. */
    if (st == DLAB_OK && whole != DLAB_OK && *n == 0) {
        st = DLAB_FAIL(err, whole, "%s; --force begins anew, or give another name with -o", unread.msg);
    }
    return st;
}

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define READ_CHUNK ((size_t)64 << 10)

/* O_NONBLOCK: a pipe with that name must not hang us before we see what it is. */
static dlab_status open_regular(const char *path, int *fd, dlab_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    dlab_status s = DLAB_OK;
    if (fstat(*fd, &st) != 0)
        s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot look at it: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        s = DLAB_FAIL(err, DLAB_EIO, "%s: is %s, expected a regular file", path,
                      S_ISDIR(st.st_mode) ? "a folder" : "not a file");
    if (s != DLAB_OK) {
        close(*fd);
        *fd = -1;
    }
    return s;
}

static dlab_status read_some(int fd, const char *path, void *buf, size_t size, size_t *got, dlab_error *err)
{
    ssize_t n;
    do n = read(fd, buf, size);
    while (n < 0 && errno == EINTR);
    if (n < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot read: %s", path, strerror(errno));
    *got = (size_t)n;
    return DLAB_OK;
}

dlab_status dlab_file_read(const char *path, size_t max_bytes, char **out, size_t *n, dlab_error *err)
{
    int fd = -1;
    char *buf = NULL;
    size_t len = 0, cap = 0, got = 0;
    dlab_status s;
    *out = NULL;
    *n = 0;
    DLAB_TRY_DONE(s, open_regular(path, &fd, err));
    /* until the end rather than st_size: files under /proc say 0 */
    do {
        if (cap - len < READ_CHUNK + 1) {
            cap = cap ? cap * 2 : 2 * READ_CHUNK;
            char *bigger = realloc(buf, cap);
            if (!bigger) {
                s = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to read it", path);
                goto done;
            }
            buf = bigger;
        }
        DLAB_TRY_DONE(s, read_some(fd, path, buf + len, READ_CHUNK, &got, err));
        len += got;
        if (len > max_bytes) {
            s = DLAB_FAIL(err, DLAB_EFORMAT, "%s: is larger than %zu bytes, the most that is read here", path,
                          max_bytes);
            goto done;
        }
    } while (got > 0);
    buf[len] = '\0';
    *out = buf;
    *n = len;
    buf = NULL;
done:
    free(buf);
    if (fd >= 0) close(fd);
    return s;
}

static dlab_status write_all(int fd, const char *path, const char *data, size_t n, dlab_error *err)
{
    while (n > 0) {
        const ssize_t w = write(fd, data, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot write: %s", path, strerror(errno));
        data += w;
        n -= (size_t)w;
    }
    return DLAB_OK;
}

static char *temporary_name(const char *path)
{
    char *tmp;
    return asprintf(&tmp, "%s.tmp.%ld", path, (long)getpid()) < 0 ? NULL : tmp;
}

/* A pipe or a device is written to where it is; replacing it by a file would destroy it. */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static dlab_status write_special(const char *path, const void *data, size_t n, dlab_error *err)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot open: %s", path, strerror(errno));
    dlab_status s = write_all(fd, path, data, n, err);
    if (close(fd) != 0 && s == DLAB_OK) s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot write: %s", path, strerror(errno));
    return s;
}

dlab_status dlab_file_write_atomic(const char *path, const void *data, size_t n, dlab_error *err)
{
    if (is_special(path)) return write_special(path, data, n, err);
    char *tmp = temporary_name(path);
    if (!tmp) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to write it", path);
    dlab_status s;
    const int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot create: %s", path, strerror(errno));
        goto done;
    }
    s = write_all(fd, path, data, n, err);
    if (close(fd) != 0 && s == DLAB_OK) s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot write: %s", path, strerror(errno));
    if (s == DLAB_OK)
        s = dlab_file_publish(tmp, path, err);
    else
        unlink(tmp);
done:
    free(tmp);
    return s;
}

/* A folder that we may write but not read cannot be synced, and some file systems sync no folder: the rename stands. */
static dlab_status sync_folder_of(const char *path, dlab_error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    if (!folder) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to write it", path);
    dlab_status s = DLAB_OK;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
            s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot sync the folder: %s", folder, strerror(errno));
        close(fd);
    }
    free(folder);
    return s;
}

/* Through a symbolic link the file behind it is replaced, not the link. */
static dlab_status rename_to(const char *tmp, const char *path, dlab_error *err)
{
    if (is_special(path)) {
        return DLAB_FAIL(err, DLAB_EIO, "%s: is there already and is not a regular file: give another name", path);
    }
    char *behind = realpath(path, NULL);
    dlab_status s = DLAB_OK;
    if (rename(tmp, behind ? behind : path) != 0)
        s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot put the new file in place: %s", path, strerror(errno));
    free(behind);
    return s;
}

dlab_status dlab_file_publish(const char *tmp, const char *path, dlab_error *err)
{
    dlab_status s = DLAB_OK;
    const int fd = open(tmp, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot open: %s", tmp, strerror(errno));
    else if (fsync(fd) != 0)
        s = DLAB_FAIL(err, DLAB_EIO, "%s: cannot sync: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    if (s == DLAB_OK) s = rename_to(tmp, path, err);
    if (s != DLAB_OK) {
        unlink(tmp);
        return s;
    }
    return sync_folder_of(path, err);
}

static dlab_status make_one(const char *path, dlab_error *err)
{
    if (mkdir(path, 0777) == 0) return DLAB_OK;
    const int why = errno;
    struct stat st;
    /* also where mkdir says EROFS or EACCES about a folder that is there already */
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_EIO, "%s: is there already and is not a folder", path);
    }
    return DLAB_FAIL(err, DLAB_EIO, "%s: cannot make the folder: %s", path, strerror(why));
}

dlab_status dlab_dir_make(const char *path, dlab_error *err)
{
    if (!*path) return DLAB_FAIL(err, DLAB_EUSAGE, "the name of a folder is empty");
    char *p = strdup(path);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to make it", path);
    dlab_status s = DLAB_OK;
    for (char *c = p + 1; *c && s == DLAB_OK; c++) {
        if (*c != '/') continue;
        *c = '\0';
        s = make_one(p, err);
        *c = '/';
    }
    if (s == DLAB_OK) s = make_one(p, err);
    free(p);
    return s;
}

bool dlab_file_exists(const char *path) { return access(path, F_OK) == 0; }

bool dlab_cache_path(const char *rel, char *buf, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && *cache)
        n = snprintf(buf, size, "%s/decodelab/%s", cache, rel);
    else if (home && *home)
        n = snprintf(buf, size, "%s/.cache/decodelab/%s", home, rel);
    return n > 0 && (size_t)n < size;
}

dlab_status dlab_file_hash(const char *path, uint64_t *out, dlab_error *err)
{
    int fd = -1;
    size_t got = 0;
    dlab_status s;
    char *buf = malloc(READ_CHUNK);
    XXH64_state_t *state = XXH64_createState();
    *out = 0;
    if (!buf || !state) {
        s = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to hash it", path);
        goto done;
    }
    DLAB_TRY_DONE(s, open_regular(path, &fd, err));
    XXH64_reset(state, 0);
    do {
        DLAB_TRY_DONE(s, read_some(fd, path, buf, READ_CHUNK, &got, err));
        XXH64_update(state, buf, got);
    } while (got > 0);
    *out = XXH64_digest(state);
done:
    free(buf);
    XXH64_freeState(state);
    if (fd >= 0) close(fd);
    return s;
}

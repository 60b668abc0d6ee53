#include "engine/pack_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/team.h"

#define FILE_VERSION 1
#define DATA_ALIGN   ((size_t)4096)
#define PIECE        ((size_t)1 << 20) /* of what is hashed or written at once */
#define TEMPORARY    ".tmp."
#define STALE_AFTER  3600 /* seconds */

/* The file: its head, a row for each matrix, zeros up to data_off, data. All but data_hash and the data is known before it is
 * opened, and has to be there byte for byte; the hash tells damage, not data that somebody made to go with it. */
typedef struct {
    char magic[8];
    uint32_t version, layout;
    uint64_t model;
    char variant[32];
    uint64_t n_rows, data_off, data_bytes;
    uint64_t data_hash; /* XXH3 of the XXH3s of the data's pieces */
} file_head;

typedef struct {
    char name[DLAB_TENSOR_NAME];
    int32_t dtype, n, k, unused;
    uint64_t off, bytes;
} file_row;

typedef struct {
    dlab_device *dev;
    const dlab_model *m;
    int threads;
    const dlab_pack_entry *entries;
    size_t n;
    char path[PATH_MAX];
    file_head *head; /* [data_off] as the file has to have it, with its rows and zeros */
} maker;

dlab_status dlab_pack_entry_pack(dlab_device *dev, const dlab_model *m, const dlab_pack_entry *e, dlab_at to,
                                 dlab_matrix *out, dlab_error *err)
{
    dlab_matrix in = e->stored;
    /* Charged to no pool: pages of the file, given back here, which a memory limit need not have room for. */
    DLAB_TRY(dev->ops->import(dev, DLAB_POOL_NONE, e->t->data, e->t->bytes, &in.at.buf, err));
    const dlab_status st = dev->ops->pack(dev, &in, to, out, err);
    dev->ops->free(dev, DLAB_POOL_NONE, in.at.buf);
    dlab_model_release(m, e->t);
    return st;
}

void dlab_pack_file_close(dlab_pack_file *f)
{
    if (f->map) munmap(f->map, f->map_bytes);
    *f = (dlab_pack_file){0};
}

/* ---- the hash of the data ------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *data;
    size_t bytes;
    uint64_t *hashes; /* of each piece */
} hashing;

static void hash_piece(void *ctx, size_t i)
{
    const hashing *h = ctx;
    const size_t at = i * PIECE, left = h->bytes - at;
    h->hashes[i] = XXH3_64bits(h->data + at, left < PIECE ? left : PIECE);
}

static dlab_status hash_data(const void *data, size_t bytes, int threads, uint64_t *out, dlab_error *err)
{
    const size_t n = (bytes + PIECE - 1) / PIECE;
    hashing h = {.data = data, .bytes = bytes, .hashes = malloc(n * sizeof *h.hashes)};
    if (!h.hashes) return DLAB_FAIL(err, DLAB_EOOM, "no memory to hash packed weights");
    const dlab_status st = dlab_team_once(threads, bytes, n, hash_piece, &h, err);
    if (st == DLAB_OK) *out = XXH3_64bits(h.hashes, n * sizeof *h.hashes);
    free(h.hashes);
    return st;
}

/* ---- what the file has to be ---------------------------------------------------------------------------------------- */

static dlab_status expect(maker *k, dlab_error *err)
{
    const dlab_pack_entry *last = &k->entries[k->n - 1];
    const size_t data_end = last->off + last->bytes;
    const size_t rows = sizeof(file_head) + k->n * sizeof(file_row);
    const size_t data_off = (rows + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    const char *variant = k->dev->ops->variant(k->dev);
    char name[128];
    k->head = calloc(1, data_off);
    if (!k->head) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the table of %zu packed matrices", k->n);
    *k->head = (file_head){.magic = "DLABPACK",
                           .version = FILE_VERSION,
                           .layout = DLAB_PACK_LAYOUT,
                           .model = dlab_model_get_info(k->m)->hash,
                           .n_rows = k->n,
                           .data_off = data_off,
                           .data_bytes = (data_end + DLAB_PACK_ALIGN - 1) / DLAB_PACK_ALIGN * DLAB_PACK_ALIGN};
    snprintf(k->head->variant, sizeof k->head->variant, "%s", variant);
    file_row *row = (file_row *)(k->head + 1);
    for (size_t i = 0; i < k->n; i++, row++) {
        const dlab_pack_entry *e = &k->entries[i];
        memcpy(row->name, e->t->name, sizeof row->name);
        row->dtype = (int32_t)e->stored.dtype;
        row->n = e->stored.n;
        row->k = e->stored.k;
        row->off = e->off;
        row->bytes = e->bytes;
    }
    snprintf(name, sizeof name, "packed/%016" PRIx64 "-%s.weights", k->head->model, variant);
    if (dlab_cache_path(name, k->path, sizeof k->path)) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "no cache folder, or a path too long: set XDG_CACHE_HOME or HOME");
}

/* All of the file; *out is empty if it cannot be mapped. Its size is the one expected when we look. Nobody here cuts or
 * changes a file once it has its name: a better one takes its place. */
static void map_file(const maker *k, int fd, dlab_pack_file *out)
{
    const size_t bytes = k->head->data_off + k->head->data_bytes;
    struct stat info;
    *out = (dlab_pack_file){0};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != bytes) return;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return;
    *out = (dlab_pack_file){(const char *)map + k->head->data_off, map, bytes};
}

/* ---- a file that is there ------------------------------------------------------------------------------------------- */

static dlab_status check(const maker *k, const dlab_pack_file *f, bool *good, dlab_error *err)
{
    uint64_t hash = 0;
    k->head->data_hash = ((const file_head *)f->map)->data_hash;
    *good = memcmp(f->map, k->head, k->head->data_off) == 0;
    if (!*good) return DLAB_OK;
    DLAB_TRY(hash_data(f->data, k->head->data_bytes, k->threads, &hash, err));
    *good = hash == k->head->data_hash;
    return DLAB_OK;
}

/* *out stays empty where there is no such file, or not a good one. Another user's is none: its data may be anything. */
static dlab_status take(const maker *k, dlab_pack_file *out, dlab_error *err)
{
    dlab_pack_file f = {0};
    struct stat info;
    bool good = false;
    const int fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must not hang us */
    if (fd < 0) return DLAB_OK;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid()) map_file(k, fd, &f);
    close(fd);
    if (!f.map) return DLAB_OK;
    const dlab_status st = check(k, &f, &good, err);
    if (good)
        *out = f;
    else
        dlab_pack_file_close(&f);
    return st;
}

/* ---- a new one ------------------------------------------------------------------------------------------------------ */

static dlab_status write_at(int fd, const char *path, const void *data, size_t n, size_t off, dlab_error *err)
{
    const char *p = data;
    while (n > 0) {
        const ssize_t w = pwrite(fd, p, n, (off_t)off);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot write: %s", path, strerror(errno));
        p += w;
        off += (size_t)w;
        n -= (size_t)w;
    }
    return DLAB_OK;
}

/* Packed by the device into `room`, which holds the largest, and from there piece by piece through `piece` into the file. */
static dlab_status write_matrix(const maker *k, const dlab_pack_entry *e, dlab_buf room, void *piece, int fd,
                                dlab_error *err)
{
    dlab_matrix packed;
    DLAB_TRY(dlab_pack_entry_pack(k->dev, k->m, e, (dlab_at){room, 0}, &packed, err));
    for (size_t at = 0; at < e->bytes; at += PIECE) {
        const size_t n = e->bytes - at < PIECE ? e->bytes - at : PIECE;
        DLAB_TRY(k->dev->ops->download(k->dev, piece, (dlab_at){room, at}, n, err));
        DLAB_TRY(k->dev->ops->sync(k->dev, err));
        DLAB_TRY(write_at(fd, k->path, piece, n, k->head->data_off + e->off + at, err));
    }
    return DLAB_OK;
}

static dlab_status write_matrices(const maker *k, int fd, dlab_error *err)
{
    size_t largest = 0;
    dlab_buf room = {0};
    dlab_status st = DLAB_OK;
    for (size_t i = 0; i < k->n; i++) largest = k->entries[i].bytes > largest ? k->entries[i].bytes : largest;
    void *piece = malloc(PIECE);
    if (!piece) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to write it", k->path);
    DLAB_TRY_DONE(st, k->dev->ops->alloc(k->dev, DLAB_POOL_WEIGHTS, largest, &room, err));
    for (size_t i = 0; i < k->n; i++) DLAB_TRY_DONE(st, write_matrix(k, &k->entries[i], room, piece, fd, err));
done:
    if (room.ptr) k->dev->ops->free(k->dev, DLAB_POOL_WEIGHTS, room);
    free(piece);
    return st;
}

/* The head comes last: it has the hash of what is mapped. */
static dlab_status fill(const maker *k, int fd, dlab_pack_file *out, dlab_error *err)
{
    const size_t bytes = k->head->data_off + k->head->data_bytes;
    if (ftruncate(fd, (off_t)bytes) != 0 || fchmod(fd, 0444) != 0)
        return DLAB_FAIL(err, DLAB_EIO, "%s: cannot make a file of %zu bytes: %s", k->path, bytes, strerror(errno));
    DLAB_TRY(write_matrices(k, fd, err));
    map_file(k, fd, out);
    if (!out->map) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot map it: %s", k->path, strerror(errno));
    DLAB_TRY(hash_data(out->data, k->head->data_bytes, k->threads, &k->head->data_hash, err));
    return write_at(fd, k->path, k->head, k->head->data_off, 0, err);
}

/* What processes left that were killed while they made one. Nobody takes this long between two writes. */
static void remove_stale(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat info;
        if (!strstr(e->d_name, TEMPORARY)) continue;
        if (fstatat(dirfd(d), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (time(NULL) - info.st_mtime > STALE_AFTER) (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

static dlab_status make(const maker *k, dlab_pack_file *out, dlab_error *err)
{
    char folder[PATH_MAX], tmp[PATH_MAX + 16];
    dlab_status st = DLAB_OK;
    snprintf(folder, sizeof folder, "%s", k->path);
    *strrchr(folder, '/') = 0;
    DLAB_TRY(dlab_dir_make(folder, err));
    remove_stale(folder);
    snprintf(tmp, sizeof tmp, "%s" TEMPORARY "XXXXXX", k->path);
    const int fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0) return DLAB_FAIL(err, DLAB_EIO, "%s: cannot write there: %s", folder, strerror(errno));
    st = fill(k, fd, out, err);
    close(fd);
    if (st == DLAB_OK)
        st = dlab_file_publish(tmp, k->path, err);
    else
        unlink(tmp);
    return st;
}

dlab_status dlab_pack_file_open(dlab_device *dev, int threads, const dlab_model *m, const dlab_pack_entry *entries,
                                size_t n, dlab_pack_file *out, dlab_error *err)
{
    maker k = {.dev = dev, .m = m, .threads = threads, .entries = entries, .n = n};
    dlab_status st = DLAB_OK;
    *out = (dlab_pack_file){0};
    DLAB_TRY_DONE(st, expect(&k, err));
    DLAB_TRY_DONE(st, take(&k, out, err));
    if (!out->map) st = make(&k, out, err);
done:
    if (st != DLAB_OK) {
        dlab_pack_file_close(out);
        dlab_error_prefix(err, st, "weights.packed: file (memory needs none)");
    }
    free(k.head);
    return st;
}

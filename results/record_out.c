/* Building a record's image and putting it on the disk. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "results/record_h5.h"

#define IMAGE_STEP  ((size_t)1 << 20)
#define CHUNK_BYTES ((size_t)256 << 10)

dlab_h5_quiet dlab_h5_quiet_begin(void)
{
    dlab_h5_quiet q = {0};
    /* Only the first call counts, before HDF5 wakes up: after a damaged file its cleaning up at exit never ends. */
    H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &q.func, &q.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return q;
}

void dlab_h5_quiet_end(const dlab_h5_quiet *q) { H5Eset_auto2(H5E_DEFAULT, q->func, q->data); }

static herr_t take_innermost(unsigned n, const H5E_error2_t *e, void *words)
{
    if (n == 0 && e->desc) *(const char **)words = e->desc;
    return 0;
}

dlab_status dlab_h5_fail(const char *path, dlab_status code, const char *what, dlab_error *err)
{
    const char *words = NULL;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &words);
    return DLAB_FAIL(err, code, "%s: %s%s%s", path, what, words ? ": " : "", words ? words : "");
}

/* Under a device there is no file. An image that HDF5 could not close after an error must not be taken for this one. */
void dlab_h5_image_name(const char *path, char *buf, size_t size)
{
    snprintf(buf, size, "/dev/null/%lld/%s", (long long)dlab_clock_now_ns(dlab_clock_real()), path);
}

uint64_t dlab_h5_file_bytes(const void *image, size_t n)
{
    const unsigned char *b = image;
    uint64_t bytes = 0;
    if (n < 48 || (b[8] != 2 && b[8] != 3) || b[9] != 8) return 0; /* version, bytes of an offset */
    for (int i = 7; i >= 0; i--) bytes = bytes << 8 | b[28 + i];
    return bytes;
}

/* ---- the image ----------------------------------------------------------------------------------------------------- */

/* HDF5 hands out its buffer when a file in memory is closed; H5Fget_file_image gives one whose superblock has a wrong
 * checksum (1.10.8), so the buffer is caught here instead. */
typedef struct {
    void *image;
} catcher;

static void *image_malloc(size_t size, H5FD_file_image_op_t op, void *ctx)
{
    (void)op;
    (void)ctx;
    return malloc(size);
}

static void *image_memcpy(void *to, const void *from, size_t size, H5FD_file_image_op_t op, void *ctx)
{
    (void)op;
    (void)ctx;
    return memcpy(to, from, size);
}

static void *image_realloc(void *image, size_t size, H5FD_file_image_op_t op, void *ctx)
{
    (void)op;
    (void)ctx;
    return realloc(image, size);
}

static herr_t image_free(void *image, H5FD_file_image_op_t op, void *ctx)
{
    catcher *c = ctx;
    if (op == H5FD_FILE_IMAGE_OP_FILE_CLOSE && !c->image)
        c->image = image;
    else
        free(image);
    return 0;
}

static void *same_udata(void *ctx) { return ctx; }
static herr_t keep_udata(void *ctx) { return ctx ? 0 : -1; }

dlab_status dlab_h5_create(const char *path, dlab_h5_out *out, dlab_error *err)
{
    *out = (dlab_h5_out){.file = H5I_INVALID_HID, .path = path};
    char name[PATH_MAX + 64];
    catcher *c = calloc(1, sizeof *c);
    if (!c) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to begin a record", path);
    out->catcher = c;
    H5FD_file_image_callbacks_t callbacks = {
        image_malloc, image_memcpy, image_realloc, image_free, same_udata, keep_udata, c};
    dlab_h5_image_name(path, name, sizeof name);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* This format carries checksums on its metadata. */
    if (access >= 0 && H5Pset_fapl_core(access, IMAGE_STEP, 0) >= 0 &&
        H5Pset_file_image_callbacks(access, &callbacks) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0)
        out->file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    dlab_status st = out->file >= 0 ? DLAB_OK : dlab_h5_fail(path, DLAB_EINTERNAL, "cannot begin a record", err);
    if (access >= 0) H5Pclose(access);
    return st;
}

dlab_status dlab_h5_save(dlab_h5_out *out, dlab_error *err)
{
    catcher *c = out->catcher;
    ssize_t bytes = H5Fflush(out->file, H5F_SCOPE_GLOBAL) >= 0 ? H5Fget_file_image(out->file, NULL, 0) : -1;
    bool good = H5Fclose(out->file) >= 0 && c->image && bytes > 0;
    out->file = H5I_INVALID_HID;
    /* closing gives back what was set aside behind the last block */
    uint64_t used = good ? dlab_h5_file_bytes(c->image, (size_t)bytes) : 0;
    if (used > 0 && used < (uint64_t)bytes) bytes = (ssize_t)used;
    if (!good) return dlab_h5_fail(out->path, DLAB_EINTERNAL, "cannot finish the record", err);
    return dlab_file_write_atomic(out->path, c->image, (size_t)bytes, err);
}

void dlab_h5_discard(dlab_h5_out *out)
{
    catcher *c = out->catcher;
    if (c && out->file >= 0) H5Fclose(out->file);
    if (c) free(c->image);
    free(c);
    *out = (dlab_h5_out){.file = H5I_INVALID_HID};
}

/* ---- groups, attributes, tables ------------------------------------------------------------------------------------ */

dlab_status dlab_h5_make_group(const dlab_h5_out *o, hid_t at, const char *name, hid_t *group, dlab_error *err)
{
    *group = H5I_INVALID_HID;
    hid_t plan = H5Pcreate(H5P_GROUP_CREATE);
    if (plan >= 0 && H5Pset_attr_creation_order(plan, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) >= 0)
        *group = H5Gcreate2(at, name, H5P_DEFAULT, plan, H5P_DEFAULT);
    dlab_status st = *group >= 0 ? DLAB_OK : dlab_h5_fail(o->path, DLAB_EINTERNAL, name, err);
    if (plan >= 0) H5Pclose(plan);
    return st;
}

static dlab_status put_attribute(const dlab_h5_out *o, hid_t object, const char *name, hid_t type, const void *value,
                                 dlab_error *err)
{
    hid_t space = H5Screate(H5S_SCALAR), attribute = H5I_INVALID_HID;
    if (space >= 0 && type >= 0) attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    dlab_status st = DLAB_OK;
    if (attribute < 0 || H5Awrite(attribute, type, value) < 0) st = dlab_h5_fail(o->path, DLAB_EINTERNAL, name, err);
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return st;
}

/* Of fixed length: those of variable length lie in a heap without checksums, and reading a damaged one can overrun. */
dlab_status dlab_h5_put_str(const dlab_h5_out *o, hid_t object, const char *name, const char *value, dlab_error *err)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    dlab_status st;
    if (type < 0 || H5Tset_size(type, strlen(value) + 1) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
        st = dlab_h5_fail(o->path, DLAB_EINTERNAL, name, err);
    else
        st = put_attribute(o, object, name, type, value, err);
    if (type >= 0) H5Tclose(type);
    return st;
}

dlab_status dlab_h5_put_i64(const dlab_h5_out *o, hid_t object, const char *name, int64_t value, dlab_error *err)
{
    return put_attribute(o, object, name, H5T_NATIVE_INT64, &value, err);
}

dlab_status dlab_h5_put_f64(const dlab_h5_out *o, hid_t object, const char *name, double value, dlab_error *err)
{
    return put_attribute(o, object, name, H5T_NATIVE_DOUBLE, &value, err);
}

dlab_status dlab_h5_put_text(const dlab_h5_out *o, hid_t at, const char *name, const char *text, size_t n_bytes,
                             dlab_error *err)
{
    const char empty[1] = "";
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), set = H5I_INVALID_HID;
    if (type >= 0 && space >= 0 && H5Tset_size(type, n_bytes ? n_bytes : 1) >= 0 &&
        H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        set = H5Dcreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    dlab_status st = DLAB_OK;
    if (set < 0 || H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, n_bytes ? text : empty) < 0)
        st = dlab_h5_fail(o->path, DLAB_EINTERNAL, name, err);
    if (st == DLAB_OK) st = dlab_h5_put_i64(o, set, "bytes", (int64_t)n_bytes, err);
    if (set >= 0) H5Dclose(set);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return st;
}

static hid_t column_type(const dlab_h5_column *c, bool in_file)
{
    if (c->type == DLAB_H5_I32) return H5Tcopy(in_file ? H5T_STD_I32LE : H5T_NATIVE_INT32);
    if (c->type == DLAB_H5_I64) return H5Tcopy(in_file ? H5T_STD_I64LE : H5T_NATIVE_INT64);
    if (c->type == DLAB_H5_F64) return H5Tcopy(in_file ? H5T_IEEE_F64LE : H5T_NATIVE_DOUBLE);
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, in_file && c->file_size ? c->file_size : c->size) < 0 ||
                      H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

hid_t dlab_h5_memory_type(const dlab_h5_column *columns, size_t n_columns, size_t row_bytes)
{
    hid_t row = H5Tcreate(H5T_COMPOUND, row_bytes);
    bool good = row >= 0;
    for (size_t i = 0; good && i < n_columns; i++) {
        hid_t type = column_type(&columns[i], false);
        good = type >= 0 && H5Tinsert(row, columns[i].name, columns[i].offset, type) >= 0;
        if (type >= 0) H5Tclose(type);
    }
    if (!good && row >= 0) H5Tclose(row);
    return good ? row : H5I_INVALID_HID;
}

/* Packed, little-endian, strings as short as file_size says. */
static hid_t file_type(const dlab_h5_column *columns, size_t n_columns)
{
    size_t bytes = 0;
    hid_t row = H5Tcreate(H5T_COMPOUND, 1);
    bool good = row >= 0;
    for (size_t i = 0; good && i < n_columns; i++) {
        hid_t type = column_type(&columns[i], true);
        size_t size = type >= 0 ? H5Tget_size(type) : 0;
        good = size > 0 && H5Tset_size(row, bytes + size) >= 0 && H5Tinsert(row, columns[i].name, bytes, type) >= 0;
        bytes += size;
        if (type >= 0) H5Tclose(type);
    }
    if (!good && row >= 0) H5Tclose(row);
    return good ? row : H5I_INVALID_HID;
}

static hid_t create_table(hid_t at, const char *name, hid_t type, size_t n)
{
    const hsize_t rows = n, unlimited = H5S_UNLIMITED;
    size_t per_chunk = CHUNK_BYTES / H5Tget_size(type);
    if (per_chunk > n) per_chunk = n;
    const hsize_t chunk = per_chunk ? per_chunk : 1;
    hid_t space = H5Screate_simple(1, &rows, &unlimited), plan = H5Pcreate(H5P_DATASET_CREATE), set = H5I_INVALID_HID;
    if (space >= 0 && plan >= 0 && H5Pset_chunk(plan, 1, &chunk) >= 0 && H5Pset_shuffle(plan) >= 0 &&
        H5Pset_deflate(plan, 4) >= 0 && H5Pset_fletcher32(plan) >= 0 &&
        H5Pset_attr_creation_order(plan, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) >= 0)
        set = H5Dcreate2(at, name, type, space, H5P_DEFAULT, plan, H5P_DEFAULT);
    if (plan >= 0) H5Pclose(plan);
    if (space >= 0) H5Sclose(space);
    return set;
}

static dlab_status describe(const dlab_h5_out *o, hid_t set, const dlab_h5_column *c, dlab_error *err)
{
    char name[192];
    snprintf(name, sizeof name, "%s.unit", c->name);
    DLAB_TRY(dlab_h5_put_str(o, set, name, c->unit, err));
    snprintf(name, sizeof name, "%s.description", c->name);
    return dlab_h5_put_str(o, set, name, c->description, err);
}

dlab_status dlab_h5_put_table(const dlab_h5_out *o, hid_t at, const char *name, const dlab_h5_column *columns,
                              size_t n_columns, const void *rows, size_t row_bytes, size_t n, dlab_error *err)
{
    hid_t memory = dlab_h5_memory_type(columns, n_columns, row_bytes), file = file_type(columns, n_columns);
    hid_t set = memory >= 0 && file >= 0 ? create_table(at, name, file, n) : H5I_INVALID_HID;
    dlab_status st = DLAB_OK;
    if (set < 0 || (n > 0 && H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) < 0))
        st = dlab_h5_fail(o->path, DLAB_EINTERNAL, name, err);
    for (size_t i = 0; st == DLAB_OK && i < n_columns; i++) st = describe(o, set, &columns[i], err);
    if (set >= 0) H5Dclose(set);
    if (file >= 0) H5Tclose(file);
    if (memory >= 0) H5Tclose(memory);
    return st;
}

dlab_status dlab_h5_put_link(const dlab_h5_out *o, hid_t at, const char *name, const char *file, const char *object,
                             dlab_error *err)
{
    if (H5Lcreate_external(file, object, at, name, H5P_DEFAULT, H5P_DEFAULT) >= 0) return DLAB_OK;
    return dlab_h5_fail(o->path, DLAB_EINTERNAL, name, err);
}

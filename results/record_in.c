/* Reading a record's image. The file may be anything: truncated, of another program, or made to do harm. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "results/record_h5.h"

#define FILE_MAX      ((size_t)4 << 30)
#define ROW_MAX       ((size_t)1 << 20)
#define COLUMNS_MAX   64 /* that we ask for */
#define CHUNK_MAX     ((size_t)64 << 20)
#define DEFLATE_RATIO 1100 /* no deflate stream expands further */

static dlab_status damaged(const dlab_h5_in *in, const char *what, dlab_error *err)
{
    return dlab_h5_fail(in->path, DLAB_EFORMAT, what, err);
}

dlab_status dlab_h5_open(const char *path, dlab_h5_in *out, dlab_error *err)
{
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    *out = (dlab_h5_in){.file = H5I_INVALID_HID, .path = path};
    char *image, name[PATH_MAX + 64];
    size_t n;
    dlab_h5_image_name(path, name, sizeof name);
    DLAB_TRY(dlab_file_read(path, FILE_MAX, &image, &n, err));
    out->bytes = n;
    dlab_status st = DLAB_OK;
    hid_t access = H5I_INVALID_HID;
    if (n < sizeof signature || memcmp(image, signature, sizeof signature) != 0) {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: is not an HDF5 file; expected a record made by `dlab run`", path);
        goto done;
    }
    if (dlab_h5_file_bytes(image, n) > n) {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: is cut short: %zu of %llu bytes are there", path, n,
                       (unsigned long long)dlab_h5_file_bytes(image, n));
        goto done;
    }
    access = H5Pcreate(H5P_FILE_ACCESS);
    if (access >= 0 && H5Pset_fapl_core(access, (size_t)1 << 20, 0) >= 0 && H5Pset_file_image(access, image, n) >= 0)
        out->file = H5Fopen(name, H5F_ACC_RDONLY, access);
    if (out->file < 0) st = damaged(out, "is damaged or cut short", err);
done:
    if (access >= 0) H5Pclose(access);
    free(image);
    return st;
}

void dlab_h5_close(dlab_h5_in *in)
{
    if (in->path && in->file >= 0) H5Fclose(in->file);
    *in = (dlab_h5_in){.file = H5I_INVALID_HID};
}

static dlab_status check_hard(const dlab_h5_in *in, hid_t at, const char *name, dlab_error *err)
{
    H5L_info_t info;
    char what[128];
    snprintf(what, sizeof what, "%.64s is missing", name);
    if (H5Lexists(at, name, H5P_DEFAULT) <= 0 || H5Lget_info(at, name, &info, H5P_DEFAULT) < 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: %s; expected a record made by `dlab run`", in->path, what);
    if (info.type != H5L_TYPE_HARD)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: %.64s is a link to somewhere else, expected it in this file", in->path,
                         name);
    return DLAB_OK;
}

dlab_status dlab_h5_get_group(const dlab_h5_in *in, hid_t at, const char *name, hid_t *group, dlab_error *err)
{
    *group = H5I_INVALID_HID;
    DLAB_TRY(check_hard(in, at, name, err));
    *group = H5Gopen2(at, name, H5P_DEFAULT);
    return *group >= 0 ? DLAB_OK : damaged(in, name, err);
}

/* Opens a scalar attribute of the class; *type is the file's. */
static dlab_status open_attribute(const dlab_h5_in *in, hid_t object, const char *name, H5T_class_t class,
                                  hid_t *attribute, hid_t *type, dlab_error *err)
{
    *type = H5I_INVALID_HID;
    *attribute = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : H5I_INVALID_HID;
    hid_t space = *attribute >= 0 ? H5Aget_space(*attribute) : H5I_INVALID_HID;
    if (*attribute >= 0) *type = H5Aget_type(*attribute);
    bool good = space >= 0 && *type >= 0 && H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(*type) == class;
    good = good && (class != H5T_STRING || H5Tis_variable_str(*type) == 0);
    if (space >= 0) H5Sclose(space);
    if (good) return DLAB_OK;
    if (*type >= 0) H5Tclose(*type);
    if (*attribute >= 0) H5Aclose(*attribute);
    *type = *attribute = H5I_INVALID_HID;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: attribute %.64s is missing or is not a single %s", in->path, name,
                     class == H5T_STRING ? "string of fixed length" : "number");
}

static dlab_status get_number(const dlab_h5_in *in, hid_t object, const char *name, H5T_class_t class, hid_t memory,
                              void *value, dlab_error *err)
{
    hid_t attribute, type;
    DLAB_TRY(open_attribute(in, object, name, class, &attribute, &type, err));
    dlab_status st = H5Aread(attribute, memory, value) >= 0 ? DLAB_OK : damaged(in, name, err);
    H5Tclose(type);
    H5Aclose(attribute);
    return st;
}

dlab_status dlab_h5_get_i64(const dlab_h5_in *in, hid_t object, const char *name, int64_t *value, dlab_error *err)
{
    return get_number(in, object, name, H5T_INTEGER, H5T_NATIVE_INT64, value, err);
}

dlab_status dlab_h5_get_i64_if(const dlab_h5_in *in, hid_t object, const char *name, int64_t *value, dlab_error *err)
{
    return H5Aexists(object, name) == 0 ? DLAB_OK : dlab_h5_get_i64(in, object, name, value, err);
}

dlab_status dlab_h5_get_f64(const dlab_h5_in *in, hid_t object, const char *name, double *value, dlab_error *err)
{
    return get_number(in, object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, value, err);
}

dlab_status dlab_h5_get_f64_if(const dlab_h5_in *in, hid_t object, const char *name, double *value, dlab_error *err)
{
    return H5Aexists(object, name) == 0 ? DLAB_OK : dlab_h5_get_f64(in, object, name, value, err);
}

static dlab_status read_string(const dlab_h5_in *in, hid_t attribute, hid_t type, const char *name, char **out,
                               dlab_error *err)
{
    size_t size = H5Tget_size(type);
    *out = NULL;
    if (size == 0 || size > in->bytes) return damaged(in, name, err);
    *out = calloc(size + 1, 1);
    if (!*out) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for attribute %.64s", in->path, name);
    if (H5Aread(attribute, type, *out) >= 0) return DLAB_OK;
    free(*out);
    *out = NULL;
    return damaged(in, name, err);
}

dlab_status dlab_h5_get_str(const dlab_h5_in *in, hid_t object, const char *name, char *buf, size_t size,
                            dlab_error *err)
{
    hid_t attribute, type;
    char *text = NULL;
    DLAB_TRY(open_attribute(in, object, name, H5T_STRING, &attribute, &type, err));
    dlab_status st = read_string(in, attribute, type, name, &text, err);
    if (st == DLAB_OK) snprintf(buf, size, "%s", text);
    free(text);
    H5Tclose(type);
    H5Aclose(attribute);
    return st;
}

typedef struct {
    const dlab_h5_in *in;
    dlab_settings *settings;
    dlab_status status;
    dlab_error *err;
} settings_walk;

static herr_t take_setting(hid_t object, const char *name, const H5A_info_t *info, void *ctx)
{
    (void)info;
    settings_walk *w = ctx;
    hid_t attribute, type;
    char *text = NULL;
    if (open_attribute(w->in, object, name, H5T_STRING, &attribute, &type, NULL) != DLAB_OK) return 0;
    w->status = read_string(w->in, attribute, type, name, &text, w->err);
    if (w->status == DLAB_OK) w->status = dlab_settings_set(w->settings, name, text, w->err);
    free(text);
    H5Tclose(type);
    H5Aclose(attribute);
    return w->status == DLAB_OK ? 0 : 1;
}

dlab_status dlab_h5_get_settings(const dlab_h5_in *in, hid_t object, dlab_settings *out, dlab_error *err)
{
    settings_walk w = {in, out, DLAB_OK, err};
    hsize_t at = 0;
    herr_t done = H5Aiterate2(object, H5_INDEX_CRT_ORDER, H5_ITER_INC, &at, take_setting, &w);
    if (done < 0 && w.status == DLAB_OK && out->n == 0) { /* written by others: no order kept */
        at = 0;
        done = H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, take_setting, &w);
    }
    if (w.status != DLAB_OK) return w.status;
    return done >= 0 ? DLAB_OK : damaged(in, "its attributes cannot be read", err);
}

/* Data may lie in this file only, and pass only through the filters that we write: others are loaded as plug-ins. */
static bool storage_is_plain(hid_t set, size_t type_bytes)
{
    hid_t plan = H5Dget_create_plist(set);
    if (plan < 0) return false;
    H5D_layout_t layout = H5Pget_layout(plan);
    bool good = layout != H5D_VIRTUAL && layout != H5D_LAYOUT_ERROR && H5Pget_external_count(plan) == 0;
    int n_filters = H5Pget_nfilters(plan);
    good = good && n_filters >= 0;
    for (int i = 0; good && i < n_filters; i++) {
        unsigned flags, config;
        size_t n_values = 0;
        H5Z_filter_t f = H5Pget_filter2(plan, (unsigned)i, &flags, &n_values, NULL, 0, NULL, &config);
        good = f == H5Z_FILTER_DEFLATE || f == H5Z_FILTER_SHUFFLE || f == H5Z_FILTER_FLETCHER32;
    }
    if (good && layout == H5D_CHUNKED) {
        hsize_t chunk = 0;
        good = H5Pget_chunk(plan, 1, &chunk) == 1 && chunk > 0 && chunk <= CHUNK_MAX / type_bytes;
    }
    H5Pclose(plan);
    return good;
}

dlab_status dlab_h5_get_text(const dlab_h5_in *in, hid_t at, const char *name, char **text, size_t *n_bytes,
                             dlab_error *err)
{
    *text = NULL;
    *n_bytes = 0;
    DLAB_TRY(check_hard(in, at, name, err));
    hid_t set = H5Dopen2(at, name, H5P_DEFAULT);
    hid_t type = set >= 0 ? H5Dget_type(set) : H5I_INVALID_HID;
    hid_t space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    size_t size = type >= 0 ? H5Tget_size(type) : 0;
    int64_t n = 0;
    dlab_status st = DLAB_OK;
    if (type < 0 || space < 0 || H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 || size == 0 ||
        size > in->bytes || H5Sget_simple_extent_npoints(space) != 1 || !storage_is_plain(set, size))
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: %.64s is not the text that was expected there", in->path, name);
    if (st == DLAB_OK) st = dlab_h5_get_i64(in, set, "bytes", &n, err);
    if (st == DLAB_OK && (n < 0 || (uint64_t)n > size)) st = damaged(in, name, err);
    if (st == DLAB_OK && !(*text = calloc(size + 1, 1)))
        st = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for %.64s", in->path, name);
    if (st == DLAB_OK && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *text) < 0) st = damaged(in, name, err);
    if (st == DLAB_OK && *text) {
        *n_bytes = (size_t)n;
        (*text)[n] = '\0';
    } else {
        free(*text);
        *text = NULL;
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    return st;
}

/* The columns that the table has are copied to `there`, in their order. */
static dlab_status check_columns(const dlab_h5_in *in, hid_t type, const char *name, const dlab_h5_column *columns,
                                 size_t n_columns, dlab_h5_column *there, size_t *n_there, dlab_error *err)
{
    static const H5T_class_t classes[] = {H5T_INTEGER, H5T_INTEGER, H5T_FLOAT, H5T_STRING};
    if (H5Tget_class(type) != H5T_COMPOUND)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: %.64s is not a table", in->path, name);
    for (size_t i = 0; i < n_columns; i++) {
        int at = H5Tget_member_index(type, columns[i].name);
        if (at < 0 && columns[i].absent != DLAB_H5_NEEDED) continue;
        hid_t member = at >= 0 ? H5Tget_member_type(type, (unsigned)at) : H5I_INVALID_HID;
        bool good = member >= 0 && H5Tget_class(member) == classes[columns[i].type] &&
                    (columns[i].type != DLAB_H5_STR || H5Tis_variable_str(member) == 0);
        if (member >= 0) H5Tclose(member);
        if (!good)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: table %.64s: column %s is missing or of another type", in->path,
                             name, columns[i].name);
        there[(*n_there)++] = columns[i];
    }
    return *n_there > 0 ? DLAB_OK
                        : DLAB_FAIL(err, DLAB_EFORMAT, "%s: table %.64s has none of its columns", in->path, name);
}

/* Rows that the table claims, held against what the file can possibly store. */
static dlab_status count_rows(const dlab_h5_in *in, hid_t set, hid_t type, const char *name, size_t row_bytes,
                              size_t *n, dlab_error *err)
{
    hsize_t rows = 0;
    hid_t space = H5Dget_space(set);
    size_t type_bytes = H5Tget_size(type);
    bool good = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
                H5Sget_simple_extent_dims(space, &rows, NULL) == 1 && type_bytes > 0 && type_bytes <= ROW_MAX &&
                storage_is_plain(set, type_bytes);
    if (space >= 0) H5Sclose(space);
    if (!good) return DLAB_FAIL(err, DLAB_EFORMAT, "%s: table %.64s is not stored as expected", in->path, name);
    hsize_t stored = H5Dget_storage_size(set);
    if (stored > in->bytes || rows > stored * DEFLATE_RATIO / type_bytes || rows > SIZE_MAX / row_bytes)
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: table %.64s claims %llu rows, more than its %llu stored bytes can hold", in->path, name,
                         (unsigned long long)rows, (unsigned long long)stored);
    *n = (size_t)rows;
    return DLAB_OK;
}

static void fill_absent(const dlab_h5_column *c, size_t row_bytes, char *rows, size_t n)
{
    const bool zero = c->absent == DLAB_H5_ZERO;
    const int32_t i32 = zero ? 0 : -1;
    const int64_t i64 = zero ? 0 : -1;
    const double f64 = zero ? 0 : NAN;
    for (size_t r = 0; r < n; r++) {
        char *at = rows + r * row_bytes + c->offset;
        if (c->type == DLAB_H5_I32) memcpy(at, &i32, sizeof i32);
        if (c->type == DLAB_H5_I64) memcpy(at, &i64, sizeof i64);
        if (c->type == DLAB_H5_F64) memcpy(at, &f64, sizeof f64);
        if (c->type == DLAB_H5_STR) *at = '\0';
    }
}

/* Both lists are in the same order. */
static void fill_all_absent(const dlab_h5_column *columns, size_t n_columns, const dlab_h5_column *there,
                            size_t n_there, size_t row_bytes, char *rows, size_t n)
{
    for (size_t i = 0, k = 0; i < n_columns; i++) {
        if (k < n_there && there[k].offset == columns[i].offset)
            k++;
        else
            fill_absent(&columns[i], row_bytes, rows, n);
    }
}

static void terminate_strings(const dlab_h5_column *columns, size_t n_columns, size_t row_bytes, char *rows, size_t n)
{
    for (size_t i = 0; i < n_columns; i++)
        for (size_t r = 0; columns[i].type == DLAB_H5_STR && r < n; r++)
            rows[r * row_bytes + columns[i].offset + columns[i].size - 1] = '\0';
}

dlab_status dlab_h5_get_table(const dlab_h5_in *in, hid_t at, const char *name, const dlab_h5_column *columns,
                              size_t n_columns, size_t row_bytes, void **rows, size_t *n, dlab_error *err)
{
    dlab_h5_column there[COLUMNS_MAX];
    size_t claimed = 0, n_there = 0;
    *rows = NULL;
    *n = 0;
    if (n_columns > COLUMNS_MAX) return DLAB_FAIL(err, DLAB_EINTERNAL, "table %s has too many columns", name);
    DLAB_TRY(check_hard(in, at, name, err));
    hid_t set = H5Dopen2(at, name, H5P_DEFAULT), memory = H5I_INVALID_HID;
    hid_t type = set >= 0 ? H5Dget_type(set) : H5I_INVALID_HID;
    dlab_status st = type >= 0 ? DLAB_OK : damaged(in, name, err);
    if (st == DLAB_OK) st = check_columns(in, type, name, columns, n_columns, there, &n_there, err);
    if (st == DLAB_OK) st = count_rows(in, set, type, name, row_bytes, &claimed, err);
    if (st != DLAB_OK || claimed == 0) goto done;
    memory = dlab_h5_memory_type(there, n_there, row_bytes);
    *rows = calloc(claimed, row_bytes);
    if (!*rows)
        st = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for the %zu rows of %.64s", in->path, claimed, name);
    else if (memory < 0 || H5Dread(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, *rows) < 0)
        st = damaged(in, name, err);
    if (st == DLAB_OK && *rows) {
        *n = claimed;
        fill_all_absent(columns, n_columns, there, n_there, row_bytes, *rows, claimed);
        terminate_strings(columns, n_columns, row_bytes, *rows, claimed);
    } else {
        free(*rows);
        *rows = NULL;
    }
done:
    if (memory >= 0) H5Tclose(memory);
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    return st;
}

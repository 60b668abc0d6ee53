/* The narrow part of HDF5 that records use. Files are built and read as images in memory: HDF5 never touches the disk, so
 * writing is one atomic write with the system's own error text, and reading needs neither lock nor write access.
 * For record_*.c only. */
#ifndef DLAB_RESULTS_RECORD_H5_H
#define DLAB_RESULTS_RECORD_H5_H

#include <hdf5.h>

#include "results/run.h"

/* HDF5 prints its error stack by default. Kept quiet between begin and end. */
typedef struct {
    H5E_auto2_t func;
    void *data;
} dlab_h5_quiet;
dlab_h5_quiet dlab_h5_quiet_begin(void);
void dlab_h5_quiet_end(const dlab_h5_quiet *q);

/* ---- columns of a table -------------------------------------------------------------------------------------------- */

typedef enum { DLAB_H5_I32, DLAB_H5_I64, DLAB_H5_F64, DLAB_H5_STR } dlab_h5_type;

/* What a reader makes of a table without the column. Each column that a later version adds is one of the last two, so that
 * older records stay readable. */
typedef enum {
    DLAB_H5_NEEDED,  /* the table is not ours */
    DLAB_H5_UNKNOWN, /* NaN, −1, "" */
    DLAB_H5_ZERO
} dlab_h5_absence;

typedef struct {
    const char *name;
    dlab_h5_type type;
    dlab_h5_absence absent;
    size_t offset;    /* in the row, in memory */
    size_t size;      /* strings: bytes in memory, NUL included */
    size_t file_size; /* strings: bytes in the file, NUL included; 0: as in memory */
    const char *unit, *description;
} dlab_h5_column;
/* A field of a row, under its own name. */
#define DLAB_H5_COLUMN(row, field, type, absent, unit, text)                                                           \
    {                                                                                                                  \
#field, type, absent, offsetof(row, field), sizeof(((row *)0)->field), 0, unit, text                           \
    }

/* HDF5 opens an image under a name, which no file may have and by which it tells images apart. */
void dlab_h5_image_name(const char *path, char *buf, size_t size);
/* Bytes of the file by its own superblock (of the versions that records have); 0: it does not say. */
uint64_t dlab_h5_file_bytes(const void *image, size_t n);

/* ---- writing ------------------------------------------------------------------------------------------------------- */

typedef struct {
    hid_t file;
    const char *path; /* for messages */
    void *catcher;    /* of the image */
} dlab_h5_out;

dlab_status dlab_h5_create(const char *path, dlab_h5_out *out, dlab_error *err);
dlab_status dlab_h5_save(dlab_h5_out *out, dlab_error *err); /* writes the image to path, atomically */
void dlab_h5_discard(dlab_h5_out *out);                      /* closes; fine after save and on a zeroed one */

/* Groups keep the order of their attributes. *group is closed with H5Gclose. */
dlab_status dlab_h5_make_group(const dlab_h5_out *o, hid_t at, const char *name, hid_t *group, dlab_error *err);
dlab_status dlab_h5_put_str(const dlab_h5_out *o, hid_t object, const char *name, const char *value, dlab_error *err);
dlab_status dlab_h5_put_i64(const dlab_h5_out *o, hid_t object, const char *name, int64_t value, dlab_error *err);
dlab_status dlab_h5_put_f64(const dlab_h5_out *o, hid_t object, const char *name, double value, dlab_error *err);
dlab_status dlab_h5_put_text(const dlab_h5_out *o, hid_t at, const char *name, const char *text, size_t n_bytes,
                             dlab_error *err);
/* A compound table, chunked, shuffled, deflated, with a checksum a chunk; attributes COLUMN.unit, COLUMN.description. */
dlab_status dlab_h5_put_table(const dlab_h5_out *o, hid_t at, const char *name, const dlab_h5_column *columns,
                              size_t n_columns, const void *rows, size_t row_bytes, size_t n, dlab_error *err);
dlab_status dlab_h5_put_link(const dlab_h5_out *o, hid_t at, const char *name, const char *file, const char *object,
                             dlab_error *err);

/* ---- reading: everything checked, every failure one line ----------------------------------------------------------- */

typedef struct {
    hid_t file;
    const char *path;
    size_t bytes; /* of the file: bounds what a table may claim to hold */
} dlab_h5_in;

dlab_status dlab_h5_open(const char *path, dlab_h5_in *out, dlab_error *err);
void dlab_h5_close(dlab_h5_in *in);

/* Only hard links are followed: a record has no reason to send us to another file. */
dlab_status dlab_h5_get_group(const dlab_h5_in *in, hid_t at, const char *name, hid_t *group, dlab_error *err);
dlab_status dlab_h5_get_str(const dlab_h5_in *in, hid_t object, const char *name, char *buf, size_t size,
                            dlab_error *err);
dlab_status dlab_h5_get_i64(const dlab_h5_in *in, hid_t object, const char *name, int64_t *value, dlab_error *err);
dlab_status dlab_h5_get_f64(const dlab_h5_in *in, hid_t object, const char *name, double *value, dlab_error *err);
/* Every string attribute, in the order in which they were written; others are passed over. */
dlab_status dlab_h5_get_settings(const dlab_h5_in *in, hid_t object, dlab_settings *out, dlab_error *err);
dlab_status dlab_h5_get_text(const dlab_h5_in *in, hid_t at, const char *name, char **text, size_t *n_bytes,
                             dlab_error *err);
/* Leaves *value alone when the object has no such attribute. */
dlab_status dlab_h5_get_i64_if(const dlab_h5_in *in, hid_t object, const char *name, int64_t *value, dlab_error *err);
dlab_status dlab_h5_get_f64_if(const dlab_h5_in *in, hid_t object, const char *name, double *value, dlab_error *err);
/* *rows is malloc'd, NULL when n is 0; strings are terminated. Columns that the file has beyond these are ignored; those
 * that it lacks are filled as `absent` says. */
dlab_status dlab_h5_get_table(const dlab_h5_in *in, hid_t at, const char *name, const dlab_h5_column *columns,
                              size_t n_columns, size_t row_bytes, void **rows, size_t *n, dlab_error *err);

/* "PATH: what: HDF5's own innermost words" */
dlab_status dlab_h5_fail(const char *path, dlab_status code, const char *what, dlab_error *err);
/* The type of a column in memory; closed with H5Tclose. */
hid_t dlab_h5_memory_type(const dlab_h5_column *columns, size_t n_columns, size_t row_bytes);

#endif

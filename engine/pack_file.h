/* Packed weights in a file of the cache folder: made by the first who needs it, mapped read-only and shared by all others. */
#ifndef DLAB_ENGINE_PACK_FILE_H
#define DLAB_ENGINE_PACK_FILE_H

#include "engine/model/model.h"
#include "kernels/device.h"

#define DLAB_PACK_ALIGN 64 /* bytes: of each packed matrix, and of all together */

/* A matrix that is packed. */
typedef struct {
    const dlab_tensor *t;
    dlab_matrix stored; /* as in the model's file; at is not set */
    size_t off, bytes;  /* where it goes, from the begin of all packed ones, and what it takes there */
    dlab_matrix *out;   /* gets the packed matrix's description */
} dlab_pack_entry;

/* Packs it at `to`, and gives the pages of the model's file back. */
dlab_status dlab_pack_entry_pack(dlab_device *dev, const dlab_model *m, const dlab_pack_entry *e, dlab_at to,
                                 dlab_matrix *out, dlab_error *err);

typedef struct {
    const void *data; /* the packed matrices, page-aligned, read-only */
    void *map;
    size_t map_bytes;
} dlab_pack_file;

/* The file of this model, variant of the device and layout; entries [n ≥ 1] in the order of their places. One that is not
 * there, or not whole, or of something else or another user, is made anew: beside it, then renamed, so that any number of
 * processes may do so at once. Its content is read and compared with its hash by so many threads. DLAB_EIO: it has to be made
 * and cannot. */
dlab_status dlab_pack_file_open(dlab_device *dev, int threads, const dlab_model *m, const dlab_pack_entry *entries,
                                size_t n, dlab_pack_file *out, dlab_error *err);
void dlab_pack_file_close(dlab_pack_file *f); /* one that was never opened is fine */

#endif

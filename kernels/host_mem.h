/* Memory functions that devices in host memory share (ref, cpu): buffers are plain addresses of an accounted pool.
 * Everything happens at once; a device whose ops are deferred must order these calls itself. */
#ifndef DLAB_KERNELS_HOST_MEM_H
#define DLAB_KERNELS_HOST_MEM_H

#include "base/mem.h"
#include "base/status.h"
#include "kernels/op.h"

/* Embedded by a device; zero it and set mem. It remembers which buffers were imported, so that free undoes either. */
typedef struct {
    dlab_mem *mem; /* borrowed */
    void **imports;
    size_t n_imports, cap_imports;
} dlab_host_mem;

/* Frees the list of imports (not the buffers: their owner frees them first). */
void dlab_host_mem_clear(dlab_host_mem *h);
/* Zeroed, page aligned. 0 bytes give an empty buffer. *out is empty on failure. */
dlab_status dlab_host_alloc(dlab_host_mem *h, dlab_pool pool, size_t bytes, dlab_buf *out, dlab_error *err);
/* Charges the pool and hands the same address back. */
dlab_status dlab_host_import(dlab_host_mem *h, dlab_pool pool, const void *host, size_t bytes, dlab_buf *out,
                             dlab_error *err);
/* Of an allocation or an import. An empty buffer is fine. */
void dlab_host_free(dlab_host_mem *h, dlab_pool pool, dlab_buf buf);
/* DLAB_EINTERNAL when the range leaves the buffer. copy: the ranges may overlap. */
dlab_status dlab_host_upload(dlab_at dst, const void *src, size_t bytes, dlab_error *err);
dlab_status dlab_host_download(void *dst, dlab_at src, size_t bytes, dlab_error *err);
dlab_status dlab_host_copy(dlab_at dst, dlab_at src, size_t bytes, dlab_error *err);

/* The address of a view; only for code that runs as the device. */
static inline void *dlab_host_ptr(dlab_at at) { return (char *)at.buf.ptr + at.off; }

#endif

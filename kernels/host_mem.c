#include "kernels/host_mem.h"

#include <stdlib.h>
#include <string.h>

void dlab_host_mem_clear(dlab_host_mem *h)
{
    free(h->imports);
    h->imports = NULL;
    h->n_imports = h->cap_imports = 0;
}

dlab_status dlab_host_alloc(dlab_host_mem *h, dlab_pool pool, size_t bytes, dlab_buf *out, dlab_error *err)
{
    *out = (dlab_buf){0};
    if (bytes == 0) return DLAB_OK;
    DLAB_TRY(dlab_mem_alloc(h->mem, pool, bytes, 1, &out->ptr, err));
    out->bytes = bytes;
    return DLAB_OK;
}

dlab_status dlab_host_import(dlab_host_mem *h, dlab_pool pool, const void *host, size_t bytes, dlab_buf *out,
                             dlab_error *err)
{
    *out = (dlab_buf){0};
    if (bytes == 0) return DLAB_OK;
    if (h->n_imports == h->cap_imports) {
        const size_t cap = h->cap_imports ? 2 * h->cap_imports : 8;
        void **bigger = realloc(h->imports, cap * sizeof(*bigger));
        if (!bigger) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the list of mapped buffers");
        h->imports = bigger;
        h->cap_imports = cap;
    }
    DLAB_TRY(dlab_mem_charge(h->mem, pool, bytes, err));
    *out = (dlab_buf){.ptr = (void *)host, .bytes = bytes}; /* read-only by the op's declared access */
    h->imports[h->n_imports++] = out->ptr;
    return DLAB_OK;
}

void dlab_host_free(dlab_host_mem *h, dlab_pool pool, dlab_buf buf)
{
    if (!buf.ptr) return;
    for (size_t i = 0; i < h->n_imports; i++) {
        if (h->imports[i] != buf.ptr) continue;
        h->imports[i] = h->imports[--h->n_imports];
        dlab_mem_discharge(h->mem, pool, buf.bytes);
        return;
    }
    dlab_mem_free(h->mem, pool, buf.ptr, buf.bytes);
}

static dlab_status check(dlab_at at, size_t bytes, const char *what, dlab_error *err)
{
    if (at.off <= at.buf.bytes && bytes <= at.buf.bytes - at.off) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: %zu bytes at %zu leave a buffer of %zu", what, bytes, at.off,
                     at.buf.bytes);
}

dlab_status dlab_host_upload(dlab_at dst, const void *src, size_t bytes, dlab_error *err)
{
    DLAB_TRY(check(dst, bytes, "upload", err));
    if (bytes) memcpy(dlab_host_ptr(dst), src, bytes);
    return DLAB_OK;
}

dlab_status dlab_host_download(void *dst, dlab_at src, size_t bytes, dlab_error *err)
{
    DLAB_TRY(check(src, bytes, "download", err));
    if (bytes) memcpy(dst, dlab_host_ptr(src), bytes);
    return DLAB_OK;
}

dlab_status dlab_host_copy(dlab_at dst, dlab_at src, size_t bytes, dlab_error *err)
{
    DLAB_TRY(check(dst, bytes, "copy to", err));
    DLAB_TRY(check(src, bytes, "copy from", err));
    if (bytes) memmove(dlab_host_ptr(dst), dlab_host_ptr(src), bytes);
    return DLAB_OK;
}

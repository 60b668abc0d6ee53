/* A device for tests of stores: host memory that starts as nonsense and has canaries around it, the oracle's kernels, and
 * everything done at once. A sparse one maps what it is asked for without ever having it. */
#ifndef DLAB_TESTS_ENGINE_KV_DEVICE_H
#define DLAB_TESTS_ENGINE_KV_DEVICE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/ref/ref.h"

#define KV_CANARY  64 /* bytes on either side */
#define KV_BUFFERS 16

typedef struct {
    dlab_device base;
    bool sparse, refuse_copies;
    dlab_buf bufs[KV_BUFFERS];
    int n_bufs;
    int64_t bytes, copies;
} kv_device;

/* Are all n ≥ 1 bytes `byte`? */
static inline bool kv_is(const void *p, int byte, size_t n)
{
    return *(const unsigned char *)p == byte && memcmp(p, (const char *)p + 1, n - 1) == 0;
}

/* NULL, or what is wrong. */
static inline const char *kv_device_check(const kv_device *d)
{
    for (int i = 0; i < d->n_bufs && !d->sparse; i++) {
        const char *p = d->bufs[i].ptr;
        if (!kv_is(p - KV_CANARY, 0xC5, KV_CANARY)) return "something was written in front of a buffer";
        if (!kv_is(p + d->bufs[i].bytes, 0xC5, KV_CANARY)) return "something was written behind a buffer";
    }
    return NULL;
}

static inline dlab_status kv_device_alloc(dlab_device *dev, dlab_pool pool, size_t bytes, dlab_buf *out,
                                          dlab_error *err)
{
    kv_device *d = (kv_device *)dev;
    (void)pool;
    *out = (dlab_buf){0};
    char *p = NULL;
    if (d->n_bufs == KV_BUFFERS) return DLAB_FAIL(err, DLAB_EOOM, "too many buffers for a test");
    if (d->sparse) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return DLAB_FAIL(err, DLAB_EOOM, "%zu bytes of address space refused", bytes);
    } else {
        p = malloc(bytes + 2 * KV_CANARY);
        if (!p) return DLAB_FAIL(err, DLAB_EOOM, "no memory");
        memset(p, 0xC5, bytes + 2 * KV_CANARY);
        p += KV_CANARY;
        memset(p, 0xFF, bytes);
    }
    *out = d->bufs[d->n_bufs++] = (dlab_buf){p, bytes};
    d->bytes += (int64_t)bytes;
    return DLAB_OK;
}

static inline void kv_device_free(dlab_device *dev, dlab_pool pool, dlab_buf buf)
{
    kv_device *d = (kv_device *)dev;
    (void)pool;
    for (int i = 0; i < d->n_bufs; i++) {
        if (d->bufs[i].ptr != buf.ptr) continue;
        d->bufs[i] = d->bufs[--d->n_bufs];
        d->bytes -= (int64_t)buf.bytes;
        if (d->sparse)
            munmap(buf.ptr, buf.bytes);
        else
            free((char *)buf.ptr - KV_CANARY);
        return;
    }
    fprintf(stderr, "a buffer that was never given was freed\n");
    abort();
}

static inline dlab_status kv_device_upload(dlab_device *dev, dlab_at dst, const void *src, size_t bytes,
                                           dlab_error *err)
{
    (void)dev;
    return dlab_host_upload(dst, src, bytes, err);
}

static inline dlab_status kv_device_copy(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err)
{
    kv_device *d = (kv_device *)dev;
    if (d->refuse_copies) return DLAB_FAIL(err, DLAB_EIO, "the device refuses");
    d->copies++;
    return dlab_host_copy(dst, src, bytes, err);
}

static inline dlab_status kv_device_submit(dlab_device *dev, dlab_op op, void *args, dlab_error *err)
{
    (void)dev;
    DLAB_TRY(dlab_op_check(op, args, err));
    dlab_ref_kernels[op](args);
    return DLAB_OK;
}

static inline dlab_status kv_device_sync(dlab_device *dev, dlab_error *err)
{
    (void)dev;
    (void)err;
    return DLAB_OK;
}

static inline kv_device kv_device_make(bool sparse)
{
    static const dlab_device_ops ops = {
        .name = "kv-test",
        .alloc = kv_device_alloc,
        .free = kv_device_free,
        .upload = kv_device_upload,
        .copy = kv_device_copy,
        .submit = kv_device_submit,
        .sync = kv_device_sync,
    };
    return (kv_device){.base.ops = &ops, .sparse = sparse};
}

#endif

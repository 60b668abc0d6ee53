/* The device `ref`: runs the oracle's ops at once, on the caller's thread. */
#include <stdlib.h>

#include "kernels/ref/ref.h"

typedef struct {
    dlab_device base;
    dlab_host_mem mem;
    uint64_t n_launches;
} ref_device;

static ref_device *self(dlab_device *dev) { return (ref_device *)dev; }

static dlab_status ref_create(const dlab_device_opts *opts, dlab_device **out, dlab_error *err)
{
    *out = NULL;
    ref_device *d = calloc(1, sizeof *d);
    if (!d) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the ref device");
    d->base.ops = &dlab_device_ref;
    d->mem.mem = opts->mem;
    *out = &d->base;
    return DLAB_OK;
}

static void ref_destroy(dlab_device *dev)
{
    if (!dev) return;
    dlab_host_mem_clear(&self(dev)->mem);
    free(dev);
}

static dlab_status ref_alloc(dlab_device *dev, dlab_pool pool, size_t bytes, dlab_buf *out, dlab_error *err)
{
    return dlab_host_alloc(&self(dev)->mem, pool, bytes, out, err);
}

static void ref_free(dlab_device *dev, dlab_pool pool, dlab_buf buf) { dlab_host_free(&self(dev)->mem, pool, buf); }

static dlab_status ref_import(dlab_device *dev, dlab_pool pool, const void *host, size_t bytes, dlab_buf *out,
                              dlab_error *err)
{
    return dlab_host_import(&self(dev)->mem, pool, host, bytes, out, err);
}

static dlab_status ref_pack(dlab_device *dev, const dlab_matrix *in, dlab_at to, dlab_matrix *out, dlab_error *err)
{
    (void)dev, (void)to;
    *out = *in;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "the device ref uses weights as stored");
}

static size_t ref_packed_bytes(const dlab_device_opts *opts, const dlab_matrix *in)
{
    (void)opts, (void)in;
    return 0;
}

static dlab_status ref_upload(dlab_device *dev, dlab_at dst, const void *src, size_t bytes, dlab_error *err)
{
    (void)dev;
    return dlab_host_upload(dst, src, bytes, err);
}

static dlab_status ref_download(dlab_device *dev, void *dst, dlab_at src, size_t bytes, dlab_error *err)
{
    (void)dev;
    return dlab_host_download(dst, src, bytes, err);
}

static dlab_status ref_copy(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err)
{
    (void)dev;
    return dlab_host_copy(dst, src, bytes, err);
}

static dlab_status ref_submit(dlab_device *dev, dlab_op op, void *args, dlab_error *err)
{
    DLAB_TRY(dlab_op_check(op, args, err));
    dlab_ref_kernels[op](args);
    self(dev)->n_launches++;
    return DLAB_OK;
}

static dlab_status ref_sync(dlab_device *dev, dlab_error *err)
{
    (void)dev;
    (void)err;
    return DLAB_OK;
}

static uint64_t ref_launches(const dlab_device *dev) { return ((const ref_device *)dev)->n_launches; }

static const char *ref_variant(const dlab_device *dev)
{
    (void)dev;
    return "ref";
}

static size_t ref_own_bytes(const dlab_device_opts *opts)
{
    (void)opts;
    return 0;
}

const dlab_device_ops dlab_device_ref = {
    .name = "ref",
    .summary = "the oracle: plain kernels in double precision on one thread, for tests",
    .create = ref_create,
    .destroy = ref_destroy,
    .own_bytes = ref_own_bytes,
    .alloc = ref_alloc,
    .free = ref_free,
    .import = ref_import,
    .pack = ref_pack,
    .packed = ref_pack,
    .packed_bytes = ref_packed_bytes,
    .upload = ref_upload,
    .download = ref_download,
    .copy = ref_copy,
    .submit = ref_submit,
    .sync = ref_sync,
    .launches = ref_launches,
    .variant = ref_variant,
};

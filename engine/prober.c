/* Probes of a device's peaks, on a device of its own: no model, no buffers but what a probe reads. */
#include <stdlib.h>

#include "engine/engine.h"
#include "kernels/device.h"

struct dlab_prober {
    dlab_mem *mem;
    dlab_device *dev;
};

dlab_status dlab_prober_create(const char *device, int threads, const char *isa, dlab_prober **out, dlab_error *err)
{
    *out = NULL;
    dlab_prober *p = calloc(1, sizeof *p);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "no memory for probes");
    dlab_status st;
    DLAB_TRY_DONE(st, dlab_mem_create(0, &p->mem, err));
    DLAB_TRY_DONE(
        st, dlab_device_open(device, &(dlab_device_opts){.threads = threads, .isa = isa, .mem = p->mem}, &p->dev, err));
    *out = p;
done:
    if (st != DLAB_OK) dlab_prober_destroy(p);
    return st;
}

void dlab_prober_destroy(dlab_prober *p)
{
    if (!p) return;
    dlab_device_close(p->dev);
    dlab_mem_destroy(p->mem);
    free(p);
}

dlab_status dlab_prober_read(dlab_prober *p, int64_t bytes, double seconds, double *bytes_ps, dlab_error *err)
{
    const dlab_peak what = {.kind = DLAB_PEAK_READ, .bytes = (size_t)bytes, .seconds = seconds};
    return dlab_device_peak(p->dev, &what, bytes_ps, err);
}

dlab_status dlab_prober_f32(dlab_prober *p, double seconds, double *flop_ps, dlab_error *err)
{
    const dlab_peak what = {.kind = DLAB_PEAK_F32, .seconds = seconds};
    return dlab_device_peak(p->dev, &what, flop_ps, err);
}

dlab_status dlab_prober_int8(dlab_prober *p, double seconds, double *op_ps, dlab_error *err)
{
    const dlab_peak what = {.kind = DLAB_PEAK_INT8, .seconds = seconds};
    return dlab_device_peak(p->dev, &what, op_ps, err);
}

dlab_status dlab_prober_bf16(dlab_prober *p, double seconds, double *flop_ps, dlab_error *err)
{
    const dlab_peak what = {.kind = DLAB_PEAK_BF16, .seconds = seconds};
    return dlab_device_peak(p->dev, &what, flop_ps, err);
}

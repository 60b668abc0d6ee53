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

dlab_status dlab_prober_measure(dlab_prober *p, const dlab_peak *what, double *per_second, dlab_error *err)
{
    return dlab_device_peak(p->dev, what, per_second, err);
}

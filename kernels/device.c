#include "kernels/device.h"

#include <stdio.h>
#include <string.h>

#include "base/param.h"

#define MAX_NAMES 16

static bool is_planned(const char *name) { return strcmp(name, "cuda") == 0 || strncmp(name, "sim:", 4) == 0; }

static dlab_status unknown_device(const char *name, dlab_error *err)
{
    const char *names[MAX_NAMES + 1];
    char all[128] = "";
    size_t n = 0, len = 0;
    for (; n < MAX_NAMES && dlab_devices[n]; n++) {
        names[n] = dlab_devices[n]->name;
        if (len < sizeof all) len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", n ? ", " : "", names[n]);
    }
    names[n] = NULL;
    if (is_planned(name))
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "device '%s' is not in this program, expected one of %s", name, all);
    const char *near = dlab_nearest(name, names);
    if (near)
        return DLAB_FAIL(err, DLAB_EUSAGE, "device '%s' is unknown, did you mean '%s'? (known: %s)", name, near, all);
    return DLAB_FAIL(err, DLAB_EUSAGE, "device '%s' is unknown, expected one of %s", name, all);
}

dlab_status dlab_device_open(const char *name, const dlab_device_opts *opts, dlab_device **out, dlab_error *err)
{
    *out = NULL;
    for (size_t i = 0; dlab_devices[i]; i++)
        if (strcmp(dlab_devices[i]->name, name) == 0) return dlab_devices[i]->create(opts, out, err);
    return unknown_device(name, err);
}

dlab_status dlab_device_peak(dlab_device *dev, const dlab_peak *what, double *per_second, dlab_error *err)
{
    if (!dev->ops->peak)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "device '%s' has no probes of its peaks, cpu has", dev->ops->name);
    return dev->ops->peak(dev, what, per_second, err);
}

void dlab_device_close(dlab_device *dev)
{
    if (dev) dev->ops->destroy(dev);
}

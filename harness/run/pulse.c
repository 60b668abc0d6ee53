#include "harness/run/pulse.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

dlab_status dlab_pulse_create(int *fd, dlab_error *err)
{
    *fd = memfd_create("dlab-pulse", MFD_CLOEXEC);
    if (*fd < 0) return DLAB_FAIL(err, DLAB_EIO, "no shared memory for a worker: %s", strerror(errno));
    if (ftruncate(*fd, sizeof(dlab_pulse)) == 0) return DLAB_OK;
    dlab_status st = DLAB_FAIL(err, DLAB_EIO, "no shared memory for a worker: %s", strerror(errno));
    close(*fd);
    *fd = -1;
    return st;
}

dlab_status dlab_pulse_map(int fd, dlab_pulse **out, dlab_error *err)
{
    void *p = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *out = p == MAP_FAILED ? NULL : p;
    return *out ? DLAB_OK : DLAB_FAIL(err, DLAB_EIO, "shared memory of a worker: %s", strerror(errno));
}

void dlab_pulse_unmap(dlab_pulse *p)
{
    if (p) munmap((void *)p, sizeof *p);
}

/* Small readers of /proc and /sys for the probes. */
#ifndef DLAB_HARNESS_PROBES_READ_H
#define DLAB_HARNESS_PROBES_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The start of a file, NUL-terminated; false when there is nothing to read. */
bool dlab_probe_read(const char *path, char *buf, size_t size);
/* The value of a "name : value" line; false when absent or empty. */
bool dlab_probe_field(const char *text, const char *name, char *buf, size_t size);
int64_t dlab_probe_memory_total_bytes(void); /* −1 if unknown */

#endif

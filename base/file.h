/* Files: whole reads, atomic writes, folders, and where the user's cache is. */
#ifndef DLAB_BASE_FILE_H
#define DLAB_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads a regular file whole; *out is malloc'd and NUL-terminated one past n. Larger than max_bytes is an error. */
dlab_status dlab_file_read(const char *path, size_t max_bytes, char **out, size_t *n, dlab_error *err);
/* path + ".tmp.<pid>", written, fsync'ed, renamed, folder fsync'ed. Nothing half-written stays. A pipe or a device is
 * written to as it is. */
dlab_status dlab_file_write_atomic(const char *path, const void *data, size_t n, dlab_error *err);
/* The second half of it, for files that a library wrote: fsync tmp, rename to path, fsync the folder. A path that is there
 * and is not a regular file is DLAB_EIO; tmp is removed in any failure. */
dlab_status dlab_file_publish(const char *tmp, const char *path, dlab_error *err);
dlab_status dlab_dir_make(const char *path, dlab_error *err); /* with parents; existing is fine */
bool dlab_file_exists(const char *path);
/* $XDG_CACHE_HOME/decodelab/rel, else ~/.cache/decodelab/rel. False: neither is known, or the path is too long. */
bool dlab_cache_path(const char *rel, char *buf, size_t size);
/* xxHash64 of the file's bytes. */
dlab_status dlab_file_hash(const char *path, uint64_t *out, dlab_error *err);

#endif

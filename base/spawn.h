/* Another program, started with the files that it should have and nothing else of ours. */
#ifndef DLAB_BASE_SPAWN_H
#define DLAB_BASE_SPAWN_H

#include <stddef.h>
#include <sys/types.h>

/* What the child has as descriptor `as`: our `fd`, or /dev/null to read from where fd is −1. */
typedef struct {
    int fd, as;
} dlab_spawn_file;

/* Starts `program` (looked for on PATH where it has no slash) in a process group of its own, so that a terminal's Ctrl-C is
 * ours to pass on; SIGPIPE, SIGINT and SIGTERM do their usual there, and no signal is blocked. Descriptors that are marked
 * close-on-exec are not inherited. Returns 0, or the errno that says why not. */
int dlab_spawn(const char *program, char *const argv[], const dlab_spawn_file *files, size_t n, pid_t *pid);

#endif

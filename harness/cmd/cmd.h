/* One file a command in this folder, each exporting one dlab_command; the build collects them. */
#ifndef DLAB_HARNESS_CMD_CMD_H
#define DLAB_HARNESS_CMD_CMD_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

typedef struct {
    const volatile sig_atomic_t *interrupted; /* set on SIGINT, SIGTERM and SIGHUP */
    const char *exe;                          /* argv[0] of the program */
} dlab_cmd_ctx;

typedef struct {
    const char *name, *summary;
    bool internal; /* not shown by --help */
    /* argv[0] is the command's name. Results on stdout, progress and warnings on stderr. Returns the exit code: 0 pass,
     * 1 regression or failed point, 2 wrong use, bad input or I/O, 3 inconclusive, 4 not comparable, 130 interrupted. An
     * error is returned through err with the code of dlab_cmd_exit_code and printed by main as one line. */
    dlab_status (*run)(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err);
} dlab_command;

extern const dlab_command *const dlab_commands[]; /* generated; NULL-terminated */

int dlab_cmd_exit_code(dlab_status s);

#endif

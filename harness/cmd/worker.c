/* dlab worker: internal, started by the runner. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "harness/cmd/cmd_util.h"
#include "harness/run/run.h"

enum { KEY_PULSE = DLAB_CMD_KEY, KEY_FAULT };

typedef struct {
    int64_t parent, pulse;
    const char *fault;
} worker_opts;

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    worker_opts *o = opts;
    switch (key) {
    case ARGP_KEY_ARG:
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: no argument is expected", arg);
    case KEY_PULSE:
        return dlab_cmd_int("--pulse", arg, 0, INT32_MAX, &o->pulse, err);
    case KEY_FAULT:
        o->fault = arg;
        return dlab_fault_check(arg, err);
    default:
        return dlab_cmd_int("--parent", arg, 1, INT32_MAX, &o->parent, err);
    }
}

static const struct argp_option options[] = {
    {"parent", 'p', "PID", 0, "the runner: the worker ends when it does", 0},
    {"pulse", KEY_PULSE, "FD", 0, "an inherited file: shared memory to count finished steps in", 0},
    {"fault", KEY_FAULT, "KIND@POINT,...", 0, "go wrong on purpose, for tests", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "worker",
    .about =
        "Internal: `dlab run` starts one for each point and speaks to it in JSON lines on standard input and output; "
        "docs/worker.md has the protocol.",
    .example = "  echo '{\"v\": 1, \"cmd\": \"close\"}' | dlab worker",
    .options = options,
    .set = set,
};

/* A worker dies with its runner, however that ends. The runner may have gone before prctl took hold. */
static dlab_status bind_to_parent(int64_t parent, dlab_error *err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return DLAB_FAIL(err, DLAB_EIO, "prctl: %s", strerror(errno));
    if (getppid() != (pid_t)parent) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "the runner is gone");
    return DLAB_OK;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    worker_opts o = {.pulse = -1};
    bool helped = false;
    *exit_code = 0;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    if (o.parent > 0) DLAB_TRY(bind_to_parent(o.parent, err));
    /* Standard output is the protocol's alone: whatever a library prints goes to standard error instead. */
    int fd_out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd_out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return DLAB_FAIL(err, DLAB_EIO, "standard output: %s", strerror(errno));
    }
    dlab_status st = dlab_worker_serve(STDIN_FILENO, fd_out, &(dlab_worker_opts){(int)o.pulse, o.fault}, err);
    close(fd_out);
    return st;
}

const dlab_command dlab_command_worker = {
    .name = "worker", .summary = "runs one point for `dlab run` (internal)", .internal = true, .run = run};

/* A program run to its end: what it prints is taken up to a bound, what it says on standard error only as the last line. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/spawn.h"
#include "base/text.h"
#include "harness/peer/peer.h"

#define PRINTED_MAX ((size_t)1 << 20)
#define LOOK_MS     100

typedef struct {
    const char *name;
    pid_t pid; /* 0: not started */
    int status;
    bool ended;
    int out, errors; /* −1 once closed */
    char *text;
    size_t n;
    dlab_last_line said;
} process;

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static dlab_status start(char *const argv[], process *p, dlab_error *err)
{
    int out[2] = {-1, -1}, errors[2] = {-1, -1};
    dlab_status st = DLAB_OK;
    p->text = malloc(PRINTED_MAX + 1);
    if (!p->text) return DLAB_FAIL(err, DLAB_EOOM, "no memory for what %s prints", p->name);
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
        st = DLAB_FAIL(err, DLAB_EIO, "no pipe to %s: %s", p->name, strerror(errno));
    p->out = out[0];
    p->errors = errors[0];
    const dlab_spawn_file files[] = {{-1, STDIN_FILENO}, {out[1], STDOUT_FILENO}, {errors[1], STDERR_FILENO}};
    const int rc = st == DLAB_OK ? dlab_spawn(argv[0], argv, files, 3, &p->pid) : 0;
    if (rc != 0) {
        p->pid = 0;
        st = DLAB_FAIL(err, rc == ENOMEM ? DLAB_EOOM : DLAB_EIO, "%s cannot be run: %s", p->name, strerror(rc));
    }
    if (st == DLAB_OK) {
        fcntl(p->out, F_SETFL, O_NONBLOCK);
        fcntl(p->errors, F_SETFL, O_NONBLOCK);
    }
    close_end(&out[1]);
    close_end(&errors[1]);
    return st;
}

/* Everything that is there. */
static dlab_status take(process *p, dlab_error *err)
{
    char buf[4096];
    ssize_t got = -1;
    while (p->errors >= 0 && (got = read(p->errors, buf, sizeof buf)) > 0)
        dlab_last_line_add(&p->said, buf, (size_t)got);
    if (got == 0) close_end(&p->errors);
    got = -1;
    while (p->out >= 0 && (got = read(p->out, p->text + p->n, PRINTED_MAX + 1 - p->n)) > 0) {
        p->n += (size_t)got;
        if (p->n > PRINTED_MAX)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s printed over %zu bytes; expected a line of JSON", p->name,
                             PRINTED_MAX);
    }
    if (got == 0) close_end(&p->out);
    return DLAB_OK;
}

/* A child of the program may hold the pipes after it has gone: what counts is the program itself. */
static dlab_status wait_for(process *p, int64_t timeout_ns, const volatile sig_atomic_t *interrupted, dlab_error *err)
{
    const dlab_clock *clock = dlab_clock_real();
    const int64_t deadline = dlab_clock_now_ns(clock) + timeout_ns;
    while (!p->ended) {
        struct pollfd fds[2] = {{.fd = p->out, .events = POLLIN}, {.fd = p->errors, .events = POLLIN}};
        if (poll(fds, 2, LOOK_MS) < 0 && errno != EINTR)
            return DLAB_FAIL(err, DLAB_EIO, "waiting for %s: %s", p->name, strerror(errno));
        if (interrupted && *interrupted) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted");
        siginfo_t info = {0};
        p->ended = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == p->pid;
        DLAB_TRY(take(p, err));
        if (!p->ended && dlab_clock_now_ns(clock) >= deadline)
            return DLAB_FAIL(err, DLAB_ETIMEOUT, "%s did not end within %lld s: killed", p->name,
                             (long long)(timeout_ns / 1000000000));
    }
    return DLAB_OK;
}

static dlab_status check_end(const process *p, dlab_error *err)
{
    const char *words = dlab_last_line_text(&p->said), *said = *words ? "; it said: " : "";
    if (WIFSIGNALED(p->status)) {
        int sig = WTERMSIG(p->status);
        return DLAB_FAIL(err, DLAB_EIO, "%s: killed by signal %d (%s)%s%s", p->name, sig, strsignal(sig), said, words);
    }
    if (WEXITSTATUS(p->status) == 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "%s: exit code %d%s%s", p->name, WEXITSTATUS(p->status), said, words);
}

dlab_status dlab_peer_exec(char *const argv[], int64_t timeout_ns, const volatile sig_atomic_t *interrupted, char **out,
                           size_t *n, dlab_error *err)
{
    process p = {.name = argv[0], .out = -1, .errors = -1};
    *out = NULL;
    *n = 0;
    dlab_status st = start(argv, &p, err);
    if (st == DLAB_OK) st = wait_for(&p, timeout_ns, interrupted, err);
    if (p.pid > 0) kill(-p.pid, SIGKILL); /* its children, too; until it is reaped, the number is its own */
    pid_t reaped = p.pid;
    while (p.pid > 0 && (reaped = waitpid(p.pid, &p.status, 0)) < 0 && errno == EINTR) {
    }
    if (st == DLAB_OK && reaped < 0)
        st = DLAB_FAIL(err, DLAB_EIO, "%s: how it ended is not known: %s", p.name, strerror(errno));
    if (st == DLAB_OK) st = check_end(&p, err);
    close_end(&p.out);
    close_end(&p.errors);
    if (st == DLAB_OK) {
        p.text[p.n] = 0;
        *out = p.text;
        *n = p.n;
        p.text = NULL;
    }
    free(p.text);
    return st;
}

#include "harness/run/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/spawn.h"
#include "base/text.h"
#include "harness/run/pulse.h"
#include "harness/run/wire.h"

#define PULSE_FD 3 /* as the worker sees it */

struct dlab_child {
    pid_t pid;  /* 0 once reaped */
    int socket; /* the worker's standard input and output */
    int errors; /* its standard error */
    dlab_pulse *pulse;
    dlab_lines lines;
    dlab_last_line said; /* on its standard error */
    char last_words[512];
};

typedef struct {
    int socket, errors, pulse;
} child_files;

static dlab_status spawn(const char *exe, const char *fault, const child_files *f, pid_t *pid, dlab_error *err)
{
    char parent[32], pulse[32], faults[512];
    char *argv[] = {(char[]){"dlab"}, (char[]){"worker"}, parent, pulse, fault ? faults : NULL, NULL};
    snprintf(parent, sizeof parent, "--parent=%ld", (long)getpid());
    snprintf(pulse, sizeof pulse, "--pulse=%d", PULSE_FD);
    int n = snprintf(faults, sizeof faults, "--fault=%s", fault ? fault : "");
    if (n < 0 || (size_t)n >= sizeof faults)
        return DLAB_FAIL(err, DLAB_EUSAGE, "--fault: over %zu bytes", sizeof faults);
    const dlab_spawn_file files[] = {
        {f->socket, STDIN_FILENO}, {f->socket, STDOUT_FILENO}, {f->errors, STDERR_FILENO}, {f->pulse, PULSE_FD}};
    const int rc = dlab_spawn(exe, argv, files, 4, pid);
    if (rc == 0) return DLAB_OK;
    return DLAB_FAIL(err, rc == ENOMEM ? DLAB_EOOM : DLAB_EIO, "starting a worker (%s): %s", exe, strerror(rc));
}

dlab_status dlab_child_start(const char *exe, const char *fault, dlab_child **out, dlab_error *err)
{
    int sock[2] = {-1, -1}, errors[2] = {-1, -1}, pulse = -1;
    *out = NULL;
    dlab_child *c = calloc(1, sizeof *c);
    if (!c) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a worker");
    bool piped = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) == 0 && pipe2(errors, O_CLOEXEC) == 0;
    dlab_status st = piped ? DLAB_OK : DLAB_FAIL(err, DLAB_EIO, "no pipe to a worker: %s", strerror(errno));
    c->socket = sock[0];
    c->errors = errors[0];
    if (st == DLAB_OK) st = dlab_pulse_create(&pulse, err);
    if (st == DLAB_OK) st = dlab_pulse_map(pulse, &c->pulse, err);
    if (st == DLAB_OK) st = spawn(exe, fault, &(child_files){sock[1], errors[1], pulse}, &c->pid, err);
    if (st == DLAB_OK) {
        fcntl(c->errors, F_SETFL, O_NONBLOCK);
        *out = c;
        c = NULL;
    }
    if (sock[1] >= 0) close(sock[1]);
    if (errors[1] >= 0) close(errors[1]);
    if (pulse >= 0) close(pulse);
    dlab_child_destroy(c);
    return st;
}

static void hear(dlab_child *c)
{
    char buf[1024];
    ssize_t got = -1;
    while (c->errors >= 0 && (got = read(c->errors, buf, sizeof buf)) > 0)
        dlab_last_line_add(&c->said, buf, (size_t)got);
    if (got == 0) { /* closed: polling it again would only spin */
        close(c->errors);
        c->errors = -1;
    }
}

static void describe_end(dlab_child *c, int status)
{
    char how[160];
    if (WIFSIGNALED(status)) {
        int sig = WTERMSIG(status);
        snprintf(how, sizeof how, "killed by signal %d (%s)%s", sig, strsignal(sig),
                 sig == SIGKILL ? ", perhaps by a system that ran out of memory" : "");
    } else {
        snprintf(how, sizeof how, "the worker left with exit code %d and without an answer", WEXITSTATUS(status));
    }
    hear(c);
    const char *words = dlab_last_line_text(&c->said);
    snprintf(c->last_words, sizeof c->last_words, "%s%s%s", how, *words ? "; it said: " : "", words);
    dlab_text_copy(c->last_words, sizeof c->last_words, c->last_words);
}

/* Its end of the socket is closed, so it is about to be gone; if not within two seconds, it is made to go. */
static void reap(dlab_child *c)
{
    int status = 0;
    if (c->pid <= 0) return;
    for (int i = 0;; i++) {
        pid_t got = waitpid(c->pid, &status, i < 200 ? WNOHANG : 0);
        if (got == c->pid) break;
        if (got < 0 && errno != EINTR) break;
        if (i == 199) kill(-c->pid, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    c->pid = 0;
    describe_end(c, status);
}

void dlab_child_destroy(dlab_child *c)
{
    if (!c) return;
    if (c->pid > 0) {
        kill(-c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (c->socket >= 0) close(c->socket);
    if (c->errors >= 0) close(c->errors);
    dlab_lines_free(&c->lines);
    dlab_pulse_unmap(c->pulse);
    free(c);
}

void dlab_child_close(dlab_child *c)
{
    dlab_error ignored;
    dlab_status st = dlab_child_send(c, json_pack("{s:s}", "cmd", "close"), &ignored);
    for (int i = 0; st == DLAB_OK && i < 20 && c->pid > 0; i++) {
        dlab_child_event event;
        json_t *msg = NULL;
        st = dlab_child_wait(c, 100, &event, &msg, &ignored);
        json_decref(msg);
    }
}

dlab_status dlab_child_send(dlab_child *c, json_t *msg, dlab_error *err) { return dlab_wire_send(c->socket, msg, err); }

static dlab_status next_message(dlab_child *c, dlab_child_event *event, json_t **msg, dlab_error *err)
{
    const char *line = dlab_lines_next(&c->lines);
    if (!line) return DLAB_OK;
    DLAB_TRY(dlab_wire_parse(line, msg, err));
    *event = DLAB_CHILD_MESSAGE;
    return DLAB_OK;
}

dlab_status dlab_child_wait(dlab_child *c, int timeout_ms, dlab_child_event *event, json_t **msg, dlab_error *err)
{
    *event = DLAB_CHILD_QUIET;
    *msg = NULL;
    DLAB_TRY(next_message(c, event, msg, err));
    if (*event != DLAB_CHILD_QUIET) return DLAB_OK;
    struct pollfd fds[2] = {{.fd = c->socket, .events = POLLIN}, {.fd = c->errors, .events = POLLIN}};
    if (poll(fds, 2, timeout_ms) < 0) {
        return errno == EINTR ? DLAB_OK : DLAB_FAIL(err, DLAB_EIO, "waiting for a worker: %s", strerror(errno));
    }
    if (fds[1].revents) hear(c);
    if (!fds[0].revents) return DLAB_OK;
    bool eof = false;
    DLAB_TRY(dlab_lines_fill(&c->lines, c->socket, &eof, err));
    DLAB_TRY(next_message(c, event, msg, err));
    if (eof && *event == DLAB_CHILD_QUIET) {
        reap(c);
        *event = DLAB_CHILD_DIED;
    }
    return DLAB_OK;
}

const char *dlab_child_last_words(const dlab_child *c) { return c->last_words; }

uint64_t dlab_child_pulse(const dlab_child *c) { return dlab_pulse_count(c->pulse); }

pid_t dlab_child_pid(const dlab_child *c) { return c->pid; }

/* gnuplot as a child: no shell, so that names may have any characters. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plots/plot_parts.h"

extern char **environ;

static dlab_status start(const char *dir, const char *script, const int pipe_fd[2], pid_t *pid, bool *found,
                         dlab_error *err)
{
    char *const argv[] = {(char *)"gnuplot", (char *)"-d", (char *)script, NULL}; /* -d: no start-up files */
    posix_spawn_file_actions_t actions;
    *found = true;
    int e = posix_spawn_file_actions_init(&actions);
    if (e != 0) return DLAB_FAIL(err, DLAB_EIO, "gnuplot: cannot be started: %s", strerror(e));
    e = posix_spawn_file_actions_addchdir_np(&actions, dir);
    if (e == 0) e = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (e == 0) e = posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], 1);
    if (e == 0) e = posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], 2);
    if (e == 0) e = posix_spawnp(pid, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (e == ENOENT) {
        *found = false;
        return DLAB_OK;
    }
    return e == 0 ? DLAB_OK : DLAB_FAIL(err, DLAB_EIO, "gnuplot: cannot be started: %s", strerror(e));
}

/* Keeps the beginning of what the child says and drains the rest. */
static void listen_to(int fd, char *said, size_t size)
{
    char more[512];
    size_t n = 0;
    for (;;) {
        ssize_t got = n + 1 < size ? read(fd, said + n, size - 1 - n) : read(fd, more, sizeof more);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (n + 1 < size) n += (size_t)got;
    }
    said[n] = '\0';
}

/* gnuplot's complaint without the picture of where it stood, on one line. */
static const char *complaint(char *said)
{
    char *line = said, *best = said;
    while (line) {
        char *end = strchr(line, '\n');
        if (end) *end++ = '\0';
        if (strstr(line, "line ")) best = line;
        line = end;
    }
    while (*best == ' ') best++;
    return *best ? best : "it does not say why";
}

dlab_status dlab_plot_run(const char *dir, const char *script, bool *ran, dlab_error *err)
{
    int fd[2], status = 0;
    char said[2048];
    pid_t pid = 0;
    bool found;
    *ran = false;
    if (pipe2(fd, O_CLOEXEC) != 0) return DLAB_FAIL(err, DLAB_EIO, "gnuplot: cannot be started: %s", strerror(errno));
    dlab_status st = start(dir, script, fd, &pid, &found, err);
    close(fd[1]);
    if (st == DLAB_OK && found) {
        listen_to(fd[0], said, sizeof said);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            st = DLAB_FAIL(err, DLAB_EIO, "gnuplot: %s/%s: %s", dir, script, complaint(said));
        *ran = st == DLAB_OK;
    }
    close(fd[0]);
    return st;
}

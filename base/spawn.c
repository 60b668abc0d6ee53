#include "base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

extern char **environ;

int dlab_spawn(const char *program, char *const argv[], const dlab_spawn_file *files, size_t n, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t usual, none;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = files[i].fd < 0 ? posix_spawn_file_actions_addopen(&actions, files[i].as, "/dev/null", O_RDONLY, 0)
                             : posix_spawn_file_actions_adddup2(&actions, files[i].fd, files[i].as);
    }
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigdefault(&attr, &usual);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    if (rc == 0) rc = posix_spawnp(pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

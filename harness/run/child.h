/* One worker process, seen from the runner: started, spoken to, listened to, ended. */
#ifndef DLAB_HARNESS_RUN_CHILD_H
#define DLAB_HARNESS_RUN_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "base/json.h"

typedef struct dlab_child dlab_child;

typedef enum {
    DLAB_CHILD_QUIET,   /* nothing within the time given */
    DLAB_CHILD_MESSAGE, /* *msg is the caller's to decref */
    DLAB_CHILD_DIED     /* reaped; dlab_child_last_words says how */
} dlab_child_event;

/* exe worker --parent PID --pulse FD [--fault FAULT], in a process group of its own, so that a terminal's Ctrl-C reaches the runner alone. */
dlab_status dlab_child_start(const char *exe, const char *fault, dlab_child **out, dlab_error *err);
/* Asks an idle worker to leave and gives it two seconds. */
void dlab_child_close(dlab_child *c);
/* Kills it if it lives, reaps it, frees. NULL is fine. */
void dlab_child_destroy(dlab_child *c);
/* Takes the reference. */
dlab_status dlab_child_send(dlab_child *c, json_t *msg, dlab_error *err);
/* Waits at most timeout_ms. A line that is no message of ours is DLAB_EFORMAT. */
dlab_status dlab_child_wait(dlab_child *c, int timeout_ms, dlab_child_event *event, json_t **msg, dlab_error *err);
/* "killed by signal 11 (Segmentation fault); it said: …". Valid after DIED. */
const char *dlab_child_last_words(const dlab_child *c);
/* Goes on while the worker gets on with its work. */
uint64_t dlab_child_pulse(const dlab_child *c);
pid_t dlab_child_pid(const dlab_child *c);

#endif

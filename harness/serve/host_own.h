/* What the two halves of the host share: host.c, the thread that owns the engine, and host_ask.c, what others ask of it. */
#ifndef DLAB_HARNESS_SERVE_HOST_OWN_H
#define DLAB_HARNESS_SERVE_HOST_OWN_H

#include <poll.h>
#include <pthread.h>

#include "harness/serve/host.h"

typedef struct {
    dlab_answer_text text;
    size_t shown;
    int64_t n_tokens, first_ns, last_ns;
    dlab_answer_end end;
    bool told;
} dlab_choice;

struct dlab_answer {
    dlab_ask ask;
    dlab_answer *next, *prev; /* in the mailbox, or among those that have not ended */
    dlab_choice *choices;     /* [n_choices] */
    size_t n_choices, n_open;
    int64_t n_slots;     /* that it holds */
    int64_t deadline_ns; /* INT64_MAX: none */
    int64_t prompt_tokens, cached_tokens;
    bool ended, fresh, asleep, released;
    dlab_answer_end failed; /* NONE, or why all that was open ended together */
    char message[DLAB_ERROR_MSG];
};

/* One request of the engine, with all its samples: a prompt of an answer. */
typedef struct {
    dlab_answer *answer; /* NULL: free */
    size_t prompt;
    int32_t n_open;    /* choices that we still want */
    int32_t n_running; /* samples that the engine has not ended */
    bool admitted;
    int64_t next; /* free slots, or those done in this step; −1: the last */
} dlab_slot;

typedef struct {
    dlab_answer *first, *last;
} dlab_answer_list;

struct dlab_host {
    dlab_host_opts opts;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool stop, draining, abort_all, released; /* released: among the live ones is one that nobody wants */
    dlab_status status;
    dlab_error error;
    dlab_answer_list mail, live;
    int64_t n_answers, waiting, mail_choices; /* waiting: prompts not admitted; those in the mailbox count */
    dlab_slot *slots;
    int64_t n_slots, free_slot, done_slot;
    int64_t watched_ns;
    struct pollfd *polls;
    size_t cap_polls;
    dlab_serve_stats stats;
};

void dlab_host_append(dlab_answer_list *l, dlab_answer *a);
void dlab_host_free_answer(dlab_host *h, dlab_answer *a);

#endif

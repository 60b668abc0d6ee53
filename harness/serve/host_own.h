/* What the two halves of the host share: host.c, the thread that owns the engine, and host_ask.c, what others ask of it. */
#ifndef DLAB_HARNESS_SERVE_HOST_OWN_H
#define DLAB_HARNESS_SERVE_HOST_OWN_H

#include <poll.h>
#include <pthread.h>

#include "base/grow.h"

#include "harness/serve/host.h"

typedef struct dlab_choice {
    dlab_answer_text text;
    size_t shown;
    int64_t n_tokens, first_ns, last_ns;
    dlab_answer_end end;
    bool told, is_new;
    struct dlab_choice *next_new; /* among those with news */
} dlab_choice;

struct dlab_answer {
    dlab_ask ask;
    dlab_answer *next, *prev; /* in the mailbox, among those that have not ended, or among those that have */
    int64_t number;           /* as they came: lists are in this order, but that of the ended */
    dlab_choice *choices;     /* [n_choices] */
    dlab_choice *first_new;   /* with news */
    size_t n_choices, n_open;
    int64_t n_slots;     /* that it holds */
    int64_t deadline_ns; /* of its end, then of its reader; INT64_MAX: none */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    bool ended, fresh, asleep, released;
    dlab_answer_end doom;   /* not NONE: the engine's thread is to end it so, for the reason in `message` */
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
    bool stop, stopped, draining, doomed; /* stopped: the thread is gone; doomed: one of the live is */
    dlab_status status;
    dlab_error error;
    dlab_answer_list mail, live, ended;
    int64_t n_answers, n_asked, waiting, mail_choices; /* waiting: prompts not admitted; those in the mailbox count */
    dlab_slot *slots;
    int64_t n_slots, free_slot, done_slot;
    dlab_serve_stats stats;
    struct pollfd *polls; /* of the thread that watches, with the numbers of their answers */
    int64_t *numbers;
    size_t cap_polls, cap_numbers;
};

void dlab_host_append(dlab_answer_list *l, dlab_answer *a);
void dlab_host_unlink(dlab_answer_list *l, dlab_answer *a);
/* Leaves the end of an answer to the engine's thread, which is between steps or will be. */
void dlab_host_doom(dlab_host *h, dlab_answer *a, dlab_answer_end end, const char *why);
void dlab_host_free_answer(dlab_host *h, dlab_answer *a);

#endif

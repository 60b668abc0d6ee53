/* Clients that have gone, and time that is up. The engine's thread ends their answers. */
#include <sys/socket.h>

#include "harness/serve/host_own.h"

/* The live come before those in the mailbox. */
static dlab_answer *first_of(const dlab_host *h) { return h->live.first ? h->live.first : h->mail.first; }
static dlab_answer *next_of(const dlab_host *h, const dlab_answer *a)
{
    return a->next || a != h->live.last ? a->next : h->mail.first;
}

/* The sockets of all that wait; the lock is held. */
static size_t list_sockets(dlab_host *h)
{
    size_t n = 0;
    for (const dlab_answer *a = first_of(h); a; a = next_of(h, a)) {
        if (a->ask.socket < 0) continue;
        struct pollfd *polls = dlab_grow(h->polls, n + 1, &h->cap_polls, sizeof *polls);
        if (!polls) return n; /* the others at the next turn, perhaps */
        h->polls = polls;
        int64_t *numbers = dlab_grow(h->numbers, n + 1, &h->cap_numbers, sizeof *numbers);
        if (!numbers) return n;
        h->numbers = numbers;
        polls[n] = (struct pollfd){.fd = a->ask.socket, .events = POLLRDHUP};
        numbers[n++] = a->number;
    }
    return n;
}

/* A suspended connection is not read, so nobody else would notice that its peer has closed. Answers may have gone since they
 * were listed, and their sockets been closed or given to others; the lock is held. */
static void end_unwanted(dlab_host *h, size_t n)
{
    size_t i = 0;
    for (dlab_answer *a = first_of(h); a; a = next_of(h, a)) {
        while (i < n && h->numbers[i] < a->number) i++;
        if (i < n && h->numbers[i] == a->number && h->polls[i].revents && a->ask.socket == h->polls[i].fd)
            dlab_host_doom(h, a, DLAB_ANSWER_CANCELLED, "the client went away");
    }
}

static void end_late(dlab_host *h)
{
    const int64_t now = dlab_clock_now_ns(h->opts.clock);
    for (dlab_answer *a = first_of(h); a; a = next_of(h, a)) {
        if (now >= a->deadline_ns)
            dlab_host_doom(h, a, DLAB_ANSWER_TIMEOUT, "the request took longer than the server allows");
    }
    for (dlab_answer *a = h->ended.first; a; a = a->next) {
        if (now < a->deadline_ns || a->ask.socket < 0) continue;
        shutdown(a->ask.socket, SHUT_RDWR); /* whoever reads so slowly gets no more; its owner notices and closes it */
        a->ask.socket = -1;
    }
}

void dlab_host_watch(dlab_host *h)
{
    pthread_mutex_lock(&h->lock);
    const size_t n = list_sockets(h);
    pthread_mutex_unlock(&h->lock);
    const bool gone = n > 0 && poll(h->polls, n, 0) > 0;
    pthread_mutex_lock(&h->lock);
    if (gone) end_unwanted(h, n);
    end_late(h);
    pthread_mutex_unlock(&h->lock);
}

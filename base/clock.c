#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct dlab_clock {
    bool is_virtual;
    int64_t now_ns; /* virtual only */
};

#define NS_PER_S 1000000000

dlab_clock *dlab_clock_real(void)
{
    static const dlab_clock real = {.is_virtual = false};
    return (dlab_clock *)&real; /* never written: every writer looks at is_virtual first */
}

dlab_clock *dlab_clock_virtual_create(int64_t start_ns)
{
    dlab_clock *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->is_virtual = true;
    c->now_ns = start_ns;
    return c;
}

void dlab_clock_destroy(dlab_clock *c)
{
    if (c && c->is_virtual) free(c);
}

int64_t dlab_clock_now_ns(const dlab_clock *c)
{
    if (c->is_virtual) return c->now_ns;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

void dlab_clock_wait_until(dlab_clock *c, int64_t deadline_ns)
{
    if (c->is_virtual) {
        if (deadline_ns > c->now_ns) c->now_ns = deadline_ns;
        return;
    }
    if (deadline_ns <= 0) return;
    const struct timespec ts = {.tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) continue;
}

void dlab_clock_advance(dlab_clock *c, int64_t d_ns)
{
    if (c->is_virtual && d_ns > 0) c->now_ns += d_ns;
}

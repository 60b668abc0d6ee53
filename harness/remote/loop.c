#include "harness/remote/loop.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS      64   /* taken at once */
#define CONNECTIONS 4096 /* kept open between requests at most */

struct dlab_loop {
    CURLM *multi;
    int epoll_fd;
    dlab_clock *clock;
    int64_t timer_ns; /* when curl wants to be woken; INT64_MAX: not */
    dlab_loop_over over;
    void *ctx;
};

/* curl says which socket it waits for, and for what. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
    (void)easy, (void)known;
    const dlab_loop *l = ctx;
    struct epoll_event e = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, fd, &e);
        return 0;
    }
    if (what & CURL_POLL_IN) e.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) e.events |= EPOLLOUT;
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, fd, &e) == 0) return 0;
    return epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -1;
}

static int on_timer(CURLM *multi, long timeout_ms, void *ctx)
{
    (void)multi;
    dlab_loop *l = ctx;
    l->timer_ns = timeout_ms < 0 ? INT64_MAX : dlab_clock_now_ns(l->clock) + (int64_t)timeout_ms * 1000000;
    return 0;
}

dlab_status dlab_loop_create(dlab_clock *clock, dlab_loop_over over, void *ctx, dlab_loop **out, dlab_error *err)
{
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return DLAB_FAIL(err, DLAB_EOOM, "libcurl does not start");
    dlab_loop *l = calloc(1, sizeof *l);
    if (!l) {
        curl_global_cleanup();
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for a client");
    }
    *l = (dlab_loop){.multi = curl_multi_init(),
                     .epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                     .clock = clock,
                     .timer_ns = INT64_MAX,
                     .over = over,
                     .ctx = ctx};
    if (!l->multi || l->epoll_fd < 0) {
        dlab_loop_destroy(l);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory or descriptor for a client");
    }
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETDATA, l);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERDATA, l);
    curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS);
    *out = l;
    return DLAB_OK;
}

void dlab_loop_destroy(dlab_loop *l)
{
    if (!l) return;
    curl_multi_cleanup(l->multi);
    if (l->epoll_fd >= 0) close(l->epoll_fd);
    free(l);
    curl_global_cleanup();
}

static dlab_status act(dlab_loop *l, curl_socket_t fd, int mask, dlab_error *err)
{
    int running = 0;
    CURLMcode code = curl_multi_socket_action(l->multi, fd, mask, &running);
    if (code == CURLM_OK) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "libcurl: %s", curl_multi_strerror(code));
}

/* What curl's own timer asks for, now if it is due. */
static dlab_status on_time(dlab_loop *l, dlab_error *err)
{
    if (dlab_clock_now_ns(l->clock) < l->timer_ns) return DLAB_OK;
    l->timer_ns = INT64_MAX; /* it sets another one if it wants to */
    return act(l, CURL_SOCKET_TIMEOUT, 0, err);
}

dlab_status dlab_loop_add(dlab_loop *l, CURL *easy, dlab_error *err)
{
    CURLMcode code = curl_multi_add_handle(l->multi, easy);
    if (code != CURLM_OK) return DLAB_FAIL(err, DLAB_EINTERNAL, "libcurl: %s", curl_multi_strerror(code));
    return on_time(l, err);
}

void dlab_loop_remove(dlab_loop *l, CURL *easy) { curl_multi_remove_handle(l->multi, easy); }

static bool tell_ended(dlab_loop *l)
{
    int left = 0;
    bool told = false;
    for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &left));) {
        if (m->msg != CURLMSG_DONE) continue;
        CURL *easy = m->easy_handle;
        CURLcode result = m->data.result; /* m is gone with the handle */
        curl_multi_remove_handle(l->multi, easy);
        l->over(l->ctx, easy, result);
        told = true;
    }
    return told;
}

/* poll on the epoll itself, because epoll_wait counts in milliseconds. */
static bool wait_for(const dlab_loop *l, int64_t until_ns)
{
    struct pollfd p = {.fd = l->epoll_fd, .events = POLLIN};
    int64_t left = until_ns == INT64_MAX ? INT64_MAX : until_ns - dlab_clock_now_ns(l->clock);
    if (left < 0) left = 0;
    struct timespec t = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
    return ppoll(&p, 1, until_ns == INT64_MAX ? NULL : &t, NULL) > 0;
}

dlab_status dlab_loop_turn(dlab_loop *l, int64_t deadline_ns, dlab_error *err)
{
    struct epoll_event events[EVENTS];
    int n = 0;
    if (tell_ended(l))
        deadline_ns = 0; /* those that ended when they were added: what is there is handled, and no more */
    if (wait_for(l, deadline_ns < l->timer_ns ? deadline_ns : l->timer_ns))
        n = epoll_wait(l->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int mask = events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0;
        if (events[i].events & EPOLLOUT) mask |= CURL_CSELECT_OUT;
        if (events[i].events & (EPOLLERR | EPOLLHUP)) mask |= CURL_CSELECT_ERR;
        DLAB_TRY(act(l, events[i].data.fd, mask, err));
    }
    DLAB_TRY(on_time(l, err));
    tell_ended(l);
    return DLAB_OK;
}

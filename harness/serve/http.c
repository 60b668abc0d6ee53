#include "harness/serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/grow.h"
#include "harness/serve/exchange.h"

#define SPARE_CONNECTIONS 64         /* beyond the limit, to be told 503 */
#define BODIES_MAX        16         /* bodies of the most bytes that are held at once */
#define DISCARD_MAX       (64 << 20) /* of a body that is refused so much is read, so that the client reads why */

bool dlab_key_equal(const char *key, const char *given)
{
    const size_t n = strlen(key), n_given = strlen(given);
    unsigned char off = n != n_given;
    for (size_t i = 0; i < n; i++) off = (unsigned char)(off | (key[i] ^ given[i < n_given ? i : 0]));
    return off == 0;
}

/* ---- routes --------------------------------------------------------------------------------------------------------- */

static enum MHD_Result get_health(dlab_exchange *x)
{
    if (!dlab_host_draining(x->http->host))
        return dlab_reply_text(x, 200, "application/json", strdup("{\"status\":\"ok\"}"));
    return dlab_reply_text(x, 503, "application/json", strdup("{\"status\":\"draining\"}"));
}

static enum MHD_Result get_metrics(dlab_exchange *x)
{
    dlab_serve_stats stats;
    dlab_status_count codes[DLAB_HTTP_CODES];
    dlab_http *h = x->http;
    dlab_host_get_stats(h->host, &stats);
    for (size_t i = 0; i < DLAB_HTTP_CODES; i++) codes[i] = (dlab_status_count){dlab_http_codes[i], h->n_status[i]};
    return dlab_reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8",
                           dlab_prometheus_text(&stats, codes, DLAB_HTTP_CODES, h->n_connections));
}

static enum MHD_Result get_models(dlab_exchange *x)
{
    return dlab_reply_text(x, 200, "application/json", dlab_api_models(x->http->api, true));
}

static enum MHD_Result post_completions(dlab_exchange *x) { return dlab_exchange_ask(x, false); }
static enum MHD_Result post_chat(dlab_exchange *x) { return dlab_exchange_ask(x, true); }

static const dlab_route routes[] = {
    {"GET", "/health", get_health},
    {"GET", "/metrics", get_metrics},
    {"GET", "/v1/models", get_models},
    {"POST", "/v1/completions", post_completions},
    {"POST", "/v1/chat/completions", post_chat},
};

static enum MHD_Result get_model(dlab_exchange *x)
{
    return dlab_reply_text(x, 200, "application/json", dlab_api_models(x->http->api, false));
}
static const dlab_route one_model = {"GET", "/v1/models/", get_model};

static const dlab_route *find_route(const dlab_http *h, const char *url)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(url, routes[i].path) == 0) return &routes[i];
    }
    const size_t n = strlen(one_model.path);
    return strncmp(url, one_model.path, n) == 0 && strcmp(url + n, h->api->model) == 0 ? &one_model : NULL;
}

/* ---- what is wrong with a request before its body is read ------------------------------------------------------------ */

static enum MHD_Result add_size(void *total, enum MHD_ValueKind kind, const char *key, size_t n_key, const char *value,
                                size_t n_value)
{
    (void)kind;
    (void)key;
    (void)value;
    *(size_t *)total += n_key + n_value + 4; /* ": " and the line's end */
    return MHD_YES;
}

static size_t header_size(struct MHD_Connection *c, const char *url)
{
    size_t n = strlen(url);
    MHD_get_connection_values_n(c, MHD_HEADER_KIND, add_size, &n);
    MHD_get_connection_values_n(c, MHD_GET_ARGUMENT_KIND, add_size, &n);
    return n;
}

static bool has_key(const dlab_exchange *x)
{
    const char *given = MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, "Authorization");
    if (!given || strncasecmp(given, "Bearer ", 7) != 0) return false;
    return dlab_key_equal(x->http->opts.key, given + 7);
}

static bool is_json(const dlab_exchange *x)
{
    static const char json[] = "application/json";
    const char *type = MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, "Content-Type");
    if (!type || strncasecmp(type, json, sizeof json - 1) != 0) return false;
    const char end = type[sizeof json - 1];
    return end == 0 || end == ';' || end == ' ';
}

/* What a page of another origin may send without asking first is not JSON. */
static dlab_status check_body(dlab_exchange *x)
{
    const int64_t most = x->http->opts.max_body;
    const char *length = MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, "Content-Length");
    x->length = length ? strtoull(length, NULL, 10) : 0;
    if (!is_json(x))
        return dlab_api_fail(&x->error, 415, NULL, NULL, "the body must be JSON, with Content-Type: application/json");
    if (x->length > (uint64_t)most)
        return dlab_api_fail(&x->error, 413, "body_too_large", NULL, "the body has %llu bytes, %lld at most are taken",
                             (unsigned long long)x->length, (long long)most);
    return DLAB_OK;
}

static bool is_loopback_name(const char *name)
{
    struct in_addr v4;
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0) return true;
    return inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

/* A page may have given its own name to this machine's address, which makes us its own origin (DNS rebinding): its name then
 * stands in Host. Who asks for a key need not care. */
static bool is_own_host(const dlab_exchange *x)
{
    const dlab_http *h = x->http;
    const char *given = MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    char name[256];
    if (!h->loopback || h->opts.key || !given) return true; /* every browser sends one */
    const char *bracket = strchr(given, ']'), *colon = strchr(bracket ? bracket : given, ':');
    const size_t n = colon ? (size_t)(colon - given) : strlen(given);
    if (n >= sizeof name) return false;
    memcpy(name, given, n);
    name[n] = 0;
    return is_loopback_name(name) || strcasecmp(name, h->opts.host) == 0;
}

static dlab_status check_request(dlab_exchange *x, const char *url, const char *method)
{
    const dlab_http *h = x->http;
    const size_t header = header_size(x->conn, url);
    const bool monitored = strcmp(url, "/health") == 0 || strcmp(url, "/metrics") == 0;
    x->route = find_route(h, url);
    if (header > (size_t)h->opts.max_header)
        return dlab_api_fail(&x->error, 431, NULL, NULL, "the header has %zu bytes, %lld at most are taken", header,
                             (long long)h->opts.max_header);
    if (!is_own_host(x))
        return dlab_api_fail(&x->error, 403, "host_not_allowed", NULL,
                             "this server is for this machine, and the header Host names another: localhost, 127.0.0.1 "
                             "and [::1] are taken");
    if (!monitored && dlab_exchange_is_extra(x))
        return dlab_api_fail(&x->error, 503, "too_many_connections", NULL,
                             "%lld connections are open already: try again later", (long long)h->opts.max_connections);
    if (h->opts.key && strncmp(url, "/v1/", 4) == 0 && !has_key(x))
        return dlab_api_fail(&x->error, 401, "invalid_api_key", NULL,
                             "the header Authorization: Bearer KEY is missing, or the key is not the server's");
    if (!x->route) return dlab_api_fail(&x->error, 404, NULL, NULL, "there is no %.200s here", url);
    const bool get = strcmp(x->route->method, "GET") == 0;
    if (strcmp(method, x->route->method) != 0 && !(get && strcmp(method, "HEAD") == 0))
        return dlab_api_fail(&x->error, 405, NULL, NULL, "%.200s takes %s, not %.20s", url, x->route->method, method);
    return get ? DLAB_OK : check_body(x);
}

/* ---- the body ------------------------------------------------------------------------------------------------------- */

/* Room for a body of `want` bytes, or an error. */
static bool has_room(dlab_exchange *x, size_t want)
{
    dlab_http *h = x->http;
    const size_t before = x->cap_body;
    if (want <= before) return true;
    char *grown = NULL;
    if (h->body_bytes - before + want <= BODIES_MAX * (size_t)h->opts.max_body)
        grown = dlab_grow(x->body, want, &x->cap_body, 1);
    if (!grown) {
        dlab_exchange_drop_body(x); /* the others may end theirs */
        dlab_api_fail(&x->error, 503, "no_memory", NULL, "no memory for a body of %zu bytes now: try again later",
                      want);
        return false;
    }
    x->body = grown;
    h->body_bytes += x->cap_body - before;
    return true;
}

static void add_body(dlab_exchange *x, const char *data, size_t n)
{
    const size_t most = (size_t)x->http->opts.max_body;
    x->n_seen += n;
    if (x->error.status) return; /* read to be dropped */
    if (n > most - x->n_body) {
        dlab_api_fail(&x->error, 413, "body_too_large", NULL, "the body has more than the %zu bytes that are taken",
                      most);
        return;
    }
    if (!has_room(x, x->n_body + n)) return;
    memcpy(x->body + x->n_body, data, n);
    x->n_body += n;
}

/* ---- callbacks ------------------------------------------------------------------------------------------------------ */

static enum MHD_Result begin(dlab_http *h, struct MHD_Connection *c, const char *url, const char *method, void **ctx)
{
    dlab_exchange *x = dlab_exchange_create(h, c);
    *ctx = x;
    if (!x) return MHD_NO;
    if (check_request(x, url, method) == DLAB_OK) return MHD_YES;
    return x->length > DISCARD_MAX ? dlab_reply_error(x) : MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n_data, void **ctx)
{
    (void)version;
    if (!*ctx) return begin(cls, c, url, method, ctx);
    dlab_exchange *x = *ctx;
    if (*n_data > 0) {
        add_body(x, data, *n_data);
        *n_data = 0;
        return x->n_seen > DISCARD_MAX ? MHD_NO : MHD_YES;
    }
    if (x->error.status) return dlab_reply_error(x);
    return x->answer ? dlab_exchange_go_on(x) : x->route->run(x);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **ctx, enum MHD_RequestTerminationCode why)
{
    (void)cls;
    (void)c;
    (void)why;
    dlab_exchange_destroy(*ctx);
    *ctx = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **ctx, enum MHD_ConnectionNotificationCode what)
{
    (void)c;
    dlab_http *h = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const bool extra = h->n_connections - h->n_extra >= h->opts.max_connections;
        *ctx = extra ? h : NULL; /* the mark of dlab_exchange_is_extra */
        h->n_connections++;
        h->n_extra += extra;
    } else {
        h->n_connections--;
        h->n_extra -= *ctx != NULL;
    }
}

/* ---- start and end -------------------------------------------------------------------------------------------------- */

static int listen_on(const struct addrinfo *a)
{
    const int yes = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static bool is_loopback(const struct sockaddr_storage *bound)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, bound, sizeof v4);
    memcpy(&v6, bound, sizeof v6);
    if (bound->ss_family == AF_INET) return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    return bound->ss_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
                                            (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127));
}

static dlab_status open_socket(dlab_http *h, int *fd, dlab_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *all = NULL;
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char port[16], shown[16];
    snprintf(port, sizeof port, "%d", h->opts.port);
    const int bad = getaddrinfo(h->opts.host, port, &hints, &all);
    if (bad) return DLAB_FAIL(err, DLAB_EUSAGE, "--host %.200s: %s", h->opts.host, gai_strerror(bad));
    *fd = -1;
    for (const struct addrinfo *a = all; a && *fd < 0; a = a->ai_next) *fd = listen_on(a);
    const int why = errno;
    freeaddrinfo(all);
    if (*fd < 0)
        return DLAB_FAIL(err, DLAB_EIO, "cannot listen on %.200s port %d: %s; --port 0 takes any that is free",
                         h->opts.host, h->opts.port, strerror(why));
    if (getsockname(*fd, (struct sockaddr *)&bound, &size) == 0 &&
        getnameinfo((struct sockaddr *)&bound, size, NULL, 0, shown, sizeof shown, NI_NUMERICSERV) == 0)
        h->port = (int)strtol(shown, NULL, 10);
    h->loopback = is_loopback(&bound);
    return DLAB_OK;
}

dlab_status dlab_http_start(const dlab_http_opts *opts, dlab_api *api, dlab_host *host, dlab_http **out,
                            dlab_error *err)
{
    int fd = -1;
    *out = NULL;
    dlab_http *h = calloc(1, sizeof *h);
    if (!h) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a server");
    h->opts = *opts;
    h->api = api;
    h->host = host;
    dlab_status st = open_socket(h, &fd, err);
    if (st == DLAB_OK) {
        /* MHD's own limit on the header, after which it does not say much, is above ours. */
        h->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME, 0, NULL, NULL, on_request,
                                     h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                                     MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_CONNECTION_LIMIT,
                                     (unsigned)(opts->max_connections + SPARE_CONNECTIONS),
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(2 * opts->max_header + 4096),
                                     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)opts->idle_s, MHD_OPTION_END);
        if (!h->daemon) st = DLAB_FAIL(err, DLAB_EIO, "the HTTP server could not be started: %s", strerror(errno));
    }
    if (st == DLAB_OK) {
        *out = h;
    } else {
        if (fd >= 0) close(fd);
        free(h);
    }
    return st;
}

void dlab_http_stop(dlab_http *h)
{
    if (!h) return;
    MHD_stop_daemon(h->daemon);
    free(h);
}

int dlab_http_port(const dlab_http *h) { return h->port; }
bool dlab_http_is_loopback(const dlab_http *h) { return h->loopback; }

/* The API over HTTP: libmicrohttpd on a thread of its own. A connection that waits for the engine is suspended, and the host
 * resumes it when there is something to say. */
#ifndef DLAB_HARNESS_SERVE_HTTP_H
#define DLAB_HARNESS_SERVE_HTTP_H

#include "harness/serve/api.h"

typedef struct dlab_http dlab_http;

typedef struct {
    const char *host;             /* a name or address to listen on */
    int port;                     /* 0: the system's choice */
    const char *key;              /* bearer token that /v1/ asks for; NULL: none */
    int64_t max_body, max_header; /* bytes of a request */
    int64_t max_connections;
    int64_t idle_s; /* a connection with nothing going on is closed after it */
    dlab_clock *clock;
} dlab_http_opts;

/* api and host are borrowed. */
dlab_status dlab_http_start(const dlab_http_opts *opts, dlab_api *api, dlab_host *host, dlab_http **out,
                            dlab_error *err);
/* Closes all connections. No answer may be running any more (dlab_host_stop). */
void dlab_http_stop(dlab_http *h);
int dlab_http_port(const dlab_http *h);
bool dlab_http_is_loopback(const dlab_http *h); /* nobody else's machine can reach it */

/* Whether two keys are the same, in a time that says nothing of where they differ. */
bool dlab_key_equal(const char *key, const char *given);

#endif

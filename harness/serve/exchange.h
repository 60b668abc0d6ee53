/* One request and its response on one connection; what http.c and exchange.c share. */
#ifndef DLAB_HARNESS_SERVE_EXCHANGE_H
#define DLAB_HARNESS_SERVE_EXCHANGE_H

#include <microhttpd.h>

#include "harness/serve/http.h"

#define DLAB_HTTP_CODES 13
extern const int dlab_http_codes[DLAB_HTTP_CODES];

struct dlab_http {
    dlab_http_opts opts;
    dlab_api *api;
    dlab_host *host;
    struct MHD_Daemon *daemon;
    int port;
    bool loopback; /* the address that was bound */
    /* All the rest is of the daemon's one thread, metrics included. */
    int64_t n_connections, n_extra; /* open; of these, beyond the limit: they are told so */
    uint64_t n_status[DLAB_HTTP_CODES];
    size_t body_bytes; /* of requests whose bodies are being read */
};

typedef struct dlab_exchange dlab_exchange;

typedef struct {
    const char *method, *path;
    enum MHD_Result (*run)(dlab_exchange *x);
} dlab_route;

struct dlab_exchange {
    dlab_http *http;
    struct MHD_Connection *conn;
    const dlab_route *route;
    dlab_api_error error; /* status not 0: the response, once the body has been read */
    char *body;
    size_t n_body, cap_body, n_seen;
    uint64_t length; /* the body's, as announced; 0: not */
    dlab_question question;
    dlab_answer *answer;       /* NULL: not asked yet */
    bool *begun;               /* [choices] the role of the choice has been sent */
    dlab_answer_piece *pieces; /* [choices] */
    char *out;                 /* events that are not sent yet: [at, n_out) */
    size_t n_out, cap_out, at;
    bool over, broken; /* out holds the end; … but the answer has none */
};

dlab_exchange *dlab_exchange_create(dlab_http *h, struct MHD_Connection *c);
void dlab_exchange_destroy(dlab_exchange *x); /* cancels its answer */
void dlab_exchange_drop_body(dlab_exchange *x);
/* Whether the connection is one beyond the limit. */
bool dlab_exchange_is_extra(const dlab_exchange *x);

/* text: malloc'd, becomes the response's; NULL: memory was out. */
enum MHD_Result dlab_reply_text(dlab_exchange *x, int status, const char *type, char *text);
enum MHD_Result dlab_reply_error(dlab_exchange *x); /* of x->error */

/* The body has been read: asks the host. */
enum MHD_Result dlab_exchange_ask(dlab_exchange *x, bool chat);
/* The connection was resumed before its response has begun. */
enum MHD_Result dlab_exchange_go_on(dlab_exchange *x);

#endif

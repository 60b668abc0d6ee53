/* Where a server's endpoints are and what every request to it carries. */
#ifndef DLAB_HARNESS_REMOTE_SERVER_H
#define DLAB_HARNESS_REMOTE_SERVER_H

#include <curl/curl.h>

#include "harness/target/target.h"

#define DLAB_SERVER_MODEL_MAX 256
#define DLAB_SERVER_URL_MAX   2048

typedef struct {
    char *base;     /* "http://127.0.0.1:8080/v1": of the URL as given, with /v1 where it has no path */
    char *endpoint; /* … /completions or /chat/completions */
    struct curl_slist *headers;
    int64_t connect_timeout_ns, timeout_ns;
    char *login;   /* "user:password" of the URL, which are in no message and no record; NULL: it has none */
    bool loopback; /* no proxy stands between */
} dlab_server;

/* Whether text is the URL of a server: http:// or https:// and a host. */
bool dlab_server_is_url(const char *text);
/* The URL without "user:password@". */
void dlab_server_shown(const char *url, char *out, size_t size);
/* remote->url must be one. out must be freed in any case. */
dlab_status dlab_server_init(dlab_server *out, const dlab_remote *remote, dlab_error *err);
void dlab_server_free(dlab_server *s);
/* What all transfers to it have in common. The server must outlive them. */
void dlab_server_options(const dlab_server *s, CURL *easy);
/* The first model that GET …/models names. Blocks. DLAB_EIO: nobody answers, or otherwise than expected. */
dlab_status dlab_server_model(const dlab_server *s, char *out, size_t size, dlab_error *err);

#endif

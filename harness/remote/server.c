#include "harness/remote/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define LIST_MAX        ((size_t)1 << 20) /* bytes of a list of models */
#define LIST_TIMEOUT_MS 10000

static const char *after_scheme(const char *text)
{
    if (strncmp(text, "http://", 7) == 0) return text + 7;
    return strncmp(text, "https://", 8) == 0 ? text + 8 : NULL;
}

/* Behind "user:password@". */
static const char *find_host(const char *text)
{
    const char *start = after_scheme(text);
    const char *at = start ? memrchr(start, '@', strcspn(start, "/")) : NULL;
    return at ? at + 1 : start;
}

void dlab_server_shown(const char *url, char *out, size_t size)
{
    snprintf(out, size, "%.*s%s", (int)(after_scheme(url) - url), url, find_host(url));
}

bool dlab_server_is_url(const char *text)
{
    const char *host = find_host(text);
    return host && *host && *host != '/' && *host != ':' && !strpbrk(text, " \t\r\n?#");
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strncmp(host, "localhost", 9) == 0 || strncmp(host, "[::1]", 5) == 0;
}

static char *join(const char *a, size_t n, const char *b)
{
    size_t m = strlen(b);
    char *s = malloc(n + m + 1);
    if (!s) return NULL;
    memcpy(s, a, n);
    memcpy(s + n, b, m + 1);
    return s;
}

/* curl keeps its list when there is no memory for one more. */
static bool add_header(dlab_server *s, const char *text)
{
    struct curl_slist *more = curl_slist_append(s->headers, text);
    if (more) s->headers = more;
    return more != NULL;
}

static bool add_headers(dlab_server *s, const char *api_key)
{
    bool ok = add_header(s, "Content-Type: application/json") && add_header(s, "Expect:");
    if (!api_key || !ok) return ok;
    char *bearer = join("Authorization: Bearer ", 22, api_key);
    ok = bearer && add_header(s, bearer);
    free(bearer);
    return ok;
}

/* What stands before the host, with its %-codes read, as curl wants it. */
static bool find_login(const char *url, char **out)
{
    const char *start = after_scheme(url), *host = find_host(url);
    if (host == start) return true;
    char *text = curl_easy_unescape(NULL, start, (int)(host - 1 - start), NULL);
    *out = text ? strdup(text) : NULL;
    curl_free(text);
    return *out != NULL;
}

dlab_status dlab_server_init(dlab_server *out, const dlab_remote *remote, dlab_error *err)
{
    *out = (dlab_server){.connect_timeout_ns = remote->connect_timeout_ns, .timeout_ns = remote->timeout_ns};
    if (!dlab_server_is_url(remote->url))
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: http://HOST:PORT or https://HOST:PORT is expected", remote->url);
    char url[DLAB_SERVER_URL_MAX];
    if (strlen(remote->url) >= sizeof url) return DLAB_FAIL(err, DLAB_EUSAGE, "the URL is too long");
    dlab_server_shown(remote->url, url, sizeof url);
    if (remote->api_key && (!*remote->api_key || strpbrk(remote->api_key, "\r\n")))
        return DLAB_FAIL(err, DLAB_EUSAGE, "the API key is empty or more than one line");
    const char *host = after_scheme(url);
    size_t n = strlen(url);
    while (url[n - 1] == '/') n--;
    const char *path = strchr(host, '/');
    const bool bare = !path || path >= url + n;
    out->loopback = is_loopback(host);
    out->base = join(url, n, bare ? "/v1" : "");
    const bool chat = remote->endpoint && strcmp(remote->endpoint, "chat") == 0;
    if (out->base) out->endpoint = join(out->base, strlen(out->base), chat ? "/chat/completions" : "/completions");
    if (!out->endpoint || !add_headers(out, remote->api_key) || !find_login(remote->url, &out->login))
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for a client");
    return DLAB_OK;
}

void dlab_server_free(dlab_server *s)
{
    free(s->base);
    free(s->endpoint);
    free(s->login);
    curl_slist_free_all(s->headers);
    *s = (dlab_server){0};
}

static long milliseconds(int64_t ns) { return ns <= 0 ? 0 : (long)((ns + 999999) / 1000000); }

void dlab_server_options(const dlab_server *s, CURL *easy)
{
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "dlab");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(s->connect_timeout_ns));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, milliseconds(s->timeout_ns));
    if (s->login) curl_easy_setopt(easy, CURLOPT_USERPWD, s->login);
    if (s->loopback) curl_easy_setopt(easy, CURLOPT_PROXY, "");
}

/* ---- the models of a server ------------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t n;
} body;

static size_t keep_body(char *bytes, size_t one, size_t n, void *ctx)
{
    (void)one; /* 1, says curl */
    body *b = ctx;
    char *more = n <= LIST_MAX - b->n ? realloc(b->bytes, b->n + n + 1) : NULL;
    if (!more) return 0;
    memcpy(more + b->n, bytes, n);
    b->bytes = more;
    b->n += n;
    return n;
}

static dlab_status fetch(const dlab_server *s, const char *url, body *out, dlab_error *err)
{
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;
    CURL *easy = curl_easy_init();
    if (!easy) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a client");
    dlab_server_options(s, easy);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)LIST_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, out);
    CURLcode code = curl_easy_perform(easy);
    if (code == CURLE_OK) curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);
    if (code != CURLE_OK)
        return DLAB_FAIL(err, DLAB_EIO, "%s: %s; is the server running?", url, *why ? why : curl_easy_strerror(code));
    if (status == 200) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "%s: answered with status %ld%s", url, status,
                     status == 401 || status == 403 ? ": does it want --api-key?"
                                                    : "; name the model with --model-name");
}

dlab_status dlab_server_model(const dlab_server *s, char *out, size_t size, dlab_error *err)
{
    body b = {0};
    json_t *list = NULL;
    char *url = join(s->base, strlen(s->base), "/models");
    dlab_status st = url ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "no memory for a client");
    *out = 0;
    if (st == DLAB_OK) st = fetch(s, url, &b, err);
    if (st != DLAB_OK) goto done;
    list = json_loadb(b.bytes ? b.bytes : "", b.n, 0, NULL);
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    if (!id || !*id || strlen(id) >= size) {
        st = DLAB_FAIL(err, DLAB_EIO, "%s: names no model; name it with --model-name", url);
        goto done;
    }
    dlab_text_copy(out, size, id);

done:
    json_decref(list);
    free(b.bytes);
    free(url);
    return st;
}

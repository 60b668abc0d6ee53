#include "harness/serve/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

const int dlab_http_codes[DLAB_HTTP_CODES] = {200, 400, 401, 403, 404, 405, 413, 415, 429, 431, 500, 503, 504};

/* ---- plain responses ------------------------------------------------------------------------------------------------ */

static void count_status(dlab_http *h, int status)
{
    for (size_t i = 0; i < DLAB_HTTP_CODES; i++) {
        if (dlab_http_codes[i] == status) h->n_status[i]++;
    }
}

/* Headers that go with a status, or with every response. */
static void add_headers(const dlab_exchange *x, struct MHD_Response *r, int status, const char *type)
{
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == 429 || status == 503) MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == 401) MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (dlab_exchange_is_extra(x)) MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == 405) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, x->route->method);
}

static enum MHD_Result queue(dlab_exchange *x, int status, const char *type, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    add_headers(x, r, status, type);
    const enum MHD_Result ok = MHD_queue_response(x->conn, (unsigned)status, r);
    MHD_destroy_response(r);
    if (ok == MHD_YES) count_status(x->http, status);
    return ok;
}

enum MHD_Result dlab_reply_text(dlab_exchange *x, int status, const char *type, char *text)
{
    if (!text) return MHD_NO;
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!r) free(text);
    return queue(x, status, type, r);
}

enum MHD_Result dlab_reply_error(dlab_exchange *x)
{
    return dlab_reply_text(x, x->error.status, "application/json", dlab_api_error_json(&x->error));
}

/* ---- life ----------------------------------------------------------------------------------------------------------- */

dlab_exchange *dlab_exchange_create(dlab_http *h, struct MHD_Connection *c)
{
    dlab_exchange *x = calloc(1, sizeof *x);
    if (x) {
        x->http = h;
        x->conn = c;
    }
    return x;
}

void dlab_exchange_drop_body(dlab_exchange *x)
{
    x->http->body_bytes -= x->cap_body;
    free(x->body);
    x->body = NULL;
    x->n_body = x->cap_body = 0;
}

bool dlab_exchange_is_extra(const dlab_exchange *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info && info->socket_context;
}

void dlab_exchange_destroy(dlab_exchange *x)
{
    if (!x) return;
    dlab_host_release(x->http->host, x->answer);
    dlab_question_free(&x->question);
    dlab_exchange_drop_body(x);
    free(x->begun);
    free(x->pieces);
    free(x->out);
    free(x);
}

static void suspend(void *exchange) { MHD_suspend_connection(((dlab_exchange *)exchange)->conn); }
static void resume(void *exchange) { MHD_resume_connection(((dlab_exchange *)exchange)->conn); }

static int socket_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

enum MHD_Result dlab_exchange_ask(dlab_exchange *x, bool chat)
{
    dlab_error err = {0};
    dlab_http *h = x->http;
    const int64_t arrived = dlab_clock_now_ns(h->opts.clock);
    if (dlab_host_draining(h->host)) {
        dlab_api_fail(&x->error, 503, "shutting_down", NULL, "the server is shutting down");
        return dlab_reply_error(x);
    }
    if (dlab_api_read(h->api, chat, x->body, x->n_body, &x->question, &x->error) != DLAB_OK) return dlab_reply_error(x);
    dlab_exchange_drop_body(x);
    dlab_ask *ask = &x->question.ask;
    const size_t n = ask->n_prompts * (size_t)ask->samples;
    x->begun = calloc(n, sizeof *x->begun);
    x->pieces = calloc(n, sizeof *x->pieces);
    if (!x->begun || !x->pieces) return MHD_NO;
    ask->arrived_ns = arrived;
    ask->socket = socket_of(x->conn);
    ask->sleep = suspend;
    ask->wake = resume;
    ask->ctx = x;
    const dlab_status st = dlab_host_submit(h->host, ask, &x->answer, &err);
    if (st == DLAB_OK) return dlab_exchange_go_on(x);
    if (st == DLAB_EFULL)
        dlab_api_fail(&x->error, 429, "queue_full", NULL, "%s", err.msg);
    else
        dlab_api_fail(&x->error, 503, st == DLAB_EINTERRUPTED ? "shutting_down" : NULL, NULL, "%s", err.msg);
    return dlab_reply_error(x);
}

/* ---- whole answers -------------------------------------------------------------------------------------------------- */

static int by_choice(const void *a, const void *b)
{
    const size_t x = ((const dlab_answer_piece *)a)->choice, y = ((const dlab_answer_piece *)b)->choice;
    return (x > y) - (x < y);
}

/* All choices have ended, so each has news. */
static enum MHD_Result reply_whole(dlab_exchange *x)
{
    char *text = NULL;
    bool all = true;
    dlab_answer_sum sum;
    const size_t n = dlab_answer_take(x->http->host, x->answer, x->pieces, &sum);
    for (size_t i = 0; i < n; i++) all = all && x->pieces[i].text;
    qsort(x->pieces, n, sizeof *x->pieces, by_choice);
    if (all) text = dlab_api_response(x->http->api, &x->question, x->pieces, &sum);
    for (size_t i = 0; i < n; i++) free(x->pieces[i].text);
    return dlab_reply_text(x, 200, "application/json", text);
}

/* ---- streams -------------------------------------------------------------------------------------------------------- */

/* Appends an event and frees it. */
static bool add_event(dlab_exchange *x, char *event)
{
    const size_t n = event ? strlen(event) : 0;
    char *out = event ? dlab_grow(x->out, x->n_out + n, &x->cap_out, 1) : NULL;
    if (out) {
        x->out = out;
        memcpy(x->out + x->n_out, event, n);
        x->n_out += n;
    }
    free(event);
    return out != NULL;
}

static bool add_piece(dlab_exchange *x, const dlab_answer_piece *p)
{
    const dlab_api *api = x->http->api;
    const dlab_question *q = &x->question;
    const size_t i = p->choice;
    bool ok = p->text != NULL;
    const bool ended = p->end == DLAB_ANSWER_STOP || p->end == DLAB_ANSWER_LENGTH; /* else an error event follows */
    if (ok && q->chat && !x->begun[i] && (p->n > 0 || ended)) {
        ok = add_event(x, dlab_api_role_event(api, q, i));
        x->begun[i] = true;
    }
    if (ok && p->n > 0) ok = add_event(x, dlab_api_text_event(api, q, i, p->text, p->n));
    if (ok && ended) ok = add_event(x, dlab_api_end_event(api, q, i, p->end));
    return ok;
}

/* What has come since the last time; false: memory is out. */
static bool add_news(dlab_exchange *x)
{
    dlab_answer_sum sum;
    dlab_api_error e;
    bool ok = true;
    const size_t n = dlab_answer_take(x->http->host, x->answer, x->pieces, &sum);
    for (size_t i = 0; i < n; i++) {
        ok = ok && add_piece(x, &x->pieces[i]);
        free(x->pieces[i].text);
    }
    if (!ok || !sum.ended) return ok;
    x->over = true;
    x->broken = sum.end != DLAB_ANSWER_NONE;
    if (sum.end == DLAB_ANSWER_CANCELLED) return true;
    if (dlab_api_answer_error(&sum, &e)) return add_event(x, dlab_api_error_event(&e));
    if (x->question.include_usage) ok = add_event(x, dlab_api_usage_event(x->http->api, &x->question, &sum));
    return ok && add_event(x, strdup("data: [DONE]\n\n"));
}

static ssize_t read_events(void *exchange, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    dlab_exchange *x = exchange;
    while (x->at == x->n_out) {
        x->at = x->n_out = 0;
        if (x->over) return x->broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
        if (!dlab_answer_ready(x->http->host, x->answer)) return 0; /* suspended */
        if (!add_news(x)) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = x->n_out - x->at, n = left < max ? left : max;
    memcpy(buf, x->out + x->at, n);
    x->at += n;
    return (ssize_t)n;
}

static enum MHD_Result begin_stream(dlab_exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_events, x, NULL);
    if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return queue(x, 200, "text/event-stream; charset=utf-8", r);
}

/* A response begins with the first news, so that what went wrong before has a status of its own. */
enum MHD_Result dlab_exchange_go_on(dlab_exchange *x)
{
    dlab_answer_sum sum;
    if (!dlab_answer_ready(x->http->host, x->answer)) return MHD_YES; /* suspended */
    dlab_answer_get_sum(x->http->host, x->answer, &sum);
    if (sum.end == DLAB_ANSWER_CANCELLED) return MHD_NO;
    if (sum.ended && sum.completion_tokens == 0 && dlab_api_answer_error(&sum, &x->error)) return dlab_reply_error(x);
    if (x->question.stream) {
        if (add_news(x)) return begin_stream(x);
        return MHD_NO;
    }
    return dlab_api_answer_error(&sum, &x->error) ? dlab_reply_error(x) : reply_whole(x);
}

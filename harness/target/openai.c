/* Any server with OpenAI's streaming endpoints. What comes is stamped where libcurl hands it over; a request's tokens are
 * reported when it has ended, since only then the server says how many they were. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/grow.h"
#include "base/text.h"
#include "harness/remote/answer.h"
#include "harness/remote/body.h"
#include "harness/remote/loop.h"
#include "harness/remote/server.h"
#include "harness/remote/sse.h"

#define SLICE_NS  100000000           /* a wait is never longer, so that interruptions are seen */
#define BODY_MAX  ((uint64_t)1 << 28) /* bytes of one answer, JSON and all */
#define ERROR_MAX 400                 /* bytes kept of the answer to a refused request */
#define NOTES_MAX 4                   /* reasons told … */
#define NOTE_MAX  160                 /* … and bytes of each */
#define LINGER_NS 250000000           /* for a body to end that has said [DONE], so that its connection serves again */

typedef struct openai openai;

/* One request and the handle that carries it. */
typedef struct stream {
    struct stream *prev, *next; /* of the live ones, or of the free ones (next alone) */
    struct stream *next_done;
    openai *owner;
    CURL *easy;
    int64_t id, last_ns; /* last_ns: when its last bytes came; before any, when it was sent */
    uint64_t received;
    long status;
    bool told; /* its end was reported: [DONE] came, and only the end of the body is waited for */
    char *body;
    dlab_sse sse;
    dlab_answer answer;
    dlab_error wrong; /* code OK: nothing so far */
    char curl_says[CURL_ERROR_SIZE];
    char refusal[ERROR_MAX + 1];
} stream;

struct openai {
    dlab_target base;
    dlab_plan plan;
    dlab_remote remote;
    dlab_clock *clock;
    dlab_server server;
    dlab_body body;
    dlab_loop *loop;
    stream *live, *unused, *done; /* done: those of the live ones that said [DONE] and are not told yet */
    size_t n_untold;              /* of the live ones */
    int64_t next_check_ns;        /* before it no stream can have been silent for too long */
    dlab_step_token *tokens;      /* [n_tokens], with their times; those of the step that was handed out last */
    int64_t *token_ns;
    size_t n_tokens, cap_tokens, cap_times;
    dlab_target_end *ends;
    size_t n_ends, cap_ends;
    dlab_answer_tokens scratch; /* of one answer */
    dlab_status st;             /* of what happened in a callback; err has it */
    dlab_error err;
    char notes[NOTES_MAX][NOTE_MAX + 4];
    size_t n_notes;
};

extern const dlab_target_ops dlab_target_openai;

static openai *openai_of(dlab_target *t) { return (openai *)t; }

/* ---- what happens to a request ---------------------------------------------------------------------------------------- */

static dlab_status add_end(openai *t, const dlab_target_end *e, dlab_error *err)
{
    void *ends = dlab_grow(t->ends, t->n_ends + 1, &t->cap_ends, sizeof *t->ends);
    if (!ends) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the ends of requests");
    t->ends = ends;
    t->ends[t->n_ends++] = *e;
    return DLAB_OK;
}

static dlab_status add_tokens(openai *t, int64_t id, int64_t total, dlab_finish finish, dlab_error *err)
{
    const size_t n = t->scratch.n;
    if (n == 0) return DLAB_OK;
    void *tokens = dlab_grow(t->tokens, t->n_tokens + n, &t->cap_tokens, sizeof *t->tokens);
    if (tokens) t->tokens = tokens;
    void *times = dlab_grow(t->token_ns, t->n_tokens + n, &t->cap_times, sizeof *t->token_ns);
    if (times) t->token_ns = times;
    if (!tokens || !times) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++, t->n_tokens++) {
        const bool last = t->scratch.items[i].index + 1 == total;
        t->tokens[t->n_tokens] = (dlab_step_token){.request = id,
                                                   .token = t->scratch.items[i].token,
                                                   .index = t->scratch.items[i].index,
                                                   .finish = last ? finish : DLAB_FINISH_NONE};
        t->token_ns[t->n_tokens] = t->scratch.items[i].t_ns;
    }
    return DLAB_OK;
}

static void set_told(openai *t, stream *s)
{
    s->told = true;
    t->n_untold--;
}

static dlab_status serve(openai *t, stream *s, dlab_error *err)
{
    set_told(t, s);
    const dlab_answer *a = &s->answer;
    int64_t total = -1;
    /* servers that do not say why they stopped say [DONE] */
    const dlab_finish finish = a->finish != DLAB_FINISH_NONE ? a->finish : DLAB_FINISH_EOS;
    DLAB_TRY(dlab_answer_count(a, t->remote.tokenizer, &t->scratch, &total, err));
    DLAB_TRY(add_tokens(t, s->id, total, finish, err));
    const dlab_target_end e = {.id = s->id,
                               .http_status = (int32_t)s->status,
                               .finish = finish,
                               .new_tokens = total,
                               .prompt_tokens = a->prompt_tokens,
                               .cached_tokens = a->cached_tokens,
                               .t_ns = a->n_chunks ? a->chunks[a->n_chunks - 1].t_ns : s->last_ns};
    return add_end(t, &e, err);
}

/* What a person needs to know once, however many requests it hits. */
static void note(openai *t, const char *text)
{
    if (!t->remote.tell || t->n_notes == NOTES_MAX) return;
    char *short_text = t->notes[t->n_notes];
    dlab_text_copy(short_text, NOTE_MAX + 1, text);
    if (strlen(short_text) < strlen(text)) memcpy(short_text + strlen(short_text), "…", sizeof "…");
    for (size_t i = 0; i < t->n_notes; i++)
        if (strcmp(t->notes[i], short_text) == 0) return;
    t->n_notes++;
    t->remote.tell(t->remote.tell_ctx, short_text);
}

static dlab_status fail(openai *t, stream *s, dlab_failure why, dlab_error *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static dlab_status fail(openai *t, stream *s, dlab_failure why, dlab_error *err, const char *fmt, ...)
{
    char text[DLAB_ERROR_MSG];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    dlab_text_copy(text, sizeof text, text);
    note(t, text);
    set_told(t, s);
    const dlab_target_end e = {.id = s->id,
                               .failure = why,
                               .http_status = (int32_t)s->status,
                               .new_tokens = -1,
                               .prompt_tokens = -1,
                               .cached_tokens = -1,
                               .t_ns = dlab_clock_now_ns(t->clock)};
    return add_end(t, &e, err);
}

/* ---- transfers -------------------------------------------------------------------------------------------------------- */

typedef struct {
    stream *s;
    int64_t now_ns;
} arrival;

static dlab_status on_event(void *ctx, const char *data, size_t n, dlab_error *err)
{
    const arrival *a = ctx;
    return dlab_answer_event(&a->s->answer, data, n, a->now_ns, err);
}

/* [DONE] is the end of an answer, though the server may not end the body as soon. It is told after the callback, which may
 * come between two steps, too. */
static void add_done(stream *s)
{
    openai *t = s->owner;
    s->next_done = t->done;
    t->done = s;
    if (s->last_ns + LINGER_NS < t->next_check_ns) t->next_check_ns = s->last_ns + LINGER_NS;
}

/* Bytes of an answer. Anything but all of them ends the transfer. */
static size_t on_bytes(char *bytes, size_t one, size_t n, void *ctx)
{
    (void)one; /* 1, says curl */
    stream *s = ctx;
    arrival a = {s, dlab_clock_now_ns(s->owner->clock)};
    s->last_ns = a.now_ns;
    s->received += n;
    if (s->status == 0) curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &s->status);
    if (s->received > BODY_MAX) {
        DLAB_FAIL(&s->wrong, DLAB_EFORMAT, "more than %" PRIu64 " bytes", BODY_MAX);
        return 0;
    }
    if (s->status != 200) {
        size_t used = strlen(s->refusal), left = ERROR_MAX - used;
        memcpy(s->refusal + used, bytes, n < left ? n : left);
        s->refusal[used + (n < left ? n : left)] = 0;
        return n;
    }
    if (s->answer.done) return n;
    if (dlab_sse_feed(&s->sse, bytes, n, on_event, &a, &s->wrong) != DLAB_OK) return 0;
    if (s->answer.done) add_done(s);
    return n;
}

static void set_options(stream *s)
{
    const openai *t = s->owner;
    dlab_server_options(&t->server, s->easy);
    curl_easy_setopt(s->easy, CURLOPT_URL, t->server.endpoint);
    curl_easy_setopt(s->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
    curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, s->curl_says);
}

static stream *take_stream(openai *t)
{
    stream *s = t->unused;
    if (s) {
        t->unused = s->next;
    } else {
        s = calloc(1, sizeof *s);
        if (s) s->easy = curl_easy_init();
        if (!s || !s->easy) {
            free(s);
            return NULL;
        }
        s->owner = t;
        set_options(s);
    }
    dlab_sse_reset(&s->sse);
    dlab_answer_reset(&s->answer);
    s->last_ns = dlab_clock_now_ns(t->clock);
    s->told = false;
    s->received = 0;
    s->status = 0;
    s->wrong = (dlab_error){0};
    s->curl_says[0] = s->refusal[0] = 0;
    s->prev = NULL;
    s->next = t->live;
    if (t->live) t->live->prev = s;
    t->live = s;
    t->n_untold++;
    return s;
}

/* The transfer is over and out of the loop. */
static void put_stream(openai *t, stream *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        t->live = s->next;
    if (s->next) s->next->prev = s->prev;
    if (!s->told) t->n_untold--; /* cancelled */
    free(s->body);
    s->body = NULL;
    s->next = t->unused;
    t->unused = s;
}

static void free_stream(stream *s)
{
    curl_easy_cleanup(s->easy);
    dlab_sse_free(&s->sse);
    dlab_answer_free(&s->answer);
    free(s->body);
    free(s);
}

/* No connection came about. */
static bool is_refusal(CURLcode code)
{
    return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
           code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION;
}

/* curl's own timers: of the whole request, or of the connection. */
static dlab_status fail_late(openai *t, stream *s, dlab_error *err)
{
    curl_off_t took_us = 0;
    const int64_t whole_ns = t->remote.timeout_ns;
    curl_easy_getinfo(s->easy, CURLINFO_TOTAL_TIME_T, &took_us);
    if (whole_ns > 0 && (int64_t)took_us + 5000 >= whole_ns / 1000) /* it counts in ms */
        return fail(t, s, DLAB_FAILURE_TIMEOUT, err, "no end within %.3g s (--timeout)", (double)whole_ns * 1e-9);
    return fail(t, s, DLAB_FAILURE_TIMEOUT, err, "no connection to %s within %.3g s (--connect-timeout)",
                t->server.base, (double)took_us * 1e-6);
}

static dlab_status judge(openai *t, stream *s, CURLcode code, dlab_error *err)
{
    const char *says = *s->curl_says ? s->curl_says : curl_easy_strerror(code);
    arrival a = {s, s->last_ns};
    if (s->told) return DLAB_OK; /* what becomes of the connection afterwards is no matter */
    if (s->status == 0) curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &s->status);
    if (is_refusal(code))
        return fail(t, s, DLAB_FAILURE_REFUSED, err, "no connection to %s (%s)", t->server.base,
                    curl_easy_strerror(code));
    if (s->status != 0 && s->status != 200)
        return fail(t, s, DLAB_FAILURE_HTTP, err, "status %ld: %s", s->status,
                    *s->refusal ? s->refusal : "no reason given");
    if (code == CURLE_OK) dlab_sse_end(&s->sse, on_event, &a, &s->wrong);
    if (s->wrong.code == DLAB_EOOM)
        return dlab_error_set(err, DLAB_EOOM, s->wrong.file, s->wrong.line, "%s", s->wrong.msg);
    if (s->wrong.code != DLAB_OK) return fail(t, s, DLAB_FAILURE_BROKEN, err, "a broken stream: %s", s->wrong.msg);
    if (s->answer.done) return serve(t, s, err); /* its line had no end */
    if (code == CURLE_OPERATION_TIMEDOUT) return fail_late(t, s, err);
    if (code != CURLE_OK) return fail(t, s, DLAB_FAILURE_BROKEN, err, "the connection broke: %s", says);
    if (s->answer.finish != DLAB_FINISH_NONE) return serve(t, s, err);
    return fail(t, s, DLAB_FAILURE_BROKEN, err, "a stream ended without [DONE] or a finish_reason%s",
                s->answer.n_chunks ? "" : ", and without any text: is this an endpoint that streams completions?");
}

static void keep(openai *t, dlab_status st)
{
    if (st != DLAB_OK) t->st = st;
}

static void tell_done(openai *t)
{
    for (; t->done; t->done = t->done->next_done) keep(t, serve(t, t->done, &t->err));
}

static void on_over(void *ctx, CURL *easy, CURLcode code)
{
    openai *t = ctx;
    stream *s = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &s);
    tell_done(t); /* this one may be among them */
    keep(t, judge(t, s, code, &t->err));
    put_stream(t, s);
}

/* When a stream that stays as it is must go; INT64_MAX: never. */
static int64_t patience_ns(const openai *t, const stream *s)
{
    if (s->told) return s->last_ns + LINGER_NS;
    return t->remote.idle_timeout_ns > 0 ? s->last_ns + t->remote.idle_timeout_ns : INT64_MAX;
}

static dlab_status fail_silent(openai *t, stream *s, dlab_error *err)
{
    const double longest = (double)t->remote.idle_timeout_ns * 1e-9;
    if (s->received == 0)
        return fail(t, s, DLAB_FAILURE_TIMEOUT, err, "nothing came within %.3g s (--idle-timeout)", longest);
    return fail(t, s, DLAB_FAILURE_TIMEOUT, err, "a stream was silent for %.3g s (--idle-timeout)", longest);
}

/* Streams that are silent for too long. Looked through only when one can be: what comes only makes it later. */
static dlab_status end_silent(openai *t, dlab_error *err)
{
    const int64_t now = dlab_clock_now_ns(t->clock), longest = t->remote.idle_timeout_ns;
    if (now < t->next_check_ns) return DLAB_OK;
    t->next_check_ns = longest > 0 ? now + longest : INT64_MAX; /* of those that are sent from now on */
    for (stream *s = t->live, *next; s; s = next) {
        const int64_t until = patience_ns(t, s);
        next = s->next;
        if (until > now) {
            if (until < t->next_check_ns) t->next_check_ns = until;
            continue;
        }
        dlab_loop_remove(t->loop, s->easy);
        const dlab_status st = s->told ? DLAB_OK : fail_silent(t, s, err);
        put_stream(t, s);
        if (st != DLAB_OK) return st;
    }
    return DLAB_OK;
}

/* ---- the target ------------------------------------------------------------------------------------------------------- */

static void cancel(dlab_target *target, bool keep_cache)
{
    (void)keep_cache; /* a server's cache is its own */
    openai *t = openai_of(target);
    while (t->live) {
        dlab_loop_remove(t->loop, t->live->easy);
        put_stream(t, t->live);
    }
    t->done = NULL;
    t->n_tokens = t->n_ends = 0;
}

static void destroy(dlab_target *target)
{
    if (!target) return;
    openai *t = openai_of(target);
    cancel(target, false);
    for (stream *s = t->unused, *next; s; s = next) {
        next = s->next;
        free_stream(s);
    }
    dlab_loop_destroy(t->loop);
    dlab_body_free(&t->body);
    dlab_server_free(&t->server);
    free(t->tokens);
    free(t->token_ns);
    free(t->ends);
    free(t->scratch.items);
    free(t);
}

/* Each stream is a descriptor, and the default limit is a thousand. */
static void allow_descriptors(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= r.rlim_max) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static dlab_status create(const dlab_target_setup *setup, dlab_target **out, dlab_error *err)
{
    char model[DLAB_SERVER_MODEL_MAX];
    *out = NULL;
    if (!setup->remote || !setup->remote->url)
        return DLAB_FAIL(err, DLAB_EUSAGE, "target openai needs the URL of a server: dlab load URL");
    openai *t = calloc(1, sizeof *t);
    if (!t) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a target");
    t->base.ops = &dlab_target_openai;
    t->plan = *setup->plan;
    t->remote = *setup->remote;
    t->clock = setup->clock ? setup->clock : dlab_clock_real();
    dlab_status st = DLAB_OK;
    DLAB_TRY_DONE(st, dlab_loop_create(t->clock, on_over, t, &t->loop, err));
    DLAB_TRY_DONE(st, dlab_server_init(&t->server, &t->remote, err));
    if (!t->remote.model) DLAB_TRY_DONE(st, dlab_server_model(&t->server, model, sizeof model, err));
    DLAB_TRY_DONE(st, dlab_body_init(&t->body, &t->remote, t->remote.model ? t->remote.model : model, &t->plan, err));
    allow_descriptors();
    *out = &t->base;
    return DLAB_OK;

done:
    destroy(&t->base);
    return st;
}

static dlab_status start(openai *t, const dlab_engine_request *r, int32_t sample, dlab_error *err)
{
    stream *s = take_stream(t);
    if (!s) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a request");
    s->id = r->id + sample;
    dlab_status st = dlab_body_make(&t->body, r, sample, &s->body, err);
    if (st == DLAB_OK) {
        curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(s->body));
        curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body);
        st = dlab_loop_add(t->loop, s->easy, err);
    }
    if (st == DLAB_OK) return DLAB_OK;
    dlab_loop_remove(t->loop, s->easy);
    put_stream(t, s);
    return st;
}

/* Several answers to one prompt are requests of their own: a server's n would count their tokens together. */
static dlab_status submit(dlab_target *target, const dlab_engine_request *r, dlab_error *err)
{
    const int32_t samples = r->samples > 1 ? r->samples : 1;
    for (int32_t i = 0; i < samples; i++) DLAB_TRY(start(openai_of(target), r, i, err));
    return DLAB_OK;
}

static bool busy(const dlab_target *target)
{
    const openai *t = (const openai *)target;
    return t->n_untold > 0;
}

static dlab_status step(dlab_target *target, int64_t deadline_ns, dlab_target_step *out, dlab_error *err)
{
    openai *t = openai_of(target);
    int64_t until = dlab_clock_now_ns(t->clock) + SLICE_NS;
    t->n_tokens = t->n_ends = 0;
    if (deadline_ns < until) until = deadline_ns;
    do {
        DLAB_TRY(dlab_loop_turn(t->loop, t->next_check_ns < until ? t->next_check_ns : until, err));
        tell_done(t);
        if (t->st != DLAB_OK) return dlab_error_set(err, t->st, t->err.file, t->err.line, "%s", t->err.msg);
        DLAB_TRY(end_silent(t, err));
    } while (t->n_ends == 0 && dlab_clock_now_ns(t->clock) < until);
    *out = (dlab_target_step){.step = {.n_tokens = (int32_t)t->n_tokens, .tokens = t->tokens},
                              .token_ns = t->token_ns,
                              .ends = t->ends,
                              .n_ends = (int32_t)t->n_ends};
    return DLAB_OK;
}

static dlab_status prime(dlab_target *t, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err)
{
    (void)t, (void)ids, (void)n;
    *handle = -1;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "a server's cache cannot be filled from outside: leave workload.depth at 0");
}

static const dlab_plan *plan_of(const dlab_target *t) { return &((const openai *)t)->plan; }

const dlab_target_ops dlab_target_openai = {.name = "openai",
                                            .summary = "a server with OpenAI's streaming endpoints, over HTTP",
                                            .remote = true,
                                            .create = create,
                                            .destroy = destroy,
                                            .submit = submit,
                                            .busy = busy,
                                            .step = step,
                                            .cancel = cancel,
                                            .prime = prime,
                                            .plan = plan_of};

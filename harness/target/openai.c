/* Any server with OpenAI's streaming endpoints. What comes is stamped where libcurl hands it over; a request's tokens are
 * reported when it has ended, since only then the server says how many they were. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/text.h"
#include "harness/remote/answer.h"
#include "harness/remote/body.h"
#include "harness/remote/loop.h"
#include "harness/remote/server.h"
#include "harness/remote/sse.h"

#define SLICE_NS  100000000           /* a wait is never longer, so that interruptions are seen */
#define BODY_MAX  ((uint64_t)1 << 28) /* bytes of one answer, JSON and all */
#define ERROR_MAX 400                 /* bytes kept of the answer to a refused request */
#define NOTES_MAX 4                   /* reasons told */

typedef struct openai openai;

/* One request and the handle that carries it. */
typedef struct stream {
    struct stream *prev, *next; /* of the live ones, or of the free ones (next alone) */
    openai *owner;
    CURL *easy;
    int64_t id, last_ns; /* last_ns: when its last bytes came; 0: none came yet */
    uint64_t received;
    long status;
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
    stream *live, *unused;
    int64_t next_silence_ns; /* before it no stream can have been silent for too long */
    dlab_step_token *tokens; /* [n_tokens], with their times; those of the step that was handed out last */
    int64_t *token_ns;
    size_t n_tokens, cap_tokens;
    dlab_target_end *ends;
    size_t n_ends, cap_ends;
    dlab_answer_tokens scratch; /* of one answer */
    dlab_status st;             /* of what happened in a callback; err has it */
    dlab_error err;
    char notes[NOTES_MAX][DLAB_ERROR_MSG];
    size_t n_notes;
};

extern const dlab_target_ops dlab_target_openai;

static openai *openai_of(dlab_target *t) { return (openai *)t; }

/* ---- what happens to a request ---------------------------------------------------------------------------------------- */

static bool reserve(void **list, size_t need, size_t cap, size_t size)
{
    void *more = need > cap ? realloc(*list, need * size) : *list;
    if (more) *list = more;
    return more != NULL;
}

/* How many to have room for, so that growing is rare. */
static size_t room(size_t need, size_t cap) { return need <= cap ? cap : need + need / 2 + 16; }

static dlab_status add_end(openai *t, const dlab_target_end *e, dlab_error *err)
{
    const size_t cap = room(t->n_ends + 1, t->cap_ends);
    void *ends = t->ends;
    bool ok = reserve(&ends, cap, t->cap_ends, sizeof *t->ends);
    t->ends = ends;
    if (!ok) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the ends of requests");
    t->cap_ends = cap;
    t->ends[t->n_ends++] = *e;
    return DLAB_OK;
}

static dlab_status add_tokens(openai *t, int64_t id, int64_t total, dlab_finish finish, dlab_error *err)
{
    const size_t n = t->scratch.n, cap = room(t->n_tokens + n, t->cap_tokens);
    void *tokens = t->tokens, *times = t->token_ns;
    bool ok = reserve(&tokens, cap, t->cap_tokens, sizeof *t->tokens);
    ok = reserve(&times, cap, t->cap_tokens, sizeof *t->token_ns) && ok;
    t->tokens = tokens;
    t->token_ns = times;
    if (!ok) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu tokens", n);
    t->cap_tokens = cap;
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

static dlab_status serve(openai *t, const stream *s, dlab_error *err)
{
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
    for (size_t i = 0; i < t->n_notes; i++)
        if (strcmp(t->notes[i], text) == 0) return;
    snprintf(t->notes[t->n_notes++], sizeof t->notes[0], "%s", text);
    t->remote.tell(t->remote.tell_ctx, text);
}

static dlab_status fail(openai *t, const stream *s, dlab_failure why, dlab_error *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static dlab_status fail(openai *t, const stream *s, dlab_failure why, dlab_error *err, const char *fmt, ...)
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
    return dlab_sse_feed(&s->sse, bytes, n, on_event, &a, &s->wrong) == DLAB_OK ? n : 0;
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
    s->last_ns = 0;
    s->received = 0;
    s->status = 0;
    s->wrong = (dlab_error){0};
    s->curl_says[0] = s->refusal[0] = 0;
    s->prev = NULL;
    s->next = t->live;
    if (t->live) t->live->prev = s;
    t->live = s;
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

static dlab_status judge(openai *t, stream *s, CURLcode code, dlab_error *err)
{
    const char *says = *s->curl_says ? s->curl_says : curl_easy_strerror(code);
    arrival a = {s, s->last_ns};
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
    if (s->answer.done) return serve(t, s, err); /* what becomes of the connection afterwards is no matter */
    if (code == CURLE_OPERATION_TIMEDOUT) return fail(t, s, DLAB_FAILURE_TIMEOUT, err, "no end in time");
    if (code != CURLE_OK) return fail(t, s, DLAB_FAILURE_BROKEN, err, "the connection broke: %s", says);
    if (s->answer.finish != DLAB_FINISH_NONE) return serve(t, s, err);
    return fail(t, s, DLAB_FAILURE_BROKEN, err, "a stream ended without [DONE] or a finish_reason%s",
                s->answer.n_chunks ? "" : ", and without any text: is this an endpoint that streams completions?");
}

static void on_over(void *ctx, CURL *easy, CURLcode code)
{
    openai *t = ctx;
    stream *s = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &s);
    dlab_status st = judge(t, s, code, &t->err);
    if (st != DLAB_OK) t->st = st;
    put_stream(t, s);
}

/* Streams that have begun and gone quiet. Looked through only when one can be: what comes only makes it later. */
static dlab_status end_silent(openai *t, dlab_error *err)
{
    const int64_t longest = t->remote.idle_timeout_ns, now = dlab_clock_now_ns(t->clock);
    if (longest <= 0 || now < t->next_silence_ns) return DLAB_OK;
    t->next_silence_ns = now + longest;
    for (stream *s = t->live, *next; s; s = next) {
        next = s->next;
        if (s->last_ns == 0) continue;
        if (now - s->last_ns >= longest) {
            dlab_loop_remove(t->loop, s->easy);
            dlab_status st = s->answer.done ? serve(t, s, err)
                                            : fail(t, s, DLAB_FAILURE_TIMEOUT, err, "a stream was silent for %.3g s",
                                                   (double)longest * 1e-9);
            put_stream(t, s);
            if (st != DLAB_OK) return st;
        } else if (s->last_ns + longest < t->next_silence_ns) {
            t->next_silence_ns = s->last_ns + longest;
        }
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
    return t->live != NULL;
}

static dlab_status step(dlab_target *target, int64_t deadline_ns, dlab_target_step *out, dlab_error *err)
{
    openai *t = openai_of(target);
    int64_t until = dlab_clock_now_ns(t->clock) + SLICE_NS;
    t->n_tokens = t->n_ends = 0;
    if (deadline_ns < until) until = deadline_ns;
    do {
        if (t->remote.idle_timeout_ns > 0 && t->next_silence_ns < until)
            DLAB_TRY(dlab_loop_turn(t->loop, t->next_silence_ns, err));
        else
            DLAB_TRY(dlab_loop_turn(t->loop, until, err));
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

static void memory(const dlab_target *t, dlab_mem_stats *mem, dlab_kv_stats *kv)
{
    (void)t;
    *mem = (dlab_mem_stats){0};
    if (kv) *kv = (dlab_kv_stats){0};
}

static void reset_peaks(dlab_target *t) { (void)t; }

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
                                            .memory = memory,
                                            .reset_peaks = reset_peaks,
                                            .plan = plan_of};

/* dlab serve: the engine behind an OpenAI-compatible API. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/int.h"
#include "base/text.h"
#include "harness/cmd/cmd_util.h"
#include "harness/probes/probes.h"
#include "harness/serve/http.h"
#include "harness/spec/spec.h"

enum {
    KEY_HOST = DLAB_CMD_KEY,
    KEY_PORT,
    KEY_NAME,
    KEY_API_KEY_FILE,
    KEY_MAX_BODY,
    KEY_MAX_HEADER,
    KEY_MAX_CONNECTIONS,
    KEY_QUEUE,
    KEY_MAX_TOKENS,
    KEY_BATCH,
    KEY_TIMEOUT,
    KEY_IDLE,
    KEY_DRAIN
};

#define DEFAULT_CONTEXT 2048
#define MAX_KEY         4096
#define GRACE_NAPS      40 /* for clients to be told that the server ends */

typedef struct {
    const char *model, *host, *name, *key_file;
    int64_t port, context, max_body, max_header, max_connections, queue, max_tokens, timeout_s, idle_s, drain_s;
    dlab_plan plan;
} serve_opts;

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    serve_opts *o = opts;
    switch (key) {
    case 'm':
        o->model = arg;
        return DLAB_OK;
    case 'c':
        return dlab_cmd_int("-c", arg, 2, 1 << 24, &o->context, err);
    case 't':
        return dlab_cmd_int("-t", arg, 1, 1024, &o->plan.threads, err);
    case KEY_HOST:
        o->host = arg;
        return DLAB_OK;
    case KEY_PORT:
        return dlab_cmd_int("--port", arg, 0, 65535, &o->port, err);
    case KEY_NAME:
        o->name = arg;
        return DLAB_OK;
    case KEY_API_KEY_FILE:
        o->key_file = arg;
        return DLAB_OK;
    case KEY_MAX_BODY:
        return dlab_cmd_int("--max-body", arg, 1, 1 << 30, &o->max_body, err);
    case KEY_MAX_HEADER:
        return dlab_cmd_int("--max-header", arg, 1024, 1 << 20, &o->max_header, err);
    case KEY_MAX_CONNECTIONS:
        return dlab_cmd_int("--max-connections", arg, 1, 100000, &o->max_connections, err);
    case KEY_QUEUE:
        return dlab_cmd_int("--queue", arg, 1, 1 << 20, &o->queue, err);
    case KEY_MAX_TOKENS:
        return dlab_cmd_int("--max-tokens", arg, 1, 1 << 24, &o->max_tokens, err);
    case KEY_BATCH:
        return dlab_cmd_int("--batch", arg, 1, 4096, &o->plan.batch_size, err);
    case KEY_TIMEOUT:
        return dlab_cmd_int("--timeout", arg, 0, 1 << 24, &o->timeout_s, err);
    case KEY_IDLE:
        return dlab_cmd_int("--idle-timeout", arg, 1, 1 << 24, &o->idle_s, err);
    case KEY_DRAIN:
        return dlab_cmd_int("--drain-timeout", arg, 0, 1 << 24, &o->drain_s, err);
    case DLAB_CMD_KEY_ISA:
        return dlab_cmd_set_isa(&o->plan, arg, err);
    default:
        return dlab_spec_plan_set(&o->plan, arg, err);
    }
}

static const struct argp_option options[] = {
    DLAB_CMD_OPT_MODEL,
    {"host", KEY_HOST, "ADDRESS", 0, "where to listen (default 127.0.0.1: this machine alone)", 0},
    {"port", KEY_PORT, "N", 0, "the port (default 8080); 0: any that is free, which is then printed", 0},
    {"name", KEY_NAME, "NAME", 0, "what the API calls the model (default: the file's name)", 0},
    {"api-key-file", KEY_API_KEY_FILE, "FILE", 0,
     "a file with the token that /v1/ asks for (else $DLAB_API_KEY; default: none is asked for)", 0},
    {"context", 'c', "N", 0, "tokens of a prompt and its answer together (default 2048, or the model's own if less)",
     0},
    {"batch", KEY_BATCH, "N", 0, "sequences computed at once, the same as --set batch.size=N (default 16)", 0},
    {"queue", KEY_QUEUE, "N", 0, "prompts that may wait for a place in the batch; more are told 429 (default 1024)", 0},
    {"max-tokens", KEY_MAX_TOKENS, "N", 0,
     "tokens of an answer when the request does not say (default: 16 for completions, for chat what the context holds)",
     0},
    {"max-body", KEY_MAX_BODY, "BYTES", 0, "of a request; more is told 413 (default 4194304)", 0},
    {"max-header", KEY_MAX_HEADER, "BYTES", 0, "of a request; more is told 431 (default 16384)", 0},
    {"max-connections", KEY_MAX_CONNECTIONS, "N", 0, "open at once; more are told 503 (default 1024)", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "for one whole answer (default 600; 0: none)", 0},
    {"idle-timeout", KEY_IDLE, "SECONDS", 0, "a connection on which nothing happens is closed (default 60)", 0},
    {"drain-timeout", KEY_DRAIN, "SECONDS", 0,
     "after SIGTERM or Ctrl-C, for requests that are being answered (default 30); a second signal ends at once", 0},
    {"threads", 't', "N", 0, "threads of the engine, the same as --set threads=N", 0},
    DLAB_CMD_OPT_ISA,
    DLAB_CMD_OPT_SET,
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "serve",
    .about = "Serves the model over HTTP: /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics "
             "(docs/serve.md).",
    .example = "  dlab serve --port 8080\n"
               "  dlab serve -m synthetic:tiny --port 0 --batch 4\n"
               "  dlab serve --set kv.k=int8 --set kv.v=int8 --set batch.token_budget=256",
    .options = options,
    .set = set,
};

/* ---- settings ------------------------------------------------------------------------------------------------------- */

/* What serves many strangers well; --set says otherwise. */
static dlab_status set_defaults(dlab_plan *p, dlab_error *err)
{
    static const char *const usual[] = {"batch.mode=continuous", "batch.size=16", "kv.store=paged",
                                        "kv.prefix_cache=true"};
    dlab_plan_default(p);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) DLAB_TRY(dlab_plan_set(p, usual[i], err));
    return DLAB_OK;
}

static dlab_status read_key(const serve_opts *o, char key[MAX_KEY], dlab_error *err)
{
    const char *env = getenv("DLAB_API_KEY");
    size_t n = 0;
    char *text = NULL;
    key[0] = 0;
    if (o->key_file) {
        DLAB_TRY(dlab_file_read(o->key_file, MAX_KEY - 1, &text, &n, err));
    } else if (env) {
        text = strdup(env);
        if (!text) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a key");
        n = strlen(text);
    } else {
        return DLAB_OK;
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) text[--n] = 0;
    const bool good = n > 0 && n < MAX_KEY && strlen(text) == n;
    if (good) memcpy(key, text, n + 1);
    free(text);
    if (!good)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s holds no key: one line of 1 to %d bytes is expected",
                         o->key_file ? o->key_file : "$DLAB_API_KEY", MAX_KEY - 1);
    return DLAB_OK;
}

/* Each connection is a descriptor. */
static dlab_status raise_descriptors(int64_t connections, dlab_error *err)
{
    struct rlimit r;
    const rlim_t want = (rlim_t)connections + 256;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want) return DLAB_OK;
    const rlim_t most = r.rlim_max;
    r.rlim_cur = want < most ? want : most;
    if (setrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= want) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "--max-connections %lld needs %llu open files, and this process may have %llu (ulimit -n)",
                     (long long)connections, (unsigned long long)want, (unsigned long long)most);
}

/* A cache of the size that the whole batch needs at its longest is cut to half of what memory is left: sequences are
 * preempted when it is full. */
static dlab_status bound_pool(serve_opts *o, const dlab_model *m, const dlab_engine_needs *needs, dlab_error *err)
{
    size_t bytes[DLAB_POOL_N] = {0};
    const int64_t left = dlab_probe_memory_available_bytes();
    if (strcmp(o->plan.kv_pool, "auto") != 0 || strcmp(o->plan.kv_store, "paged") != 0 || left < 0) return DLAB_OK;
    DLAB_TRY(dlab_engine_estimate(&o->plan, m, needs, bytes, err));
    const bool swaps = strcmp(o->plan.batch_preemption, "swap") == 0;
    int64_t most =
        left / 2; /* of the pool and, with batch.preemption: swap, the area beside it, which is as large unless said */
    if (swaps) most = o->plan.kv_swap_bytes > 0 ? dlab_max_i64(most - o->plan.kv_swap_bytes, 1) : most / 2;
    if ((int64_t)bytes[DLAB_POOL_KV] > most) snprintf(o->plan.kv_pool, sizeof o->plan.kv_pool, "%lld", (long long)most);
    return DLAB_OK;
}

/* ---- serving -------------------------------------------------------------------------------------------------------- */

typedef struct {
    dlab_model *model;
    dlab_tokenizer *tok;
    dlab_chat_template *chat;
    dlab_engine *engine;
    dlab_host *host;
    dlab_http *http;
    dlab_api api;
    char key[MAX_KEY], name[256];
} server;

/* The file's name without folder and ending. */
static void set_name(const serve_opts *o, server *s)
{
    char path[PATH_MAX];
    const char *name = o->name;
    if (!name) {
        name = dlab_cmd_model_path(o->model, path, sizeof path, NULL) == DLAB_OK ? path : "model";
        if (strrchr(name, '/')) name = strrchr(name, '/') + 1;
    }
    dlab_text_copy(s->name, sizeof s->name, name);
    char *end = strrchr(s->name, '.');
    if (!o->name && end && end != s->name && strcmp(end, ".gguf") == 0) *end = 0;
}

static dlab_status create_engine(serve_opts *o, server *s, dlab_error *err)
{
    if (o->plan.batch_interval_ms > 0)
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "batch.interval_ms is for measurements: a server starts requests at any step");
    if (strcmp(o->plan.batch_release, "at_end") == 0)
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "batch.release: at_end is for measurements: a server hands over each token when it is made");
    const int64_t own = dlab_model_get_info(s->model)->context;
    if (o->context > own)
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "-c %lld: the model's context holds %lld tokens", (long long)o->context,
                         (long long)own);
    const int64_t asked = o->context > 0 ? o->context : dlab_min_i64(own, DEFAULT_CONTEXT);
    const dlab_engine_needs needs = {
        .max_seqs = o->plan.batch_size, .max_tokens = asked, .max_prompt = asked, .own_sampling = true};
    DLAB_TRY(bound_pool(o, s->model, &needs, err));
    DLAB_TRY(dlab_engine_create(&o->plan, s->model, &needs, &s->engine, err));
    s->api.context = dlab_min_i64(asked, dlab_engine_longest(s->engine));
    if (s->api.context >= o->context) return DLAB_OK;
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "-c %lld: the cache (kv.pool) or the budget of lengths (batch.token_budget) holds %lld tokens of one "
        "request",
        (long long)o->context, (long long)s->api.context);
}

static dlab_status create_chat(server *s, dlab_error *err)
{
    dlab_error why = {0};
    const dlab_status st = dlab_chat_template_create(dlab_model_chat_template(s->model), s->tok, &s->chat, &why);
    if (st != DLAB_OK && st != DLAB_ENOTBUILT) {
        if (err) *err = why;
        return st;
    }
    memcpy(s->api.chat_refusal, why.msg, sizeof why.msg);
    return DLAB_OK;
}

static dlab_status fill_api(const serve_opts *o, server *s, dlab_error *err)
{
    const dlab_plan *p = dlab_engine_plan(s->engine);
    int64_t longest = 0;
    DLAB_TRY(dlab_api_longest_token(s->tok, &longest, err));
    set_name(o, s);
    s->api.model = s->name;
    s->api.tok = s->tok;
    s->api.chat = s->chat;
    s->api.max_tokens = o->max_tokens;
    s->api.max_text = s->api.context * longest;
    s->api.queue = o->queue;
    s->api.batch_size = p->batch_size;
    s->api.by_priority = strcmp(p->batch_policy, "priority") == 0;
    s->api.temperature = (float)p->temperature;
    s->api.top_p = (float)p->top_p;
    s->api.top_k = (int32_t)p->top_k;
    s->api.seed = (uint64_t)p->sample_seed;
    s->api.created = time(NULL);
    return DLAB_OK;
}

static dlab_status start(serve_opts *o, server *s, dlab_error *err)
{
    DLAB_TRY(read_key(o, s->key, err));
    DLAB_TRY(raise_descriptors(o->max_connections, err));
    DLAB_TRY(dlab_cmd_model_open(o->model, &s->model, err));
    DLAB_TRY(dlab_tokenizer_create(s->model, &s->tok, err));
    DLAB_TRY(create_chat(s, err));
    DLAB_TRY(create_engine(o, s, err));
    DLAB_TRY(fill_api(o, s, err));
    const dlab_host_opts host = {.engine = s->engine,
                                 .tok = s->tok,
                                 .clock = dlab_clock_real(),
                                 .queue = o->queue,
                                 .timeout_ns = o->timeout_s * 1000000000};
    DLAB_TRY(dlab_host_create(&host, &s->host, err));
    const dlab_http_opts http = {.host = o->host,
                                 .port = (int)o->port,
                                 .key = *s->key ? s->key : NULL,
                                 .max_body = o->max_body,
                                 .max_header = o->max_header,
                                 .max_connections = o->max_connections,
                                 .idle_s = o->idle_s,
                                 .clock = dlab_clock_real()};
    return dlab_http_start(&http, &s->api, s->host, &s->http, err);
}

static void say_what_is_served(const serve_opts *o, const server *s)
{
    const dlab_plan *p = dlab_engine_plan(s->engine);
    dlab_kv_stats kv;
    char pool[32];
    const bool v6 = strchr(o->host, ':') != NULL;
    dlab_engine_kv(s->engine, &kv);
    dlab_text_bytes((double)kv.pool_bytes, pool, sizeof pool);
    fprintf(
        stderr,
        "serving %s: context %lld, batch of %lld (%s), KV cache %s %s of %s, %s%s%s, %lld threads, temperature %g\n",
        s->name, (long long)s->api.context, (long long)p->batch_size, p->batch_mode, p->kv_store,
        strcmp(p->kv_k, p->kv_v) == 0 ? p->kv_k : "mixed", pool, p->kv_prefix_cache ? "prefix cache, " : "",
        s->chat ? "chat form " : "no chat", s->chat ? dlab_chat_template_form(s->chat) : "", (long long)p->threads,
        p->temperature);
    if (!s->chat) fprintf(stderr, "no chat: %s\n", s->api.chat_refusal);
    if (!dlab_http_is_loopback(s->http) && !*s->key)
        fprintf(stderr, "warning: %s can be reached by others, and no key is asked for (--api-key-file)\n", o->host);
    fprintf(stderr, "listening on http://%s%s%s:%d\n", v6 ? "[" : "", o->host, v6 ? "]" : "", dlab_http_port(s->http));
}

/* Until the next look at peers and deadlines. */
static void nap(const server *s)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    dlab_host_watch(s->host);
}

/* Those that are being answered may finish; a second signal, of either kind, ends the program as if we were not here. */
static void drain(const serve_opts *o, const server *s)
{
    const int64_t end = dlab_clock_now_ns(dlab_clock_real()) + o->drain_s * 1000000000;
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    dlab_host_drain(s->host);
    const int64_t live = dlab_host_live(s->host);
    if (live > 0) fprintf(stderr, "draining: %lld requests are being answered\n", (long long)live);
    while (dlab_host_live(s->host) > 0 && dlab_clock_now_ns(dlab_clock_real()) < end) nap(s);
    const int64_t left = dlab_host_live(s->host);
    if (left > 0) fprintf(stderr, "%lld requests were not finished in time\n", (long long)left);
}

static dlab_status serve(const dlab_cmd_ctx *ctx, serve_opts *o, dlab_error *err)
{
    server s = {0};
    dlab_status st = start(o, &s, err);
    if (st == DLAB_OK) {
        say_what_is_served(o, &s);
        while (!*ctx->interrupted && dlab_host_status(s.host, NULL) == DLAB_OK) nap(&s);
        drain(o, &s);
        st = dlab_host_status(s.host, err);
    }
    dlab_host_stop(s.host); /* behind the step in progress; nobody is suspended any more */
    for (int i = 0; i < GRACE_NAPS && s.http && dlab_host_live(s.host) > 0; i++) nap(&s); /* their clients read why */
    dlab_http_stop(s.http);
    dlab_host_destroy(s.host);
    dlab_engine_destroy(s.engine);
    dlab_chat_template_destroy(s.chat);
    dlab_tokenizer_destroy(s.tok);
    dlab_model_close(s.model);
    return st;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    *exit_code = 0;
    serve_opts o = {.host = "127.0.0.1",
                    .port = 8080,
                    .max_body = 4 << 20,
                    .max_header = 16 << 10,
                    .max_connections = 1024,
                    .queue = 1024,
                    .timeout_s = 600,
                    .idle_s = 60,
                    .drain_s = 30};
    bool helped = false;
    DLAB_TRY(set_defaults(&o.plan, err));
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    return helped ? DLAB_OK : serve(ctx, &o, err);
}

const dlab_command dlab_command_serve = {.name = "serve", .summary = "an OpenAI-compatible server", .run = run};

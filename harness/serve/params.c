/* The parameters of a request: one table, by name. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/param.h"
#include "base/rng.h"
#include "harness/serve/api.h"

/* What is read before the prompts are. */
typedef struct {
    dlab_api *api;
    dlab_question *q;
    dlab_api_error *e;
    const char *name; /* of the parameter in hand */
    int64_t max_new;  /* −1: not said */
    int64_t min_new;
    bool ignore_eos, seeded;
} reading;

typedef dlab_status setter(reading *r, const json_t *v);

static dlab_status wrong(const reading *r, const char *expected)
{
    return dlab_api_fail(r->e, 400, NULL, r->name, "%s must be %s", r->name, expected);
}

static dlab_status read_bool(const reading *r, const json_t *v, bool *out)
{
    if (!json_is_boolean(v)) return wrong(r, "true or false");
    *out = json_is_true(v);
    return DLAB_OK;
}

static dlab_status read_int(const reading *r, const json_t *v, int64_t min, int64_t max, int64_t *out)
{
    char expected[96];
    *out = json_integer_value(v);
    if (json_is_integer(v) && *out >= min && *out <= max) return DLAB_OK;
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)min, (long long)max);
    return wrong(r, expected);
}

static dlab_status read_float(const reading *r, const json_t *v, double max, float *out)
{
    char expected[64];
    const double x = json_number_value(v);
    snprintf(expected, sizeof expected, "a number from 0 to %g", max);
    if (!json_is_number(v) || !(x >= 0 && x <= max)) return wrong(r, expected);
    *out = (float)x;
    return DLAB_OK;
}

static dlab_status set_model(reading *r, const json_t *v)
{
    if (!json_is_string(v)) return wrong(r, "a string");
    if (strcmp(json_string_value(v), r->api->model) == 0) return DLAB_OK;
    return dlab_api_fail(r->e, 404, "model_not_found", "model", "the model \"%.100s\" is not here; \"%s\" is",
                         json_string_value(v), r->api->model);
}

static dlab_status set_n(reading *r, const json_t *v)
{
    const int64_t most = r->api->batch_size < DLAB_API_SAMPLES ? r->api->batch_size : DLAB_API_SAMPLES;
    int64_t n = 1;
    DLAB_TRY(read_int(r, v, 1, most, &n));
    r->q->ask.samples = (int32_t)n;
    return DLAB_OK;
}

static dlab_status set_max_tokens(reading *r, const json_t *v)
{
    int64_t n = 0;
    DLAB_TRY(read_int(r, v, 1, INT32_MAX, &n));
    if (r->max_new > 0 && r->max_new != n)
        return dlab_api_fail(r->e, 400, NULL, r->name, "max_tokens and max_completion_tokens contradict each other");
    r->max_new = n;
    return DLAB_OK;
}

static dlab_status set_min_tokens(reading *r, const json_t *v) { return read_int(r, v, 0, INT32_MAX, &r->min_new); }

/* As vLLM has it: what is lower goes first. */
static dlab_status set_priority(reading *r, const json_t *v)
{
    int64_t priority = 0;
    DLAB_TRY(read_int(r, v, -INT32_MAX, INT32_MAX, &priority));
    if (priority != 0 && !r->api->by_priority)
        return dlab_api_fail(r->e, 400, "unsupported_parameter", "priority",
                             "priority: this server does not go by it (--set batch.policy=priority)");
    r->q->ask.priority = (int32_t)-priority;
    return DLAB_OK;
}

static dlab_status set_temperature(reading *r, const json_t *v) { return read_float(r, v, 2, &r->q->ask.temperature); }
static dlab_status set_top_p(reading *r, const json_t *v) { return read_float(r, v, 1, &r->q->ask.top_p); }

static dlab_status set_top_k(reading *r, const json_t *v)
{
    int64_t k = 0;
    DLAB_TRY(read_int(r, v, -1, 1 << 24, &k));
    r->q->ask.top_k = k < 0 ? 0 : (int32_t)k;
    return DLAB_OK;
}

static dlab_status set_seed(reading *r, const json_t *v)
{
    if (!json_is_integer(v)) return wrong(r, "a whole number");
    r->q->ask.seed = (uint64_t)json_integer_value(v);
    r->seeded = true;
    return DLAB_OK;
}

static dlab_status add_stop(reading *r, const json_t *v)
{
    if (!json_is_string(v) || json_string_length(v) == 0 || json_string_length(v) > DLAB_API_STOP)
        return wrong(r, "a string of 1 to 1024 bytes, or a list of up to 4 of them");
    if (dlab_stops_add(&r->q->ask.stops, json_string_value(v), json_string_length(v), NULL) != DLAB_OK)
        return dlab_api_fail(r->e, 500, NULL, NULL, "no memory for a stop string");
    return DLAB_OK;
}

static dlab_status set_stop(reading *r, const json_t *v)
{
    size_t i = 0;
    const json_t *one = NULL;
    if (!json_is_array(v)) return add_stop(r, v);
    if (json_array_size(v) > DLAB_STOP_MAX) return wrong(r, "a string, or a list of up to 4");
    json_array_foreach(v, i, one) DLAB_TRY(add_stop(r, one));
    return DLAB_OK;
}

static dlab_status set_stream(reading *r, const json_t *v) { return read_bool(r, v, &r->q->stream); }
static dlab_status set_ignore_eos(reading *r, const json_t *v) { return read_bool(r, v, &r->ignore_eos); }

static dlab_status set_stream_options(reading *r, const json_t *v)
{
    const json_t *usage = json_object_get(v, "include_usage");
    if (!json_is_object(v) || json_object_size(v) != (usage ? 1U : 0U))
        return wrong(r, "an object with include_usage and nothing else");
    return usage ? read_bool(r, usage, &r->q->include_usage) : DLAB_OK;
}

/* Read later, when all else is known. */
static dlab_status set_later(reading *r, const json_t *v)
{
    (void)r;
    (void)v;
    return DLAB_OK;
}

enum { TEXT = 1, CHAT = 2, BOTH = TEXT | CHAT };

/* set NULL: not built. Then `neutral` is a JSON list of the values that ask for nothing and are taken, NULL: any value asks
 * for nothing that concerns an answer. */
typedef struct {
    const char *name;
    int where;
    setter *set;
    const char *neutral;
} param;

static const param params[] = {
    {"model", BOTH, set_model, NULL},
    {"prompt", TEXT, set_later, NULL},
    {"messages", CHAT, set_later, NULL},
    {"n", BOTH, set_n, NULL},
    {"max_tokens", BOTH, set_max_tokens, NULL},
    {"max_completion_tokens", CHAT, set_max_tokens, NULL},
    {"temperature", BOTH, set_temperature, NULL},
    {"top_p", BOTH, set_top_p, NULL},
    {"top_k", BOTH, set_top_k, NULL},
    {"seed", BOTH, set_seed, NULL},
    {"stop", BOTH, set_stop, NULL},
    {"stream", BOTH, set_stream, NULL},
    {"stream_options", BOTH, set_stream_options, NULL},
    {"ignore_eos", BOTH, set_ignore_eos, NULL},
    {"min_tokens", BOTH, set_min_tokens, NULL},
    {"priority", BOTH, set_priority, NULL},
    {"user", BOTH, NULL, NULL},
    {"metadata", BOTH, NULL, NULL},
    {"safety_identifier", BOTH, NULL, NULL},
    {"prompt_cache_key", BOTH, NULL, NULL},
    {"parallel_tool_calls", CHAT, NULL, NULL},
    {"echo", TEXT, NULL, "[false]"},
    {"logprobs", BOTH, NULL, "[false]"},
    {"top_logprobs", CHAT, NULL, "[0]"},
    {"best_of", TEXT, NULL, "[1]"},
    {"suffix", TEXT, NULL, "[\"\"]"},
    {"presence_penalty", BOTH, NULL, "[0]"},
    {"frequency_penalty", BOTH, NULL, "[0]"},
    {"repetition_penalty", BOTH, NULL, "[1]"},
    {"logit_bias", BOTH, NULL, "[{}]"},
    {"min_p", BOTH, NULL, "[0]"},
    {"stop_token_ids", BOTH, NULL, "[[]]"},
    {"tools", CHAT, NULL, "[[]]"},
    {"tool_choice", CHAT, NULL, "[\"none\", \"auto\"]"},
    {"functions", CHAT, NULL, "[[]]"},
    {"function_call", CHAT, NULL, "[\"none\", \"auto\"]"},
    {"response_format", CHAT, NULL, "[{\"type\": \"text\"}]"},
    {"modalities", CHAT, NULL, "[[\"text\"]]"},
    {"audio", CHAT, NULL, "[]"},
    {"prediction", CHAT, NULL, "[]"},
    {"reasoning_effort", CHAT, NULL, "[\"none\"]"},
    {"service_tier", CHAT, NULL, "[\"auto\", \"default\"]"},
    {"store", CHAT, NULL, "[false]"},
};
#define N_PARAMS (sizeof params / sizeof *params)

static bool is_neutral(const char *list, const json_t *v)
{
    bool found = false;
    json_t *values = json_loads(list, 0, NULL);
    for (size_t i = 0; i < json_array_size(values) && !found; i++) {
        const json_t *one = json_array_get(values, i);
        found = json_is_number(one) ? json_is_number(v) && json_number_value(v) == json_number_value(one) /* 0 is 0.0 */
                                    : json_equal(one, v);
    }
    json_decref(values);
    return found;
}

static dlab_status unknown(const reading *r, int where)
{
    const char *names[N_PARAMS + 1];
    size_t n = 0;
    for (size_t i = 0; i < N_PARAMS; i++) {
        if (params[i].where & where) names[n++] = params[i].name;
    }
    names[n] = NULL;
    const char *near = dlab_nearest(r->name, names);
    return dlab_api_fail(r->e, 400, "unknown_parameter", r->name, "unknown parameter \"%.60s\"%s%s%s", r->name,
                         near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static dlab_status read_param(reading *r, int where, const json_t *v)
{
    const param *p = NULL;
    for (size_t i = 0; i < N_PARAMS && !p; i++) {
        if ((params[i].where & where) && strcmp(params[i].name, r->name) == 0) p = &params[i];
    }
    if (!p) return unknown(r, where);
    if (json_is_null(v)) return DLAB_OK; /* as if it were not there */
    if (p->set) return p->set(r, v);
    if (!p->neutral || is_neutral(p->neutral, v)) return DLAB_OK;
    return dlab_api_fail(r->e, 400, "unsupported_parameter", r->name, "%s is not built%s", r->name,
                         strcmp(p->neutral, "[]") == 0 ? "" : ", but for the value that asks for nothing");
}

/* Nothing is kept from ending an answer; so many tokens come by themselves where nothing but max_tokens ends one. */
static dlab_status check_min_tokens(const reading *r, const dlab_ask *ask)
{
    bool met = r->min_new == 0 || (r->ignore_eos && ask->stops.count == 0);
    for (size_t i = 0; i < ask->n_prompts && met; i++) met = r->min_new <= ask->prompts[i].max_new;
    if (met) return DLAB_OK;
    return dlab_api_fail(
        r->e, 400, "unsupported_parameter", "min_tokens",
        "min_tokens is not built, but for 0 and, up to max_tokens, beside ignore_eos: true without stop");
}

static dlab_status read_all(reading *r, json_t *body, dlab_question *q)
{
    const int where = q->chat ? CHAT : TEXT;
    const char *key = NULL, *what = q->chat ? "messages" : "prompt";
    json_t *v = NULL;
    json_object_foreach(body, key, v)
    {
        r->name = key;
        DLAB_TRY(read_param(r, where, v));
    }
    if (q->include_usage && !q->stream)
        return dlab_api_fail(r->e, 400, NULL, "stream_options", "stream_options needs stream: true");
    const json_t *asked = json_object_get(body, what);
    if (!asked) return dlab_api_fail(r->e, 400, "missing_required_parameter", what, "%s is missing", what);
    DLAB_TRY(q->chat ? dlab_api_read_messages(r->api, asked, r->max_new, &q->ask, r->e)
                     : dlab_api_read_prompts(r->api, asked, r->max_new, &q->ask, r->e));
    DLAB_TRY(check_min_tokens(r, &q->ask));
    if (q->ask.n_prompts * (size_t)q->ask.samples > DLAB_API_CHOICES)
        return dlab_api_fail(r->e, 400, NULL, "n",
                             "%zu prompts with %d answers each: %d answers at most in one request", q->ask.n_prompts,
                             q->ask.samples, DLAB_API_CHOICES);
    return DLAB_OK;
}

static void set_ends(const reading *r, dlab_question *q)
{
    const int32_t eos = dlab_tokenizer_eos(r->api->tok);
    q->ask.ends[0] = q->ask.ends[1] = -1;
    if (r->ignore_eos) return;
    q->ask.ends[0] = q->chat ? dlab_chat_template_end(r->api->chat) : eos;
    q->ask.ends[1] = eos;
}

static void set_identity(reading *r, dlab_question *q)
{
    struct timespec now;
    const uint64_t number = r->api->n_requests++;
    uint64_t state = r->api->seed + number;
    const uint64_t drawn = dlab_splitmix64(&state);
    if (!r->seeded) q->ask.seed = drawn;
    clock_gettime(CLOCK_REALTIME, &now);
    q->created = now.tv_sec;
    snprintf(q->id, sizeof q->id, "%s-%016llx%08llx", q->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)(r->api->created * 1000003) ^ drawn, (unsigned long long)number);
}

dlab_status dlab_api_read(dlab_api *api, bool chat, const char *body, size_t n, dlab_question *q, dlab_api_error *e)
{
    dlab_error err = {0};
    json_t *j = NULL;
    *q = (dlab_question){
        .chat = chat,
        .ask = {.samples = 1, .temperature = api->temperature, .top_p = api->top_p, .top_k = api->top_k, .socket = -1}};
    reading r = {.api = api, .q = q, .e = e, .max_new = -1};
    if (n == 0) return dlab_api_fail(e, 400, "invalid_json", NULL, "the body is empty: it must be a JSON object");
    if (dlab_json_parse("body", body, n, &j, &err) != DLAB_OK)
        return dlab_api_fail(e, 400, "invalid_json", NULL, "%s", err.msg);
    dlab_status st = json_is_object(j) ? read_all(&r, j, q)
                                       : dlab_api_fail(e, 400, "invalid_json", NULL, "the body must be a JSON object");
    if (st == DLAB_OK) {
        set_ends(&r, q);
        set_identity(&r, q);
        q->ask.whole = !q->stream;
    } else {
        dlab_question_free(q);
    }
    json_decref(j);
    return st;
}

void dlab_question_free(dlab_question *q) { dlab_ask_free(&q->ask); }

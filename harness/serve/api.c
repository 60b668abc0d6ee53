/* Errors, models, and the prompts of /v1/completions. */
#include "harness/serve/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/int.h"
#include "base/json.h"
#include "base/text.h"

_Static_assert(DLAB_API_SAMPLES <= DLAB_ASK_SAMPLES, "what the API takes, the host takes");

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 500:
        return "server_error";
    case 503:
        return "service_unavailable";
    case 504:
        return "timeout_error";
    default:
        return "invalid_request_error";
    }
}

dlab_status dlab_api_fail(dlab_api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;
    *e = (dlab_api_error){.status = status, .type = type_of(status), .code = code};
    if (param) dlab_text_copy(e->param, sizeof e->param, param);
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    dlab_text_copy(e->message, sizeof e->message, e->message);
    return DLAB_EUSAGE;
}

static json_t *error_object(const dlab_api_error *e)
{
    return json_pack("{s:{s:s, s:s, s:o, s:o}}", "error", "message", e->message, "type", e->type, "param",
                     *e->param ? json_string(e->param) : json_null(), "code",
                     e->code ? json_string(e->code) : json_null());
}

static char *dumped(json_t *j)
{
    char *text = j ? dlab_json_dump(j, 0) : NULL;
    json_decref(j);
    return text;
}

char *dlab_api_error_json(const dlab_api_error *e) { return dumped(error_object(e)); }

char *dlab_api_event(char *json)
{
    char *event = NULL;
    if (json && asprintf(&event, "data: %s\n\n", json) < 0) event = NULL;
    free(json);
    return event;
}

char *dlab_api_error_event(const dlab_api_error *e) { return dlab_api_event(dlab_api_error_json(e)); }

bool dlab_api_answer_error(const dlab_answer_sum *sum, dlab_api_error *e)
{
    switch (sum->end) {
    case DLAB_ANSWER_NONE:
        return false;
    case DLAB_ANSWER_REFUSED:
        dlab_api_fail(e, 400, "request_refused", NULL, "%s", sum->message);
        break;
    case DLAB_ANSWER_TIMEOUT:
        dlab_api_fail(e, 504, "timeout", NULL, "%s", sum->message);
        break;
    case DLAB_ANSWER_SHUTDOWN:
        dlab_api_fail(e, 503, "shutting_down", NULL, "%s", sum->message);
        break;
    default:
        dlab_api_fail(e, 500, NULL, NULL, "%s", sum->message);
        break;
    }
    return true;
}

char *dlab_api_models(const dlab_api *api, bool list)
{
    json_t *model =
        json_pack("{s:s, s:s, s:I, s:s, s:I}", "id", api->model, "object", "model", "created", (json_int_t)api->created,
                  "owned_by", "decodelab", "max_model_len", (json_int_t)api->context);
    return dumped(list ? json_pack("{s:s, s:[o]}", "object", "list", "data", model) : model);
}

/* ---- prompts -------------------------------------------------------------------------------------------------------- */

dlab_status dlab_api_longest_token(const dlab_tokenizer *tok, int64_t *out, dlab_error *err)
{
    const int32_t vocab = dlab_tokenizer_vocab(tok);
    *out = 1;
    for (int32_t id = 0; id < vocab; id++) {
        char *text = NULL;
        size_t n = 0;
        DLAB_TRY(dlab_tokenizer_decode(tok, &id, 1, &text, &n, err));
        free(text);
        *out = dlab_max_i64(*out, (int64_t)n);
    }
    return DLAB_OK;
}

dlab_status dlab_api_check_text(const dlab_api *api, bool chat, size_t bytes, dlab_api_error *e)
{
    if (bytes <= (size_t)api->max_text) return DLAB_OK;
    return dlab_api_fail(e, 400, "context_length_exceeded", chat ? "messages" : "prompt",
                         "the context holds %lld tokens, which say %lld bytes at most: the prompt has %zu",
                         (long long)api->context, (long long)api->max_text, bytes);
}

dlab_status dlab_api_add_prompt(const dlab_api *api, bool chat, int32_t *ids, size_t n, int64_t max_new, dlab_ask *ask,
                                dlab_api_error *e)
{
    const char *param = chat ? "messages" : "prompt";
    const int64_t left = api->context - (int64_t)n;
    const int64_t usual = api->max_tokens > 0 ? api->max_tokens : chat ? left : 16;
    dlab_status st = DLAB_OK;
    if (n == 0)
        st = dlab_api_fail(e, 400, NULL, param, "the prompt has no tokens: one at least is needed");
    else if (left < 1 || max_new > left)
        st = dlab_api_fail(e, 400, "context_length_exceeded", param,
                           "the context holds %lld tokens: the prompt has %zu, and max_tokens asks for %lld more",
                           (long long)api->context, n, (long long)(max_new > 0 ? max_new : 1));
    dlab_prompt *grown = st == DLAB_OK ? realloc(ask->prompts, (ask->n_prompts + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(ids);
        return st == DLAB_OK ? dlab_api_fail(e, 500, NULL, NULL, "no memory for a prompt") : st;
    }
    ask->prompts = grown;
    grown[ask->n_prompts++] = (dlab_prompt){ids, (int64_t)n, max_new > 0 ? max_new : usual < left ? usual : left};
    return DLAB_OK;
}

static dlab_status add_text(const dlab_api *api, const json_t *text, int64_t max_new, dlab_ask *ask, dlab_api_error *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    dlab_error err = {0};
    DLAB_TRY(dlab_api_check_text(api, false, json_string_length(text), e));
    if (dlab_tokenizer_encode(api->tok, json_string_value(text), json_string_length(text), true, true, &ids, &n,
                              &err) != DLAB_OK)
        return dlab_api_fail(e, 500, NULL, "prompt", "%s", err.msg);
    return dlab_api_add_prompt(api, false, ids, n, max_new, ask, e);
}

static dlab_status add_ids(const dlab_api *api, const json_t *list, int64_t max_new, dlab_ask *ask, dlab_api_error *e)
{
    const size_t n = json_array_size(list);
    const int32_t vocab = dlab_tokenizer_vocab(api->tok);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return dlab_api_fail(e, 500, NULL, NULL, "no memory for a prompt of %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= vocab) {
            free(ids);
            return dlab_api_fail(e, 400, NULL, "prompt",
                                 "token %zu of a prompt is no token id: whole numbers from 0 to %d are", i, vocab - 1);
        }
        ids[i] = (int32_t)v;
    }
    return dlab_api_add_prompt(api, false, ids, n, max_new, ask, e);
}

dlab_status dlab_api_read_prompts(const dlab_api *api, const json_t *prompt, int64_t max_new, dlab_ask *ask,
                                  dlab_api_error *e)
{
    if (json_is_string(prompt)) return add_text(api, prompt, max_new, ask, e);
    const json_t *first = json_array_get(prompt, 0);
    if (json_is_integer(first)) return add_ids(api, prompt, max_new, ask, e);
    const size_t n = json_array_size(prompt);
    if (!json_is_string(first) && !json_is_array(first))
        return dlab_api_fail(
            e, 400, NULL, "prompt",
            "prompt must be a string, a list of strings, a list of token ids, or a list of such lists, "
            "and not empty");
    if (n > DLAB_API_CHOICES)
        return dlab_api_fail(e, 400, NULL, "prompt", "prompt: %zu prompts, %d at most in one request", n,
                             DLAB_API_CHOICES);
    if (n > (size_t)api->queue)
        return dlab_api_fail(e, 400, NULL, "prompt",
                             "prompt: %zu prompts, and %lld may wait at once on this server (--queue)", n,
                             (long long)api->queue);
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_array_get(prompt, i);
        if (json_typeof(p) != json_typeof(first))
            return dlab_api_fail(e, 400, NULL, "prompt", "prompt: item %zu is of another type than the first", i);
        DLAB_TRY(json_is_string(p) ? add_text(api, p, max_new, ask, e) : add_ids(api, p, max_new, ask, e));
    }
    return DLAB_OK;
}

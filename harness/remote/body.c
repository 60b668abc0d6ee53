#include "harness/remote/body.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static dlab_status read_extra(const char *text, json_t **out, dlab_error *err)
{
    if (!text) return DLAB_OK;
    DLAB_TRY(dlab_json_parse("extra members", text, strlen(text), out, err));
    if (json_is_object(*out)) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EUSAGE, "extra members: a JSON object is expected, such as {\"top_k\": 40}");
}

dlab_status dlab_body_init(dlab_body *out, const dlab_remote *remote, const char *model, const dlab_plan *plan,
                           dlab_error *err)
{
    *out = (dlab_body){.chat = remote->endpoint && strcmp(remote->endpoint, "chat") == 0,
                       .tokenizer = remote->tokenizer,
                       .temperature = plan->temperature};
    out->as_text = out->chat || (remote->prompt_as && strcmp(remote->prompt_as, "text") == 0);
    if (out->as_text && !out->tokenizer)
        return DLAB_FAIL(
            err, DLAB_EUSAGE,
            "%s needs a tokenizer to write prompts as text: give -m MODEL, a GGUF file of the model served",
            out->chat ? "a chat endpoint" : "prompts as text");
    out->base = json_pack("{s:s, s:b, s:{s:b}, s:f}", "model", model, "stream", 1, "stream_options", "include_usage", 1,
                          "temperature", plan->temperature);
    if (!out->base) return DLAB_FAIL(err, DLAB_EUSAGE, "the model's name \"%s\" is not UTF-8", model);
    if (plan->top_p > 0 && plan->top_p < 1) json_object_set_new(out->base, "top_p", json_real(plan->top_p));
    if (plan->top_k > 0) json_object_set_new(out->base, "top_k", json_integer(plan->top_k));
    return read_extra(remote->extra, &out->extra, err);
}

void dlab_body_free(dlab_body *b)
{
    json_decref(b->base);
    json_decref(b->extra);
    b->base = b->extra = NULL;
}

static json_t *ids_json(const dlab_engine_request *r)
{
    json_t *list = json_array();
    for (int64_t i = 0; list && i < r->n_prompt; i++) {
        if (json_array_append_new(list, json_integer(r->prompt[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Drawn ids need not be whole characters together: what is none becomes a question mark. */
static dlab_status text_json(const dlab_body *b, const dlab_engine_request *r, json_t **out, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_tokenizer_decode(b->tokenizer, r->prompt, (size_t)r->n_prompt, &text, &n, err));
    for (size_t i = 0; i < n; i++)
        if (!text[i]) text[i] = ' ';
    dlab_text_copy(text, n + 1, text);
    *out = b->chat ? json_pack("[{s:s, s:s}]", "role", "user", "content", text) : json_string(text);
    free(text);
    return DLAB_OK;
}

static int fill(const dlab_body *b, json_t *body, json_t *prompt, const dlab_engine_request *r, int32_t sample)
{
    int bad = json_object_set_new(body, b->chat ? "messages" : "prompt", prompt);
    bad |= json_object_set_new(body, "max_tokens", json_integer(r->max_new));
    if (r->eos < 0) bad |= json_object_set_new(body, "ignore_eos", json_true());
    /* 31 bits are what every server takes */
    if (b->temperature > 0)
        bad |= json_object_set_new(body, "seed", json_integer((json_int_t)((r->seed + (uint64_t)sample) & INT32_MAX)));
    if (b->extra) bad |= json_object_update(body, b->extra); /* the last word */
    return bad;
}

dlab_status dlab_body_make(const dlab_body *b, const dlab_engine_request *r, int32_t sample, char **out,
                           dlab_error *err)
{
    json_t *prompt = NULL, *body = json_copy(b->base);
    dlab_status st = DLAB_OK;
    *out = NULL;
    if (b->as_text)
        st = text_json(b, r, &prompt, err);
    else
        prompt = ids_json(r);
    if (st != DLAB_OK) goto done;
    if (body && prompt && fill(b, body, prompt, r, sample) == 0)
        *out = dlab_json_dump(body, 0);
    else if (prompt && !body)
        json_decref(prompt);
    if (!*out) st = DLAB_FAIL(err, DLAB_EOOM, "no memory for a request of %lld tokens", (long long)r->n_prompt);

done:
    json_decref(body);
    return st;
}

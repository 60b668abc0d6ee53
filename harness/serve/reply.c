/* Answers as the API writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "harness/serve/api.h"

static json_t *finish_json(dlab_answer_end end)
{
    return end == DLAB_ANSWER_STOP     ? json_string("stop")
           : end == DLAB_ANSWER_LENGTH ? json_string("length")
                                       : json_null();
}

static json_t *usage_json(const dlab_answer_sum *s)
{
    const json_int_t total = s->prompt_tokens + s->completion_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)s->prompt_tokens, "completion_tokens",
                     (json_int_t)s->completion_tokens, "total_tokens", total, "prompt_tokens_details", "cached_tokens",
                     (json_int_t)s->cached_tokens);
}

/* Takes `choices` and `usage` (NULL: none) over. */
static char *document(const dlab_api *api, const dlab_question *q, bool chunk, json_t *choices, json_t *usage)
{
    const char *object = !q->chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:o, s:o*}", "id", q->id, "object", object, "created",
                          (json_int_t)q->created, "model", api->model, "choices", choices, "usage", usage);
    char *text = j ? dlab_json_dump(j, 0) : NULL;
    json_decref(j);
    return text;
}

char *dlab_api_response(const dlab_api *api, const dlab_question *q, const dlab_answer_piece *pieces,
                        const dlab_answer_sum *sum)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < sum->n_choices; i++) {
        json_t *text = json_stringn(pieces[i].text, pieces[i].n);
        json_t *said = q->chat ? json_pack("{s:s, s:o}", "role", "assistant", "content", text) : text;
        json_array_append_new(choices,
                              json_pack("{s:I, s:o, s:n, s:o}", "index", (json_int_t)i, q->chat ? "message" : "text",
                                        said, "logprobs", "finish_reason", finish_json(pieces[i].end)));
    }
    return document(api, q, false, choices, usage_json(sum));
}

static char *event(const dlab_api *api, const dlab_question *q, json_t *choices, json_t *usage)
{
    return dlab_api_event(document(api, q, true, choices, usage));
}

static char *choice_event(const dlab_api *api, const dlab_question *q, size_t choice, json_t *said, dlab_answer_end end)
{
    json_t *choices = json_pack("[{s:I, s:o, s:n, s:o}]", "index", (json_int_t)choice, q->chat ? "delta" : "text", said,
                                "logprobs", "finish_reason", finish_json(end));
    return event(api, q, choices, q->include_usage ? json_null() : NULL);
}

char *dlab_api_role_event(const dlab_api *api, const dlab_question *q, size_t choice)
{
    return choice_event(api, q, choice, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), DLAB_ANSWER_NONE);
}

char *dlab_api_text_event(const dlab_api *api, const dlab_question *q, size_t choice, const char *text, size_t n)
{
    json_t *s = json_stringn(text, n);
    return choice_event(api, q, choice, q->chat ? json_pack("{s:o}", "content", s) : s, DLAB_ANSWER_NONE);
}

char *dlab_api_end_event(const dlab_api *api, const dlab_question *q, size_t choice, dlab_answer_end end)
{
    return choice_event(api, q, choice, q->chat ? json_object() : json_string(""), end);
}

char *dlab_api_usage_event(const dlab_api *api, const dlab_question *q, const dlab_answer_sum *sum)
{
    return event(api, q, json_array(), usage_json(sum));
}

#include "harness/remote/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/int.h"
#include "base/json.h"
#include "base/text.h"

#define TOKENS_MAX ((int64_t)1 << 21) /* of an answer, whatever a server says */

void dlab_answer_reset(dlab_answer *a)
{
    *a = (dlab_answer){.text = a->text,
                       .cap_text = a->cap_text,
                       .chunks = a->chunks,
                       .cap_chunks = a->cap_chunks,
                       .new_tokens = -1,
                       .prompt_tokens = -1,
                       .cached_tokens = -1};
}

void dlab_answer_free(dlab_answer *a)
{
    free(a->text);
    free(a->chunks);
    *a = (dlab_answer){0};
}

/* ---- events ----------------------------------------------------------------------------------------------------------- */

static dlab_status add_chunk(dlab_answer *a, const char *text, size_t n, int64_t t_ns, dlab_error *err)
{
    if (a->n_text + n > DLAB_ANSWER_TEXT_MAX || a->n_chunks == DLAB_ANSWER_CHUNKS_MAX)
        return DLAB_FAIL(err, DLAB_EFORMAT, "an answer has more than %zu bytes of text or %zu chunks",
                         DLAB_ANSWER_TEXT_MAX, DLAB_ANSWER_CHUNKS_MAX);
    void *bytes = dlab_grow(a->text, a->n_text + n + 1, &a->cap_text, 1);
    if (bytes) a->text = bytes;
    void *chunks = dlab_grow(a->chunks, a->n_chunks + 1, &a->cap_chunks, sizeof *a->chunks);
    if (chunks) a->chunks = chunks;
    if (!bytes || !chunks) return DLAB_FAIL(err, DLAB_EOOM, "no memory for an answer of %zu chunks", a->n_chunks + 1);
    if (n > 0) memcpy(a->text + a->n_text, text, n);
    a->n_text += n;
    a->text[a->n_text] = 0;
    a->chunks[a->n_chunks++] = (dlab_answer_chunk){t_ns, a->n_text};
    a->bare_end = n == 0;
    return DLAB_OK;
}

/* The text of one choice: completions have `text`, chats a `delta` with `content`; what a model thinks aloud is tokens too. */
static void find_text(const json_t *choice, const char **text, size_t *n)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning"};
    const json_t *delta = json_object_get(choice, "delta"), *value = json_object_get(choice, "text");
    for (size_t i = 0; !json_string_length(value) && i < sizeof keys / sizeof *keys; i++)
        value = json_object_get(delta, keys[i]);
    *n = json_string_length(value); /* 0: not a string */
    *text = json_string_value(value);
}

/* Why an answer ended. Any other word, such as "abort" or "error", says that it was not served. */
static dlab_status read_finish(const char *reason, dlab_finish *out, dlab_error *err)
{
    static const char *const own_end[] = {"stop",       "eos",           "eos_token",     "stop_sequence",
                                          "tool_calls", "function_call", "content_filter"};
    *out = strcmp(reason, "length") == 0 ? DLAB_FINISH_LENGTH : DLAB_FINISH_NONE;
    for (size_t i = 0; i < sizeof own_end / sizeof *own_end; i++)
        if (strcmp(reason, own_end[i]) == 0) *out = DLAB_FINISH_EOS;
    if (*out != DLAB_FINISH_NONE) return DLAB_OK;
    char word[40];
    dlab_text_copy(word, sizeof word, reason);
    return DLAB_FAIL(err, DLAB_EFORMAT, "the server broke off: finish_reason \"%s\"", word);
}

static dlab_status add_choice(dlab_answer *a, const json_t *choice, int64_t t_ns, dlab_error *err)
{
    const char *text = NULL, *reason = json_string_value(json_object_get(choice, "finish_reason"));
    size_t n = 0;
    find_text(choice, &text, &n);
    if (reason && *reason) DLAB_TRY(read_finish(reason, &a->finish, err));
    if (n > 0 || (reason && *reason)) return add_chunk(a, text, n, t_ns, err);
    return DLAB_OK;
}

static void read_count(const json_t *usage, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(usage, key);
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= TOKENS_MAX)
        *out = json_integer_value(v);
}

/* {"error": {"message": …}}, {"error": "…"}, {"object": "error", "message": …} */
static const char *find_error(const json_t *event)
{
    const json_t *e = json_object_get(event, "error");
    const char *object = json_string_value(json_object_get(event, "object"));
    if (e && !json_is_null(e)) {
        const char *text = json_string_value(json_is_string(e) ? e : json_object_get(e, "message"));
        return text ? text : "an error without a message";
    }
    if (!object || strcmp(object, "error") != 0) return NULL;
    const char *text = json_string_value(json_object_get(event, "message"));
    return text ? text : "an error without a message";
}

static dlab_status take_event(dlab_answer *a, const json_t *event, int64_t t_ns, dlab_error *err)
{
    const json_t *choices = json_object_get(event, "choices"), *usage = json_object_get(event, "usage"), *choice;
    const char *wrong = find_error(event);
    size_t i;
    if (!json_is_object(event)) return DLAB_FAIL(err, DLAB_EFORMAT, "an event of the stream is no JSON object");
    if (wrong) {
        char text[200];
        dlab_text_copy(text, sizeof text, wrong);
        for (char *c = text; *c; c++)
            if ((unsigned char)*c < ' ') *c = ' ';
        return DLAB_FAIL(err, DLAB_EFORMAT, "the server broke off: %s", text);
    }
    json_array_foreach(choices, i, choice) DLAB_TRY(add_choice(a, choice, t_ns, err));
    read_count(usage, "completion_tokens", &a->new_tokens);
    read_count(usage, "prompt_tokens", &a->prompt_tokens);
    read_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &a->cached_tokens);
    return DLAB_OK;
}

dlab_status dlab_answer_event(dlab_answer *a, const char *data, size_t n, int64_t t_ns, dlab_error *err)
{
    json_error_t e;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        a->done = true;
        return DLAB_OK;
    }
    json_t *event = json_loadb(data, n, JSON_ALLOW_NUL, &e); /* a token may be a NUL byte */
    if (!event) return DLAB_FAIL(err, DLAB_EFORMAT, "an event of the stream is no JSON (byte %d of it)", e.position);
    dlab_status st = take_event(a, event, t_ns, err);
    json_decref(event);
    return st;
}

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

static dlab_status add_token(dlab_answer_tokens *l, int64_t t_ns, int64_t index, dlab_error *err)
{
    void *items = dlab_grow(l->items, l->n + 1, &l->cap, sizeof *l->items);
    if (!items) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the tokens of an answer");
    l->items = items;
    l->items[l->n++] = (dlab_answer_token){(int32_t)index, -1, t_ns};
    return DLAB_OK;
}

/* Case 1: chunks are tokens. */
static dlab_status each_chunk(const dlab_answer *a, size_t n, dlab_answer_tokens *l, dlab_error *err)
{
    for (size_t i = 0; i < n; i++) DLAB_TRY(add_token(l, a->chunks[i].t_ns, (int64_t)i, err));
    return DLAB_OK;
}

/* Case 3: the two that are known. */
static dlab_status both_ends(const dlab_answer *a, int64_t total, dlab_answer_tokens *l, dlab_error *err)
{
    if (a->n_chunks == 0 || total == 0) return DLAB_OK;
    DLAB_TRY(add_token(l, a->chunks[0].t_ns, 0, err));
    return total > 1 ? add_token(l, a->chunks[a->n_chunks - 1].t_ns, total - 1, err) : DLAB_OK;
}

static dlab_status id_bytes(const dlab_tokenizer *t, int32_t id, size_t *n, dlab_error *err)
{
    char *text = NULL;
    dlab_status st = dlab_tokenizer_decode(t, &id, 1, &text, n, err);
    free(text);
    return st;
}

/* Case 2: each id of the whole text by the chunk that brought its last byte. Where the server counts fewer than there are ids,
 * they stand for them evenly, so that the last one is the end of the text in any case. Where it counts more, only as many
 * more as there are chunks have a time, and the last one has: a count is a server's word, and takes no memory. */
static dlab_status by_bytes(const dlab_answer *a, const dlab_tokenizer *t, const int32_t *ids, size_t n_ids,
                            int64_t total, dlab_answer_tokens *l, dlab_error *err)
{
    size_t end = 0, chunk = 0, read = 0;
    const int64_t listed = dlab_min_i64(total, (int64_t)(n_ids + a->n_chunks));
    for (int64_t k = 0; k < listed; k++) {
        const int64_t i = k + 1 < listed ? k : total - 1;
        const size_t nth = (size_t)i + 1, made = (size_t)total;
        const size_t upto = made < n_ids ? (nth * n_ids + made - 1) / made : nth;
        for (; read < upto && read < n_ids; read++) {
            size_t n = 0;
            DLAB_TRY(id_bytes(t, ids[read], &n, err));
            end += n;
        }
        while (chunk + 1 < a->n_chunks && a->chunks[chunk].end < end) chunk++;
        /* text that came was a token's, the first one's; what is left without text came last */
        const size_t at = i == 0 ? 0 : upto > n_ids ? a->n_chunks - 1 : chunk;
        DLAB_TRY(add_token(l, a->chunks[at].t_ns, i, err));
    }
    return DLAB_OK;
}

/* How many tokens there were, and when those came of which that is known. ids: of the whole text, NULL without a tokenizer. */
static dlab_status time_tokens(const dlab_answer *a, const dlab_tokenizer *t, const int32_t *ids, size_t n_ids,
                               dlab_answer_tokens *l, int64_t *total, dlab_error *err)
{
    const size_t with_text = a->n_chunks - (a->bare_end ? 1 : 0);
    *total = a->new_tokens;
    if (*total < 0 && t && a->n_text == 0) *total = 0; /* no text is no tokens */
    if (*total == 0) return DLAB_OK;
    if (*total >= 0 && (size_t)*total == with_text) return each_chunk(a, with_text, l, err);
    if (*total >= 0 && (size_t)*total == a->n_chunks && a->finish == DLAB_FINISH_EOS)
        return each_chunk(a, a->n_chunks, l, err);
    if (ids && *total < 0) *total = (int64_t)n_ids;
    if (ids) return by_bytes(a, t, ids, n_ids, *total, l, err);
    if (*total >= 0) return both_ends(a, *total, l, err);
    return with_text > 0 ? add_token(l, a->chunks[0].t_ns, 0, err) : DLAB_OK;
}

dlab_status dlab_answer_count(const dlab_answer *a, const dlab_tokenizer *tokenizer, dlab_answer_tokens *list,
                              int64_t *total, dlab_error *err)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    list->n = 0;
    *total = -1;
    if (tokenizer && a->n_text > 0)
        DLAB_TRY(dlab_tokenizer_encode(tokenizer, a->text, a->n_text, false, false, &ids, &n_ids, err));
    dlab_status st = time_tokens(a, tokenizer, ids, n_ids, list, total, err);
    for (size_t i = 0; ids && i < list->n; i++)
        if ((size_t)list->items[i].index < n_ids) list->items[i].token = ids[list->items[i].index];
    free(ids);
    return st;
}

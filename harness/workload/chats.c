/* Prompts that somebody wrote: JSONL, and conversations in ShareGPT's form. */
#include <stdlib.h>

#include "base/json.h"
#include "harness/workload/workload_parts.h"

/* Where no other lengths are asked for, those over the bounds are left out. */
static bool own_lengths(const dlab_workload *w) { return !w->lengths || dlab_is(w->lengths, "fixed"); }
static bool own_outputs(const dlab_workload *w) { return !w->outputs || dlab_is(w->outputs, "fixed"); }

static bool prompt_fits(const dlab_workload *w, int64_t tokens)
{
    return !own_lengths(w) || w->prompt_max <= 0 || tokens <= w->prompt_max;
}

static bool output_fits(const dlab_workload *w, int64_t tokens)
{
    return !own_outputs(w) || w->output_max <= 0 || tokens <= w->output_max;
}

/* BOS, where the model wants it, begins a conversation and belongs to its first prompt. */
static dlab_status encode(const dlab_tokenizer *tok, const json_t *text, bool bos, int32_t **ids, size_t *n,
                          dlab_error *err)
{
    DLAB_TRY(dlab_tokenizer_encode(tok, json_string_value(text), json_string_length(text), false, bos, ids, n, err));
    if (*n <= (size_t)DLAB_LENGTH_MAX) return DLAB_OK;
    free(*ids);
    *ids = NULL;
    return DLAB_FAIL(err, DLAB_EFORMAT, "a text of %zu tokens; expected at most %lld", *n, (long long)DLAB_LENGTH_MAX);
}

/* One prompt; of no tokens, or too long: nothing, and *added says so. */
static dlab_status add_prompt(const dlab_workload *w, const dlab_tokenizer *tok, const json_t *text,
                              dlab_file_request *r, dlab_file_requests *out, bool *added, dlab_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    *added = false;
    DLAB_TRY(encode(tok, text, !r->later, &ids, &n, err));
    dlab_status st = DLAB_OK;
    if (n > 0 && json_string_length(text) > 0 && prompt_fits(w, (int64_t)n)) {
        r->data = (int64_t)out->n_ids;
        r->n_data = r->prompt = (int64_t)n;
        st = dlab_file_requests_add_ids(out, ids, n, err);
        if (st == DLAB_OK) st = dlab_file_requests_add(out, r, err);
        *added = st == DLAB_OK;
    }
    free(ids);
    return st;
}

static dlab_status none(const dlab_file_requests *t, const char *what, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: has no %s%s", t->name, what,
                     " that is not empty and within workload.prompt_max and workload.output_max");
}

/* ---- JSONL -------------------------------------------------------------------------------------------------------------- */

static dlab_status read_object(const dlab_workload *w, const dlab_tokenizer *tok, const json_t *line,
                               dlab_file_request *r, dlab_file_requests *out, dlab_error *err)
{
    bool added;
    const json_t *text = json_object_get(line, "prompt"), *length = json_object_get(line, "output_length");
    if (!text) text = json_object_get(line, "text");
    if (!json_is_string(text)) {
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s:%lld: expected an object with \"prompt\" or \"text\", a string",
                         out->name, (long long)r->line);
    }
    if (length && !json_is_null(length)) {
        r->output = json_is_integer(length) ? json_integer_value(length) : 0;
        if (r->output < 1 || r->output > DLAB_LENGTH_MAX) {
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s:%lld: output_length: expected a whole number from 1 to %lld",
                             out->name, (long long)r->line, (long long)DLAB_LENGTH_MAX);
        }
        if (!output_fits(w, r->output)) return DLAB_OK;
    }
    const dlab_status st = add_prompt(w, tok, text, r, out, &added, err);
    return st == DLAB_OK ? st : dlab_error_prefix(err, st, "%s:%lld", out->name, (long long)r->line);
}

dlab_status dlab_jsonl_read(const dlab_workload *w, const dlab_tokenizer *tok, const char *text, size_t n, int64_t max,
                            dlab_file_requests *out, dlab_error *err)
{
    dlab_file_lines l = {.text = text, .end = text + n};
    *out = (dlab_file_requests){.name = w->prompts_file};
    while ((max <= 0 || out->conversations < max) && dlab_file_line_next(&l)) {
        json_t *line = NULL;
        dlab_file_request r = {.line = l.number};
        if (dlab_file_line_empty(&l)) continue;
        DLAB_TRY(dlab_json_parse_line(out->name, l.number, l.line, l.n, &line, err));
        const dlab_status st = read_object(w, tok, line, &r, out, err);
        json_decref(line);
        DLAB_TRY(st);
    }
    return out->n > 0 ? DLAB_OK : none(out, "prompt", err);
}

/* ---- ShareGPT ----------------------------------------------------------------------------------------------------------- */

typedef enum { HUMAN, ANSWER, OTHER, UNKNOWN } role;

static role role_of(const json_t *message)
{
    static const struct {
        const char *word;
        role role;
    } words[] = {{"human", HUMAN}, {"user", HUMAN},  {"gpt", ANSWER},   {"assistant", ANSWER}, {"chatgpt", ANSWER},
                 {"bing", ANSWER}, {"bard", ANSWER}, {"system", OTHER}, {"tool", OTHER}};
    const char *from = json_string_value(json_object_get(message, "from"));
    for (size_t i = 0; from && i < sizeof words / sizeof *words; i++) {
        if (strcmp(from, words[i].word) == 0) return words[i].role;
    }
    return UNKNOWN;
}

static dlab_status bad_conversation(const dlab_file_requests *t, int64_t number, const char *expected, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: conversation %lld: expected %s", t->name, (long long)number, expected);
}

static dlab_status check_messages(const dlab_file_requests *t, const json_t *messages, int64_t number, dlab_error *err)
{
    const json_t *m;
    size_t i;
    if (!json_is_array(messages)) return bad_conversation(t, number, "an object with \"conversations\", a list", err);
    json_array_foreach(messages, i, m)
    {
        if (role_of(m) == UNKNOWN)
            return bad_conversation(t, number, "messages from human, user, gpt or assistant", err);
        if (!json_is_string(json_object_get(m, "value")))
            return bad_conversation(t, number, "messages with a \"value\", a string", err);
    }
    return DLAB_OK;
}

static dlab_status answer_tokens(const dlab_tokenizer *tok, const json_t *messages, size_t i, int64_t *out,
                                 dlab_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    const json_t *m = json_array_get(messages, i); /* NULL past the end */
    *out = 0;
    if (!m || role_of(m) != ANSWER) return DLAB_OK;
    DLAB_TRY(encode(tok, json_object_get(m, "value"), false, &ids, &n, err));
    free(ids);
    *out = n > 0 ? (int64_t)n : 1;
    return DLAB_OK;
}

/* Each message of a human's is a turn; the length of its answer is that of the message after it, where that is one. A
 * conversation ends before the first turn that is empty or too long. */
static dlab_status add_conversation(const dlab_workload *w, const dlab_tokenizer *tok, const json_t *messages,
                                    int64_t number, dlab_file_requests *out, dlab_error *err)
{
    const json_t *m;
    size_t i;
    int64_t turns = 0;
    DLAB_TRY(check_messages(out, messages, number, err));
    json_array_foreach(messages, i, m)
    {
        dlab_file_request r = {.line = number, .later = turns > 0};
        bool added = false;
        if (role_of(m) != HUMAN) continue;
        if (turns == w->turns) break;
        dlab_status st = answer_tokens(tok, messages, i + 1, &r.output, err);
        if (st == DLAB_OK && output_fits(w, r.output)) {
            st = add_prompt(w, tok, json_object_get(m, "value"), &r, out, &added, err);
        }
        if (st != DLAB_OK) return dlab_error_prefix(err, st, "%s: conversation %lld", out->name, (long long)number);
        if (!added) break;
        turns++;
    }
    return DLAB_OK;
}

dlab_status dlab_sharegpt_read(const dlab_workload *w, const dlab_tokenizer *tok, const char *text, size_t n,
                               int64_t max, dlab_file_requests *out, dlab_error *err)
{
    json_t *root = NULL;
    const json_t *conversation;
    size_t i;
    *out = (dlab_file_requests){.name = w->prompts_file, .unit = "conversation "};
    DLAB_TRY(dlab_json_parse(out->name, text, n, &root, err));
    dlab_status st = DLAB_OK;
    if (!json_is_array(root)) {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "%s: expected ShareGPT's form, a list of objects with \"conversations\"",
                       out->name);
    }
    json_array_foreach(root, i, conversation)
    {
        if (st != DLAB_OK || (max > 0 && out->conversations == max)) break;
        st = add_conversation(w, tok, json_object_get(conversation, "conversations"), (int64_t)i + 1, out, err);
    }
    if (st == DLAB_OK && out->n == 0) st = none(out, "conversation with a human's message", err);
    json_decref(root);
    return st;
}

/* The messages of /v1/chat/completions. */
#include <stdlib.h>
#include <string.h>

#include "harness/serve/api.h"

/* A message whose text is ours to free. */
typedef struct {
    dlab_chat_message *all;
    char **texts;
    size_t n;
} message_list;

static void free_list(message_list *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->texts[i]);
    free(l->texts);
    free(l->all);
}

static dlab_status bad(dlab_api_error *e, size_t i, const char *what, const char *why)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]%s", i, what);
    return dlab_api_fail(e, 400, NULL, param, "%s %s", param, why);
}

/* Parts are joined by line breaks. */
static dlab_status join_parts(const json_t *parts, size_t i, char **text, size_t *n, dlab_api_error *e)
{
    size_t k = 0, total = 1;
    const json_t *part = NULL;
    json_array_foreach(parts, k, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || !json_is_string(json_object_get(part, "text")) || strcmp(type, "text") != 0)
            return bad(e, i, ".content",
                       "has a part that is not {\"type\": \"text\", \"text\": …}: only text is built");
        if (json_object_size(part) > 2) return bad(e, i, ".content", "has a text part with more than type and text");
        total += json_string_length(json_object_get(part, "text")) + 1;
    }
    char *out = malloc(total);
    if (!out) return dlab_api_fail(e, 500, NULL, NULL, "no memory for a message of %zu bytes", total);
    *n = 0;
    json_array_foreach(parts, k, part)
    {
        const json_t *s = json_object_get(part, "text");
        if (k > 0) out[(*n)++] = '\n';
        memcpy(out + *n, json_string_value(s), json_string_length(s));
        *n += json_string_length(s);
    }
    *text = out;
    return DLAB_OK;
}

static dlab_status read_content(const json_t *content, size_t i, char **text, size_t *n, dlab_api_error *e)
{
    if (json_is_array(content) && json_array_size(content) > 0) return join_parts(content, i, text, n, e);
    if (!json_is_string(content)) return bad(e, i, ".content", "must be a string, or a list of text parts");
    *n = json_string_length(content);
    *text = malloc(*n + 1);
    if (!*text) return dlab_api_fail(e, 500, NULL, NULL, "no memory for a message of %zu bytes", *n);
    memcpy(*text, json_string_value(content), *n);
    return DLAB_OK;
}

static dlab_status read_role(const json_t *role, size_t i, dlab_chat_role *out, dlab_api_error *e)
{
    for (int r = 0; json_is_string(role) && r < DLAB_ROLE_N; r++) {
        if (strcmp(json_string_value(role), dlab_chat_roles[r]) != 0) continue;
        *out = (dlab_chat_role)r;
        return DLAB_OK;
    }
    char why[160];
    snprintf(why, sizeof why, "is %.40s: system, user and assistant are built",
             json_is_string(role) ? json_string_value(role) : "no string");
    return bad(e, i, ".role", why);
}

static dlab_status read_message(json_t *m, size_t i, message_list *l, dlab_api_error *e)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(m)) return bad(e, i, "", "must be an object with role and content");
    json_object_foreach(m, key, value)
    {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 || json_is_null(value)) continue;
        char name[48];
        snprintf(name, sizeof name, ".%.40s", key);
        return bad(e, i, name, "is not built: a message has role and content");
    }
    dlab_chat_message *out = &l->all[i];
    DLAB_TRY(read_role(json_object_get(m, "role"), i, &out->role, e));
    DLAB_TRY(read_content(json_object_get(m, "content"), i, &l->texts[i], &out->n, e));
    out->text = l->texts[i];
    return DLAB_OK;
}

static dlab_status apply(const dlab_api *api, const message_list *l, int64_t max_new, dlab_ask *ask, dlab_api_error *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    dlab_error err = {0};
    const dlab_status st = dlab_chat_template_apply(api->chat, l->all, l->n, &ids, &n, &err);
    if (st == DLAB_EUSAGE) return dlab_api_fail(e, 400, NULL, "messages", "%s", err.msg);
    if (st != DLAB_OK) return dlab_api_fail(e, 500, NULL, NULL, "%s", err.msg);
    return dlab_api_add_prompt(api, true, ids, n, max_new, ask, e);
}

dlab_status dlab_api_read_messages(const dlab_api *api, const json_t *messages, int64_t max_new, dlab_ask *ask,
                                   dlab_api_error *e)
{
    const size_t n = json_array_size(messages);
    if (!json_is_array(messages) || n == 0)
        return dlab_api_fail(e, 400, NULL, "messages", "messages must be a list of messages, and not empty");
    if (!api->chat) return dlab_api_fail(e, 400, "chat_template_not_built", "messages", "%s", api->chat_refusal);
    message_list l = {.all = calloc(n, sizeof *l.all), .texts = calloc(n, sizeof *l.texts)};
    if (!l.all || !l.texts) {
        free_list(&l);
        return dlab_api_fail(e, 500, NULL, NULL, "no memory for %zu messages", n);
    }
    dlab_status st = DLAB_OK;
    l.n = n;
    size_t bytes = 0;
    for (size_t i = 0; i < n && st == DLAB_OK; i++) {
        st = read_message(json_array_get(messages, i), i, &l, e);
        bytes += l.all[i].n;
    }
    if (st == DLAB_OK) st = dlab_api_check_text(api, true, bytes, e);
    if (st == DLAB_OK) st = apply(api, &l, max_new, ask, e);
    free_list(&l);
    return st;
}

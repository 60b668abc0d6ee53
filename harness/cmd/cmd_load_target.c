#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/text.h"
#include "harness/cmd/cmd_load.h"

static dlab_status bad_target(const char *text, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EUSAGE,
                     "\"%s\" is no target; write http://HOST:PORT, engine, null:, null:5ms or null:service=500ms",
                     text);
}

/* null:, null:STEP, null:service=TIME */
static dlab_status read_null(const char *text, dlab_load_target *out, dlab_error *err)
{
    static const char service[] = "service=";
    const char *value = text[4] ? text + 5 : "";
    if (!*value) return DLAB_OK;
    if (strncmp(value, service, sizeof service - 1) == 0)
        return dlab_load_duration(text, value + sizeof service - 1, &out->null_service_ns, err);
    return dlab_load_duration(text, value, &out->null_step_ns, err);
}

static dlab_status find_kind(const dlab_load_opts *o, dlab_load_target *out, dlab_error *err)
{
    const char *text = o->target;
    const bool null = strncmp(text, "null", 4) == 0 && (!text[4] || text[4] == ':');
    const bool url = dlab_server_is_url(text);
    if (!null && !url && strcmp(text, "engine") != 0) return bad_target(text, err);
    out->ops = dlab_target_find(url ? "openai" : null ? "null" : "engine");
    if (url)
        dlab_server_shown(text, out->name, sizeof out->name);
    else
        snprintf(out->name, sizeof out->name, "%s", text);
    return null ? read_null(text, out, err) : DLAB_OK;
}

static dlab_status open_model(const dlab_load_opts *o, dlab_load_target *t, dlab_error *err)
{
    const bool engine = strcmp(t->ops->name, "engine") == 0;
    if (!engine && !o->model) return DLAB_OK;
    DLAB_TRY(dlab_cmd_model_path(o->model, t->model_path, sizeof t->model_path, err));
    DLAB_TRY(dlab_model_open(t->model_path, &t->model, err));
    DLAB_TRY(dlab_config_model_hash(t->model_path, &t->model_hash, err));
    return t->ops->remote ? dlab_tokenizer_create(t->model, &t->tokenizer, err) : DLAB_OK;
}

/* Once for all points, so that a server that is not there is told of before anything is measured. */
static dlab_status reach_server(const dlab_load_opts *o, dlab_load_target *t, dlab_error *err)
{
    t->remote = (dlab_remote){.url = o->target,
                              .model = o->model_name,
                              .api_key = o->api_key,
                              .endpoint = o->endpoint,
                              .prompt_as = o->prompt_as,
                              .tokenizer = t->tokenizer,
                              .connect_timeout_ns = o->connect_timeout_ns,
                              .timeout_ns = o->timeout_ns,
                              .idle_timeout_ns = o->idle_timeout_ns,
                              .extra = o->extra};
    if (!o->model_name) {
        dlab_server s;
        dlab_status st = dlab_server_init(&s, &t->remote, err);
        if (st == DLAB_OK) st = dlab_server_model(&s, t->served, sizeof t->served, err);
        dlab_server_free(&s);
        if (st != DLAB_OK) return st;
    } else {
        dlab_text_copy(t->served, sizeof t->served, o->model_name);
    }
    t->remote.model = t->served;
    /* part of what makes two runs the same */
    XXH64_hash_t h = XXH64(o->target, strlen(o->target), t->model_hash);
    h = XXH64(o->endpoint, strlen(o->endpoint), h);
    h = XXH64(o->prompt_as, strlen(o->prompt_as), h);
    h = XXH64(o->extra ? o->extra : "", o->extra ? strlen(o->extra) : 0, h);
    t->model_hash = XXH64(t->served, strlen(t->served), h);
    return DLAB_OK;
}

dlab_status dlab_load_target_open(const dlab_load_opts *o, dlab_load_target *out, dlab_error *err)
{
    *out = (dlab_load_target){0};
    DLAB_TRY(find_kind(o, out, err));
    DLAB_TRY(open_model(o, out, err));
    if (out->ops->remote) return reach_server(o, out, err);
    if (o->model_name || o->api_key || o->extra || strcmp(o->prompt_as, "ids") != 0 ||
        strcmp(o->endpoint, "completions") != 0)
        return DLAB_FAIL(
            err, DLAB_EUSAGE,
            "--model-name, --api-key, --endpoint, --prompt-as and --extra-body are about a server; the target "
            "is %s",
            o->target);
    out->model_hash ^= XXH64(o->target, strlen(o->target), 0);
    return DLAB_OK;
}

void dlab_load_target_close(dlab_load_target *t)
{
    dlab_tokenizer_destroy(t->tokenizer);
    dlab_model_close(t->model);
    t->tokenizer = NULL;
    t->model = NULL;
}

static bool is_plan_key(const char *key)
{
    size_t n = 0;
    const dlab_param *table = dlab_plan_params(&n);
    return dlab_param_find(table, n, key) && strncmp(key, "sample.", 7) != 0;
}

dlab_status dlab_load_target_settings(const dlab_load_target *t, dlab_settings *s, dlab_error *err)
{
    dlab_settings kept = {0};
    dlab_status st = DLAB_OK;
    if (t->ops->remote) {
        DLAB_TRY_DONE(st, dlab_settings_set(&kept, "target.model", t->served, err));
        DLAB_TRY_DONE(st, dlab_settings_set(&kept, "target.endpoint", t->remote.endpoint, err));
        DLAB_TRY_DONE(st, dlab_settings_set(&kept, "target.prompt_as", t->remote.prompt_as, err));
        if (t->remote.extra) DLAB_TRY_DONE(st, dlab_settings_set(&kept, "target.extra", t->remote.extra, err));
    }
    DLAB_TRY_DONE(st, dlab_settings_set(&kept, "target", t->name, err));
    for (size_t i = 0; i < s->n; i++) {
        if (t->ops->remote && is_plan_key(s->items[i].key)) continue;
        DLAB_TRY_DONE(st, dlab_settings_set(&kept, s->items[i].key, s->items[i].value, err));
    }
    dlab_settings_free(s);
    *s = kept;
    return DLAB_OK;

done:
    dlab_settings_free(&kept);
    return st;
}

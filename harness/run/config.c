#include "harness/run/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/file.h"
#include "results/record.h"

dlab_status dlab_config_add(const dlab_param *table, size_t n, const void *obj, dlab_settings *out, dlab_error *err)
{
    for (size_t i = 0; i < n; i++) {
        char text[DLAB_PARAM_STR];
        dlab_param_print(&table[i], obj, text, sizeof text);
        DLAB_TRY(dlab_settings_set(out, table[i].key, text, err));
    }
    return DLAB_OK;
}

dlab_status dlab_config_read(const dlab_param *table, size_t n, const dlab_settings *s, void *obj, dlab_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const dlab_param *p = dlab_param_find(table, n, s->items[i].key);
        if (!p) return DLAB_FAIL(err, DLAB_EFORMAT, "unknown setting %s", s->items[i].key);
        DLAB_TRY(dlab_param_set(p, obj, s->items[i].value, err));
    }
    return DLAB_OK;
}

static bool shapes_a_run(const char *key)
{
    static const char *const others[] = {"measure.repeats", "measure.order", "measure.seed", "measure.hang_timeout"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(key, others[i]) == 0) return false;
    }
    return true;
}

dlab_status dlab_config_settings(const char *model, const dlab_plan *plan, const dlab_workload *w,
                                 const dlab_measure *m, dlab_settings *out, dlab_error *err)
{
    size_t n = 0;
    DLAB_TRY(dlab_settings_set(out, "model", model, err));
    const dlab_param *table = dlab_plan_params(&n);
    DLAB_TRY(dlab_config_add(table, n, plan, out, err));
    table = dlab_workload_params(&n);
    DLAB_TRY(dlab_config_add(table, n, w, out, err));
    table = dlab_measure_params(&n);
    for (size_t i = 0; i < n; i++) {
        if (shapes_a_run(table[i].key)) DLAB_TRY(dlab_config_add(&table[i], 1, m, out, err));
    }
    return DLAB_OK;
}

static void feed(XXH64_state_t *h, const char *text) { XXH64_update(h, text, strlen(text) + 1); }

dlab_status dlab_config_site_get(const char *exe, const dlab_settings *environment, dlab_config_site *out,
                                 dlab_error *err)
{
    static const char *const keys[] = {"cpu_model", "cores", "isa"};
    DLAB_TRY(dlab_file_hash(exe, &out->program, err));
    XXH64_state_t *h = XXH64_createState();
    if (!h) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a hash");
    XXH64_reset(h, 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = dlab_settings_get(environment, keys[i]);
        feed(h, value ? value : "");
    }
    out->machine = XXH64_digest(h);
    XXH64_freeState(h);
    return DLAB_OK;
}

dlab_status dlab_config_model_hash(const char *model, uint64_t *out, dlab_error *err)
{
    if (strncmp(model, "synthetic:", 10) == 0) {
        *out = XXH64(model, strlen(model), 0);
        return DLAB_OK;
    }
    return dlab_file_hash(model, out, err);
}

dlab_status dlab_config_meta_started(dlab_settings *meta, dlab_error *err)
{
    char text[64];
    struct tm utc;
    const time_t now = time(NULL);
    if (!gmtime_r(&now, &utc) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) return DLAB_OK;
    return dlab_settings_set(meta, "started", text, err);
}

dlab_status dlab_config_meta_model(dlab_settings *meta, const char *model, uint64_t hash, dlab_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    DLAB_TRY(dlab_settings_set(meta, "model", model, err));
    return dlab_settings_set(meta, "model_hash", text, err);
}

/* Of the files that the requests come from, in one number; 0: there are none. */
static dlab_status hash_files(const dlab_workload *w, uint64_t *out, dlab_error *err)
{
    const char *const paths[] = {w->prompts_file, w->lengths_file, w->trace_file};
    *out = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        uint64_t pair[2] = {*out, 0};
        if (!*paths[i]) continue;
        DLAB_TRY(dlab_file_hash(paths[i], &pair[1], err));
        *out = XXH64(pair, sizeof pair, i);
    }
    return DLAB_OK;
}

dlab_status dlab_config_key(const dlab_config_run *r, const dlab_config_site *site, int copy, char key[17],
                            dlab_error *err)
{
    const dlab_measure *m = r->measure;
    dlab_settings s = {0};
    uint64_t text_hash = 0, files_hash = 0;
    XXH64_state_t *h = XXH64_createState();
    dlab_status st = h ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "no memory for a hash");
    if (st == DLAB_OK) st = dlab_config_settings("", r->plan, r->workload, m, &s, err); /* the model by its content */
    if (st == DLAB_OK && m->ppl_chunks > 0 && *m->ppl_text) st = dlab_file_hash(m->ppl_text, &text_hash, err);
    if (st == DLAB_OK) st = hash_files(r->workload, &files_hash, err);
    if (st == DLAB_OK) {
        XXH64_reset(h, DLAB_SCHEMA_VERSION);
        feed(h, r->target);
        for (size_t i = 0; i < s.n; i++) {
            feed(h, s.items[i].key);
            feed(h, s.items[i].value);
        }
        uint64_t rest[6] = {r->model_hash, text_hash, files_hash, site->program, site->machine, (uint64_t)copy};
        XXH64_update(h, rest, sizeof rest);
        snprintf(key, 17, "%016" PRIx64, (uint64_t)XXH64_digest(h));
    }
    XXH64_freeState(h);
    dlab_settings_free(&s);
    return st;
}

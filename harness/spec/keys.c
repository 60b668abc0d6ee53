#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/spec/spec_parts.h"

#define WORDS_MAX 96

/* ---- keys ----------------------------------------------------------------------------------------------------------- */

static const char *table_section(dlab_spec_table t)
{
    switch (t) {
    case DLAB_SPEC_PLAN:
        return "plan";
    case DLAB_SPEC_WORKLOAD:
        return "workload";
    case DLAB_SPEC_MEASURE:
        return "measure";
    default:
        return NULL;
    }
}

static const dlab_spec_reserved *reserved_key(const char *key)
{
    size_t n;
    const dlab_spec_reserved *r = dlab_spec_reserved_words(&n);
    for (size_t i = 0; i < n; i++) {
        if (!r[i].words[0] && strcmp(r[i].key, key) == 0) return &r[i];
    }
    return NULL;
}

static size_t scope_words(const dlab_spec_scope *scope, size_t strip, const char *words[WORDS_MAX])
{
    static const dlab_spec_table tables[] = {DLAB_SPEC_PLAN, DLAB_SPEC_WORKLOAD, DLAB_SPEC_MEASURE};
    size_t n = 0;
    for (size_t t = 0; t < 3; t++) {
        if (!(scope->tables & DLAB_SPEC_BIT(tables[t]))) continue;
        size_t rows;
        const dlab_param *p = tables[t] == DLAB_SPEC_PLAN       ? dlab_plan_params(&rows)
                              : tables[t] == DLAB_SPEC_WORKLOAD ? dlab_workload_params(&rows)
                                                                : dlab_measure_params(&rows);
        for (size_t i = 0; i < rows && n + 3 < WORDS_MAX; i++) words[n++] = p[i].key + strip;
    }
    if (scope->tables & DLAB_SPEC_BIT(DLAB_SPEC_MODEL)) words[n++] = "model";
    if (scope->ladder) words[n++] = "ladder";
    words[n] = NULL;
    return n;
}

/* "repeats" under `workload:` is measure.repeats in the wrong place. */
static const dlab_param *other_section(const char *bare)
{
    static const char *const sections[] = {"workload", "measure", NULL};
    const dlab_param *p = NULL;
    for (size_t i = 0; sections[i] && !p; i++) {
        char key[DLAB_SPEC_KEY_BYTES];
        dlab_spec_table table;
        if (dlab_spec_join_key(sections[i], bare, key)) p = dlab_spec_find(key, &table);
    }
    return p;
}

/* `bare`: the key as written, without its section. */
static dlab_status key_unknown(const dlab_spec_build *b, const dlab_spec_scope *scope, const char *key,
                               const char *bare, dlab_spec_place at, dlab_error *err)
{
    dlab_spec_table other;
    const dlab_param *p = dlab_spec_find(key, &other);
    if (!p) p = dlab_spec_find(bare, &other);
    if (p && other == DLAB_SPEC_MEASURE && !scope->section) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s is not an axis: it says how to measure, not what", p->key);
    }
    if (p && other == DLAB_SPEC_MODEL) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "model belongs at the top level of the file");
    }
    if (p) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s belongs under `%s:`", p->key, table_section(other));
    }
    const char *words[WORDS_MAX];
    const size_t strip = scope->section ? strlen(key) - strlen(bare) : 0;
    const size_t n = scope_words(scope, strip, words);
    const size_t len = strlen(bare);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(words[i], bare, len) == 0 && words[i][len] == '.') {
            return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "`%s` is a group of keys: give one of them, such as %s",
                                  bare, words[i]);
        }
    }
    const char *near = dlab_nearest(bare, words);
    const char *in = scope->section ? scope->section : "axes";
    if (near) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: unknown key `%.60s`; did you mean `%s`?", in, bare, near);
    }
    p = other_section(bare);
    if (p) return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: unknown key `%.60s`; there is a %s", in, bare, p->key);
    return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: unknown key `%.60s`; `dlab list` prints all keys", in, bare);
}

dlab_status dlab_spec_lookup(const dlab_spec_build *b, const dlab_spec_scope *scope, const char *key, const char *bare,
                             dlab_spec_place at, dlab_spec_found *out, dlab_error *err)
{
    *out = (dlab_spec_found){0};
    if (scope->ladder && strcmp(key, "ladder") == 0) {
        out->table = DLAB_SPEC_LADDER;
        return DLAB_OK;
    }
    out->param = dlab_spec_find(key, &out->table);
    if (out->param && (scope->tables & DLAB_SPEC_BIT(out->table))) return DLAB_OK;
    out->param = NULL;
    if (scope->tables & DLAB_SPEC_BIT(DLAB_SPEC_PLAN)) out->reserved = reserved_key(key);
    return out->reserved ? DLAB_OK : key_unknown(b, scope, key, bare, at, err);
}

/* ---- sections ------------------------------------------------------------------------------------------------------- */

dlab_spec_key *dlab_spec_given(const dlab_spec_build *b, const dlab_param *param)
{
    for (size_t i = 0; i < b->n_keys; i++) {
        if (b->keys[i].param == param) return &b->keys[i];
    }
    return NULL;
}

dlab_status dlab_spec_push_key(dlab_spec_build *b, const dlab_spec_key *key, dlab_error *err)
{
    dlab_spec_key *more = realloc(b->keys, (b->n_keys + 1) * sizeof *more);
    if (!more) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for a key");
    b->keys = more;
    b->keys[b->n_keys++] = *key;
    return DLAB_OK;
}

static dlab_status add_value(dlab_spec_build *b, const dlab_spec_scope *scope, const char *key, const char *bare,
                             const dlab_yaml_node *key_node, const dlab_yaml_node *value, dlab_error *err)
{
    const dlab_spec_place key_at = {key_node, NULL};
    dlab_spec_found f;
    DLAB_TRY(dlab_spec_lookup(b, scope, key, bare, key_at, &f, err));
    dlab_spec_key *before = f.param ? dlab_spec_given(b, f.param) : NULL;
    if (before) {
        return dlab_spec_fail(b, DLAB_EFORMAT, key_at, err, "%s is given twice: first in line %d", key,
                              before->at.node->line);
    }
    dlab_spec_key k;
    dlab_status st = dlab_spec_values(b, &f, key, value, NULL, &k, err);
    if (st == DLAB_OK && f.param) st = dlab_spec_push_key(b, &k, err);
    if (st != DLAB_OK || !f.param) dlab_spec_key_free(&k);
    return st;
}

/* "prefix.key" of a nested map; false if it cannot be a key of ours. */
bool dlab_spec_join_key(const char *prefix, const char *key, char buf[DLAB_SPEC_KEY_BYTES])
{
    const int n = snprintf(buf, DLAB_SPEC_KEY_BYTES, "%s%s%s", prefix, prefix[0] ? "." : "", key);
    return n >= 0 && n < DLAB_SPEC_KEY_BYTES;
}

dlab_status dlab_spec_key_too_long(const dlab_spec_build *b, const dlab_yaml_node *key, dlab_error *err)
{
    return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){key, NULL}, err, "unknown key `%.60s…`", key->text);
}

static dlab_status add_map(dlab_spec_build *b, const dlab_spec_scope *scope, const char *prefix,
                           const dlab_yaml_node *map, dlab_error *err)
{
    for (size_t i = 0; i < map->n; i++) {
        char key[DLAB_SPEC_KEY_BYTES];
        if (!dlab_spec_join_key(prefix, map->keys[i]->text, key)) return dlab_spec_key_too_long(b, map->keys[i], err);
        if (map->items[i]->kind == DLAB_YAML_MAP) {
            DLAB_TRY(add_map(b, scope, key, map->items[i], err));
            continue;
        }
        const size_t strip = strcmp(scope->section, "plan") == 0 ? 0 : strlen(scope->section) + 1;
        DLAB_TRY(add_value(b, scope, key, key + strip, map->keys[i], map->items[i], err));
    }
    return DLAB_OK;
}

dlab_status dlab_spec_add_section(dlab_spec_build *b, const char *section, const dlab_yaml_node *node, dlab_error *err)
{
    DLAB_TRY(dlab_spec_expect(b, section, node, DLAB_YAML_MAP, err));
    const bool plan = strcmp(section, "plan") == 0;
    const dlab_spec_table table = plan                               ? DLAB_SPEC_PLAN
                                  : strcmp(section, "workload") == 0 ? DLAB_SPEC_WORKLOAD
                                                                     : DLAB_SPEC_MEASURE;
    const dlab_spec_scope scope = {section, DLAB_SPEC_BIT(table), false};
    return add_map(b, &scope, plan ? "" : section, node, err);
}

dlab_status dlab_spec_add_model(dlab_spec_build *b, const dlab_yaml_node *key, const dlab_yaml_node *node,
                                dlab_error *err)
{
    const dlab_spec_scope scope = {"model", DLAB_SPEC_BIT(DLAB_SPEC_MODEL), false};
    return add_value(b, &scope, "model", "model", key, node, err);
}

/* ---- --set ---------------------------------------------------------------------------------------------------------- */

static dlab_status set_value(dlab_spec_build *b, const char *set, const char *key, const dlab_yaml_node *value,
                             dlab_error *err)
{
    const dlab_spec_scope scope = {NULL, DLAB_SPEC_AXIS_TABLES | DLAB_SPEC_BIT(DLAB_SPEC_MEASURE), false};
    dlab_spec_found f;
    DLAB_TRY(dlab_spec_lookup(b, &scope, key, key, (dlab_spec_place){NULL, set}, &f, err));
    dlab_spec_key k;
    dlab_status st = dlab_spec_values(b, &f, key, value, set, &k, err);
    k.at.node = NULL; /* of a text that goes away */
    dlab_spec_key *before = f.param ? dlab_spec_given(b, f.param) : NULL;
    if (st == DLAB_OK && before) {
        dlab_spec_key_free(before);
        *before = k;
        return DLAB_OK;
    }
    if (st == DLAB_OK && f.param) st = dlab_spec_push_key(b, &k, err);
    if (st != DLAB_OK || !f.param) dlab_spec_key_free(&k);
    return st;
}

dlab_status dlab_spec_add_set(dlab_spec_build *b, const char *set, dlab_error *err)
{
    const dlab_spec_place at = {NULL, set};
    const char *eq = strchr(set, '=');
    char key[DLAB_SPEC_KEY_BYTES];
    if (!eq || eq == set || !eq[1]) {
        return dlab_spec_fail(b, DLAB_EUSAGE, at, err, "expected KEY=VALUE or KEY=[A, B]");
    }
    const size_t n = (size_t)(eq - set);
    if (n + 1 > sizeof key) return dlab_spec_fail(b, DLAB_EUSAGE, at, err, "unknown key");
    memcpy(key, set, n);
    key[n] = '\0';
    const char *text = eq + 1;
    if (text[0] != '[') {
        const dlab_yaml_node scalar = {.kind = DLAB_YAML_SCALAR, .text = text};
        return set_value(b, set, key, &scalar, err);
    }
    dlab_yaml *y = NULL;
    dlab_status st = dlab_yaml_parse("list", text, strlen(text), &y, NULL);
    const dlab_yaml_node *root = st == DLAB_OK ? dlab_yaml_root(y) : NULL;
    if (root && root->kind == DLAB_YAML_SEQ) {
        st = set_value(b, set, key, root, err);
    } else {
        st = dlab_spec_fail(b, DLAB_EUSAGE, at, err, "the list cannot be read; expected KEY=[A, B]");
    }
    dlab_yaml_destroy(y);
    return st;
}

#include <stdlib.h>
#include <string.h>

#include "harness/spec/spec_parts.h"

static dlab_spec_scope axis_scope(bool ladder) { return (dlab_spec_scope){NULL, DLAB_SPEC_AXIS_TABLES, ladder}; }

dlab_status dlab_spec_axis(const dlab_spec_build *b, const dlab_yaml_node *key, bool ladder, dlab_spec_found *out,
                           dlab_error *err)
{
    const dlab_spec_scope scope = axis_scope(ladder);
    const dlab_spec_place at = {key, NULL};
    DLAB_TRY(dlab_spec_lookup(b, &scope, key->text, key->text, at, out, err));
    if (!out->reserved) return DLAB_OK;
    return dlab_spec_fail(b, DLAB_ENOTBUILT, at, err, "%s is not built in this version: it cannot be an axis",
                          out->reserved->key);
}

static dlab_status ladder_value(const dlab_spec_build *b, const dlab_yaml_node *value, char **out, dlab_error *err)
{
    const dlab_spec_key *ladder = dlab_spec_given(b, NULL);
    const char *names[DLAB_SPEC_LADDER_MAX + 1] = {NULL};
    for (size_t i = 0; ladder && i < ladder->n; i++) {
        names[i] = ladder->values[i];
        if (strcmp(names[i], value->text) == 0) {
            *out = strdup(names[i]);
            return *out ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for a value");
        }
    }
    const dlab_spec_place at = {value, NULL};
    const char *near = dlab_nearest(value->text, names);
    if (near) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "ladder: no step is named `%.60s`; did you mean `%s`?",
                              value->text, near);
    }
    return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "ladder: no step is named `%.60s`", value->text);
}

static dlab_status change_value(const dlab_spec_build *b, const dlab_spec_scope *scope, const char *key,
                                const dlab_yaml_node *key_node, const dlab_yaml_node *value, dlab_spec_change *out,
                                dlab_error *err)
{
    const dlab_spec_place key_at = {key_node, NULL}, at = {value, NULL};
    dlab_spec_found f;
    DLAB_TRY(dlab_spec_lookup(b, scope, key, key, key_at, &f, err));
    for (size_t i = 0; i < out->n && !f.reserved; i++) {
        if (out->items[i].param == f.param) {
            return dlab_spec_fail(b, DLAB_EFORMAT, key_at, err, "%s is given twice in this entry", key);
        }
    }
    DLAB_TRY(dlab_spec_expect(b, key, value, DLAB_YAML_SCALAR, err));
    if (f.reserved) return dlab_spec_fail_reserved(b, f.reserved, at, err);
    dlab_spec_assign *more = realloc(out->items, (out->n + 1) * sizeof *more);
    if (!more) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for an entry");
    out->items = more;
    char *text = NULL;
    DLAB_TRY(f.table == DLAB_SPEC_LADDER ? ladder_value(b, value, &text, err)
                                         : dlab_spec_value(b, &f, value->text, at, &text, err));
    out->items[out->n++] = (dlab_spec_assign){f.table, f.param, key_node, text};
    return DLAB_OK;
}

static dlab_status change_map(const dlab_spec_build *b, const dlab_spec_scope *scope, const char *prefix,
                              const dlab_yaml_node *map, dlab_spec_change *out, dlab_error *err)
{
    for (size_t i = 0; i < map->n; i++) {
        char key[DLAB_SPEC_KEY_BYTES];
        if (!dlab_spec_join_key(prefix, map->keys[i]->text, key)) return dlab_spec_key_too_long(b, map->keys[i], err);
        if (map->items[i]->kind == DLAB_YAML_MAP) {
            DLAB_TRY(change_map(b, scope, key, map->items[i], out, err));
        } else {
            DLAB_TRY(change_value(b, scope, key, map->keys[i], map->items[i], out, err));
        }
    }
    return DLAB_OK;
}

dlab_status dlab_spec_read_change(const dlab_spec_build *b, const dlab_yaml_node *map, bool ladder,
                                  dlab_spec_change *out, dlab_error *err)
{
    const dlab_spec_scope scope = axis_scope(ladder);
    out->node = map;
    return change_map(b, &scope, "", map, out, err);
}

/* One more map in a list of them; `map` may be NULL for a step that changes nothing. */
static dlab_status changes_push(const dlab_spec_build *b, dlab_spec_changes *list, const dlab_yaml_node *entry,
                                const dlab_yaml_node *map, bool ladder, dlab_error *err)
{
    dlab_spec_change *more = realloc(list->items, (list->n + 1) * sizeof *more);
    if (!more) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for an entry");
    list->items = more;
    dlab_spec_change *c = &list->items[list->n++];
    *c = (dlab_spec_change){.node = entry};
    if (map) DLAB_TRY(dlab_spec_read_change(b, map, ladder, c, err));
    c->node = entry;
    return DLAB_OK;
}

dlab_status dlab_spec_add_changes(dlab_spec_build *b, const char *section, const dlab_yaml_node *node, dlab_error *err)
{
    const bool exclude = strcmp(section, "exclude") == 0;
    DLAB_TRY(dlab_spec_expect(b, section, node, DLAB_YAML_SEQ, err));
    if (node->n > DLAB_SPEC_ENTRIES_MAX) {
        return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){node, NULL}, err, "%s: %zu entries; at most %d",
                              section, node->n, DLAB_SPEC_ENTRIES_MAX);
    }
    for (size_t i = 0; i < node->n; i++) {
        const dlab_yaml_node *entry = node->items[i];
        DLAB_TRY(dlab_spec_expect(b, section, entry, DLAB_YAML_MAP, err));
        if (entry->n == 0) {
            return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){entry, NULL}, err,
                                  "%s: the entry is empty; expected axes and values", section);
        }
        DLAB_TRY(changes_push(b, exclude ? &b->exclude : &b->include, entry, entry, exclude, err));
    }
    return DLAB_OK;
}

static dlab_status ladder_step(dlab_spec_build *b, const dlab_yaml_node *step, dlab_spec_key *axis, dlab_error *err)
{
    DLAB_TRY(dlab_spec_check_words(b, "ladder", step, err));
    const dlab_yaml_node *name = dlab_yaml_get(step, "name");
    const dlab_yaml_node *set = dlab_yaml_get(step, "set");
    if (!name) {
        return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){step, NULL}, err, "ladder: the step has no `name`");
    }
    DLAB_TRY(dlab_spec_expect(b, "ladder: name", name, DLAB_YAML_SCALAR, err));
    for (size_t i = 0; i < axis->n; i++) {
        if (strcmp(axis->values[i], name->text) == 0) {
            return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){name, NULL}, err,
                                  "ladder: two steps are named `%.60s`", name->text);
        }
    }
    if (set) DLAB_TRY(dlab_spec_expect(b, "ladder: set", set, DLAB_YAML_MAP, err));
    DLAB_TRY(changes_push(b, &b->ladder, step, set, false, err));
    axis->values[axis->n] = strdup(name->text);
    if (!axis->values[axis->n]) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for a ladder");
    axis->n++;
    return DLAB_OK;
}

dlab_status dlab_spec_add_ladder(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err)
{
    const dlab_spec_place at = {node, NULL};
    DLAB_TRY(dlab_spec_expect(b, "ladder", node, DLAB_YAML_SEQ, err));
    if (node->n == 0 || node->n > DLAB_SPEC_LADDER_MAX) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "ladder: %zu steps; expected 1 to %d", node->n,
                              DLAB_SPEC_LADDER_MAX);
    }
    dlab_spec_key axis = {.table = DLAB_SPEC_LADDER, .at = at, .swept = true};
    axis.values = calloc(node->n, sizeof *axis.values);
    if (!axis.values) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for a ladder");
    dlab_status st = DLAB_OK;
    for (size_t i = 0; i < node->n && st == DLAB_OK; i++) st = ladder_step(b, node->items[i], &axis, err);
    if (st == DLAB_OK) st = dlab_spec_push_key(b, &axis, err);
    if (st != DLAB_OK) dlab_spec_key_free(&axis);
    return st;
}

void dlab_spec_change_free(dlab_spec_change *c)
{
    for (size_t i = 0; i < c->n; i++) free(c->items[i].text);
    free(c->items);
    *c = (dlab_spec_change){0};
}

static void changes_free(dlab_spec_changes *c)
{
    for (size_t i = 0; i < c->n; i++) dlab_spec_change_free(&c->items[i]);
    free(c->items);
}

void dlab_spec_build_free(dlab_spec_build *b)
{
    for (size_t i = 0; i < b->n_keys; i++) dlab_spec_key_free(&b->keys[i]);
    free(b->keys);
    changes_free(&b->include);
    changes_free(&b->exclude);
    changes_free(&b->ladder);
}

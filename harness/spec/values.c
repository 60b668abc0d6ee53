#include <stdlib.h>
#include <string.h>

#include "harness/spec/spec_parts.h"

/* "sim:a100" is the word "sim" with an argument. */
static bool word_is(const char *text, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(text, word, n) == 0 && (text[n] == '\0' || text[n] == ':');
}

static bool word_in(const char *text, const char *const *words, size_t max)
{
    for (size_t i = 0; i < max && words[i]; i++) {
        if (word_is(text, words[i])) return true;
    }
    return false;
}

static void words_join(const char *const *words, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; words && words[i]; i++) {
        const size_t n = strlen(words[i]);
        if (at + n + 3 > size) return;
        if (at) {
            memcpy(buf + at, ", ", 2);
            at += 2;
        }
        memcpy(buf + at, words[i], n + 1);
        at += n;
    }
}

/* Words of the design get an honest answer instead of the nearest word. */
static dlab_status value_check_built(const dlab_spec_build *b, const dlab_param *p, const char *text,
                                     dlab_spec_place at, dlab_error *err)
{
    size_t n;
    const dlab_spec_reserved *r = dlab_spec_reserved_words(&n);
    const char *const *choices = p->choices ? p->choices() : NULL;
    if (!choices || word_in(text, choices, SIZE_MAX)) return DLAB_OK;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(r[i].key, p->key) == 0 && word_in(text, r[i].words, sizeof r[i].words / sizeof r[i].words[0])) {
            char list[256];
            words_join(choices, list, sizeof list);
            return dlab_spec_fail(b, DLAB_ENOTBUILT, at, err, "%s: %.60s is not built in this version; built are %s",
                                  p->key, text, list);
        }
    }
    return DLAB_OK;
}

dlab_status dlab_spec_fail_reserved(const dlab_spec_build *b, const dlab_spec_reserved *r, dlab_spec_place at,
                                    dlab_error *err)
{
    return dlab_spec_fail(b, DLAB_ENOTBUILT, at, err, "%s is not built in this version; leave the key out", r->key);
}

/* The text that dlab_param_print gives for a value, so that 64 and 064 are one value. */
dlab_status dlab_spec_value(const dlab_spec_build *b, const dlab_spec_found *f, const char *text, dlab_spec_place at,
                            char **out, dlab_error *err)
{
    *out = NULL;
    DLAB_TRY(value_check_built(b, f->param, text, at, err));
    dlab_point point;
    dlab_measure measure;
    memset(&point, 0, sizeof point);
    memset(&measure, 0, sizeof measure);
    void *obj = f->table == DLAB_SPEC_MEASURE ? (void *)&measure : dlab_spec_object(&point, f->table);
    dlab_error e = {0};
    if (dlab_param_set(f->param, obj, text, &e) != DLAB_OK) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s", e.msg);
    }
    char buf[DLAB_PARAM_STR + 32];
    dlab_param_print(f->param, obj, buf, sizeof buf);
    *out = strdup(buf);
    return *out ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for a value");
}

typedef struct {
    const char *text;
    size_t index;
} value_at;

static int value_cmp(const void *a, const void *b)
{
    const value_at *x = a, *y = b;
    const int c = strcmp(x->text, y->text);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

/* The first item that repeats an earlier one, or n. */
static dlab_status value_repeated(char *const *values, size_t n, size_t *which, dlab_error *err)
{
    *which = n;
    if (n < 2) return DLAB_OK;
    value_at *sorted = calloc(n, sizeof *sorted);
    if (!sorted) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for a list of %zu values", n);
    for (size_t i = 0; i < n; i++) sorted[i] = (value_at){values[i], i};
    qsort(sorted, n, sizeof *sorted, value_cmp);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(sorted[i].text, sorted[i - 1].text) == 0 && sorted[i].index < *which) *which = sorted[i].index;
    }
    free(sorted);
    return DLAB_OK;
}

void dlab_spec_key_free(dlab_spec_key *k)
{
    for (size_t i = 0; i < k->n; i++) free(k->values[i]);
    free(k->values);
    *k = (dlab_spec_key){0};
}

/* A value or a list of values; set: the --set string they come from, or NULL. */
dlab_status dlab_spec_values(const dlab_spec_build *b, const dlab_spec_found *f, const char *name,
                             const dlab_yaml_node *node, const char *set, dlab_spec_key *out, dlab_error *err)
{
    const bool list = node->kind == DLAB_YAML_SEQ;
    const dlab_spec_place at = {node, set};
    *out = (dlab_spec_key){.table = f->table, .param = f->param, .at = at, .swept = list};
    if (list && node->n == 0) return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: the list is empty", name);
    if (list && node->n > DLAB_SPEC_POINTS_MAX) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: a list of %zu values; at most %d points can be run", name,
                              node->n, DLAB_SPEC_POINTS_MAX);
    }
    if (list && f->table == DLAB_SPEC_MEASURE) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s cannot be swept: give one value", name);
    }
    const size_t n = list ? node->n : 1;
    out->values = calloc(n, sizeof *out->values);
    if (!out->values) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for %zu values", n);
    for (size_t i = 0; i < n; i++) {
        const dlab_yaml_node *item = list ? node->items[i] : node;
        const dlab_spec_place item_at = {item, set};
        if (!set) DLAB_TRY(dlab_spec_expect(b, name, item, DLAB_YAML_SCALAR, err));
        if (item->kind != DLAB_YAML_SCALAR) {
            return dlab_spec_fail(b, DLAB_EFORMAT, item_at, err, "%s: expected single values in the list", name);
        }
        if (f->reserved) return dlab_spec_fail_reserved(b, f->reserved, item_at, err);
        DLAB_TRY(dlab_spec_value(b, f, item->text, item_at, &out->values[i], err));
        out->n = i + 1;
    }
    size_t again;
    DLAB_TRY(value_repeated(out->values, out->n, &again, err));
    if (again < out->n) {
        return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){list ? node->items[again] : node, set}, err,
                              "%s: the list has %.60s twice", name, out->values[again]);
    }
    return DLAB_OK;
}

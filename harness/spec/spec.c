#include "harness/spec/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "harness/spec/spec_parts.h"

#define WORDS_MAX 64

/* ---- messages ------------------------------------------------------------------------------------------------------- */

/* A quoted scalar may hold a line feed, and a message is one line. */
static void one_line(char *text)
{
    for (char *c = text; *c; c++) {
        if (iscntrl((unsigned char)*c)) *c = ' ';
    }
}

dlab_status dlab_spec_fail(const dlab_spec_build *b, dlab_status code, dlab_spec_place at, dlab_error *err,
                           const char *fmt, ...)
{
    char text[DLAB_ERROR_MSG], place[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    one_line(text);
    const dlab_yaml *y = b->spec->yaml;
    if (at.set) {
        snprintf(place, sizeof place, "--set %.200s", at.set);
    } else if (at.node) {
        snprintf(place, sizeof place, "%.200s:%d:%d", dlab_yaml_name(y), at.node->line, at.node->column);
    } else {
        snprintf(place, sizeof place, "%.200s", dlab_yaml_name(y));
    }
    one_line(place);
    if (at.set && code == DLAB_EFORMAT) code = DLAB_EUSAGE;
    return DLAB_FAIL(err, code, "%s: %s", place, text);
}

static const char *kind_name(dlab_yaml_kind kind)
{
    switch (kind) {
    case DLAB_YAML_SEQ:
        return "a list";
    case DLAB_YAML_MAP:
        return "a map of keys and values";
    default:
        return "a single value";
    }
}

dlab_status dlab_spec_expect(const dlab_spec_build *b, const char *what, const dlab_yaml_node *node,
                             dlab_yaml_kind kind, dlab_error *err)
{
    const dlab_spec_place at = {node, NULL};
    if (node->kind == DLAB_YAML_SCALAR && !node->quoted &&
        (!node->text[0] || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0)) {
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s has no value; expected %s", what, kind_name(kind));
    }
    if (node->kind == kind) return DLAB_OK;
    return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: expected %s, not %s", what, kind_name(kind),
                          kind_name(node->kind));
}

dlab_status dlab_spec_check_words(const dlab_spec_build *b, const char *section, const dlab_yaml_node *map,
                                  dlab_error *err)
{
    size_t n, n_words = 0;
    const dlab_spec_word *all = dlab_spec_words(&n);
    DLAB_TRY(dlab_spec_expect(b, section[0] ? section : "experiment", map, DLAB_YAML_MAP, err));
    const char *words[WORDS_MAX] = {NULL};
    for (size_t i = 0; i < n && n_words + 1 < WORDS_MAX; i++) {
        if (strcmp(all[i].section, section) == 0) words[n_words++] = all[i].key;
    }
    for (size_t i = 0; i < map->n; i++) {
        const char *key = map->keys[i]->text;
        size_t k = 0;
        while (words[k] && strcmp(words[k], key) != 0) k++;
        if (words[k]) continue;
        const dlab_spec_place at = {map->keys[i], NULL};
        dlab_spec_table table;
        const dlab_param *p = dlab_spec_find(key, &table);
        if (!section[0] && p) {
            return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s belongs under `%s:`", key,
                                  table == DLAB_SPEC_PLAN       ? "plan"
                                  : table == DLAB_SPEC_WORKLOAD ? "workload"
                                                                : "measure");
        }
        const char *near = dlab_nearest(key, words);
        const char *what = section[0] ? section : "experiment";
        if (near) {
            return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: unknown key `%.60s`; did you mean `%s`?", what, key,
                                  near);
        }
        return dlab_spec_fail(b, DLAB_EFORMAT, at, err, "%s: unknown key `%.60s`; docs/experiments.md has all", what,
                              key);
    }
    return DLAB_OK;
}

/* ---- head: name, about, covers, matrix -------------------------------------------------------------------------------- */

static dlab_status copy_text(const dlab_spec_build *b, const char *what, const dlab_yaml_node *node, char *buf,
                             size_t size, dlab_error *err)
{
    DLAB_TRY(dlab_spec_expect(b, what, node, DLAB_YAML_SCALAR, err));
    const size_t n = strlen(node->text);
    if (n >= size) {
        return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){node, NULL}, err,
                              "%s: %zu bytes; expected at most %zu", what, n, size - 1);
    }
    memcpy(buf, node->text, n + 1);
    return DLAB_OK;
}

static dlab_status read_name(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err)
{
    DLAB_TRY(copy_text(b, "name", node, b->spec->name, sizeof b->spec->name, err));
    const char *c = b->spec->name;
    while (isalnum((unsigned char)*c) || *c == '_' || *c == '-' || (*c == '.' && c > b->spec->name)) c++;
    if (*c || c == b->spec->name) {
        return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){node, NULL}, err,
                              "name: files are named after it; expected letters, digits, `.`, `_`, `-`");
    }
    return DLAB_OK;
}

static dlab_status read_covers(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err)
{
    char *buf = b->spec->covers;
    if (node->kind == DLAB_YAML_SCALAR) return copy_text(b, "covers", node, buf, sizeof b->spec->covers, err);
    DLAB_TRY(dlab_spec_expect(b, "covers", node, DLAB_YAML_SEQ, err));
    size_t at = 0;
    for (size_t i = 0; i < node->n; i++) {
        const dlab_yaml_node *id = node->items[i];
        DLAB_TRY(dlab_spec_expect(b, "covers", id, DLAB_YAML_SCALAR, err));
        const size_t n = strlen(id->text);
        if (at + n + 2 > sizeof b->spec->covers) {
            return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){id, NULL}, err,
                                  "covers: more than %zu bytes of ids", sizeof b->spec->covers - 1);
        }
        if (at) buf[at++] = ' ';
        memcpy(buf + at, id->text, n + 1);
        at += n;
    }
    return DLAB_OK;
}

static dlab_status read_matrix(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err)
{
    static const char *const words[] = {"product", "zip", NULL};
    DLAB_TRY(dlab_spec_expect(b, "matrix", node, DLAB_YAML_SCALAR, err));
    b->zip_all = strcmp(node->text, "zip") == 0;
    if (b->zip_all || strcmp(node->text, "product") == 0) return DLAB_OK;
    const char *near = dlab_nearest(node->text, words);
    return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){node, NULL}, err,
                          "matrix: `%.60s` is unknown; expected product or zip%s%s%s", node->text,
                          near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

/* "experiments/kv.yaml" → "kv" */
static void default_name(dlab_spec *s)
{
    const char *name = dlab_yaml_name(s->yaml);
    const char *slash = strrchr(name, '/');
    const char *stem = slash ? slash + 1 : name;
    const char *dot = strrchr(stem, '.');
    size_t n = dot && dot > stem ? (size_t)(dot - stem) : strlen(stem);
    if (n >= sizeof s->name) n = sizeof s->name - 1;
    while (n > 0 && ((unsigned char)stem[n] & 0xC0) == 0x80) n--; /* not inside a character */
    memcpy(s->name, stem, n);
    s->name[n] = '\0';
    one_line(s->name);
}

/* ---- report and plots: their own parsers read them; here the axes in them are checked and put in canonical form ------- */

static dlab_status axis_map(const dlab_spec_build *b, const char *what, const dlab_yaml_node *map, dlab_settings *out,
                            dlab_error *err)
{
    DLAB_TRY(dlab_spec_expect(b, what, map, DLAB_YAML_MAP, err));
    dlab_spec_change c = {0};
    dlab_status st = dlab_spec_read_change(b, map, true, &c, err);
    dlab_settings_free(out);
    for (size_t i = 0; st == DLAB_OK && i < c.n; i++) {
        st = dlab_settings_set(out, c.items[i].param ? c.items[i].param->key : "ladder", c.items[i].text, err);
    }
    dlab_spec_change_free(&c);
    return st;
}

static dlab_status axis_name(const dlab_spec_build *b, const char *what, const dlab_yaml_node *node, dlab_error *err)
{
    dlab_spec_found f;
    DLAB_TRY(dlab_spec_expect(b, what, node, DLAB_YAML_SCALAR, err));
    return dlab_spec_axis(b, node, true, &f, err);
}

static dlab_status read_claims(dlab_spec_build *b, const dlab_yaml_node *claims, dlab_error *err)
{
    dlab_report_spec *r = &b->spec->report;
    if (!claims) return DLAB_OK;
    DLAB_TRY(dlab_spec_expect(b, "report.claims", claims, DLAB_YAML_SEQ, err));
    for (size_t i = 0; i < r->n_claims && i < claims->n; i++) {
        DLAB_TRY(dlab_spec_check_words(b, "report.claims", claims->items[i], err));
        const dlab_yaml_node *at = dlab_yaml_get(claims->items[i], "at");
        if (at) DLAB_TRY(axis_map(b, "report.claims: at", at, &r->claims[i].at, err));
    }
    return DLAB_OK;
}

static dlab_status read_report(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err)
{
    dlab_spec *s = b->spec;
    if (node) DLAB_TRY(dlab_spec_check_words(b, "report", node, err));
    DLAB_TRY(dlab_report_parse(s->yaml, node, &s->report, err));
    const dlab_yaml_node *baseline = dlab_yaml_get(node, "baseline");
    const dlab_yaml_node *growth = dlab_yaml_get(node, "growth");
    if (baseline) DLAB_TRY(axis_map(b, "report: baseline", baseline, &s->report.baseline, err));
    if (growth) {
        DLAB_TRY(dlab_spec_check_words(b, "report.growth", growth, err));
        const dlab_yaml_node *over = dlab_yaml_get(growth, "over");
        if (over) DLAB_TRY(axis_name(b, "report.growth: over", over, err));
    }
    return read_claims(b, dlab_yaml_get(node, "claims"), err);
}

/* The stack's point, its values as points have them. */
static dlab_status read_plot_at(const dlab_spec_build *b, const dlab_yaml_node *at, dlab_plot_spec *plot,
                                dlab_error *err)
{
    dlab_settings s = {0};
    dlab_status st = axis_map(b, "plots: at", at, &s, err);
    if (st == DLAB_OK && s.n > DLAB_PLOT_AT_MAX) {
        st = dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){at, NULL}, err, "plots: at: %zu axes; at most %d", s.n,
                            DLAB_PLOT_AT_MAX);
    }
    if (st == DLAB_OK) plot->n_at = s.n;
    for (size_t i = 0; st == DLAB_OK && i < s.n; i++) {
        dlab_text_copy(plot->at[i].key, sizeof plot->at[i].key, s.items[i].key);
        dlab_text_copy(plot->at[i].value, sizeof plot->at[i].value, s.items[i].value);
    }
    dlab_settings_free(&s);
    return st;
}

static dlab_status read_plots(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err)
{
    dlab_spec *s = b->spec;
    DLAB_TRY(dlab_spec_expect(b, "plots", node, DLAB_YAML_SEQ, err));
    for (size_t i = 0; i < node->n; i++) {
        const dlab_yaml_node *plot = node->items[i];
        DLAB_TRY(dlab_spec_check_words(b, "plots", plot, err));
        const dlab_yaml_node *x = dlab_yaml_get(plot, "x");
        const dlab_yaml_node *series = dlab_yaml_get(plot, "series");
        if (x) DLAB_TRY(axis_name(b, "plots: x", x, err));
        if (series) DLAB_TRY(dlab_spec_expect(b, "plots: series", series, DLAB_YAML_SEQ, err));
        for (size_t k = 0; series && k < series->n; k++) {
            DLAB_TRY(axis_name(b, "plots: series", series->items[k], err));
        }
    }
    DLAB_TRY(dlab_plot_parse(s->yaml, node, s->plots, &s->n_plots, err));
    for (size_t i = 0; i < node->n; i++) {
        const dlab_yaml_node *at = dlab_yaml_get(node->items[i], "at");
        if (at) DLAB_TRY(read_plot_at(b, at, &s->plots[i], err));
    }
    return DLAB_OK;
}

/* ---- the file --------------------------------------------------------------------------------------------------------- */

/* Sections that say what is swept; the others speak of axes and wait until these are known. */
static dlab_status read_section(dlab_spec_build *b, const dlab_yaml_node *key, const dlab_yaml_node *node,
                                dlab_error *err)
{
    const char *k = key->text;
    if (strcmp(k, "name") == 0) return read_name(b, node, err);
    if (strcmp(k, "about") == 0) return copy_text(b, k, node, b->spec->about, sizeof b->spec->about, err);
    if (strcmp(k, "covers") == 0) return read_covers(b, node, err);
    if (strcmp(k, "model") == 0) return dlab_spec_add_model(b, key, node, err);
    if (strcmp(k, "matrix") == 0) return read_matrix(b, node, err);
    if (strcmp(k, "ladder") == 0) return dlab_spec_add_ladder(b, node, err);
    if (strcmp(k, "plan") == 0 || strcmp(k, "workload") == 0 || strcmp(k, "measure") == 0) {
        return dlab_spec_add_section(b, k, node, err);
    }
    return DLAB_OK;
}

static dlab_status read_measure(dlab_spec_build *b, dlab_error *err)
{
    size_t n;
    const dlab_param *table = dlab_measure_params(&n);
    dlab_param_defaults(table, n, &b->spec->measure);
    for (size_t i = 0; i < b->n_keys; i++) {
        const dlab_spec_key *k = &b->keys[i];
        if (k->table == DLAB_SPEC_MEASURE) DLAB_TRY(dlab_param_set(k->param, &b->spec->measure, k->values[0], err));
    }
    return DLAB_OK;
}

static dlab_status read_file(dlab_spec_build *b, const char *const *sets, size_t n_sets, const char *default_model,
                             dlab_error *err)
{
    const dlab_yaml_node *root = dlab_yaml_root(b->spec->yaml);
    if (!root || root->kind != DLAB_YAML_MAP) {
        return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){root, NULL}, err,
                              "an experiment is a map of sections, such as `plan:` and `workload:`");
    }
    DLAB_TRY(dlab_spec_check_words(b, "", root, err));
    default_name(b->spec);
    for (size_t i = 0; i < root->n; i++) DLAB_TRY(read_section(b, root->keys[i], root->items[i], err));
    for (size_t i = 0; i < n_sets; i++) DLAB_TRY(dlab_spec_add_set(b, sets[i], err));
    b->n_sets = n_sets;
    b->zip = dlab_yaml_get(root, "zip");
    const dlab_yaml_node *include = dlab_yaml_get(root, "include");
    const dlab_yaml_node *exclude = dlab_yaml_get(root, "exclude");
    const dlab_yaml_node *plots = dlab_yaml_get(root, "plots");
    if (include) DLAB_TRY(dlab_spec_add_changes(b, "include", include, err));
    if (exclude) DLAB_TRY(dlab_spec_add_changes(b, "exclude", exclude, err));
    DLAB_TRY(read_measure(b, err));
    DLAB_TRY(read_report(b, dlab_yaml_get(root, "report"), err));
    if (plots) DLAB_TRY(read_plots(b, plots, err));
    return dlab_spec_make_points(b, default_model, err);
}

/* Takes the YAML over, on failure too. */
static dlab_status spec_from_yaml(dlab_yaml *y, const char *const *sets, size_t n_sets, const char *default_model,
                                  dlab_spec **out, dlab_error *err)
{
    dlab_spec *s = calloc(1, sizeof *s);
    if (!s) {
        dlab_yaml_destroy(y);
        return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory");
    }
    s->yaml = y;
    dlab_spec_build b = {.spec = s};
    const dlab_status st = read_file(&b, sets, n_sets, default_model, err);
    dlab_spec_build_free(&b);
    if (st == DLAB_OK) {
        *out = s;
    } else {
        dlab_spec_destroy(s);
    }
    return st;
}

dlab_status dlab_spec_read(const char *path, const char *const *sets, size_t n_sets, const char *default_model,
                           dlab_spec **out, dlab_error *err)
{
    dlab_yaml *y;
    *out = NULL;
    DLAB_TRY(dlab_yaml_read(path, &y, err));
    return spec_from_yaml(y, sets, n_sets, default_model, out, err);
}

dlab_status dlab_spec_parse(const char *name, const char *text, size_t n, const char *const *sets, size_t n_sets,
                            const char *default_model, dlab_spec **out, dlab_error *err)
{
    dlab_yaml *y;
    *out = NULL;
    DLAB_TRY(dlab_yaml_parse(name, text, n, &y, err));
    return spec_from_yaml(y, sets, n_sets, default_model, out, err);
}

void dlab_spec_destroy(dlab_spec *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_points; i++) dlab_settings_free(&s->points[i].axes);
    free(s->points);
    dlab_report_free(&s->report);
    dlab_yaml_destroy(s->yaml);
    free(s);
}

/* From the keys that were given to the list of points: product, zip, ladder, exclude, include. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/spec/spec_parts.h"

#define AXES_MAX 128 /* more than all tables have rows */

typedef struct {
    dlab_spec_build *b;
    dlab_point base; /* defaults and fixed values */
    size_t dims[AXES_MAX], n_dims;
    struct {
        dlab_spec_table table;
        const dlab_param *param; /* NULL: the ladder */
    } axes[AXES_MAX];
    size_t n_axes;
} maker;

static const char *axis_key(const maker *m, size_t i) { return m->axes[i].param ? m->axes[i].param->key : "ladder"; }

static dlab_spec_place in_file(const dlab_yaml_node *node) { return (dlab_spec_place){node, NULL}; }

/* ---- which keys move together ------------------------------------------------------------------------------------------ */

static dlab_status zip_group(const maker *m, const dlab_yaml_node *group, size_t number, dlab_error *err)
{
    const dlab_spec_build *b = m->b;
    if (group->kind != DLAB_YAML_SEQ || group->n == 0) {
        return dlab_spec_fail(b, DLAB_EFORMAT, in_file(group), err,
                              "zip: expected groups of keys, such as [[kv.k, kv.v]]");
    }
    for (size_t i = 0; i < group->n; i++) {
        const dlab_yaml_node *key = group->items[i];
        dlab_spec_found f;
        DLAB_TRY(dlab_spec_expect(b, "zip", key, DLAB_YAML_SCALAR, err));
        DLAB_TRY(dlab_spec_axis(b, key, false, &f, err));
        dlab_spec_key *k = dlab_spec_given(b, f.param);
        if (!k || (!k->swept && !k->at.set)) {
            return dlab_spec_fail(b, DLAB_EFORMAT, in_file(key), err, "zip: %s is not a list", key->text);
        }
        if (k->group) {
            return dlab_spec_fail(b, DLAB_EFORMAT, in_file(key), err, "zip: %s is named twice", key->text);
        }
        k->group = number;
    }
    return DLAB_OK;
}

static dlab_status make_groups(const maker *m, dlab_error *err)
{
    const dlab_spec_build *b = m->b;
    if (b->zip_all && b->zip) {
        return dlab_spec_fail(b, DLAB_EFORMAT, in_file(b->zip), err,
                              "zip: with `matrix: zip` all lists move together already; keep one of the two");
    }
    for (size_t i = 0; b->zip_all && i < b->n_keys; i++) b->keys[i].group = b->keys[i].param ? 1 : 0;
    if (!b->zip) return DLAB_OK;
    DLAB_TRY(dlab_spec_expect(b, "zip", b->zip, DLAB_YAML_SEQ, err));
    for (size_t i = 0; i < b->zip->n; i++) DLAB_TRY(zip_group(m, b->zip->items[i], i + 1, err));
    return DLAB_OK;
}

static const char *key_name(const dlab_spec_key *k) { return k->param ? k->param->key : "ladder"; }

/* One loop for each swept key, or for each group of them. */
static dlab_status make_dims(maker *m, dlab_error *err)
{
    dlab_spec_build *b = m->b;
    size_t product = 1;
    for (size_t i = 0; i < b->n_keys; i++) {
        dlab_spec_key *k = &b->keys[i];
        if (!k->swept) continue;
        const dlab_spec_key *with = NULL;
        for (size_t j = 0; j < i && k->group && !with; j++) {
            if (b->keys[j].swept && b->keys[j].group == k->group) with = &b->keys[j];
        }
        if (with && with->n != k->n) {
            return dlab_spec_fail(
                b, DLAB_EFORMAT, k->at, err,
                "zip: %s has %zu values and %s has %zu; lists that move together have the same length", key_name(k),
                k->n, key_name(with), with->n);
        }
        if (m->n_axes == AXES_MAX) return DLAB_FAIL(err, DLAB_EINTERNAL, "experiment: more than %d axes", AXES_MAX);
        m->axes[m->n_axes].table = k->table;
        m->axes[m->n_axes++].param = k->param;
        k->dim = with ? with->dim : m->n_dims;
        if (with) continue;
        m->dims[m->n_dims++] = k->n;
        if (k->n > DLAB_SPEC_POINTS_MAX / product) {
            return dlab_spec_fail(b, DLAB_EFORMAT, k->at, err,
                                  "%s makes it more than %d points (%zu × %zu); shorten a list, or zip some",
                                  key_name(k), DLAB_SPEC_POINTS_MAX, product, k->n);
        }
        product *= k->n;
    }
    return DLAB_OK;
}

/* Axes that only an include names: every point shows its value. */
static dlab_status make_include_axes(maker *m, dlab_error *err)
{
    const dlab_spec_changes *list = &m->b->include;
    for (size_t i = 0; i < list->n; i++) {
        for (size_t k = 0; k < list->items[i].n; k++) {
            const dlab_spec_assign *a = &list->items[i].items[k];
            size_t j = 0;
            while (j < m->n_axes && m->axes[j].param != a->param) j++;
            if (j < m->n_axes) continue;
            if (j == AXES_MAX) return DLAB_FAIL(err, DLAB_EINTERNAL, "experiment: more than %d axes", AXES_MAX);
            m->axes[j].table = a->table;
            m->axes[j].param = a->param;
            m->n_axes++;
        }
    }
    return DLAB_OK;
}

/* ---- values into points -------------------------------------------------------------------------------------------------- */

static dlab_status point_set(dlab_point *p, dlab_spec_table table, const dlab_param *param, const char *text,
                             dlab_error *err)
{
    return dlab_param_set(param, dlab_spec_object(p, table), text, err);
}

static dlab_status make_base(maker *m, const char *default_model, dlab_error *err)
{
    const dlab_spec_build *b = m->b;
    size_t n;
    dlab_spec_table table;
    const dlab_param *workload = dlab_workload_params(&n);
    const dlab_param *model = dlab_spec_find("model", &table);
    memset(&m->base, 0, sizeof m->base);
    dlab_plan_default(&m->base.plan);
    dlab_param_defaults(workload, n, &m->base.workload);
    if (!dlab_spec_given(b, model)) {
        if (!default_model) {
            return dlab_spec_fail(b, DLAB_EFORMAT, (dlab_spec_place){0}, err,
                                  "no model: write `model:` in the file or give --set model=FILE");
        }
        DLAB_TRY(point_set(&m->base, table, model, default_model, err));
    }
    for (size_t i = 0; i < b->n_keys; i++) {
        const dlab_spec_key *k = &b->keys[i];
        if (k->swept || k->table == DLAB_SPEC_MEASURE) continue;
        DLAB_TRY(point_set(&m->base, k->table, k->param, k->values[0], err));
    }
    return DLAB_OK;
}

/* A ladder's step must not touch what is swept; what --set fixes stays fixed. */
static dlab_status check_ladder(const maker *m, dlab_error *err)
{
    const dlab_spec_changes *ladder = &m->b->ladder;
    for (size_t i = 0; i < ladder->n; i++) {
        for (size_t k = 0; k < ladder->items[i].n; k++) {
            const dlab_spec_assign *a = &ladder->items[i].items[k];
            const dlab_spec_key *given = dlab_spec_given(m->b, a->param);
            if (given && given->swept && !given->at.set) {
                return dlab_spec_fail(m->b, DLAB_EFORMAT, in_file(a->node), err,
                                      "ladder: %s is swept as well (line %d); keep one of the two", a->param->key,
                                      given->at.node->line);
            }
        }
    }
    return DLAB_OK;
}

static dlab_status climb(const maker *m, dlab_point *p, size_t step, dlab_error *err)
{
    const dlab_spec_changes *ladder = &m->b->ladder;
    for (size_t i = 0; i <= step; i++) {
        for (size_t k = 0; k < ladder->items[i].n; k++) {
            const dlab_spec_assign *a = &ladder->items[i].items[k];
            const dlab_spec_key *given = dlab_spec_given(m->b, a->param);
            if (given && given->at.set) continue;
            DLAB_TRY(point_set(p, a->table, a->param, a->text, err));
        }
    }
    return DLAB_OK;
}

static void make_label(dlab_point *p)
{
    size_t at = 0;
    char *const label = p->label;
    snprintf(label, sizeof p->label, "the only point");
    for (size_t i = 0; i < p->axes.n && at < sizeof p->label; i++) {
        at += (size_t)snprintf(label + at, sizeof p->label - at, "%s%s=%s", i ? " " : "", p->axes.items[i].key,
                               p->axes.items[i].value);
    }
    if (at < sizeof p->label) return;
    const char dots[] = "…";
    size_t end = sizeof p->label - sizeof dots;
    while (end > 0 && ((unsigned char)label[end] & 0xC0) == 0x80) end--; /* not inside a character */
    memcpy(label + end, dots, sizeof dots);
}

/* Combinations that the file alone shows to be impossible; the engine's plan check finds the rest. */
static void make_skip(dlab_point *p)
{
    const dlab_workload *w = &p->workload;
    p->skip[0] = '\0';
    const bool rows_bound = p->plan.batch_token_budget > 0 && strcmp(p->plan.batch_budget, "rows") == 0;
    if (strcmp(p->plan.kv_store, "none") == 0 && (p->plan.batch_chunk > 0 || rows_bound)) {
        snprintf(p->skip, sizeof p->skip,
                 "kv.store: none computes the whole prefix at every step, so %s cannot split it",
                 p->plan.batch_chunk > 0 ? "batch.chunk" : "batch.token_budget");
    } else if (w->prompt == 0 && w->depth == 0) {
        snprintf(p->skip, sizeof p->skip,
                 "workload.prompt: 0 needs workload.depth above 0: there is nothing to go on from");
    }
}

/* step: the ladder's step, or NULL. */
static dlab_status finish_point(const maker *m, dlab_point *p, const char *step, dlab_error *err)
{
    char text[DLAB_PARAM_STR + 32];
    for (size_t i = 0; i < m->n_axes; i++) {
        if (m->axes[i].param) {
            dlab_param_print(m->axes[i].param, dlab_spec_object(p, m->axes[i].table), text, sizeof text);
        }
        const char *value = m->axes[i].param ? text : step ? step : "-";
        DLAB_TRY(dlab_settings_set(&p->axes, axis_key(m, i), value, err));
    }
    make_label(p);
    make_skip(p);
    return DLAB_OK;
}

static dlab_status combine(const maker *m, size_t number, dlab_point *p, dlab_error *err)
{
    const dlab_spec_build *b = m->b;
    size_t index[AXES_MAX];
    for (size_t d = m->n_dims; d-- > 0; number /= m->dims[d]) index[d] = number % m->dims[d];
    const dlab_spec_key *ladder = dlab_spec_given(b, NULL);
    if (ladder) DLAB_TRY(climb(m, p, index[ladder->dim], err));
    for (size_t i = 0; i < b->n_keys; i++) {
        const dlab_spec_key *k = &b->keys[i];
        if (k->swept && k->param) DLAB_TRY(point_set(p, k->table, k->param, k->values[index[k->dim]], err));
    }
    return finish_point(m, p, ladder ? ladder->values[index[ladder->dim]] : NULL, err);
}

/* ---- exclude ---------------------------------------------------------------------------------------------------------------- */

static bool matches(const maker *m, const dlab_spec_change *c, dlab_point *p)
{
    for (size_t i = 0; i < c->n; i++) {
        const dlab_spec_assign *a = &c->items[i];
        size_t k = 0;
        while (k < m->n_axes && m->axes[k].param != a->param) k++;
        char text[DLAB_PARAM_STR + 32] = "-";
        const char *value = text;
        if (k < m->n_axes) {
            value = p->axes.items[k].value;
        } else if (a->param) {
            dlab_param_print(a->param, dlab_spec_object(p, a->table), text, sizeof text);
        }
        if (strcmp(value, a->text) != 0) return false;
    }
    return true;
}

static dlab_status make_product(const maker *m, dlab_error *err)
{
    dlab_spec *s = m->b->spec;
    const dlab_spec_changes *ex = &m->b->exclude;
    size_t total = 1;
    for (size_t d = 0; d < m->n_dims; d++) total *= m->dims[d];
    bool *used = calloc(ex->n + 1, sizeof *used);
    if (!used) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for its points");
    dlab_status st = DLAB_OK;
    for (size_t i = 0; i < total; i++) {
        dlab_point *p = &s->points[s->n_points++];
        *p = m->base;
        DLAB_TRY_DONE(st, combine(m, i, p, err));
        bool drop = false;
        for (size_t k = 0; k < ex->n; k++) {
            if (!matches(m, &ex->items[k], p)) continue;
            used[k] = drop = true;
        }
        if (!drop) continue;
        dlab_settings_free(&p->axes);
        s->n_points--;
    }
    /* With --set the file's points may well be others than its author thought of. */
    for (size_t k = 0; k < ex->n && m->b->n_sets == 0; k++) {
        if (used[k]) continue;
        st =
            dlab_spec_fail(m->b, DLAB_EFORMAT, in_file(ex->items[k].node), err, "exclude: no point matches this entry");
        goto done;
    }
done:
    free(used);
    return st;
}

/* ---- include ---------------------------------------------------------------------------------------------------------------- */

static const dlab_point *find_twin(const dlab_spec *s, const dlab_point *p)
{
    for (size_t i = 0; i < s->n_points; i++) {
        const dlab_settings *a = &s->points[i].axes;
        size_t k = 0;
        while (k < a->n && strcmp(a->items[k].value, p->axes.items[k].value) == 0) k++;
        if (k == a->n) return &s->points[i];
    }
    return NULL;
}

static dlab_status make_included(const maker *m, dlab_error *err)
{
    dlab_spec *s = m->b->spec;
    for (size_t i = 0; i < m->b->include.n; i++) {
        const dlab_spec_change *c = &m->b->include.items[i];
        dlab_point p = m->base;
        dlab_status st = DLAB_OK;
        for (size_t k = 0; k < c->n; k++) {
            const dlab_spec_assign *a = &c->items[k];
            const dlab_spec_key *given = dlab_spec_given(m->b, a->param);
            if (given && given->at.set && !given->swept) continue;
            DLAB_TRY(point_set(&p, a->table, a->param, a->text, err));
        }
        st = finish_point(m, &p, NULL, err);
        const dlab_point *twin = st == DLAB_OK ? find_twin(s, &p) : NULL;
        if (st == DLAB_OK && !twin && s->n_points < DLAB_SPEC_POINTS_MAX) {
            s->points[s->n_points++] = p;
            continue;
        }
        if (st == DLAB_OK && !twin) {
            st = dlab_spec_fail(m->b, DLAB_EFORMAT, in_file(c->node), err, "include: more than %d points",
                                DLAB_SPEC_POINTS_MAX);
        } else if (twin && m->b->n_sets == 0) {
            st = dlab_spec_fail(m->b, DLAB_EFORMAT, in_file(c->node), err,
                                "include: the experiment has this point already (%s)", twin->label);
        }
        dlab_settings_free(&p.axes);
        DLAB_TRY(st);
    }
    return DLAB_OK;
}

/* ---- plots of one point ------------------------------------------------------------------------------------------------------ */

static bool is_at(dlab_point *p, const dlab_plot_spec *plot)
{
    for (size_t i = 0; i < plot->n_at; i++) {
        char text[DLAB_PARAM_STR + 32];
        const char *value = dlab_settings_get(&p->axes, plot->at[i].key);
        dlab_spec_table table;
        const dlab_param *param = value ? NULL : dlab_spec_find(plot->at[i].key, &table);
        if (param) {
            dlab_param_print(param, dlab_spec_object(p, table), text, sizeof text);
            value = text;
        }
        if (!value || strcmp(value, plot->at[i].value) != 0) return false;
    }
    return true;
}

/* Found before the sweep, not after it. With --set the points may be others than the file's author thought of, and the plot
 * is left out instead. */
static dlab_status check_plots(const maker *m, dlab_error *err)
{
    dlab_spec *s = m->b->spec;
    const dlab_yaml_node *plots = dlab_yaml_get(dlab_yaml_root(s->yaml), "plots");
    for (size_t i = 0; i < s->n_plots && m->b->n_sets == 0; i++) {
        size_t n = 0;
        if (strcmp(s->plots[i].template_name, "stack") != 0) continue;
        for (size_t k = 0; k < s->n_points; k++) n += is_at(&s->points[k], &s->plots[i]);
        if (n == 1) continue;
        return dlab_spec_fail(m->b, DLAB_EFORMAT, in_file(plots->items[i]), err,
                              "plots: %s: a stack shows one point; its `at` matches %zu of %zu", s->plots[i].name, n,
                              s->n_points);
    }
    return DLAB_OK;
}

dlab_status dlab_spec_make_points(dlab_spec_build *b, const char *default_model, dlab_error *err)
{
    maker *m = calloc(1, sizeof *m);
    if (!m) return DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for its points");
    dlab_spec *s = b->spec;
    dlab_status st;
    m->b = b;
    DLAB_TRY_DONE(st, make_base(m, default_model, err));
    DLAB_TRY_DONE(st, check_ladder(m, err));
    DLAB_TRY_DONE(st, make_groups(m, err));
    DLAB_TRY_DONE(st, make_dims(m, err));
    DLAB_TRY_DONE(st, make_include_axes(m, err));
    size_t total = 1;
    for (size_t d = 0; d < m->n_dims; d++) total *= m->dims[d];
    s->points = calloc(total + b->include.n, sizeof *s->points);
    if (!s->points) {
        st = DLAB_FAIL(err, DLAB_EOOM, "experiment: no memory for %zu points", total);
        goto done;
    }
    DLAB_TRY_DONE(st, make_product(m, err));
    DLAB_TRY_DONE(st, make_included(m, err));
    if (s->n_points == 0) {
        const dlab_yaml_node *exclude = dlab_yaml_get(dlab_yaml_root(s->yaml), "exclude");
        st = dlab_spec_fail(b, DLAB_EFORMAT, in_file(exclude), err, "exclude: no point is left");
        goto done;
    }
    st = check_plots(m, err);
done:
    free(m);
    return st;
}

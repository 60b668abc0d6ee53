#include "plots/plot.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/param.h"
#include "plots/plot_parts.h"

/* ---- the experiment's `plots:` section ----------------------------------------------------------------------------- */

typedef struct {
    const dlab_yaml *y;
    dlab_error *err;
} parser;

static dlab_status parse_text(const parser *p, const dlab_yaml_node *n, char *buf, size_t size)
{
    if (n->kind != DLAB_YAML_SCALAR) return dlab_yaml_fail(p->y, n, p->err, "expected a text");
    if (strlen(n->text) >= size) return dlab_yaml_fail(p->y, n, p->err, "is longer than %zu bytes", size - 1);
    memcpy(buf, n->text, strlen(n->text) + 1);
    return DLAB_OK;
}

/* The stem of four files. */
static dlab_status parse_name(const parser *p, const dlab_yaml_node *n, dlab_plot_spec *out)
{
    DLAB_TRY(parse_text(p, n, out->name, sizeof out->name));
    bool plain = out->name[0] != '\0' && out->name[0] != '.' && out->name[0] != '-';
    for (const char *c = out->name; *c; c++) plain = plain && *c != '/' && (unsigned char)*c >= ' ' && *c != 127;
    if (!plain)
        return dlab_yaml_fail(p->y, n, p->err,
                              "\"%s\" cannot be a file's name; expected a word without / or leading dot", out->name);
    return DLAB_OK;
}

static dlab_status parse_template(const parser *p, const dlab_yaml_node *n, dlab_plot_spec *out)
{
    static const char *const words[] = {"lines", "bars", "stack"};
    DLAB_TRY(parse_text(p, n, out->template_name, sizeof out->template_name));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(out->template_name, words[i]) == 0) return DLAB_OK;
    return dlab_yaml_fail(p->y, n, p->err, "unknown template \"%s\", expected lines, bars or stack",
                          out->template_name);
}

static dlab_status parse_metric(const parser *p, const dlab_yaml_node *n, const dlab_metric **out)
{
    if (n->kind != DLAB_YAML_SCALAR) return dlab_yaml_fail(p->y, n, p->err, "expected the name of a metric");
    *out = dlab_metric_find(n->text);
    if (*out) return DLAB_OK;
    const char *near = dlab_metric_nearest(n->text);
    return dlab_yaml_fail(p->y, n, p->err, "unknown metric \"%s\"%s%s%s", n->text, near ? "; did you mean \"" : "",
                          near ? near : "; `dlab list` prints them", near ? "\"?" : "");
}

static dlab_status parse_series(const parser *p, const dlab_yaml_node *n, dlab_plot_spec *out)
{
    const size_t most = sizeof out->series / sizeof *out->series;
    if (n->kind != DLAB_YAML_SEQ || n->n > most)
        return dlab_yaml_fail(p->y, n, p->err, "expected a list of at most %zu axes", most);
    for (size_t i = 0; i < n->n; i++) DLAB_TRY(parse_text(p, n->items[i], out->series[i], sizeof out->series[i]));
    out->n_series = n->n;
    return DLAB_OK;
}

static dlab_status parse_flag(const parser *p, const dlab_yaml_node *n, bool *out)
{
    static const dlab_param flag = {"", DLAB_PARAM_BOOL, 0, "false", 1, 0, NULL, ""};
    if (n->kind == DLAB_YAML_SCALAR && dlab_param_set(&flag, out, n->text, NULL) == DLAB_OK) return DLAB_OK;
    return dlab_yaml_fail(p->y, n, p->err, "expected true or false");
}

static dlab_status parse_at(const parser *p, const dlab_yaml_node *n, dlab_plot_spec *out)
{
    if (n->kind != DLAB_YAML_MAP || n->n > DLAB_PLOT_AT_MAX)
        return dlab_yaml_fail(p->y, n, p->err, "expected at most %d axes and their values, {kv.store: paged}",
                              DLAB_PLOT_AT_MAX);
    for (size_t i = 0; i < n->n; i++) {
        DLAB_TRY(parse_text(p, n->keys[i], out->at[i].key, sizeof out->at[i].key));
        DLAB_TRY(parse_text(p, n->items[i], out->at[i].value, sizeof out->at[i].value));
    }
    out->n_at = n->n;
    return DLAB_OK;
}

static dlab_status parse_only(const parser *p, const dlab_yaml_node *n, dlab_plot_spec *out)
{
    out->only_kv = n->kind == DLAB_YAML_SCALAR && strcmp(n->text, "kv") == 0;
    if (out->only_kv || (n->kind == DLAB_YAML_SCALAR && strcmp(n->text, "all") == 0)) return DLAB_OK;
    return dlab_yaml_fail(p->y, n, p->err, "expected all or kv");
}

static dlab_status parse_key(const parser *p, const dlab_yaml_node *key, const dlab_yaml_node *v, dlab_plot_spec *out)
{
    static const char *const words[] = {"name",      "template", "title", "x",  "y",    "series",
                                        "reference", "logx",     "logy",  "at", "only", NULL};
    if (strcmp(key->text, "name") == 0) return parse_name(p, v, out);
    if (strcmp(key->text, "template") == 0) return parse_template(p, v, out);
    if (strcmp(key->text, "title") == 0) return parse_text(p, v, out->title, sizeof out->title);
    if (strcmp(key->text, "x") == 0) return parse_text(p, v, out->x, sizeof out->x);
    if (strcmp(key->text, "y") == 0) return parse_metric(p, v, &out->y);
    if (strcmp(key->text, "series") == 0) return parse_series(p, v, out);
    if (strcmp(key->text, "reference") == 0) return parse_metric(p, v, &out->reference);
    if (strcmp(key->text, "logx") == 0) return parse_flag(p, v, &out->logx);
    if (strcmp(key->text, "logy") == 0) return parse_flag(p, v, &out->logy);
    if (strcmp(key->text, "at") == 0) return parse_at(p, v, out);
    if (strcmp(key->text, "only") == 0) return parse_only(p, v, out);
    const char *near = dlab_nearest(key->text, words);
    return dlab_yaml_fail(p->y, key, p->err, "unknown key \"%s\"%s%s%s", key->text, near ? "; did you mean \"" : "",
                          near ? near : "", near ? "\"?" : "");
}

/* A key that this template has no use for. */
static dlab_status refuse(const parser *p, const dlab_yaml_node *n, const char *const *keys, const char *why)
{
    for (size_t i = 0; keys[i]; i++) {
        const dlab_yaml_node *given = dlab_yaml_get(n, keys[i]);
        if (given) return dlab_yaml_fail(p->y, given, p->err, "%s: %s", keys[i], why);
    }
    return DLAB_OK;
}

static dlab_status check_figures(const parser *p, const dlab_yaml_node *n, const dlab_plot_spec *s, bool lines)
{
    static const char *const of_stack[] = {"at", "only", NULL}, *const of_lines[] = {"reference", NULL};
    DLAB_TRY(refuse(p, n, of_stack, "is for the template stack alone"));
    if (!s->y) return dlab_yaml_fail(p->y, n, p->err, "a plot needs its name and y, a metric");
    if (lines && !s->x[0]) return dlab_yaml_fail(p->y, n, p->err, "a plot of lines needs x, an axis of numbers");
    if (lines && s->reference && strcmp(s->reference->unit, s->y->unit) != 0)
        return dlab_yaml_fail(p->y, dlab_yaml_get(n, "reference"), p->err,
                              "reference: %s is in %s and y, %s, in %s; expected a metric of the same unit",
                              s->reference->name, s->reference->unit, s->y->name, s->y->unit);
    if (!lines && s->logx) return dlab_yaml_fail(p->y, n, p->err, "bars have no logarithmic x axis");
    return lines ? DLAB_OK : refuse(p, n, of_lines, "is for the template lines alone");
}

static dlab_status parse_plot(const parser *p, const dlab_yaml_node *n, dlab_plot_spec *out)
{
    static const char *const of_figures[] = {"x", "y", "series", "reference", "logx", "logy", NULL};
    *out = (dlab_plot_spec){.template_name = "lines"};
    if (n->kind != DLAB_YAML_MAP) return dlab_yaml_fail(p->y, n, p->err, "expected {name: tpot, y: tpot, …}");
    for (size_t i = 0; i < n->n; i++) DLAB_TRY(parse_key(p, n->keys[i], n->items[i], out));
    if (!out->name[0]) return dlab_yaml_fail(p->y, n, p->err, "a plot needs its name");
    if (!out->title[0]) snprintf(out->title, sizeof out->title, "%s", out->name);
    if (strcmp(out->template_name, "stack") == 0)
        return refuse(p, n, of_figures, "not for the template stack, whose axes are a run's time and its memory");
    return check_figures(p, n, out, strcmp(out->template_name, "lines") == 0);
}

dlab_status dlab_plot_parse(const dlab_yaml *y, const dlab_yaml_node *node, dlab_plot_spec out[DLAB_PLOT_MAX],
                            size_t *n, dlab_error *err)
{
    const parser p = {y, err};
    *n = 0;
    if (!node) return DLAB_OK;
    if (node->kind != DLAB_YAML_SEQ) return dlab_yaml_fail(y, node, err, "expected a list of plots");
    if (node->n > DLAB_PLOT_MAX)
        return dlab_yaml_fail(y, node, err, "%zu plots, expected at most %d", node->n, DLAB_PLOT_MAX);
    for (size_t i = 0; i < node->n; i++) {
        DLAB_TRY(parse_plot(&p, node->items[i], &out[i]));
        for (size_t k = 0; k < i; k++)
            if (strcmp(out[k].name, out[i].name) == 0)
                return dlab_yaml_fail(y, node->items[i], err, "two plots have the name \"%s\"", out[i].name);
    }
    *n = node->n;
    return DLAB_OK;
}

/* ---- rendering ----------------------------------------------------------------------------------------------------- */

static dlab_status read_template(const char *dir, const char *name, char **text, dlab_error *err)
{
    char path[PATH_MAX];
    size_t n;
    snprintf(path, sizeof path, "%s/%s.gp", dir, name);
    dlab_status st = dlab_file_read(path, 1 << 20, text, &n, err);
    return st == DLAB_OK ? st : dlab_error_prefix(err, st, "plot template");
}

static dlab_status write_file(const char *dir, const char *name, const char *extension, const char *text, size_t n,
                              dlab_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.%s", dir, name, extension);
    return dlab_file_write_atomic(path, text, n, err);
}

/* What the template shows: either figures of points or a run over its time. */
typedef struct {
    const dlab_plot_spec *spec;
    bool is_stack;
    dlab_plot_data figures;
    dlab_plot_stack stack;
} drawing;

static void write_text(const drawing *g, const char *template_text, FILE *f)
{
    if (g->is_stack && template_text)
        dlab_plot_stack_write_script(&g->stack, template_text, f);
    else if (g->is_stack)
        dlab_plot_stack_write_data(&g->stack, f);
    else if (template_text)
        dlab_plot_write_script(&g->figures, template_text, f);
    else
        dlab_plot_write_data(&g->figures, f);
}

/* template_text NULL: the data file. */
static dlab_status write_part(const drawing *g, const char *dir, const char *template_text, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return DLAB_FAIL(err, DLAB_EOOM, "plot %s: no memory to write it", g->spec->name);
    write_text(g, template_text, f);
    dlab_status st =
        fclose(f) == 0 ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "plot %s: no memory to write it", g->spec->name);
    if (st == DLAB_OK) st = write_file(dir, g->spec->name, template_text ? "gp" : "dat", text, n, err);
    free(text);
    return st;
}

/* A picture of an earlier run beside new figures would lie. */
static void remove_pictures(const char *dir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.svg", dir, name);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s.png", dir, name);
    unlink(path);
}

dlab_status dlab_plot_render(const dlab_record *r, const dlab_plot_spec *spec, const char *template_dir,
                             const char *out_dir, bool *made_pictures, dlab_error *err)
{
    drawing g = {.spec = spec, .is_stack = strcmp(spec->template_name, "stack") == 0};
    char *template_text = NULL, script[128];
    dlab_status st;
    *made_pictures = false;
    DLAB_TRY_DONE(st, g.is_stack ? dlab_plot_stack_collect(r, spec, &g.stack, err)
                                 : dlab_plot_collect(r, spec, &g.figures, err));
    DLAB_TRY_DONE(st, read_template(template_dir, spec->template_name, &template_text, err));
    DLAB_TRY_DONE(st, dlab_dir_make(out_dir, err));
    DLAB_TRY_DONE(st, write_part(&g, out_dir, NULL, err));
    DLAB_TRY_DONE(st, write_part(&g, out_dir, template_text, err));
    remove_pictures(out_dir, spec->name);
    snprintf(script, sizeof script, "%s.gp", spec->name);
    st = dlab_plot_run(out_dir, script, made_pictures, err);
    if (st != DLAB_OK) remove_pictures(out_dir, spec->name);
done:
    free(template_text);
    dlab_plot_data_free(&g.figures);
    dlab_plot_stack_free(&g.stack);
    return st;
}

/* The experiment's `report:` section. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "results/report_parts.h"

typedef struct {
    const dlab_yaml *y;
    dlab_report_spec *out;
    dlab_error *err;
} parser;

static dlab_status unknown_key(const parser *p, const dlab_yaml_node *at, const char *const *words)
{
    const char *near = dlab_nearest(at->text, words);
    return dlab_yaml_fail(p->y, at, p->err, "unknown key \"%s\"%s%s%s", at->text, near ? "; did you mean \"" : "",
                          near ? near : "", near ? "\"?" : "");
}

static dlab_status need(const parser *p, const dlab_yaml_node *n, dlab_yaml_kind kind, const char *what)
{
    if (n->kind == kind) return DLAB_OK;
    return dlab_yaml_fail(p->y, n, p->err, "expected %s", what);
}

static dlab_status parse_metric(const parser *p, const dlab_yaml_node *n, const dlab_metric **out)
{
    DLAB_TRY(need(p, n, DLAB_YAML_SCALAR, "the name of a metric"));
    *out = dlab_metric_find(n->text);
    if (*out) return DLAB_OK;
    const char *near = dlab_metric_nearest(n->text);
    return dlab_yaml_fail(p->y, n, p->err, "unknown metric \"%s\"%s%s%s", n->text, near ? "; did you mean \"" : "",
                          near ? near : "; `dlab list` prints them", near ? "\"?" : "");
}

static dlab_status parse_metrics(const parser *p, const dlab_yaml_node *n)
{
    DLAB_TRY(need(p, n, DLAB_YAML_SEQ, "a list of metrics, [ttft, tpot, …]"));
    if (n->n > DLAB_REPORT_MAX)
        return dlab_yaml_fail(p->y, n, p->err, "%zu metrics, expected at most %d", n->n, DLAB_REPORT_MAX);
    for (size_t i = 0; i < n->n; i++) {
        DLAB_TRY(parse_metric(p, n->items[i], &p->out->metrics[i]));
        p->out->n_metrics = i + 1;
    }
    return DLAB_OK;
}

static dlab_status parse_settings(const parser *p, const dlab_yaml_node *n, dlab_settings *out)
{
    DLAB_TRY(need(p, n, DLAB_YAML_MAP, "axes and their values, {kv.store: none}"));
    for (size_t i = 0; i < n->n; i++) {
        DLAB_TRY(need(p, n->items[i], DLAB_YAML_SCALAR, "one value"));
        DLAB_TRY(dlab_settings_set(out, n->keys[i]->text, n->items[i]->text, p->err));
    }
    return DLAB_OK;
}

static dlab_status parse_growth(const parser *p, const dlab_yaml_node *n)
{
    static const char *const words[] = {"metric", "over", NULL};
    DLAB_TRY(need(p, n, DLAB_YAML_MAP, "{metric: tpot, over: workload.depth}"));
    for (size_t i = 0; i < n->n; i++) {
        if (strcmp(n->keys[i]->text, "metric") == 0) {
            DLAB_TRY(parse_metric(p, n->items[i], &p->out->growth));
        } else if (strcmp(n->keys[i]->text, "over") == 0) {
            DLAB_TRY(need(p, n->items[i], DLAB_YAML_SCALAR, "the name of a swept axis"));
            if (strlen(n->items[i]->text) >= sizeof p->out->growth_over)
                return dlab_yaml_fail(p->y, n->items[i], p->err, "is too long for the name of an axis");
            snprintf(p->out->growth_over, sizeof p->out->growth_over, "%s", n->items[i]->text);
        } else {
            return unknown_key(p, n->keys[i], words);
        }
    }
    if (!p->out->growth || !p->out->growth_over[0])
        return dlab_yaml_fail(p->y, n, p->err, "growth needs both, {metric: tpot, over: workload.depth}");
    return DLAB_OK;
}

static dlab_status parse_number(const parser *p, const dlab_yaml_node *n, double *out)
{
    if (n->kind == DLAB_YAML_SCALAR && dlab_value_number(n->text, out) && *out > 0) return DLAB_OK;
    return dlab_yaml_fail(p->y, n, p->err, "expected a number above 0");
}

static dlab_status parse_word(const parser *p, const dlab_yaml_node *n, char *buf, size_t size)
{
    DLAB_TRY(need(p, n, DLAB_YAML_SCALAR, "a text"));
    if (strlen(n->text) >= size) return dlab_yaml_fail(p->y, n, p->err, "is longer than %zu bytes", size - 1);
    memcpy(buf, n->text, strlen(n->text) + 1);
    return DLAB_OK;
}

static dlab_status parse_claim(const parser *p, const dlab_yaml_node *n, dlab_claim *c)
{
    static const char *const words[] = {"id", "article", "at", "growth", "ratio", "text", NULL};
    DLAB_TRY(need(p, n, DLAB_YAML_MAP, "{id: K1, article: C, at: {kv.store: none}, growth: 2}"));
    for (size_t i = 0; i < n->n; i++) {
        const char *key = n->keys[i]->text;
        const dlab_yaml_node *v = n->items[i];
        if (strcmp(key, "id") == 0)
            DLAB_TRY(parse_word(p, v, c->id, sizeof c->id));
        else if (strcmp(key, "article") == 0)
            DLAB_TRY(parse_word(p, v, c->article, sizeof c->article));
        else if (strcmp(key, "text") == 0)
            DLAB_TRY(parse_word(p, v, c->text, sizeof c->text));
        else if (strcmp(key, "at") == 0)
            DLAB_TRY(parse_settings(p, v, &c->at));
        else if (strcmp(key, "growth") == 0)
            DLAB_TRY(parse_number(p, v, &c->growth));
        else if (strcmp(key, "ratio") == 0)
            DLAB_TRY(parse_number(p, v, &c->ratio));
        else
            return unknown_key(p, n->keys[i], words);
    }
    if (!c->id[0] || !c->article[0]) return dlab_yaml_fail(p->y, n, p->err, "a claim needs its id and its article");
    return DLAB_OK;
}

static dlab_status parse_claims(const parser *p, const dlab_yaml_node *n)
{
    DLAB_TRY(need(p, n, DLAB_YAML_SEQ, "a list of claims"));
    if (n->n > DLAB_REPORT_MAX)
        return dlab_yaml_fail(p->y, n, p->err, "%zu claims, expected at most %d", n->n, DLAB_REPORT_MAX);
    for (size_t i = 0; i < n->n; i++) {
        dlab_claim *c = &p->out->claims[p->out->n_claims++];
        *c = (dlab_claim){.ratio = NAN, .growth = NAN};
        DLAB_TRY(parse_claim(p, n->items[i], c));
    }
    return DLAB_OK;
}

static dlab_status parse_section(const parser *p, const dlab_yaml_node *n)
{
    static const char *const words[] = {"metrics", "baseline", "ratio", "growth", "claims", NULL};
    DLAB_TRY(need(p, n, DLAB_YAML_MAP, "metrics, baseline, ratio, growth, claims"));
    for (size_t i = 0; i < n->n; i++) {
        const char *key = n->keys[i]->text;
        const dlab_yaml_node *v = n->items[i];
        if (strcmp(key, "metrics") == 0)
            DLAB_TRY(parse_metrics(p, v));
        else if (strcmp(key, "baseline") == 0)
            DLAB_TRY(parse_settings(p, v, &p->out->baseline));
        else if (strcmp(key, "ratio") == 0)
            DLAB_TRY(parse_metric(p, v, &p->out->ratio));
        else if (strcmp(key, "growth") == 0)
            DLAB_TRY(parse_growth(p, v));
        else if (strcmp(key, "claims") == 0)
            DLAB_TRY(parse_claims(p, v));
        else
            return unknown_key(p, n->keys[i], words);
    }
    if (p->out->ratio && p->out->baseline.n == 0)
        return dlab_yaml_fail(p->y, n, p->err, "ratio needs a baseline, {kv.store: none}");
    return DLAB_OK;
}

dlab_status dlab_report_parse(const dlab_yaml *y, const dlab_yaml_node *node, dlab_report_spec *out, dlab_error *err)
{
    static const char *const usual[] = {"ttft", "tpot", "decode_tps", "mem_peak"};
    const parser p = {y, out, err};
    *out = (dlab_report_spec){0};
    dlab_status st = node ? parse_section(&p, node) : DLAB_OK;
    if (st != DLAB_OK) {
        dlab_report_free(out);
        return st;
    }
    if (out->n_metrics == 0)
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
            out->metrics[out->n_metrics++] = dlab_metric_find(usual[i]);
    if (out->baseline.n > 0 && !out->ratio) out->ratio = dlab_metric_find("tpot");
    return DLAB_OK;
}

void dlab_report_free(dlab_report_spec *s)
{
    dlab_settings_free(&s->baseline);
    for (size_t i = 0; i < s->n_claims; i++) dlab_settings_free(&s->claims[i].at);
    *s = (dlab_report_spec){0};
}

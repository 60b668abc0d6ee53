/* Flags of dlab load as keys of an experiment: what a flag means is written once, in harness/spec. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_load.h"

#define LIST_MAX 64

dlab_status dlab_load_set(dlab_load_opts *o, const char *assignment, dlab_error *err)
{
    if (o->n_sets == DLAB_LOAD_SETS) return DLAB_FAIL(err, DLAB_EUSAGE, "more than %d keys are set", DLAB_LOAD_SETS);
    o->sets[o->n_sets] = strdup(assignment);
    if (!o->sets[o->n_sets]) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the flags");
    o->n_sets++;
    return DLAB_OK;
}

dlab_status dlab_load_set_key(dlab_load_opts *o, const char *key, const char *value, dlab_error *err)
{
    char *text = NULL;
    if (asprintf(&text, "%s=%s", key, value) < 0) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the flags");
    dlab_status st = dlab_load_set(o, text, err);
    free(text);
    return st;
}

const char *dlab_load_given(const dlab_load_opts *o, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = o->n_sets; i-- > 0;)
        if (strncmp(o->sets[i], key, n) == 0 && o->sets[i][n] == '=') return o->sets[i] + n + 1;
    return NULL;
}

dlab_status dlab_load_duration(const char *flag, const char *text, int64_t *ns, dlab_error *err)
{
    const dlab_param p = {flag, DLAB_PARAM_DURATION, 0, "0s", 0, 1e15, NULL, ""};
    return dlab_param_set(&p, ns, text, err);
}

/* One value is written as it is, several as a list. */
static dlab_status set_list(dlab_load_opts *o, const char *key, const char *commas, dlab_error *err)
{
    char list[LIST_MAX * 32 + 8];
    const bool several = strchr(commas, ',') != NULL;
    int n = snprintf(list, sizeof list, several ? "[%s]" : "%s", commas);
    if (n < 0 || (size_t)n >= sizeof list) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: more than %d values", key, LIST_MAX);
    return dlab_load_set_key(o, key, list, err);
}

dlab_status dlab_load_rates(dlab_load_opts *o, const char *text, dlab_error *err)
{
    if (strcmp(text, "inf") == 0) return dlab_load_set_key(o, "workload.kind", "batch", err);
    if (strstr(text, "inf"))
        return DLAB_FAIL(err, DLAB_EUSAGE, "--rate: inf stands alone (everything arrives at once), not in \"%s\"",
                         text);
    for (const char *at = text;;) {
        char *end = NULL;
        errno = 0;
        const double rate = strtod(at, &end);
        if (end == at || errno || !(rate > 0) || (*end && *end != ','))
            return DLAB_FAIL(err, DLAB_EUSAGE,
                             "--rate: \"%s\" is not a rate above 0 or a list of them, such as 1,2,4.5", text);
        if (!*end) break;
        at = end + 1;
    }
    DLAB_TRY(dlab_load_set_key(o, "workload.kind", "open", err));
    return set_list(o, "workload.rate", text, err);
}

dlab_status dlab_load_concurrency(dlab_load_opts *o, const char *text, dlab_error *err)
{
    int64_t list[LIST_MAX];
    char commas[LIST_MAX * 22] = "";
    size_t n = 0, used = 0;
    DLAB_TRY(dlab_cmd_int_list("--concurrency", text, 1, 65536, list, &n, LIST_MAX, err));
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(commas + used, sizeof commas - used, "%s%" PRId64, i ? "," : "", list[i]);
    DLAB_TRY(dlab_load_set_key(o, "workload.kind", "closed", err));
    return set_list(o, "workload.concurrency", commas, err);
}

/* ---- lengths ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *kind;
    int n;                  /* numbers behind the colon */
    const char *keys[2][2]; /* of prompts, of outputs */
} length_form;

static const length_form forms[] = {
    {"fixed", 1, {{"workload.prompt", NULL}, {"workload.output", NULL}}},
    {"poisson", 1, {{"workload.prompt", NULL}, {"workload.output", NULL}}},
    {"uniform", 2, {{"workload.prompt_min", "workload.prompt_max"}, {"workload.output_min", "workload.output_max"}}},
    {"normal", 2, {{"workload.prompt", "workload.prompt_sd"}, {"workload.output", "workload.output_sd"}}},
    {"lognormal", 2, {{"workload.prompt", "workload.prompt_sd"}, {"workload.output", "workload.output_sd"}}},
};

static dlab_status bad_length(const char *flag, const char *text, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EUSAGE,
                     "%s: \"%s\" is not a length; write 512, fixed:512, uniform:16,512, normal:512,300, "
                     "lognormal:512,300, poisson:512 or file:PATH",
                     flag, text);
}

/* A uniform length has no mean of its own: the key for it would be outside the bounds. */
static dlab_status set_middle(dlab_load_opts *o, bool prompts, int64_t low, int64_t high, dlab_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, low + (high - low) / 2);
    return dlab_load_set_key(o, prompts ? "workload.prompt" : "workload.output", text, err);
}

static dlab_status set_lengths(dlab_load_opts *o, const char *flag, const length_form *f, bool prompts,
                               const char *numbers, const char *whole, dlab_error *err)
{
    int64_t v[2] = {0};
    size_t n = 0;
    char text[32];
    if (dlab_cmd_int_list(flag, numbers, 0, 1 << 20, v, &n, 2, NULL) != DLAB_OK || (int)n != f->n ||
        strchr(numbers, '-'))
        return bad_length(flag, whole, err);
    DLAB_TRY(dlab_load_set_key(o, prompts ? "workload.lengths" : "workload.outputs", f->kind, err));
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%" PRId64, v[i]);
        DLAB_TRY(dlab_load_set_key(o, f->keys[prompts ? 0 : 1][i], text, err));
    }
    return strcmp(f->kind, "uniform") == 0 ? set_middle(o, prompts, v[0], v[1], err) : DLAB_OK;
}

dlab_status dlab_load_lengths(dlab_load_opts *o, const char *flag, bool prompts, const char *text, dlab_error *err)
{
    const char *colon = strchr(text, ':');
    if (!colon) return set_lengths(o, flag, &forms[0], prompts, text, text, err);
    const size_t n = (size_t)(colon - text);
    if (n == 4 && strncmp(text, "file", n) == 0 && colon[1]) {
        DLAB_TRY(dlab_load_set_key(o, prompts ? "workload.lengths" : "workload.outputs", "file", err));
        return dlab_load_set_key(o, "workload.lengths_file", colon + 1, err);
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strlen(forms[i].kind) == n && strncmp(text, forms[i].kind, n) == 0)
            return set_lengths(o, flag, &forms[i], prompts, colon + 1, text, err);
    return bad_length(flag, text, err);
}

dlab_status dlab_load_prompts(dlab_load_opts *o, const char *text, dlab_error *err)
{
    const char *colon = strchr(text, ':');
    char kind[16];
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    snprintf(kind, sizeof kind, "%.*s", (int)(n < sizeof kind ? n : sizeof kind - 1), text);
    DLAB_TRY(dlab_load_set_key(o, "workload.prompts", kind, err));
    return colon ? dlab_load_set_key(o, "workload.prompts_file", colon + 1, err) : DLAB_OK;
}

/* ttft:200ms,tpot:50ms,e2e:5s; a bare number is milliseconds, as in vLLM's flag of this name. */
dlab_status dlab_load_objectives(dlab_load_opts *o, const char *text, dlab_error *err)
{
    static const char *const names[] = {"ttft", "tpot", "e2e", NULL};
    char word[64], key[32];
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, ", ");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), at);
        char *colon = strchr(word, ':');
        const char *name = NULL;
        if (!colon || !colon[1])
            return DLAB_FAIL(err, DLAB_EUSAGE, "--goodput: \"%s\" is no objective; write ttft:200ms,tpot:50ms,e2e:5s",
                             text);
        *colon = 0;
        DLAB_TRY(dlab_cmd_choice("--goodput", word, names, &name, err));
        char *value = colon + 1;
        if (!value[strspn(value, "0123456789.")] && strlen(value) + 3 < sizeof word - (size_t)(value - word))
            memcpy(value + strlen(value), "ms", 3);
        snprintf(key, sizeof key, "measure.slo_%s", name);
        DLAB_TRY(dlab_load_set_key(o, key, value, err));
        at += n;
        at += strspn(at, ", ");
    }
    return DLAB_OK;
}

/* ---- the experiment ------------------------------------------------------------------------------------------------------ */

static bool has_objectives(const dlab_load_opts *o)
{
    return dlab_load_given(o, "measure.slo_ttft") || dlab_load_given(o, "measure.slo_tpot") ||
           dlab_load_given(o, "measure.slo_e2e");
}

static bool is_swept(const dlab_load_opts *o, const char *key)
{
    const char *value = dlab_load_given(o, key);
    return value && *value == '[';
}

/* A load without an end gets one: half a minute of arrivals. */
static void write_defaults(const dlab_load_opts *o, FILE *f)
{
    const char *kind = dlab_load_given(o, "workload.kind");
    const bool ends = dlab_load_given(o, "workload.requests") || dlab_load_given(o, "workload.duration");
    fprintf(f, "name: load\n");
    if (!kind)
        fprintf(f, "workload: {kind: closed, duration: %s}\n", ends ? "0s" : "30s");
    else if (!ends && strcmp(kind, "batch") != 0 && strcmp(kind, "trace") != 0)
        fprintf(f, "workload: {duration: 30s}\n");
    else if (!ends && strcmp(kind, "batch") == 0)
        fprintf(f, "workload: {requests: 100}\n");
    fprintf(f, "measure: {repeats: 1, warmup: 1, order: grouped}\n");
}

static void write_report(const dlab_load_opts *o, FILE *f)
{
    const char *kind = dlab_load_given(o, "workload.kind");
    const bool scheduled = kind && (strcmp(kind, "open") == 0 || strcmp(kind, "trace") == 0);
    fprintf(f, "report: {metrics: [%s, ttft_p50, ttft_p99, tpot_p50, tpot_p99, e2e_p99, out_tps, %sfailed]}\n",
            scheduled ? "rate_intended, rate_achieved" : "req_ps", has_objectives(o) ? "goodput, goodput_share, " : "");
    const char *x = is_swept(o, "workload.rate") ? "workload.rate" : "workload.concurrency";
    if (!is_swept(o, x)) return;
    fprintf(f,
            "plots:\n"
            "  - {name: throughput, template: lines, title: \"Output tokens a second\", x: %s, y: out_tps}\n"
            "  - {name: p99, template: lines, title: \"99th percentile of the time to the first token\", x: %s, "
            "y: ttft_p99, logy: true}\n",
            x, x);
}

dlab_status dlab_load_spec(const dlab_load_opts *o, const char *model, dlab_spec **out, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return DLAB_FAIL(err, DLAB_EOOM, "no memory for an experiment");
    write_defaults(o, f);
    write_report(o, f);
    if (fclose(f) != 0) {
        free(text);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for an experiment");
    }
    dlab_status st = dlab_spec_parse("dlab load", text, n, (const char *const *)o->sets, o->n_sets, model, out, err);
    free(text);
    return st;
}

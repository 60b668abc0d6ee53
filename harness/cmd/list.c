/* dlab list: every word that an experiment or --set may use. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_util.h"
#include "harness/spec/spec.h"
#include "results/metric.h"

enum { KEY_DOCS = DLAB_CMD_KEY };

typedef struct {
    const char *what, *format;
    bool docs;
} list_opts;

static const char *const formats[] = {"text", "json", NULL};
static const char *const parts[] = {"axes", "keys", "metrics", "experiments", "models", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    list_opts *o = opts;
    switch (key) {
    case ARGP_KEY_ARG:
        if (o->what) return dlab_cmd_one_arg("part", arg, &o->what, err);
        return dlab_cmd_choice("part", arg, parts, &o->what, err);
    case KEY_DOCS:
        o->docs = true;
        return DLAB_OK;
    default:
        return dlab_cmd_choice("-o", arg, formats, &o->format, err);
    }
}

static const struct argp_option options[] = {
    {"docs", KEY_DOCS, NULL, 0, "the reference of experiment files, in Markdown (docs/experiments.md)", 0},
    {"output", 'o', "FORMAT", 0, "text (default) or json", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "list",
    .args = "[axes|keys|metrics|experiments|models]",
    .about =
        "Prints what there is: the strategies of each axis, every key with its default, the metrics, the experiments "
        "that come with the program, the synthetic models.",
    .example = "  dlab list\n  dlab list metrics\n  dlab list --docs",
    .options = options,
    .set = set,
};

/* ---- experiments ---------------------------------------------------------------------------------------------------- */

static int is_experiment(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 5 && strcmp(d->d_name + n - 5, ".yaml") == 0;
}

/* The file's `about:`, or "" when it has none or cannot be read: a list is no place to complain about a file. */
static void about_of(const char *path, char *buf, size_t size)
{
    dlab_yaml *y = NULL;
    *buf = 0;
    if (dlab_yaml_read(path, &y, NULL) == DLAB_OK) {
        const dlab_yaml_node *about = dlab_yaml_get(dlab_yaml_root(y), "about");
        if (about && about->kind == DLAB_YAML_SCALAR) snprintf(buf, size, "%s", about->text);
        for (char *c = buf; *c; c++) {
            if (*c == '\n') *c = ' ';
        }
    }
    dlab_yaml_destroy(y);
}

static json_t *experiments(void)
{
    char dir[PATH_MAX];
    json_t *list = json_array();
    struct dirent **found = NULL;
    int n = dlab_cmd_share_path("experiments", dir, sizeof dir) ? scandir(dir, &found, is_experiment, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX + 256], about[512];
        snprintf(path, sizeof path, "%s/%s", dir, found[i]->d_name);
        about_of(path, about, sizeof about);
        json_array_append_new(list, json_pack("{s:o, s:o}", "path", dlab_cmd_text_json(path, strlen(path)), "about",
                                              dlab_cmd_text_json(about, strlen(about))));
        free(found[i]);
    }
    free(found);
    return list;
}

/* ---- everything as one document, from which the text is printed ---------------------------------------------------- */

static json_t *axes(void)
{
    size_t n = dlab_axis_entries(NULL, 0);
    dlab_axis_entry *e = calloc(n + 1, sizeof *e);
    json_t *list = json_array();
    if (e) dlab_axis_entries(e, n);
    for (size_t i = 0; e && i < n; i++) {
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s}", "axis", e[i].axis, "name", e[i].name, "summary", e[i].summary));
    }
    free(e);
    return list;
}

static void add_keys(json_t *list, const char *section, const dlab_param *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const dlab_param *p = &table[i];
        json_t *choices = json_null();
        if (p->type == DLAB_PARAM_CHOICE) {
            choices = json_array();
            for (const char *const *w = p->choices(); *w; w++) json_array_append_new(choices, json_string(*w));
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "section", section, "key", p->key,
                                              "type", dlab_param_type_name(p->type), "default", p->def, "choices",
                                              choices, "help", p->help));
    }
}

static json_t *keys(void)
{
    json_t *list = json_array();
    size_t n = 0;
    const dlab_param *table = dlab_plan_params(&n);
    add_keys(list, "plan", table, n);
    table = dlab_workload_params(&n);
    add_keys(list, "workload", table, n);
    table = dlab_measure_params(&n);
    add_keys(list, "measure", table, n);
    return list;
}

static json_t *metrics(void)
{
    json_t *list = json_array();
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++) {
        for (size_t i = 0; i < (*f)->n; i++) {
            const dlab_metric *m = &(*f)->metrics[i];
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:s}", "name", m->name, "unit", m->unit, "description", m->description));
        }
    }
    return list;
}

static json_t *models(void)
{
    json_t *list = json_array();
    for (size_t i = 0; dlab_synthetic_names[i]; i++) {
        char name[128];
        snprintf(name, sizeof name, "synthetic:%s", dlab_synthetic_names[i]);
        json_array_append_new(list, json_string(name));
    }
    return list;
}

static json_t *document(const char *what)
{
    static json_t *(*const make[])(void) = {axes, keys, metrics, experiments, models};
    json_t *j = json_object();
    for (size_t i = 0; parts[i]; i++) {
        if (!what || what == parts[i]) json_object_set_new(j, parts[i], make[i]());
    }
    return j;
}

static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static void print_choices(const json_t *choices)
{
    size_t i;
    json_t *w;
    json_array_foreach(choices, i, w) printf("%s%s", i ? ", " : "; one of ", json_string_value(w));
}

static void print_part(const char *part, const json_t *list)
{
    size_t i;
    json_t *row;
    const char *group = "";
    printf("%s\n", part);
    json_array_foreach(list, i, row)
    {
        const char *next = json_is_object(row) ? text_of(row, strcmp(part, "axes") == 0 ? "axis" : "section") : NULL;
        if (next && strcmp(next, group) != 0) printf("  %s\n", next);
        if (next) group = next;
        if (json_is_string(row)) {
            printf("  %s\n", json_string_value(row));
        } else if (strcmp(part, "axes") == 0) {
            printf("    %-14s %s\n", text_of(row, "name"), text_of(row, "summary"));
        } else if (strcmp(part, "keys") == 0) {
            printf("    %-24s %-9s %-12s %s", text_of(row, "key"), text_of(row, "type"), text_of(row, "default"),
                   text_of(row, "help"));
            print_choices(json_object_get(row, "choices"));
            putchar('\n');
        } else if (strcmp(part, "metrics") == 0) {
            printf("  %-16s %-8s %s\n", text_of(row, "name"), text_of(row, "unit"), text_of(row, "description"));
        } else {
            printf("  %s\n      %s\n", text_of(row, "path"), text_of(row, "about"));
        }
    }
    putchar('\n');
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    list_opts o = {.format = formats[0]};
    bool helped = false;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    if (o.docs) {
        char *docs = NULL;
        DLAB_TRY(dlab_spec_docs(&docs, err));
        dlab_status st = dlab_cmd_print(docs, err);
        free(docs);
        return st;
    }
    json_t *j = document(o.what);
    if (o.format == formats[1]) return dlab_cmd_print_json(j, err);
    const char *part;
    json_t *list;
    json_object_foreach(j, part, list) print_part(part, list);
    json_decref(j);
    return DLAB_OK;
}

const dlab_command dlab_command_list = {
    .name = "list", .summary = "axes, keys with their defaults, metrics, experiments, synthetic models", .run = run};

/* dlab show: a record as the table that a person reads, or everything about one of its points. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_record.h"
#include "harness/cmd/cmd_util.h"
#include "results/diagnosis.h"

enum { KEY_POINT = DLAB_CMD_KEY, KEY_DIAGNOSE };

#define MAX_METRICS 256

typedef struct {
    const char *record, *format;
    int64_t point; /* from 1; 0: the table */
    bool diagnose;
} show_opts;

static const char *const formats[] = {"md", "csv", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    show_opts *o = opts;
    if (key == ARGP_KEY_ARG) return dlab_cmd_one_arg("record", arg, &o->record, err);
    if (key == KEY_DIAGNOSE) {
        o->diagnose = true;
        return DLAB_OK;
    }
    if (key == KEY_POINT) return dlab_cmd_int("--point", arg, 1, INT32_MAX, &o->point, err);
    return dlab_cmd_choice("--format", arg, formats, &o->format, err);
}

static const struct argp_option options[] = {
    {"format", 'o', "FORMAT", 0, "md (default), csv or json", 0},
    {"point", KEY_POINT, "N", 0, "all about the Nth row: settings, metrics, runs", 0},
    {"diagnose", KEY_DIAGNOSE, NULL, 0, "what bounds each point, and the evidence", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "show",
    .args = "RECORD.h5",
    .about = "Prints the table of a record, as its experiment's `report:` section asks.",
    .example = "  dlab show quickstart.h5\n  dlab show quickstart.h5 --point 2 --format json\n"
               "  dlab show quickstart.h5 --diagnose",
    .options = options,
    .set = set,
};

static json_t *settings_json(const dlab_settings *s)
{
    json_t *j = json_object();
    for (size_t i = 0; i < s->n; i++) {
        json_object_set_new(j, s->items[i].key, dlab_cmd_text_json(s->items[i].value, strlen(s->items[i].value)));
    }
    return j;
}

static json_t *runs_json(const dlab_point_result *p)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < p->n_runs; i++) {
        const dlab_run *r = p->runs[i];
        json_array_append_new(runs,
                              json_pack("{s:i, s:s, s:o, s:s, s:o, s:o}", "repeat", r->repeat, "status",
                                        dlab_run_status_text(r->status), "reason",
                                        dlab_cmd_text_json(r->reason, strlen(r->reason)), "key", r->key, "started_unix",
                                        dlab_json_number(r->started_unix), "length_ns", dlab_json_number(r->t_end)));
    }
    return runs;
}

typedef struct {
    const dlab_metric *metric;
    dlab_summary summary;
} figure;

/* Every metric that the point has a value for. */
static size_t figures_of(const dlab_point_result *p, figure *out)
{
    const dlab_metric_window window = DLAB_WINDOW_ALL;
    size_t n = 0;
    for (const dlab_metric_family *const *f = dlab_metric_families; *f; f++) {
        for (size_t i = 0; i < (*f)->n && n < MAX_METRICS; i++) {
            out[n].metric = &(*f)->metrics[i];
            dlab_metric_summary(out[n].metric, (const dlab_run *const *)p->runs, p->n_runs, &window, &out[n].summary);
            if (isfinite(out[n].summary.median)) n++;
        }
    }
    return n;
}

/* null where no peer was measured. */
static json_t *peer_json(const dlab_record *r, size_t point)
{
    const dlab_peer_point *q = dlab_peer_result_find(&r->peer, point);
    if (!q) return json_null();
    json_t *pairs = json_array(), *flash = q->flash < 0 ? json_null() : json_integer(q->flash);
    for (size_t i = 0; i < r->peer.n_pairs; i++) {
        const dlab_peer_pair *p = &r->peer.pairs[i];
        if (p->point != q->point) continue;
        json_array_append_new(pairs, json_pack("{s:i, s:b, s:o, s:o, s:o, s:o}", "pair", p->pair, "peer_first",
                                               p->peer_first, "ours_rate", dlab_json_number(p->ours_rate), "peer_rate",
                                               dlab_json_number(p->peer_rate), "ours_ns", dlab_json_number(p->ours_ns),
                                               "peer_ns", dlab_json_number(p->peer_ns)));
    }
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "about", settings_json(&r->peer.about), "status",
        dlab_cmd_text_json(q->status, strlen(q->status)), "reason", dlab_cmd_text_json(q->reason, strlen(q->reason)),
        "type_k", dlab_cmd_text_json(q->type_k, strlen(q->type_k)), "type_v",
        dlab_cmd_text_json(q->type_v, strlen(q->type_v)), "flash_attn", flash, "ratio", dlab_json_number(q->ratio),
        "low", dlab_json_number(q->low), "high", dlab_json_number(q->high), "pairs", pairs);
}

static dlab_status point_json(const dlab_point_result *p, const char *diagnosis, json_t *peer, const figure *f,
                              size_t n, dlab_error *err)
{
    json_t *metrics = json_object();
    for (size_t i = 0; i < n; i++) {
        const dlab_summary *s = &f[i].summary;
        json_object_set_new(metrics, f[i].metric->name,
                            json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:b}", "unit", f[i].metric->unit,
                                      "median", dlab_json_number(s->median), "mean", dlab_json_number(s->mean), "sd",
                                      dlab_json_number(s->sd), "min", dlab_json_number(s->min), "max",
                                      dlab_json_number(s->max), "n", (json_int_t)s->n, "n_samples",
                                      (json_int_t)s->n_samples, "low_n", (int)s->low_n));
    }
    return dlab_cmd_print_json(json_pack("{s:s, s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "label", p->label,
                                         "status", dlab_run_status_text(p->status), "reason",
                                         dlab_cmd_text_json(p->reason, strlen(p->reason)), "warnings",
                                         dlab_cmd_text_json(p->warnings, strlen(p->warnings)), "diagnosis", diagnosis,
                                         "axes", settings_json(&p->axes), "effective", settings_json(&p->effective),
                                         "metrics", metrics, "runs", runs_json(p), "peer", peer),
                               err);
}

static void csv_number(double v)
{
    putchar(',');
    if (isfinite(v)) printf("%.17g", v);
}

static void point_csv(const figure *f, size_t n)
{
    printf("metric,unit,median,mean,sd,min,max,n,n_samples\n");
    for (size_t i = 0; i < n; i++) {
        const dlab_summary *s = &f[i].summary;
        printf("%s,%s", f[i].metric->name, f[i].metric->unit);
        csv_number(s->median);
        csv_number(s->mean);
        csv_number(s->sd);
        csv_number(s->min);
        csv_number(s->max);
        printf(",%lld,%lld\n", (long long)s->n, (long long)s->n_samples);
    }
}

static void point_md(const dlab_point_result *p, const char *diagnosis, const figure *f, size_t n)
{
    printf("## %s\n\nstatus: %s%s%s\n", p->label, dlab_run_status_text(p->status), *p->reason ? ": " : "", p->reason);
    if (*p->warnings) printf("warnings: %s\n", p->warnings);
    if (*diagnosis) printf("diagnosis: %s\n", diagnosis);
    printf("runs: %zu of %zu\n\n", p->n_runs, p->n_planned);
    printf("| %-18s | %-10s | %14s | %12s | %4s "
           "|\n|--------------------|------------|---------------:|-------------:|-----:|\n",
           "metric", "unit", "median", "sd", "n");
    for (size_t i = 0; i < n; i++) {
        char sd[32] = "";
        if (isfinite(f[i].summary.sd)) snprintf(sd, sizeof sd, "%.4g", f[i].summary.sd);
        printf("| %-18s | %-10s | %14.6g | %12s | %4lld |%s\n", f[i].metric->name, f[i].metric->unit,
               f[i].summary.median, sd, (long long)f[i].summary.n, f[i].summary.low_n ? " (few samples)" : "");
    }
    printf("\n| %-22s | %-24s |\n|------------------------|--------------------------|\n", "setting",
           "effective value");
    for (size_t i = 0; i < p->effective.n; i++) {
        printf("| %-22s | %-24s |\n", p->effective.items[i].key, p->effective.items[i].value);
    }
}

static dlab_status show_point(const dlab_record *r, const show_opts *o, dlab_error *err)
{
    if ((size_t)o->point > r->n_points) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "--point: %lld, but %s has %zu points", (long long)o->point, o->record,
                         r->n_points);
    }
    const dlab_point_result *p = &r->points[o->point - 1];
    figure figures[MAX_METRICS];
    size_t n = figures_of(p, figures);
    char *diagnosis = NULL;
    DLAB_TRY(dlab_diagnosis_text(p, &diagnosis, err));
    dlab_status st = DLAB_OK;
    if (o->format == formats[2])
        st = point_json(p, diagnosis, peer_json(r, (size_t)o->point - 1), figures, n, err);
    else if (o->format == formats[1])
        point_csv(figures, n);
    else
        point_md(p, diagnosis, figures, n);
    free(diagnosis);
    return st;
}

/* What another program measured in turns with ours (`dlab bench --peer`). */
static void print_peer(const dlab_record *r)
{
    static const char *const facts[] = {"kind", "path", "build", "model"};
    if (r->peer.n_points == 0) return;
    printf("\npeer:");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *value = dlab_settings_get(&r->peer.about, facts[i]);
        if (value && *value) printf("%s %s %s", i ? "," : "", facts[i], value);
    }
    printf("\n\n| %-32s | peer fa | %-41s |\n|----------------------------------|--------:|", "test",
           "ratio, ours over the peer (95 % interval)");
    printf("-------------------------------------------|\n");
    for (size_t i = 0; i < r->peer.n_points; i++) {
        const dlab_peer_point *q = &r->peer.points[i];
        char text[sizeof q->status + sizeof q->reason + 3], flash[16] = "";
        if (isfinite(q->low))
            snprintf(text, sizeof text, "%.3f (%.3f to %.3f)", q->ratio, q->low, q->high);
        else if (isfinite(q->ratio))
            snprintf(text, sizeof text, "%.3f", q->ratio);
        else
            snprintf(text, sizeof text, "%s: %s", q->status, q->reason);
        if (q->flash >= 0) snprintf(flash, sizeof flash, "%d", q->flash);
        printf("| %-32s | %7s | %-41s |\n", r->points[q->point].label, flash, text);
    }
}

static dlab_status show_table(const dlab_cmd_record *r, const show_opts *o, dlab_error *err)
{
    dlab_table table = {0};
    char *text = NULL;
    dlab_status st = dlab_report_build(&r->record, &r->report, &table, err);
    if (st == DLAB_OK) st = dlab_table_render(&table, o->format, &text, err);
    if (st == DLAB_OK) st = dlab_cmd_print(text, err);
    if (st == DLAB_OK && o->format == formats[0]) print_peer(&r->record);
    free(text);
    dlab_table_free(&table);
    return st;
}

static dlab_status show_diagnosis(const dlab_record *r, const show_opts *o, dlab_error *err)
{
    char *text = NULL;
    dlab_status st = dlab_diagnosis_render(r, o->format, &text, err);
    if (st == DLAB_OK) st = dlab_cmd_print(text, err);
    free(text);
    return st;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    show_opts o = {.format = formats[0]};
    bool helped = false;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    if (!o.record) return DLAB_FAIL(err, DLAB_EUSAGE, "a record is expected: dlab show RECORD.h5");
    if (o.point && o.diagnose) return DLAB_FAIL(err, DLAB_EUSAGE, "--point and --diagnose exclude each other");
    dlab_cmd_record r;
    dlab_status st = dlab_cmd_record_read(o.record, &r, err);
    if (st == DLAB_OK && !r.record.complete) {
        fprintf(stderr, "dlab show: %s is not complete: its experiment is running or was interrupted\n", o.record);
    }
    if (st == DLAB_OK && o.diagnose)
        st = show_diagnosis(&r.record, &o, err);
    else if (st == DLAB_OK)
        st = o.point ? show_point(&r.record, &o, err) : show_table(&r, &o, err);
    dlab_cmd_record_free(&r);
    return st;
}

const dlab_command dlab_command_show = {
    .name = "show", .summary = "a record as a table, or one point of it", .run = run};

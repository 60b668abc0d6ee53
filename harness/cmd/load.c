/* dlab load: a workload against a server, the engine in process, or nothing at all; the same metrics and the same record. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_load.h"

enum {
    KEY_RATE = DLAB_CMD_KEY,
    KEY_CONCURRENCY,
    KEY_BURSTINESS,
    KEY_REQUESTS,
    KEY_DURATION,
    KEY_INPUT,
    KEY_OUTPUT,
    KEY_TRACE,
    KEY_PROMPTS,
    KEY_TURNS,
    KEY_PREFIX,
    KEY_RAMP,
    KEY_SEED,
    KEY_GOODPUT,
    KEY_SHARE,
    KEY_FIND,
    KEY_NAME,
    KEY_API_KEY,
    KEY_API_KEY_FILE,
    KEY_ENDPOINT,
    KEY_PROMPT_AS,
    KEY_EXTRA,
    KEY_TIMEOUT,
    KEY_CONNECT,
    KEY_IDLE,
    KEY_REPEATS,
    KEY_WARMUP,
    KEY_RECORD,
    KEY_FORCE,
    KEY_STRICT
};

static const char *const formats[] = {"md", "csv", "json", NULL};
static const char *const endpoints[] = {"completions", "chat", NULL};
static const char *const prompt_forms[] = {"ids", "text", NULL};

static const struct argp_option options[] = {
    {"rate", KEY_RATE, "R[,R...]", 0, "an open loop: R requests a second, whatever the target does; inf: all at once",
     0},
    {"concurrency", KEY_CONCURRENCY, "N[,N...]", 0, "a closed loop: N in flight (default 1); 1,2,4 or 1-8 or 1-64*2",
     0},
    {"burstiness", KEY_BURSTINESS, "X", 0, "gamma gaps of this shape; 1 is Poisson, below it comes in bursts", 0},
    {"ramp", KEY_RAMP, "R", 0, "the rate changes evenly from --rate to this one over --duration", 0},
    {"requests", KEY_REQUESTS, "N", 0, "of a run; else --duration bounds it", 0},
    {"duration", KEY_DURATION, "TIME", 0, "nothing is sent later than this, what runs is let end (default 30s)", 0},
    {"input-len", KEY_INPUT, "LENGTH", 0,
     "of prompts: 512, uniform:16,512, normal:512,300, lognormal:512,300, poisson:512, file:PATH (default 128)", 0},
    {"output-len", KEY_OUTPUT, "LENGTH", 0, "of answers, likewise (default 32)", 0},
    {"trace", KEY_TRACE, "FILE", 0, "replay: JSON lines of timestamp, input_length, output_length, hash_ids", 0},
    {"prompts", KEY_PROMPTS, "WHAT", 0, "ids (drawn, default), text, text:FILE, jsonl:FILE or sharegpt:FILE", 0},
    {"turns", KEY_TURNS, "N", 0, "of a conversation", 0},
    {"shared-prefix", KEY_PREFIX, "N", 0, "the first N tokens of the prompts are the same", 0},
    {"seed", KEY_SEED, "N", 0, "of prompts, lengths and arrivals (default 1)", 0},
    {"goodput", KEY_GOODPUT, "NAME:TIME,...", 0, "objectives: ttft:200ms,tpot:50ms,e2e:5s", 0},
    {"find-rate", KEY_FIND, NULL, 0,
     "search the highest rate that keeps the objectives, beginning at --rate (default 1)", 0},
    {"goodput-share", KEY_SHARE, "X", 0, "share of the requests that must meet them (default 0.99)", 0},
    {"model", 'm', "MODEL", 0,
     "GGUF file or synthetic:NAME; engine: else $DLAB_MODEL or the demo's; a URL: the model served, else no tokenizer",
     0},
    {"set", DLAB_CMD_KEY_SET, "KEY=VALUE", 0,
     "any key of plan, workload and measure, as in an experiment file; a list sweeps; repeatable", 0},
    {"model-name", KEY_NAME, "NAME", 0, "as the server calls it (default: the first that it lists)", 0},
    {"endpoint", KEY_ENDPOINT, "NAME", 0, "completions (default) or chat, which needs -m", 0},
    {"prompt-as", KEY_PROMPT_AS, "FORM", 0, "ids (default) or text, which needs -m", 0},
    {"api-key", KEY_API_KEY, "KEY", 0,
     "bearer token; others on this machine can read it: better $DLAB_API_KEY or a file", 0},
    {"api-key-file", KEY_API_KEY_FILE, "FILE", 0, "bearer token, the first line of a file", 0},
    {"extra-body", KEY_EXTRA, "JSON", 0, "members of an object to add to each request", 0},
    {"timeout", KEY_TIMEOUT, "TIME", 0, "of a whole request; 0: none (default)", 0},
    {"connect-timeout", KEY_CONNECT, "TIME", 0, "until a connection is there (default 10s)", 0},
    {"idle-timeout", KEY_IDLE, "TIME", 0, "longest silence, before the first byte too; 0: no end (default 10m)", 0},
    {"repeats", KEY_REPEATS, "N", 0, "measured runs of each point (default 1)", 0},
    {"warmup", KEY_WARMUP, "N", 0,
     "runs before, of as many requests as go at once (default 1); a search warms a server up once", 0},
    {"record", KEY_RECORD, "FILE.h5", 0, "keep every run in a record, as `dlab run` does", 0},
    {"force", KEY_FORCE, NULL, 0, "replace a record that exists", 0},
    {"format", 'o', "FORMAT", 0, "of the table: md (default), csv or json", 0},
    {"strict", KEY_STRICT, NULL, 0, "exit 1 also when a request failed, or a point is not ok", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0},
};

/* ---- flags ---------------------------------------------------------------------------------------------------------------- */

static dlab_status copy_key(const char *flag, const char *text, dlab_load_opts *o, dlab_error *err)
{
    free(o->api_key);
    o->api_key = strndup(text, strcspn(text, "\r\n"));
    if (!o->api_key) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a key");
    return *o->api_key ? DLAB_OK : DLAB_FAIL(err, DLAB_EUSAGE, "%s: the key is empty", flag);
}

static dlab_status read_key_file(const char *path, dlab_load_opts *o, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_cmd_read_text(path, &text, &n, err));
    dlab_status st = copy_key("--api-key-file", text, o, err);
    free(text);
    return st;
}

static dlab_status set_share(const char *arg, dlab_load_opts *o, dlab_error *err)
{
    char *end = NULL;
    o->good_share = strtod(arg, &end);
    if (end != arg && !*end && o->good_share > 0 && o->good_share <= 1) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EUSAGE, "--goodput-share: \"%s\" is not a share above 0, at most 1", arg);
}

/* Flags that are one key. */
static const struct {
    int flag;
    const char *key;
} keys[] = {
    {KEY_REQUESTS, "workload.requests"},    {KEY_DURATION, "workload.duration"}, {KEY_TURNS, "workload.turns"},
    {KEY_PREFIX, "workload.shared_prefix"}, {KEY_RAMP, "workload.rate_end"},     {KEY_SEED, "workload.seed"},
    {KEY_REPEATS, "measure.repeats"},       {KEY_WARMUP, "measure.warmup"},
};

static dlab_status set_load(int key, const char *arg, dlab_load_opts *o, dlab_error *err)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].flag == key) return dlab_load_set_key(o, keys[i].key, arg, err);
    switch (key) {
    case KEY_RATE:
        return dlab_load_rates(o, arg, err);
    case KEY_CONCURRENCY:
        return dlab_load_concurrency(o, arg, err);
    case KEY_BURSTINESS:
        DLAB_TRY(dlab_load_set(o, "workload.arrivals=gamma", err));
        return dlab_load_set_key(o, "workload.burstiness", arg, err);
    case KEY_INPUT:
        return dlab_load_lengths(o, "--input-len", true, arg, err);
    case KEY_OUTPUT:
        return dlab_load_lengths(o, "--output-len", false, arg, err);
    case KEY_TRACE:
        DLAB_TRY(dlab_load_set(o, "workload.kind=trace", err));
        return dlab_load_set_key(o, "workload.trace", arg, err);
    case KEY_PROMPTS:
        return dlab_load_prompts(o, arg, err);
    case KEY_GOODPUT:
        return dlab_load_objectives(o, arg, err);
    default:
        return dlab_load_set(o, arg, err);
    }
}

static dlab_status set_server(int key, const char *arg, dlab_load_opts *o, dlab_error *err)
{
    switch (key) {
    case KEY_NAME:
        o->model_name = arg;
        return *arg ? DLAB_OK : DLAB_FAIL(err, DLAB_EUSAGE, "--model-name: empty");
    case KEY_ENDPOINT:
        return dlab_cmd_choice("--endpoint", arg, endpoints, &o->endpoint, err);
    case KEY_PROMPT_AS:
        return dlab_cmd_choice("--prompt-as", arg, prompt_forms, &o->prompt_as, err);
    case KEY_API_KEY:
        return copy_key("--api-key", arg, o, err);
    case KEY_API_KEY_FILE:
        return read_key_file(arg, o, err);
    case KEY_EXTRA:
        o->extra = arg;
        return DLAB_OK;
    case KEY_TIMEOUT:
        return dlab_load_duration("--timeout", arg, &o->timeout_ns, err);
    case KEY_CONNECT:
        return dlab_load_duration("--connect-timeout", arg, &o->connect_timeout_ns, err);
    default:
        return dlab_load_duration("--idle-timeout", arg, &o->idle_timeout_ns, err);
    }
}

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    dlab_load_opts *o = opts;
    if (key >= KEY_NAME && key <= KEY_IDLE) return set_server(key, arg, o, err);
    switch (key) {
    case ARGP_KEY_ARG:
        return dlab_cmd_one_arg("target", arg, &o->target, err);
    case 'm':
        o->model = arg;
        return DLAB_OK;
    case 'o':
        return dlab_cmd_choice("-o", arg, formats, &o->format, err);
    case 'q':
        o->quiet = true;
        return DLAB_OK;
    case KEY_FIND:
        o->find = true;
        return DLAB_OK;
    case KEY_SHARE:
        return set_share(arg, o, err);
    case KEY_RECORD:
        o->record = arg;
        return *arg ? DLAB_OK : DLAB_FAIL(err, DLAB_EUSAGE, "--record: empty, expected a path");
    case KEY_FORCE:
        o->force = true;
        return DLAB_OK;
    case KEY_STRICT:
        o->strict = true;
        return DLAB_OK;
    default:
        return set_load(key, arg, o, err);
    }
}

static const dlab_cmd_cli cli = {
    .name = "load",
    .args = "TARGET",
    .about =
        "Sends a workload to TARGET and tells what came of it: throughput, latency from the time when a request should "
        "have been sent, goodput, failures. TARGET is the URL of a server with OpenAI's streaming endpoints (ours, "
        "llama.cpp's, vLLM), `engine` (this process, with -m and --set), or `null:` and `null:5ms` (a step's time) and "
        "`null:service=500ms` (a request's), which measure the harness itself. Several rates or concurrencies are a "
        "load "
        "curve, one row each. docs/load.md says what is counted how.",
    .example = "  dlab load null:service=100ms --rate 5 --requests 20\n"
               "  dlab load engine -m synthetic:tiny --concurrency 1-8*2 --requests 16 --set batch.size=8\n"
               "  dlab load engine -m synthetic:tiny --find-rate --goodput ttft:200ms,tpot:50ms --duration 10s\n"
               "\nAgainst a server that runs already, on port 8080 here:\n"
               "  dlab load http://127.0.0.1:8080 --rate 1,2,4,8 --input-len lognormal:512,300 --output-len 128 "
               "--record curve.h5",
    .options = options,
    .set = set,
};

/* A list has all kinds. */
static bool is_kind(const dlab_load_opts *o, const char *kind)
{
    const char *given = dlab_load_given(o, "workload.kind");
    return strcmp(given ? given : "closed", kind) == 0 || (given && *given == '[');
}

/* What is given must say something: nothing of another kind of load is dropped in silence. */
static dlab_status check_kind(const dlab_load_opts *o, dlab_error *err)
{
    static const struct {
        const char *key, *kind, *flag, *of;
    } only[] = {
        {"workload.trace", "trace", "--trace", "a trace says itself when its requests come"},
        {"workload.concurrency", "closed", "--concurrency", "it is of a closed loop"},
        {"workload.rate", "open", "--rate", "it is of an open loop"},
        {"workload.burstiness", "open", "--burstiness", "it is of an open loop, which --rate makes"},
        {"workload.arrivals", "open", "workload.arrivals", "it is of an open loop, which --rate makes"},
        {"workload.rate_end", "open", "--ramp", "it is of an open loop, which --rate makes"},
    };
    for (size_t i = 0; i < sizeof only / sizeof *only; i++) {
        if (!dlab_load_given(o, only[i].key) || is_kind(o, only[i].kind)) continue;
        if (o->find && !dlab_load_given(o, "workload.kind") && strcmp(only[i].kind, "open") == 0) continue;
        const char *kind = dlab_load_given(o, "workload.kind");
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s; this load is of kind %s", only[i].flag, only[i].of,
                         kind ? kind : "closed");
    }
    return DLAB_OK;
}

static dlab_status check(dlab_load_opts *o, dlab_error *err)
{
    const char *rate = dlab_load_given(o, "workload.rate"), *concurrency = dlab_load_given(o, "workload.concurrency");
    if (!o->target) return DLAB_FAIL(err, DLAB_EUSAGE, "a target is expected: dlab load URL, engine or null:");
    if (rate && concurrency)
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "--rate and --concurrency: an open loop does not wait for answers, a closed one has no rate");
    DLAB_TRY(check_kind(o, err));
    if (o->record) DLAB_TRY(dlab_cmd_record_check_out("--record", o->record, o->force, "", err));
    if (!o->find) return DLAB_OK;
    if ((dlab_load_given(o, "workload.kind") && !is_kind(o, "open")) || dlab_load_given(o, "workload.rate_end"))
        return DLAB_FAIL(
            err, DLAB_EUSAGE,
            "--find-rate varies the rate of an open loop: no --concurrency, --ramp, --trace or --rate inf");
    if (!rate) DLAB_TRY(dlab_load_rates(o, "1", err));
    return DLAB_OK;
}

static dlab_status check_spec(const dlab_load_opts *o, const dlab_load_target *t, const dlab_spec *s, dlab_error *err)
{
    const dlab_measure *m = &s->measure;
    for (size_t i = 0; t->ops->remote && !t->tokenizer && i < s->n_points; i++) {
        if (s->points[i].workload.turns > 1)
            return DLAB_FAIL(
                err, DLAB_EUSAGE,
                "--turns: a later turn repeats the answers before it, whose tokens only a tokenizer knows: "
                "give -m MODEL, a GGUF file of the model served");
    }
    if (strcmp(m->order, "grouped") != 0)
        return DLAB_FAIL(err, DLAB_EUSAGE, "measure.order: dlab load measures one point after the other, grouped");
    if (!o->find) return DLAB_OK;
    if (s->n_points > 1)
        return DLAB_FAIL(err, DLAB_EUSAGE, "--find-rate varies the rate alone: nothing else may be a list");
    if (m->slo_ttft_ns > 0 || m->slo_tpot_ns > 0 || m->slo_e2e_ns > 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EUSAGE, "--find-rate needs objectives to keep, such as --goodput ttft:200ms,tpot:50ms");
}

/* ---- the command ------------------------------------------------------------------------------------------------------------ */

static dlab_status frame_record(dlab_load *l, const char *command, dlab_error *err)
{
    size_t n = 0;
    DLAB_TRY(dlab_cmd_recorder_init(&l->rec, l->opts->record, "load", command, err));
    dlab_record *r = &l->rec.record;
    const char *text = dlab_yaml_text(l->spec->yaml, &n);
    r->spec_text = malloc(n + 1);
    r->spec_name = strdup("dlab load");
    if (!r->spec_text || !r->spec_name) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a record");
    memcpy(r->spec_text, text, n);
    r->spec_text[n] = 0;
    r->spec_bytes = n;
    DLAB_TRY(dlab_settings_set(&r->meta, "target", l->target.name, err));
    if (l->target.model) DLAB_TRY(dlab_config_meta_model(&r->meta, l->target.model_path, l->target.model_hash, err));
    if (l->opts->find) return DLAB_OK;
    for (size_t i = 0; i < l->spec->n_points; i++) DLAB_TRY(dlab_load_frame(l, &l->spec->points[i], err));
    return dlab_cmd_recorder_open(&l->rec, err);
}

static dlab_status measure_all(dlab_load *l, dlab_error *err)
{
    for (size_t i = 0; i < l->spec->n_points; i++) DLAB_TRY(dlab_load_measure(l, &l->spec->points[i], i, err));
    return DLAB_OK;
}

static dlab_status print_table(const dlab_load *l, dlab_error *err)
{
    dlab_table table = {0};
    char *text = NULL;
    dlab_status st = dlab_report_build(&l->rec.record, &l->spec->report, &table, err);
    if (st == DLAB_OK) st = dlab_table_render(&table, l->opts->format, &text, err);
    if (st == DLAB_OK) st = dlab_cmd_print(text, err);
    free(text);
    dlab_table_free(&table);
    return st;
}

/* Nothing measured, or nothing served, is no result. */
static int exit_code_of(const dlab_load *l, bool found)
{
    const dlab_record *r = &l->rec.record;
    bool measured = false;
    for (size_t i = 0; i < r->n_points; i++) {
        const dlab_run_status s = r->points[i].status;
        if (dlab_run_status_fails(s) || (l->opts->strict && s != DLAB_RUN_OK)) return 1;
        measured = measured || s == DLAB_RUN_OK || s == DLAB_RUN_TRUNCATED;
    }
    return !measured || l->unserved || (l->opts->strict && l->any_failed) || (l->opts->find && !found);
}

static bool has_runs(const dlab_record *r)
{
    for (size_t i = 0; i < r->n_points; i++)
        if (r->points[i].n_runs > 0) return true;
    return false;
}

static dlab_status measure_and_print(dlab_load *l, int *exit_code, dlab_error *err)
{
    bool found = false;
    char sentence[600] = "";
    dlab_status st = l->opts->find ? dlab_load_find(l, &found, sentence, sizeof sentence, err) : measure_all(l, err);
    dlab_progress_finish(&l->progress);
    if (st != DLAB_OK && st != DLAB_EINTERRUPTED) return st;
    FILE *words = l->opts->format == formats[0] ? stdout : stderr; /* csv and json are a document alone */
    dlab_error own = {0};
    dlab_status kept = dlab_cmd_recorder_finish(&l->rec, &own); /* first: the table's notes are made of the events */
    dlab_status printed = l->rec.record.n_points > 0 ? print_table(l, kept == DLAB_OK ? &own : NULL) : DLAB_OK;
    if (printed == DLAB_OK && *sentence) fprintf(words, "%s%s\n", words == stdout ? "\n" : "", sentence);
    if (kept == DLAB_OK && printed == DLAB_OK && l->opts->record)
        fprintf(words, "%srecord: %s\n", words == stdout ? "\n" : "", l->opts->record);
    *exit_code = exit_code_of(l, found);
    if (kept == DLAB_OK) kept = printed;
    if (kept != DLAB_OK) return dlab_error_set(err, kept, own.file, own.line, "%s", own.msg);
    if (st == DLAB_OK) return DLAB_OK;
    if (!has_runs(&l->rec.record)) return DLAB_FAIL(err, st, "interrupted before anything was measured");
    return DLAB_FAIL(err, st, "interrupted; what is done is above%s%s", l->opts->record ? " and in " : "",
                     l->opts->record ? l->opts->record : "");
}

static dlab_status load(const dlab_cmd_ctx *ctx, dlab_load_opts *o, const char *command, int *exit_code,
                        dlab_error *err)
{
    dlab_spec *spec = NULL;
    dlab_load l = {.opts = o, .interrupted = ctx->interrupted, .rec = {.lock_fd = -1}};
    dlab_record_init(&l.rec.record);
    dlab_status st = check(o, err);
    if (st == DLAB_OK) st = dlab_load_target_open(o, &l.target, err);
    if (st != DLAB_OK) goto done;
    const char *model = *l.target.served ? l.target.served : l.target.model_path;
    DLAB_TRY_DONE(st, dlab_load_spec(o, model, &spec, err));
    DLAB_TRY_DONE(st, check_spec(o, &l.target, spec, err));
    l.spec = spec;
    dlab_progress_init(&l.progress, !o->quiet, o->find ? 0 : spec->n_points * (size_t)spec->measure.repeats);
    DLAB_TRY_DONE(st, frame_record(&l, command, err));
    st = measure_and_print(&l, exit_code, err);

done:
    dlab_cmd_recorder_free(&l.rec);
    dlab_load_target_close(&l.target);
    dlab_spec_destroy(spec);
    return st;
}

/* The command for the record, without the key, and without a password in the target. NULL when memory is out. */
static char *command_line(int argc, char **argv)
{
    char flag[] = "--api-key", hidden[] = "--api-key=...", dots[] = "...", url[DLAB_SERVER_URL_MAX];
    const size_t n = sizeof flag - 1;
    char **shown = calloc((size_t)argc + 1, sizeof *shown), *line = NULL;
    for (int i = 0; shown && i < argc; i++) {
        shown[i] = argv[i];
        if (strncmp(argv[i], flag, n) == 0 && argv[i][n] == '=') shown[i] = hidden;
        if (i > 0 && strcmp(argv[i - 1], flag) == 0) shown[i] = dots;
        if (shown[i] != argv[i] || !strchr(argv[i], '@') || !dlab_server_is_url(argv[i])) continue;
        dlab_server_shown(argv[i], url, sizeof url); /* there is one target */
        shown[i] = url;
    }
    if (shown) line = dlab_cmd_line(argc, shown);
    free(shown);
    return line;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    const char *key = getenv("DLAB_API_KEY");
    const int64_t second = 1000000000;
    dlab_load_opts o = {.endpoint = endpoints[0],
                        .prompt_as = prompt_forms[0],
                        .format = formats[0],
                        .connect_timeout_ns = 10 * second,
                        .idle_timeout_ns = 600 * second,
                        .good_share = 0.99};
    bool helped = false;
    char *command = command_line(argc, argv); /* before argp sorts the words */
    dlab_status st = dlab_cmd_parse(&cli, argc, argv, &o, &helped, err);
    if (st == DLAB_OK && !helped && key && *key && !o.api_key && o.target && dlab_server_is_url(o.target))
        st = copy_key("$DLAB_API_KEY", key, &o, err);
    if (st == DLAB_OK && !helped) st = load(ctx, &o, command, exit_code, err);
    free(command);
    free(o.api_key);
    for (size_t i = 0; i < o.n_sets; i++) free(o.sets[i]);
    return st;
}

const dlab_command dlab_command_load = {
    .name = "load", .summary = "a workload against a server, the engine or nothing, and what came of it", .run = run};

/* dlab bench: prompt and generation speed, with llama-bench's flags and llama-bench's meanings. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "harness/cmd/cmd_bench.h"
#include "harness/probes/probes.h"
#include "harness/run/overhead.h"
#include "harness/spec/spec.h"

enum {
    KEY_PG = DLAB_CMD_KEY,
    KEY_UB,
    KEY_FA,
    KEY_CTK,
    KEY_CTV,
    KEY_OE,
    KEY_NPL,
    KEY_NO_WARMUP,
    KEY_DELAY,
    KEY_PROGRESS,
    KEY_OVERHEAD,
    KEY_STRICT,
    KEY_PEER,
    KEY_PEER_MODEL,
    KEY_PEER_FA,
    KEY_PEER_TIMEOUT,
    KEY_RECORD,
    KEY_FORCE
};

#define MAX_TOKENS      ((int64_t)1 << 20)
#define OVERHEAD_TOKENS 20000

static const struct argp_option options[] = {
    {"model", 'm', "MODEL[,…]", 0,
     "GGUF file or synthetic:NAME (else $DLAB_MODEL, else the one that make demo fetched)", 0},
    {"n-prompt", 'p', "LIST", 0, "prompt tokens (default 512)", 0},
    {"n-gen", 'n', "LIST", 0, "generated tokens (default 128)", 0},
    {"pg", KEY_PG, "PP,TG", 0, "one test of both, one rate over all its tokens", 0},
    {"n-depth", 'd', "LIST", 0, "tokens already in the cache, not timed (default 0)", 0},
    {"npl", KEY_NPL, "LIST", 0, "sequences side by side, as in llama-batched-bench: batch.size (default 1)", 0},
    {"batch-size", 'b', "LIST", 0, "rows of a step at most: batch.token_budget (default 2048)", 0},
    {"ub", KEY_UB, "LIST", 0, "rows of one sequence in a step at most: batch.chunk (default 512)", 0},
    {"ubatch-size", KEY_UB, "LIST", OPTION_ALIAS, NULL, 0},
    {"threads", 't', "LIST", 0, "threads (default: every core that we may use)", 0},
    {"fa", KEY_FA, "LIST", 0, "attention.kernel: 1 is fused, 0 unfused (default 1)", 0},
    {"flash-attn", KEY_FA, "LIST", OPTION_ALIAS, NULL, 0},
    {"ctk", KEY_CTK, "LIST", 0, "element format of cached keys: kv.k (default f16); f32, f16 and bf16 are llama.cpp's",
     0},
    {"cache-type-k", KEY_CTK, "LIST", OPTION_ALIAS, NULL, 0},
    {"ctv", KEY_CTV, "LIST", 0, "element format of cached values: kv.v (default f16)", 0},
    {"cache-type-v", KEY_CTV, "LIST", OPTION_ALIAS, NULL, 0},
    DLAB_CMD_OPT_ISA,
    {"set", DLAB_CMD_KEY_SET, "KEY=VALUE", 0, "any other axis of the plan; repeatable; the flags above win", 0},
    {"repetitions", 'r', "N", 0, "measured runs of each test (default 5; with --peer 6 pairs)", 0},
    {"no-warmup", KEY_NO_WARMUP, NULL, 0, "no warm-up run of the measured shape", 0},
    {"delay", KEY_DELAY, "SECONDS", 0, "wait between tests", 0},
    {"progress", KEY_PROGRESS, NULL, 0, "say on standard error what is being measured", 0},
    {"output", 'o', "FORMAT", 0, "md (default), csv, json, jsonl or sql", 0},
    {"oe", KEY_OE, "FORMAT", 0, "the same rows on standard error, too", 0},
    {"output-err", KEY_OE, "FORMAT", OPTION_ALIAS, NULL, 0},
    {"strict", KEY_STRICT, NULL, 0, "any row that is not ok makes the exit code 1, also oom and skipped", 0},
    {"peer", KEY_PEER, "KIND=PATH", 0,
     "in turns with ours, another program: llama-bench=PATH, or llama-python=PATH, which knows -npl", 0},
    {"peer-model", KEY_PEER_MODEL, "FILE", 0, "GGUF file for the peer (default: ours)", 0},
    {"peer-fa", KEY_PEER_FA, "0|1", 0,
     "the peer's fused attention (default: both are tried, the faster one is measured)", 0},
    {"peer-timeout", KEY_PEER_TIMEOUT, "SECONDS", 0, "a run of the peer that takes longer is killed (default 1800)", 0},
    {"record", KEY_RECORD, "FILE.h5", 0, "keep every run in a record, as `dlab run` does", 0},
    {"force", KEY_FORCE, NULL, 0, "replace a record that exists", 0},
    {"overhead", KEY_OVERHEAD, NULL, 0, "instead: what the harness itself costs per token event, on a null target", 0},
    {0},
};

/* ---- values that mean something else here ------------------------------------------------------------------------------ */

static dlab_status add_word(const char *flag, const char *word, dlab_bench_words *list, dlab_error *err)
{
    if (list->n == DLAB_BENCH_LIST)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: more than %d values", flag, DLAB_BENCH_LIST);
    list->v[list->n++] = word;
    return DLAB_OK;
}

static const char *const *choices_of(const char *key)
{
    size_t n = 0;
    const dlab_param *table = dlab_plan_params(&n);
    return dlab_param_find(table, n, key)->choices();
}

/* llama.cpp's cache types that are none of ours. A row that says int8 where q8_0 was asked would compare two formats under one
 * name. */
static const struct {
    const char *theirs, *nearest, *why;
} other_types[] = {
    {"q8_0", "int8", "q8_0 has a scale for 32 elements and no zero point, int8 both for a token's vector of one head"},
    {"q4_0", "int4", "q4_0 has no zero point, int4 has one for 32 elements"},
    {"q4_1", "int4", "q4_1 adds a minimum in f16, int4 subtracts a whole number"},
    {"iq4_nl", "int4", "iq4_nl looks its values up in a table, int4 spaces them evenly"},
    {"q5_0", "int8", "there are no elements of 5 bits here"},
    {"q5_1", "int8", "there are no elements of 5 bits here"},
};

static dlab_status add_cache_type(const char *flag, const char *key, const char *word, dlab_bench_words *list,
                                  dlab_error *err)
{
    const char *built;
    char all[128] = "";
    if (dlab_cmd_choice(flag, word, choices_of(key), &built, NULL) == DLAB_OK) return add_word(flag, built, list, err);
    for (const char *const *w = choices_of(key); *w; w++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", *w);
    }
    for (size_t i = 0; i < sizeof other_types / sizeof *other_types; i++) {
        if (strcmp(word, other_types[i].theirs) != 0) continue;
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is not a format here (%s); the nearest is %s %s (all: %s)", flag,
                         word, other_types[i].why, flag, other_types[i].nearest, all);
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s: \"%s\" is not a cache type, expected one of %s", flag, word, all);
}

static dlab_status add_attention(const char *flag, const char *key, const char *word, dlab_bench_words *list,
                                 dlab_error *err)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {{"0", "unfused"}, {"off", "unfused"}, {"1", "fused"}, {"on", "fused"}, {"auto", "fused"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(word, names[i].theirs) != 0) continue;
        fprintf(stderr, "dlab bench: %s %s is %s=%s here\n", flag, word, key, names[i].ours);
        return add_word(flag, names[i].ours, list, err);
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s: \"%s\" is not known, expected 0 or 1 (off, on, auto)", flag, word);
}

typedef dlab_status (*add_fn)(const char *flag, const char *key, const char *word, dlab_bench_words *list,
                              dlab_error *err);

static dlab_status add_words(const char *flag, const char *key, const char *text, add_fn add, dlab_bench_words *list,
                             dlab_error *err)
{
    char word[32];
    for (;;) {
        size_t n = strcspn(text, ",");
        if (n >= sizeof word) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: \"%.40s…\" is not known", flag, text);
        memcpy(word, text, n);
        word[n] = 0;
        DLAB_TRY(add(flag, key, word, list, err));
        if (!text[n]) return DLAB_OK;
        text += n + 1;
    }
}

/* ---- flags ------------------------------------------------------------------------------------------------------------- */

static dlab_status add_ints(const char *flag, const char *text, int64_t min, int64_t max, dlab_bench_ints *list,
                            dlab_error *err)
{
    /* -ngl reads as -n gl: other programs' flags deserve a plain answer */
    if (strlen(flag) == 2 && isalpha((unsigned char)*text)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "unknown flag %s%s; `dlab bench --help` has the list", flag, text);
    }
    return dlab_cmd_int_list(flag, text, min, max, list->v, &list->n, DLAB_BENCH_LIST, err);
}

static dlab_status add_rows(const char *flag, const char *key, const char *text, dlab_bench_ints *list, dlab_error *err)
{
    DLAB_TRY(add_ints(flag, text, 1, MAX_TOKENS, list, err));
    fprintf(stderr, "dlab bench: %s %s is %s=%s here\n", flag, text, key, text);
    return DLAB_OK;
}

static dlab_status add_pg(const char *text, dlab_bench_opts *o, dlab_error *err)
{
    int64_t pair[2];
    size_t n = 0;
    if (strchr(text, '-') || dlab_cmd_int_list("-pg", text, 1, MAX_TOKENS, pair, &n, 2, NULL) != DLAB_OK || n != 2) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "-pg: \"%s\" is not two numbers PP,TG, such as 512,128", text);
    }
    if (o->pg_prompt.n == DLAB_BENCH_LIST) return DLAB_FAIL(err, DLAB_EUSAGE, "-pg: more than %d", DLAB_BENCH_LIST);
    o->pg_prompt.v[o->pg_prompt.n++] = pair[0];
    o->pg_gen.v[o->pg_gen.n++] = pair[1];
    return DLAB_OK;
}

/* A list, unless a file has that very name. The words stay valid as long as argv does. */
static dlab_status add_models(char *text, dlab_bench_opts *o, dlab_error *err)
{
    if (dlab_file_exists(text)) return add_word("-m", text, &o->model, err);
    for (char *rest = text, *word; (word = strsep(&rest, ","));) DLAB_TRY(add_word("-m", word, &o->model, err));
    return DLAB_OK;
}

static dlab_status set_plan(int key, const char *arg, dlab_bench_opts *o, dlab_error *err)
{
    switch (key) {
    case 'b':
        return add_rows("-b", "batch.token_budget", arg, &o->n_batch, err);
    case KEY_UB:
        return add_rows("-ub", "batch.chunk", arg, &o->n_ubatch, err);
    case KEY_NPL:
        return add_ints("-npl", arg, 1, 4096, &o->npl, err);
    case 't':
        return add_ints("-t", arg, 1, 1024, &o->threads, err);
    case KEY_FA:
        return add_words("-fa", "attention.kernel", arg, add_attention, &o->fa, err);
    case KEY_CTK:
        return add_words("-ctk", "kv.k", arg, add_cache_type, &o->ctk, err);
    case KEY_CTV:
        return add_words("-ctv", "kv.v", arg, add_cache_type, &o->ctv, err);
    case DLAB_CMD_KEY_ISA:
        return dlab_cmd_set_isa(&o->plan, arg, err);
    default:
        return dlab_spec_plan_set(&o->plan, arg, err);
    }
}

static dlab_status not_empty(const char *flag, const char *arg, const char **out, dlab_error *err)
{
    if (!*arg) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: empty, expected a path", flag);
    *out = arg;
    return DLAB_OK;
}

static dlab_status set_peer(int key, const char *arg, dlab_bench_opts *o, dlab_error *err)
{
    switch (key) {
    case KEY_PEER:
        return dlab_peer_parse(arg, &o->peer_kind, &o->peer_path, err);
    case KEY_PEER_MODEL:
        if (!dlab_file_exists(arg)) return DLAB_FAIL(err, DLAB_EUSAGE, "--peer-model: %s is not there", arg);
        o->peer_model = arg;
        return DLAB_OK;
    case KEY_PEER_FA:
        return dlab_cmd_int("--peer-fa", arg, 0, 1, &o->peer_flash, err);
    default:
        return dlab_cmd_int("--peer-timeout", arg, 1, 7 * 86400, &o->peer_timeout_s, err);
    }
}

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    dlab_bench_opts *o = opts;
    switch (key) {
    case 'm':
        return add_models((char *)(uintptr_t)arg, o, err);
    case 'p':
        return add_ints("-p", arg, 0, MAX_TOKENS, &o->prompt, err);
    case 'n':
        return add_ints("-n", arg, 0, MAX_TOKENS, &o->gen, err);
    case 'd':
        return add_ints("-d", arg, 0, MAX_TOKENS, &o->depth, err);
    case KEY_PG:
        return add_pg(arg, o, err);
    case 'r':
        return dlab_cmd_int("-r", arg, 1, 100000, &o->repeats, err);
    case 'o':
        return dlab_cmd_choice("-o", arg, dlab_bench_formats, &o->format, err);
    case KEY_OE:
        return dlab_cmd_choice("-oe", arg, dlab_bench_formats, &o->err_format, err);
    case KEY_DELAY:
        return dlab_cmd_int("--delay", arg, 0, 86400, &o->delay_s, err);
    case KEY_NO_WARMUP:
        o->no_warmup = true;
        return DLAB_OK;
    case KEY_PROGRESS:
        o->progress = true;
        return DLAB_OK;
    case KEY_OVERHEAD:
        o->overhead = true;
        return DLAB_OK;
    case KEY_STRICT:
        o->strict = true;
        return DLAB_OK;
    case KEY_RECORD:
        return not_empty("--record", arg, &o->record, err);
    case KEY_FORCE:
        o->force = true;
        return DLAB_OK;
    case KEY_PEER:
    case KEY_PEER_MODEL:
    case KEY_PEER_FA:
    case KEY_PEER_TIMEOUT:
        return set_peer(key, arg, o, err);
    default:
        return set_plan(key, arg, o, err);
    }
}

static const dlab_cmd_cli cli = {
    .name = "bench",
    .about =
        "Measures prompt processing (pp) and token generation (tg) in this process. LIST is 512 or 128,512 or 1-8 or "
        "128-512+128 or 1-64*2; flags may be repeated; all combinations are measured. Rates are means of the runs' "
        "rates with their sample standard deviation.",
    .example = "  dlab bench -p 512 -n 128 -t 2\n"
               "  dlab bench -m synthetic:tiny -p 64 -n 16 -d 0,256 -ctk f16,f32 -o json\n"
               "  dlab bench -p 0 -n 64 -d 1024 --peer llama-bench=$HOME/llama.cpp/build/bin/llama-bench\n"
               "  dlab bench --overhead",
    .options = options,
    .set = set,
    .long_only = true,
};

/* ---- flow -------------------------------------------------------------------------------------------------------------- */

static void fill_defaults(dlab_bench_opts *o)
{
    if (!o->prompt.n) o->prompt.v[o->prompt.n++] = 512;
    if (!o->gen.n) o->gen.v[o->gen.n++] = 128;
    if (!o->depth.n) o->depth.v[o->depth.n++] = 0;
    if (!o->model.n) o->model.v[o->model.n++] = NULL;
    if (!o->repeats) o->repeats = o->peer_kind ? 6 : 5;
}

static dlab_status print_overhead(const dlab_bench_opts *o, dlab_error *err)
{
    double ns = 0;
    DLAB_TRY(dlab_harness_overhead(OVERHEAD_TOKENS, &ns, err));
    if (strcmp(o->format, "json") == 0 || strcmp(o->format, "jsonl") == 0) {
        return dlab_cmd_print_json(
            json_pack("{s:o, s:i}", "overhead_ns_per_token", dlab_json_number(ns), "n_tokens", OVERHEAD_TOKENS), err);
    }
    printf("null target: %.1f ns a token event (%d tokens)\n", ns, OVERHEAD_TOKENS);
    return DLAB_OK;
}

typedef struct {
    const dlab_cmd_ctx *ctx;
    const dlab_bench_opts *opts;
    dlab_bench_out out[2];
    size_t n_out;
    dlab_bench_record record;
    bool measured, failed;
} bench;

static void wait_between(const bench *b)
{
    if (!b->opts->delay_s || !b->measured) return;
    dlab_clock *clock = dlab_clock_real();
    int64_t end_ns = dlab_clock_now_ns(clock) + b->opts->delay_s * 1000000000;
    for (int64_t now; (now = dlab_clock_now_ns(clock)) < end_ns && !*b->ctx->interrupted;) {
        dlab_clock_wait_until(clock, now + 100000000 < end_ns ? now + 100000000 : end_ns);
    }
}

static bool counts_as_failed(const dlab_bench_opts *o, dlab_run_status s)
{
    return dlab_run_status_fails(s) || (o->strict && s != DLAB_RUN_OK);
}

static dlab_status bench_model(bench *b, const char *path, const dlab_model *m, uint64_t hash,
                               const dlab_bench_cell *cells, size_t n, dlab_error *err)
{
    for (size_t i = 0; i < n; i++) {
        dlab_bench_row row;
        wait_between(b);
        dlab_status st = dlab_bench_measure(b->opts, &cells[i], m, path, b->ctx->interrupted, &row, err);
        row.model_hash = hash;
        for (size_t k = 0; st == DLAB_OK && k < b->n_out; k++) st = dlab_bench_out_row(&b->out[k], &row, err);
        if (st == DLAB_OK) st = dlab_bench_record_row(&b->record, &row, err);
        b->measured = true;
        b->failed |= counts_as_failed(b->opts, row.status);
        b->failed |= row.peer.asked && counts_as_failed(b->opts, row.peer.status);
        dlab_bench_row_free(&row);
        DLAB_TRY(st);
        if (dlab_cmd_reader_gone()) return DLAB_OK;
    }
    return DLAB_OK;
}

/* A table for people has no hash, which takes reading the file once more. */
static bool shows_hash(const dlab_bench_opts *o)
{
    return o->record || strcmp(o->format, "md") != 0 || (o->err_format && strcmp(o->err_format, "md") != 0);
}

/* Every model is opened before anything is measured, so that a wrong name is said at once and nothing is half-printed. */
static dlab_status open_models(const dlab_bench_opts *o, dlab_model **models, char (*paths)[PATH_MAX], uint64_t *hashes,
                               dlab_error *err)
{
    for (size_t i = 0; i < o->model.n; i++) {
        DLAB_TRY(dlab_cmd_model_path(o->model.v[i], paths[i], PATH_MAX, err));
        DLAB_TRY(dlab_model_open(paths[i], &models[i], err));
        if (shows_hash(o)) DLAB_TRY(dlab_config_model_hash(paths[i], &hashes[i], err));
    }
    return DLAB_OK;
}

static void fill_outputs(bench *b, dlab_model *const *models, char (*paths)[PATH_MAX])
{
    const dlab_bench_opts *o = b->opts;
    dlab_settings env = {0};
    const char *cpu = dlab_probe_environment(&env, NULL) == DLAB_OK ? dlab_settings_get(&env, "cpu_model") : NULL;
    b->out[b->n_out++] = (dlab_bench_out){.to = stdout, .format = o->format, .opts = o};
    if (o->err_format) b->out[b->n_out++] = (dlab_bench_out){.to = stderr, .format = o->err_format, .opts = o};
    int width = 0;
    for (size_t i = 0; i < o->model.n; i++) {
        char name[512];
        dlab_bench_model_type(dlab_model_get_info(models[i]), name, sizeof name);
        if ((int)strlen(name) > width) width = (int)strlen(name);
    }
    for (size_t k = 0; k < b->n_out; k++) {
        b->out[k].model_width = width;
        b->out[k].model_paths = paths;
        snprintf(b->out[k].cpu, sizeof b->out[k].cpu, "%s", cpu ? cpu : "");
        dlab_bench_out_begin(&b->out[k]);
    }
    dlab_settings_free(&env);
}

static dlab_status measure_all(bench *b, dlab_model *const *models, char (*paths)[PATH_MAX], const uint64_t *hashes,
                               const dlab_bench_cell *cells, size_t n, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    fill_outputs(b, models, paths);
    for (size_t i = 0; st == DLAB_OK && i < b->opts->model.n; i++)
        st = bench_model(b, paths[i], models[i], hashes[i], cells, n, err);
    for (size_t k = 0; k < b->n_out; k++) dlab_bench_out_end(&b->out[k]);
    if (st == DLAB_EINTERRUPTED && b->opts->record)
        return DLAB_FAIL(err, st, "interrupted; %s keeps the tests that are done", b->opts->record);
    return st == DLAB_OK && !dlab_cmd_reader_gone() ? dlab_bench_record_end(&b->record, err) : st;
}

static dlab_status run_bench(const dlab_cmd_ctx *ctx, dlab_bench_opts *o, const char *command, int *exit_code,
                             dlab_error *err)
{
    fill_defaults(o);
    dlab_model *models[DLAB_BENCH_LIST] = {0};
    uint64_t hashes[DLAB_BENCH_LIST] = {0};
    char(*paths)[PATH_MAX] = calloc(o->model.n, sizeof *paths);
    dlab_bench_cell *cells = NULL;
    size_t n = 0;
    bench b = {.ctx = ctx, .opts = o, .record = {.to = {.lock_fd = -1}}};
    dlab_status st = DLAB_OK;
    if (!paths) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu models", o->model.n);
    if (o->record) DLAB_TRY_DONE(st, dlab_cmd_record_check_out("--record", o->record, o->force, "", err));
    DLAB_TRY_DONE(st, open_models(o, models, paths, hashes, err));
    DLAB_TRY_DONE(st, dlab_bench_cells(o, &cells, &n, err));
    if (!n) {
        st = DLAB_FAIL(err, DLAB_EUSAGE, "-p 0 and -n 0 leave nothing to measure");
        goto done;
    }
    DLAB_TRY_DONE(st, dlab_bench_record_begin(&b.record, o, command, paths, hashes, cells, n, err));
    st = measure_all(&b, models, paths, hashes, cells, n, err);
    *exit_code = b.failed ? 1 : 0;
done:
    dlab_bench_record_free(&b.record);
    for (size_t i = 0; i < o->model.n; i++) dlab_model_close(models[i]);
    free(cells);
    free(paths);
    return st;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    dlab_bench_opts o = {.format = dlab_bench_formats[0], .peer_flash = -1, .peer_timeout_s = 1800};
    bool helped = false;
    char *command = dlab_cmd_line(argc, argv); /* before argp sorts the words */
    dlab_plan_default(&o.plan);
    dlab_status st = dlab_cmd_parse(&cli, argc, argv, &o, &helped, err);
    if (st == DLAB_OK && !helped && !o.peer_kind && (o.peer_model || o.peer_flash >= 0))
        st = DLAB_FAIL(err, DLAB_EUSAGE, "--peer-model and --peer-fa are about a peer: name it with --peer KIND=PATH");
    if (st == DLAB_OK && !helped)
        st = o.overhead ? print_overhead(&o, err) : run_bench(ctx, &o, command, exit_code, err);
    free(command);
    return st;
}

const dlab_command dlab_command_bench = {
    .name = "bench", .summary = "prompt and generation speed, with llama-bench's flags", .run = run};

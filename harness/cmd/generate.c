/* dlab generate: text from one prompt, token by token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "harness/cmd/cmd_util.h"
#include "harness/spec/spec.h"

enum { KEY_GREEDY = DLAB_CMD_KEY, KEY_NO_SPECIAL, KEY_EOS, KEY_SAMPLES };

#define MAX_SAMPLES 64

typedef struct {
    const char *model, *text, *file, *format;
    int64_t n, samples;
    bool no_special, eos, greedy;
    dlab_plan plan;
} generate_opts;

static const char *const formats[] = {"text", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    generate_opts *o = opts;
    switch (key) {
    case 'm':
        o->model = arg;
        return DLAB_OK;
    case 'p':
        o->text = arg;
        return DLAB_OK;
    case 'f':
        o->file = arg;
        return DLAB_OK;
    case 'n':
        return dlab_cmd_int("-n", arg, 1, 1 << 24, &o->n, err);
    case KEY_SAMPLES:
        return dlab_cmd_int("--samples", arg, 1, MAX_SAMPLES, &o->samples, err);
    case KEY_GREEDY:
        o->greedy = true;
        return DLAB_OK;
    case KEY_NO_SPECIAL:
        o->no_special = true;
        return DLAB_OK;
    case KEY_EOS:
        o->eos = true;
        return DLAB_OK;
    case DLAB_CMD_KEY_ISA:
        return dlab_cmd_set_isa(&o->plan, arg, err);
    case DLAB_CMD_KEY_SET:
        return dlab_spec_plan_set(&o->plan, arg, err);
    default:
        return dlab_cmd_choice("-o", arg, formats, &o->format, err);
    }
}

static const struct argp_option options[] = {
    DLAB_CMD_OPT_MODEL,
    {"prompt", 'p', "TEXT", 0, "the prompt", 0},
    {"file", 'f', "FILE", 0, "the prompt's file; - is standard input", 0},
    {"n-predict", 'n', "N", 0, "tokens to produce (default 128)", 0},
    {"samples", KEY_SAMPLES, "N", 0,
     "answers to the one prompt, which is computed once (default 1; with sample.temperature 0 they are all the same)",
     0},
    {"greedy", KEY_GREEDY, NULL, 0, "the likeliest token each time: sample.temperature=0, which is the default", 0},
    {"eos", KEY_EOS, NULL, 0, "stop at the model's end-of-sequence token (else exactly N tokens, as in a measurement)",
     0},
    {"no-special", KEY_NO_SPECIAL, NULL, 0, "control tokens written in the prompt stay text", 0},
    DLAB_CMD_OPT_ISA,
    DLAB_CMD_OPT_SET,
    {"output", 'o', "FORMAT", 0, "text (default, as it comes) or json (ids, text, timing)", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "generate",
    .about = "Goes on with a prompt.",
    .example =
        "  dlab generate -p \"Once upon a time\" -n 32\n"
        "  dlab generate -m synthetic:tiny -p Hi -n 8 --set sample.temperature=0.7 --set sample.top_p=0.9 -o json\n"
        "  dlab generate -p \"Once upon a time\" -n 32 --samples 3 --set kv.store=paged --set sample.temperature=1",
    .options = options,
    .set = set,
};

typedef struct {
    const int32_t *ids; /* of the generation's */
    size_t n_ids;
    dlab_finish finish;
} answer;

typedef struct {
    const dlab_tokenizer *tok;
    int32_t *prompt;
    size_t n_prompt;
    int32_t *ids; /* [n_answers, -n] */
    answer *answers;
    size_t n_answers;
    size_t shown; /* bytes of the only answer's text that are printed */
    int64_t t_start_ns, t_first_ns, t_last_ns;
    dlab_kv_stats kv;
    dlab_mem_stats mem;
} generation;

/* The end of the last whole UTF-8 character: the rest may be finished by the next token. */
static size_t whole_characters(const char *s, size_t n)
{
    for (size_t back = 1; back <= 4 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if (c < 0x80) return n;
        if (c < 0xc0) continue;
        size_t len = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        return len > back ? n - back : n;
    }
    return n;
}

/* The text of all ids of the only answer so far is decoded anew: what a token stands for may depend on those before it. */
static dlab_status show_text(generation *g, bool last, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_tokenizer_decode(g->tok, g->answers->ids, g->answers->n_ids, &text, &n, err));
    size_t end = last ? n : whole_characters(text, n);
    if (end > g->shown) {
        fwrite(text + g->shown, 1, end - g->shown, stdout);
        g->shown = end;
    }
    free(text);
    return dlab_cmd_flush(err);
}

static dlab_status show_all(const generation *g, dlab_error *err)
{
    for (size_t i = 0; i < g->n_answers; i++) {
        char *text = NULL;
        size_t n = 0;
        DLAB_TRY(dlab_tokenizer_decode(g->tok, g->answers[i].ids, g->answers[i].n_ids, &text, &n, err));
        printf("%s--- %zu of %zu\n", i ? "\n" : "", i + 1, g->n_answers);
        fwrite(text, 1, n, stdout);
        free(text);
    }
    return DLAB_OK;
}

static size_t longest(const generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_answers; i++) {
        if (g->answers[i].n_ids > n) n = g->answers[i].n_ids;
    }
    return n;
}

/* What a step produced; the answers are requests 0, 1, … of the engine. */
static void take_tokens(const generate_opts *o, const dlab_step *s, int64_t now_ns, generation *g)
{
    for (int32_t i = 0; i < s->n_tokens; i++) {
        const dlab_step_token *t = &s->tokens[i];
        if (t->request < 0 || t->request >= (int64_t)g->n_answers) continue;
        answer *a = &g->answers[t->request];
        if (a->n_ids == (size_t)o->n) continue;
        if (!longest(g)) g->t_first_ns = now_ns;
        g->t_last_ns = now_ns;
        g->ids[t->request * o->n + (int64_t)a->n_ids++] = t->token;
        a->finish = t->finish;
    }
}

static dlab_status produce(const dlab_cmd_ctx *ctx, const generate_opts *o, dlab_engine *e, generation *g,
                           dlab_error *err)
{
    dlab_clock *clock = dlab_clock_real();
    dlab_engine_request r = {.prompt = g->prompt,
                             .n_prompt = (int64_t)g->n_prompt,
                             .max_new = o->n,
                             .eos = o->eos ? dlab_tokenizer_eos(g->tok) : -1,
                             .seed = (uint64_t)o->plan.sample_seed,
                             .primed = -1,
                             .samples = (int32_t)o->samples};
    bool stream = o->format == formats[0] && o->samples == 1;
    g->t_start_ns = dlab_clock_now_ns(clock);
    DLAB_TRY(dlab_engine_submit(e, &r, err));
    while (dlab_engine_busy(e)) {
        dlab_step s = {0};
        if (*ctx->interrupted) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted after %zu tokens", longest(g));
        DLAB_TRY(dlab_engine_step(e, &s, err));
        take_tokens(o, &s, dlab_clock_now_ns(clock), g);
        if (stream && s.n_tokens) DLAB_TRY(show_text(g, false, err));
        if (stream && dlab_cmd_reader_gone()) return DLAB_OK;
    }
    dlab_engine_kv(e, &g->kv);
    dlab_engine_memory(e, &g->mem);
    return DLAB_OK;
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *j = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(j, json_integer(ids[i]));
    return j;
}

/* {ids, text, finish}; *out is NULL on failure. */
static dlab_status answer_json(const generation *g, const answer *a, json_t **out, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    *out = NULL;
    DLAB_TRY(dlab_tokenizer_decode(g->tok, a->ids, a->n_ids, &text, &n, err));
    *out = json_pack("{s:o, s:o, s:s}", "ids", ids_json(a->ids, a->n_ids), "text", dlab_cmd_text_json(text, n),
                     "finish", a->finish == DLAB_FINISH_EOS ? "eos" : "length");
    free(text);
    return DLAB_OK;
}

/* The first answer is the document's own, so that a reader who asked for one need not look into a list. */
static dlab_status print_document(const generation *g, const dlab_model *m, const dlab_plan *plan, dlab_error *err)
{
    json_t *j = NULL, *others = json_array();
    dlab_status st = answer_json(g, &g->answers[0], &j, err);
    for (size_t i = 1; i < g->n_answers && st == DLAB_OK; i++) {
        json_t *next;
        st = answer_json(g, &g->answers[i], &next, err);
        json_array_append_new(others, next);
    }
    if (st != DLAB_OK) {
        json_decref(j);
        json_decref(others);
        return st;
    }
    double ttft = (double)(g->t_first_ns - g->t_start_ns) / 1e6;
    double steps = (double)longest(g) - 1, tpot = (double)(g->t_last_ns - g->t_first_ns) / 1e6 / steps;
    json_t *timing = json_pack("{s:o, s:o, s:o}", "ttft_ms", dlab_json_number(ttft), "tpot_ms",
                               dlab_json_number(steps > 0 ? tpot : NAN), "e2e_ms",
                               dlab_json_number((double)(g->t_last_ns - g->t_start_ns) / 1e6));
    json_t *memory =
        json_pack("{s:I, s:I, s:I}", "peak_bytes", (json_int_t)g->mem.peak_bytes, "kv_peak_bytes",
                  (json_int_t)g->mem.pool[DLAB_POOL_KV].peak_bytes, "kv_pool_bytes", (json_int_t)g->kv.pool_bytes);
    json_object_set_new(j, "other_samples", others);
    json_object_set_new(j, "prompt_ids", ids_json(g->prompt, g->n_prompt));
    json_object_set_new(j, "timing", timing);
    json_object_set_new(j, "memory", memory);
    json_object_set_new(j, "model", dlab_cmd_model_json(m));
    json_object_set_new(j, "plan", dlab_cmd_plan_json(plan));
    return dlab_cmd_print_json(j, err);
}

static dlab_status encode_prompt(const generate_opts *o, generation *g, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_cmd_get_text(o->text, o->file, &text, &n, err));
    dlab_status st = dlab_tokenizer_encode(g->tok, text, n, !o->no_special, true, &g->prompt, &g->n_prompt, err);
    free(text);
    if (st == DLAB_OK && !g->n_prompt)
        st = DLAB_FAIL(err, DLAB_EUSAGE, "the prompt is empty: one token at least is needed");
    return st;
}

static dlab_status alloc_answers(const generate_opts *o, generation *g, dlab_error *err)
{
    const size_t n = (size_t)o->samples;
    g->answers = calloc(n, sizeof *g->answers);
    g->ids = calloc(n * (size_t)o->n, sizeof *g->ids);
    if (!g->answers || !g->ids) {
        return DLAB_FAIL(err, DLAB_EOOM, "-n: no memory for %lld answers of %lld token ids", (long long)o->samples,
                         (long long)o->n);
    }
    g->n_answers = n;
    for (size_t i = 0; i < n; i++) g->answers[i].ids = g->ids + i * (size_t)o->n;
    return DLAB_OK;
}

static dlab_status generate(const dlab_cmd_ctx *ctx, const generate_opts *o, dlab_error *err)
{
    dlab_model *m = NULL;
    dlab_tokenizer *tok = NULL;
    dlab_engine *e = NULL;
    generation g = {0};
    dlab_status st = DLAB_OK;
    DLAB_TRY_DONE(st, dlab_cmd_model_open(o->model, &m, err));
    DLAB_TRY_DONE(st, dlab_tokenizer_create(m, &tok, err));
    g.tok = tok;
    DLAB_TRY_DONE(st, encode_prompt(o, &g, err));
    DLAB_TRY_DONE(st, alloc_answers(o, &g, err));
    dlab_engine_needs needs = {
        .max_seqs = o->samples, .max_tokens = (int64_t)g.n_prompt + o->n - 1, .max_prompt = (int64_t)g.n_prompt};
    DLAB_TRY_DONE(st, dlab_engine_create(&o->plan, m, &needs, &e, err));
    DLAB_TRY_DONE(st, produce(ctx, o, e, &g, err));
    if (o->format == formats[1]) {
        st = print_document(&g, m, dlab_engine_plan(e), err);
    } else {
        st = o->samples == 1 ? show_text(&g, true, err) : show_all(&g, err);
        putchar('\n');
    }
done:
    free(g.answers);
    free(g.ids);
    free(g.prompt);
    dlab_engine_destroy(e);
    dlab_tokenizer_destroy(tok);
    dlab_model_close(m);
    return st;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    *exit_code = 0;
    generate_opts o = {.format = formats[0], .n = 128, .samples = 1};
    bool helped = false;
    dlab_plan_default(&o.plan);
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (o.greedy && o.plan.temperature > 0) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "--greedy and sample.temperature=%g contradict each other",
                         o.plan.temperature);
    }
    if (helped) return DLAB_OK;
    if (o.plan.batch_size < o.samples) o.plan.batch_size = o.samples;
    return generate(ctx, &o, err);
}

const dlab_command dlab_command_generate = {.name = "generate", .summary = "text from a prompt", .run = run};

/* dlab ppl: perplexity of a text, with its protocol beside it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "harness/cmd/cmd_util.h"
#include "harness/quality/ppl.h"
#include "harness/spec/spec.h"

enum { KEY_PROTOCOL = DLAB_CMD_KEY, KEY_CHUNKS, KEY_SAVE };

typedef struct {
    const char *model, *file, *format, *save;
    dlab_ppl_opts ppl;
    dlab_plan plan;
} ppl_cmd_opts;

static const char *const formats[] = {"md", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    ppl_cmd_opts *o = opts;
    switch (key) {
    case 'm':
        o->model = arg;
        return DLAB_OK;
    case 'f':
        o->file = arg;
        return DLAB_OK;
    case 'c':
        return dlab_cmd_int("-c", arg, 2, 1 << 24, &o->ppl.context, err);
    case KEY_PROTOCOL: {
        int64_t first;
        o->ppl.protocol = arg;
        return dlab_ppl_span(&(dlab_ppl_opts){.protocol = arg, .context = 2}, &first, err);
    }
    case KEY_CHUNKS:
        return dlab_cmd_int("--chunks", arg, 1, INT32_MAX, &o->ppl.chunks, err);
    case KEY_SAVE:
        o->save = arg;
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
    {"file", 'f', "FILE", 0, "the text (default: the bundled one); - is standard input", 0},
    {"ctx-size", 'c', "N", 0, "tokens of a chunk (default 512)", 0},
    {"protocol", KEY_PROTOCOL, "NAME", 0,
     "llama.cpp (default): the second half of each chunk is scored; full: all of it but the first token", 0},
    {"chunks", KEY_CHUNKS, "N", 0, "only the first N chunks", 0},
    {"save-nll", KEY_SAVE, "FILE", 0, "every token's negative log likelihood, a JSON array a chunk", 0},
    DLAB_CMD_OPT_ISA,
    DLAB_CMD_OPT_SET,
    {"output", 'o', "FORMAT", 0, "md (default) or json", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "ppl",
    .about = "Perplexity of a model on a text, cut into chunks that do not overlap.",
    .example = "  dlab ppl --chunks 8\n"
               "  dlab ppl -f text.txt -c 512 --set compute=f32 --set kv.k=f32 --set kv.v=f32 -o json",
    .options = options,
    .set = set,
};

typedef struct {
    dlab_model *model;
    dlab_tokenizer *tok;
    dlab_target *target;
    char *file_text;
    const char *text;
    size_t n_text;
    int32_t *ids;
    size_t n_ids;
    int32_t bos;
    dlab_run run;
    dlab_ppl_result result;
} ppl_job;

static void show_progress(void *ctx, int64_t chunk, int64_t n, double ppl)
{
    (void)ctx;
    fprintf(stderr,
            isatty(STDERR_FILENO) ? "\rchunk %" PRId64 " of %" PRId64 ": perplexity so far %.4f  "
                                  : "chunk %" PRId64 " of %" PRId64 ": perplexity so far %.4f\n",
            chunk + 1, n, ppl);
}

static dlab_status prepare(ppl_cmd_opts *o, ppl_job *j, dlab_error *err)
{
    if (o->file) {
        DLAB_TRY(dlab_cmd_read_text(o->file, &j->file_text, &j->n_text, err));
        j->text = j->file_text;
    } else {
        j->text = dlab_bundled_text(&j->n_text);
    }
    DLAB_TRY(dlab_cmd_model_open(o->model, &j->model, err));
    DLAB_TRY(dlab_tokenizer_create(j->model, &j->tok, err));
    DLAB_TRY(dlab_tokenizer_encode(j->tok, j->text, j->n_text, false, true, &j->ids, &j->n_ids, err));
    j->bos = dlab_tokenizer_adds_bos(j->tok) ? dlab_tokenizer_bos(j->tok) : -1;
    int64_t context = o->ppl.context;
    if ((int64_t)j->n_ids < context) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "%s has %zu tokens, a chunk needs %" PRId64
                         ": give a longer text with -f, or a smaller chunk with -c",
                         o->file ? o->file : "the bundled text", j->n_ids, context);
    }
    dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = context, .max_prompt = context, .max_logits = context};
    const dlab_target_setup setup = {.plan = &o->plan, .model = j->model, .needs = &needs};
    return dlab_target_find("engine")->create(&setup, &j->target, err);
}

static dlab_status save_values(const char *path, const dlab_run *run, dlab_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return DLAB_FAIL(err, DLAB_EOOM, "--save-nll: no memory for the values");
    for (size_t i = 0; i < run->n_quality; i++) {
        bool first = !i || run->quality[i].chunk != run->quality[i - 1].chunk;
        fprintf(f, "%s%s%.9f", first ? (i ? "],\n" : "[") : "", first ? "[" : ", ", run->quality[i].nll);
    }
    fputs("]]\n", f);
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        free(text);
        return DLAB_FAIL(err, DLAB_EOOM, "--save-nll: no memory for the values");
    }
    dlab_status st = dlab_file_write_atomic(path, text, size, err);
    free(text);
    return st;
}

static dlab_status print_json(const ppl_cmd_opts *o, const ppl_job *j, dlab_error *err)
{
    const dlab_ppl_result *r = &j->result;
    const char *corpus = o->file ? o->file : "bundled";
    json_t *doc =
        json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:s, s:s, s:b, s:o, s:s, s:I, s:I, s:o, s:o}", "ppl",
                  dlab_json_number(r->ppl), "nll", dlab_json_number(r->nll_mean), "bits_per_byte",
                  dlab_json_number(r->bits_per_byte), "se", dlab_json_number(r->se), "n_scored",
                  (json_int_t)r->n_scored, "chunks", (json_int_t)r->n_chunks, "context", (json_int_t)o->ppl.context,
                  "protocol", o->ppl.protocol, "protocol_text", j->run.quality_protocol, "bos", (int)(j->bos >= 0),
                  "corpus", dlab_cmd_text_json(corpus, strlen(corpus)), "corpus_hash", j->run.corpus_hash,
                  "corpus_bytes", (json_int_t)j->n_text, "corpus_tokens", (json_int_t)j->n_ids, "model",
                  dlab_cmd_model_json(j->model), "plan", dlab_cmd_plan_json(j->target->ops->plan(j->target)));
    return dlab_cmd_print_json(doc, err);
}

static void print_md(const ppl_cmd_opts *o, const ppl_job *j)
{
    const dlab_model_info *m = dlab_model_get_info(j->model);
    const dlab_plan *p = j->target->ops->plan(j->target);
    const dlab_ppl_result *r = &j->result;
    char se[32] = "–";
    if (isfinite(r->se)) snprintf(se, sizeof se, "%.6f", r->se);
    printf("| model | type | compute | kv.k | kv.v | perplexity | ± | nats/token | bits/byte | tokens scored |\n"
           "|---|---|---|---|---|---:|---:|---:|---:|---:|\n"
           "| %s | %s | %s | %s | %s | %.6f | %s | %.6f | %.6f | %" PRId64 " |\n\n",
           m->name, m->type, p->compute, p->kv_k, p->kv_v, r->ppl, se, r->nll_mean, r->bits_per_byte, r->n_scored);
    printf("%" PRId64 " %s; text: %s, %zu bytes, %zu tokens, hash %s.\n", r->n_chunks, j->run.quality_protocol,
           o->file ? o->file : "bundled", j->n_text, j->n_ids, j->run.corpus_hash);
    if (m->synthetic) printf("The model's weights are random: these figures say nothing about quality.\n");
}

static dlab_status measure(ppl_cmd_opts *o, ppl_job *j, dlab_error *err)
{
    DLAB_TRY(prepare(o, j, err));
    snprintf(j->run.corpus_hash, sizeof j->run.corpus_hash, "%016llx",
             (unsigned long long)XXH64(j->text, j->n_text, 0));
    DLAB_TRY(dlab_ppl_run(j->target, j->ids, (int64_t)j->n_ids, j->bos, &o->ppl, (int64_t)j->n_text, &j->run,
                          &j->result, err));
    if (o->format == formats[1])
        DLAB_TRY(print_json(o, j, err));
    else
        print_md(o, j);
    return o->save ? save_values(o->save, &j->run, err) : DLAB_OK;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    *exit_code = 0;
    ppl_cmd_opts o = {
        .format = formats[0],
        .ppl = {.protocol = "llama.cpp", .context = 512, .interrupted = ctx->interrupted, .progress = show_progress}};
    bool helped = false;
    dlab_plan_default(&o.plan);
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    ppl_job j = {0};
    dlab_run_init(&j.run);
    dlab_status st = measure(&o, &j, err);
    dlab_run_free(&j.run);
    if (j.target) j.target->ops->destroy(j.target);
    free(j.ids);
    free(j.file_text);
    dlab_tokenizer_destroy(j.tok);
    dlab_model_close(j.model);
    return st;
}

const dlab_command dlab_command_ppl = {.name = "ppl", .summary = "perplexity of a model on a text", .run = run};

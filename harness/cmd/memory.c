/* dlab memory: what a KV cache takes, before anything is run (K4). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_util.h"

enum { KEY_LAYERS = DLAB_CMD_KEY, KEY_HEADS, KEY_KV_HEADS, KEY_HEAD_DIM, KEY_TOKENS, KEY_BATCH, KEY_BLOCK };

#define MAX_LIST 256
#define MAX_DIM                                                                                                        \
    ((int64_t)1 << 40) /* the product is checked, this only keeps a typing error from looking like a shape */
#define FORMULA "2 × layers × kv_heads × head_dim × tokens × batch × bytes an element"

typedef struct {
    const char *model, *format;
    int64_t layers, heads, kv_heads, head_dim;
    int64_t tokens[MAX_LIST], batch[MAX_LIST], block[MAX_LIST];
    size_t n_tokens, n_batch, n_block;
} memory_opts;

typedef struct {
    const char *dtype;
    int64_t tokens, batch;
    int64_t block;                 /* tokens of a block of the paged store; 0: not asked */
    dlab_kv_need need, multi_head; /* the second as if every query head had K and V of its own */
    int64_t waste_bytes;           /* of the paged store's last blocks */
} memory_row;

static const char *const formats[] = {"md", "csv", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    memory_opts *o = opts;
    switch (key) {
    case 'm':
        o->model = arg;
        return DLAB_OK;
    case KEY_LAYERS:
        return dlab_cmd_int("--layers", arg, 1, MAX_DIM, &o->layers, err);
    case KEY_HEADS:
        return dlab_cmd_int("--heads", arg, 1, MAX_DIM, &o->heads, err);
    case KEY_KV_HEADS:
        return dlab_cmd_int("--kv-heads", arg, 1, MAX_DIM, &o->kv_heads, err);
    case KEY_HEAD_DIM:
        return dlab_cmd_int("--head-dim", arg, 1, MAX_DIM, &o->head_dim, err);
    case KEY_TOKENS:
        return dlab_cmd_int_list("--tokens", arg, 1, MAX_DIM, o->tokens, &o->n_tokens, MAX_LIST, err);
    case KEY_BATCH:
        return dlab_cmd_int_list("--batch", arg, 1, MAX_DIM, o->batch, &o->n_batch, MAX_LIST, err);
    case KEY_BLOCK:
        return dlab_cmd_int_list("--block", arg, 8, 256, o->block, &o->n_block, MAX_LIST, err);
    default:
        return dlab_cmd_choice("-o", arg, formats, &o->format, err);
    }
}

static const struct argp_option options[] = {
    DLAB_CMD_OPT_MODEL,
    {"layers", KEY_LAYERS, "N", 0, "a shape by hand, instead of a model: layers", 0},
    {"kv-heads", KEY_KV_HEADS, "N", 0, "heads that have K and V", 0},
    {"head-dim", KEY_HEAD_DIM, "N", 0, "elements of a head", 0},
    {"heads", KEY_HEADS, "N", 0, "query heads, to show what the multi-head formula would overstate", 0},
    {"tokens", KEY_TOKENS, "LIST", 0, "tokens of a sequence: 4096 or 512,1024 or 512-8192*2 (default: the context)", 0},
    {"batch", KEY_BATCH, "LIST", 0, "sequences (default 1)", 0},
    {"block", KEY_BLOCK, "LIST", 0, "what the paged store wastes in the last block of each sequence, at kv.block_size",
     0},
    {"output", 'o', "FORMAT", 0, "md (default), csv or json", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "memory",
    .about = "Plans the memory of a KV cache: " FORMULA ", at every element format that is built.",
    .example = "  dlab memory -m synthetic:smollm2-135m --tokens 512-2048*2 --batch 1,8\n"
               "  dlab memory --layers 28 --heads 28 --kv-heads 4 --head-dim 128 --tokens 4096\n"
               "  dlab memory -m synthetic:smollm2-135m --tokens 1000 --batch 16 --block 8-256*2",
    .options = options,
    .set = set,
};

/* From the model where one is meant; flags win, so that "this model with other heads" can be asked. */
static dlab_status fill_shape(memory_opts *o, json_t **model, dlab_error *err)
{
    bool by_hand = o->layers || o->kv_heads || o->head_dim;
    if (by_hand && !o->model && !(o->layers && o->kv_heads && o->head_dim)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "a shape by hand needs --layers, --kv-heads and --head-dim; missing: %s%s%s",
                         o->layers ? "" : "--layers ", o->kv_heads ? "" : "--kv-heads ",
                         o->head_dim ? "" : "--head-dim");
    }
    int64_t context = 4096;
    if (!by_hand || o->model) {
        dlab_model *m = NULL;
        DLAB_TRY(dlab_cmd_model_open(o->model, &m, err));
        const dlab_model_info *i = dlab_model_get_info(m);
        *model = dlab_cmd_model_json(m);
        if (!o->layers) o->layers = i->n_layers;
        if (!o->heads) o->heads = i->n_heads;
        if (!o->kv_heads) o->kv_heads = i->n_kv_heads;
        if (!o->head_dim) o->head_dim = i->head_dim;
        context = i->context;
        dlab_model_close(m);
    }
    if (!o->heads) o->heads = o->kv_heads;
    if (!o->n_tokens) o->tokens[o->n_tokens++] = context;
    if (!o->n_batch) o->batch[o->n_batch++] = 1;
    if (!o->n_block) o->block[o->n_block++] = 0;
    if (o->heads % o->kv_heads) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "--heads: %" PRId64 " is no multiple of %" PRId64 " KV heads", o->heads,
                         o->kv_heads);
    }
    return DLAB_OK;
}

static dlab_status fill_row(const memory_opts *o, memory_row *r, dlab_error *err)
{
    DLAB_TRY(dlab_kv_plan(r->dtype, r->dtype, o->layers, o->kv_heads, o->head_dim, r->tokens, r->batch, &r->need, err));
    DLAB_TRY(
        dlab_kv_plan(r->dtype, r->dtype, o->layers, o->heads, o->head_dim, r->tokens, r->batch, &r->multi_head, err));
    if (!r->block) return DLAB_OK;
    dlab_kv_need blocks;
    const int64_t whole = (r->tokens + r->block - 1) / r->block * r->block;
    DLAB_TRY(dlab_kv_plan(r->dtype, r->dtype, o->layers, o->kv_heads, o->head_dim, whole, r->batch, &blocks, err));
    r->waste_bytes = blocks.total_bytes - r->need.total_bytes;
    return DLAB_OK;
}

/* The formats vary fastest, then blocks, lengths, batches. */
static dlab_status fill_rows(const memory_opts *o, memory_row **out, size_t *n, dlab_error *err)
{
    size_t n_params = 0, n_dtypes = 0;
    const dlab_param *table = dlab_plan_params(&n_params), *p = dlab_param_find(table, n_params, "kv.k");
    const char *const *dtypes = p->choices();
    while (dtypes[n_dtypes]) n_dtypes++;
    *n = n_dtypes * o->n_block * o->n_tokens * o->n_batch;
    memory_row *rows = calloc(*n + 1, sizeof *rows);
    *out = rows;
    if (!rows) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the table");
    for (size_t i = 0; i < *n; i++) {
        const size_t block = i / n_dtypes, tokens = block / o->n_block, batch = tokens / o->n_tokens;
        rows[i] = (memory_row){.dtype = dtypes[i % n_dtypes],
                               .block = o->block[block % o->n_block],
                               .tokens = o->tokens[tokens % o->n_tokens],
                               .batch = o->batch[batch]};
        DLAB_TRY(fill_row(o, &rows[i], err));
    }
    return DLAB_OK;
}

static json_t *row_json(const memory_row *r, bool grouped)
{
    double bytes = (double)r->need.total_bytes, all = (double)r->multi_head.total_bytes;
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:o, s:o, s:o, s:o}", "kv_dtype", r->dtype, "tokens",
        (json_int_t)r->tokens, "batch", (json_int_t)r->batch, "k_bytes", (json_int_t)r->need.k_bytes, "v_bytes",
        (json_int_t)r->need.v_bytes, "bytes", (json_int_t)r->need.total_bytes, "gb", bytes / 1e9, "gib", bytes / 0x1p30,
        "bytes_per_token", (json_int_t)r->need.bytes_per_token, "multi_head_bytes",
        grouped ? json_integer(r->multi_head.total_bytes) : json_null(), "overstated",
        grouped ? json_real(all / bytes) : json_null(), "block_size", r->block ? json_integer(r->block) : json_null(),
        "waste_bytes", r->block ? json_integer(r->waste_bytes) : json_null());
}

static dlab_status print_json(const memory_opts *o, json_t *model, const memory_row *rows, size_t n, dlab_error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, row_json(&rows[i], o->heads != o->kv_heads));
    return dlab_cmd_print_json(json_pack("{s:s, s:O, s:I, s:I, s:I, s:I, s:o}", "formula", FORMULA, "model",
                                         model ? model : json_null(), "layers", (json_int_t)o->layers, "heads",
                                         (json_int_t)o->heads, "kv_heads", (json_int_t)o->kv_heads, "head_dim",
                                         (json_int_t)o->head_dim, "rows", list),
                               err);
}

static void print_csv(const memory_opts *o, const memory_row *rows, size_t n)
{
    bool grouped = o->heads != o->kv_heads;
    printf(
        "kv_dtype,tokens,batch,k_bytes,v_bytes,bytes,gb,gib,bytes_per_token,multi_head_bytes,block_size,waste_bytes\n");
    for (size_t i = 0; i < n; i++) {
        const memory_row *r = &rows[i];
        double bytes = (double)r->need.total_bytes;
        printf("%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.6f,%.6f,%" PRId64 ",", r->dtype,
               r->tokens, r->batch, r->need.k_bytes, r->need.v_bytes, r->need.total_bytes, bytes / 1e9, bytes / 0x1p30,
               r->need.bytes_per_token);
        if (grouped) printf("%" PRId64, r->multi_head.total_bytes);
        putchar(',');
        if (r->block) printf("%" PRId64 ",%" PRId64, r->block, r->waste_bytes);
        if (!r->block) putchar(',');
        putchar('\n');
    }
}

static void print_notes(const memory_opts *o, bool grouped, bool paged)
{
    printf("\n1 GB = 10⁹ bytes, 1 GiB = 2³⁰ bytes. int8 and fp8 add 4 bytes of scale and zero point to each vector of "
           "a head,"
           " int4 to each 32 elements.");
    if (paged) {
        printf(" Waste: what the last block of each sequence holds beyond these tokens; over many lengths it is (block "
               "- 1)/2"
               " tokens a sequence on average.");
    }
    if (grouped) {
        printf(" Counting all %" PRId64
               " query heads (the multi-head formula) would overstate this by %.4g times: only %" PRId64
               " heads have K and V.",
               o->heads, (double)o->heads / (double)o->kv_heads, o->kv_heads);
    }
    putchar('\n');
}

static void print_md(const memory_opts *o, const memory_row *rows, size_t n)
{
    bool grouped = o->heads != o->kv_heads, paged = o->block[0] > 0;
    printf("KV memory = " FORMULA "\n          = 2 × %" PRId64 " × %" PRId64 " × %" PRId64
           " × tokens × batch × bytes an element\n\n",
           o->layers, o->kv_heads, o->head_dim);
    printf("| kv dtype |   tokens |  batch | bytes/token |            bytes |        GB |       GiB |%s%s\n",
           paged ? " block |      waste B | waste % |" : "", grouped ? " multi-head GB |" : "");
    printf("|----------|---------:|-------:|------------:|-----------------:|----------:|----------:|%s%s\n",
           paged ? "------:|-------------:|--------:|" : "", grouped ? "--------------:|" : "");
    for (size_t i = 0; i < n; i++) {
        const memory_row *r = &rows[i];
        double bytes = (double)r->need.total_bytes, waste = (double)r->waste_bytes;
        printf("| %-8s | %8" PRId64 " | %6" PRId64 " | %11" PRId64 " | %16" PRId64 " | %9.4g | %9.4g |", r->dtype,
               r->tokens, r->batch, r->need.bytes_per_token, r->need.total_bytes, bytes / 1e9, bytes / 0x1p30);
        if (paged)
            printf(" %5" PRId64 " | %12" PRId64 " | %7.2f |", r->block, r->waste_bytes, 100 * waste / (bytes + waste));
        if (grouped) printf(" %13.4g |", (double)r->multi_head.total_bytes / 1e9);
        putchar('\n');
    }
    print_notes(o, grouped, paged);
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    memory_opts o = {.format = formats[0]};
    bool helped = false;
    json_t *model = NULL;
    memory_row *rows = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    dlab_status st = DLAB_OK;
    DLAB_TRY_DONE(st, fill_shape(&o, &model, err));
    DLAB_TRY_DONE(st, fill_rows(&o, &rows, &n, err));
    if (o.format == formats[2])
        st = print_json(&o, model, rows, n, err);
    else if (o.format == formats[1])
        print_csv(&o, rows, n);
    else
        print_md(&o, rows, n);
done:
    free(rows);
    json_decref(model);
    return st;
}

const dlab_command dlab_command_memory = {
    .name = "memory", .summary = "what a KV cache takes, at every dtype", .run = run};

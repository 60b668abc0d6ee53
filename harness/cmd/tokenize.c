/* dlab tokenize: a text's token ids, from the model's own vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_util.h"

enum { KEY_NO_SPECIAL = DLAB_CMD_KEY, KEY_NO_BOS };

typedef struct {
    const char *model, *text, *file, *format;
    bool no_special, no_bos;
} tokenize_opts;

static const char *const formats[] = {"text", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    tokenize_opts *o = opts;
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
    case KEY_NO_SPECIAL:
        o->no_special = true;
        return DLAB_OK;
    case KEY_NO_BOS:
        o->no_bos = true;
        return DLAB_OK;
    default:
        return dlab_cmd_choice("-o", arg, formats, &o->format, err);
    }
}

static const struct argp_option options[] = {
    DLAB_CMD_OPT_MODEL,
    {"prompt", 'p', "TEXT", 0, "the text", 0},
    {"file", 'f', "FILE", 0, "the text's file, every byte of it; - is standard input", 0},
    {"no-special", KEY_NO_SPECIAL, NULL, 0, "control tokens written in the text stay text", 0},
    {"no-bos", KEY_NO_BOS, NULL, 0, "no beginning-of-sequence token, even if the model asks for it", 0},
    {"output", 'o', "FORMAT", 0, "text (default: id and piece, one a line) or json (a list of ids)", 0},
    {0},
};

static const dlab_cmd_cli cli = {
    .name = "tokenize",
    .about = "Prints the token ids of a text.",
    .example = "  dlab tokenize -m synthetic:tiny -p \"Hello world\"\n  dlab tokenize -f README.md -o json",
    .options = options,
    .set = set,
};

static dlab_status print_pieces(const dlab_tokenizer *t, const int32_t *ids, size_t n, dlab_error *err)
{
    for (size_t i = 0; i < n; i++) {
        char *piece = NULL;
        size_t size = 0;
        DLAB_TRY(dlab_tokenizer_decode(t, ids + i, 1, &piece, &size, err));
        json_t *j = dlab_cmd_text_json(piece, size);
        char *quoted = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
        printf("%d\t%s\n", ids[i], quoted ? quoted : "");
        free(quoted);
        json_decref(j);
        free(piece);
    }
    return DLAB_OK;
}

static dlab_status print_ids(const int32_t *ids, size_t n)
{
    putchar('[');
    for (size_t i = 0; i < n; i++) printf(i ? ", %d" : "%d", ids[i]);
    puts("]");
    return DLAB_OK;
}

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    tokenize_opts o = {.format = formats[0]};
    bool helped = false;
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &o, &helped, err));
    if (helped) return DLAB_OK;
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    dlab_status st = DLAB_OK;
    DLAB_TRY_DONE(st, dlab_cmd_get_text(o.text, o.file, &text, &n, err));
    DLAB_TRY_DONE(st, dlab_cmd_model_open(o.model, &m, err));
    DLAB_TRY_DONE(st, dlab_tokenizer_create(m, &t, err));
    DLAB_TRY_DONE(st, dlab_tokenizer_encode(t, text, n, !o.no_special, !o.no_bos, &ids, &n_ids, err));
    st = o.format == formats[1] ? print_ids(ids, n_ids) : print_pieces(t, ids, n_ids, err);
done:
    free(ids);
    free(text);
    dlab_tokenizer_destroy(t);
    dlab_model_close(m);
    return st;
}

const dlab_command dlab_command_tokenize = {.name = "tokenize", .summary = "a text's token ids", .run = run};

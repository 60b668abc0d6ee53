/* What the commands share: flags through argp with one-line errors of our own, where models and our own files are, strict
 * output. Files of this folder named cmd_*.c are not commands. */
#ifndef DLAB_HARNESS_CMD_CMD_UTIL_H
#define DLAB_HARNESS_CMD_CMD_UTIL_H

#include <argp.h>
#include <limits.h>
#include <stdbool.h>

#include "base/json.h"
#include "engine/engine.h"
#include "harness/cmd/cmd.h"

/* ---- flags ---------------------------------------------------------------------------------------------------------- */

/* Keys of flags without a letter start here; argp's own special keys are far above. */
#define DLAB_CMD_KEY 1000

typedef struct {
    const char *name;                  /* "bench" */
    const char *args;                  /* positional arguments as help shows them, or NULL when there are none */
    const char *about;                 /* one paragraph */
    const char *example;               /* lines that work as they stand */
    const struct argp_option *options; /* without --help, which every command has */
    /* One flag, or a positional argument (key ARGP_KEY_ARG). */
    dlab_status (*set)(int key, const char *arg, void *opts, dlab_error *err);
    bool long_only; /* -word is --word, as llama-bench's flags are written */
} dlab_cmd_cli;

/* Reads the flags into opts. *helped: --help was asked and printed, there is nothing more to do. Errors are DLAB_EUSAGE
 * and name the flag, and the nearest one where it is unknown. */
dlab_status dlab_cmd_parse(const dlab_cmd_cli *cli, int argc, char **argv, void *opts, bool *helped, dlab_error *err);

/* A whole number between min and max, in decimal; `flag` is for the message: "-n". */
dlab_status dlab_cmd_int(const char *flag, const char *text, int64_t min, int64_t max, int64_t *out, dlab_error *err);
/* "512,1024", "1-8", "1-9+2", "1-64*2" and mixtures, as llama-bench reads them; appended to list [*n of max]. */
dlab_status dlab_cmd_int_list(const char *flag, const char *text, int64_t min, int64_t max, int64_t *list, size_t *n,
                              size_t cap, dlab_error *err);
/* One of a NULL-terminated list of words; *out is the list's own pointer. */
dlab_status dlab_cmd_choice(const char *flag, const char *text, const char *const *words, const char **out,
                            dlab_error *err);
/* Stores the only positional argument; a second one is an error. `what` is for the message: "record". */
dlab_status dlab_cmd_one_arg(const char *what, const char *arg, const char **out, dlab_error *err);

/* The command as it was given, for a record; before argp sorts the words. malloc'd; NULL when memory is out. */
char *dlab_cmd_line(int argc, char **argv);

/* Rows of a command's flag table. */
#define DLAB_CMD_KEY_SET (DLAB_CMD_KEY + 900)
#define DLAB_CMD_KEY_ISA (DLAB_CMD_KEY + 901)
#define DLAB_CMD_OPT_ISA                                                                                               \
    {                                                                                                                  \
        "isa", DLAB_CMD_KEY_ISA, "NAME", 0, "instruction set of the CPU's kernels, the same as --set isa=NAME", 0      \
    }
#define DLAB_CMD_OPT_MODEL                                                                                             \
    {                                                                                                                  \
        "model", 'm', "MODEL", 0,                                                                                      \
            "GGUF file or synthetic:NAME (else $DLAB_MODEL, else the one that make demo fetched)", 0                   \
    }
#define DLAB_CMD_OPT_SET                                                                                               \
    {                                                                                                                  \
        "set", DLAB_CMD_KEY_SET, "KEY=VALUE", 0, "an axis of the plan, as in an experiment file; repeatable", 0        \
    }

/* --isa NAME. */
dlab_status dlab_cmd_set_isa(dlab_plan *plan, const char *name, dlab_error *err);

/* ---- models and files ----------------------------------------------------------------------------------------------- */

#define DLAB_CMD_MODEL_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"

/* What to hand to dlab_model_open: `given` if not NULL, else $DLAB_MODEL, else the model that `make demo` keeps in the
 * user's cache folder; else DLAB_EUSAGE, which says how to get one. */
dlab_status dlab_cmd_model_path(const char *given, char *buf, size_t size, dlab_error *err);
/* Looks the path up as above and opens it. */
dlab_status dlab_cmd_model_open(const char *given, dlab_model **out, dlab_error *err);
/* Where our own files are ("experiments", "plots/templates", "experiments/quickstart.yaml"): beside an installed program
 * (../share/decodelab), in the source tree it was built from, or under the prefix it was configured for. False: nowhere. */
bool dlab_cmd_share_path(const char *rel, char *buf, size_t size);
/* The whole of a text file, or of standard input when path is "-". *out is malloc'd and NUL-terminated past *n. */
dlab_status dlab_cmd_read_text(const char *path, char **out, size_t *n, dlab_error *err);

/* The text of -p, or of -f's file: exactly one of them is given. */
dlab_status dlab_cmd_get_text(const char *text, const char *file, char **out, size_t *n, dlab_error *err);

/* ---- output --------------------------------------------------------------------------------------------------------- */

/* Writes text to standard output; a full disk is DLAB_EIO, a reader that went away is not an error. */
dlab_status dlab_cmd_print(const char *text, dlab_error *err);
/* Prints one strict JSON document and a newline, and releases j (NULL: memory was out). */
dlab_status dlab_cmd_print_json(json_t *j, dlab_error *err);
/* Flushes standard output; main calls it last. */
dlab_status dlab_cmd_flush(dlab_error *err);
/* True once standard output takes nothing any more (its reader went away): long commands stop. */
bool dlab_cmd_reader_gone(void);

/* {"key": value} of a table's rows, typed. NULL when memory is out. */
json_t *dlab_cmd_params_json(const dlab_param *table, size_t n, const void *obj);
json_t *dlab_cmd_plan_json(const dlab_plan *plan);
json_t *dlab_cmd_model_json(const dlab_model *m);
/* Text of any bytes as a JSON string: what is not UTF-8 becomes U+FFFD. */
json_t *dlab_cmd_text_json(const char *text, size_t n);
/* An error as main prints it: one line, whatever a file's name has in it, with the place in the source for a bug of ours. */
void dlab_cmd_error_text(const dlab_error *err, char *buf, size_t size);

#endif

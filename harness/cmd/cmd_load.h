/* dlab load in five parts: flags and flow (load.c), flags as keys of an experiment (cmd_load_keys.c), what is measured
 * (cmd_load_target.c), a point and its runs (cmd_load_point.c), the search for a rate (cmd_load_find.c). */
#ifndef DLAB_HARNESS_CMD_CMD_LOAD_H
#define DLAB_HARNESS_CMD_CMD_LOAD_H

#include "harness/cmd/cmd_record.h"
#include "harness/cmd/cmd_util.h"
#include "harness/remote/server.h"
#include "harness/run/progress.h"
#include "harness/run/session.h"
#include "harness/spec/spec.h"

#define DLAB_LOAD_SETS 96

typedef struct {
    const char *target; /* as given: a URL, "engine", "null:…" */
    const char *model, *model_name, *endpoint, *prompt_as, *extra;
    char *api_key; /* malloc'd */
    int64_t connect_timeout_ns, timeout_ns, idle_timeout_ns;
    char *sets[DLAB_LOAD_SETS]; /* "KEY=VALUE", as `dlab run --set` takes them; malloc'd */
    size_t n_sets;
    const char *record, *format;
    bool force, strict, quiet;
    bool find; /* the highest rate that keeps the objectives */
    double good_share;
} dlab_load_opts;

/* ---- keys ------------------------------------------------------------------------------------------------------------- */

/* "KEY=VALUE", or key and value apart. */
dlab_status dlab_load_set(dlab_load_opts *o, const char *assignment, dlab_error *err);
dlab_status dlab_load_set_key(dlab_load_opts *o, const char *key, const char *value, dlab_error *err);
/* The value that a key was given last, or NULL. */
const char *dlab_load_given(const dlab_load_opts *o, const char *key);
/* Flags that stand for several keys; `flag` is for the messages. */
dlab_status dlab_load_rates(dlab_load_opts *o, const char *text, dlab_error *err);
dlab_status dlab_load_concurrency(dlab_load_opts *o, const char *text, dlab_error *err);
dlab_status dlab_load_lengths(dlab_load_opts *o, const char *flag, bool prompts, const char *text, dlab_error *err);
dlab_status dlab_load_prompts(dlab_load_opts *o, const char *text, dlab_error *err);
dlab_status dlab_load_objectives(dlab_load_opts *o, const char *text, dlab_error *err);
dlab_status dlab_load_duration(const char *flag, const char *text, int64_t *ns, dlab_error *err);
/* The experiment that the flags describe, with the default values of this command. */
dlab_status dlab_load_spec(const dlab_load_opts *o, const char *model, dlab_spec **out, dlab_error *err);

/* ---- what is measured --------------------------------------------------------------------------------------------------- */

typedef struct {
    const dlab_target_ops *ops;
    dlab_model *model; /* NULL: none was given, or is needed */
    dlab_tokenizer *tokenizer;
    dlab_remote remote; /* of a server */
    int64_t null_step_ns, null_service_ns;
    char model_path[PATH_MAX];
    char served[DLAB_SERVER_MODEL_MAX]; /* the name of a server's model */
    char name[PATH_MAX];                /* for people and the record's key */
    uint64_t model_hash;
} dlab_load_target;

/* Parses o->target, opens the model where there is one, asks a server for its model's name. Must be freed in any case. */
dlab_status dlab_load_target_open(const dlab_load_opts *o, dlab_load_target *out, dlab_error *err);
void dlab_load_target_close(dlab_load_target *t);
/* The settings of a run against a server say nothing of a plan of ours, but for sampling; they name the server. */
dlab_status dlab_load_target_settings(const dlab_load_target *t, dlab_settings *s, dlab_error *err);

/* ---- points ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    const dlab_load_opts *opts;
    const dlab_spec *spec;
    const volatile sig_atomic_t *interrupted;
    dlab_load_target target;
    dlab_cmd_recorder rec;
    dlab_progress progress;
    size_t n_done;   /* runs */
    int64_t n_runs;  /* whose prompts a server has seen … */
    int64_t n_sent;  /* … and the conversations in them */
    char why[512];   /* requests of the point failed, "; " between reasons */
    size_t n_why;    /* reasons */
    bool unserved;   /* in some run nothing was served */
    bool any_failed; /* a request of any run */
} dlab_load;

/* Adds a point to the record, pending. */
dlab_status dlab_load_frame(dlab_load *l, const dlab_point *p, dlab_error *err);
/* Measures point number `at` of the record. What goes wrong with it is its status; errors end the command. */
dlab_status dlab_load_measure(dlab_load *l, const dlab_point *p, size_t at, dlab_error *err);
/* Brackets and bisects; its result in the record's meta, and in a sentence [size]. found: a rate was kept. */
dlab_status dlab_load_find(dlab_load *l, bool *found, char *sentence, size_t size, dlab_error *err);

#endif

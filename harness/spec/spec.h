/* From an experiment file to points. Every error is one line with file, line, column and the nearest valid word.
 * The language is described in docs/experiments.md, which is generated from the tables behind it. */
#ifndef DLAB_HARNESS_SPEC_SPEC_H
#define DLAB_HARNESS_SPEC_SPEC_H

#include "base/yaml.h"
#include "engine/engine.h"
#include "plots/plot.h"
#include "results/record.h"
#include "results/report.h"

/* `workload:` — what the engine is asked to do. Sweepable. */
typedef struct {
    const char *kind;      /* "batch": all requests arrive at once */
    int64_t requests;      /* prompts; 0: as many as fill batch.size */
    int64_t prompt;        /* tokens measured as prefill; 0 only with depth > 0 */
    const char *lengths;   /* of the prompts: "fixed", "spread", "lognormal" */
    int64_t prompt_sd;     /* lognormal: standard deviation of the lengths, whose mean is `prompt` */
    int64_t prompt_max;    /* lognormal: longer draws are drawn again; 0: what the model's context holds */
    int64_t shared_prefix; /* the first so many tokens of every prompt are the same */
    int64_t samples;       /* answers to each prompt, from one prefill; ≥ 1 */
    int64_t output;        /* tokens of an answer; ≥ 1 */
    int64_t depth;         /* tokens already in the cache, prefilled once and not timed */
    bool ignore_eos;       /* default true: exact output lengths */
    int64_t seed;          /* of the prompts' token ids and lengths */
} dlab_workload;

/* `measure:` — how. Not sweepable. */
typedef struct {
    int64_t repeats, warmup;         /* warmup: runs of the measured shape before each point's first repeat */
    const char *order;               /* interleaved (a round over all points a repeat), grouped, random */
    int64_t seed;                    /* of the random order */
    int64_t time_limit_ns;           /* a run; 0: none */
    int64_t hang_timeout_ns;         /* no answer from a worker */
    int64_t memory_sample_ns;        /* 0: at each step */
    int64_t ppl_chunks, ppl_context; /* quality pass on the point's first repeat, on the bundled text; 0: none */
    char ppl_text[DLAB_PARAM_STR];   /* "" : the bundled text */
} dlab_measure;

const dlab_param *dlab_workload_params(size_t *n);
const dlab_param *dlab_measure_params(size_t *n);

typedef struct {
    dlab_plan plan;
    dlab_workload workload;
    char model[DLAB_PARAM_STR];
    dlab_settings axes; /* swept keys and this point's values */
    char label[160];
    char skip[512]; /* why the combination cannot work, when the file alone tells; else "" */
} dlab_point;

typedef struct {
    char name[64], about[512];
    char covers[256]; /* requirement ids, "K1 K2" */
    dlab_measure measure;
    dlab_report_spec report;
    dlab_plot_spec plots[DLAB_PLOT_MAX];
    size_t n_plots;
    dlab_point *points;
    size_t n_points;
    dlab_yaml *yaml; /* owned; the verbatim text */
} dlab_spec;

/* sets: "KEY=VALUE" or "KEY=[a, b]" strings (as --set), applied over the file: plan, workload, measure keys and `model`.
 * A set key replaces the file's value, swept or not. default_model is used where the file names none. */
dlab_status dlab_spec_read(const char *path, const char *const *sets, size_t n_sets, const char *default_model,
                           dlab_spec **out, dlab_error *err);
dlab_status dlab_spec_parse(const char *name, const char *text, size_t n, const char *const *sets, size_t n_sets,
                            const char *default_model, dlab_spec **out, dlab_error *err);
void dlab_spec_destroy(dlab_spec *s);

/* dlab_plan_set for commands: a word that the design names but this version lacks is DLAB_ENOTBUILT, not unknown. */
dlab_status dlab_spec_plan_set(dlab_plan *plan, const char *assignment, dlab_error *err);

/* Markdown of every key with type, default, range and meaning: docs/experiments.md. malloc'd. */
dlab_status dlab_spec_docs(char **out, dlab_error *err);

#endif

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
    const char *kind;      /* batch (all at once), closed, open, trace */
    int64_t requests;      /* prompts (conversations, where they have turns); 0: as many as fill batch.size, or as the
                              duration or the file has */
    int64_t duration_ns;   /* closed, open, trace: nothing is sent after it; 0: bounded by requests alone */
    int64_t prompt;        /* tokens measured as prefill; 0 only with depth > 0 */
    const char *lengths;   /* of the prompts: fixed, spread, uniform, normal, lognormal, poisson, file */
    int64_t prompt_sd;     /* normal, lognormal: standard deviation of the lengths, whose mean is `prompt` */
    int64_t prompt_min;    /* uniform: the shortest; others but fixed and spread: shorter draws are drawn again */
    int64_t prompt_max;    /* uniform: the longest; others: longer draws are drawn again; 0: what the context holds */
    int64_t shared_prefix; /* the first so many tokens of the prompts of one group are the same */
    int64_t prefix_groups; /* so many different prefixes, ≥ 1 */
    double prefix_share;   /* share of the requests that begin with one: the hit rate of an ideal cache, by requests */
    int64_t samples;       /* answers to each prompt, from one prefill; ≥ 1 */
    int64_t output;        /* tokens of an answer; ≥ 1 */
    const char *outputs;   /* their lengths: fixed, uniform, normal, lognormal, poisson, file */
    int64_t output_sd, output_min, output_max;
    char lengths_file[DLAB_PARAM_STR]; /* a line a request: prompt and output tokens */
    int64_t depth;                     /* tokens already in the cache, prefilled once and not timed */
    bool ignore_eos;                   /* default true: exact output lengths */
    const char *prompts;               /* their content: ids (drawn), text, jsonl, sharegpt */
    char prompts_file[DLAB_PARAM_STR]; /* text: "" is the bundled corpus */
    int64_t concurrency;               /* closed: requests in flight */
    int64_t think_ns;                  /* closed, and between turns: from an answer's end to the next request */
    const char *think;                 /* fixed, exponential (with think_ns as its mean) */
    double rate, rate_end;             /* open: requests a second; a linear ramp to rate_end, 0: none */
    const char *arrivals;              /* open: poisson, gamma, constant */
    double burstiness;                 /* gamma: shape of the gaps; 1 is poisson, below it burstier */
    int64_t turns;                     /* of a conversation; 1: single requests */
    int64_t turn_prompt;               /* tokens that each later turn adds; 0: a draw like the first */
    char priorities[DLAB_PARAM_STR];   /* "PRIORITY:WEIGHT,…"; "": all 0 */
    char trace_file[DLAB_PARAM_STR];
    double trace_speed;   /* > 1: arrivals closer together */
    int64_t seed;         /* of the prompts' token ids … */
    int64_t seed_lengths; /* … of lengths, 0: as seed; … */
    int64_t seed_arrivals; /* … of arrivals, think times, groups and priorities, 0: as seed. Sampling has sample.seed */
} dlab_workload;

/* `measure:` — how. Not sweepable. */
typedef struct {
    int64_t repeats, warmup;  /* warmup: runs of the measured shape before each point's first repeat */
    const char *order;        /* interleaved (a round over all points a repeat), grouped, random */
    int64_t seed;             /* of the random order */
    int64_t time_limit_ns;    /* a run; 0: none */
    int64_t hang_timeout_ns;  /* no answer from a worker */
    int64_t memory_sample_ns; /* 0: at each step */
    int64_t slo_ttft_ns, slo_tpot_ns, slo_e2e_ns; /* objectives of goodput; 0: none */
    bool keep_cache;                              /* prefixes of the run before stay; default: each run starts cold */
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

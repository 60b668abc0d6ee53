#include <stddef.h>

#include "harness/spec/spec_parts.h"

#define NELEMS(a) (sizeof(a) / sizeof((a)[0]))

static const char *const *workload_kinds(void)
{
    static const char *const list[] = {"batch", "closed", "open", "trace", NULL};
    return list;
}

static const char *const *workload_lengths(void)
{
    static const char *const list[] = {"fixed", "spread", "uniform", "normal", "lognormal", "poisson", "file", NULL};
    return list;
}

static const char *const *workload_outputs(void)
{
    static const char *const list[] = {"fixed", "uniform", "normal", "lognormal", "poisson", "file", NULL};
    return list;
}

static const char *const *workload_prompts(void)
{
    static const char *const list[] = {"ids", "text", "jsonl", "sharegpt", NULL};
    return list;
}

static const char *const *workload_arrivals(void)
{
    static const char *const list[] = {"poisson", "gamma", "constant", NULL};
    return list;
}

static const char *const *workload_think_times(void)
{
    static const char *const list[] = {"fixed", "exponential", NULL};
    return list;
}

static const char *const *measure_orders(void)
{
    static const char *const list[] = {"interleaved", "grouped", "random", NULL};
    return list;
}

#define INT(s, k, f, d, lo, hi, h)                                                                                     \
    {                                                                                                                  \
        k, DLAB_PARAM_INT, offsetof(s, f), d, lo, hi, NULL, h                                                          \
    }
#define REAL(s, k, f, d, lo, hi, h)                                                                                    \
    {                                                                                                                  \
        k, DLAB_PARAM_FLOAT, offsetof(s, f), d, lo, hi, NULL, h                                                        \
    }
#define TEXT(s, k, f, h)                                                                                               \
    {                                                                                                                  \
        k, DLAB_PARAM_STRING, offsetof(s, f), "", 1, 0, NULL, h                                                        \
    }
#define BOOL(s, k, f, d, h)                                                                                            \
    {                                                                                                                  \
        k, DLAB_PARAM_BOOL, offsetof(s, f), d, 1, 0, NULL, h                                                           \
    }
#define CHOICE(s, k, f, d, c, h)                                                                                       \
    {                                                                                                                  \
        k, DLAB_PARAM_CHOICE, offsetof(s, f), d, 1, 0, c, h                                                            \
    }
#define TIME(s, k, f, d, h)                                                                                            \
    {                                                                                                                  \
        k, DLAB_PARAM_DURATION, offsetof(s, f), d, 0, 1e15, NULL, h                                                    \
    }

const dlab_param *dlab_workload_params(size_t *n)
{
    static const dlab_param table[] = {
        CHOICE(dlab_workload, "workload.kind", kind, "batch", workload_kinds,
               "how requests arrive; batch: all at once, when the clock starts; closed: workload.concurrency are in "
               "flight, the next is sent when one ends; open: workload.rate a second, whatever the target does; trace: "
               "at the times of workload.trace"),
        INT(dlab_workload, "workload.requests", requests, "0", 0, 1048576,
            "how many prompts a run serves, or conversations where workload.turns is above 1; 0: batch: as many as "
            "fill "
            "batch.size with their answers; others: as many as workload.duration or the file has"),
        TIME(dlab_workload, "workload.duration", duration_ns, "0s",
             "closed, open, trace: nothing is sent later than this, and what runs is let end; 0s: only "
             "workload.requests ends the run"),
        INT(dlab_workload, "workload.prompt", prompt, "128", 0, 1048576,
            "tokens of each prompt, computed while the clock runs; 0 needs workload.depth above 0"),
        CHOICE(dlab_workload, "workload.lengths", lengths, "fixed", workload_lengths,
               "of the prompts; fixed: all are workload.prompt; spread: evenly over [prompt/2, prompt], in a seeded "
               "order; uniform: drawn from [workload.prompt_min, workload.prompt_max]; normal, lognormal: drawn, with "
               "workload.prompt as their mean and workload.prompt_sd as their standard deviation, at least 1; poisson: "
               "drawn, with workload.prompt as their mean, at least 1; file: from workload.lengths_file"),
        INT(dlab_workload, "workload.prompt_sd", prompt_sd, "0", 0, 1048576,
            "normal, lognormal: standard deviation of the lengths themselves, not of their logarithm"),
        INT(dlab_workload, "workload.prompt_min", prompt_min, "0", 0, 1048576,
            "uniform: the shortest; normal, lognormal, poisson: a shorter draw is drawn again; 0: as 1"),
        INT(dlab_workload, "workload.prompt_max", prompt_max, "0", 0, 1048576,
            "uniform: the longest; normal, lognormal, poisson: a longer draw is drawn again; 0: only what the model's "
            "context cannot hold is"),
        INT(dlab_workload, "workload.shared_prefix", shared_prefix, "0", 0, 1048576,
            "the first so many tokens of every prompt are the same, as a system prompt is; every prompt must be "
            "longer"),
        INT(dlab_workload, "workload.prefix_groups", prefix_groups, "1", 1, 1048576,
            "so many different shared prefixes; which one a request has is drawn"),
        REAL(dlab_workload, "workload.prefix_share", prefix_share, "1", 0, 1,
             "share of the requests that begin with a shared prefix, spread evenly and exact to one request"),
        INT(dlab_workload, "workload.samples", samples, "1", 1, 4096,
            "answers to each prompt, which is computed once for all of them; each takes a place of batch.size"),
        INT(dlab_workload, "workload.output", output, "32", 1, 1048576, "tokens that each answer has"),
        CHOICE(dlab_workload, "workload.outputs", outputs, "fixed", workload_outputs,
               "lengths of the answers, drawn as workload.lengths are, from workload.output, workload.output_sd, "
               "workload.output_min, workload.output_max"),
        INT(dlab_workload, "workload.output_sd", output_sd, "0", 0, 1048576,
            "normal, lognormal: standard deviation of the answers' lengths"),
        INT(dlab_workload, "workload.output_min", output_min, "0", 0, 1048576,
            "uniform: the shortest answer; normal, lognormal, poisson: a shorter draw is drawn again; 0: as 1"),
        INT(dlab_workload, "workload.output_max", output_max, "0", 0, 1048576,
            "uniform: the longest answer; normal, lognormal, poisson: a longer draw is drawn again; 0: only what the "
            "model's context cannot hold is"),
        TEXT(dlab_workload, "workload.lengths_file", lengths_file,
             "a line a request: tokens of its prompt and of its answer, with a blank or a comma between; # begins a "
             "comment; used again from its start where there are more requests"),
        INT(dlab_workload, "workload.depth", depth, "0", 0, 1048576,
            "tokens that are already there when the clock starts; the cache is filled with them once, untimed"),
        BOOL(dlab_workload, "workload.ignore_eos", ignore_eos, "true",
             "go on past the end-of-text token, so that output lengths are exact"),
        CHOICE(dlab_workload, "workload.prompts", prompts, "ids", workload_prompts,
               "what the prompts say; ids: drawn token ids; text: pieces of workload.prompts_file; jsonl: its prompts; "
               "sharegpt: its conversations"),
        TEXT(dlab_workload, "workload.prompts_file", prompts_file,
             "text: any text, empty: the bundled corpus; jsonl: a line a prompt, {\"prompt\" or \"text\": …, "
             "\"output_length\": …}; sharegpt: ShareGPT's JSON"),
        INT(dlab_workload, "workload.concurrency", concurrency, "1", 1, 65536,
            "closed: requests, or conversations, in flight"),
        TIME(dlab_workload, "workload.think", think_ns, "0s",
             "closed, and between the turns of a conversation: time from an answer's end to the next request"),
        CHOICE(dlab_workload, "workload.think_times", think, "fixed", workload_think_times,
               "fixed: all are workload.think; exponential: drawn, with workload.think as their mean"),
        REAL(dlab_workload, "workload.rate", rate, "0", 0, 1e6,
             "open: requests a second, or conversations where workload.turns is above 1"),
        REAL(dlab_workload, "workload.rate_end", rate_end, "0", 0, 1e6,
             "open: the rate changes evenly from workload.rate to this one over workload.duration; 0: it does not "
             "change"),
        CHOICE(dlab_workload, "workload.arrivals", arrivals, "poisson", workload_arrivals,
               "open: gaps between requests; poisson: exponential; gamma: of the shape workload.burstiness; constant: "
               "all the same"),
        REAL(dlab_workload, "workload.burstiness", burstiness, "1", 0.01, 1000,
             "gamma: shape of the gaps, whose spread is 1/√burstiness of their mean; 1 is poisson, less comes in "
             "bursts"),
        INT(dlab_workload, "workload.turns", turns, "1", 1, 1024,
            "of a conversation: each turn's prompt is all turns before it with their answers, and some tokens more; "
            "sharegpt: at most so many of each conversation"),
        INT(dlab_workload, "workload.turn_prompt", turn_prompt, "0", 0, 1048576,
            "tokens that each later turn adds; 0: as many as a first turn would have"),
        TEXT(dlab_workload, "workload.priorities", priorities,
             "PRIORITY:WEIGHT, …: each request's priority is drawn from these; a higher one is served first by "
             "batch.policy priority; empty: all are 0"),
        TEXT(dlab_workload, "workload.trace", trace_file,
             "trace: a file in Mooncake's format, a line a request: {\"timestamp\": ms, \"input_length\": …, "
             "\"output_length\": …, \"hash_ids\": […]}"),
        REAL(dlab_workload, "workload.trace_speed", trace_speed, "1", 0.001, 1e6,
             "trace: times are divided by this; 2: requests come twice as fast as they did"),
        INT(dlab_workload, "workload.seed", seed, "1", 0, 9007199254740992.0,
            "of what the prompts say; same seed, same prompts"),
        INT(dlab_workload, "workload.seed_lengths", seed_lengths, "0", 0, 9007199254740992.0,
            "of the lengths; 0: as workload.seed"),
        INT(dlab_workload, "workload.seed_arrivals", seed_arrivals, "0", 0, 9007199254740992.0,
            "of arrivals, think times, prefix groups and priorities; 0: as workload.seed"),
    };
    *n = NELEMS(table);
    return table;
}

const dlab_param *dlab_measure_params(size_t *n)
{
    static const dlab_param table[] = {
        INT(dlab_measure, "measure.repeats", repeats, "5", 1, 10000, "measured runs of each point"),
        INT(dlab_measure, "measure.warmup", warmup, "1", 0, 100,
            "runs of the measured shape before each point's first repeat, thrown away; closed: workload.concurrency of "
            "its "
            "conversations, open and trace: as many as fill batch.size, sent at once"),
        CHOICE(dlab_measure, "measure.order", order, "interleaved", measure_orders,
               "interleaved: one round over all points a repeat, so that a machine that slows down harms all points "
               "alike; grouped: all repeats of a point together; random: shuffled by measure.seed"),
        INT(dlab_measure, "measure.seed", seed, "1", 0, 9007199254740992.0, "of the random order"),
        TIME(dlab_measure, "measure.time_limit", time_limit_ns, "0s",
             "a run ends after the step in progress at this time, status truncated; 0s: no limit"),
        TIME(dlab_measure, "measure.hang_timeout", hang_timeout_ns, "10min",
             "a worker that ends no step and gives no answer for so long is killed, status hung; a single step that "
             "takes longer "
             "counts as a hang, and 0s waits for ever"),
        TIME(dlab_measure, "measure.memory_sample", memory_sample_ns, "0s",
             "shortest time between two samples of memory; 0s: one at each step"),
        TIME(dlab_measure, "measure.slo_ttft", slo_ttft_ns, "0s",
             "goodput counts requests whose first token came within this; 0s: any"),
        TIME(dlab_measure, "measure.slo_tpot", slo_tpot_ns, "0s",
             "goodput counts requests whose later tokens took at most this each; 0s: any"),
        TIME(dlab_measure, "measure.slo_e2e", slo_e2e_ns, "0s",
             "goodput counts requests that ended within this; 0s: any"),
        BOOL(dlab_measure, "measure.keep_cache", keep_cache, "false",
             "cached prefixes stay from one run of a point to its next, but for those of its warm-up; otherwise each "
             "run "
             "starts with none"),
        INT(dlab_measure, "measure.ppl_chunks", ppl_chunks, "0", 0, 1000000,
            "pieces of text scored for perplexity on each point's first repeat; 0: no quality pass"),
        INT(dlab_measure, "measure.ppl_context", ppl_context, "512", 2, 1048576, "tokens of such a piece"),
        TEXT(dlab_measure, "measure.ppl_text", ppl_text, "path of the text to score; empty: the bundled corpus"),
    };
    *n = NELEMS(table);
    return table;
}

static const dlab_param model_param = {"model",
                                       DLAB_PARAM_STRING,
                                       offsetof(dlab_point, model),
                                       "",
                                       1,
                                       0,
                                       NULL,
                                       "path of a GGUF file, or synthetic:NAME for random weights of that shape"};

const dlab_spec_word *dlab_spec_words(size_t *n)
{
    static const dlab_spec_word table[] = {
        {"", "name", "word", "the file's name", "names the record and the plots: letters, digits, `.`, `_`, `-`"},
        {"", "about", "string", "", "one or two sentences for the reader of the report"},
        {"", "covers", "list of words", "", "ids of the requirements or claims that this experiment answers"},
        {"", "model", "string or list", "the bundled model",
         "path of a GGUF file, or `synthetic:NAME`; a list is swept"},
        {"", "plan", "map", "", "the engine's half: one choice an axis"},
        {"", "workload", "map", "", "what the engine is asked to do"},
        {"", "measure", "map", "", "how it is measured; never swept"},
        {"", "matrix", "word", "product",
         "`product`: every combination of the lists, the last list varying fastest; `zip`: all lists move together and "
         "must have the same length"},
        {"", "zip", "list of lists of keys", "",
         "groups of keys whose lists move together inside a product: `[[kv.k, kv.v]]`"},
        {"", "include", "list of maps", "",
         "points to add; a key that an entry does not name has the file's single value, or its default if the file "
         "sweeps it"},
        {"", "exclude", "list of maps", "",
         "points to drop: those that match all pairs of an entry; does not touch what `include` adds"},
        {"", "ladder", "list of maps", "", "changes applied one after another; a swept axis of its own, named ladder"},
        {"", "report", "map", "", "what the printed table shows"},
        {"", "plots", "list of maps", "", "pictures to draw"},
        {"ladder", "name", "word", "", "the step's name in tables; needed"},
        {"ladder", "set", "map", "", "keys and values that this step changes, on top of all steps before it"},
        {"report", "metrics", "list of metrics", "ttft, tpot, decode_tps, mem_peak", "the columns"},
        {"report", "baseline", "map", "",
         "axes and values; each point is compared with the one that differs in these alone"},
        {"report", "ratio", "metric", "tpot", "the metric of that comparison; above 1 is better than the baseline"},
        {"report", "growth", "map", "", "how a metric grows along a numeric axis, as an exponent, all else equal"},
        {"report", "claims", "list of maps", "", "what somebody says one should see, shown beside what was measured"},
        {"report.growth", "metric", "metric", "", "what grows"},
        {"report.growth", "over", "axis", "", "along which axis"},
        {"report.claims", "id", "word", "", "of the claim"},
        {"report.claims", "article", "word", "", "who says so"},
        {"report.claims", "at", "map", "", "the points it speaks of: axes and values"},
        {"report.claims", "growth", "number", "", "the exponent claimed"},
        {"report.claims", "ratio", "number", "", "the ratio to the baseline claimed"},
        {"report.claims", "text", "string", "", "the claim in words"},
        {"plots", "name", "word", "", "stem of the files"},
        {"plots", "template", "word", "lines", "`lines`, `bars`, or `stack`: the memory of one run over its time"},
        {"plots", "title", "string", "", "above the picture"},
        {"plots", "x", "axis", "",
         "lines: a numeric axis; bars: leave it out for a label made of the axes not in series"},
        {"plots", "y", "metric", "", "what is drawn (lines, bars)"},
        {"plots", "reference", "metric", "",
         "lines: a second metric of the same unit, such as a formula's, thin and dashed in the colours of the series"},
        {"plots", "series", "list of axes", "", "one line, or one colour of bars, for each combination of these"},
        {"plots", "at", "map", "", "stack: axes and values of the one point; its first run that counts is drawn"},
        {"plots", "only", "word", "", "stack: `kv` leaves weights and activations out"},
        {"plots", "logx", "bool", "false", "logarithmic x (lines)"},
        {"plots", "logy", "bool", "false", "logarithmic y (lines)"},
    };
    *n = NELEMS(table);
    return table;
}

const dlab_spec_reserved *dlab_spec_reserved_words(size_t *n)
{
    static const dlab_spec_reserved table[] = {
        {"device", {"cuda", "sim"}},
        {"weights.dtype", {"f32", "f16", "bf16", "int8", "fp8", "int4"}},
        {"compute", {"f16"}},
        {"attention.pattern", {"sink_window", "topk_pages"}},
        {"attention.key_rank", {NULL}},
        {"weights.keep", {NULL}},
        {"weights.outlier_threshold", {NULL}},
    };
    *n = NELEMS(table);
    return table;
}

const dlab_param *dlab_spec_find(const char *key, dlab_spec_table *table)
{
    size_t n;
    const dlab_param *rows = dlab_plan_params(&n);
    const dlab_param *p = dlab_param_find(rows, n, key);
    *table = DLAB_SPEC_PLAN;
    if (p) return p;
    rows = dlab_workload_params(&n);
    *table = DLAB_SPEC_WORKLOAD;
    if ((p = dlab_param_find(rows, n, key))) return p;
    rows = dlab_measure_params(&n);
    *table = DLAB_SPEC_MEASURE;
    if ((p = dlab_param_find(rows, n, key))) return p;
    *table = DLAB_SPEC_MODEL;
    return dlab_param_find(&model_param, 1, key);
}

void *dlab_spec_object(dlab_point *p, dlab_spec_table table)
{
    if (table == DLAB_SPEC_PLAN) return &p->plan;
    if (table == DLAB_SPEC_WORKLOAD) return &p->workload;
    return p;
}

/* The axes' keys: the one table from which YAML, --set, `dlab list` and docs/experiments.md come. */
#include <stdlib.h>
#include <string.h>

#include "engine/model/arch.h"
#include "engine/plan.h"

#define NAMES(fn, table)                                                                                               \
    extern const char *const table##_names[]; /* generated beside the table */                                         \
    static const char *const *fn(void) { return table##_names; }
NAMES(store_names, dlab_kv_stores)
NAMES(format_names, dlab_kv_formats)
NAMES(attention_names, dlab_attn_kernels)
NAMES(pattern_names, dlab_attn_patterns)
NAMES(batcher_names, dlab_batchers)
NAMES(policy_names, dlab_policies)
NAMES(device_names, dlab_devices)

#define WORDS(fn, ...)                                                                                                 \
    static const char *const *fn(void)                                                                                 \
    {                                                                                                                  \
        static const char *const words[] = {__VA_ARGS__, NULL};                                                        \
        return words;                                                                                                  \
    }
WORDS(growth_words, "fixed", "double")
WORDS(weights_words, "file")
WORDS(packed_words, "memory", "file")
WORDS(compute_words, "auto", "f32", "int8", "bf16")
WORDS(scales_words, "token", "tensor", "block", "channel")
WORDS(rotation_words, "none", "hadamard")
WORDS(padding_words, "compute", "skip")
WORDS(budget_words, "rows", "lengths")
WORDS(release_words, "streamed", "at_end")
WORDS(preemption_words, "recompute", "swap")
WORDS(isa_words, "auto", "plain", "avx2", "avxvnni", "avx512", "vnni", "bf16")

#define AT(field) offsetof(dlab_plan, field)
static const dlab_param PARAMS[] = {
    {"device", DLAB_PARAM_CHOICE, AT(device), "cpu", 1, 0, device_names,
     "where ops run; guard and ref are slow devices for tests: one that faults on undeclared access, and the oracle"},
    {"kv.store", DLAB_PARAM_CHOICE, AT(kv_store), "contiguous", 1, 0, store_names,
     "where K and V of past tokens live: one reserved region a sequence, blocks of a pool taken on demand, or nowhere "
     "(recomputed at every step)"},
    {"kv.growth", DLAB_PARAM_CHOICE, AT(kv_growth), "fixed", 1, 0, growth_words,
     "contiguous store: reserve the maximum at the start, or double on demand (one reallocation and copy, counted)"},
    {"kv.max_tokens", DLAB_PARAM_INT, AT(kv_max_tokens), "0", 0, 1 << 24, NULL,
     "tokens reserved for each sequence; 0: the longest that the workload needs, times kv.headroom"},
    {"kv.headroom", DLAB_PARAM_FLOAT, AT(kv_headroom), "1", 1, 64, NULL,
     "how much more than the longest sequence is reserved where kv.max_tokens is 0"},
    {"kv.block_size", DLAB_PARAM_INT, AT(kv_block_size), "16", 8, 256, NULL,
     "tokens of a block of the paged store, and of a group that shares scales (kv.k_scales: block or channel)"},
    {"kv.pool", DLAB_PARAM_STRING, AT(kv_pool), "auto", 1, 0, NULL,
     "size of the cache: bytes (512MiB), `N blocks` (paged store), or `P%` of memory_limit; auto: what the sequences "
     "of the batch need at their longest"},
    {"kv.prefix_cache", DLAB_PARAM_BOOL, AT(kv_prefix_cache), "false", 1, 0, NULL,
     "paged store: keep full blocks of ended sequences and share them with later ones that begin alike"},
    {"kv.k", DLAB_PARAM_CHOICE, AT(kv_k), "f16", 1, 0, format_names, "element format of cached keys"},
    {"kv.v", DLAB_PARAM_CHOICE, AT(kv_v), "f16", 1, 0, format_names, "element format of cached values"},
    {"kv.k_scales", DLAB_PARAM_CHOICE, AT(kv_k_scales), "token", 1, 0, scales_words,
     "quantized keys: what shares a scale: a token's vector of one head (int4: every 32 elements of it), all that a "
     "sequence brings in one step, a block of tokens of one head, or a block of tokens of one element"},
    {"kv.v_scales", DLAB_PARAM_CHOICE, AT(kv_v_scales), "token", 1, 0, scales_words,
     "the same for values, which have no channel"},
    {"kv.k_tail", DLAB_PARAM_INT, AT(kv_k_tail), "0", 0, 4096, NULL,
     "quantized keys: so many of the most recent tokens stay in f16"},
    {"kv.v_tail", DLAB_PARAM_INT, AT(kv_v_tail), "0", 0, 4096, NULL, "the same for values"},
    {"kv.rotation", DLAB_PARAM_CHOICE, AT(kv_rotation), "none", 1, 0, rotation_words,
     "rotate queries and keys before keys are stored: spreads outliers over the vector, products stay the same"},
    {"weights.dtype", DLAB_PARAM_CHOICE, AT(weights_dtype), "file", 1, 0, weights_words,
     "element type of weights in memory: as the file stores them"},
    {"weights.packed", DLAB_PARAM_CHOICE, AT(weights_packed), "memory", 1, 0, packed_words,
     "where weights lie as the device's products like them: packed at each start into memory of the process; or in a "
     "file of the cache folder (decodelab/packed, which may be deleted at any time), packed once, which processes map "
     "and share"},
    {"compute", DLAB_PARAM_CHOICE, AT(compute), "auto", 1, 0, compute_words,
     "arithmetic of the products: f32; int8 (activations quantized in blocks of 32 for integer dot products with "
     "quantized weights); bf16 (activations rounded to bf16, products with bf16 weights added in f32); auto: int8 when "
     "most weights are quantized, else f32"},
    {"attention.kernel", DLAB_PARAM_CHOICE, AT(attention_kernel), "fused", 1, 0, attention_names,
     "one pass with an online softmax, or three passes with the scores in memory"},
    {"attention.pattern", DLAB_PARAM_CHOICE, AT(attention_pattern), "dense", 1, 0, pattern_names,
     "which past positions are attended"},
    {"attention.window", DLAB_PARAM_INT, AT(attention_window), "1024", 1, 1 << 24, NULL,
     "local_strided: the last so many positions are all attended, the query's own included"},
    {"attention.stride", DLAB_PARAM_INT, AT(attention_stride), "8", 1, 1 << 24, NULL,
     "local_strided: of the positions before the window, one block in so many"},
    {"attention.block", DLAB_PARAM_INT, AT(attention_block), "1", 1, 1 << 16, NULL,
     "local_strided: tokens of such a block; 1: single tokens"},
    {"attention.sinks", DLAB_PARAM_INT, AT(attention_sinks), "4", 0, 1 << 24, NULL,
     "local_strided: the first so many positions are always attended"},
    {"batch.mode", DLAB_PARAM_CHOICE, AT(batch_mode), "continuous", 1, 0, batcher_names,
     "who runs in a step: continuous, requests leave and join at every step (B2); a static batch starts and is "
     "released together (B1)"},
    {"batch.size", DLAB_PARAM_INT, AT(batch_size), "1", 1, 4096, NULL, "sequences that run at once"},
    {"batch.policy", DLAB_PARAM_CHOICE, AT(batch_policy), "fcfs", 1, 0, policy_names,
     "which waiting request starts next: the one that came first; the one of the largest priority; those nearest in "
     "length to the one that has waited longest (B5). Who is next and does not fit is waited for"},
    {"batch.ageing", DLAB_PARAM_INT, AT(batch_ageing), "64", 1, 1 << 24, NULL,
     "policy priority: so many steps of waiting outweigh one level of priority, so that nobody waits for ever"},
    {"batch.interval_ms", DLAB_PARAM_FLOAT, AT(batch_interval_ms), "0", 0, 1e6, NULL,
     "waiting requests may start only at multiples of this time (B4); 0: at every step"},
    {"batch.padding", DLAB_PARAM_CHOICE, AT(batch_padding), "compute", 1, 0, padding_words,
     "static batch: rows that pad a shorter prompt or an ended request are computed, or skipped"},
    {"batch.release", DLAB_PARAM_CHOICE, AT(batch_release), "streamed", 1, 0, release_words,
     "static batch: tokens are handed over as they are produced, or all of them when the batch ends"},
    {"batch.budget", DLAB_PARAM_CHOICE, AT(batch_budget), "rows", 1, 0, budget_words,
     "what batch.token_budget bounds: the rows of a step; or, lengths, the sum of prompt and asked output tokens of "
     "all that run at once (B3)"},
    {"batch.token_budget", DLAB_PARAM_INT, AT(batch_token_budget), "0", 0, 1 << 24, NULL,
     "budget rows: rows of one step at most; 0: 2048 (no bound without a cache, which cannot split a prefix). Budget "
     "lengths: the sum of lengths at most; 0: 8192"},
    {"batch.chunk", DLAB_PARAM_INT, AT(batch_chunk), "0", 0, 1 << 24, NULL,
     "rows of one sequence in one step of prefill at most; 0: 512 (no bound without a cache)"},
    {"batch.preemption", DLAB_PARAM_CHOICE, AT(batch_preemption), "recompute", 1, 0, preemption_words,
     "what becomes of the newest sequence when the cache is full: it is computed again later, or copied out and back"},
    {"kv.swap", DLAB_PARAM_SIZE, AT(kv_swap_bytes), "0", 0, 1e15, NULL,
     "preemption swap: bytes that copied-out sequences may take, in pieces of kv.block_size tokens; 0: as many as the "
     "cache. What does not fit is computed again. On a CPU it is the same memory as the cache (scratch)"},
    {"sample.temperature", DLAB_PARAM_FLOAT, AT(temperature), "0", 0, 100, NULL, "0: greedy"},
    {"sample.top_k", DLAB_PARAM_INT, AT(top_k), "0", 0, 1 << 24, NULL, "keep the k most likely tokens; 0: all"},
    {"sample.top_p", DLAB_PARAM_FLOAT, AT(top_p), "1", 0, 1, NULL,
     "keep the most likely tokens that together reach this probability"},
    {"sample.seed", DLAB_PARAM_INT, AT(sample_seed), "1", 0, 9007199254740992.0, NULL, "seed of the draws"},
    {"threads", DLAB_PARAM_INT, AT(threads), "0", 0, 1024, NULL,
     "threads of the engine; 0: every core that we may use"},
    {"isa", DLAB_PARAM_CHOICE, AT(isa), "auto", 1, 0, isa_words,
     "instruction set of the CPU's kernels; auto: the best that this CPU has"},
    {"memory_limit", DLAB_PARAM_SIZE, AT(memory_limit_bytes), "0", 0, 1e15, NULL,
     "bytes that all pools together may take (weights, kv, activations, scratch); 0: no limit"},
};

const dlab_param *dlab_plan_params(size_t *n)
{
    *n = sizeof PARAMS / sizeof *PARAMS;
    return PARAMS;
}

void dlab_plan_default(dlab_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    dlab_param_defaults(PARAMS, sizeof PARAMS / sizeof *PARAMS, plan);
}

dlab_status dlab_plan_set(dlab_plan *plan, const char *assignment, dlab_error *err)
{
    char key[64];
    const char *eq = strchr(assignment, '=');
    if (!eq || eq == assignment || (size_t)(eq - assignment) >= sizeof key) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "'%s': expected KEY=VALUE, such as kv.k=f32", assignment);
    }
    memcpy(key, assignment, (size_t)(eq - assignment));
    key[eq - assignment] = 0;
    const dlab_param *p = dlab_param_find(PARAMS, sizeof PARAMS / sizeof *PARAMS, key);
    if (p) return dlab_param_set(p, plan, eq + 1, err);
    const char *keys[sizeof PARAMS / sizeof *PARAMS + 1] = {0};
    for (size_t i = 0; i < sizeof PARAMS / sizeof *PARAMS; i++) keys[i] = PARAMS[i].key;
    const char *near = dlab_nearest(key, keys);
    return DLAB_FAIL(err, DLAB_EUSAGE, "'%s' is not a key of the plan%s%s%s (`dlab list` has them)", key,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const char *const *dlab_engine_isas(void) { return dlab_isa_list; }
bool dlab_engine_isa_supported(const char *isa) { return dlab_isa_supported(isa); }
const char *dlab_engine_isa_best(void) { return dlab_isa_best(); }

#define ENTRIES(axis_name, table)                                                                                      \
    for (size_t i = 0; (table)[i]; i++, n++) {                                                                         \
        if (n < cap) out[n] = (dlab_axis_entry){axis_name, (table)[i]->name, (table)[i]->summary};                     \
    }

size_t dlab_axis_entries(dlab_axis_entry *out, size_t cap)
{
    size_t n = 0;
    ENTRIES("device", dlab_devices)
    ENTRIES("kv.store", dlab_kv_stores)
    ENTRIES("kv.k, kv.v", dlab_kv_formats)
    ENTRIES("attention.kernel", dlab_attn_kernels)
    ENTRIES("attention.pattern", dlab_attn_patterns)
    ENTRIES("batch.mode", dlab_batchers)
    ENTRIES("batch.policy", dlab_policies)
    ENTRIES("architecture", dlab_archs)
    return n;
}

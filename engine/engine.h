/* The engine: turns token rows into logits, step by step. The only header of this folder that others include.
 * It does not know that it is being measured: it reports counts, and whoever drives it has the clock. */
#ifndef DLAB_ENGINE_ENGINE_H
#define DLAB_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/status.h"
#include "kernels/peak.h"

/* ---- plan: one choice an axis -------------------------------------------------------------------------------------- */

typedef struct {
    const char *device;
    const char *kv_store, *kv_k, *kv_v, *kv_growth;
    const char *kv_k_scales, *kv_v_scales, *kv_rotation;
    int64_t kv_k_tail, kv_v_tail; /* tokens */
    int64_t kv_max_tokens, kv_block_size;
    double kv_headroom;
    char kv_pool[DLAB_PARAM_STR]; /* "auto"; "N blocks"; bytes; "P%" of memory_limit. Effective: bytes */
    bool kv_prefix_cache;
    const char *weights_dtype;
    const char *weights_packed;
    const char *compute;
    const char *attention_kernel, *attention_pattern;
    int64_t attention_window, attention_stride, attention_block, attention_sinks;
    const char *batch_mode, *batch_padding, *batch_policy, *batch_budget, *batch_release, *batch_preemption;
    int64_t batch_size, batch_token_budget, batch_chunk, batch_ageing;
    double batch_interval_ms; /* the engine has no clock: whoever drives it opens its gate at each tick */
    int64_t kv_swap_bytes;    /* batch.preemption: swap; 0: as much as the pool. Effective: bytes */
    double temperature, top_p;
    int64_t top_k, sample_seed;
    int64_t threads;
    const char *isa;
    int64_t memory_limit_bytes;
} dlab_plan;

/* The axes' table: key, type, default, choices, help. */
const dlab_param *dlab_plan_params(size_t *n);
void dlab_plan_default(dlab_plan *plan);
/* "KEY=VALUE", as --set takes it. */
dlab_status dlab_plan_set(dlab_plan *plan, const char *assignment, dlab_error *err);

/* The CPU's instruction sets that kernels are compiled for, from least to most; NULL-terminated. And whether this CPU has
 * one, and the best that it has. */
const char *const *dlab_engine_isas(void);
bool dlab_engine_isa_supported(const char *isa);
const char *dlab_engine_isa_best(void);

/* One named entry of an axis, for `dlab list`. */
typedef struct {
    const char *axis, *name, *summary;
} dlab_axis_entry;
/* All entries of all axes that have files of their own (stores, formats, kernels, batchers, devices, architectures): fills
 * out up to cap and returns how many there are. */
size_t dlab_axis_entries(dlab_axis_entry *out, size_t cap);

/* ---- model --------------------------------------------------------------------------------------------------------- */

typedef struct dlab_model dlab_model;

typedef struct {
    const char *arch; /* "llama" */
    const char *name; /* general.name, or the file's stem, or "synthetic:…" */
    const char *type; /* the type of most weight bytes: "Q4_1"; mixed files say "Q4_1 (mixed)" */
    int32_t n_layers, n_heads, n_kv_heads, head_dim, width, ffn, vocab, context;
    float eps, rope_base;
    bool tied_head, synthetic;
    int64_t n_params;
    int64_t weight_bytes;      /* as stored; a tied head once */
    int64_t step_weight_bytes; /* what one step of one row reads: without the embedding table unless it is the head */
    uint64_t hash;             /* xxHash3 of the file's head, or a synthetic model's name, and of all weights */
} dlab_model_info;

/* spec: a path to a GGUF v3 file, or "synthetic:NAME" (random weights of fixed seed; `dlab list` has the names).
 * Errors: DLAB_EIO, DLAB_EFORMAT (with the offset), DLAB_ENOTBUILT (another architecture or element type, named). */
dlab_status dlab_model_open(const char *spec, dlab_model **out, dlab_error *err);
void dlab_model_close(dlab_model *m);
const dlab_model_info *dlab_model_get_info(const dlab_model *m);
/* The model's own chat template (a Jinja text), NULL: it has none, or one of over 64 KiB or with a zero byte inside. */
const char *dlab_model_chat_template(const dlab_model *m);
/* Names that "synthetic:" takes, NULL-terminated. */
extern const char *const dlab_synthetic_names[];

/* ---- tokenizer ----------------------------------------------------------------------------------------------------- */

typedef struct dlab_tokenizer dlab_tokenizer;

/* From the model's own vocabulary. A synthetic model has a byte tokenizer (ids 0–255). DLAB_ENOTBUILT names a
 * pre-tokenizer or a model that has no row in the table. */
dlab_status dlab_tokenizer_create(const dlab_model *m, dlab_tokenizer **out, dlab_error *err);
void dlab_tokenizer_destroy(dlab_tokenizer *t);
/* text: n bytes of any content (bytes that are not UTF-8 are encoded byte by byte). *ids is malloc'd. `special`: control
 * tokens written in the text become their ids; otherwise they stay text. BOS is added if the model asks for it and
 * add_bos. */
dlab_status dlab_tokenizer_encode(const dlab_tokenizer *t, const char *text, size_t n, bool special, bool add_bos,
                                  int32_t **ids, size_t *n_ids, dlab_error *err);
/* *text is malloc'd and NUL-terminated past n. The text of several ids is that of each, one after the other. Ids out of
 * range are DLAB_EUSAGE. */
dlab_status dlab_tokenizer_decode(const dlab_tokenizer *t, const int32_t *ids, size_t n_ids, char **text, size_t *n,
                                  dlab_error *err);
int32_t dlab_tokenizer_eos(const dlab_tokenizer *t); /* −1: none */
int32_t dlab_tokenizer_bos(const dlab_tokenizer *t);
bool dlab_tokenizer_adds_bos(const dlab_tokenizer *t);
int32_t dlab_tokenizer_vocab(const dlab_tokenizer *t);
/* Whether an id of the vocabulary is a control token: it steers the model and is no text. */
bool dlab_tokenizer_is_control(const dlab_tokenizer *t, int32_t id);
/* Whether an id stands for text: no control token, none that is unused, none behind the tokenizer's own. */
bool dlab_tokenizer_is_text(const dlab_tokenizer *t, int32_t id);

/* ---- engine -------------------------------------------------------------------------------------------------------- */

typedef struct dlab_engine dlab_engine;

/* What the workload will need; sizes every buffer, so that no step allocates. */
typedef struct {
    int64_t max_seqs;   /* sequences alive at once */
    int64_t max_tokens; /* positions of the longest sequence: prompt and output together, less the last token produced,
                           which is never fed back */
    int64_t max_prompt; /* longest prompt (rows that a step may have to take at once) */
    int64_t max_logits; /* rows of one step that may want logits; 0: max_seqs */
    bool own_sampling;  /* requests may bring temperature, top_k and top_p of their own */
} dlab_engine_needs;

/* The plan as an engine would use it: no "auto" left, sizes as used. DLAB_EIMPOSSIBLE says why it cannot work. */
dlab_status dlab_engine_effective(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                                  dlab_plan *out, dlab_error *err);
/* Checks the plan as dlab_engine_effective does; DLAB_EOOM says what was asked and what was left. The model is borrowed. */
dlab_status dlab_engine_create(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                               dlab_engine **out, dlab_error *err);
void dlab_engine_destroy(dlab_engine *e);
/* Effective values: no "auto" left, sizes as used. */
const dlab_plan *dlab_engine_plan(const dlab_engine *e);
/* Tokens that a request's prompt and output (max_new) may come to together: what the needs, the whole pool (kv.pool) and
 * batch.budget: lengths allow one that is alone, without a primed prefix, of one sample. dlab_engine_submit takes what is no
 * longer. */
int64_t dlab_engine_longest(const dlab_engine *e);
void dlab_engine_memory(const dlab_engine *e, dlab_mem_stats *out);
void dlab_engine_reset_peaks(dlab_engine *e);

/* pool = reserved + cached + free, at any time. Tails count with their sequence. */
typedef struct {
    int64_t pool_bytes;     /* the store's own size */
    int64_t reserved_bytes; /* assigned to live sequences; what several share counts once */
    int64_t used_bytes;     /* of these, those that hold live tokens */
    int64_t cached_bytes;   /* assigned to no sequence, kept as prefixes that later ones may share */
    int64_t free_bytes;     /* neither */
    int64_t
        unusable_bytes; /* of free_bytes, what can never be given to a sequence: alignment, the block for padding rows,
                               reservations that are short of one more sequence */
    int64_t shared_bytes; /* saved by sharing: what reserved_bytes would be more if nothing were shared */
    /* since creation */
    int64_t n_growths, growth_ns; /* reallocations of the store and the time they took */
    int64_t n_evictions,
        n_copies; /* blocks taken from cached prefixes; shared blocks copied because one was to be written */
    /* tokens of the prompts of admitted requests with the prefix cache on, and those of them that were found in it; what a
     * preempted sequence finds again is not counted */
    int64_t asked_tokens, hit_tokens;
} dlab_kv_stats;
void dlab_engine_kv(const dlab_engine *e, dlab_kv_stats *out);

/* -- requests: the batcher decides -- */

typedef struct {
    int64_t id;
    const int32_t *prompt; /* n_prompt ≥ 1 ids, copied */
    int64_t n_prompt;
    int64_t max_new;   /* ≥ 1 */
    int32_t eos;       /* stops the request when produced; −1: never */
    uint64_t seed;     /* for sampling: token i of a request depends on (seed, i) alone; sample j has seed + j */
    int32_t primed;    /* handle of dlab_engine_prime, or −1 */
    int32_t samples;   /* answers to the one prompt, which is computed once; 0: 1. They are reported as requests id …
                        id + samples − 1, and take so many places of the batch */
    int32_t priority;  /* batch.policy: priority; larger goes first */
    bool own_sampling; /* the next three instead of the plan's; needs.own_sampling must be set */
    float temperature, top_p; /* 0: greedy; 0: the most likely alone, 1: all */
    int32_t top_k;            /* 0: all */
} dlab_engine_request;

typedef enum { DLAB_FINISH_NONE, DLAB_FINISH_LENGTH, DLAB_FINISH_EOS } dlab_finish;

typedef struct {
    int64_t request;
    int32_t token, index; /* index 0 is the first produced */
    dlab_finish finish;   /* not NONE on the last token */
} dlab_step_token;

typedef struct {
    int32_t n_tokens, n_admitted;
    const dlab_step_token *tokens; /* owned by the engine until the next step. With batch.release at_end all tokens of a
                                      batch come in the step that ends it, in the order in which they were made */
    const int64_t *admitted;       /* ids of requests admitted in this step */
    const int64_t
        *admitted_cached; /* tokens of each one's prompt that it need not compute: found in the prefix cache; of
                                      every sample but the first the whole prompt, which the first computes */
    int32_t rows, prefill_rows, decode_rows, pad_rows; /* rows = prefill + decode + pad. Rows that lead to a request's
                                                          first token are prefill, later ones (recomputed too) decode */
    int32_t seqs;                                      /* live sequences: of requests that have not ended */
    int32_t slots;                                     /* batch.size */
    int32_t budget;                                    /* batch.token_budget if the plan set one of rows, else 0 */
    int64_t launches;
    double bytes, kv_bytes, flops;      /* declared by the ops */
    double int8_flops, bf16_flops;      /* those of them that multiply int8 with int8, bf16 with bf16 */
    double kv_dense_bytes, inter_bytes; /* dlab_op_cost */
    int32_t preempted;               /* sequences that gave their place back in this step, to be computed again … */
    int32_t swapped_out, swapped_in; /* … or those of them that were copied out, and those copied back */
    int64_t swap_bytes;              /* copied both ways */
    int32_t pad_skipped;             /* batch.padding: skip: rows that padding would have taken; not in rows */
    int32_t waiting;                 /* requests queued (each of several samples), when the step began */
    int32_t growths;                 /* of the store, in this step */
    int32_t nonfinite_rows;          /* rows, padding left out, in which NaN or infinity came up (K9) */
    dlab_kv_stats kv;                /* what the step held, before ended requests leave */
} dlab_step;

/* Queues a request. DLAB_EIMPOSSIBLE when it can never fit, by context, reservation or the store's whole pool, with the
 * arithmetic. */
dlab_status dlab_engine_submit(dlab_engine *e, const dlab_engine_request *r, dlab_error *err);
bool dlab_engine_busy(const dlab_engine *e); /* requests queued or running */
/* Drops the request of this id with all its samples, queued or running, and gives its places back at once: no step hands over
 * any more of it, and the id may be used again. false: there is none, it has ended or never was. It has ended when all tokens
 * of all its samples were handed over: with batch.release at_end not before the step that ends its batch. Not between two
 * tokens of one step: between steps. */
bool dlab_engine_abort(dlab_engine *e, int64_t id);
/* While the gate is closed no queued request starts (batch.interval_ms, B4). Open at first. */
void dlab_engine_gate(dlab_engine *e, bool open);
typedef struct {
    int64_t waiting, running; /* requests, each sample one: queued; admitted and not ended (those preempted too) */
} dlab_engine_load;
void dlab_engine_get_load(const dlab_engine *e, dlab_engine_load *out);
/* Runs one step and waits for it. With nothing to run (no request, or a closed gate and nobody running) *out has no rows. */
dlab_status dlab_engine_step(dlab_engine *e, dlab_step *out, dlab_error *err);
/* Drops all requests, queued and running. Unless keep_cache, cached prefixes go too, and a grown store has its first size
 * again (or what primed sequences need). Primed sequences stay. Opens the gate. */
void dlab_engine_cancel(dlab_engine *e, bool keep_cache);

/* Fills the cache with a prefix once; requests that name the handle go on behind it, and when they end (or are
 * cancelled) the sequence is rewound to the prefix. A store that retains nothing keeps the ids and recomputes them. */
dlab_status dlab_engine_prime(dlab_engine *e, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err);
void dlab_engine_unprime(dlab_engine *e); /* releases all of them */

/* -- one text at a time, for quality and tests -- */

/* Runs ids [n] as one sequence through the plan's store, chunked as the plan says. For the last n_last positions: nll [n_last]
 * gets −log p(ids[p+1] | ids[0…p]) (0 for the very last, which has no successor), top1 [n_last] the most likely next id,
 * and logits [n_last, vocab], each only if not NULL. n_last ≤ n. Needs an idle engine. */
dlab_status dlab_engine_score(dlab_engine *e, const int32_t *ids, int64_t n, int64_t n_last, double *nll, int32_t *top1,
                              float *logits, dlab_error *err);

/* ---- peaks of a device: what it does in a second when it does nothing else ------------------------------------------- */

typedef struct dlab_prober dlab_prober;

/* isa "auto" is the best there is. The device and its threads live as long as the prober. */
dlab_status dlab_prober_create(const char *device, int threads, const char *isa, dlab_prober **out, dlab_error *err);
void dlab_prober_destroy(dlab_prober *p);
/* Bytes read, or operations (two a multiply-add) in a second: the best of the tries. DLAB_ENOTBUILT: the device has no probes. */
dlab_status dlab_prober_measure(dlab_prober *p, const dlab_peak *what, double *per_second, dlab_error *err);

/* ---- planner ------------------------------------------------------------------------------------------------------- */

/* K4: 2 · layers · kv_heads · head_dim · tokens · batch · bytes, with K and V's own formats; exact integers. */
typedef struct {
    int64_t k_bytes, v_bytes, total_bytes;
    int64_t bytes_per_token; /* of one sequence, all layers */
} dlab_kv_need;
/* format: a name of kv.k; quantized ones with a scale a token and head. DLAB_EUSAGE if unknown or the product overflows. */
dlab_status dlab_kv_plan(const char *k_format, const char *v_format, int64_t n_layers, int64_t n_kv_heads,
                         int64_t head_dim, int64_t tokens, int64_t batch, dlab_kv_need *out, dlab_error *err);
/* K4 for a plan: bytes of one token of one sequence with the plan's formats and scales (a mean where tokens share them).
 * DLAB_EIMPOSSIBLE as for dlab_engine_effective. */
dlab_status dlab_kv_plan_token_bytes(const dlab_plan *plan, const dlab_model_info *m, double *out, dlab_error *err);
/* What dlab_engine_create would allocate, by pool, without allocating. */
dlab_status dlab_engine_estimate(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                                 size_t bytes[DLAB_POOL_N], dlab_error *err);

#endif

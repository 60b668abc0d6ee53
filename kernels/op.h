/* Every op that a device computes: arguments, shapes, operands, cost.
 *
 * Letters: R rows of the step, D model width, F feed-forward width, H query heads, G KV heads, d head dim, V vocabulary,
 * K inputs and N outputs of a product, T tokens of a sequence. Activations are row-major, rows without gaps, and f32
 * but for the inputs of products, which may be quantized.
 * An op names buffers of the device and byte offsets in them; it never holds a host pointer. What varies from step to
 * step (tokens, positions, lengths, places in the cache) is read from the step descriptor, a buffer in device memory.
 *
 * Three implementations take the same arguments: kernels/ref (the oracle, plain and in double), kernels/cpu, and later
 * kernels/cuda and kernels/sim. Tolerances against ref are stated at each op: `tol` bounds |got − want| by
 * tol · (|want| + scale of the operands), as the op's test spells out. */
#ifndef DLAB_KERNELS_OP_H
#define DLAB_KERNELS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

/* A piece of device memory. `ptr` is an address on a CPU; hosts must not follow it (the guard device makes that fault). */
typedef struct {
    void *ptr;
    size_t bytes;
} dlab_buf;

/* A view of a buffer from a byte offset on. */
typedef struct {
    dlab_buf buf;
    size_t off;
} dlab_at;

/* ---- the step descriptor ----------------------------------------------------------------------------------------
 * One buffer: this head, then the arrays, at the byte offsets that the head gives. Rows of one sequence are contiguous
 * and in order of position. Segments of a sequence follow each other and cover its tokens 0 … len−1 in order. */
typedef struct {
    int32_t n_rows, n_seqs, n_segs, n_logits;
    uint32_t row_off, seq_off, seg_off, logit_off; /* to dlab_desc_row[n_rows], … , dlab_desc_logit[n_logits] */
} dlab_desc_head;

typedef struct {
    int64_t k_slot, v_slot;  /* the regions (below) that K and V of KV head 0 go to, bytes from the layer's base;
                                −1: write nothing (both or none) */
    int32_t token, pos, seq; /* seq: index among the step's sequences */
    int32_t index;           /* the token's place in its region, counted in tokens */
} dlab_desc_row;

typedef struct {
    int32_t row_begin, n_rows, seg_begin, n_segs;
    int32_t len; /* tokens that the store holds once this step's rows are written; a row at pos sees tokens 0 … pos */
    int32_t tail_slot; /* which of the tails (below) is this sequence's */
    /* Tokens below `sealed` are in their regions, the others in the tail; this step moves tokens sealed_from … sealed − 1
     * there. Where a plane has no tail both are len. All rows of a step see the cache as it is after this step's writes. */
    int32_t k_sealed_from, k_sealed, v_sealed_from, v_sealed;
} dlab_desc_seq;

typedef struct {
    int64_t k_off, v_off; /* bytes from the layer's base to the region of KV head 0; its first token is tok_begin */
    int32_t tok_begin, n_tok;
} dlab_desc_seg;

typedef struct {
    int32_t row;              /* which row's logits are wanted */
    int32_t target;           /* token to score, or −1 */
    uint64_t draw;            /* the random number that sampling uses for this row (see sample) … */
    float temperature, top_p; /* … and how it is drawn: each row for itself */
    int32_t top_k;
    int32_t unused; /* 0: the entries stay aligned to 8 bytes without a gap */
} dlab_desc_logit;

#define DLAB_DESC_ARRAY(desc, type, field) ((const type *)((const char *)(desc) + (desc)->field))
static inline const dlab_desc_row *dlab_desc_rows(const dlab_desc_head *d)
{
    return DLAB_DESC_ARRAY(d, dlab_desc_row, row_off);
}
static inline const dlab_desc_seq *dlab_desc_seqs(const dlab_desc_head *d)
{
    return DLAB_DESC_ARRAY(d, dlab_desc_seq, seq_off);
}
static inline const dlab_desc_seg *dlab_desc_segs(const dlab_desc_head *d)
{
    return DLAB_DESC_ARRAY(d, dlab_desc_seg, seg_off);
}
static inline const dlab_desc_logit *dlab_desc_logits(const dlab_desc_head *d)
{
    return DLAB_DESC_ARRAY(d, dlab_desc_logit, logit_off);
}

/* ---- weights and the cache, as ops see them ---------------------------------------------------------------------- */

/* A matrix [N, K]: N rows of K elements in blocks of dtype, as stored in the model file; or, with a layout other than 0, the
 * same blocks in the order that a device's products like best (dlab_device_ops.pack), of which only that device knows. */
typedef struct {
    dlab_at at;
    dlab_dtype dtype;
    int32_t n, k;
    int32_t layout;
    size_t packed_bytes; /* layout other than 0: the whole matrix */
} dlab_matrix;

/* Which values share a scale and a zero point. */
typedef enum {
    DLAB_SCALES_NONE,   /* F32, F16, BF16: the elements are the values */
    DLAB_SCALES_TOKEN,  /* a token's vector of one head; of U4 every 32 elements of it */
    DLAB_SCALES_STEP,   /* all that one sequence brings in one step, all its heads: "the tensor" of an article's code */
    DLAB_SCALES_BLOCK,  /* `group` tokens of one head, which are sealed together */
    DLAB_SCALES_CHANNEL /* `group` tokens of one element of one head, which are sealed together */
} dlab_kv_scales;

/* One layer's keys, or its values, in a store. A region holds some tokens of one head: their elements, then their scales.
 * Token i of a region of KV head g, whose region for head 0 lies at `off` (a slot, or a segment's offset):
 *   elements: base + off + g·head_stride + i·token_stride: head_dim of dtype (a U4 vector is padded to whole blocks, with 0)
 *   scales:   base + off + g·head_stride + meta_off + 4·(first + n): u32, whose upper 24 bits, with the lower 8 put to 0,
 *             are those of an f32 scale ≥ 0, and whose lower 8 are the zero point;
 *             TOKEN, STEP: first = i·b, n = 0 … b − 1 for the vector's blocks of 32 (b = 1 but for U4)
 *             BLOCK:       first = i / group, n = 0
 *             CHANNEL:     first = (i / group)·head_dim, n = the element
 *   value:    (q − zero)·scale for U8 and U4, element·scale for E4M3 and E5M2 (zero 0), else the element.
 * The most recent tokens may be in a tail instead, a ring in f16: the token at position p of the sequence with tail_slot s
 *   tail + s·tail_seq_stride + g·tail_head_stride + (p mod tail_cap)·head_dim·2.
 *
 * Quantizing, in f32, rounding half to even, so that every device writes the same bytes. Over the finite values that share
 * a scale: lo = min(0, least), hi = max(0, largest); n = 255 (U8) or 15 (U4); step = hi/n − lo/n. scale = step with its
 * lower 8 bits rounded up to the next multiple of 256 units; a step under 2⁻¹²⁶ gives scale 0, zero 0, q 0 (all values
 * read as 0). zero = clamp(round(−lo·(1/scale)), 0, n), q = clamp(round(x·(1/scale)) + zero, 0, n); an infinity goes to
 * the end of its sign, NaN to zero. So |value − x| ≤ scale/2 · (1 + 2⁻¹⁴) for finite x, and 0 stays 0.
 * E4M3, E5M2: a = largest |finite value|, step = a / largest of the type, scale as above, element = to_fp8(x·(1/scale)):
 * |value − x| ≤ max(|x|·2⁻⁴, scale·2⁻¹⁰) or max(|x|·2⁻³, scale·2⁻¹⁷), each · (1 + 2⁻¹⁴). */
typedef struct {
    dlab_at base; /* off: the layer's base */
    size_t bytes; /* of the layer from base on: nothing outside is touched */
    dlab_dtype dtype;
    dlab_kv_scales scales;
    int32_t group; /* tokens: BLOCK, CHANNEL; else 1. Regions hold whole groups */
    int64_t head_stride, token_stride, meta_off;
    dlab_at tail; /* off: the layer's tails; tail_cap 0: there is none */
    size_t tail_bytes;
    int64_t tail_seq_stride, tail_head_stride;
    int32_t tail_cap; /* tokens */
} dlab_kv_plane;

/* b above: scales of a token's vector where tokens do not share them. */
static inline int64_t dlab_kv_vector_scales(const dlab_kv_plane *p, int64_t head_dim)
{
    const int64_t block = dlab_dtype_block(DLAB_U4);
    return p->dtype == DLAB_U4 ? (head_dim + block - 1) / block : 1;
}

typedef struct {
    dlab_kv_plane k, v;
    int32_t n_kv_heads, head_dim;
} dlab_kv_view;

/* ---- which tokens attention visits ---- */

/* Tokens begin, begin + step, …: count of them. */
typedef struct {
    int32_t begin, count, step; /* step ≥ 1 */
} dlab_span;

/* For each row, and for each KV head if heads > 1, a list of spans: ascending, without overlap, none beyond the row's pos.
 * At `at`: int32 first[R · heads + 1], then the spans; list l = row · heads + head is spans first[l] … first[l + 1] − 1.
 * at.buf.ptr NULL: dense, every row visits tokens 0 … pos. */
typedef struct {
    dlab_at at;
    int32_t heads; /* 1, or G */
} dlab_span_table;

/* What a product's inputs [R, K] are:
 *   F32: as all activations.
 *   INT8: for integer products, K / 32 blocks a row: f32 scale, f32 scale·Σq, then int8 q[32] (40 bytes a block).
 *     q = round(x/scale), scale = amax/127; q is never −128. K % 32 == 0.
 *   BF16: rounded to nearest even, NaN stays NaN; an odd K is filled up with a zero, so that rows are whole pairs. */
typedef enum { DLAB_ACT_F32, DLAB_ACT_INT8, DLAB_ACT_BF16 } dlab_act;

#define DLAB_QACT_BLOCK 32
typedef struct {
    float scale, scale_sum;
    int8_t q[DLAB_QACT_BLOCK];
} dlab_qact_block;

/* Numbers of a row of bf16. */
static inline int64_t dlab_bf16_row(int64_t k) { return k + k % 2; }

static inline size_t dlab_act_bytes(dlab_act act, int64_t rows, int64_t k)
{
    if (act == DLAB_ACT_INT8) return (size_t)rows * (size_t)(k / DLAB_QACT_BLOCK) * sizeof(dlab_qact_block);
    if (act == DLAB_ACT_BF16) return (size_t)rows * (size_t)dlab_bf16_row(k) * sizeof(uint16_t);
    return (size_t)rows * (size_t)k * sizeof(float);
}

/* Whether there are products of such inputs with weights of this type. */
static inline bool dlab_act_fits(dlab_act act, dlab_dtype weights)
{
    if (act == DLAB_ACT_F32) return true;
    return act == DLAB_ACT_BF16 ? weights == DLAB_BF16 : dlab_dtype_block(weights) > 1;
}

/* Splits of attention over the length of a sequence: fixed, so that results do not depend on threads or neighbours. */
#define DLAB_ATTN_PIECE      256
#define DLAB_ATTN_SPLIT_ROWS 64 /* steps of at most so many rows spread the pieces over the team */

/* Bytes of attn_fused's partials for steps of at most max_rows rows and sequences of at most max_len tokens. */
static inline size_t dlab_attn_partials_bytes(int64_t max_rows, int64_t n_heads, int64_t head_dim, int64_t max_len)
{
    int64_t rows = max_rows < DLAB_ATTN_SPLIT_ROWS ? max_rows : DLAB_ATTN_SPLIT_ROWS;
    int64_t pieces = (max_len + DLAB_ATTN_PIECE - 1) / DLAB_ATTN_PIECE;
    return (size_t)(rows * n_heads * pieces * (head_dim + 2)) * sizeof(float);
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

/* out [R, D] = rows of table, by the descriptor's tokens. Exact up to the rounding of the element's conversion. */
typedef struct {
    dlab_matrix table; /* [V, D] */
    dlab_at desc, out;
    int32_t n_rows;
} dlab_embed_args;

/* y [R, dim] = x / sqrt(mean(x²) + eps) · w (w f32 [dim]). x and y may be the same. tol 2e-6.
 * watch i32 [R], unless its buf.ptr is NULL: 1 where the mean square of the row is not a finite number (NaN or infinity
 * came up in it; K9), else 0 with watch_first, else left as it is.
 * Source: Zhang and Sennrich 2019, eq. 4. */
typedef struct {
    dlab_at x, w, y, watch;
    int32_t n_rows, dim;
    float eps;
    bool watch_first;
} dlab_rmsnorm_args;

/* y = x f32 [R, K] as inputs of products, `to` INT8 or BF16. Exactly as the oracle's rounding (INT8: half away from zero). */
typedef struct {
    dlab_at x, y;
    int32_t n_rows, k;
    dlab_act to;
} dlab_quant_act_args;

/* y [R, N] = x · wᵀ, or y += with `accumulate`. x [R, K] is what `input` says, and w of a type that fits it (dlab_act_fits).
 * Each (row, output) is accumulated in an order that depends on K alone, so that it is bit-equal whatever the other rows.
 * tol 1e-5 · Σ|x·w|. With BF16 input a device may further take subnormal factors and subnormal sums as zeros, which adds
 * Σ|x·w| over the inputs where x or w is subnormal, and K · 2⁻¹²⁶. A NaN or infinity in x always shows in y as NaN or
 * infinity. */
typedef struct {
    dlab_at x, y;
    dlab_matrix w;
    int32_t n_rows;
    dlab_act input;
    bool accumulate;
} dlab_matmul_args;

/* Rotates x [R, heads, d] in place by the descriptor's positions. table: f32 [T, d_rot/2, 2] cos, sin by position.
 * Pairs (2i, 2i+1) when `norm`, else (i, i + d_rot/2). tol 2e-6. Source: Su et al. 2021 (RoFormer) §3.2.2; GGUF's llama
 * weights are permuted for the first form. */
typedef struct {
    dlab_at x, table, desc;
    int32_t n_rows, n_heads, head_dim, rot_dim;
    bool norm;
} dlab_rope_args;

/* Multiplies each head's vector of x [R, heads, d] in place by the orthonormal Walsh–Hadamard matrix of the largest power of
 * two that divides d, block by block. Done to queries and keys alike it leaves their products as they are and spreads
 * outliers over the vector before it is quantized. tol 2e-6 · ‖vector‖. Source: Ashkboos et al. 2024 (QuaRot) §4. */
typedef struct {
    dlab_at x;
    int32_t n_rows, n_heads, head_dim;
} dlab_hadamard_args;

/* Writes k and v [R, G, d] f32 into the store, in the store's formats: byte for byte as described at dlab_kv_plane. Rows with
 * slot −1: nothing. A plane without a tail: to each row's slot. A plane with one: tokens sealed_from … sealed − 1 of each
 * sequence into their regions, from this step's rows or from the tail; then the rows at sealed … into the tail.
 * work: f32 [n_seqs, 2, 2] of scratch (STEP only; its buf.ptr may be NULL otherwise). */
typedef struct {
    dlab_at k, v, desc, work;
    dlab_kv_view kv;
    int32_t n_rows;
} dlab_kv_write_args;

/* out [R, H, d] = softmax(q·Kᵀ·scale) · V over the tokens of 0 … pos of each row's sequence that `spans` has. One pass,
 * online softmax, by pieces of DLAB_ATTN_PIECE positions merged in order (a piece in which a row visits nothing is left
 * out of its merge). With few rows (R ≤ DLAB_ATTN_SPLIT_ROWS) the pieces are work of their own and
 * meet in partials, f32 scratch [R, H, n_pieces, d + 2] with n_pieces = ceil(max_len / PIECE); with more rows one task
 * walks a row's pieces in order, with the same arithmetic, and partials is not touched. H % G == 0; query head h reads KV head h / (H/G). tol 2e-5.
 * Source: Milakov and Gimelshein 2018 (online softmax); Dao et al. 2022, alg. 1. */
typedef struct {
    dlab_at q, out, desc, partials;
    dlab_kv_view kv;
    dlab_span_table spans;
    int32_t n_rows, n_heads, max_len;
    float scale;
} dlab_attn_fused_args;

/* The same in three ops with the scores in memory: scores f32 [H, R, max_len], of the visited tokens in order, the i-th at i.
 * attn_scores: scores = q·Kᵀ·scale for the visited tokens.  softmax: in place, over those; the rest is not touched.
 * attn_values: out = scores · V. q/out are used by the first and the last only. tol 2e-5. */
typedef struct {
    dlab_at q, out, desc, scores;
    dlab_kv_view kv;
    dlab_span_table spans;
    int32_t n_rows, n_heads, max_len;
    float scale;
} dlab_attn_unfused_args;

/* out [R, F] = silu(gate) · up; out may be gate or up. tol 3e-6 (exp is ours). Source: Shazeer 2020, eq. 6. */
typedef struct {
    dlab_at gate, up, out;
    int32_t n_rows, dim;
} dlab_swiglu_args;

/* out [n_logits, D] = the descriptor's logit rows first … first + n_logits − 1 of x [R, D]. Exact. */
typedef struct {
    dlab_at x, out, desc;
    int32_t first, n_logits, dim;
} dlab_gather_args;

/* tokens[first + i] (int32) for logits [n_logits, V] of logit rows first …, each by its own temperature, top_k and top_p:
 *   temperature 0: the largest logit, the lowest id on a tie. Otherwise logits/temperature; keep the top_k largest (0: all);
 *   softmax; keep the shortest head of the sorted list whose sum reaches top_p (at least one); draw with
 *   u = (draw >> 11)·2⁻⁵³ from the cumulative sum in that order (descending, ties by id). Sums in double.
 * A row's token depends on nothing of the other rows. work: per row V · 8 bytes of scratch, if `draws`: where it is not set,
 * every temperature is 0 and there need be none. NaN logits: token −1, which the engine reports as an error. */
typedef struct {
    dlab_at logits, tokens, desc, work;
    int32_t first, n_logits, vocab;
    bool draws;
} dlab_sample_args;

/* nll[first + i] (f64, nats) = −log softmax(logits)[target] of the descriptor's logit row first + i; 0 where target is −1.
 * top1[first + i] (int32): the id of the largest logit. Sums in double. tol 1e-12 relative to the oracle. */
typedef struct {
    dlab_at logits, nll, top1, desc;
    int32_t first, n_logits, vocab;
} dlab_score_args;

/* name, args type */
#define DLAB_OP_LIST(X)                                                                                                \
    X(embed, dlab_embed_args)                                                                                          \
    X(rmsnorm, dlab_rmsnorm_args)                                                                                      \
    X(quant_act, dlab_quant_act_args)                                                                                  \
    X(matmul, dlab_matmul_args)                                                                                        \
    X(rope, dlab_rope_args)                                                                                            \
    X(hadamard, dlab_hadamard_args)                                                                                    \
    X(kv_write, dlab_kv_write_args)                                                                                    \
    X(attn_fused, dlab_attn_fused_args)                                                                                \
    X(attn_scores, dlab_attn_unfused_args)                                                                             \
    X(attn_softmax, dlab_attn_unfused_args)                                                                            \
    X(attn_values, dlab_attn_unfused_args)                                                                             \
    X(swiglu, dlab_swiglu_args)                                                                                        \
    X(gather, dlab_gather_args)                                                                                        \
    X(sample, dlab_sample_args)                                                                                        \
    X(score, dlab_score_args)

typedef enum {
#define DLAB_OP_ENUM(name, args) DLAB_OP_##name,
    DLAB_OP_LIST(DLAB_OP_ENUM)
#undef DLAB_OP_ENUM
        DLAB_OP_N
} dlab_op;

typedef union {
#define DLAB_OP_MEMBER(name, args) args name;
    DLAB_OP_LIST(DLAB_OP_MEMBER)
#undef DLAB_OP_MEMBER
} dlab_op_args;

/* ANYWHERE: which part of the range is told by numbers in device memory. */
typedef enum { DLAB_READ = 1, DLAB_WRITE = 2, DLAB_ANYWHERE = 4 } dlab_access;

/* What an op touches: a range of a buffer and how. */
typedef struct {
    dlab_at at;
    size_t bytes;
    int access; /* dlab_access bits */
} dlab_operand;
#define DLAB_MAX_OPERANDS 9

/* bytes_read and bytes_written: what must cross the memory bus once (weights once an op, activations, the visited part of
 * the cache with its scales); flops: two a multiply-add; int8_flops, bf16_flops: those of them whose factors are both
 * int8, or both bf16. kv_bytes: the part of bytes_read that comes from the cache; kv_dense_bytes: what that would be if
 * every row visited all tokens 0 … pos. inter_bytes: what attention writes and reads back of its own intermediate results: scores
 * and probabilities (part of bytes_*), or the pieces' partial results (not part of them: they stay in a cache). */
typedef struct {
    double bytes_read, bytes_written, kv_bytes, kv_dense_bytes, inter_bytes, flops, int8_flops, bf16_flops;
} dlab_op_cost;

const char *dlab_op_name(dlab_op op);
size_t dlab_op_args_size(dlab_op op);
/* Fills out[DLAB_MAX_OPERANDS], returns how many. Ranges lie inside their buffers, or the op is a bug: the devices check. */
int dlab_op_operands(dlab_op op, const void *args, dlab_operand *out);
/* DLAB_EINTERNAL names the op and the operand whose range leaves its buffer; devices call it before they run an op. */
dlab_status dlab_op_check(dlab_op op, const void *args, dlab_error *err);
/* Both at once: the operands go to out[DLAB_MAX_OPERANDS], how many to *n. */
dlab_status dlab_op_check_operands(dlab_op op, const void *args, dlab_operand *out, int *n, dlab_error *err);
/* `desc` is the host's copy of the descriptor that the op will see. Adds to *out. */
void dlab_op_add_cost(dlab_op op, const void *args, const dlab_desc_head *desc, dlab_op_cost *out);

#endif

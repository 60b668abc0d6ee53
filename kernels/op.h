/* Every op that a device computes: arguments, shapes, operands, cost.
 *
 * Letters: R rows of the step, D model width, F feed-forward width, H query heads, G KV heads, d head dim, V vocabulary,
 * K inputs and N outputs of a product, T tokens of a sequence. All activations are f32, row-major, rows without gaps.
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
    int64_t k_slot, v_slot;  /* where K and V of KV head 0 go, bytes from the layer's base; −1: write nothing */
    int32_t token, pos, seq; /* seq: index among the step's sequences */
    int32_t unused;
} dlab_desc_row;

typedef struct {
    int32_t row_begin, n_rows, seg_begin, n_segs;
    int32_t len; /* tokens that the store holds once this step's rows are written; a row at pos sees tokens 0 … pos */
    int32_t unused;
} dlab_desc_seq;

typedef struct {
    int64_t k_off, v_off; /* bytes from the layer's base to the first token, KV head 0 */
    int32_t tok_begin, n_tok;
} dlab_desc_seg;

typedef struct {
    int32_t row;    /* which row's logits are wanted */
    int32_t target; /* token to score, or −1 */
    uint64_t draw;  /* the random number that sampling uses for this row (see sample) */
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

/* A matrix [N, K] as stored in the model file: N rows of K elements in blocks of dtype. */
typedef struct {
    dlab_at at;
    dlab_dtype dtype;
    int32_t n, k;
} dlab_matrix;

/* One layer's K and V in a store. Within a segment, token t of KV head g starts at
 *   base + seg.k_off + g·k_head_stride + t·k_token_stride   (bytes; V likewise).  Elements of dtype k and v, d of them. */
typedef struct {
    dlab_at k, v; /* off: the layer's base */
    dlab_dtype k_dtype, v_dtype;
    int64_t k_head_stride, v_head_stride, k_token_stride, v_token_stride;
    int32_t n_kv_heads, head_dim;
} dlab_kv_view;

/* Activations quantized for integer products: [R] rows of, for each block of 32 inputs, f32 scale, f32 scale·Σq, then
 * int8 q[32] (40 bytes a block). q = round(x/scale), scale = amax/127; q is never −128. K % 32 == 0. */
#define DLAB_QACT_BLOCK 32
typedef struct {
    float scale, scale_sum;
    int8_t q[DLAB_QACT_BLOCK];
} dlab_qact_block;

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
 * Source: Zhang and Sennrich 2019, eq. 4. */
typedef struct {
    dlab_at x, w, y;
    int32_t n_rows, dim;
    float eps;
} dlab_rmsnorm_args;

/* y = quantized x [R, K] (layout: dlab_qact_block). Exactly as the oracle's rounding (half away from zero). */
typedef struct {
    dlab_at x, y;
    int32_t n_rows, k;
} dlab_quant_act_args;

/* y [R, N] = x · wᵀ, or y += with `accumulate`. x is f32 [R, K], or dlab_qact_block rows when `quantized` (w then Q8_0,
 * Q4_0 or Q4_1). Each (row, output) is accumulated in an order that depends on K alone, so that it is bit-equal whatever
 * the other rows. tol 1e-5 · Σ|x·w|. */
typedef struct {
    dlab_at x, y;
    dlab_matrix w;
    int32_t n_rows;
    bool quantized, accumulate;
} dlab_matmul_args;

/* Rotates x [R, heads, d] in place by the descriptor's positions. table: f32 [T, d_rot/2, 2] cos, sin by position.
 * Pairs (2i, 2i+1) when `norm`, else (i, i + d_rot/2). tol 2e-6. Source: Su et al. 2021 (RoFormer) §3.2.2; GGUF's llama
 * weights are permuted for the first form. */
typedef struct {
    dlab_at x, table, desc;
    int32_t n_rows, n_heads, head_dim, rot_dim;
    bool norm;
} dlab_rope_args;

/* Writes k and v [R, G, d] f32 into the store at each row's slots, in the store's formats. Rows with slot −1: nothing. */
typedef struct {
    dlab_at k, v, desc;
    dlab_kv_view kv;
    int32_t n_rows;
} dlab_kv_write_args;

/* out [R, H, d] = softmax(q·Kᵀ·scale) · V over tokens 0 … pos of each row's sequence. One pass, online softmax, by pieces
 * of DLAB_ATTN_PIECE tokens merged in order. With few rows (R ≤ DLAB_ATTN_SPLIT_ROWS) the pieces are work of their own and
 * meet in partials, f32 scratch [R, H, n_pieces, d + 2] with n_pieces = ceil(max_len / PIECE); with more rows one task
 * walks a row's pieces in order, with the same arithmetic, and partials is not touched. H % G == 0; query head h reads KV head h / (H/G). tol 2e-5.
 * Source: Milakov and Gimelshein 2018 (online softmax); Dao et al. 2022, alg. 1. */
typedef struct {
    dlab_at q, out, desc, partials;
    dlab_kv_view kv;
    int32_t n_rows, n_heads, max_len;
    float scale;
} dlab_attn_fused_args;

/* The same in three ops with the scores in memory: scores f32 [H, R, max_len].
 * attn_scores: scores = q·Kᵀ·scale for tokens 0 … pos.  softmax: in place, over those tokens; the rest is not touched.
 * attn_values: out = scores · V. q/out are used by the first and the last only. tol 2e-5. */
typedef struct {
    dlab_at q, out, desc, scores;
    dlab_kv_view kv;
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

/* tokens[first + i] (int32) for logits [n_logits, V] of logit rows first …:
 *   temperature 0: the largest logit, the lowest id on a tie. Otherwise logits/temperature; keep the top_k largest (0: all);
 *   softmax; keep the shortest head of the sorted list whose sum reaches top_p (at least one); draw with
 *   u = (draw >> 11)·2⁻⁵³ from the cumulative sum in that order (descending, ties by id). Sums in double.
 * work: per row V · 8 bytes of scratch. NaN logits: token −1, which the engine reports as an error. */
typedef struct {
    dlab_at logits, tokens, desc, work;
    int32_t first, n_logits, vocab, top_k;
    float temperature, top_p;
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

typedef enum { DLAB_READ = 1, DLAB_WRITE = 2 } dlab_access;

/* What an op touches: a range of a buffer and how. */
typedef struct {
    dlab_at at;
    size_t bytes;
    int access; /* dlab_access bits */
} dlab_operand;
#define DLAB_MAX_OPERANDS 6

/* bytes_read and bytes_written: what must cross the memory bus once (weights once an op, activations, the visited part of
 * the cache); flops: two a multiply-add. kv_bytes: the part of bytes_read that comes from the cache. */
typedef struct {
    double bytes_read, bytes_written, kv_bytes, flops;
} dlab_op_cost;

const char *dlab_op_name(dlab_op op);
size_t dlab_op_args_size(dlab_op op);
/* Fills out[DLAB_MAX_OPERANDS], returns how many. Ranges lie inside their buffers, or the op is a bug: the devices check. */
int dlab_op_operands(dlab_op op, const void *args, dlab_operand *out);
/* DLAB_EINTERNAL names the op and the operand whose range leaves its buffer; devices call it before they run an op. */
dlab_status dlab_op_check(dlab_op op, const void *args, dlab_error *err);
/* `desc` is the host's copy of the descriptor that the op will see. Adds to *out. */
void dlab_op_add_cost(dlab_op op, const void *args, const dlab_desc_head *desc, dlab_op_cost *out);

#endif

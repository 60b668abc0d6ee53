/* What each op must move and do. Conventions: the descriptor and scratch (partials, sampling's list) are not counted; a
 * weight is read once an op, whatever the rows; an exponential, a root or a division is one flop; softmax's own
 * arithmetic is left out of both forms of attention, so that fused and unfused declare the same flops. */
#include "kernels/op.h"

typedef struct {
    double visited; /* Σ over rows of pos + 1: tokens that the rows attend to */
    double cached;  /* Σ over sequences of the largest pos + 1: tokens that must be read once */
} attended;

/* Rows of one sequence are contiguous; padding rows may stand before real ones of a lower position. */
static attended count_attended(const dlab_desc_head *desc, int32_t n_rows)
{
    const dlab_desc_row *rows = dlab_desc_rows(desc);
    attended a = {0, 0};
    double furthest = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        const double tokens = (double)rows[r].pos + 1;
        a.visited += tokens;
        if (tokens > furthest) furthest = tokens;
        if (r + 1 < n_rows && rows[r + 1].seq == rows[r].seq) continue;
        a.cached += furthest;
        furthest = 0;
    }
    return a;
}

static double token_bytes(const dlab_kv_view *kv, dlab_dtype dtype)
{
    return (double)kv->n_kv_heads * (double)dlab_dtype_bytes(dtype, kv->head_dim);
}

static void attention_cost(dlab_op op, const dlab_kv_view *kv, double n_rows, double n_heads, attended t,
                           dlab_op_cost *c)
{
    const double d = kv->head_dim, q = 4 * n_rows * n_heads * d, scores = 4 * n_heads * t.visited;
    double kv_bytes = 0;
    switch (op) {
    case DLAB_OP_attn_fused: /* q, K and V in; out: 4 d flops a token and query head (q·k and p·v) */
        kv_bytes = t.cached * (token_bytes(kv, kv->k_dtype) + token_bytes(kv, kv->v_dtype));
        c->bytes_read += q;
        c->bytes_written += q;
        c->flops += 4 * d * n_heads * t.visited;
        break;
    case DLAB_OP_attn_scores: /* q and K in, scores out: 2 d flops a token and query head */
        kv_bytes = t.cached * token_bytes(kv, kv->k_dtype);
        c->bytes_read += q;
        c->bytes_written += scores;
        c->flops += 2 * d * n_heads * t.visited;
        break;
    case DLAB_OP_attn_softmax: /* scores in and out */
        c->bytes_read += scores;
        c->bytes_written += scores;
        break;
    default: /* attn_values: scores and V in, out: 2 d flops a token and query head */
        kv_bytes = t.cached * token_bytes(kv, kv->v_dtype);
        c->bytes_read += scores;
        c->bytes_written += q;
        c->flops += 2 * d * n_heads * t.visited;
        break;
    }
    c->bytes_read += kv_bytes;
    c->kv_bytes += kv_bytes;
}

/* R·K f32 in, or K/32 blocks of 40 bytes; N·K weights once; R·N f32 out (in too with accumulate): 2·R·N·K flops. */
static void matmul_cost(const dlab_matmul_args *a, dlab_op_cost *c)
{
    const double r = a->n_rows, k = a->w.k, n = a->w.n;
    c->bytes_read += a->quantized ? r * (k / DLAB_QACT_BLOCK) * sizeof(dlab_qact_block) : 4 * r * k;
    c->bytes_read += n * (double)dlab_dtype_bytes(a->w.dtype, a->w.k);
    if (a->accumulate) c->bytes_read += 4 * r * n;
    c->bytes_written += 4 * r * n;
    c->flops += 2 * r * n * k;
}

/* Rows with a place in the store: f32 in, the store's format out. */
static void kv_write_cost(const dlab_kv_write_args *a, const dlab_desc_head *desc, dlab_op_cost *c)
{
    const dlab_desc_row *rows = dlab_desc_rows(desc);
    const double f32_bytes = 4.0 * a->kv.n_kv_heads * a->kv.head_dim;
    for (int32_t r = 0; r < a->n_rows; r++) {
        if (rows[r].k_slot >= 0) {
            c->bytes_read += f32_bytes;
            c->bytes_written += token_bytes(&a->kv, a->kv.k_dtype);
        }
        if (rows[r].v_slot >= 0) {
            c->bytes_read += f32_bytes;
            c->bytes_written += token_bytes(&a->kv, a->kv.v_dtype);
        }
    }
}

static void row_cost(dlab_op op, const dlab_op_args *u, dlab_op_cost *c)
{
    switch (op) {
    case DLAB_OP_embed: { /* R table rows in, R·D f32 out */
        const dlab_embed_args *a = &u->embed;
        c->bytes_read += (double)a->n_rows * (double)dlab_dtype_bytes(a->table.dtype, a->table.k);
        c->bytes_written += 4.0 * a->n_rows * a->table.k;
        break;
    }
    case DLAB_OP_rmsnorm: { /* R·D and w in, R·D out: square, add, scale, weigh */
        const double n = (double)u->rmsnorm.n_rows * u->rmsnorm.dim;
        c->bytes_read += 4 * (n + u->rmsnorm.dim);
        c->bytes_written += 4 * n;
        c->flops += 4 * n;
        break;
    }
    case DLAB_OP_quant_act: { /* R·K f32 in, 40 bytes a block of 32 out: compare, divide, add */
        const double n = (double)u->quant_act.n_rows * u->quant_act.k;
        c->bytes_read += 4 * n;
        c->bytes_written += n / DLAB_QACT_BLOCK * sizeof(dlab_qact_block);
        c->flops += 3 * n;
        break;
    }
    case DLAB_OP_rope: { /* the rotated part in and out, a table row a row: 6 flops a pair */
        const dlab_rope_args *a = &u->rope;
        const double n = (double)a->n_rows * a->n_heads * a->rot_dim;
        c->bytes_read += 4 * (n + (double)a->n_rows * a->rot_dim);
        c->bytes_written += 4 * n;
        c->flops += 3 * n;
        break;
    }
    default: { /* swiglu: gate and up in, R·F out: exponential, add, divide, multiply */
        const double n = (double)u->swiglu.n_rows * u->swiglu.dim;
        c->bytes_read += 8 * n;
        c->bytes_written += 4 * n;
        c->flops += 4 * n;
        break;
    }
    }
}

static void logit_cost(dlab_op op, const dlab_op_args *u, dlab_op_cost *c)
{
    if (op == DLAB_OP_gather) { /* n·D in and out */
        const double n = (double)u->gather.n_logits * u->gather.dim;
        c->bytes_read += 4 * n;
        c->bytes_written += 4 * n;
    } else if (op ==
               DLAB_OP_sample) { /* n·V in, n ids out: compare; with a temperature also divide, exponential, add */
        const double n = (double)u->sample.n_logits * u->sample.vocab;
        c->bytes_read += 4 * n;
        c->bytes_written += 4.0 * u->sample.n_logits;
        c->flops += u->sample.temperature != 0 ? 4 * n : n;
    } else { /* score: n·V in, n figures and ids out: compare, subtract, exponential, add */
        const double n = (double)u->score.n_logits * u->score.vocab;
        c->bytes_read += 4 * n;
        c->bytes_written += 12.0 * u->score.n_logits;
        c->flops += 4 * n;
    }
}

void dlab_op_add_cost(dlab_op op, const void *args, const dlab_desc_head *desc, dlab_op_cost *out)
{
    switch (op) {
    case DLAB_OP_matmul:
        matmul_cost(args, out);
        break;
    case DLAB_OP_kv_write:
        kv_write_cost(args, desc, out);
        break;
    case DLAB_OP_attn_fused: {
        const dlab_attn_fused_args *a = args;
        attention_cost(op, &a->kv, a->n_rows, a->n_heads, count_attended(desc, a->n_rows), out);
        break;
    }
    case DLAB_OP_attn_scores:
    case DLAB_OP_attn_softmax:
    case DLAB_OP_attn_values: {
        const dlab_attn_unfused_args *a = args;
        attention_cost(op, &a->kv, a->n_rows, a->n_heads, count_attended(desc, a->n_rows), out);
        break;
    }
    case DLAB_OP_gather:
    case DLAB_OP_sample:
    case DLAB_OP_score:
        logit_cost(op, args, out);
        break;
    default:
        row_cost(op, args, out);
        break;
    }
}

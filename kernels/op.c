#include "kernels/op.h"

#include <assert.h>

#define F32_BYTES sizeof(float)

const char *dlab_op_name(dlab_op op)
{
    static const char *const names[DLAB_OP_N] = {
#define NAME(name, args) [DLAB_OP_##name] = #name,
        DLAB_OP_LIST(NAME)
#undef NAME
    };
    return (unsigned)op < DLAB_OP_N ? names[op] : "unknown";
}

size_t dlab_op_args_size(dlab_op op)
{
    static const size_t sizes[DLAB_OP_N] = {
#define SIZE(name, args) [DLAB_OP_##name] = sizeof(args),
        DLAB_OP_LIST(SIZE)
#undef SIZE
    };
    return (unsigned)op < DLAB_OP_N ? sizes[op] : 0;
}

/* ---- operands ------------------------------------------------------------------------------------------------------- */

typedef struct {
    dlab_operand *v;
    int n;
} operand_list;

/* One range that an op both reads and writes (in place) is one operand. */
static void touch(operand_list *l, dlab_at at, size_t bytes, int access)
{
    for (int i = 0; i < l->n; i++) {
        dlab_operand *o = &l->v[i];
        if (o->at.buf.ptr != at.buf.ptr || o->at.off != at.off || o->bytes != bytes) continue;
        o->access |= access;
        return;
    }
    assert(l->n < DLAB_MAX_OPERANDS);
    l->v[l->n++] = (dlab_operand){.at = at, .bytes = bytes, .access = access};
}

/* What an op reaches by numbers in device memory (positions, slots) may be anywhere in the rest of the buffer. */
static void touch_rest(operand_list *l, dlab_at at, int access)
{
    touch(l, at, at.off < at.buf.bytes ? at.buf.bytes - at.off : 0, access | DLAB_ANYWHERE);
}

/* Spans of dense attention and scratch that no scale needs are not there: no operands. */
static void touch_rest_if_there(operand_list *l, dlab_at at, int access)
{
    if (at.buf.ptr) touch_rest(l, at, access);
}

/* One layer's keys or values: nothing beyond the layer, so that another layer's bytes are closed to the op. */
static void touch_plane(operand_list *l, const dlab_kv_plane *p, int access, int tail_access)
{
    touch(l, p->base, p->bytes, access);
    if (p->tail_cap > 0) touch(l, p->tail, p->tail_bytes, tail_access);
}

static size_t floats(int64_t a, int64_t b) { return (size_t)a * (size_t)b * F32_BYTES; }

static size_t row_bytes(const dlab_matrix *m) { return dlab_dtype_bytes(m->dtype, m->k); }

static size_t matrix_bytes(const dlab_matrix *m) { return m->layout ? m->packed_bytes : (size_t)m->n * row_bytes(m); }

static dlab_at skip(dlab_at at, int64_t elements, size_t size)
{
    at.off += (size_t)elements * size;
    return at;
}

static void fused_operands(const dlab_attn_fused_args *a, operand_list *l)
{
    const size_t q = floats((int64_t)a->n_rows * a->n_heads, a->kv.head_dim);
    const int64_t pieces = ((int64_t)a->max_len + DLAB_ATTN_PIECE - 1) / DLAB_ATTN_PIECE;
    touch(l, a->q, q, DLAB_READ);
    touch_rest(l, a->desc, DLAB_READ);
    touch_rest_if_there(l, a->spans.at, DLAB_READ);
    touch_plane(l, &a->kv.k, DLAB_READ, DLAB_READ);
    touch_plane(l, &a->kv.v, DLAB_READ, DLAB_READ);
    if (a->n_rows <= DLAB_ATTN_SPLIT_ROWS) {
        touch(l, a->partials, floats((int64_t)a->n_rows * a->n_heads * pieces, a->kv.head_dim + 2),
              DLAB_READ | DLAB_WRITE);
    }
    touch(l, a->out, q, DLAB_WRITE);
}

static void unfused_operands(dlab_op op, const dlab_attn_unfused_args *a, operand_list *l)
{
    const size_t q = floats((int64_t)a->n_rows * a->n_heads, a->kv.head_dim);
    const size_t scores = floats((int64_t)a->n_heads * a->n_rows, a->max_len);
    touch_rest(l, a->desc, DLAB_READ);
    touch_rest_if_there(l, a->spans.at, DLAB_READ);
    if (op == DLAB_OP_attn_scores) {
        touch(l, a->q, q, DLAB_READ);
        touch_plane(l, &a->kv.k, DLAB_READ, DLAB_READ);
        touch(l, a->scores, scores, DLAB_WRITE);
    } else if (op == DLAB_OP_attn_softmax) {
        touch(l, a->scores, scores, DLAB_READ | DLAB_WRITE);
    } else {
        touch(l, a->scores, scores, DLAB_READ);
        touch_plane(l, &a->kv.v, DLAB_READ, DLAB_READ);
        touch(l, a->out, q, DLAB_WRITE);
    }
}

static void kv_write_operands(const dlab_kv_write_args *a, operand_list *l)
{
    const size_t bytes = floats((int64_t)a->n_rows * a->kv.n_kv_heads, a->kv.head_dim);
    touch(l, a->k, bytes, DLAB_READ);
    touch(l, a->v, bytes, DLAB_READ);
    touch_rest(l, a->desc, DLAB_READ);
    touch_rest_if_there(l, a->work, DLAB_READ | DLAB_WRITE);
    touch_plane(l, &a->kv.k, DLAB_WRITE, DLAB_READ | DLAB_WRITE);
    touch_plane(l, &a->kv.v, DLAB_WRITE, DLAB_READ | DLAB_WRITE);
}

static void row_operands(dlab_op op, const dlab_op_args *u, operand_list *l)
{
    switch (op) {
    case DLAB_OP_embed: {
        const dlab_embed_args *a = &u->embed;
        touch(l, a->table.at, matrix_bytes(&a->table), DLAB_READ);
        touch_rest(l, a->desc, DLAB_READ);
        touch(l, a->out, floats(a->n_rows, a->table.k), DLAB_WRITE);
        break;
    }
    case DLAB_OP_rmsnorm: {
        const dlab_rmsnorm_args *a = &u->rmsnorm;
        touch(l, a->x, floats(a->n_rows, a->dim), DLAB_READ);
        touch(l, a->w, floats(a->dim, 1), DLAB_READ);
        touch(l, a->y, floats(a->n_rows, a->dim), DLAB_WRITE);
        if (a->watch.buf.ptr) {
            touch(l, a->watch, (size_t)a->n_rows * sizeof(int32_t), DLAB_WRITE | (a->watch_first ? 0 : DLAB_READ));
        }
        break;
    }
    case DLAB_OP_quant_act: {
        const dlab_quant_act_args *a = &u->quant_act;
        touch(l, a->x, floats(a->n_rows, a->k), DLAB_READ);
        touch(l, a->y, dlab_act_bytes(a->to, a->n_rows, a->k), DLAB_WRITE);
        break;
    }
    case DLAB_OP_matmul: {
        const dlab_matmul_args *a = &u->matmul;
        touch(l, a->x, dlab_act_bytes(a->input, a->n_rows, a->w.k), DLAB_READ);
        touch(l, a->w.at, matrix_bytes(&a->w), DLAB_READ);
        touch(l, a->y, floats(a->n_rows, a->w.n), DLAB_WRITE | (a->accumulate ? DLAB_READ : 0));
        break;
    }
    case DLAB_OP_rope: {
        const dlab_rope_args *a = &u->rope;
        touch(l, a->x, floats((int64_t)a->n_rows * a->n_heads, a->head_dim), DLAB_READ | DLAB_WRITE);
        touch_rest(l, a->table, DLAB_READ);
        touch_rest(l, a->desc, DLAB_READ);
        break;
    }
    case DLAB_OP_hadamard: {
        const dlab_hadamard_args *a = &u->hadamard;
        touch(l, a->x, floats((int64_t)a->n_rows * a->n_heads, a->head_dim), DLAB_READ | DLAB_WRITE);
        break;
    }
    default: {
        const dlab_swiglu_args *a = &u->swiglu;
        touch(l, a->gate, floats(a->n_rows, a->dim), DLAB_READ);
        touch(l, a->up, floats(a->n_rows, a->dim), DLAB_READ);
        touch(l, a->out, floats(a->n_rows, a->dim), DLAB_WRITE);
        break;
    }
    }
}

static void logit_operands(dlab_op op, const dlab_op_args *u, operand_list *l)
{
    if (op == DLAB_OP_gather) {
        const dlab_gather_args *a = &u->gather;
        touch_rest(l, a->x, DLAB_READ); /* which rows: the descriptor says */
        touch_rest(l, a->desc, DLAB_READ);
        touch(l, a->out, floats(a->n_logits, a->dim), DLAB_WRITE);
    } else if (op == DLAB_OP_sample) {
        const dlab_sample_args *a = &u->sample;
        touch(l, a->logits, floats(a->n_logits, a->vocab), DLAB_READ);
        touch_rest(l, a->desc, DLAB_READ);
        touch(l, skip(a->tokens, a->first, sizeof(int32_t)), (size_t)a->n_logits * sizeof(int32_t), DLAB_WRITE);
        if (a->draws) /* the largest logit is found without scratch */
            touch(l, a->work, 2 * floats(a->n_logits, a->vocab), DLAB_READ | DLAB_WRITE);
    } else {
        const dlab_score_args *a = &u->score;
        touch(l, a->logits, floats(a->n_logits, a->vocab), DLAB_READ);
        touch_rest(l, a->desc, DLAB_READ);
        touch(l, skip(a->nll, a->first, sizeof(double)), (size_t)a->n_logits * sizeof(double), DLAB_WRITE);
        touch(l, skip(a->top1, a->first, sizeof(int32_t)), (size_t)a->n_logits * sizeof(int32_t), DLAB_WRITE);
    }
}

int dlab_op_operands(dlab_op op, const void *args, dlab_operand *out)
{
    operand_list l = {.v = out};
    switch (op) {
    case DLAB_OP_kv_write:
        kv_write_operands(args, &l);
        break;
    case DLAB_OP_attn_fused:
        fused_operands(args, &l);
        break;
    case DLAB_OP_attn_scores:
    case DLAB_OP_attn_softmax:
    case DLAB_OP_attn_values:
        unfused_operands(op, args, &l);
        break;
    case DLAB_OP_gather:
    case DLAB_OP_sample:
    case DLAB_OP_score:
        logit_operands(op, args, &l);
        break;
    default:
        row_operands(op, args, &l);
        break;
    }
    return l.n;
}

dlab_status dlab_op_check_operands(dlab_op op, const void *args, dlab_operand *out, int *n, dlab_error *err)
{
    if ((unsigned)op >= DLAB_OP_N) return DLAB_FAIL(err, DLAB_EINTERNAL, "op %d does not exist", (int)op);
    *n = dlab_op_operands(op, args, out);
    for (int i = 0; i < *n; i++) {
        const dlab_at *at = &out[i].at;
        if (at->off <= at->buf.bytes && out[i].bytes <= at->buf.bytes - at->off) continue;
        return DLAB_FAIL(err, DLAB_EINTERNAL, "op %s, operand %d: %zu bytes at %zu leave a buffer of %zu",
                         dlab_op_name(op), i, out[i].bytes, at->off, at->buf.bytes);
    }
    return DLAB_OK;
}

dlab_status dlab_op_check(dlab_op op, const void *args, dlab_error *err)
{
    dlab_operand o[DLAB_MAX_OPERANDS];
    int n = 0;
    return dlab_op_check_operands(op, args, o, &n, err);
}

/* What each op must move and do. Conventions: the descriptor and scratch (partials, sampling's list) are not counted; a
 * weight is read once an op, whatever the rows; an exponential, a root or a division is one flop; softmax's own
 * arithmetic is left out of both forms of attention, so that fused and unfused declare the same flops. */
#include "kernels/op.h"

#define F16_BYTES 2
#define F32_BYTES 4
#define META      4 /* a scale with its zero point */

/* ---- which tokens rows visit --------------------------------------------------------------------------------------- */

/* One row's spans for one KV head. */
typedef struct {
    const dlab_span *v;
    int32_t n;
} span_list;

/* The host's copy of a span table, or, without one, rows that visit all tokens 0 … pos. */
typedef struct {
    const int32_t *first; /* NULL: dense */
    const dlab_span *spans;
    int32_t heads;
} visits;

/* Where the table lies in the descriptor's buffer, the host has it at the same distance from the descriptor's begin. */
static visits visits_of(const dlab_span_table *t, dlab_at at, const dlab_desc_head *desc, int32_t n_rows)
{
    if (!t->at.buf.ptr || t->at.buf.ptr != at.buf.ptr) return (visits){.heads = 1};
    const int32_t *first = (const int32_t *)((const char *)desc + (t->at.off - at.off));
    return (visits){first, (const dlab_span *)(first + (int64_t)n_rows * t->heads + 1), t->heads};
}

/* dense: where the one span of a dense row is put */
static span_list list_of(const visits *v, const dlab_desc_head *desc, int64_t row, int32_t head, dlab_span *dense)
{
    if (!v->first) {
        *dense = (dlab_span){0, dlab_desc_rows(desc)[row].pos + 1, 1};
        return (span_list){dense, 1};
    }
    const int32_t *first = v->first + row * v->heads + head;
    return (span_list){v->spans + first[0], first[1] - first[0]};
}

/* Walks those tokens of a list that lie in from … to − 1, counted in groups of `group` tokens, each group once. */
typedef struct {
    span_list list;
    int32_t from, to, group;
    int32_t i, used; /* in span i, so many tokens are behind */
    int32_t last;    /* group handed out last */
} span_walk;

static span_walk walk_of(span_list l, int32_t from, int32_t to, int32_t group)
{
    return (span_walk){.list = l, .from = from, .to = to, .group = group, .last = -1};
}

static int32_t ceil_div(int32_t a, int32_t b) { return a / b + (a % b > 0); }

/* The part of a span that lies in from … to − 1, without its first `used` tokens. */
static dlab_span clip(dlab_span s, int32_t from, int32_t to, int32_t used)
{
    const int32_t before = s.begin < from ? ceil_div(from - s.begin, s.step) : 0;
    const int32_t below = s.begin < to ? ceil_div(to - s.begin, s.step) : 0;
    const int32_t lo = before > used ? before : used, hi = below < s.count ? below : s.count;
    return (dlab_span){s.begin + lo * s.step, hi > lo ? hi - lo : 0, s.step};
}

static bool next_span(span_walk *w, dlab_span *out)
{
    while (w->i < w->list.n) {
        const dlab_span s = clip(w->list.v[w->i], w->from, w->to, w->used);
        const int32_t g = w->group;
        if (s.count > 0 && s.step > g && s.step % g != 0) { /* groups at uneven distances: one by one */
            w->used = (s.begin - w->list.v[w->i].begin) / s.step + 1;
            *out = (dlab_span){s.begin / g, 1, 1};
        } else {
            w->i++;
            w->used = 0;
            const int32_t step = s.step > g ? s.step / g : 1, begin = s.begin / g;
            const int32_t end = s.count > 0 ? (s.begin + (s.count - 1) * s.step) / g : begin - 1;
            *out = (dlab_span){begin, s.count > 0 ? (end - begin) / step + 1 : 0, step};
        }
        if (out->count > 0 && out->begin == w->last) { /* shared with the span before */
            out->begin += out->step;
            out->count--;
        }
        if (out->count == 0) continue;
        w->last = out->begin + (out->count - 1) * out->step;
        return true;
    }
    return false;
}

static int32_t end_of(const dlab_span *s) { return s->begin + (s->count - 1) * s->step; }

/* How many elements two spans share; 0, which is too few, where neither step divides the other. */
static int32_t shared(const dlab_span *a, const dlab_span *b)
{
    const dlab_span *coarse = a->step >= b->step ? a : b, *fine = a->step >= b->step ? b : a;
    if (coarse->step % fine->step != 0) return 0;
    const int32_t end = end_of(fine) + 1;
    const dlab_span both = clip(*coarse, fine->begin, end, 0);
    return both.count > 0 && (both.begin - fine->begin) % fine->step == 0 ? both.count : 0;
}

/* Elements of a that are not in b. What is not seen to be shared counts as new. */
static double count_new(span_walk a, span_walk b)
{
    double n = 0;
    dlab_span s, t;
    bool more_s = next_span(&a, &s), more_t = next_span(&b, &t);
    if (more_s) n += s.count;
    while (more_s && more_t) {
        n -= shared(&s, &t);
        if (end_of(&t) <= end_of(&s)) {
            more_t = next_span(&b, &t);
        } else {
            more_s = next_span(&a, &s);
            if (more_s) n += s.count;
        }
    }
    while (more_s && next_span(&a, &s)) n += s.count;
    return n;
}

/* ---- what attention moves ------------------------------------------------------------------------------------------ */

typedef struct {
    const dlab_desc_head *desc;
    visits visits;
    int32_t n_rows;
} attended;

/* The rows of one sequence, which are contiguous; padding rows may stand before real ones of a lower position. */
typedef struct {
    int32_t begin, end, furthest; /* largest pos + 1 */
} row_range;

static row_range rows_from(const attended *t, int32_t begin)
{
    const dlab_desc_row *rows = dlab_desc_rows(t->desc);
    row_range r = {begin, begin, 0};
    for (; r.end < t->n_rows && rows[r.end].seq == rows[begin].seq; r.end++)
        if (rows[r.end].pos >= r.furthest) r.furthest = rows[r.end].pos + 1;
    return r;
}

/* How many groups in from … to − 1 the rows of a sequence visit together, a mean over the KV heads. Exact for one row, for
 * dense rows, and for rows none of which visits again what the row before it has left; else an upper bound. */
static double count_together(const attended *t, const row_range *r, int32_t from, int32_t to, int32_t group)
{
    if (to > r->furthest) to = r->furthest;
    if (from >= to) return 0;
    const double all = ceil_div(to - from, group);
    if (!t->visits.first) return all;
    double sum = 0;
    for (int32_t h = 0; h < t->visits.heads; h++) {
        double n = 0;
        dlab_span dense;
        span_list before = {0};
        for (int32_t row = r->begin; row < r->end; row++) {
            const span_list l = list_of(&t->visits, t->desc, row, h, &dense);
            n += count_new(walk_of(l, from, to, group), walk_of(before, from, to, group));
            before = l;
        }
        sum += n < all ? n : all;
    }
    return sum / t->visits.heads;
}

/* Groups that the rows visit, each row for itself, a mean over the KV heads. */
static double count_each(const attended *t, int32_t group)
{
    double n = 0;
    dlab_span dense;
    for (int32_t row = 0; row < t->n_rows; row++) {
        for (int32_t h = 0; h < t->visits.heads; h++) {
            const span_list l = list_of(&t->visits, t->desc, row, h, &dense), none = {0};
            n += count_new(walk_of(l, 0, INT32_MAX, group), walk_of(none, 0, INT32_MAX, group));
        }
    }
    return n / t->visits.heads;
}

/* Scales of a head: of each token (TOKEN, STEP), or of each group (BLOCK, CHANNEL). */
static double scale_bytes(const dlab_kv_plane *p, int32_t head_dim)
{
    switch (p->scales) {
    case DLAB_SCALES_NONE:
        return 0;
    case DLAB_SCALES_BLOCK:
        return META;
    case DLAB_SCALES_CHANNEL:
        return (double)META * head_dim;
    default:
        return META * (double)dlab_kv_vector_scales(p, head_dim);
    }
}

static bool by_group(const dlab_kv_plane *p)
{
    return p->scales == DLAB_SCALES_BLOCK || p->scales == DLAB_SCALES_CHANNEL;
}

/* Bytes of `tokens` tokens with the scales of `groups` groups, all heads. */
static double stored_bytes(const dlab_kv_view *kv, const dlab_kv_plane *p, double tokens, double groups)
{
    const double scales = scale_bytes(p, kv->head_dim) * (by_group(p) ? groups : tokens);
    return kv->n_kv_heads * (tokens * (double)dlab_dtype_bytes(p->dtype, kv->head_dim) + scales);
}

static double tail_bytes(const dlab_kv_view *kv, double tokens)
{
    return (double)F16_BYTES * kv->n_kv_heads * kv->head_dim * tokens;
}

/* What must be read of keys or values: each visited token of a sequence once. */
static double plane_bytes(const attended *t, const dlab_kv_view *kv, const dlab_kv_plane *p, bool keys)
{
    double bytes = 0;
    for (row_range r = {0}; r.end < t->n_rows;) {
        r = rows_from(t, r.end);
        const dlab_desc_seq *s = &dlab_desc_seqs(t->desc)[dlab_desc_rows(t->desc)[r.begin].seq];
        const int32_t sealed = p->tail_cap == 0 ? INT32_MAX : keys ? s->k_sealed : s->v_sealed;
        const double tokens = count_together(t, &r, 0, sealed, 1);
        bytes += stored_bytes(kv, p, tokens, by_group(p) ? count_together(t, &r, 0, sealed, p->group) : 0);
        if (p->tail_cap > 0) bytes += tail_bytes(kv, count_together(t, &r, sealed, INT32_MAX, 1));
    }
    return bytes;
}

static void attention_cost(dlab_op op, const dlab_kv_view *kv, double n_heads, const attended *t, dlab_op_cost *c)
{
    const double d = kv->head_dim, q = F32_BYTES * n_heads * d * t->n_rows, visited = count_each(t, 1);
    const double scores = F32_BYTES * n_heads * visited;
    const bool keys = op != DLAB_OP_attn_softmax && op != DLAB_OP_attn_values;
    const bool values = op == DLAB_OP_attn_fused || op == DLAB_OP_attn_values;
    const attended dense = {t->desc, {.heads = 1}, t->n_rows};
    const double kv_bytes =
        (keys ? plane_bytes(t, kv, &kv->k, true) : 0) + (values ? plane_bytes(t, kv, &kv->v, false) : 0);
    const double dense_bytes =
        (keys ? plane_bytes(&dense, kv, &kv->k, true) : 0) + (values ? plane_bytes(&dense, kv, &kv->v, false) : 0);
    switch (op) {
    case DLAB_OP_attn_fused: /* q, K and V in; out: 4 d flops a token and query head (q·k and p·v) */
        c->bytes_read += q;
        c->bytes_written += q;
        c->flops += 4 * d * n_heads * visited;
        if (t->n_rows <= DLAB_ATTN_SPLIT_ROWS) /* a maximum, a sum and d values a piece, out and in */
            c->inter_bytes += 2 * F32_BYTES * n_heads * (d + 2) * count_each(t, DLAB_ATTN_PIECE);
        break;
    case DLAB_OP_attn_scores: /* q and K in, scores out: 2 d flops a token and query head */
        c->bytes_read += q;
        c->bytes_written += scores;
        c->inter_bytes += scores;
        c->flops += 2 * d * n_heads * visited;
        break;
    case DLAB_OP_attn_softmax: /* scores in and out */
        c->bytes_read += scores;
        c->bytes_written += scores;
        c->inter_bytes += 2 * scores;
        break;
    default: /* attn_values: scores and V in, out: 2 d flops a token and query head */
        c->bytes_read += scores;
        c->bytes_written += q;
        c->inter_bytes += scores;
        c->flops += 2 * d * n_heads * visited;
        break;
    }
    c->bytes_read += kv_bytes;
    c->kv_bytes += kv_bytes;
    c->kv_dense_bytes += dense_bytes;
}

/* R·K inputs in: f32, bf16, or blocks of 40 bytes; N·K weights once; R·N f32 out (in too with accumulate): 2·R·N·K flops. */
static void matmul_cost(const dlab_matmul_args *a, dlab_op_cost *c)
{
    const double r = a->n_rows, k = a->w.k, n = a->w.n;
    c->bytes_read += (double)dlab_act_bytes(a->input, a->n_rows, a->w.k);
    c->bytes_read += n * (double)dlab_dtype_bytes(a->w.dtype, a->w.k);
    if (a->accumulate) c->bytes_read += 4 * r * n;
    c->bytes_written += 4 * r * n;
    c->flops += 2 * r * n * k;
    if (a->input == DLAB_ACT_INT8) c->int8_flops += 2 * r * n * k;
    if (a->input == DLAB_ACT_BF16) c->bf16_flops += 2 * r * n * k;
}

/* A plane of the store: f32 rows in; out the store's format, or f16 where a row goes to the tail; and tokens that move from
 * the tail to their region. */
static void plane_write_cost(const dlab_kv_view *kv, const dlab_kv_plane *p, bool keys, int32_t n_rows,
                             const dlab_desc_head *desc, dlab_op_cost *c)
{
    const dlab_desc_row *rows = dlab_desc_rows(desc);
    double direct = 0, to_tail = 0, moved = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        const dlab_desc_seq *s = &dlab_desc_seqs(desc)[rows[r].seq];
        if (p->tail_cap > 0 && (r == 0 || rows[r].seq != rows[r - 1].seq))
            moved += keys ? s->k_sealed - s->k_sealed_from : s->v_sealed - s->v_sealed_from;
        if ((keys ? rows[r].k_slot : rows[r].v_slot) < 0) continue;
        if (p->tail_cap == 0 || rows[r].pos < (keys ? s->k_sealed : s->v_sealed))
            direct++;
        else
            to_tail++;
    }
    const double sealed = p->tail_cap > 0 ? moved : direct;
    c->bytes_read += (double)F32_BYTES * kv->n_kv_heads * kv->head_dim * (direct + to_tail);
    if (p->tail_cap > 0) c->bytes_read += tail_bytes(kv, moved - direct);
    c->bytes_written += stored_bytes(kv, p, sealed, sealed / p->group) + tail_bytes(kv, to_tail);
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
        if (u->rmsnorm.watch.buf.ptr) c->bytes_written += 4.0 * u->rmsnorm.n_rows;
        c->flops += 4 * n;
        break;
    }
    case DLAB_OP_quant_act: { /* R·K f32 in, bf16 out, which only rounds; or 40 bytes a block of 32: compare, divide, add */
        const dlab_quant_act_args *a = &u->quant_act;
        const double n = (double)a->n_rows * a->k;
        c->bytes_read += 4 * n;
        c->bytes_written += (double)dlab_act_bytes(a->to, a->n_rows, a->k);
        if (a->to == DLAB_ACT_INT8) c->flops += 3 * n;
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
    case DLAB_OP_hadamard: { /* in and out: log₂ n additions an element for the blocks of n, and one product */
        const dlab_hadamard_args *a = &u->hadamard;
        const double n = (double)a->n_rows * a->n_heads * a->head_dim;
        double rounds = 0;
        for (int32_t d = a->head_dim; d > 0 && d % 2 == 0; d /= 2) rounds++;
        c->bytes_read += 4 * n;
        c->bytes_written += 4 * n;
        c->flops += (rounds + 1) * n;
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

/* Of n·V logits: compare; where the row has a temperature also divide, exponential, add. */
static double sample_flops(const dlab_sample_args *a, const dlab_desc_head *desc)
{
    const dlab_desc_logit *rows = dlab_desc_logits(desc) + a->first;
    double each = 0;
    for (int32_t i = 0; i < a->n_logits; i++) each += rows[i].temperature != 0 ? 4 : 1;
    return each * a->vocab;
}

static void logit_cost(dlab_op op, const dlab_op_args *u, const dlab_desc_head *desc, dlab_op_cost *c)
{
    if (op == DLAB_OP_gather) { /* n·D in and out */
        const double n = (double)u->gather.n_logits * u->gather.dim;
        c->bytes_read += 4 * n;
        c->bytes_written += 4 * n;
    } else if (op == DLAB_OP_sample) { /* n·V in, n ids out */
        const double n = (double)u->sample.n_logits * u->sample.vocab;
        c->bytes_read += 4 * n;
        c->bytes_written += 4.0 * u->sample.n_logits;
        c->flops += sample_flops(&u->sample, desc);
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
    case DLAB_OP_kv_write: {
        const dlab_kv_write_args *a = args;
        plane_write_cost(&a->kv, &a->kv.k, true, a->n_rows, desc, out);
        plane_write_cost(&a->kv, &a->kv.v, false, a->n_rows, desc, out);
        break;
    }
    case DLAB_OP_attn_fused: {
        const dlab_attn_fused_args *a = args;
        const attended t = {desc, visits_of(&a->spans, a->desc, desc, a->n_rows), a->n_rows};
        attention_cost(op, &a->kv, a->n_heads, &t, out);
        break;
    }
    case DLAB_OP_attn_scores:
    case DLAB_OP_attn_softmax:
    case DLAB_OP_attn_values: {
        const dlab_attn_unfused_args *a = args;
        const attended t = {desc, visits_of(&a->spans, a->desc, desc, a->n_rows), a->n_rows};
        attention_cost(op, &a->kv, a->n_heads, &t, out);
        break;
    }
    case DLAB_OP_gather:
    case DLAB_OP_sample:
    case DLAB_OP_score:
        logit_cost(op, args, desc, out);
        break;
    default:
        row_cost(op, args, out);
        break;
    }
}

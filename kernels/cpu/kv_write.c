/* New rows of K and V into the store, in its formats. K and V are planes of their own, each with its own tasks:
 * phase 0: without a tail, a task is a row, which is written; where a step shares one scale, a task is a sequence, whose
 * range is found. With a tail, a task is a group of tokens of one sequence that moves to its region.
 * phase 1: a row is written with the scale of its step, or goes to the tail. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_quant.h"

typedef struct {
    const dlab_kv_plane *p;
    const dlab_desc_row *rows;
    const dlab_desc_seq *seqs;
    const dlab_desc_seg *segs;
    const float *x; /* [R, G, d] */
    dlab_at work;   /* f32 [n_seqs, K and V, 2]: largest value, largest negative */
    int64_t n_rows, n_seqs, n_heads, dim;
    bool keys;
} writer;

static writer writer_of(const dlab_kv_write_args *a, bool keys)
{
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const writer w = {.p = keys ? &a->kv.k : &a->kv.v,
                      .rows = dlab_desc_rows(desc),
                      .seqs = dlab_desc_seqs(desc),
                      .segs = dlab_desc_segs(desc),
                      .x = dlab_host_ptr(keys ? a->k : a->v),
                      .n_rows = a->n_rows,
                      .n_seqs = desc->n_seqs,
                      .n_heads = a->kv.n_kv_heads,
                      .dim = a->kv.head_dim,
                      .work = a->work,
                      .keys = keys};
    return w;
}

static int64_t slot_of(const writer *w, int64_t row) { return w->keys ? w->rows[row].k_slot : w->rows[row].v_slot; }

static int64_t sealed_from(const writer *w, int64_t s)
{
    return w->keys ? w->seqs[s].k_sealed_from : w->seqs[s].v_sealed_from;
}

static int64_t sealed(const writer *w, int64_t s) { return w->keys ? w->seqs[s].k_sealed : w->seqs[s].v_sealed; }

static int64_t groups_to_seal(const writer *w, int64_t s) { return (sealed(w, s) - sealed_from(w, s)) / w->p->group; }

static int64_t plane_tasks(const writer *w, int phase)
{
    const bool tail = w->p->tail_cap > 0, step = w->p->scales == DLAB_SCALES_STEP;
    if (phase == 1) return tail || step ? w->n_rows : 0;
    if (!tail) return step ? w->n_seqs : w->n_rows;
    int64_t n = 0;
    for (int64_t s = 0; s < w->n_seqs; s++) n += groups_to_seal(w, s);
    return n;
}

static int64_t kv_write_tasks(const void *args, int phase)
{
    const writer k = writer_of(args, true), v = writer_of(args, false);
    return plane_tasks(&k, phase) + plane_tasks(&v, phase);
}

/* Values of one group of tokens, of one head. */
static size_t kv_write_scratch(const void *args)
{
    const dlab_kv_write_args *a = args;
    const int64_t group = dlab_max_i64(1, dlab_max_i64(a->kv.k.group, a->kv.v.group));
    return (size_t)(group * a->kv.head_dim) * sizeof(float);
}

/* ---- one group of tokens of one head into its region ---- */

static void put_words(char *dst, const uint32_t *word, int64_t n) { memcpy(dst, word, (size_t)n * sizeof *word); }

/* A scale for each channel of x [group, d]. */
static void seal_channels(const writer *w, const float *x, uint8_t *dst, char *words)
{
    const int64_t d = w->dim, group = w->p->group;
    const vf most = vf_set1(kv_largest_code(w->p->dtype));
    for (int64_t c = 0; c < d; c += VF) {
        const int64_t n = dlab_min_i64(VF, d - c);
        kv_range r = kv_no_range();
        for (int64_t t = 0; t < group; t++) kv_range_add(&r, vf_load_n(x + t * d + c, n));
        float hi[VF], lo[VF], inverse[VF], zero[VF];
        vf_store(hi, r.hi);
        vf_store(lo, r.lo);
        for (int64_t i = 0; i < VF; i++) {
            const kv_scale s = kv_scale_of(hi[i], lo[i], w->p->dtype);
            inverse[i] = s.inverse;
            zero[i] = s.zero;
            if (i < n) put_words(words + 4 * (c + i), &s.word, 1);
        }
        for (int64_t t = 0; t < group; t++) {
            uint8_t codes[VF];
            vf_store_u8(codes, kv_code(vf_load_n(x + t * d + c, n), vf_load(inverse), vf_load(zero), most));
            memcpy(dst + t * w->p->token_stride + c, codes, (size_t)n);
        }
    }
}

/* n tokens [n, d] that share one scale. */
static void put_shared(const writer *w, const float *x, int64_t n, kv_scale s, uint8_t *dst, char *words)
{
    for (int64_t t = 0; t < n; t++) kv_quantize(x + t * w->dim, w->dim, s, w->p->dtype, dst + t * w->p->token_stride);
    put_words(words, &s.word, 1);
}

/* A token's vector, with scales of its own. */
static void put_token(const writer *w, const float *x, uint8_t *dst, char *words)
{
    const int64_t share = w->p->dtype == DLAB_U4 ? KV_BLOCK : w->dim;
    for (int64_t i = 0; i < w->dim; i += share, dst += KV_BLOCK / 2, words += 4) {
        const int64_t n = dlab_min_i64(share, w->dim - i);
        const kv_scale s = kv_scale_of_range(kv_range_of(kv_no_range(), x + i, n), w->p->dtype);
        kv_quantize(x + i, n, s, w->p->dtype, dst);
        put_words(words, &s.word, 1);
    }
}

/* x: `group` tokens' vectors of one head (one where scales are not shared between tokens), to the places from `index` on
 * of the region at `off` for head 0. */
static void put_group(const writer *w, const float *x, int64_t off, int64_t index, int64_t head)
{
    const dlab_kv_plane *p = w->p;
    char *region = (char *)dlab_host_ptr(p->base) + off + head * p->head_stride;
    uint8_t *dst = (uint8_t *)region + index * p->token_stride;
    char *words = region + p->meta_off;
    switch (p->scales) {
    case DLAB_SCALES_NONE:
        if (p->dtype == DLAB_F16)
            kv_store_f16(x, w->dim, (uint16_t *)(void *)dst);
        else if (p->dtype == DLAB_BF16)
            row_to_bf16(x, w->dim, (uint16_t *)(void *)dst);
        else
            memcpy(dst, x, (size_t)w->dim * sizeof *x);
        break;
    case DLAB_SCALES_BLOCK: {
        const kv_scale s = kv_scale_of_range(kv_range_of(kv_no_range(), x, w->dim * p->group), p->dtype);
        put_shared(w, x, p->group, s, dst, words + 4 * (index / p->group));
        break;
    }
    case DLAB_SCALES_CHANNEL:
        seal_channels(w, x, dst, words + 4 * (index / p->group) * w->dim);
        break;
    default:
        put_token(w, x, dst, words + 4 * index * dlab_kv_vector_scales(p, w->dim));
        break;
    }
}

/* ---- rows ---- */

static const float *incoming(const writer *w, int64_t row, int64_t head)
{
    return w->x + (row * w->n_heads + head) * w->dim;
}

static void write_row(const writer *w, int64_t row)
{
    if (slot_of(w, row) < 0) return;
    for (int64_t g = 0; g < w->n_heads; g++) put_group(w, incoming(w, row, g), slot_of(w, row), w->rows[row].index, g);
}

static float *step_range(const writer *w, int64_t s)
{
    return (float *)dlab_host_ptr(w->work) + 4 * s + (w->keys ? 0 : 2);
}

static void find_step_range(const writer *w, int64_t s)
{
    const dlab_desc_seq *seq = &w->seqs[s];
    kv_range r = kv_no_range();
    for (int64_t row = seq->row_begin; row < (int64_t)seq->row_begin + seq->n_rows; row++)
        if (slot_of(w, row) >= 0) r = kv_range_of(r, incoming(w, row, 0), w->n_heads * w->dim);
    step_range(w, s)[0] = vf_max_lane(r.hi);
    step_range(w, s)[1] = vf_max_lane(r.lo);
}

static void write_step_row(const writer *w, int64_t row)
{
    if (slot_of(w, row) < 0) return;
    const dlab_kv_plane *p = w->p;
    const float *range = step_range(w, w->rows[row].seq);
    const kv_scale s = kv_scale_of(range[0], range[1], p->dtype);
    const int64_t index = w->rows[row].index;
    for (int64_t g = 0; g < w->n_heads; g++) {
        char *region = (char *)dlab_host_ptr(p->base) + slot_of(w, row) + g * p->head_stride;
        put_shared(w, incoming(w, row, g), 1, s, (uint8_t *)region + index * p->token_stride,
                   region + p->meta_off + 4 * index);
    }
}

/* ---- tails ---- */

static uint16_t *tail_at(const writer *w, int64_t s, int64_t pos, int64_t head)
{
    char *tail = (char *)dlab_host_ptr(w->p->tail) + w->seqs[s].tail_slot * w->p->tail_seq_stride;
    return (uint16_t *)(void *)(tail + head * w->p->tail_head_stride) + pos % w->p->tail_cap * w->dim;
}

static void write_tail_row(const writer *w, int64_t row)
{
    const int64_t s = w->rows[row].seq, pos = w->rows[row].pos;
    if (slot_of(w, row) < 0 || pos < sealed(w, s)) return;
    for (int64_t g = 0; g < w->n_heads; g++) kv_store_f16(incoming(w, row, g), w->dim, tail_at(w, s, pos, g));
}

/* The first row of a sequence that is written, and so brings a token; the others follow it. */
static int64_t first_new_row(const writer *w, int64_t s)
{
    int64_t row = w->seqs[s].row_begin;
    const int64_t end = row + w->seqs[s].n_rows;
    while (row < end && slot_of(w, row) < 0) row++;
    return row;
}

static void seal_group(const writer *w, int64_t s, int64_t pos, float *x)
{
    const dlab_desc_seg *seg = w->segs + w->seqs[s].seg_begin + w->seqs[s].n_segs - 1;
    while (seg->tok_begin > pos) seg--; /* what is sealed is near the end */
    const int64_t row = first_new_row(w, s), end = (int64_t)w->seqs[s].row_begin + w->seqs[s].n_rows;
    for (int64_t g = 0; g < w->n_heads; g++) {
        for (int64_t t = 0; t < w->p->group; t++) {
            const int64_t from = row < end ? row + pos + t - w->rows[row].pos : end;
            if (from >= row && from < end)
                memcpy(x + t * w->dim, incoming(w, from, g), (size_t)w->dim * sizeof *x);
            else
                row_unpack(tail_at(w, s, pos + t, g), DLAB_F16, w->dim, x + t * w->dim);
        }
        put_group(w, x, w->keys ? seg->k_off : seg->v_off, pos - seg->tok_begin, g);
    }
}

/* The task-th group of the step. */
static void seal_task(const writer *w, int64_t task, float *scratch)
{
    int64_t s = 0;
    while (task >= groups_to_seal(w, s)) task -= groups_to_seal(w, s++);
    seal_group(w, s, sealed_from(w, s) + task * w->p->group, scratch);
}

static void plane_task(const writer *w, int phase, int64_t task, float *scratch)
{
    const bool tail = w->p->tail_cap > 0, step = w->p->scales == DLAB_SCALES_STEP;
    if (phase == 0 && tail)
        seal_task(w, task, scratch);
    else if (phase == 0 && step)
        find_step_range(w, task);
    else if (phase == 0)
        write_row(w, task);
    else if (tail)
        write_tail_row(w, task);
    else
        write_step_row(w, task);
}

static void kv_write_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    const writer k = writer_of(args, true), v = writer_of(args, false);
    const int64_t n = plane_tasks(&k, phase);
    for (int64_t task = begin; task < end; task++) {
        if (task < n)
            plane_task(&k, phase, task, scratch);
        else
            plane_task(&v, phase, task - n, scratch);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(kv_write) = {"kv_write",       2,    kv_write_tasks, kv_write_run,
                                                   kv_write_scratch, false};

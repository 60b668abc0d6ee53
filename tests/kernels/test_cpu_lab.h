/* A device with the buffers of one test case, and random content of fixed seeds. */
#ifndef DLAB_TESTS_KERNELS_TEST_CPU_LAB_H
#define DLAB_TESTS_KERNELS_TEST_CPU_LAB_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/device.h"

#define LAB_BUFFERS 16

typedef struct {
    dlab_mem *mem;
    dlab_device *dev;
    dlab_buf bufs[LAB_BUFFERS];
    int n_bufs;
    size_t shift; /* of what lab_put puts, from an aligned address */
} lab;

static inline lab lab_open(const char *device, const char *isa, int threads)
{
    lab l = {0};
    dlab_error err = {0};
    ck_assert_int_eq(dlab_mem_create(0, &l.mem, &err), DLAB_OK);
    const dlab_device_opts opts = {threads, isa, l.mem};
    const dlab_status st = dlab_device_open(device, &opts, &l.dev, &err);
    ck_assert_msg(st == DLAB_OK, "%s %s: %s", device, isa, err.msg);
    return l;
}

static inline void lab_clear(lab *l)
{
    for (int i = 0; i < l->n_bufs; i++) l->dev->ops->free(l->dev, DLAB_POOL_ACTIVATIONS, l->bufs[i]);
    l->n_bufs = 0;
}

static inline void lab_close(lab *l)
{
    lab_clear(l);
    dlab_device_close(l->dev);
    dlab_mem_destroy(l->mem);
}

/* A new buffer, of which the first `shift` bytes are not used; zeros without data. */
static inline dlab_at lab_put_at(lab *l, const void *data, size_t bytes, size_t shift)
{
    dlab_error err = {0};
    ck_assert_int_lt(l->n_bufs, LAB_BUFFERS);
    dlab_buf *b = &l->bufs[l->n_bufs++];
    ck_assert_int_eq(l->dev->ops->alloc(l->dev, DLAB_POOL_ACTIVATIONS, shift + bytes, b, &err), DLAB_OK);
    if (data) ck_assert_int_eq(l->dev->ops->upload(l->dev, (dlab_at){*b, shift}, data, bytes, &err), DLAB_OK);
    return (dlab_at){*b, shift};
}

static inline dlab_at lab_put(lab *l, const void *data, size_t bytes) { return lab_put_at(l, data, bytes, l->shift); }

/* A matrix of n rows of k, as the device's products want it. */
static inline dlab_matrix lab_weights(lab *l, const void *data, dlab_dtype t, int32_t n, int32_t k)
{
    dlab_error err = {0};
    const dlab_matrix stored = {.at = lab_put(l, data, (size_t)n * dlab_dtype_bytes(t, k)), .dtype = t, .n = n, .k = k};
    const dlab_device_opts opts = {1, l->dev->ops->variant(l->dev), l->mem};
    const size_t bytes = l->dev->ops->packed_bytes(&opts, &stored);
    if (bytes == 0) return stored;
    dlab_matrix packed;
    const dlab_status st = l->dev->ops->pack(l->dev, &stored, lab_put_at(l, NULL, bytes, 0), &packed, &err);
    ck_assert_msg(st == DLAB_OK, "pack: %s", err.msg);
    ck_assert_uint_eq(packed.packed_bytes, bytes);
    return packed;
}

static inline void lab_submit(lab *l, dlab_op op, void *args)
{
    dlab_error err = {0};
    const dlab_status st = l->dev->ops->submit(l->dev, op, args, &err);
    ck_assert_msg(st == DLAB_OK, "%s: %s", dlab_op_name(op), err.msg);
}

static inline void lab_get(lab *l, dlab_at at, void *dst, size_t bytes)
{
    dlab_error err = {0};
    ck_assert_int_eq(l->dev->ops->download(l->dev, dst, at, bytes, &err), DLAB_OK);
    const dlab_status st = l->dev->ops->sync(l->dev, &err);
    ck_assert_msg(st == DLAB_OK, "sync: %s", err.msg);
}

/* Uniform, of mean 0 and standard deviation sd: cheaper than a normal one, and as good here. */
static inline float random_float(dlab_rng *r, double sd) { return (float)(sd * 3.4641 * (dlab_rng_unit(r) - 0.5)); }

static inline float *random_floats(dlab_rng *r, size_t n, double sd)
{
    float *x = malloc((n + 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < n; i++) x[i] = random_float(r, sd);
    return x;
}

static inline void put_wide(void *dst, dlab_dtype t, size_t i, float v)
{
    if (t == DLAB_F32) ((float *)dst)[i] = v;
    if (t == DLAB_F16) ((uint16_t *)dst)[i] = dlab_f32_to_f16(v);
    if (t == DLAB_BF16) ((uint16_t *)dst)[i] = dlab_f32_to_bf16(v);
}

/* n·k weights; among the quantized blocks some of zero scale, and some whose numbers are all lowest or all highest. */
static inline uint8_t *random_weights(dlab_rng *r, dlab_dtype t, int64_t n, int64_t k, size_t *bytes)
{
    *bytes = (size_t)n * dlab_dtype_bytes(t, k);
    uint8_t *w = malloc(*bytes + 1);
    ck_assert_ptr_nonnull(w);
    if (dlab_dtype_block(t) == 1) {
        for (int64_t i = 0; i < n * k; i++) put_wide(w, t, (size_t)i, random_float(r, 0.1));
        return w;
    }
    const size_t step = (size_t)dlab_dtype_block_bytes(t);
    for (size_t b = 0; b < *bytes; b += step) {
        for (size_t i = 0; i < step; i++) w[b + i] = (uint8_t)dlab_rng_below(r, 256);
        const uint64_t kind = dlab_rng_below(r, 8);
        if (kind == 0) memset(w + b, t == DLAB_Q8_0 ? 0x80 : 0, step);
        if (kind == 1) memset(w + b, t == DLAB_Q8_0 ? 0x7f : 0xff, step);
        const uint16_t d = kind == 2 ? 0 : dlab_f32_to_f16(random_float(r, 0.02));
        const uint16_t m = dlab_f32_to_f16(random_float(r, 0.1));
        memcpy(w + b, &d, 2);
        if (t == DLAB_Q4_1) memcpy(w + b + 2, &m, 2);
    }
    return w;
}

/* As quant_act makes them; among them blocks of zeros and blocks of ±127 only. */
static inline dlab_qact_block *random_qact(dlab_rng *r, size_t n_blocks)
{
    dlab_qact_block *x = calloc(n_blocks, sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t b = 0; b < n_blocks; b++) {
        const uint64_t kind = dlab_rng_below(r, 8);
        int sum = 0;
        if (kind == 0) continue;
        for (int i = 0; i < DLAB_QACT_BLOCK; i++) {
            int q = (int)dlab_rng_below(r, 255) - 127;
            if (kind == 1) q = 127;
            if (kind == 2) q = -127;
            x[b].q[i] = (int8_t)q;
            sum += q;
        }
        x[b].scale = (float)(0.001 + 0.02 * dlab_rng_unit(r));
        x[b].scale_sum = x[b].scale * (float)sum;
    }
    return x;
}

/* A product's inputs [rows, k]. */
static inline void *random_inputs(dlab_rng *r, dlab_act act, int rows, int k)
{
    if (act == DLAB_ACT_INT8) return random_qact(r, (size_t)rows * (size_t)k / DLAB_QACT_BLOCK);
    if (act == DLAB_ACT_F32) return random_floats(r, (size_t)rows * (size_t)k, 1);
    uint16_t *x = calloc(dlab_act_bytes(act, rows, k) + 1, 1);
    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < (int64_t)rows * k; i++)
        x[i / k * dlab_bf16_row(k) + i % k] = dlab_f32_to_bf16(random_float(r, 1));
    return x;
}

/* A descriptor in one piece; free() it. The arrays are filled in by the caller, in any order. */
static inline dlab_desc_head *new_desc(int rows, int seqs, int segs, int logits, size_t *bytes)
{
    const size_t row_off = sizeof(dlab_desc_head), seq_off = row_off + (size_t)rows * sizeof(dlab_desc_row);
    const size_t seg_off = seq_off + (size_t)seqs * sizeof(dlab_desc_seq);
    const size_t logit_off = seg_off + (size_t)segs * sizeof(dlab_desc_seg);
    *bytes = logit_off + (size_t)logits * sizeof(dlab_desc_logit);
    dlab_desc_head *d = calloc(1, *bytes);
    ck_assert_ptr_nonnull(d);
    *d = (dlab_desc_head){
        rows, seqs, segs, logits, (uint32_t)row_off, (uint32_t)seq_off, (uint32_t)seg_off, (uint32_t)logit_off};
    return d;
}
static inline dlab_desc_row *desc_row(dlab_desc_head *d, int i) { return (dlab_desc_row *)dlab_desc_rows(d) + i; }
static inline dlab_desc_seq *desc_seq(dlab_desc_head *d, int i) { return (dlab_desc_seq *)dlab_desc_seqs(d) + i; }
static inline dlab_desc_seg *desc_seg(dlab_desc_head *d, int i) { return (dlab_desc_seg *)dlab_desc_segs(d) + i; }
static inline dlab_desc_logit *desc_logit(dlab_desc_head *d, int i)
{
    return (dlab_desc_logit *)dlab_desc_logits(d) + i;
}

/* What a case gives: values, and by how much each may miss the oracle's (0: not at all). */
typedef struct {
    size_t n;
    double *value, *allow;
} outcome;

static inline outcome new_outcome(size_t n)
{
    outcome o = {n, calloc(n + 1, sizeof(double)), calloc(n + 1, sizeof(double))};
    ck_assert_ptr_nonnull(o.value);
    ck_assert_ptr_nonnull(o.allow);
    return o;
}

static inline void outcome_free(outcome *o)
{
    free(o->value);
    free(o->allow);
}

/* n floats of a buffer become the outcome; allow: the same for all, times |value| + scale. */
static inline outcome floats_outcome(lab *l, dlab_at at, size_t n, double tol, double scale)
{
    outcome o = new_outcome(n);
    float *x = malloc((n + 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    lab_get(l, at, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        o.value[i] = (double)x[i];
        o.allow[i] = tol * (fabs(o.value[i]) + scale);
    }
    free(x);
    return o;
}

static inline void assert_near(const outcome *got, const outcome *want, const char *what)
{
    ck_assert_uint_eq(got->n, want->n);
    ck_assert_uint_gt(want->n, 0);
    for (size_t i = 0; i < want->n; i++) {
        if (isnan(want->value[i]) && isnan(got->value[i])) continue;
        if (got->value[i] == want->value[i]) continue;
        ck_assert_msg(fabs(got->value[i] - want->value[i]) <= want->allow[i],
                      "%s: value %zu is %.9g, expected %.9g within %.3g", what, i, got->value[i], want->value[i],
                      want->allow[i]);
    }
}

/* NaN of any bits equals NaN; −0 is not 0. */
static inline void assert_same(const outcome *got, const outcome *want, const char *what)
{
    ck_assert_uint_eq(got->n, want->n);
    ck_assert_uint_gt(want->n, 0);
    for (size_t i = 0; i < want->n; i++) {
        if (isnan(want->value[i]) && isnan(got->value[i])) continue;
        ck_assert_msg(got->value[i] == want->value[i] && !signbit(got->value[i]) == !signbit(want->value[i]),
                      "%s: value %zu is %.17g, expected exactly %.17g", what, i, got->value[i], want->value[i]);
    }
}

#endif

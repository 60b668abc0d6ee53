/* A ref device and buffers on it, for tests that work small cases out by hand. */
#ifndef DLAB_TESTS_KERNELS_REF_FIXTURE_H
#define DLAB_TESTS_KERNELS_REF_FIXTURE_H

#include <check.h>
#include <string.h>

#include "kernels/ref/ref.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

typedef struct {
    dlab_mem *mem;
    dlab_device *dev;
    dlab_buf bufs[32];
    int n_bufs;
} ref_fixture;

static inline void fixture_open(ref_fixture *f)
{
    memset(f, 0, sizeof *f);
    ck_assert_int_eq(dlab_mem_create(0, &f->mem, NULL), DLAB_OK);
    const dlab_device_opts opts = {.threads = 1, .isa = "auto", .mem = f->mem};
    ck_assert_int_eq(dlab_device_ref.create(&opts, &f->dev, NULL), DLAB_OK);
}

static inline void fixture_close(ref_fixture *f)
{
    for (int i = 0; i < f->n_bufs; i++) f->dev->ops->free(f->dev, DLAB_POOL_SCRATCH, f->bufs[i]);
    dlab_device_close(f->dev);
    dlab_mem_destroy(f->mem);
}

/* A buffer with these bytes; src NULL: zeros. */
static inline dlab_at buffer_of(ref_fixture *f, const void *src, size_t bytes)
{
    dlab_buf b;
    ck_assert_int_lt(f->n_bufs, (int)N_OF(f->bufs));
    ck_assert_int_eq(f->dev->ops->alloc(f->dev, DLAB_POOL_SCRATCH, bytes, &b, NULL), DLAB_OK);
    f->bufs[f->n_bufs++] = b;
    const dlab_at at = {b, 0};
    if (src) ck_assert_int_eq(f->dev->ops->upload(f->dev, at, src, bytes, NULL), DLAB_OK);
    return at;
}

static inline void read_back(ref_fixture *f, void *dst, dlab_at at, size_t bytes)
{
    ck_assert_int_eq(f->dev->ops->download(f->dev, dst, at, bytes, NULL), DLAB_OK);
    ck_assert_int_eq(f->dev->ops->sync(f->dev, NULL), DLAB_OK);
}

/* A descriptor with room for a few of each. Unused arrays are empty. */
typedef struct {
    dlab_desc_head head;
    dlab_desc_row rows[8];
    dlab_desc_seq seqs[4];
    dlab_desc_seg segs[8];
    dlab_desc_logit logits[8];
} small_desc;

static inline small_desc desc_of(int n_rows, int n_seqs, int n_segs, int n_logits)
{
    return (small_desc){.head = {.n_rows = n_rows,
                                 .n_seqs = n_seqs,
                                 .n_segs = n_segs,
                                 .n_logits = n_logits,
                                 .row_off = offsetof(small_desc, rows),
                                 .seq_off = offsetof(small_desc, seqs),
                                 .seg_off = offsetof(small_desc, segs),
                                 .logit_off = offsetof(small_desc, logits)}};
}

static inline void submit_ok(dlab_status s, const dlab_error *err) { ck_assert_msg(s == DLAB_OK, "%s", err->msg); }

/* |got − want| ≤ tol · (1 + |want|), element by element */
static inline void floats_near(const float *got, const double *want, size_t n, double tol)
{
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - want[i], bound = tol * (1 + (want[i] < 0 ? -want[i] : want[i]));
        ck_assert_msg(d <= bound && d >= -bound, "element %zu is %.9g, expected %.9g", i, (double)got[i], want[i]);
    }
}

#endif

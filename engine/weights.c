#include "engine/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/int.h"

#define PACKED_ALIGN 64

typedef struct {
    dlab_device *dev;
    const dlab_device_opts *opts;
    const dlab_model *m;
    dlab_weights *w;
    int64_t width;
    size_t n_norms, packed_at;
} loader;

static dlab_status find(const loader *l, int layer, const char *suffix, const dlab_tensor **out, dlab_error *err)
{
    *out = layer < 0 ? dlab_model_tensor(l->m, suffix) : dlab_model_layer_tensor(l->m, layer, suffix);
    if (*out) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "tensor '%s' of layer %d is missing after the model's check", suffix, layer);
}

static dlab_matrix matrix_of(const dlab_tensor *t)
{
    return (dlab_matrix){.dtype = t->dtype, .n = (int32_t)t->dims[1], .k = (int32_t)t->dims[0]};
}

static size_t aligned(size_t bytes) { return (bytes + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN; }

/* The file's bytes in place; or packed, when they are wanted no more. */
static dlab_status load_matrix(loader *l, int layer, const char *suffix, bool product, dlab_matrix *out,
                               dlab_error *err)
{
    const dlab_device_ops *ops = l->dev->ops;
    const dlab_tensor *t;
    DLAB_TRY(find(l, layer, suffix, &t, err));
    dlab_matrix stored = matrix_of(t);
    DLAB_TRY(ops->import(l->dev, DLAB_POOL_WEIGHTS, t->data, t->bytes, &stored.at.buf, err));
    const size_t bytes = product ? ops->packed_bytes(l->opts, &stored) : 0;
    *out = stored;
    if (bytes == 0) {
        l->w->imports[l->w->n_imports++] = stored.at.buf;
        return DLAB_OK;
    }
    const dlab_status st = ops->pack(l->dev, &stored, (dlab_at){l->w->packed, l->packed_at}, out, err);
    l->packed_at += aligned(bytes);
    ops->free(l->dev, DLAB_POOL_WEIGHTS, stored.at.buf);
    return st;
}

static dlab_status load_norm(loader *l, int layer, const char *suffix, dlab_at *out, dlab_error *err)
{
    const dlab_tensor *t;
    DLAB_TRY(find(l, layer, suffix, &t, err));
    if (t->dtype != DLAB_F32) {
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "tensor '%s' is %s: norms are read as f32 only", t->name,
                         dlab_dtype_name(t->dtype));
    }
    *out = (dlab_at){l->w->norms, l->n_norms++ * (size_t)l->width * sizeof(float)};
    return l->dev->ops->upload(l->dev, *out, t->data, (size_t)l->width * sizeof(float), err);
}

static dlab_status load_layer(loader *l, int i, dlab_layer_weights *w, dlab_error *err)
{
    DLAB_TRY(load_norm(l, i, "attn_norm.weight", &w->attn_norm, err));
    DLAB_TRY(load_norm(l, i, "ffn_norm.weight", &w->ffn_norm, err));
    DLAB_TRY(load_matrix(l, i, "attn_q.weight", true, &w->q, err));
    DLAB_TRY(load_matrix(l, i, "attn_k.weight", true, &w->k, err));
    DLAB_TRY(load_matrix(l, i, "attn_v.weight", true, &w->v, err));
    DLAB_TRY(load_matrix(l, i, "attn_output.weight", true, &w->o, err));
    DLAB_TRY(load_matrix(l, i, "ffn_gate.weight", true, &w->gate, err));
    DLAB_TRY(load_matrix(l, i, "ffn_up.weight", true, &w->up, err));
    return load_matrix(l, i, "ffn_down.weight", true, &w->down, err);
}

typedef struct {
    size_t norms, packed, stored;
} bytes_of;

/* What each part takes. An embedding table that no product reads is left as stored. */
static bytes_of weigh(const dlab_device_ops *ops, const dlab_device_opts *opts, const dlab_model *m)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n = 0;
    bytes_of b = {.norms = (size_t)(2 * info->n_layers + 1) * (size_t)info->width * sizeof(float)};
    const dlab_tensor *t = dlab_model_tensors(m, &n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].n_dims < 2) continue;
        const dlab_matrix stored = matrix_of(&t[i]);
        const bool product = info->tied_head || strcmp(t[i].name, "token_embd.weight") != 0;
        const size_t packed = product ? ops->packed_bytes(opts, &stored) : 0;
        b.packed += aligned(packed);
        if (packed == 0) b.stored += t[i].bytes;
    }
    return b;
}

static dlab_status load_all(loader *l, dlab_error *err)
{
    dlab_weights *w = l->w;
    const bytes_of b = weigh(l->dev->ops, l->opts, l->m);
    DLAB_TRY(l->dev->ops->alloc(l->dev, DLAB_POOL_WEIGHTS, b.norms, &w->norms, err));
    DLAB_TRY(l->dev->ops->alloc(l->dev, DLAB_POOL_WEIGHTS, b.packed, &w->packed, err));
    DLAB_TRY(load_matrix(l, -1, "token_embd.weight", w->tied, &w->embedding, err));
    DLAB_TRY(load_norm(l, -1, "output_norm.weight", &w->final_norm, err));
    if (w->tied)
        w->head = w->embedding;
    else
        DLAB_TRY(load_matrix(l, -1, "output.weight", true, &w->head, err));
    for (int i = 0; i < w->n_layers; i++) DLAB_TRY(load_layer(l, i, &w->layers[i], err));
    return l->dev->ops->sync(l->dev, err);
}

dlab_status dlab_weights_create(dlab_device *dev, const dlab_device_opts *opts, const dlab_model *m, dlab_weights *out,
                                dlab_error *err)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n_tensors = 0;
    (void)dlab_model_tensors(m, &n_tensors);
    *out = (dlab_weights){.n_layers = info->n_layers, .tied = info->tied_head};
    out->layers = calloc((size_t)out->n_layers, sizeof *out->layers);
    out->imports = calloc(n_tensors + 1, sizeof *out->imports);
    loader l = {.dev = dev, .opts = opts, .m = m, .w = out, .width = info->width};
    const dlab_status st = out->layers && out->imports
                               ? load_all(&l, err)
                               : DLAB_FAIL(err, DLAB_EOOM, "weights: no memory for %d layers", out->n_layers);
    if (st != DLAB_OK) dlab_weights_destroy(dev, out);
    return st;
}

void dlab_weights_destroy(dlab_device *dev, dlab_weights *w)
{
    for (size_t i = 0; i < w->n_imports; i++) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->imports[i]);
    if (w->packed.ptr) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->packed);
    if (w->norms.ptr) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->norms);
    free(w->layers);
    free(w->imports);
    *w = (dlab_weights){0};
}

size_t dlab_weights_bytes(const dlab_device_ops *ops, const dlab_device_opts *opts, const dlab_model *m)
{
    const bytes_of b = weigh(ops, opts, m);
    return b.norms + b.packed + b.stored;
}

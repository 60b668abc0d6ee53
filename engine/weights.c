#include "engine/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    dlab_device *dev;
    const dlab_model *m;
    dlab_weights *w;
    bool quantized; /* activations of products */
    int64_t width;
    size_t n_norms;
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

/* The file's bytes in place; packed ones take their place where products want that. */
static dlab_status load_matrix(const loader *l, int layer, const char *suffix, bool product, dlab_matrix *out,
                               dlab_error *err)
{
    const dlab_tensor *t;
    DLAB_TRY(find(l, layer, suffix, &t, err));
    dlab_matrix stored = matrix_of(t);
    DLAB_TRY(l->dev->ops->import(l->dev, DLAB_POOL_WEIGHTS, t->data, t->bytes, &stored.at.buf, err));
    *out = stored;
    if (!product || !l->quantized) return DLAB_OK;
    const dlab_status st = l->dev->ops->pack(l->dev, &stored, out, err);
    if (st != DLAB_OK) *out = stored;
    if (st == DLAB_OK && out->layout) l->dev->ops->free(l->dev, DLAB_POOL_WEIGHTS, stored.at.buf);
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

static size_t norms_bytes(const dlab_model_info *info)
{
    return (size_t)(2 * info->n_layers + 1) * (size_t)info->width * sizeof(float);
}

static dlab_status load_all(loader *l, dlab_error *err)
{
    dlab_weights *w = l->w;
    DLAB_TRY(l->dev->ops->alloc(l->dev, DLAB_POOL_WEIGHTS, norms_bytes(dlab_model_get_info(l->m)), &w->norms, err));
    DLAB_TRY(load_matrix(l, -1, "token_embd.weight", w->tied, &w->embedding, err));
    DLAB_TRY(load_norm(l, -1, "output_norm.weight", &w->final_norm, err));
    if (w->tied)
        w->head = w->embedding;
    else
        DLAB_TRY(load_matrix(l, -1, "output.weight", true, &w->head, err));
    for (int i = 0; i < w->n_layers; i++) DLAB_TRY(load_layer(l, i, &w->layers[i], err));
    return l->dev->ops->sync(l->dev, err);
}

dlab_status dlab_weights_create(dlab_device *dev, const dlab_model *m, bool quantized, dlab_weights *out,
                                dlab_error *err)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    *out = (dlab_weights){.n_layers = info->n_layers, .tied = info->tied_head};
    out->layers = calloc((size_t)out->n_layers, sizeof *out->layers);
    if (!out->layers) return DLAB_FAIL(err, DLAB_EOOM, "weights: no memory for %d layers", out->n_layers);
    loader l = {.dev = dev, .m = m, .w = out, .quantized = quantized, .width = info->width};
    const dlab_status st = load_all(&l, err);
    if (st != DLAB_OK) dlab_weights_destroy(dev, out);
    return st;
}

static void give_back(dlab_device *dev, dlab_buf buf)
{
    if (buf.ptr) dev->ops->free(dev, DLAB_POOL_WEIGHTS, buf);
}

void dlab_weights_destroy(dlab_device *dev, dlab_weights *w)
{
    for (int i = 0; w->layers && i < w->n_layers; i++) {
        const dlab_layer_weights *y = &w->layers[i];
        const dlab_matrix *all[] = {&y->q, &y->k, &y->v, &y->o, &y->gate, &y->up, &y->down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) give_back(dev, all[k]->at.buf);
    }
    if (!w->tied) give_back(dev, w->head.at.buf);
    give_back(dev, w->embedding.at.buf);
    give_back(dev, w->norms);
    free(w->layers);
    *w = (dlab_weights){0};
}

size_t dlab_weights_bytes(const dlab_device_ops *ops, const dlab_device_opts *opts, const dlab_model *m, bool quantized)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n = 0, bytes = norms_bytes(info);
    const dlab_tensor *t = dlab_model_tensors(m, &n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].n_dims < 2) continue;
        const dlab_matrix stored = matrix_of(&t[i]);
        const bool product = info->tied_head || strcmp(t[i].name, "token_embd.weight") != 0;
        const size_t packed = quantized && product ? ops->packed_bytes(opts, &stored) : 0;
        bytes += packed ? packed : t[i].bytes;
    }
    return bytes;
}

#include "engine/weights.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    dlab_device *dev;
    const dlab_model *m;
    dlab_buf mapping;
    const char *base;
} loader;

static dlab_status find(const loader *l, int layer, const char *suffix, const dlab_tensor **out, dlab_error *err)
{
    *out = layer < 0 ? dlab_model_tensor(l->m, suffix) : dlab_model_layer_tensor(l->m, layer, suffix);
    if (*out) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "tensor '%s' of layer %d is missing after the model's check", suffix, layer);
}

static dlab_at place_of(const loader *l, const dlab_tensor *t)
{
    return (dlab_at){l->mapping, (size_t)((const char *)t->data - l->base)};
}

static dlab_status load_matrix(const loader *l, int layer, const char *suffix, dlab_matrix *out, dlab_error *err)
{
    const dlab_tensor *t;
    DLAB_TRY(find(l, layer, suffix, &t, err));
    dlab_matrix as_stored = {place_of(l, t), t->dtype, (int32_t)t->dims[1], (int32_t)t->dims[0]};
    return l->dev->ops->pack(l->dev, &as_stored, out, err);
}

static dlab_status load_norm(const loader *l, int layer, const char *suffix, dlab_at *out, dlab_error *err)
{
    const dlab_tensor *t;
    DLAB_TRY(find(l, layer, suffix, &t, err));
    if (t->dtype != DLAB_F32) {
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "tensor '%s' is %s: norms are read as f32 only", t->name,
                         dlab_dtype_name(t->dtype));
    }
    *out = place_of(l, t);
    return DLAB_OK;
}

static dlab_status load_layer(const loader *l, int i, dlab_layer_weights *w, dlab_error *err)
{
    DLAB_TRY(load_norm(l, i, "attn_norm.weight", &w->attn_norm, err));
    DLAB_TRY(load_norm(l, i, "ffn_norm.weight", &w->ffn_norm, err));
    DLAB_TRY(load_matrix(l, i, "attn_q.weight", &w->q, err));
    DLAB_TRY(load_matrix(l, i, "attn_k.weight", &w->k, err));
    DLAB_TRY(load_matrix(l, i, "attn_v.weight", &w->v, err));
    DLAB_TRY(load_matrix(l, i, "attn_output.weight", &w->o, err));
    DLAB_TRY(load_matrix(l, i, "ffn_gate.weight", &w->gate, err));
    DLAB_TRY(load_matrix(l, i, "ffn_up.weight", &w->up, err));
    return load_matrix(l, i, "ffn_down.weight", &w->down, err);
}

static dlab_status load_all(const loader *l, dlab_weights *w, dlab_error *err)
{
    DLAB_TRY(load_matrix(l, -1, "token_embd.weight", &w->embedding, err));
    DLAB_TRY(load_norm(l, -1, "output_norm.weight", &w->final_norm, err));
    if (dlab_model_get_info(l->m)->tied_head) {
        w->head = w->embedding;
    } else {
        DLAB_TRY(load_matrix(l, -1, "output.weight", &w->head, err));
    }
    for (int i = 0; i < w->n_layers; i++) DLAB_TRY(load_layer(l, i, &w->layers[i], err));
    return DLAB_OK;
}

dlab_status dlab_weights_create(dlab_device *dev, const dlab_model *m, dlab_weights *out, dlab_error *err)
{
    size_t bytes = 0;
    const void *host = dlab_model_mapping(m, &bytes);
    *out = (dlab_weights){.n_layers = dlab_model_get_info(m)->n_layers};
    out->layers = calloc((size_t)out->n_layers, sizeof *out->layers);
    if (!out->layers) return DLAB_FAIL(err, DLAB_EOOM, "weights: no memory for %d layers", out->n_layers);
    dlab_status st = dev->ops->import(dev, DLAB_POOL_WEIGHTS, host, bytes, &out->mapping, err);
    if (st == DLAB_OK) {
        loader l = {dev, m, out->mapping, host};
        st = load_all(&l, out, err);
    }
    if (st != DLAB_OK) dlab_weights_destroy(dev, out);
    return st;
}

void dlab_weights_destroy(dlab_device *dev, dlab_weights *w)
{
    if (w->mapping.ptr) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->mapping);
    free(w->layers);
    *w = (dlab_weights){0};
}

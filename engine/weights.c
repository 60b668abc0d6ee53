#include "engine/weights.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    dlab_device *dev;
    const dlab_device_opts *opts;
    const dlab_model *m;
    dlab_weights *w;
    int64_t width;
    dlab_pack_entry *entries; /* what is to be packed, in the order of use */
    size_t n_entries, n_norms, packed_at;
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

static size_t aligned(size_t bytes) { return (bytes + DLAB_PACK_ALIGN - 1) / DLAB_PACK_ALIGN * DLAB_PACK_ALIGN; }

/* The file's bytes in place; or to be packed, when everything is listed. */
static dlab_status load_matrix(loader *l, int layer, const char *suffix, bool product, dlab_matrix *out,
                               dlab_error *err)
{
    const dlab_tensor *t;
    DLAB_TRY(find(l, layer, suffix, &t, err));
    *out = matrix_of(t);
    const size_t bytes = product ? l->dev->ops->packed_bytes(l->opts, out) : 0;
    if (bytes > 0) {
        l->entries[l->n_entries++] = (dlab_pack_entry){t, *out, l->packed_at, bytes, out};
        l->packed_at += aligned(bytes);
        return DLAB_OK;
    }
    DLAB_TRY(l->dev->ops->import(l->dev, DLAB_POOL_WEIGHTS, t->data, t->bytes, &out->at.buf, err));
    l->w->imports[l->w->n_imports++] = out->at.buf;
    return DLAB_OK;
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

static dlab_status list_all(loader *l, dlab_error *err)
{
    dlab_weights *w = l->w;
    DLAB_TRY(load_matrix(l, -1, "token_embd.weight", w->tied, &w->embedding, err));
    DLAB_TRY(load_norm(l, -1, "output_norm.weight", &w->final_norm, err));
    if (!w->tied) DLAB_TRY(load_matrix(l, -1, "output.weight", true, &w->head, err));
    for (int i = 0; i < w->n_layers; i++) DLAB_TRY(load_layer(l, i, &w->layers[i], err));
    return DLAB_OK;
}

static dlab_status pack_in_memory(loader *l, dlab_error *err)
{
    DLAB_TRY(l->dev->ops->alloc(l->dev, DLAB_POOL_WEIGHTS, l->packed_at, &l->w->packed, err));
    for (size_t i = 0; i < l->n_entries; i++) {
        const dlab_pack_entry *e = &l->entries[i];
        DLAB_TRY(dlab_pack_entry_pack(l->dev, l->m, e, (dlab_at){l->w->packed, e->off}, e->out, err));
    }
    return DLAB_OK;
}

static dlab_status pack_in_file(loader *l, dlab_error *err)
{
    dlab_weights *w = l->w;
    if (l->n_entries == 0) return DLAB_OK;
    DLAB_TRY(dlab_pack_file_open(l->dev, l->opts->threads, l->m, l->entries, l->n_entries, &w->file, err));
    DLAB_TRY(l->dev->ops->import(l->dev, DLAB_POOL_WEIGHTS, w->file.data, l->packed_at, &w->packed, err));
    for (size_t i = 0; i < l->n_entries; i++) {
        const dlab_pack_entry *e = &l->entries[i];
        DLAB_TRY(l->dev->ops->packed(l->dev, &e->stored, (dlab_at){w->packed, e->off}, e->out, err));
    }
    return DLAB_OK;
}

static dlab_status load_all(loader *l, bool in_file, dlab_error *err)
{
    dlab_weights *w = l->w;
    const dlab_device_ops *ops = l->dev->ops;
    DLAB_TRY(ops->alloc(l->dev, DLAB_POOL_WEIGHTS, norms_bytes(dlab_model_get_info(l->m)), &w->norms, err));
    DLAB_TRY(list_all(l, err));
    DLAB_TRY(in_file ? pack_in_file(l, err) : pack_in_memory(l, err));
    if (w->tied) w->head = w->embedding;
    DLAB_TRY(ops->sync(l->dev, err));
    if (w->n_imports == 0) dlab_model_release(l->m, NULL); /* reading one tensor may have mapped pages of another */
    return DLAB_OK;
}

dlab_status dlab_weights_create(dlab_device *dev, const dlab_device_opts *opts, const dlab_model *m, bool in_file,
                                dlab_weights *out, dlab_error *err)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n_tensors = 0;
    (void)dlab_model_tensors(m, &n_tensors);
    *out = (dlab_weights){.n_layers = info->n_layers, .tied = info->tied_head};
    out->layers = calloc((size_t)out->n_layers, sizeof *out->layers);
    out->imports = calloc(n_tensors + 1, sizeof *out->imports);
    loader l = {.dev = dev, .opts = opts, .m = m, .w = out, .width = info->width};
    l.entries = calloc(n_tensors + 1, sizeof *l.entries);
    const dlab_status st = out->layers && out->imports && l.entries
                               ? load_all(&l, in_file, err)
                               : DLAB_FAIL(err, DLAB_EOOM, "weights: no memory for %d layers", out->n_layers);
    if (st != DLAB_OK) dlab_weights_destroy(dev, out);
    free(l.entries);
    return st;
}

void dlab_weights_destroy(dlab_device *dev, dlab_weights *w)
{
    for (size_t i = 0; i < w->n_imports; i++) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->imports[i]);
    if (w->packed.ptr) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->packed);
    dlab_pack_file_close(&w->file);
    if (w->norms.ptr) dev->ops->free(dev, DLAB_POOL_WEIGHTS, w->norms);
    free(w->layers);
    free(w->imports);
    *w = (dlab_weights){0};
}

size_t dlab_weights_bytes(const dlab_device_ops *ops, const dlab_device_opts *opts, const dlab_model *m)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n = 0, bytes = norms_bytes(info);
    const dlab_tensor *t = dlab_model_tensors(m, &n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].n_dims < 2) continue;
        const dlab_matrix stored = matrix_of(&t[i]);
        /* an embedding table that no product reads is left as stored */
        const bool product = info->tied_head || strcmp(t[i].name, "token_embd.weight") != 0;
        const size_t packed = product ? ops->packed_bytes(opts, &stored) : 0;
        bytes += packed > 0 ? aligned(packed) : t[i].bytes;
    }
    return bytes;
}

/* The model's weights as a device holds them. */
#ifndef DLAB_ENGINE_WEIGHTS_H
#define DLAB_ENGINE_WEIGHTS_H

#include "engine/model/model.h"
#include "kernels/device.h"

typedef struct {
    dlab_at attn_norm, ffn_norm; /* f32 [D] */
    dlab_matrix q, k, v, o;      /* [H·d, D], [G·d, D], [G·d, D], [D, H·d] */
    dlab_matrix gate, up, down;  /* [F, D], [F, D], [D, F] */
} dlab_layer_weights;

typedef struct {
    dlab_buf mapping;            /* every tensor, imported in place */
    dlab_matrix embedding, head; /* [V, D]; the same when tied */
    dlab_at final_norm;
    dlab_layer_weights *layers;
    int n_layers;
} dlab_weights;

dlab_status dlab_weights_create(dlab_device *dev, const dlab_model *m, dlab_weights *out, dlab_error *err);
void dlab_weights_destroy(dlab_device *dev, dlab_weights *w);

#endif

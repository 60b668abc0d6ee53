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
    dlab_buf norms;              /* every norm, copied: f32 [2·layers + 1, D] */
    dlab_matrix embedding, head; /* [V, D]; the same when tied */
    dlab_at final_norm;
    dlab_layer_weights *layers;
    int n_layers;
    bool tied;
} dlab_weights;

/* Matrices are used where the model's file is mapped, or, with `quantized` activations, packed by the device into memory of
 * its own. A tied head is packed once, and embedding rows are read from there. */
dlab_status dlab_weights_create(dlab_device *dev, const dlab_model *m, bool quantized, dlab_weights *out,
                                dlab_error *err);
/* What create will charge to the weights' pool. */
size_t dlab_weights_bytes(const dlab_device_ops *ops, const dlab_device_opts *opts, const dlab_model *m,
                          bool quantized);
void dlab_weights_destroy(dlab_device *dev, dlab_weights *w);

#endif

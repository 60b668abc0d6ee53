/* The model's weights as a device holds them. */
#ifndef DLAB_ENGINE_WEIGHTS_H
#define DLAB_ENGINE_WEIGHTS_H

#include "engine/model/model.h"
#include "engine/pack_file.h"
#include "kernels/device.h"

typedef struct {
    dlab_at attn_norm, ffn_norm; /* f32 [D] */
    dlab_matrix q, k, v, o;      /* [H·d, D], [G·d, D], [G·d, D], [D, H·d] */
    dlab_matrix gate, up, down;  /* [F, D], [F, D], [D, F] */
} dlab_layer_weights;

typedef struct {
    dlab_buf norms;      /* every norm, copied: f32 [2·layers + 1, D] */
    dlab_buf packed;     /* every packed matrix, one behind the other */
    dlab_pack_file file; /* what it is mapped from, if it is */
    dlab_buf *imports;   /* matrices that are used where the model's file is mapped */
    size_t n_imports;
    dlab_matrix embedding, head; /* [V, D]; the same when tied */
    dlab_at final_norm;
    dlab_layer_weights *layers;
    int n_layers;
    bool tied;
} dlab_weights;

/* Matrices are packed as the device's products like them, or used where the model's file is mapped. A tied head is packed
 * once, and embedding rows are read from there. opts: those of the device; in_file: packed weights are mapped from a file, made
 * if there is none. The model's pages are given back once they are packed. */
dlab_status dlab_weights_create(dlab_device *dev, const dlab_device_opts *opts, const dlab_model *m, bool in_file,
                                dlab_weights *out, dlab_error *err);
/* What the weights' pool holds after create, and at most while it runs. */
size_t dlab_weights_bytes(const dlab_device_ops *ops, const dlab_device_opts *opts, const dlab_model *m);
void dlab_weights_destroy(dlab_device *dev, dlab_weights *w);

#endif

/* A loaded model, as the engine sees it: what it is, and its tensors by name. Internal to the engine. */
#ifndef DLAB_ENGINE_MODEL_MODEL_H
#define DLAB_ENGINE_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "engine/engine.h"

struct dlab_arch;
typedef struct dlab_gguf dlab_gguf;

#define DLAB_TENSOR_NAME 64 /* bytes, NUL included: GGUF's own bound */
#define DLAB_TENSOR_DIMS 4

typedef struct {
    char name[DLAB_TENSOR_NAME];
    dlab_dtype dtype;
    int n_dims;
    int64_t dims[DLAB_TENSOR_DIMS]; /* innermost first as in GGUF; 1 past n_dims. A matrix [N, K] is {K, N} */
    const void *data; /* page-aligned read-only memory holds it: the mapped file, or the synthetic weights */
    size_t bytes;
} dlab_tensor;

/* NULL if the model has none of this name. */
const dlab_tensor *dlab_model_tensor(const dlab_model *m, const char *name);
/* The tensor "blk.LAYER.SUFFIX". */
const dlab_tensor *dlab_model_layer_tensor(const dlab_model *m, int layer, const char *suffix);
/* All of them, sorted by name. */
const dlab_tensor *dlab_model_tensors(const dlab_model *m, size_t *n);
/* The tensor's data (NULL: all of it) will hardly be read again: a mapped file's pages are given back, and read anew should
 * they be wanted after all. Weights that are in no file stay. */
void dlab_model_release(const dlab_model *m, const dlab_tensor *t);
/* The file or the recipe, for messages. */
const char *dlab_model_label(const dlab_model *m);
const struct dlab_arch *dlab_model_arch(const dlab_model *m);
/* The file's metadata (engine/model/gguf.h), NULL for a synthetic model. */
const dlab_gguf *dlab_model_gguf(const dlab_model *m);

/* What dlab_model_open does once a file is mapped: the GGUF image must be 16-byte aligned and outlive the model; `name` is
 * used in messages. */
dlab_status dlab_model_from_memory(const char *name, const void *data, size_t n, dlab_model **out, dlab_error *err);

#endif

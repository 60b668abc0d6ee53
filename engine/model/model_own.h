/* The model's own struct, for the files that make one: model.c (from a file) and synthetic.c. */
#ifndef DLAB_ENGINE_MODEL_MODEL_OWN_H
#define DLAB_ENGINE_MODEL_MODEL_OWN_H

#include "engine/model/arch.h"

#define DLAB_MODEL_NAME 256

struct dlab_model {
    dlab_model_info info;
    char name[DLAB_MODEL_NAME], type[32]; /* what info.name and info.type point to */
    char label[DLAB_MODEL_NAME];          /* the file, for messages */
    const dlab_arch *arch;
    dlab_gguf *gguf;
    char *chat_template;  /* NULL: none */
    dlab_tensor *tensors; /* sorted by name once dlab_model_finish has run */
    size_t n_tensors;
    const void *map;
    size_t map_bytes;
    bool owns_map, from_file; /* the map: a file, from which its pages come again if they are dropped */
};

/* NULL if there is none. */
const dlab_arch *dlab_arch_find(const char *name);
/* Sorts the tensors, lets the architecture check them, and fills what info says about all weights together. */
dlab_status dlab_model_finish(dlab_model *m, dlab_error *err);
/* Weights that are not finite: DLAB_EFORMAT with tensor, element or block, and offset in the mapping. *hash: of all tensors'
 * data. Once over the data with every core. */
dlab_status dlab_model_verify(const dlab_model *m, uint64_t *hash, dlab_error *err);
/* name: what follows "synthetic:". DLAB_EUSAGE names the nearest. */
dlab_status dlab_model_synthesize(const char *name, dlab_model **out, dlab_error *err);

#endif

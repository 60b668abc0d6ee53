/* Architectures: one file each in engine/model/arch/, which defines `const dlab_arch dlab_arch_<file>`. The file's name is
 * GGUF's name of the architecture. */
#ifndef DLAB_ENGINE_MODEL_ARCH_H
#define DLAB_ENGINE_MODEL_ARCH_H

#include <stdbool.h>

#include "engine/model/model.h"

typedef struct dlab_arch {
    const char *name, *summary;
    bool rope_norm; /* RoPE rotates the pairs (2i, 2i+1); else (i, i + d/2) */
    /* Fills info's shape (n_layers … rope_base) from the metadata; what it cannot do is DLAB_ENOTBUILT by the key's name. */
    dlab_status (*read)(const dlab_gguf *g, dlab_model_info *info, dlab_error *err);
    /* Every tensor there with the shape that info wants, and none that forward would ignore. */
    dlab_status (*check)(const dlab_model *m, dlab_error *err);
} dlab_arch;

extern const dlab_arch *const dlab_archs[]; /* NULL-terminated */

#endif

#include "engine/attention/attention.h"

#include <string.h>

const dlab_attn_kernel *dlab_attn_kernel_find(const char *name)
{
    for (size_t i = 0; dlab_attn_kernels[i]; i++) {
        if (strcmp(dlab_attn_kernels[i]->name, name) == 0) return dlab_attn_kernels[i];
    }
    return NULL;
}

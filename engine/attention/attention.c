#include "engine/attention/attention.h"

#include <string.h>

#include "engine/attention/pattern.h"

const dlab_attn_kernel *dlab_attn_kernel_find(const char *name)
{
    for (size_t i = 0; dlab_attn_kernels[i]; i++) {
        if (strcmp(dlab_attn_kernels[i]->name, name) == 0) return dlab_attn_kernels[i];
    }
    return NULL;
}

const dlab_attn_pattern *dlab_attn_pattern_find(const char *name)
{
    for (size_t i = 0; dlab_attn_patterns[i]; i++) {
        if (strcmp(dlab_attn_patterns[i]->name, name) == 0) return dlab_attn_patterns[i];
    }
    return NULL;
}

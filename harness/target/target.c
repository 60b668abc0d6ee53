#include "harness/target/target.h"

#include <string.h>

const dlab_target_ops *dlab_target_find(const char *name)
{
    for (size_t i = 0; dlab_targets[i]; i++) {
        if (strcmp(dlab_targets[i]->name, name) == 0) return dlab_targets[i];
    }
    return NULL;
}

/* Takes the place of kernels/cpu/cpu_isa.c, whose questions to the CPU get other names here. */
#define dlab_isa_supported dlab_isa_native
#define dlab_isa_best      dlab_isa_native_best
#include "kernels/cpu/cpu_isa.c"
#undef dlab_isa_supported
#undef dlab_isa_best

#include <stdlib.h>

#include "tests/shim/shim_isa.h"

bool dlab_isa_supported(const char *isa)
{
    const char *which = getenv("DLAB_SHIM");
    const bool all = which && strcmp(which, "all") == 0;
    for (int i = 0; dlab_isa_list[i]; i++)
        if (strcmp(isa, dlab_isa_list[i]) == 0) return all || i == 0 || !dlab_isa_native(isa);
    return false;
}

const char *dlab_isa_best(void)
{
    const char *best = dlab_isa_list[0];
    for (int i = 0; dlab_isa_list[i]; i++)
        if (dlab_isa_supported(dlab_isa_list[i])) best = dlab_isa_list[i];
    return best;
}

/* Instruction sets in a program whose kernels run through the shim. Supported are the first of the list, which needs no
 * intrinsics, and those that this CPU lacks; with DLAB_SHIM=all in the environment all of them. */
#ifndef DLAB_TESTS_SHIM_SHIM_ISA_H
#define DLAB_TESTS_SHIM_SHIM_ISA_H

#include <stdbool.h>

bool dlab_isa_supported(const char *isa);
const char *dlab_isa_best(void);
/* What dlab_isa_supported says in other programs: this CPU has it. */
bool dlab_isa_native(const char *isa);

#endif

/* shim_run [PROGRAM]: says of each instruction set how its kernels are tested on this CPU, then becomes the program, which
 * runs those through the shim that the CPU lacks. Where it lacks none there is nothing to run: exit status 77. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tests/shim/shim_isa.h"

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 0; dlab_isa_list[i]; i++) {
        const char *isa = dlab_isa_list[i];
        const bool native = dlab_isa_native(isa), shim = i > 0 && dlab_isa_supported(isa);
        printf("%s: %s%s\n", isa, native ? "run natively" : "not on this CPU, run through the shim",
               native && shim ? ", and through the shim" : "");
        n += shim;
    }
    fflush(stdout);
    if (argc < 2) return 0;
    if (n == 0) {
        printf("this CPU lacks no instruction set; DLAB_SHIM=all runs %s through the shim all the same\n", argv[1]);
        return 77;
    }
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}

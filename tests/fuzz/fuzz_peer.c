/* Any bytes as what a peer printed: the one test that was asked for, with a time that can be, or an error in one line. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/peer/peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const dlab_peer_test asked = {.n_gen = 32,
                                         .npl = 4,
                                         .n_batch = 2048,
                                         .n_ubatch = 512,
                                         .threads = 2,
                                         .n_params = 1000,
                                         .type_k = "q8_0",
                                         .type_v = "f16",
                                         .flash = 1};
    dlab_peer_sample s = {0};
    dlab_error err = {0};
    char *text = malloc(n + 1); /* ends with a NUL, as what dlab_peer_exec returns */
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = 0;
    if (dlab_peer_read("peer", text, n, &asked, &s, &err) == DLAB_OK) {
        if (!(isfinite(s.time_ns) && s.time_ns > 0 && isfinite(s.rate) && s.rate > 0)) abort();
        if (!memchr(s.build, 0, sizeof s.build) || strpbrk(s.build, "\n\r\t\x1b")) abort();
    } else if (err.msg[0] == 0 || strchr(err.msg, '\n')) {
        abort();
    }
    free(text);
    return 0;
}

/* Any bytes as an experiment file: an error or points, never a crash. */
#include <stddef.h>
#include <stdint.h>

#include "harness/spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlab_spec *s = NULL;
    dlab_error err = {0};
    if (dlab_spec_parse("fuzz.yaml", (const char *)data, size, NULL, 0, "synthetic:tiny", &s, &err) == DLAB_OK) {
        dlab_spec_destroy(s);
    }
    return 0;
}

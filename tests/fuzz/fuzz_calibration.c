/* Any bytes as kept peaks: refused in one line, with nothing taken; or taken, and then written and read back the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/probes/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define OF_NOBODY                                                                                                      \
    {                                                                                                                  \
        .isa = "plain", .fingerprint = "0123456789abcdef"                                                              \
    }

static void write_and_read_back(const dlab_calibration *c)
{
    dlab_calibration back = OF_NOBODY;
    json_t *j = dlab_calibration_json(c);
    char *text = j ? dlab_json_dump(j, 2) : NULL;
    if (!text || dlab_calibration_parse(&back, "fuzz.json", text, strlen(text), NULL) != DLAB_OK) abort();
    if (back.n != c->n) abort();
    for (size_t i = 0; i < c->n; i++) {
        const dlab_calibrated *a = &c->threads[i], *b = &back.threads[i];
        if (a->threads != b->threads || a->quick != b->quick || a->measured != b->measured || a->n != b->n) abort();
        if (memcmp(a->rows, b->rows, a->n * sizeof *a->rows) != 0) abort();
    }
    json_decref(j);
    free(text);
    dlab_calibration_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    dlab_calibration c = OF_NOBODY;
    dlab_error err = {0};
    if (dlab_calibration_parse(&c, "fuzz.json", (const char *)data, n, &err) == DLAB_OK)
        write_and_read_back(&c);
    else if (c.n > 0 || err.msg[0] == 0 || strchr(err.msg, '\n'))
        abort();
    dlab_calibration_free(&c);
    return 0;
}

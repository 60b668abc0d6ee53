/* A model from any bytes: refused in one line, or opened, and then its tokenizer works or is refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void use_tokenizer(const dlab_model *m)
{
    static const char text[] = "Hello  world, it's 2026!\n\xff\xc3\xa9<s>";
    dlab_tokenizer *t = NULL;
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n_ids = 0, n = 0;
    if (dlab_tokenizer_create(m, &t, NULL) != DLAB_OK) return;
    if (dlab_tokenizer_encode(t, text, sizeof text, true, true, &ids, &n_ids, NULL) == DLAB_OK &&
        dlab_tokenizer_decode(t, ids, n_ids, &back, &n, NULL) != DLAB_OK)
        abort();
    free(back);
    free(ids);
    dlab_tokenizer_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    dlab_model *m = NULL;
    dlab_error err = {0};
    void *copy = malloc(n + 1); /* aligned, as a mapped file is */
    if (!copy) return 0;
    memcpy(copy, data, n);
    if (dlab_model_from_memory("fuzz.gguf", copy, n, &m, &err) == DLAB_OK)
        use_tokenizer(m);
    else if (m || err.msg[0] == 0 || strchr(err.msg, '\n'))
        abort();
    dlab_model_close(m);
    free(copy);
    return 0;
}

/* Any bytes encode, and come back the same. The first byte of the input chooses the pre-tokenizer and the parsing. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "tests/engine/tiny_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const words[] = {"aa", "aaaa", "ab", "Ġa", "ĠĠ", "<s>", "<s>x", "USER", "Ã©", "12", NULL};
static const int types[] = {1, 1, 1, 1, 1, 3, 3, 4, 1, 1, 0};
static const char *const merges[] = {"a b", "a a", "aa aa", "Ġ a", "Ġ Ġ", "Ã ©", "1 2", "aaaa aaaa", NULL};

static dlab_tokenizer *make_tokenizer(const char *pre)
{
    gguf_writer w;
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    tiny_build(&w, &(tiny_options){.pre = pre, .tokens = words, .types = types, .merges = merges, .bytes = true});
    if (dlab_model_from_memory("tiny.gguf", w.data, w.n, &m, NULL) != DLAB_OK) abort();
    if (dlab_tokenizer_create(m, &t, NULL) != DLAB_OK) abort();
    dlab_model_close(m);
    gw_free(&w);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static dlab_tokenizer *rows[2];
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n_ids = 0, n_back = 0;
    if (!rows[0]) {
        rows[0] = make_tokenizer("gpt-2");
        rows[1] = make_tokenizer("smollm");
    }
    if (n == 0) return 0;
    const dlab_tokenizer *t = rows[data[0] & 1];
    const char *text = (const char *)data + 1;
    if (dlab_tokenizer_encode(t, text, n - 1, data[0] & 2, true, &ids, &n_ids, NULL) != DLAB_OK) abort();
    if (dlab_tokenizer_decode(t, ids, n_ids, &back, &n_back, NULL) != DLAB_OK) abort();
    if (n_back != n - 1 || memcmp(back, text, n_back) != 0) abort();
    free(back);
    free(ids);
    return 0;
}

/* GGUF version 2 and 3, little endian, from memory: metadata by key, and tensors. Nothing of the file is trusted; every
 * error says the file and, where there is one, the byte offset.
 * Source: the GGUF specification, ggml/docs/gguf.md. */
#ifndef DLAB_ENGINE_MODEL_GGUF_H
#define DLAB_ENGINE_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/model/model.h"

typedef struct {
    const char *text; /* not NUL-terminated, any bytes */
    size_t n;
} dlab_gguf_str;

/* Reads the head and the metadata of the image data [n], which must be 16-byte aligned and outlive *out. */
dlab_status dlab_gguf_parse(const char *name, const void *data, size_t n, dlab_gguf **out, dlab_error *err);
void dlab_gguf_destroy(dlab_gguf *g);
/* The file's name as messages show it, cut at its front if long. */
const char *dlab_gguf_label(const dlab_gguf *g);

/* Reads the tensor table that follows the metadata: *tensors is malloc'd, in order of place in the file; *data_off is where
 * the data section begins. DLAB_ENOTBUILT names a tensor of an element type that is not built. */
dlab_status dlab_gguf_read_tensors(const dlab_gguf *g, dlab_tensor **tensors, size_t *n_tensors, size_t *data_off,
                                   dlab_error *err);

/* ---- metadata: DLAB_EFORMAT when the key is missing, of another type, or out of range ------------------------------- */

bool dlab_gguf_has(const dlab_gguf *g, const char *key);
bool dlab_gguf_is_array(const dlab_gguf *g, const char *key);
dlab_status dlab_gguf_get_int(const dlab_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                              dlab_error *err);
dlab_status dlab_gguf_get_float(const dlab_gguf *g, const char *key, double *out, dlab_error *err); /* finite */
dlab_status dlab_gguf_get_bool(const dlab_gguf *g, const char *key, bool *out, dlab_error *err);
dlab_status dlab_gguf_get_str(const dlab_gguf *g, const char *key, dlab_gguf_str *out, dlab_error *err);

/* An array, read once from front to back. `left` is its length before the first call of next. */
typedef struct {
    const uint8_t *at;
    size_t left;
    uint32_t type;
} dlab_gguf_array;

dlab_status dlab_gguf_get_strings(const dlab_gguf *g, const char *key, dlab_gguf_array *out, dlab_error *err);
bool dlab_gguf_next_str(dlab_gguf_array *a, dlab_gguf_str *out);
dlab_status dlab_gguf_get_ints(const dlab_gguf *g, const char *key, dlab_gguf_array *out, dlab_error *err);
bool dlab_gguf_next_int(dlab_gguf_array *a, int64_t *out);

/* The i-th key in alphabetical order; false past the last. */
bool dlab_gguf_key(const dlab_gguf *g, size_t i, dlab_gguf_str *out);

/* ---- helps for messages --------------------------------------------------------------------------------------------- */

#define DLAB_GGUF_SHOWN 96
/* Text from a file made fit for one line: bytes that are not printable ASCII become '?', a long text is cut. Returns buf. */
const char *dlab_gguf_show(char buf[DLAB_GGUF_SHOWN], dlab_gguf_str s);
bool dlab_gguf_str_is(dlab_gguf_str s, const char *text);
/* "Q4_1": GGUF's name of the element type. */
const char *dlab_gguf_type_name(dlab_dtype t);

#endif

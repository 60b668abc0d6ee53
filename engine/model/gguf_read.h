/* What the two halves of the GGUF reader share: metadata (gguf.c) and tensors (gguf_tensors.c). */
#ifndef DLAB_ENGINE_MODEL_GGUF_READ_H
#define DLAB_ENGINE_MODEL_GGUF_READ_H

#include "engine/model/gguf.h"

#define GGUF_MAX_LABEL 200

typedef struct {
    dlab_gguf_str key;
    uint32_t type, elem_type; /* elem_type and count: arrays only */
    uint64_t count;
    const uint8_t *value; /* of an array: its first element */
} gguf_entry;

struct dlab_gguf {
    char label[GGUF_MAX_LABEL];
    const uint8_t *data;
    size_t n;
    gguf_entry *entries; /* sorted by key */
    size_t n_entries;
    size_t n_tensors, tensors_at;
};

/* A place in the image; the functions fail with the offset when it ends too early. */
typedef struct {
    const char *label;
    const uint8_t *data;
    size_t n, at; /* at ≤ n */
} dlab_gguf_reader;

uint32_t dlab_gguf_load_u32(const uint8_t *p);
uint64_t dlab_gguf_load_u64(const uint8_t *p);
dlab_status dlab_gguf_read_need(const dlab_gguf_reader *r, uint64_t bytes, const char *what, dlab_error *err);
dlab_status dlab_gguf_read_u32(dlab_gguf_reader *r, const char *what, uint32_t *out, dlab_error *err);
dlab_status dlab_gguf_read_u64(dlab_gguf_reader *r, const char *what, uint64_t *out, dlab_error *err);
dlab_status dlab_gguf_read_str(dlab_gguf_reader *r, const char *what, dlab_gguf_str *out, dlab_error *err);
/* Not empty, no control bytes. */
bool dlab_gguf_is_plain(dlab_gguf_str s);

#endif

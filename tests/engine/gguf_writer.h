/* Writes GGUF images in memory for tests, well-formed or, with the patches, not. */
#ifndef DLAB_TESTS_ENGINE_GGUF_WRITER_H
#define DLAB_TESTS_ENGINE_GGUF_WRITER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GW_U32 = 4, GW_I32 = 5, GW_F32 = 6, GW_BOOL = 7, GW_STR = 8, GW_ARRAY = 9 };
enum { GW_T_F32 = 0, GW_T_F16 = 1, GW_T_Q4_0 = 2, GW_T_Q4_1 = 3, GW_T_Q8_0 = 8, GW_T_BF16 = 30 };

#define GW_MAX_TENSORS 64
#define GW_ALIGN       32

typedef struct {
    uint8_t *data;
    size_t n, room;
    uint64_t n_keys, n_tensors;
    struct {
        char name[64];
        uint64_t offset; /* in the data section */
        uint64_t bytes;
    } tensors[GW_MAX_TENSORS];
    uint64_t data_bytes;
    size_t data_at; /* of the data section in the image, once finished */
} gguf_writer;

static inline void gw_raw(gguf_writer *w, const void *p, size_t n)
{
    if (w->n + n > w->room) {
        w->room = 2 * (w->n + n) + 64;
        w->data = realloc(w->data, w->room);
        if (!w->data) abort();
    }
    if (n > 0) memcpy(w->data + w->n, p, n);
    w->n += n;
}

static inline void gw_u32(gguf_writer *w, uint32_t v) { gw_raw(w, &v, sizeof v); }
static inline void gw_u64(gguf_writer *w, uint64_t v) { gw_raw(w, &v, sizeof v); }

static inline void gw_bytes(gguf_writer *w, const char *s, size_t n)
{
    gw_u64(w, n);
    gw_raw(w, s, n);
}

static inline void gw_text(gguf_writer *w, const char *s) { gw_bytes(w, s, strlen(s)); }

static inline void gw_start(gguf_writer *w, uint32_t version)
{
    memset(w, 0, sizeof *w);
    gw_raw(w, "GGUF", 4);
    gw_u32(w, version);
    gw_u64(w, 0); /* both counts are filled in by gw_finish */
    gw_u64(w, 0);
}

static inline void gw_key(gguf_writer *w, const char *key, uint32_t type)
{
    gw_text(w, key);
    gw_u32(w, type);
    w->n_keys++;
}

static inline void gw_key_u32(gguf_writer *w, const char *key, uint32_t v)
{
    gw_key(w, key, GW_U32);
    gw_u32(w, v);
}

static inline void gw_key_f32(gguf_writer *w, const char *key, float v)
{
    gw_key(w, key, GW_F32);
    gw_raw(w, &v, sizeof v);
}

static inline void gw_key_bool(gguf_writer *w, const char *key, uint8_t v)
{
    gw_key(w, key, GW_BOOL);
    gw_raw(w, &v, 1);
}

static inline void gw_key_str(gguf_writer *w, const char *key, const char *v)
{
    gw_key(w, key, GW_STR);
    gw_text(w, v);
}

/* The elements follow with gw_text or gw_u32. */
static inline void gw_key_array(gguf_writer *w, const char *key, uint32_t elem_type, uint64_t n)
{
    gw_key(w, key, GW_ARRAY);
    gw_u32(w, elem_type);
    gw_u64(w, n);
}

static inline uint64_t gw_tensor_bytes(uint32_t type, uint64_t n)
{
    switch (type) {
    case GW_T_F32:
        return n * 4;
    case GW_T_Q4_0:
        return n / 32 * 18;
    case GW_T_Q4_1:
        return n / 32 * 20;
    case GW_T_Q8_0:
        return n / 32 * 34;
    default:
        return n * 2;
    }
}

/* d1 0: a vector. After the keys. */
static inline void gw_tensor(gguf_writer *w, const char *name, uint32_t type, uint64_t d0, uint64_t d1)
{
    if (w->n_tensors == GW_MAX_TENSORS) abort();
    snprintf(w->tensors[w->n_tensors].name, sizeof w->tensors[0].name, "%s", name);
    w->tensors[w->n_tensors].offset = w->data_bytes;
    w->tensors[w->n_tensors].bytes = gw_tensor_bytes(type, d0 * (d1 > 0 ? d1 : 1));
    gw_text(w, name);
    gw_u32(w, d1 > 0 ? 2 : 1);
    gw_u64(w, d0);
    if (d1 > 0) gw_u64(w, d1);
    gw_u32(w, type);
    gw_u64(w, w->data_bytes);
    w->data_bytes = (w->data_bytes + w->tensors[w->n_tensors].bytes + GW_ALIGN - 1) / GW_ALIGN * GW_ALIGN;
    w->n_tensors++;
}

static inline void gw_zeros(gguf_writer *w, size_t n)
{
    const uint8_t zero = 0;
    for (size_t i = 0; i < n; i++) gw_raw(w, &zero, 1);
}

/* The data, all zeros; nothing is padded after the last tensor, so that every byte of the image counts. */
static inline void gw_finish(gguf_writer *w)
{
    gw_zeros(w, (GW_ALIGN - w->n % GW_ALIGN) % GW_ALIGN);
    w->data_at = w->n;
    if (w->n_tensors > 0)
        gw_zeros(w, (size_t)(w->tensors[w->n_tensors - 1].offset + w->tensors[w->n_tensors - 1].bytes));
    memcpy(w->data + 8, &w->n_tensors, 8);
    memcpy(w->data + 16, &w->n_keys, 8);
}

static inline void gw_free(gguf_writer *w) { free(w->data); }

/* ---- patches -------------------------------------------------------------------------------------------------------- */

/* Where the image goes on after a key or a tensor's name (with its length before it, so that no longer name is met). */
static inline size_t gw_after(const gguf_writer *w, const char *name)
{
    uint64_t n = strlen(name);
    const uint8_t *end = w->data + w->n, *p = w->data + 8;
    for (; (p = memmem(p, (size_t)(end - p), name, n)) != NULL; p++)
        if (memcmp(p - 8, &n, 8) == 0) return (size_t)(p - w->data) + n;
    abort();
}

static inline uint8_t *gw_tensor_data(const gguf_writer *w, const char *name)
{
    for (uint64_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0) return w->data + w->data_at + w->tensors[i].offset;
    abort();
}

#endif

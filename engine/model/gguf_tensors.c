#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf_read.h"

#define GGUF_ALIGNMENT     32 /* unless general.alignment says otherwise */
#define GGUF_MIN_ALIGNMENT 8

/* GGUF's element types; `dtype` where it is built. */
static const struct {
    const char *name;
    uint32_t id;
    int dtype; /* dlab_dtype or −1 */
} element_types[] = {
    {"F32", 0, DLAB_F32}, {"F16", 1, DLAB_F16},   {"Q4_0", 2, DLAB_Q4_0}, {"Q4_1", 3, DLAB_Q4_1},  {"Q5_0", 6, -1},
    {"Q5_1", 7, -1},      {"Q8_0", 8, DLAB_Q8_0}, {"Q8_1", 9, -1},        {"Q2_K", 10, -1},        {"Q3_K", 11, -1},
    {"Q4_K", 12, -1},     {"Q5_K", 13, -1},       {"Q6_K", 14, -1},       {"Q8_K", 15, -1},        {"IQ2_XXS", 16, -1},
    {"IQ2_XS", 17, -1},   {"IQ3_XXS", 18, -1},    {"IQ1_S", 19, -1},      {"IQ4_NL", 20, -1},      {"IQ3_S", 21, -1},
    {"IQ2_S", 22, -1},    {"IQ4_XS", 23, -1},     {"I8", 24, -1},         {"I16", 25, -1},         {"I32", 26, -1},
    {"I64", 27, -1},      {"F64", 28, -1},        {"IQ1_M", 29, -1},      {"BF16", 30, DLAB_BF16}, {"TQ1_0", 34, -1},
    {"TQ2_0", 35, -1},    {"MXFP4", 39, -1},
};
#define N_ELEMENT_TYPES (sizeof element_types / sizeof *element_types)

const char *dlab_gguf_type_name(dlab_dtype t)
{
    for (size_t i = 0; i < N_ELEMENT_TYPES; i++)
        if (element_types[i].dtype == (int)t) return element_types[i].name;
    return "?";
}

static dlab_status set_type(const char *label, dlab_tensor *t, uint32_t id, dlab_error *err)
{
    const char *name = "unknown";
    char built[128] = "";
    for (size_t i = 0, used = 0; i < N_ELEMENT_TYPES; i++) {
        if (element_types[i].id == id) name = element_types[i].name;
        if (element_types[i].dtype < 0) continue;
        if (element_types[i].id == id) {
            t->dtype = (dlab_dtype)element_types[i].dtype;
            return DLAB_OK;
        }
        if (used < sizeof built)
            used += (size_t)snprintf(built + used, sizeof built - used, "%s%s", used > 0 ? ", " : "",
                                     element_types[i].name);
    }
    return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: tensor '%s' has type %s (%u): not built; built are %s", label, t->name,
                     name, id, built);
}

static dlab_status read_dims(dlab_gguf_reader *r, dlab_tensor *t, int64_t *n_elements, dlab_error *err)
{
    uint32_t n_dims = 0;
    DLAB_TRY(dlab_gguf_read_u32(r, "a tensor's dimension count", &n_dims, err));
    if (n_dims < 1 || n_dims > DLAB_TENSOR_DIMS)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' has %u dimensions, expected 1 to %d", r->label,
                         r->at - 4, t->name, n_dims, DLAB_TENSOR_DIMS);
    t->n_dims = (int)n_dims;
    *n_elements = 1;
    for (uint32_t i = 0; i < DLAB_TENSOR_DIMS; i++) {
        uint64_t dim = 1;
        if (i < n_dims) DLAB_TRY(dlab_gguf_read_u64(r, "a tensor's dimension", &dim, err));
        if (dim == 0)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' has a dimension of 0", r->label, r->at - 8,
                             t->name);
        if (dim > INT64_MAX || __builtin_mul_overflow(*n_elements, (int64_t)dim, n_elements))
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' has more than 2^63 elements", r->label,
                             r->at - 8, t->name);
        t->dims[i] = (int64_t)dim;
    }
    return DLAB_OK;
}

static dlab_status read_tensor(dlab_gguf_reader *r, dlab_tensor *t, uint64_t *offset, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    dlab_gguf_str name = {0};
    uint32_t type = 0;
    int64_t n_elements = 0;
    size_t start = r->at;
    DLAB_TRY(dlab_gguf_read_str(r, "a tensor's name", &name, err));
    if (name.n >= DLAB_TENSOR_NAME || !dlab_gguf_is_plain(name))
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: offset %zu: the tensor name '%s' is empty, longer than %d bytes or holds control bytes",
                         r->label, start, dlab_gguf_show(shown, name), DLAB_TENSOR_NAME - 1);
    dlab_gguf_show(shown, name);
    memcpy(t->name, shown, name.n + 1);
    DLAB_TRY(read_dims(r, t, &n_elements, err));
    DLAB_TRY(dlab_gguf_read_u32(r, "a tensor's type", &type, err));
    DLAB_TRY(set_type(r->label, t, type, err));
    DLAB_TRY(dlab_gguf_read_u64(r, "a tensor's offset", offset, err));
    int block = dlab_dtype_block(t->dtype);
    if (t->dims[0] % block != 0)
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: offset %zu: tensor '%s' has rows of %lld elements, not a multiple of %s's %d", r->label,
                         start, t->name, (long long)t->dims[0], dlab_gguf_type_name(t->dtype), block);
    if (__builtin_mul_overflow((uint64_t)(n_elements / block), (uint64_t)dlab_dtype_block_bytes(t->dtype), &t->bytes))
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' has more than 2^64 bytes", r->label, start,
                         t->name);
    return DLAB_OK;
}

/* Sets t->data. `offset` is relative to the data section. */
static dlab_status place_tensor(const dlab_gguf *g, dlab_tensor *t, uint64_t offset, size_t data_off, size_t alignment,
                                dlab_error *err)
{
    size_t room = g->n - data_off;
    if (offset % alignment != 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: tensor '%s' begins at %llu of the data section, not a multiple of %zu",
                         g->label, t->name, (unsigned long long)offset, alignment);
    if (offset > room || t->bytes > room - offset)
        return DLAB_FAIL(
            err, DLAB_EFORMAT,
            "%s: tensor '%s' (%zu bytes at offset %llu of the data section) ends past the file's %zu bytes: cut "
            "short or damaged",
            g->label, t->name, t->bytes, (unsigned long long)offset, g->n);
    t->data = g->data + data_off + offset;
    return DLAB_OK;
}

static int compare_places(const void *a, const void *b)
{
    const uint8_t *x = ((const dlab_tensor *)a)->data, *y = ((const dlab_tensor *)b)->data;
    return (x > y) - (x < y);
}

static dlab_status check_overlap(const dlab_gguf *g, const dlab_tensor *t, size_t n, dlab_error *err)
{
    for (size_t i = 1; i < n; i++) {
        const uint8_t *end = (const uint8_t *)t[i - 1].data + t[i - 1].bytes, *begin = t[i].data;
        if (begin < end)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' overlaps the end of '%s'", g->label,
                             (size_t)(begin - g->data), t[i].name, t[i - 1].name);
    }
    return DLAB_OK;
}

/* *out is left alone where the file says nothing. */
static dlab_status read_alignment(const dlab_gguf *g, size_t *out, dlab_error *err)
{
    int64_t v = 0;
    if (!dlab_gguf_has(g, "general.alignment")) return DLAB_OK;
    DLAB_TRY(dlab_gguf_get_int(g, "general.alignment", 0, UINT32_MAX, &v, err));
    if (v < GGUF_MIN_ALIGNMENT || (v & (v - 1)) != 0)
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: the key 'general.alignment' is %lld, expected a power of two from %d on", g->label,
                         (long long)v, GGUF_MIN_ALIGNMENT);
    *out = (size_t)v;
    return DLAB_OK;
}

dlab_status dlab_gguf_read_tensors(const dlab_gguf *g, dlab_tensor **tensors, size_t *n_tensors, size_t *data_off,
                                   dlab_error *err)
{
    dlab_status st = DLAB_OK;
    size_t alignment = GGUF_ALIGNMENT;
    dlab_gguf_reader r = {g->label, g->data, g->n, g->tensors_at};
    dlab_tensor *all = calloc(g->n_tensors + 1, sizeof *all);
    uint64_t *offsets = calloc(g->n_tensors + 1, sizeof *offsets);
    *tensors = NULL;
    *n_tensors = *data_off = 0;
    if (!all || !offsets) {
        st = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for %zu tensors", g->label, g->n_tensors);
        goto done;
    }
    DLAB_TRY_DONE(st, read_alignment(g, &alignment, err));
    for (size_t i = 0; i < g->n_tensors; i++) DLAB_TRY_DONE(st, read_tensor(&r, &all[i], &offsets[i], err));
    size_t pad = (alignment - r.at % alignment) % alignment;
    DLAB_TRY_DONE(st, dlab_gguf_read_need(&r, pad, "the gap before the data", err));
    for (size_t i = 0; i < g->n_tensors; i++)
        DLAB_TRY_DONE(st, place_tensor(g, &all[i], offsets[i], r.at + pad, alignment, err));
    qsort(all, g->n_tensors, sizeof *all, compare_places);
    DLAB_TRY_DONE(st, check_overlap(g, all, g->n_tensors, err));
    *tensors = all;
    *n_tensors = g->n_tensors;
    *data_off = r.at + pad;
    all = NULL;
done:
    free(all);
    free(offsets);
    return st;
}

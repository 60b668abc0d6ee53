/* Look-ups in the generated tables, and K4's arithmetic. */
#include <string.h>

#include "base/param.h"
#include "engine/kv/store.h"

const dlab_kv_store_ops *dlab_kv_store_find(const char *name)
{
    for (size_t i = 0; dlab_kv_stores[i]; i++) {
        if (strcmp(dlab_kv_stores[i]->name, name) == 0) return dlab_kv_stores[i];
    }
    return NULL;
}

const dlab_kv_format *dlab_kv_format_find(const char *name)
{
    for (size_t i = 0; dlab_kv_formats[i]; i++) {
        if (strcmp(dlab_kv_formats[i]->name, name) == 0) return dlab_kv_formats[i];
    }
    return NULL;
}

static dlab_status need_of(const char *format, int64_t vectors, int64_t head_dim, int64_t *out, dlab_error *err)
{
    const dlab_kv_format *f = dlab_kv_format_find(format);
    if (!f) return DLAB_FAIL(err, DLAB_EUSAGE, "KV format '%s' is not one of this version's: see `dlab list`", format);
    dlab_kv_layout l; /* one scale a token and head, where there are any */
    DLAB_TRY(dlab_kv_layout_make("kv", f, "token", 1, 0, &l, err));
    if (__builtin_mul_overflow(vectors, dlab_kv_token_stride(&l, head_dim) + dlab_kv_scale_bytes(&l, head_dim), out)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "KV size overflows 64 bits: give a smaller shape, length or batch");
    }
    return DLAB_OK;
}

dlab_status dlab_kv_plan(const char *k_format, const char *v_format, int64_t n_layers, int64_t n_kv_heads,
                         int64_t head_dim, int64_t tokens, int64_t batch, dlab_kv_need *out, dlab_error *err)
{
    *out = (dlab_kv_need){0};
    if (n_layers < 1 || n_kv_heads < 1 || head_dim < 1 || tokens < 0 || batch < 0) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "KV size needs layers, KV heads and head dim of at least 1, and no negative length or batch");
    }
    int64_t vectors, all;
    if (__builtin_mul_overflow(n_layers, n_kv_heads, &vectors) || head_dim > INT64_MAX / 8 ||
        __builtin_mul_overflow(tokens, batch, &all) || __builtin_mul_overflow(all, vectors, &all)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "KV size overflows 64 bits: give a smaller shape, length or batch");
    }
    DLAB_TRY(need_of(k_format, all, head_dim, &out->k_bytes, err));
    DLAB_TRY(need_of(v_format, all, head_dim, &out->v_bytes, err));
    int64_t k_token = 0, v_token = 0;
    DLAB_TRY(need_of(k_format, vectors, head_dim, &k_token, err));
    DLAB_TRY(need_of(v_format, vectors, head_dim, &v_token, err));
    if (__builtin_add_overflow(out->k_bytes, out->v_bytes, &out->total_bytes) ||
        __builtin_add_overflow(k_token, v_token, &out->bytes_per_token)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "KV size overflows 64 bits: give a smaller shape, length or batch");
    }
    return DLAB_OK;
}

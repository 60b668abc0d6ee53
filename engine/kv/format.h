/* Element formats of the KV cache, one file each in engine/kv/formats. A format says how a token's vector of one head is
 * laid out; kernels read and write it directly. */
#ifndef DLAB_ENGINE_KV_FORMAT_H
#define DLAB_ENGINE_KV_FORMAT_H

#include "base/dtype.h"
#include "base/status.h"

typedef struct {
    const char *name, *summary;
    dlab_dtype dtype;
} dlab_kv_format;

extern const dlab_kv_format *const dlab_kv_formats[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_kv_format *dlab_kv_format_find(const char *name);
/* Bytes of one token's vector of one head. */
int64_t dlab_kv_format_bytes(const dlab_kv_format *f, int64_t head_dim);

#endif

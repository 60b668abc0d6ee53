/* Element formats of the KV cache, one file each in engine/kv/formats, and the layout that a plan makes of one: how values
 * share scales, and how many recent tokens stay in a tail of f16. Kernels read and write the layout directly; it is
 * described in kernels/op.h (dlab_kv_plane). */
#ifndef DLAB_ENGINE_KV_FORMAT_H
#define DLAB_ENGINE_KV_FORMAT_H

#include "kernels/op.h"

#define DLAB_SCALES_BIT(s) (1u << (s))

typedef struct {
    const char *name, *summary;
    dlab_dtype dtype;
    unsigned
        scales; /* DLAB_SCALES_BIT of each way of sharing scales that this format has; DLAB_SCALES_NONE alone: none */
} dlab_kv_format;

extern const dlab_kv_format *const dlab_kv_formats[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_kv_format *dlab_kv_format_find(const char *name);

/* K or V as a plan has it. */
typedef struct {
    const dlab_kv_format *format;
    dlab_kv_scales scales;
    int32_t group;    /* tokens that are sealed together; 1 unless BLOCK or CHANNEL */
    int32_t tail;     /* at least so many recent tokens stay in f16 */
    int32_t tail_cap; /* tokens of the ring: tail + group where there is a tail or a group, else 0 */
} dlab_kv_layout;

/* what: "kv.k" or "kv.v", for messages. scales: the plan's word: token, tensor, block or channel; ignored (and a word other
 * than token is DLAB_EIMPOSSIBLE) where the format has no scales. block: tokens of a group for block and channel.
 * DLAB_EIMPOSSIBLE says which combinations cannot be: channel for values; a tail with tensor, or without quantization. */
dlab_status dlab_kv_layout_make(const char *what, const dlab_kv_format *f, const char *scales, int64_t block,
                                int64_t tail, dlab_kv_layout *out, dlab_error *err);
/* Bytes of a token's elements. */
int64_t dlab_kv_token_stride(const dlab_kv_layout *l, int64_t head_dim);
/* Bytes from a region's begin to its scales, and of the whole region; cap: its tokens, a multiple of group. */
int64_t dlab_kv_meta_off(const dlab_kv_layout *l, int64_t head_dim, int64_t cap);
int64_t dlab_kv_region_bytes(const dlab_kv_layout *l, int64_t head_dim, int64_t cap);
/* Bytes of the scales of one group, of one head; 0 where there are none. */
int64_t dlab_kv_scale_bytes(const dlab_kv_layout *l, int64_t head_dim);
/* What kernels see of a layer of n_bytes at `base`, made of regions of cap tokens; without its tail. */
dlab_kv_plane dlab_kv_layout_plane(const dlab_kv_layout *l, int64_t head_dim, int64_t cap, dlab_at base,
                                   int64_t n_bytes);
/* Bytes of one sequence's tail of one head. */
int64_t dlab_kv_tail_bytes(const dlab_kv_layout *l, int64_t head_dim);
/* tokens rounded up to whole groups. */
int64_t dlab_kv_round_cap(const dlab_kv_layout *l, int64_t tokens);
/* Of a sequence of len tokens, of which `from` were sealed: how many are sealed now; never fewer than `from`. */
int64_t dlab_kv_sealed(const dlab_kv_layout *l, int64_t len, int64_t from);

/* The bytes of a token of one sequence, all layers, K and V, with their share of scales: K4. A mean where scales are shared
 * between tokens. */
double dlab_kv_token_bytes(const dlab_kv_layout *k, const dlab_kv_layout *v, int64_t n_layers, int64_t n_kv_heads,
                           int64_t head_dim);

#endif

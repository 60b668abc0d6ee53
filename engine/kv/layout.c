/* How a plan's K or V lies in memory: the arithmetic of regions and tails. */
#include <stdio.h>
#include <string.h>

#include "engine/kv/format.h"

#define META_BYTES 4         /* of a scale and its zero point */
#define MAX_TAIL   (1 << 24) /* far beyond any context, far below where sums overflow */

static bool grouped(dlab_kv_scales s) { return s == DLAB_SCALES_BLOCK || s == DLAB_SCALES_CHANNEL; }

static bool quantized(const dlab_kv_format *f) { return !(f->scales & DLAB_SCALES_BIT(DLAB_SCALES_NONE)); }

static const struct {
    const char *word;
    dlab_kv_scales scales;
} WORDS[] = {{"token", DLAB_SCALES_TOKEN},
             {"tensor", DLAB_SCALES_STEP},
             {"block", DLAB_SCALES_BLOCK},
             {"channel", DLAB_SCALES_CHANNEL}};
#define N_WORDS (sizeof WORDS / sizeof *WORDS)

static dlab_status scales_of(const char *what, const char *word, dlab_kv_scales *out, dlab_error *err)
{
    for (size_t i = 0; i < N_WORDS; i++) {
        if (strcmp(word, WORDS[i].word) == 0) {
            *out = WORDS[i].scales;
            return DLAB_OK;
        }
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s_scales: '%s', expected token, tensor, block or channel", what, word);
}

static dlab_status fail_scales(const char *what, const dlab_kv_format *f, const char *word, dlab_error *err)
{
    char has[64] = "";
    for (size_t i = 0; i < N_WORDS; i++) {
        size_t n = strlen(has);
        if (f->scales & DLAB_SCALES_BIT(WORDS[i].scales))
            snprintf(has + n, sizeof has - n, "%s%s", n ? ", " : "", WORDS[i].word);
    }
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s_scales: %s, which %s does not have; it has: %s", what, word, f->name,
                     has);
}

static dlab_status check_plain(const char *what, const dlab_kv_format *f, dlab_kv_scales scales, int64_t tail,
                               dlab_error *err)
{
    if (scales != DLAB_SCALES_TOKEN) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "%s_scales: %s has no scales that could be shared; take a quantized format (int8, fp8, int4), "
                         "or leave %s_scales at token",
                         what, f->name, what);
    }
    if (tail > 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "%s_tail: %lld recent tokens in f16 make sense before quantized ones only, and %s is %s; set "
                         "%s_tail to 0 or take int8, fp8 or int4",
                         what, (long long)tail, what, f->name, what);
    }
    return DLAB_OK;
}

static dlab_status check_quantized(const char *what, dlab_kv_scales scales, int64_t block, int64_t tail,
                                   dlab_error *err)
{
    if (scales == DLAB_SCALES_CHANNEL && strcmp(what, "kv.v") == 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv.v_scales: channel is for keys, whose outliers stay in the same elements; values have none "
                         "such: take token or block");
    }
    if (scales == DLAB_SCALES_STEP && tail > 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "%s_tail: with %s_scales tensor a step's tokens are quantized together at once, so none can "
                         "stay in f16; set the tail to 0 or take token, block or channel",
                         what, what);
    }
    if (grouped(scales) && (block < 1 || block > MAX_TAIL)) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s_scales: groups of %lld tokens; kv.block_size must be 1 to %d", what,
                         (long long)block, MAX_TAIL);
    }
    return DLAB_OK;
}

dlab_status dlab_kv_layout_make(const char *what, const dlab_kv_format *f, const char *scales, int64_t block,
                                int64_t tail, dlab_kv_layout *out, dlab_error *err)
{
    *out = (dlab_kv_layout){0};
    dlab_kv_scales s = DLAB_SCALES_NONE;
    DLAB_TRY(scales_of(what, scales, &s, err));
    if (tail < 0 || tail > MAX_TAIL) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s_tail: %lld tokens, expected 0 to %d", what, (long long)tail,
                         MAX_TAIL);
    }
    if (!quantized(f)) {
        DLAB_TRY(check_plain(what, f, s, tail, err));
        *out = (dlab_kv_layout){.format = f, .scales = DLAB_SCALES_NONE, .group = 1};
        return DLAB_OK;
    }
    if (!(f->scales & DLAB_SCALES_BIT(s))) return fail_scales(what, f, scales, err);
    DLAB_TRY(check_quantized(what, s, block, tail, err));
    int32_t group = grouped(s) ? (int32_t)block : 1;
    /* The tokens of an unfinished group wait in the ring too, so there is one even without a tail. */
    bool ring = tail > 0 || grouped(s);
    *out = (dlab_kv_layout){
        .format = f, .scales = s, .group = group, .tail = (int32_t)tail, .tail_cap = ring ? (int32_t)tail + group : 0};
    return DLAB_OK;
}

int64_t dlab_kv_token_stride(const dlab_kv_layout *l, int64_t head_dim)
{
    return (int64_t)dlab_dtype_bytes(l->format->dtype, head_dim);
}

static int64_t blocks_of(const dlab_kv_layout *l, int64_t head_dim)
{
    int64_t block = dlab_dtype_block(l->format->dtype);
    return (head_dim + block - 1) / block;
}

int64_t dlab_kv_scale_bytes(const dlab_kv_layout *l, int64_t head_dim)
{
    switch (l->scales) {
    case DLAB_SCALES_NONE:
        return 0;
    case DLAB_SCALES_TOKEN:
    case DLAB_SCALES_STEP:
        return META_BYTES * (dlab_dtype_block(l->format->dtype) > 1 ? blocks_of(l, head_dim) : 1);
    case DLAB_SCALES_BLOCK:
        return META_BYTES;
    case DLAB_SCALES_CHANNEL:
        return META_BYTES * head_dim;
    }
    return 0;
}

int64_t dlab_kv_meta_off(const dlab_kv_layout *l, int64_t head_dim, int64_t cap)
{
    int64_t elements = cap * dlab_kv_token_stride(l, head_dim);
    return l->scales == DLAB_SCALES_NONE ? elements : (elements + META_BYTES - 1) / META_BYTES * META_BYTES;
}

int64_t dlab_kv_region_bytes(const dlab_kv_layout *l, int64_t head_dim, int64_t cap)
{
    return dlab_kv_meta_off(l, head_dim, cap) + cap / l->group * dlab_kv_scale_bytes(l, head_dim);
}

dlab_kv_plane dlab_kv_layout_plane(const dlab_kv_layout *l, int64_t head_dim, int64_t cap, dlab_at base,
                                   int64_t n_bytes)
{
    return (dlab_kv_plane){
        .base = base,
        .bytes = (size_t)n_bytes,
        .dtype = l->format->dtype,
        .scales = l->scales,
        .group = l->group,
        .head_stride = dlab_kv_region_bytes(l, head_dim, cap),
        .token_stride = dlab_kv_token_stride(l, head_dim),
        .meta_off = dlab_kv_meta_off(l, head_dim, cap),
    };
}

int64_t dlab_kv_tail_bytes(const dlab_kv_layout *l, int64_t head_dim)
{
    return l->tail_cap * (int64_t)dlab_dtype_bytes(DLAB_F16, head_dim);
}

int64_t dlab_kv_round_cap(const dlab_kv_layout *l, int64_t tokens)
{
    return (tokens + l->group - 1) / l->group * l->group;
}

int64_t dlab_kv_sealed(const dlab_kv_layout *l, int64_t len, int64_t from)
{
    if (l->tail_cap == 0) return len;
    int64_t sealed = len > l->tail ? (len - l->tail) / l->group * l->group : 0;
    return sealed > from ? sealed : from;
}

double dlab_kv_token_bytes(const dlab_kv_layout *k, const dlab_kv_layout *v, int64_t n_layers, int64_t n_kv_heads,
                           int64_t head_dim)
{
    double bytes = 0;
    const dlab_kv_layout *both[] = {k, v};
    for (int i = 0; i < 2; i++) {
        bytes += (double)dlab_kv_token_stride(both[i], head_dim) +
                 (double)dlab_kv_scale_bytes(both[i], head_dim) / both[i]->group;
    }
    return bytes * (double)n_layers * (double)n_kv_heads;
}

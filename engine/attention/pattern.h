/* Which past tokens attention visits, one file each in engine/attention/patterns. A pattern turns (layer, KV head, position of
 * the query) into token spans; cost follows what is visited. What lies in the cache is the store's business alone. */
#ifndef DLAB_ENGINE_ATTENTION_PATTERN_H
#define DLAB_ENGINE_ATTENTION_PATTERN_H

#include "kernels/op.h"

typedef struct {
    int64_t window; /* attention.window: the last so many positions, the query's own included */
    int64_t stride; /* attention.stride: every so manieth of the rest */
    int64_t block;  /* attention.block: … counted in blocks of so many tokens; 1: single tokens */
    int64_t sinks;  /* attention.sinks: the first so many positions, always */
} dlab_pattern_opts;

typedef struct {
    const char *name, *summary;
    bool dense;             /* visits all tokens: no spans are made */
    bool by_layer, by_head; /* whether spans differ from layer to layer, from KV head to KV head */
    /* Most spans of one query at positions below max_len. */
    int64_t (*max_spans)(const dlab_pattern_opts *o, int64_t max_len);
    /* Fills out for the query at pos; returns how many. Ascending, without overlap, none beyond pos, at least one token. */
    int32_t (*spans)(const dlab_pattern_opts *o, int32_t layer, int32_t kv_head, int64_t pos, dlab_span *out);
} dlab_attn_pattern;

extern const dlab_attn_pattern *const dlab_attn_patterns[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_attn_pattern *dlab_attn_pattern_find(const char *name);

#endif

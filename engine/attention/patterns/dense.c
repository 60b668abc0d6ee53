/* Every position up to the query's own. */
#include "engine/attention/pattern.h"

static int64_t max_spans(const dlab_pattern_opts *o, int64_t max_len)
{
    (void)o, (void)max_len;
    return 1;
}

static int32_t spans(const dlab_pattern_opts *o, int32_t layer, int32_t kv_head, int64_t pos, dlab_span *out)
{
    (void)o, (void)layer, (void)kv_head;
    *out = (dlab_span){.begin = 0, .count = (int32_t)(pos + 1), .step = 1};
    return 1;
}

const dlab_attn_pattern dlab_attn_pattern_dense = {
    .name = "dense",
    .summary = "every past position",
    .dense = true,
    .max_spans = max_spans,
    .spans = spans,
};

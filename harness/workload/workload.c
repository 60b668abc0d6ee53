#include "harness/workload/workload.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define IDS_MAX ((int64_t)1 << 31) /* 8 GiB of ids: far above any run that ends */

static int64_t request_count(const dlab_workload *w, int64_t batch_size)
{
    return w->requests > 0 ? w->requests : batch_size;
}

void dlab_workload_needs(const dlab_workload *w, int64_t batch_size, dlab_engine_needs *out)
{
    const int64_t n = request_count(w, batch_size);
    const int64_t all = w->depth + w->prompt, prefix = all > 0 ? all : 1;
    /* a depth is filled once and kept, so each request has a sequence of its own even while it waits for its turn */
    *out = (dlab_engine_needs){.max_seqs = n < batch_size || w->depth > 0 ? n : batch_size,
                               .max_tokens = prefix + w->output - 1, /* the last token is never fed back */
                               .max_prompt = prefix};
}

/* Lengths spread evenly over [⌈prompt/2⌉, prompt], both ends included, then shuffled: sorted lengths would pack batches
 * that pad less than real arrivals do. */
static void spread_prompts(const dlab_workload *w, int64_t n, int64_t *prompt)
{
    const int64_t low = (w->prompt + 1) / 2;
    for (int64_t i = 0; i < n; i++) {
        prompt[i] = !w->ragged || n == 1 ? w->prompt : low + ((w->prompt - low) * i + (n - 1) / 2) / (n - 1);
    }
    if (!w->ragged) return;
    dlab_rng rng;
    dlab_rng_seed(&rng, (uint64_t)w->seed);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)dlab_rng_below(&rng, (uint64_t)i + 1);
        const int64_t t = prompt[i];
        prompt[i] = prompt[j];
        prompt[j] = t;
    }
}

/* A request's ids depend on (seed, its number) alone: adding requests, or a longer prompt, changes no id before. */
static void draw_ids(const dlab_workload *w, int64_t request, int32_t first_id, int32_t vocab, int32_t *ids, int64_t n,
                     uint64_t *sample_seed)
{
    uint64_t state = (uint64_t)w->seed;
    uint64_t stream = dlab_splitmix64(&state) + (uint64_t)request;
    dlab_rng rng;
    dlab_rng_seed(&rng, dlab_splitmix64(&stream));
    *sample_seed = dlab_splitmix64(&stream);
    const uint64_t range = (uint64_t)((int64_t)vocab - first_id);
    for (int64_t i = 0; i < n; i++) ids[i] = first_id + (int32_t)dlab_rng_below(&rng, range);
}

dlab_status dlab_workload_build(const dlab_workload *w, int64_t batch_size, int32_t first_id, int32_t vocab,
                                dlab_requests *out, dlab_error *err)
{
    *out = (dlab_requests){0};
    const int64_t n = request_count(w, batch_size);
    const int64_t longest = w->depth + w->prompt;
    if (first_id < 0 || first_id >= vocab) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "workload: a vocabulary of %d ids has none from %d on", vocab, first_id);
    }
    if (n < 1 || longest < 1) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload: %lld requests of %lld tokens; expected at least one of each",
                         (long long)n, (long long)longest);
    }
    if (n > IDS_MAX / longest) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: %lld requests of %lld tokens are more than %lld ids", (long long)n,
                         (long long)longest, (long long)IDS_MAX);
    }
    const size_t count = (size_t)n;
    out->n = n;
    out->offset = calloc(count, sizeof *out->offset);
    out->depth = calloc(count, sizeof *out->depth);
    out->prompt = calloc(count, sizeof *out->prompt);
    out->output = calloc(count, sizeof *out->output);
    out->seed = calloc(count, sizeof *out->seed);
    out->ids = calloc(count * (size_t)longest, sizeof *out->ids);
    if (!out->offset || !out->depth || !out->prompt || !out->output || !out->seed || !out->ids) {
        dlab_requests_free(out);
        return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %lld requests of %lld tokens", (long long)n,
                         (long long)longest);
    }
    spread_prompts(w, n, out->prompt);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        out->offset[i] = at;
        out->depth[i] = w->depth;
        out->output[i] = w->output;
        draw_ids(w, i, first_id, vocab, out->ids + at, w->depth + out->prompt[i], &out->seed[i]);
        at += w->depth + out->prompt[i];
    }
    return DLAB_OK;
}

void dlab_requests_free(dlab_requests *r)
{
    if (!r) return;
    free(r->ids);
    free(r->offset);
    free(r->depth);
    free(r->prompt);
    free(r->output);
    free(r->seed);
    *r = (dlab_requests){0};
}

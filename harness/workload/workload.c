#include "harness/workload/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define IDS_MAX    ((int64_t)1 << 31) /* 8 GiB of ids: far above any run that ends */
#define LENGTH_MAX ((int64_t)1 << 20) /* of a drawn prompt where nothing else bounds it */

/* Each kind of draw has streams of its own: another choice in one changes nothing in the others. */
typedef enum { PROMPTS, LENGTHS, PREFIX, WARMUP_PROMPTS, WARMUP_PREFIX } stream_kind;
#define STREAM_DISTANCE 0xD1342543DE82EF95u /* any large odd number: request numbers are small */

/* Of SplitMix64. */
static uint64_t stream_state(const dlab_workload *w, stream_kind kind, int64_t number)
{
    uint64_t state = (uint64_t)w->seed;
    return dlab_splitmix64(&state) + kind * STREAM_DISTANCE + (uint64_t)number;
}

static dlab_rng stream_rng(uint64_t *state)
{
    dlab_rng rng;
    dlab_rng_seed(&rng, dlab_splitmix64(state));
    return rng;
}

static int64_t request_count(const dlab_workload *w, int64_t batch_size)
{
    return w->requests > 0 ? w->requests : batch_size / w->samples;
}

/* ---- lengths ---------------------------------------------------------------------------------------------------------- */

static bool is_lognormal(const dlab_workload *w) { return strcmp(w->lengths, "lognormal") == 0; }

/* The longest prompt that may be drawn. */
static int64_t longest_draw(const dlab_workload *w, int64_t context)
{
    if (w->prompt_max > 0) return w->prompt_max;
    return context > 0 ? context - w->depth - (w->output - 1) : LENGTH_MAX;
}

/* exp of a normal number, whose mean and standard deviation follow from those of the length itself. A request's length
 * depends on (seed, its number) alone. */
static int64_t draw_length(const dlab_workload *w, int64_t context, int64_t request)
{
    const double mean = (double)w->prompt, spread = (double)w->prompt_sd / mean;
    const double variance = log1p(spread * spread), mu = log(mean) - variance / 2, sigma = sqrt(variance);
    const int64_t max = longest_draw(w, context);
    uint64_t state = stream_state(w, LENGTHS, request);
    dlab_rng rng = stream_rng(&state);
    for (;;) {
        const double x = round(exp(mu + sigma * dlab_rng_normal(&rng)));
        if (x <= (double)max) return x < 1 ? 1 : (int64_t)x;
    }
}

/* Spread evenly over [⌈prompt/2⌉, prompt], both ends included, then shuffled: sorted lengths would pack batches that pad
 * less than real arrivals do. */
static void spread_lengths(const dlab_workload *w, int64_t n, int64_t *prompt)
{
    const int64_t low = (w->prompt + 1) / 2;
    for (int64_t i = 0; i < n; i++) {
        prompt[i] = n == 1 ? w->prompt : low + ((w->prompt - low) * i + (n - 1) / 2) / (n - 1);
    }
    uint64_t state = stream_state(w, LENGTHS, 0);
    dlab_rng rng = stream_rng(&state);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)dlab_rng_below(&rng, (uint64_t)i + 1);
        const int64_t t = prompt[i];
        prompt[i] = prompt[j];
        prompt[j] = t;
    }
}

static void make_lengths(const dlab_workload *w, int64_t context, int64_t n, int64_t *prompt)
{
    const bool lognormal = is_lognormal(w);
    if (strcmp(w->lengths, "spread") == 0) {
        spread_lengths(w, n, prompt);
        return;
    }
    for (int64_t i = 0; i < n; i++) prompt[i] = lognormal ? draw_length(w, context, i) : w->prompt;
}

/* Of what make_lengths would make. */
static void length_range(const dlab_workload *w, int64_t context, int64_t n, int64_t *shortest, int64_t *longest)
{
    *longest = w->prompt;
    *shortest = strcmp(w->lengths, "spread") == 0 && n > 1 ? (w->prompt + 1) / 2 : w->prompt;
    for (int64_t i = 0; i < n && is_lognormal(w); i++) {
        const int64_t length = draw_length(w, context, i);
        if (i == 0 || length < *shortest) *shortest = length;
        if (i == 0 || length > *longest) *longest = length;
    }
}

/* ---- what cannot be ---------------------------------------------------------------------------------------------------- */

/* With a mean within the bound, more than half of all draws are: redrawing comes to an end. */
static dlab_status check_lognormal(const dlab_workload *w, int64_t context, dlab_error *err)
{
    if (!is_lognormal(w)) return DLAB_OK;
    const int64_t max = longest_draw(w, context);
    if (w->prompt < 1) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.lengths: lognormal needs a mean of at least 1 token: workload.prompt is 0");
    }
    if (w->prompt <= max) return DLAB_OK;
    if (w->prompt_max > 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.lengths: a mean of %lld tokens (workload.prompt) is above workload.prompt_max %lld",
                         (long long)w->prompt, (long long)w->prompt_max);
    }
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "workload.lengths: a mean of %lld tokens (workload.prompt) does not fit: the model's context of "
                     "%lld, less %lld of depth and %lld of output, leaves %lld",
                     (long long)w->prompt, (long long)context, (long long)w->depth, (long long)(w->output - 1),
                     (long long)max);
}

static dlab_status check(const dlab_workload *w, const dlab_workload_host *host, dlab_error *err)
{
    const int64_t n = request_count(w, host->batch_size), longest = w->depth + w->prompt;
    if (w->samples > host->batch_size) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.samples: %lld answers to a prompt run at once; batch.size has %lld places",
                         (long long)w->samples, (long long)host->batch_size);
    }
    if (w->samples > 1 && w->depth > 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.samples: %lld answers to a prompt behind a workload.depth of %lld: what is there "
                         "already belongs to one sequence; keep one of the two",
                         (long long)w->samples, (long long)w->depth);
    }
    if (n < 1 || longest < 1) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload: %lld requests of %lld tokens; expected at least one of each",
                         (long long)n, (long long)longest);
    }
    if (w->shared_prefix > 0 && w->depth > 0) {
        return DLAB_FAIL(
            err, DLAB_EIMPOSSIBLE,
            "workload.shared_prefix: %lld tokens behind a workload.depth of %lld, which differs from request "
            "to request, are no prefix; keep one of the two",
            (long long)w->shared_prefix, (long long)w->depth);
    }
    return check_lognormal(w, host->context, err);
}

static dlab_status check_prefix(const dlab_workload *w, int64_t shortest, dlab_error *err)
{
    if (w->shared_prefix == 0 || shortest > w->shared_prefix) return DLAB_OK;
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "workload.shared_prefix: all prompts begin with the same %lld tokens and need one more of their own; "
        "the shortest has %lld (workload.prompt %lld, lengths %s)",
        (long long)w->shared_prefix, (long long)shortest, (long long)w->prompt, w->lengths);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

static dlab_status alloc_requests(const dlab_workload *w, const dlab_workload_host *host, dlab_requests *out,
                                  dlab_error *err)
{
    const size_t n = (size_t)request_count(w, host->batch_size);
    out->offset = calloc(n, sizeof *out->offset);
    out->depth = calloc(n, sizeof *out->depth);
    out->prompt = calloc(n, sizeof *out->prompt);
    out->output = calloc(n, sizeof *out->output);
    out->seed = calloc(n, sizeof *out->seed);
    if (!out->offset || !out->depth || !out->prompt || !out->output || !out->seed) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %zu requests", n);
    }
    out->n = (int64_t)n;
    out->samples = (int32_t)w->samples;
    make_lengths(w, host->context, out->n, out->prompt);
    int64_t at = 0, shortest = out->prompt[0];
    for (int64_t i = 0; i < out->n; i++) {
        out->offset[i] = at;
        out->depth[i] = w->depth;
        out->output[i] = w->output;
        at += w->depth + out->prompt[i];
        if (out->prompt[i] < shortest) shortest = out->prompt[i];
    }
    DLAB_TRY(check_prefix(w, shortest, err));
    if (at > IDS_MAX) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: %zu requests of %lld tokens in all are more than %lld ids", n,
                         (long long)at, (long long)IDS_MAX);
    }
    out->ids = calloc((size_t)(at > 0 ? at : 1), sizeof *out->ids);
    if (!out->ids) return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %lld token ids", (long long)at);
    return DLAB_OK;
}

static void draw_ids(dlab_rng *rng, const dlab_workload_host *host, int32_t *ids, int64_t n)
{
    const uint64_t range = (uint64_t)((int64_t)host->vocab - host->first_id);
    for (int64_t i = 0; i < n; i++) ids[i] = host->first_id + (int32_t)dlab_rng_below(rng, range);
}

/* A request's ids depend on (seed, its number) alone: adding requests, or a longer prompt, changes no id before; and a
 * shared prefix covers its first ids, but changes none behind. */
static void fill_requests(const dlab_workload *w, const dlab_workload_host *host, dlab_requests *out)
{
    for (int64_t i = 0; i < out->n; i++) {
        int32_t *ids = out->ids + out->offset[i];
        uint64_t own = stream_state(w, host->warmup ? WARMUP_PROMPTS : PROMPTS, i);
        uint64_t common = stream_state(w, host->warmup ? WARMUP_PREFIX : PREFIX, 0);
        dlab_rng rng = stream_rng(&own), prefix = stream_rng(&common);
        out->seed[i] = dlab_splitmix64(&own);
        draw_ids(&rng, host, ids, out->depth[i] + out->prompt[i]);
        draw_ids(&prefix, host, ids, w->shared_prefix);
    }
}

dlab_status dlab_workload_build(const dlab_workload *w, const dlab_workload_host *host, dlab_requests *out,
                                dlab_error *err)
{
    *out = (dlab_requests){0};
    if (host->first_id < 0 || host->first_id >= host->vocab) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "workload: a vocabulary of %d ids has none from %d on", host->vocab,
                         host->first_id);
    }
    DLAB_TRY(check(w, host, err));
    const dlab_status st = alloc_requests(w, host, out, err);
    if (st == DLAB_OK) {
        fill_requests(w, host, out);
    } else {
        dlab_requests_free(out);
    }
    return st;
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

dlab_status dlab_workload_needs(const dlab_workload *w, const dlab_workload_host *host, dlab_engine_needs *out,
                                dlab_error *err)
{
    *out = (dlab_engine_needs){0};
    DLAB_TRY(check(w, host, err));
    const int64_t n = request_count(w, host->batch_size), answers = n * w->samples;
    int64_t longest, shortest;
    length_range(w, host->context, n, &shortest, &longest);
    DLAB_TRY(check_prefix(w, shortest, err));
    const int64_t prompt = w->depth + longest;
    /* a depth is filled once and kept, so each request has a sequence of its own even while it waits for its turn */
    *out = (dlab_engine_needs){.max_seqs = answers < host->batch_size || w->depth > 0 ? answers : host->batch_size,
                               .max_tokens = prompt + w->output - 1, /* the last token is never fed back */
                               .max_prompt = prompt};
    return DLAB_OK;
}

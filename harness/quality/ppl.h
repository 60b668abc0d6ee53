/* Perplexity with its protocol stated. Sums in double. Source: docs/metrics.md. */
#ifndef DLAB_HARNESS_QUALITY_PPL_H
#define DLAB_HARNESS_QUALITY_PPL_H

#include <signal.h>

#include "harness/target/target.h"
#include "results/run.h"

typedef struct {
    const char
        *protocol;   /* "llama.cpp": windows of `context` tokens, no overlap, the second half scored, BOS in the first
                             place if the model asks for it.  "full": every token after the first is scored. */
    int64_t context; /* tokens a window, ≥ 2 */
    int64_t chunks;  /* 0: all that the text has */
    const volatile sig_atomic_t *interrupted; /* looked at between chunks; NULL: never */
    void (*progress)(void *ctx, int64_t chunk, int64_t n_chunks, double ppl); /* after each chunk; NULL: none */
    void *progress_ctx;
} dlab_ppl_opts;

typedef struct {
    double ppl, nll_mean, nll_sum, bits_per_byte; /* bits_per_byte NaN when the bytes are not known */
    double se; /* standard error of ppl, tokens taken as independent; chunk-clustered needs more chunks */
    int64_t n_scored, n_chunks;
} dlab_ppl_result;

/* ids [n]: the whole text's tokens. Each chunk's values for ALL positions 1 … context−1 are appended to run->quality;
 * the result counts the protocol's span only. A text shorter than one chunk: DLAB_EUSAGE with both numbers. */
dlab_status dlab_ppl_run(dlab_target *t, const int32_t *ids, int64_t n, int32_t bos, const dlab_ppl_opts *opts,
                         int64_t text_bytes, dlab_run *run, dlab_ppl_result *out, dlab_error *err);

/* The first of a chunk's values that the protocol counts: values [first, context − 1) of those for tokens 1 … context − 1.
 * DLAB_EUSAGE for an unknown protocol or a context under 2. */
dlab_status dlab_ppl_span(const dlab_ppl_opts *opts, int64_t *first, dlab_error *err);

/* The corpus in the program (experiments/text/), so that it needs no path. */
const char *dlab_bundled_text(size_t *n_bytes);

#endif

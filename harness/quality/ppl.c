#include "harness/quality/ppl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"

extern const char dlab_corpus_begin[], dlab_corpus_end[]; /* corpus.S */

const char *dlab_bundled_text(size_t *n_bytes)
{
    *n_bytes = (size_t)((uintptr_t)dlab_corpus_end - (uintptr_t)dlab_corpus_begin);
    return dlab_corpus_begin;
}

dlab_status dlab_ppl_span(const dlab_ppl_opts *opts, int64_t *first, dlab_error *err)
{
    static const char *const protocols[] = {"llama.cpp", "full", NULL};
    if (opts->context < 2 || opts->context > INT32_MAX) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "context: %" PRId64 " tokens, expected 2 or more", opts->context);
    }
    if (strcmp(opts->protocol, protocols[0]) == 0) {
        /* Value i is that of token i + 1; llama.cpp counts the tokens after place context/2. A context of 2 has one value. */
        *first = opts->context > 2 ? opts->context / 2 : 0;
        return DLAB_OK;
    }
    if (strcmp(opts->protocol, protocols[1]) == 0) {
        *first = 0;
        return DLAB_OK;
    }
    const char *near = dlab_nearest(opts->protocol, protocols);
    return DLAB_FAIL(err, DLAB_EUSAGE, "protocol: \"%s\" is not known, expected llama.cpp or full%s%s", opts->protocol,
                     near ? "; did you mean " : "", near ? near : "");
}

/* Mean and spread in one pass (Welford 1962). */
typedef struct {
    double sum, mean, m2;
    int64_t n;
} moments;

static void moments_add(moments *m, double x)
{
    m->n++;
    m->sum += x;
    double d = x - m->mean;
    m->mean += d / (double)m->n;
    m->m2 += d * (x - m->mean);
}

static dlab_status add_chunk(int64_t chunk, int64_t context, const int32_t *ids, const double *nll, const int32_t *top1,
                             int64_t first, moments *m, dlab_run *run, dlab_error *err)
{
    for (int64_t i = 0; i + 1 < context; i++) {
        if (!isfinite(nll[i])) {
            return DLAB_FAIL(err, DLAB_EINTERNAL,
                             "chunk %" PRId64 ", token %" PRId64 ": the model gives no finite value", chunk, i + 1);
        }
        dlab_ev_quality e = {
            .chunk = (int32_t)chunk, .position = (int32_t)i, .token = ids[i + 1], .top1 = top1[i], .nll = nll[i]};
        DLAB_TRY(dlab_run_add_quality(run, &e, err));
        if (i >= first) moments_add(m, nll[i]);
    }
    return DLAB_OK;
}

static void finish(const moments *m, int64_t n_ids, int64_t text_bytes, int64_t chunks, dlab_run *run,
                   dlab_ppl_result *out)
{
    double n = (double)m->n;
    *out = (dlab_ppl_result){.nll_sum = m->sum, .nll_mean = m->sum / n, .n_scored = m->n, .n_chunks = chunks};
    out->ppl = exp(out->nll_mean);
    out->se = m->n > 1 ? out->ppl * sqrt(m->m2 / (n - 1) / n) : NAN;
    /* The text's bytes are shared out evenly over its tokens: which bytes a span of tokens stands for is the tokenizer's
     * secret, and over thousands of tokens it makes no difference. */
    double bytes = text_bytes > 0 ? (double)text_bytes * n / (double)n_ids : 0;
    run->quality_bytes = llround(bytes);
    out->bits_per_byte = bytes > 0 ? out->nll_sum / log(2) / bytes : NAN;
}

dlab_status dlab_ppl_run(dlab_target *t, const int32_t *ids, int64_t n, int32_t bos, const dlab_ppl_opts *opts,
                         int64_t text_bytes, dlab_run *run, dlab_ppl_result *out, dlab_error *err)
{
    int64_t first = 0, context = opts->context;
    *out = (dlab_ppl_result){NAN, NAN, NAN, NAN, NAN, 0, 0};
    DLAB_TRY(dlab_ppl_span(opts, &first, err));
    if (!t->ops->score) return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "target %s computes no likelihoods", t->ops->name);
    if (n < context) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "the text has %" PRId64 " tokens, a chunk needs %" PRId64
                         ": give a longer text or a smaller context",
                         n, context);
    }
    int64_t chunks = n / context;
    if (opts->chunks > 0 && opts->chunks < chunks) chunks = opts->chunks;
    run->quality_first = (int32_t)first;
    snprintf(run->quality_protocol, sizeof run->quality_protocol, "chunks of %" PRId64 ", %s scored, %s", context,
             first ? "second half" : "all", bos >= 0 ? "BOS in the first place" : "no BOS");

    dlab_status st = DLAB_OK;
    moments m = {0};
    size_t count = (size_t)context;
    int32_t *chunk = calloc(count, sizeof *chunk), *top1 = calloc(count, sizeof *top1);
    double *nll = calloc(count, sizeof *nll);
    if (!chunk || !top1 || !nll) {
        st = DLAB_FAIL(err, DLAB_EOOM, "no memory for a chunk of %" PRId64 " tokens", context);
        goto done;
    }
    for (int64_t c = 0; c < chunks; c++) {
        if (opts->interrupted && *opts->interrupted) {
            st = DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted after %" PRId64 " of %" PRId64 " chunks", c, chunks);
            goto done;
        }
        memcpy(chunk, ids + c * context, count * sizeof *chunk);
        if (bos >= 0) chunk[0] = bos;
        DLAB_TRY_DONE(st, t->ops->score(t, chunk, context, context, nll, top1, err));
        DLAB_TRY_DONE(st, add_chunk(c, context, chunk, nll, top1, first, &m, run, err));
        if (opts->progress) opts->progress(opts->progress_ctx, c, chunks, exp(m.sum / (double)m.n));
    }
    finish(&m, n, text_bytes, chunks, run, out);
done:
    free(chunk);
    free(top1);
    free(nll);
    return st;
}

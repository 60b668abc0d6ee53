#include "harness/workload/workload.h"

#include <stdlib.h>

#include "base/int.h"
#include "harness/workload/workload_parts.h"

#define IDS_MAX ((int64_t)1 << 31) /* 8 GiB of ids: far above any run that ends */

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

static dlab_status alloc_requests(const dlab_shape *s, dlab_requests *out, dlab_error *err)
{
    const size_t n = (size_t)s->n;
    out->offset = calloc(n, sizeof *out->offset);
    out->depth = calloc(n, sizeof *out->depth);
    out->prompt = calloc(n, sizeof *out->prompt);
    out->output = calloc(n, sizeof *out->output);
    out->seed = calloc(n, sizeof *out->seed);
    out->arrival_ns = calloc(n, sizeof *out->arrival_ns);
    out->priority = calloc(n, sizeof *out->priority);
    out->think_ns = calloc(n, sizeof *out->think_ns);
    const bool talks = s->talks < s->n;
    if (talks) out->after = calloc(n, sizeof *out->after);
    if (!out->offset || !out->depth || !out->prompt || !out->output || !out->seed || !out->arrival_ns ||
        !out->priority || !out->think_ns || (talks && !out->after)) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %zu requests", n);
    }
    return DLAB_OK;
}

/* Counts and places of ids. A request's sampling seed is of its number alone: seeds of the workload change no draw of an
 * answer, which the plan's sample.seed does. */
static dlab_status place_requests(const dlab_workload *w, const dlab_shape *s, dlab_requests *out, dlab_error *err)
{
    int64_t at = 0;
    out->n = s->n;
    out->samples = (int32_t)w->samples;
    for (int64_t i = 0; i < s->n; i++) {
        dlab_rng rng = dlab_stream_rng(0, DLAB_STREAM_SAMPLING, (uint64_t)i);
        out->seed[i] = dlab_rng_u64(&rng);
        out->offset[i] = at;
        out->depth[i] = w->depth;
        out->prompt[i] = s->prompt[i];
        out->output[i] = s->output[i];
        at += w->depth + s->prompt[i];
    }
    if (at > IDS_MAX) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: %lld requests of %lld tokens in all are more than %lld ids",
                         (long long)s->n, (long long)at, (long long)IDS_MAX);
    }
    out->ids = calloc((size_t)dlab_max_i64(at, 1), sizeof *out->ids);
    if (!out->ids) return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %lld token ids", (long long)at);
    return DLAB_OK;
}

static dlab_status time_requests(const dlab_workload *w, const dlab_shape *s, dlab_requests *out, dlab_error *err)
{
    const bool closed = dlab_is(w->kind, "closed");
    dlab_priorities priorities;
    DLAB_TRY(dlab_priorities_read(w->priorities, &priorities, err));
    out->concurrency = closed ? w->concurrency : 0;
    out->duration_ns = !w->kind || dlab_is(w->kind, "batch") ? 0 : w->duration_ns;
    out->rate = s->rate;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t talk = s->talk[i];
        const bool later = i > s->first[talk];
        const int64_t start = s->arrival_ns ? s->arrival_ns[talk] : 0;
        out->priority[i] = dlab_priorities_draw(&priorities, w, talk);
        if (out->after) out->after[i] = later ? i - 1 : -1;
        out->think_ns[i] = w->think_ns > 0 ? dlab_think_draw(w, i) : 0;
        out->arrival_ns[i] = later || (closed && talk >= w->concurrency) ? -1 : start;
    }
    return DLAB_OK;
}

dlab_status dlab_workload_build(const dlab_workload *w, const dlab_workload_host *host, dlab_requests *out,
                                dlab_error *err)
{
    dlab_shape s = {0};
    *out = (dlab_requests){0};
    if (host->first_id < 0 || host->first_id >= host->vocab) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "workload: a vocabulary of %d ids has none from %d on", host->vocab,
                         host->first_id);
    }
    dlab_status st = dlab_shape_make(w, host, &s, err);
    if (st == DLAB_OK) st = alloc_requests(&s, out, err);
    if (st == DLAB_OK) st = place_requests(w, &s, out, err);
    if (st == DLAB_OK) st = time_requests(w, &s, out, err);
    if (st == DLAB_OK) st = dlab_prompts_fill(w, host, &s, out, err);
    if (st != DLAB_OK) dlab_requests_free(out);
    dlab_shape_free(&s);
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
    free(r->arrival_ns);
    free(r->priority);
    free(r->after);
    free(r->think_ns);
    *r = (dlab_requests){0};
}

int64_t dlab_requests_primed(const dlab_requests *q, int64_t i)
{
    if (q->prompt[i] > 0 || q->depth[i] == 0) return q->depth[i];
    return q->depth[i] - 1;
}

/* ---- needs -------------------------------------------------------------------------------------------------------------- */

/* Answers that can be in work at once. A depth is filled once and kept, so each request has a sequence of its own even
 * while it waits for its turn. */
static int64_t seqs_of(const dlab_workload *w, const dlab_shape *s, int64_t batch_size)
{
    const int64_t answers = s->talks * w->samples;
    if (w->depth > 0) return answers;
    const int64_t in_flight = dlab_is(w->kind, "closed") ? dlab_min_i64(answers, w->concurrency * w->samples) : answers;
    return dlab_min_i64(in_flight, batch_size);
}

dlab_status dlab_workload_needs(const dlab_workload *w, const dlab_workload_host *host, dlab_engine_needs *out,
                                dlab_error *err)
{
    dlab_shape s = {0};
    *out = (dlab_engine_needs){0};
    dlab_status st = dlab_shape_make(w, host, &s, err);
    if (st == DLAB_OK) out->max_seqs = seqs_of(w, &s, host->batch_size);
    for (int64_t talk = 0; talk < s.talks && st == DLAB_OK; talk++) {
        int64_t tokens = w->depth; /* of the conversation so far */
        for (int64_t i = s.first[talk]; i < s.first[talk + 1]; i++) {
            const int64_t prompt = tokens + s.prompt[i];
            tokens = prompt + s.output[i];
            out->max_prompt = dlab_max_i64(out->max_prompt, prompt);
            out->max_tokens = dlab_max_i64(out->max_tokens, tokens - 1); /* the last token is never fed back */
        }
    }
    dlab_shape_free(&s);
    return st;
}

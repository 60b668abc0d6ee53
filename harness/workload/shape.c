/* How many requests, how long, when: all that the engine's memory depends on, before any id is made. */
#include <stdlib.h>

#include "base/file.h"
#include "base/int.h"
#include "harness/workload/workload_parts.h"

/* A closed loop that only its duration ends gets so many conversations, and as many for each that is in flight; it ends
 * early if they run out. */
#define CLOSED_PREPARED     4096
#define CLOSED_PREPARED_ONE 64

static bool is_from_file(const dlab_workload *w)
{
    return dlab_is(w->kind, "trace") || dlab_is(w->prompts, "jsonl") || dlab_is(w->prompts, "sharegpt");
}

bool dlab_workload_tokenizes(const dlab_workload *w)
{
    return !dlab_is(w->kind, "trace") && w->prompts && !dlab_is(w->prompts, "ids");
}

/* ---- what cannot be ----------------------------------------------------------------------------------------------------- */

static dlab_status contradiction(const char *key, const char *value, const char *with, const char *why, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.%s: %s with workload.%s, %s", key, value, with, why);
}

static dlab_status check_trace(const dlab_workload *w, dlab_error *err)
{
    static const char *const with = "kind trace";
    if (!*w->trace_file) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.trace: kind trace needs a file in Mooncake's format");
    }
    if (w->lengths && !dlab_is(w->lengths, "fixed")) {
        return contradiction("lengths", w->lengths, with, "whose lengths are the file's", err);
    }
    if (w->outputs && !dlab_is(w->outputs, "fixed")) {
        return contradiction("outputs", w->outputs, with, "whose lengths are the file's", err);
    }
    if (w->prompts && !dlab_is(w->prompts, "ids")) {
        return contradiction("prompts", w->prompts, with, "which tells hashes and no text", err);
    }
    if (w->turns > 1) return contradiction("turns", "conversations", with, "whose lines are single requests", err);
    return DLAB_OK;
}

static dlab_status check_file(const dlab_workload *w, dlab_error *err)
{
    const bool trace = dlab_is(w->kind, "trace");
    const char *with = trace ? "kind trace" : dlab_is(w->prompts, "jsonl") ? "prompts jsonl" : "prompts sharegpt";
    if (w->shared_prefix > 0)
        return contradiction("shared_prefix", "prefixes", with, "whose prompts are the file's", err);
    if (w->depth > 0) return contradiction("depth", "tokens before", with, "whose prompts are the file's", err);
    if (trace) return check_trace(w, err);
    if (dlab_is(w->prompts, "jsonl") && w->turns > 1) {
        return contradiction("turns", "conversations", with, "whose lines are single requests", err);
    }
    if (*w->prompts_file) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.prompts_file: %s needs a file", with);
}

static dlab_status check_samples(const dlab_workload *w, int64_t batch_size, dlab_error *err)
{
    if (w->samples > batch_size) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.samples: %lld answers to a prompt run at once; batch.size has %lld places",
                         (long long)w->samples, (long long)batch_size);
    }
    if (w->samples > 1 && w->depth > 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.samples: %lld answers to a prompt behind a workload.depth of %lld: what is there "
                         "already belongs to one sequence; keep one of the two",
                         (long long)w->samples, (long long)w->depth);
    }
    if (w->samples > 1 && w->turns > 1) {
        return DLAB_FAIL(
            err, DLAB_EIMPOSSIBLE,
            "workload.samples: %lld answers to each turn of a conversation (workload.turns %lld), which goes "
            "on from one; keep one of the two",
            (long long)w->samples, (long long)w->turns);
    }
    return DLAB_OK;
}

static dlab_status check(const dlab_workload *w, const dlab_workload_host *host, dlab_error *err)
{
    dlab_priorities priorities;
    DLAB_TRY(dlab_priorities_read(w->priorities, &priorities, err));
    DLAB_TRY(check_samples(w, host->batch_size, err));
    if (w->depth > 0 && w->turns > 1) {
        return DLAB_FAIL(
            err, DLAB_EIMPOSSIBLE,
            "workload.depth: %lld tokens before a conversation of %lld turns (workload.turns); keep one of "
            "the two",
            (long long)w->depth, (long long)w->turns);
    }
    if (w->shared_prefix > 0 && w->depth > 0) {
        return DLAB_FAIL(
            err, DLAB_EIMPOSSIBLE,
            "workload.shared_prefix: %lld tokens behind a workload.depth of %lld, which differs from request "
            "to request, are no prefix; keep one of the two",
            (long long)w->shared_prefix, (long long)w->depth);
    }
    if ((dlab_is(w->lengths, "file") || dlab_is(w->outputs, "file")) && !*w->lengths_file) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.lengths_file: lengths from a file need one");
    }
    if (is_from_file(w)) DLAB_TRY(check_file(w, err));
    if (dlab_workload_tokenizes(w) && !host->tokenizer && is_from_file(w)) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.prompts: %s needs a model that has a tokenizer: give -m MODEL", w->prompts);
    }
    return dlab_lengths_check(w, host->context, err);
}

/* ---- how many ----------------------------------------------------------------------------------------------------------- */

static dlab_status prepare_closed(const dlab_workload *w, int64_t *want, dlab_error *err)
{
    *want = dlab_max_i64(CLOSED_PREPARED, CLOSED_PREPARED_ONE * w->concurrency);
    if (*want <= DLAB_REQUESTS_MAX) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "workload.concurrency: %lld at a time until workload.duration ends them; %lld is the most that "
                     "requests are prepared for: say how many with workload.requests",
                     (long long)w->concurrency, (long long)(DLAB_REQUESTS_MAX / CLOSED_PREPARED_ONE));
}

/* So many conversations at most; 0: as many as the file has. */
static dlab_status find_want(const dlab_workload *w, const dlab_workload_host *host, dlab_shape *s, int64_t *want,
                             dlab_error *err)
{
    *want = w->requests;
    if (dlab_is(w->kind, "closed")) {
        s->scarce = *want == 0 && w->duration_ns > 0;
        if (s->scarce) return prepare_closed(w, want, err);
        if (*want > 0 || is_from_file(w) || *w->lengths_file) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.kind: closed goes on for ever: give workload.duration or workload.requests");
    }
    if (dlab_is(w->kind, "open")) {
        if (*want == 0 && w->duration_ns == 0 && (is_from_file(w) || *w->lengths_file)) return DLAB_OK;
        DLAB_TRY(dlab_arrivals_make(w, w->requests, &s->arrival_ns, want, err));
        if (*want > 0) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.duration: no request comes in it at a rate of %g a second",
                         w->rate);
    }
    if (!dlab_is(w->kind, "trace") && *want == 0) *want = host->batch_size / w->samples;
    return DLAB_OK;
}

static dlab_status read_requests(dlab_shape *s, int64_t want, dlab_error *err)
{
    const dlab_workload *w = &s->w;
    const bool trace = dlab_is(w->kind, "trace");
    const int64_t before = trace ? 0 : s->host.sent_before, max = want > 0 ? before + want : 0;
    char *text = NULL;
    size_t n = 0;
    dlab_status st;
    DLAB_TRY(dlab_file_read(trace ? w->trace_file : w->prompts_file, DLAB_FILE_MAX, &text, &n, err));
    if (trace) {
        st = dlab_trace_read(w, text, n, max, &s->file, err);
    } else if (dlab_is(w->prompts, "jsonl")) {
        st = dlab_jsonl_read(w, s->host.tokenizer, text, n, max, &s->file, err);
    } else {
        st = dlab_sharegpt_read(w, s->host.tokenizer, text, n, max, &s->file, err);
    }
    free(text);
    if (st != DLAB_OK || before == 0) return st;
    s->n_fresh = dlab_max_i64(s->file.conversations - before, 0);
    return dlab_file_requests_turn(&s->file, before, want, err);
}

static dlab_status read_table(const dlab_workload *w, dlab_file_requests *out, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_file_read(w->lengths_file, DLAB_FILE_MAX, &text, &n, err));
    const dlab_status st = dlab_lengths_read(w->lengths_file, dlab_is(w->outputs, "file"), text, n, out, err);
    free(text);
    return st;
}

static dlab_status count_conversations(const dlab_workload *w, const dlab_file_requests *table, int64_t want,
                                       dlab_shape *s, dlab_error *err)
{
    const int64_t in_file = s->file.conversations;
    s->conversations = want > 0 ? want : in_file > 0 ? in_file : (int64_t)table->n;
    if (in_file > 0 && s->conversations > in_file) {
        if (w->requests > 0) {
            return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.requests: %lld are to be served; %s has %lld",
                             (long long)s->conversations, s->file.name, (long long)in_file);
        }
        s->conversations = in_file;
        s->scarce = w->duration_ns > 0;
    }
    s->n = s->file.n > 0 ? (int64_t)s->file.n : s->conversations * dlab_max_i64(w->turns, 1);
    const int64_t longest = w->depth + w->prompt;
    if (s->n < 1 || (longest < 1 && in_file == 0)) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload: %lld requests of %lld tokens; expected at least one of each",
                         (long long)s->n, (long long)longest);
    }
    if (s->n > DLAB_REQUESTS_MAX) {
        return DLAB_FAIL(err, DLAB_EOOM, "workload: %lld conversations of %lld turns are more than %lld requests",
                         (long long)s->conversations, (long long)w->turns, (long long)DLAB_REQUESTS_MAX);
    }
    return DLAB_OK;
}

/* ---- the shape ---------------------------------------------------------------------------------------------------------- */

static dlab_status alloc_shape(dlab_shape *s, dlab_error *err)
{
    const size_t n = (size_t)dlab_max_i64(s->n, 1);
    s->conversation = calloc(n, sizeof *s->conversation);
    s->prompt = calloc(n, sizeof *s->prompt);
    s->output = calloc(n, sizeof *s->output);
    s->first = calloc((size_t)s->conversations + 1, sizeof *s->first);
    if (s->conversation && s->prompt && s->output && s->first) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %zu requests", n);
}

static void number_conversations(const dlab_workload *w, dlab_shape *s)
{
    int64_t conversation = -1;
    for (int64_t i = 0; i < s->n; i++) {
        const bool begins = s->file.n > 0 ? !s->file.items[i].later : i % dlab_max_i64(w->turns, 1) == 0;
        if (begins) s->first[++conversation] = i;
        s->conversation[i] = conversation;
    }
    s->first[s->conversations] = s->n;
}

static dlab_status make_arrivals(const dlab_workload *w, dlab_shape *s, dlab_error *err)
{
    int64_t n = s->conversations;
    if (dlab_is(w->kind, "open") && !s->arrival_ns) {
        DLAB_TRY(dlab_arrivals_make(w, s->conversations, &s->arrival_ns, &n, err));
    }
    if (!dlab_is(w->kind, "trace")) return DLAB_OK;
    s->arrival_ns = calloc((size_t)dlab_max_i64(n, 1), sizeof *s->arrival_ns);
    if (!s->arrival_ns) return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for %lld arrivals", (long long)n);
    for (int64_t i = 0; i < n; i++) s->arrival_ns[i] = s->file.items[i].arrival_ns;
    return DLAB_OK;
}

static dlab_status make_lengths(const dlab_workload *w, const dlab_workload_host *host, const dlab_file_requests *table,
                                dlab_shape *s, dlab_error *err)
{
    const dlab_lengths l = {.w = w,
                            .context = host->context,
                            .file = s->file.n > 0 ? &s->file : NULL,
                            .table = table->n > 0 ? table : NULL,
                            .n = s->n,
                            .prompt = s->prompt,
                            .output = s->output};
    if (dlab_is(w->lengths, "spread")) dlab_lengths_spread(&l);
    for (int64_t i = 0; i < s->conversations; i++) {
        DLAB_TRY(dlab_lengths_make(&l, i, s->first[i], s->first[i + 1] - s->first[i], err));
    }
    return DLAB_OK;
}

/* A prompt that begins with a shared prefix needs a token of its own. */
static dlab_status check_prefix(const dlab_workload *w, const dlab_shape *s, dlab_error *err)
{
    int64_t shortest = INT64_MAX;
    for (int64_t i = 0; i < s->conversations && w->shared_prefix > 0; i++) {
        if (dlab_prefix_group(w, i) >= 0) shortest = dlab_min_i64(shortest, s->prompt[s->first[i]]);
    }
    if (shortest > w->shared_prefix) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "workload.shared_prefix: prompts begin with the same %lld tokens and need one more of their own; "
                     "the shortest has %lld (workload.prompt %lld, lengths %s)",
                     (long long)w->shared_prefix, (long long)shortest, (long long)w->prompt,
                     w->lengths ? w->lengths : "fixed");
}

static dlab_status make(dlab_shape *s, dlab_error *err)
{
    const dlab_workload *w = &s->w;
    dlab_file_requests table = {0};
    int64_t want = 0;
    DLAB_TRY(check(w, &s->host, err));
    DLAB_TRY(find_want(w, &s->host, s, &want, err));
    s->n_fresh = INT64_MAX;
    dlab_status st = DLAB_OK;
    if (is_from_file(w)) DLAB_TRY_DONE(st, read_requests(s, want, err));
    if (dlab_is(w->lengths, "file") || dlab_is(w->outputs, "file")) DLAB_TRY_DONE(st, read_table(w, &table, err));
    DLAB_TRY_DONE(st, count_conversations(w, &table, want, s, err));
    DLAB_TRY_DONE(st, alloc_shape(s, err));
    number_conversations(w, s);
    DLAB_TRY_DONE(st, make_arrivals(w, s, err));
    DLAB_TRY_DONE(st, make_lengths(w, &s->host, &table, s, err));
    DLAB_TRY_DONE(st, check_prefix(w, s, err));

done:
    dlab_file_requests_free(&table);
    return st;
}

dlab_status dlab_shape_create(const dlab_workload *w, const dlab_workload_host *host, dlab_shape **out, dlab_error *err)
{
    *out = NULL;
    dlab_shape *s = calloc(1, sizeof *s);
    if (!s) return DLAB_FAIL(err, DLAB_EOOM, "workload: no memory for its shape");
    s->w = *w;
    s->host = *host;
    const dlab_status st = make(s, err);
    if (st == DLAB_OK)
        *out = s;
    else
        dlab_shape_destroy(s);
    return st;
}

void dlab_shape_destroy(dlab_shape *s)
{
    if (!s) return;
    free(s->conversation);
    free(s->first);
    free(s->prompt);
    free(s->output);
    free(s->arrival_ns);
    free(s->text.ids);
    dlab_file_requests_free(&s->file);
    free(s);
}

/* ---- needs -------------------------------------------------------------------------------------------------------------- */

/* Answers that can be in work at once. A depth is filled once and kept, so each request has a sequence of its own even
 * while it waits for its turn. */
static int64_t seqs_of(const dlab_shape *s)
{
    const dlab_workload *w = &s->w;
    const int64_t answers = s->conversations * w->samples;
    if (w->depth > 0) return answers;
    const int64_t in_flight = dlab_is(w->kind, "closed") ? dlab_min_i64(answers, w->concurrency * w->samples) : answers;
    return dlab_min_i64(in_flight, s->host.batch_size);
}

dlab_engine_needs dlab_shape_needs(const dlab_shape *s)
{
    dlab_engine_needs needs = {.max_seqs = seqs_of(s)};
    for (int64_t c = 0; c < s->conversations; c++) {
        int64_t tokens = s->w.depth; /* of the conversation so far */
        for (int64_t i = s->first[c]; i < s->first[c + 1]; i++) {
            const int64_t prompt = tokens + s->prompt[i];
            tokens = prompt + s->output[i];
            needs.max_prompt = dlab_max_i64(needs.max_prompt, prompt);
            needs.max_tokens = dlab_max_i64(needs.max_tokens, tokens - 1); /* the last token is never fed back */
        }
    }
    return needs;
}

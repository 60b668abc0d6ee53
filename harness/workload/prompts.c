/* What the prompts say: every one of exactly as many ids as its length asks for. */
#include <stdlib.h>

#include "base/file.h"
#include "base/int.h"
#include "harness/quality/ppl.h"
#include "harness/workload/workload_parts.h"

#define TRIES 1000 /* for an id that is text: of few vocabularies one in ten is none */

/* What the prompts say is of the seed, and of how many runs there were before. */
static int64_t seed_of(const dlab_shape *s) { return s->w.seed + 1000003 * s->host.n_before; }

/* ---- text --------------------------------------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* The pieces of one run begin at different places as long as there are places: the stride has no divisor in common with the
 * text's length, and is near its golden section, so that successive pieces are far from each other. */
static dlab_status read_text(dlab_shape *s, dlab_error *err)
{
    const dlab_workload *w = &s->w;
    const dlab_tokenizer *tok = s->host.tokenizer;
    dlab_text_ring *out = &s->text;
    char *file = NULL;
    size_t bytes = 0, n = 0;
    const char *text = dlab_bundled_text(&bytes);
    if (!tok) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.prompts: %s needs a model that has a tokenizer: give -m MODEL", w->prompts);
    }
    if (*w->prompts_file) {
        DLAB_TRY(dlab_file_read(w->prompts_file, DLAB_FILE_MAX, &file, &bytes, err));
        text = file;
    }
    const dlab_status st = dlab_tokenizer_encode(tok, text, bytes, false, false, &out->ids, &n, err);
    free(file);
    DLAB_TRY(st);
    if (n == 0) return DLAB_FAIL(err, DLAB_EFORMAT, "%s: has no text", w->prompts_file);
    dlab_rng rng = dlab_stream_rng(seed_of(s), DLAB_STREAM_PROMPTS, 0);
    out->n = (int64_t)n;
    out->start = (int64_t)dlab_rng_below(&rng, n);
    out->stride = dlab_max_i64((int64_t)(0.6180339887 * (double)n), 1);
    while (gcd(out->stride, out->n) != 1) out->stride++;
    return DLAB_OK;
}

static void fill_piece(const dlab_text_ring *r, int64_t number, int32_t *ids, int64_t n)
{
    int64_t at = (r->start + number % r->n * r->stride) % r->n;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = r->ids[at];
        if (++at == r->n) at = 0;
    }
}

/* ---- ids ---------------------------------------------------------------------------------------------------------------- */

static void draw_ids(dlab_rng *rng, const dlab_workload_host *host, int32_t *ids, int64_t n)
{
    const uint64_t range = (uint64_t)((int64_t)host->vocab - host->first_id);
    for (int64_t i = 0; i < n; i++) {
        int tries = TRIES;
        do {
            ids[i] = host->first_id + (int32_t)dlab_rng_below(rng, range);
        } while (host->tokenizer && !dlab_tokenizer_is_text(host->tokenizer, ids[i]) && --tries > 0);
    }
}

/* A block's ids depend on (seed, its hash) alone, so that equal hashes are equal tokens. */
static void fill_blocks(const dlab_shape *s, bool warmup, const uint64_t *hashes, int32_t *ids, int64_t n)
{
    const dlab_stream kind = warmup ? DLAB_STREAM_WARMUP_BLOCKS : DLAB_STREAM_BLOCKS;
    for (int64_t at = 0; at < n; at += DLAB_TRACE_BLOCK) {
        dlab_rng rng = dlab_stream_rng(seed_of(s), kind, *hashes++);
        draw_ids(&rng, &s->host, ids + at, dlab_min_i64(DLAB_TRACE_BLOCK, n - at));
    }
}

/* A request's ids depend on (seed, its number) alone: adding requests, or a longer prompt, changes no id before. Those of
 * a warm-up are others: drawn, or from the other half of the text's places. */
static void fill_own(const dlab_shape *s, bool warmup, int64_t i, int32_t *ids, int64_t n)
{
    const dlab_file_requests *file = &s->file;
    const dlab_file_request *r = file->n > 0 ? &file->items[i] : NULL;
    if (r && r->n_data > 0 && file->hashes) {
        fill_blocks(s, warmup, file->hashes + r->data, ids, n);
    } else if (r && r->n_data > 0 && !warmup) {
        for (int64_t k = 0; k < n; k++) ids[k] = file->ids[r->data + k % r->n_data];
    } else if (s->text.ids) {
        fill_piece(&s->text, warmup ? s->text.n / 2 + i : i, ids, n);
    } else {
        dlab_rng rng =
            dlab_stream_rng(seed_of(s), warmup ? DLAB_STREAM_WARMUP_PROMPTS : DLAB_STREAM_PROMPTS, (uint64_t)i);
        draw_ids(&rng, &s->host, ids, n);
    }
}

/* It covers a prompt's first ids and changes none behind. */
static void fill_prefix(const dlab_shape *s, bool warmup, int64_t group, int32_t *ids)
{
    const int64_t quarter = s->text.n / 4;
    if (s->text.ids) {
        fill_piece(&s->text, (warmup ? 3 * quarter : quarter) + group, ids, s->w.shared_prefix);
        return;
    }
    dlab_rng rng =
        dlab_stream_rng(seed_of(s), warmup ? DLAB_STREAM_WARMUP_PREFIX : DLAB_STREAM_PREFIX, (uint64_t)group);
    draw_ids(&rng, &s->host, ids, s->w.shared_prefix);
}

dlab_status dlab_prompts_fill(dlab_shape *s, bool warmup, dlab_requests *out, dlab_error *err)
{
    if (dlab_workload_tokenizes(&s->w) && s->file.n == 0 && !s->text.ids) DLAB_TRY(read_text(s, err));
    for (int64_t i = 0; i < out->n; i++) {
        int32_t *ids = out->ids + out->offset[i];
        const int64_t c = s->conversation[i], group = s->first[c] == i ? dlab_prefix_group(&s->w, c) : -1;
        fill_own(s, warmup, i, ids, out->depth[i] + out->prompt[i]);
        if (group >= 0) fill_prefix(s, warmup, group, ids);
    }
    return DLAB_OK;
}

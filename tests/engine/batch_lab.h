/* Requests with short fields, and a spy beside the batcher that writes down who has which rows in a step. */
#ifndef DLAB_TESTS_ENGINE_BATCH_LAB_H
#define DLAB_TESTS_ENGINE_BATCH_LAB_H

#include "engine_test.h"

enum { LAB_IDS = 64, LAB_TOKENS = 64 };

static int32_t lab_text[1024];

static inline dlab_model *lab_model(void)
{
    dlab_model *m = open_model("synthetic:tiny");
    fill_ids(lab_text, 1024, dlab_model_get_info(m)->vocab, 99);
    return m;
}

/* Prompts of different requests begin differently. */
static inline dlab_engine_request lab_request(int64_t id, int64_t n_prompt, int64_t max_new)
{
    return (dlab_engine_request){.id = id,
                                 .prompt = lab_text + 7 * (id % LAB_IDS),
                                 .n_prompt = n_prompt,
                                 .max_new = max_new,
                                 .eos = -1,
                                 .seed = 11 + (uint64_t)id,
                                 .primed = -1};
}

static inline void lab_submit(dlab_engine *e, int64_t id, int64_t n_prompt, int64_t max_new)
{
    const dlab_engine_request r = lab_request(id, n_prompt, max_new);
    OK(dlab_engine_submit(e, &r, err));
}

/* What came of the requests with ids below LAB_IDS. */
typedef struct {
    int32_t ids[LAB_IDS][LAB_TOKENS];
    int n[LAB_IDS];
    int64_t begun[LAB_IDS], first[LAB_IDS], done[LAB_IDS]; /* in which step, from 1; 0: not yet */
    int64_t steps, preempted, pad_rows, pad_skipped, rows;
} lab_log;

static inline void lab_note(lab_log *l, const dlab_step *st)
{
    l->steps++;
    l->preempted += st->preempted;
    l->pad_rows += st->pad_rows;
    l->pad_skipped += st->pad_skipped;
    l->rows += st->rows;
    ck_assert_int_eq(st->rows, st->prefill_rows + st->decode_rows + st->pad_rows);
    for (int i = 0; i < st->n_admitted; i++) l->begun[st->admitted[i]] = l->steps;
    for (int i = 0; i < st->n_tokens; i++) {
        const dlab_step_token *t = &st->tokens[i];
        ck_assert_int_eq(t->index, l->n[t->request]);
        l->ids[t->request][l->n[t->request]++] = t->token;
        if (t->index == 0) l->first[t->request] = l->steps;
        if (t->finish != DLAB_FINISH_NONE) l->done[t->request] = l->steps;
    }
}

static inline dlab_step lab_step(dlab_engine *e, lab_log *l)
{
    dlab_step st;
    OK(dlab_engine_step(e, &st, err));
    lab_note(l, &st);
    return st;
}

static inline void lab_run(dlab_engine *e, lab_log *l)
{
    for (int limit = 20000; dlab_engine_busy(e); limit--) {
        const dlab_step st = lab_step(e, l);
        ck_assert_msg(st.rows > 0 || st.n_tokens > 0, "a step that does nothing");
        ck_assert_msg(limit > 0, "no end in sight");
    }
}

static inline dlab_kv_stats lab_kv(const dlab_engine *e)
{
    dlab_kv_stats kv;
    dlab_engine_kv(e, &kv);
    return kv;
}

/* Nothing is queued, running or reserved, and no counter lags behind. */
static inline void lab_assert_idle(const dlab_engine *e, const char *what)
{
    dlab_engine_load load;
    dlab_engine_get_load(e, &load);
    ck_assert_msg(!dlab_engine_busy(e) && load.waiting == 0 && load.running == 0, "%s: busy", what);
    const dlab_kv_stats kv = lab_kv(e);
    ck_assert_msg(kv.reserved_bytes == 0 && kv.used_bytes == 0, "%s: %lld bytes reserved", what,
                  (long long)kv.reserved_bytes);
    ck_assert_int_eq(e->batch.lengths, 0);
    for (int i = 0; i < e->batch.n_seqs; i++) ck_assert_msg(!e->batch.seqs[i].open, "%s: sequence %d taken", what, i);
}

/* ---- the spy ------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t request, first;
    int rows, pads;
    bool produces; /* has brought a token before */
} lab_row;

typedef struct {
    dlab_batcher_ops ops;
    const dlab_batcher_ops *real;
    lab_row row[64];
    int n;
    char text[256]; /* "REQUEST:FIRST+ROWS~PADS …" of the last step, as it was last proposed */
} lab_spy;

static lab_spy spy;

static inline dlab_status lab_spy_next(dlab_batcher *b, dlab_batch_state *st, dlab_slice *out, int *n, dlab_error *err)
{
    const dlab_status status = spy.real->next(b, st, out, n, err);
    size_t at = 0;
    spy.n = 0;
    spy.text[0] = 0;
    for (int i = 0; status == DLAB_OK && i < *n; i++) {
        const dlab_seq *s = &st->seqs[out[i].seq];
        spy.row[spy.n++] = (lab_row){s->request, out[i].first, out[i].n_rows, out[i].n_pad, s->n_new > 0};
        at += (size_t)snprintf(spy.text + at, sizeof spy.text - at, "%s%lld:%lld+%d", i ? " " : "",
                               (long long)s->request, (long long)out[i].first, out[i].n_rows);
        if (out[i].n_pad) at += (size_t)snprintf(spy.text + at, sizeof spy.text - at, "~%d", out[i].n_pad);
        ck_assert_uint_lt(at, sizeof spy.text);
    }
    return status;
}

static inline void lab_watch(dlab_engine *e)
{
    spy = (lab_spy){.ops = *e->batcher->ops, .real = e->batcher->ops};
    spy.ops.next = lab_spy_next;
    e->batcher->ops = &spy.ops;
}

/* Runs to the end; the steps must be exactly these. */
static inline void lab_expect(dlab_engine *e, lab_log *l, const char *const *want, int n)
{
    lab_watch(e);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(dlab_engine_busy(e), "ended before step %d", i + 1);
        lab_step(e, l);
        ck_assert_msg(strcmp(spy.text, want[i]) == 0, "step %d is '%s', by hand '%s'", i + 1, spy.text, want[i]);
    }
    ck_assert_msg(!dlab_engine_busy(e), "still busy after step %d", n);
}

#endif

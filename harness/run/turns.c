#include "harness/run/turns.h"

#include <stdlib.h>
#include <string.h>

/* A request's place in its conversation; what belongs to the conversation as a whole stands at its first request. */
typedef struct {
    int64_t first;
    int32_t number;
    int64_t at, length; /* of first: where its ids stand, and how many there are */
    int64_t last;       /* of first: the latest request, and tokens of its answer still to come */
    int64_t left;
} turn;

struct dlab_turns {
    const dlab_requests *q;
    turn *turns; /* [q->n] */
    int32_t *ids;
};

void dlab_turns_destroy(dlab_turns *t)
{
    if (!t) return;
    free(t->turns);
    free(t->ids);
    free(t);
}

static dlab_status link_turn(dlab_turns *t, int64_t i, dlab_error *err)
{
    const int64_t before = t->q->after[i];
    turn *own = &t->turns[i];
    if (before < 0) {
        *own = (turn){.first = i, .last = i};
        return DLAB_OK;
    }
    if (before >= i || t->turns[t->turns[before].first].last != before) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "request %lld: expected to follow its conversation's last turn, not request %lld",
                         (long long)i, (long long)before);
    }
    *own = (turn){.first = t->turns[before].first, .number = t->turns[before].number + 1};
    t->turns[own->first].last = i;
    return DLAB_OK;
}

/* Links all, and hands each conversation its piece of the ids. */
static dlab_status lay_out(dlab_turns *t, int64_t *total, dlab_error *err)
{
    const dlab_requests *q = t->q;
    *total = 0;
    for (int64_t i = 0; i < q->n; i++) {
        DLAB_TRY(link_turn(t, i, err));
        t->turns[t->turns[i].first].length += q->depth[i] + q->prompt[i] + q->output[i];
    }
    for (int64_t i = 0; i < q->n; i++) {
        if (t->turns[i].first != i) continue;
        t->turns[i].at = *total;
        *total += t->turns[i].length;
        t->turns[i].length = 0;
    }
    return DLAB_OK;
}

dlab_status dlab_turns_create(const dlab_requests *q, dlab_turns **out, dlab_error *err)
{
    *out = NULL;
    if (!q->after) return DLAB_OK;
    if (q->samples > 1) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload: %d answers to a prompt leave open which of them the next turn follows; "
                         "expected one",
                         q->samples);
    }
    int64_t total = 0;
    dlab_turns *t = calloc(1, sizeof *t);
    if (!t) return DLAB_FAIL(err, DLAB_EOOM, "no memory for conversations");
    t->q = q;
    t->turns = calloc(q->n > 0 ? (size_t)q->n : 1, sizeof *t->turns);
    dlab_status st = DLAB_OK;
    if (!t->turns) {
        st = DLAB_FAIL(err, DLAB_EOOM, "no memory for %lld turns", (long long)q->n);
        goto done;
    }
    DLAB_TRY_DONE(st, lay_out(t, &total, err));
    t->ids = calloc(total > 0 ? (size_t)total : 1, sizeof *t->ids);
    if (!t->ids) st = DLAB_FAIL(err, DLAB_EOOM, "no memory for conversations of %lld tokens", (long long)total);

done:
    if (st == DLAB_OK)
        *out = t;
    else
        dlab_turns_destroy(t);
    return st;
}

const int32_t *dlab_turns_prompt(dlab_turns *t, int64_t i, int64_t *n)
{
    const dlab_requests *q = t->q;
    turn *c = &t->turns[t->turns[i].first];
    const int64_t own = q->depth[i] + q->prompt[i];
    memcpy(t->ids + c->at + c->length, q->ids + q->offset[i], (size_t)own * sizeof *t->ids);
    c->length += own;
    c->left = q->output[i];
    *n = c->length;
    return t->ids + c->at;
}

void dlab_turns_token(dlab_turns *t, int64_t i, int32_t token)
{
    const dlab_requests *q = t->q;
    turn *c = &t->turns[t->turns[i].first];
    if (c->left == 0) return;
    const int64_t k = (q->output[i] - c->left--) % (q->depth[i] + q->prompt[i]);
    t->ids[c->at + c->length++] = token >= 0 ? token : q->ids[q->offset[i] + k];
}

int64_t dlab_turns_first(const dlab_turns *t, int64_t i) { return t->turns[i].first; }
int32_t dlab_turns_number(const dlab_turns *t, int64_t i) { return t->turns[i].number; }

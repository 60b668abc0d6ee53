/* What has been said in each conversation so far: a later turn's prompt begins with the turns before it, answers included,
 * whose tokens are known only when they come. */
#ifndef DLAB_HARNESS_RUN_TURNS_H
#define DLAB_HARNESS_RUN_TURNS_H

#include "harness/workload/workload.h"

typedef struct dlab_turns dlab_turns;

/* requests are borrowed. Room for all that can be said is taken here; what follows allocates nothing. DLAB_EUSAGE: a turn
 * that does not follow its conversation's last one. DLAB_EIMPOSSIBLE: several answers to go on from. *out is NULL where the
 * requests are no conversations. */
dlab_status dlab_turns_create(const dlab_requests *q, dlab_turns **out, dlab_error *err);
void dlab_turns_destroy(dlab_turns *t);
/* Request i is about to be sent: what was said before it and its own ids, valid until the next call for its conversation. */
const int32_t *dlab_turns_prompt(dlab_turns *t, int64_t i, int64_t *n);
/* A token of its answer; more than it asked for are not kept. Below 0, the id is not known, as of a server that answers in
 * text: one of the request's own stands for it, so that lengths stay what they are. */
void dlab_turns_token(dlab_turns *t, int64_t i, int32_t token);
int64_t dlab_turns_first(const dlab_turns *t, int64_t i);  /* the number of its conversation's first request … */
int32_t dlab_turns_number(const dlab_turns *t, int64_t i); /* … and how many turns it comes behind that */

#endif

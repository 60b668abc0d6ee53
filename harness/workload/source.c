#include <stdlib.h>

#include "base/int.h"
#include "harness/workload/workload.h"

typedef struct {
    int64_t due_ns, request;
} entry;

typedef enum { WAITING, DUE, IN_FLIGHT, GONE } state; /* of a request */

struct dlab_source {
    const dlab_requests *q;
    entry *heap; /* [q->n], the smallest first */
    int64_t n_heap;
    int64_t *next;             /* [q->n] the turn after; −1: none */
    unsigned char *state;      /* [q->n] */
    int64_t next_conversation; /* closed: no first turn before this number is left to be started */
    int64_t waiting, in_flight;
    int64_t used_up_ns; /* −1: not */
};

/* ---- heap --------------------------------------------------------------------------------------------------------------- */

static bool before(entry a, entry b) { return a.due_ns != b.due_ns ? a.due_ns < b.due_ns : a.request < b.request; }

static void push(dlab_source *s, entry e)
{
    int64_t i = s->n_heap++;
    for (; i > 0 && before(e, s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static entry pop(dlab_source *s)
{
    const entry top = s->heap[0], last = s->heap[--s->n_heap];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= s->n_heap) break;
        if (child + 1 < s->n_heap && before(s->heap[child + 1], s->heap[child])) child++;
        if (!before(s->heap[child], last)) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* ---- schedule ----------------------------------------------------------------------------------------------------------- */

static bool is_first(const dlab_requests *q, int64_t i) { return !q->after || q->after[i] < 0; }

/* With the turns behind it. */
static void drop(dlab_source *s, int64_t i)
{
    for (; i >= 0 && s->state[i] == WAITING; i = s->next[i]) {
        s->state[i] = GONE;
        s->waiting--;
    }
}

/* False: it would be after the end, and never comes. */
static bool schedule(dlab_source *s, int64_t i, int64_t due_ns)
{
    if (s->q->duration_ns > 0 && due_ns >= s->q->duration_ns) {
        drop(s, i);
        return false;
    }
    s->state[i] = DUE;
    push(s, (entry){due_ns, i});
    return true;
}

static int64_t think_of(const dlab_requests *q, int64_t i) { return q->think_ns ? q->think_ns[i] : 0; }

/* The next conversation that no arrival starts. */
static void start_conversation(dlab_source *s, int64_t now_ns)
{
    const dlab_requests *q = s->q;
    int64_t *i = &s->next_conversation;
    while (*i < q->n && !(is_first(q, *i) && s->state[*i] == WAITING)) ++*i;
    if (*i < q->n)
        schedule(s, *i, now_ns + think_of(q, *i));
    else if (q->scarce && s->used_up_ns < 0 && now_ns < q->duration_ns)
        s->used_up_ns = now_ns;
}

dlab_status dlab_source_create(const dlab_requests *q, dlab_source **out, dlab_error *err)
{
    const size_t n = (size_t)dlab_max_i64(q->n, 1);
    *out = NULL;
    dlab_source *s = calloc(1, sizeof *s);
    if (s) {
        s->q = q;
        s->heap = malloc(n * sizeof *s->heap);
        s->next = malloc(n * sizeof *s->next);
        s->state = calloc(n, sizeof *s->state);
    }
    if (!s || !s->heap || !s->next || !s->state) {
        dlab_source_destroy(s);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for a schedule of %zu requests", n);
    }
    s->waiting = q->n;
    s->used_up_ns = -1;
    for (int64_t i = 0; i < q->n; i++) s->next[i] = -1;
    for (int64_t i = 0; i < q->n; i++) {
        if (!is_first(q, i)) s->next[q->after[i]] = i;
    }
    for (int64_t i = 0; i < q->n; i++) {
        const int64_t at = q->arrival_ns ? q->arrival_ns[i] : 0;
        if (!is_first(q, i) || at < 0) continue;
        schedule(s, i, at);
        if (q->scarce && q->concurrency == 0) s->used_up_ns = at;
    }
    *out = s;
    return DLAB_OK;
}

void dlab_source_destroy(dlab_source *s)
{
    if (!s) return;
    free(s->heap);
    free(s->next);
    free(s->state);
    free(s);
}

int64_t dlab_source_take(dlab_source *s, int64_t now_ns, int64_t *sched_ns)
{
    if (s->n_heap == 0 || s->heap[0].due_ns > now_ns) return -1;
    const entry e = pop(s);
    s->state[e.request] = IN_FLIGHT;
    s->waiting--;
    s->in_flight++;
    *sched_ns = e.due_ns;
    return e.request;
}

int64_t dlab_source_due_ns(const dlab_source *s) { return s->n_heap > 0 ? s->heap[0].due_ns : INT64_MAX; }

/* Whoever would have waited longer than the run lasts sends nothing more. */
void dlab_source_ended(dlab_source *s, int64_t i, int64_t now_ns, bool failed)
{
    if (s->state[i] != IN_FLIGHT) return;
    const int64_t next = s->next[i];
    s->state[i] = GONE;
    s->in_flight--;
    if (next >= 0 && !failed) {
        schedule(s, next, now_ns + think_of(s->q, next));
        return;
    }
    if (next >= 0) drop(s, next);
    if (s->q->concurrency > 0) start_conversation(s, now_ns);
}

int64_t dlab_source_used_up_ns(const dlab_source *s) { return s->used_up_ns; }

bool dlab_source_over(const dlab_source *s) { return s->n_heap == 0 && (s->waiting == 0 || s->in_flight == 0); }

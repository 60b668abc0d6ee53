#include <stdio.h>
#include <stdlib.h>

#include "harness/workload/workload_parts.h"

void dlab_file_requests_free(dlab_file_requests *t)
{
    free(t->items);
    free(t->ids);
    free(t->hashes);
    *t = (dlab_file_requests){0};
}

/* Room for `more` behind n of `bytes` each; twice as much as there was, at least. */
static dlab_status reserve(void **at, size_t *room, size_t n, size_t more, size_t bytes, const char *name,
                           dlab_error *err)
{
    if (more <= *room - n) return DLAB_OK;
    size_t want = *room < 64 ? 64 : *room * 2;
    if (want < n + more) want = n + more;
    void *bigger = realloc(*at, want * bytes);
    if (!bigger) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its requests", name);
    *at = bigger;
    *room = want;
    return DLAB_OK;
}

dlab_status dlab_file_requests_add(dlab_file_requests *t, const dlab_file_request *r, dlab_error *err)
{
    void *at = t->items;
    if (t->n >= (size_t)DLAB_REQUESTS_MAX) {
        return DLAB_FAIL(err, DLAB_EOOM, "%s: more than %lld requests; take a part of it with workload.requests",
                         t->name, (long long)DLAB_REQUESTS_MAX);
    }
    DLAB_TRY(reserve(&at, &t->room, t->n, 1, sizeof *t->items, t->name, err));
    t->items = at;
    t->items[t->n++] = *r;
    if (!r->later) t->conversations++;
    return DLAB_OK;
}

dlab_status dlab_file_requests_add_ids(dlab_file_requests *t, const int32_t *ids, size_t n, dlab_error *err)
{
    void *at = t->ids;
    DLAB_TRY(reserve(&at, &t->room_ids, t->n_ids, n, sizeof *t->ids, t->name, err));
    t->ids = at;
    memcpy(t->ids + t->n_ids, ids, n * sizeof *ids);
    t->n_ids += n;
    return DLAB_OK;
}

dlab_status dlab_file_requests_add_hash(dlab_file_requests *t, uint64_t hash, dlab_error *err)
{
    void *at = t->hashes;
    DLAB_TRY(reserve(&at, &t->room_hashes, t->n_hashes, 1, sizeof *t->hashes, t->name, err));
    t->hashes = at;
    t->hashes[t->n_hashes++] = hash;
    return DLAB_OK;
}

/* The first request of conversation number c. */
static size_t first_of(const dlab_file_requests *t, int64_t c)
{
    size_t i = 0;
    for (; i < t->n; i++)
        if (!t->items[i].later && c-- == 0) break;
    return i;
}

dlab_status dlab_file_requests_turn(dlab_file_requests *t, int64_t from, int64_t most, dlab_error *err)
{
    const size_t head = first_of(t, from % t->conversations), tail = t->n - head;
    dlab_file_request *items = malloc(t->n * sizeof *items);
    if (!items) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its requests", t->name);
    memcpy(items, t->items + head, tail * sizeof *items);
    memcpy(items + tail, t->items, head * sizeof *items);
    free(t->items);
    t->items = items;
    t->room = t->n;
    if (most <= 0 || most >= t->conversations) return DLAB_OK;
    t->n = first_of(t, most);
    t->conversations = most;
    return DLAB_OK;
}

void dlab_file_requests_place(const dlab_file_requests *t, const dlab_file_request *r, char *buf, size_t size)
{
    snprintf(buf, size, "%s:%s%lld", t->name, t->unit ? t->unit : "", (long long)r->line);
}

bool dlab_file_line_next(dlab_file_lines *l)
{
    if (l->text == l->end) return false;
    const size_t left = (size_t)(l->end - l->text);
    const char *stop = memchr(l->text, '\n', left);
    l->line = l->text;
    l->n = stop ? (size_t)(stop - l->text) : left;
    l->text += l->n + (stop ? 1 : 0);
    l->number++;
    return true;
}

bool dlab_file_line_empty(const dlab_file_lines *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->line[i] != ' ' && l->line[i] != '\t' && l->line[i] != '\r') return false;
    }
    return true;
}

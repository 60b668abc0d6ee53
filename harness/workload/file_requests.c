#include <stdio.h>
#include <stdlib.h>

#include "base/grow.h"
#include "harness/workload/workload_parts.h"

void dlab_file_requests_free(dlab_file_requests *t)
{
    free(t->items);
    free(t->ids);
    free(t->hashes);
    *t = (dlab_file_requests){0};
}

static dlab_status no_memory(const dlab_file_requests *t, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its requests", t->name);
}

dlab_status dlab_file_requests_add(dlab_file_requests *t, const dlab_file_request *r, dlab_error *err)
{
    if (t->n >= (size_t)DLAB_REQUESTS_MAX) {
        return DLAB_FAIL(err, DLAB_EOOM, "%s: more than %lld requests; take a part of it with workload.requests",
                         t->name, (long long)DLAB_REQUESTS_MAX);
    }
    void *at = dlab_grow(t->items, t->n + 1, &t->room, sizeof *t->items);
    if (!at) return no_memory(t, err);
    t->items = at;
    t->items[t->n++] = *r;
    if (!r->later) t->conversations++;
    return DLAB_OK;
}

dlab_status dlab_file_requests_add_ids(dlab_file_requests *t, const int32_t *ids, size_t n, dlab_error *err)
{
    if (n == 0) return DLAB_OK;
    void *at = dlab_grow(t->ids, t->n_ids + n, &t->room_ids, sizeof *t->ids);
    if (!at) return no_memory(t, err);
    t->ids = at;
    memcpy(t->ids + t->n_ids, ids, n * sizeof *ids);
    t->n_ids += n;
    return DLAB_OK;
}

dlab_status dlab_file_requests_add_hash(dlab_file_requests *t, uint64_t hash, dlab_error *err)
{
    void *at = dlab_grow(t->hashes, t->n_hashes + 1, &t->room_hashes, sizeof *t->hashes);
    if (!at) return no_memory(t, err);
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

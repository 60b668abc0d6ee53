#include "harness/remote/sse.h"

#include <stdlib.h>
#include <string.h>

static dlab_status append(dlab_sse_buffer *b, const char *bytes, size_t n, const char *what, dlab_error *err)
{
    if (n > DLAB_SSE_EVENT_MAX - b->n)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s of a stream is longer than %zu bytes", what, DLAB_SSE_EVENT_MAX);
    if (b->n + n + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 512;
        while (cap < b->n + n + 1) cap *= 2;
        char *more = realloc(b->bytes, cap);
        if (!more) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %s of a stream", what);
        b->bytes = more;
        b->cap = cap;
    }
    if (n > 0) memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    b->bytes[b->n] = 0;
    return DLAB_OK;
}

static dlab_status dispatch(dlab_sse *s, dlab_sse_event event, void *ctx, dlab_error *err)
{
    if (!s->has_data) return DLAB_OK;
    dlab_status st = event(ctx, s->data.bytes, s->data.n, err);
    s->has_data = false;
    s->data.n = 0;
    return st;
}

/* One line without its end: a blank one ends the event. */
static dlab_status take_line(dlab_sse *s, dlab_sse_event event, void *ctx, dlab_error *err)
{
    static const char bom[] = "\xEF\xBB\xBF", field[] = "data";
    const char *line = s->line.n ? s->line.bytes : "";
    size_t n = s->line.n;
    s->line.n = 0;
    if (!s->after_bom && n >= sizeof bom - 1 && memcmp(line, bom, sizeof bom - 1) == 0) {
        line += sizeof bom - 1;
        n -= sizeof bom - 1;
    }
    s->after_bom = true;
    if (n == 0) return dispatch(s, event, ctx, err);
    const char *colon = memchr(line, ':', n);
    size_t name = colon ? (size_t)(colon - line) : n;
    if (name != sizeof field - 1 || memcmp(line, field, name) != 0) return DLAB_OK;
    size_t skip = colon ? name + 1 : n;
    if (skip < n && line[skip] == ' ') skip++;
    if (s->has_data) DLAB_TRY(append(&s->data, "\n", 1, "an event", err));
    DLAB_TRY(append(&s->data, line + skip, n - skip, "an event", err));
    s->has_data = true;
    return DLAB_OK;
}

dlab_status dlab_sse_feed(dlab_sse *s, const char *bytes, size_t n, dlab_sse_event event, void *ctx, dlab_error *err)
{
    size_t at = 0;
    while (at < n) {
        if (s->after_cr && bytes[at] == '\n') { /* the other half of a line's end */
            s->after_cr = false;
            at++;
            continue;
        }
        s->after_cr = false;
        size_t end = at;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r') end++;
        DLAB_TRY(append(&s->line, bytes + at, end - at, "a line", err));
        if (end == n) break;
        s->after_cr = bytes[end] == '\r';
        at = end + 1;
        DLAB_TRY(take_line(s, event, ctx, err));
    }
    return DLAB_OK;
}

dlab_status dlab_sse_end(dlab_sse *s, dlab_sse_event event, void *ctx, dlab_error *err)
{
    if (s->line.n > 0) DLAB_TRY(take_line(s, event, ctx, err));
    return dispatch(s, event, ctx, err);
}

void dlab_sse_reset(dlab_sse *s)
{
    *s = (dlab_sse){.line = {s->line.bytes, 0, s->line.cap}, .data = {s->data.bytes, 0, s->data.cap}};
}

void dlab_sse_free(dlab_sse *s)
{
    free(s->line.bytes);
    free(s->data.bytes);
    *s = (dlab_sse){0};
}

/* Server-sent events as streams of completions use them (https://html.spec.whatwg.org/multipage/server-sent-events.html):
 * the data of each event, whatever pieces its bytes come in. Names, ids and retry times of events are read over. */
#ifndef DLAB_HARNESS_REMOTE_SSE_H
#define DLAB_HARNESS_REMOTE_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define DLAB_SSE_EVENT_MAX ((size_t)1 << 20) /* bytes of a line, and of an event's data */

typedef struct {
    char *bytes;
    size_t n, cap;
} dlab_sse_buffer;

/* Starts zeroed. */
typedef struct {
    dlab_sse_buffer line, data; /* the line that has not ended, the lines of data so far */
    bool has_data, after_cr, after_bom;
} dlab_sse;

/* data: n bytes, NUL-terminated past them; its lines joined by \n. What it returns ends the reading. */
typedef dlab_status (*dlab_sse_event)(void *ctx, const char *data, size_t n, dlab_error *err);

/* Calls event for each event that is whole. DLAB_EFORMAT: a line or an event longer than DLAB_SSE_EVENT_MAX. */
dlab_status dlab_sse_feed(dlab_sse *s, const char *bytes, size_t n, dlab_sse_event event, void *ctx, dlab_error *err);
/* The stream is over. Its last event counts although no blank line followed it: some servers leave it out. */
dlab_status dlab_sse_end(dlab_sse *s, dlab_sse_event event, void *ctx, dlab_error *err);
void dlab_sse_reset(dlab_sse *s); /* for another stream; keeps its memory */
void dlab_sse_free(dlab_sse *s);

#endif

/* The worker's protocol: JSON objects, one a line, each with "v". Described in docs/worker.md. */
#ifndef DLAB_HARNESS_RUN_WIRE_H
#define DLAB_HARNESS_RUN_WIRE_H

#include <stdbool.h>

#include "base/json.h"
#include "results/run.h"

#define DLAB_WIRE_VERSION  1
#define DLAB_WIRE_LINE_MAX ((size_t)1 << 20)

/* Lines out of a stream of bytes. Zero it before use; free with dlab_lines_free. */
typedef struct {
    char *buf;
    size_t n, cap, taken; /* taken: bytes of the line handed out last, dropped by the next call */
} dlab_lines;

/* One read(2). *eof when the other side has closed. A signal is no error: nothing is read then. */
dlab_status dlab_lines_fill(dlab_lines *l, int fd, bool *eof, dlab_error *err);
/* The next whole line without its end, or NULL; valid until the next call. */
const char *dlab_lines_next(dlab_lines *l);
void dlab_lines_free(dlab_lines *l);

/* Sends j with "v" set and a line's end; takes the reference. NULL j: memory was out. A peer that is gone is DLAB_EIO and
 * raises no signal on a socket. */
dlab_status dlab_wire_send(int fd, json_t *j, dlab_error *err);
/* One message; another version or something that is no object is DLAB_EFORMAT. Caller json_decref's. */
dlab_status dlab_wire_parse(const char *line, json_t **out, dlab_error *err);
/* Members. A missing or wrongly typed one is DLAB_EFORMAT; text is valid as long as j is. */
dlab_status dlab_wire_text(const json_t *j, const char *key, const char **out, dlab_error *err);
dlab_status dlab_wire_int(const json_t *j, const char *key, int64_t min, int64_t max, int64_t *out, dlab_error *err);

/* Whether it can be sent as it is: UTF-8. */
bool dlab_wire_is_text(const char *text);
/* {"key": "value"}, in order; bytes that are no UTF-8 become question marks. NULL when memory is out. */
json_t *dlab_wire_settings(const dlab_settings *s);
dlab_status dlab_wire_read_settings(const json_t *j, const char *key, dlab_settings *out, dlab_error *err);

#endif

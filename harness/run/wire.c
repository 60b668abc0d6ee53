#include "harness/run/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"

dlab_status dlab_lines_fill(dlab_lines *l, int fd, bool *eof, dlab_error *err)
{
    *eof = false;
    if (l->cap - l->n < 4096) {
        size_t cap = l->cap ? 2 * l->cap : 16384;
        if (cap > 2 * DLAB_WIRE_LINE_MAX)
            return DLAB_FAIL(err, DLAB_EFORMAT, "a line of over %zu bytes", DLAB_WIRE_LINE_MAX);
        char *buf = realloc(l->buf, cap);
        if (!buf) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a line of %zu bytes", cap);
        l->buf = buf;
        l->cap = cap;
    }
    ssize_t got = read(fd, l->buf + l->n, l->cap - l->n);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return DLAB_OK;
    if (got < 0 && errno != ECONNRESET) return DLAB_FAIL(err, DLAB_EIO, "reading a message: %s", strerror(errno));
    if (got <= 0) *eof = true;
    if (got > 0) l->n += (size_t)got;
    return DLAB_OK;
}

const char *dlab_lines_next(dlab_lines *l)
{
    if (l->taken > 0) {
        memmove(l->buf, l->buf + l->taken, l->n - l->taken);
        l->n -= l->taken;
        l->taken = 0;
    }
    char *end = l->n > 0 ? memchr(l->buf, '\n', l->n) : NULL;
    if (!end) return NULL;
    *end = 0;
    l->taken = (size_t)(end - l->buf) + 1;
    return l->buf;
}

void dlab_lines_free(dlab_lines *l)
{
    free(l->buf);
    *l = (dlab_lines){0};
}

static dlab_status write_all(int fd, const char *text, size_t n, dlab_error *err)
{
    while (n > 0) {
        ssize_t put = send(fd, text, n, MSG_NOSIGNAL);
        if (put < 0 && errno == ENOTSOCK) put = write(fd, text, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return DLAB_FAIL(err, DLAB_EIO, "sending a message: %s", strerror(errno));
        text += put;
        n -= (size_t)put;
    }
    return DLAB_OK;
}

dlab_status dlab_wire_send(int fd, json_t *j, dlab_error *err)
{
    char *text = NULL;
    if (j && json_object_set_new(j, "v", json_integer(DLAB_WIRE_VERSION)) == 0) text = dlab_json_dump(j, 0);
    json_decref(j);
    if (!text) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a message");
    size_t n = strlen(text);
    text[n] = '\n'; /* in place of the NUL */
    dlab_status st = write_all(fd, text, n + 1, err);
    free(text);
    return st;
}

dlab_status dlab_wire_parse(const char *line, json_t **out, dlab_error *err)
{
    int64_t v = 0;
    *out = NULL;
    DLAB_TRY(dlab_json_parse("message", line, strlen(line), out, err));
    dlab_status st = json_is_object(*out) ? dlab_wire_int(*out, "v", 0, INT64_MAX, &v, err)
                                          : DLAB_FAIL(err, DLAB_EFORMAT, "a message is an object, this is not");
    if (st == DLAB_OK && v != DLAB_WIRE_VERSION) {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "message of version %lld, this program speaks version %d", (long long)v,
                       DLAB_WIRE_VERSION);
    }
    if (st != DLAB_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

dlab_status dlab_wire_text(const json_t *j, const char *key, const char **out, dlab_error *err)
{
    *out = json_string_value(json_object_get(j, key));
    return *out ? DLAB_OK : DLAB_FAIL(err, DLAB_EFORMAT, "message without the text \"%s\"", key);
}

dlab_status dlab_wire_int(const json_t *j, const char *key, int64_t min, int64_t max, int64_t *out, dlab_error *err)
{
    const json_t *v = json_object_get(j, key);
    *out = json_integer_value(v);
    if (!json_is_integer(v)) return DLAB_FAIL(err, DLAB_EFORMAT, "message without the whole number \"%s\"", key);
    if (*out < min || *out > max) {
        return DLAB_FAIL(err, DLAB_EFORMAT, "message with \"%s\" %lld, expected %lld to %lld", key, (long long)*out,
                         (long long)min, (long long)max);
    }
    return DLAB_OK;
}

bool dlab_wire_is_text(const char *text)
{
    json_t *j = json_string(text);
    bool good = j != NULL;
    json_decref(j);
    return good;
}

/* Facts for a reader only: bytes that are no UTF-8 become question marks. */
static json_t *lossy_string(const char *text)
{
    char *plain = strdup(text);
    if (!plain) return NULL;
    dlab_text_copy(plain, strlen(plain) + 1, plain);
    json_t *j = json_string(plain);
    free(plain);
    return j;
}

json_t *dlab_wire_settings(const dlab_settings *s)
{
    json_t *j = json_object();
    for (size_t i = 0; j && i < s->n; i++) {
        if (json_object_set_new(j, s->items[i].key, lossy_string(s->items[i].value)) != 0) {
            json_decref(j);
            return NULL;
        }
    }
    return j;
}

dlab_status dlab_wire_read_settings(const json_t *j, const char *key, dlab_settings *out, dlab_error *err)
{
    json_t *object = json_object_get(j, key), *value;
    const char *name;
    if (!json_is_object(object)) return DLAB_FAIL(err, DLAB_EFORMAT, "message without the object \"%s\"", key);
    json_object_foreach(object, name, value)
    {
        if (!json_is_string(value))
            return DLAB_FAIL(err, DLAB_EFORMAT, "message with \"%s.%s\" that is no text", key, name);
        DLAB_TRY(dlab_settings_set(out, name, json_string_value(value), err));
    }
    return DLAB_OK;
}

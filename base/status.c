#include "base/status.h"

#include <stdio.h>
#include <string.h>

const char *dlab_status_text(dlab_status s)
{
    static const char *const texts[DLAB_STATUS_N] = {
#define TEXT(name, text) [DLAB_##name] = text,
        DLAB_STATUS_LIST(TEXT)
#undef TEXT
    };
    return (unsigned)s < DLAB_STATUS_N ? texts[s] : "unknown status";
}

const char *dlab_status_name(dlab_status s)
{
    static const char *const names[DLAB_STATUS_N] = {
#define NAME(name, text) [DLAB_##name] = #name,
        DLAB_STATUS_LIST(NAME)
#undef NAME
    };
    return (unsigned)s < DLAB_STATUS_N ? names[s] : "UNKNOWN";
}

/* A message cut inside a UTF-8 character would not be a JSON string any more. */
static void trim_partial_utf8(char *s)
{
    size_t n = strlen(s), tail = 0;
    while (tail < n && tail < 3 && ((unsigned char)s[n - 1 - tail] & 0xC0) == 0x80) tail++;
    if (tail == n) return;
    const unsigned char lead = (unsigned char)s[n - 1 - tail];
    const size_t need = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (need > tail) s[n - 1 - tail] = '\0';
}

dlab_status dlab_error_set(dlab_error *err, dlab_status code, const char *file, int line, const char *fmt, ...)
{
    if (!err) return code;
    char msg[DLAB_ERROR_MSG]; /* the arguments may point into err->msg */
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof msg) trim_partial_utf8(msg);
    err->code = code;
    err->file = file;
    err->line = line;
    memcpy(err->msg, msg, sizeof msg);
    return code;
}

dlab_status dlab_error_prefix(dlab_error *err, dlab_status code, const char *fmt, ...)
{
    if (!err) return code;
    char head[DLAB_ERROR_MSG], msg[DLAB_ERROR_MSG];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    const int n = snprintf(msg, sizeof msg, "%s: %s", head, err->msg);
    if (n >= (int)sizeof msg) trim_partial_utf8(msg);
    memcpy(err->msg, msg, sizeof msg);
    return err->code;
}

#include "base/status.h"

#include <stdio.h>

#include "base/text.h"

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

/* Room for the rest of a character that begins within a message, so that the copy sees whether it fits. */
#define MSG_ROOM (DLAB_ERROR_MSG + 4)

dlab_status dlab_error_set(dlab_error *err, dlab_status code, const char *file, int line, const char *fmt, ...)
{
    if (!err) return code;
    char msg[MSG_ROOM]; /* the arguments may point into err->msg */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    err->code = code;
    err->file = file;
    err->line = line;
    dlab_text_copy(err->msg, sizeof err->msg, msg);
    return code;
}

dlab_status dlab_error_prefix(dlab_error *err, dlab_status code, const char *fmt, ...)
{
    if (!err) return code;
    char head[DLAB_ERROR_MSG], msg[MSG_ROOM];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    const int n = snprintf(msg, sizeof msg, "%s: %s", head, err->msg);
    if (n > 0) dlab_text_copy(err->msg, sizeof err->msg, msg);
    return err->code;
}

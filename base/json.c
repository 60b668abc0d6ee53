#include "base/json.h"

#include <math.h>
#include <string.h>

json_t *dlab_json_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

dlab_status dlab_json_parse(const char *name, const char *text, size_t n, json_t **out, dlab_error *err)
{
    return dlab_json_parse_line(name, 1, text, n, out, err);
}

dlab_status dlab_json_parse_line(const char *name, int64_t line, const char *text, size_t n, json_t **out,
                                 dlab_error *err)
{
    json_error_t e;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (*out) return DLAB_OK;
    if (json_error_code(&e) == json_error_null_character) /* jansson names a flag of its own */
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s:%lld:%d: a string holds a NUL character (\\u0000): that is not possible", name,
                         (long long)(line + e.line - 1), e.column);
    /* jansson quotes the text it stopped at, line breaks and all */
    for (char *c = e.text; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s:%lld:%d: not valid JSON: %s", name, (long long)(line + e.line - 1),
                     e.column, e.text);
}

char *dlab_json_dump(const json_t *j, int indent)
{
    return json_dumps(j, (indent > 0 ? JSON_INDENT((size_t)indent) : JSON_COMPACT) | JSON_ENCODE_ANY);
}

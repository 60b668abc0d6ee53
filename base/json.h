/* Small helps around jansson: strict numbers (a missing figure is null, never NaN or 0), and messages with positions. */
#ifndef DLAB_BASE_JSON_H
#define DLAB_BASE_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

json_t *dlab_json_number(double v); /* null when v is not finite */
/* One object from one line or file; DLAB_EFORMAT says "NAME:LINE:COL: …". Caller json_decref's. */
dlab_status dlab_json_parse(const char *name, const char *text, size_t n, json_t **out, dlab_error *err);
/* The same of a line in the middle of a file. */
dlab_status dlab_json_parse_line(const char *name, int64_t line, const char *text, size_t n, json_t **out,
                                 dlab_error *err);
/* malloc'd compact or indented text, keys in insertion order; NULL when memory is out. */
char *dlab_json_dump(const json_t *j, int indent);

#endif

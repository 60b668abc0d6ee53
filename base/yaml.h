/* YAML reading with positions (libyaml below). One document; anchors, aliases, tags and merge keys are refused by name;
 * duplicate keys are an error; depth ≤ 32, nodes ≤ 100 000, file ≤ 4 MiB. All errors are one line:
 * "FILE:LINE:COLUMN: what, expected what". */
#ifndef DLAB_BASE_YAML_H
#define DLAB_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum { DLAB_YAML_SCALAR, DLAB_YAML_SEQ, DLAB_YAML_MAP } dlab_yaml_kind;

typedef struct dlab_yaml_node {
    dlab_yaml_kind kind;
    int line, column;                          /* of the value, from 1 */
    const char *text;                          /* scalar: NUL-terminated, no NUL inside */
    bool quoted;                               /* scalar: was quoted, so that "null" and "~" are words */
    size_t n;                                  /* items of a sequence, pairs of a map */
    const struct dlab_yaml_node *const *items; /* sequence: n items; map: n values */
    const struct dlab_yaml_node *const *keys;  /* map: n scalar keys */
} dlab_yaml_node;

typedef struct dlab_yaml dlab_yaml;

/* name is used in messages; text need not be NUL-terminated. */
dlab_status dlab_yaml_parse(const char *name, const char *text, size_t n_bytes, dlab_yaml **out, dlab_error *err);
dlab_status dlab_yaml_read(const char *path, dlab_yaml **out, dlab_error *err);
void dlab_yaml_destroy(dlab_yaml *y);
const dlab_yaml_node *dlab_yaml_root(const dlab_yaml *y);
const char *dlab_yaml_text(const dlab_yaml *y, size_t *n_bytes); /* the file, verbatim */
const char *dlab_yaml_name(const dlab_yaml *y);
const dlab_yaml_node *dlab_yaml_get(const dlab_yaml_node *map, const char *key); /* NULL if absent or not a map */
/* DLAB_FAIL with "NAME:LINE:COL: " in front. */
dlab_status dlab_yaml_fail(const dlab_yaml *y, const dlab_yaml_node *at, dlab_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif

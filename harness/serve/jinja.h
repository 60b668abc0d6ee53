/* Chat templates compared as what they say, not as they are laid out: a Jinja text becomes a list of marks that is the same
 * for templates that differ in blanks, quotes, `a.b` for `a['b']`, `.strip()` for `| trim`, and in how literal text is cut
 * into pieces. Nothing is evaluated. Layout rules are those of the transformers library (trim_blocks, lstrip_blocks).
 * Source: the Jinja template designer documentation, "Whitespace Control" and "List of Control Structures". */
#ifndef DLAB_HARNESS_SERVE_JINJA_H
#define DLAB_HARNESS_SERVE_JINJA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum { DLAB_JINJA_WORD, DLAB_JINJA_SIGN, DLAB_JINJA_TEXT } dlab_jinja_kind;

typedef struct {
    dlab_jinja_kind kind; /* a name or number; punctuation, "{%" and "{{" too; a string or text between tags */
    size_t at, n;         /* in bytes */
} dlab_jinja_mark;

typedef struct {
    char *bytes;
    dlab_jinja_mark *marks;
    size_t n, n_bytes;
} dlab_jinja;

/* DLAB_EFORMAT: a tag, string or comment that does not end, or an escape other than those of quotes, \\, \n, \t and \r. */
dlab_status dlab_jinja_read(const char *text, size_t n, dlab_jinja *out, dlab_error *err);
void dlab_jinja_free(dlab_jinja *j);

/* In a pattern: any text without a control token's "<|" in it. */
#define DLAB_JINJA_ANY '\001'
/* Whether the marks of t from `from` on are those of `pattern`. *hole [*n_hole] is what DLAB_JINJA_ANY stood for in the one
 * string of the pattern that has it; it points into t. */
bool dlab_jinja_match(const dlab_jinja *t, size_t from, const dlab_jinja *pattern, const char **hole, size_t *n_hole);
/* Marks of t from `from` on that are those of `pattern`, all of them; 0: not there. */
size_t dlab_jinja_prefix(const dlab_jinja *t, size_t from, const dlab_jinja *pattern);

#endif

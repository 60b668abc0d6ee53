/* Tables of named parameters over plain structs. One row gives a key its type, default, range and help; from the same
 * rows come YAML checking, --set, `dlab list` and docs/experiments.md. */
#ifndef DLAB_BASE_PARAM_H
#define DLAB_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DLAB_PARAM_STR 512 /* bytes of a string field, NUL included */

typedef enum {
    DLAB_PARAM_INT,      /* int64_t */
    DLAB_PARAM_FLOAT,    /* double */
    DLAB_PARAM_BOOL,     /* bool; true/false, on/off, yes/no */
    DLAB_PARAM_CHOICE,   /* const char *, one of choices() */
    DLAB_PARAM_SIZE,     /* int64_t bytes: 1024, 64KiB, 1.5GiB, 2GB */
    DLAB_PARAM_DURATION, /* int64_t nanoseconds: 250ms, 20s, 2min; a bare number is seconds */
    DLAB_PARAM_STRING    /* char[DLAB_PARAM_STR] */
} dlab_param_type;

typedef struct {
    const char *key; /* dotted: "kv.store" */
    dlab_param_type type;
    size_t offset;                       /* of the field in its struct */
    const char *def;                     /* default, as one would write it */
    double min, max;                     /* numbers only; both inclusive; min > max: no bounds */
    const char *const *(*choices)(void); /* NULL-terminated, static */
    const char *help;                    /* one sentence, no full stop needed */
} dlab_param;

/* Parses text into obj's field. Errors (DLAB_EUSAGE) name the key, the text, what was expected and the nearest choice. */
dlab_status dlab_param_set(const dlab_param *p, void *obj, const char *text, dlab_error *err);
/* Writes every default into obj. Defaults in tables are right by construction (a test sets them all). */
void dlab_param_defaults(const dlab_param *table, size_t n, void *obj);
/* The effective value as text that dlab_param_set would take back. */
void dlab_param_print(const dlab_param *p, const void *obj, char *buf, size_t size);
/* NULL if no row has this key. */
const dlab_param *dlab_param_find(const dlab_param *table, size_t n, const char *key);
/* "int", "choice", …; for docs and messages. */
const char *dlab_param_type_name(dlab_param_type t);

/* The word of a NULL-terminated list nearest to `word` (Damerau–Levenshtein, at most max(2, len/3) edits), or NULL. */
const char *dlab_nearest(const char *word, const char *const *words);

#endif

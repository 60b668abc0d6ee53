/* What the files of harness/spec share: the words of the language and the state of one parse. */
#ifndef DLAB_HARNESS_SPEC_SPEC_PARTS_H
#define DLAB_HARNESS_SPEC_SPEC_PARTS_H

#include "harness/spec/spec.h"

#define DLAB_SPEC_POINTS_MAX  10000
#define DLAB_SPEC_LADDER_MAX  64
#define DLAB_SPEC_ENTRIES_MAX 1000 /* of include, and of exclude */

/* ---- words ---------------------------------------------------------------------------------------------------------- */

/* A key that is not a dlab_param: of the file's top level ("") or of a section. The parser accepts exactly these rows. */
typedef struct {
    const char *section, *key, *type, *def, *help;
} dlab_spec_word;
const dlab_spec_word *dlab_spec_words(size_t *n);

/* Words of the design that this version has not built. */
typedef struct {
    const char *key;      /* "kv.store" */
    const char *words[8]; /* none: the key itself is not built */
} dlab_spec_reserved;
const dlab_spec_reserved *dlab_spec_reserved_words(size_t *n);

typedef enum {
    DLAB_SPEC_PLAN,
    DLAB_SPEC_WORKLOAD,
    DLAB_SPEC_MODEL,
    DLAB_SPEC_MEASURE,
    DLAB_SPEC_LADDER
} dlab_spec_table;

/* The table a key belongs to, or NULL. "ladder" has no row. */
const dlab_param *dlab_spec_find(const char *key, dlab_spec_table *table);
/* The struct that a table's offsets are of. Not for DLAB_SPEC_MEASURE and DLAB_SPEC_LADDER. */
void *dlab_spec_object(dlab_point *p, dlab_spec_table table);

/* ---- one parse ------------------------------------------------------------------------------------------------------ */

/* Where a value was written: a node of the file, or a --set string. */
typedef struct {
    const dlab_yaml_node *node;
    const char *set;
} dlab_spec_place;

/* A key that was given, with its values as dlab_param_print writes them. */
typedef struct {
    dlab_spec_table table;
    const dlab_param *param; /* NULL: the ladder */
    dlab_spec_place at;      /* of the value */
    bool swept;              /* given as a list */
    char **values;
    size_t n;
    size_t group; /* keys of one zip group have the same number; 0: none */
    size_t dim;   /* swept: which loop of the product moves it */
} dlab_spec_key;

typedef struct {
    dlab_spec_table table;
    const dlab_param *param;    /* NULL: the ladder */
    const dlab_yaml_node *node; /* of the key */
    char *text;
} dlab_spec_assign;

/* One map of key: value pairs: an include, an exclude, a ladder's step. */
typedef struct {
    const dlab_yaml_node *node;
    dlab_spec_assign *items;
    size_t n;
} dlab_spec_change;

typedef struct {
    dlab_spec_change *items;
    size_t n;
} dlab_spec_changes;

typedef struct {
    dlab_spec *spec;
    size_t n_sets;
    dlab_spec_key *keys; /* in the file's order, then those that only --set names */
    size_t n_keys;
    dlab_spec_changes include, exclude, ladder;
    bool zip_all;              /* matrix: zip */
    const dlab_yaml_node *zip; /* groups of keys that move together, or NULL */
} dlab_spec_build;

/* One line: "NAME:LINE:COL: …" or "--set KEY=VALUE: …" (then the code is DLAB_EUSAGE where DLAB_EFORMAT was asked). */
dlab_status dlab_spec_fail(const dlab_spec_build *b, dlab_status code, dlab_spec_place at, dlab_error *err,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* That `map` is one, and every key of it a word of `section`; the error names the nearest. */
dlab_status dlab_spec_check_words(const dlab_spec_build *b, const char *section, const dlab_yaml_node *map,
                                  dlab_error *err);
/* A node of one kind, or an error that says what `what` should be. A scalar must have something in it. */
dlab_status dlab_spec_expect(const dlab_spec_build *b, const char *what, const dlab_yaml_node *node,
                             dlab_yaml_kind kind, dlab_error *err);

/* ---- keys.c: `plan:`, `workload:`, `measure:`, `model:`, --set ------------------------------------------------------- */

#define DLAB_SPEC_KEY_BYTES  200 /* of a dotted key; longer ones are no key of ours */
#define DLAB_SPEC_BIT(table) (1u << (table))
#define DLAB_SPEC_AXIS_TABLES                                                                                          \
    (DLAB_SPEC_BIT(DLAB_SPEC_PLAN) | DLAB_SPEC_BIT(DLAB_SPEC_WORKLOAD) | DLAB_SPEC_BIT(DLAB_SPEC_MODEL))

typedef struct {
    dlab_spec_table table;
    const dlab_param *param;            /* NULL: the ladder, or reserved */
    const dlab_spec_reserved *reserved; /* known, but there is nothing to choose yet */
} dlab_spec_found;

typedef struct {
    const char *section; /* "plan", …, or NULL: any axis */
    unsigned tables;     /* bits: where the key may be found */
    bool ladder;         /* "ladder" is a key too */
} dlab_spec_scope;

/* bare: the key as written, without its section's name. */
dlab_status dlab_spec_lookup(const dlab_spec_build *b, const dlab_spec_scope *scope, const char *key, const char *bare,
                             dlab_spec_place at, dlab_spec_found *out, dlab_error *err);
/* "prefix.key" of a nested map; false if it is too long to be a key of ours. */
bool dlab_spec_join_key(const char *prefix, const char *key, char buf[DLAB_SPEC_KEY_BYTES]);
dlab_status dlab_spec_key_too_long(const dlab_spec_build *b, const dlab_yaml_node *key, dlab_error *err);
dlab_status dlab_spec_add_section(dlab_spec_build *b, const char *section, const dlab_yaml_node *node, dlab_error *err);
dlab_status dlab_spec_add_model(dlab_spec_build *b, const dlab_yaml_node *key, const dlab_yaml_node *node,
                                dlab_error *err);
dlab_status dlab_spec_add_set(dlab_spec_build *b, const char *set, dlab_error *err);
/* NULL if the key was not given. param NULL: the ladder. */
dlab_spec_key *dlab_spec_given(const dlab_spec_build *b, const dlab_param *param);
dlab_status dlab_spec_push_key(dlab_spec_build *b, const dlab_spec_key *key, dlab_error *err);
void dlab_spec_key_free(dlab_spec_key *k);

/* ---- values.c -------------------------------------------------------------------------------------------------------- */

/* The text that dlab_param_print gives for a value, so that 64 and 064 are one value. *out is malloc'd. */
dlab_status dlab_spec_value(const dlab_spec_build *b, const dlab_spec_found *f, const char *text, dlab_spec_place at,
                            char **out, dlab_error *err);
/* That the key itself is not built. */
dlab_status dlab_spec_fail_reserved(const dlab_spec_build *b, const dlab_spec_reserved *r, dlab_spec_place at,
                                    dlab_error *err);
/* A value or a list of values; set: the --set string they come from, or NULL. out must be freed on failure too. */
dlab_status dlab_spec_values(const dlab_spec_build *b, const dlab_spec_found *f, const char *name,
                             const dlab_yaml_node *node, const char *set, dlab_spec_key *out, dlab_error *err);

/* ---- changes.c: maps of axes ------------------------------------------------------------------------------------------ */

/* Is this the name of an axis? *param is NULL for "ladder", which only counts where `ladder` is true. */
dlab_status dlab_spec_axis(const dlab_spec_build *b, const dlab_yaml_node *key, bool ladder, dlab_spec_found *out,
                           dlab_error *err);
/* The pairs of a map of axes, dotted or nested, one value each, appended to out. */
dlab_status dlab_spec_read_change(const dlab_spec_build *b, const dlab_yaml_node *map, bool ladder,
                                  dlab_spec_change *out, dlab_error *err);
/* `include:` or `exclude:` */
dlab_status dlab_spec_add_changes(dlab_spec_build *b, const char *section, const dlab_yaml_node *node, dlab_error *err);
/* Its steps, and the swept pseudo-axis "ladder". */
dlab_status dlab_spec_add_ladder(dlab_spec_build *b, const dlab_yaml_node *node, dlab_error *err);
void dlab_spec_change_free(dlab_spec_change *c);
void dlab_spec_build_free(dlab_spec_build *b);

/* ---- points.c --------------------------------------------------------------------------------------------------------- */

dlab_status dlab_spec_make_points(dlab_spec_build *b, const char *default_model, dlab_error *err);

#endif

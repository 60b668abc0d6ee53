#include "base/yaml.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"

#define MAX_DEPTH 32
#define MAX_NODES 100000
#define MAX_BYTES ((size_t)4 << 20)
/* of an element of the node lists */
#define POINTER_BYTES sizeof(void *)
#define CHUNK_BYTES   ((size_t)16 << 10)

/* Nodes live as long as the document: one arena, freed at once. */
typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    max_align_t data[];
} chunk;

struct dlab_yaml {
    char *name, *text;
    size_t n_bytes;
    chunk *chunks;
    size_t n_nodes;
    const dlab_yaml_node *root;
};

typedef struct {
    dlab_yaml *y;
    yaml_parser_t parser;
    dlab_error *err;
    int depth;
} builder;

typedef struct {
    const dlab_yaml_node **v;
    size_t n, cap;
} node_list;

static void *arena_alloc(dlab_yaml *y, size_t bytes)
{
    const size_t align = sizeof(max_align_t), need = (bytes + align - 1) / align * align;
    if (!y->chunks || y->chunks->size - y->chunks->used < need) {
        const size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
        chunk *c = malloc(sizeof *c + size);
        if (!c) return NULL;
        *c = (chunk){.next = y->chunks, .size = size};
        y->chunks = c;
    }
    void *p = (char *)y->chunks->data + y->chunks->used;
    y->chunks->used += need;
    return p;
}

static dlab_status no_memory(const builder *b)
{
    (void)DLAB_FAIL(b->err, DLAB_EOOM, "%s: no memory for the document", b->y->name);
    return DLAB_EOOM;
}

static dlab_status fail_at(const builder *b, yaml_mark_t at, const char *what)
{
    (void)DLAB_FAIL(b->err, DLAB_EFORMAT, "%s:%zu:%zu: %s", b->y->name, at.line + 1, at.column + 1, what);
    return DLAB_EFORMAT;
}

/* The reader (bad UTF-8, control characters) knows only a byte offset. */
static yaml_mark_t mark_of_offset(const dlab_yaml *y, size_t offset)
{
    yaml_mark_t at = {0};
    for (size_t i = 0; i < offset && i < y->n_bytes; i++) {
        const unsigned char c = (unsigned char)y->text[i];
        if (c == '\n') {
            at.line++;
            at.column = 0;
        } else if ((c & 0xC0) != 0x80) {
            at.column++;
        }
    }
    return at;
}

static dlab_status parser_failed(const builder *b)
{
    const yaml_parser_t *p = &b->parser;
    if (p->error == YAML_MEMORY_ERROR) return no_memory(b);
    const yaml_mark_t at = p->error == YAML_READER_ERROR ? mark_of_offset(b->y, p->problem_offset) : p->problem_mark;
    char what[256];
    snprintf(what, sizeof what, "not valid YAML: %s%s%s", p->problem ? p->problem : "unknown problem",
             p->context ? " " : "", p->context ? p->context : "");
    return fail_at(b, at, what);
}

static dlab_status next_event(builder *b, yaml_event_t *e)
{
    return yaml_parser_parse(&b->parser, e) ? DLAB_OK : parser_failed(b);
}

static dlab_status list_push(const builder *b, node_list *l, const dlab_yaml_node *node)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 8;
        const dlab_yaml_node **v = realloc(l->v, cap * POINTER_BYTES);
        if (!v) return no_memory(b);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = node;
    return DLAB_OK;
}

static dlab_status list_keep(const builder *b, const node_list *l, const dlab_yaml_node *const **out)
{
    const dlab_yaml_node **kept = arena_alloc(b->y, (l->n ? l->n : 1) * POINTER_BYTES);
    if (!kept) return no_memory(b);
    if (l->n) memcpy(kept, l->v, l->n * POINTER_BYTES);
    *out = kept;
    return DLAB_OK;
}

static dlab_status refuse_extras(const builder *b, const yaml_event_t *e, const yaml_char_t *anchor,
                                 const yaml_char_t *tag)
{
    char what[160];
    if (anchor)
        snprintf(what, sizeof what, "anchor '&%.64s' is not taken, expected the value written out",
                 (const char *)anchor);
    else if (tag)
        snprintf(what, sizeof what, "tag '%.64s' is not taken, expected the plain value", (const char *)tag);
    else
        return DLAB_OK;
    return fail_at(b, e->start_mark, what);
}

static dlab_status new_node(builder *b, const yaml_event_t *e, dlab_yaml_kind kind, dlab_yaml_node **out)
{
    if (++b->y->n_nodes > MAX_NODES) return fail_at(b, e->start_mark, "more than 100000 values, expected fewer");
    dlab_yaml_node *node = arena_alloc(b->y, sizeof *node);
    if (!node) return no_memory(b);
    *node =
        (dlab_yaml_node){.kind = kind, .line = (int)e->start_mark.line + 1, .column = (int)e->start_mark.column + 1};
    *out = node;
    return DLAB_OK;
}

static dlab_status build_node(builder *b, const yaml_event_t *e, const dlab_yaml_node **out);

static dlab_status build_scalar(builder *b, const yaml_event_t *e, const dlab_yaml_node **out)
{
    DLAB_TRY(refuse_extras(b, e, e->data.scalar.anchor, e->data.scalar.tag));
    dlab_yaml_node *node = NULL;
    DLAB_TRY(new_node(b, e, DLAB_YAML_SCALAR, &node));
    const size_t n = e->data.scalar.length;
    if (memchr(e->data.scalar.value, '\0', n)) return fail_at(b, e->start_mark, "a NUL character, expected text");
    char *text = arena_alloc(b->y, n + 1);
    if (!text) return no_memory(b);
    memcpy(text, e->data.scalar.value, n);
    text[n] = '\0';
    node->text = text;
    node->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    *out = node;
    return DLAB_OK;
}

static dlab_status build_seq(builder *b, const yaml_event_t *e, const dlab_yaml_node **out)
{
    dlab_yaml_node *node = NULL;
    node_list items = {0};
    dlab_status s = refuse_extras(b, e, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    if (s == DLAB_OK) s = new_node(b, e, DLAB_YAML_SEQ, &node);
    while (s == DLAB_OK) {
        yaml_event_t item;
        s = next_event(b, &item);
        if (s != DLAB_OK) break;
        const bool end = item.type == YAML_SEQUENCE_END_EVENT;
        const dlab_yaml_node *child = NULL;
        if (!end) s = build_node(b, &item, &child);
        if (child) s = list_push(b, &items, child);
        yaml_event_delete(&item);
        if (end) break;
    }
    if (s == DLAB_OK) s = list_keep(b, &items, &node->items);
    if (s == DLAB_OK) {
        node->n = items.n;
        *out = node;
    }
    free(items.v);
    return s;
}

static dlab_status check_key(const builder *b, const yaml_event_t *e)
{
    if (e->type == YAML_ALIAS_EVENT) return DLAB_OK; /* refused by name further on */
    if (e->type != YAML_SCALAR_EVENT) return fail_at(b, e->start_mark, "a list or map as a key, expected a word");
    if (e->data.scalar.length == 0) return fail_at(b, e->start_mark, "an empty key, expected a word");
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && strcmp((const char *)e->data.scalar.value, "<<") == 0)
        return fail_at(b, e->start_mark, "merge key '<<' is not taken, expected the keys written out");
    return DLAB_OK;
}

static bool comes_before(const dlab_yaml_node *a, const dlab_yaml_node *b)
{
    return a->line < b->line || (a->line == b->line && a->column < b->column);
}

static int by_text_then_place(const void *pa, const void *pb)
{
    const dlab_yaml_node *a = *(const dlab_yaml_node *const *)pa, *b = *(const dlab_yaml_node *const *)pb;
    const int c = strcmp(a->text, b->text);
    if (c != 0) return c;
    return comes_before(a, b) ? -1 : comes_before(b, a);
}

/* By sorting: a hostile map has 50 000 keys. Of several duplicates the first in the file is named. */
static dlab_status check_duplicates(const builder *b, const node_list *keys)
{
    if (keys->n < 2) return DLAB_OK;
    const dlab_yaml_node **sorted = malloc(keys->n * POINTER_BYTES);
    if (!sorted) return no_memory(b);
    memcpy(sorted, keys->v, keys->n * POINTER_BYTES);
    qsort(sorted, keys->n, POINTER_BYTES, by_text_then_place);
    const dlab_yaml_node *again = NULL, *first = NULL;
    for (size_t i = 1; i < keys->n; i++) {
        if (strcmp(sorted[i - 1]->text, sorted[i]->text) != 0) continue;
        if (again && comes_before(again, sorted[i])) continue;
        again = sorted[i];
        first = sorted[i - 1];
    }
    free(sorted);
    if (!again) return DLAB_OK;
    return dlab_yaml_fail(b->y, again, b->err, "key '%s' is written twice, first in line %d; expected it once",
                          again->text, first->line);
}

static dlab_status build_pair(builder *b, const yaml_event_t *key_event, node_list *keys, node_list *values)
{
    const dlab_yaml_node *key = NULL, *value = NULL;
    DLAB_TRY(check_key(b, key_event));
    DLAB_TRY(build_node(b, key_event, &key));
    DLAB_TRY(list_push(b, keys, key));
    yaml_event_t e;
    DLAB_TRY(next_event(b, &e));
    dlab_status s = build_node(b, &e, &value);
    if (s == DLAB_OK) s = list_push(b, values, value);
    yaml_event_delete(&e);
    return s;
}

static dlab_status build_map(builder *b, const yaml_event_t *e, const dlab_yaml_node **out)
{
    dlab_yaml_node *node = NULL;
    node_list keys = {0}, values = {0};
    dlab_status s = refuse_extras(b, e, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    if (s == DLAB_OK) s = new_node(b, e, DLAB_YAML_MAP, &node);
    while (s == DLAB_OK) {
        yaml_event_t key;
        s = next_event(b, &key);
        if (s != DLAB_OK) break;
        const bool end = key.type == YAML_MAPPING_END_EVENT;
        if (!end) s = build_pair(b, &key, &keys, &values);
        yaml_event_delete(&key);
        if (end) break;
    }
    if (s == DLAB_OK) s = check_duplicates(b, &keys);
    if (s == DLAB_OK) s = list_keep(b, &keys, &node->keys);
    if (s == DLAB_OK) s = list_keep(b, &values, &node->items);
    if (s == DLAB_OK) {
        node->n = keys.n;
        *out = node;
    }
    free(keys.v);
    free(values.v);
    return s;
}

static dlab_status build_node(builder *b, const yaml_event_t *e, const dlab_yaml_node **out)
{
    char what[128];
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return build_scalar(b, e, out);
    case YAML_ALIAS_EVENT:
        snprintf(what, sizeof what, "alias '*%.64s' is not taken, expected the value written out",
                 (const char *)e->data.alias.anchor);
        return fail_at(b, e->start_mark, what);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        break;
    default:
        return fail_at(b, e->start_mark, "not valid YAML: expected a value");
    }
    if (b->depth == MAX_DEPTH) return fail_at(b, e->start_mark, "nested deeper than 32 levels, expected fewer");
    b->depth++;
    const dlab_status s = e->type == YAML_SEQUENCE_START_EVENT ? build_seq(b, e, out) : build_map(b, e, out);
    b->depth--;
    return s;
}

/* stream start, document start, one node, document end, stream end */
static dlab_status build_document(builder *b)
{
    yaml_event_t e;
    DLAB_TRY(next_event(b, &e)); /* stream start */
    yaml_event_delete(&e);
    DLAB_TRY(next_event(b, &e));
    const bool empty = e.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&e);
    if (empty) return fail_at(b, (yaml_mark_t){0}, "the document is empty, expected keys and values");
    DLAB_TRY(next_event(b, &e));
    const dlab_status s = build_node(b, &e, &b->y->root);
    yaml_event_delete(&e);
    DLAB_TRY(s);
    DLAB_TRY(next_event(b, &e)); /* document end */
    yaml_event_delete(&e);
    DLAB_TRY(next_event(b, &e));
    const bool more = e.type != YAML_STREAM_END_EVENT;
    const yaml_mark_t at = e.start_mark;
    yaml_event_delete(&e);
    return more ? fail_at(b, at, "a second document begins here, expected one") : DLAB_OK;
}

/* Takes text over, also when it fails. */
static dlab_status parse_owned(const char *name, char *text, size_t n_bytes, dlab_yaml **out, dlab_error *err)
{
    *out = NULL;
    dlab_yaml *y = calloc(1, sizeof *y);
    char *name_copy = strdup(name);
    if (!y || !name_copy || !text) {
        free(y);
        free(name_copy);
        free(text);
        return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for the document", name);
    }
    y->name = name_copy;
    y->text = text;
    y->n_bytes = n_bytes;
    builder b = {.y = y, .err = err};
    dlab_status s;
    if (n_bytes > MAX_BYTES) {
        s = DLAB_FAIL(err, DLAB_EFORMAT, "%s: %zu bytes, expected at most %zu", name, n_bytes, MAX_BYTES);
    } else if (!yaml_parser_initialize(&b.parser)) {
        s = no_memory(&b);
    } else {
        yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, n_bytes);
        s = build_document(&b);
        yaml_parser_delete(&b.parser);
    }
    if (s == DLAB_OK)
        *out = y;
    else
        dlab_yaml_destroy(y);
    return s;
}

dlab_status dlab_yaml_parse(const char *name, const char *text, size_t n_bytes, dlab_yaml **out, dlab_error *err)
{
    char *copy = malloc(n_bytes + 1);
    if (copy) {
        if (n_bytes) memcpy(copy, text, n_bytes);
        copy[n_bytes] = '\0';
    }
    return parse_owned(name, copy, n_bytes, out, err);
}

dlab_status dlab_yaml_read(const char *path, dlab_yaml **out, dlab_error *err)
{
    char *text;
    size_t n;
    *out = NULL;
    DLAB_TRY(dlab_file_read(path, MAX_BYTES, &text, &n, err));
    return parse_owned(path, text, n, out, err);
}

void dlab_yaml_destroy(dlab_yaml *y)
{
    if (!y) return;
    for (chunk *c = y->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(y->text);
    free(y->name);
    free(y);
}

const dlab_yaml_node *dlab_yaml_root(const dlab_yaml *y) { return y->root; }

const char *dlab_yaml_text(const dlab_yaml *y, size_t *n_bytes)
{
    if (n_bytes) *n_bytes = y->n_bytes;
    return y->text;
}

const char *dlab_yaml_name(const dlab_yaml *y) { return y->name; }

const dlab_yaml_node *dlab_yaml_get(const dlab_yaml_node *map, const char *key)
{
    if (!map || map->kind != DLAB_YAML_MAP) return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i]->text, key) == 0) return map->items[i];
    return NULL;
}

dlab_status dlab_yaml_fail(const dlab_yaml *y, const dlab_yaml_node *at, dlab_error *err, const char *fmt, ...)
{
    char what[DLAB_ERROR_MSG];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s:%d:%d: %s", y->name, at->line, at->column, what);
}

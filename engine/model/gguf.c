#include "engine/model/gguf_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GGUF_MAX_DEPTH     4  /* arrays in arrays */
#define GGUF_MIN_KEY_BYTES 13 /* a key of no letters and a one-byte value */

typedef enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
} gguf_type;

static const struct {
    const char *text;
    uint8_t bytes; /* 0: varies */
} value_types[GGUF_N_TYPES] = {
    [GGUF_U8] = {"an integer", 1},  [GGUF_I8] = {"an integer", 1},  [GGUF_U16] = {"an integer", 2},
    [GGUF_I16] = {"an integer", 2}, [GGUF_U32] = {"an integer", 4}, [GGUF_I32] = {"an integer", 4},
    [GGUF_F32] = {"a number", 4},   [GGUF_BOOL] = {"a bool", 1},    [GGUF_STRING] = {"a string", 0},
    [GGUF_ARRAY] = {"an array", 0}, [GGUF_U64] = {"an integer", 8}, [GGUF_I64] = {"an integer", 8},
    [GGUF_F64] = {"a number", 8},
};

/* ---- reading -------------------------------------------------------------------------------------------------------- */

dlab_status dlab_gguf_read_need(const dlab_gguf_reader *r, uint64_t bytes, const char *what, dlab_error *err)
{
    if (bytes <= r->n - r->at) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the file is cut short: %s needs %llu bytes, %zu are left",
                     r->label, r->at, what, (unsigned long long)bytes, r->n - r->at);
}

uint32_t dlab_gguf_load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t dlab_gguf_load_u64(const uint8_t *p)
{
    return (uint64_t)dlab_gguf_load_u32(p) | (uint64_t)dlab_gguf_load_u32(p + 4) << 32;
}

dlab_status dlab_gguf_read_u32(dlab_gguf_reader *r, const char *what, uint32_t *out, dlab_error *err)
{
    DLAB_TRY(dlab_gguf_read_need(r, 4, what, err));
    *out = dlab_gguf_load_u32(r->data + r->at);
    r->at += 4;
    return DLAB_OK;
}

dlab_status dlab_gguf_read_u64(dlab_gguf_reader *r, const char *what, uint64_t *out, dlab_error *err)
{
    DLAB_TRY(dlab_gguf_read_need(r, 8, what, err));
    *out = dlab_gguf_load_u64(r->data + r->at);
    r->at += 8;
    return DLAB_OK;
}

dlab_status dlab_gguf_read_str(dlab_gguf_reader *r, const char *what, dlab_gguf_str *out, dlab_error *err)
{
    uint64_t n = 0;
    DLAB_TRY(dlab_gguf_read_u64(r, what, &n, err));
    DLAB_TRY(dlab_gguf_read_need(r, n, what, err));
    *out = (dlab_gguf_str){(const char *)r->data + r->at, (size_t)n};
    r->at += (size_t)n;
    return DLAB_OK;
}

static dlab_status skip_value(dlab_gguf_reader *r, uint32_t type, int depth, dlab_error *err);

static dlab_status skip_array(dlab_gguf_reader *r, uint32_t elem_type, uint64_t count, int depth, dlab_error *err)
{
    if (elem_type < GGUF_N_TYPES && value_types[elem_type].bytes != 0) {
        uint64_t bytes = 0;
        if (__builtin_mul_overflow(count, (uint64_t)value_types[elem_type].bytes, &bytes)) bytes = UINT64_MAX;
        DLAB_TRY(dlab_gguf_read_need(r, bytes, "an array", err));
        r->at += (size_t)bytes;
        return DLAB_OK;
    }
    /* No element takes less than 8 bytes, so a wild count is refused before the loop. */
    if (count > (r->n - r->at) / 8)
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: offset %zu: an array of %llu elements cannot fit in the %zu bytes left", r->label, r->at,
                         (unsigned long long)count, r->n - r->at);
    for (uint64_t i = 0; i < count; i++) DLAB_TRY(skip_value(r, elem_type, depth, err));
    return DLAB_OK;
}

static dlab_status read_array_head(dlab_gguf_reader *r, uint32_t *elem_type, uint64_t *count, dlab_error *err)
{
    DLAB_TRY(dlab_gguf_read_u32(r, "an array's type", elem_type, err));
    DLAB_TRY(dlab_gguf_read_u64(r, "an array's length", count, err));
    if (*elem_type < GGUF_N_TYPES) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: an array has elements of type %u, expected 0 to %d", r->label,
                     r->at - 12, *elem_type, GGUF_N_TYPES - 1);
}

static dlab_status skip_value(dlab_gguf_reader *r, uint32_t type, int depth, dlab_error *err)
{
    if (type == GGUF_STRING) {
        dlab_gguf_str ignored;
        return dlab_gguf_read_str(r, "a string", &ignored, err);
    }
    if (type == GGUF_ARRAY) {
        uint32_t elem_type = 0;
        uint64_t count = 0;
        if (depth >= GGUF_MAX_DEPTH)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: arrays are nested more than %d deep", r->label, r->at,
                             GGUF_MAX_DEPTH);
        DLAB_TRY(read_array_head(r, &elem_type, &count, err));
        return skip_array(r, elem_type, count, depth + 1, err);
    }
    DLAB_TRY(dlab_gguf_read_need(r, value_types[type].bytes, "a value", err));
    r->at += value_types[type].bytes;
    return DLAB_OK;
}

bool dlab_gguf_is_plain(dlab_gguf_str s)
{
    if (s.n == 0) return false;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.text[i] < 0x20 || s.text[i] == 0x7f) return false;
    return true;
}

static dlab_status read_entry(dlab_gguf_reader *r, gguf_entry *e, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    size_t start = r->at;
    DLAB_TRY(dlab_gguf_read_str(r, "a key", &e->key, err));
    if (!dlab_gguf_is_plain(e->key))
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: a key is empty or holds control bytes: '%s'", r->label,
                         start, dlab_gguf_show(shown, e->key));
    DLAB_TRY(dlab_gguf_read_u32(r, "a key's type", &e->type, err));
    if (e->type >= GGUF_N_TYPES)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: key '%s' has type %u, expected 0 to %d", r->label,
                         r->at - 4, dlab_gguf_show(shown, e->key), e->type, GGUF_N_TYPES - 1);
    if (e->type != GGUF_ARRAY) {
        e->value = r->data + r->at;
        return skip_value(r, e->type, 0, err);
    }
    DLAB_TRY(read_array_head(r, &e->elem_type, &e->count, err));
    e->value = r->data + r->at;
    return skip_array(r, e->elem_type, e->count, 1, err);
}

static int compare_str(dlab_gguf_str a, dlab_gguf_str b)
{
    int c = memcmp(a.text, b.text, a.n < b.n ? a.n : b.n);
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_entries(const void *a, const void *b)
{
    return compare_str(((const gguf_entry *)a)->key, ((const gguf_entry *)b)->key);
}

static dlab_status read_entries(dlab_gguf *g, dlab_gguf_reader *r, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    for (size_t i = 0; i < g->n_entries; i++) DLAB_TRY(read_entry(r, &g->entries[i], err));
    if (g->n_entries > 1) qsort(g->entries, g->n_entries, sizeof *g->entries, compare_entries);
    for (size_t i = 1; i < g->n_entries; i++)
        if (compare_entries(&g->entries[i - 1], &g->entries[i]) == 0)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: key '%s' is there twice", g->label,
                             dlab_gguf_show(shown, g->entries[i].key));
    return DLAB_OK;
}

static dlab_status read_head(dlab_gguf_reader *r, uint64_t *n_tensors, uint64_t *n_keys, dlab_error *err)
{
    uint32_t version = 0;
    if (r->n < 4 || memcmp(r->data, "GGUF", 4) != 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset 0: not a GGUF file (it does not begin with \"GGUF\")",
                         r->label);
    r->at = 4;
    DLAB_TRY(dlab_gguf_read_u32(r, "the version", &version, err));
    if (version == 0x02000000u || version == 0x03000000u)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: offset 4: a big-endian GGUF file: not built; little-endian is",
                         r->label);
    if (version != 2 && version != 3)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: offset 4: GGUF version %u: not built; 2 and 3 are", r->label,
                         version);
    DLAB_TRY(dlab_gguf_read_u64(r, "the tensor count", n_tensors, err));
    DLAB_TRY(dlab_gguf_read_u64(r, "the key count", n_keys, err));
    if (*n_tensors > r->n / 8)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset 8: %llu tensors cannot fit in a file of %zu bytes", r->label,
                         (unsigned long long)*n_tensors, r->n);
    if (*n_keys > r->n / GGUF_MIN_KEY_BYTES)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset 16: %llu keys cannot fit in a file of %zu bytes", r->label,
                         (unsigned long long)*n_keys, r->n);
    return DLAB_OK;
}

static void set_label(dlab_gguf *g, const char *name)
{
    size_t n = strlen(name), cut = n < GGUF_MAX_LABEL ? 0 : n - (GGUF_MAX_LABEL - 4);
    if (cut > 0) memcpy(g->label, "...", 3);
    while (cut > 0 && ((unsigned char)name[cut] & 0xc0) == 0x80) cut++; /* not inside a character */
    memcpy(g->label + (cut > 0 ? 3 : 0), name + cut, n - cut);
}

dlab_status dlab_gguf_parse(const char *name, const void *data, size_t n, dlab_gguf **out, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    uint64_t n_tensors = 0, n_keys = 0;
    dlab_gguf_reader r = {0};
    *out = NULL;
    dlab_gguf *g = calloc(1, sizeof *g);
    if (!g) return DLAB_FAIL(err, DLAB_EOOM, "no memory to read %s", name);
    set_label(g, name);
    g->data = data;
    g->n = n;
    r = (dlab_gguf_reader){g->label, data, n, 0};
    DLAB_TRY_DONE(st, read_head(&r, &n_tensors, &n_keys, err));
    g->n_entries = (size_t)n_keys;
    g->n_tensors = (size_t)n_tensors;
    g->entries = calloc(g->n_entries + 1, sizeof *g->entries);
    if (!g->entries) {
        st = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for %zu keys", g->label, g->n_entries);
        goto done;
    }
    DLAB_TRY_DONE(st, read_entries(g, &r, err));
    g->tensors_at = r.at;
    *out = g;
    g = NULL;
done:
    dlab_gguf_destroy(g);
    return st;
}

void dlab_gguf_destroy(dlab_gguf *g)
{
    if (!g) return;
    free(g->entries);
    free(g);
}

const char *dlab_gguf_label(const dlab_gguf *g) { return g->label; }

/* ---- metadata ------------------------------------------------------------------------------------------------------- */

static const gguf_entry *find(const dlab_gguf *g, const char *key)
{
    gguf_entry want = {.key = {key, strlen(key)}};
    if (g->n_entries == 0) return NULL;
    return bsearch(&want, g->entries, g->n_entries, sizeof *g->entries, compare_entries);
}

static dlab_status need(const dlab_gguf *g, const char *key, const gguf_entry **out, dlab_error *err)
{
    *out = find(g, key);
    return *out ? DLAB_OK : DLAB_FAIL(err, DLAB_EFORMAT, "%s: the key '%s' is missing", g->label, key);
}

static dlab_status wrong_type(const dlab_gguf *g, const char *key, const gguf_entry *e, const char *expected,
                              dlab_error *err)
{
    size_t at = (size_t)(e->value - g->data);
    if (e->type != GGUF_ARRAY)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the key '%s' is %s, expected %s", g->label, at, key,
                         value_types[e->type].text, expected);
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the key '%s' is an array (each element %s), expected %s",
                     g->label, at, key, value_types[e->elem_type].text, expected);
}

bool dlab_gguf_has(const dlab_gguf *g, const char *key) { return find(g, key) != NULL; }

bool dlab_gguf_is_array(const dlab_gguf *g, const char *key)
{
    const gguf_entry *e = find(g, key);
    return e && e->type == GGUF_ARRAY;
}

/* False when the type is no integer or a u64 is past INT64_MAX. */
static bool load_int(uint32_t type, const uint8_t *p, int64_t *out)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL:
        *out = p[0];
        return true;
    case GGUF_I8:
        *out = p[0] < 128 ? p[0] : p[0] - 256;
        return true;
    case GGUF_U16:
        *out = (uint16_t)(p[0] | p[1] << 8);
        return true;
    case GGUF_I16:
        *out = (int16_t)(uint16_t)(p[0] | p[1] << 8);
        return true;
    case GGUF_U32:
        *out = dlab_gguf_load_u32(p);
        return true;
    case GGUF_I32:
        *out = (int32_t)dlab_gguf_load_u32(p);
        return true;
    case GGUF_U64:
    case GGUF_I64:
        *out = (int64_t)dlab_gguf_load_u64(p);
        return type == GGUF_I64 || *out >= 0;
    default:
        return false;
    }
}

static bool is_int(uint32_t type) { return value_types[type].text == value_types[GGUF_U8].text; }

dlab_status dlab_gguf_get_int(const dlab_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                              dlab_error *err)
{
    const gguf_entry *e = NULL;
    int64_t v = 0;
    DLAB_TRY(need(g, key, &e, err));
    if (!is_int(e->type)) return wrong_type(g, key, e, "an integer", err);
    if (!load_int(e->type, e->value, &v))
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the key '%s' is past 2^63, expected %lld to %lld",
                         g->label, (size_t)(e->value - g->data), key, (long long)min, (long long)max);
    if (v < min || v > max)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the key '%s' is %lld, expected %lld to %lld", g->label,
                         (size_t)(e->value - g->data), key, (long long)v, (long long)min, (long long)max);
    *out = v;
    return DLAB_OK;
}

dlab_status dlab_gguf_get_float(const dlab_gguf *g, const char *key, double *out, dlab_error *err)
{
    const gguf_entry *e = NULL;
    double v = 0;
    DLAB_TRY(need(g, key, &e, err));
    if (e->type == GGUF_F32) {
        float f;
        memcpy(&f, e->value, sizeof f);
        v = (double)f;
    } else if (e->type == GGUF_F64)
        memcpy(&v, e->value, sizeof v);
    else
        return wrong_type(g, key, e, "a number", err);
    if (!isfinite(v))
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the key '%s' is not finite", g->label,
                         (size_t)(e->value - g->data), key);
    *out = v;
    return DLAB_OK;
}

dlab_status dlab_gguf_get_bool(const dlab_gguf *g, const char *key, bool *out, dlab_error *err)
{
    const gguf_entry *e = NULL;
    DLAB_TRY(need(g, key, &e, err));
    if (e->type != GGUF_BOOL) return wrong_type(g, key, e, "a bool", err);
    if (e->value[0] > 1)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: the key '%s' is %u, expected 0 or 1", g->label,
                         (size_t)(e->value - g->data), key, e->value[0]);
    *out = e->value[0] != 0;
    return DLAB_OK;
}

dlab_status dlab_gguf_get_str(const dlab_gguf *g, const char *key, dlab_gguf_str *out, dlab_error *err)
{
    const gguf_entry *e = NULL;
    DLAB_TRY(need(g, key, &e, err));
    if (e->type != GGUF_STRING) return wrong_type(g, key, e, "a string", err);
    *out = (dlab_gguf_str){(const char *)e->value + 8, (size_t)dlab_gguf_load_u64(e->value)};
    return DLAB_OK;
}

dlab_status dlab_gguf_get_strings(const dlab_gguf *g, const char *key, dlab_gguf_array *out, dlab_error *err)
{
    const gguf_entry *e = NULL;
    DLAB_TRY(need(g, key, &e, err));
    if (e->type != GGUF_ARRAY || e->elem_type != GGUF_STRING) return wrong_type(g, key, e, "an array of strings", err);
    *out = (dlab_gguf_array){e->value, (size_t)e->count, GGUF_STRING};
    return DLAB_OK;
}

bool dlab_gguf_next_str(dlab_gguf_array *a, dlab_gguf_str *out)
{
    if (a->left == 0) return false;
    *out = (dlab_gguf_str){(const char *)a->at + 8, (size_t)dlab_gguf_load_u64(a->at)};
    a->at += 8 + out->n;
    a->left--;
    return true;
}

dlab_status dlab_gguf_get_ints(const dlab_gguf *g, const char *key, dlab_gguf_array *out, dlab_error *err)
{
    const gguf_entry *e = NULL;
    DLAB_TRY(need(g, key, &e, err));
    if (e->type != GGUF_ARRAY || !is_int(e->elem_type)) return wrong_type(g, key, e, "an array of integers", err);
    *out = (dlab_gguf_array){e->value, (size_t)e->count, e->elem_type};
    return DLAB_OK;
}

bool dlab_gguf_next_int(dlab_gguf_array *a, int64_t *out)
{
    if (a->left == 0) return false;
    if (!load_int(a->type, a->at, out)) *out = INT64_MAX; /* a u64 past it; no reader accepts either */
    a->at += value_types[a->type].bytes;
    a->left--;
    return true;
}

bool dlab_gguf_key(const dlab_gguf *g, size_t i, dlab_gguf_str *out)
{
    if (i >= g->n_entries) return false;
    *out = g->entries[i].key;
    return true;
}

const char *dlab_gguf_show(char buf[DLAB_GGUF_SHOWN], dlab_gguf_str s)
{
    size_t n = s.n < DLAB_GGUF_SHOWN - 4 ? s.n : DLAB_GGUF_SHOWN - 4;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s.text[i];
        buf[i] = c < 0x20 || c >= 0x7f ? '?' : s.text[i];
    }
    memcpy(buf + n, n < s.n ? "..." : "", n < s.n ? 4 : 1);
    return buf;
}

bool dlab_gguf_str_is(dlab_gguf_str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.text, text, s.n) == 0;
}

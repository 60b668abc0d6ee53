#include "base/param.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct {
    const char *name;
    int64_t factor;
} unit;

#define KI INT64_C(1024)
#define KD INT64_C(1000)

/* The first is what a bare number is in; printing looks for the largest that divides, in table order from the end. */
static const unit size_units[] = {
    {"B", 1},    {"KB", KD},      {"MB", KD *KD},      {"GB", KD *KD *KD},      {"TB", KD *KD *KD *KD},
    {"KiB", KI}, {"MiB", KI *KI}, {"GiB", KI *KI *KI}, {"TiB", KI *KI *KI *KI},
};
#define FIRST_BINARY_UNIT 5
static const unit duration_units[] = {
    {"ns", 1}, {"us", KD}, {"ms", KD *KD}, {"s", KD *KD *KD}, {"min", 60 * KD *KD *KD}, {"h", 3600 * KD *KD *KD},
};
#define SECONDS_UNIT 3
#define N_OF(a)      (sizeof(a) / sizeof(a)[0])

/* Field access by copy: the struct is the caller's, only its layout is known here. */
static void put(void *obj, size_t offset, const void *value, size_t size) { memcpy((char *)obj + offset, value, size); }

static int64_t get_i64(const dlab_param *p, const void *obj)
{
    int64_t v;
    memcpy(&v, (const char *)obj + p->offset, sizeof v);
    return v;
}

const char *dlab_param_type_name(dlab_param_type t)
{
    static const char *const names[] = {
        [DLAB_PARAM_INT] = "int",       [DLAB_PARAM_FLOAT] = "float", [DLAB_PARAM_BOOL] = "bool",
        [DLAB_PARAM_CHOICE] = "choice", [DLAB_PARAM_SIZE] = "size",   [DLAB_PARAM_DURATION] = "duration",
        [DLAB_PARAM_STRING] = "string",
    };
    return (unsigned)t < N_OF(names) ? names[t] : "unknown";
}

/* ---- printing ------------------------------------------------------------------------------------------------------- */

/* The fewest digits that read back as the same double. */
static void print_double(double v, char *buf, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) return;
    }
}

static void print_int(dlab_param_type type, int64_t v, char *buf, size_t size)
{
    const unit *units = NULL;
    size_t n = 0;
    if (type == DLAB_PARAM_SIZE) {
        units = size_units + FIRST_BINARY_UNIT;
        n = N_OF(size_units) - FIRST_BINARY_UNIT;
    } else if (type == DLAB_PARAM_DURATION) {
        units = duration_units;
        n = N_OF(duration_units);
    }
    for (size_t i = n; i-- > 0;) {
        if (v == 0 || v % units[i].factor != 0) continue;
        snprintf(buf, size, "%" PRId64 "%s", v / units[i].factor, units[i].name);
        return;
    }
    snprintf(buf, size, "%" PRId64, v);
}

void dlab_param_print(const dlab_param *p, const void *obj, char *buf, size_t size)
{
    const char *field = (const char *)obj + p->offset;
    switch (p->type) {
    case DLAB_PARAM_INT:
    case DLAB_PARAM_SIZE:
    case DLAB_PARAM_DURATION:
        print_int(p->type, get_i64(p, obj), buf, size);
        break;
    case DLAB_PARAM_FLOAT: {
        double v;
        memcpy(&v, field, sizeof v);
        print_double(v, buf, size);
        break;
    }
    case DLAB_PARAM_BOOL: {
        bool v;
        memcpy(&v, field, sizeof v);
        snprintf(buf, size, "%s", v ? "true" : "false");
        break;
    }
    case DLAB_PARAM_CHOICE: {
        const char *v;
        memcpy(&v, field, sizeof v);
        snprintf(buf, size, "%s", v ? v : "");
        break;
    }
    case DLAB_PARAM_STRING:
        snprintf(buf, size, "%s", field);
        break;
    }
}

/* ---- parsing -------------------------------------------------------------------------------------------------------- */

/* Long double holds every int64 exactly, so bounds near 2⁶³ do not slip. */
static bool in_bounds(const dlab_param *p, long double v)
{
    return p->min > p->max || (v >= (long double)p->min && v <= (long double)p->max);
}

static void print_bound(const dlab_param *p, double bound, char *buf, size_t size)
{
    if (p->type == DLAB_PARAM_FLOAT || fabs(bound) >= 0x1p63)
        print_double(bound, buf, size);
    else
        print_int(p->type, (int64_t)bound, buf, size);
}

static dlab_status out_of_range(const dlab_param *p, const char *text, dlab_error *err)
{
    char lo[40], hi[40];
    print_bound(p, p->min, lo, sizeof lo);
    print_bound(p, p->max, hi, sizeof hi);
    if (p->max >= 9e18)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is out of range, expected at least %s", p->key, text, lo);
    if (p->min <= -9e18)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is out of range, expected at most %s", p->key, text, hi);
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is out of range, expected %s to %s", p->key, text, lo, hi);
}

static dlab_status set_int(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text))
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is not a whole number", p->key, text);
    if (errno == ERANGE) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is too large a number", p->key, text);
    if (!in_bounds(p, v)) return out_of_range(p, text, err);
    const int64_t value = v;
    put(obj, p->offset, &value, sizeof value);
    return DLAB_OK;
}

/* strtod takes more than people write: hexadecimal, inf, nan, leading blanks. */
static bool read_decimal(const char *text, double *v, const char **end)
{
    const char *c = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*c) && !(*c == '.' && isdigit((unsigned char)c[1]))) return false;
    if (c[0] == '0' && tolower((unsigned char)c[1]) == 'x') return false;
    char *stop;
    *v = strtod(text, &stop);
    *end = stop;
    return isfinite(*v);
}

static dlab_status set_float(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    double v;
    const char *end;
    if (!read_decimal(text, &v, &end) || *end)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is not a number", p->key, text);
    if (!in_bounds(p, v)) return out_of_range(p, text, err);
    put(obj, p->offset, &v, sizeof v);
    return DLAB_OK;
}

static dlab_status set_bool(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    static const char *const words[] = {"true", "false", "on", "off", "yes", "no", NULL};
    for (size_t i = 0; words[i]; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        const bool v = i % 2 == 0;
        put(obj, p->offset, &v, sizeof v);
        return DLAB_OK;
    }
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is not a switch, expected true or false (on/off, yes/no)", p->key,
                     text);
}

static void join_words(const char *const *words, char *buf, size_t size)
{
    size_t len = 0;
    buf[0] = '\0';
    for (size_t i = 0; words[i] && len < size; i++)
        len += (size_t)snprintf(buf + len, size - len, "%s%s", i ? ", " : "", words[i]);
}

static dlab_status set_choice(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    const char *const *words = p->choices();
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(words[i], text) != 0) continue;
        put(obj, p->offset, &words[i], sizeof words[i]);
        return DLAB_OK;
    }
    char all[256];
    join_words(words, all, sizeof all);
    const char *near = dlab_nearest(text, words);
    if (near)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is unknown, did you mean '%s'? (known: %s)", p->key, text, near,
                         all);
    return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is unknown, expected one of %s", p->key, text, all);
}

static int64_t unit_factor(const char *name, const unit *units, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(name, units[i].name) == 0) return units[i].factor;
    return 0;
}

/* A whole number times its unit is exact to 2⁶³; a fraction is rounded to the nearest whole byte or nanosecond. */
static bool scale_number(const char *digits, double v, const char *end, int64_t factor, int64_t *out)
{
    char *int_end;
    errno = 0;
    const long long whole = strtoll(digits, &int_end, 10);
    if (int_end == end && errno == 0) return !__builtin_mul_overflow((int64_t)whole, factor, out);
    const double scaled = v * (double)factor;
    if (!(fabs(scaled) < 0x1p63)) return false;
    *out = llround(scaled);
    return true;
}

static dlab_status set_scaled(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    const bool size = p->type == DLAB_PARAM_SIZE;
    const unit *units = size ? size_units : duration_units;
    const size_t n_units = size ? N_OF(size_units) : N_OF(duration_units);
    const char *what = size ? "a size, expected bytes or a number with KiB, MiB, GiB, KB, MB, GB"
                            : "a duration, expected seconds or a number with ns, us, ms, s, min, h";
    double v;
    const char *end;
    if (!read_decimal(text, &v, &end)) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is not %s", p->key, text, what);
    const char *name = end + (*end == ' ');
    const int64_t factor = *name ? unit_factor(name, units, n_units) : units[size ? 0 : SECONDS_UNIT].factor;
    if (factor == 0) return DLAB_FAIL(err, DLAB_EUSAGE, "%s: '%s' is not %s", p->key, text, what);
    int64_t value;
    if (!scale_number(text, v, end, factor, &value))
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: %s is too large", p->key, text);
    if (!in_bounds(p, value)) return out_of_range(p, text, err);
    put(obj, p->offset, &value, sizeof value);
    return DLAB_OK;
}

static dlab_status set_string(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    const size_t n = strlen(text);
    if (n >= DLAB_PARAM_STR)
        return DLAB_FAIL(err, DLAB_EUSAGE, "%s: a text of %zu bytes, expected at most %d", p->key, n,
                         DLAB_PARAM_STR - 1);
    put(obj, p->offset, text, n + 1);
    return DLAB_OK;
}

dlab_status dlab_param_set(const dlab_param *p, void *obj, const char *text, dlab_error *err)
{
    switch (p->type) {
    case DLAB_PARAM_INT:
        return set_int(p, obj, text, err);
    case DLAB_PARAM_FLOAT:
        return set_float(p, obj, text, err);
    case DLAB_PARAM_BOOL:
        return set_bool(p, obj, text, err);
    case DLAB_PARAM_CHOICE:
        return set_choice(p, obj, text, err);
    case DLAB_PARAM_SIZE:
    case DLAB_PARAM_DURATION:
        return set_scaled(p, obj, text, err);
    case DLAB_PARAM_STRING:
        return set_string(p, obj, text, err);
    }
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: the table gives it no known type", p->key);
}

void dlab_param_defaults(const dlab_param *table, size_t n, void *obj)
{
    for (size_t i = 0; i < n; i++) {
        const dlab_status s = dlab_param_set(&table[i], obj, table[i].def, NULL);
        assert(s == DLAB_OK && "a default that its own row refuses");
        (void)s;
    }
}

const dlab_param *dlab_param_find(const dlab_param *table, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].key, key) == 0) return &table[i];
    return NULL;
}

/* ---- the nearest word ----------------------------------------------------------------------------------------------- */

#define NEAREST_MAX 64 /* letters; longer words are not compared */

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* Edits between two words: insert, delete, replace, swap of two neighbours (optimal string alignment). Case is ignored. */
static size_t edits(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][NEAREST_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    memcpy(before, last, sizeof rows[0]);
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = min_size(min_size(last[j], row[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]))
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
        size_t *const spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

const char *dlab_nearest(const char *word, const char *const *words)
{
    const size_t n = strlen(word);
    if (n == 0 || n > NEAREST_MAX) return NULL;
    const size_t allowed = n / 3 > 2 ? n / 3 : 2;
    const char *best = NULL;
    size_t best_edits = allowed + 1;
    for (size_t i = 0; words[i]; i++) {
        const size_t m = strlen(words[i]);
        if (m > NEAREST_MAX) continue;
        const size_t d = edits(word, n, words[i], m);
        /* as many edits as letters: the two have nothing in common */
        if (d < best_edits && d < (n > m ? n : m)) {
            best = words[i];
            best_edits = d;
        }
    }
    return best;
}

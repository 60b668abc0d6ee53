#include "harness/serve/jinja.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *text;
    size_t n, at;
    dlab_jinja *out;
    bool after_block; /* the last tag was {% %}: a line break right behind it is layout */
    bool strip_next;  /* … ended with -%}: all blanks behind it are */
} reader;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void put(dlab_jinja *j, dlab_jinja_kind kind, const char *text, size_t n)
{
    memcpy(j->bytes + j->n_bytes, text, n);
    j->marks[j->n++] = (dlab_jinja_mark){kind, j->n_bytes, n};
    j->n_bytes += n;
}

static bool is(const dlab_jinja *j, size_t i, dlab_jinja_kind kind, const char *text)
{
    const dlab_jinja_mark *m = &j->marks[i];
    return m->kind == kind && m->n == strlen(text) && memcmp(j->bytes + m->at, text, m->n) == 0;
}

/* The last marks, from the end: sign "+", sign "}}", … */
static bool ends_with(const dlab_jinja *j, const char *const *signs, size_t n)
{
    if (j->n < n) return false;
    for (size_t i = 0; i < n; i++) {
        if (!is(j, j->n - n + i, DLAB_JINJA_SIGN, signs[i])) return false;
    }
    return true;
}

/* A string of text that follows another one, with only "+" between, goes on with it. */
static void put_text(dlab_jinja *j, const char *text, size_t n)
{
    static const char *const plus[] = {"+"};
    const bool joins = ends_with(j, plus, 1) && j->n >= 2 && j->marks[j->n - 2].kind == DLAB_JINJA_TEXT;
    if (!joins) {
        put(j, DLAB_JINJA_TEXT, text, n);
        return;
    }
    j->n--;
    dlab_jinja_mark *m = &j->marks[j->n - 1];
    j->n_bytes = m->at + m->n;
    memcpy(j->bytes + j->n_bytes, text, n);
    j->n_bytes += n;
    m->n += n;
}

/* "{{" right behind "}}" only goes on. */
static void open_output(dlab_jinja *j)
{
    static const char *const close[] = {"}}"};
    if (ends_with(j, close, 1)) {
        j->marks[j->n - 1].n = 1;
        j->bytes[j->marks[j->n - 1].at] = '+';
        j->n_bytes = j->marks[j->n - 1].at + 1;
    } else {
        put(j, DLAB_JINJA_SIGN, "{{", 2);
    }
}

/* Text between tags, without what is layout there, is an output of its own. */
static void put_data(reader *r, const char *text, size_t n, bool before_block, bool strip_end)
{
    size_t begin = 0;
    if (r->strip_next) {
        while (begin < n && is_blank(text[begin])) begin++;
    } else if (r->after_block && n > 0 && text[0] == '\n') {
        begin = 1;
    }
    if (strip_end) {
        while (n > begin && is_blank(text[n - 1])) n--;
    } else if (before_block) {
        size_t line = n;
        while (line > begin && (text[line - 1] == ' ' || text[line - 1] == '\t')) line--;
        if (line == 0 ? r->at == 0 : text[line - 1] == '\n') n = line;
    }
    if (begin >= n) return;
    open_output(r->out);
    put_text(r->out, text + begin, n - begin);
    put(r->out, DLAB_JINJA_SIGN, "}}", 2);
}

static dlab_status read_string(reader *r, dlab_error *err)
{
    static const char escapes[] = "\\'\"ntr", means[] = "\\'\"\n\t\r";
    const size_t start = r->at;
    const char quote = r->text[r->at++];
    char *plain = malloc(r->n - r->at + 1);
    size_t n = 0;
    if (!plain) return DLAB_FAIL(err, DLAB_EOOM, "no memory to read a chat template");
    while (r->at < r->n && r->text[r->at] != quote) {
        char c = r->text[r->at++];
        if (c == '\\' && r->at < r->n) {
            const char *known = memchr(escapes, r->text[r->at], sizeof escapes - 1);
            if (!known) break;
            c = means[known - escapes];
            r->at++;
        }
        plain[n++] = c;
    }
    const bool ended = r->at < r->n && r->text[r->at] == quote;
    if (ended) put_text(r->out, plain, n);
    free(plain);
    if (!ended && r->at < r->n)
        return DLAB_FAIL(err, DLAB_EFORMAT, "chat template, byte %zu: an escape that is not built: \\ and one of %s",
                         r->at - 1, escapes);
    if (!ended) return DLAB_FAIL(err, DLAB_EFORMAT, "chat template, byte %zu: a string that does not end", start);
    r->at++;
    return DLAB_OK;
}

/* `.name` is ['name'], and .strip() is | trim. */
static void read_dot(reader *r)
{
    size_t end = r->at + 1;
    while (end < r->n && is_word(r->text[end])) end++;
    const char *name = r->text + r->at + 1;
    const size_t n = end - r->at - 1;
    if (n == 5 && memcmp(name, "strip", 5) == 0 && r->n - end >= 2 && memcmp(r->text + end, "()", 2) == 0) {
        put(r->out, DLAB_JINJA_SIGN, "|", 1);
        put(r->out, DLAB_JINJA_WORD, "trim", 4);
        end += 2;
    } else {
        put(r->out, DLAB_JINJA_SIGN, "[", 1);
        put(r->out, DLAB_JINJA_TEXT, name, n);
        put(r->out, DLAB_JINJA_SIGN, "]", 1);
    }
    r->at = end;
}

static void read_sign(reader *r)
{
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t n = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (r->n - r->at >= 2 && memcmp(r->text + r->at, pairs[i], 2) == 0) n = 2;
    }
    put(r->out, DLAB_JINJA_SIGN, r->text + r->at, n);
    r->at += n;
}

/* What stands between "{%" or "{{" and its end. */
static dlab_status read_inside(reader *r, const char *close, dlab_error *err)
{
    const size_t start = r->at;
    while (r->at < r->n) {
        const char *s = r->text + r->at;
        const size_t left = r->n - r->at, minus = *s == '-';
        if (left >= 2 + minus && memcmp(s + minus, close, 2) == 0) {
            put(r->out, DLAB_JINJA_SIGN, close, 2);
            r->at += 2 + minus;
            r->strip_next = minus;
            return DLAB_OK;
        }
        if (is_blank(*s)) {
            r->at++;
        } else if (is_word(*s)) {
            size_t n = 1;
            while (n < left && is_word(s[n])) n++;
            put(r->out, DLAB_JINJA_WORD, s, n);
            r->at += n;
        } else if (*s == '\'' || *s == '"') {
            DLAB_TRY(read_string(r, err));
        } else if (*s == '.' && left > 1 && (isalpha((unsigned char)s[1]) || s[1] == '_')) {
            read_dot(r);
        } else {
            read_sign(r);
        }
    }
    return DLAB_FAIL(err, DLAB_EFORMAT, "chat template, byte %zu: a tag that does not end", start);
}

static dlab_status read_comment(reader *r, dlab_error *err)
{
    const char *end = memmem(r->text + r->at, r->n - r->at, "#}", 2);
    if (!end) return DLAB_FAIL(err, DLAB_EFORMAT, "chat template, byte %zu: a comment that does not end", r->at);
    r->strip_next = end[-1] == '-';
    r->after_block = true;
    r->at = (size_t)(end - r->text) + 2;
    return DLAB_OK;
}

static size_t next_tag(const reader *r)
{
    for (size_t i = r->at; i + 1 < r->n; i++) {
        if (r->text[i] == '{' && strchr("{%#", r->text[i + 1])) return i;
    }
    return r->n;
}

static dlab_status read_all(reader *r, dlab_error *err)
{
    while (r->at < r->n) {
        const size_t tag = next_tag(r);
        const char kind = tag < r->n ? r->text[tag + 1] : 0;
        const bool minus = tag + 2 < r->n && r->text[tag + 2] == '-';
        put_data(r, r->text + r->at, tag - r->at, kind == '%' || kind == '#', minus);
        r->at = tag < r->n ? tag + 2 + minus : r->n;
        r->after_block = r->strip_next = false;
        if (kind == '#') {
            DLAB_TRY(read_comment(r, err));
        } else if (kind == '%') {
            put(r->out, DLAB_JINJA_SIGN, "{%", 2);
            DLAB_TRY(read_inside(r, "%}", err));
            r->after_block = true;
        } else if (kind) {
            open_output(r->out);
            DLAB_TRY(read_inside(r, "}}", err));
        }
    }
    return DLAB_OK;
}

dlab_status dlab_jinja_read(const char *text, size_t n, dlab_jinja *out, dlab_error *err)
{
    *out = (dlab_jinja){0};
    if (n > 0 && text[n - 1] == '\n') n--; /* Jinja's keep_trailing_newline is off */
    /* one mark takes a byte at least, but `.strip()` and text between tags: at most three for one */
    out->bytes = malloc(5 * n + 8);
    out->marks = calloc(3 * n + 8, sizeof *out->marks);
    dlab_status st = DLAB_OK;
    if (!out->bytes || !out->marks) st = DLAB_FAIL(err, DLAB_EOOM, "no memory to read a chat template");
    reader r = {.text = text, .n = n, .out = out};
    if (st == DLAB_OK) st = read_all(&r, err);
    if (st != DLAB_OK) dlab_jinja_free(out);
    return st;
}

void dlab_jinja_free(dlab_jinja *j)
{
    free(j->bytes);
    free(j->marks);
    *j = (dlab_jinja){0};
}

static bool same_mark(const dlab_jinja *t, size_t i, const dlab_jinja *p, size_t k, const char **hole, size_t *n_hole)
{
    const dlab_jinja_mark *a = &t->marks[i], *b = &p->marks[k];
    const char *have = t->bytes + a->at, *want = p->bytes + b->at;
    if (a->kind != b->kind) return false;
    const char *any = hole ? memchr(want, DLAB_JINJA_ANY, b->n) : NULL;
    if (!any) return a->n == b->n && memcmp(have, want, a->n) == 0;
    const size_t before = (size_t)(any - want), after = b->n - before - 1;
    if (a->n < before + after || memcmp(have, want, before) != 0 || memcmp(have + a->n - after, any + 1, after) != 0) {
        return false;
    }
    *hole = have + before;
    *n_hole = a->n - before - after;
    return !memmem(*hole, *n_hole, "<|", 2);
}

bool dlab_jinja_match(const dlab_jinja *t, size_t from, const dlab_jinja *pattern, const char **hole, size_t *n_hole)
{
    *hole = NULL;
    *n_hole = 0;
    if (t->n - from != pattern->n) return false;
    for (size_t i = 0; i < pattern->n; i++) {
        if (!same_mark(t, from + i, pattern, i, hole, n_hole)) return false;
    }
    return true;
}

size_t dlab_jinja_prefix(const dlab_jinja *t, size_t from, const dlab_jinja *pattern)
{
    if (t->n - from < pattern->n) return 0;
    for (size_t i = 0; i < pattern->n; i++) {
        if (!same_mark(t, from + i, pattern, i, NULL, NULL)) return 0;
    }
    return pattern->n;
}

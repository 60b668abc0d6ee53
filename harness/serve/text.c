#include "harness/serve/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

dlab_status dlab_stops_add(dlab_stops *s, const char *text, size_t n, dlab_error *err)
{
    char *copy = malloc(n);
    size_t *fail = malloc(n * sizeof *fail);
    if (!copy || !fail) {
        free(copy);
        free(fail);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for a stop string of %zu bytes", n);
    }
    memcpy(copy, text, n);
    fail[0] = 0;
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && copy[i] != copy[k]) k = fail[k - 1];
        k += copy[i] == copy[k];
        fail[i] = k;
    }
    s->text[s->count] = copy;
    s->fail[s->count] = fail;
    s->n[s->count++] = n;
    return DLAB_OK;
}

void dlab_stops_free(dlab_stops *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->text[i]);
        free(s->fail[i]);
    }
    *s = (dlab_stops){0};
}

/* The longest stop string that ends with this byte; 0: none does. */
static size_t step_stops(dlab_answer_text *t, const dlab_stops *s, char c)
{
    size_t found = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t k = t->matched[i];
        while (k > 0 && s->text[i][k] != c) k = s->fail[i][k - 1];
        k += s->text[i][k] == c;
        t->matched[i] = k;
        if (k == s->n[i] && k > found) found = k;
    }
    return found;
}

/* Bytes of valid UTF-8; room is there. */
static void take(dlab_answer_text *t, const dlab_stops *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !t->stopped; i++) {
        t->text[t->n++] = bytes[i];
        const size_t found = step_stops(t, s, bytes[i]);
        if (found == 0) continue;
        t->n -= found;
        t->stopped = true;
    }
}

/* Length of the character that a first byte announces, 0: none begins so; *low and *high bound the second byte
 * (Unicode 15, table 3-7). */
static size_t announced(unsigned char c, unsigned char *low, unsigned char *high)
{
    *low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    *high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* One byte more: finishes a character, goes on with it, or shows that it was none. */
static void take_byte(dlab_answer_text *t, const dlab_stops *s, unsigned char c)
{
    unsigned char low = 0, high = 0;
    if (t->n_part > 0) {
        const size_t len = announced(t->part[0], &low, &high);
        const bool fits = t->n_part == 1 ? c >= low && c <= high : c >= 0x80 && c <= 0xbf;
        if (fits) {
            t->part[t->n_part++] = c;
            if (t->n_part < len) return;
            take(t, s, (const char *)t->part, len);
            t->n_part = 0;
            return;
        }
        take(t, s, "\xef\xbf\xbd", 3);
        t->n_part = 0;
    }
    const size_t len = announced(c, &low, &high);
    if (len == 0) {
        take(t, s, "\xef\xbf\xbd", 3);
    } else if (len == 1) {
        take(t, s, (const char *)&c, 1);
    } else {
        t->part[t->n_part++] = c;
    }
}

/* Where the longest stop string that may have begun begins, and no character is cut by it: strings begin with whole ones. */
static size_t held_from(const dlab_answer_text *t, const dlab_stops *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->count; i++) most = t->matched[i] > most ? t->matched[i] : most;
    return t->n - most;
}

dlab_status dlab_answer_text_add(dlab_answer_text *t, const dlab_stops *stops, const char *bytes, size_t n,
                                 dlab_error *err)
{
    if (t->stopped || n == 0) return DLAB_OK;
    const size_t want = t->n + 3 * (n + 4); /* each byte may become U+FFFD */
    char *grown = dlab_grow(t->text, want, &t->cap, 1);
    if (!grown) return DLAB_FAIL(err, DLAB_EOOM, "no memory for an answer of %zu bytes", want);
    t->text = grown;
    for (size_t i = 0; i < n && !t->stopped; i++) take_byte(t, stops, (unsigned char)bytes[i]);
    t->ready = t->stopped ? t->n : held_from(t, stops);
    return DLAB_OK;
}

void dlab_answer_text_end(dlab_answer_text *t) { t->ready = t->n; }

void dlab_answer_text_free(dlab_answer_text *t)
{
    free(t->text);
    *t = (dlab_answer_text){0};
}

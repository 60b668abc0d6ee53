/* What the tokens of an answer say, as it may be shown: whole UTF-8 characters, up to a stop string and nothing of it. Each
 * byte costs O(1), however long the answer is. */
#ifndef DLAB_HARNESS_SERVE_TEXT_H
#define DLAB_HARNESS_SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DLAB_STOP_MAX 4

/* Strings that end an answer, all looked for at once (Knuth, Morris & Pratt 1977). */
typedef struct {
    char *text[DLAB_STOP_MAX];
    size_t n[DLAB_STOP_MAX];
    size_t *fail[DLAB_STOP_MAX]; /* [n]: length of the longest proper prefix of the first i + 1 bytes that ends them */
    size_t count;
} dlab_stops;

/* One more string of n ≥ 1 bytes; count < DLAB_STOP_MAX. */
dlab_status dlab_stops_add(dlab_stops *s, const char *text, size_t n, dlab_error *err);
void dlab_stops_free(dlab_stops *s);

/* Starts zeroed. */
typedef struct {
    char *text; /* [n] valid UTF-8; the first `ready` bytes are no part of a stop string and are never taken back */
    size_t n, ready, cap;
    unsigned char part[4]; /* a character that has begun */
    size_t n_part;
    size_t matched[DLAB_STOP_MAX]; /* bytes of each stop string that the text ends with */
    bool stopped;                  /* a stop string was found and cut off: nothing is added any more */
} dlab_answer_text;

/* Bytes that cannot be UTF-8 become U+FFFD. */
dlab_status dlab_answer_text_add(dlab_answer_text *t, const dlab_stops *stops, const char *bytes, size_t n,
                                 dlab_error *err);
/* The answer is over: what was held back because a stop string might have begun is ready, a character cut in two is not
 * shown. */
void dlab_answer_text_end(dlab_answer_text *t);
void dlab_answer_text_free(dlab_answer_text *t);

#endif

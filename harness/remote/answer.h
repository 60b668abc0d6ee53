/* What has come of one streamed answer, and how many tokens it was.
 *
 * Chunks are not tokens: a server may send several tokens in one, or none. The number of tokens is what the server's usage
 * says; without it, what a tokenizer of ours makes of the whole text. Which token came when:
 *   1. as many chunks with text as tokens: each is one (a final chunk without text that says "stop" counts where that makes
 *      the numbers agree: it is the end-of-text token);
 *   2. else with a tokenizer: a token came with the chunk that brought the last byte of its text; tokens that have none
 *      came with the last chunk;
 *   3. else only the first token and the last one are known: first chunk, last chunk.
 * An answer without text has none where a tokenizer counts. */
#ifndef DLAB_HARNESS_REMOTE_ANSWER_H
#define DLAB_HARNESS_REMOTE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define DLAB_ANSWER_TEXT_MAX   ((size_t)16 << 20) /* bytes of an answer */
#define DLAB_ANSWER_CHUNKS_MAX ((size_t)1 << 21)

typedef struct {
    int64_t t_ns;
    size_t end; /* bytes of the answer's text with this chunk's */
} dlab_answer_chunk;

/* Starts through dlab_answer_reset. */
typedef struct {
    char *text;
    size_t n_text, cap_text;
    dlab_answer_chunk *chunks; /* those with text, and a last one without if it ended the answer */
    size_t n_chunks, cap_chunks;
    bool done;                                        /* the stream said [DONE] */
    bool bare_end;                                    /* the last of the chunks has no text */
    dlab_finish finish;                               /* NONE: no reason was given yet */
    int64_t new_tokens, prompt_tokens, cached_tokens; /* as usage has them; −1: not told */
} dlab_answer;

void dlab_answer_reset(dlab_answer *a); /* keeps its memory */
void dlab_answer_free(dlab_answer *a);
/* The data of one event of the stream, which came at t_ns. DLAB_EFORMAT: it is none of a completion, or tells of an error. */
dlab_status dlab_answer_event(dlab_answer *a, const char *data, size_t n, int64_t t_ns, dlab_error *err);

typedef struct {
    int32_t index, token; /* token: its id as the tokenizer has it; −1: unknown */
    int64_t t_ns;
} dlab_answer_token;

typedef struct {
    dlab_answer_token *items; /* malloc'd */
    size_t n, cap;
} dlab_answer_tokens;

/* The tokens of a finished answer whose time is known, ascending, in place of what was in list; *total: how many there were,
 * −1: unknown (then the first one alone is listed). tokenizer may be NULL. */
dlab_status dlab_answer_count(const dlab_answer *a, const dlab_tokenizer *tokenizer, dlab_answer_tokens *list,
                              int64_t *total, dlab_error *err);

#endif

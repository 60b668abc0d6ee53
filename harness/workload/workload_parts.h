/* What the files of harness/workload share: streams of random numbers, lengths, arrivals, and requests as files tell them. */
#ifndef DLAB_HARNESS_WORKLOAD_PARTS_H
#define DLAB_HARNESS_WORKLOAD_PARTS_H

#include <string.h>

#include "base/rng.h"
#include "harness/workload/workload.h"

#define DLAB_LENGTH_MAX   ((int64_t)1 << 20) /* tokens of one prompt or answer, where nothing else bounds them */
#define DLAB_REQUESTS_MAX ((int64_t)1 << 20)
#define DLAB_FILE_MAX     ((size_t)1 << 30)

/* Is this choice the word? A choice that was left out is none. */
static inline bool dlab_is(const char *choice, const char *word) { return choice && strcmp(choice, word) == 0; }

/* ---- streams: each kind of draw has its own, so that another choice in one changes nothing in the others ---------------- */

typedef enum {
    DLAB_STREAM_PROMPTS,
    DLAB_STREAM_LENGTHS,
    DLAB_STREAM_PREFIX,
    DLAB_STREAM_WARMUP_PROMPTS,
    DLAB_STREAM_WARMUP_PREFIX,
    DLAB_STREAM_OUTPUTS,
    DLAB_STREAM_GAPS,
    DLAB_STREAM_THINK,
    DLAB_STREAM_GROUPS,
    DLAB_STREAM_PRIORITIES,
    DLAB_STREAM_BLOCKS,
    DLAB_STREAM_WARMUP_BLOCKS,
    DLAB_STREAM_SAMPLING
} dlab_stream;

/* Numbers of one request, conversation, group, … of a kind. */
dlab_rng dlab_stream_rng(int64_t seed, dlab_stream kind, uint64_t number);
static inline int64_t dlab_seed_lengths(const dlab_workload *w) { return w->seed_lengths ? w->seed_lengths : w->seed; }
static inline int64_t dlab_seed_arrivals(const dlab_workload *w)
{
    return w->seed_arrivals ? w->seed_arrivals : w->seed;
}

/* ---- file_requests.c, trace.c, chats.c: requests as a file tells them ------------------------------------------------ */

typedef struct {
    int64_t prompt, output; /* tokens; output 0: the file does not say */
    int64_t arrival_ns;     /* trace */
    int64_t line;           /* sharegpt: number of the conversation, from 1 */
    int64_t data, n_data;   /* its part of ids (texts) or hashes (trace) */
    bool later;             /* a turn after the first */
} dlab_file_request;

/* Starts zeroed. */
typedef struct {
    const char *name; /* of the file, borrowed */
    const char *unit; /* what `line` counts: "", or "conversation " */
    dlab_file_request *items;
    int32_t *ids;
    uint64_t *hashes;
    size_t n, n_ids, n_hashes, room, room_ids, room_hashes;
    int64_t conversations; /* conversations, or single requests */
} dlab_file_requests;

void dlab_file_requests_free(dlab_file_requests *t);
dlab_status dlab_file_requests_add(dlab_file_requests *t, const dlab_file_request *r, dlab_error *err);
/* ids, of which the request added last begins at the first. */
dlab_status dlab_file_requests_add_ids(dlab_file_requests *t, const int32_t *ids, size_t n, dlab_error *err);
dlab_status dlab_file_requests_add_hash(dlab_file_requests *t, uint64_t hash, dlab_error *err);
/* Begins at conversation number `from`, goes on at the first one behind the last, and keeps `most` of them (0: all). */
dlab_status dlab_file_requests_turn(dlab_file_requests *t, int64_t from, int64_t most, dlab_error *err);
/* "NAME:LINE" of a request, for messages. */
void dlab_file_requests_place(const dlab_file_requests *t, const dlab_file_request *r, char *buf, size_t size);

/* One line of a text, without its end; text moves on behind it. False: there is none. */
typedef struct {
    const char *text, *end; /* what is left */
    const char *line;
    size_t n;
    int64_t number; /* from 1 */
} dlab_file_lines;
bool dlab_file_line_next(dlab_file_lines *l);
/* Nothing but blanks. */
bool dlab_file_line_empty(const dlab_file_lines *l);

#define DLAB_TRACE_BLOCK 512 /* tokens that one hash stands for */
/* Mooncake's JSONL. max: so many requests are enough. */
dlab_status dlab_trace_read(const dlab_workload *w, const char *text, size_t n, int64_t max, dlab_file_requests *out,
                            dlab_error *err);
dlab_status dlab_jsonl_read(const dlab_workload *w, const dlab_tokenizer *tok, const char *text, size_t n, int64_t max,
                            dlab_file_requests *out, dlab_error *err);
dlab_status dlab_sharegpt_read(const dlab_workload *w, const dlab_tokenizer *tok, const char *text, size_t n,
                               int64_t max, dlab_file_requests *out, dlab_error *err);
/* A line a request: its prompt's tokens, and its answer's where `outputs` asks for them. */
dlab_status dlab_lengths_read(const char *name, bool outputs, const char *text, size_t n, dlab_file_requests *out,
                              dlab_error *err);

/* ---- lengths.c ---------------------------------------------------------------------------------------------------------- */

/* What is left to be drawn is drawn a conversation at a time: one that the context cannot hold is drawn again. */
typedef struct {
    const dlab_workload *w;
    int64_t context;                 /* 0: no bound */
    const dlab_file_requests *file;  /* requests of a trace, jsonl, sharegpt; NULL: none */
    const dlab_file_requests *table; /* lines of workload.lengths_file; NULL: none */
    int64_t n;                       /* requests, turns too */
    int64_t *prompt, *output;        /* [n], to be filled */
} dlab_lengths;

/* That the means are within their bounds, so that redrawing comes to an end. */
dlab_status dlab_lengths_check(const dlab_workload *w, int64_t context, dlab_error *err);
/* Of requests [first, first + turns), which are this conversation. */
dlab_status dlab_lengths_make(const dlab_lengths *l, int64_t conversation, int64_t first, int64_t turns,
                              dlab_error *err);
/* What spread prompts start from: dlab_lengths_make keeps what is there. */
void dlab_lengths_spread(const dlab_lengths *l);

/* ---- arrivals.c --------------------------------------------------------------------------------------------------------- */

/* The gap before an arrival at a rate of 1 a second, in seconds. */
double dlab_gap_draw(const dlab_workload *w, dlab_rng *rng);
/* Of an open loop: at most max, none at or after the duration. *times is malloc'd. */
dlab_status dlab_arrivals_make(const dlab_workload *w, int64_t max, int64_t **times, int64_t *n, dlab_error *err);
int64_t dlab_think_draw(const dlab_workload *w, int64_t request);

typedef struct {
    int32_t priority[64];
    double upto[64]; /* sum of weights, this one's included */
    int n;           /* 0: all are 0 */
} dlab_priorities;
dlab_status dlab_priorities_read(const char *text, dlab_priorities *out, dlab_error *err);
int32_t dlab_priorities_draw(const dlab_priorities *p, const dlab_workload *w, int64_t conversation);
/* Which shared prefix a conversation begins with; −1: none. */
int64_t dlab_prefix_group(const dlab_workload *w, int64_t conversation);

/* ---- shape.c ------------------------------------------------------------------------------------------------------------ */

/* A whole text's ids, read as a ring: a piece goes on at the start where the text ends. */
typedef struct {
    int32_t *ids;             /* NULL: not read */
    int64_t n, start, stride; /* piece number i begins at start + i·stride */
} dlab_text_ring;

struct dlab_shape {
    dlab_workload w;
    dlab_workload_host host;
    int64_t n, conversations; /* n: requests */
    int64_t *conversation;    /* [n] */
    int64_t *first;           /* [conversations + 1] a conversation's first request */
    int64_t *prompt, *output; /* [n] */
    int64_t *arrival_ns;      /* [conversations]; NULL: all at once, or closed */
    bool scarce;
    int64_t n_fresh;
    dlab_file_requests file; /* with n 0 where no file tells */
    dlab_text_ring text;     /* prompts: text, once requests are built */
};

/* ---- prompts.c ---------------------------------------------------------------------------------------------------------- */

/* The ids of all requests, whose counts and places are in out already. */
dlab_status dlab_prompts_fill(dlab_shape *s, bool warmup, dlab_requests *out, dlab_error *err);

#endif

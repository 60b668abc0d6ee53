/* The bodies of the OpenAI-compatible API: from JSON to a question for the host, and from answers to JSON. A parameter that we
 * lack is refused by its name; none is ignored. */
#ifndef DLAB_HARNESS_SERVE_API_H
#define DLAB_HARNESS_SERVE_API_H

#include <jansson.h>

#include "harness/serve/chat_template.h"
#include "harness/serve/host.h"

#define DLAB_API_CHOICES 1024 /* of one request */
#define DLAB_API_SAMPLES 128  /* n */
#define DLAB_API_STOP    1024 /* bytes of a stop string */

/* What a server serves. */
typedef struct {
    const char *model; /* its name in the API */
    const dlab_tokenizer *tok;
    const dlab_chat_template *chat;    /* NULL: chat is refused, as … */
    char chat_refusal[DLAB_ERROR_MSG]; /* … this says */
    int64_t context;                   /* tokens of prompt and answer together */
    int64_t
        max_tokens; /* of an answer when the request does not say; 0: 16 for completions, for chat what the context holds */
    int64_t max_text;         /* bytes that the context's tokens can say: more is refused before it is encoded */
    int64_t queue;            /* prompts of one request at most */
    int64_t batch_size;       /* n at most */
    bool by_priority;         /* the batch's policy: else a priority is refused */
    float temperature, top_p; /* when the request does not say */
    int32_t top_k;
    uint64_t seed;   /* each request without one gets the next of a sequence */
    int64_t created; /* seconds since 1970 */
    uint64_t n_requests;
} dlab_api;

/* An error as the API tells it. */
typedef struct {
    int status;       /* HTTP */
    const char *type; /* static */
    const char *code; /* static, or NULL */
    char param[64];   /* "": none */
    char message[DLAB_ERROR_MSG];
} dlab_api_error;

/* Fills *e; returns DLAB_EUSAGE. param NULL: none. */
dlab_status dlab_api_fail(dlab_api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* {"error": {…}}, malloc'd; NULL when memory is out. */
char *dlab_api_error_json(const dlab_api_error *e);

/* A request that was understood. */
typedef struct {
    dlab_ask ask; /* without socket, sleep, wake, ctx and arrived_ns */
    bool chat, stream, include_usage;
    char id[48];
    int64_t created;
} dlab_question;

/* The bytes of the longest token's text, which max_text is made from. */
dlab_status dlab_api_longest_token(const dlab_tokenizer *tok, int64_t *out, dlab_error *err);

/* Reads the body of /v1/completions or /v1/chat/completions. On failure *q owns nothing. */
dlab_status dlab_api_read(dlab_api *api, bool chat, const char *body, size_t n, dlab_question *q, dlab_api_error *e);
void dlab_question_free(dlab_question *q);

/* ---- parts of dlab_api_read, by what they read ------------------------------------------------------------------------ */

/* Answers of max_new tokens; −1: the request does not say. */
dlab_status dlab_api_read_prompts(const dlab_api *api, const json_t *prompt, int64_t max_new, dlab_ask *ask,
                                  dlab_api_error *e);
dlab_status dlab_api_read_messages(const dlab_api *api, const json_t *messages, int64_t max_new, dlab_ask *ask,
                                   dlab_api_error *e);
/* Whether a text of so many bytes may fit the context at all. */
dlab_status dlab_api_check_text(const dlab_api *api, bool chat, size_t bytes, dlab_api_error *e);
/* Appends a prompt, whose ids become the ask's; checks it against the context. */
dlab_status dlab_api_add_prompt(const dlab_api *api, bool chat, int32_t *ids, size_t n, int64_t max_new, dlab_ask *ask,
                                dlab_api_error *e);

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

/* A whole response. pieces [sum->n_choices] hold all of each choice. malloc'd; NULL when memory is out. */
char *dlab_api_response(const dlab_api *api, const dlab_question *q, const dlab_answer_piece *pieces,
                        const dlab_answer_sum *sum);
/* One server-sent event each ("data: {…}\n\n"), malloc'd, NULL when memory is out: the role that begins a chat's choice; text;
 * an end; the usage of all. */
char *dlab_api_role_event(const dlab_api *api, const dlab_question *q, size_t choice);
char *dlab_api_text_event(const dlab_api *api, const dlab_question *q, size_t choice, const char *text, size_t n);
char *dlab_api_end_event(const dlab_api *api, const dlab_question *q, size_t choice, dlab_answer_end end);
char *dlab_api_usage_event(const dlab_api *api, const dlab_question *q, const dlab_answer_sum *sum);
char *dlab_api_error_event(const dlab_api_error *e);
char *dlab_api_event(char *json); /* of any; json is freed, NULL: memory was out */
/* The error that an answer ended with as a whole; false: none. */
bool dlab_api_answer_error(const dlab_answer_sum *sum, dlab_api_error *e);

/* /v1/models, or the object of the one model. malloc'd. */
char *dlab_api_models(const dlab_api *api, bool list);

#endif

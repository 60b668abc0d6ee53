/* The JSON body of a request to an OpenAI-compatible server. */
#ifndef DLAB_HARNESS_REMOTE_BODY_H
#define DLAB_HARNESS_REMOTE_BODY_H

#include "base/json.h"
#include "harness/target/target.h"

typedef struct {
    json_t *base;  /* what all requests share */
    json_t *extra; /* members that are added or replace ours, or NULL */
    bool chat, as_text;
    double temperature;
    const dlab_tokenizer *tokenizer;
} dlab_body;

/* model: the name in the body. Sampling is the plan's, top_p and top_k where they choose. remote is borrowed. DLAB_EUSAGE:
 * an endpoint without a way to send prompts, or `extra` that is no JSON object. out must be freed in any case. */
dlab_status dlab_body_init(dlab_body *out, const dlab_remote *remote, const char *model, const dlab_plan *plan,
                           dlab_error *err);
void dlab_body_free(dlab_body *b);
/* One answer to r's prompt; sample: which of them. eos −1: asks for ignore_eos, which vLLM, llama.cpp and our own server know. *out is malloc'd. */
dlab_status dlab_body_make(const dlab_body *b, const dlab_engine_request *r, int32_t sample, char **out,
                           dlab_error *err);

#endif

/* From messages to a prompt's ids, in the form that the model was trained on. A form is recognised from the model's own
 * template, whatever its layout; a template that says anything else is refused, never guessed.
 *
 * Control tokens come from the form alone: what a message says is encoded as text, whatever is written in it. */
#ifndef DLAB_HARNESS_SERVE_CHAT_TEMPLATE_H
#define DLAB_HARNESS_SERVE_CHAT_TEMPLATE_H

#include "engine/engine.h"

typedef struct dlab_chat_template dlab_chat_template;

typedef enum { DLAB_ROLE_SYSTEM, DLAB_ROLE_USER, DLAB_ROLE_ASSISTANT, DLAB_ROLE_N } dlab_chat_role;
extern const char *const dlab_chat_roles[]; /* "system", …; NULL-terminated */

typedef struct {
    dlab_chat_role role;
    const char *text; /* any bytes */
    size_t n;
} dlab_chat_message;

/* text: the Jinja template, NULL: the model has none. The tokenizer is borrowed. DLAB_ENOTBUILT: no template, one of no known
 * form, or one whose control strings are no control tokens of the vocabulary. */
dlab_status dlab_chat_template_create(const char *text, const dlab_tokenizer *tok, dlab_chat_template **out,
                                      dlab_error *err);
void dlab_chat_template_destroy(dlab_chat_template *t);
/* "ChatML", "Llama-2" or "Llama-3". */
const char *dlab_chat_template_form(const dlab_chat_template *t);
/* What is said before a conversation that begins with no system message; "": nothing. */
const char *dlab_chat_template_default_system(const dlab_chat_template *t);
/* The token that ends the assistant's turn. */
int32_t dlab_chat_template_end(const dlab_chat_template *t);
/* n ≥ 1 messages and the begin of the assistant's answer. *ids is malloc'd. DLAB_EUSAGE: the form cannot say these messages. */
dlab_status dlab_chat_template_apply(const dlab_chat_template *t, const dlab_chat_message *messages, size_t n,
                                     int32_t **ids, size_t *n_ids, dlab_error *err);

#endif

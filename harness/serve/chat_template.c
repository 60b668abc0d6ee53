#include "harness/serve/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/grow.h"
#include "harness/serve/jinja.h"

const char *const dlab_chat_roles[] = {"system", "user", "assistant", NULL};

typedef enum { FORM_CHATML, FORM_LLAMA2, FORM_LLAMA3 } chat_form;
static const char *const form_names[] = {"ChatML", "Llama-2", "Llama-3"};

#define MAX_SYSTEM 4096 /* bytes of a default system message */

struct dlab_chat_template {
    const dlab_tokenizer *tok;
    chat_form form;
    bool bos;                                     /* the text begins with it */
    int32_t begin, end, header_begin, header_end; /* control tokens of the form; −1: it has none of the kind */
    int32_t bos_id, eos_id;
    char default_system[MAX_SYSTEM + 1];
};

/* ---- recognition ---------------------------------------------------------------------------------------------------- */

#define ANY     "\001"
#define PROMPT2 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define TURN    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
#define TURN3                                                                                                          \
    "{% set loop_messages = messages %}{% for message in loop_messages %}"                                             \
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "                          \
    "message['content'] | trim + '<|eot_id|>' %}"                                                                      \
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
#define PROMPT3 "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"

/* Each form as it may be written. */
static const struct {
    chat_form form;
    const char *text;
} patterns[] = {
    {FORM_CHATML, "{% for message in messages %}" TURN "{% endfor %}" PROMPT2},
    {FORM_CHATML, "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
                  "{{ '<|im_start|>system\\n" ANY "<|im_end|>\\n' }}{% endif %}" TURN "{% endfor %}" PROMPT2},
    {FORM_LLAMA3, TURN3 "{% if add_generation_prompt %}" PROMPT3 "{% endif %}"},
    {FORM_LLAMA3, TURN3 PROMPT3},
    {FORM_LLAMA2,
     "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
     "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
     "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
     "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
     "{% if loop.index0 == 0 and system_message != false %}"
     "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
     "{% else %}{% set content = message['content'] %}{% endif %}"
     "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}"
     "{% elif message['role'] == 'assistant' %}{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"},
};

/* What may stand before a form and changes nothing, since a prompt for an answer is always wanted. */
static const char default_prompt[] =
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}";
static const char bos_first[] = "{{ bos_token }}";

static dlab_status skip(const dlab_jinja *t, const char *what, size_t *from, bool *there, dlab_error *err)
{
    dlab_jinja p;
    DLAB_TRY(dlab_jinja_read(what, strlen(what), &p, err));
    const size_t n = dlab_jinja_prefix(t, *from, &p);
    dlab_jinja_free(&p);
    *from += n;
    *there = n > 0;
    return DLAB_OK;
}

static dlab_status match(dlab_chat_template *t, const dlab_jinja *text, bool *known, dlab_error *err)
{
    size_t from = 0;
    bool there = false;
    DLAB_TRY(skip(text, default_prompt, &from, &there, err));
    DLAB_TRY(skip(text, bos_first, &from, &t->bos, err));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns && !*known; i++) {
        dlab_jinja p;
        const char *system = NULL;
        size_t n = 0;
        DLAB_TRY(dlab_jinja_read(patterns[i].text, strlen(patterns[i].text), &p, err));
        *known = dlab_jinja_match(text, from, &p, &system, &n) && n <= MAX_SYSTEM;
        if (*known) {
            t->form = patterns[i].form;
            if (n) memcpy(t->default_system, system, n);
        }
        dlab_jinja_free(&p);
    }
    if (t->bos && t->form != FORM_CHATML) *known = false; /* the other forms have theirs inside */
    return DLAB_OK;
}

/* The beginning of a template in one line, for a message. */
static const char *shown(const char *text, char buf[64])
{
    snprintf(buf, 64, "%s", text);
    for (char *c = buf; *c; c++) {
        if (*c < ' ' || *c > '~') *c = ' ';
    }
    return buf;
}

static dlab_status recognise(dlab_chat_template *t, const char *text, dlab_error *err)
{
    dlab_jinja j;
    char begin[64];
    bool known = false;
    if (!text)
        return DLAB_FAIL(err, DLAB_ENOTBUILT,
                         "the model brings no chat template (tokenizer.chat_template, of 64 KiB at most): "
                         "/v1/completions takes prompts as they are");
    dlab_status st = dlab_jinja_read(text, strlen(text), &j, err);
    if (st != DLAB_OK) return st == DLAB_EFORMAT ? DLAB_ENOTBUILT : st;
    st = match(t, &j, &known, err);
    dlab_jinja_free(&j);
    if (st == DLAB_OK && !known)
        st = DLAB_FAIL(err, DLAB_ENOTBUILT,
                       "the model's chat template (\"%s…\", %zu bytes) is not built; built are the forms ChatML, "
                       "Llama-2 and Llama-3: /v1/completions takes prompts as they are",
                       shown(text, begin), strlen(text));
    return st;
}

/* ---- control tokens ------------------------------------------------------------------------------------------------- */

static dlab_status control(const dlab_tokenizer *tok, const char *text, int32_t *id, dlab_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    DLAB_TRY(dlab_tokenizer_encode(tok, text, strlen(text), true, false, &ids, &n, err));
    *id = n == 1 && dlab_tokenizer_is_control(tok, ids[0]) ? ids[0] : -1;
    free(ids);
    if (*id < 0)
        return DLAB_FAIL(err, DLAB_ENOTBUILT,
                         "the chat template uses \"%s\", which is no control token of the model's vocabulary", text);
    return DLAB_OK;
}

static dlab_status find_tokens(dlab_chat_template *t, dlab_error *err)
{
    t->bos_id = dlab_tokenizer_bos(t->tok);
    t->eos_id = dlab_tokenizer_eos(t->tok);
    if ((t->bos || t->form != FORM_CHATML) && t->bos_id < 0)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "the chat template uses bos_token, which the model does not have");
    switch (t->form) {
    case FORM_CHATML:
        DLAB_TRY(control(t->tok, "<|im_start|>", &t->begin, err));
        return control(t->tok, "<|im_end|>", &t->end, err);
    case FORM_LLAMA3:
        DLAB_TRY(control(t->tok, "<|start_header_id|>", &t->header_begin, err));
        DLAB_TRY(control(t->tok, "<|end_header_id|>", &t->header_end, err));
        return control(t->tok, "<|eot_id|>", &t->end, err);
    case FORM_LLAMA2:
        t->end = t->eos_id;
        break;
    }
    return t->end >= 0
               ? DLAB_OK
               : DLAB_FAIL(err, DLAB_ENOTBUILT, "the chat template uses eos_token, which the model does not have");
}

dlab_status dlab_chat_template_create(const char *text, const dlab_tokenizer *tok, dlab_chat_template **out,
                                      dlab_error *err)
{
    *out = NULL;
    dlab_chat_template *t = calloc(1, sizeof *t);
    if (!t) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a chat template");
    t->tok = tok;
    t->begin = t->end = t->header_begin = t->header_end = -1;
    dlab_status st = recognise(t, text, err);
    if (st == DLAB_OK) st = find_tokens(t, err);
    if (st == DLAB_OK)
        *out = t;
    else
        dlab_chat_template_destroy(t);
    return st;
}

void dlab_chat_template_destroy(dlab_chat_template *t) { free(t); }
const char *dlab_chat_template_form(const dlab_chat_template *t) { return form_names[t->form]; }
const char *dlab_chat_template_default_system(const dlab_chat_template *t) { return t->default_system; }
int32_t dlab_chat_template_end(const dlab_chat_template *t) { return t->end; }

/* ---- writing a conversation ----------------------------------------------------------------------------------------- */

/* Ids, and text that waits to be encoded: what stands between two control tokens is encoded as one, as a tokenizer that saw
 * the whole text would do it. */
typedef struct {
    const dlab_tokenizer *tok;
    int32_t *ids;
    size_t n_ids, cap_ids;
    char *text;
    size_t n_text, cap_text;
} writer;

static dlab_status add_bytes(writer *w, const char *text, size_t n, dlab_error *err)
{
    if (n == 0) return DLAB_OK;
    char *grown = dlab_grow(w->text, w->n_text + n, &w->cap_text, 1);
    if (!grown) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a prompt of %zu bytes", w->n_text + n);
    w->text = grown;
    memcpy(w->text + w->n_text, text, n);
    w->n_text += n;
    return DLAB_OK;
}

static dlab_status add(writer *w, const char *text, dlab_error *err) { return add_bytes(w, text, strlen(text), err); }

static dlab_status add_ids(writer *w, const int32_t *ids, size_t n, dlab_error *err)
{
    if (n == 0) return DLAB_OK;
    int32_t *grown = dlab_grow(w->ids, w->n_ids + n, &w->cap_ids, sizeof *ids);
    if (!grown) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a prompt of %zu tokens", w->n_ids + n);
    w->ids = grown;
    memcpy(w->ids + w->n_ids, ids, n * sizeof *ids);
    w->n_ids += n;
    return DLAB_OK;
}

static dlab_status flush(writer *w, dlab_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (w->n_text == 0) return DLAB_OK;
    DLAB_TRY(dlab_tokenizer_encode(w->tok, w->text, w->n_text, false, false, &ids, &n, err));
    w->n_text = 0;
    dlab_status st = add_ids(w, ids, n, err);
    free(ids);
    return st;
}

static dlab_status add_id(writer *w, int32_t id, dlab_error *err)
{
    DLAB_TRY(flush(w, err));
    return add_ids(w, &id, 1, err);
}

/* What Python's str.strip takes for blank. */
static bool is_space(utf8proc_int32_t c)
{
    const utf8proc_property_t *p = utf8proc_get_property(c);
    return p->category == UTF8PROC_CATEGORY_ZS || p->bidi_class == UTF8PROC_BIDI_CLASS_WS ||
           p->bidi_class == UTF8PROC_BIDI_CLASS_B || p->bidi_class == UTF8PROC_BIDI_CLASS_S;
}

static dlab_chat_message trimmed(dlab_chat_message m)
{
    size_t begin = m.n, end = 0;
    for (size_t i = 0; i < m.n;) {
        utf8proc_int32_t c = -1;
        const utf8proc_ssize_t got =
            utf8proc_iterate((const utf8proc_uint8_t *)m.text + i, (utf8proc_ssize_t)(m.n - i), &c);
        const size_t len = got > 0 ? (size_t)got : 1;
        if (got <= 0 || !is_space(c)) {
            if (begin == m.n) begin = i;
            end = i + len;
        }
        i += len;
    }
    m.text += begin < end ? begin : 0;
    m.n = begin < end ? end - begin : 0;
    return m;
}

static dlab_status write_chatml(const dlab_chat_template *t, writer *w, const dlab_chat_message *m, size_t n,
                                dlab_error *err)
{
    if (t->bos) DLAB_TRY(add_id(w, t->bos_id, err));
    const dlab_chat_message system = {DLAB_ROLE_SYSTEM, t->default_system, strlen(t->default_system)};
    const bool extra = system.n > 0 && m[0].role != DLAB_ROLE_SYSTEM;
    for (size_t i = 0; i < n + extra; i++) {
        const dlab_chat_message *at = !extra ? &m[i] : i == 0 ? &system : &m[i - 1];
        DLAB_TRY(add_id(w, t->begin, err));
        DLAB_TRY(add(w, dlab_chat_roles[at->role], err));
        DLAB_TRY(add(w, "\n", err));
        DLAB_TRY(add_bytes(w, at->text, at->n, err));
        DLAB_TRY(add_id(w, t->end, err));
        DLAB_TRY(add(w, "\n", err));
    }
    DLAB_TRY(add_id(w, t->begin, err));
    return add(w, "assistant\n", err);
}

static dlab_status write_header3(const dlab_chat_template *t, writer *w, dlab_chat_role role, dlab_error *err)
{
    DLAB_TRY(add_id(w, t->header_begin, err));
    DLAB_TRY(add(w, dlab_chat_roles[role], err));
    DLAB_TRY(add_id(w, t->header_end, err));
    return add(w, "\n\n", err);
}

static dlab_status write_llama3(const dlab_chat_template *t, writer *w, const dlab_chat_message *m, size_t n,
                                dlab_error *err)
{
    DLAB_TRY(add_id(w, t->bos_id, err));
    for (size_t i = 0; i < n; i++) {
        const dlab_chat_message text = trimmed(m[i]);
        DLAB_TRY(write_header3(t, w, m[i].role, err));
        DLAB_TRY(add_bytes(w, text.text, text.n, err));
        DLAB_TRY(add_id(w, t->end, err));
    }
    return write_header3(t, w, DLAB_ROLE_ASSISTANT, err);
}

/* The marks of this form are text and no tokens: in a message nothing would tell them from the form's own. */
static dlab_status check_llama2(const dlab_chat_message *m, size_t n, dlab_error *err)
{
    static const char *const marks[] = {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"};
    const bool system = m[0].role == DLAB_ROLE_SYSTEM;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
            if (memmem(m[i].text, m[i].n, marks[k], strlen(marks[k])))
                return DLAB_FAIL(err, DLAB_EUSAGE,
                                 "messages[%zu] holds \"%s\", which the Llama-2 form cannot tell from its own marks", i,
                                 marks[k]);
        }
        const dlab_chat_role want = system && i == 0        ? DLAB_ROLE_SYSTEM
                                    : (i - system) % 2 == 0 ? DLAB_ROLE_USER
                                                            : DLAB_ROLE_ASSISTANT;
        if (m[i].role != want)
            return DLAB_FAIL(err, DLAB_EUSAGE,
                             "messages[%zu] has the role %s: in the Llama-2 form user and assistant alternate, a "
                             "system message only begins",
                             i, dlab_chat_roles[m[i].role]);
    }
    if (m[n - 1].role != DLAB_ROLE_USER)
        return DLAB_FAIL(err, DLAB_EUSAGE, "the last message must be the user's in the Llama-2 form");
    return DLAB_OK;
}

/* The system message becomes a part of the user's first, and both are trimmed as one. */
static dlab_status join_system(const dlab_chat_message *m, writer *joined, dlab_error *err)
{
    DLAB_TRY(add(joined, "<<SYS>>\n", err));
    DLAB_TRY(add_bytes(joined, m[0].text, m[0].n, err));
    DLAB_TRY(add(joined, "\n<</SYS>>\n\n", err));
    return add_bytes(joined, m[1].text, m[1].n, err);
}

static dlab_status write_llama2(const dlab_chat_template *t, writer *w, const dlab_chat_message *m, size_t n,
                                dlab_error *err)
{
    DLAB_TRY(check_llama2(m, n, err));
    const bool system = m[0].role == DLAB_ROLE_SYSTEM;
    writer joined = {0};
    dlab_status st = system ? join_system(m, &joined, err) : DLAB_OK;
    for (size_t i = system; i < n && st == DLAB_OK; i++) {
        const bool user = m[i].role == DLAB_ROLE_USER;
        dlab_chat_message text = m[i];
        if (system && i == 1) text = (dlab_chat_message){DLAB_ROLE_USER, joined.text, joined.n_text};
        text = trimmed(text);
        if (user) st = add_id(w, t->bos_id, err);
        if (st == DLAB_OK) st = add(w, user ? "[INST] " : " ", err);
        if (st == DLAB_OK) st = add_bytes(w, text.text, text.n, err);
        if (st == DLAB_OK) st = add(w, user ? " [/INST]" : " ", err);
        if (st == DLAB_OK && !user) st = add_id(w, t->eos_id, err);
    }
    free(joined.text);
    return st;
}

dlab_status dlab_chat_template_apply(const dlab_chat_template *t, const dlab_chat_message *messages, size_t n,
                                     int32_t **ids, size_t *n_ids, dlab_error *err)
{
    static dlab_status (*const write[])(const dlab_chat_template *, writer *, const dlab_chat_message *, size_t,
                                        dlab_error *) = {write_chatml, write_llama2, write_llama3};
    writer w = {.tok = t->tok};
    dlab_status st = write[t->form](t, &w, messages, n, err);
    if (st == DLAB_OK) st = flush(&w, err);
    *ids = st == DLAB_OK ? w.ids : NULL;
    *n_ids = st == DLAB_OK ? w.n_ids : 0;
    if (st != DLAB_OK) free(w.ids);
    free(w.text);
    return st;
}

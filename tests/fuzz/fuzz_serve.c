/* Bodies of requests, chat templates, and what tokens say. The first byte of the input chooses. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "harness/serve/api.h"
#include "tests/engine/tiny_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const words[] = {"<|im_start|>", "<|im_end|>", "<s>", NULL};
static const int types[] = {3, 3, 3, 0};
static const char *const merges[] = {"a a", NULL};
static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static dlab_tokenizer *make_tokenizer(void)
{
    gguf_writer w;
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    tiny_build(&w, &(tiny_options){.pre = "gpt-2", .tokens = words, .types = types, .merges = merges, .bytes = true});
    if (dlab_model_from_memory("tiny.gguf", w.data, w.n, &m, NULL) != DLAB_OK) abort();
    if (dlab_tokenizer_create(m, &t, NULL) != DLAB_OK) abort();
    dlab_model_close(m);
    gw_free(&w);
    return t;
}

static void read_body(dlab_api *api, bool chat, const char *body, size_t n)
{
    dlab_question q;
    dlab_api_error e = {0};
    if (dlab_api_read(api, chat, body, n, &q, &e) == DLAB_OK) {
        for (size_t i = 0; i < q.ask.n_prompts; i++) {
            const dlab_prompt *p = &q.ask.prompts[i];
            if (p->n < 1 || p->max_new < 1 || p->n + p->max_new > api->context) abort();
        }
        dlab_question_free(&q);
        return;
    }
    char *text = dlab_api_error_json(&e);
    if (!text || e.status < 400 || !*e.message || strchr(text, '\n')) abort();
    free(text);
}

/* However it is cut, a text comes out the same, and never a stop string. */
static void read_answer(const char *bytes, size_t n)
{
    dlab_stops stops = {0};
    dlab_answer_text whole = {0}, parts = {0};
    const size_t n_stop = n > 2 ? 1 + (size_t)(unsigned char)bytes[0] % 3 : 0;
    if (n_stop > 0 && n_stop < n) {
        for (size_t i = 0; i < n_stop; i++) {
            if ((unsigned char)bytes[1 + i] >= 0x80) return; /* the API's strings are UTF-8 */
        }
        if (dlab_stops_add(&stops, bytes + 1, n_stop, NULL) != DLAB_OK) abort();
    }
    if (dlab_answer_text_add(&whole, &stops, bytes, n, NULL) != DLAB_OK) abort();
    for (size_t i = 0; i < n; i++) {
        if (dlab_answer_text_add(&parts, &stops, bytes + i, 1, NULL) != DLAB_OK) abort();
    }
    dlab_answer_text_end(&whole);
    dlab_answer_text_end(&parts);
    if (whole.n != parts.n || (whole.n && memcmp(whole.text, parts.text, whole.n) != 0)) abort();
    if (stops.count && whole.n && memmem(whole.text, whole.n, stops.text[0], stops.n[0])) abort();
    dlab_answer_text_free(&whole);
    dlab_answer_text_free(&parts);
    dlab_stops_free(&stops);
}

static void read_template(const dlab_tokenizer *tok, const char *bytes, size_t n)
{
    dlab_chat_template *t = NULL;
    char *text = strndup(bytes, n);
    if (!text) abort();
    if (dlab_chat_template_create(text, tok, &t, NULL) == DLAB_OK) {
        const dlab_chat_message m = {DLAB_ROLE_USER, bytes, n};
        int32_t *ids = NULL;
        size_t n_ids = 0;
        if (dlab_chat_template_apply(t, &m, 1, &ids, &n_ids, NULL) == DLAB_OK && n_ids == 0) abort();
        free(ids);
    }
    dlab_chat_template_destroy(t);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static dlab_api api = {
        .model = "tiny", .context = 4096, .max_text = 1 << 16, .queue = 64, .batch_size = 8, .top_p = 1};
    static dlab_chat_template *chat;
    if (!chat) {
        dlab_tokenizer *tok = make_tokenizer();
        if (dlab_chat_template_create(chatml, tok, &chat, NULL) != DLAB_OK) abort();
        api.tok = tok;
        api.chat = chat;
    }
    if (n == 0) return 0;
    const char *rest = (const char *)data + 1;
    switch (data[0] & 3) {
    case 0:
        read_body(&api, false, rest, n - 1);
        break;
    case 1:
        read_body(&api, true, rest, n - 1);
        break;
    case 2:
        read_answer(rest, n - 1);
        break;
    default:
        read_template(api.tok, rest, n - 1);
        break;
    }
    return 0;
}

/* Any bytes as a trace, as prompts, as conversations or as lengths: requests within their bounds whose data is there, or an
 * error in one line. The first byte of the input chooses. */
#include <stdint.h>
#include <stdlib.h>

#include "harness/workload/workload_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static dlab_tokenizer *make_tokenizer(void)
{
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    if (dlab_model_open("synthetic:tiny", &m, NULL) != DLAB_OK) abort();
    if (dlab_tokenizer_create(m, &t, NULL) != DLAB_OK) abort();
    dlab_model_close(m);
    return t;
}

static void check(const dlab_file_requests *t, const dlab_workload *w)
{
    int64_t conversations = 0, last = 0;
    if (t->n == 0) abort();
    for (size_t i = 0; i < t->n; i++) {
        const dlab_file_request *r = &t->items[i];
        const size_t held = t->hashes ? t->n_hashes : t->n_ids;
        conversations += !r->later;
        if (r->prompt < 1 || r->prompt > DLAB_LENGTH_MAX || r->output < 0 || r->output > DLAB_LENGTH_MAX) abort();
        if (r->line < 1 || r->arrival_ns < last || (i == 0 && r->later)) abort();
        if (r->n_data < 0 || r->data < 0 || (size_t)(r->data + r->n_data) > held) abort();
        if (t->hashes && r->n_data > 0 && r->n_data * DLAB_TRACE_BLOCK < r->prompt) abort();
        last = r->arrival_ns;
    }
    if (conversations != t->conversations || (w->requests > 0 && conversations > w->requests)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static dlab_tokenizer *tok;
    static dlab_workload w;
    if (!tok) {
        size_t rows;
        const dlab_param *table = dlab_workload_params(&rows);
        dlab_param_defaults(table, rows, &w);
        tok = make_tokenizer();
    }
    if (n == 0) return 0;
    const char *text = (const char *)data + 1;
    const int64_t max = data[0] >> 4; /* 0: all */
    dlab_file_requests file = {0};
    dlab_error err = {0};
    dlab_status st;
    w.turns = 1 + (data[0] >> 2) % 4;
    w.requests = max;
    switch (data[0] % 4) {
    case 0:
        st = dlab_trace_read(&w, text, n - 1, max, &file, &err);
        break;
    case 1:
        st = dlab_jsonl_read(&w, tok, text, n - 1, max, &file, &err);
        break;
    case 2:
        st = dlab_sharegpt_read(&w, tok, text, n - 1, max, &file, &err);
        break;
    default:
        w.requests = 0; /* lines are all read: they are used again from the start */
        st = dlab_lengths_read("lengths", max > 0, text, n - 1, &file, &err);
    }
    if (st == DLAB_OK) {
        check(&file, &w);
    } else if (err.msg[0] == 0 || strchr(err.msg, '\n')) {
        abort();
    }
    dlab_file_requests_free(&file);
    return 0;
}

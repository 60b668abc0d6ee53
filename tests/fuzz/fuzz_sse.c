/* Any bytes as a streamed answer, in any pieces: tokens in order and no more than were told of, or an error in one line. The
 * first byte says how long the pieces are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/remote/answer.h"
#include "harness/remote/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct {
    dlab_answer answer;
    int64_t now_ns;
} reader;

static dlab_status take(void *ctx, const char *text, size_t n, dlab_error *err)
{
    reader *r = ctx;
    if (text[n] != 0) abort();
    return dlab_answer_event(&r->answer, text, n, r->now_ns, err);
}

static void check_tokens(const dlab_answer *a)
{
    dlab_answer_tokens list = {0};
    int64_t total = 0;
    if (dlab_answer_count(a, NULL, &list, &total, NULL) != DLAB_OK) abort();
    if (total >= 0 && (int64_t)list.n > total) abort();
    for (size_t i = 1; i < list.n; i++)
        if (list.items[i].index <= list.items[i - 1].index || list.items[i].t_ns < list.items[i - 1].t_ns) abort();
    free(list.items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    reader r = {0};
    dlab_sse s = {0};
    dlab_error err = {0};
    dlab_status st = DLAB_OK;
    const size_t piece = n ? 1 + data[0] : 1;
    dlab_answer_reset(&r.answer);
    for (size_t at = 1; st == DLAB_OK && at < n; at += piece, r.now_ns++)
        st = dlab_sse_feed(&s, (const char *)data + at, piece < n - at ? piece : n - at, take, &r, &err);
    if (st == DLAB_OK) st = dlab_sse_end(&s, take, &r, &err);
    if (st != DLAB_OK && (err.msg[0] == 0 || strchr(err.msg, '\n'))) abort();
    check_tokens(&r.answer);
    dlab_answer_free(&r.answer);
    dlab_sse_free(&s);
    return 0;
}

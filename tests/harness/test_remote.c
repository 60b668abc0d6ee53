/* Streams of completions, from bytes to tokens: what an event is, which chunk was which token, what a request says. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "harness/remote/answer.h"
#include "harness/remote/body.h"
#include "harness/remote/server.h"
#include "harness/remote/sse.h"

/* ---- events --------------------------------------------------------------------------------------------------------------- */

typedef struct {
    char text[256];
    int n;
} events;

static dlab_status keep(void *ctx, const char *data, size_t n, dlab_error *err)
{
    events *e = ctx;
    ck_assert_uint_eq(strlen(data), n);
    if (strcmp(data, "stop") == 0) return DLAB_FAIL(err, DLAB_EFORMAT, "told to");
    snprintf(e->text + strlen(e->text), sizeof e->text - strlen(e->text), "<%s>", data);
    e->n++;
    return DLAB_OK;
}

/* The same events whatever the pieces. */
static void expect_events(const char *bytes, const char *expected)
{
    const size_t n = strlen(bytes);
    for (size_t piece = 1; piece <= n; piece++) {
        dlab_sse s = {0};
        events e = {0};
        for (size_t at = 0; at < n; at += piece) {
            const size_t take = piece < n - at ? piece : n - at;
            ck_assert_int_eq(dlab_sse_feed(&s, bytes + at, take, keep, &e, NULL), DLAB_OK);
        }
        ck_assert_int_eq(dlab_sse_end(&s, keep, &e, NULL), DLAB_OK);
        ck_assert_str_eq(e.text, expected);
        dlab_sse_free(&s);
    }
}

START_TEST(events_do_not_depend_on_pieces)
{
    expect_events("data: one\n\ndata: two\n\n", "<one><two>");
    expect_events("data: one\r\n\r\ndata:two\r\n\r\n", "<one><two>");
    expect_events("data: one\r\rdata:  two\r\r", "<one>< two>");
    expect_events(": a comment\nid: 7\nevent: x\ndata: one\ndata: more\nretry: 5\n\n\n\n", "<one\nmore>");
    expect_events("\xEF\xBB\xBF"
                  "data: one\n\ndatum: two\n\ndata\n\n",
                  "<one><>");
    expect_events("data: one\n\ndata: the last, with nothing behind", "<one><the last, with nothing behind>");
    expect_events("", "");
    expect_events("\n\n\n", "");
}
END_TEST

START_TEST(what_an_event_says_ends_the_reading)
{
    dlab_sse s = {0};
    events e = {0};
    dlab_error err = {0};
    const char *bytes = "data: a\n\ndata: stop\n\ndata: b\n\n";
    ck_assert_int_eq(dlab_sse_feed(&s, bytes, strlen(bytes), keep, &e, &err), DLAB_EFORMAT);
    ck_assert_str_eq(err.msg, "told to");
    ck_assert_str_eq(e.text, "<a>");
    dlab_sse_free(&s);
}
END_TEST

START_TEST(a_line_without_an_end_is_refused)
{
    dlab_sse s = {0};
    events e = {0};
    dlab_error err = {0};
    char piece[4096];
    size_t fed = 0;
    memset(piece, 'x', sizeof piece);
    dlab_status st = DLAB_OK;
    while (st == DLAB_OK && fed <= 2 * DLAB_SSE_EVENT_MAX) {
        st = dlab_sse_feed(&s, piece, sizeof piece, keep, &e, &err);
        fed += sizeof piece;
    }
    ck_assert_int_eq(st, DLAB_EFORMAT);
    ck_assert_uint_eq(fed, DLAB_SSE_EVENT_MAX + sizeof piece);
    dlab_sse_free(&s);
}
END_TEST

/* ---- tokens --------------------------------------------------------------------------------------------------------------- */

static void tell(dlab_answer *a, const char *data, int64_t t_ns)
{
    dlab_error err = {0};
    ck_assert_msg(dlab_answer_event(a, data, strlen(data), t_ns, &err) == DLAB_OK, "%s", err.msg);
}

/* "index@time …" of the tokens whose time is known, and how many there are. */
static void expect_tokens(const dlab_answer *a, const dlab_tokenizer *t, const char *expected, int64_t total)
{
    dlab_answer_tokens list = {0};
    int64_t found = 0;
    char text[512] = "";
    ck_assert_int_eq(dlab_answer_count(a, t, &list, &found, NULL), DLAB_OK);
    for (size_t i = 0; i < list.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d@%lld", i ? " " : "", list.items[i].index,
                 (long long)list.items[i].t_ns);
    ck_assert_str_eq(text, expected);
    ck_assert_int_eq(found, total);
    free(list.items);
}

static const char usage3[] = "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
                             "\"prompt_tokens_details\":{\"cached_tokens\":4}}}";

START_TEST(chunks_are_tokens_where_usage_agrees)
{
    dlab_answer a = {0};
    dlab_answer_reset(&a);
    tell(&a, "{\"choices\":[{\"text\":\"a\"}]}", 10);
    tell(&a, "{\"choices\":[{\"text\":\"\"}]}", 15); /* no text, no token */
    tell(&a, "{\"choices\":[{\"text\":\"b\"}]}", 20);
    tell(&a, "{\"choices\":[{\"text\":\"c\",\"finish_reason\":\"length\"}]}", 30);
    tell(&a, usage3, 40);
    ck_assert(!a.done);
    tell(&a, "[DONE]", 41);
    ck_assert(a.done);
    ck_assert_int_eq(a.finish, DLAB_FINISH_LENGTH);
    ck_assert_int_eq(a.prompt_tokens, 9);
    ck_assert_int_eq(a.cached_tokens, 4);
    expect_tokens(&a, NULL, "0@10 1@20 2@30", 3);
    dlab_answer_free(&a);
}
END_TEST

START_TEST(a_chat_streams_deltas)
{
    dlab_answer a = {0};
    dlab_answer_reset(&a);
    tell(&a, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", 5);
    tell(&a, "{\"choices\":[{\"delta\":{\"content\":null,\"reasoning_content\":\"hm\"}}]}", 10);
    tell(&a, "{\"choices\":[{\"delta\":{\"content\":\"yes\"},\"finish_reason\":null}]}", 20);
    /* the end-of-text token has no text: counted, because usage says so */
    tell(&a, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", 30);
    tell(&a, usage3, 31);
    ck_assert_int_eq(a.finish, DLAB_FINISH_EOS);
    expect_tokens(&a, NULL, "0@10 1@20 2@30", 3);
    dlab_answer_free(&a);
}
END_TEST

START_TEST(an_empty_last_chunk_is_no_token_of_a_full_answer)
{
    dlab_answer a = {0};
    dlab_answer_reset(&a);
    tell(&a, "{\"choices\":[{\"text\":\"a\"}]}", 10);
    tell(&a, "{\"choices\":[{\"text\":\"bc\"}]}", 20);
    tell(&a, "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}", 30);
    tell(&a, usage3, 31);
    /* two chunks for three tokens: only the ends are known; the last token cannot have come after the text */
    expect_tokens(&a, NULL, "0@10 2@30", 3);
    dlab_answer_free(&a);
}
END_TEST

/* The synthetic model has a token for each byte. */
START_TEST(a_tokenizer_tells_which_chunk_had_which_tokens)
{
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    dlab_answer a = {0};
    ck_assert_int_eq(dlab_model_open("synthetic:tiny", &m, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_tokenizer_create(m, &t, NULL), DLAB_OK);
    dlab_answer_reset(&a);
    tell(&a, "{\"choices\":[{\"text\":\"ab\"}]}", 10);
    tell(&a, "{\"choices\":[{\"text\":\"c\"}]}", 20);
    tell(&a, "{\"choices\":[{\"text\":\"def\",\"finish_reason\":\"length\"}]}", 30);
    expect_tokens(&a, NULL, "0@10", -1); /* nobody tells how many */
    expect_tokens(&a, t, "0@10 1@10 2@20 3@30 4@30 5@30", 6);
    a.new_tokens = 7; /* one without text: it came with the last chunk */
    expect_tokens(&a, t, "0@10 1@10 2@20 3@30 4@30 5@30 6@30", 7);
    expect_tokens(&a, NULL, "0@10 6@30", 7);
    a.new_tokens = 4; /* the server's count is the count: six ids stand for four tokens */
    expect_tokens(&a, t, "0@10 1@20 2@30 3@30", 4);
    a.new_tokens = 2;
    expect_tokens(&a, t, "0@10 1@30", 2);
    a.new_tokens = 3;
    expect_tokens(&a, t, "0@10 1@20 2@30", 3);

    dlab_answer_tokens list = {0};
    int64_t total = 0;
    ck_assert_int_eq(dlab_answer_count(&a, t, &list, &total, NULL), DLAB_OK);
    ck_assert_int_eq(list.items[0].token, 'a');
    ck_assert_int_eq(list.items[2].token, 'c');
    free(list.items);
    dlab_answer_free(&a);
    dlab_tokenizer_destroy(t);
    dlab_model_close(m);
}
END_TEST

START_TEST(answers_without_text)
{
    dlab_answer a = {0};
    dlab_answer_reset(&a);
    tell(&a, "[DONE]", 10);
    expect_tokens(&a, NULL, "", -1);
    dlab_answer_reset(&a);
    tell(&a, "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":0}}", 10);
    expect_tokens(&a, NULL, "", 0);
    dlab_answer_reset(&a);
    tell(&a, "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":1}}", 10);
    expect_tokens(&a, NULL, "0@10", 1);
    dlab_answer_free(&a);
}
END_TEST

START_TEST(what_is_no_completion_is_refused)
{
    static const char *const bad[] = {"{\"choices\": [oops",
                                      "7",
                                      "\"text\"",
                                      "[]",
                                      "",
                                      "{\"error\":{\"message\":\"no blocks\"}}",
                                      "{\"error\":\"no blocks\"}",
                                      "{\"object\":\"error\",\"message\":\"no blocks\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlab_answer a = {0};
        dlab_error err = {0};
        dlab_answer_reset(&a);
        ck_assert_int_eq(dlab_answer_event(&a, bad[i], strlen(bad[i]), 1, &err), DLAB_EFORMAT);
        ck_assert(err.msg[0] && !strchr(err.msg, '\n'));
        if (i > 4) ck_assert(strstr(err.msg, "no blocks"));
        dlab_answer_free(&a);
    }
}
END_TEST

/* Numbers that cannot be are none. */
START_TEST(usage_is_not_believed_blindly)
{
    dlab_answer a = {0};
    dlab_answer_reset(&a);
    tell(&a, "{\"usage\":{\"completion_tokens\":-3,\"prompt_tokens\":1e3}}", 1);
    tell(&a, "{\"usage\":{\"completion_tokens\":999999999999}}", 1);
    tell(&a, "{\"usage\":[1,2]}", 1);
    ck_assert_int_eq(a.new_tokens, -1);
    ck_assert_int_eq(a.prompt_tokens, -1);
    dlab_answer_free(&a);
}
END_TEST

/* ---- requests ------------------------------------------------------------------------------------------------------------- */

static json_t *body_of(const dlab_remote *remote, const dlab_plan *plan, const dlab_engine_request *r, int32_t sample)
{
    dlab_body b;
    char *text = NULL;
    json_t *j = NULL;
    dlab_error err = {0};
    ck_assert_msg(dlab_body_init(&b, remote, "m", plan, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(dlab_body_make(&b, r, sample, &text, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_json_parse("body", text, strlen(text), &j, NULL), DLAB_OK);
    free(text);
    dlab_body_free(&b);
    return j;
}

static int64_t whole(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    ck_assert_msg(json_is_integer(v), "%s", key);
    return json_integer_value(v);
}

/* Words of which one names an end; any other is that of an answer that was not served. */
START_TEST(only_known_reasons_end_an_answer)
{
    static const struct {
        const char *word;
        dlab_finish finish;
    } served[] = {{"length", DLAB_FINISH_LENGTH},
                  {"stop", DLAB_FINISH_EOS},
                  {"tool_calls", DLAB_FINISH_EOS},
                  {"content_filter", DLAB_FINISH_EOS},
                  {"", DLAB_FINISH_NONE}};
    static const char *const broken[] = {"abort", "error", "cancelled", "lengthy"};
    char text[128];
    for (size_t i = 0; i < sizeof served / sizeof *served; i++) {
        dlab_answer a = {0};
        dlab_answer_reset(&a);
        snprintf(text, sizeof text, "{\"choices\":[{\"text\":\"x\",\"finish_reason\":\"%s\"}]}", served[i].word);
        tell(&a, text, 1);
        ck_assert_int_eq(a.finish, served[i].finish);
        dlab_answer_free(&a);
    }
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        dlab_answer a = {0};
        dlab_error err = {0};
        dlab_answer_reset(&a);
        snprintf(text, sizeof text, "{\"choices\":[{\"text\":\"x\",\"finish_reason\":\"%s\"}]}", broken[i]);
        ck_assert_int_eq(dlab_answer_event(&a, text, strlen(text), 1, &err), DLAB_EFORMAT);
        ck_assert_ptr_nonnull(strstr(err.msg, broken[i]));
        dlab_answer_free(&a);
    }
}
END_TEST

START_TEST(a_request_says_what_is_asked)
{
    static const int32_t ids[] = {256, 257, 258};
    const dlab_engine_request r = {.prompt = ids, .n_prompt = 3, .max_new = 12, .eos = -1, .seed = 5};
    dlab_remote remote = {.endpoint = "completions", .prompt_as = "ids", .extra = "{\"x\": [1], \"temperature\": 3}"};
    dlab_plan plan;
    dlab_plan_default(&plan);
    plan.temperature = 0;
    json_t *j = body_of(&remote, &plan, &r, 0);
    ck_assert_int_eq(whole(j, "max_tokens"), 12);
    ck_assert(json_is_true(json_object_get(j, "ignore_eos")));
    ck_assert(json_is_true(json_object_get(j, "stream")));
    ck_assert(json_is_true(json_object_get(json_object_get(j, "stream_options"), "include_usage")));
    ck_assert_uint_eq(json_array_size(json_object_get(j, "prompt")), 3);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(j, "prompt"), 2)), 258);
    ck_assert_ptr_null(json_object_get(j, "seed")); /* greedy */
    ck_assert_ptr_null(json_object_get(j, "top_p"));
    ck_assert_int_eq(whole(j, "temperature"), 3); /* extra members win */
    json_decref(j);
    remote.extra = "{\"max_tokens\": 7, \"ignore_eos\": 3, \"prompt\": 4}"; /* over what is a request's own, too */
    j = body_of(&remote, &plan, &r, 0);
    ck_assert_int_eq(whole(j, "max_tokens"), 7);
    ck_assert_int_eq(whole(j, "ignore_eos"), 3);
    ck_assert_int_eq(whole(j, "prompt"), 4);
    json_decref(j);

    dlab_engine_request sampled = r;
    sampled.eos = 2;
    sampled.seed = (UINT64_C(1) << 40) + 7;
    remote.extra = NULL;
    plan.temperature = 0.5;
    plan.top_k = 40;
    j = body_of(&remote, &plan, &sampled, 3);
    ck_assert_ptr_null(json_object_get(j, "ignore_eos"));
    ck_assert_int_eq(whole(j, "seed"), 10);
    ck_assert_int_eq(whole(j, "top_k"), 40);
    json_decref(j);
}
END_TEST

START_TEST(prompts_as_text_need_a_tokenizer)
{
    static const int32_t ids[] = {'h', 'i', 0, 0xff};
    const dlab_engine_request r = {.prompt = ids, .n_prompt = 4, .max_new = 1, .eos = -1};
    dlab_remote remote = {.endpoint = "chat", .prompt_as = "ids"};
    dlab_plan plan;
    dlab_body b;
    dlab_error err = {0};
    dlab_model *m = NULL;
    dlab_tokenizer *t = NULL;
    dlab_plan_default(&plan);
    ck_assert_int_eq(dlab_body_init(&b, &remote, "m", &plan, &err), DLAB_EUSAGE);
    ck_assert(strstr(err.msg, "-m MODEL"));
    dlab_body_free(&b);

    ck_assert_int_eq(dlab_model_open("synthetic:tiny", &m, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_tokenizer_create(m, &t, NULL), DLAB_OK);
    remote.tokenizer = t;
    json_t *j = body_of(&remote, &plan, &r, 0), *message = json_array_get(json_object_get(j, "messages"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(message, "role")), "user");
    ck_assert_str_eq(json_string_value(json_object_get(message, "content")), "hi ?"); /* no NUL, no broken UTF-8 */
    json_decref(j);
    dlab_tokenizer_destroy(t);
    dlab_model_close(m);
}
END_TEST

static void expect_endpoint(const char *url, const char *endpoint, const char *expected)
{
    dlab_server s;
    const dlab_remote remote = {.url = url, .endpoint = endpoint};
    ck_assert_int_eq(dlab_server_init(&s, &remote, NULL), DLAB_OK);
    ck_assert_str_eq(s.endpoint, expected);
    dlab_server_free(&s);
}

START_TEST(urls)
{
    expect_endpoint("http://127.0.0.1:8080", "completions", "http://127.0.0.1:8080/v1/completions");
    expect_endpoint("http://127.0.0.1:8080/", "chat", "http://127.0.0.1:8080/v1/chat/completions");
    expect_endpoint("http://127.0.0.1:8080/v1", "completions", "http://127.0.0.1:8080/v1/completions");
    expect_endpoint("https://a.example/deep/v3/", "completions", "https://a.example/deep/v3/completions");
    expect_endpoint("http://u:p%40x@127.0.0.1:8080", "completions", "http://127.0.0.1:8080/v1/completions");
    static const char *const bad[] = {"",           "http://", "ftp://x",    "http:///x",  "http://:8",
                                      "http://a b", "engine",  "http://x?y", "http://u:p@"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) ck_assert_msg(!dlab_server_is_url(bad[i]), "%s", bad[i]);
    dlab_server s;
    dlab_error err = {0};
    const dlab_remote login = {.url = "http://u:p%40x@localhost/a@b"};
    ck_assert_int_eq(dlab_server_init(&s, &login, &err), DLAB_OK);
    ck_assert_str_eq(s.login, "u:p@x");
    ck_assert_str_eq(s.base, "http://localhost/a@b");
    ck_assert(s.loopback);
    dlab_server_free(&s);
    const dlab_remote keyed = {.url = "http://x", .api_key = "a\r\nHost: b"};
    ck_assert_int_eq(dlab_server_init(&s, &keyed, &err), DLAB_EUSAGE); /* no headers of the key's making */
    dlab_server_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("remote");
    TCase *c = tcase_create("remote");
    tcase_add_test(c, events_do_not_depend_on_pieces);
    tcase_add_test(c, what_an_event_says_ends_the_reading);
    tcase_add_test(c, a_line_without_an_end_is_refused);
    tcase_add_test(c, chunks_are_tokens_where_usage_agrees);
    tcase_add_test(c, a_chat_streams_deltas);
    tcase_add_test(c, an_empty_last_chunk_is_no_token_of_a_full_answer);
    tcase_add_test(c, a_tokenizer_tells_which_chunk_had_which_tokens);
    tcase_add_test(c, answers_without_text);
    tcase_add_test(c, what_is_no_completion_is_refused);
    tcase_add_test(c, usage_is_not_believed_blindly);
    tcase_add_test(c, only_known_reasons_end_an_answer);
    tcase_add_test(c, a_request_says_what_is_asked);
    tcase_add_test(c, prompts_as_text_need_a_tokenizer);
    tcase_add_test(c, urls);
    suite_add_tcase(suite, c);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

/* What the API takes and what it refuses by name, and how it writes answers. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/serve/api.h"

static dlab_model *model;
static dlab_tokenizer *tok;

static dlab_api api_of(void)
{
    return (dlab_api){.model = "tiny",
                      .tok = tok,
                      .chat_refusal = "the template of this model is strange",
                      .context = 64,
                      .max_text = 64,
                      .queue = 32,
                      .batch_size = 8,
                      .temperature = 0.25F,
                      .top_p = 0.5F,
                      .top_k = 3,
                      .seed = 7};
}

static void read_ok(dlab_api *api, const char *body, dlab_question *q)
{
    dlab_api_error e = {0};
    ck_assert_msg(dlab_api_read(api, false, body, strlen(body), q, &e) == DLAB_OK, "%s: %s", body, e.message);
}

/* Refused with this status, for this parameter, in one line that says `word`. */
static void refused_as(bool chat, const char *body, size_t n, int status, const char *param, const char *word)
{
    dlab_api api = api_of();
    dlab_question q;
    dlab_api_error e = {0};
    ck_assert_msg(dlab_api_read(&api, chat, body, n, &q, &e) != DLAB_OK, "%s: taken", body);
    ck_assert_msg(e.status == status, "%s: %d: %s", body, e.status, e.message);
    ck_assert_str_eq(e.param, param);
    ck_assert_msg(strstr(e.message, word) != NULL, "%s: \"%s\" does not say \"%s\"", body, e.message, word);
    ck_assert_ptr_null(strchr(e.message, '\n'));
    char *text = dlab_api_error_json(&e);
    json_t *j = json_loads(text, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(j, "error"), "message")), e.message);
    json_decref(j);
    free(text);
}
static void refused(const char *body, const char *param, const char *word)
{
    refused_as(false, body, strlen(body), 400, param, word);
}

START_TEST(what_is_not_said_is_the_servers)
{
    dlab_api api = api_of();
    dlab_question q, r;
    read_ok(&api, "{\"prompt\": \"Hi\"}", &q);
    ck_assert_uint_eq(q.ask.n_prompts, 1);
    ck_assert_int_eq(q.ask.prompts[0].n, 2);
    ck_assert_int_eq(q.ask.prompts[0].ids[0], 'H');
    ck_assert_int_eq(q.ask.prompts[0].max_new, 16);
    ck_assert_int_eq(q.ask.samples, 1);
    ck_assert(q.ask.temperature == 0.25F && q.ask.top_p == 0.5F && q.ask.top_k == 3);
    ck_assert(!q.stream && q.ask.whole);
    read_ok(&api, "{\"prompt\": \"Hi\"}", &r); /* each has a seed and a name of its own */
    ck_assert(q.ask.seed != r.ask.seed);
    ck_assert_str_ne(q.id, r.id);
    dlab_question_free(&q);
    dlab_question_free(&r);
    api.max_tokens = 100; /* no more than the context holds */
    read_ok(&api, "{\"prompt\": \"Hi\"}", &q);
    ck_assert_int_eq(q.ask.prompts[0].max_new, 62);
    dlab_question_free(&q);
}
END_TEST

START_TEST(all_that_is_said_is_taken)
{
    dlab_api api = api_of();
    dlab_question q;
    read_ok(&api,
            "{\"model\": \"tiny\", \"prompt\": [[1, 2, 3], [255]], \"n\": 2, \"max_tokens\": 5, \"temperature\": 2, "
            "\"top_p\": 0.9, \"top_k\": -1, \"seed\": 11, \"stop\": [\"a\", \"bc\"], \"stream\": true, "
            "\"stream_options\": {\"include_usage\": true}, \"ignore_eos\": true, \"user\": \"u\", \"logprobs\": null, "
            "\"echo\": false, \"presence_penalty\": 0.0, \"logit_bias\": {}, \"best_of\": 1}",
            &q);
    ck_assert_uint_eq(q.ask.n_prompts, 2);
    ck_assert_int_eq(q.ask.prompts[0].ids[2], 3);
    ck_assert_int_eq(q.ask.prompts[1].n, 1);
    ck_assert_int_eq(q.ask.prompts[1].max_new, 5);
    ck_assert_int_eq(q.ask.samples, 2);
    ck_assert(q.ask.temperature == 2 && q.ask.top_p == 0.9F && q.ask.top_k == 0 && q.ask.seed == 11);
    ck_assert_uint_eq(q.ask.stops.count, 2);
    ck_assert_mem_eq(q.ask.stops.text[1], "bc", 2);
    ck_assert(q.stream && q.include_usage && !q.ask.whole);
    ck_assert(q.ask.ends[0] == -1 && q.ask.ends[1] == -1);
    dlab_question_free(&q);
    read_ok(&api, "{\"prompt\": [\"a\", \"bc\"], \"stop\": \"x\", \"max_tokens\": null}", &q);
    ck_assert_int_eq(q.ask.prompts[1].n, 2);
    ck_assert_int_eq(q.ask.prompts[1].max_new, 16);
    ck_assert_uint_eq(q.ask.stops.count, 1);
    dlab_question_free(&q);
}
END_TEST

START_TEST(what_asks_for_nothing_more)
{
    dlab_api api = api_of();
    dlab_question q;
    read_ok(&api, "{\"prompt\": \"a\", \"min_tokens\": 0, \"priority\": 0}", &q);
    dlab_question_free(&q);
    read_ok(&api, "{\"prompt\": \"a\", \"min_tokens\": 8, \"max_tokens\": 8, \"ignore_eos\": true}", &q);
    dlab_question_free(&q);
    read_ok(&api, "{\"prompt\": \"a\", \"top_p\": 0}", &q);
    ck_assert(q.ask.top_p == 0);
    dlab_question_free(&q);
    api.by_priority = true; /* the API's lowest goes first, the engine's highest */
    read_ok(&api, "{\"prompt\": \"a\", \"priority\": -3}", &q);
    ck_assert_int_eq(q.ask.priority, 3);
    dlab_question_free(&q);
}
END_TEST

/* Before anything is encoded. */
START_TEST(what_can_never_fit)
{
    dlab_api api = api_of();
    dlab_question q;
    dlab_api_error e = {0};
    char body[512] = "{\"prompt\": [";
    int64_t longest = 0;
    ck_assert_int_eq(dlab_api_longest_token(tok, &longest, NULL), DLAB_OK);
    ck_assert_int_ge(longest, 1);
    for (int i = 0; i < 33; i++) strcat(body, i ? ",[1]" : "[1]");
    strcat(body, "]}");
    refused(body, "prompt", "--queue");
    snprintf(body, sizeof body, "{\"prompt\": \"%070d\"}", 1);
    ck_assert_int_ne(dlab_api_read(&api, false, body, strlen(body), &q, &e), DLAB_OK);
    ck_assert_str_eq(e.code, "context_length_exceeded");
    ck_assert_ptr_nonnull(strstr(e.message, "64 bytes at most: the prompt has 70"));
    const dlab_answer_sum sum = {.ended = true, .end = DLAB_ANSWER_REFUSED, .message = "no"};
    ck_assert(dlab_api_answer_error(&sum, &e));
    ck_assert(e.status == 400 && strcmp(e.code, "request_refused") == 0);
}
END_TEST

START_TEST(bodies_that_are_no_json_object)
{
    refused("", "", "the body is empty");
    refused_as(false, NULL, 0, 400, "", "the body is empty");
    refused("{\"prompt\": \"a\\u0000b\"}", "", "NUL character (\\u0000)");
    refused("{\"prompt\": ", "", "not valid JSON");
    refused("{\"prompt\": \"a\"} x", "", "not valid JSON");
    refused("{\"prompt\": \"a\", \"prompt\": \"b\"}", "", "duplicate");
    refused("{\"prompt\": \"\xff\"}", "", "decode byte 0xff");
    refused("{\"prompt\": 1e999}", "", "not valid JSON");
    refused("[1]", "", "must be a JSON object");
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    refused(deep, "", "depth");
    refused_as(false, "{\"prompt\": \"a\0\"}", 14, 400, "", "not valid JSON");
}
END_TEST

START_TEST(values_that_make_no_sense)
{
    refused("{}", "prompt", "missing");
    refused("{\"prompt\": null}", "prompt", "must be");
    refused("{\"prompt\": 5}", "prompt", "must be");
    refused("{\"prompt\": []}", "prompt", "not empty");
    refused("{\"prompt\": \"\"}", "prompt", "no tokens");
    refused("{\"prompt\": [[]]}", "prompt", "no tokens");
    refused("{\"prompt\": [true]}", "prompt", "must be");
    refused("{\"prompt\": [\"a\", 1]}", "prompt", "another type");
    refused("{\"prompt\": [1, \"a\"]}", "prompt", "no token id");
    refused("{\"prompt\": [1, -1]}", "prompt", "no token id");
    refused("{\"prompt\": [999999]}", "prompt", "no token id");
    refused("{\"prompt\": [1.5]}", "prompt", "must be");
    refused("{\"prompt\": \"a\", \"n\": 0}", "n", "from 1 to 8");
    refused("{\"prompt\": \"a\", \"n\": 9}", "n", "from 1 to 8");
    refused("{\"prompt\": \"a\", \"n\": \"2\"}", "n", "whole number");
    refused("{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens", "whole number");
    refused("{\"prompt\": \"a\", \"max_tokens\": 64}", "prompt", "64 tokens");
    refused("{\"prompt\": \"a\", \"max_tokens\": 1.5}", "max_tokens", "whole number");
    refused("{\"prompt\": \"a\", \"temperature\": -1}", "temperature", "from 0 to 2");
    refused("{\"prompt\": \"a\", \"temperature\": 2.1}", "temperature", "from 0 to 2");
    refused("{\"prompt\": \"a\", \"top_p\": 1.1}", "top_p", "from 0 to 1");
    refused("{\"prompt\": \"a\", \"seed\": 1.5}", "seed", "whole number");
    refused("{\"prompt\": \"a\", \"stop\": \"\"}", "stop", "1 to 1024");
    refused("{\"prompt\": \"a\", \"stop\": [\"1\",\"2\",\"3\",\"4\",\"5\"]}", "stop", "up to 4");
    refused("{\"prompt\": \"a\", \"stream\": 1}", "stream", "true or false");
    refused("{\"prompt\": \"a\", \"stream_options\": {\"include_usage\": true}}", "stream_options", "stream: true");
    refused("{\"prompt\": \"a\", \"stream\": true, \"stream_options\": {\"x\": true}}", "stream_options",
            "nothing else");
    refused_as(false, "{\"prompt\": \"a\", \"model\": \"gpt-4\"}", 33, 404, "model", "\"tiny\" is");
}
END_TEST

START_TEST(what_is_not_built_is_refused_by_name)
{
    refused("{\"prompt\": \"a\", \"echo\": true}", "echo", "echo is not built");
    refused("{\"prompt\": \"a\", \"logprobs\": 0}", "logprobs", "not built");
    refused("{\"prompt\": \"a\", \"best_of\": 2}", "best_of", "not built");
    refused("{\"prompt\": \"a\", \"presence_penalty\": 0.5}", "presence_penalty", "not built");
    refused("{\"prompt\": \"a\", \"logit_bias\": {\"1\": 1}}", "logit_bias", "not built");
    refused("{\"prompt\": \"a\", \"temprature\": 1}", "temprature", "did you mean \"temperature\"");
    refused("{\"prompt\": \"a\", \"messages\": []}", "messages", "unknown");
    refused("{\"prompt\": \"a\", \"min_tokens\": 1}", "min_tokens", "not built");
    refused("{\"prompt\": \"a\", \"min_tokens\": 9, \"max_tokens\": 8, \"ignore_eos\": true}", "min_tokens",
            "not built");
    refused("{\"prompt\": \"a\", \"min_tokens\": 8, \"max_tokens\": 8, \"ignore_eos\": true, \"stop\": \"b\"}",
            "min_tokens", "not built");
    refused("{\"prompt\": \"a\", \"priority\": 1}", "priority", "batch.policy=priority");
    static const char *const chats[] = {"tools", "response_format", "reasoning_effort", "audio", "top_logprobs"};
    static const char *const values[] = {"[{\"type\": \"function\"}]", "{\"type\": \"json_object\"}", "\"high\"", "{}",
                                         "5"};
    for (size_t i = 0; i < 5; i++) {
        char body[160];
        snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"%s\": %s}", chats[i],
                 values[i]);
        refused_as(true, body, strlen(body), 400, chats[i], "not built");
    }
    const char *chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    refused_as(true, chat, strlen(chat), 400, "messages", "the template of this model is strange");
}
END_TEST

static const char *said_of(json_t *j, const char *what)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(j, "choices"), 0), what));
}

START_TEST(answers_are_written_as_the_api_says)
{
    dlab_api api = api_of();
    dlab_question q;
    read_ok(&api, "{\"prompt\": \"Hi\", \"stream\": true, \"stream_options\": {\"include_usage\": true}}", &q);
    char said[] = "a \"b\"\n\0c";
    const dlab_answer_piece piece = {.text = said, .n = 8, .end = DLAB_ANSWER_STOP};
    const dlab_answer_sum sum = {.n_choices = 1, .prompt_tokens = 2, .completion_tokens = 3, .cached_tokens = 1};
    char *text = dlab_api_response(&api, &q, &piece, &sum);
    json_t *j = json_loads(text, JSON_ALLOW_NUL, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(j, "object")), "text_completion");
    ck_assert_uint_eq(json_string_length(json_object_get(json_array_get(json_object_get(j, "choices"), 0), "text")), 8);
    ck_assert_str_eq(said_of(j, "finish_reason"), "stop");
    const json_t *usage = json_object_get(j, "usage");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "total_tokens")), 5);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens")), 1);
    json_decref(j);
    free(text);

    text = dlab_api_text_event(&api, &q, 0, "x\ny", 3);
    ck_assert_int_eq(strncmp(text, "data: {", 7), 0);
    ck_assert_str_eq(text + strlen(text) - 3, "}\n\n");
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 2); /* one line */
    j = json_loads(text + 6, JSON_DISABLE_EOF_CHECK, NULL);
    ck_assert_str_eq(said_of(j, "text"), "x\ny");
    ck_assert(json_is_null(json_object_get(j, "usage")));
    json_decref(j);
    free(text);

    q.chat = true;
    text = dlab_api_role_event(&api, &q, 0);
    ck_assert_ptr_nonnull(strstr(text, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    free(text);
    text = dlab_api_end_event(&api, &q, 0, DLAB_ANSWER_LENGTH);
    ck_assert_ptr_nonnull(strstr(text, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\""));
    free(text);
    text = dlab_api_usage_event(&api, &q, &sum);
    ck_assert_ptr_nonnull(strstr(text, "\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3"));
    free(text);
    dlab_question_free(&q);
}
END_TEST

START_TEST(prometheus_reads_the_counters)
{
    dlab_serve_stats s = {
        .running = 2, .waiting = 3, .preemptions = 4, .swapped_out = 3, .swapped_in = 2, .swap_bytes = 8};
    dlab_histogram_add(&s.ttft, 0.0005); /* a bound belongs to its bucket */
    dlab_histogram_add(&s.ttft, 0.03);
    dlab_histogram_add(&s.ttft, 1000);
    s.ended[DLAB_ANSWER_STOP] = 5;
    const dlab_status_count codes[] = {{200, 6}};
    char *text = dlab_prometheus_text(&s, codes, 1, 7);
    static const char *const lines[] = {"# TYPE dlab_time_to_first_token_seconds histogram\n",
                                        "\ndlab_time_to_first_token_seconds_bucket{le=\"0.0005\"} 1\n",
                                        "\ndlab_time_to_first_token_seconds_bucket{le=\"0.025\"} 1\n",
                                        "\ndlab_time_to_first_token_seconds_bucket{le=\"0.05\"} 2\n",
                                        "\ndlab_time_to_first_token_seconds_bucket{le=\"500\"} 2\n",
                                        "\ndlab_time_to_first_token_seconds_bucket{le=\"+Inf\"} 3\n",
                                        "\ndlab_time_to_first_token_seconds_sum 1000.03",
                                        "\ndlab_time_to_first_token_seconds_count 3\n",
                                        "\ndlab_requests_running 2\n",
                                        "\ndlab_requests_waiting 3\n",
                                        "\ndlab_http_connections 7\n",
                                        "\ndlab_requests_total{finish=\"stop\"} 5\n",
                                        "\ndlab_http_responses_total{code=\"200\"} 6\n",
                                        "\ndlab_preemptions_total 4\n",
                                        "\ndlab_swapped_out_total 3\n",
                                        "\ndlab_swapped_in_total 2\n",
                                        "\ndlab_swap_bytes_total 8\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no line %s", lines[i]);
    for (const char *line = text; line && *line; line = strchr(line, '\n') + 1) /* each is a comment or NAME VALUE */
        ck_assert(strncmp(line, "# ", 2) == 0 || strncmp(line, "dlab_", 5) == 0);
    free(text);
}
END_TEST

int main(void)
{
    if (dlab_model_open("synthetic:tiny", &model, NULL) != DLAB_OK ||
        dlab_tokenizer_create(model, &tok, NULL) != DLAB_OK)
        return 1;
    Suite *s = suite_create("serve_api");
    TCase *t = tcase_create("serve_api");
    tcase_add_test(t, what_is_not_said_is_the_servers);
    tcase_add_test(t, all_that_is_said_is_taken);
    tcase_add_test(t, what_asks_for_nothing_more);
    tcase_add_test(t, what_can_never_fit);
    tcase_add_test(t, bodies_that_are_no_json_object);
    tcase_add_test(t, values_that_make_no_sense);
    tcase_add_test(t, what_is_not_built_is_refused_by_name);
    tcase_add_test(t, answers_are_written_as_the_api_says);
    tcase_add_test(t, prometheus_reads_the_counters);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    dlab_tokenizer_destroy(tok);
    dlab_model_close(model);
    return failed ? 1 : 0;
}

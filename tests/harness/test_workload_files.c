/* Requests that files tell: traces, prompts, conversations, lengths, texts. Errors say which file and where in it. */
#include <math.h>

#include "tests/harness/workload_test.h"

#define MS INT64_C(1000000)

/* A model whose tokens are bytes, so that counts can be read off the text. */
typedef struct {
    dlab_model *model;
    dlab_tokenizer *tok;
    dlab_workload_host host;
} reader;

static reader reader_open(void)
{
    reader r = {0};
    dlab_error err = {0};
    ck_assert_msg(dlab_model_open("synthetic:tiny", &r.model, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_tokenizer_create(r.model, &r.tok, &err) == DLAB_OK, "%s", err.msg);
    r.host = (dlab_workload_host){.batch_size = 4, .context = 4096, .first_id = 300, .vocab = 400, .tokenizer = r.tok};
    return r;
}

static void reader_close(reader *r)
{
    dlab_tokenizer_destroy(r->tok);
    dlab_model_close(r->model);
}

static bool says(const dlab_requests *q, int64_t i, const char *text)
{
    const int32_t *ids = q->ids + q->offset[i];
    if (q->prompt[i] != (int64_t)strlen(text)) return false;
    for (int64_t k = 0; text[k]; k++) {
        if (ids[k] != (unsigned char)text[k]) return false;
    }
    return true;
}

/* ---- traces ---- */

static const char trace_text[] =
    "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [7, 8, 9]}\n"
    "\n"
    "{\"timestamp\": 1002.5, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [7, 8]}\r\n"
    "{\"timestamp\": 1010, \"input_length\": 700, \"output_length\": 90, \"hash_ids\": [7, 10, 3]}\n"
    "{\"timestamp\": 1010, \"input_length\": 30, \"output_length\": 2}";

static dlab_workload trace_of(const char *text)
{
    dlab_workload w = default_workload();
    w.kind = "trace";
    write_file(w.trace_file, text);
    return w;
}

START_TEST(a_trace_tells_times_and_lengths)
{
    static const int64_t at[] = {0, 5 * MS / 2, 10 * MS, 10 * MS}, prompt[] = {1100, 1024, 700, 30},
                         output[] = {5, 1, 90, 2};
    dlab_workload w = trace_of(trace_text);
    dlab_requests r = build(&w, 4);
    ck_assert_int_eq(r.n, 4);
    ck_assert_mem_eq(r.arrival_ns, at, sizeof at);
    ck_assert_mem_eq(r.prompt, prompt, sizeof prompt);
    ck_assert_mem_eq(r.output, output, sizeof output);
    const dlab_engine_needs needs = needs_of(&w, 3);
    ck_assert_int_eq(needs.max_seqs, 3);
    ck_assert_int_eq(needs.max_prompt, 1100);
    ck_assert_int_eq(needs.max_tokens, 1104);
    dlab_requests_free(&r);
    w.trace_speed = 2;
    w.requests = 3;
    r = build(&w, 4);
    ck_assert_int_eq(r.n, 3);
    ck_assert_int_eq(r.arrival_ns[2], 5 * MS);
    dlab_requests_free(&r);
    w.requests = 0;
    w.duration_ns = 5 * MS;
    r = build(&w, 4);
    ck_assert_int_eq(r.n, 2);
    dlab_requests_free(&r);
    unlink(w.trace_file);
}
END_TEST

/* A block's tokens are its hash's, wherever it stands, and a part of a block is its beginning. */
START_TEST(equal_hashes_are_equal_tokens)
{
    dlab_workload w = trace_of(trace_text);
    const dlab_workload_host host = host_of(4);
    dlab_requests a = build_on(&w, &host);
    const int32_t *x = a.ids + a.offset[0], *y = a.ids + a.offset[1], *z = a.ids + a.offset[2];
    ck_assert_mem_eq(x, y, 1024 * sizeof *x);
    ck_assert_mem_eq(x, z, 512 * sizeof *x);
    ck_assert_mem_ne(x + 512, z + 512, 188 * sizeof *x);
    ck_assert_mem_ne(x, x + 512, 512 * sizeof *x);
    dlab_requests b = build_warmup(&w, &host);
    ck_assert_mem_ne(x, b.ids, 512 * sizeof *x);
    ck_assert_mem_eq(b.ids, b.ids + b.offset[1], 1024 * sizeof *x); /* and shares as the trace does */
    dlab_requests_free(&b);
    unlink(w.trace_file);
    w = trace_of("{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [9]}\n");
    b = build_on(&w, &host);
    ck_assert_mem_eq(b.ids, x + 1024, 76 * sizeof *x); /* in another trace too */
    dlab_requests_free(&b);
    w.seed = 2;
    b = build_on(&w, &host);
    ck_assert_mem_ne(b.ids, x + 1024, 76 * sizeof *x);
    dlab_requests_free(&b);
    dlab_requests_free(&a);
    unlink(w.trace_file);
}
END_TEST

#define GOOD "{\"timestamp\": 5, \"input_length\": 3, \"output_length\": 2}\n"

static const struct {
    const char *text, *message; /* behind the file's name */
} bad_traces[] = {
    {"", ": has no request"},
    {GOOD "{\"timestamp\": 6", ":2:15: not valid JSON: '}' expected near end of file"},
    {GOOD "[]\n", ":2: expected an object with timestamp, input_length, output_length and hash_ids"},
    {GOOD "\n{\"input_length\": 3, \"output_length\": 2}\n",
     ":3: timestamp: expected milliseconds, at least 0 and less than three years"},
    {GOOD "{\"timestamp\": -1, \"input_length\": 3, \"output_length\": 2}\n",
     ":2: timestamp: expected milliseconds, at least 0 and less than three years"},
    {GOOD "{\"timestamp\": 1e300, \"input_length\": 3, \"output_length\": 2}\n",
     ":2: timestamp: expected milliseconds, at least 0 and less than three years"},
    {GOOD "{\"timestamp\": 4, \"input_length\": 3, \"output_length\": 2}\n",
     ":2: timestamp: expected one at or after that of the line before: sort the trace"},
    {"{\"timestamp\": 4, \"input_length\": 0, \"output_length\": 2}\n",
     ":1: input_length: expected tokens, a whole number from 1 to 1048576"},
    {"{\"timestamp\": 4, \"input_length\": 1.5, \"output_length\": 2}\n",
     ":1: input_length: expected tokens, a whole number from 1 to 1048576"},
    {"{\"timestamp\": 4, \"input_length\": 9, \"output_length\": 9223372036854775807}\n",
     ":1: output_length: expected tokens, a whole number from 1 to 1048576"},
    {GOOD "{\"timestamp\": 6, \"input_length\": 513, \"output_length\": 2, \"hash_ids\": [1]}\n",
     ":2: hash_ids: 1 blocks of 512 tokens are less than the input_length 513"},
    {"{\"timestamp\": 6, \"input_length\": 5, \"output_length\": 2, \"hash_ids\": [\"1\"]}\n",
     ":1: hash_ids: expected a list of whole numbers"},
    {"{\"timestamp\": 6, \"input_length\": 5, \"output_length\": 2, \"hash_ids\": 1}\n",
     ":1: hash_ids: expected a list of whole numbers"},
};

START_TEST(a_bad_trace_says_where)
{
    dlab_workload w = trace_of(bad_traces[_i].text);
    char message[DLAB_PARAM_STR + 256];
    const dlab_workload_host host = host_of(4);
    snprintf(message, sizeof message, "%s%s", w.trace_file, bad_traces[_i].message);
    check_refused_on(&w, &host, DLAB_EFORMAT, message);
    unlink(w.trace_file);
}
END_TEST

START_TEST(a_request_that_the_context_cannot_hold_says_where)
{
    dlab_workload w = trace_of(GOOD "{\"timestamp\": 5, \"input_length\": 2000, \"output_length\": 50}\n");
    char message[DLAB_PARAM_STR + 256];
    snprintf(message, sizeof message,
             "%s:2: needs 2049 tokens; the model's context holds 2048. Leave it out, or bound the lengths "
             "(workload.prompt_max, workload.output_max, workload.turns)",
             w.trace_file);
    check_impossible(&w, 4, message);
    w.requests = 1;
    ck_assert_int_eq(needs_of(&w, 4).max_tokens, 4);
    w.requests = 3;
    dlab_workload_host host = host_of(4);
    host.context = 0;
    snprintf(message, sizeof message, "workload.requests: 3 are to be served; %s has 2", w.trace_file);
    check_refused_on(&w, &host, DLAB_EIMPOSSIBLE, message);
    unlink(w.trace_file);
}
END_TEST

START_TEST(what_a_trace_does_not_go_with_is_refused)
{
    dlab_workload w = default_workload();
    w.kind = "trace";
    check_impossible(&w, 4, "workload.trace: kind trace needs a file in Mooncake's format");
    snprintf(w.trace_file, sizeof w.trace_file, "x.jsonl");
    w.lengths = "normal";
    check_impossible(&w, 4, "workload.lengths: normal with workload.kind trace, whose lengths are the file's");
    w.lengths = "fixed";
    w.turns = 2;
    check_impossible(&w, 4, "workload.turns: conversations with workload.kind trace, whose lines are single requests");
    w.turns = 1;
    w.shared_prefix = 2;
    check_impossible(&w, 4, "workload.shared_prefix: prefixes with workload.kind trace, whose prompts are the file's");
    w.shared_prefix = 0;
    const dlab_workload_host host = host_of(4);
    snprintf(w.trace_file, sizeof w.trace_file, "/nowhere/x.jsonl");
    check_refused_on(&w, &host, DLAB_EIO, "/nowhere/x.jsonl: cannot open: No such file or directory");
}
END_TEST

/* ---- JSONL ---- */

static dlab_workload prompts_of(const char *word, const char *text)
{
    dlab_workload w = default_workload();
    w.prompts = word;
    w.kind = "closed"; /* all that the file has */
    write_file(w.prompts_file, text);
    return w;
}

START_TEST(jsonl_prompts_are_their_text)
{
    reader t = reader_open();
    dlab_workload w = prompts_of("jsonl", "{\"prompt\": \"one two\", \"output_length\": 9}\n"
                                          "{\"text\": \"\"}\n\n" /* nothing to ask */
                                          "{\"text\": \"three\", \"other\": [1]}\n"
                                          "{\"prompt\": \"four\", \"text\": \"no\"}\n");
    w.output = 6;
    dlab_requests r = build_on(&w, &t.host);
    ck_assert_int_eq(r.n, 3);
    ck_assert(says(&r, 0, "one two"));
    ck_assert(says(&r, 1, "three"));
    ck_assert(says(&r, 2, "four"));
    ck_assert_int_eq(r.output[0], 9);
    ck_assert_int_eq(r.output[1], 6);
    ck_assert_int_eq(needs_on(&w, &t.host).max_tokens, 15);
    dlab_requests_free(&r);
    r = build_warmup(&w, &t.host);
    ck_assert_int_eq(r.prompt[0], 7);
    ck_assert_int_ge(r.ids[0], 300); /* drawn */
    dlab_requests_free(&r);
    w.prompt_max = 6; /* the first is left out … */
    r = build_on(&w, &t.host);
    ck_assert_int_eq(r.n, 2);
    ck_assert(says(&r, 0, "three"));
    dlab_requests_free(&r);
    w.lengths = "uniform"; /* … but cut, or begun again, where lengths are asked for */
    w.prompt_min = w.prompt_max = 11;
    r = build_on(&w, &t.host);
    ck_assert_int_eq(r.n, 3);
    ck_assert(says(&r, 0, "one twoone "));
    ck_assert(says(&r, 2, "fourfourfou"));
    dlab_requests_free(&r);
    w.kind = "batch"; /* four would fit */
    w.requests = 0;
    ck_assert_int_eq(needs_on(&w, &t.host).max_seqs, 3);
    unlink(w.prompts_file);
    reader_close(&t);
}
END_TEST

static const struct {
    const char *word, *text, *message;
} bad_prompts[] = {
    {"jsonl", "\n", ": has no prompt that is not empty and within workload.prompt_max and workload.output_max"},
    {"jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": 3}\n", ":2: expected an object with \"prompt\" or \"text\", a string"},
    {"jsonl", "[]\n", ":1: expected an object with \"prompt\" or \"text\", a string"},
    {"jsonl", "{\"prompt\": \"x\", \"output_length\": 0}\n",
     ":1: output_length: expected a whole number from 1 to 1048576"},
    {"jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \"x\n", ":2:13: not valid JSON: premature end of input near '\"x'"},
    {"sharegpt", "{}", ": expected ShareGPT's form, a list of objects with \"conversations\""},
    {"sharegpt", "[{}]", ": conversation 1: expected an object with \"conversations\", a list"},
    {"sharegpt", "[7]", ": conversation 1: expected an object with \"conversations\", a list"},
    {"sharegpt", "[{\"conversations\": [{\"from\": \"me\", \"value\": \"x\"}]}]",
     ": conversation 1: expected messages from human, user, gpt or assistant"},
    {"sharegpt", "[{\"conversations\": []}, {\"conversations\": [{\"from\": \"human\"}]}]",
     ": conversation 2: expected messages with a \"value\", a string"},
    {"sharegpt", "[{\"conversations\": [{\"from\": \"gpt\", \"value\": \"x\"}]}]",
     ": has no conversation with a human's message that is not empty and within workload.prompt_max and "
     "workload.output_max"},
    {"sharegpt", "[\n[", ":2:1: not valid JSON: ']' expected near end of file"},
};

START_TEST(bad_prompts_say_where)
{
    reader t = reader_open();
    dlab_workload w = prompts_of(bad_prompts[_i].word, bad_prompts[_i].text);
    char message[DLAB_PARAM_STR + 256];
    dlab_requests r;
    dlab_error err = {0};
    snprintf(message, sizeof message, "%s%s", w.prompts_file, bad_prompts[_i].message);
    ck_assert_int_eq(try_build(&w, &t.host, false, &r, &err), DLAB_EFORMAT);
    ck_assert_str_eq(err.msg, message);
    unlink(w.prompts_file);
    reader_close(&t);
}
END_TEST

/* ---- ShareGPT ---- */

static const char chats[] =
    "[{\"id\": \"a\", \"conversations\": [\n"
    "  {\"from\": \"system\", \"value\": \"be kind\"},\n"
    "  {\"from\": \"human\", \"value\": \"hello\"}, {\"from\": \"gpt\", \"value\": \"good day\"},\n"
    "  {\"from\": \"human\", \"value\": \"and?\"}, {\"from\": \"gpt\", \"value\": \"\"},\n"
    "  {\"from\": \"human\", \"value\": \"bye\"}]},\n"
    " {\"conversations\": [{\"from\": \"gpt\", \"value\": \"I begin\"}]},\n"
    " {\"conversations\": [{\"from\": \"gpt\", \"value\": \"I too\"}, {\"from\": \"user\", \"value\": \"stop\"},\n"
    "                     {\"from\": \"assistant\", \"value\": \"no\"}]}]";

START_TEST(sharegpt_s_turns_are_the_human_s)
{
    static const int64_t after[] = {-1, 0, 1, -1}, output[] = {8, 1, 6, 2};
    reader t = reader_open();
    dlab_workload w = prompts_of("sharegpt", chats);
    w.output = 6; /* where no answer tells */
    w.turns = 5;
    dlab_requests r = build_on(&w, &t.host);
    ck_assert_int_eq(r.n, 4);
    ck_assert(says(&r, 0, "hello"));
    ck_assert(says(&r, 1, "and?"));
    ck_assert(says(&r, 2, "bye"));
    ck_assert(says(&r, 3, "stop"));
    ck_assert_mem_eq(r.after, after, sizeof after);
    ck_assert_mem_eq(r.output, output, sizeof output);
    dlab_engine_needs needs = needs_on(&w, &t.host); /* 5 +8 +4 +1 +3, and 5 more that are fed back */
    ck_assert_int_eq(needs.max_prompt, 21);
    ck_assert_int_eq(needs.max_tokens, 26);
    dlab_requests_free(&r);
    w.turns = 1;
    r = build_on(&w, &t.host);
    ck_assert_int_eq(r.n, 2);
    ck_assert(says(&r, 1, "stop"));
    dlab_requests_free(&r);
    w.turns = 2;
    w.output_max = 7; /* the first conversation's first answer is longer */
    r = build_on(&w, &t.host);
    ck_assert_int_eq(r.n, 1);
    ck_assert(says(&r, 0, "stop"));
    dlab_requests_free(&r);
    w.output_max = 0;
    t.host.context = 16;
    char message[DLAB_PARAM_STR + 256];
    snprintf(message, sizeof message,
             "%s:conversation 1: needs 17 tokens with all its turns; the model's context holds 16. Leave it out, or "
             "bound the lengths (workload.prompt_max, workload.output_max, workload.turns)",
             w.prompts_file);
    check_refused_on(&w, &t.host, DLAB_EIMPOSSIBLE, message);
    unlink(w.prompts_file);
    reader_close(&t);
}
END_TEST

START_TEST(text_prompts_without_a_tokenizer_are_refused)
{
    dlab_workload w = default_workload();
    dlab_requests r;
    dlab_error err = {0};
    const dlab_workload_host host = host_of(4);
    ck_assert(!dlab_workload_tokenizes(&w));
    w.prompts = "text";
    ck_assert(dlab_workload_tokenizes(&w));
    ck_assert_int_eq(try_build(&w, &host, false, &r, &err), DLAB_EIMPOSSIBLE);
    ck_assert_str_eq(err.msg, "workload.prompts: text needs a model that has a tokenizer: give -m MODEL");
    ck_assert_int_eq(needs_of(&w, 4).max_prompt, 128); /* which the lengths tell */
    w.prompts = "sharegpt";
    check_impossible(&w, 4, "workload.prompts_file: prompts sharegpt needs a file");
    snprintf(w.prompts_file, sizeof w.prompts_file, "x.json");
    check_impossible(&w, 4, "workload.prompts: sharegpt needs a model that has a tokenizer: give -m MODEL");
    w.depth = 3;
    check_impossible(&w, 4,
                     "workload.depth: tokens before with workload.prompts sharegpt, whose prompts are the file's");
}
END_TEST

/* ---- text ---- */

START_TEST(pieces_of_a_text_have_exact_lengths_and_places_of_their_own)
{
    reader t = reader_open();
    dlab_workload w = prompts_of("text", "abcdefghijklmnopqrstuvwxyz");
    w.kind = "batch";
    w.requests = 13;
    w.prompt = 30; /* once around, and a bit */
    dlab_requests r = build_on(&w, &t.host);
    dlab_requests warm = build_warmup(&w, &t.host);
    bool first[26] = {false};
    for (int64_t i = 0; i < 13; i++) {
        const int32_t *ids = r.ids + r.offset[i];
        for (int64_t k = 0; k < 30; k++) ck_assert_int_eq(ids[k], 'a' + (ids[0] - 'a' + k) % 26);
        ck_assert(!first[ids[0] - 'a']);
        first[ids[0] - 'a'] = true;
    }
    for (int64_t i = 0; i < 13; i++) {
        const int32_t at = warm.ids[warm.offset[i]];
        ck_assert(!first[at - 'a']); /* the other half of the alphabet */
        first[at - 'a'] = true;
    }
    dlab_requests_free(&warm);
    w.shared_prefix = 6;
    dlab_requests shared = build_on(&w, &t.host);
    for (int64_t i = 0; i < 13; i++) {
        ck_assert_mem_eq(shared.ids + shared.offset[i], shared.ids, 6 * sizeof *r.ids);
        ck_assert_mem_eq(shared.ids + shared.offset[i] + 6, r.ids + r.offset[i] + 6, 24 * sizeof *r.ids);
    }
    ck_assert_int_eq(shared.ids[5], 'a' + (shared.ids[0] - 'a' + 5) % 26);
    dlab_requests_free(&shared);
    dlab_requests_free(&r);
    unlink(w.prompts_file);
    w.prompts_file[0] = '\0'; /* the bundled corpus */
    w.lengths = "spread";
    w.shared_prefix = 0;
    r = build_on(&w, &t.host);
    for (int64_t i = 1; i < 13; i++) ck_assert_mem_ne(r.ids, r.ids + r.offset[i], 15 * sizeof *r.ids);
    dlab_requests_free(&r);
    reader_close(&t);
}
END_TEST

/* ---- lengths ---- */

START_TEST(lengths_from_a_file_are_used_in_its_order)
{
    static const int64_t prompt[] = {10, 20, 30, 10, 20}, output[] = {1, 2, 3, 1, 2};
    dlab_workload w = default_workload();
    w.lengths = w.outputs = "file";
    w.requests = 5;
    write_file(w.lengths_file, "# prompt, output\n10, 1\n\n  20 2  # twenty\r\n30,3");
    dlab_requests r = build(&w, 4);
    ck_assert_mem_eq(r.prompt, prompt, sizeof prompt);
    ck_assert_mem_eq(r.output, output, sizeof output);
    dlab_requests_free(&r);
    w.kind = "open";
    w.rate = 1;
    w.requests = 0; /* as many as it has lines */
    w.outputs = "fixed";
    r = build(&w, 4);
    ck_assert_int_eq(r.n, 3);
    ck_assert_int_eq(r.output[2], 32);
    dlab_requests_free(&r);
    unlink(w.lengths_file);
    write_file(w.lengths_file, "10\n2020\n");
    char message[DLAB_PARAM_STR + 256];
    snprintf(message, sizeof message,
             "%s:2: needs 2051 tokens; the model's context holds 2048. Leave it out, or bound the lengths "
             "(workload.prompt_max, workload.output_max, workload.turns)",
             w.lengths_file);
    check_impossible(&w, 4, message);
    unlink(w.lengths_file);
    w.lengths_file[0] = '\0';
    check_impossible(&w, 4, "workload.lengths_file: lengths from a file need one");
}
END_TEST

static const struct {
    const char *text;
    int line;
} bad_lengths[] = {{"5 5\nfive\n", 2},
                   {"5\n", 1},
                   {"5 0\n", 1},
                   {"0 5\n", 1},
                   {"5 5 5\n", 1},
                   {"-5 5\n", 1},
                   {"5.5 5\n", 1},
                   {"1048577 5\n", 1},
                   {"5 5;\n", 1},
                   {"5 ,,5", 1},
                   {"99999999999999999999999 1\n", 1}};

START_TEST(bad_lengths_say_where)
{
    dlab_workload w = default_workload();
    char message[DLAB_PARAM_STR + 256];
    const dlab_workload_host host = host_of(4);
    w.lengths = w.outputs = "file";
    write_file(w.lengths_file, bad_lengths[_i].text);
    snprintf(message, sizeof message,
             "%s:%d: expected a prompt's tokens and its answer's, whole numbers from 1 to 1048576, such as \"512, 64\"",
             w.lengths_file, bad_lengths[_i].line);
    check_refused_on(&w, &host, DLAB_EFORMAT, message);
    unlink(w.lengths_file);
}
END_TEST

#define N_OF(a) ((int)(sizeof(a) / sizeof *(a)))

static void add(TCase *tc)
{
    tcase_add_test(tc, a_trace_tells_times_and_lengths);
    tcase_add_test(tc, equal_hashes_are_equal_tokens);
    tcase_add_loop_test(tc, a_bad_trace_says_where, 0, N_OF(bad_traces));
    tcase_add_test(tc, a_request_that_the_context_cannot_hold_says_where);
    tcase_add_test(tc, what_a_trace_does_not_go_with_is_refused);
    tcase_add_test(tc, jsonl_prompts_are_their_text);
    tcase_add_loop_test(tc, bad_prompts_say_where, 0, N_OF(bad_prompts));
    tcase_add_test(tc, sharegpt_s_turns_are_the_human_s);
    tcase_add_test(tc, text_prompts_without_a_tokenizer_are_refused);
    tcase_add_test(tc, pieces_of_a_text_have_exact_lengths_and_places_of_their_own);
    tcase_add_test(tc, lengths_from_a_file_are_used_in_its_order);
    tcase_add_loop_test(tc, bad_lengths_say_where, 0, N_OF(bad_lengths));
}

int main(void) { return run_suite("workload_files", add); }

/* The thread that owns the engine: answers grow, and whatever ends one early leaves nothing behind. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/serve/host.h"

static dlab_model *model;
static dlab_tokenizer *tok;

typedef struct {
    dlab_engine *engine;
    dlab_host *host;
} lab;

/* Ways to run a batch; what a host promises holds for all. */
static const char *const plans[][5] = {
    {"batch.mode=continuous"},
    {"batch.mode=static"},
    {"batch.mode=continuous", "kv.pool=40 blocks"},
    {"batch.mode=continuous", "kv.pool=40 blocks", "batch.preemption=swap"},
    {"batch.mode=continuous", "kv.pool=40 blocks", "kv.prefix_cache=true", "batch.preemption=swap"},
    {"batch.mode=static", "batch.budget=lengths", "batch.token_budget=1700"},
};
#define N_PLANS ((int)(sizeof plans / sizeof *plans))

static void open_timed_lab(lab *l, int which, int64_t queue, int64_t timeout_ns)
{
    dlab_plan plan;
    dlab_error err = {0};
    const dlab_engine_needs needs = {.max_seqs = 4, .max_tokens = 400, .max_prompt = 400, .own_sampling = true};
    dlab_plan_default(&plan);
    static const char *const sets[] = {"batch.size=4", "kv.store=paged", "threads=1"};
    for (size_t i = 0; i < 3; i++) ck_assert_int_eq(dlab_plan_set(&plan, sets[i], NULL), DLAB_OK);
    for (size_t i = 0; i < 5 && plans[which][i]; i++)
        ck_assert_int_eq(dlab_plan_set(&plan, plans[which][i], NULL), DLAB_OK);
    ck_assert_msg(dlab_engine_create(&plan, model, &needs, &l->engine, &err) == DLAB_OK, "%s", err.msg);
    const dlab_host_opts opts = {
        .engine = l->engine, .tok = tok, .clock = dlab_clock_real(), .queue = queue, .timeout_ns = timeout_ns};
    ck_assert_int_eq(dlab_host_create(&opts, &l->host, NULL), DLAB_OK);
}

static void open_lab(lab *l, int which, int64_t queue) { open_timed_lab(l, which, queue, 0); }

static void close_lab(lab *l)
{
    dlab_host_destroy(l->host);
    dlab_engine_destroy(l->engine);
}

/* A reader that sleeps on a condition, as a connection is suspended. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool asleep;
} reader;

static void go_to_sleep(void *ctx)
{
    reader *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->asleep = true;
    pthread_mutex_unlock(&r->lock);
}

static void wake_up(void *ctx)
{
    reader *r = ctx;
    pthread_mutex_lock(&r->lock);
    ck_assert(r->asleep);
    r->asleep = false;
    pthread_cond_signal(&r->woken);
    pthread_mutex_unlock(&r->lock);
}

static void wait_for_news(dlab_host *h, dlab_answer *a, reader *r)
{
    while (!dlab_answer_ready(h, a)) {
        pthread_mutex_lock(&r->lock);
        while (r->asleep) pthread_cond_wait(&r->woken, &r->lock);
        pthread_mutex_unlock(&r->lock);
    }
}

static dlab_ask ask_of(reader *r, const char *prompt, int64_t max_new, int32_t samples)
{
    const size_t n = strlen(prompt);
    *r = (reader){.lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER};
    dlab_ask a = {.n_prompts = 1,
                  .samples = samples,
                  .top_p = 1,
                  .seed = 5,
                  .ends = {-1, -1},
                  .arrived_ns = dlab_clock_now_ns(dlab_clock_real()),
                  .whole = true,
                  .socket = -1,
                  .sleep = go_to_sleep,
                  .wake = wake_up,
                  .ctx = r};
    a.prompts = malloc(sizeof *a.prompts);
    a.prompts[0] = (dlab_prompt){malloc(n * sizeof(int32_t)), (int64_t)n, max_new};
    for (size_t i = 0; i < n; i++) a.prompts[0].ids[i] = (unsigned char)prompt[i];
    return a;
}

static dlab_answer *submit(dlab_host *h, dlab_ask *a)
{
    dlab_answer *answer = NULL;
    dlab_error err = {0};
    ck_assert_msg(dlab_host_submit(h, a, &answer, &err) == DLAB_OK, "%s", err.msg);
    return answer;
}

/* Until the engine holds nothing. */
static void wait_until_idle(dlab_host *h, dlab_serve_stats *s)
{
    do {
        usleep(1000);
        dlab_host_get_stats(h, s);
    } while (s->running || s->waiting || dlab_host_live(h));
    ck_assert_int_eq(s->kv.used_bytes, 0);
    ck_assert_int_eq(s->kv.reserved_bytes, 0);
}

/* The only choice, whole; its text may hold zero bytes. */
static dlab_answer_piece answer_to(lab *l, dlab_ask ask, reader *r, dlab_answer_sum *sum)
{
    dlab_answer_piece p;
    dlab_answer *a = submit(l->host, &ask);
    wait_for_news(l->host, a, r);
    ck_assert_uint_eq(dlab_answer_take(l->host, a, &p, sum), 1);
    ck_assert(sum->ended);
    dlab_host_release(l->host, a);
    return p;
}

START_TEST(a_stream_adds_up_to_the_whole)
{
    lab l;
    reader r;
    dlab_answer_sum sum;
    dlab_serve_stats s;
    open_lab(&l, _i, 8);
    const dlab_answer_piece whole = answer_to(&l, ask_of(&r, "Hello", 60, 1), &r, &sum);
    ck_assert_int_eq(whole.end, DLAB_ANSWER_LENGTH);
    ck_assert_int_eq(sum.prompt_tokens, 5);
    ck_assert_int_eq(sum.completion_tokens, 60);
    char *text = malloc(whole.n);
    size_t n = 0;
    dlab_answer_end end = DLAB_ANSWER_NONE;
    dlab_ask ask = ask_of(&r, "Hello", 60, 1);
    ask.whole = false;
    dlab_answer *a = submit(l.host, &ask);
    while (end == DLAB_ANSWER_NONE) {
        dlab_answer_piece p;
        wait_for_news(l.host, a, &r);
        if (dlab_answer_take(l.host, a, &p, &sum) == 0)
            continue; /* the token ends no character, or the end is still to come */
        ck_assert_uint_le(n + p.n, whole.n);
        memcpy(text + n, p.text, p.n);
        n += p.n;
        end = p.end;
        free(p.text);
    }
    ck_assert_uint_eq(n, whole.n);
    ck_assert_mem_eq(text, whole.text, n);
    dlab_host_release(l.host, a);
    wait_until_idle(l.host, &s);
    ck_assert_uint_eq(s.ended[DLAB_ANSWER_LENGTH], 2);
    ck_assert_uint_eq(s.generated_tokens, 120);
    ck_assert_uint_eq(s.prompt_tokens, 10);
    ck_assert_uint_eq(s.ttft.n, 2);
    ck_assert_uint_eq(s.itl.n, 118);
    ck_assert_uint_eq(s.tpot.n, 2);
    ck_assert_uint_eq(s.e2e.n, 2);
    free(text);
    free(whole.text);
    close_lab(&l);
}
END_TEST

START_TEST(a_stop_string_ends_the_engines_work)
{
    lab l;
    reader r;
    dlab_answer_sum sum;
    dlab_serve_stats s;
    open_lab(&l, _i, 8);
    const dlab_answer_piece whole = answer_to(&l, ask_of(&r, "Hello", 100, 1), &r, &sum);
    size_t k = 8;
    while (k < whole.n && (unsigned char)whole.text[k] >= 0x80) k++; /* a character of one byte */
    ck_assert_uint_lt(k, whole.n);
    const char *at = memchr(whole.text, whole.text[k], whole.n);
    dlab_ask ask = ask_of(&r, "Hello", 390, 1);
    ck_assert_int_eq(dlab_stops_add(&ask.stops, at, 1, NULL), DLAB_OK);
    const dlab_answer_piece cut = answer_to(&l, ask, &r, &sum);
    ck_assert_int_eq(cut.end, DLAB_ANSWER_STOP);
    ck_assert_uint_eq(cut.n, (size_t)(at - whole.text));
    ck_assert(cut.n == 0 || memcmp(cut.text, whole.text, cut.n) == 0);
    ck_assert_int_lt(sum.completion_tokens, 390);
    wait_until_idle(l.host, &s);
    ck_assert_uint_eq(s.generated_tokens, 100 + (uint64_t)sum.completion_tokens);
    free(cut.text);
    free(whole.text);
    close_lab(&l);
}
END_TEST

START_TEST(samples_have_their_own_text_and_one_prompt)
{
    lab l;
    reader r;
    dlab_answer_sum sum;
    dlab_answer_piece p[3];
    dlab_serve_stats s;
    open_lab(&l, _i, 8);
    dlab_ask ask = ask_of(&r, "Hello", 40, 3);
    ask.temperature = 2;
    dlab_answer *a = submit(l.host, &ask);
    wait_for_news(l.host, a, &r);
    ck_assert_uint_eq(dlab_answer_take(l.host, a, p, &sum), 3);
    ck_assert_uint_eq(sum.n_choices, 3);
    ck_assert_int_eq(sum.prompt_tokens, 5);
    ck_assert_int_eq(sum.completion_tokens, 120);
    ck_assert_uint_eq(p[0].choice + p[1].choice + p[2].choice, 3);
    for (size_t i = 0; i < 2; i++) ck_assert(p[i].n != p[i + 1].n || memcmp(p[i].text, p[i + 1].text, p[i].n) != 0);
    for (size_t i = 0; i < 3; i++) free(p[i].text);
    dlab_host_release(l.host, a);
    wait_until_idle(l.host, &s);
    ck_assert_uint_eq(s.ended[DLAB_ANSWER_LENGTH], 3);
    close_lab(&l);
}
END_TEST

START_TEST(what_is_given_up_is_freed)
{
    lab l;
    reader r[40];
    dlab_answer *a[40];
    dlab_serve_stats s;
    open_lab(&l, _i, 100);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) {
            dlab_ask ask = ask_of(&r[i], "Hello there", 380, 1 + i % 2);
            a[i] = submit(l.host, &ask);
        }
        do { /* some run, the others wait */
            dlab_host_get_stats(l.host, &s);
        } while (s.running == 0);
        for (int i = 0; i < 40; i++) dlab_host_release(l.host, a[i]);
        wait_until_idle(l.host, &s);
    }
    ck_assert_uint_eq(s.ended[DLAB_ANSWER_CANCELLED] + s.ended[DLAB_ANSWER_LENGTH], 180);
    ck_assert_uint_gt(s.ended[DLAB_ANSWER_CANCELLED], 90);
    close_lab(&l);
}
END_TEST

/* All its prompts may end in the step in which it is given up. */
START_TEST(several_prompts_given_up_at_their_end)
{
    lab l;
    reader r;
    dlab_serve_stats s;
    open_lab(&l, _i, 100);
    for (int i = 0; i < 300; i++) {
        dlab_ask ask = ask_of(&r, "Hello", 1 + i % 3, 1);
        dlab_prompt *more = realloc(ask.prompts, 3 * sizeof *more);
        ck_assert_ptr_nonnull(more);
        for (int k = 1; k < 3; k++) {
            more[k] = (dlab_prompt){malloc(sizeof(int32_t)), 1, more[0].max_new};
            more[k].ids[0] = k;
        }
        ask.prompts = more;
        ask.n_prompts = 3;
        dlab_answer *a = submit(l.host, &ask);
        if (i % 2) usleep(200);
        dlab_host_release(l.host, a);
        if (i % 10 == 0) wait_until_idle(l.host, &s);
    }
    wait_until_idle(l.host, &s);
    ck_assert_uint_eq(s.ended[DLAB_ANSWER_CANCELLED] + s.ended[DLAB_ANSWER_LENGTH], 900);
    close_lab(&l);
}
END_TEST

START_TEST(a_peer_that_closes_cancels)
{
    lab l;
    reader r;
    int pair[2];
    dlab_answer_sum sum;
    dlab_serve_stats s;
    open_lab(&l, _i, 8);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    reader rs[7];
    dlab_answer *others[7]; /* work enough for this one to wait behind */
    for (int i = 0; i < 7; i++) {
        dlab_ask o = ask_of(&rs[i], "Hello", 390, 4);
        others[i] = submit(l.host, &o);
    }
    dlab_ask ask = ask_of(&r, "Hello", 390, 1);
    ask.socket = pair[0];
    dlab_answer *a = submit(l.host, &ask);
    dlab_host_watch(l.host); /* nothing has happened yet */
    close(pair[1]);
    dlab_host_watch(l.host);
    wait_for_news(l.host, a, &r);
    dlab_answer_get_sum(l.host, a, &sum);
    dlab_host_release(l.host, a);
    ck_assert_int_eq(sum.end, DLAB_ANSWER_CANCELLED);
    ck_assert_str_eq(sum.message, "the client went away");
    for (int i = 0; i < 7; i++) {
        dlab_answer_get_sum(l.host, others[i], &sum);
        ck_assert_int_eq(sum.end, DLAB_ANSWER_NONE);
        dlab_host_release(l.host, others[i]);
    }
    wait_until_idle(l.host, &s);
    close(pair[0]);
    close_lab(&l);
}
END_TEST

START_TEST(a_full_queue_and_a_drain_refuse)
{
    lab l;
    reader r[64];
    dlab_answer *a[64] = {0};
    dlab_serve_stats s;
    dlab_error err = {0};
    dlab_answer *no = NULL;
    int n = 0;
    open_lab(&l, _i, 2);
    dlab_status st = DLAB_OK;
    while (st == DLAB_OK && n < 64) {
        dlab_ask ask = ask_of(&r[n], "Hello", 390, 1);
        st = dlab_host_submit(l.host, &ask, &a[n], &err);
        n += st == DLAB_OK;
        if (st != DLAB_OK) dlab_ask_free(&ask);
    }
    ck_assert_int_eq(st, DLAB_EFULL);
    ck_assert_ptr_nonnull(strstr(err.msg, "the queue holds 2"));
    ck_assert_int_ge(n, strstr(plans[_i][0], "continuous") ? 4 + 2 : 2); /* those that find a place do not wait */
    dlab_host_drain(l.host);
    ck_assert(dlab_host_draining(l.host));
    reader late;
    dlab_ask ask = ask_of(&late, "Hello", 1, 1);
    ck_assert_int_eq(dlab_host_submit(l.host, &ask, &no, NULL), DLAB_EINTERRUPTED);
    dlab_ask_free(&ask);
    for (int i = 0; i < n; i++) { /* those that were taken are answered to their end */
        dlab_answer_sum sum;
        wait_for_news(l.host, a[i], &r[i]);
        dlab_answer_get_sum(l.host, a[i], &sum);
        ck_assert_int_eq(sum.completion_tokens, 390);
        dlab_host_release(l.host, a[i]);
    }
    wait_until_idle(l.host, &s);
    ck_assert_uint_eq(s.refused_full, 1);
    close_lab(&l);
}
END_TEST

START_TEST(what_can_never_fit_is_refused_by_the_engine)
{
    lab l;
    reader r;
    dlab_answer_sum sum;
    dlab_serve_stats s;
    open_lab(&l, 0, 8);
    const dlab_answer_piece none = answer_to(&l, ask_of(&r, "Hello", 1000, 1), &r, &sum);
    ck_assert_int_eq(sum.end, DLAB_ANSWER_REFUSED);
    ck_assert_ptr_nonnull(strstr(sum.message, "1004 positions"));
    ck_assert_uint_eq(none.n, 0);
    wait_until_idle(l.host, &s);
    free(none.text);
    close_lab(&l);
}
END_TEST

START_TEST(all_end_when_told_to)
{
    lab l;
    reader r;
    dlab_answer_sum sum;
    open_lab(&l, _i, 8);
    dlab_ask ask = ask_of(&r, "Hello", 390, 4);
    dlab_answer *a = submit(l.host, &ask), *no = NULL;
    dlab_host_stop(l.host); /* without a reader that would take part in it */
    ck_assert(dlab_answer_ready(l.host, a));
    dlab_answer_get_sum(l.host, a, &sum);
    ck_assert(sum.ended && sum.end == DLAB_ANSWER_SHUTDOWN);
    ask = ask_of(&r, "Hello", 1, 1);
    ck_assert_int_eq(dlab_host_submit(l.host, &ask, &no, NULL), DLAB_EINTERRUPTED);
    dlab_ask_free(&ask);
    dlab_host_release(l.host, a);
    ck_assert_int_eq(dlab_host_live(l.host), 0);
    close_lab(&l);
}
END_TEST

/* First the engine is late, then the reader. */
START_TEST(time_that_is_up)
{
    lab l;
    reader r;
    int pair[2];
    char byte;
    dlab_answer_sum sum;
    dlab_serve_stats s;
    open_timed_lab(&l, _i, 8, 1);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    dlab_ask ask = ask_of(&r, "Hello", 390, 4);
    ask.socket = pair[0];
    dlab_answer *a = submit(l.host, &ask);
    dlab_host_watch(l.host);
    wait_for_news(l.host, a, &r);
    dlab_answer_get_sum(l.host, a, &sum);
    ck_assert_int_eq(sum.end, DLAB_ANSWER_TIMEOUT);
    usleep(10);
    dlab_host_watch(l.host);
    ck_assert_int_eq(recv(pair[1], &byte, 1, 0), 0);
    dlab_host_release(l.host, a);
    wait_until_idle(l.host, &s);
    ck_assert_uint_eq(s.ended[DLAB_ANSWER_TIMEOUT], 4);
    close(pair[0]);
    close(pair[1]);
    close_lab(&l);
}
END_TEST

/* Those that wait are computed again or copied, and say the same. */
START_TEST(a_small_cache_changes_no_answer)
{
    enum { N = 6 };
    lab l;
    reader r[N];
    dlab_answer *a[N];
    dlab_answer_sum sum;
    dlab_answer_piece p[N];
    dlab_serve_stats s;
    open_lab(&l, _i, 100);
    for (int i = 0; i < N; i++) {
        dlab_ask ask = ask_of(&r[i], "Hello", 300, 1);
        a[i] = submit(l.host, &ask);
    }
    for (int i = 0; i < N; i++) {
        wait_for_news(l.host, a[i], &r[i]);
        ck_assert_uint_eq(dlab_answer_take(l.host, a[i], &p[i], &sum), 1);
        ck_assert_int_eq(p[i].end, DLAB_ANSWER_LENGTH);
        ck_assert_int_eq(sum.completion_tokens, 300);
        ck_assert_uint_eq(p[i].n, p[0].n);
        ck_assert_mem_eq(p[i].text, p[0].text, p[0].n);
        dlab_host_release(l.host, a[i]);
    }
    for (int i = 0; i < N; i++) free(p[i].text);
    wait_until_idle(l.host, &s);
    const bool swaps = strcmp(dlab_engine_plan(l.engine)->batch_preemption, "swap") == 0;
    if (strcmp(plans[_i][1] ? plans[_i][1] : "", "kv.pool=40 blocks") == 0) ck_assert_uint_gt(s.preemptions, 0);
    ck_assert(swaps ? s.swapped_out > 0 && s.swapped_in > 0 && s.swap_bytes > 0 : s.swapped_out == 0);
    close_lab(&l);
}
END_TEST

int main(void)
{
    if (dlab_model_open("synthetic:tiny", &model, NULL) != DLAB_OK ||
        dlab_tokenizer_create(model, &tok, NULL) != DLAB_OK)
        return 1;
    Suite *s = suite_create("serve_host");
    TCase *t = tcase_create("serve_host");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_stream_adds_up_to_the_whole, 0, N_PLANS);
    tcase_add_loop_test(t, a_stop_string_ends_the_engines_work, 0, N_PLANS);
    tcase_add_loop_test(t, samples_have_their_own_text_and_one_prompt, 0, N_PLANS);
    tcase_add_loop_test(t, what_is_given_up_is_freed, 0, N_PLANS);
    tcase_add_loop_test(t, several_prompts_given_up_at_their_end, 0, N_PLANS);
    tcase_add_loop_test(t, a_peer_that_closes_cancels, 0, N_PLANS);
    tcase_add_loop_test(t, a_full_queue_and_a_drain_refuse, 0, N_PLANS);
    tcase_add_test(t, what_can_never_fit_is_refused_by_the_engine);
    tcase_add_loop_test(t, all_end_when_told_to, 0, N_PLANS);
    tcase_add_loop_test(t, time_that_is_up, 0, N_PLANS);
    tcase_add_loop_test(t, a_small_cache_changes_no_answer, 0, N_PLANS);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    dlab_tokenizer_destroy(tok);
    dlab_model_close(model);
    return failed ? 1 : 0;
}

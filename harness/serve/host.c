#include "harness/serve/host_own.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define ID_SAMPLES DLAB_ASK_SAMPLES /* ids of one engine request */

/* ---- lists and answers ---------------------------------------------------------------------------------------------- */

void dlab_host_append(dlab_answer_list *l, dlab_answer *a)
{
    a->prev = l->last;
    a->next = NULL;
    if (l->last)
        l->last->next = a;
    else
        l->first = a;
    l->last = a;
}

void dlab_host_unlink(dlab_answer_list *l, dlab_answer *a)
{
    if (a->prev)
        a->prev->next = a->next;
    else
        l->first = a->next;
    if (a->next)
        a->next->prev = a->prev;
    else
        l->last = a->prev;
}

void dlab_host_free_answer(dlab_host *h, dlab_answer *a)
{
    for (size_t i = 0; i < a->n_choices; i++) dlab_answer_text_free(&a->choices[i].text);
    free(a->choices);
    dlab_ask_free(&a->ask);
    free(a);
    h->n_answers--;
}

static void tell(dlab_answer *a)
{
    a->fresh = true;
    if (!a->asleep || (a->ask.whole && !a->ended)) return;
    a->asleep = false;
    a->ask.wake(a->ask.ctx);
}

static void add_news(dlab_answer *a, dlab_choice *c)
{
    if (c->is_new) return;
    c->is_new = true;
    c->next_new = a->first_new;
    a->first_new = c;
}

/* All choices have ended, and the engine knows nothing of it any more. */
static void end_answer(dlab_host *h, dlab_answer *a)
{
    dlab_host_unlink(&h->live, a);
    if (a->released) {
        dlab_host_free_answer(h, a);
        return;
    }
    a->ended = true;
    if (h->opts.timeout_ns > 0) a->deadline_ns = dlab_clock_now_ns(h->opts.clock) + h->opts.timeout_ns;
    dlab_host_append(&h->ended, a);
    tell(a);
}

void dlab_host_doom(dlab_host *h, dlab_answer *a, dlab_answer_end end, const char *why)
{
    if (a->doom != DLAB_ANSWER_NONE) return;
    a->doom = end;
    dlab_text_copy(a->message, sizeof a->message, why);
    h->doomed = true;
    pthread_cond_signal(&h->work);
}

static double seconds(int64_t ns) { return (double)ns / 1e9; }

static void end_choice(dlab_host *h, dlab_answer *a, dlab_choice *c, dlab_answer_end end)
{
    c->end = end;
    dlab_answer_text_end(&c->text);
    add_news(a, c);
    a->n_open--;
    h->stats.ended[end]++;
    if (end != DLAB_ANSWER_STOP && end != DLAB_ANSWER_LENGTH) return;
    dlab_histogram_add(&h->stats.e2e, seconds(c->last_ns - a->ask.arrived_ns));
    if (c->n_tokens > 1)
        dlab_histogram_add(&h->stats.tpot, seconds(c->last_ns - c->first_ns) / (double)(c->n_tokens - 1));
}

/* ---- slots ---------------------------------------------------------------------------------------------------------- */

static int64_t take_slot(dlab_host *h)
{
    if (h->free_slot < 0) {
        size_t n = (size_t)h->n_slots;
        dlab_slot *grown = dlab_grow(h->slots, n + 1, &n, sizeof *grown);
        if (!grown) return -1;
        h->slots = grown;
        for (int64_t i = (int64_t)n; i-- > h->n_slots;) {
            grown[i] = (dlab_slot){.next = h->free_slot};
            h->free_slot = i;
        }
        h->n_slots = (int64_t)n;
    }
    const int64_t s = h->free_slot;
    h->free_slot = h->slots[s].next;
    return s;
}

static void give_slot(dlab_host *h, int64_t s)
{
    dlab_slot *it = &h->slots[s];
    if (!it->admitted) h->waiting--;
    if (it->n_running > 0) dlab_engine_abort(h->opts.engine, s * ID_SAMPLES);
    it->answer->n_slots--;
    *it = (dlab_slot){.next = h->free_slot};
    h->free_slot = s;
}

/* Ends what is open of an answer; between steps. message may be its own. */
static void fail_answer(dlab_host *h, dlab_answer *a, dlab_answer_end end, const char *message)
{
    for (int64_t s = 0; s < h->n_slots && a->n_slots > 0; s++) {
        if (h->slots[s].answer == a) give_slot(h, s);
    }
    for (size_t i = 0; i < a->n_choices; i++) {
        if (a->choices[i].end == DLAB_ANSWER_NONE) end_choice(h, a, &a->choices[i], end);
    }
    a->failed = end;
    dlab_text_copy(a->message, sizeof a->message, message);
    end_answer(h, a);
}

static void fail_all(dlab_host *h, dlab_answer_end end, const char *message)
{
    while (h->live.first) fail_answer(h, h->live.first, end, message);
}

/* ---- the mailbox ---------------------------------------------------------------------------------------------------- */

static dlab_status submit_prompt(dlab_host *h, dlab_answer *a, size_t i, dlab_error *err)
{
    const dlab_ask *ask = &a->ask;
    const int64_t s = take_slot(h);
    if (s < 0) return DLAB_FAIL(err, DLAB_EOOM, "no memory for one more request");
    const dlab_engine_request r = {.id = s * ID_SAMPLES,
                                   .prompt = ask->prompts[i].ids,
                                   .n_prompt = ask->prompts[i].n,
                                   .max_new = ask->prompts[i].max_new,
                                   .eos = ask->ends[0],
                                   .seed = ask->seed,
                                   .primed = -1,
                                   .samples = ask->samples,
                                   .priority = ask->priority,
                                   .own_sampling = true,
                                   .temperature = ask->temperature,
                                   .top_p = ask->top_p,
                                   .top_k = ask->top_k};
    h->slots[s] = (dlab_slot){.answer = a, .prompt = i, .n_open = ask->samples, .n_running = ask->samples, .next = -1};
    a->n_slots++;
    const dlab_status st = dlab_engine_submit(h->opts.engine, &r, err);
    if (st == DLAB_OK) return DLAB_OK;
    h->slots[s].n_running = 0;
    h->slots[s].admitted = true; /* the mailbox gives back what waits of a refused answer */
    give_slot(h, s);
    return st;
}

static void open_letter(dlab_host *h, dlab_answer *a)
{
    size_t n = 0;
    dlab_error err = {0};
    dlab_status st = DLAB_OK;
    dlab_host_unlink(&h->mail, a);
    dlab_host_append(&h->live, a);
    h->mail_choices -= (int64_t)a->n_choices;
    while (n < a->ask.n_prompts && st == DLAB_OK && a->doom == DLAB_ANSWER_NONE) {
        st = submit_prompt(h, a, n, &err);
        n += st == DLAB_OK;
    }
    h->waiting -= (int64_t)(a->ask.n_prompts - n);
    for (size_t i = 0; i < a->ask.n_prompts; i++) { /* the engine has its own copy */
        free(a->ask.prompts[i].ids);
        a->ask.prompts[i].ids = NULL;
    }
    if (a->doom != DLAB_ANSWER_NONE)
        fail_answer(h, a, a->doom, a->message);
    else if (st != DLAB_OK)
        fail_answer(h, a, st == DLAB_EOOM ? DLAB_ANSWER_FAILED : DLAB_ANSWER_REFUSED, err.msg);
}

static void end_doomed(dlab_host *h)
{
    h->doomed = false;
    for (dlab_answer *a = h->live.first, *next; a; a = next) {
        next = a->next;
        if (a->doom != DLAB_ANSWER_NONE) fail_answer(h, a, a->doom, a->message);
    }
}

/* ---- what a step brought -------------------------------------------------------------------------------------------- */

static dlab_status add_text(dlab_host *h, dlab_answer *a, dlab_choice *c, int32_t token, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    if (dlab_tokenizer_is_control(h->opts.tok, token)) return DLAB_OK;
    DLAB_TRY(dlab_tokenizer_decode(h->opts.tok, &token, 1, &text, &n, err));
    const dlab_status st = dlab_answer_text_add(&c->text, &a->ask.stops, text, n, err);
    free(text);
    return st;
}

static void count_token(dlab_host *h, dlab_answer *a, dlab_choice *c, int64_t now)
{
    if (c->n_tokens++ == 0) {
        c->first_ns = now;
        dlab_histogram_add(&h->stats.ttft, seconds(now - a->ask.arrived_ns));
    } else {
        dlab_histogram_add(&h->stats.itl, seconds(now - c->last_ns));
    }
    c->last_ns = now;
    a->completion_tokens++;
}

/* The end that this token brings, if any. */
static dlab_status add_token(dlab_host *h, dlab_answer *a, dlab_choice *c, const dlab_step_token *t,
                             dlab_answer_end *end, dlab_error *err)
{
    const bool ends = t->token == a->ask.ends[0] || t->token == a->ask.ends[1];
    *end = ends                              ? DLAB_ANSWER_STOP
           : t->finish == DLAB_FINISH_LENGTH ? DLAB_ANSWER_LENGTH
           : t->finish == DLAB_FINISH_EOS    ? DLAB_ANSWER_STOP
                                             : DLAB_ANSWER_NONE;
    if (ends) return DLAB_OK; /* no text */
    DLAB_TRY(add_text(h, a, c, t->token, err));
    if (c->text.stopped) *end = DLAB_ANSWER_STOP;
    return DLAB_OK;
}

static void deliver(dlab_host *h, const dlab_step_token *t, int64_t now)
{
    const int64_t s = t->request / ID_SAMPLES;
    dlab_slot *it = &h->slots[s];
    dlab_answer *a = it->answer;
    dlab_choice *c = &a->choices[it->prompt * (size_t)a->ask.samples + (size_t)(t->request % ID_SAMPLES)];
    if (t->finish != DLAB_FINISH_NONE) it->n_running--;
    h->stats.generated_tokens++;
    if (c->end != DLAB_ANSWER_NONE || a->doom != DLAB_ANSWER_NONE)
        return; /* a stop string ended it, its siblings go on */
    dlab_answer_end end;
    dlab_error err = {0};
    count_token(h, a, c, now);
    if (add_token(h, a, c, t, &end, &err) != DLAB_OK) { /* its own misfortune, the engine is well */
        dlab_host_doom(h, a, DLAB_ANSWER_FAILED, err.msg);
        return;
    }
    if (c->text.ready > c->shown) add_news(a, c);
    if (end != DLAB_ANSWER_NONE) {
        end_choice(h, a, c, end);
        if (--it->n_open == 0) {
            it->next = h->done_slot;
            h->done_slot = s;
        }
    }
    if (a->n_open > 0) tell(a); /* else it is told when its slots are given back */
}

static void settle(dlab_host *h)
{
    while (h->done_slot >= 0) {
        const int64_t s = h->done_slot;
        dlab_answer *a = h->slots[s].answer;
        h->done_slot = h->slots[s].next;
        give_slot(h, s);
        if (a->n_open == 0 && a->n_slots == 0) end_answer(h, a);
    }
}

static void admit(dlab_host *h, const dlab_step *step, int64_t now)
{
    for (int32_t i = 0; i < step->n_admitted; i++) {
        dlab_slot *it = &h->slots[step->admitted[i] / ID_SAMPLES];
        dlab_answer *a = it->answer;
        if (it->admitted || !a) continue; /* a further sample, or one that has come back */
        it->admitted = true;
        h->waiting--;
        a->prompt_tokens += a->ask.prompts[it->prompt].n;
        a->cached_tokens += step->admitted_cached[i];
        h->stats.prompt_tokens += (uint64_t)a->ask.prompts[it->prompt].n;
        h->stats.cached_tokens += (uint64_t)step->admitted_cached[i];
        dlab_histogram_add(&h->stats.queue, seconds(now - a->ask.arrived_ns));
    }
}

static dlab_status take_step(dlab_host *h, const dlab_step *step, int64_t began, int64_t ended, dlab_error *err)
{
    if (step->rows == 0 && step->n_tokens == 0)
        return DLAB_FAIL(err, DLAB_EINTERNAL, "a step of the engine did nothing although requests wait");
    h->stats.steps++;
    h->stats.preemptions += (uint64_t)step->preempted;
    admit(h, step, began);
    h->stats.swapped_out += (uint64_t)step->swapped_out;
    h->stats.swapped_in += (uint64_t)step->swapped_in;
    h->stats.swap_bytes += (uint64_t)step->swap_bytes;
    for (int32_t i = 0; i < step->n_tokens; i++) deliver(h, &step->tokens[i], ended);
    settle(h);
    h->stats.kv = step->kv;
    return DLAB_OK;
}

/* ---- the thread ----------------------------------------------------------------------------------------------------- */

/* The cache as it is between steps; a step tells it itself. */
static void publish_kv(dlab_host *h) { dlab_engine_kv(h->opts.engine, &h->stats.kv); }

static void publish(dlab_host *h)
{
    dlab_engine_load load;
    dlab_engine_get_load(h->opts.engine, &load);
    h->stats.running = load.running;
    h->stats.waiting = load.waiting;
}

/* Ends all answers, whether or not the engine has seen them. */
static void end_all(dlab_host *h, dlab_answer_end end, const char *message)
{
    h->draining = true;
    while (h->mail.first) {
        dlab_answer *a = h->mail.first;
        h->waiting -= (int64_t)a->ask.n_prompts;
        h->mail_choices -= (int64_t)a->n_choices;
        dlab_host_unlink(&h->mail, a);
        dlab_host_append(&h->live, a);
    }
    fail_all(h, end, message);
    publish(h);
    publish_kv(h);
}

static void between_steps(dlab_host *h)
{
    while (h->mail.first) open_letter(h, h->mail.first);
    if (h->doomed) end_doomed(h);
    publish(h);
}

/* The lock is held, but while a step runs. */
static void *run(void *arg)
{
    dlab_host *h = arg;
    pthread_mutex_lock(&h->lock);
    while (!h->stop && h->status == DLAB_OK) {
        dlab_step step = {0};
        dlab_error err = {0};
        between_steps(h);
        if (!dlab_engine_busy(h->opts.engine)) {
            publish_kv(h);
            pthread_cond_wait(&h->work, &h->lock);
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        const int64_t began = dlab_clock_now_ns(h->opts.clock);
        dlab_status st = dlab_engine_step(h->opts.engine, &step, &err);
        const int64_t ended = dlab_clock_now_ns(h->opts.clock);
        pthread_mutex_lock(&h->lock);
        if (st == DLAB_OK) st = take_step(h, &step, began, ended, &err);
        if (st == DLAB_OK) continue;
        h->status = st;
        h->error = err;
        end_all(h, DLAB_ANSWER_FAILED, err.msg);
    }
    end_all(h, DLAB_ANSWER_SHUTDOWN, "the server is shutting down");
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

dlab_status dlab_host_create(const dlab_host_opts *opts, dlab_host **out, dlab_error *err)
{
    *out = NULL;
    dlab_host *h = calloc(1, sizeof *h);
    if (!h) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a server");
    h->opts = *opts;
    h->free_slot = h->done_slot = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    publish_kv(h);
    if (pthread_create(&h->thread, NULL, run, h) != 0) {
        pthread_cond_destroy(&h->work);
        pthread_mutex_destroy(&h->lock);
        free(h);
        return DLAB_FAIL(err, DLAB_EOOM, "the engine's thread could not be started");
    }
    *out = h;
    return DLAB_OK;
}

void dlab_host_stop(dlab_host *h)
{
    if (!h || h->stopped) return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->work);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    h->stopped = true;
}

void dlab_host_destroy(dlab_host *h)
{
    if (!h) return;
    dlab_host_stop(h);
    pthread_cond_destroy(&h->work);
    pthread_mutex_destroy(&h->lock);
    free(h->slots);
    free(h->polls);
    free(h->numbers);
    free(h);
}

#include <stdlib.h>
#include <string.h>

#include "base/int.h"
#include "harness/serve/host_own.h"

void dlab_ask_free(dlab_ask *a)
{
    for (size_t i = 0; i < a->n_prompts; i++) free(a->prompts[i].ids);
    free(a->prompts);
    dlab_stops_free(&a->stops);
    *a = (dlab_ask){0};
}

/* What the next step may start at best: each prompt takes one place or more, and a static batch takes in nothing while it runs.
 * Whether the cache has room as well only the step will tell. */
static int64_t free_places(const dlab_host *h)
{
    const dlab_plan *p = dlab_engine_plan(h->opts.engine);
    if (h->stats.running > 0 && strcmp(p->batch_mode, "static") == 0) return 0;
    return dlab_max_i64(p->batch_size - h->stats.running, 0);
}

static dlab_status check_room(dlab_host *h, const dlab_ask *ask, dlab_error *err)
{
    if (h->draining) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "the server is shutting down");
    const int64_t starting = free_places(h);
    if (h->waiting + (int64_t)ask->n_prompts <= starting + h->opts.queue) return DLAB_OK;
    h->stats.refused_full++;
    return DLAB_FAIL(err, DLAB_EFULL, "%lld prompts wait already, and the queue holds %lld: try again later",
                     (long long)dlab_max_i64(h->waiting - starting, 0), (long long)h->opts.queue);
}

dlab_status dlab_host_submit(dlab_host *h, dlab_ask *ask, dlab_answer **out, dlab_error *err)
{
    *out = NULL;
    const size_t n = ask->n_prompts * (size_t)ask->samples;
    dlab_answer *a = calloc(1, sizeof *a);
    dlab_choice *choices = calloc(n, sizeof *choices);
    if (!a || !choices) {
        free(choices);
        free(a);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu answers", n);
    }
    pthread_mutex_lock(&h->lock);
    const dlab_status st = check_room(h, ask, err);
    if (st == DLAB_OK) {
        *a = (dlab_answer){.ask = *ask, .choices = choices, .n_choices = n, .n_open = n, .deadline_ns = INT64_MAX};
        a->number = h->n_asked++;
        if (h->opts.timeout_ns > 0) a->deadline_ns = ask->arrived_ns + h->opts.timeout_ns;
        dlab_host_append(&h->mail, a);
        h->n_answers++;
        h->waiting += (int64_t)ask->n_prompts;
        h->mail_choices += (int64_t)n;
        pthread_cond_signal(&h->work);
        *ask = (dlab_ask){0};
        *out = a;
    }
    pthread_mutex_unlock(&h->lock);
    if (st == DLAB_OK) return DLAB_OK;
    free(choices);
    free(a);
    return st;
}

void dlab_host_release(dlab_host *h, dlab_answer *a)
{
    if (!a) return;
    pthread_mutex_lock(&h->lock);
    a->asleep = false;
    a->released = true;
    a->ask.socket = -1; /* its owner closes it */
    if (a->ended) {
        dlab_host_unlink(&h->ended, a);
        dlab_host_free_answer(h, a);
    } else {
        dlab_host_doom(h, a, DLAB_ANSWER_CANCELLED, "");
    }
    pthread_mutex_unlock(&h->lock);
}

bool dlab_answer_ready(dlab_host *h, dlab_answer *a)
{
    pthread_mutex_lock(&h->lock);
    const bool ready = a->ask.whole ? a->ended : a->fresh;
    a->fresh = false;
    if (!ready) {
        a->asleep = true;
        a->ask.sleep(a->ask.ctx);
    }
    pthread_mutex_unlock(&h->lock);
    return ready;
}

static void take_choice(dlab_choice *c, dlab_answer_piece *out)
{
    out->n = c->text.ready - c->shown;
    out->end = c->told ? DLAB_ANSWER_NONE : c->end;
    out->text = malloc(out->n + 1);
    if (!out->text) return;
    if (out->n) memcpy(out->text, c->text.text + c->shown, out->n);
    out->text[out->n] = 0;
    c->shown = c->text.ready;
    c->told = c->end != DLAB_ANSWER_NONE;
}

static void sum_up(const dlab_answer *a, dlab_answer_sum *out)
{
    *out = (dlab_answer_sum){.n_choices = a->n_choices,
                             .ended = a->ended,
                             .end = a->failed,
                             .prompt_tokens = a->prompt_tokens,
                             .cached_tokens = a->cached_tokens,
                             .completion_tokens = a->completion_tokens};
    memcpy(out->message, a->message, sizeof out->message);
}

size_t dlab_answer_take(dlab_host *h, dlab_answer *a, dlab_answer_piece *pieces, dlab_answer_sum *sum)
{
    size_t n = 0;
    pthread_mutex_lock(&h->lock);
    for (dlab_choice *c = a->first_new; c; c = c->next_new) {
        c->is_new = false;
        pieces[n].choice = (size_t)(c - a->choices);
        take_choice(c, &pieces[n++]);
    }
    a->first_new = NULL;
    sum_up(a, sum);
    pthread_mutex_unlock(&h->lock);
    return n;
}

void dlab_answer_get_sum(dlab_host *h, dlab_answer *a, dlab_answer_sum *out)
{
    pthread_mutex_lock(&h->lock);
    sum_up(a, out);
    pthread_mutex_unlock(&h->lock);
}

void dlab_host_get_stats(dlab_host *h, dlab_serve_stats *out)
{
    pthread_mutex_lock(&h->lock);
    *out = h->stats;
    out->waiting += h->mail_choices;
    pthread_mutex_unlock(&h->lock);
}

void dlab_host_drain(dlab_host *h)
{
    pthread_mutex_lock(&h->lock);
    h->draining = true;
    pthread_mutex_unlock(&h->lock);
}

bool dlab_host_draining(dlab_host *h)
{
    pthread_mutex_lock(&h->lock);
    const bool draining = h->draining;
    pthread_mutex_unlock(&h->lock);
    return draining;
}

int64_t dlab_host_live(dlab_host *h)
{
    pthread_mutex_lock(&h->lock);
    const int64_t n = h->n_answers;
    pthread_mutex_unlock(&h->lock);
    return n;
}

dlab_status dlab_host_status(dlab_host *h, dlab_error *err)
{
    pthread_mutex_lock(&h->lock);
    const dlab_status st = h->status;
    if (st != DLAB_OK && err) *err = h->error;
    pthread_mutex_unlock(&h->lock);
    return st;
}

/* The peer's turns: one process a run, while ours waits. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "harness/cmd/cmd_bench.h"

static dlab_peer peer_of(const dlab_bench_opts *o, const dlab_bench_row *row, const volatile sig_atomic_t *interrupted)
{
    return (dlab_peer){.kind = o->peer_kind,
                       .path = o->peer_path,
                       .model = row->peer.model,
                       .timeout_ns = o->peer_timeout_s * 1000000000,
                       .interrupted = interrupted};
}

static bool waits_for_a_turn(const dlab_bench_row *row)
{
    return row->peer.asked && row->peer.status == DLAB_RUN_PENDING;
}

static void give_up(dlab_bench_row *row, dlab_status st, const char *reason)
{
    row->peer.status = st == DLAB_ETIMEOUT ? DLAB_RUN_HUNG : dlab_session_status(st);
    dlab_text_copy(row->peer.reason, sizeof row->peer.reason, reason);
}

static void tell(const dlab_bench_opts *o, const dlab_bench_row *row, const char *what)
{
    char test[96];
    if (!o->progress) return;
    dlab_bench_test_name(row->cell, test, sizeof test);
    fprintf(stderr, "dlab bench: %s: %s: %s\n", test, o->peer_kind->name, what);
}

/* Which of its two ways of attention is the peer's faster one here: one run of each, not counted. */
static dlab_status choose_flash(const dlab_bench_opts *o, const dlab_peer *p, dlab_bench_row *row, dlab_error *err)
{
    dlab_error why = {0};
    dlab_status worst = DLAB_OK;
    double best_ns = INFINITY;
    int best = -1;
    for (int flash = 1; flash >= 0; flash--) {
        dlab_error e = {0};
        dlab_peer_sample sample;
        tell(o, row, flash ? "trying -fa 1" : "trying -fa 0");
        row->peer.test.flash = flash;
        dlab_status st = dlab_peer_measure(p, &row->peer.test, &sample, &e);
        if (st == DLAB_EINTERRUPTED) return DLAB_FAIL(err, st, "interrupted");
        if (st == DLAB_OK && sample.time_ns < best_ns) {
            best_ns = sample.time_ns;
            best = flash;
        }
        if (st != DLAB_OK && worst == DLAB_OK) {
            worst = st;
            why = e;
        }
    }
    row->peer.test.flash = best;
    if (best < 0) give_up(row, worst, why.msg);
    return DLAB_OK;
}

dlab_status dlab_bench_peer_begin(const dlab_bench_opts *o, const volatile sig_atomic_t *interrupted,
                                  dlab_bench_row *row, dlab_error *err)
{
    dlab_error e = {0};
    const dlab_bench_cell *c = row->cell;
    if (!row->peer.asked) return DLAB_OK;
    const dlab_peer p = peer_of(o, row, interrupted);
    row->peer.test = (dlab_peer_test){.n_prompt = c->n_prompt,
                                      .n_gen = c->n_gen,
                                      .depth = c->depth,
                                      .npl = c->npl,
                                      .n_params = row->model->n_params,
                                      .flash = (int)o->peer_flash};
    dlab_status st = dlab_peer_test_fit(&p, &row->plan, &row->peer.test, &e);
    if (st != DLAB_OK) {
        row->peer.test.flash = -1;
        give_up(row, st, e.msg);
        return DLAB_OK;
    }
    return o->peer_flash < 0 ? choose_flash(o, &p, row, err) : DLAB_OK;
}

dlab_status dlab_bench_peer_turn(const dlab_bench_opts *o, const volatile sig_atomic_t *interrupted,
                                 dlab_bench_row *row, dlab_error *err)
{
    dlab_error e = {0};
    dlab_peer_sample sample;
    char what[64];
    if (!waits_for_a_turn(row)) return DLAB_OK;
    const dlab_peer p = peer_of(o, row, interrupted);
    snprintf(what, sizeof what, "run %zu of %" PRId64, row->peer.n + 1, o->repeats);
    tell(o, row, what);
    dlab_status st = dlab_peer_measure(&p, &row->peer.test, &sample, &e);
    if (st == DLAB_EINTERRUPTED) return DLAB_FAIL(err, st, "interrupted");
    if (st != DLAB_OK) {
        give_up(row, st, e.msg);
        return DLAB_OK;
    }
    snprintf(row->peer.build, sizeof row->peer.build, "%s", sample.build);
    row->peer.time_ns[row->peer.n] = sample.time_ns;
    row->peer.rate[row->peer.n++] = sample.rate;
    return DLAB_OK;
}

/* A ratio of fewer pairs than were asked for is none: what stopped the peer may have been slowing it down. */
void dlab_bench_peer_end(dlab_bench_row *row)
{
    if (!waits_for_a_turn(row)) return;
    if (row->status != DLAB_RUN_OK) {
        row->peer.status = DLAB_RUN_SKIPPED;
        snprintf(row->peer.reason, sizeof row->peer.reason, "ours is %s", dlab_run_status_text(row->status));
        return;
    }
    row->peer.status = DLAB_RUN_OK;
    row->peer.ratio = dlab_ratio_of_pairs(row->rate, row->peer.rate, row->peer.n, DLAB_BENCH_LEVEL);
}

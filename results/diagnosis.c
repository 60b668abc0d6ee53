#include "results/diagnosis.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/events.h"
#include "results/roofline.h"
#include "results/units.h"

const char *dlab_cause_text(dlab_cause c)
{
    static const char *const texts[] = {
#define DLAB_CAUSE_TEXT(name, text) text,
        DLAB_CAUSE_LIST(DLAB_CAUSE_TEXT)
#undef DLAB_CAUSE_TEXT
    };
    return (unsigned)c < DLAB_CAUSE_N ? texts[c] : "unknown";
}

/* Seconds, and what stands beside them as evidence. */
typedef struct {
    double requests, unadmitted;
    /* request-seconds: waiting to be admitted, out of place after preemption, held for the batch's end, in service */
    double queue, away, held, service, lag; /* lag: the part of queue before they were submitted */
    /* seconds of steps, and between them, in which a request was in service: what they went to. rest: neither bytes nor
     * operations explain it; unknown: the peaks are not known; silent: the steps declare no work */
    double prefill, kv, weights, compute, padding, again, swap, rest, gaps, unknown, silent;
    double steps, seconds, slots, waiting, rows, prefill_rows, pad_rows, again_rows;
    /* of decoding: each step counts for its share of rows that decode; mixed: of decode_steps, in steps with prompts too */
    double decode_steps, mixed, decode_seconds, decode_allowed, decode_bytes, decode_kv, decode_seqs, decode_launches;
    double preempted, swap_bytes;
    /* of steps in which requests waited beside free places, for nothing but room: request-seconds of those that waited,
     * seconds, and, times those, bytes assigned and in all, and places used */
    double roomless, room_seconds, room_used, room_pool, room_seqs;
} tally;

/* ---- requests ------------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* When served requests were admitted and when they ended, each ascending: how many are in service at a time that only grows
 * is one count less the other. */
typedef struct {
    double *admitted, *ended;
    size_t n, n_admitted, n_ended; /* the last two: up to the time last asked for */
} service;

static dlab_status take_requests(const dlab_run *r, service *s, tally *t, dlab_error *err)
{
    const double end = dlab_events_length_ns(r);
    s->admitted = malloc((r->n_requests + 1) * sizeof *s->admitted);
    s->ended = malloc((r->n_requests + 1) * sizeof *s->ended);
    if (!s->admitted || !s->ended)
        return DLAB_FAIL(err, DLAB_EOOM, "diagnosis: no memory for %zu requests", r->n_requests);
    for (size_t i = 0; i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        if (!dlab_event_served(q)) continue;
        const bool admitted = isfinite(q->t_admit);
        const double waited = ((admitted ? q->t_admit : end) - q->t_sched) * 1e-9;
        t->requests++;
        t->unadmitted += !admitted;
        if (waited > 0 && (admitted || !isfinite(q->t_done))) t->queue += waited;
        if (q->t_submit > q->t_sched) t->lag += (q->t_submit - q->t_sched) * 1e-9;
        if (!admitted) continue;
        s->admitted[s->n] = q->t_admit;
        s->ended[s->n++] = isfinite(q->t_done) ? q->t_done : INFINITY;
    }
    qsort(s->admitted, s->n, sizeof *s->admitted, compare_doubles);
    qsort(s->ended, s->n, sizeof *s->ended, compare_doubles);
    return DLAB_OK;
}

static double in_service(service *s, double t)
{
    while (s->n_admitted < s->n && s->admitted[s->n_admitted] <= t) s->n_admitted++;
    while (s->n_ended < s->n && s->ended[s->n_ended] <= t) s->n_ended++;
    return s->n_admitted > s->n_ended ? (double)(s->n_admitted - s->n_ended) : 0;
}

/* ---- steps ---------------------------------------------------------------------------------------------------------- */

/* What holds for all steps of a run. */
typedef struct {
    const dlab_run *run;
    bool preempts, at_end, admits; /* admits: at any step, wherever there are places and room */
    double prefill_again;          /* share of the prefill rows that were computed before */
} step_context;

/* All samples of a prompt are requests, with ids in a row; its rows are computed once. */
static int64_t samples_of(const dlab_run *r)
{
    const char *text = dlab_settings_get(&r->effective, "workload.samples");
    const int64_t samples = text ? strtoll(text, NULL, 10) : 1;
    return samples > 1 ? samples : 1;
}

static step_context context_of(const dlab_run *r)
{
    const char *release = dlab_settings_get(&r->effective, "batch.release");
    const int64_t samples = samples_of(r);
    const char *mode = dlab_settings_get(&r->effective, "batch.mode");
    const char *interval = dlab_settings_get(&r->effective, "batch.interval_ms");
    step_context c = {.run = r,
                      .at_end = release && strcmp(release, "at_end") == 0,
                      .admits = mode && strcmp(mode, "continuous") == 0 && !(interval && strtod(interval, NULL) > 0)};
    double rows = 0, prompts = 0;
    for (size_t i = 0; i < r->n_steps; i++) {
        c.preempts = c.preempts || r->steps[i].preempted > 0;
        rows += r->steps[i].prefill_rows;
    }
    for (size_t i = 0; i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        if (q->id % samples != 0 || !isfinite(q->t_admit)) continue;
        prompts += (double)q->prompt_tokens - (q->cached_tokens > 0 ? (double)q->cached_tokens : 0);
    }
    if (c.preempts && rows > prompts) c.prefill_again = 1 - prompts / rows;
    return c;
}

/* Of a step's decode rows: one a live sequence is new; more than that were computed before, if sequences gave their places
 * back. (A store that keeps nothing computes all of them again at every step, which is no preemption.) */
static double rows_again(const step_context *c, const dlab_ev_step *s)
{
    if (!c->preempts) return 0;
    return fmax(0, (double)s->decode_rows - s->seqs) + c->prefill_again * s->prefill_rows;
}

/* The part `share` of a step, which decodes. */
static void add_decoding(const step_context *c, const dlab_ev_step *s, double share, double took, tally *t)
{
    const dlab_step_bound b = dlab_step_bounds(c->run, s);
    const double attention = s->bytes > 0 ? fmin(1, (s->kv_bytes + s->inter_bytes) / s->bytes) : 0;
    if (s->bytes == 0 && s->flops == 0) {
        t->silent += share * took;
        return;
    }
    if (!isfinite(b.allowed) || b.allowed < 0 || !isfinite(attention)) {
        t->unknown += share * took;
        return;
    }
    const double explained = share * fmin(b.allowed, took), rest = share * took - explained;
    const double bandwidth = dlab_peak_bandwidth(c->run, (double)s->swap_bytes);
    const double swap = s->swap_bytes > 0 && bandwidth > 0 ? (double)s->swap_bytes / bandwidth : 0;
    if (b.bytes >= b.operations) {
        t->kv += attention * explained;
        t->weights += (1 - attention) * explained;
    } else {
        t->compute += explained;
    }
    t->swap += fmin(swap, rest);
    t->rest += rest - fmin(swap, rest);
    t->decode_steps += share;
    t->mixed += s->prefill_rows > 0 ? share : 0;
    t->decode_seconds += share * took;
    t->decode_allowed += share * b.allowed;
    t->decode_bytes += share * s->bytes;
    t->decode_kv += share * (s->kv_bytes + s->inter_bytes);
    t->decode_seqs += share * s->seqs;
    t->decode_launches += share * s->launches;
}

/* A step is divided by its rows. */
static void add_rows(const step_context *c, const dlab_ev_step *s, double took, tally *t)
{
    const double rows = (double)s->prefill_rows + s->decode_rows + s->pad_rows, again = rows_again(c, s);
    if (!(rows > 0)) {
        t->silent += took;
        return;
    }
    const double prefill = (1 - c->prefill_again) * s->prefill_rows, decode = rows - s->pad_rows - again - prefill;
    t->padding += took * s->pad_rows / rows;
    t->again += took * again / rows;
    t->prefill += took * prefill / rows;
    if (decode > 0) add_decoding(c, s, decode / rows, took, t);
    t->rows += rows;
    t->prefill_rows += prefill;
    t->pad_rows += s->pad_rows;
    t->again_rows += again;
}

/* Live sequences must hold most of the pool: there are other reasons not to be let in. */
static void add_room(const step_context *c, const dlab_ev_step *s, double took, tally *t)
{
    const double used = (double)s->kv_reserved, pool = used + (double)s->kv_cached + (double)s->kv_free;
    if (!c->admits || s->waiting <= 0 || s->seqs >= s->slots || s->kv_cached < 0 || s->kv_free < 0) return;
    if (!(used > pool / 2)) return;
    t->roomless += s->waiting * took;
    t->room_seconds += took;
    t->room_used += used * took;
    t->room_pool += pool * took;
    t->room_seqs += s->seqs * took;
}

static void add_step(const step_context *c, const dlab_ev_step *s, double requests, tally *t)
{
    const double took = dlab_event_step_seconds(s), elsewhere = fmax(0, requests - s->seqs);
    if (c->preempts)
        t->away += elsewhere * took;
    else if (c->at_end)
        t->held += elsewhere * took;
    t->service += (c->preempts || c->at_end ? requests - elsewhere : requests) * took;
    t->steps++;
    t->seconds += took;
    t->slots += s->slots;
    t->waiting += s->waiting < 0 ? NAN : s->waiting * took;
    t->preempted += s->preempted > 0 ? s->preempted : 0;
    t->swap_bytes += s->swap_bytes > 0 ? (double)s->swap_bytes : 0;
    add_room(c, s, took, t);
    add_rows(c, s, took, t);
}

static dlab_status add_run(const dlab_run *r, tally *t, dlab_error *err)
{
    service s = {0};
    const step_context c = context_of(r);
    dlab_status st = take_requests(r, &s, t, err);
    for (size_t i = 0; st == DLAB_OK && i < r->n_steps; i++) {
        const double gap = i ? (r->steps[i].t_begin - r->steps[i - 1].t_end) * 1e-9 : 0;
        if (gap > 0) {
            const double requests = in_service(&s, r->steps[i - 1].t_end);
            t->service += requests * gap;
            t->gaps += requests > 0 ? gap : 0;
        }
        const double requests = in_service(&s, r->steps[i].t_begin);
        if (requests > 0) add_step(&c, &r->steps[i], requests, t);
    }
    free(s.admitted);
    free(s.ended);
    return st;
}

/* ---- shares --------------------------------------------------------------------------------------------------------- */

#define COMPUTING DLAB_CAUSE_N /* operations at the machine's peak: nothing to name */
#define SILENT    (DLAB_CAUSE_N + 1)
#define N_SHARES  (DLAB_CAUSE_N + 2)

/* The time in service goes to what the steps' time went to. */
static bool divide(const tally *t, double shares[N_SHARES])
{
    const double all = t->queue + t->away + t->held + t->service;
    const double wall = t->prefill + t->kv + t->weights + t->compute + t->padding + t->again + t->swap + t->rest +
                        t->gaps + t->unknown + t->silent;
    if (!(all > 0) || !(wall > 0)) return false;
    const double a_second = t->service / all / wall;
    shares[DLAB_CAUSE_QUEUE] = t->queue / all;
    shares[DLAB_CAUSE_PREFILL] = a_second * t->prefill;
    shares[DLAB_CAUSE_KV_BANDWIDTH] = a_second * t->kv;
    shares[DLAB_CAUSE_WEIGHT_BANDWIDTH] = a_second * t->weights;
    shares[DLAB_CAUSE_OVERHEAD] = a_second * (t->rest + t->gaps);
    shares[DLAB_CAUSE_PADDING] = a_second * t->padding + t->held / all;
    shares[DLAB_CAUSE_PREEMPTION] = a_second * (t->again + t->swap) + t->away / all;
    shares[DLAB_CAUSE_UNCALIBRATED] = a_second * t->unknown;
    shares[COMPUTING] = a_second * t->compute;
    shares[SILENT] = a_second * t->silent;
    return true;
}

/* The largest share if it is half of the time; otherwise the two largest, if together they are, and the second of them only if
 * it is half as large as the first. Returns how many; places in which[]. */
static size_t choose(const double shares[N_SHARES], int which[2])
{
    which[0] = 0;
    which[1] = -1;
    for (int i = 1; i < N_SHARES; i++)
        if (shares[i] > shares[which[0]]) which[0] = i;
    for (int i = 0; i < N_SHARES; i++)
        if (i != which[0] && (which[1] < 0 || shares[i] > shares[which[1]])) which[1] = i;
    const double first = shares[which[0]], second = shares[which[1]];
    if (first >= 0.5) return 1;
    if (first + second < 0.5) return 0;
    return second >= first / 2 ? 2 : 1;
}

/* ---- sentences ------------------------------------------------------------------------------------------------------ */

typedef struct {
    char text[40];
} figure;

/* Three digits, and what they are of; a whole number from 100 on. */
static figure say(double value, const char *unit)
{
    figure f;
    const dlab_scale s = dlab_scale_for(unit, &value, 1);
    const double shown = value * s.factor;
    snprintf(f.text, sizeof f.text, fabs(shown) >= 100 ? "%.0f%s%s" : "%.3g%s%s", shown, unit[0] ? " " : "",
             unit[0] ? s.unit : "");
    return f;
}

static figure seconds(double s) { return say(s * 1e9, "ns"); }

static void add(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *buf, size_t size, const char *fmt, ...)
{
    const size_t used = strlen(buf);
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf + used, size - used, fmt, args);
    va_end(args);
}

static void evidence_of_queue(const tally *t, char *out, size_t size)
{
    const double latency = (t->queue + t->away + t->held + t->service) / t->requests, waiting = t->waiting / t->seconds;
    add(out, size, "waiting to be admitted, %s of the %s of a request", seconds(t->queue / t->requests).text,
        seconds(latency).text);
    if (t->lag >= 0.1 * t->queue) add(out, size, " (%s before it was submitted)", seconds(t->lag / t->requests).text);
    if (isfinite(waiting) && t->roomless > t->waiting / 2) {
        add(out, size,
            "; on average %s wait for room in the KV pool (kv.pool), of whose %s %s are used by %s of %s places",
            say(waiting, "").text, say(t->room_pool / t->room_seconds, "B").text,
            say(t->room_used / t->room_seconds, "B").text, say(t->room_seqs / t->room_seconds, "").text,
            say(t->slots / t->steps, "").text);
        if (t->preempted > 0) add(out, size, "; %.0f times a sequence gave its place back", t->preempted);
    } else if (isfinite(waiting) && t->slots > 0) {
        add(out, size, "; on average %s wait for one of %s places", say(waiting, "").text,
            say(t->slots / t->steps, "").text);
    }
    if (t->unadmitted > 0) add(out, size, "; %.0f of %.0f never had one", t->unadmitted, t->requests);
}

static void evidence_of_prefill(const tally *t, char *out, size_t size)
{
    add(out, size, "prefill: %s prompt rows a request at %s rows/s, %s of the steps' %s",
        say(t->prefill_rows / t->requests, "").text, say(t->prefill_rows / t->prefill, "").text,
        seconds(t->prefill).text, seconds(t->seconds).text);
}

static void evidence_of_padding(const tally *t, char *out, size_t size)
{
    add(out, size, "padding to the longest of a batch: %.0f of %.0f rows computed", t->pad_rows, t->rows);
    if (t->held > 0) add(out, size, ", and %s a request held until it ends", seconds(t->held / t->requests).text);
}

static void evidence_of_preemption(const tally *t, char *out, size_t size)
{
    add(out, size, "preemption: %.0f times a sequence gave its place back", t->preempted);
    if (t->again_rows > 0) add(out, size, ", %.0f of %.0f rows were computed again", t->again_rows, t->rows);
    if (t->swap_bytes > 0) add(out, size, ", %s were copied out and back", say(t->swap_bytes, "B").text);
    if (t->away > 0) add(out, size, ", %s a request out of place", seconds(t->away / t->requests).text);
}

/* Where most of the decoding is in steps that compute prompts too, the step is one of those, all of it. */
static const char *kind_of_step(const tally *t) { return t->mixed > t->decode_steps / 2 ? "mixed" : "decode"; }

/* " a decode step of 4 sequences moves, 9.8 GB/s, in 20 ms where the peaks allow 14 ms" */
static void add_step_of(const tally *t, char *out, size_t size)
{
    const double n = t->decode_steps;
    add(out, size, " of the %s that a %s step of %s sequences moves, %s, in %s where the peaks allow %s",
        say(t->decode_bytes / n, "B").text, kind_of_step(t), say(t->decode_seqs / n, "").text,
        say(t->decode_bytes / t->decode_seconds, "B/s").text, seconds(t->decode_seconds / n).text,
        seconds(t->decode_allowed / n).text);
}

static void evidence_of_kv(const tally *t, char *out, size_t size)
{
    add(out, size, "reading the KV cache: %s", say(t->decode_kv / t->decode_steps, "B").text);
    add_step_of(t, out, size);
}

static void evidence_of_weights(const tally *t, char *out, size_t size)
{
    add(out, size, "reading weights: %s", say((t->decode_bytes - t->decode_kv) / t->decode_steps, "B").text);
    add_step_of(t, out, size);
}

static void evidence_of_overhead(const tally *t, char *out, size_t size)
{
    const double n = t->decode_steps;
    add(out, size, "explained by neither bytes nor operations: %s pass between two steps",
        seconds(t->gaps / t->steps).text);
    if (t->rest > 0 && n > 0)
        add(out, size, ", and a %s step of %s ops takes %s where the peaks allow %s", kind_of_step(t),
            say(t->decode_launches / n, "").text, seconds(t->decode_seconds / n).text,
            seconds(t->decode_allowed / n).text);
}

static void evidence_of_nothing(const tally *t, char *out, size_t size)
{
    add(out, size, "decoding, %s of the steps' %s; without the machine's peaks it is not known what bounds it",
        seconds(t->unknown).text, seconds(t->seconds).text);
}

static void write_finding(const tally *t, dlab_cause cause, double share, dlab_finding *f)
{
    static void (*const evidence[DLAB_CAUSE_N])(const tally *, char *, size_t) = {
        [DLAB_CAUSE_PREFILL] = evidence_of_prefill,       [DLAB_CAUSE_QUEUE] = evidence_of_queue,
        [DLAB_CAUSE_KV_BANDWIDTH] = evidence_of_kv,       [DLAB_CAUSE_WEIGHT_BANDWIDTH] = evidence_of_weights,
        [DLAB_CAUSE_OVERHEAD] = evidence_of_overhead,     [DLAB_CAUSE_PADDING] = evidence_of_padding,
        [DLAB_CAUSE_PREEMPTION] = evidence_of_preemption, [DLAB_CAUSE_UNCALIBRATED] = evidence_of_nothing,
    };
    f->cause = cause;
    f->share = share;
    snprintf(f->text, sizeof f->text, "%s: %.0f %% of the requests' time is ", dlab_cause_text(cause), 100 * share);
    evidence[cause](t, f->text, sizeof f->text);
}

dlab_status dlab_diagnose(const dlab_run *const *runs, size_t n, dlab_diagnosis *out, dlab_error *err)
{
    tally t = {0};
    double shares[N_SHARES] = {0};
    int which[2];
    size_t counted = 0, with_steps = 0;
    *out = (dlab_diagnosis){.unjudged = "nothing was measured"};
    for (size_t i = 0; i < n; i++) {
        if (!runs[i] || !dlab_run_counts(runs[i])) continue;
        counted++;
        if (runs[i]->n_steps == 0) continue;
        with_steps++;
        DLAB_TRY(add_run(runs[i], &t, err));
    }
    if (counted > 0) out->unjudged = "its steps are not known";
    if (with_steps > 0) out->unjudged = "no request was in service";
    if (!divide(&t, shares)) return DLAB_OK;
    const size_t k = choose(shares, which);
    out->unjudged = which[0] == SILENT ? "its steps declare no work" : NULL;
    for (size_t i = 0; i < k; i++)
        if (which[i] < DLAB_CAUSE_N) write_finding(&t, (dlab_cause)which[i], shares[which[i]], &out->items[out->n++]);
    return DLAB_OK;
}

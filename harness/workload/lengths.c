#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/int.h"
#include "harness/workload/workload_parts.h"

#define TRIES 1000000 /* draws for one conversation; the checks leave few workloads that need more than ten */

/* How lengths of one kind come about. */
typedef struct {
    const char *word; /* of the distribution */
    double mean, sd;
    int64_t min, max; /* both included; max 0: none */
} rule;

static rule prompt_rule(const dlab_workload *w)
{
    return (rule){w->lengths, (double)w->prompt, (double)w->prompt_sd, dlab_max_i64(w->prompt_min, 1), w->prompt_max};
}

static rule output_rule(const dlab_workload *w)
{
    return (rule){w->outputs, (double)w->output, (double)w->output_sd, dlab_max_i64(w->output_min, 1), w->output_max};
}

static bool is_drawn(const char *word)
{
    return dlab_is(word, "uniform") || dlab_is(word, "normal") || dlab_is(word, "lognormal") ||
           dlab_is(word, "poisson");
}

static bool is_fixed(const char *word) { return !is_drawn(word) && !dlab_is(word, "file") && !dlab_is(word, "spread"); }

/* ---- draws -------------------------------------------------------------------------------------------------------------- */

static double poisson_weight(double mean, double k) { return exp(k * log(mean) - mean - lgamma(k + 1)); }

/* Inversion, beginning at the likeliest number and going outwards on both sides: O(√mean). */
static double draw_poisson(dlab_rng *rng, double mean)
{
    const double mode = floor(mean);
    double u = dlab_rng_unit(rng), low = mode, high = mode, p_low = poisson_weight(mean, mode), p_high = p_low;
    u -= p_low;
    while (u >= 0) {
        high++;
        p_high *= mean / high;
        u -= p_high;
        if (u < 0) return high;
        if (low > 0) {
            p_low *= low / mean;
            low--;
            u -= p_low;
            if (u < 0) return low;
        } else if (p_high == 0) {
            return mode; /* what rounding left of 1 */
        }
    }
    return mode;
}

/* A lognormal length is exp of a normal number, whose mean and standard deviation follow from the length's own. */
static double draw(const rule *r, dlab_rng *rng)
{
    if (dlab_is(r->word, "uniform"))
        return (double)r->min + (double)dlab_rng_below(rng, (uint64_t)(r->max - r->min + 1));
    if (dlab_is(r->word, "poisson")) return draw_poisson(rng, r->mean);
    if (dlab_is(r->word, "normal")) return round(r->mean + r->sd * dlab_rng_normal(rng));
    const double spread = r->sd / r->mean, variance = log1p(spread * spread);
    return round(exp(log(r->mean) - variance / 2 + sqrt(variance) * dlab_rng_normal(rng)));
}

/* 0: none within the bounds in so many tries. */
static int64_t draw_within(const rule *r, dlab_rng *rng, int64_t *tries)
{
    const double min = (double)r->min, max = (double)(r->max > 0 ? r->max : DLAB_LENGTH_MAX);
    for (; *tries > 0; --*tries) {
        const double x = draw(r, rng);
        if (x >= min && x <= max) return (int64_t)x;
    }
    return 0;
}

/* ---- what cannot be ----------------------------------------------------------------------------------------------------- */

static dlab_status check_rule(const rule *r, const char *key, const char *size, dlab_error *err)
{
    if (!is_drawn(r->word)) return DLAB_OK;
    if (dlab_is(r->word, "uniform")) {
        if (r->max >= r->min) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.%s: uniform needs workload.%s_max of at least workload.%s_min: %lld and %lld", key,
                         size, size, (long long)r->max, (long long)r->min);
    }
    if (r->mean < 1) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "workload.%s: %s needs a mean of at least 1 token: workload.%s is 0",
                         key, r->word, size);
    }
    if (r->max > 0 && r->mean > (double)r->max) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.%s: a mean of %.0f tokens (workload.%s) is above workload.%s_max %lld", key, r->mean,
                         size, size, (long long)r->max);
    }
    if (r->mean < (double)r->min) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "workload.%s: a mean of %.0f tokens (workload.%s) is below workload.%s_min %lld", key, r->mean,
                         size, size, (long long)r->min);
    }
    return DLAB_OK;
}

static double mean_of(const rule *r)
{
    return dlab_is(r->word, "uniform") ? ((double)r->min + (double)r->max) / 2 : r->mean;
}

/* With means within the bounds, about half of all draws are or more. */
dlab_status dlab_lengths_check(const dlab_workload *w, int64_t context, dlab_error *err)
{
    const rule p = prompt_rule(w), o = output_rule(w);
    DLAB_TRY(check_rule(&p, "lengths", "prompt", err));
    DLAB_TRY(check_rule(&o, "outputs", "output", err));
    if (!is_drawn(p.word) || context == 0 || dlab_is(w->outputs, "file")) return DLAB_OK;
    const double room = (double)(context - w->depth) - (mean_of(&o) - 1);
    if (mean_of(&p) <= room) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "workload.lengths: a mean of %.0f tokens (workload.prompt) does not fit: the model's context of "
                     "%lld, less %lld of depth and %.0f of output, leaves %.0f",
                     mean_of(&p), (long long)context, (long long)w->depth, mean_of(&o) - 1, room);
}

/* ---- conversations ------------------------------------------------------------------------------------------------------ */

static const dlab_file_request *given_of(const dlab_lengths *l, int64_t i)
{
    return l->file ? &l->file->items[i] : NULL;
}

static const dlab_file_request *line_of(const dlab_lengths *l, int64_t i)
{
    return l->table ? &l->table->items[(size_t)i % l->table->n] : NULL;
}

/* False: out of tries. */
static bool draw_request(const dlab_lengths *l, int64_t i, bool later, dlab_rng *rngs, int64_t *tries)
{
    const dlab_workload *w = l->w;
    const rule p = prompt_rule(w), o = output_rule(w);
    const dlab_file_request *given = given_of(l, i), *line = line_of(l, i);
    int64_t *prompt = &l->prompt[i], *output = &l->output[i];
    *output = w->output;
    if (given && given->output > 0) *output = given->output;
    if (dlab_is(o.word, "file")) *output = line->output;
    if (is_drawn(o.word)) *output = draw_within(&o, &rngs[1], tries);
    if (later && w->turn_prompt > 0 && !(given && is_fixed(p.word))) {
        *prompt = w->turn_prompt;
    } else if (is_drawn(p.word)) {
        *prompt = draw_within(&p, &rngs[0], tries);
        return *prompt > 0 && *output > 0;
    } else if (dlab_is(p.word, "file")) {
        *prompt = line->prompt;
    } else if (is_fixed(p.word)) {
        *prompt = given ? given->prompt : w->prompt;
    } /* spread prompts are there already */
    return *output > 0;
}

static dlab_status too_long(const dlab_lengths *l, int64_t conversation, int64_t i, int64_t turns, int64_t total,
                            dlab_error *err)
{
    char place[DLAB_PARAM_STR + 64];
    const dlab_file_requests *file = l->file ? l->file : l->table;
    if (file && total > 0) {
        dlab_file_requests_place(file, l->file ? given_of(l, i) : line_of(l, i), place, sizeof place);
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "%s: needs %lld tokens%s; the model's context holds %lld. Leave it out, or bound the lengths "
                         "(workload.prompt_max, workload.output_max, workload.turns)",
                         place, (long long)total, turns > 1 ? " with all its turns" : "", (long long)l->context);
    }
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "workload.lengths: no lengths within the bounds for number %lld in %d draws; widen "
                     "workload.prompt_min and _max, workload.output_min and _max, or have fewer turns",
                     (long long)conversation, TRIES);
}

dlab_status dlab_lengths_make(const dlab_lengths *l, int64_t conversation, int64_t first, int64_t turns,
                              dlab_error *err)
{
    const dlab_workload *w = l->w;
    const bool drawn = is_drawn(w->lengths) || is_drawn(w->outputs), file = l->file || l->table;
    const int64_t seed = dlab_seed_lengths(w);
    dlab_rng rngs[2] = {dlab_stream_rng(seed, DLAB_STREAM_LENGTHS, (uint64_t)conversation),
                        dlab_stream_rng(seed, DLAB_STREAM_OUTPUTS, (uint64_t)conversation)};
    int64_t tries = TRIES;
    for (;;) {
        int64_t total = w->depth;
        for (int64_t i = first; i < first + turns; i++) {
            if (!draw_request(l, i, i > first, rngs, &tries)) return too_long(l, conversation, i, turns, 0, err);
            total += l->prompt[i] + l->output[i];
        }
        total--; /* the last token is never fed back */
        if (l->context == 0 || total <= l->context) return DLAB_OK;
        if (!drawn && !file) return DLAB_OK; /* all are alike: the engine says what it cannot hold */
        if (!drawn || (tries -= turns) <= 0) return too_long(l, conversation, first, turns, total, err);
    }
}

/* Spread evenly over [⌈prompt/2⌉, prompt], both ends included, then shuffled: sorted lengths would pack batches that pad
 * less than real arrivals do. */
void dlab_lengths_spread(const dlab_lengths *l)
{
    const int64_t n = l->n, most = l->w->prompt, low = (most + 1) / 2;
    for (int64_t i = 0; i < n; i++) l->prompt[i] = n == 1 ? most : low + ((most - low) * i + (n - 1) / 2) / (n - 1);
    dlab_rng rng = dlab_stream_rng(dlab_seed_lengths(l->w), DLAB_STREAM_LENGTHS, 0);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)dlab_rng_below(&rng, (uint64_t)i + 1), t = l->prompt[i];
        l->prompt[i] = l->prompt[j];
        l->prompt[j] = t;
    }
}

/* ---- workload.lengths_file ---------------------------------------------------------------------------------------------- */

/* A whole number from 1 to DLAB_LENGTH_MAX at *at, and blanks and a comma behind it; 0: there is none. */
static int64_t read_count(const char **at, const char *end)
{
    int64_t v = 0;
    const char *c = *at;
    while (c < end && (*c == ' ' || *c == '\t')) c++;
    for (; c < end && isdigit((unsigned char)*c) && v <= DLAB_LENGTH_MAX; c++) v = v * 10 + (*c - '0');
    while (c < end && (*c == ' ' || *c == '\t' || *c == '\r')) c++;
    if (c < end && *c == ',') c++;
    *at = c;
    return v <= DLAB_LENGTH_MAX ? v : 0;
}

dlab_status dlab_lengths_read(const char *name, bool outputs, const char *text, size_t n, dlab_file_requests *out,
                              dlab_error *err)
{
    dlab_file_lines l = {.text = text, .end = text + n};
    *out = (dlab_file_requests){.name = name};
    while (dlab_file_line_next(&l)) {
        const char *comment = memchr(l.line, '#', l.n), *at = l.line;
        if (comment) l.n = (size_t)(comment - l.line);
        if (dlab_file_line_empty(&l)) continue;
        dlab_file_request r = {.line = l.number};
        r.prompt = read_count(&at, l.line + l.n);
        if (at < l.line + l.n) r.output = read_count(&at, l.line + l.n);
        if (r.prompt == 0 || (outputs && r.output == 0) || at < l.line + l.n) {
            return DLAB_FAIL(err, DLAB_EFORMAT,
                             "%s:%lld: expected a prompt's tokens%s, whole numbers from 1 to %lld, such as \"512, 64\"",
                             name, (long long)l.number, outputs ? " and its answer's" : "", (long long)DLAB_LENGTH_MAX);
        }
        DLAB_TRY(dlab_file_requests_add(out, &r, err));
    }
    if (out->n > 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: has no line with a length", name);
}

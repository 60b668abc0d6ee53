/* Drawn lengths, arrivals, think times, groups and priorities against their formulas, and apart from each other. The seeds
 * are fixed, so that a bound of four standard errors holds for good once it does. */
#include <math.h>

#include "tests/harness/workload_test.h"

#define DRAWS 10000
#define KS    (1.63 / sqrt(DRAWS)) /* the Kolmogorov-Smirnov distance that 1 % of true samples exceed */

typedef struct {
    double mean, sd, third; /* third: central moment over sd³ */
} moments;

static moments moments_of(const double *x, int64_t n)
{
    moments m = {0};
    for (int64_t i = 0; i < n; i++) m.mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) m.sd += pow(x[i] - m.mean, 2) / (double)n;
    m.sd = sqrt(m.sd);
    for (int64_t i = 0; i < n; i++) m.third += pow((x[i] - m.mean) / m.sd, 3) / (double)n;
    return m;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest distance between the sample's distribution and F; sorts x. For whole numbers F is that of the number. */
static double distance(double *x, int64_t n, double (*cdf)(double), bool whole)
{
    double most = 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    for (int64_t i = 0; i < n; i++) {
        if (i + 1 == n || x[i + 1] > x[i]) most = fmax(most, fabs((double)(i + 1) / (double)n - cdf(x[i])));
        if (!whole && (i == 0 || x[i - 1] < x[i])) most = fmax(most, fabs((double)i / (double)n - cdf(x[i])));
    }
    return most;
}

static dlab_requests draws(const dlab_workload *w)
{
    const dlab_workload_host host = {.batch_size = 16, .first_id = 0, .vocab = 2};
    return build_on(w, &host);
}

static double *doubles(const int64_t *from, int64_t n)
{
    double *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (double)from[i];
    return x;
}

/* ---- lengths ---- */

static dlab_workload lengths(const char *word, int64_t mean, int64_t sd)
{
    dlab_workload w = default_workload();
    w.requests = DRAWS;
    w.lengths = w.outputs = word;
    w.prompt = w.output = mean;
    w.prompt_sd = w.output_sd = sd;
    return w;
}

static void check_moments(const int64_t *sample, double mean, double sd, double kurtosis)
{
    double *x = doubles(sample, DRAWS);
    const moments m = moments_of(x, DRAWS);
    ck_assert_double_eq_tol(m.mean, mean, 4 * sd / sqrt(DRAWS));
    ck_assert_double_eq_tol(m.sd, sd, 4 * sd * sqrt((kurtosis - 1) / 4 / DRAWS));
    free(x);
}

static double uniform_cdf(double k) { return (k - 10 + 1) / 41; }
static double normal_cdf(double k) { return 0.5 * erfc(-(k + 0.5 - 512) / 60 / sqrt(2)); }
static double poisson_cdf(double mean, double k)
{
    double sum = 0;
    for (int j = 0; j <= (int)k; j++) sum += exp(j * log(mean) - mean - lgamma(j + 1));
    return sum;
}
static double poisson_12(double k) { return (poisson_cdf(12, k) - exp(-12)) / (1 - exp(-12)); }
static double poisson_900(double k) { return poisson_cdf(900, k); }

START_TEST(uniform_lengths_fill_their_range_evenly)
{
    dlab_workload w = lengths("uniform", 1, 0);
    w.prompt_min = w.output_min = 10;
    w.prompt_max = w.output_max = 50;
    dlab_requests r = draws(&w);
    const double sd = sqrt((41.0 * 41 - 1) / 12);
    check_moments(r.prompt, 30, sd, 1.8);
    check_moments(r.output, 30, sd, 1.8);
    double *x = doubles(r.prompt, DRAWS);
    ck_assert_double_lt(distance(x, DRAWS, uniform_cdf, true), KS);
    ck_assert_double_eq(x[0], 10);
    ck_assert_double_eq(x[DRAWS - 1], 50);
    free(x);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(normal_lengths_have_their_mean_and_deviation)
{
    const dlab_workload w = lengths("normal", 512, 60);
    dlab_requests r = draws(&w);
    check_moments(r.prompt, 512, 60, 3);
    check_moments(r.output, 512, 60, 3);
    double *x = doubles(r.prompt, DRAWS);
    ck_assert_double_lt(distance(x, DRAWS, normal_cdf, true), KS);
    free(x);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(poisson_lengths_are_poisson)
{
    static const struct {
        int64_t mean;
        double (*cdf)(double);
    } cases[] = {{12, poisson_12}, {900, poisson_900}};
    const double mean = (double)cases[_i].mean;
    const dlab_workload w = lengths("poisson", cases[_i].mean, 0);
    dlab_requests r = draws(&w);
    check_moments(r.prompt, mean, sqrt(mean), 3 + 1 / mean);
    double *x = doubles(r.output, DRAWS);
    ck_assert_double_lt(distance(x, DRAWS, cases[_i].cdf, true), KS);
    free(x);
    dlab_requests_free(&r);
}
END_TEST

/* Below 1 there is no length: the rest keeps its proportions. Of a Poisson number with mean 1 that is at least 1, the
 * mean is 1/(1 − 1/e), and 1 itself has the share (1/e)/(1 − 1/e). */
START_TEST(lengths_below_one_are_drawn_again)
{
    dlab_workload w = lengths("poisson", 1, 0);
    dlab_requests r = draws(&w);
    const double some = 1 - exp(-1), mean = 1 / some, share = exp(-1) / some;
    double ones = 0, sum = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        ck_assert_int_ge(r.prompt[i], 1);
        ones += r.prompt[i] == 1;
        sum += (double)r.prompt[i];
    }
    ck_assert_double_eq_tol(sum / DRAWS, mean, 4 * 0.8 / sqrt(DRAWS));
    ck_assert_double_eq_tol(ones / DRAWS, share, 4 * 0.5 / sqrt(DRAWS));
    dlab_requests_free(&r);
    w = lengths("normal", 4, 10);
    w.prompt_min = 3;
    w.prompt_max = 5;
    r = draws(&w);
    int seen[6] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        ck_assert(r.prompt[i] >= 3 && r.prompt[i] <= 5);
        ck_assert_int_ge(r.output[i], 1);
        seen[r.prompt[i]]++;
    }
    for (int k = 3; k <= 5; k++) ck_assert_double_eq_tol(seen[k] / (double)DRAWS, 1 / 3.0, 0.02);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(what_lengths_cannot_be_says_why)
{
    dlab_workload w = lengths("uniform", 1, 0);
    w.prompt_min = 8;
    w.prompt_max = 7;
    check_impossible(&w, 4,
                     "workload.lengths: uniform needs workload.prompt_max of at least workload.prompt_min: 7 and 8");
    w = lengths("normal", 40, 10);
    w.outputs = "fixed";
    w.prompt_min = 41;
    check_impossible(&w, 4, "workload.lengths: a mean of 40 tokens (workload.prompt) is below workload.prompt_min 41");
    w = lengths("fixed", 40, 0);
    w.outputs = "poisson";
    w.output_max = 39;
    check_impossible(&w, 4, "workload.outputs: a mean of 40 tokens (workload.output) is above workload.output_max 39");
    w = lengths("normal", 40, 1000000);
    w.outputs = "fixed";
    w.prompt_min = w.prompt_max = 40;
    w.requests = 20;
    check_impossible(&w, 4,
                     "workload.lengths: no lengths within the bounds for number 0 in 1000000 draws; widen "
                     "workload.prompt_min and _max, workload.output_min and _max, or have fewer turns");
}
END_TEST

/* Prompt and answer are drawn until both fit together. */
START_TEST(drawn_pairs_fit_the_context)
{
    dlab_workload w = lengths("lognormal", 500, 500);
    w.requests = 3000;
    const dlab_workload_host host = {.batch_size = 4, .context = 1100, .first_id = 0, .vocab = 2};
    dlab_requests r = build_on(&w, &host);
    int64_t longest = 0, prompt = 0;
    for (int64_t i = 0; i < r.n; i++) {
        const int64_t tokens = r.prompt[i] + r.output[i] - 1;
        ck_assert_int_le(tokens, 1100);
        if (tokens > longest) longest = tokens;
        if (r.prompt[i] > prompt) prompt = r.prompt[i];
    }
    ck_assert_int_ge(longest, 1090);
    const dlab_engine_needs needs = needs_on(&w, &host);
    ck_assert_int_eq(needs.max_tokens, longest);
    ck_assert_int_eq(needs.max_prompt, prompt);
    dlab_requests_free(&r);
}
END_TEST

/* ---- arrivals ---- */

static dlab_workload open_at(double rate, const char *arrivals, double burstiness)
{
    dlab_workload w = default_workload();
    w.kind = "open";
    w.prompt = 1;
    w.rate = rate;
    w.arrivals = arrivals;
    w.burstiness = burstiness;
    w.requests = DRAWS;
    return w;
}

/* In seconds; malloc'd. The first is the gap before the first arrival. */
static double *gaps_of(const dlab_requests *r)
{
    double *x = malloc((size_t)r->n * sizeof *x);
    for (int64_t i = 0; i < r->n; i++) {
        x[i] = (double)(r->arrival_ns[i] - (i ? r->arrival_ns[i - 1] : 0)) * 1e-9;
        ck_assert_double_ge(x[i], 0);
    }
    return x;
}

static double exponential_cdf(double x) { return 1 - exp(-x * 200); }

START_TEST(a_constant_rate_of_ten_gives_tenths_of_a_second)
{
    dlab_workload w = open_at(10, "constant", 1);
    w.requests = 4;
    dlab_requests r = draws(&w);
    for (int64_t i = 0; i < 4; i++) ck_assert_int_eq(r.arrival_ns[i], i * 100000000);
    ck_assert_int_eq(r.duration_ns, 0);
    dlab_requests_free(&r);
    w.requests = 0;
    w.duration_ns = 1000000000; /* the eleventh would come at its end */
    r = draws(&w);
    ck_assert_int_eq(r.n, 10);
    ck_assert_int_eq(r.duration_ns, 1000000000);
    dlab_requests_free(&r);
    w.requests = 3; /* whichever ends first */
    r = draws(&w);
    ck_assert_int_eq(r.n, 3);
    dlab_requests_free(&r);
    w.requests = 20;
    r = draws(&w);
    ck_assert_int_eq(r.n, 10);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(poisson_arrivals_have_exponential_gaps)
{
    const dlab_workload w = open_at(200, "poisson", 1);
    dlab_requests r = draws(&w);
    double *x = gaps_of(&r), joint = 0;
    const moments m = moments_of(x, DRAWS);
    ck_assert_double_eq_tol(m.mean, 1 / 200.0, 4 / 200.0 / sqrt(DRAWS));
    ck_assert_double_eq_tol(m.sd, 1 / 200.0, 4 / 200.0 * sqrt(8 / 4.0 / DRAWS));
    for (int64_t i = 1; i < DRAWS; i++) joint += (x[i] - m.mean) * (x[i - 1] - m.mean) / m.sd / m.sd / DRAWS;
    ck_assert_double_eq_tol(joint, 0, 4 / sqrt(DRAWS)); /* gaps know nothing of each other */
    ck_assert_double_lt(distance(x, DRAWS, exponential_cdf, false), KS);
    ck_assert_double_ne((double)r.arrival_ns[DRAWS - 1], 1e9 * DRAWS / 200); /* not stretched to the total */
    free(x);
    dlab_requests_free(&r);
}
END_TEST

/* A gamma number of shape k has the mean k, the variance k, the skewness 2/√k and the excess kurtosis 6/k. */
START_TEST(burstiness_is_the_shape_of_the_gaps)
{
    static const double shapes[] = {0.25, 0.5, 1, 4, 25};
    const double k = shapes[_i], spread = 1 / sqrt(k);
    const dlab_workload w = open_at(100, "gamma", k);
    dlab_requests r = draws(&w);
    double *x = gaps_of(&r);
    const moments m = moments_of(x, DRAWS);
    ck_assert_double_eq_tol(m.mean * 100, 1, 4 * spread / sqrt(DRAWS));
    ck_assert_double_eq_tol(m.sd / m.mean, spread, 4 * spread * sqrt((2 + 6 / k) / 4 / DRAWS));
    ck_assert_double_eq_tol(m.third, 2 / sqrt(k), 0.15 * 2 / sqrt(k) + 0.05);
    free(x);
    dlab_requests_free(&r);
}
END_TEST

/* From 10 to 30 a second over 100 s: Λ(t) = 10 t + t²/10, 2000 in all, 750 of them in the first half. */
START_TEST(a_ramp_changes_the_rate_evenly)
{
    dlab_workload w = open_at(10, "constant", 1);
    w.rate_end = 30;
    w.requests = 0;
    w.duration_ns = 100000000000;
    dlab_requests r = draws(&w);
    ck_assert_int_eq(r.n, 2000);
    for (int64_t i = 0; i < r.n; i++) {
        const double t = (double)r.arrival_ns[i] * 1e-9;
        ck_assert_double_eq_tol(10 * t + t * t / 10, (double)i, 1e-6);
    }
    ck_assert_double_eq_tol((double)r.arrival_ns[750] * 1e-9, 50, 1e-8);
    dlab_requests_free(&r);
    w.rate = 30;
    w.rate_end = 10; /* and down again */
    r = draws(&w);
    ck_assert_int_eq(r.n, 2000);
    ck_assert_double_eq_tol((double)r.arrival_ns[1250] * 1e-9, 50, 1e-8);
    dlab_requests_free(&r);
    w.arrivals = "poisson";
    r = draws(&w);
    ck_assert_double_eq_tol((double)r.n, 2000, 4 * sqrt(2000));
    int64_t half = 0;
    while (r.arrival_ns[half] < 50000000000) half++;
    ck_assert_double_eq_tol((double)half, 1250, 4 * sqrt(1250));
    dlab_requests_free(&r);
    w.rate = 0; /* from nothing */
    w.arrivals = "constant";
    r = draws(&w);
    ck_assert_int_eq(r.n, 500);
    ck_assert_double_eq_tol((double)r.arrival_ns[125] * 1e-9, 50, 1e-8);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(an_open_or_closed_loop_without_end_is_refused)
{
    dlab_workload w = open_at(0, "poisson", 1);
    check_impossible(&w, 4, "workload.rate: kind open needs a rate above 0, in requests a second");
    w.rate = 5;
    w.rate_end = 6;
    check_impossible(&w, 4,
                     "workload.rate_end: a rate that changes from 5 to 6 needs workload.duration, over which it does");
    w.rate_end = 0;
    w.requests = 0;
    check_impossible(&w, 4, "workload.kind: open goes on for ever: give workload.duration or workload.requests");
    w.duration_ns = 1;
    check_impossible(&w, 4, "workload.duration: no request comes in it at a rate of 5 a second");
    w = default_workload();
    w.kind = "closed";
    check_impossible(&w, 4, "workload.kind: closed goes on for ever: give workload.duration or workload.requests");
    w.duration_ns = 1;
    dlab_requests r = build(&w, 4);
    ck_assert_int_eq(r.n, 4096); /* prepared; a run that takes more ends before its time */
    ck_assert(r.scarce);
    dlab_requests_free(&r);
    w.prompt = 1;
    w.concurrency = 65;
    r = build(&w, 4);
    ck_assert_int_eq(r.n, 65 * 64);
    dlab_requests_free(&r);
    w.concurrency = 20000;
    check_impossible(&w, 4,
                     "workload.concurrency: 20000 at a time until workload.duration ends them; 16384 is the most that "
                     "requests are prepared for: say how many with workload.requests");
    w.requests = 7;
    r = build(&w, 4);
    ck_assert_int_eq(r.n, 7);
    ck_assert(!r.scarce); /* so many were asked for */
    dlab_requests_free(&r);
    w = open_at(5, "constant", 1);
    w.requests = 0;
    w.duration_ns = 2000000000;
    r = build(&w, 4);
    ck_assert_int_eq(r.n, 10); /* all that come in it, the last one at 1.8 s */
    ck_assert(!r.scarce);
    dlab_requests_free(&r);
}
END_TEST

/* A warm-up need not wait for what the measured run waits for. */
START_TEST(a_warm_up_is_a_batch)
{
    static const char *const kinds[] = {"open", "closed"};
    dlab_workload w = open_at(0.1, "constant", 1);
    const dlab_workload_host host = host_of(4);
    w.kind = kinds[_i];
    w.requests = 9;
    w.duration_ns = 80000000000;
    w.turns = 2;
    w.think_ns = 1000;
    w.concurrency = 3;
    dlab_requests r = build_on(&w, &host), warm = build_warmup(&w, &host);
    const int64_t n = _i == 0 ? 4 : 3; /* of batch.size, or in flight */
    ck_assert_int_gt(r.n, 2 * n);
    ck_assert_int_eq(warm.n, 2 * n);
    ck_assert_int_eq(warm.duration_ns, 0);
    ck_assert_int_eq(warm.concurrency, 0);
    for (int64_t i = 0; i < warm.n; i++) {
        ck_assert_int_eq(warm.arrival_ns[i], i % 2 == 0 ? 0 : -1);
        ck_assert_int_eq(warm.after[i], i % 2 == 0 ? -1 : i - 1);
        ck_assert_int_eq(warm.think_ns[i], 0);
        ck_assert_int_eq(warm.prompt[i], r.prompt[i]);
    }
    dlab_requests_free(&r);
    dlab_requests_free(&warm);
}
END_TEST

/* ---- closed loops, conversations ---- */

START_TEST(a_closed_loop_starts_with_its_concurrency)
{
    dlab_workload w = default_workload();
    w.kind = "closed";
    w.concurrency = 3;
    w.requests = 8;
    w.think_ns = 50;
    dlab_requests r = build(&w, 16);
    ck_assert_int_eq(r.concurrency, 3);
    for (int64_t i = 0; i < 8; i++) {
        ck_assert_int_eq(r.arrival_ns[i], i < 3 ? 0 : -1);
        ck_assert_int_eq(r.think_ns[i], 50);
    }
    ck_assert_int_eq(needs_of(&w, 16).max_seqs, 3); /* no more are ever there */
    ck_assert_int_eq(needs_of(&w, 2).max_seqs, 2);
    dlab_requests_free(&r);
}
END_TEST

static double think_cdf(double x) { return 1 - exp(-x / 1e6); }

START_TEST(think_times_are_exponential_when_asked)
{
    dlab_workload w = default_workload();
    w.kind = "closed";
    w.requests = DRAWS;
    w.prompt = 1;
    w.think_ns = 1000000;
    w.think = "exponential";
    dlab_requests r = draws(&w);
    double *x = doubles(r.think_ns, DRAWS);
    ck_assert_double_eq_tol(moments_of(x, DRAWS).mean, 1e6, 4e6 / sqrt(DRAWS));
    ck_assert_double_lt(distance(x, DRAWS, think_cdf, false), KS);
    free(x);
    dlab_requests_free(&r);
}
END_TEST

START_TEST(a_conversation_s_turns_follow_each_other)
{
    dlab_workload w = default_workload();
    w.requests = 2;
    w.turns = 3;
    w.prompt = 20;
    w.turn_prompt = 5;
    w.output = 4;
    w.shared_prefix = 7;
    dlab_requests r = build(&w, 4);
    ck_assert_int_eq(r.n, 6);
    static const int64_t after[] = {-1, 0, 1, -1, 3, 4}, prompt[] = {20, 5, 5, 20, 5, 5}, at[] = {0, -1, -1, 0, -1, -1};
    ck_assert_mem_eq(r.after, after, sizeof after);
    ck_assert_mem_eq(r.prompt, prompt, sizeof prompt);
    ck_assert_mem_eq(r.arrival_ns, at, sizeof at);
    ck_assert_mem_eq(r.ids + r.offset[0], r.ids + r.offset[3], 7 * sizeof *r.ids); /* of first turns alone */
    ck_assert_mem_ne(r.ids + r.offset[1], r.ids + r.offset[0], 5 * sizeof *r.ids);
    const dlab_engine_needs needs = needs_of(&w, 4); /* 20 +4 +5 +4 +5, and 3 more that are fed back */
    ck_assert_int_eq(needs.max_prompt, 38);
    ck_assert_int_eq(needs.max_tokens, 41);
    ck_assert_int_eq(needs.max_seqs, 2);
    dlab_requests_free(&r);
    w.kind = "open";
    w.rate = 1;
    w.arrivals = "constant";
    r = build(&w, 4);
    ck_assert_int_eq(r.arrival_ns[3], 1000000000);
    ck_assert_int_eq(r.arrival_ns[4], -1);
    dlab_requests_free(&r);
    w.samples = 2;
    check_impossible(
        &w, 4,
        "workload.samples: 2 answers to each turn of a conversation (workload.turns 3), which goes on from "
        "one; keep one of the two");
    w.samples = 1;
    w.depth = 1;
    check_impossible(&w, 4,
                     "workload.depth: 1 tokens before a conversation of 3 turns (workload.turns); keep one of the two");
}
END_TEST

START_TEST(drawn_conversations_fit_the_context_as_a_whole)
{
    dlab_workload w = lengths("lognormal", 60, 40);
    w.requests = 300;
    w.turns = 4;
    const dlab_workload_host host = {.batch_size = 4, .context = 512, .first_id = 0, .vocab = 2};
    dlab_requests r = build_on(&w, &host);
    int64_t longest = 0, sum = 0;
    for (int64_t i = 0; i < r.n; i++) {
        sum = (r.after[i] < 0 ? 0 : sum) + r.prompt[i] + r.output[i];
        if (sum - 1 > longest) longest = sum - 1;
    }
    ck_assert_int_le(longest, 512);
    ck_assert_int_ge(longest, 500);
    ck_assert_int_eq(needs_on(&w, &host).max_tokens, longest);
    dlab_requests_free(&r);
}
END_TEST

/* ---- prefixes, priorities ---- */

static bool has_prefix(const dlab_requests *r, int64_t i, const int32_t *prefix, int64_t n)
{
    return memcmp(r->ids + r->offset[i], prefix, (size_t)n * sizeof *prefix) == 0;
}

START_TEST(the_share_of_prefixes_is_exact)
{
    static const double shares[] = {0, 0.1, 0.25, 0.29, 0.5, 2.0 / 3, 1};
    dlab_workload w = default_workload();
    w.prompt = 12;
    w.shared_prefix = 8;
    w.requests = 200;
    dlab_requests all = build(&w, 4);
    w.prefix_share = shares[_i];
    dlab_requests r = build(&w, 4);
    int64_t with = 0;
    for (int64_t i = 0; i < 200; i++) {
        with += has_prefix(&r, i, all.ids, 8);
        const double exact = (double)(i + 1) * shares[_i]; /* at every point on the way */
        ck_assert_int_eq(with, (int64_t)floor(exact + 1e-9));
    }
    dlab_requests_free(&r);
    dlab_requests_free(&all);
}
END_TEST

START_TEST(prefix_groups_are_drawn_evenly)
{
    dlab_workload w = default_workload();
    w.prompt = 6;
    w.shared_prefix = 5;
    w.prefix_groups = 4;
    w.requests = DRAWS;
    const dlab_workload_host host = {.batch_size = 4, .first_id = 0, .vocab = 100000};
    dlab_requests r = build_on(&w, &host);
    int32_t known[5][5];
    int seen[5] = {0}, groups = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        int g = 0;
        while (g < groups && !has_prefix(&r, i, known[g], 5)) g++;
        ck_assert_int_lt(g, 4);
        if (g == groups) memcpy(known[groups++], r.ids + r.offset[i], sizeof known[0]);
        seen[g]++;
    }
    for (int g = 0; g < 4; g++) ck_assert_double_eq_tol(seen[g], DRAWS / 4.0, 4 * sqrt(DRAWS * 0.25 * 0.75));
    dlab_requests_free(&r);
}
END_TEST

START_TEST(priorities_are_drawn_by_weight)
{
    dlab_workload w = default_workload();
    w.requests = DRAWS;
    w.prompt = 1;
    dlab_requests r = draws(&w);
    for (int64_t i = 0; i < DRAWS; i++) ck_assert_int_eq(r.priority[i], 0);
    dlab_requests_free(&r);
    snprintf(w.priorities, sizeof w.priorities, "-1:7, 5:2.5,9:0.5");
    r = draws(&w);
    int low = 0, high = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        low += r.priority[i] == -1;
        high += r.priority[i] == 9;
        ck_assert(r.priority[i] == -1 || r.priority[i] == 5 || r.priority[i] == 9);
    }
    ck_assert_double_eq_tol(low, 0.7 * DRAWS, 4 * sqrt(DRAWS * 0.21));
    ck_assert_double_eq_tol(high, 0.05 * DRAWS, 4 * sqrt(DRAWS * 0.0475));
    dlab_requests_free(&r);
    w.requests = 30;
    w.turns = 2;
    r = draws(&w);
    for (int64_t i = 0; i < 60; i += 2) ck_assert_int_eq(r.priority[i], r.priority[i + 1]); /* of the conversation */
    dlab_requests_free(&r);
}
END_TEST

START_TEST(priorities_that_are_none_are_refused)
{
    static const char *const bad[] = {"1", "1:", "1:0", "1:-2", "a:1", "1:1;2:1", "1:nan", "3000000000:1"};
    dlab_workload w = default_workload();
    char message[256];
    const dlab_workload_host host = host_of(4);
    snprintf(w.priorities, sizeof w.priorities, "%s", bad[_i]);
    snprintf(
        message, sizeof message,
        "workload.priorities: '%s': expected PRIORITY:WEIGHT, at most 64 with commas between, such as \"0:9, 5:1\"; "
        "weights are above 0",
        bad[_i]);
    check_refused_on(&w, &host, DLAB_EUSAGE, message);
}
END_TEST

/* ---- seeds ---- */

typedef enum { IDS = 1, LENGTHS = 2, ARRIVALS = 4, SAMPLING = 8 } parts;

/* What differs between two. */
static int differences(const dlab_requests *a, const dlab_requests *b)
{
    const size_t n = (size_t)a->n;
    int d = 0;
    ck_assert_int_eq(a->n, b->n);
    const bool shape = memcmp(a->prompt, b->prompt, n * sizeof *a->prompt) != 0;
    if (shape || memcmp(a->output, b->output, n * sizeof *a->output) != 0) d |= LENGTHS;
    if (memcmp(a->seed, b->seed, n * sizeof *a->seed) != 0) d |= SAMPLING;
    if (memcmp(a->arrival_ns, b->arrival_ns, n * sizeof *a->arrival_ns) != 0) d |= ARRIVALS;
    if (memcmp(a->priority, b->priority, n * sizeof *a->priority) != 0) d |= ARRIVALS;
    if (memcmp(a->think_ns, b->think_ns, n * sizeof *a->think_ns) != 0) d |= ARRIVALS;
    for (int64_t i = 0; i < a->n; i++) {
        const int64_t both = a->prompt[i] < b->prompt[i] ? a->prompt[i] : b->prompt[i];
        const int32_t *x = a->ids + a->offset[i], *y = b->ids + b->offset[i];
        if (memcmp(x, y, (size_t)both * sizeof *x) != 0) d |= IDS;
    }
    return d;
}

START_TEST(a_seed_changes_its_own_draws_alone)
{
    dlab_workload w = lengths("lognormal", 30, 20);
    w.kind = "open";
    w.rate = 10;
    w.requests = 50;
    w.think_ns = 1000;
    w.think = "exponential";
    w.turns = 2;
    w.seed_lengths = w.seed_arrivals = w.seed = 4;
    snprintf(w.priorities, sizeof w.priorities, "0:1,1:1");
    dlab_requests a = build(&w, 4);
    dlab_workload other = w;
    other.seed = 5;
    dlab_requests b = build(&other, 4);
    ck_assert_int_eq(differences(&a, &b), IDS);
    dlab_requests_free(&b);
    other = w;
    other.seed_lengths = 5;
    b = build(&other, 4);
    ck_assert_int_eq(differences(&a, &b), LENGTHS);
    dlab_requests_free(&b);
    other = w;
    other.seed_arrivals = 5;
    b = build(&other, 4);
    ck_assert_int_eq(differences(&a, &b), ARRIVALS);
    dlab_requests_free(&b);
    other = w;
    other.seed_lengths = other.seed_arrivals = 0; /* as seed */
    b = build(&other, 4);
    ck_assert_int_eq(differences(&a, &b), 0);
    dlab_requests_free(&b);
    dlab_requests_free(&a);
}
END_TEST

/* What one choice draws, another does not shift. */
START_TEST(choices_do_not_disturb_each_other)
{
    dlab_workload w = lengths("lognormal", 30, 20), other = w;
    w.kind = other.kind = "open";
    w.rate = other.rate = 10;
    w.requests = 50;
    other.requests = 80; /* more of them … */
    other.outputs = "fixed";
    other.arrivals = "gamma";
    other.burstiness = 0.5;
    other.rate = 3;
    dlab_requests a = build(&w, 4), b = build(&other, 4);
    ck_assert_mem_eq(a.prompt, b.prompt, 50 * sizeof *a.prompt);
    for (int64_t i = 0; i < 50; i++) {
        ck_assert_mem_eq(a.ids + a.offset[i], b.ids + b.offset[i], (size_t)a.prompt[i] * sizeof *a.ids);
    }
    dlab_requests_free(&b);
    other = w;
    other.lengths = "fixed";
    other.rate = 20; /* … or twice as fast */
    b = build(&other, 4);
    ck_assert_mem_eq(a.output, b.output, 50 * sizeof *a.output);
    for (int64_t i = 0; i < 50; i++) {
        ck_assert_double_eq_tol((double)a.arrival_ns[i], 2 * (double)b.arrival_ns[i], 2);
    }
    dlab_requests_free(&b);
    dlab_requests_free(&a);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, uniform_lengths_fill_their_range_evenly);
    tcase_add_test(tc, normal_lengths_have_their_mean_and_deviation);
    tcase_add_loop_test(tc, poisson_lengths_are_poisson, 0, 2);
    tcase_add_test(tc, lengths_below_one_are_drawn_again);
    tcase_add_test(tc, what_lengths_cannot_be_says_why);
    tcase_add_test(tc, drawn_pairs_fit_the_context);
    tcase_add_test(tc, a_constant_rate_of_ten_gives_tenths_of_a_second);
    tcase_add_test(tc, poisson_arrivals_have_exponential_gaps);
    tcase_add_loop_test(tc, burstiness_is_the_shape_of_the_gaps, 0, 5);
    tcase_add_test(tc, a_ramp_changes_the_rate_evenly);
    tcase_add_test(tc, an_open_or_closed_loop_without_end_is_refused);
    tcase_add_loop_test(tc, a_warm_up_is_a_batch, 0, 2);
    tcase_add_test(tc, a_closed_loop_starts_with_its_concurrency);
    tcase_add_test(tc, think_times_are_exponential_when_asked);
    tcase_add_test(tc, a_conversation_s_turns_follow_each_other);
    tcase_add_test(tc, drawn_conversations_fit_the_context_as_a_whole);
    tcase_add_loop_test(tc, the_share_of_prefixes_is_exact, 0, 7);
    tcase_add_test(tc, prefix_groups_are_drawn_evenly);
    tcase_add_test(tc, priorities_are_drawn_by_weight);
    tcase_add_loop_test(tc, priorities_that_are_none_are_refused, 0, 8);
    tcase_add_test(tc, a_seed_changes_its_own_draws_alone);
    tcase_add_test(tc, choices_do_not_disturb_each_other);
}

int main(void) { return run_suite("workload_draws", add); }

/* Source: Prometheus, "Exposition formats", text-based format 0.0.4. */
#include <stdio.h>
#include <stdlib.h>

#include "harness/serve/stats.h"

const char *dlab_answer_end_name(dlab_answer_end e)
{
    static const char *const names[] = {
#define DLAB_ANSWER_END_NAME(name, text) text,
        DLAB_ANSWER_END_LIST(DLAB_ANSWER_END_NAME)
#undef DLAB_ANSWER_END_NAME
    };
    return names[e];
}

/* From a token of a small model to minutes of a long answer, about 2.5 apart. */
static const double bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                1,      2.5,   5,      10,    25,   50,    100,  250, 500};
#define N_BOUNDS (sizeof bounds / sizeof *bounds)
_Static_assert(N_BOUNDS <= DLAB_BUCKETS_MAX, "a histogram has room for its buckets");

const double *dlab_histogram_bounds(size_t *n)
{
    *n = N_BOUNDS;
    return bounds;
}

void dlab_histogram_add(dlab_histogram *h, double seconds)
{
    size_t i = 0;
    while (i < N_BOUNDS && seconds > bounds[i]) i++;
    h->count[i]++;
    h->n++;
    h->sum += seconds;
}

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void histogram(FILE *f, const char *name, const char *help, const dlab_histogram *h)
{
    uint64_t below = 0;
    head(f, name, "histogram", help);
    for (size_t i = 0; i < N_BOUNDS; i++) {
        below += h->count[i];
        fprintf(f, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)below);
    }
    fprintf(f, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.17g\n%s_count %llu\n", name, (unsigned long long)h->n, name,
            h->sum, name, (unsigned long long)h->n);
}

static void gauge(FILE *f, const char *name, const char *help, double v)
{
    head(f, name, "gauge", help);
    fprintf(f, "%s %.15g\n", name, v);
}

static void counter(FILE *f, const char *name, const char *help, uint64_t v)
{
    head(f, name, "counter", help);
    fprintf(f, "%s %llu\n", name, (unsigned long long)v);
}

static void kv(FILE *f, const dlab_kv_stats *s)
{
    gauge(f, "dlab_kv_pool_bytes", "Size of the KV cache.", (double)s->pool_bytes);
    gauge(f, "dlab_kv_reserved_bytes", "Bytes of the KV cache assigned to live sequences.", (double)s->reserved_bytes);
    gauge(f, "dlab_kv_used_bytes", "Bytes of the KV cache that hold live tokens.", (double)s->used_bytes);
    gauge(f, "dlab_kv_cached_bytes", "Bytes of the KV cache kept as prefixes that later requests may share.",
          (double)s->cached_bytes);
    gauge(f, "dlab_kv_usage_ratio", "Share of the KV cache assigned to live sequences.",
          s->pool_bytes > 0 ? (double)s->reserved_bytes / (double)s->pool_bytes : 0);
}

static void counters(FILE *f, const dlab_serve_stats *s, const dlab_status_count *codes, size_t n_codes)
{
    head(f, "dlab_requests_total", "counter", "Answers ended, by how they ended.");
    for (int e = DLAB_ANSWER_STOP; e < DLAB_ANSWER_END_N; e++) {
        fprintf(f, "dlab_requests_total{finish=\"%s\"} %llu\n", dlab_answer_end_name((dlab_answer_end)e),
                (unsigned long long)s->ended[e]);
    }
    head(f, "dlab_http_responses_total", "counter", "HTTP responses begun, by status.");
    for (size_t i = 0; i < n_codes; i++) {
        fprintf(f, "dlab_http_responses_total{code=\"%d\"} %llu\n", codes[i].code, (unsigned long long)codes[i].n);
    }
    counter(f, "dlab_queue_full_total", "Requests refused because the queue was full.", s->refused_full);
    counter(f, "dlab_prompt_tokens_total", "Prompt tokens of requests that were started.", s->prompt_tokens);
    counter(f, "dlab_prompt_tokens_cached_total", "Those of them that were in the prefix cache.", s->cached_tokens);
    counter(f, "dlab_generation_tokens_total", "Tokens generated.", s->generated_tokens);
    counter(f, "dlab_preemptions_total", "Sequences that gave their place back before they ended.", s->preemptions);
    counter(f, "dlab_swapped_out_total", "Those of them that were copied out.", s->swapped_out);
    counter(f, "dlab_swapped_in_total", "Sequences that were copied back.", s->swapped_in);
    counter(f, "dlab_swap_bytes_total", "Bytes copied both ways.", s->swap_bytes);
    counter(f, "dlab_engine_steps_total", "Steps of the engine.", s->steps);
}

char *dlab_prometheus_text(const dlab_serve_stats *s, const dlab_status_count *codes, size_t n_codes,
                           int64_t connections)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return NULL;
    histogram(f, "dlab_time_to_first_token_seconds", "From a request's arrival to its first token.", &s->ttft);
    histogram(f, "dlab_time_per_output_token_seconds", "Mean time between the tokens of one answer.", &s->tpot);
    histogram(f, "dlab_inter_token_latency_seconds", "Time between two successive tokens of an answer.", &s->itl);
    histogram(f, "dlab_e2e_request_latency_seconds", "From a request's arrival to its last token.", &s->e2e);
    histogram(f, "dlab_request_queue_time_seconds", "From a request's arrival to its admission.", &s->queue);
    gauge(f, "dlab_requests_running", "Answers being computed.", (double)s->running);
    gauge(f, "dlab_requests_waiting", "Answers that wait to be started.", (double)s->waiting);
    gauge(f, "dlab_http_connections", "Open connections.", (double)connections);
    kv(f, &s->kv);
    counters(f, s, codes, n_codes);
    if (fclose(f) == 0) return text;
    free(text);
    return NULL;
}

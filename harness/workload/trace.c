/* Mooncake's JSONL: a line a request, with the hashes of its prompt's blocks, so that equal prefixes can be made again
 * without the text. */
#include <math.h>

#include "base/int.h"
#include "base/json.h"
#include "harness/workload/workload_parts.h"

#define ARRIVAL_MAX_NS 1e17 /* three years */

static dlab_status bad(const dlab_file_requests *t, int64_t line, const char *key, const char *expected,
                       dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s:%lld: %s: expected %s", t->name, (long long)line, key, expected);
}

static dlab_status read_tokens(const dlab_file_requests *t, const json_t *line, const char *key, int64_t number,
                               int64_t *out, dlab_error *err)
{
    const json_t *v = json_object_get(line, key);
    *out = json_is_integer(v) ? json_integer_value(v) : 0;
    if (*out >= 1 && *out <= DLAB_LENGTH_MAX) return DLAB_OK;
    return bad(t, number, key, "tokens, a whole number from 1 to 1048576", err);
}

/* In ns, as the file counts. */
static dlab_status read_time(const dlab_file_requests *t, const json_t *line, int64_t number, double speed, double *ns,
                             dlab_error *err)
{
    const json_t *v = json_object_get(line, "timestamp");
    *ns = json_is_number(v) ? json_number_value(v) * 1e6 / speed : NAN;
    if (*ns >= 0 && *ns < ARRIVAL_MAX_NS) return DLAB_OK;
    return bad(t, number, "timestamp", "milliseconds, at least 0 and less than three years", err);
}

/* A trace without hashes is fine: then no two prompts are alike. */
static dlab_status read_hashes(dlab_file_requests *t, const json_t *line, dlab_file_request *r, dlab_error *err)
{
    const json_t *list = json_object_get(line, "hash_ids");
    if (!list || json_is_null(list)) return DLAB_OK;
    if (!json_is_array(list)) return bad(t, r->line, "hash_ids", "a list of whole numbers", err);
    const int64_t blocks = dlab_ceil_div(r->prompt, DLAB_TRACE_BLOCK);
    if ((int64_t)json_array_size(list) < blocks) {
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s:%lld: hash_ids: %zu blocks of %d tokens are less than the input_length %lld", t->name,
                         (long long)r->line, json_array_size(list), DLAB_TRACE_BLOCK, (long long)r->prompt);
    }
    for (int64_t i = 0; i < blocks; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v)) return bad(t, r->line, "hash_ids", "a list of whole numbers", err);
        DLAB_TRY(dlab_file_requests_add_hash(t, (uint64_t)json_integer_value(v), err));
    }
    r->n_data = blocks;
    return DLAB_OK;
}

static dlab_status read_line(dlab_file_requests *t, const json_t *line, double speed, dlab_file_request *r, double *ns,
                             dlab_error *err)
{
    if (!json_is_object(line)) {
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s:%lld: expected an object with timestamp, input_length, output_length and hash_ids",
                         t->name, (long long)r->line);
    }
    DLAB_TRY(read_time(t, line, r->line, speed, ns, err));
    DLAB_TRY(read_tokens(t, line, "input_length", r->line, &r->prompt, err));
    DLAB_TRY(read_tokens(t, line, "output_length", r->line, &r->output, err));
    return read_hashes(t, line, r, err);
}

/* The first line's time is the run's start. */
dlab_status dlab_trace_read(const dlab_workload *w, const char *text, size_t n, int64_t max, dlab_file_requests *out,
                            dlab_error *err)
{
    dlab_file_lines l = {.text = text, .end = text + n};
    double first = 0, last = 0;
    *out = (dlab_file_requests){.name = w->trace_file};
    while ((max <= 0 || out->conversations < max) && dlab_file_line_next(&l)) {
        json_t *line = NULL;
        dlab_file_request r = {.line = l.number, .data = (int64_t)out->n_hashes};
        double ns = 0;
        if (dlab_file_line_empty(&l)) continue;
        DLAB_TRY(dlab_json_parse_line(out->name, l.number, l.line, l.n, &line, err));
        const dlab_status st = read_line(out, line, w->trace_speed, &r, &ns, err);
        json_decref(line);
        DLAB_TRY(st);
        if (out->n > 0 && ns < last) {
            return bad(out, l.number, "timestamp", "one at or after that of the line before: sort the trace", err);
        }
        if (out->n == 0) first = ns;
        last = ns;
        r.arrival_ns = llround(ns - first);
        if (w->duration_ns > 0 && r.arrival_ns >= w->duration_ns) break;
        DLAB_TRY(dlab_file_requests_add(out, &r, err));
    }
    if (out->n > 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: has no request", out->name);
}

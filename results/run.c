#include "results/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    int fails;
} statuses[DLAB_RUN_STATUS_N] = {
#define DLAB_RUN_ROW(name, text, fails) {text, fails},
    DLAB_RUN_STATUS_LIST(DLAB_RUN_ROW)
#undef DLAB_RUN_ROW
};

const char *dlab_run_status_text(dlab_run_status s)
{
    return (unsigned)s < DLAB_RUN_STATUS_N ? statuses[s].text : "unknown";
}

dlab_run_status dlab_run_status_parse(const char *text)
{
    int s = 0;
    while (s < DLAB_RUN_STATUS_N && strcmp(statuses[s].text, text) != 0) s++;
    return (dlab_run_status)s;
}

const char *dlab_failure_text(dlab_failure f)
{
    static const char *const texts[] = {
#define DLAB_FAILURE_TEXT(name, text) text,
        DLAB_FAILURE_LIST(DLAB_FAILURE_TEXT)
#undef DLAB_FAILURE_TEXT
    };
    return (unsigned)f < DLAB_FAILURE_N ? texts[f] : "unknown";
}

int dlab_run_status_fails(dlab_run_status s) { return (unsigned)s < DLAB_RUN_STATUS_N ? statuses[s].fails : 1; }

/* ---- settings ------------------------------------------------------------------------------------------------------ */

const char *dlab_settings_get(const dlab_settings *s, const char *key)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->items[i].key, key) == 0) return s->items[i].value;
    return NULL;
}

static dlab_status settings_append(dlab_settings *s, const char *key, char *value, dlab_error *err)
{
    char *k = strdup(key);
    dlab_setting *items = realloc(s->items, (s->n + 1) * sizeof *items);
    if (items) s->items = items;
    if (!k || !items) {
        free(k);
        free(value);
        return DLAB_FAIL(err, DLAB_EOOM, "setting %s: no memory for one more entry", key);
    }
    s->items[s->n++] = (dlab_setting){k, value};
    return DLAB_OK;
}

dlab_status dlab_settings_set(dlab_settings *s, const char *key, const char *value, dlab_error *err)
{
    char *v = strdup(value);
    if (!v) return DLAB_FAIL(err, DLAB_EOOM, "setting %s: no memory for its value", key);
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->items[i].key, key) != 0) continue;
        free(s->items[i].value);
        s->items[i].value = v;
        return DLAB_OK;
    }
    return settings_append(s, key, v, err);
}

dlab_status dlab_settings_copy(const dlab_settings *from, dlab_settings *to, dlab_error *err)
{
    dlab_settings copy = {0};
    for (size_t i = 0; i < from->n; i++) {
        dlab_status st = dlab_settings_set(&copy, from->items[i].key, from->items[i].value, err);
        if (st != DLAB_OK) {
            dlab_settings_free(&copy);
            return st;
        }
    }
    dlab_settings_free(to);
    *to = copy;
    return DLAB_OK;
}

void dlab_settings_free(dlab_settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i].key);
        free(s->items[i].value);
    }
    free(s->items);
    *s = (dlab_settings){0};
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

void dlab_run_init(dlab_run *r)
{
    *r = (dlab_run){.status = DLAB_RUN_PENDING, .started_unix = NAN, .t_end = NAN};
    for (int p = 0; p < DLAB_POOL_N; p++) r->pool_peak[p] = -1;
    r->mem_peak = r->rss_peak = r->kv_pool = r->weight_bytes = -1;
    r->kv_growths = r->kv_growth_ns = r->kv_evictions = r->kv_copies = r->kv_hit_tokens = r->kv_asked_tokens = -1;
    r->kv_cached_start = -1;
    r->kv_token_bytes = r->kv_hit_ideal = r->peaks_measured = NAN;
    r->peaks_quick = -1;
}

void dlab_run_free_events(dlab_run *r)
{
    free(r->requests);
    free(r->tokens);
    free(r->steps);
    free(r->memory);
    free(r->quality);
    free(r->peaks);
    r->requests = NULL;
    r->tokens = NULL;
    r->steps = NULL;
    r->memory = NULL;
    r->quality = NULL;
    r->peaks = NULL;
    r->n_requests = r->n_tokens = r->n_steps = r->n_memory = r->n_quality = r->n_peaks = 0;
    memset(r->capacity, 0, sizeof r->capacity);
}

void dlab_run_free(dlab_run *r)
{
    dlab_settings_free(&r->effective);
    dlab_run_free_events(r);
    free(r->metrics);
    dlab_run_init(r);
}

void dlab_run_move_events(dlab_run *from, dlab_run *to)
{
    dlab_run_free_events(to);
    to->requests = from->requests;
    to->tokens = from->tokens;
    to->steps = from->steps;
    to->memory = from->memory;
    to->quality = from->quality;
    to->peaks = from->peaks;
    to->n_requests = from->n_requests;
    to->n_tokens = from->n_tokens;
    to->n_steps = from->n_steps;
    to->n_memory = from->n_memory;
    to->n_quality = from->n_quality;
    to->n_peaks = from->n_peaks;
    memcpy(to->capacity, from->capacity, sizeof to->capacity);
    to->dropped = from->dropped;
    from->requests = NULL;
    from->tokens = NULL;
    from->steps = NULL;
    from->memory = NULL;
    from->quality = NULL;
    from->peaks = NULL;
    dlab_run_free_events(from);
}

bool dlab_run_counts(const dlab_run *r) { return r->status == DLAB_RUN_OK || r->status == DLAB_RUN_TRUNCATED; }

/* The arrays by number, in the order of dlab_run.capacity. */
enum { A_REQUESTS, A_TOKENS, A_STEPS, A_MEMORY, A_QUALITY, A_PEAKS };

static dlab_status array_reserve(void **array, size_t *capacity, size_t n, size_t row_bytes, const char *what,
                                 dlab_error *err)
{
    if (n <= *capacity) return DLAB_OK;
    if (n > SIZE_MAX / row_bytes) return DLAB_FAIL(err, DLAB_EOOM, "events: %zu %s do not fit in memory", n, what);
    void *grown = realloc(*array, n * row_bytes);
    if (!grown) return DLAB_FAIL(err, DLAB_EOOM, "events: no memory for %zu %s (%zu bytes)", n, what, n * row_bytes);
    *array = grown;
    *capacity = n;
    return DLAB_OK;
}

static dlab_status array_grow(void **array, size_t *capacity, size_t n, size_t row_bytes, const char *what,
                              dlab_error *err)
{
    if (n < *capacity) return DLAB_OK;
    return array_reserve(array, capacity, n < 8 ? 16 : 2 * n, row_bytes, what, err);
}

/* The arrays are typed; realloc wants void *: the pointer goes through a local so that no aliasing rule is bent. */
#define RESERVE(r, field, number, n)                                                                                   \
    do {                                                                                                               \
        void *p_ = (r)->field;                                                                                         \
        dlab_status st_ = array_reserve(&p_, &(r)->capacity[number], n, sizeof *(r)->field, #field, err);              \
        (r)->field = p_;                                                                                               \
        if (st_ != DLAB_OK) return st_;                                                                                \
    } while (0)

#define APPEND(r, field, number, event)                                                                                \
    do {                                                                                                               \
        void *p_ = (r)->field;                                                                                         \
        dlab_status st_ = array_grow(&p_, &(r)->capacity[number], (r)->n_##field, sizeof *(r)->field, #field, err);    \
        (r)->field = p_;                                                                                               \
        if (st_ != DLAB_OK) return st_;                                                                                \
        (r)->field[(r)->n_##field++] = *(event);                                                                       \
    } while (0)

dlab_status dlab_run_reserve(dlab_run *r, size_t requests, size_t tokens, size_t steps, size_t memory, dlab_error *err)
{
    RESERVE(r, requests, A_REQUESTS, requests);
    RESERVE(r, tokens, A_TOKENS, tokens);
    RESERVE(r, steps, A_STEPS, steps);
    RESERVE(r, memory, A_MEMORY, memory);
    return DLAB_OK;
}

dlab_status dlab_run_add_request(dlab_run *r, const dlab_ev_request *e, dlab_error *err)
{
    APPEND(r, requests, A_REQUESTS, e);
    return DLAB_OK;
}

dlab_status dlab_run_add_token(dlab_run *r, const dlab_ev_token *e, dlab_error *err)
{
    APPEND(r, tokens, A_TOKENS, e);
    return DLAB_OK;
}

dlab_status dlab_run_add_step(dlab_run *r, const dlab_ev_step *e, dlab_error *err)
{
    APPEND(r, steps, A_STEPS, e);
    return DLAB_OK;
}

dlab_status dlab_run_add_memory(dlab_run *r, const dlab_ev_memory *e, dlab_error *err)
{
    APPEND(r, memory, A_MEMORY, e);
    return DLAB_OK;
}

dlab_status dlab_run_add_quality(dlab_run *r, const dlab_ev_quality *e, dlab_error *err)
{
    APPEND(r, quality, A_QUALITY, e);
    return DLAB_OK;
}

dlab_status dlab_run_add_peak(dlab_run *r, const dlab_peak_row *e, dlab_error *err)
{
    APPEND(r, peaks, A_PEAKS, e);
    return DLAB_OK;
}

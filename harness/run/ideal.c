#include "harness/run/ideal.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    const int32_t *ids;
    int64_t n;
} prompt;

static int64_t common(const prompt *a, const prompt *b)
{
    int64_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n]) n++;
    return n;
}

static int compare_prompts(const void *a, const void *b)
{
    const prompt *x = a, *y = b;
    const int64_t n = common(x, y);
    if (n == x->n || n == y->n) return (x->n > y->n) - (x->n < y->n);
    return x->ids[n] < y->ids[n] ? -1 : 1;
}

/* False: a prompt's tokens are not known, or not looked for. */
static bool gather(const dlab_requests *q, const dlab_run *run, prompt *out, size_t *n)
{
    const int64_t samples = q->samples > 1 ? q->samples : 1;
    *n = 0;
    for (size_t k = 0; k < run->n_requests; k++) {
        const int64_t id = run->requests[k].id, i = id / samples;
        if (id % samples != 0 || isnan(run->requests[k].t_submit)) continue;
        if (q->depth[i] > 0 || (q->after && q->after[i] >= 0)) return false;
        out[(*n)++] = (prompt){q->ids + q->offset[i], q->prompt[i]};
    }
    return *n > 0;
}

/* Whatever the order in which they come, each beginning that several have in common is new to the cache once. So the hits are
 * what neighbours in the order of the alphabet share; of a prompt that came before as a whole one token is computed. */
double dlab_ideal_hit(const dlab_requests *q, const dlab_run *run)
{
    prompt *p = malloc((run->n_requests + 1) * sizeof *p);
    double hits = 0, tokens = 0;
    size_t n = 0;
    if (p && gather(q, run, p, &n)) {
        qsort(p, n, sizeof *p, compare_prompts);
        for (size_t i = 0; i < n; i++) {
            const int64_t shared = i ? common(&p[i - 1], &p[i]) : 0;
            hits += (double)(shared == p[i].n && shared > 0 ? shared - 1 : shared);
            tokens += (double)p[i].n;
        }
    }
    free(p);
    return tokens > 0 ? hits / tokens : NAN;
}

/* The kv part of a plan: what is reserved, how K and V are laid out, and how large the pool is. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/int.h"
#include "engine/plan.h"

#define FIRST_TOKENS 256 /* where a growing store starts */
#define MAX_RESERVED ((int64_t)1 << 30)

dlab_status dlab_plan_reservation(dlab_resolved *r, dlab_error *err)
{
    dlab_plan *p = &r->plan;
    const int64_t longest = r->needs.max_tokens;
    if (p->kv_max_tokens > 0 && p->kv_max_tokens < longest) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv.max_tokens: %" PRId64 " is less than the longest sequence of the workload, %" PRId64,
                         p->kv_max_tokens, longest);
    }
    if (p->kv_max_tokens == 0) {
        const double reserved = ceil((double)longest * (r->store->retains ? p->kv_headroom : 1));
        if (!(reserved <= (double)MAX_RESERVED)) {
            return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "kv.headroom: %g times %" PRId64 " tokens is out of all reach",
                             p->kv_headroom, longest);
        }
        p->kv_max_tokens = (int64_t)reserved;
    }
    return DLAB_OK;
}

/* "0" is what a plan without a pool has in effect. */
bool dlab_plan_pool_is_open(const dlab_plan *p)
{
    return strcmp(p->kv_pool, "auto") == 0 || strcmp(p->kv_pool, "0") == 0;
}

static dlab_status check_store(const dlab_resolved *r, dlab_error *err)
{
    const dlab_plan *p = &r->plan;
    if (!r->store->retains && r->kv.grow) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "kv.growth: double, but kv.store: %s keeps nothing that could grow",
                         r->store->name);
    }
    if (!r->store->retains && !dlab_plan_pool_is_open(p)) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "kv.pool: %.40s, but kv.store: %s has no pool", p->kv_pool,
                         r->store->name);
    }
    if (p->kv_prefix_cache && !r->store->shares) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv.prefix_cache needs a store whose blocks can be shared: kv.store: paged, not %s",
                         r->store->name);
    }
    if (r->kv.grow && r->store->shares) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv.growth: double is for the contiguous store: %s takes blocks on demand", r->store->name);
    }
    return DLAB_OK;
}

/* Bytes of the pool that holds exactly n blocks: the smallest that a store of that size makes of itself. */
static dlab_status blocks_bytes(dlab_resolved *r, const char *text, double number, dlab_error *err)
{
    const int64_t n = number >= 1 && number <= 1e15 && number == floor(number) ? (int64_t)number : 0;
    if (!r->store->shares) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "kv.pool: %.40s: kv.store: %s has no blocks, give bytes", text,
                         r->store->name);
    }
    dlab_kv_config one = r->kv;
    one.max_tokens = one.block_tokens;
    const int64_t seqs = one.max_seqs; /* one block each, and the tails that do not depend on the pool */
    const int64_t first = r->store->bytes(&one);
    one.max_tokens = 2 * one.block_tokens;
    const int64_t block = (r->store->bytes(&one) - first) / seqs;
    if (n < 1 || n > INT64_MAX / 4 / block) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "kv.pool: %.40s: expected a whole number of blocks from 1 on", text);
    }
    r->kv.pool_bytes = first + (n - seqs) * block;
    return DLAB_OK;
}

static dlab_status share_bytes(dlab_resolved *r, const char *text, double percent, dlab_error *err)
{
    if (r->plan.memory_limit_bytes == 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "kv.pool: %.40s is a share of memory_limit, which is not set", text);
    }
    if (!(percent > 0 && percent <= 100)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "kv.pool: %.40s: expected a share above 0%% and up to 100%%", text);
    }
    r->kv.pool_bytes = (int64_t)((double)r->plan.memory_limit_bytes * percent / 100);
    return DLAB_OK;
}

static dlab_status resolve_pool(dlab_resolved *r, dlab_error *err)
{
    static const dlab_param size = {"kv.pool", DLAB_PARAM_SIZE, 0, "0", 1, 1e15, NULL, ""};
    char *text = r->plan.kv_pool, *end = NULL;
    if (dlab_plan_pool_is_open(&r->plan)) {
        dlab_kv_config most = r->kv;
        most.grow = false;
        snprintf(text, DLAB_PARAM_STR, "%" PRId64, r->store->retains ? r->store->bytes(&most) : 0);
        return DLAB_OK;
    }
    const double number = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0)
        DLAB_TRY(share_bytes(r, text, number, err));
    else if (end != text && (strcmp(end, " blocks") == 0 || strcmp(end, "blocks") == 0 || strcmp(end, " block") == 0))
        DLAB_TRY(blocks_bytes(r, text, number, err));
    else if (dlab_param_set(&size, &r->kv.pool_bytes, text, NULL) != DLAB_OK)
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "kv.pool: '%.40s' is no size; expected auto, bytes such as 512MiB, `100 blocks` or `60%%` of "
                         "memory_limit",
                         text);
    snprintf(text, DLAB_PARAM_STR, "%" PRId64, r->kv.pool_bytes);
    return DLAB_OK;
}

/* Bytes of kv.block_size tokens of one sequence, all layers, K and V. */
static int64_t piece_bytes(const dlab_kv_config *kv)
{
    const int64_t k = dlab_kv_region_bytes(&kv->k, kv->head_dim, dlab_kv_round_cap(&kv->k, kv->block_tokens));
    const int64_t v = dlab_kv_region_bytes(&kv->v, kv->head_dim, dlab_kv_round_cap(&kv->v, kv->block_tokens));
    return kv->n_layers * kv->n_kv_heads * (k + v);
}

/* Behind resolve_pool, whose size is the default. */
static dlab_status resolve_swap(dlab_resolved *r, dlab_error *err)
{
    int64_t *bytes = &r->plan.kv_swap_bytes;
    if (strcmp(r->plan.batch_preemption, "swap") != 0) {
        *bytes = 0;
        return DLAB_OK;
    }
    if (!r->store->retains) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "batch.preemption: swap needs a store that keeps something: kv.store: %s computes all again "
                         "at every step",
                         r->store->name);
    }
    r->swap_piece_bytes = piece_bytes(&r->kv);
    if (*bytes > 0 && *bytes < r->swap_piece_bytes) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv.swap: %" PRId64 " bytes do not hold even %" PRId64 " tokens (kv.block_size) of %" PRId64
                         " bytes: raise it, or use batch.preemption: recompute",
                         *bytes, r->kv.block_tokens, r->swap_piece_bytes);
    }
    const int64_t pool = strtoll(r->plan.kv_pool, NULL, 10);
    r->swap_pieces = *bytes > 0 ? *bytes / r->swap_piece_bytes : dlab_ceil_div(pool, r->swap_piece_bytes);
    *bytes = r->swap_pieces * r->swap_piece_bytes;
    return DLAB_OK;
}

static dlab_status make_layouts(const dlab_plan *p, dlab_kv_layout *k, dlab_kv_layout *v, dlab_error *err)
{
    const dlab_kv_format *fk = dlab_kv_format_find(p->kv_k), *fv = dlab_kv_format_find(p->kv_v);
    if (!fk || !fv) return DLAB_FAIL(err, DLAB_EINTERNAL, "plan: a KV format passed the table but has no entry");
    DLAB_TRY(dlab_kv_layout_make("kv.k", fk, p->kv_k_scales, p->kv_block_size, p->kv_k_tail, k, err));
    return dlab_kv_layout_make("kv.v", fv, p->kv_v_scales, p->kv_block_size, p->kv_v_tail, v, err);
}

dlab_status dlab_plan_resolve_kv(dlab_resolved *r, const dlab_model_info *info, dlab_error *err)
{
    dlab_kv_config *kv = &r->kv;
    const dlab_plan *p = &r->plan;
    kv->n_layers = info->n_layers;
    kv->n_kv_heads = info->n_kv_heads;
    kv->head_dim = info->head_dim;
    kv->max_seqs = r->needs.max_seqs;
    kv->max_tokens = p->kv_max_tokens;
    kv->first_tokens = FIRST_TOKENS;
    kv->grow = strcmp(p->kv_growth, "double") == 0;
    kv->block_tokens = p->kv_block_size;
    kv->prefix_cache = p->kv_prefix_cache;
    DLAB_TRY(make_layouts(p, &kv->k, &kv->v, err));
    DLAB_TRY(check_store(r, err));
    DLAB_TRY(resolve_pool(r, err));
    return resolve_swap(r, err);
}

dlab_status dlab_kv_plan_token_bytes(const dlab_plan *plan, const dlab_model_info *m, double *out, dlab_error *err)
{
    dlab_kv_layout k, v;
    *out = NAN;
    DLAB_TRY(make_layouts(plan, &k, &v, err));
    *out = dlab_kv_token_bytes(&k, &v, m->n_layers, m->n_kv_heads, m->head_dim);
    return DLAB_OK;
}

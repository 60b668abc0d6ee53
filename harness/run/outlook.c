#include "harness/run/outlook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "harness/run/config.h"
#include "harness/workload/workload.h"

static void give_up(dlab_outlook *o, dlab_status status, const char *reason)
{
    o->status = status;
    dlab_text_copy(o->reason, sizeof o->reason, reason);
}

/* What the longest sequence takes alone, against the whole pool: a run would find out at that request. pool: the effective
 * kv.pool, in bytes. */
static dlab_status check_pool(const dlab_point *p, const dlab_model *model, const dlab_engine_needs *needs,
                              const char *pool, dlab_error *err)
{
    dlab_plan one = p->plan;
    if (strcmp(one.kv_pool, "auto") == 0) return DLAB_OK; /* made to fit */
    const long long bytes = strtoll(pool, NULL, 10);
    dlab_engine_needs needs_one = *needs;
    size_t need[DLAB_POOL_N];
    const bool reserves = strcmp(one.kv_store, "contiguous") == 0 && strcmp(one.kv_growth, "fixed") == 0;
    if (!reserves) one.kv_max_tokens = 0;
    if (!reserves) one.kv_headroom = 1;
    one.kv_growth = "fixed";
    snprintf(one.kv_pool, sizeof one.kv_pool, "auto");
    one.batch_size = needs_one.max_seqs = 1;
    DLAB_TRY(dlab_engine_estimate(&one, model, &needs_one, need, err));
    if ((long long)need[DLAB_POOL_KV] <= bytes) return DLAB_OK;
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "the longest sequence has %lld tokens and takes %zu bytes of cache%s; the whole pool (kv.pool) has %lld",
        (long long)needs->max_tokens, need[DLAB_POOL_KV], reserves ? ", reserved" : "", bytes);
}

/* DLAB_EUSAGE: a value of the file is no value at all, which is nobody's to run. */
static dlab_status estimate(const dlab_point *p, const dlab_model *model, dlab_outlook *o, dlab_error *err)
{
    dlab_engine_needs needs = {0};
    dlab_error e = {0};
    dlab_plan effective;
    dlab_tokenizer *tokenizer = NULL;
    dlab_shape *shape = NULL;
    dlab_status st = dlab_workload_tokenizes(&p->workload) ? dlab_tokenizer_create(model, &tokenizer, &e) : DLAB_OK;
    const dlab_workload_host host = {
        .batch_size = p->plan.batch_size, .context = dlab_model_get_info(model)->context, .tokenizer = tokenizer};
    if (st == DLAB_OK) st = dlab_shape_create(&p->workload, &host, &shape, &e);
    if (st == DLAB_OK) needs = dlab_shape_needs(shape);
    dlab_shape_destroy(shape);
    dlab_tokenizer_destroy(tokenizer);
    if (st == DLAB_OK) st = dlab_engine_effective(&p->plan, model, &needs, &effective, &e);
    if (st == DLAB_OK) o->plan = effective;
    if (st == DLAB_OK) st = check_pool(p, model, &needs, effective.kv_pool, &e);
    if (st == DLAB_OK) st = dlab_engine_estimate(&p->plan, model, &needs, o->bytes, &e);
    if (st == DLAB_EUSAGE) return DLAB_FAIL(err, st, "%s", e.msg);
    if (st == DLAB_EIMPOSSIBLE || st == DLAB_ENOTBUILT) give_up(o, st, e.msg);
    if (st != DLAB_OK) return DLAB_OK; /* any other failure is the worker's to find and to tell */
    for (int i = 0; i < DLAB_POOL_N; i++) o->total_bytes += (int64_t)o->bytes[i];
    return DLAB_OK;
}

/* Opens the model of point `first` once and answers for all points that use it. */
static dlab_status survey_model(const dlab_spec *spec, size_t first, dlab_outlook *o, dlab_error *err)
{
    dlab_status bad = DLAB_OK;
    const char *name = spec->points[first].model;
    dlab_model *model = NULL;
    dlab_error e = {0};
    uint64_t hash = 0;
    dlab_status st = dlab_config_model_hash(name, &hash, &e);
    if (st == DLAB_OK) st = dlab_model_open(name, &model, &e);
    for (size_t i = first; i < spec->n_points; i++) {
        if (strcmp(spec->points[i].model, name) != 0) continue;
        o[i].model_hash = hash;
        if (o[i].status != DLAB_OK) continue;
        if (st != DLAB_OK) {
            give_up(&o[i], st, e.msg);
        } else {
            bad = estimate(&spec->points[i], model, &o[i], err);
        }
        if (bad != DLAB_OK) break;
    }
    dlab_model_close(model);
    return bad;
}

static bool seen_before(const dlab_spec *spec, size_t i)
{
    size_t j = 0;
    while (strcmp(spec->points[j].model, spec->points[i].model) != 0) j++;
    return j < i;
}

/* One broken model is a row's reason; if nothing else is left, it is the answer to the whole command. */
static dlab_status check_models(const dlab_outlook *o, size_t n, dlab_error *err)
{
    size_t broken = n;
    for (size_t i = 0; i < n; i++) {
        if (o[i].status == DLAB_OK) return DLAB_OK;
        if (o[i].status != DLAB_EIMPOSSIBLE && broken == n) broken = i;
    }
    return broken < n ? DLAB_FAIL(err, o[broken].status, "%s", o[broken].reason) : DLAB_OK;
}

static dlab_status make_keys(const dlab_spec *spec, const char *target, const char *exe,
                             const dlab_settings *environment, dlab_outlook *o, dlab_error *err)
{
    dlab_config_site site;
    DLAB_TRY(dlab_config_site_get(exe, environment, &site, err));
    for (size_t i = 0; i < spec->n_points; i++) {
        const dlab_point *p = &spec->points[i];
        dlab_config_run run = {target, &o[i].plan, &p->workload, &spec->measure, o[i].model_hash};
        bool taken = true;
        for (int copy = 0; taken; copy++) {
            taken = false;
            DLAB_TRY(dlab_config_key(&run, &site, copy, o[i].key, err));
            for (size_t j = 0; j < i && !taken; j++) taken = strcmp(o[j].key, o[i].key) == 0;
        }
    }
    return DLAB_OK;
}

dlab_status dlab_outlook_make(const dlab_spec *spec, const char *target, const char *exe,
                              const dlab_settings *environment, dlab_outlook **out, dlab_error *err)
{
    *out = NULL;
    dlab_outlook *o = calloc(spec->n_points ? spec->n_points : 1, sizeof *o);
    if (!o) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu points", spec->n_points);
    for (size_t i = 0; i < spec->n_points; i++) {
        if (*spec->points[i].skip) give_up(&o[i], DLAB_EIMPOSSIBLE, spec->points[i].skip);
    }
    bool needs_model = strcmp(target, "null") != 0;
    for (size_t i = 0; i < spec->n_points; i++) o[i].plan = spec->points[i].plan;
    dlab_status st = DLAB_OK;
    for (size_t i = 0; needs_model && st == DLAB_OK && i < spec->n_points; i++) {
        if (!seen_before(spec, i)) st = survey_model(spec, i, o, err);
    }
    if (st == DLAB_OK) st = check_models(o, spec->n_points, err);
    if (st == DLAB_OK) st = make_keys(spec, target, exe, environment, o, err);
    if (st == DLAB_OK) {
        *out = o;
    } else {
        free(o);
    }
    return st;
}

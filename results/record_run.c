/* One run: attributes, effective settings, six tables. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "results/record_parts.h"

#define I32(row, field, unit, text) DLAB_H5_COLUMN(row, field, DLAB_H5_I32, DLAB_H5_NEEDED, unit, text)
#define I64(row, field, unit, text) DLAB_H5_COLUMN(row, field, DLAB_H5_I64, DLAB_H5_NEEDED, unit, text)
#define F64(row, field, unit, text) DLAB_H5_COLUMN(row, field, DLAB_H5_F64, DLAB_H5_NEEDED, unit, text)
/* Not every writer has these. */
#define I32_IF(row, field, unit, text, absent) DLAB_H5_COLUMN(row, field, DLAB_H5_I32, absent, unit, text)
#define I64_IF(row, field, unit, text, absent) DLAB_H5_COLUMN(row, field, DLAB_H5_I64, absent, unit, text)
#define F64_IF(row, field, unit, text, absent) DLAB_H5_COLUMN(row, field, DLAB_H5_F64, absent, unit, text)

static const dlab_h5_column request_columns[] = {
    I64(dlab_ev_request, id, "1", "request, from 0"),
    I64(dlab_ev_request, prompt_tokens, "tok", "tokens of the prompt"),
    I64_IF(dlab_ev_request, depth_tokens, "tok", "tokens already in the cache at the start", DLAB_H5_UNKNOWN),
    I64(dlab_ev_request, new_tokens, "tok", "tokens produced"),
    I64_IF(dlab_ev_request, asked_tokens, "tok", "tokens asked for; -1: unknown", DLAB_H5_UNKNOWN),
    I64_IF(dlab_ev_request, cached_tokens, "tok", "tokens of the prompt found in the prefix cache; -1: unknown",
           DLAB_H5_UNKNOWN),
    F64(dlab_ev_request, t_sched, "ns", "when it should arrive, since the run's start"),
    F64_IF(dlab_ev_request, t_submit, "ns", "when it was handed over", DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_request, t_admit, "ns", "when its first step began to be put together", DLAB_H5_UNKNOWN),
    F64(dlab_ev_request, t_first, "ns", "when its first token was there"),
    F64(dlab_ev_request, t_done, "ns", "when its last token was there, or when it failed; NaN: not finished"),
    I32(dlab_ev_request, finish, "1", "0 unfinished, 1 length, 2 end of sequence"),
    I32_IF(dlab_ev_request, failure, "1", "0 none, 1 refused, 2 timeout, 3 http, 4 broken, 5 rejected, 6 aborted",
           DLAB_H5_ZERO),
    I32_IF(dlab_ev_request, http_status, "1", "status of the server's answer; 0: none", DLAB_H5_ZERO),
    I32_IF(dlab_ev_request, priority, "1", "larger goes first where the policy is priority", DLAB_H5_ZERO),
    I32_IF(dlab_ev_request, turn, "1", "turn of its conversation, from 0", DLAB_H5_ZERO),
    I64_IF(dlab_ev_request, conversation, "1", "id of its conversation's first request; -1: unknown", DLAB_H5_UNKNOWN),
};
static const dlab_h5_column token_columns[] = {
    I64(dlab_ev_token, request, "1", "id of the request"),
    I32(dlab_ev_token, index, "1", "place among the request's new tokens, from 0"),
    I32_IF(dlab_ev_token, token, "1", "the token's id in the vocabulary", DLAB_H5_UNKNOWN),
    F64(dlab_ev_token, t, "ns", "when its id was readable on the host"),
};
static const dlab_h5_column step_columns[] = {
    F64(dlab_ev_step, t_begin, "ns", "begin, since the run's start"),
    F64(dlab_ev_step, t_end, "ns", "end"),
    I32(dlab_ev_step, rows, "1", "token rows computed: prefill + decode + pad"),
    I32(dlab_ev_step, prefill_rows, "1", "rows that lead to a request's first token"),
    I32(dlab_ev_step, decode_rows, "1", "rows that lead to later tokens, those computed again included"),
    I32(dlab_ev_step, pad_rows, "1", "rows computed for nothing"),
    I32(dlab_ev_step, seqs, "1", "live sequences"),
    I32(dlab_ev_step, slots, "1", "batch.size"),
    I32(dlab_ev_step, launches, "1", "ops launched"),
    I32_IF(dlab_ev_step, budget, "1", "rows that the budget allowed; 0: none set", DLAB_H5_ZERO),
    F64_IF(dlab_ev_step, bytes, "B", "bytes that the ops declare to move", DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_step, kv_bytes, "B", "those of them that are read from the KV store", DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_step, flops, "FLOP", "operations that the ops declare", DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_step, int8_flops, "FLOP", "those of them that multiply int8 with int8", DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_step, bf16_flops, "FLOP", "those of them that multiply bf16 with bf16", DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_step, kv_dense_bytes, "B", "what kv_bytes would be if attention visited every token",
           DLAB_H5_UNKNOWN),
    F64_IF(dlab_ev_step, inter_bytes, "B", "attention's intermediate results, written and read back", DLAB_H5_UNKNOWN),
    I64(dlab_ev_step, kv_reserved, "B", "KV bytes assigned to live sequences after the step, shared ones once"),
    I64(dlab_ev_step, kv_used, "B", "KV bytes that hold live tokens after the step"),
    I64_IF(dlab_ev_step, kv_cached, "B", "KV bytes of no sequence, kept as prefixes for later ones", DLAB_H5_UNKNOWN),
    I64_IF(dlab_ev_step, kv_free, "B", "KV bytes that are neither assigned nor kept", DLAB_H5_UNKNOWN),
    I64_IF(dlab_ev_step, kv_unusable, "B", "those of the free bytes that no sequence can ever be given",
           DLAB_H5_UNKNOWN),
    I64_IF(dlab_ev_step, kv_shared, "B", "what kv_reserved would be more if sequences shared nothing", DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, preempted, "1", "sequences that gave their place back, to be computed again or copied back",
           DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, growths, "1", "reallocations of the KV store", DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, nonfinite, "1", "rows in which NaN or infinity came up, padding left out", DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, waiting, "1", "requests queued when it began; -1: unknown", DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, pad_skipped, "1", "rows that padding would have taken, and did not; -1: unknown",
           DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, swapped_out, "1", "sequences copied out of the KV store, of those preempted; -1: unknown",
           DLAB_H5_UNKNOWN),
    I32_IF(dlab_ev_step, swapped_in, "1", "sequences copied back into the KV store; -1: unknown", DLAB_H5_UNKNOWN),
    I64_IF(dlab_ev_step, swap_bytes, "B", "copied out of the KV store and back; -1: unknown", DLAB_H5_UNKNOWN),
};
static const dlab_h5_column memory_columns[] = {
    F64(dlab_ev_memory, t, "ns", "since the run's start"),
    I64(dlab_ev_memory, weights, "B", "in use in the weights' pool"),
    I64(dlab_ev_memory, kv, "B", "in use in the KV pool"),
    I64(dlab_ev_memory, activations, "B", "in use in the activations' pool"),
    I64(dlab_ev_memory, scratch, "B", "in use in the scratch pool"),
    I64_IF(dlab_ev_memory, rss, "B", "resident memory of the process; -1: unknown", DLAB_H5_UNKNOWN),
};
static const dlab_h5_column quality_columns[] = {
    I32(dlab_ev_quality, chunk, "1", "window of the text, from 0"),
    I32(dlab_ev_quality, position, "1", "place in the window from which the next token is predicted"),
    I32(dlab_ev_quality, token, "1", "id of the token that follows"),
    I32_IF(dlab_ev_quality, top1, "1", "most likely id", DLAB_H5_UNKNOWN),
    F64(dlab_ev_quality, nll, "nats", "negative log likelihood of the token"),
};

static const dlab_h5_column peak_columns[] = {
    F64(dlab_peak_row, bytes, "B", "working set that all threads together read again and again"),
    F64(dlab_peak_row, read_ps, "B/s", "at most so many bytes of it a second, with the run's threads"),
    F64(dlab_peak_row, f32_ps, "FLOP/s", "at most so many operations in f32, the same in every row"),
    F64(dlab_peak_row, int8_ps, "FLOP/s", "at most so many operations of int8 products, the same in every row"),
    F64_IF(dlab_peak_row, bf16_ps, "FLOP/s", "at most so many operations of bf16 products, the same in every row",
           DLAB_H5_UNKNOWN),
};

#define N_OF(a) (sizeof(a) / sizeof *(a))

const dlab_run_table dlab_run_tables[DLAB_RUN_N_TABLES] = {
#define TABLE_IF(field, columns, row, later)                                                                           \
    {                                                                                                                  \
#field, columns, N_OF(columns), sizeof(row), offsetof(dlab_run, field), offsetof(dlab_run, n_##field), later   \
    }
#define TABLE(field, columns, row) TABLE_IF(field, columns, row, false)
    TABLE(requests, request_columns, dlab_ev_request), TABLE(tokens, token_columns, dlab_ev_token),
    TABLE(steps, step_columns, dlab_ev_step),          TABLE(memory, memory_columns, dlab_ev_memory),
    TABLE(quality, quality_columns, dlab_ev_quality),  TABLE_IF(peaks, peak_columns, dlab_peak_row, true),
#undef TABLE
#undef TABLE_IF
};

const void *dlab_run_rows(const dlab_run *run, const dlab_run_table *t, size_t *n)
{
    const void *rows;
    memcpy(&rows, (const char *)run + t->rows_at, sizeof rows);
    memcpy(n, (const char *)run + t->n_at, sizeof *n);
    return rows;
}

/* Attributes that are 64-bit integers of dlab_run. One that a record lacks stays as dlab_run_init has it: unknown. */
static const struct {
    const char *name;
    size_t at;
} facts[] = {
    {"pool_peak.weights", offsetof(dlab_run, pool_peak[DLAB_POOL_WEIGHTS])},
    {"pool_peak.kv", offsetof(dlab_run, pool_peak[DLAB_POOL_KV])},
    {"pool_peak.activations", offsetof(dlab_run, pool_peak[DLAB_POOL_ACTIVATIONS])},
    {"pool_peak.scratch", offsetof(dlab_run, pool_peak[DLAB_POOL_SCRATCH])},
    {"mem_peak", offsetof(dlab_run, mem_peak)},
    {"rss_peak", offsetof(dlab_run, rss_peak)},
    {"kv_pool", offsetof(dlab_run, kv_pool)},
    {"kv_growths", offsetof(dlab_run, kv_growths)},
    {"kv_growth_ns", offsetof(dlab_run, kv_growth_ns)},
    {"kv_evictions", offsetof(dlab_run, kv_evictions)},
    {"kv_copies", offsetof(dlab_run, kv_copies)},
    {"kv_hit_tokens", offsetof(dlab_run, kv_hit_tokens)},
    {"kv_asked_tokens", offsetof(dlab_run, kv_asked_tokens)},
    {"kv_cached_start", offsetof(dlab_run, kv_cached_start)},
    {"memory_limit", offsetof(dlab_run, memory_limit)},
    {"weight_bytes", offsetof(dlab_run, weight_bytes)},
    {"quality_bytes", offsetof(dlab_run, quality_bytes)},
    {"peaks_quick", offsetof(dlab_run, peaks_quick)},
};

static int64_t *fact_of(dlab_run *run, size_t i) { return (int64_t *)(void *)((char *)run + facts[i].at); }

static dlab_status put_attributes(const dlab_h5_out *o, hid_t group, const dlab_run *run, dlab_error *err)
{
    DLAB_TRY(dlab_h5_put_str(o, group, "status", dlab_run_status_text(run->status), err));
    DLAB_TRY(dlab_h5_put_str(o, group, "reason", run->reason, err));
    DLAB_TRY(dlab_h5_put_str(o, group, "key", run->key, err));
    DLAB_TRY(dlab_h5_put_i64(o, group, "point", run->point, err));
    DLAB_TRY(dlab_h5_put_i64(o, group, "repeat", run->repeat, err));
    DLAB_TRY(dlab_h5_put_f64(o, group, "started_unix", run->started_unix, err));
    DLAB_TRY(dlab_h5_put_f64(o, group, "t_end", run->t_end, err));
    for (size_t i = 0; i < N_OF(facts); i++) {
        int64_t value;
        memcpy(&value, (const char *)run + facts[i].at, sizeof value);
        DLAB_TRY(dlab_h5_put_i64(o, group, facts[i].name, value, err));
    }
    DLAB_TRY(dlab_h5_put_f64(o, group, "kv_hit_ideal", run->kv_hit_ideal, err));
    DLAB_TRY(dlab_h5_put_f64(o, group, "kv_token_bytes", run->kv_token_bytes, err));
    DLAB_TRY(dlab_h5_put_f64(o, group, "peaks_measured", run->peaks_measured, err));
    DLAB_TRY(dlab_h5_put_str(o, group, "quality_protocol", run->quality_protocol, err));
    DLAB_TRY(dlab_h5_put_i64(o, group, "quality_first", run->quality_first, err));
    return dlab_h5_put_str(o, group, "corpus_hash", run->corpus_hash, err);
}

static dlab_status put_settings(const dlab_h5_out *o, hid_t group, const char *name, const dlab_settings *s,
                                dlab_error *err)
{
    hid_t sub;
    DLAB_TRY(dlab_h5_make_group(o, group, name, &sub, err));
    dlab_status st = DLAB_OK;
    for (size_t i = 0; st == DLAB_OK && i < s->n; i++)
        st = dlab_h5_put_str(o, sub, s->items[i].key, s->items[i].value, err);
    H5Gclose(sub);
    return st;
}

dlab_status dlab_record_put_run(const dlab_h5_out *o, hid_t runs, const char *name, const dlab_run *run,
                                dlab_error *err)
{
    hid_t group;
    DLAB_TRY(dlab_h5_make_group(o, runs, name, &group, err));
    dlab_status st = put_attributes(o, group, run, err);
    if (st == DLAB_OK) st = put_settings(o, group, "effective", &run->effective, err);
    for (size_t i = 0; st == DLAB_OK && i < DLAB_RUN_N_TABLES; i++) {
        const dlab_run_table *t = &dlab_run_tables[i];
        size_t n;
        const void *rows = dlab_run_rows(run, t, &n);
        st = dlab_h5_put_table(o, group, t->name, t->columns, t->n_columns, rows, t->row_bytes, n, err);
    }
    H5Gclose(group);
    return st;
}

static dlab_status get_i32(const dlab_h5_in *in, hid_t group, const char *name, int32_t *out, dlab_error *err)
{
    int64_t v = 0;
    DLAB_TRY(dlab_h5_get_i64(in, group, name, &v, err));
    if (v < INT32_MIN || v > INT32_MAX)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: attribute %s is out of range", in->path, name);
    *out = (int32_t)v;
    return DLAB_OK;
}

/* The key becomes a file's name. */
static bool key_is_plain(const char *key)
{
    return strspn(key, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == strlen(key);
}

static dlab_status get_attributes(const dlab_h5_in *in, hid_t group, dlab_run *run, dlab_error *err)
{
    char status[32];
    DLAB_TRY(dlab_h5_get_str(in, group, "status", status, sizeof status, err));
    run->status = dlab_run_status_parse(status);
    if (run->status == DLAB_RUN_STATUS_N)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: run status \"%.20s\" is not one that this version knows", in->path,
                         status);
    DLAB_TRY(dlab_h5_get_str(in, group, "reason", run->reason, sizeof run->reason, err));
    DLAB_TRY(dlab_h5_get_str(in, group, "key", run->key, sizeof run->key, err));
    if (!key_is_plain(run->key)) return DLAB_FAIL(err, DLAB_EFORMAT, "%s: a run's key is not a plain word", in->path);
    DLAB_TRY(get_i32(in, group, "point", &run->point, err));
    DLAB_TRY(get_i32(in, group, "repeat", &run->repeat, err));
    DLAB_TRY(dlab_h5_get_f64(in, group, "started_unix", &run->started_unix, err));
    DLAB_TRY(dlab_h5_get_f64(in, group, "t_end", &run->t_end, err));
    for (size_t i = 0; i < N_OF(facts); i++)
        DLAB_TRY(dlab_h5_get_i64_if(in, group, facts[i].name, fact_of(run, i), err));
    DLAB_TRY(dlab_h5_get_f64_if(in, group, "kv_hit_ideal", &run->kv_hit_ideal, err));
    DLAB_TRY(dlab_h5_get_f64_if(in, group, "kv_token_bytes", &run->kv_token_bytes, err));
    DLAB_TRY(dlab_h5_get_f64_if(in, group, "peaks_measured", &run->peaks_measured, err));
    DLAB_TRY(dlab_h5_get_str(in, group, "quality_protocol", run->quality_protocol, sizeof run->quality_protocol, err));
    DLAB_TRY(get_i32(in, group, "quality_first", &run->quality_first, err));
    return dlab_h5_get_str(in, group, "corpus_hash", run->corpus_hash, sizeof run->corpus_hash, err);
}

static dlab_status get_tables(const dlab_h5_in *in, hid_t group, dlab_run *run, dlab_error *err)
{
    for (size_t i = 0; i < DLAB_RUN_N_TABLES; i++) {
        const dlab_run_table *t = &dlab_run_tables[i];
        void *rows;
        size_t n;
        if (t->later && H5Lexists(group, t->name, H5P_DEFAULT) == 0) continue;
        DLAB_TRY(dlab_h5_get_table(in, group, t->name, t->columns, t->n_columns, t->row_bytes, &rows, &n, err));
        memcpy((char *)run + t->rows_at, &rows, sizeof rows);
        memcpy((char *)run + t->n_at, &n, sizeof n);
        run->capacity[i] = n;
    }
    return DLAB_OK;
}

dlab_status dlab_record_get_run(const dlab_h5_in *in, hid_t runs, const char *name, dlab_run *run, dlab_error *err)
{
    hid_t group, effective = H5I_INVALID_HID;
    dlab_run_init(run);
    DLAB_TRY(dlab_h5_get_group(in, runs, name, &group, err));
    dlab_status st = get_attributes(in, group, run, err);
    if (st == DLAB_OK) st = dlab_h5_get_group(in, group, "effective", &effective, err);
    if (st == DLAB_OK) st = dlab_h5_get_settings(in, effective, &run->effective, err);
    if (st == DLAB_OK) st = get_tables(in, group, run, err);
    if (effective >= 0) H5Gclose(effective);
    H5Gclose(group);
    if (st != DLAB_OK) dlab_run_free(run);
    return st;
}

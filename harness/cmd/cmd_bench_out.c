/* Rows of a benchmark in llama-bench's formats. One JSON object is made of a row; csv and sql print the scalar columns of
 * the same object, so that a figure has one source. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "dlab_version.h"
#include "harness/cmd/cmd_bench.h"

const char *const dlab_bench_formats[] = {"md", "csv", "json", "jsonl", "sql", NULL};

/* llama-bench's names where the meaning is llama-bench's. */
static const struct {
    const char *name, *sql;
} columns[] = {
    {"build_commit", "TEXT"},
    {"cpu_info", "TEXT"},
    {"backend", "TEXT"},
    {"isa", "TEXT"},
    {"model_filename", "TEXT"},
    {"model_type", "TEXT"},
    {"model_size", "INTEGER"},
    {"model_n_params", "INTEGER"},
    {"model_hash", "TEXT"},
    {"n_batch", "INTEGER"},
    {"n_ubatch", "INTEGER"},
    {"n_threads", "INTEGER"},
    {"type_k", "TEXT"},
    {"type_v", "TEXT"},
    {"flash_attn", "INTEGER"},
    {"compute", "TEXT"},
    {"kv_store", "TEXT"},
    {"n_seqs", "INTEGER"},
    {"n_prompt", "INTEGER"},
    {"n_gen", "INTEGER"},
    {"n_depth", "INTEGER"},
    {"test", "TEXT"},
    {"test_time", "TEXT"},
    {"status", "TEXT"},
    {"reason", "TEXT"},
    {"avg_ns", "REAL"},
    {"stddev_ns", "REAL"},
    {"avg_ts", "REAL"},
    {"stddev_ts", "REAL"},
    {"ttft_ms", "REAL"},
    {"tpot_ms", "REAL"},
    {"roofline", "REAL"},
    {"mbu", "REAL"},
    {"mfu", "REAL"},
    {"mem_peak_bytes", "INTEGER"},
    {"peer", "TEXT"},
    {"peer_path", "TEXT"},
    {"peer_build", "TEXT"},
    {"peer_model_filename", "TEXT"},
    {"peer_type_k", "TEXT"},
    {"peer_type_v", "TEXT"},
    {"peer_flash_attn", "INTEGER"},
    {"peer_status", "TEXT"},
    {"peer_reason", "TEXT"},
    {"peer_avg_ts", "REAL"},
    {"peer_stddev_ts", "REAL"},
    {"ratio", "REAL"},
    {"ratio_low", "REAL"},
    {"ratio_high", "REAL"},
    {"ratio_pairs", "INTEGER"},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static json_t *samples_json(const double *x, size_t n)
{
    json_t *j = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(j, dlab_json_number(x[i]));
    return j;
}

static void put(json_t *j, const char *key, json_t *value) { json_object_set_new(j, key, value ? value : json_null()); }

static void put_text(json_t *j, const char *key, const char *text)
{
    put(j, key, dlab_cmd_text_json(text, strlen(text)));
}

/* A row that never ran has no effective value where the plan says "as fits", which is 0. */
static void put_size(json_t *j, const char *key, int64_t v) { put(j, key, v > 0 ? json_integer(v) : json_null()); }

static void put_int(json_t *j, const char *key, int64_t v) { put(j, key, json_integer(v)); }

void dlab_bench_model_type(const dlab_model_info *m, char *buf, size_t size)
{
    snprintf(buf, size, "%s %s", m->name, m->type);
}

static void put_setup(json_t *j, const dlab_bench_out *o, const dlab_bench_row *r)
{
    char text[160];
    const dlab_plan *p = &r->plan;
    put_text(j, "build_commit", DLAB_GIT_REVISION);
    put_text(j, "cpu_info", o->cpu);
    put_text(j, "backend", p->device);
    put_text(j, "isa", p->isa);
    put_text(j, "model_filename", r->model_path);
    dlab_bench_model_type(r->model, text, sizeof text);
    put_text(j, "model_type", text);
    put_int(j, "model_size", r->model->weight_bytes);
    put_int(j, "model_n_params", r->model->n_params);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)r->model_hash);
    put_text(j, "model_hash", text);
    put_size(j, "n_batch", p->batch_token_budget);
    put_size(j, "n_ubatch", p->batch_chunk);
    put_size(j, "n_threads", p->threads);
    put_text(j, "type_k", p->kv_k);
    put_text(j, "type_v", p->kv_v);
    put_int(j, "flash_attn", strcmp(p->attention_kernel, "fused") == 0);
    put_text(j, "compute", p->compute);
    put_text(j, "kv_store", p->kv_store);
}

static void put_result(json_t *j, const dlab_bench_row *r)
{
    char test[96], when[32] = "";
    const dlab_bench_cell *c = r->cell;
    put_int(j, "n_seqs", c->npl);
    put_int(j, "n_prompt", c->n_prompt);
    put_int(j, "n_gen", c->n_gen);
    put_int(j, "n_depth", c->depth);
    dlab_bench_test_name(c, test, sizeof test);
    put_text(j, "test", test);
    if (isfinite(r->started_unix)) {
        struct tm tm;
        time_t t = (time_t)r->started_unix;
        if (gmtime_r(&t, &tm)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
    put(j, "test_time", *when ? json_string(when) : json_null());
    put_text(j, "status", dlab_run_status_text(r->status));
    put(j, "reason", *r->reason ? dlab_cmd_text_json(r->reason, strlen(r->reason)) : json_null());
    dlab_bench_stat ns = dlab_bench_stat_of(r->time_ns, r->n), ts = dlab_bench_stat_of(r->rate, r->n);
    put(j, "avg_ns", dlab_json_number(ns.mean));
    put(j, "stddev_ns", dlab_json_number(ns.sd));
    put(j, "avg_ts", dlab_json_number(ts.mean));
    put(j, "stddev_ts", dlab_json_number(ts.sd));
    put(j, "ttft_ms", dlab_json_number(dlab_bench_stat_of(r->ttft_ms, r->n).mean));
    put(j, "tpot_ms", dlab_json_number(dlab_bench_stat_of(r->tpot_ms, r->n).mean));
    put(j, "roofline", dlab_json_number(dlab_bench_stat_of(r->roofline, r->n).mean));
    put(j, "mbu", dlab_json_number(dlab_bench_stat_of(r->mbu, r->n).mean));
    put(j, "mfu", dlab_json_number(dlab_bench_stat_of(r->mfu, r->n).mean));
    put(j, "mem_peak_bytes", isfinite(r->mem_peak) ? json_integer((json_int_t)r->mem_peak) : json_null());
    put(j, "samples_ns", samples_json(r->time_ns, r->n));
    put(j, "samples_ts", samples_json(r->rate, r->n));
    put(j, "samples_ttft_ms", samples_json(r->ttft_ms, r->n));
    put(j, "samples_tpot_ms", samples_json(r->tpot_ms, r->n));
    put(j, "plan", dlab_cmd_plan_json(&r->plan));
}

static void put_text_if(json_t *j, const char *key, const char *text)
{
    put(j, key, text && *text ? dlab_cmd_text_json(text, strlen(text)) : json_null());
}

/* All null without a peer: the columns of csv and sql are the same in every run. */
static void put_peer(json_t *j, const dlab_bench_opts *o, const dlab_bench_row *r)
{
    const dlab_bench_peer *q = &r->peer;
    const dlab_bench_stat ts = dlab_bench_stat_of(q->rate, q->n);
    const bool asked = q->asked;
    put_text_if(j, "peer", asked ? o->peer_kind->name : NULL);
    put_text_if(j, "peer_path", asked ? o->peer_path : NULL);
    put_text_if(j, "peer_build", q->build);
    put_text_if(j, "peer_model_filename", asked ? q->model : NULL);
    put_text_if(j, "peer_type_k", q->test.type_k);
    put_text_if(j, "peer_type_v", q->test.type_v);
    put(j, "peer_flash_attn", asked && q->test.flash >= 0 ? json_integer(q->test.flash) : json_null());
    put_text_if(j, "peer_status", asked ? dlab_run_status_text(q->status) : NULL);
    put_text_if(j, "peer_reason", q->reason);
    put(j, "peer_avg_ts", dlab_json_number(ts.mean));
    put(j, "peer_stddev_ts", dlab_json_number(ts.sd));
    put(j, "ratio", dlab_json_number(asked ? q->ratio.ratio : NAN));
    put(j, "ratio_low", dlab_json_number(asked ? q->ratio.low : NAN));
    put(j, "ratio_high", dlab_json_number(asked ? q->ratio.high : NAN));
    put(j, "ratio_pairs", q->ratio.n ? json_integer((json_int_t)q->ratio.n) : json_null());
    put(j, "peer_samples_ns", samples_json(q->time_ns, q->n));
    put(j, "peer_samples_ts", samples_json(q->rate, q->n));
}

/* ---- md -------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    int width; /* negative: left-aligned */
    bool shown;
    char text[DLAB_ERROR_MSG + 32];
} md_column;

enum {
    M_MODEL,
    M_SIZE,
    M_PARAMS,
    M_BACKEND,
    M_THREADS,
    M_BATCH,
    M_UBATCH,
    M_K,
    M_V,
    M_FA,
    M_NPL,
    M_TEST,
    M_RATE,
    M_TTFT,
    M_TPOT,
    M_ROOF,
    M_MBU,
    M_PEAK,
    M_PEER,
    M_PEER_FA,
    M_RATIO,
    M_INTERVAL,
    N_MD
};

/* A column of a setting is shown where the setting was chosen, as llama-bench does. */
static void md_columns(const dlab_bench_out *out, md_column c[N_MD])
{
    const dlab_bench_opts *o = out->opts;
    dlab_plan d;
    dlab_plan_default(&d);
    const dlab_plan *p = &o->plan;
    const bool peer = o->peer_kind != NULL;
    const int types = peer ? 11 : 6; /* "int8 / q8_0" */
    const md_column all[N_MD] = {
        [M_MODEL] = {"model", out->model_width > 5 ? -out->model_width : -5, true, ""},
        [M_SIZE] = {"size", 11, true, ""},
        [M_PARAMS] = {"params", 10, true, ""},
        [M_BACKEND] = {"backend", -10, true, ""},
        [M_THREADS] = {"threads", 7, true, ""},
        [M_BATCH] = {"n_batch", 7, o->n_batch.n > 0 || p->batch_token_budget != d.batch_token_budget, ""},
        [M_UBATCH] = {"n_ubatch", 8, o->n_ubatch.n > 0 || p->batch_chunk != d.batch_chunk, ""},
        [M_K] = {"type_k", types, o->ctk.n > 0 || strcmp(p->kv_k, d.kv_k) != 0, ""},
        [M_V] = {"type_v", types, o->ctv.n > 0 || strcmp(p->kv_v, d.kv_v) != 0, ""},
        [M_FA] = {"fa", 2, o->fa.n > 0 || strcmp(p->attention_kernel, d.attention_kernel) != 0, ""},
        [M_NPL] = {"npl", 4, o->npl.n > 0 || p->batch_size != d.batch_size, ""},
        [M_TEST] = {"test", 20, true, ""},
        [M_RATE] = {"t/s", 20, true, ""},
        [M_TTFT] = {"ttft ms", 10, true, ""},
        [M_TPOT] = {"tpot ms", 9, true, ""},
        [M_ROOF] = {"roofline %", 10, true, ""},
        [M_MBU] = {"mbu %", 6, true, ""},
        [M_PEAK] = {"peak memory", 11, true, ""},
        [M_PEER] = {"peer t/s", 20, peer, ""},
        [M_PEER_FA] = {"peer fa", 7, peer, ""},
        [M_RATIO] = {"ratio", 7, peer, ""},
        [M_INTERVAL] = {"95 % interval", 16, peer, ""},
    };
    memcpy(c, all, sizeof all);
}

/* printf counts bytes, a table counts characters: the bytes that only go on with one widen the field. */
static int padded_width(const char *text, int width)
{
    int extra = 0;
    for (const char *c = text; *c; c++) extra += ((unsigned char)*c & 0xc0) == 0x80;
    return width < 0 ? width - extra : width + extra;
}

static void md_line(FILE *to, const md_column *c, bool rule)
{
    for (int i = 0; i < N_MD; i++) {
        if (!c[i].shown) continue;
        if (rule) {
            int n = abs(c[i].width);
            fputs("| ", to);
            for (int k = 0; k < n - (c[i].width > 0); k++) fputc('-', to);
            fputs(c[i].width > 0 ? ": " : " ", to);
        } else {
            fprintf(to, "| %*s ", padded_width(c[i].text, c[i].width), c[i].text);
        }
    }
    fputs("|\n", to);
}

static void md_header(const dlab_bench_out *o)
{
    md_column c[N_MD];
    md_columns(o, c);
    for (int i = 0; i < N_MD; i++) snprintf(c[i].text, sizeof c[i].text, "%s", c[i].name);
    md_line(o->to, c, false);
    md_line(o->to, c, true);
}

static void md_number(char *buf, size_t size, double v, const char *format)
{
    if (isfinite(v))
        snprintf(buf, size, format, v); /* NOLINT(clang-diagnostic-format-nonliteral): one of ours */
    else
        snprintf(buf, size, "–");
}

static void md_size(md_column *c, int64_t v)
{
    if (v > 0)
        snprintf(c->text, sizeof c->text, "%lld", (long long)v);
    else
        snprintf(c->text, sizeof c->text, "–");
}

#define CELL(column, ...) snprintf(c[column].text, sizeof c[column].text, __VA_ARGS__)

static void md_rate(md_column *c, dlab_run_status status, const char *reason, dlab_bench_stat ts)
{
    if (status != DLAB_RUN_OK)
        snprintf(c->text, sizeof c->text, "%s: %s", dlab_run_status_text(status), reason);
    else if (isfinite(ts.sd))
        snprintf(c->text, sizeof c->text, "%.2f ± %.2f", ts.mean, ts.sd);
    else
        md_number(c->text, sizeof c->text, ts.mean, "%.2f");
}

/* Both names where the peer's format is not quite ours. */
static void md_cache_type(md_column *c, const char *ours, const char *theirs)
{
    const bool same = !theirs || strcmp(ours, theirs) == 0;
    snprintf(c->text, sizeof c->text, "%s%s%s", ours, same ? "" : " / ", same ? "" : theirs);
}

static void md_peer(md_column c[N_MD], const dlab_bench_peer *q)
{
    md_rate(&c[M_PEER], q->status, q->reason, dlab_bench_stat_of(q->rate, q->n));
    md_number(c[M_PEER_FA].text, sizeof c[M_PEER_FA].text, q->test.flash < 0 ? NAN : q->test.flash, "%.0f");
    md_number(c[M_RATIO].text, sizeof c[M_RATIO].text, q->ratio.ratio, "%.3f");
    if (isfinite(q->ratio.low))
        CELL(M_INTERVAL, "%.3f – %.3f", q->ratio.low, q->ratio.high);
    else
        md_number(c[M_INTERVAL].text, sizeof c[M_INTERVAL].text, NAN, "%.3f");
}

static void md_row(dlab_bench_out *o, const dlab_bench_row *r)
{
    md_column c[N_MD];
    const dlab_plan *p = &r->plan;
    md_columns(o, c);
    dlab_bench_model_type(r->model, c[M_MODEL].text, sizeof c[M_MODEL].text);
    dlab_text_bytes((double)r->model->weight_bytes, c[M_SIZE].text, sizeof c[M_SIZE].text);
    CELL(M_PARAMS, "%.2f M", (double)r->model->n_params / 1e6);
    CELL(M_BACKEND, "%s", p->device);
    md_size(&c[M_THREADS], p->threads);
    md_size(&c[M_BATCH], p->batch_token_budget);
    md_size(&c[M_UBATCH], p->batch_chunk);
    md_cache_type(&c[M_K], p->kv_k, r->peer.test.type_k);
    md_cache_type(&c[M_V], p->kv_v, r->peer.test.type_v);
    CELL(M_FA, "%d", strcmp(p->attention_kernel, "fused") == 0);
    CELL(M_NPL, "%lld", (long long)r->cell->npl);
    dlab_bench_test_name(r->cell, c[M_TEST].text, sizeof c[M_TEST].text);
    md_rate(&c[M_RATE], r->status, r->reason, dlab_bench_stat_of(r->rate, r->n));
    md_number(c[M_TTFT].text, sizeof c[M_TTFT].text, dlab_bench_stat_of(r->ttft_ms, r->n).mean, "%.2f");
    md_number(c[M_TPOT].text, sizeof c[M_TPOT].text, dlab_bench_stat_of(r->tpot_ms, r->n).mean, "%.3f");
    md_number(c[M_ROOF].text, sizeof c[M_ROOF].text, 100 * dlab_bench_stat_of(r->roofline, r->n).mean, "%.1f");
    md_number(c[M_MBU].text, sizeof c[M_MBU].text, 100 * dlab_bench_stat_of(r->mbu, r->n).mean, "%.1f");
    if (isfinite(r->mem_peak))
        dlab_text_bytes(r->mem_peak, c[M_PEAK].text, sizeof c[M_PEAK].text);
    else
        md_number(c[M_PEAK].text, sizeof c[M_PEAK].text, NAN, "%.0f");
    if (r->peer.asked) md_peer(c, &r->peer);
    o->n_compared += isfinite(r->peer.ratio.ratio);
    if (*r->peer.build) snprintf(o->peer_build, sizeof o->peer_build, "%s", r->peer.build);
    md_line(o->to, c, false);
}

#undef CELL

/* Which programs on which files. */
static void md_peer_note(const dlab_bench_out *o)
{
    const dlab_bench_opts *b = o->opts;
    if (!b->peer_kind) return;
    fprintf(o->to, "\nours: build %s", DLAB_GIT_REVISION);
    for (size_t i = 0; i < b->model.n; i++) fprintf(o->to, ", %s", o->model_paths[i]);
    fprintf(o->to, "\npeer: %s %s%s%s, on %s\n", b->peer_kind->name, b->peer_path, *o->peer_build ? ", build " : "",
            o->peer_build, b->peer_model ? b->peer_model : "the same file");
    if (o->n_compared > 0)
        fprintf(o->to, "ratio: ours over the peer, geometric mean of the pairs run in turns; above 1 ours is faster\n");
}

/* ---- csv, sql -------------------------------------------------------------------------------------------------------- */

/* Text in quotes, those inside doubled: what both csv and sql want. */
static void quoted(FILE *to, const char *text, char quote)
{
    fputc(quote, to);
    for (const char *c = text; *c; c++) {
        if (*c == quote) fputc(quote, to);
        fputc(*c, to);
    }
    fputc(quote, to);
}

static void scalar(FILE *to, const json_t *v, char quote, const char *missing)
{
    if (json_is_string(v))
        quoted(to, json_string_value(v), quote);
    else if (json_is_integer(v))
        fprintf(to, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        fprintf(to, "%.17g", json_real_value(v));
    else
        fputs(missing, to);
}

static void sql_header(FILE *to)
{
    fputs("CREATE TABLE IF NOT EXISTS dlab_bench (\n", to);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        fprintf(to, "  %s %s%s\n", columns[i].name, columns[i].sql, i + 1 < N_COLUMNS ? "," : "");
    }
    fputs(");\n", to);
}

static void csv_header(FILE *to)
{
    for (size_t i = 0; i < N_COLUMNS; i++) fprintf(to, "%s%s", i ? "," : "", columns[i].name);
    fputc('\n', to);
}

static void csv_row(FILE *to, const json_t *row)
{
    for (size_t i = 0; i < N_COLUMNS; i++) {
        if (i) fputc(',', to);
        scalar(to, json_object_get(row, columns[i].name), '"', "");
    }
    fputc('\n', to);
}

static void sql_row(FILE *to, const json_t *row)
{
    fputs("INSERT INTO dlab_bench (", to);
    for (size_t i = 0; i < N_COLUMNS; i++) fprintf(to, "%s%s", i ? ", " : "", columns[i].name);
    fputs(") VALUES (", to);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        if (i) fputs(", ", to);
        scalar(to, json_object_get(row, columns[i].name), '\'', "NULL");
    }
    fputs(");\n", to);
}

/* ---- the printer ------------------------------------------------------------------------------------------------------ */

static bool is(const dlab_bench_out *o, const char *format) { return strcmp(o->format, format) == 0; }

void dlab_bench_out_begin(dlab_bench_out *o)
{
    if (is(o, "md")) md_header(o);
    if (is(o, "csv")) csv_header(o->to);
    if (is(o, "sql")) sql_header(o->to);
    if (is(o, "json")) fputs("[", o->to);
    fflush(o->to);
}

dlab_status dlab_bench_out_row(dlab_bench_out *o, const dlab_bench_row *r, dlab_error *err)
{
    if (is(o, "md")) {
        md_row(o, r);
        fflush(o->to);
        return DLAB_OK;
    }
    json_t *row = json_object();
    if (row) {
        put_setup(row, o, r);
        put_result(row, r);
        put_peer(row, o->opts, r);
    }
    char *text = row ? dlab_json_dump(row, is(o, "json") ? 2 : 0) : NULL;
    if (text && is(o, "json")) fprintf(o->to, "%s\n%s", o->n_rows ? "," : "", text);
    if (text && is(o, "jsonl")) fprintf(o->to, "%s\n", text);
    if (text && is(o, "csv")) csv_row(o->to, row);
    if (text && is(o, "sql")) sql_row(o->to, row);
    o->n_rows++;
    fflush(o->to);
    json_decref(row);
    bool made = text != NULL;
    free(text);
    return made ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "no memory to print a row");
}

void dlab_bench_out_end(dlab_bench_out *o)
{
    if (is(o, "md")) md_peer_note(o);
    if (is(o, "json")) fputs(o->n_rows ? "\n]\n" : "]\n", o->to);
    fflush(o->to);
}

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "results/export.h"
#include "tests/results/synthetic.h"

/* HDF5 leaks when it gives up on a damaged file; that is not ours. Only LeakSanitizer calls this. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libhdf5"; }

static char folder[PATH_MAX];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/dlab record %ld XXXXXX", (long)getpid());
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[PATH_MAX + 32];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
    static char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const batch_shape small = {.seqs = 2, .prompt = 5, .made = 4, .ttft_ns = 5e8, .gap_ns = 1e7, .retains = true};

/* Something in every field, NaN and text with quotes included. */
static void fill_record(dlab_record *r)
{
    dlab_record_init(r);
    ck_assert_int_eq(dlab_settings_set(&r->meta, "zeta", "last letter, first key", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->meta, "model", "name with \"quotes\", commas / slashes", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->meta, "empty", "", NULL), DLAB_OK);
    r->spec_text = strdup("name: x\n# ünïcode\n");
    r->spec_bytes = strlen(r->spec_text);
    r->spec_name = strdup("experiments/x y.yaml");
    add_point(r, (const char *[]){"kv.store", "none", "batch.size", "2", NULL});
    add_run(r, &small);
    dlab_run *run = add_run(r, &small);
    snprintf(run->reason, sizeof run->reason, "ended at its limit");
    run->status = DLAB_RUN_TRUNCATED;
    run->requests[1].t_done = NAN;
    run->requests[1].finish = 0;
    run->started_unix = 1.7e9 + 0.125;
    run->mem_peak = (int64_t)1 << 40;
    run->pool_peak[DLAB_POOL_KV] = 77;
    run->rss_peak = -1;
    run->kv_pool = 4096;
    run->kv_growths = 3;
    run->kv_growth_ns = 12345;
    run->kv_evictions = 5;
    run->kv_copies = 6;
    run->kv_hit_tokens = 32;
    run->kv_asked_tokens = (int64_t)1 << 33;
    run->kv_token_bytes = 23040.5;
    run->memory_limit = (int64_t)1 << 34;
    run->kv_cached_start = 4711;
    run->kv_hit_ideal = 0.625;
    run->requests[1].cached_tokens = 3;
    run->requests[1].asked_tokens = (int64_t)1 << 36;
    run->requests[1].failure = DLAB_FAILURE_HTTP;
    run->requests[1].http_status = 503;
    run->requests[1].priority = -7;
    run->requests[1].turn = 2;
    run->requests[1].conversation = (int64_t)1 << 37;
    run->steps[2] = (dlab_ev_step){.t_begin = 1,
                                   .t_end = 2,
                                   .rows = 3,
                                   .prefill_rows = 4,
                                   .decode_rows = 5,
                                   .pad_rows = 6,
                                   .seqs = 7,
                                   .slots = 8,
                                   .launches = 9,
                                   .budget = 10,
                                   .bytes = 11,
                                   .kv_bytes = 12,
                                   .flops = 13,
                                   .kv_dense_bytes = 14,
                                   .inter_bytes = 15,
                                   .kv_reserved = 16,
                                   .kv_used = 17,
                                   .kv_cached = 18,
                                   .kv_free = 19,
                                   .kv_unusable = 20,
                                   .kv_shared = 21,
                                   .preempted = 22,
                                   .growths = 23,
                                   .nonfinite = 24,
                                   .waiting = 25,
                                   .pad_skipped = 26,
                                   .swapped_out = 27,
                                   .swapped_in = 28,
                                   .swap_bytes = (int64_t)1 << 35};
    run->quality_bytes = 99;
    run->peaks_measured = 1.75e9;
    run->peaks_quick = 1;
    run->quality_first = 256;
    snprintf(run->quality_protocol, sizeof run->quality_protocol, "chunks of 512, second half scored");
    snprintf(run->corpus_hash, sizeof run->corpus_hash, "00ff00ff00ff00ff");
    ck_assert_int_eq(dlab_settings_set(&run->effective, "threads", "2", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&run->effective, "measure.ppl_text", "", NULL), DLAB_OK);
    dlab_ev_memory m = {1e6, 1, 2, 3, 4, -1};
    dlab_ev_quality q = {1, 300, 42, 43, 2.5};
    ck_assert_int_eq(dlab_run_add_memory(run, &m, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_run_add_quality(run, &q, NULL), DLAB_OK);
    for (int i = 0; i < 3; i++) {
        const dlab_peak_row p = {32768 << i, 1e11 / (i + 3), 3.25e11, 7e11, 9e11};
        ck_assert_int_eq(dlab_run_add_peak(run, &p, NULL), DLAB_OK);
    }
    r->points[0].status = DLAB_RUN_TRUNCATED;
    dlab_point_result *p = add_point(r, (const char *[]){"kv.store", "contiguous", "batch.size", "2", NULL});
    p->status = DLAB_RUN_OOM;
    p->n_planned = 2;
    snprintf(p->reason, sizeof p->reason, "asked for 3 GiB, 1 GiB was left");
    snprintf(p->warnings, sizeof p->warnings, "one; two");
}

static void same_settings(const dlab_settings *a, const dlab_settings *b)
{
    ck_assert_uint_eq(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        ck_assert_str_eq(a->items[i].key, b->items[i].key);
        ck_assert_str_eq(a->items[i].value, b->items[i].value);
    }
}

static void same_double(double a, double b) { ck_assert(a == b || (isnan(a) && isnan(b))); }

/* Without the padding before the last. */
static void same_step(const dlab_ev_step *a, const dlab_ev_step *b)
{
    ck_assert_mem_eq(a, b, offsetof(dlab_ev_step, swapped_in) + sizeof a->swapped_in);
    ck_assert_int_eq(a->swap_bytes, b->swap_bytes);
}

static void same_tables(const dlab_run *a, const dlab_run *b)
{
    ck_assert_uint_eq(a->n_requests, b->n_requests);
    ck_assert_uint_eq(a->n_tokens, b->n_tokens);
    ck_assert_uint_eq(a->n_steps, b->n_steps);
    ck_assert_uint_eq(a->n_memory, b->n_memory);
    ck_assert_uint_eq(a->n_quality, b->n_quality);
    same_double(a->peaks_measured, b->peaks_measured);
    ck_assert_int_eq(a->peaks_quick, b->peaks_quick);
    ck_assert_uint_eq(a->n_peaks, b->n_peaks);
    for (size_t i = 0; i < a->n_peaks; i++) ck_assert_mem_eq(&a->peaks[i], &b->peaks[i], sizeof a->peaks[i]);
    for (size_t i = 0; i < a->n_requests; i++) {
        ck_assert_int_eq(a->requests[i].id, b->requests[i].id);
        ck_assert_int_eq(a->requests[i].finish, b->requests[i].finish);
        ck_assert_int_eq(a->requests[i].cached_tokens, b->requests[i].cached_tokens);
        ck_assert_int_eq(a->requests[i].asked_tokens, b->requests[i].asked_tokens);
        ck_assert_int_eq(a->requests[i].failure, b->requests[i].failure);
        ck_assert_int_eq(a->requests[i].http_status, b->requests[i].http_status);
        ck_assert_int_eq(a->requests[i].priority, b->requests[i].priority);
        ck_assert_int_eq(a->requests[i].turn, b->requests[i].turn);
        ck_assert_int_eq(a->requests[i].conversation, b->requests[i].conversation);
        same_double(a->requests[i].t_first, b->requests[i].t_first);
        same_double(a->requests[i].t_done, b->requests[i].t_done);
    }
    for (size_t i = 0; i < a->n_tokens; i++) {
        ck_assert_int_eq(a->tokens[i].request, b->tokens[i].request);
        ck_assert_int_eq(a->tokens[i].index, b->tokens[i].index);
        ck_assert_int_eq(a->tokens[i].token, b->tokens[i].token);
        same_double(a->tokens[i].t, b->tokens[i].t);
    }
    for (size_t i = 0; i < a->n_steps; i++) same_step(&a->steps[i], &b->steps[i]);
    for (size_t i = 0; i < a->n_memory; i++) ck_assert_mem_eq(&a->memory[i], &b->memory[i], sizeof a->memory[i]);
    for (size_t i = 0; i < a->n_quality; i++) ck_assert_mem_eq(&a->quality[i], &b->quality[i], sizeof a->quality[i]);
}

static void same_run(const dlab_run *a, const dlab_run *b)
{
    ck_assert_int_eq(a->status, b->status);
    ck_assert_str_eq(a->reason, b->reason);
    ck_assert_str_eq(a->key, b->key);
    ck_assert_int_eq(a->point, b->point);
    ck_assert_int_eq(a->repeat, b->repeat);
    same_double(a->started_unix, b->started_unix);
    same_double(a->t_end, b->t_end);
    same_settings(&a->effective, &b->effective);
    ck_assert_mem_eq(a->pool_peak, b->pool_peak, sizeof a->pool_peak);
    ck_assert_int_eq(a->mem_peak, b->mem_peak);
    ck_assert_int_eq(a->rss_peak, b->rss_peak);
    ck_assert_int_eq(a->kv_pool, b->kv_pool);
    ck_assert_int_eq(a->kv_growths, b->kv_growths);
    ck_assert_int_eq(a->kv_growth_ns, b->kv_growth_ns);
    ck_assert_int_eq(a->kv_evictions, b->kv_evictions);
    ck_assert_int_eq(a->kv_copies, b->kv_copies);
    ck_assert_int_eq(a->kv_hit_tokens, b->kv_hit_tokens);
    ck_assert_int_eq(a->kv_asked_tokens, b->kv_asked_tokens);
    same_double(a->kv_token_bytes, b->kv_token_bytes);
    ck_assert_int_eq(a->memory_limit, b->memory_limit);
    ck_assert_int_eq(a->kv_cached_start, b->kv_cached_start);
    same_double(a->kv_hit_ideal, b->kv_hit_ideal);
    ck_assert_int_eq(a->weight_bytes, b->weight_bytes);
    ck_assert_int_eq(a->quality_bytes, b->quality_bytes);
    ck_assert_int_eq(a->quality_first, b->quality_first);
    ck_assert_str_eq(a->quality_protocol, b->quality_protocol);
    ck_assert_str_eq(a->corpus_hash, b->corpus_hash);
    same_tables(a, b);
}

static void same_record(const dlab_record *a, const dlab_record *b)
{
    same_settings(&a->meta, &b->meta);
    ck_assert_uint_eq(a->spec_bytes, b->spec_bytes);
    ck_assert_mem_eq(a->spec_text, b->spec_text, a->spec_bytes);
    ck_assert_str_eq(a->spec_name, b->spec_name);
    ck_assert_uint_eq(a->n_points, b->n_points);
    for (size_t i = 0; i < a->n_points; i++) {
        const dlab_point_result *p = &a->points[i], *q = &b->points[i];
        ck_assert_str_eq(p->label, q->label);
        ck_assert_int_eq(p->status, q->status);
        ck_assert_str_eq(p->reason, q->reason);
        ck_assert_str_eq(p->warnings, q->warnings);
        same_settings(&p->axes, &q->axes);
        same_settings(&p->effective, &q->effective);
        ck_assert_uint_eq(p->n_planned, q->n_planned);
        ck_assert_uint_eq(p->n_runs, q->n_runs);
        for (size_t k = 0; k < p->n_runs; k++) same_run(p->runs[k], q->runs[k]);
    }
}

static size_t count_files(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

START_TEST(part_gives_back_the_run)
{
    dlab_record r;
    dlab_run back;
    dlab_error err = {0};
    char part[PATH_MAX], out[PATH_MAX + 64];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("my results.h5"));
    const dlab_run *run = r.points[0].runs[1];
    ck_assert_msg(dlab_record_write_part(out, &r.meta, run, &err) == DLAB_OK, "%s", err.msg);
    dlab_record_part_path(out, run->key, run->repeat, part, sizeof part);
    ck_assert_ptr_nonnull(strstr(part, "my results.h5.parts/0000000000000101.r01.h5"));
    ck_assert_msg(dlab_record_read_part(part, &back, &err) == DLAB_OK, "%s", err.msg);
    same_run(run, &back);
    dlab_run_free(&back);
    ck_assert_int_eq(dlab_record_read_part(in_folder("nothing.h5"), &back, &err), DLAB_EIO);
    dlab_record_free(&r);
}
END_TEST

START_TEST(master_links_to_parts_and_moves_with_them)
{
    dlab_record r, back;
    dlab_error err = {0};
    char out[PATH_MAX + 64], moved[PATH_MAX + 64], command[6 * PATH_MAX];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("my results.h5"));
    for (size_t k = 0; k < 2; k++)
        ck_assert_msg(dlab_record_write_part(out, &r.meta, r.points[0].runs[k], &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_record_write_master(out, &r, &err) == DLAB_OK, "%s", err.msg);
    snprintf(moved, sizeof moved, "%s", in_folder("else where"));
    snprintf(command, sizeof command, "mkdir '%s' && mv '%s' '%s.parts' '%s'", moved, out, out, moved);
    ck_assert_int_eq(system(command), 0);
    snprintf(out, sizeof out, "%s", in_folder("else where/my results.h5"));
    ck_assert_msg(dlab_record_read(out, &back, &err) == DLAB_OK, "%s", err.msg);
    ck_assert(!back.complete);
    same_record(&r, &back);
    dlab_record_free(&back);
    dlab_record_free(&r);
}
END_TEST

START_TEST(finish_leaves_one_file)
{
    dlab_record r, back;
    dlab_error err = {0};
    char out[PATH_MAX + 64], left[PATH_MAX + 64];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("my results.h5"));
    for (size_t k = 0; k < 2; k++)
        ck_assert_int_eq(dlab_record_write_part(out, &r.meta, r.points[0].runs[k], &err), DLAB_OK);
    ck_assert_int_eq(dlab_record_write_master(out, &r, &err), DLAB_OK);
    dlab_record_part_path(out, "00000000000000ff", 3, left, sizeof left);
    size_t length = strlen(left);
    snprintf(left + length, sizeof left - length, ".tmp.12345"); /* as a killed process leaves it */
    ck_assert_int_eq(creat(left, 0644) < 0, 0);
    ck_assert_msg(dlab_record_finish(out, &r, &err) == DLAB_OK, "%s", err.msg);
    ck_assert(r.complete);
    ck_assert_uint_eq(count_files(folder), 1);
    ck_assert_msg(dlab_record_read(out, &back, &err) == DLAB_OK, "%s", err.msg);
    ck_assert(back.complete);
    same_record(&r, &back);
    dlab_record_free(&back);
    dlab_record_free(&r);
}
END_TEST

/* The runner keeps figures only; the tables are read back from the parts. */
START_TEST(dropped_events_come_back_from_the_parts)
{
    dlab_record r, whole, back;
    dlab_error err = {0};
    char out[PATH_MAX + 64], part[PATH_MAX];
    fill_record(&r);
    fill_record(&whole);
    snprintf(out, sizeof out, "%s", in_folder("my results.h5"));
    for (size_t k = 0; k < 2; k++) {
        dlab_run *run = r.points[0].runs[k];
        ck_assert_int_eq(dlab_record_write_part(out, &r.meta, run, &err), DLAB_OK);
        dlab_run_drop_events(run);
        ck_assert_uint_eq(run->n_tokens, 0);
        ck_assert_int_eq(dlab_record_write_part(out, &r.meta, run, &err), DLAB_EINTERNAL); /* would lose them */
    }
    ck_assert_msg(dlab_record_write_master(out, &r, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_ptr_null(r.points[0].runs[0]->tokens);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_OK);
    same_record(&whole, &back);
    dlab_record_free(&back);
    dlab_record_part_path(out, r.points[0].runs[1]->key, 1, part, sizeof part);
    char *text, *again, away[PATH_MAX + 8];
    snprintf(away, sizeof away, "%s.away", part);
    ck_assert_int_eq(rename(part, away), 0);
    ck_assert_int_eq(dlab_record_finish(out, &r, &err), DLAB_EIO); /* no record without its tables */
    ck_assert_ptr_nonnull(strstr(err.msg, ".r01.h5"));
    ck_assert_int_eq(dlab_record_write_master(out, &r, &err), DLAB_EIO);
    ck_assert_int_eq(rename(away, part), 0);
    ck_assert_msg(dlab_record_finish(out, &r, &err) == DLAB_OK, "%s", err.msg);
    same_record(&whole, &r); /* windows of tokens can be computed */
    ck_assert(!r.points[0].runs[0]->dropped);
    ck_assert_uint_eq(count_files(folder), 1);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_OK);
    same_record(&whole, &back);
    ck_assert_int_eq(dlab_export(&r, "csv", false, &text, &err), DLAB_OK);
    ck_assert_int_eq(dlab_export(&back, "csv", false, &again, &err), DLAB_OK);
    ck_assert_str_eq(text, again);
    free(text);
    free(again);
    dlab_record_free(&back);
    dlab_record_free(&whole);
    dlab_record_free(&r);
}
END_TEST

/* Figures of a run are computed when it is first written, not at each later one. */
START_TEST(masters_compute_a_run_once)
{
    dlab_record r;
    dlab_error err = {0};
    fill_record(&r);
    const char *out = in_folder("r.h5");
    ck_assert_int_eq(dlab_record_write_master(out, &r, &err), DLAB_OK);
    const struct dlab_metric_value *kept = r.points[0].runs[0]->metrics;
    ck_assert_ptr_nonnull(kept);
    ck_assert_int_eq(dlab_record_write_master(out, &r, &err), DLAB_OK);
    ck_assert_ptr_eq(r.points[0].runs[0]->metrics, kept);
    dlab_record_free(&r);
}
END_TEST

START_TEST(reading_needs_no_write_access)
{
    dlab_record r, back;
    dlab_error err = {0};
    fill_record(&r);
    char out[PATH_MAX + 64];
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    ck_assert_int_eq(dlab_record_finish(out, &r, &err), DLAB_OK);
    ck_assert_int_eq(chmod(out, 0444), 0);
    ck_assert_int_eq(chmod(folder, 0555), 0);
    ck_assert_msg(dlab_record_read(out, &back, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    same_record(&r, &back);
    dlab_record_free(&back);
    dlab_record_free(&r);
}
END_TEST

START_TEST(an_empty_record_can_be_read)
{
    dlab_record r, back;
    dlab_error err = {0};
    dlab_record_init(&r);
    const char *out = in_folder("empty.h5");
    ck_assert_msg(dlab_record_write_master(out, &r, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_record_read(out, &back, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_uint_eq(back.n_points, 0);
    dlab_record_free(&back);
}
END_TEST

static char *slurp(const char *path, size_t *n)
{
    char *bytes;
    ck_assert_int_eq(dlab_file_read(path, 1 << 26, &bytes, n, NULL), DLAB_OK);
    return bytes;
}

START_TEST(damage_is_one_line)
{
    dlab_record r, back;
    dlab_error err = {0};
    char out[PATH_MAX + 64];
    size_t n;
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    ck_assert_int_eq(dlab_record_finish(out, &r, &err), DLAB_OK);
    char *whole = slurp(out, &n);
    ck_assert_int_ne(whole[n - 1], 0); /* nothing is written behind the last block */
    /* cut short everywhere: never read, never a crash */
    for (size_t cut = 0; cut < n; cut += 1 + n / 97) {
        ck_assert_int_eq(dlab_file_write_atomic(out, whole, cut, NULL), DLAB_OK);
        err.msg[0] = '\0';
        ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_EFORMAT);
        ck_assert_ptr_nonnull(strstr(err.msg, "r.h5"));
        ck_assert_ptr_null(strchr(err.msg, '\n'));
        ck_assert_uint_eq(back.n_points, 0);
    }
    ck_assert_int_eq(dlab_file_write_atomic(out, whole, n - 1, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "is cut short"));
    /* bytes changed: read or refused, nothing else */
    dlab_rng rng;
    dlab_rng_seed(&rng, 1);
    ck_assert_uint_gt(n, 0);
    char *bent = malloc(n);
    for (int i = 0; i < 200; i++) {
        memcpy(bent, whole, n);
        for (int k = 0; k < 1 + i % 3; k++) bent[dlab_rng_below(&rng, n)] ^= (char)(1 + dlab_rng_below(&rng, 255));
        ck_assert_int_eq(dlab_file_write_atomic(out, bent, n, NULL), DLAB_OK);
        dlab_status st = dlab_record_read(out, &back, &err);
        ck_assert(st == DLAB_OK || st == DLAB_EFORMAT);
        if (st == DLAB_OK) dlab_record_free(&back);
    }
    ck_assert_int_eq(dlab_file_write_atomic(out, "not a record, only text", 23, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_EFORMAT);
    free(bent);
    free(whole);
    dlab_record_free(&r);
}
END_TEST

START_TEST(a_damaged_part_is_reported)
{
    dlab_record r, back;
    dlab_run run;
    dlab_error err = {0};
    char out[PATH_MAX + 64], part[PATH_MAX];
    size_t n;
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    for (size_t k = 0; k < 2; k++)
        ck_assert_int_eq(dlab_record_write_part(out, &r.meta, r.points[0].runs[k], &err), DLAB_OK);
    ck_assert_int_eq(dlab_record_write_master(out, &r, &err), DLAB_OK);
    dlab_record_part_path(out, r.points[0].runs[1]->key, 1, part, sizeof part);
    char *whole = slurp(part, &n);
    ck_assert_int_eq(dlab_file_write_atomic(part, whole, n / 2, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_record_read_part(part, &run, &err), DLAB_EFORMAT);
    ck_assert_uint_eq(run.n_tokens, 0);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, ".r01.h5"));
    ck_assert_int_eq(unlink(part), 0);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_EIO);
    free(whole);
    dlab_record_free(&r);
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_is_named)
{
    dlab_record r;
    dlab_error err = {0};
    fill_record(&r);
    ck_assert_int_eq(dlab_record_write_master("/proc/nowhere/r.h5", &r, &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "/proc/nowhere/r.h5"));
    ck_assert_ptr_nonnull(strstr(err.msg, strerror(ENOENT)));
    ck_assert_int_eq(dlab_record_write_part("/proc/nowhere/r.h5", &r.meta, r.points[0].runs[0], &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "/proc/nowhere"));
    dlab_record_free(&r);
}
END_TEST

/* A limit on the size of files refuses in the middle of a write, as a full disk does. */
START_TEST(nothing_half_written_stays)
{
    dlab_record r, back;
    dlab_error err = {0};
    char out[PATH_MAX + 64];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    ck_assert_int_eq(dlab_record_finish(out, &r, &err), DLAB_OK);
    struct rlimit before, small_files = {20000, 0};
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small_files.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small_files), 0);
    dlab_status full = dlab_record_write_master(out, &r, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(full, DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "r.h5: cannot write: "));
    ck_assert_ptr_nonnull(strstr(err.msg, strerror(EFBIG)));
    ck_assert_uint_eq(count_files(folder), 1);
    ck_assert_int_eq(dlab_record_read(out, &back, &err), DLAB_OK); /* the one before is whole */
    same_record(&r, &back);
    dlab_record_free(&back);
    ck_assert_int_eq(mkdir(in_folder("is a folder.h5"), 0755), 0);
    ck_assert_int_eq(dlab_record_write_master(in_folder("is a folder.h5"), &r, &err), DLAB_EIO);
    ck_assert_uint_eq(count_files(folder), 2);
    dlab_record_free(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("record");
    TCase *c = tcase_create("record");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, part_gives_back_the_run);
    tcase_add_test(c, master_links_to_parts_and_moves_with_them);
    tcase_add_test(c, finish_leaves_one_file);
    tcase_add_test(c, dropped_events_come_back_from_the_parts);
    tcase_add_test(c, masters_compute_a_run_once);
    tcase_add_test(c, reading_needs_no_write_access);
    tcase_add_test(c, an_empty_record_can_be_read);
    tcase_add_test(c, damage_is_one_line);
    tcase_add_test(c, a_damaged_part_is_reported);
    tcase_add_test(c, a_folder_that_cannot_be_written_is_named);
    tcase_add_test(c, nothing_half_written_stays);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

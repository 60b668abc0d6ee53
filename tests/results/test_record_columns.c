#include <limits.h>
#include <unistd.h>

#include "results/record_h5.h"
#include "tests/results/synthetic.h"

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

static void fill_record(dlab_record *r)
{
    dlab_record_init(r);
    add_point(r, (const char *[]){"kv.store", "none", NULL});
    add_run(r, &small);
}

typedef struct {
    double t_begin, t_end;
    int32_t rows, prefill_rows, decode_rows, pad_rows, seqs, slots, launches;
    int64_t kv_reserved, kv_used;
} old_step;

#define OLD(field, type, size)                                                                                         \
    {                                                                                                                  \
#field, type, DLAB_H5_NEEDED, offsetof(old_step, field), size, 0, "1", "as it was"                             \
    }
static const dlab_h5_column old_columns[] = {
    OLD(t_begin, DLAB_H5_F64, 8),      OLD(t_end, DLAB_H5_F64, 8),       OLD(rows, DLAB_H5_I32, 4),
    OLD(prefill_rows, DLAB_H5_I32, 4), OLD(decode_rows, DLAB_H5_I32, 4), OLD(pad_rows, DLAB_H5_I32, 4),
    OLD(seqs, DLAB_H5_I32, 4),         OLD(slots, DLAB_H5_I32, 4),       OLD(launches, DLAB_H5_I32, 4),
    OLD(kv_reserved, DLAB_H5_I64, 8),  OLD(kv_used, DLAB_H5_I64, 8),
};
#undef OLD
#define N_OLD (sizeof old_columns / sizeof *old_columns)

typedef struct {
    int64_t id, prompt_tokens, depth_tokens, new_tokens;
    double t_sched, t_submit, t_admit, t_first, t_done;
    int32_t finish;
} old_request;

#define OLD(field, type, size)                                                                                         \
    {                                                                                                                  \
#field, type, DLAB_H5_NEEDED, offsetof(old_request, field), size, 0, "1", "as it was"                          \
    }
static const dlab_h5_column old_request_columns[] = {
    OLD(id, DLAB_H5_I64, 8),         OLD(prompt_tokens, DLAB_H5_I64, 8), OLD(depth_tokens, DLAB_H5_I64, 8),
    OLD(new_tokens, DLAB_H5_I64, 8), OLD(t_sched, DLAB_H5_F64, 8),       OLD(t_submit, DLAB_H5_F64, 8),
    OLD(t_admit, DLAB_H5_F64, 8),    OLD(t_first, DLAB_H5_F64, 8),       OLD(t_done, DLAB_H5_F64, 8),
    OLD(finish, DLAB_H5_I32, 4),
};
#undef OLD

static const char *const new_attributes[] = {"kv_growths",    "kv_growth_ns",    "kv_evictions",    "kv_copies",
                                             "kv_hit_tokens", "kv_asked_tokens", "kv_token_bytes",  "memory_limit",
                                             "peaks_quick",   "peaks_measured",  "kv_cached_start", "kv_hit_ideal"};

static void set_schema(const dlab_h5_out *o, int64_t version)
{
    hid_t meta = H5Gopen2(o->file, "/meta", H5P_DEFAULT);
    ck_assert_int_ge(H5Adelete(meta, "schema_version"), 0);
    ck_assert_int_eq(dlab_h5_put_i64(o, meta, "schema_version", version, NULL), DLAB_OK);
    H5Gclose(meta);
}

/* Makes a part as version 1 wrote it, with the first n of its columns of steps, and without a count that it had. */
static void make_old(const char *part, size_t n_columns)
{
    const old_step rows[2] = {{.t_begin = 1, .t_end = 2, .rows = 3, .kv_used = 7},
                              {.t_begin = 2, .t_end = 4, .rows = 5}};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    ck_assert_int_ge(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), 0);
    dlab_h5_out o = {.file = H5Fopen(part, H5F_ACC_RDWR, access), .path = part};
    ck_assert_int_ge(o.file, 0);
    const old_request request = {.id = 0, .prompt_tokens = 5, .new_tokens = 4, .t_done = 9, .finish = 1};
    hid_t run = H5Gopen2(o.file, "/runs/0000", H5P_DEFAULT);
    ck_assert_int_ge(H5Ldelete(run, "steps", H5P_DEFAULT), 0);
    ck_assert_int_ge(H5Ldelete(run, "requests", H5P_DEFAULT), 0);
    if (H5Lexists(run, "peaks", H5P_DEFAULT) > 0) ck_assert_int_ge(H5Ldelete(run, "peaks", H5P_DEFAULT), 0);
    for (size_t i = 0; i < sizeof new_attributes / sizeof *new_attributes; i++)
        if (H5Aexists(run, new_attributes[i]) > 0) ck_assert_int_ge(H5Adelete(run, new_attributes[i]), 0);
    ck_assert_int_eq(dlab_h5_put_table(&o, run, "steps", old_columns, n_columns, rows, sizeof *rows, 2, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_h5_put_table(&o, run, "requests", old_request_columns,
                                       sizeof old_request_columns / sizeof *old_request_columns, &request,
                                       sizeof request, 1, NULL),
                     DLAB_OK);
    set_schema(&o, 1);
    H5Gclose(run);
    H5Fclose(o.file);
    H5Pclose(access);
}

START_TEST(columns_that_came_later_may_be_missing)
{
    dlab_record r;
    dlab_run back;
    dlab_error err = {0};
    char part[PATH_MAX], out[PATH_MAX + 64];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    dlab_run *run = r.points[0].runs[0];
    run->kv_growths = run->kv_evictions = run->kv_hit_tokens = run->memory_limit = 3;
    run->kv_token_bytes = 3;
    run->kv_cached_start = 3;
    run->kv_hit_ideal = 0.5;
    ck_assert_int_eq(dlab_run_add_peak(run, &(dlab_peak_row){1e6, 2e9, 3e9, 4e9, 5e9}, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_record_write_part(out, &r.meta, run, &err), DLAB_OK);
    dlab_record_part_path(out, run->key, run->repeat, part, sizeof part);
    make_old(part, N_OLD);
    ck_assert_msg(dlab_record_read_part(part, &back, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_uint_eq(back.n_steps, 2);
    ck_assert_double_eq(back.steps[1].t_end, 4);
    ck_assert_int_eq(back.steps[1].rows, 5);
    ck_assert_int_eq(back.steps[0].kv_used, 7);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(back.steps[i].budget, 0);
        ck_assert(isnan(back.steps[i].bytes) && isnan(back.steps[i].kv_bytes) && isnan(back.steps[i].flops));
        ck_assert(isnan(back.steps[i].kv_dense_bytes) && isnan(back.steps[i].inter_bytes));
        ck_assert(isnan(back.steps[i].int8_flops) && isnan(back.steps[i].bf16_flops));
        ck_assert_int_eq(back.steps[i].kv_cached, -1);
        ck_assert_int_eq(back.steps[i].kv_free, -1);
        ck_assert_int_eq(back.steps[i].kv_unusable, -1);
        ck_assert_int_eq(back.steps[i].kv_shared, -1);
        ck_assert_int_eq(back.steps[i].preempted, -1);
        ck_assert_int_eq(back.steps[i].growths, -1);
        ck_assert_int_eq(back.steps[i].nonfinite, -1);
        ck_assert_int_eq(back.steps[i].waiting, -1);
        ck_assert_int_eq(back.steps[i].pad_skipped, -1);
        ck_assert_int_eq(back.steps[i].swapped_out, -1);
        ck_assert_int_eq(back.steps[i].swapped_in, -1);
        ck_assert_int_eq(back.steps[i].swap_bytes, -1);
    }
    ck_assert_uint_eq(back.n_peaks, 0);
    ck_assert(isnan(back.peaks_measured) && back.peaks_quick == -1);
    ck_assert_uint_eq(back.n_requests, 1);
    ck_assert_int_eq(back.requests[0].prompt_tokens, 5);
    ck_assert_int_eq(back.requests[0].finish, 1);
    ck_assert_int_eq(back.requests[0].cached_tokens, -1);
    ck_assert_int_eq(back.requests[0].asked_tokens, -1);
    ck_assert_int_eq(back.requests[0].conversation, -1);
    /* in those days none of them could be otherwise */
    ck_assert_int_eq(back.requests[0].failure, DLAB_FAILURE_NONE);
    ck_assert_int_eq(back.requests[0].http_status, 0);
    ck_assert_int_eq(back.requests[0].priority, 0);
    ck_assert_int_eq(back.requests[0].turn, 0);
    ck_assert_int_eq(back.kv_cached_start, -1);
    ck_assert(isnan(back.kv_hit_ideal));
    ck_assert_int_eq(back.kv_evictions, -1);
    ck_assert_int_eq(back.kv_hit_tokens, -1);
    ck_assert_int_eq(back.memory_limit, 0);
    ck_assert(isnan(back.kv_token_bytes));
    static const char *const unknown[] = {"rho",       "inter_bytes",  "kv_free",        "kv_frag",     "kv_cached",
                                          "kv_shared", "kv_hit",       "kv_formula",     "preemptions", "nonfinite",
                                          "kv_copies", "kv_occupancy", "kv_growth_time", "roofline",    "mbu",
                                          "mfu"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) ck_assert(isnan(metric_value(&back, unknown[i])));
    ck_assert(isfinite(metric_value(&back, "kv_used")) && isfinite(metric_value(&back, "kv_waste")));
    ck_assert(isnan(metric_value(&back, "bytes_step")));
    ck_assert(isnan(metric_value(&back, "budget_util")));
    ck_assert(isnan(metric_value(&back, "kv_growths")));
    ck_assert_uint_eq(back.n_tokens, run->n_tokens);
    dlab_run_free(&back);
    make_old(part, N_OLD - 1); /* one that was always there */
    ck_assert_int_eq(dlab_record_read_part(part, &back, &err), DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "table steps: column kv_used is missing"));
    dlab_record_free(&r);
}
END_TEST

/* Of a version that is yet to come nothing is known. */
START_TEST(a_later_schema_is_refused)
{
    dlab_record r;
    dlab_run back;
    dlab_error err = {0};
    char part[PATH_MAX], out[PATH_MAX + 64];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    const dlab_run *run = r.points[0].runs[0];
    ck_assert_int_eq(dlab_record_write_part(out, &r.meta, run, &err), DLAB_OK);
    dlab_record_part_path(out, run->key, run->repeat, part, sizeof part);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    ck_assert_int_ge(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), 0);
    dlab_h5_out o = {.file = H5Fopen(part, H5F_ACC_RDWR, access), .path = part};
    set_schema(&o, DLAB_SCHEMA_VERSION + 1);
    H5Fclose(o.file);
    H5Pclose(access);
    ck_assert_int_eq(dlab_record_read_part(part, &back, &err), DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "has schema version 5, this program reads 1 to 4"));
    dlab_record_free(&r);
}
END_TEST

static void column_says(hid_t table, const char *column, const char *words)
{
    char name[64], text[256];
    dlab_h5_in in = {.path = "r.h5", .bytes = 1 << 20};
    snprintf(name, sizeof name, "%s.description", column);
    ck_assert_int_eq(dlab_h5_get_str(&in, table, name, text, sizeof text, NULL), DLAB_OK);
    ck_assert_msg(strstr(text, words) != NULL, "%s: \"%s\" does not say \"%s\"", column, text, words);
}

/* They are all that a reader without our documentation has. */
START_TEST(columns_describe_what_is_in_them)
{
    dlab_record r;
    dlab_error err = {0};
    char out[PATH_MAX + 64];
    fill_record(&r);
    snprintf(out, sizeof out, "%s", in_folder("r.h5"));
    ck_assert_int_eq(dlab_record_finish(out, &r, &err), DLAB_OK);
    hid_t file = H5Fopen(out, H5F_ACC_RDONLY, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    hid_t requests = H5Dopen2(file, "/runs/0000/requests", H5P_DEFAULT);
    hid_t steps = H5Dopen2(file, "/runs/0000/steps", H5P_DEFAULT);
    column_says(requests, "new_tokens", "produced");
    column_says(steps, "prefill_rows", "lead to a request's first token");
    column_says(steps, "decode_rows", "computed again included");
    column_says(steps, "kv_bytes", "read from the KV store");
    column_says(steps, "kv_dense_bytes", "every token");
    column_says(steps, "kv_unusable", "no sequence can ever be given");
    column_says(steps, "kv_shared", "shared nothing");
    column_says(steps, "nonfinite", "NaN or infinity");
    column_says(requests, "cached_tokens", "prefix cache");
    column_says(requests, "asked_tokens", "asked for");
    column_says(requests, "failure", "5 rejected");
    column_says(requests, "conversation", "first request");
    column_says(steps, "waiting", "queued when it began");
    column_says(steps, "pad_skipped", "and did not");
    column_says(steps, "swap_bytes", "out of the KV store and back");
    column_says(steps, "int8_flops", "int8 with int8");
    column_says(steps, "bf16_flops", "bf16 with bf16");
    hid_t peaks = H5Dopen2(file, "/runs/0000/peaks", H5P_DEFAULT);
    column_says(peaks, "bytes", "working set");
    column_says(peaks, "read_ps", "with the run's threads");
    H5Dclose(peaks);
    H5Dclose(requests);
    H5Dclose(steps);
    H5Fclose(file);
    dlab_record_free(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("record columns");
    TCase *c = tcase_create("columns");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, columns_that_came_later_may_be_missing);
    tcase_add_test(c, a_later_schema_is_refused);
    tcase_add_test(c, columns_describe_what_is_in_them);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

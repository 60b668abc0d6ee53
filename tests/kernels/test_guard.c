/* The guard device: same bits as the cpu device, and every breach of the contract faults or shows. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_cpu_cases.h"

START_TEST(every_op_gives_the_bits_of_the_cpu_device)
{
    const dlab_op op = (dlab_op)_i;
    lab cpu = lab_open("cpu", "auto", 2), guard = lab_open("guard", "auto", 2);
    ck_assert_str_eq(guard.dev->ops->variant(guard.dev), cpu.dev->ops->variant(cpu.dev));
    int n_variants = 0;
    for (;; n_variants++) {
        outcome want = run_case(&cpu, op, n_variants);
        if (want.n == 0) break;
        outcome got = run_case(&guard, op, n_variants);
        assert_same(&got, &want, dlab_op_name(op));
        outcome_free(&got);
        outcome_free(&want);
    }
    ck_assert_int_gt(n_variants, 1);
    ck_assert_uint_eq(guard.dev->ops->launches(guard.dev), cpu.dev->ops->launches(cpu.dev));
    lab_close(&cpu);
    lab_close(&guard);
}
END_TEST

typedef void (*breach)(lab *l);

/* The signal that ended a child which did it, or 0. The child has a device of its own: threads do not survive a fork. */
static int signal_of(breach what)
{
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        lab l = lab_open("guard", "auto", 1);
        what(&l);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static dlab_rmsnorm_args norm_args(lab *l, int dim)
{
    const size_t bytes = (size_t)dim * sizeof(float);
    return (dlab_rmsnorm_args){.x = lab_put(l, NULL, bytes),
                               .w = lab_put(l, NULL, bytes),
                               .y = lab_put(l, NULL, bytes),
                               .n_rows = 1,
                               .dim = dim,
                               .eps = 1e-5f};
}

static void run_declared(lab *l)
{
    dlab_rmsnorm_args a = norm_args(l, 100);
    const dlab_at y = a.y;
    float got[100];
    lab_submit(l, DLAB_OP_rmsnorm, &a);
    lab_get(l, y, got, sizeof got);
}

static void read_from_host(lab *l)
{
    const dlab_at a = lab_put(l, "abc", 4);
    (void)*(volatile char *)a.buf.ptr;
}

static void write_from_host(lab *l)
{
    const dlab_at a = lab_put(l, "abc", 4);
    *(volatile char *)a.buf.ptr = 1;
}

static void read_after_sync(lab *l)
{
    const dlab_at a = lab_put(l, "abc", 4);
    char got[4];
    lab_get(l, a, got, 4);
    (void)*(volatile char *)a.buf.ptr;
}

static void use_after_free(lab *l)
{
    const dlab_at a = lab_put(l, "abc", 4);
    lab_clear(l);
    (void)*(volatile char *)a.buf.ptr;
}

/* The descriptor names a row of the table that lies in another buffer. */
static void embed_undeclared_row(lab *l)
{
    size_t bytes;
    dlab_desc_head *d = new_desc(1, 0, 0, 0, &bytes);
    const dlab_at table = lab_put(l, NULL, 4096), other = lab_put(l, NULL, 4096);
    const int64_t apart = (char *)other.buf.ptr - (char *)table.buf.ptr;
    desc_row(d, 0)->token = (int32_t)(apart / 4);
    dlab_embed_args a = {
        {.at = table, .dtype = DLAB_F32, .n = 1024, .k = 1}, lab_put(l, d, bytes), lab_put(l, NULL, 4), 1};
    const dlab_at out = a.out;
    float got;
    lab_submit(l, DLAB_OP_embed, &a);
    lab_get(l, out, &got, 4);
}

/* The second of three layers of a cache of one head of 64 f32; 2 tokens a layer where it is no larger. */
static dlab_kv_plane middle_layer(lab *l, size_t layer_bytes)
{
    dlab_at base = lab_put(l, NULL, 3 * layer_bytes);
    base.off = layer_bytes;
    return (dlab_kv_plane){.base = base,
                           .bytes = layer_bytes,
                           .dtype = DLAB_F32,
                           .group = 1,
                           .head_stride = (int64_t)layer_bytes,
                           .token_stride = 256};
}

/* One token of a sequence, without V. */
static dlab_kv_write_args write_args(lab *l, dlab_kv_plane k, int64_t slot, int32_t index, int32_t tail_slot)
{
    size_t bytes;
    dlab_desc_head *d = new_desc(1, 1, 0, 0, &bytes);
    *desc_row(d, 0) = (dlab_desc_row){.k_slot = slot, .v_slot = -1, .index = index};
    *desc_seq(d, 0) = (dlab_desc_seq){.n_rows = 1, .len = 1, .tail_slot = tail_slot, .v_sealed_from = 1, .v_sealed = 1};
    const float x[64] = {1, 2, 3, 4};
    dlab_kv_write_args a = {.k = lab_put(l, x, sizeof x), .v = lab_put(l, x, sizeof x), .desc = lab_put(l, d, bytes)};
    a.kv = (dlab_kv_view){.k = k, .v = middle_layer(l, 512), .n_kv_heads = 1, .head_dim = 64};
    a.n_rows = 1;
    free(d);
    return a;
}

static dlab_status write_one(lab *l, dlab_kv_plane k, int64_t slot, int32_t index, int32_t tail_slot, dlab_error *err)
{
    dlab_kv_write_args a = write_args(l, k, slot, index, tail_slot);
    lab_submit(l, DLAB_OP_kv_write, &a);
    return l->dev->ops->sync(l->dev, err);
}

static void write_inside_a_layer(lab *l)
{
    dlab_error err;
    ck_assert_int_eq(write_one(l, middle_layer(l, 512), 0, 1, 0, &err), DLAB_OK);
}

static void write_past_the_end(lab *l) { write_one(l, middle_layer(l, 4096), 2 * 4096, 0, 0, NULL); }

static void write_to_the_next_layer(lab *l) { write_one(l, middle_layer(l, 4096), 0, 16, 0, NULL); }

static void write_to_the_layer_before(lab *l) { write_one(l, middle_layer(l, 4096), 0, -1, 0, NULL); }

/* The tails of two layers with two sequences each: a third sequence's would be the other layer's. */
static dlab_kv_plane with_tail(lab *l, size_t layer_bytes)
{
    dlab_kv_plane k = middle_layer(l, 512);
    k.tail = lab_put(l, NULL, 2 * layer_bytes);
    k.tail_bytes = layer_bytes;
    k.tail_seq_stride = k.tail_head_stride = (int64_t)layer_bytes / 2;
    k.tail_cap = 4;
    return k;
}

static void write_inside_a_tail(lab *l)
{
    dlab_error err;
    ck_assert_int_eq(write_one(l, with_tail(l, 1024), 0, 0, 1, &err), DLAB_OK);
}

static void write_past_the_tails(lab *l) { write_one(l, with_tail(l, 8192), 0, 0, 2, NULL); }

/* Spans that lie beyond their table. */
static void read_past_the_spans(lab *l)
{
    size_t bytes;
    dlab_desc_head *d = new_desc(1, 1, 1, 0, &bytes);
    *desc_seq(d, 0) = (dlab_desc_seq){.n_rows = 1, .n_segs = 1, .len = 1};
    *desc_seg(d, 0) = (dlab_desc_seg){.n_tok = 1};
    const int32_t first[2] = {100, 101}; /* in the closed page behind the table, not beyond it */
    const dlab_kv_plane p = middle_layer(l, 512);
    dlab_attn_fused_args a = {.q = lab_put(l, NULL, 256),
                              .out = lab_put(l, NULL, 256),
                              .desc = lab_put(l, d, bytes),
                              .partials = lab_put(l, NULL, dlab_attn_partials_bytes(1, 1, 64, 1)),
                              .kv = {.k = p, .v = p, .n_kv_heads = 1, .head_dim = 64},
                              .spans = {lab_put(l, first, sizeof first), 1},
                              .n_rows = 1,
                              .n_heads = 1,
                              .max_len = 1,
                              .scale = 1};
    free(d);
    lab_submit(l, DLAB_OP_attn_fused, &a);
    l->dev->ops->sync(l->dev, NULL);
}

START_TEST(undeclared_access_faults)
{
    ck_assert_int_eq(signal_of(run_declared), 0);
    ck_assert_int_eq(signal_of(read_from_host), SIGSEGV);
    ck_assert_int_eq(signal_of(write_from_host), SIGSEGV);
    ck_assert_int_eq(signal_of(read_after_sync), SIGSEGV);
    ck_assert_int_eq(signal_of(use_after_free), SIGSEGV);
    ck_assert_int_eq(signal_of(embed_undeclared_row), SIGSEGV);
    ck_assert_int_eq(signal_of(write_inside_a_layer), 0);
    ck_assert_int_eq(signal_of(write_past_the_end), SIGSEGV);
    ck_assert_int_eq(signal_of(write_to_the_next_layer), SIGSEGV);
    ck_assert_int_eq(signal_of(write_to_the_layer_before), SIGSEGV);
    ck_assert_int_eq(signal_of(write_inside_a_tail), 0);
    ck_assert_int_eq(signal_of(write_past_the_tails), SIGSEGV);
    ck_assert_int_eq(signal_of(read_past_the_spans), SIGSEGV);
}
END_TEST

/* Layers and tails that share a page: nothing faults, and yet the write shows. */
START_TEST(writes_beside_a_range_are_found)
{
    lab l = lab_open("guard", "auto", 1);
    dlab_error err = {0};
    ck_assert_int_eq(write_one(&l, middle_layer(&l, 512), 0, 2, 0, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "op kv_write, operand 3: wrote at"));
    ck_assert_ptr_nonnull(strstr(err.msg, "behind its range"));
    lab_clear(&l);
    ck_assert_int_eq(write_one(&l, middle_layer(&l, 512), 0, -2, 0, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "before its range"));
    lab_clear(&l);
    ck_assert_int_eq(write_one(&l, with_tail(&l, 1024), 0, 0, 2, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "op kv_write, operand 4: wrote at"));
    lab_clear(&l);
    ck_assert_int_eq(write_one(&l, middle_layer(&l, 512), 0, 1, 0, &err), DLAB_OK);
    lab_close(&l);
}
END_TEST

START_TEST(results_and_arguments_are_scribbled_over)
{
    lab l = lab_open("guard", "auto", 2);
    const float x[4] = {1, 1, 1, 1};
    float got[4] = {0};
    dlab_rmsnorm_args a = {
        .x = lab_put(&l, x, 16), .w = lab_put(&l, x, 16), .y = lab_put(&l, NULL, 16), .n_rows = 1, .dim = 4};
    const dlab_at y = a.y;
    lab_submit(&l, DLAB_OP_rmsnorm, &a);
    unsigned char scribbled[sizeof a];
    memset(scribbled, 0xa5, sizeof scribbled);
    ck_assert_mem_eq(&a, scribbled, sizeof a);
    ck_assert_int_eq(l.dev->ops->download(l.dev, got, y, sizeof got, NULL), DLAB_OK);
    for (int i = 0; i < 4; i++) ck_assert_float_nan(got[i]);
    ck_assert_uint_eq(l.dev->ops->launches(l.dev), 0); /* nothing has run */
    ck_assert_int_eq(l.dev->ops->sync(l.dev, NULL), DLAB_OK);
    for (int i = 0; i < 4; i++) ck_assert_float_eq(got[i], 1);
    lab_close(&l);
}
END_TEST

START_TEST(uploads_capture_and_copies_keep_their_order)
{
    lab l = lab_open("guard", "auto", 1);
    int v = 1, first, second;
    const dlab_at a = lab_put(&l, &v, sizeof v), b = lab_put(&l, NULL, sizeof v);
    const dlab_device_ops *ops = l.dev->ops;
    ck_assert_int_eq(ops->copy(l.dev, b, a, sizeof v, NULL), DLAB_OK);
    v = 2;
    ck_assert_int_eq(ops->upload(l.dev, a, &v, sizeof v, NULL), DLAB_OK);
    v = 3;
    ck_assert_int_eq(ops->download(l.dev, &first, b, sizeof first, NULL), DLAB_OK);
    ck_assert_int_eq(ops->copy(l.dev, b, a, sizeof v, NULL), DLAB_OK);
    lab_get(&l, b, &second, sizeof second);
    ck_assert_int_eq(first, 1);
    ck_assert_int_eq(second, 2);
    lab_close(&l);
}
END_TEST

START_TEST(imported_memory_cannot_be_written)
{
    lab l = lab_open("guard", "auto", 1);
    const dlab_device_ops *ops = l.dev->ops;
    dlab_error err = {0};
    float x[4] = {1, 2, 3, 4}, got[4];
    dlab_buf b;
    ck_assert_int_eq(ops->import(l.dev, DLAB_POOL_WEIGHTS, x, sizeof x, &b, &err), DLAB_OK);
    const dlab_at w = {b, 0}, y = lab_put(&l, NULL, 16);
    ck_assert_int_eq(ops->upload(l.dev, w, x, sizeof x, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(ops->copy(l.dev, w, y, sizeof x, &err), DLAB_EINTERNAL);
    dlab_rmsnorm_args a = {.x = w, .w = w, .y = w, .n_rows = 1, .dim = 4};
    ck_assert_int_eq(ops->submit(l.dev, DLAB_OP_rmsnorm, &a, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "rmsnorm"));
    ck_assert_int_eq(ops->copy(l.dev, y, w, sizeof x, &err), DLAB_OK);
    lab_get(&l, y, got, sizeof got);
    ck_assert_mem_eq(got, x, sizeof x);
    ops->free(l.dev, DLAB_POOL_WEIGHTS, b);
    ck_assert_int_eq(ops->copy(l.dev, y, w, sizeof x, &err), DLAB_EINTERNAL); /* freed */
    lab_close(&l);
}
END_TEST

START_TEST(memory_is_charged_and_refused_like_the_cpu_devices)
{
    lab l = lab_open("guard", "auto", 1);
    dlab_mem_stats s;
    lab_put(&l, NULL, 1000);
    dlab_mem_get_stats(l.mem, &s);
    ck_assert_uint_eq(s.pool[DLAB_POOL_ACTIVATIONS].used_bytes, 1000);
    dlab_buf b;
    ck_assert_int_eq(l.dev->ops->alloc(l.dev, DLAB_POOL_KV, SIZE_MAX - 5, &b, NULL), DLAB_EOOM);
    ck_assert_ptr_null(b.ptr);
    lab_clear(&l);
    dlab_mem_get_stats(l.mem, &s);
    const dlab_device_opts opts = {.threads = 1, .isa = "auto", .mem = l.mem};
    ck_assert_uint_eq(s.used_bytes, l.dev->ops->own_bytes(&opts));
    ck_assert_uint_eq(s.pool[DLAB_POOL_SCRATCH].used_bytes, s.used_bytes);
    lab_close(&l);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("guard");
    TCase *t = tcase_create("contract");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_op_gives_the_bits_of_the_cpu_device, 0, DLAB_OP_N);
    tcase_add_test(t, undeclared_access_faults);
    tcase_add_test(t, writes_beside_a_range_are_found);
    tcase_add_test(t, results_and_arguments_are_scribbled_over);
    tcase_add_test(t, uploads_capture_and_copies_keep_their_order);
    tcase_add_test(t, imported_memory_cannot_be_written);
    tcase_add_test(t, memory_is_charged_and_refused_like_the_cpu_devices);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

/* The cpu device's contract: order, capture of sources, growth, counts, and how it refuses. */
#include <stdio.h>

#include "kernels/cpu/cpu_pack.h"
#include "test_cpu_lab.h"

/* A matrix of one column, in which packed outputs follow each other as they do in the file. */
static dlab_matrix column(const lab *l, dlab_at w, int n)
{
    const dlab_matrix m = {.at = w, .dtype = DLAB_F32, .n = n, .k = 1};
    return dlab_packed_matrix(&m, w, dlab_isa_lanes(l->dev->ops->variant(l->dev)));
}

/* y[i] += one · w[i], as a product of one input that accumulates. */
static void submit_add(lab *l, dlab_at one, dlab_at w, dlab_at y, int n)
{
    dlab_matmul_args a = {one, y, column(l, w, n), 1, false, true};
    lab_submit(l, DLAB_OP_matmul, &a);
}

START_TEST(commands_run_in_order_and_capture_their_sources)
{
    for (int threads = 1; threads <= 3; threads++) {
        lab l = lab_open("cpu", "auto", threads);
        const float one = 1, zeros[100] = {0};
        float w[112]; /* the last tile's filling with it */
        for (int i = 0; i < 112; i++) w[i] = (float)i;
        const dlab_at x = lab_put(&l, &one, sizeof one), y = lab_put(&l, zeros, sizeof zeros);
        const dlab_at v = lab_put(&l, w, sizeof w), copy = lab_put(&l, NULL, sizeof w);
        /* y += v; copy = y; v = new; y += v; the source of the upload changes at once */
        submit_add(&l, x, v, y, 100);
        ck_assert_int_eq(l.dev->ops->copy(l.dev, copy, y, sizeof zeros, NULL), DLAB_OK);
        for (int i = 0; i < 112; i++) w[i] = 1000;
        ck_assert_int_eq(l.dev->ops->upload(l.dev, v, w, sizeof w, NULL), DLAB_OK);
        memset(w, 0xff, sizeof w);
        submit_add(&l, x, v, y, 100);
        float got[100], copied[100];
        ck_assert_int_eq(l.dev->ops->download(l.dev, copied, copy, sizeof copied, NULL), DLAB_OK);
        lab_get(&l, y, got, sizeof got);
        for (int i = 0; i < 100; i++) {
            ck_assert_float_eq(copied[i], (float)i);
            ck_assert_float_eq(got[i], (float)i + 1000);
        }
        lab_close(&l);
    }
}
END_TEST

/* More commands than the list holds, more uploads than the staging area holds, and copies of many pieces. */
START_TEST(long_lists_and_large_copies_are_right)
{
    lab l = lab_open("cpu", "auto", 2);
    const size_t n = 700000;
    const float one[16] = {1};
    float *big = malloc(n * sizeof *big), *got = malloc(n * sizeof *got);
    for (size_t i = 0; i < n; i++) big[i] = (float)i;
    const dlab_at x = lab_put(&l, one, sizeof one), y = lab_put(&l, NULL, 4), from = lab_put(&l, big, n * sizeof *big);
    const dlab_at to = lab_put(&l, NULL, n * sizeof *big);
    for (int i = 0; i < 5000; i++) submit_add(&l, x, x, y, 1);
    for (int i = 0; i < 40; i++) {
        const dlab_at part = {from.buf, (size_t)i * 60000};
        ck_assert_int_eq(l.dev->ops->upload(l.dev, part, big + i * 15000, 60000, NULL), DLAB_OK);
        submit_add(&l, x, x, y, 1);
    }
    ck_assert_int_eq(l.dev->ops->copy(l.dev, to, from, n * sizeof *big, NULL), DLAB_OK);
    /* overlapping: everything one place on */
    ck_assert_int_eq(l.dev->ops->copy(l.dev, (dlab_at){to.buf, 4}, to, (n - 1) * sizeof *big, NULL), DLAB_OK);
    float count;
    lab_get(&l, y, &count, sizeof count);
    lab_get(&l, to, got, n * sizeof *got);
    ck_assert_float_eq(count, 5040);
    ck_assert_float_eq(got[0], 0);
    for (size_t i = 1; i < n; i++) ck_assert_float_eq(got[i], (float)(i - 1));
    free(big);
    free(got);
    lab_close(&l);
}
END_TEST

START_TEST(a_steady_step_allocates_nothing)
{
    lab l = lab_open("cpu", "auto", 2);
    const float one[16] = {1};
    const dlab_at x = lab_put(&l, one, sizeof one), y = lab_put(&l, NULL, 4);
    dlab_mem_stats before, after;
    dlab_mem_get_stats(l.mem, &before);
    for (int i = 0; i < 100; i++) {
        float got;
        submit_add(&l, x, x, y, 1);
        ck_assert_int_eq(l.dev->ops->upload(l.dev, x, one, sizeof one, NULL), DLAB_OK);
        lab_get(&l, y, &got, sizeof got);
    }
    dlab_mem_get_stats(l.mem, &after);
    ck_assert_uint_eq(before.n_allocs, after.n_allocs);
    lab_close(&l);
}
END_TEST

START_TEST(launches_count_phases)
{
    lab l = lab_open("cpu", "auto", 1);
    const float one[16] = {1};
    const dlab_at x = lab_put(&l, one, sizeof one), y = lab_put(&l, NULL, 4);
    ck_assert_uint_eq(l.dev->ops->launches(l.dev), 0);
    submit_add(&l, x, x, y, 1);
    submit_add(&l, x, x, y, 1);
    ck_assert_int_eq(l.dev->ops->sync(l.dev, NULL), DLAB_OK);
    ck_assert_uint_eq(l.dev->ops->launches(l.dev), 2);
    lab_close(&l);
}
END_TEST

START_TEST(free_lets_listed_commands_finish)
{
    lab l = lab_open("cpu", "auto", 2);
    float w[1000], got[1000];
    for (int i = 0; i < 1000; i++) w[i] = (float)i;
    dlab_buf from;
    ck_assert_int_eq(l.dev->ops->alloc(l.dev, DLAB_POOL_KV, sizeof w, &from, NULL), DLAB_OK);
    const dlab_at to = lab_put(&l, NULL, sizeof w), src = {from, 0};
    ck_assert_int_eq(l.dev->ops->copy(l.dev, to, to, 4, NULL), DLAB_OK); /* so that the upload is listed, too */
    ck_assert_int_eq(l.dev->ops->upload(l.dev, src, w, sizeof w, NULL), DLAB_OK);
    ck_assert_int_eq(l.dev->ops->copy(l.dev, to, src, sizeof w, NULL), DLAB_OK);
    l.dev->ops->free(l.dev, DLAB_POOL_KV, from);
    lab_get(&l, to, got, sizeof got);
    ck_assert_mem_eq(got, w, sizeof w);
    lab_close(&l);
}
END_TEST

START_TEST(imported_memory_is_used_in_place_and_charged)
{
    lab l = lab_open("cpu", "auto", 1);
    static const float w[2] = {3, 4};
    dlab_buf b;
    dlab_mem_stats stats;
    ck_assert_int_eq(l.dev->ops->import(l.dev, DLAB_POOL_WEIGHTS, w, sizeof w, &b, NULL), DLAB_OK);
    ck_assert_ptr_eq(b.ptr, w);
    dlab_mem_get_stats(l.mem, &stats);
    ck_assert_uint_eq(stats.pool[DLAB_POOL_WEIGHTS].used_bytes, sizeof w);
    l.dev->ops->free(l.dev, DLAB_POOL_WEIGHTS, b);
    dlab_mem_get_stats(l.mem, &stats);
    ck_assert_uint_eq(stats.pool[DLAB_POOL_WEIGHTS].used_bytes, 0);
    lab_close(&l);
}
END_TEST

START_TEST(ranges_outside_a_buffer_are_refused)
{
    lab l = lab_open("cpu", "auto", 1);
    dlab_error err = {0};
    float v[4] = {0};
    const dlab_at b = lab_put(&l, v, sizeof v);
    const dlab_device_ops *ops = l.dev->ops;
    const dlab_at past = {b.buf, 8}, wrapped = {b.buf, SIZE_MAX - 3};
    ck_assert_int_eq(ops->upload(l.dev, past, v, 12, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(ops->download(l.dev, v, wrapped, 8, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(ops->copy(l.dev, b, past, 12, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(ops->copy(l.dev, past, b, 12, &err), DLAB_EINTERNAL);
    dlab_matmul_args a = {b, b, column(&l, b, 5), 1, false, false};
    ck_assert_int_eq(ops->submit(l.dev, DLAB_OP_matmul, &a, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "matmul"));
    a.w = (dlab_matrix){.at = b, .dtype = DLAB_F32, .n = 4, .k = 1};
    ck_assert_int_eq(ops->submit(l.dev, DLAB_OP_matmul, &a, &err), DLAB_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "packed"));
    a.w = column(&l, b, 1);
    a.input = DLAB_ACT_INT8;
    ck_assert_int_eq(ops->submit(l.dev, DLAB_OP_matmul, &a, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(ops->submit(l.dev, DLAB_OP_N, &a, &err), DLAB_EINTERNAL);
    const dlab_matrix stored = {.at = b, .dtype = DLAB_F32, .n = 4, .k = 1};
    ck_assert_int_eq(ops->pack(l.dev, &stored, past, &a.w, &err), DLAB_EINTERNAL);
    lab_close(&l);
}
END_TEST

START_TEST(instruction_sets_are_named_and_checked)
{
    dlab_mem *mem;
    dlab_error err = {0};
    dlab_device *dev;
    ck_assert_int_eq(dlab_mem_create(0, &mem, &err), DLAB_OK);
    ck_assert_int_eq(dlab_device_open("cpu", &(dlab_device_opts){1, "avx22", mem}, &dev, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(dev);
    ck_assert_ptr_nonnull(strstr(err.msg, "'avx2'"));
    ck_assert_int_eq(dlab_device_open("cpu", &(dlab_device_opts){0, "auto", mem}, &dev, &err), DLAB_EUSAGE);
    ck_assert_ptr_null(dev);
    ck_assert(dlab_isa_supported("plain"));
    ck_assert(!dlab_isa_supported("neon"));
    for (int i = 0; dlab_isa_list[i]; i++) {
        const char *isa = dlab_isa_list[i];
        const dlab_status st = dlab_device_open("cpu", &(dlab_device_opts){1, isa, mem}, &dev, &err);
        ck_assert_int_eq(st, dlab_isa_supported(isa) ? DLAB_OK : DLAB_EIMPOSSIBLE);
        if (dev) ck_assert_str_eq(dev->ops->variant(dev), isa);
        dlab_device_close(dev);
    }
    ck_assert_int_eq(dlab_device_open("cpu", &(dlab_device_opts){1, "auto", mem}, &dev, &err), DLAB_OK);
    ck_assert_str_eq(dev->ops->variant(dev), dlab_isa_best());
    dlab_device_close(dev);
    dlab_mem_destroy(mem);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cpu device");
    TCase *t = tcase_create("contract");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, commands_run_in_order_and_capture_their_sources);
    tcase_add_test(t, long_lists_and_large_copies_are_right);
    tcase_add_test(t, a_steady_step_allocates_nothing);
    tcase_add_test(t, launches_count_phases);
    tcase_add_test(t, free_lets_listed_commands_finish);
    tcase_add_test(t, imported_memory_is_used_in_place_and_charged);
    tcase_add_test(t, ranges_outside_a_buffer_are_refused);
    tcase_add_test(t, instruction_sets_are_named_and_checked);
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

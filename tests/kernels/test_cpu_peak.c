/* Probes of the CPU: that they do what they count, on every instruction set that is there. How fast they are is not tested. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_peak.h"

static dlab_mem *mem;

static void setup(void) { ck_assert_int_eq(dlab_mem_create(0, &mem, NULL), DLAB_OK); }
static void teardown(void) { dlab_mem_destroy(mem); }

static dlab_device *open_device(const char *name, const char *isa, int threads)
{
    dlab_device *dev = NULL;
    dlab_error err = {0};
    const dlab_device_opts opts = {.threads = threads, .isa = isa, .mem = mem};
    ck_assert_msg(dlab_device_open(name, &opts, &dev, &err) == DLAB_OK, "%s", err.msg);
    return dev;
}

/* Every float of the memory is in the sum, each as often as there are rounds. */
START_TEST(reading_reads_all)
{
    enum { N = 3072 };
    float *memory = aligned_alloc(64, N * sizeof *memory), sink = 0;
    for (int i = 0; i < N; i++) memory[i] = (float)(i % 7);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += memory[i];
    for (size_t k = 0; dlab_isa_list[k]; k++) {
        if (!dlab_isa_supported(dlab_isa_list[k])) continue;
        for (int ahead = 0; ahead < 2; ahead++) {
            const double bytes = dlab_cpu_peak_table[k]->read(memory, N * sizeof *memory, 3, ahead, &sink);
            ck_assert_double_eq(bytes, 3.0 * N * sizeof *memory);
            ck_assert_double_eq(sink, 3 * sum);
        }
    }
    free(memory);
}
END_TEST

/* Each lane of each chain goes to 2; what is counted is two operations for each. */
START_TEST(arithmetic_is_done_and_counted)
{
    float int8_of[32] = {0};
    for (size_t k = 0; dlab_isa_list[k]; k++) {
        if (!dlab_isa_supported(dlab_isa_list[k])) continue;
        const dlab_cpu_peaks *p = dlab_cpu_peak_table[k];
        const int lanes = dlab_isa_lanes(dlab_isa_list[k]);
        float sink = 0;
        const double flops = p->f32(5, &sink), ops = p->int8(5, &sink);
        ck_assert_double_gt(flops, 0);
        ck_assert_double_eq(p->f32(10, &sink), 2 * flops);
        ck_assert_double_eq(fmod(flops, 2.0 * lanes), 0);
        ck_assert_double_eq(fmod(sink, 2.0 * lanes), 0);
        ck_assert_double_gt(sink, 0);
        ck_assert_double_eq(p->int8(10, &sink), 2 * ops);
        ck_assert_double_eq(fmod(ops, 8.0 * lanes), 0);
        ck_assert_msg(sink != 0 && isfinite(sink), "%s: int8 sums to %g", dlab_isa_list[k], sink);
        /* whatever the instruction: the same products of as many lanes */
        if (int8_of[lanes] != 0) ck_assert_float_eq(sink, int8_of[lanes]);
        int8_of[lanes] = sink;
    }
}
END_TEST

/* Where there are products of pairs, each adds 0.75 to every output; elsewhere the peak is that of f32. */
START_TEST(bf16_is_done_and_counted)
{
    for (size_t k = 0; dlab_isa_list[k]; k++) {
        if (!dlab_isa_supported(dlab_isa_list[k])) continue;
        const dlab_cpu_peaks *p = dlab_cpu_peak_table[k];
        float sink = 0, more = 0;
        const double flops = p->bf16(5, &sink);
        ck_assert_double_gt(flops, 0);
        ck_assert_double_eq(p->bf16(10, &more), 2 * flops);
        if (strcmp(dlab_isa_list[k], "bf16") == 0)
            ck_assert_double_eq((double)more - sink, flops / 4 * 0.75);
        else
            ck_assert(p->bf16 == p->f32);
    }
}
END_TEST

/* A thread that slept before it began, or that ended last, counts with all of its time. */
START_TEST(a_try_takes_as_long_as_all_threads_together)
{
    const dlab_cpu_peak_part parts[] = {{.begin_ns = 500, .end_ns = 510},
                                        {.begin_ns = 100, .end_ns = 400},
                                        {.begin_ns = 110, .end_ns = 405},
                                        {.begin_ns = 130, .end_ns = 900}};
    ck_assert_int_eq(dlab_cpu_peak_took(parts, 1), 10);
    ck_assert_int_eq(dlab_cpu_peak_took(parts, 2), 410);
    ck_assert_int_eq(dlab_cpu_peak_took(parts, 3), 410);
    ck_assert_int_eq(dlab_cpu_peak_took(parts, 4), 800);
    ck_assert_int_eq(dlab_cpu_peak_took(&(dlab_cpu_peak_part){.begin_ns = 7, .end_ns = 7}, 1), 1);
}
END_TEST

START_TEST(every_isa_has_peaks)
{
    static const dlab_peak asks[] = {{DLAB_PEAK_F32, 0, 0},          {DLAB_PEAK_INT8, 0, 0},
                                     {DLAB_PEAK_BF16, 0, 0},         {DLAB_PEAK_READ, 1, 0},
                                     {DLAB_PEAK_READ, 32768, 0},     {DLAB_PEAK_READ, 3 << 20, 0},
                                     {DLAB_PEAK_READ, 1 << 20, 0.03}};
    for (size_t k = 0; dlab_isa_list[k]; k++) {
        if (!dlab_isa_supported(dlab_isa_list[k])) continue;
        for (int threads = 1; threads <= 3; threads += 2) {
            dlab_device *dev = open_device("cpu", dlab_isa_list[k], threads);
            for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
                double per_second = -1;
                dlab_mem_stats before, after;
                dlab_error err = {0};
                dlab_mem_get_stats(mem, &before);
                ck_assert_msg(dlab_device_peak(dev, &asks[i], &per_second, &err) == DLAB_OK, "%s", err.msg);
                dlab_mem_get_stats(mem, &after);
                ck_assert_msg(isfinite(per_second) && per_second > 0, "%s: %g", dlab_isa_list[k], per_second);
                ck_assert_uint_eq(after.used_bytes, before.used_bytes);
            }
            dlab_device_close(dev);
        }
    }
}
END_TEST

START_TEST(memory_that_is_not_there_is_an_error)
{
    dlab_mem_destroy(mem);
    ck_assert_int_eq(dlab_mem_create(16 << 20, &mem, NULL), DLAB_OK);
    dlab_device *dev = open_device("cpu", "auto", 1);
    double per_second = 1;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_device_peak(dev, &(dlab_peak){DLAB_PEAK_READ, 64 << 20, 0}, &per_second, &err), DLAB_EOOM);
    ck_assert(isnan(per_second));
    dlab_device_close(dev);
}
END_TEST

START_TEST(other_devices_say_that_they_have_none)
{
    static const char *const names[] = {"ref", "guard"};
    for (int i = 0; i < 2; i++) {
        dlab_device *dev = open_device(names[i], "auto", 1);
        double per_second = 0;
        dlab_error err = {0};
        ck_assert_int_eq(dlab_device_peak(dev, &(dlab_peak){DLAB_PEAK_F32, 0, 0}, &per_second, &err), DLAB_ENOTBUILT);
        ck_assert_ptr_nonnull(strstr(err.msg, names[i]));
        dlab_device_close(dev);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpu peaks");
    TCase *c = tcase_create("peaks");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, reading_reads_all);
    tcase_add_test(c, arithmetic_is_done_and_counted);
    tcase_add_test(c, bf16_is_done_and_counted);
    tcase_add_test(c, a_try_takes_as_long_as_all_threads_together);
    tcase_add_test(c, every_isa_has_peaks);
    tcase_add_test(c, memory_that_is_not_there_is_an_error);
    tcase_add_test(c, other_devices_say_that_they_have_none);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

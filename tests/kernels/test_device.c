/* Opening devices by name, and the memory functions that host devices share. */
#include <check.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/host_mem.h"

static dlab_mem *mem;
static dlab_error err;

static void setup(void) { ck_assert_int_eq(dlab_mem_create(8 << 20, &mem, NULL), DLAB_OK); }
static void teardown(void) { dlab_mem_destroy(mem); }

static dlab_mem_stats stats(void)
{
    dlab_mem_stats s;
    dlab_mem_get_stats(mem, &s);
    return s;
}

START_TEST(every_device_opens_by_its_name)
{
    const dlab_device_opts opts = {.threads = 1, .isa = "auto", .mem = mem};
    int n = 0;
    for (; dlab_devices[n]; n++) {
        dlab_device *dev;
        ck_assert_msg(dlab_device_open(dlab_devices[n]->name, &opts, &dev, &err) == DLAB_OK, "%s", err.msg);
        ck_assert_ptr_eq(dev->ops, dlab_devices[n]);
        ck_assert_uint_eq(stats().used_bytes, dev->ops->own_bytes(&opts));
        ck_assert_uint_gt(strlen(dev->ops->summary), 10);
        ck_assert_uint_gt(strlen(dev->ops->variant(dev)), 1);
        dlab_device_close(dev);
    }
    ck_assert_int_ge(n, 3);
    dlab_device_close(NULL);
}
END_TEST

static void refused(const char *name, dlab_status status, const char *message)
{
    const dlab_device_opts opts = {.threads = 1, .isa = "auto", .mem = mem};
    dlab_device *dev = (dlab_device *)&err;
    ck_assert_int_eq(dlab_device_open(name, &opts, &dev, &err), status);
    ck_assert_ptr_null(dev);
    ck_assert_str_eq(err.msg, message);
}

START_TEST(unknown_and_missing_devices_are_told_apart)
{
    refused("cuda", DLAB_ENOTBUILT, "device 'cuda' is not in this program, expected one of cpu, guard, ref");
    refused("sim:a100", DLAB_ENOTBUILT, "device 'sim:a100' is not in this program, expected one of cpu, guard, ref");
    refused("gaurd", DLAB_EUSAGE, "device 'gaurd' is unknown, did you mean 'guard'? (known: cpu, guard, ref)");
    refused("tpu-v5", DLAB_EUSAGE, "device 'tpu-v5' is unknown, expected one of cpu, guard, ref");
}
END_TEST

START_TEST(imports_are_charged_and_undone_by_free)
{
    dlab_host_mem h = {.mem = mem};
    static const char file[3][1000] = {"one", "two", "three"};
    dlab_buf own, in[3];
    ck_assert_int_eq(dlab_host_alloc(&h, DLAB_POOL_KV, 5000, &own, &err), DLAB_OK);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(dlab_host_import(&h, DLAB_POOL_WEIGHTS, file[i], 1000, &in[i], &err), DLAB_OK);
        ck_assert_ptr_eq(in[i].ptr, file[i]);
    }
    ck_assert_uint_eq(stats().pool[DLAB_POOL_WEIGHTS].used_bytes, 3000);
    ck_assert_uint_eq(stats().used_bytes, 8000);
    dlab_host_free(&h, DLAB_POOL_WEIGHTS, in[1]); /* from the middle; its memory is not ours to release */
    ck_assert_str_eq(file[1], "two");
    dlab_host_free(&h, DLAB_POOL_KV, own);
    dlab_host_free(&h, DLAB_POOL_WEIGHTS, in[2]);
    dlab_host_free(&h, DLAB_POOL_WEIGHTS, in[0]);
    ck_assert_uint_eq(stats().used_bytes, 0);
    dlab_buf none;
    ck_assert_int_eq(dlab_host_alloc(&h, DLAB_POOL_KV, 0, &none, &err), DLAB_OK);
    ck_assert_ptr_null(none.ptr);
    dlab_host_free(&h, DLAB_POOL_KV, none);
    ck_assert_int_eq(dlab_host_import(&h, DLAB_POOL_WEIGHTS, file, (size_t)16 << 20, &none, &err), DLAB_EOOM);
    ck_assert_str_eq(err.msg, "pool weights: asked 16.0 MiB, 8.0 MiB of 8.0 MiB left");
    ck_assert_ptr_null(none.ptr);
    ck_assert_int_eq(dlab_host_alloc(&h, DLAB_POOL_KV, (size_t)16 << 20, &none, &err), DLAB_EOOM);
    ck_assert_ptr_null(none.ptr);
    dlab_host_mem_clear(&h);
}
END_TEST

START_TEST(transfers_stay_inside_their_buffers)
{
    dlab_host_mem h = {.mem = mem};
    dlab_buf b;
    char back[10] = {0};
    ck_assert_int_eq(dlab_host_alloc(&h, DLAB_POOL_SCRATCH, 10, &b, &err), DLAB_OK);
    ck_assert_int_eq(dlab_host_upload((dlab_at){b, 0}, "0123456789", 10, &err), DLAB_OK);
    ck_assert_int_eq(dlab_host_copy((dlab_at){b, 2}, (dlab_at){b, 0}, 8, &err), DLAB_OK); /* overlapping */
    ck_assert_int_eq(dlab_host_download(back, (dlab_at){b, 0}, 10, &err), DLAB_OK);
    ck_assert_mem_eq(back, "0101234567", 10);
    ck_assert_int_eq(dlab_host_upload((dlab_at){b, 4}, back, 7, &err), DLAB_EINTERNAL);
    ck_assert_str_eq(err.msg, "upload: 7 bytes at 4 leave a buffer of 10");
    ck_assert_int_eq(dlab_host_download(back, (dlab_at){b, 11}, 0, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(dlab_host_copy((dlab_at){b, 0}, (dlab_at){b, 1}, 10, &err), DLAB_EINTERNAL);
    ck_assert_int_eq(dlab_host_copy((dlab_at){b, 1}, (dlab_at){b, 0}, SIZE_MAX, &err), DLAB_EINTERNAL);
    dlab_host_free(&h, DLAB_POOL_SCRATCH, b);
    dlab_host_mem_clear(&h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("device");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_device_opens_by_its_name);
    tcase_add_test(t, unknown_and_missing_devices_are_told_apart);
    tcase_add_test(t, imports_are_charged_and_undone_by_free);
    tcase_add_test(t, transfers_stay_inside_their_buffers);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

#include <check.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

static dlab_mem *mem_with(size_t limit)
{
    dlab_mem *m;
    ck_assert_int_eq(dlab_mem_create(limit, &m, NULL), DLAB_OK);
    return m;
}

START_TEST(memory_is_zeroed_and_aligned)
{
    dlab_mem *m = mem_with(0);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t sizes[] = {0, 1, 63, 64, 65, 5000, MIB - 1, MIB, MIB + 1, 5 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int page_align = 0; page_align < 2; page_align++) {
            void *p;
            ck_assert_int_eq(dlab_mem_alloc(m, DLAB_POOL_KV, sizes[i], page_align, &p, NULL), DLAB_OK);
            ck_assert_ptr_nonnull(p);
            ck_assert_uint_eq((uintptr_t)p % (page_align ? page : 64), 0);
            size_t not_zero = 0;
            for (size_t b = 0; b < sizes[i]; b++) not_zero += ((unsigned char *)p)[b] != 0;
            ck_assert_uint_eq(not_zero, 0);
            if (sizes[i]) memset(p, 0xAB, sizes[i]); /* writable to the last byte; freed memory is not zero next time */
            dlab_mem_free(m, DLAB_POOL_KV, p, sizes[i]);
        }
    }
    dlab_mem_destroy(m);
}
END_TEST

START_TEST(pools_and_total_keep_their_own_peaks)
{
    dlab_mem *m = mem_with(0);
    void *a, *b;
    ck_assert_int_eq(dlab_mem_alloc(m, DLAB_POOL_KV, 1000, 0, &a, NULL), DLAB_OK);
    dlab_mem_free(m, DLAB_POOL_KV, a, 1000);
    ck_assert_int_eq(dlab_mem_alloc(m, DLAB_POOL_SCRATCH, 600, 0, &b, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_mem_charge(m, DLAB_POOL_WEIGHTS, 300, NULL), DLAB_OK);
    dlab_mem_stats s;
    dlab_mem_get_stats(m, &s);
    ck_assert_uint_eq(s.pool[DLAB_POOL_KV].used_bytes, 0);
    ck_assert_uint_eq(s.pool[DLAB_POOL_KV].peak_bytes, 1000);
    ck_assert_uint_eq(s.pool[DLAB_POOL_SCRATCH].used_bytes, 600);
    ck_assert_uint_eq(s.pool[DLAB_POOL_WEIGHTS].peak_bytes, 300);
    ck_assert_uint_eq(s.used_bytes, 900);
    ck_assert_uint_eq(s.peak_bytes, 1000); /* the peaks of the pools did not happen together */
    ck_assert_uint_eq(s.n_allocs, 3);
    dlab_mem_reset_peaks(m);
    dlab_mem_get_stats(m, &s);
    ck_assert_uint_eq(s.pool[DLAB_POOL_KV].peak_bytes, 0);
    ck_assert_uint_eq(s.pool[DLAB_POOL_SCRATCH].peak_bytes, 600);
    ck_assert_uint_eq(s.peak_bytes, 900);
    dlab_mem_free(m, DLAB_POOL_SCRATCH, b, 600);
    dlab_mem_discharge(m, DLAB_POOL_WEIGHTS, 300);
    dlab_mem_destroy(m);
}
END_TEST

START_TEST(a_refusal_says_what_was_asked_and_what_was_left)
{
    dlab_mem *m = mem_with(2048 * MIB);
    dlab_error err = {0};
    ck_assert_int_eq(dlab_mem_charge(m, DLAB_POOL_WEIGHTS, 1741 * MIB, &err), DLAB_OK);
    void *p = &err;
    ck_assert_int_eq(dlab_mem_alloc(m, DLAB_POOL_KV, 1536 * MIB, 0, &p, &err), DLAB_EOOM);
    ck_assert_ptr_null(p);
    ck_assert_str_eq(err.msg, "pool kv: asked 1.5 GiB, 307.0 MiB of 2.0 GiB left");
    dlab_mem_stats s;
    dlab_mem_get_stats(m, &s);
    ck_assert_uint_eq(s.used_bytes, 1741 * MIB); /* a refusal charges nothing */
    ck_assert_uint_eq(s.pool[DLAB_POOL_KV].peak_bytes, 0);
    ck_assert_int_eq(dlab_mem_charge(m, DLAB_POOL_KV, 307 * MIB, NULL), DLAB_OK); /* to the last byte */
    ck_assert_int_eq(dlab_mem_charge(m, DLAB_POOL_KV, 1, &err), DLAB_EOOM);
    ck_assert_str_eq(err.msg, "pool kv: asked 1 B, 0 B of 2.0 GiB left");
    dlab_mem_discharge(m, DLAB_POOL_KV, 307 * MIB);
    dlab_mem_discharge(m, DLAB_POOL_WEIGHTS, 1741 * MIB);
    dlab_mem_destroy(m);
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
    dlab_mem *m = mem_with(0);
    dlab_error err = {0};
    void *p;
    ck_assert_int_eq(dlab_mem_alloc(m, DLAB_POOL_KV, SIZE_MAX / 2, 0, &p, &err), DLAB_EOOM);
    ck_assert_ptr_null(p);
    ck_assert_ptr_nonnull(strstr(err.msg, "the system refused"));
    ck_assert_int_eq(dlab_mem_charge(m, DLAB_POOL_KV, 100, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_mem_charge(m, DLAB_POOL_KV, SIZE_MAX, &err), DLAB_EOOM); /* no wrap around */
    dlab_mem_discharge(m, DLAB_POOL_KV, 100);
    dlab_mem_destroy(m);
    dlab_mem_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mem");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, memory_is_zeroed_and_aligned);
    tcase_add_test(t, pools_and_total_keep_their_own_peaks);
    tcase_add_test(t, a_refusal_says_what_was_asked_and_what_was_left);
    tcase_add_test(t, absurd_sizes_are_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

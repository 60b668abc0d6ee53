/* Every op of every instruction set that this CPU has agrees with the oracle, on one thread and on four, in buffers that are
 * aligned and in others that are not. */
#include <stdio.h>

#include "kernels/cpu/cpu.h"
#include "test_cpu_cases.h"

START_TEST(every_isa_has_every_op)
{
    for (int i = 0; dlab_isa_list[i]; i++) {
        ck_assert_ptr_nonnull(dlab_cpu_tables[i]);
        for (dlab_op op = 0; op < DLAB_OP_N; op++) {
            ck_assert_msg(dlab_cpu_tables[i][op] != NULL, "%s has no %s", dlab_isa_list[i], dlab_op_name(op));
            ck_assert_str_eq(dlab_cpu_tables[i][op]->name, dlab_op_name(op));
        }
    }
}
END_TEST

/* Among the weights are −128, and rows of 18, 20 and 34 bytes a block, so that few of them are aligned to anything. */
START_TEST(bug_21_op_agrees_with_the_oracle_on_each_isa)
{
    const dlab_op op = (dlab_op)_i;
    lab oracle = lab_open("ref", "auto", 1);
    int n_variants = 0;
    for (;; n_variants++) {
        outcome want = run_case(&oracle, op, n_variants);
        if (want.n == 0) break;
        for (int i = 0; dlab_isa_list[i]; i++) {
            if (!dlab_isa_supported(dlab_isa_list[i])) continue;
            lab one = lab_open("cpu", dlab_isa_list[i], 1), four = lab_open("cpu", dlab_isa_list[i], 4);
            four.shift = 8; /* as much as a descriptor's numbers need */
            char what[80];
            snprintf(what, sizeof what, "%s, %s, case %d", dlab_op_name(op), dlab_isa_list[i], n_variants);
            outcome got = run_case(&one, op, n_variants), threaded = run_case(&four, op, n_variants);
            assert_near(&got, &want, what);
            assert_same(&threaded, &got, what);
            outcome_free(&got);
            outcome_free(&threaded);
            lab_close(&one);
            lab_close(&four);
        }
        outcome_free(&want);
    }
    ck_assert_int_gt(n_variants, 1);
    lab_close(&oracle);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cpu ops");
    TCase *t = tcase_create("oracle");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_isa_has_every_op);
    tcase_add_loop_test(t, bug_21_op_agrees_with_the_oracle_on_each_isa, 0, DLAB_OP_N);
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

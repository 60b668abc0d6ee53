/* Every case of every op on each instruction set with intrinsics that is supported, a line each: a hash of the values' bits
 * and the first values. Built with the CPU's own kernels and with the shim's, for test_bits.sh to compare. */
#include <stdio.h>
#include <xxhash.h>

#include "tests/kernels/test_cpu_cases.h"

static void print_outcome(const char *isa, dlab_op op, int variant, outcome *o)
{
    for (size_t i = 0; i < o->n; i++)
        if (isnan(o->value[i])) o->value[i] = (double)NAN; /* which one is left to the compiler */
    printf("%s %s case %d: %zu values, %016llx:", isa, dlab_op_name(op), variant, o->n,
           (unsigned long long)XXH64(o->value, o->n * sizeof *o->value, 0));
    for (size_t i = 0; i < o->n && i < 4; i++) printf(" %a", o->value[i]);
    printf("\n");
}

START_TEST(bits)
{
    const char *isa = dlab_isa_list[_i];
    if (!isa || !dlab_isa_supported(isa)) return;
    lab l = lab_open("cpu", isa, 2);
    for (dlab_op op = 0; op < DLAB_OP_N; op++) {
        for (int variant = 0;; variant++) {
            outcome o = run_case(&l, op, variant);
            lab_clear(&l);
            if (o.n == 0) break;
            print_outcome(isa, op, variant, &o);
            outcome_free(&o);
        }
    }
    lab_close(&l);
}
END_TEST

int main(void)
{
    int n = 1;
    while (dlab_isa_list[n]) n++;
    Suite *s = suite_create("bits");
    TCase *t = tcase_create("bits");
    tcase_add_loop_test(t, bits, 1, n); /* the first has no intrinsics */
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_SILENT);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

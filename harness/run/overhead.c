#include "harness/run/overhead.h"

#include "harness/run/drive.h"
#include "harness/target/null.h"

dlab_status dlab_harness_overhead(int64_t n_tokens, double *ns_per_token, dlab_error *err)
{
    *ns_per_token = 0;
    if (n_tokens < 2 || n_tokens > INT32_MAX) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "the harness's cost is measured on 2 to %d tokens, not %lld", INT32_MAX,
                         (long long)n_tokens);
    }
    int32_t id = 1;
    int64_t zero = 0, one = 1;
    uint64_t seed = 0;
    dlab_requests q = {
        .n = 1, .ids = &id, .offset = &zero, .depth = &zero, .prompt = &one, .output = &n_tokens, .seed = &seed};
    dlab_plan plan;
    dlab_run run;
    dlab_target *t = NULL;
    dlab_run_init(&run);
    dlab_plan_default(&plan);
    dlab_status st = dlab_null_create(&plan, &(dlab_engine_needs){.max_seqs = 1}, &(dlab_null_opts){0}, &t, err);
    if (st != DLAB_OK) goto done;
    st = dlab_drive(t, dlab_clock_real(), &q, NULL, &(dlab_drive_opts){.eos = -1}, &run, err);
    if (st == DLAB_OK) *ns_per_token = run.t_end / (double)n_tokens;

done:
    if (t) t->ops->destroy(t);
    dlab_run_free(&run);
    return st;
}

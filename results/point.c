#include "results/point.h"

#include <stdio.h>

#include "base/text.h"
#include "results/warnings.h"

/* What says most about a point comes last. */
static int rank(dlab_run_status s)
{
    static const int ranks[DLAB_RUN_STATUS_N] = {
        [DLAB_RUN_PENDING] = 0, [DLAB_RUN_OK] = 1,      [DLAB_RUN_TRUNCATED] = 2, [DLAB_RUN_SKIPPED] = 3,
        [DLAB_RUN_HUNG] = 4,    [DLAB_RUN_CRASHED] = 5, [DLAB_RUN_OOM] = 6,       [DLAB_RUN_FAILED] = 7};
    return (unsigned)s < DLAB_RUN_STATUS_N ? ranks[s] : 0;
}

dlab_status dlab_point_summarize(dlab_point_result *p, dlab_error *err)
{
    const dlab_run *worst = NULL;
    size_t measured = 0;
    for (size_t i = 0; i < p->n_runs; i++) {
        const dlab_run *r = p->runs[i];
        if (!worst || rank(r->status) > rank(worst->status)) worst = r;
        measured += r->status == DLAB_RUN_OK || r->status == DLAB_RUN_TRUNCATED;
    }
    if (!worst) return DLAB_OK;
    p->status = worst->status;
    dlab_text_copy(p->reason, sizeof p->reason, worst->reason);
    p->warnings[0] = 0;
    if (measured > 0 && measured < p->n_planned) {
        snprintf(p->warnings, sizeof p->warnings, "%zu of %zu repeats measured", measured, p->n_planned);
    }
    dlab_point_warn(p);
    dlab_settings effective = {0};
    DLAB_TRY(dlab_settings_copy(&p->runs[0]->effective, &effective, err));
    dlab_settings_free(&p->effective);
    p->effective = effective;
    return DLAB_OK;
}

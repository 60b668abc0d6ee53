/* What bounds a point (M2). The time of its requests, from schedule to end, is divided among causes by the step record and the
 * roofline; what makes up most of it is named. The rule: docs/metrics.md. */
#ifndef DLAB_RESULTS_DIAGNOSIS_H
#define DLAB_RESULTS_DIAGNOSIS_H

#include "results/record.h"

/* name, text */
#define DLAB_CAUSE_LIST(X)                                                                                             \
    X(PREFILL, "prefill-bound")                                                                                        \
    X(QUEUE, "queue-bound")                                                                                            \
    X(KV_BANDWIDTH, "KV-bandwidth-bound")                                                                              \
    X(WEIGHT_BANDWIDTH, "weight-bandwidth-bound")                                                                      \
    X(OVERHEAD, "overhead-bound")                                                                                      \
    X(PADDING, "padding-bound")                                                                                        \
    X(PREEMPTION, "preemption-bound")                                                                                  \
    X(UNCALIBRATED, "not calibrated") /* most of it is decoding, and the machine's peaks are not known */

typedef enum {
#define DLAB_CAUSE_ENUM(name, text) DLAB_CAUSE_##name,
    DLAB_CAUSE_LIST(DLAB_CAUSE_ENUM)
#undef DLAB_CAUSE_ENUM
        DLAB_CAUSE_N
} dlab_cause;
const char *dlab_cause_text(dlab_cause c);

typedef struct {
    dlab_cause cause;
    double share;   /* of the requests' time */
    char text[400]; /* a sentence: the cause and its evidence */
} dlab_finding;

#define DLAB_FINDINGS_MAX 2
typedef struct {
    dlab_finding items[DLAB_FINDINGS_MAX]; /* the largest share first */
    size_t n;                              /* 0: nothing of the above makes up most of the time, or it was not judged */
    const char *unjudged;                  /* why not; NULL: it was */
} dlab_diagnosis;

/* Over the runs that count; their events are needed. O(steps + requests × log requests). */
dlab_status dlab_diagnose(const dlab_run *const *runs, size_t n, dlab_diagnosis *out, dlab_error *err);
/* The sentences of a point, joined by "; "; "" without any. malloc'd. */
dlab_status dlab_diagnosis_text(const dlab_point_result *p, char **out, dlab_error *err);
/* A row a finding (label, cause, share, sentence), one with a dash for a point without; md, csv or json. malloc'd. */
dlab_status dlab_diagnosis_render(const dlab_record *r, const char *format, char **out, dlab_error *err);

#endif

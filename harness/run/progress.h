/* What a person sees while a sweep runs, on standard error: a bar on a terminal, plain lines elsewhere. */
#ifndef DLAB_HARNESS_RUN_PROGRESS_H
#define DLAB_HARNESS_RUN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    FILE *to; /* NULL: silent */
    bool bar, color;
    int64_t start_ns;
    size_t done, total; /* runs */
    double left_s;      /* estimate; negative: unknown */
    char label[192], phase[32];
} dlab_progress;

/* on: false is silent. The bar needs a terminal that is not TERM=dumb; NO_COLOR is honoured. */
void dlab_progress_init(dlab_progress *p, bool on, size_t total);
/* A run begins; phases follow. */
void dlab_progress_run(dlab_progress *p, const char *label, int32_t repeat, size_t done, double left_s);
void dlab_progress_phase(dlab_progress *p, const char *phase);
/* A run has ended. reason is shown where the status is not ok. */
void dlab_progress_ended(dlab_progress *p, const char *status, const char *reason, double took_s, size_t done,
                         double left_s);
/* One line that stays. */
void dlab_progress_note(dlab_progress *p, const char *text);
void dlab_progress_finish(dlab_progress *p);
/* "3.2 s", "4 min 05 s", "2 h 10 min". */
void dlab_progress_duration(double s, char *buf, size_t size);

#endif

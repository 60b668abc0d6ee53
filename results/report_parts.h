/* What the files of the report share. */
#ifndef DLAB_RESULTS_REPORT_PARTS_H
#define DLAB_RESULTS_REPORT_PARTS_H

#include "results/report.h"

/* The point's value of a key: as the experiment wrote it if swept, else the effective one; NULL if neither. */
const char *dlab_point_get(const dlab_point_result *p, const char *key);
/* Equal as text, or both numbers and equal. */
bool dlab_value_same(const char *a, const char *b);
bool dlab_value_number(const char *text, double *out);
/* Every setting holds at the point. */
bool dlab_point_matches(const dlab_point_result *p, const dlab_settings *at);
/* The point that has a's axes but for those in `change`, which have the values given there; NULL if there is none. */
const dlab_point_result *dlab_point_partner(const dlab_record *r, const dlab_point_result *a,
                                            const dlab_settings *change);
/* All axes equal but for the one named and those in `but`, either may be NULL. */
bool dlab_points_alike(const dlab_point_result *a, const dlab_point_result *b, const char *except,
                       const dlab_settings *but);

dlab_summary dlab_point_summary(const dlab_point_result *p, const dlab_metric *m, const dlab_metric_window *w);
/* The tokens that every counted run of both points has: all of them when they have the same; else (*uneven) a row of
 * requests that have two or more everywhere, each up to the smallest last index among them. Without such requests
 * the window's last is 0. The runs' events are needed. */
dlab_metric_window dlab_points_window(const dlab_point_result *a, const dlab_point_result *b, bool *uneven);
/* The exponent between p and the point with the next smaller value of `over`, all else equal; NaN if there is none. */
double dlab_report_growth(const dlab_record *r, const dlab_metric *m, const char *over, const dlab_point_result *p);

/* Sentences below the table. */
typedef struct {
    char **notes;
    size_t n;
    dlab_status status;
    dlab_error *err;
} dlab_notes;
void dlab_note(dlab_notes *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "kv.store=none batch.size=4" of the settings; of a point's axes without those left out. "all points" when empty. */
void dlab_settings_text(const dlab_settings *s, char *buf, size_t size);
void dlab_axes_text(const dlab_point_result *p, const char *except, const dlab_settings *but, char *buf, size_t size);

void dlab_report_notes(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out);
/* Where the baseline and the others cross along growth.over, and why, from the declared work. */
void dlab_report_crossings(const dlab_record *r, const dlab_report_spec *s, dlab_notes *out);

#endif

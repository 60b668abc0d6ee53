/* What the tests of the report share: the record of a curve, and looking at a table. */
#ifndef DLAB_TESTS_RESULTS_REPORT_TEST_H
#define DLAB_TESTS_RESULTS_REPORT_TEST_H

#include "results/report.h"
#include "tests/results/synthetic.h"

#define MS 1e6

/* tpot: none = length/4 ms, contiguous = 16 ms: they cross at 64. */
static inline void fill_curve(dlab_record *r)
{
    const char *const lengths[] = {"16", "32", "128", "256"};
    dlab_record_init(r);
    r->complete = true;
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 4; i++) {
            double n = strtod(lengths[i], NULL);
            add_point(r, (const char *[]){"kv.store", s ? "contiguous" : "none", "workload.depth", lengths[i], NULL});
            for (int k = 0; k < 3; k++) {
                batch_shape b = {.seqs = 1,
                                 .prompt = 8,
                                 .made = 6,
                                 .ttft_ns = 5 * MS,
                                 .retains = s,
                                 .gap_ns = (s ? 16 : n / 4) * MS * (1 + 0.01 * (k - 1)),
                                 .step_flops = s ? 1e9 : n * 1e9,
                                 .step_bytes = s ? 2e8 : 1e8};
                add_run(r, &b);
            }
        }
    }
}

static inline void parse_spec(const char *yaml, dlab_report_spec *s)
{
    dlab_yaml *y;
    dlab_error err = {0};
    ck_assert_msg(dlab_yaml_parse("x.yaml", yaml, strlen(yaml), &y, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_msg(dlab_report_parse(y, dlab_yaml_root(y), s, &err) == DLAB_OK, "%s", err.msg);
    dlab_yaml_destroy(y);
}

static const char curve_spec[] = "metrics: [tpot, ttft, mem_peak]\n"
                                 "baseline: {kv.store: none}\n"
                                 "ratio: tpot\n"
                                 "growth: {metric: tpot, over: workload.depth}\n"
                                 "claims:\n"
                                 "  - {id: K1, article: C, at: {kv.store: none}, growth: 2, text: 'O(n²) a step'}\n"
                                 "  - {id: T1, article: C, at: {kv.store: contiguous}, ratio: 3.12}\n";

static inline void build(const dlab_record *r, const char *yaml, dlab_table *t)
{
    dlab_report_spec s;
    dlab_error err = {0};
    parse_spec(yaml, &s);
    ck_assert_msg(dlab_report_build(r, &s, t, &err) == DLAB_OK, "%s", err.msg);
    dlab_report_free(&s);
}

static inline const dlab_cell *cell(const dlab_table *t, size_t row, const char *name)
{
    for (size_t c = 0; c < t->n_columns; c++)
        if (strcmp(t->columns[c].name, name) == 0) return &t->cells[row * t->n_columns + c];
    ck_abort_msg("no column %s", name);
    return NULL;
}

static inline const char *note_with(const dlab_table *t, const char *words)
{
    for (size_t i = 0; i < t->n_notes; i++)
        if (strstr(t->notes[i], words)) return t->notes[i];
    ck_abort_msg("no note says \"%s\"", words);
    return NULL;
}

static inline bool notes_say(const dlab_table *t, const char *words)
{
    for (size_t i = 0; i < t->n_notes; i++)
        if (strstr(t->notes[i], words)) return true;
    return false;
}

#endif

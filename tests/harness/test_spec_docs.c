/* docs/experiments.md is what the tables say, and what it shows can be run. */
#include <stdio.h>

#include "base/file.h"
#include "harness/spec/spec_parts.h"
#include "tests/harness/spec_test.h"

static char *docs(void)
{
    char *text = NULL;
    dlab_error err = {0};
    ck_assert_msg(dlab_spec_docs(&text, &err) == DLAB_OK, "%s", err.msg);
    return text;
}

START_TEST(the_file_equals_the_tables)
{
    char *text = docs(), *file = NULL;
    size_t n = 0;
    dlab_error err = {0};
    ck_assert_msg(dlab_file_read(DLAB_SOURCE_DIR "/docs/experiments.md", 1 << 20, &file, &n, &err) == DLAB_OK, "%s",
                  err.msg);
    if (strcmp(text, file) != 0) {
        size_t i = 0, line = 1;
        while (text[i] && text[i] == file[i]) line += text[i++] == '\n';
        ck_abort_msg("docs/experiments.md differs from the tables in line %zu; write it again with "
                     "`dlab list --docs > docs/experiments.md`",
                     line);
    }
    free(file);
    free(text);
}
END_TEST

static void every_key_is_in(const char *text, const dlab_param *table, size_t n, size_t strip)
{
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i++) {
        char row[256];
        snprintf(row, sizeof row, "\n| `%s` | %s |", table[i].key + strip, dlab_param_type_name(table[i].type));
        ck_assert_msg(strstr(text, row) != NULL, "%s is not documented", table[i].key);
        ck_assert_msg(table[i].help && table[i].help[0], "%s has no meaning given", table[i].key);
    }
}

START_TEST(every_key_is_documented)
{
    char *text = docs();
    size_t n;
    const dlab_param *table = dlab_plan_params(&n);
    every_key_is_in(text, table, n, 0);
    table = dlab_workload_params(&n);
    every_key_is_in(text, table, n, strlen("workload."));
    table = dlab_measure_params(&n);
    every_key_is_in(text, table, n, strlen("measure."));
    free(text);
}
END_TEST

START_TEST(the_worked_example_runs)
{
    char *text = docs();
    char *begin = strstr(text, "```yaml\n");
    ck_assert_ptr_nonnull(begin);
    begin += strlen("```yaml\n");
    char *end = strstr(begin, "```\n");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    dlab_spec *s = spec_of(begin, NULL, 0);
    ck_assert_str_eq(s->name, "cache-or-not");
    ck_assert_uint_eq(s->n_points, 11);
    ck_assert_str_eq(s->points[10].label, "kv.store=contiguous kv.k=f16 kv.v=f16 batch.size=16");
    dlab_spec_destroy(s);
    free(text);
}
END_TEST

/* A default that the tables promise is what an empty file gives. */
START_TEST(defaults_are_the_documented_ones)
{
    dlab_spec *s = spec_of("name: x\n", NULL, 0);
    size_t n;
    char value[DLAB_PARAM_STR + 32];
    const dlab_param *table = dlab_measure_params(&n);
    for (size_t i = 0; i < n; i++) {
        dlab_measure wanted;
        memset(&wanted, 0, sizeof wanted);
        ck_assert_int_eq(dlab_param_set(&table[i], &wanted, table[i].def, NULL), DLAB_OK);
        char other[sizeof value];
        dlab_param_print(&table[i], &s->measure, value, sizeof value);
        dlab_param_print(&table[i], &wanted, other, sizeof other);
        ck_assert_str_eq(value, other);
    }
    table = dlab_workload_params(&n);
    for (size_t i = 0; i < n; i++) {
        dlab_workload wanted;
        memset(&wanted, 0, sizeof wanted);
        ck_assert_int_eq(dlab_param_set(&table[i], &wanted, table[i].def, NULL), DLAB_OK);
        char other[sizeof value];
        dlab_param_print(&table[i], &s->points[0].workload, value, sizeof value);
        dlab_param_print(&table[i], &wanted, other, sizeof other);
        ck_assert_str_eq(value, other);
    }
    dlab_spec_destroy(s);
}
END_TEST

/* The parsers of `report:` and `plots:` live elsewhere: they must know the words that are documented here. */
START_TEST(every_documented_word_is_taken)
{
    const char *text =
        "name: x\nabout: y\ncovers: [K1]\nmodel: [a, b]\n"
        "plan: {kv.store: [none, contiguous], kv.k: [f16, f32], kv.v: [f16, f32]}\n"
        "workload: {depth: [64, 128]}\nmeasure: {repeats: 2}\nmatrix: product\nzip: [[kv.k, kv.v]]\n"
        "include: [{model: c}]\nexclude: [{model: a, ladder: s}]\n"
        "ladder: [{name: r}, {name: s, set: {batch.size: 2}}]\n"
        "report:\n  metrics: [ttft, tpot]\n  baseline: {kv.store: none}\n  ratio: tpot\n"
        "  growth: {metric: tpot, over: workload.depth}\n"
        "  claims: [{id: K1, article: C, at: {ladder: r, memory_limit: 1024}, growth: 2, ratio: 3.5, text: t}]\n"
        "plots: [{name: p, template: lines, title: t, x: workload.depth, y: tpot, series: [kv.store, ladder],\n"
        "         reference: tpot, logx: true, logy: true},\n"
        "        {name: q, template: stack, title: t, only: kv,\n"
        "         at: {model: b, kv.store: none, kv.k: f16, workload.depth: 064, ladder: r}}]\n";
    size_t n;
    const dlab_spec_word *words = dlab_spec_words(&n);
    for (size_t i = 0; i < n; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s: ", words[i].key);
        const bool map = strcmp(words[i].key, "report") == 0;
        ck_assert_msg(map || strstr(text, key), "the text of this test does not use %s", words[i].key);
    }
    dlab_spec *s = spec_of(text, NULL, 0);
    ck_assert_uint_eq(s->n_points, 25);
    ck_assert_uint_eq(s->report.n_metrics, 2);
    ck_assert_uint_eq(s->report.n_claims, 1);
    ck_assert_str_eq(dlab_settings_get(&s->report.claims[0].at, "memory_limit"), "1KiB"); /* as points print it */
    ck_assert_str_eq(s->report.growth_over, "workload.depth");
    ck_assert_uint_eq(s->n_plots, 2);
    const dlab_plot_spec *stack = &s->plots[1];
    ck_assert_uint_eq(stack->n_at, 5);
    ck_assert_str_eq(stack->at[3].key, "workload.depth");
    ck_assert_str_eq(stack->at[3].value, "64"); /* as points print it */
    dlab_spec_destroy(s);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, the_file_equals_the_tables);
    tcase_add_test(tc, every_key_is_documented);
    tcase_add_test(tc, the_worked_example_runs);
    tcase_add_test(tc, every_documented_word_is_taken);
    tcase_add_test(tc, defaults_are_the_documented_ones);
}

int main(void) { return run_suite("spec_docs", add); }

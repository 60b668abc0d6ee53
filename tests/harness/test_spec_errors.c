/* Every refusal is one line with file, line, column, and what was expected. */
#include <stdio.h>

#include "tests/harness/spec_test.h"

typedef struct {
    const char *text;
    const char *message; /* its beginning; whole where it ends in a line feed */
} refusal;

static void check_message(const char *text, const char *const *sets, size_t n_sets, dlab_status code,
                          const char *expected)
{
    dlab_spec *s = NULL;
    dlab_error err = {0};
    const dlab_status st = dlab_spec_parse("x.yaml", text, strlen(text), sets, n_sets, MODEL, &s, &err);
    ck_assert_msg(st == code, "status %s, expected %s: %s\n%s", dlab_status_name(st), dlab_status_name(code), err.msg,
                  text);
    ck_assert_ptr_null(s);
    ck_assert_msg(!strchr(err.msg, '\n'), "more than one line: %s", err.msg);
    const size_t n = strlen(expected);
    const bool whole = n > 0 && expected[n - 1] == '\n';
    ck_assert_msg(strncmp(err.msg, expected, whole ? n - 1 : n) == 0 && (!whole || strlen(err.msg) == n - 1),
                  "message:  %s\nexpected: %s\nof: %s", err.msg, expected, text);
}

static const refusal keys[] = {
    {"", "x.yaml:1:1: the document is empty, expected keys and values\n"},
    {"just words\n", "x.yaml:1:1: an experiment is a map of sections, such as `plan:` and `workload:`\n"},
    {"[a, b]\n", "x.yaml:1:1: an experiment is a map of sections"},
    {"name: x\nplann: {}\n", "x.yaml:2:1: experiment: unknown key `plann`; did you mean `plan`?\n"},
    {"zzzzzzzzzz: 1\n", "x.yaml:1:1: experiment: unknown key `zzzzzzzzzz`; docs/experiments.md has all\n"},
    {"kv.store: none\n", "x.yaml:1:1: kv.store belongs under `plan:`\n"},
    {"plan: {kv.store: none}\nplan: {kv.k: f32}\n", "x.yaml:2:1: "},
    {"plan:\n  kv.stroe: none\n", "x.yaml:2:3: plan: unknown key `kv.stroe`; did you mean `kv.store`?\n"},
    {"plan:\n  kv: {stroe: none}\n", "x.yaml:2:8: plan: unknown key `kv.stroe`; did you mean `kv.store`?\n"},
    {"plan: {kv: none}\n", "x.yaml:1:8: `kv` is a group of keys: give one of them, such as kv.store\n"},
    {"plan: {kv.store: {a: b}}\n", "x.yaml:1:19: plan: unknown key `kv.store.a`; did you mean `kv.store`?\n"},
    {"plan: {workload.prompt: 1}\n", "x.yaml:1:8: workload.prompt belongs under `workload:`\n"},
    {"plan: {model: a}\n", "x.yaml:1:8: model belongs at the top level of the file\n"},
    {"workload: {promt: 1}\n", "x.yaml:1:12: workload: unknown key `promt`; did you mean `prompt`?\n"},
    {"plan: {prompt: 1}\n", "x.yaml:1:8: plan: unknown key `prompt`; there is a workload.prompt\n"},
    {"workload: {batch.size: 1}\n", "x.yaml:1:12: batch.size belongs under `plan:`\n"},
    {"workload: {repeats: 1}\n", "x.yaml:1:12: workload: unknown key `repeats`; there is a measure.repeats\n"},
    {"measure: {repeat: 1}\n", "x.yaml:1:11: measure: unknown key `repeat`; did you mean `repeats`?\n"},
    {"plan: 3\n", "x.yaml:1:7: plan: expected a map of keys and values, not a single value\n"},
    {"plan:\nname: x\n", "x.yaml:1:6: plan has no value; expected a map of keys and values\n"},
};

static const refusal values[] = {
    {"plan: {kv.store: contigous}\n",
     "x.yaml:1:18: kv.store: 'contigous' is unknown, did you mean 'contiguous'? (known: "},
    {"plan:\n  kv.store: [none, contigous]\n", "x.yaml:2:20: kv.store: 'contigous' is unknown"},
    {"plan: {batch.size: 0}\n", "x.yaml:1:20: batch.size: 0 is out of range, expected 1 to 4096\n"},
    {"plan: {batch.size: [1, two]}\n", "x.yaml:1:24: batch.size: 'two' is not a whole number\n"},
    {"workload: {output: 0}\n", "x.yaml:1:20: workload.output: 0 is out of range, expected 1 to 1048576\n"},
    {"workload: {ignore_eos: maybe}\n", "x.yaml:1:24: workload.ignore_eos: 'maybe' is not a switch"},
    {"workload: {lengths: lognormale}\n",
     "x.yaml:1:21: workload.lengths: 'lognormale' is unknown, did you mean 'lognormal'?"},
    {"workload: {samples: 0}\n", "x.yaml:1:21: workload.samples: 0 is out of range, expected 1 to 4096\n"},
    {"plan: {kv.block_size: 7}\n", "x.yaml:1:23: kv.block_size: 7 is out of range, expected 8 to 256\n"},
    {"measure: {time_limit: soon}\n", "x.yaml:1:23: measure.time_limit: 'soon' is not a duration"},
    {"measure: {repeats: [1, 2]}\n", "x.yaml:1:20: measure.repeats cannot be swept: give one value\n"},
    {"plan: {kv.k: }\n", "x.yaml:1:14: kv.k has no value; expected a single value\n"},
    {"plan: {kv.k: ~}\n", "x.yaml:1:14: kv.k has no value; expected a single value\n"},
    {"plan: {kv.k: []}\n", "x.yaml:1:14: kv.k: the list is empty\n"},
    {"plan: {kv.k: [f16, [f32]]}\n", "x.yaml:1:20: kv.k: expected a single value, not a list\n"},
    {"plan: {kv.k: [f16, f32, f16]}\n", "x.yaml:1:25: kv.k: the list has f16 twice\n"},
    {"plan: {batch.size: [8, 08]}\n", "x.yaml:1:24: batch.size: the list has 8 twice\n"},
    {"plan:\n  kv.k: f16\n  kv: {k: f32}\n", "x.yaml:3:8: kv.k is given twice: first in line 2\n"},
    {"plan: {kv.k: \"f\\n16\"}\n", "x.yaml:1:14: kv.k: 'f 16' is unknown"},
    {"model: []\n", "x.yaml:1:8: model: the list is empty\n"},
    {"name: a/b\n", "x.yaml:1:7: name: files are named after it; expected letters, digits, `.`, `_`, `-`\n"},
    {"name: .a\n", "x.yaml:1:7: name: files are named after it"},
    {"name: ''\n", "x.yaml:1:7: name: files are named after it"},
    {"name: a234567890123456789012345678901234567890123456789012345678901234\n",
     "x.yaml:1:7: name: 64 bytes; expected at most 63\n"},
    {"covers: {a: b}\n", "x.yaml:1:9: covers: expected a list, not a map of keys and values\n"},
};

static const refusal matrices[] = {
    {"matrix: zpi\n", "x.yaml:1:9: matrix: `zpi` is unknown; expected product or zip, did you mean zip?\n"},
    {"matrix: zip\nplan: {batch.size: [1, 2], kv.k: [f16]}\n",
     "x.yaml:2:34: zip: kv.k has 1 values and batch.size has 2; lists that move together have the same length\n"},
    {"matrix: zip\nzip: [[kv.k, kv.v]]\n", "x.yaml:2:6: zip: with `matrix: zip` all lists move together already"},
    {"zip: [kv.k, kv.v]\n", "x.yaml:1:7: zip: expected groups of keys, such as [[kv.k, kv.v]]\n"},
    {"zip: [[kv.k]]\n", "x.yaml:1:8: zip: kv.k is not a list\n"},
    {"plan: {kv.k: [f16, f32]}\nzip: [[kv.k], [kv.k]]\n", "x.yaml:2:16: zip: kv.k is named twice\n"},
    {"zip: [[kv.kk]]\n", "x.yaml:1:8: axes: unknown key `kv.kk`; did you mean `kv.k`?\n"},
    {"zip: [[measure.repeats]]\n", "x.yaml:1:8: measure.repeats is not an axis: it says how to measure, not what\n"},
    {"exclude: {kv.k: f16}\n", "x.yaml:1:10: exclude: expected a list, not a map of keys and values\n"},
    {"exclude: [{}]\n", "x.yaml:1:11: exclude: the entry is empty; expected axes and values\n"},
    {"plan: {kv.k: [f16]}\nexclude:\n  - {kv.k: f32}\n", "x.yaml:3:5: exclude: no point matches this entry\n"},
    {"plan: {kv.k: [f16]}\nexclude:\n  - {kv.k: f16}\n", "x.yaml:3:3: exclude: no point is left\n"},
    {"exclude: [{kv.k: [f16]}]\n", "x.yaml:1:18: kv.k: expected a single value, not a list\n"},
    {"exclude: [{kv.k: f16, kv: {k: f32}}]\n", "x.yaml:1:28: kv.k is given twice in this entry\n"},
    {"exclude: [{ladder: a}]\n", "x.yaml:1:20: ladder: no step is named `a`\n"},
    {"plan: {kv.k: [f16]}\ninclude: [{kv.k: f16}]\n",
     "x.yaml:2:11: include: the experiment has this point already (kv.k=f16)\n"},
    {"include: [{ladder: a}]\n", "x.yaml:1:12: axes: unknown key `ladder`"},
    {"ladder: []\n", "x.yaml:1:9: ladder: 0 steps; expected 1 to 64\n"},
    {"ladder: [{set: {kv.k: f16}}]\n", "x.yaml:1:10: ladder: the step has no `name`\n"},
    {"ladder: [{name: a, sets: {}}]\n", "x.yaml:1:20: ladder: unknown key `sets`; did you mean `set`?\n"},
    {"ladder: [{name: a}, {name: a}]\n", "x.yaml:1:28: ladder: two steps are named `a`\n"},
    {"plan: {kv.k: [f16, f32]}\nladder: [{name: a, set: {kv.k: f16}}]\n",
     "x.yaml:2:26: ladder: kv.k is swept as well (line 1); keep one of the two\n"},
    {"ladder: [{name: first}]\nexclude: [{ladder: frist}]\n",
     "x.yaml:2:20: ladder: no step is named `frist`; did you mean `first`?\n"},
};

static const refusal reports[] = {
    {"report: {baselin: {}}\n", "x.yaml:1:10: report: unknown key `baselin`; did you mean `baseline`?\n"},
    {"report: {baseline: {kv.stor: none}}\n", "x.yaml:1:21: axes: unknown key `kv.stor`; did you mean `kv.store`?\n"},
    {"report: {baseline: {kv.store: nome}}\n", "x.yaml:1:31: kv.store: 'nome' is unknown, did you mean 'none'?"},
    {"report:\n  growth: {metric: tpot, over: workload.dept}\n",
     "x.yaml:2:32: axes: unknown key `workload.dept`; did you mean `workload.depth`?\n"},
    {"report:\n  claims:\n    - {id: K1, article: C, growth: 2, text: t, at: {kv.k: f61}}\n",
     "x.yaml:3:59: kv.k: 'f61' is unknown, did you mean 'f16'?"},
    {"report: 3\n", "x.yaml:1:9: report: expected a map of keys and values, not a single value\n"},
    {"report: {growth: x}\n", "x.yaml:1:18: "},
    {"report: {claims: x}\n", "x.yaml:1:18: "},
    {"report: {claims: [x]}\n", "x.yaml:1:19: "},
    {"report: {baseline: {kv.store: [none]}}\n", "x.yaml:1:31: "},
    {"plots: [x]\n", "x.yaml:1:9: plots: expected a map of keys and values, not a single value\n"},
    {"plots: {name: x}\n", "x.yaml:1:8: plots: expected a list, not a map of keys and values\n"},
    {"plots:\n  - {name: x, tilte: t}\n", "x.yaml:2:15: plots: unknown key `tilte`; did you mean `title`?\n"},
    {"plots:\n  - {name: x, template: lines, y: tpot, x: workload.dpeth}\n",
     "x.yaml:2:44: axes: unknown key `workload.dpeth`; did you mean `workload.depth`?\n"},
    {"plots:\n  - {name: x, template: lines, y: tpot, x: workload.depth, series: [batch.sise]}\n",
     "x.yaml:2:69: axes: unknown key `batch.sise`; did you mean `batch.size`?\n"},
    {"plots:\n  - {name: x, template: stack, at: {kv.store: pagde}}\n",
     "x.yaml:2:47: kv.store: 'pagde' is unknown, did you mean 'paged'?"},
    {"plots:\n  - {name: x, template: stack, at: [a]}\n", "x.yaml:2:36: "},
    {"plan: {kv.k: [f16, f32], batch.size: [1, 2]}\nplots:\n  - {name: x, template: stack, at: {kv.k: f16}}\n",
     "x.yaml:3:5: plots: x: a stack shows one point; its `at` matches 2 of 4\n"},
    {"plan: {kv.k: [f16, f32], batch.size: 2}\nplots:\n  - {name: x, template: stack, at: {batch.size: 4}}\n",
     "x.yaml:3:5: plots: x: a stack shows one point; its `at` matches 0 of 2\n"},
};

static const refusal unbuilt[] = {
    {"plan: {device: sim:a100}\n", "x.yaml:1:16: device: sim:a100 is not built in this version; built are cpu"},
    {"plan: {device: [cpu, cuda]}\n", "x.yaml:1:22: device: cuda is not built in this version"},
    {"plan: {weights.dtype: int4}\n", "x.yaml:1:23: weights.dtype: int4 is not built in this version"},
    {"plan: {attention.pattern: topk_pages}\n",
     "x.yaml:1:27: attention.pattern: topk_pages is not built in this version"},
    {"plan: {attention.pattern: sink_window}\n",
     "x.yaml:1:27: attention.pattern: sink_window is not built in this version"},
    {"plan: {weights.keep: f16}\n", "x.yaml:1:22: weights.keep is not built in this version; leave the key out\n"},
    {"exclude: [{compute: f16}]\n", "x.yaml:1:21: compute: f16 is not built in this version"},
    {"zip: [[weights.keep]]\n", "x.yaml:1:8: weights.keep is not built in this version: it cannot be an axis\n"},
};

#define LOOP_TEST(table, status)                                                                                       \
    START_TEST(table##_are_refused) { check_message(table[_i].text, NULL, 0, status, table[_i].message); }             \
    END_TEST
LOOP_TEST(keys, DLAB_EFORMAT)
LOOP_TEST(values, DLAB_EFORMAT)
LOOP_TEST(matrices, DLAB_EFORMAT)
LOOP_TEST(reports, DLAB_EFORMAT)
LOOP_TEST(unbuilt, DLAB_ENOTBUILT)

static const refusal set_errors[] = {
    {"kv.store", "--set kv.store: expected KEY=VALUE or KEY=[A, B]\n"},
    {"=x", "--set =x: expected KEY=VALUE or KEY=[A, B]\n"},
    {"kv.k=", "--set kv.k=: expected KEY=VALUE or KEY=[A, B]\n"},
    {"kv.kk=f16", "--set kv.kk=f16: axes: unknown key `kv.kk`; did you mean `kv.k`?\n"},
    {"kv.k=f61", "--set kv.k=f61: kv.k: 'f61' is unknown, did you mean 'f16'?"},
    {"kv.k=[f16", "--set kv.k=[f16: the list cannot be read; expected KEY=[A, B]\n"},
    {"kv.k=[]", "--set kv.k=[]: kv.k: the list is empty\n"},
    {"kv.k=[f16, f16]", "--set kv.k=[f16, f16]: kv.k: the list has f16 twice\n"},
    {"kv.k=[[f16]]", "--set kv.k=[[f16]]: kv.k: expected single values in the list\n"},
    {"measure.repeats=[1, 2]", "--set measure.repeats=[1, 2]: measure.repeats cannot be swept: give one value\n"},
    {"measure.repeats=0", "--set measure.repeats=0: measure.repeats: 0 is out of range"},
    {"kv.v=[f16, f32, f16]", "--set kv.v=[f16, f32, f16]: kv.v: the list has f16 twice\n"},
};

START_TEST(sets_are_refused)
{
    const refusal *r = &set_errors[_i];
    check_message("plan: {kv.store: none}\n", &r->text, 1, DLAB_EUSAGE, r->message);
}
END_TEST

START_TEST(a_set_that_breaks_a_zip_says_so)
{
    const char *const sets[] = {"workload.prompt=[1, 2, 3]"};
    check_message("matrix: zip\nplan: {kv.k: [f16, f32]}\nworkload: {prompt: [1, 2]}\n", sets, 1, DLAB_EUSAGE,
                  "--set workload.prompt=[1, 2, 3]: zip: workload.prompt has 3 values and kv.k has 2;");
}
END_TEST

START_TEST(unbuilt_words_in_sets_say_so)
{
    const char *const sets[] = {"device=cuda"};
    check_message("name: x\n", sets, 1, DLAB_ENOTBUILT, "--set device=cuda: device: cuda is not built");
}
END_TEST

/* head [0,1,…,n−1] tail */
static char *list_of(const char *head, int n, const char *tail)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(f);
    fprintf(f, "%s[0", head);
    for (int i = 1; i < n; i++) fprintf(f, ",%d", i);
    fprintf(f, "]\n%s", tail);
    ck_assert_int_eq(fclose(f), 0);
    return text;
}

START_TEST(too_many_points_are_refused)
{
    char *text = list_of("plan: {batch.size: [1, 2]}\nworkload:\n  prompt: ", 5001, "");
    check_message(
        text, NULL, 0, DLAB_EFORMAT,
        "x.yaml:3:11: workload.prompt makes it more than 10000 points (2 × 5001); shorten a list, or zip some\n");
    free(text);
    text = list_of("workload:\n  prompt: ", 10001, "");
    check_message(text, NULL, 0, DLAB_EFORMAT, "x.yaml:2:11: workload.prompt: a list of 10001 values");
    free(text);
    text = list_of("workload:\n  prompt: ", 10000, "include: [{batch.size: 2}]\n");
    check_message(text, NULL, 0, DLAB_EFORMAT, "x.yaml:3:11: include: more than 10000 points\n");
    free(text);
}
END_TEST

START_TEST(no_model_at_all_is_refused)
{
    dlab_spec *s = NULL;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_spec_parse("x.yaml", "name: x\n", 8, NULL, 0, NULL, &s, &err), DLAB_EFORMAT);
    ck_assert_str_eq(err.msg, "x.yaml: no model: write `model:` in the file or give --set model=FILE");
}
END_TEST

START_TEST(an_absent_file_is_one_line)
{
    dlab_spec *s = NULL;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_spec_read("/nowhere/x y.yaml", NULL, 0, MODEL, &s, &err), DLAB_EIO);
    ck_assert_ptr_null(s);
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/x y.yaml"));
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, keys_are_refused, 0, COUNT(keys));
    tcase_add_loop_test(tc, values_are_refused, 0, COUNT(values));
    tcase_add_loop_test(tc, matrices_are_refused, 0, COUNT(matrices));
    tcase_add_loop_test(tc, reports_are_refused, 0, COUNT(reports));
    tcase_add_loop_test(tc, unbuilt_are_refused, 0, COUNT(unbuilt));
    tcase_add_loop_test(tc, sets_are_refused, 0, COUNT(set_errors));
    tcase_add_test(tc, a_set_that_breaks_a_zip_says_so);
    tcase_add_test(tc, unbuilt_words_in_sets_say_so);
    tcase_add_test(tc, too_many_points_are_refused);
    tcase_add_test(tc, no_model_at_all_is_refused);
    tcase_add_test(tc, an_absent_file_is_one_line);
}

int main(void) { return run_suite("spec_errors", add); }

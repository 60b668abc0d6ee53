/* From an experiment file to its points: which, in which order, with which values. */
#include <stdio.h>

#include "tests/harness/spec_test.h"

START_TEST(nothing_swept_is_one_point_of_defaults)
{
    dlab_spec *s = spec_of("about: a text\ncovers: [K1, K2]\n", NULL, 0);
    ck_assert_str_eq(s->name, "x");
    ck_assert_str_eq(s->about, "a text");
    ck_assert_str_eq(s->covers, "K1 K2");
    ck_assert_uint_eq(s->n_points, 1);
    const dlab_point *p = &s->points[0];
    dlab_plan plan;
    dlab_plan_default(&plan);
    ck_assert_str_eq(p->label, "the only point");
    ck_assert_uint_eq(p->axes.n, 0);
    ck_assert_str_eq(p->skip, "");
    ck_assert_str_eq(p->model, MODEL);
    ck_assert_str_eq(p->plan.kv_store, plan.kv_store);
    ck_assert_int_eq(p->plan.batch_size, plan.batch_size);
    ck_assert_int_eq(p->workload.prompt, 128);
    ck_assert_int_eq(p->workload.output, 32);
    ck_assert_str_eq(p->workload.lengths, "fixed");
    ck_assert_int_eq(p->workload.samples, 1);
    ck_assert(p->workload.ignore_eos);
    ck_assert_str_eq(p->workload.kind, "batch");
    ck_assert_str_eq(p->workload.prompts, "ids");
    ck_assert_str_eq(p->workload.outputs, "fixed");
    ck_assert_double_eq(p->workload.prefix_share, 1);
    ck_assert_int_eq(p->workload.turns, 1);
    ck_assert(!s->measure.keep_cache);
    ck_assert_int_eq(s->measure.repeats, 5);
    ck_assert_str_eq(s->measure.order, "interleaved");
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(values_reach_their_structs)
{
    dlab_spec *s =
        spec_of("name: a.b-c_1\n"
                "model: synthetic:tiny\n"
                "plan: {kv: {store: none, k: f32}, memory_limit: 64KiB, sample.temperature: 0.5}\n"
                "workload: {prompt: 7, output: 3, depth: 2, lengths: lognormal,\n"
                "           prompt_sd: 4, prompt_max: 9, shared_prefix: 3, samples: 2, ignore_eos: off, seed: 9,\n"
                "           kind: open, rate: 2.5, arrivals: gamma, burstiness: 0.5, duration: 2s, think: 10ms,\n"
                "           think_times: exponential, trace: t.jsonl, priorities: '0:9, 5:1', prefix_share: 0.25}\n"
                "measure: {repeats: 2, order: grouped, time_limit: 1.5s, ppl_text: my text.txt, slo_ttft: 200ms,\n"
                "          keep_cache: on}\n",
                NULL, 0);
    const dlab_point *p = &s->points[0];
    ck_assert_str_eq(s->name, "a.b-c_1");
    ck_assert_str_eq(p->model, "synthetic:tiny");
    ck_assert_str_eq(p->plan.kv_store, "none");
    ck_assert_str_eq(p->plan.kv_k, "f32");
    ck_assert_int_eq(p->plan.memory_limit_bytes, 65536);
    ck_assert_double_eq(p->plan.temperature, 0.5);
    ck_assert_int_eq(p->workload.prompt, 7);
    ck_assert_int_eq(p->workload.depth, 2);
    ck_assert_str_eq(p->workload.lengths, "lognormal");
    ck_assert_int_eq(p->workload.prompt_sd, 4);
    ck_assert_int_eq(p->workload.prompt_max, 9);
    ck_assert_int_eq(p->workload.shared_prefix, 3);
    ck_assert_int_eq(p->workload.samples, 2);
    ck_assert(!p->workload.ignore_eos);
    ck_assert_int_eq(p->workload.seed, 9);
    ck_assert_str_eq(p->workload.kind, "open");
    ck_assert_double_eq(p->workload.rate, 2.5);
    ck_assert_str_eq(p->workload.arrivals, "gamma");
    ck_assert_double_eq(p->workload.burstiness, 0.5);
    ck_assert_int_eq(p->workload.duration_ns, 2000000000);
    ck_assert_int_eq(p->workload.think_ns, 10000000);
    ck_assert_str_eq(p->workload.think, "exponential");
    ck_assert_str_eq(p->workload.trace_file, "t.jsonl");
    ck_assert_str_eq(p->workload.priorities, "0:9, 5:1");
    ck_assert_double_eq(p->workload.prefix_share, 0.25);
    ck_assert_int_eq(s->measure.slo_ttft_ns, 200000000);
    ck_assert(s->measure.keep_cache);
    ck_assert_int_eq(s->measure.repeats, 2);
    ck_assert_int_eq(s->measure.time_limit_ns, 1500000000);
    ck_assert_str_eq(s->measure.order, "grouped");
    ck_assert_str_eq(s->measure.ppl_text, "my text.txt");
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(product_in_file_order_last_varies_fastest)
{
    check_labels("workload: {prompt: [8, 4]}\n"
                 "plan:\n"
                 "  kv: {store: [none, contiguous]}\n"
                 "  batch.size: [1]\n",
                 "workload.prompt=8 kv.store=none batch.size=1\n"
                 "workload.prompt=8 kv.store=contiguous batch.size=1\n"
                 "workload.prompt=4 kv.store=none batch.size=1\n"
                 "workload.prompt=4 kv.store=contiguous batch.size=1\n");
}
END_TEST

START_TEST(axes_hold_the_values_that_the_structs_have)
{
    dlab_spec *s = spec_of("model: [a.gguf, b.gguf]\nplan: {memory_limit: [1024, 1MiB]}\n", NULL, 0);
    ck_assert_uint_eq(s->n_points, 4);
    const dlab_point *p = &s->points[3];
    ck_assert_str_eq(dlab_settings_get(&p->axes, "model"), "b.gguf");
    ck_assert_str_eq(dlab_settings_get(&p->axes, "memory_limit"), "1MiB");
    ck_assert_str_eq(dlab_settings_get(&s->points[0].axes, "memory_limit"), "1KiB");
    ck_assert_str_eq(p->model, "b.gguf");
    ck_assert_int_eq(p->plan.memory_limit_bytes, 1048576);
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(zip_group_moves_together_inside_a_product)
{
    check_labels("plan: {kv.k: [f32, f16], batch.size: [1, 2], kv.v: [f16, f32]}\nzip: [[kv.k, kv.v]]\n",
                 "kv.k=f32 batch.size=1 kv.v=f16\n"
                 "kv.k=f32 batch.size=2 kv.v=f16\n"
                 "kv.k=f16 batch.size=1 kv.v=f32\n"
                 "kv.k=f16 batch.size=2 kv.v=f32\n");
}
END_TEST

START_TEST(matrix_zip_pairs_all_lists)
{
    check_labels("matrix: zip\nplan: {batch.size: [1, 2, 4], compute: f32}\nworkload: {prompt: [30, 20, 10]}\n",
                 "batch.size=1 workload.prompt=30\n"
                 "batch.size=2 workload.prompt=20\n"
                 "batch.size=4 workload.prompt=10\n");
}
END_TEST

START_TEST(exclude_drops_and_include_adds)
{
    const char *text = "plan: {kv.store: [none, contiguous], batch.size: [1, 4], compute: f32}\n"
                       "exclude:\n"
                       "  - {kv.store: none, batch: {size: 4}}\n"
                       "include:\n"
                       "  - {batch.size: 04, kv.store: none, kv.k: f32}\n"
                       "  - {batch.size: 16}\n";
    check_labels(text, "kv.store=none batch.size=1 kv.k=f16\n"
                       "kv.store=contiguous batch.size=1 kv.k=f16\n"
                       "kv.store=contiguous batch.size=4 kv.k=f16\n"
                       "kv.store=none batch.size=4 kv.k=f32\n"
                       "kv.store=contiguous batch.size=16 kv.k=f16\n");
    dlab_spec *s = spec_of(text, NULL, 0);
    ck_assert_str_eq(s->points[4].plan.compute, "f32"); /* the file's single value */
    ck_assert_str_eq(s->points[3].plan.kv_k, "f32");
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(ladder_adds_one_change_after_another)
{
    dlab_spec *s = spec_of("plan: {batch.size: [1, 2], kv.k: f32}\n"
                           "ladder:\n"
                           "  - name: base\n"
                           "  - {name: half keys, set: {kv.k: f16}}\n"
                           "  - {name: unfused, set: {attention: {kernel: unfused}, workload.prompt: 5}}\n"
                           "exclude:\n"
                           "  - {ladder: base, batch.size: 2}\n",
                           NULL, 0);
    char *labels = labels_of(s);
    ck_assert_str_eq(labels, "batch.size=1 ladder=base\n"
                             "batch.size=1 ladder=half keys\n"
                             "batch.size=1 ladder=unfused\n"
                             "batch.size=2 ladder=half keys\n"
                             "batch.size=2 ladder=unfused\n");
    ck_assert_str_eq(s->points[0].plan.kv_k, "f32");
    ck_assert_str_eq(s->points[1].plan.kv_k, "f16");
    ck_assert_str_eq(s->points[1].plan.attention_kernel, "fused");
    ck_assert_str_eq(s->points[2].plan.kv_k, "f16"); /* on top of the step before */
    ck_assert_str_eq(s->points[2].plan.attention_kernel, "unfused");
    ck_assert_int_eq(s->points[2].workload.prompt, 5);
    ck_assert_int_eq(s->points[1].workload.prompt, 128);
    free(labels);
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(sets_replace_what_the_file_says)
{
    const char *text = "plan: {kv.store: [none, contiguous], batch.size: [1, 4]}\nmeasure: {repeats: 9}\n";
    const char *const sets[] = {"kv.store=contiguous", "workload.prompt=[3, 4]", "measure.repeats=1", "model=m=1.gguf",
                                "batch.size=2"};
    check_labels_set(text, sets, 5, "workload.prompt=3\nworkload.prompt=4\n");
    dlab_spec *s = spec_of(text, sets, 5);
    ck_assert_str_eq(s->points[0].plan.kv_store, "contiguous");
    ck_assert_str_eq(s->points[0].model, "m=1.gguf");
    ck_assert_int_eq(s->points[0].plan.batch_size, 2);
    ck_assert_int_eq(s->measure.repeats, 1);
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(a_set_list_takes_the_place_of_the_file_s)
{
    const char *const sets[] = {"kv.store=none", "kv.store=[contiguous]", "batch.size=[8, 1]"};
    check_labels_set("plan: {kv.store: [none, contiguous], batch.size: 4, kv.k: [f16, f32]}\n", sets, 3,
                     "kv.store=contiguous batch.size=8 kv.k=f16\n"
                     "kv.store=contiguous batch.size=8 kv.k=f32\n"
                     "kv.store=contiguous batch.size=1 kv.k=f16\n"
                     "kv.store=contiguous batch.size=1 kv.k=f32\n");
}
END_TEST

START_TEST(a_set_reaches_zips_ladders_includes_and_excludes)
{
    const char *const one[] = {"kv.k=f32"};
    check_labels_set("plan: {kv.k: [f16, f32], kv.v: [f16, f32]}\nzip: [[kv.k, kv.v]]\nexclude: [{kv.k: f16}]\n"
                     "include: [{kv.k: f16, kv.v: f32, batch.size: 2}, {kv.v: f32}]\n",
                     one, 1,
                     "kv.v=f16 kv.k=f32 batch.size=1\n"
                     "kv.v=f32 kv.k=f32 batch.size=1\n"
                     "kv.v=f32 kv.k=f32 batch.size=2\n");
    dlab_spec *s = spec_of("ladder: [{name: a}, {name: b, set: {kv.k: f16, kv.v: f32}}]\n", one, 1);
    ck_assert_uint_eq(s->n_points, 2);
    ck_assert_str_eq(s->points[1].plan.kv_k, "f32");
    ck_assert_str_eq(s->points[1].plan.kv_v, "f32");
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(impossible_points_say_why)
{
    dlab_spec *s = spec_of("plan: {kv.store: [none, contiguous], batch.chunk: [0, 16]}\n", NULL, 0);
    ck_assert_uint_eq(s->n_points, 4);
    ck_assert_str_eq(s->points[0].skip, "");
    ck_assert_str_eq(s->points[1].skip, "kv.store: none computes the whole prefix at every step, so batch.chunk cannot "
                                        "split it");
    ck_assert_str_eq(s->points[2].skip, "");
    ck_assert_str_eq(s->points[3].skip, "");
    dlab_spec_destroy(s);
    s = spec_of("workload: {prompt: [0, 1], depth: [0, 8]}\n", NULL, 0);
    ck_assert_str_eq(s->points[0].skip,
                     "workload.prompt: 0 needs workload.depth above 0: there is nothing to go on from");
    for (size_t i = 1; i < 4; i++) ck_assert_str_eq(s->points[i].skip, "");
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(ten_thousand_points_and_no_more)
{
    char text[2000];
    size_t at = (size_t)snprintf(text, sizeof text, "workload:\n  prompt: [1");
    for (int i = 2; i <= 100; i++) at += (size_t)snprintf(text + at, sizeof text - at, ", %d", i);
    at += (size_t)snprintf(text + at, sizeof text - at, "]\n  seed: [1");
    for (int i = 2; i <= 100; i++) at += (size_t)snprintf(text + at, sizeof text - at, ", %d", i);
    snprintf(text + at, sizeof text - at, "]\n");
    dlab_spec *s = spec_of(text, NULL, 0);
    ck_assert_uint_eq(s->n_points, 10000);
    ck_assert_str_eq(s->points[9999].label, "workload.prompt=100 workload.seed=100");
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(a_long_label_is_cut_between_characters)
{
    char text[1024], name[201] = "";
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "ü", 3);
    snprintf(text, sizeof text, "model: [a%s, b%s]\n", name, name);
    dlab_spec *s = spec_of(text, NULL, 0);
    const char *label = s->points[0].label;
    const size_t n = strlen(label);
    ck_assert_uint_lt(n, sizeof s->points[0].label);
    ck_assert_str_eq(label + n - strlen("ü…"), "ü…");
    ck_assert_uint_eq(strlen(dlab_settings_get(&s->points[0].axes, "model")), 201);
    dlab_spec_destroy(s);
}
END_TEST

START_TEST(words_of_the_design_that_say_what_is_done_are_fine)
{
    check_labels("plan: {attention.pattern: dense, kv.prefix_cache: off}\n", "the only point\n");
}
END_TEST

START_TEST(shipped_experiments_are_read)
{
    static const struct {
        const char *name, *covers;
        size_t points, plots, stacks;
    } files[] = {
        {"quickstart", "K1 K2", 8, 2, 0},        {"kv-cache-curve", "K1 K2", 36, 2, 0},
        {"kv-memory", "K1 K4", 52, 1, 0},        {"kv-paging", "K3 K5 K10", 8, 4, 2},
        {"kv-capacity", "T X4 K5 Q3", 12, 2, 0}, {"prefix-sharing", "K5", 6, 3, 1},
        {"attention-fusion", "K6 K7", 20, 3, 0}, {"kv-dtype", "K4 Q3 Q4", 28, 2, 0},
        {"sparse-first", "S1 X8", 28, 3, 0},
    };
    char path[512];
    snprintf(path, sizeof path, "%s/experiments/%s.yaml", DLAB_SOURCE_DIR, files[_i].name);
    dlab_spec *s = NULL;
    dlab_error err = {0};
    ck_assert_msg(dlab_spec_read(path, NULL, 0, MODEL, &s, &err) == DLAB_OK, "%s", err.msg);
    ck_assert_str_eq(s->name, files[_i].name);
    ck_assert_str_eq(s->covers, files[_i].covers);
    ck_assert_uint_eq(s->n_points, files[_i].points);
    ck_assert_uint_eq(s->n_plots, files[_i].plots);
    ck_assert_uint_gt(s->report.baseline.n, 0);
    ck_assert_uint_gt(strlen(s->about), 20);
    for (size_t k = 0; k < s->n_points; k++) ck_assert_str_eq(s->points[k].skip, "");
    size_t n, stacks = 0;
    for (size_t k = 0; k < s->n_plots; k++) stacks += strcmp(s->plots[k].template_name, "stack") == 0;
    ck_assert_uint_eq(stacks, files[_i].stacks);
    ck_assert_ptr_nonnull(strstr(dlab_yaml_text(s->yaml, &n), "covers:"));
    dlab_spec_destroy(s);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, nothing_swept_is_one_point_of_defaults);
    tcase_add_test(tc, values_reach_their_structs);
    tcase_add_test(tc, product_in_file_order_last_varies_fastest);
    tcase_add_test(tc, axes_hold_the_values_that_the_structs_have);
    tcase_add_test(tc, zip_group_moves_together_inside_a_product);
    tcase_add_test(tc, matrix_zip_pairs_all_lists);
    tcase_add_test(tc, exclude_drops_and_include_adds);
    tcase_add_test(tc, ladder_adds_one_change_after_another);
    tcase_add_test(tc, sets_replace_what_the_file_says);
    tcase_add_test(tc, a_set_list_takes_the_place_of_the_file_s);
    tcase_add_test(tc, a_set_reaches_zips_ladders_includes_and_excludes);
    tcase_add_test(tc, impossible_points_say_why);
    tcase_add_test(tc, ten_thousand_points_and_no_more);
    tcase_add_test(tc, a_long_label_is_cut_between_characters);
    tcase_add_test(tc, words_of_the_design_that_say_what_is_done_are_fine);
    tcase_add_loop_test(tc, shipped_experiments_are_read, 0, 9);
}

int main(void) { return run_suite("spec", add); }

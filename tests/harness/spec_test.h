/* Shared by the tests of experiment files. */
#ifndef DLAB_TESTS_HARNESS_SPEC_TEST_H
#define DLAB_TESTS_HARNESS_SPEC_TEST_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/spec/spec.h"

#define MODEL "default.gguf"

/* Parses `text` as x.yaml with up to four --set strings (NULL: none); the test fails if it is refused. */
static inline dlab_spec *spec_of(const char *text, const char *const *sets, size_t n_sets)
{
    dlab_spec *s = NULL;
    dlab_error err = {0};
    const dlab_status st = dlab_spec_parse("x.yaml", text, strlen(text), sets, n_sets, MODEL, &s, &err);
    ck_assert_msg(st == DLAB_OK, "refused: %s\n%s", err.msg, text);
    return s;
}

/* The labels of all points, one a line. */
static inline char *labels_of(const dlab_spec *s)
{
    char *all = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&all, &bytes);
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < s->n_points; i++) fprintf(f, "%s\n", s->points[i].label);
    ck_assert_int_eq(fclose(f), 0);
    return all;
}

static inline void check_labels_set(const char *text, const char *const *sets, size_t n_sets, const char *expected)
{
    dlab_spec *s = spec_of(text, sets, n_sets);
    char *labels = labels_of(s);
    ck_assert_str_eq(labels, expected);
    free(labels);
    dlab_spec_destroy(s);
}

static inline void check_labels(const char *text, const char *expected) { check_labels_set(text, NULL, 0, expected); }

static inline int run_suite(const char *name, void (*add)(TCase *))
{
    Suite *suite = suite_create(name);
    TCase *tc = tcase_create(name);
    tcase_set_timeout(tc, 60);
    add(tc);
    suite_add_tcase(suite, tc);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

#endif

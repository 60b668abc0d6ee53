#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/yaml.h"

static dlab_yaml *good(const char *text)
{
    dlab_error err = {0};
    dlab_yaml *y;
    const dlab_status s = dlab_yaml_parse("x.yaml", text, strlen(text), &y, &err);
    ck_assert_msg(s == DLAB_OK, "%s", err.msg);
    return y;
}

static void bad_bytes(const char *text, size_t n, const char *message)
{
    dlab_error err = {0};
    dlab_yaml *y = (dlab_yaml *)&err;
    ck_assert_msg(dlab_yaml_parse("x.yaml", text, n, &y, &err) == DLAB_EFORMAT, "took: %s", text);
    ck_assert_ptr_null(y);
    ck_assert_str_eq(err.msg, message);
}

static void bad(const char *text, const char *message) { bad_bytes(text, strlen(text), message); }

START_TEST(a_document_becomes_a_tree_with_positions)
{
    dlab_yaml *y = good("# head\nname: first\naxes:\n  kv.store: [none, 'paged']\n  n: 3\nlist:\n  - a\n  - {b: ~}\n");
    const dlab_yaml_node *root = dlab_yaml_root(y);
    ck_assert_int_eq(root->kind, DLAB_YAML_MAP);
    ck_assert_uint_eq(root->n, 3);
    ck_assert_str_eq(root->keys[0]->text, "name");
    ck_assert_int_eq(root->keys[0]->line, 2);
    ck_assert_int_eq(root->keys[0]->column, 1);
    const dlab_yaml_node *name = dlab_yaml_get(root, "name");
    ck_assert_str_eq(name->text, "first");
    ck_assert_int_eq(name->line, 2);
    ck_assert_int_eq(name->column, 7);
    const dlab_yaml_node *store = dlab_yaml_get(dlab_yaml_get(root, "axes"), "kv.store");
    ck_assert_int_eq(store->kind, DLAB_YAML_SEQ);
    ck_assert_uint_eq(store->n, 2);
    ck_assert(!store->items[0]->quoted);
    ck_assert(store->items[1]->quoted);
    ck_assert_str_eq(store->items[1]->text, "paged");
    ck_assert_int_eq(store->items[1]->line, 4);
    ck_assert_int_eq(store->items[1]->column, 20);
    const dlab_yaml_node *list = dlab_yaml_get(root, "list");
    ck_assert_str_eq(list->items[0]->text, "a");
    ck_assert_str_eq(dlab_yaml_get(list->items[1], "b")->text, "~");
    ck_assert_ptr_null(dlab_yaml_get(root, "nothing"));
    ck_assert_ptr_null(dlab_yaml_get(name, "not a map"));
    ck_assert_ptr_null(dlab_yaml_get(NULL, "x"));
    dlab_yaml_destroy(y);
    dlab_yaml_destroy(NULL);
}
END_TEST

START_TEST(the_text_and_name_are_kept)
{
    const char *text = "a:   1 # why\n";
    dlab_yaml *y = good(text);
    size_t n;
    ck_assert_mem_eq(dlab_yaml_text(y, &n), text, strlen(text));
    ck_assert_uint_eq(n, strlen(text));
    ck_assert_str_eq(dlab_yaml_name(y), "x.yaml");
    dlab_error err = {0};
    ck_assert_int_eq(dlab_yaml_fail(y, dlab_yaml_get(dlab_yaml_root(y), "a"), &err, "%s is odd", "1"), DLAB_EFORMAT);
    ck_assert_str_eq(err.msg, "x.yaml:1:6: 1 is odd");
    dlab_yaml_destroy(y);
}
END_TEST

START_TEST(empty_values_are_empty_words)
{
    dlab_yaml *y = good("a:\nb: []\nc: {}\nd: ''\n");
    const dlab_yaml_node *r = dlab_yaml_root(y);
    ck_assert_str_eq(dlab_yaml_get(r, "a")->text, "");
    ck_assert(!dlab_yaml_get(r, "a")->quoted);
    ck_assert_uint_eq(dlab_yaml_get(r, "b")->n, 0);
    ck_assert_uint_eq(dlab_yaml_get(r, "c")->n, 0);
    ck_assert(dlab_yaml_get(r, "d")->quoted);
    dlab_yaml_destroy(y);
}
END_TEST

START_TEST(duplicate_keys_are_refused_with_both_places)
{
    bad("a: 1\nb: 2\na: 3\nb: 4\n", "x.yaml:3:1: key 'a' is written twice, first in line 1; expected it once");
    bad("m:\n  a: 1\n  \"a\": 2\n", "x.yaml:3:3: key 'a' is written twice, first in line 2; expected it once");
    bad("z: 1\na: 1\nz: 2\na: 2\n", "x.yaml:3:1: key 'z' is written twice, first in line 1; expected it once");
    dlab_yaml_destroy(good("m: {a: 1}\nn: {a: 1}\n")); /* one in each map is fine */
}
END_TEST

START_TEST(anchors_aliases_tags_and_merges_are_refused_by_name)
{
    bad("a: &base 1\n", "x.yaml:1:4: anchor '&base' is not taken, expected the value written out");
    bad("a: &m {b: 1}\n", "x.yaml:1:4: anchor '&m' is not taken, expected the value written out");
    bad("a: *base\n", "x.yaml:1:4: alias '*base' is not taken, expected the value written out");
    bad("*k : 1\n", "x.yaml:1:1: alias '*k' is not taken, expected the value written out");
    bad("a: !!str 1\n", "x.yaml:1:4: tag 'tag:yaml.org,2002:str' is not taken, expected the plain value");
    bad("a: !!seq [1]\n", "x.yaml:1:4: tag 'tag:yaml.org,2002:seq' is not taken, expected the plain value");
    bad("<<: {a: 1}\n", "x.yaml:1:1: merge key '<<' is not taken, expected the keys written out");
    dlab_yaml_destroy(good("'<<': 1\n")); /* quoted it is a word */
}
END_TEST

START_TEST(keys_are_words)
{
    bad("[a]: 1\n", "x.yaml:1:1: a list or map as a key, expected a word");
    bad("? {a: 1}\n: 1\n", "x.yaml:1:3: a list or map as a key, expected a word");
    bad("'': 1\n", "x.yaml:1:1: an empty key, expected a word");
}
END_TEST

START_TEST(one_document)
{
    bad("", "x.yaml:1:1: the document is empty, expected keys and values");
    bad("# only a comment\n", "x.yaml:1:1: the document is empty, expected keys and values");
    bad("a: 1\n---\nb: 2\n", "x.yaml:2:1: a second document begins here, expected one");
}
END_TEST

START_TEST(broken_yaml_names_line_and_column)
{
    dlab_error err = {0};
    dlab_yaml *y;
    static const char *const texts[] = {"a: [1, 2\nb: 3\n", "a: 1\n  b: 2\n", "a: 'open\n",
                                        "a: b: c\n",        "\t- x\n",        "a: @x\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_int_eq(dlab_yaml_parse("x.yaml", texts[i], strlen(texts[i]), &y, &err), DLAB_EFORMAT);
        ck_assert_ptr_null(y);
        ck_assert_int_eq(strncmp(err.msg, "x.yaml:", 7), 0);
        char *end;
        const long line = strtol(err.msg + 7, &end, 10), column = strtol(end + 1, &end, 10);
        ck_assert_int_eq(strncmp(end, ": not valid YAML: ", 18), 0);
        ck_assert(line >= 1 && line <= 3 && column >= 1);
        ck_assert_ptr_null(strchr(err.msg, '\n'));
    }
    bad("a: 1\nb: \xFF\n", "x.yaml:2:4: not valid YAML: invalid leading UTF-8 octet");
    bad("a: 1\nb: \x01\n", "x.yaml:2:4: not valid YAML: control characters are not allowed");
    bad("a: \"x\\0y\"\n", "x.yaml:1:4: a NUL character, expected text");
    bad_bytes("a: \0\n", 5, "x.yaml:1:4: not valid YAML: control characters are not allowed");
}
END_TEST

static char *nested(int depth)
{
    char *text = calloc(1, (size_t)depth * 2 + 1);
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    return text;
}

START_TEST(depth_is_limited)
{
    char *text = nested(32);
    dlab_yaml_destroy(good(text));
    free(text);
    text = nested(33);
    bad(text, "x.yaml:1:33: nested deeper than 32 levels, expected fewer");
    free(text);
    text = nested(100000);
    bad(text, "x.yaml:1:33: nested deeper than 32 levels, expected fewer");
    free(text);
}
END_TEST

/* [a,a,…]: n scalars and the list itself. */
static char *many(size_t n)
{
    char *text = calloc(1, 2 * n + 3);
    char *c = text;
    *c++ = '[';
    for (size_t i = 0; i < n; i++) {
        *c++ = 'a';
        *c++ = i % 100 == 99 ? '\n' : ' ';
        c[-1] = ',';
    }
    *c = ']';
    return text;
}

START_TEST(nodes_and_bytes_are_limited)
{
    char *text = many(99999);
    dlab_yaml *y = good(text);
    ck_assert_uint_eq(dlab_yaml_root(y)->n, 99999);
    dlab_yaml_destroy(y);
    free(text);
    text = many(100000);
    dlab_error err = {0};
    ck_assert_int_eq(dlab_yaml_parse("x.yaml", text, strlen(text), &y, &err), DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "more than 100000 values, expected fewer"));
    free(text);
    const size_t n = ((size_t)4 << 20) + 1;
    text = malloc(n);
    memset(text, '#', n);
    bad_bytes(text, n, "x.yaml: 4194305 bytes, expected at most 4194304");
    free(text);
}
END_TEST

START_TEST(a_file_is_read_under_its_path)
{
    char path[] = "/tmp/dlab yaml XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a: 1\na: 2\n", 10), 10);
    close(fd);
    dlab_error err = {0};
    dlab_yaml *y;
    ck_assert_int_eq(dlab_yaml_read(path, &y, &err), DLAB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    ck_assert_ptr_nonnull(strstr(err.msg, ":2:1: key 'a' is written twice"));
    unlink(path);
    ck_assert_int_eq(dlab_yaml_read(path, &y, &err), DLAB_EIO);
    ck_assert_ptr_null(y);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("yaml");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_document_becomes_a_tree_with_positions);
    tcase_add_test(t, the_text_and_name_are_kept);
    tcase_add_test(t, empty_values_are_empty_words);
    tcase_add_test(t, duplicate_keys_are_refused_with_both_places);
    tcase_add_test(t, anchors_aliases_tags_and_merges_are_refused_by_name);
    tcase_add_test(t, keys_are_words);
    tcase_add_test(t, one_document);
    tcase_add_test(t, broken_yaml_names_line_and_column);
    tcase_add_test(t, depth_is_limited);
    tcase_add_test(t, nodes_and_bytes_are_limited);
    tcase_add_test(t, a_file_is_read_under_its_path);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

START_TEST(missing_figures_are_null)
{
    json_t *a = json_pack("[o, o, o, o]", dlab_json_number(0.1), dlab_json_number(NAN), dlab_json_number(INFINITY),
                          dlab_json_number(-0.5));
    char *text = dlab_json_dump(a, 0);
    ck_assert_str_eq(text, "[0.10000000000000001,null,null,-0.5]");
    free(text);
    json_decref(a);
}
END_TEST

START_TEST(keys_keep_their_order)
{
    json_t *o = json_pack("{s:i, s:i, s:i}", "z", 1, "a", 2, "m", 3);
    char *text = dlab_json_dump(o, 0);
    ck_assert_str_eq(text, "{\"z\":1,\"a\":2,\"m\":3}");
    free(text);
    text = dlab_json_dump(o, 2);
    ck_assert_str_eq(text, "{\n  \"z\": 1,\n  \"a\": 2,\n  \"m\": 3\n}");
    free(text);
    json_decref(o);
}
END_TEST

START_TEST(doubles_survive_the_round_trip)
{
    const double v = 21.548468123456789;
    json_t *a = json_pack("[o]", dlab_json_number(v)), *back;
    char *text = dlab_json_dump(a, 0);
    ck_assert_int_eq(dlab_json_parse("x", text, strlen(text), &back, NULL), DLAB_OK);
    ck_assert_double_eq(json_real_value(json_array_get(back, 0)), v);
    free(text);
    json_decref(a);
    json_decref(back);
}
END_TEST

static void bad(const char *text, const char *start)
{
    dlab_error err = {0};
    json_t *j = (json_t *)&err;
    ck_assert_int_eq(dlab_json_parse("in.json", text, strlen(text), &j, &err), DLAB_EFORMAT);
    ck_assert_ptr_null(j);
    ck_assert_msg(strncmp(err.msg, start, strlen(start)) == 0, "%s", err.msg);
    ck_assert_ptr_null(strchr(err.msg, '\n'));
}

START_TEST(errors_have_a_place_and_one_line)
{
    bad("{\"a\": 1,\n \"b\" 2}", "in.json:2:6: not valid JSON: ");
    bad("{\"a\": 1, \"a\": 2}", "in.json:1:12: not valid JSON: duplicate object key");
    bad("{\"a\": \"line\nbreak\"}", "in.json:1:");
    bad("{\"a\": NaN}", "in.json:1:");
    bad("{} {}", "in.json:1:");
    bad("", "in.json:1:0: not valid JSON: ");
    bad("{\"a\": \"b\\u0000\"}", "in.json:1:15: a string holds a NUL character");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json");
    TCase *t = tcase_create("all");
    tcase_add_test(t, missing_figures_are_null);
    tcase_add_test(t, keys_keep_their_order);
    tcase_add_test(t, doubles_survive_the_round_trip);
    tcase_add_test(t, errors_have_a_place_and_one_line);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

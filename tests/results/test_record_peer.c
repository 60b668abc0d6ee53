/* A record keeps what a peer measured, and a record without one has no trace of it. */
#include <limits.h>
#include <unistd.h>

#include "tests/results/synthetic.h"

static char path[PATH_MAX];

static void make_path(void)
{
    snprintf(path, sizeof path, "/tmp/dlab record peer %ld.h5", (long)getpid());
    unlink(path);
}

static void remove_path(void) { unlink(path); }

static void fill(dlab_record *r)
{
    const dlab_peer_pair pairs[] = {{0, 0, 0, 210.5, 100.25, 1e9, 2.1e9}, {0, 1, 1, 209, 101, 1.01e9, 2.09e9}};
    const dlab_peer_point measured = {.point = 0,
                                      .flash = 0,
                                      .status = "ok",
                                      .type_k = "q8_0",
                                      .type_v = "f16",
                                      .ratio = 2.08,
                                      .low = 2.01,
                                      .high = 2.16};
    const dlab_peer_point missing = {.point = 1,
                                     .flash = -1,
                                     .status = "skipped",
                                     .reason = "llama-bench has no -npl",
                                     .ratio = NAN,
                                     .low = NAN,
                                     .high = NAN};
    dlab_record_init(r);
    add_point(r, (const char *[]){"batch.size", "1", NULL});
    add_point(r, (const char *[]){"batch.size", "2", NULL});
    ck_assert_int_eq(dlab_settings_set(&r->peer.about, "kind", "llama-bench", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->peer.about, "path", "/opt/a peer/llama-bench", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->peer.about, "model", "model \"Q4_0\".gguf", NULL), DLAB_OK);
    ck_assert_int_eq(dlab_settings_set(&r->peer.about, "build", "0c1e570 (6123), CPU", NULL), DLAB_OK);
    for (size_t i = 0; i < 2; i++) ck_assert_int_eq(dlab_peer_result_add_pair(&r->peer, &pairs[i], NULL), DLAB_OK);
    ck_assert_int_eq(dlab_peer_result_add_point(&r->peer, &measured, NULL), DLAB_OK);
    ck_assert_int_eq(dlab_peer_result_add_point(&r->peer, &missing, NULL), DLAB_OK);
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void same_peer(const dlab_peer_result *a, const dlab_peer_result *b)
{
    ck_assert_uint_eq(a->about.n, b->about.n);
    for (size_t i = 0; i < a->about.n; i++)
        ck_assert_str_eq(a->about.items[i].value, dlab_settings_get(&b->about, a->about.items[i].key));
    ck_assert_uint_eq(a->n_pairs, b->n_pairs);
    for (size_t i = 0; i < a->n_pairs; i++) {
        const dlab_peer_pair *p = &a->pairs[i], *q = &b->pairs[i];
        ck_assert(p->point == q->point && p->pair == q->pair && p->peer_first == q->peer_first);
        ck_assert(p->ours_rate == q->ours_rate && p->peer_rate == q->peer_rate);
        ck_assert(p->ours_ns == q->ours_ns && p->peer_ns == q->peer_ns);
    }
    ck_assert_uint_eq(a->n_points, b->n_points);
    for (size_t i = 0; i < a->n_points; i++) {
        const dlab_peer_point *p = &a->points[i], *q = &b->points[i];
        ck_assert(p->point == q->point && p->flash == q->flash);
        ck_assert_str_eq(p->status, q->status);
        ck_assert_str_eq(p->reason, q->reason);
        ck_assert_str_eq(p->type_k, q->type_k);
        ck_assert_str_eq(p->type_v, q->type_v);
        ck_assert(same_number(p->ratio, q->ratio) && same_number(p->low, q->low) && same_number(p->high, q->high));
    }
}

START_TEST(what_the_peer_measured_comes_back)
{
    dlab_record r, back;
    dlab_error err = {0};
    fill(&r);
    ck_assert_int_eq(dlab_record_finish(path, &r, &err), DLAB_OK);
    ck_assert_msg(dlab_record_read(path, &back, &err) == DLAB_OK, "%s", err.msg);
    same_peer(&r.peer, &back.peer);
    ck_assert_str_eq(dlab_peer_result_find(&back.peer, 1)->reason, "llama-bench has no -npl");
    ck_assert_ptr_null(dlab_peer_result_find(&back.peer, 2));
    dlab_record_free(&r);
    dlab_record_free(&back);
}
END_TEST

START_TEST(without_a_peer_there_is_none)
{
    dlab_record r, back;
    dlab_error err = {0};
    dlab_record_init(&r);
    add_point(&r, (const char *[]){"batch.size", "1", NULL});
    ck_assert_int_eq(dlab_record_finish(path, &r, &err), DLAB_OK);
    ck_assert_msg(dlab_record_read(path, &back, &err) == DLAB_OK, "%s", err.msg);
    ck_assert(back.peer.n_points == 0 && back.peer.n_pairs == 0 && back.peer.about.n == 0);
    dlab_record_free(&r);
    dlab_record_free(&back);
}
END_TEST

/* A file made to do harm: rows of points that the record does not have. */
START_TEST(rows_of_no_point_are_damage)
{
    for (int which = 0; which < 4; which++) {
        dlab_record r, back;
        dlab_error err = {0};
        fill(&r);
        if (which < 2)
            r.peer.pairs[1].point = which ? 2 : -1;
        else
            r.peer.points[1].point = which == 2 ? 2 : INT32_MIN;
        ck_assert_int_eq(dlab_record_finish(path, &r, &err), DLAB_OK);
        ck_assert_int_eq(dlab_record_read(path, &back, &err), DLAB_EFORMAT);
        ck_assert_ptr_nonnull(strstr(err.msg, "of 2"));
        ck_assert_ptr_null(strchr(err.msg, '\n'));
        dlab_record_free(&r);
    }
}
END_TEST

/* What a status or a way of attention cannot be. */
START_TEST(a_point_that_cannot_be_is_damage)
{
    for (int which = 0; which < 4; which++) {
        dlab_record r, back;
        dlab_error err = {0};
        fill(&r);
        if (which < 2)
            snprintf(r.peer.points[0].status, sizeof r.peer.points[0].status, "%s", which ? "o\xff" : "");
        else
            r.peer.points[0].flash = which == 2 ? 2 : -2;
        ck_assert_int_eq(dlab_record_finish(path, &r, &err), DLAB_OK);
        ck_assert_int_eq(dlab_record_read(path, &back, &err), DLAB_EFORMAT);
        ck_assert_msg(strstr(err.msg, which < 2 ? "status" : "attention") != NULL, "%s", err.msg);
        dlab_record_free(&r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("record_peer");
    TCase *c = tcase_create("record_peer");
    tcase_add_checked_fixture(c, make_path, remove_path);
    tcase_add_test(c, what_the_peer_measured_comes_back);
    tcase_add_test(c, without_a_peer_there_is_none);
    tcase_add_test(c, rows_of_no_point_are_damage);
    tcase_add_test(c, a_point_that_cannot_be_is_damage);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

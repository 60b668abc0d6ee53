/* The prefix cache of the paged store: what is found, what is not mistaken for it, what is evicted first. Each step of each
 * test is followed by the check of all books. */
#include "paged_lab.h"

START_TEST(a_prefix_is_found_in_whole_blocks)
{
    for (int64_t n = 3 * BLOCK - 1; n <= 3 * BLOCK + 1; n++) {
        lab l = make(16, true);
        start(&l);
        leave(&l, 0, 0, 4 * BLOCK + 2);
        ck_assert_int_eq(cached_blocks(&l), 4); /* the part of a block went back */
        ck_assert_int_eq(open_seq(&l, 0, text(0, 0), n), n / BLOCK * BLOCK);
        expect(&l, 0, text(0, 0), n / BLOCK * BLOCK);
        end(&l);
    }
}
END_TEST

START_TEST(a_prefix_ends_where_texts_part)
{
    lab l = make(16, true);
    start(&l);
    leave(&l, 0, 0, 4 * BLOCK);
    leave(&l, 1, 2 * BLOCK + 1, 4 * BLOCK);
    int32_t mixed[4 * BLOCK]; /* begins otherwise, and goes on as a text does */
    memcpy(mixed, text(0, 0), sizeof mixed);
    mixed[0] = 5;
    ck_assert_int_eq(open_seq(&l, 0, text(2, 2 * BLOCK + 5), 4 * BLOCK), 2 * BLOCK);
    ck_assert_int_eq(open_seq(&l, 1, mixed, 4 * BLOCK), 0);
    ck_assert_int_eq(open_seq(&l, 2, text(1, 2 * BLOCK + 1), 4 * BLOCK), 4 * BLOCK);
    expect(&l, 2, text(1, 2 * BLOCK + 1), 4 * BLOCK);
    end(&l);
}
END_TEST

START_TEST(without_the_prefix_cache_nothing_stays)
{
    lab l = make(8, false);
    start(&l);
    leave(&l, 0, 0, 4 * BLOCK);
    ck_assert_int_eq(free_blocks(&l), 8);
    ck_assert_int_eq(open_seq(&l, 0, text(0, 0), 4 * BLOCK), 0);
    end(&l);
}
END_TEST

START_TEST(live_sequences_share_their_prefix)
{
    lab l = make(16, true);
    start(&l);
    open_seq(&l, 0, text(0, 0), 2 * BLOCK + 1);
    write_seq(&l, 0, text(0, 0), 0, 2 * BLOCK + 1);
    ck_assert_int_eq(open_seq(&l, 1, text(1, 2 * BLOCK), 3 * BLOCK), 0);
    ck_assert_int_eq(open_seq(&l, 2, text(0, 0), 3 * BLOCK), 2 * BLOCK);
    ck_assert_int_eq(live_blocks(&l), 3);
    ck_assert_int_eq(stats(&l).shared_bytes, 2 * BLOCK_BYTES);
    write_seq(&l, 2, text(0, 0), 2 * BLOCK, 3 * BLOCK);
    ck_assert_int_eq(stats(&l).n_copies, 0);
    close_seq(&l, 0);
    expect(&l, 2, text(0, 0), 3 * BLOCK);
    end(&l);
}
END_TEST

START_TEST(bug_10_of_a_prompt_that_is_cached_whole_the_last_token_is_computed_but_not_written)
{
    lab l = make(8, true);
    start(&l);
    for (int round = 0; round < 3; round++) {
        int64_t cached = open_seq(&l, 0, text(0, 0), 3 * BLOCK);
        ck_assert_int_eq(cached, round ? 3 * BLOCK : 0);
        if (round) {
            ck_assert_int_eq(extend(&l, 0, 3 * BLOCK), DLAB_OK);
            dlab_desc_row row = {.k_slot = 1, .v_slot = 1};
            ops()->place(l.s, 0, 3 * BLOCK - 1, &row);
            ck_assert_int_eq(row.k_slot, -1);
            ck_assert_int_eq(row.v_slot, -1);
            ops()->commit(l.s, 0, text(0, 0), 3 * BLOCK);
            check(&l);
        }
        write_seq(&l, 0, text(0, 0), cached, 3 * BLOCK + 2);
        expect(&l, 0, text(0, 0), 3 * BLOCK + 2);
        ck_assert_int_eq(stats(&l).n_copies, 0);
        close_seq(&l, 0);
        ck_assert_int_eq(cached_blocks(&l), 3);
    }
    end(&l);
}
END_TEST

START_TEST(bug_11_a_block_that_was_used_again_is_not_found_as_what_it_was)
{
    lab l = make(4, true);
    start(&l);
    leave(&l, 0, 0, 4 * BLOCK);
    leave(&l, 1, 0, 4 * BLOCK); /* takes all blocks */
    ck_assert_int_eq(stats(&l).n_evictions, 4);
    ck_assert_int_eq(open_seq(&l, 0, text(0, 0), 4 * BLOCK), 0);
    ck_assert_int_eq(open_seq(&l, 1, text(1, 0), 4 * BLOCK), 4 * BLOCK);
    expect(&l, 1, text(1, 0), 4 * BLOCK);
    end(&l);
}
END_TEST

static uint64_t constant(uint64_t prefix, const int32_t *ids, size_t n)
{
    (void)prefix;
    (void)ids;
    return n ? 7 : 0;
}

/* The second block of a text is still cached when the block of its first one holds another text: same hash, same tokens, same
 * block in front, and yet another prefix. */
START_TEST(bug_11_nor_is_what_followed_it)
{
    for (int same_hash = 0; same_hash < 2; same_hash++) {
        lab l = make(4, true);
        l.cfg.hash = same_hash ? constant : NULL;
        start(&l);
        int32_t a[2 * BLOCK], b[2 * BLOCK];
        memcpy(a, text(0, 0), sizeof a);
        memcpy(b, a, sizeof b);
        b[0]++;
        open_seq(&l, 0, a, 2 * BLOCK);
        write_seq(&l, 0, a, 0, 2 * BLOCK);
        dlab_kv_paged *s = (dlab_kv_paged *)l.s;
        int64_t first = s->tables[0], second = s->tables[1];
        dlab_block_pool_hold(&s->pool, second); /* so that the first one alone can be evicted */
        ops()->close(l.s, 0);
        int64_t n_cached = 0;
        OK(ops()->open(l.s, 2, NULL, 0, &n_cached, err));
        OK(ops()->extend(l.s, 2, 2 * BLOCK, 0, err));
        OK(ops()->open(l.s, 3, b, 2 * BLOCK, &n_cached, err));
        OK(ops()->extend(l.s, 3, BLOCK, 0, err));
        ck_assert_int_eq(s->n_evictions, 1);
        ck_assert_int_eq(s->tables[3 * s->max_blocks], first);
        ops()->commit(l.s, 3, b, BLOCK);
        dlab_block_pool_release(&s->pool, second);
        check(&l);
        ck_assert_int_eq(cached_blocks(&l), 1);
        ck_assert_int_eq(open_seq(&l, 0, b, 2 * BLOCK), BLOCK);
        end(&l);
    }
}
END_TEST

START_TEST(bug_16_what_a_hit_holds_is_what_a_miss_computes)
{
    lab l = make(16, true);
    start(&l);
    leave(&l, 0, 0, 3 * BLOCK + 1);
    int64_t cached = open_seq(&l, 0, text(0, 0), 4 * BLOCK);
    ck_assert_int_eq(cached, 3 * BLOCK);
    write_seq(&l, 0, text(0, 0), cached, 4 * BLOCK); /* positions go on where the hit ends */
    l.cfg.prefix_cache = false;
    lab miss = make(16, false);
    start(&miss);
    open_seq(&miss, 0, text(0, 0), 4 * BLOCK);
    write_seq(&miss, 0, text(0, 0), 0, 4 * BLOCK);
    for (int64_t pos = 0; pos < 4 * BLOCK; pos++) ck_assert_float_eq(held(&l, 0, pos), held(&miss, 0, pos));
    end(&l);
    end(&miss);
}
END_TEST

START_TEST(bug_17_equal_hashes_do_not_make_equal_texts)
{
    lab l = make(16, true);
    l.cfg.hash = constant;
    start(&l);
    leave(&l, 0, 0, 3 * BLOCK);
    leave(&l, 1, 2 * BLOCK, 3 * BLOCK);
    ck_assert_int_eq(cached_blocks(&l), 6); /* 0 … 2·BLOCK − 1 are another text than text 0 from its begin */
    ck_assert_int_eq(open_seq(&l, 0, text(0, 0), 3 * BLOCK), 3 * BLOCK);
    expect(&l, 0, text(0, 0), 3 * BLOCK);
    ck_assert_int_eq(open_seq(&l, 1, text(1, 2 * BLOCK), 3 * BLOCK), 3 * BLOCK);
    expect(&l, 1, text(1, 2 * BLOCK), 3 * BLOCK);
    ck_assert_int_eq(open_seq(&l, 2, text(2, 0), 3 * BLOCK), 0);
    end(&l);
}
END_TEST

START_TEST(what_a_fork_adds_is_found_behind_what_it_shares)
{
    lab l = make(16, true);
    start(&l);
    open_seq(&l, 0, text(0, 2 * BLOCK), 2 * BLOCK);
    write_seq(&l, 0, text(0, 2 * BLOCK), 0, 2 * BLOCK);
    fork_seq(&l, 0, 1, 2 * BLOCK);
    write_seq(&l, 1, text(1, 2 * BLOCK), 2 * BLOCK, 4 * BLOCK);
    ck_assert_int_eq(open_seq(&l, 2, text(1, 2 * BLOCK), 4 * BLOCK), 4 * BLOCK);
    expect(&l, 2, text(1, 2 * BLOCK), 4 * BLOCK);
    end(&l);
}
END_TEST

START_TEST(of_two_equal_blocks_the_first_is_found_and_the_chain_goes_on)
{
    lab l = make(16, true);
    start(&l);
    open_seq(&l, 0, text(0, 0), 4 * BLOCK);
    open_seq(&l, 1, text(0, 0), 4 * BLOCK); /* before the other has anything */
    write_seq(&l, 0, text(0, 0), 0, 2 * BLOCK);
    write_seq(&l, 1, text(0, 0), 0, 4 * BLOCK);
    ck_assert_int_eq(live_blocks(&l), 6);
    ck_assert_int_eq(((dlab_kv_paged *)l.s)->index.n, 4);
    ck_assert_int_eq(open_seq(&l, 2, text(0, 0), 4 * BLOCK), 4 * BLOCK); /* two blocks of each */
    expect(&l, 2, text(0, 0), 4 * BLOCK);
    for (int i = 0; i < 3; i++) close_seq(&l, i);
    ck_assert_int_eq(cached_blocks(&l), 4);
    end(&l);
}
END_TEST

START_TEST(the_least_recently_used_goes_first_and_of_a_text_its_end)
{
    lab l = make(6, true);
    start(&l);
    leave(&l, 0, 0, 2 * BLOCK);
    leave(&l, 1, 0, 2 * BLOCK);
    leave(&l, 0, 0, 2 * BLOCK); /* used again: text 1 is the older one now */
    open_seq(&l, 0, NULL, 0);
    ck_assert_int_eq(extend(&l, 0, 3 * BLOCK), DLAB_OK); /* two free ones, and one evicted */
    ck_assert_int_eq(stats(&l).n_evictions, 1);
    ck_assert_int_eq(open_seq(&l, 1, text(1, 0), 2 * BLOCK), BLOCK);
    ck_assert_int_eq(open_seq(&l, 2, text(0, 0), 2 * BLOCK), 2 * BLOCK);
    ck_assert_int_eq(ops()->room(l.s), 0);
    ck_assert_int_eq(extend(&l, 0, 3 * BLOCK + 1), DLAB_EFULL); /* what is in use is not evicted */
    close_seq(&l, 2);
    ck_assert_int_eq(ops()->room(l.s), 2 * BLOCK);
    ck_assert_int_eq(extend(&l, 0, 3 * BLOCK + 1), DLAB_OK);
    end(&l);
}
END_TEST

START_TEST(a_reset_drops_what_is_cached_and_leaves_what_is_live)
{
    lab l = make(8, true);
    start(&l);
    open_seq(&l, 0, text(0, 0), 2 * BLOCK);
    write_seq(&l, 0, text(0, 0), 0, 2 * BLOCK);
    leave(&l, 1, 0, 3 * BLOCK);
    ops()->reset(l.s);
    check(&l);
    ck_assert_int_eq(cached_blocks(&l), 0);
    ck_assert_int_eq(open_seq(&l, 1, text(1, 0), 3 * BLOCK), 0);
    ck_assert_int_eq(open_seq(&l, 2, text(0, 0), 2 * BLOCK), 2 * BLOCK);
    expect(&l, 2, text(0, 0), 2 * BLOCK);
    end(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("paged prefix");
    TCase *t = tcase_create("prefix");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_prefix_is_found_in_whole_blocks);
    tcase_add_test(t, a_prefix_ends_where_texts_part);
    tcase_add_test(t, without_the_prefix_cache_nothing_stays);
    tcase_add_test(t, live_sequences_share_their_prefix);
    tcase_add_test(t, bug_10_of_a_prompt_that_is_cached_whole_the_last_token_is_computed_but_not_written);
    tcase_add_test(t, bug_11_a_block_that_was_used_again_is_not_found_as_what_it_was);
    tcase_add_test(t, bug_11_nor_is_what_followed_it);
    tcase_add_test(t, bug_16_what_a_hit_holds_is_what_a_miss_computes);
    tcase_add_test(t, bug_17_equal_hashes_do_not_make_equal_texts);
    tcase_add_test(t, what_a_fork_adds_is_found_behind_what_it_shares);
    tcase_add_test(t, of_two_equal_blocks_the_first_is_found_and_the_chain_goes_on);
    tcase_add_test(t, the_least_recently_used_goes_first_and_of_a_text_its_end);
    tcase_add_test(t, a_reset_drops_what_is_cached_and_leaves_what_is_live);
    suite_add_tcase(s, t);
    return run_suite(s);
}

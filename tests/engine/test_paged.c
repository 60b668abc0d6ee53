/* The paged store: blocks on demand, sharing by forks, copy-on-write, marks, and running out. Each step of each test is
 * followed by the check of all books. Its prefix cache: test_paged_prefix.c. What random walks can show: test_kv_content.c. */
#include "paged_lab.h"

/* ---- the pool ---- */

START_TEST(blocks_are_taken_on_demand)
{
    lab l = make(8, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    ck_assert_int_eq(live_blocks(&l), 0);
    static const struct {
        int64_t len, blocks;
    } want[] = {{1, 1}, {BLOCK - 1, 1}, {BLOCK, 1}, {BLOCK + 1, 2}, {3 * BLOCK, 3}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        write_seq(&l, 0, text(0, 0), i ? want[i - 1].len : 0, want[i].len);
        ck_assert_int_eq(live_blocks(&l), want[i].blocks);
        ck_assert_int_eq(ops()->room(l.s), (8 - want[i].blocks) * BLOCK);
    }
    expect(&l, 0, text(0, 0), 3 * BLOCK);
    ck_assert_int_eq(l.dev.copies, 0);
    close_seq(&l, 0);
    ck_assert_int_eq(free_blocks(&l), 8);
    end(&l);
}
END_TEST

START_TEST(a_pool_in_bytes_is_never_exceeded)
{
    for (int64_t over = -1; over <= 1; over++) {
        lab l = make(5, false);
        l.cfg.pool_bytes += over;
        start(&l);
        ck_assert_int_eq(stats(&l).pool_bytes, (over < 0 ? 5 : 6) * BLOCK_BYTES);
        ck_assert_int_eq(stats(&l).pool_bytes, l.dev.bytes);
        ck_assert_int_eq(ops()->bytes(&l.cfg), l.dev.bytes);
        ck_assert_int_eq(ops()->capacity(l.s), (over < 0 ? 4 : 5) * BLOCK);
        end(&l);
    }
}
END_TEST

START_TEST(a_pool_of_tails_and_blocks_is_never_exceeded)
{
    lab l = make(5, false);
    l.cfg.k = layout("kv.k", "int8", "channel", 3);
    l.cfg.v = layout("kv.v", "int8", "block", 0);
    int64_t tails = dlab_kv_tails_bytes(&l.cfg, LAYERS);
    ck_assert_int_gt(tails, 0);
    l.cfg.pool_bytes = tails + 10000;
    start(&l);
    ck_assert_int_eq(ops()->bytes(&l.cfg), l.dev.bytes);
    ck_assert_int_eq(stats(&l).pool_bytes, l.dev.bytes);
    ck_assert_int_le(l.dev.bytes, l.cfg.pool_bytes);
    ck_assert_int_gt(l.dev.bytes, l.cfg.pool_bytes - stats(&l).unusable_bytes);
    open_seq(&l, 0, NULL, 0);
    ck_assert_int_eq(stats(&l).reserved_bytes, tails / SEQS);
    end(&l);
}
END_TEST

START_TEST(without_a_size_every_sequence_has_its_longest)
{
    lab l = make(0, false);
    l.cfg.pool_bytes = 0;
    l.cfg.max_tokens = 3 * BLOCK + 1;
    start(&l);
    ck_assert_int_eq(l.dev.bytes, (1 + 4 * SEQS) * BLOCK_BYTES);
    ck_assert_int_eq(ops()->max_segs(&l.cfg), 4);
    for (int i = 0; i < SEQS; i++) {
        open_seq(&l, i, NULL, 0);
        ck_assert_int_eq(extend(&l, i, l.cfg.max_tokens), DLAB_OK);
    }
    ck_assert_int_eq(free_blocks(&l), 0);
    end(&l);
}
END_TEST

START_TEST(a_pool_without_a_block_is_refused_with_the_arithmetic)
{
    lab l = make(1, false);
    l.cfg.pool_bytes--;
    dlab_error err = {0};
    ck_assert_int_eq(create(&l, &err), DLAB_EIMPOSSIBLE);
    ck_assert_ptr_null(l.s);
    char need[32];
    snprintf(need, sizeof need, "needs %d", 2 * BLOCK_BYTES);
    ck_assert_msg(strstr(err.msg, need), "%s", err.msg);
    ck_assert_int_eq(l.dev.n_bufs, 0);
}
END_TEST

START_TEST(blocks_hold_whole_groups_or_are_refused)
{
    lab l = make(8, false);
    l.cfg.k = layout("kv.k", "int8", "channel", 0);
    l.cfg.block_tokens = BLOCK + 4;
    dlab_error err = {0};
    ck_assert_int_eq(create(&l, &err), DLAB_EIMPOSSIBLE);
    ck_assert_msg(strstr(err.msg, "12 tokens") && strstr(err.msg, "kv.block_size"), "%s", err.msg);
}
END_TEST

/* ---- running out ---- */

START_TEST(running_out_is_a_status_and_says_the_arithmetic)
{
    lab l = make(4, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    open_seq(&l, 1, NULL, 0);
    write_seq(&l, 0, text(0, 0), 0, 3 * BLOCK);
    dlab_error err = {0};
    ck_assert_int_eq(ops()->extend(l.s, 1, BLOCK + 1, 0, &err), DLAB_EFULL);
    ck_assert_msg(strstr(err.msg, "9 tokens take 2 blocks of 8") && strstr(err.msg, "of 4 blocks 1 are free"), "%s",
                  err.msg);
    ck_assert_ptr_null(strchr(err.msg, '\n'));
    end(&l);
}
END_TEST

START_TEST(bug_12_a_refused_extension_leaves_the_sequence_as_it_was)
{
    lab l = make(4, true);
    start(&l);
    open_seq(&l, 0, text(0, 2 * BLOCK - 3), 2 * BLOCK);
    write_seq(&l, 0, text(0, 2 * BLOCK - 3), 0, 2 * BLOCK);
    fork_seq(&l, 0, 1, 2 * BLOCK - 3);
    ck_assert_int_eq(extend(&l, 1, 4 * BLOCK), DLAB_EFULL); /* two blocks and a copy, of two free ones */
    ck_assert_int_eq(live_blocks(&l), 2);
    ck_assert_int_eq(stats(&l).n_copies, 0);
    expect(&l, 1, text(0, 2 * BLOCK - 3), 2 * BLOCK - 3);
    dlab_desc_row row;
    ops()->place(l.s, 1, 2 * BLOCK - 4, &row);
    ck_assert_int_eq(row.k_slot, -1); /* held, still */
    ck_assert_int_eq(extend(&l, 1, 3 * BLOCK), DLAB_OK);
    write_seq(&l, 1, text(1, 2 * BLOCK - 3), 2 * BLOCK - 3, 3 * BLOCK);
    expect(&l, 0, text(0, 2 * BLOCK - 3), 2 * BLOCK);
    expect(&l, 1, text(1, 2 * BLOCK - 3), 2 * BLOCK - 3);
    end(&l);
}
END_TEST

START_TEST(bug_14_a_sequence_longer_than_the_pool_is_told_and_refused_at_once)
{
    lab l = make(3, true);
    start(&l);
    ck_assert_int_eq(ops()->capacity(l.s), 3 * BLOCK);
    open_seq(&l, 0, text(0, 0), TOKENS);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(extend(&l, 0, 3 * BLOCK + 1), DLAB_EFULL);
    write_seq(&l, 0, text(0, 0), 0, 3 * BLOCK);
    ck_assert_int_eq(extend(&l, 0, 3 * BLOCK + 1), DLAB_EFULL); /* its own blocks are not evicted under it */
    expect(&l, 0, text(0, 0), 3 * BLOCK);
    ck_assert_int_eq(stats(&l).n_evictions, 0);
    end(&l);
}
END_TEST

/* ---- large offsets, padding ---- */

START_TEST(bug_8_offsets_beyond_2_to_the_31_are_right)
{
    lab l = make(0, false);
    l.dev = kv_device_make(true);
    enum { BIG_BLOCK = 256, N = 4200 };
    l.cfg.block_tokens = BIG_BLOCK;
    l.cfg.n_layers = 1;
    l.cfg.n_kv_heads = 4;
    l.cfg.head_dim = 256; /* a block is 1 MiB of K and as much of V */
    l.cfg.max_seqs = 1;
    l.cfg.max_tokens = (int64_t)N * BIG_BLOCK;
    l.cfg.pool_bytes = 0;
    start(&l);
    open_seq(&l, 0, NULL, 0);
    ck_assert_int_eq(ops()->extend(l.s, 0, l.cfg.max_tokens, 0, NULL), DLAB_OK);
    dlab_desc_seg *segs = malloc(N * sizeof *segs);
    ck_assert_int_eq(ops()->segments(l.s, 0, l.cfg.max_tokens, segs), N);
    dlab_kv_view v;
    ops()->view(l.s, 0, &v);
    int64_t largest = 0;
    for (int64_t i = 0; i < N; i++) {
        dlab_desc_row row;
        ops()->place(l.s, 0, i * BIG_BLOCK + 7, &row);
        ck_assert_int_eq(row.k_slot, segs[i].k_off);
        ck_assert_int_eq(row.v_slot, segs[i].v_off);
        ck_assert_int_eq(row.index, 7);
        ck_assert_int_eq(row.k_slot % ((int64_t)1 << 20), 0);
        ck_assert_int_le(row.k_slot + ((int64_t)1 << 20), (int64_t)v.k.bytes);
        if (row.k_slot > largest) largest = row.k_slot;
        if (i % 100 == 0) memcpy((char *)v.k.base.buf.ptr + row.k_slot, &i, sizeof i);
    }
    ck_assert_int_eq(largest, (int64_t)N << 20);
    ck_assert_int_gt(largest, (int64_t)1 << 32);
    for (int64_t i = 0; i < N; i += 100) ck_assert_mem_eq((char *)v.k.base.buf.ptr + segs[i].k_off, &i, sizeof i);
    free(segs);
    ops()->destroy(l.s);
}
END_TEST

START_TEST(bug_9_padding_rows_look_at_a_block_that_nobody_writes)
{
    lab l = make(4, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    write_seq(&l, 0, text(0, 0), 0, BLOCK + 2);
    dlab_desc_seg segs[8];
    ck_assert_int_eq(ops()->segments(l.s, 0, 5 * BLOCK - 1, segs), 5);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(segs[i].tok_begin, i * BLOCK);
        ck_assert_int_eq(segs[i].n_tok, i < 4 ? BLOCK : BLOCK - 1);
        ck_assert_int_eq(segs[i].k_off == 0, i > 1);
        ck_assert_int_eq(segs[i].v_off == 0, i > 1);
    }
    open_seq(&l, 1, NULL, 0);
    write_seq(&l, 1, text(1, 0), 0, 2 * BLOCK); /* the pool is full */
    const dlab_kv_paged *s = (const dlab_kv_paged *)l.s;
    for (int64_t layer = 0; layer < LAYERS; layer++) {
        ck_assert(kv_is((char *)s->k.ptr + layer * (1 + s->pool.n) * s->k_block, 0, (size_t)s->k_block));
        ck_assert(kv_is((char *)s->v.ptr + layer * (1 + s->pool.n) * s->v_block, 0, (size_t)s->v_block));
    }
    end(&l);
}
END_TEST

/* ---- forks ---- */

START_TEST(a_fork_shares_all_blocks_and_copies_the_one_it_writes)
{
    for (int writer = 0; writer < 2; writer++) {
        lab l = make(8, false);
        start(&l);
        int other = 1 - writer;
        int64_t n = 2 * BLOCK + 3;
        open_seq(&l, 0, NULL, 0);
        write_seq(&l, 0, text(0, (int)n), 0, n);
        fork_seq(&l, 0, 1, n);
        ck_assert_int_eq(live_blocks(&l), 3);
        ck_assert_int_eq(stats(&l).shared_bytes, 3 * BLOCK_BYTES);
        ck_assert_int_eq(stats(&l).used_bytes, n * BLOCK_BYTES / BLOCK);
        write_seq(&l, writer, text(1, (int)n), n, n + 1);
        ck_assert_int_eq(stats(&l).n_copies, 1);
        ck_assert_int_eq(l.dev.copies, 2 * LAYERS);
        ck_assert_int_eq(stats(&l).shared_bytes, 2 * BLOCK_BYTES);
        write_seq(&l, other, text(2, (int)n), n, n + 1); /* it is alone with its block now */
        ck_assert_int_eq(stats(&l).n_copies, 1);
        expect(&l, writer, text(1, (int)n), n + 1);
        expect(&l, other, text(2, (int)n), n + 1);
        close_seq(&l, 0);
        expect(&l, 1, text(writer == 1 ? 1 : 2, (int)n), n + 1);
        end(&l);
    }
}
END_TEST

START_TEST(a_fork_at_a_block_boundary_copies_nothing)
{
    lab l = make(8, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    write_seq(&l, 0, text(0, 2 * BLOCK), 0, 2 * BLOCK);
    for (int i = 1; i < SEQS; i++) {
        fork_seq(&l, 0, i, 2 * BLOCK);
        write_seq(&l, i, text(i, 2 * BLOCK), 2 * BLOCK, 2 * BLOCK + 1);
    }
    ck_assert_int_eq(stats(&l).n_copies, 0);
    ck_assert_int_eq(live_blocks(&l), 2 + SEQS - 1);
    ck_assert_int_eq(stats(&l).shared_bytes, 2 * (SEQS - 1) * BLOCK_BYTES);
    for (int i = 1; i < SEQS; i++) expect(&l, i, text(i, 2 * BLOCK), 2 * BLOCK + 1);
    end(&l);
}
END_TEST

START_TEST(a_fork_may_take_less_than_its_parent_has)
{
    lab l = make(8, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    write_seq(&l, 0, text(0, BLOCK + 2), 0, 3 * BLOCK);
    fork_seq(&l, 0, 1, BLOCK + 2);
    ck_assert_int_eq(stats(&l).shared_bytes, 2 * BLOCK_BYTES);
    ck_assert_int_eq(stats(&l).used_bytes, 3 * BLOCK_BYTES); /* the parent has all of the block that both hold */
    write_seq(&l, 1, text(1, BLOCK + 2), BLOCK + 2, 3 * BLOCK);
    expect(&l, 0, text(0, BLOCK + 2), 3 * BLOCK);
    expect(&l, 1, text(1, BLOCK + 2), 3 * BLOCK);
    end(&l);
}
END_TEST

START_TEST(a_copy_that_the_device_refuses_leaves_both_as_they_were)
{
    lab l = make(8, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    write_seq(&l, 0, text(0, BLOCK + 3), 0, BLOCK + 3);
    fork_seq(&l, 0, 1, BLOCK + 3);
    l.dev.refuse_copies = true;
    ck_assert_int_eq(extend(&l, 1, BLOCK + 4), DLAB_EIO);
    ck_assert_int_eq(live_blocks(&l), 2);
    expect(&l, 1, text(0, BLOCK + 3), BLOCK + 3);
    l.dev.refuse_copies = false;
    write_seq(&l, 1, text(1, BLOCK + 3), BLOCK + 3, BLOCK + 4);
    expect(&l, 0, text(0, BLOCK + 3), BLOCK + 3);
    end(&l);
}
END_TEST

START_TEST(a_block_whose_tokens_wait_in_tails_is_copied_before_they_are_sealed)
{
    lab l = make(8, true);
    l.cfg.k = layout("kv.k", "int8", "channel", 2);
    l.cfg.v = layout("kv.v", "int8", "token", 0);
    l.cfg.pool_bytes = 0;
    start(&l);
    open_seq(&l, 0, text(0, 0), BLOCK + 1);
    ck_assert_int_eq(extend(&l, 0, BLOCK + 1), DLAB_OK);
    ops()->commit(l.s, 0, text(0, 0), BLOCK + 1);
    ck_assert_int_eq(((dlab_kv_paged *)l.s)->index.n, 0); /* K is in f16 still */
    fork_seq(&l, 0, 1, BLOCK + 1);
    ck_assert_int_eq(extend(&l, 1, BLOCK + 2), DLAB_OK); /* now the first block's K will be written */
    ck_assert_int_eq(stats(&l).n_copies, 2);
    ops()->commit(l.s, 1, text(0, 0), BLOCK + 2);
    check(&l);
    ck_assert_int_eq(((dlab_kv_paged *)l.s)->index.n, 1);
    ck_assert_int_eq(open_seq(&l, 2, text(0, 0), 2 * BLOCK), BLOCK);
    ops()->destroy(l.s);
}
END_TEST

/* ---- marks, ends ---- */

START_TEST(a_rewound_sequence_gives_later_blocks_back)
{
    lab l = make(8, true);
    start(&l);
    int64_t n = BLOCK + 4;
    open_seq(&l, 0, text(0, (int)n), n);
    write_seq(&l, 0, text(0, (int)n), 0, n);
    OK(ops()->mark(l.s, 0, err));
    for (int round = 1; round < 4; round++) {
        write_seq(&l, 0, text(round, (int)n), n, 3 * BLOCK + 1);
        ops()->retire(l.s, 0);
        OK(ops()->rewind(l.s, 0, err));
        check(&l);
        ck_assert_int_eq(live_blocks(&l), 2);
        ck_assert_int_eq(stats(&l).used_bytes, n * BLOCK_BYTES / BLOCK);
        expect(&l, 0, text(0, (int)n), n);
    }
    /* The block behind the mark was found as text 1's, 2's and 3's in turn; now it is none of them. */
    write_seq(&l, 0, text(0, (int)n), n, 2 * BLOCK);
    ck_assert_int_eq(open_seq(&l, 1, text(0, (int)n), 2 * BLOCK), 2 * BLOCK);
    expect(&l, 1, text(0, (int)n), 2 * BLOCK);
    ck_assert_int_eq(open_seq(&l, 2, text(3, (int)n), 3 * BLOCK), BLOCK);
    end(&l);
}
END_TEST

START_TEST(a_rewind_without_a_mark_is_an_error)
{
    lab l = make(8, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    OK(ops()->mark(l.s, 0, err));
    close_seq(&l, 0);
    open_seq(&l, 0, NULL, 0);
    dlab_error err = {0};
    ck_assert_int_eq(ops()->rewind(l.s, 0, &err), DLAB_EINTERNAL);
    ck_assert_msg(strstr(err.msg, "no mark"), "%s", err.msg);
    end(&l);
}
END_TEST

START_TEST(a_retired_sequence_holds_its_place_and_no_token)
{
    lab l = make(8, false);
    start(&l);
    open_seq(&l, 0, NULL, 0);
    write_seq(&l, 0, text(0, 0), 0, 2 * BLOCK);
    ck_assert_int_eq(stats(&l).used_bytes, 2 * BLOCK_BYTES);
    ops()->retire(l.s, 0);
    check(&l);
    ck_assert_int_eq(stats(&l).used_bytes, 0);
    ck_assert_int_eq(live_blocks(&l), 2);
    end(&l);
}
END_TEST

START_TEST(bug_15_no_block_is_given_twice_and_none_is_lost)
{
    lab l = make(12, true);
    start(&l);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++) {
            int t = (round + i) % 5;
            int64_t cached = open_seq(&l, i, text(t, BLOCK * (t % 3)), 3 * BLOCK + round % BLOCK);
            write_seq(&l, i, text(t, BLOCK * (t % 3)), cached, 3 * BLOCK + round % BLOCK);
        }
        for (int i = 0; i < 3; i++) expect(&l, i, text((round + i) % 5, BLOCK * ((round + i) % 5 % 3)), 3 * BLOCK);
        ck_assert_int_eq(live_blocks(&l) + cached_blocks(&l) + free_blocks(&l), 12);
        for (int i = 0; i < 3; i++) close_seq(&l, (i + round) % 3);
        ck_assert_int_eq(live_blocks(&l), 0);
    }
    ck_assert_int_gt(stats(&l).n_evictions, 0);
    end(&l);
}
END_TEST

START_TEST(the_check_of_the_books_finds_what_is_wrong)
{
    lab l = make(8, true);
    start(&l);
    leave(&l, 0, 0, 2 * BLOCK);
    open_seq(&l, 0, text(1, 0), BLOCK);
    write_seq(&l, 0, text(1, 0), 0, BLOCK);
    dlab_kv_paged *s = (dlab_kv_paged *)l.s;
    int64_t live = s->tables[0], cached = s->pool.oldest;
    struct {
        int64_t *field, wrong;
    } faults[] = {
        {&s->pool.blocks[live].refs, 2},
        {&s->pool.blocks[live].refs, 0},
        {&s->pool.blocks[cached].refs, 1},
        {&s->tables[0], cached},
        {&s->tables[0], 0},
        {&s->tables[0], 9},
        {&s->pool.n_free, 4},
        {&s->pool.n_cached, 3},
        {&s->pool.n_refs, 0},
        {&s->pool.free, live},
        {&s->pool.oldest, s->pool.newest},
        {&s->pool.newest, cached},
        {&s->index.n, 2},
        {&s->seqs[0].n_blocks, 0},
        {&s->seqs[0].live, BLOCK + 1},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int64_t was = *faults[i].field;
        ck_assert_int_ne(was, faults[i].wrong);
        *faults[i].field = faults[i].wrong;
        ck_assert_msg(dlab_kv_paged_check(l.s, NULL) == DLAB_EINTERNAL, "fault %zu is not found", i);
        *faults[i].field = was;
        check(&l);
    }
    s->pool.blocks[live].kept = false;
    ck_assert_int_eq(dlab_kv_paged_check(l.s, NULL), DLAB_EINTERNAL);
    s->pool.blocks[live].kept = true;
    end(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("paged");
    TCase *t = tcase_create("paged");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, blocks_are_taken_on_demand);
    tcase_add_test(t, a_pool_in_bytes_is_never_exceeded);
    tcase_add_test(t, a_pool_of_tails_and_blocks_is_never_exceeded);
    tcase_add_test(t, without_a_size_every_sequence_has_its_longest);
    tcase_add_test(t, a_pool_without_a_block_is_refused_with_the_arithmetic);
    tcase_add_test(t, blocks_hold_whole_groups_or_are_refused);
    tcase_add_test(t, running_out_is_a_status_and_says_the_arithmetic);
    tcase_add_test(t, bug_12_a_refused_extension_leaves_the_sequence_as_it_was);
    tcase_add_test(t, bug_14_a_sequence_longer_than_the_pool_is_told_and_refused_at_once);
    tcase_add_test(t, bug_8_offsets_beyond_2_to_the_31_are_right);
    tcase_add_test(t, bug_9_padding_rows_look_at_a_block_that_nobody_writes);
    tcase_add_test(t, a_fork_shares_all_blocks_and_copies_the_one_it_writes);
    tcase_add_test(t, a_fork_at_a_block_boundary_copies_nothing);
    tcase_add_test(t, a_fork_may_take_less_than_its_parent_has);
    tcase_add_test(t, a_copy_that_the_device_refuses_leaves_both_as_they_were);
    tcase_add_test(t, a_block_whose_tokens_wait_in_tails_is_copied_before_they_are_sealed);
    tcase_add_test(t, a_rewound_sequence_gives_later_blocks_back);
    tcase_add_test(t, a_rewind_without_a_mark_is_an_error);
    tcase_add_test(t, a_retired_sequence_holds_its_place_and_no_token);
    tcase_add_test(t, bug_15_no_block_is_given_twice_and_none_is_lost);
    tcase_add_test(t, the_check_of_the_books_finds_what_is_wrong);
    suite_add_tcase(s, t);
    return run_suite(s);
}

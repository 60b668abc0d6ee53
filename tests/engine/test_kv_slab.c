/* The stores that reserve whole sequences. */
#include "kv_lab.h"

/* ---- moving ---- */

static void both_step(lab *a, lab *b, int seq, int64_t n, uint64_t seed)
{
    step(a, seq, n, seed);
    step(b, seq, n, seed);
}

/* "defrag + q8_0 → garbage": scales lie behind the elements and must move on their own. */
START_TEST(bug_1_moving_a_quantized_cache_leaves_every_byte_as_it_was)
{
    int n = 1;
    for (int c = 0; c < n; c++) {
        dlab_kv_config cfg = config_at(c, &n);
        lab grown, fixed;
        lab_open(&grown, "contiguous", growing(cfg));
        lab_open(&fixed, "contiguous", cfg);
        for (int q = 0; q < SEQS; q++) open_seq(&grown, q), open_seq(&fixed, q);
        dlab_rng r;
        dlab_rng_seed(&r, 1000 + (uint64_t)c);
        for (int i = 0; i < 25; i++) {
            int q = (int)dlab_rng_below(&r, SEQS);
            int64_t rows = 1 + (int64_t)dlab_rng_below(&r, 9);
            if (grown.len[q] + rows > TOKENS) continue;
            both_step(&grown, &fixed, q, rows, dlab_rng_u64(&r));
            for (int p = 0; p < SEQS; p++) same_bytes(&grown, p, &fixed, p, grown.len[p], "moved");
        }
        for (int layer = 0; layer < LAYERS; layer++) check_values(&grown, 0, grown.len[0], layer);
        ck_assert_int_ge(stats_of(&grown).n_growths, 3);
        ck_assert_int_gt(stats_of(&grown).growth_ns, 0);
        ck_assert_int_eq(stats_of(&fixed).n_growths, 0);
        lab_close(&grown);
        lab_close(&fixed);
    }
}
END_TEST

START_TEST(a_store_that_is_reset_shrinks_and_keeps_what_is_live_or_marked)
{
    int n = 1;
    for (int c = 0; c < n; c++) {
        dlab_kv_config cfg = config_at(c, &n);
        lab grown, fixed;
        lab_open(&grown, "contiguous", growing(cfg));
        lab_open(&fixed, "contiguous", cfg);
        int64_t first = stats_of(&grown).pool_bytes;
        for (int q = 0; q < 2; q++) open_seq(&grown, q), open_seq(&fixed, q);
        both_step(&grown, &fixed, 0, 19, 1);
        OK(grown.s->ops->mark(grown.s, 0, err));
        OK(fixed.s->ops->mark(fixed.s, 0, err));
        both_step(&grown, &fixed, 0, 13, 2);
        grown.s->ops->retire(grown.s, 0);
        fixed.s->ops->retire(fixed.s, 0);
        both_step(&grown, &fixed, 1, 90, 3); /* moves the marked tokens, none of which is live now */
        int64_t full = stats_of(&grown).pool_bytes;
        grown.s->ops->close(grown.s, 1);
        grown.s->ops->reset(grown.s);
        int64_t shrunk = stats_of(&grown).pool_bytes;
        ck_assert_int_lt(first, shrunk); /* 19 tokens are to be kept */
        ck_assert_int_lt(shrunk, full);
        OK(grown.s->ops->rewind(grown.s, 0, err));
        OK(fixed.s->ops->rewind(fixed.s, 0, err));
        grown.len[0] = fixed.len[0] = 19;
        same_bytes(&grown, 0, &fixed, 0, 19, "reset");
        both_step(&grown, &fixed, 0, 11, 4);
        same_bytes(&grown, 0, &fixed, 0, 30, "reset and gone on");
        grown.s->ops->close(grown.s, 0);
        grown.s->ops->reset(grown.s);
        ck_assert_int_eq(stats_of(&grown).pool_bytes, first);
        lab_close(&grown);
        lab_close(&fixed);
    }
}
END_TEST

/* ---- rewinding and forking ---- */

/* Shifting or rewinding a quantized cache: scales and tails must go back as well. */
START_TEST(bug_2_a_quantized_cache_that_is_rewound_is_as_if_it_had_never_gone_on)
{
    static const int64_t prompts[] = {1, 7, 8, 13, 19, 24};
    int n = 1;
    for (int c = 0; c < n; c++) {
        dlab_kv_config cfg = config_at(c, &n);
        for (size_t p = 0; p < N_OF(prompts); p++) {
            lab rewound, straight;
            lab_open(&rewound, "contiguous", p % 2 ? growing(cfg) : cfg);
            lab_open(&straight, "contiguous", cfg);
            open_seq(&rewound, 1);
            open_seq(&straight, 1);
            both_step(&rewound, &straight, 1, prompts[p], 7);
            OK(rewound.s->ops->mark(rewound.s, 1, err));
            for (int again = 0; again < 2; again++) { /* a mark is good for more than once */
                step(&rewound, 1, again ? 1 : 17, 100 + (uint64_t)again);
                step(&rewound, 1, 1, 102);
                OK(rewound.s->ops->rewind(rewound.s, 1, err));
                rewound.len[1] = prompts[p];
                same_bytes(&rewound, 1, &straight, 1, prompts[p], "rewound");
            }
            both_step(&rewound, &straight, 1, 1, 8);
            both_step(&rewound, &straight, 1, 12, 9);
            same_bytes(&rewound, 1, &straight, 1, prompts[p] + 13, "rewound and gone on");
            for (int layer = 0; layer < LAYERS; layer++) check_values(&rewound, 1, rewound.len[1], layer);
            lab_close(&rewound);
            lab_close(&straight);
        }
    }
}
END_TEST

static void fork_seq(lab *l, int parent, int child, int64_t len)
{
    OK(l->s->ops->fork(l->s, parent, child, len, err));
    memcpy(l->ids[child], l->ids[parent], sizeof l->ids[child]);
    l->len[child] = len;
}

START_TEST(a_fork_is_a_copy_that_goes_its_own_way)
{
    int n = 1;
    for (int c = 0; c < n; c++) {
        dlab_kv_config cfg = config_at(c, &n);
        lab forked, alone;
        lab_open(&forked, "contiguous", cfg);
        lab_open(&alone, "contiguous", cfg);
        open_seq(&forked, 0);
        open_seq(&alone, 0);
        open_seq(&alone, 1);
        both_step(&forked, &alone, 0, 21, 1);
        step(&alone, 1, 21, 1);
        fork_seq(&forked, 0, 1, 21);
        same_bytes(&forked, 1, &alone, 0, 21, "forked");
        both_step(&forked, &alone, 0, 9, 2);
        both_step(&forked, &alone, 1, 14, 3);
        same_bytes(&forked, 0, &alone, 0, 30, "parent");
        same_bytes(&forked, 1, &alone, 1, 35, "child");
        forked.s->ops->close(forked.s, 0);
        same_bytes(&forked, 1, &alone, 1, 35, "orphan");
        lab_close(&forked);
        lab_close(&alone);
    }
}
END_TEST

START_TEST(a_fork_of_a_part_holds_that_part_and_never_half_a_group)
{
    int n = 1, refused = 0;
    for (int c = 0; c < n; c++) {
        dlab_kv_config cfg = config_at(c, &n);
        lab l;
        lab_open(&l, "contiguous", cfg);
        open_seq(&l, 0);
        step(&l, 0, 40, 1);
        fork_seq(&l, 0, 1, 16); /* two groups */
        same_bytes(&l, 1, &l, 0, 16, "a part");
        step(&l, 1, 20, 2);
        for (int layer = 0; layer < LAYERS; layer++) check_values(&l, 1, 36, layer);
        dlab_error why = {0};
        if (cfg.k.group > 1 || cfg.v.group > 1) {
            ck_assert_int_eq(l.s->ops->fork(l.s, 0, 2, 17, &why), DLAB_EIMPOSSIBLE);
            ck_assert_ptr_nonnull(strstr(why.msg, "groups of 8"));
            refused++;
        }
        fork_seq(&l, 0, 2, cfg.k.group > 1 || cfg.v.group > 1 ? 24 : 17);
        same_bytes(&l, 2, &l, 0, l.len[2], "another part");
        lab_close(&l);
    }
    ck_assert_int_gt(refused, 0);
    ck_assert_int_lt(refused, n);
}
END_TEST

/* ---- places ---- */

START_TEST(a_row_goes_to_its_sequence_and_a_held_token_is_not_written_again)
{
    lab l;
    lab_open(&l, "contiguous", f16_config());
    for (int q = 0; q < SEQS; q++) open_seq(&l, q);
    step(&l, 2, 5, 1);
    const int64_t region = (int64_t)TOKENS * DIM * 2;
    dlab_desc_row row = {0};
    l.s->ops->place(l.s, 2, 5, &row);
    ck_assert_int_eq(row.k_slot, 2 * HEADS * region);
    ck_assert_int_eq(row.v_slot, 2 * HEADS * region);
    ck_assert_int_eq(row.index, 5);
    l.s->ops->place(l.s, 2, 4, &row);
    ck_assert_int_eq(row.k_slot, -1);
    ck_assert_int_eq(row.v_slot, -1);
    dlab_desc_seg seg = {0};
    ck_assert_int_eq(l.s->ops->max_segs(&l.cfg), 1);
    ck_assert_int_eq(l.s->ops->segments(l.s, 2, 6, &seg), 1);
    ck_assert_int_eq(seg.k_off, 2 * HEADS * region);
    ck_assert_int_eq(seg.tok_begin, 0);
    ck_assert_int_eq(seg.n_tok, 6);
    dlab_kv_view kv;
    l.s->ops->view(l.s, 1, &kv);
    ck_assert_uint_eq(kv.k.base.off, (size_t)(SEQS * HEADS * region));
    ck_assert_int_eq(kv.k.head_stride, region);
    ck_assert_int_eq(kv.k.tail_cap, 0);
    dlab_desc_seq seq = {0};
    l.s->ops->tails(l.s, 2, 6, &seq); /* without a tail all is in the regions */
    ck_assert_int_eq(seq.k_sealed_from, 6);
    ck_assert_int_eq(seq.v_sealed, 6);
    dlab_error why = {0};
    ck_assert_int_eq(l.s->ops->rewind(l.s, 2, &why), DLAB_EINTERNAL);
    lab_close(&l);
}
END_TEST

START_TEST(none_keeps_one_layer_and_no_token)
{
    int n = 1;
    for (int c = 0; c < n; c++) {
        dlab_kv_config cfg = config_at(c, &n);
        lab none, cached;
        lab_open(&none, "none", cfg);
        lab_open(&cached, "contiguous", cfg);
        ck_assert_int_eq(stats_of(&none).pool_bytes * LAYERS, stats_of(&cached).pool_bytes);
        open_seq(&none, 0);
        step(&none, 0, 13, 1); /* reads each layer back before the next */
        step(&none, 0, 1, 2);
        dlab_kv_stats st = stats_of(&none);
        ck_assert_int_eq(st.used_bytes, 0);
        ck_assert_int_eq(st.reserved_bytes, st.pool_bytes / SEQS);
        dlab_desc_row row = {0};
        none.s->ops->place(none.s, 0, 3, &row);
        ck_assert_int_ge(row.k_slot, 0);
        dlab_desc_seq seq = {0};
        none.s->ops->tails(none.s, 0, 14, &seq);
        ck_assert_int_eq(seq.k_sealed_from, cfg.k.tail_cap ? 0 : 14);
        ck_assert_int_eq(seq.v_sealed_from, cfg.v.tail_cap ? 0 : 14);
        OK(none.s->ops->mark(none.s, 0, err));
        OK(none.s->ops->rewind(none.s, 0, err));
        fork_seq(&none, 0, 2, 14);
        step(&none, 2, 5, 3);
        lab_close(&none);
        lab_close(&cached);
    }
    ck_assert(!dlab_kv_store_find("none")->retains);
    ck_assert(dlab_kv_store_find("contiguous")->retains);
}
END_TEST

/* ---- sizes ---- */

START_TEST(the_bytes_that_a_store_announces_are_those_it_takes)
{
    static const char *const stores[] = {"none", "contiguous"};
    int n = 1;
    for (int c = 0; c < n; c++) {
        for (int v = 0; v < 4; v++) {
            dlab_kv_config cfg = config_at(c, &n);
            if (v & 1) cfg = growing(cfg);
            lab l;
            lab_open(&l, stores[v / 2], cfg);
            dlab_mem_stats mem;
            dlab_mem_get_stats(l.mem, &mem);
            ck_assert_int_eq(l.s->ops->bytes(&l.cfg), (int64_t)mem.pool[DLAB_POOL_KV].used_bytes);
            ck_assert_int_eq(l.s->ops->bytes(&l.cfg), stats_of(&l).pool_bytes);
            lab_close(&l);
        }
    }
}
END_TEST

START_TEST(stats_by_hand)
{
    /* K int8 in groups of 8 without a tail (ring of 8), V int4 with scales a token and a tail of 5 (ring of 6) */
    lab l;
    lab_open(&l, "contiguous", config_of(layout_of("kv.k", "int8", "block", 0), layout_of("kv.v", "int4", "token", 5)));
    const int64_t k_region = 104 * 40 + 13 * 4, v_region = 100 * 32 + 100 * 2 * 4; /* 100 tokens are 13 groups */
    const int64_t rings = 2 * (8 + 6) * 40 * 2;                                    /* and as much for the marks */
    const int64_t seq = LAYERS * HEADS * (k_region + v_region + rings);
    ck_assert_int_eq(stats_of(&l).pool_bytes, SEQS * seq);
    ck_assert_int_eq(stats_of(&l).reserved_bytes, 0);
    open_seq(&l, 0);
    open_seq(&l, 1);
    step(&l, 1, 21, 1);
    dlab_kv_stats st = stats_of(&l);
    ck_assert_int_eq(st.reserved_bytes, 2 * seq);
    /* K: 16 sealed with 2 scales, 5 in the ring; V: 16 sealed with 2 scales each, 5 in the ring */
    ck_assert_int_eq(st.used_bytes, LAYERS * HEADS * (16 * 40 + 2 * 4 + 5 * 80 + 16 * (32 + 8) + 5 * 80));
    ck_assert_int_eq(st.unusable_bytes, 0);
    l.s->ops->retire(l.s, 1);
    ck_assert_int_eq(stats_of(&l).used_bytes, 0);
    ck_assert_int_eq(stats_of(&l).reserved_bytes, 2 * seq);
    l.s->ops->close(l.s, 1);
    ck_assert_int_eq(stats_of(&l).reserved_bytes, seq);
    lab_close(&l);
}
END_TEST

START_TEST(a_fixed_store_in_a_pool_has_as_many_places_as_fit)
{
    dlab_kv_config cfg = f16_config();
    const int64_t seq = (int64_t)LAYERS * HEADS * TOKENS * DIM * 2 * 2;
    cfg.pool_bytes = 2 * seq + 1000;
    lab l;
    lab_open(&l, "contiguous", cfg);
    ck_assert_int_eq(l.s->ops->capacity(l.s), TOKENS);
    ck_assert_int_eq(stats_of(&l).pool_bytes, cfg.pool_bytes);
    ck_assert_int_eq(stats_of(&l).unusable_bytes, 1000);
    ck_assert_int_eq(l.s->ops->room(l.s), INT64_MAX);
    open_seq(&l, 2);
    open_seq(&l, 0);
    ck_assert_int_eq(l.s->ops->room(l.s), 0);
    step(&l, 2, TOKENS, 1);
    step(&l, 0, 7, 2);
    for (int layer = 0; layer < LAYERS; layer++) check_values(&l, 2, TOKENS, layer);
    dlab_error why = {0};
    int64_t cached = 0;
    ck_assert_int_eq(l.s->ops->open(l.s, 1, NULL, 0, &cached, &why), DLAB_EFULL);
    ck_assert_msg(strstr(why.msg, "all 2 places of 100 tokens") && strstr(why.msg, "kv.pool"), "%s", why.msg);
    ck_assert_int_eq(l.s->ops->fork(l.s, 0, 1, 7, NULL), DLAB_EFULL);
    ck_assert_int_eq(l.s->ops->extend(l.s, 2, TOKENS + 1, TOKENS + 1, &why), DLAB_EFULL);
    ck_assert_msg(strstr(why.msg, "101 tokens") && strstr(why.msg, "kv.max_tokens"), "%s", why.msg);
    l.s->ops->close(l.s, 2);
    open_seq(&l, 1);
    step(&l, 1, 9, 3);
    for (int layer = 0; layer < LAYERS; layer++) check_values(&l, 0, 7, layer);
    lab_close(&l);

    lab_prepare(&l, cfg, 0);
    l.cfg.pool_bytes = seq - 1;
    ck_assert_int_eq(dlab_kv_store_find("contiguous")->create(&l.cfg, &l.s, &why), DLAB_EIMPOSSIBLE);
    ck_assert_ptr_null(l.s);
    ck_assert_msg(strstr(why.msg, "kv.pool") && strstr(why.msg, "100 tokens"), "%s", why.msg);
    l.cfg.pool_bytes = 100 * seq; /* more than three sequences need: it takes no more than that */
    OK(dlab_kv_store_find("contiguous")->create(&l.cfg, &l.s, err));
    ck_assert_int_eq(stats_of(&l).pool_bytes, 3 * seq);
    ck_assert_int_eq(stats_of(&l).unusable_bytes, 0);
    lab_close(&l);
}
END_TEST

START_TEST(a_growing_store_stays_in_its_pool)
{
    dlab_kv_config cfg = growing(f16_config());
    const int64_t token = (int64_t)LAYERS * HEADS * DIM * 2 * 2;
    cfg.pool_bytes = SEQS * 20 * token + 50; /* 20 tokens each, a little short of 21 */
    lab l;
    lab_open(&l, "contiguous", cfg);
    for (int q = 0; q < SEQS; q++) {
        ck_assert_int_eq(l.s->ops->room(l.s), 20);
        open_seq(&l, q);
    }
    ck_assert_int_eq(l.s->ops->room(l.s), 0);
    ck_assert_int_eq(l.s->ops->capacity(l.s), 20);
    ck_assert_int_eq(stats_of(&l).pool_bytes, SEQS * 3 * token);
    dlab_mem_reset_peaks(l.mem);
    step(&l, 0, 5, 1); /* 3 → 6 */
    dlab_mem_stats mem;
    dlab_mem_get_stats(l.mem, &mem);
    ck_assert_int_eq(stats_of(&l).pool_bytes, SEQS * 6 * token);
    ck_assert_int_eq((int64_t)mem.pool[DLAB_POOL_KV].peak_bytes, SEQS * (3 + 6) * token); /* old and new at once */
    step(&l, 0, 15, 2); /* → 12, 24, of which 20 are in the pool; one move */
    ck_assert_int_eq(stats_of(&l).pool_bytes, SEQS * 20 * token);
    ck_assert_int_eq(stats_of(&l).n_growths, 2);
    dlab_error why = {0};
    ck_assert_int_eq(l.s->ops->extend(l.s, 0, 21, 21, &why), DLAB_EFULL);
    ck_assert_msg(strstr(why.msg, "21 tokens") && strstr(why.msg, "kv.pool"), "%s", why.msg);
    ck_assert_int_eq(l.s->ops->extend(l.s, 0, 20, 21, NULL), DLAB_EFULL); /* what padding looks at counts too */
    for (int layer = 0; layer < LAYERS; layer++) check_values(&l, 0, 20, layer);
    lab_close(&l);

    lab_prepare(&l, cfg, 0);
    l.cfg.pool_bytes = SEQS * token - 1;
    ck_assert_int_eq(dlab_kv_store_find("contiguous")->create(&l.cfg, &l.s, &why), DLAB_EIMPOSSIBLE);
    ck_assert_ptr_null(l.s);
    lab_close(&l);
}
END_TEST

START_TEST(a_growth_that_finds_no_memory_changes_nothing)
{
    dlab_kv_config cfg =
        growing(config_of(layout_of("kv.k", "int8", "channel", 0), layout_of("kv.v", "int4", "token", 5)));
    lab l;
    lab_prepare(&l, cfg, 0);
    dlab_mem_stats mem;
    dlab_mem_get_stats(l.mem, &mem);
    size_t others = mem.used_bytes;
    lab_close(&l);
    lab_prepare(&l, cfg, others + 80000);
    OK(dlab_kv_store_find("contiguous")->create(&l.cfg, &l.s, err));
    open_seq(&l, 0);
    step(&l, 0, 11, 1);
    int64_t pool = stats_of(&l).pool_bytes;
    dump before = dump_of(&l, 0, 11);
    dlab_error why = {0};
    ck_assert_int_eq(l.s->ops->extend(l.s, 0, TOKENS, TOKENS, &why), DLAB_EOOM);
    ck_assert_msg(strstr(why.msg, "growing from"), "%s", why.msg);
    dump after = dump_of(&l, 0, 11);
    ck_assert_uint_eq(before.n, after.n);
    ck_assert_mem_eq(before.bytes, after.bytes, before.n);
    ck_assert_int_eq(stats_of(&l).pool_bytes, pool);
    free(before.bytes);
    free(after.bytes);
    lab_close(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv_slab");
    TCase *t = tcase_create("slab");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, bug_1_moving_a_quantized_cache_leaves_every_byte_as_it_was);
    tcase_add_test(t, a_store_that_is_reset_shrinks_and_keeps_what_is_live_or_marked);
    tcase_add_test(t, bug_2_a_quantized_cache_that_is_rewound_is_as_if_it_had_never_gone_on);
    tcase_add_test(t, a_fork_is_a_copy_that_goes_its_own_way);
    tcase_add_test(t, a_fork_of_a_part_holds_that_part_and_never_half_a_group);
    tcase_add_test(t, a_row_goes_to_its_sequence_and_a_held_token_is_not_written_again);
    tcase_add_test(t, none_keeps_one_layer_and_no_token);
    tcase_add_test(t, the_bytes_that_a_store_announces_are_those_it_takes);
    tcase_add_test(t, stats_by_hand);
    tcase_add_test(t, a_fixed_store_in_a_pool_has_as_many_places_as_fit);
    tcase_add_test(t, a_growing_store_stays_in_its_pool);
    tcase_add_test(t, a_growth_that_finds_no_memory_changes_nothing);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

/* batch.preemption: swap. A sequence that was copied out and back goes on to the same bits, in every format, with scales that
 * tokens share and with tails, where computing it again may not; what has no room is computed again; nothing is left behind. */
#include "swap_lab.h"

enum { MAX_REQUESTS = 8, MAX_NEW = 48 };

typedef struct {
    int32_t ids[MAX_REQUESTS][MAX_NEW];
    uint64_t logits[MAX_REQUESTS][MAX_NEW]; /* a hash of each token's */
    int n[MAX_REQUESTS];
    int steps, preempted, out, in;
    int64_t swap_bytes;
} outcome;

static void submit(dlab_engine *e, int64_t id, const int32_t *prompt, int64_t n, int64_t max_new, int32_t samples)
{
    dlab_engine_request r = request_of(id, prompt, n, max_new);
    r.samples = samples;
    OK(dlab_engine_submit(e, &r, err));
}

static uint64_t hash_of(const float *row, int n)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

/* Of each token of the step, its logits: they are still where the head has left them. */
static void take_tokens(dlab_engine *e, const dlab_step *st, outcome *o)
{
    static float rows[8 * 1024];
    const int vocab = e->fwd.info->vocab;
    ck_assert_int_le((int64_t)st->n_tokens * vocab, (int64_t)N_OF(rows));
    ck_assert_int_eq(st->n_tokens, e->desc->n_logits);
    const size_t bytes = (size_t)st->n_tokens * (size_t)vocab * sizeof *rows;
    OK(e->fwd.dev->ops->download(e->fwd.dev, rows, (dlab_at){e->fwd.buf[DLAB_BUFFER_LOGITS], 0}, bytes, err));
    OK(e->fwd.dev->ops->sync(e->fwd.dev, err));
    for (int i = 0; i < st->n_tokens; i++) {
        const dlab_step_token *t = &st->tokens[i];
        ck_assert_int_eq(t->index, o->n[t->request]);
        o->ids[t->request][t->index] = t->token;
        o->logits[t->request][t->index] = hash_of(rows + i * vocab, vocab);
        o->n[t->request]++;
    }
}

static void step_once(dlab_engine *e, outcome *o)
{
    dlab_step st;
    dlab_mem_stats before, after;
    dlab_engine_memory(e, &before);
    OK(dlab_engine_step(e, &st, err));
    dlab_engine_memory(e, &after);
    if (st.growths == 0) ck_assert_uint_eq(before.n_allocs, after.n_allocs);
    ck_assert_int_gt(st.rows, 0);
    ck_assert_int_eq(st.kv.pool_bytes, st.kv.reserved_bytes + st.kv.cached_bytes + st.kv.free_bytes);
    ck_assert_int_eq(st.swap_bytes > 0, st.swapped_out + st.swapped_in > 0);
    ck_assert_int_eq(e->swap.n - e->swap.n_free, pieces_of_images(e));
    ck_assert_msg(++o->steps < 10000, "no end in sight");
    o->preempted += st.preempted;
    o->out += st.swapped_out;
    o->in += st.swapped_in;
    o->swap_bytes += st.swap_bytes;
    take_tokens(e, &st, o);
}

static outcome run_all(dlab_engine *e)
{
    outcome o = {0};
    while (dlab_engine_busy(e)) step_once(e, &o);
    check_left(e);
    return o;
}

static void assert_same(const outcome *want, const outcome *got, const char *what)
{
    for (int r = 0; r < MAX_REQUESTS; r++) {
        ck_assert_msg(want->n[r] == got->n[r], "%s: request %d has %d tokens, %d expected", what, r, got->n[r],
                      want->n[r]);
        for (int i = 0; i < want->n[r]; i++) {
            ck_assert_msg(want->logits[r][i] == got->logits[r][i], "%s: request %d: other logits at token %d", what, r,
                          i);
            ck_assert_msg(want->ids[r][i] == got->ids[r][i], "%s: request %d: other token %d", what, r, i);
        }
    }
}

/* Every way that K and V may lie in memory. */
static const char *const layouts[] = {
    "kv.k=f32 kv.v=f32",
    "kv.k=f16 kv.v=bf16",
    "kv.k=int8 kv.v=int8",
    "kv.k=int8 kv.v=int8 kv.k_scales=tensor kv.v_scales=tensor",
    "kv.k=int8 kv.v=int8 kv.k_scales=block kv.v_scales=block",
    "kv.k=int8 kv.v=int8 kv.k_scales=channel",
    "kv.k=int8 kv.v=f16 kv.k_tail=20",
    "kv.k=int8 kv.v=int8 kv.k_scales=channel kv.v_scales=block kv.k_tail=13 kv.v_tail=5",
    "kv.k=fp8 kv.v=fp8",
    "kv.k=fp8_e5m2 kv.v=fp8 kv.k_scales=tensor kv.v_tail=7",
    "kv.k=fp8 kv.v=fp8 kv.k_scales=tensor kv.v_scales=tensor",
    "kv.k=int4 kv.v=int4",
    "kv.k=int4 kv.v=int4 kv.rotation=hadamard kv.k_tail=16 kv.v_tail=16",
};

/* ---- a pool that runs out ---- */

static void submit_six(dlab_engine *e)
{
    for (int i = 0; i < 6; i++) submit(e, i, ids + 31 * i, 10 + 4 * i, 40 - i, 0);
}

START_TEST(swapped_sequences_go_on_to_the_same_bits)
{
    static const char *const modes[] = {"batch.mode=static", "batch.mode=continuous",
                                        "batch.mode=static batch.padding=skip kv.block_size=8"};
    dlab_model *m = tiny();
    for (size_t l = 0; l < N_OF(layouts); l++) {
        for (size_t k = 0; k < N_OF(modes); k++) {
            char sets[400], tight[480];
            snprintf(sets, sizeof sets, "compute=f32 batch.size=4 sample.temperature=2 kv.store=paged %s %s", modes[k],
                     layouts[l]);
            snprintf(tight, sizeof tight, "%s kv.pool=%s" SWAPPING, sets, k == 2 ? "17blocks" : "9blocks");
            dlab_engine *e = open_as_harness(m, sets, 4, 80, 30), *t = open_as_harness(m, tight, 4, 80, 30);
            submit_six(e);
            submit_six(t);
            const outcome want = run_all(e), got = run_all(t);
            assert_same(&want, &got, tight);
            ck_assert_int_eq(want.preempted + want.out, 0);
            ck_assert_int_gt(got.out, 0);
            ck_assert_int_le(got.out, got.preempted);
            ck_assert_int_eq(got.in, got.out);
            dlab_engine_destroy(e);
            dlab_engine_destroy(t);
        }
    }
    dlab_model_close(m);
}
END_TEST

/* Three samples share their prompt's blocks; each comes back with blocks of its own. */
START_TEST(swapped_samples_go_on_to_the_same_bits)
{
    static const char *const pools[] = {"64blocks", "10blocks" SWAPPING, "8blocks" SWAPPING, "7blocks" SWAPPING};
    dlab_model *m = tiny();
    for (size_t l = 0; l < N_OF(layouts); l++) {
        outcome want = {0};
        int out = 0;
        for (size_t p = 0; p < N_OF(pools); p++) {
            char sets[480];
            snprintf(sets, sizeof sets, "compute=f32 batch.size=4 kv.store=paged sample.temperature=1 %s kv.pool=%s",
                     layouts[l], pools[p]);
            dlab_engine *e = open_as_harness(m, sets, 4, 80, 40);
            submit(e, 0, ids, 33, 40, 3);
            submit(e, 3, ids + 50, 20, 40, 1);
            const outcome got = run_all(e);
            if (p == 0) want = got;
            assert_same(&want, &got, sets);
            out += got.out;
            dlab_engine_destroy(e);
        }
        ck_assert_int_gt(out, 2);
    }
    dlab_model_close(m);
}
END_TEST

/* What others find in the cache meanwhile, and what is evicted, changes nothing. */
START_TEST(swapping_beside_a_prefix_cache)
{
    static const char *const kinds[] = {"kv.k=f32 kv.v=f32", "kv.k=int8 kv.v=int8", "kv.k=int4 kv.v=fp8"};
    static const char *const pools[] = {"64blocks", "9blocks" SWAPPING, "11blocks" SWAPPING};
    dlab_model *m = tiny();
    for (size_t k = 0; k < N_OF(kinds); k++) {
        outcome want[2];
        for (size_t p = 0; p < N_OF(pools); p++) {
            char sets[400];
            snprintf(sets, sizeof sets, "compute=f32 batch.size=4 kv.store=paged kv.prefix_cache=on %s kv.pool=%s",
                     kinds[k], pools[p]);
            dlab_engine *e = open_as_harness(m, sets, 4, 80, 40);
            int out = 0;
            for (int round = 0; round < 2; round++) {
                for (int i = 0; i < 6; i++) submit(e, i, ids + (i % 2 ? 0 : 3 * i), 16 + 4 * i, 40, 0);
                const outcome got = run_all(e);
                if (p == 0) want[round] = got;
                assert_same(&want[round], &got, sets);
                out += got.out;
            }
            if (p > 0) ck_assert_int_gt(out, 0);
            dlab_engine_destroy(e);
        }
    }
    dlab_model_close(m);
}
END_TEST

START_TEST(what_has_no_room_is_computed_again)
{
    static const char *const areas[] = {" kv.swap=8KiB", " kv.swap=16KiB", " kv.swap=32KiB", " kv.swap=1MiB"};
    dlab_model *m = tiny();
    dlab_engine *e = open_as_harness(m, F32 "batch.size=4 kv.store=paged sample.temperature=1", 4, 80, 30);
    submit_six(e);
    const outcome want = run_all(e);
    dlab_engine_destroy(e);
    int fell_back = 0, out = 0;
    for (size_t a = 0; a < N_OF(areas); a++) { /* a block of 16 tokens takes 8 KiB */
        char sets[320];
        snprintf(sets, sizeof sets,
                 F32 "batch.size=4 kv.store=paged sample.temperature=1 kv.pool=9blocks" SWAPPING "%s", areas[a]);
        e = open_as_harness(m, sets, 4, 80, 30);
        ck_assert_int_eq(e->swap.piece_bytes, 8192);
        submit_six(e);
        const outcome got = run_all(e);
        for (int r = 0; r < MAX_REQUESTS; r++) ck_assert_mem_eq(got.ids[r], want.ids[r], sizeof want.ids[r]);
        ck_assert_int_eq(got.in, got.out);
        ck_assert_int_le(got.out, got.preempted);
        if (a == N_OF(areas) - 1) ck_assert_int_eq(got.out, got.preempted);
        fell_back += got.preempted - got.out;
        out += got.out;
        dlab_engine_destroy(e);
    }
    ck_assert_int_gt(fell_back, 0);
    ck_assert_int_gt(out, 0);
    dlab_model_close(m);
}
END_TEST

/* When the first asks for its third block of four, the second holds 31 tokens: two blocks of 16 tokens of 256 bytes go out, and
 * come in when the first has ended. */
START_TEST(bytes_are_those_of_whole_blocks)
{
    dlab_model *m = tiny();
    dlab_engine *e = open_as_harness(
        m, "compute=f32 batch.mode=static batch.size=2 kv.store=paged kv.pool=4blocks" SWAPPING, 2, 64, 20);
    submit(e, 0, ids, 16, 33, 0);
    submit(e, 1, ids + 50, 15, 33, 0);
    const outcome o = run_all(e);
    ck_assert_int_eq(o.out, 1);
    ck_assert_int_eq(o.in, 1);
    ck_assert_int_eq(o.swap_bytes, 2 * 2 * 16 * 256);
    ck_assert_int_eq(o.n[0] + o.n[1], 66);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- preemption at any time, of any store ---- */

/* Between steps a sequence that runs is sent away, for no reason. */
static bool send_one_away(dlab_engine *e, dlab_rng *r)
{
    const int n = e->batch.n_seqs, first = (int)dlab_rng_below(r, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        const int seq = (first + i) % n;
        const dlab_seq *s = &e->batch.seqs[seq];
        if (!s->running || !s->held || s->leader >= 0 || s->finish != DLAB_FINISH_NONE) continue;
        OK(dlab_engine_release_seq(e, seq, err));
        return true;
    }
    return false;
}

static outcome run_disturbed(dlab_engine *e, uint64_t seed)
{
    outcome o = {0};
    dlab_rng r;
    dlab_rng_seed(&r, seed);
    while (dlab_engine_busy(e)) {
        step_once(e, &o);
        const uint64_t times = dlab_rng_below(&r, 6) == 0 ? 2 : dlab_rng_below(&r, 2);
        for (uint64_t i = 0; seed > 0 && i < times; i++) o.preempted += send_one_away(e, &r);
    }
    return o;
}

static void submit_on(dlab_engine *e, int64_t id, const int32_t *prompt, int64_t n, int64_t max_new, int32_t handle)
{
    dlab_engine_request r = request_of(id, prompt, n, max_new);
    r.primed = handle;
    OK(dlab_engine_submit(e, &r, err));
}

/* Requests with prompts of their own, samples of one prompt, and such as go on behind a primed prefix. */
START_TEST(sent_away_at_any_time_in_any_store)
{
    static const char *const stores[] = {
        "kv.store=contiguous",
        "kv.store=contiguous kv.growth=double",
        "kv.store=paged",
        "kv.store=paged kv.block_size=32",
        "kv.store=paged kv.prefix_cache=on",
        "kv.store=contiguous device=guard",
        "kv.store=paged device=guard",
    };
    dlab_model *m = tiny();
    for (size_t l = 0; l < N_OF(layouts); l++) {
        for (size_t k = 0; k < N_OF(stores); k++) {
            if (strstr(stores[k], "guard") && l != 3 && l != 7) continue; /* it is slow */
            outcome want = {0};
            char sets[400];
            snprintf(sets, sizeof sets, "compute=f32 batch.size=6 sample.temperature=2 %s %s" SWAPPING, stores[k],
                     layouts[l]);
            for (uint64_t seed = 0; seed < 3; seed++) {
                dlab_engine *e = open_as_harness(m, sets, 6, 300, 45);
                int32_t handles[2];
                OK(dlab_engine_prime(e, ids + 500, 230, &handles[0], err));
                OK(dlab_engine_prime(e, ids + 900, 27, &handles[1], err));
                submit(e, 0, ids, 33, 30, 2);
                submit_on(e, 2, ids + 70, 5, 34, handles[0]);
                submit_on(e, 3, ids + 80, 20, 25, handles[1]);
                submit(e, 4, ids + 100, 45, 20, 0);
                submit(e, 5, ids + 150, 1, 40, 0);
                submit_on(e, 6, ids + 90, 3, 20, handles[1]);
                const outcome got = run_disturbed(e, seed);
                if (seed == 0) want = got;
                assert_same(&want, &got, sets);
                if (seed > 0) ck_assert_int_gt(got.in, 20);
                ck_assert_int_eq(got.in, got.out);
                dlab_engine_unprime(e);
                check_left(e);
                dlab_engine_destroy(e);
            }
        }
    }
    dlab_model_close(m);
}
END_TEST

/* ---- who never comes back ---- */

/* Steps until somebody is copied out. */
static int step_until_swapped(dlab_engine *e, outcome *o)
{
    for (int step = 0; step < 200; step++) {
        step_once(e, o);
        for (int i = 0; i < e->batch.n_seqs; i++) {
            if (dlab_engine_is_swapped(e, i)) return i;
        }
    }
    ck_abort_msg("nobody was copied out");
    return -1;
}

START_TEST(who_is_given_up_leaves_no_image)
{
    static const char *const modes[] = {"static", "continuous"};
    dlab_model *m = tiny();
    for (int how = 0; how < 6; how++) {
        char sets[256];
        snprintf(sets, sizeof sets, F32 "batch.mode=%s batch.size=4 kv.store=paged kv.pool=9blocks" SWAPPING,
                 modes[how % 2]);
        dlab_engine *e = open_as_harness(m, sets, 5, 80, 30);
        submit_six(e);
        outcome o = {0};
        const int seq = step_until_swapped(e, &o);
        ck_assert_int_lt(e->swap.n_free, e->swap.n);
        if (how / 2 == 0) {
            ck_assert(dlab_engine_abort(e, e->batch.seqs[seq].request));
            ck_assert(!dlab_engine_is_swapped(e, seq));
            while (dlab_engine_busy(e)) step_once(e, &o);
            check_left(e);
        } else if (how / 2 == 1) {
            dlab_engine_cancel(e, false);
            check_left(e);
            submit_six(e);
            run_all(e);
        } /* else destroyed as it is: the memory's own count would tell */
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

START_TEST(a_primed_sequence_that_is_cancelled_leaves_no_image)
{
    dlab_model *m = tiny();
    dlab_engine *e = open_as_harness(m, F32 "batch.size=2 kv.store=paged" SWAPPING, 2, 100, 60);
    int32_t handle = -1;
    OK(dlab_engine_prime(e, ids, 37, &handle, err));
    outcome first = {0};
    for (int round = 0; round < 3; round++) {
        submit_on(e, 0, ids + 60, 9, 20, handle);
        outcome o = {0};
        for (int i = 0; i < 5; i++) step_once(e, &o);
        OK(dlab_engine_release_seq(e, handle, err));
        ck_assert(dlab_engine_is_swapped(e, handle));
        if (round == 1)
            dlab_engine_cancel(e, false);
        else
            while (dlab_engine_busy(e)) step_once(e, &o);
        ck_assert_int_eq(e->swap.n_free, e->swap.n);
        if (round == 0) first = o;
        if (round == 2) assert_same(&first, &o, "after a cancel");
    }
    dlab_engine_unprime(e);
    check_left(e);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- a device that fails ---- */

static dlab_status (*real_copy)(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err);
static const void *broken; /* a buffer that nothing can be copied to */

static dlab_status copy_or_fail(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err)
{
    if (dst.buf.ptr == broken) return DLAB_FAIL(err, DLAB_EIO, "the copy did not arrive");
    return real_copy(dev, dst, src, bytes, err);
}

/* No room in the area is one thing; a copy that fails is no reason to compute again as if nothing were wrong. */
START_TEST(a_copy_that_fails_ends_the_step)
{
    dlab_model *m = tiny();
    dlab_engine *e = open_as_harness(m, F32 "batch.size=4 kv.store=paged kv.pool=9blocks" SWAPPING, 5, 80, 30);
    dlab_device_ops ops = *e->fwd.dev->ops;
    const dlab_device_ops *real = e->fwd.dev->ops;
    real_copy = ops.copy;
    ops.copy = copy_or_fail;
    broken = e->swap.buf.ptr;
    e->fwd.dev->ops = &ops;
    submit_six(e);
    dlab_status st = DLAB_OK;
    dlab_error err = {0};
    for (int i = 0; i < 200 && st == DLAB_OK; i++) {
        dlab_step out;
        st = dlab_engine_step(e, &out, &err);
    }
    ck_assert_int_eq(st, DLAB_EIO);
    ck_assert_msg(strstr(err.msg, "did not arrive") != NULL, "%s", err.msg);
    ck_assert_int_eq(e->swap.n_free, e->swap.n);
    dlab_engine_cancel(e, false); /* all books are in order */
    check_left(e);
    e->fwd.dev->ops = real;
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* ---- the plan ---- */

START_TEST(the_area_is_planned_and_accounted)
{
    static const struct {
        const char *sets;
        int64_t swap; /* effective */
    } cases[] = {
        {"kv.store=paged kv.pool=9blocks", 0},
        {"kv.store=paged kv.pool=9blocks kv.swap=1MiB", 0},     /* of no use: nothing is swapped */
        {"kv.store=paged kv.pool=9blocks" SWAPPING, 10 * 4096}, /* with the block for padding rows */
        {"kv.store=paged kv.pool=9blocks kv.swap=10000" SWAPPING, 2 * 4096},
        {"kv.store=contiguous" SWAPPING, 20 * 4096}, /* 4 · 80 tokens of 256 bytes */
        {"kv.store=contiguous kv.growth=double kv.swap=4096" SWAPPING, 4096},
        {"kv.store=paged kv.pool=9blocks kv.k=int8 kv.v=int8 kv.k_tail=20" SWAPPING, -1},
    };
    dlab_model *m = tiny();
    const dlab_engine_needs needs = {.max_seqs = 4, .max_tokens = 80, .max_prompt = 30};
    for (size_t c = 0; c < N_OF(cases); c++) {
        char sets[256];
        snprintf(sets, sizeof sets, "batch.size=4 %s", cases[c].sets);
        const dlab_plan p = plan_of(sets);
        size_t bytes[DLAB_POOL_N];
        dlab_engine *e = NULL;
        dlab_mem_stats mem;
        OK(dlab_engine_create(&p, m, &needs, &e, err));
        OK(dlab_engine_estimate(&p, m, &needs, bytes, err));
        dlab_engine_memory(e, &mem);
        ck_assert_uint_eq(mem.pool[DLAB_POOL_SCRATCH].used_bytes, bytes[DLAB_POOL_SCRATCH]);
        ck_assert_uint_eq(mem.pool[DLAB_POOL_KV].used_bytes, bytes[DLAB_POOL_KV]);
        if (cases[c].swap >= 0) ck_assert_int_eq(dlab_engine_plan(e)->kv_swap_bytes, cases[c].swap);
        ck_assert_int_eq(e->swap.n * e->swap.piece_bytes, dlab_engine_plan(e)->kv_swap_bytes);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

START_TEST(what_cannot_work_is_refused)
{
    static const struct {
        const char *sets, *says;
    } cases[] = {
        {"kv.store=none" SWAPPING, "kv.store: none"},
        {"kv.store=paged kv.swap=4095" SWAPPING, "4096"},
        {"kv.store=paged kv.swap=64MiB memory_limit=32MiB" SWAPPING, "kv.swap"},
    };
    dlab_model *m = tiny();
    const dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = 80, .max_prompt = 30};
    for (size_t c = 0; c < N_OF(cases); c++) {
        const dlab_plan p = plan_of(cases[c].sets);
        dlab_engine *e = NULL;
        dlab_error err = {0};
        ck_assert_int_eq(dlab_engine_create(&p, m, &needs, &e, &err), c == 2 ? DLAB_EOOM : DLAB_EIMPOSSIBLE);
        ck_assert_msg(strstr(err.msg, cases[c].says) && strstr(err.msg, c == 0 ? "batch.preemption" : "kv.swap"), "%s",
                      err.msg);
    }
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("swap");
    TCase *t = tcase_create("swap");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, swapped_sequences_go_on_to_the_same_bits);
    tcase_add_test(t, swapped_samples_go_on_to_the_same_bits);
    tcase_add_test(t, swapping_beside_a_prefix_cache);
    tcase_add_test(t, what_has_no_room_is_computed_again);
    tcase_add_test(t, bytes_are_those_of_whole_blocks);
    tcase_add_test(t, sent_away_at_any_time_in_any_store);
    tcase_add_test(t, who_is_given_up_leaves_no_image);
    tcase_add_test(t, a_primed_sequence_that_is_cancelled_leaves_no_image);
    tcase_add_test(t, a_copy_that_fails_ends_the_step);
    tcase_add_test(t, the_area_is_planned_and_accounted);
    tcase_add_test(t, what_cannot_work_is_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}

/* What tests of swapping share: texts, requests, engines as the harness opens them, and the swap area's books. */
#ifndef DLAB_TESTS_ENGINE_SWAP_LAB_H
#define DLAB_TESTS_ENGINE_SWAP_LAB_H

#include "engine_test.h"

#include "base/int.h"

#define F32      "compute=f32 kv.k=f32 kv.v=f32 "
#define N_OF(a)  (sizeof(a) / sizeof((a)[0]))
#define SWAPPING " batch.preemption=swap"

static int32_t ids[4096];

static inline dlab_model *tiny(void)
{
    dlab_model *m = open_model("synthetic:tiny");
    fill_ids(ids, (int)N_OF(ids), dlab_model_get_info(m)->vocab, 31);
    return m;
}

static inline dlab_engine_request request_of(int64_t id, const int32_t *prompt, int64_t n, int64_t max_new)
{
    return (dlab_engine_request){.id = id,
                                 .prompt = prompt,
                                 .n_prompt = n,
                                 .max_new = max_new,
                                 .eos = -1,
                                 .seed = 5 + (uint64_t)id,
                                 .primed = -1};
}

static inline dlab_engine *open_as_harness(const dlab_model *m, const char *sets, int64_t seqs, int64_t tokens,
                                           int64_t prompt)
{
    const dlab_plan p = plan_of(sets);
    const dlab_engine_needs needs = {.max_seqs = seqs, .max_tokens = tokens, .max_prompt = prompt};
    dlab_engine *e = NULL;
    OK(dlab_engine_create(&p, m, &needs, &e, err));
    return e;
}

static inline int64_t pieces_of_images(const dlab_engine *e)
{
    int64_t n = 0;
    for (int i = 0; e->images && i < e->batch.n_seqs; i++) n += dlab_ceil_div(e->images[i].bytes, e->swap.piece_bytes);
    return n;
}

/* Nothing is held any more, in the store or in the area. */
static inline void check_left(dlab_engine *e)
{
    dlab_kv_stats kv;
    dlab_engine_kv(e, &kv);
    ck_assert_int_eq(kv.reserved_bytes, 0);
    ck_assert_int_eq(kv.free_bytes + kv.cached_bytes, kv.pool_bytes);
    ck_assert_int_eq(e->swap.n_free, e->swap.n);
}

#endif

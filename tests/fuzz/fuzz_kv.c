/* Any bytes as operations on a KV store, against the content oracle: never a wrong token, never a crash. The first bytes choose
 * the store, its block size, formats and options. */
#define ORACLE_HEADS 1
#define ORACLE_DIM   2
#include "tests/engine/kv_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MOST_BYTES 256 /* some 40 operations: many short walks find more than few long ones */

static const struct {
    const char *k, *v, *k_scales;
    int64_t k_tail, v_tail;
} formats[] = {{"f32", "f32", "token", 0, 0}, {"f16", "f32", "token", 0, 0}, {"int8", "int8", "block", 5, 3}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const int64_t blocks[] = {1, 3, 4, 8, 16};
    static oracle o;
    oracle_dice dice = {.bytes = data, .n = n < MOST_BYTES ? n : MOST_BYTES};
    size_t stores = 0;
    while (dlab_kv_stores[stores]) stores++;
    if (n == 0) return 0;
    const dlab_kv_store_ops *ops = dlab_kv_stores[oracle_draw(&dice, stores)];
    size_t format = oracle_draw(&dice, sizeof formats / sizeof *formats);
    uint64_t options = oracle_draw(&dice, 16);
    oracle_case c = {
        .ops = ops,
        .k = formats[format].k,
        .v = formats[format].v,
        .k_scales = formats[format].k_scales,
        .k_tail = formats[format].k_tail,
        .v_tail = formats[format].v_tail,
        .block = blocks[oracle_draw(&dice, sizeof blocks / sizeof *blocks)],
        .tight = options & 1,
        .grow = options & 2,
        .prefix_cache = ops->shares && (options & 4),
        .same_hash = ops->shares && (options & 8),
    };
    oracle_create(&o, &c, &dice, "fuzz");
    while (o.dice.at < o.dice.n) oracle_operate(&o);
    oracle_destroy(&o);
    return 0;
}

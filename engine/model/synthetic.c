/* Models of random weights, for tests and for machines without a model file: the same weights on every machine. The numbers
 * that a text gets from them mean nothing; shapes, bytes and times do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/param.h"
#include "base/rng.h"
#include "engine/model/model_own.h"

#define TENSOR_ALIGN 64
#define SEED         20260101u

typedef struct {
    const char *name;
    int32_t n_layers, width, ffn, n_heads, n_kv_heads, head_dim, vocab, context;
    float rope_base, eps;
    dlab_dtype embedding, matrix;
} synthetic_row;

/* name, layers, width, ffn, heads, KV heads, head dim, vocabulary, context, RoPE base, eps, embedding, matrices */
#define SYNTHETIC_LIST(X)                                                                                              \
    X("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000, 1e-5f, DLAB_Q8_0, DLAB_Q4_1)                       \
    X("tiny", 2, 64, 96, 4, 2, 16, 288, 512, 10000, 1e-5f, DLAB_F32, DLAB_F32)                                         \
    X("tiny-q4", 2, 64, 96, 4, 2, 16, 288, 512, 10000, 1e-5f, DLAB_Q8_0, DLAB_Q4_1)                                    \
    X("tiny-bf16", 2, 64, 96, 4, 2, 16, 288, 512, 10000, 1e-5f, DLAB_BF16, DLAB_BF16)                                  \
    /* attention outweighs the matrices from a few thousand tokens on, at two sizes of a head */                       \
    X("attn-64", 4, 1024, 1024, 16, 4, 64, 512, 8192, 10000, 1e-5f, DLAB_Q8_0, DLAB_Q4_1)                              \
    X("attn-128", 4, 1024, 1024, 8, 2, 128, 512, 8192, 10000, 1e-5f, DLAB_Q8_0, DLAB_Q4_1)

#define SYNTHETIC_NAME(name, ...) name,
#define SYNTHETIC_ROW(...)        {__VA_ARGS__},
const char *const dlab_synthetic_names[] = {SYNTHETIC_LIST(SYNTHETIC_NAME) NULL};
static const synthetic_row rows[] = {SYNTHETIC_LIST(SYNTHETIC_ROW)};

/* ---- weights -------------------------------------------------------------------------------------------------------- */

/* Standard deviation of uniform numbers: the integers 0…15 and −127…127. */
#define SD_NIBBLE 4.6097722f
#define SD_BYTE   73.6115480f

/* Scales differ from block to block by up to a quarter, so that a kernel that takes a neighbour's scale is found out. */
static uint16_t draw_scale(dlab_rng *r, float scale)
{
    return dlab_f32_to_f16(scale * (float)(0.75 + 0.5 * dlab_rng_unit(r)));
}

static void fill_f32(dlab_rng *r, float *p, int64_t n, float mean, float sd)
{
    for (int64_t i = 0; i < n; i++) p[i] = mean + sd * (float)dlab_rng_normal(r);
}

static void fill_bf16(dlab_rng *r, uint16_t *p, int64_t n, float sd)
{
    for (int64_t i = 0; i < n; i++) p[i] = dlab_f32_to_bf16(sd * (float)dlab_rng_normal(r));
}

static void fill_q8_0(dlab_rng *r, uint8_t *p, int64_t n_blocks, float sd)
{
    for (int64_t b = 0; b < n_blocks; b++, p += 34) {
        uint16_t d = draw_scale(r, sd / SD_BYTE);
        memcpy(p, &d, sizeof d);
        for (int i = 0; i < 4; i++) {
            uint64_t bits = dlab_rng_u64(r);
            memcpy(p + 2 + 8 * i, &bits, sizeof bits);
        }
        for (int i = 2; i < 34; i++)
            if (p[i] == 0x80) p[i] = 0; /* −128 is never stored */
    }
}

static void fill_q4_1(dlab_rng *r, uint8_t *p, int64_t n_blocks, float sd)
{
    for (int64_t b = 0; b < n_blocks; b++, p += 20) {
        uint16_t d = draw_scale(r, sd / SD_NIBBLE);
        uint16_t m = dlab_f32_to_f16(dlab_f16_to_f32(d) * (float)(-8.0 + dlab_rng_unit(r)));
        memcpy(p, &d, sizeof d);
        memcpy(p + 2, &m, sizeof m);
        for (int i = 0; i < 2; i++) {
            uint64_t bits = dlab_rng_u64(r);
            memcpy(p + 4 + 8 * i, &bits, sizeof bits);
        }
    }
}

/* Matrices: mean 0, sd 1/√K, which keeps the size of what goes through them. Norms: around 1. */
static void fill(dlab_rng *r, const dlab_tensor *t, uint8_t *p)
{
    int64_t n = t->dims[0] * t->dims[1];
    float sd = 1.0f / sqrtf((float)t->dims[0]);
    if (t->n_dims == 1)
        fill_f32(r, (float *)(void *)p, n, 1, 0.1f);
    else if (t->dtype == DLAB_Q8_0)
        fill_q8_0(r, p, n / 32, sd);
    else if (t->dtype == DLAB_Q4_1)
        fill_q4_1(r, p, n / 32, sd);
    else if (t->dtype == DLAB_BF16)
        fill_bf16(r, (uint16_t *)(void *)p, n, sd);
    else
        fill_f32(r, (float *)(void *)p, n, 0, sd);
}

/* ---- the tensor table ----------------------------------------------------------------------------------------------- */

/* outer 0: a vector. */
static void add_tensor(dlab_model *m, const char *name, dlab_dtype dtype, int64_t inner, int64_t outer)
{
    dlab_tensor *t = &m->tensors[m->n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dtype = outer > 0 ? dtype : DLAB_F32;
    t->n_dims = outer > 0 ? 2 : 1;
    t->dims[0] = inner;
    t->dims[1] = outer > 0 ? outer : 1;
    t->dims[2] = t->dims[3] = 1;
    t->bytes = dlab_dtype_bytes(t->dtype, inner * t->dims[1]);
    m->map_bytes += (t->bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
}

#define LAYER_TENSORS  9
#define GLOBAL_TENSORS 2

static void add_tensors(dlab_model *m, const synthetic_row *s)
{
    const int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    const struct {
        const char *suffix;
        int64_t inner, outer;
    } layer[LAYER_TENSORS] = {
        {"attn_norm", s->width, 0},     {"attn_q", s->width, q},      {"attn_k", s->width, kv},
        {"attn_v", s->width, kv},       {"attn_output", q, s->width}, {"ffn_norm", s->width, 0},
        {"ffn_gate", s->width, s->ffn}, {"ffn_up", s->width, s->ffn}, {"ffn_down", s->ffn, s->width},
    };
    add_tensor(m, "token_embd.weight", s->embedding, s->width, s->vocab);
    for (int32_t l = 0; l < s->n_layers; l++)
        for (int i = 0; i < LAYER_TENSORS; i++) {
            char name[DLAB_TENSOR_NAME];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, layer[i].suffix);
            add_tensor(m, name, s->matrix, layer[i].inner, layer[i].outer);
        }
    add_tensor(m, "output_norm.weight", DLAB_F32, s->width, 0);
}

static dlab_status make_weights(dlab_model *m, const synthetic_row *s, dlab_error *err)
{
    dlab_rng r;
    m->tensors = calloc((size_t)(LAYER_TENSORS * s->n_layers + GLOBAL_TENSORS), sizeof *m->tensors);
    if (!m->tensors) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its tensor table", m->label);
    add_tensors(m, s);
    uint8_t *p = mmap(NULL, m->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for %zu bytes of weights", m->label, m->map_bytes);
    m->map = p;
    m->owns_map = true;
    dlab_rng_seed(&r, SEED);
    for (size_t i = 0; i < m->n_tensors; i++) {
        m->tensors[i].data = p;
        fill(&r, &m->tensors[i], p);
        p += (m->tensors[i].bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    }
    mprotect((void *)(uintptr_t)m->map, m->map_bytes,
             PROT_READ); /* like a mapped file; if refused, merely less strict */
    return DLAB_OK;
}

static const synthetic_row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static dlab_status unknown_name(const char *name, dlab_error *err)
{
    const char *nearest = dlab_nearest(name, dlab_synthetic_names);
    char all[128] = "";
    for (size_t i = 0, used = 0; dlab_synthetic_names[i] && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", dlab_synthetic_names[i]);
    return DLAB_FAIL(err, DLAB_EUSAGE, "no synthetic model '%.80s'%s%s%s; there are %s", name,
                     nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "", all);
}

dlab_status dlab_model_synthesize(const char *name, dlab_model **out, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    uint64_t parts[2] = {0};
    const synthetic_row *s = find_row(name);
    *out = NULL;
    if (!s) return unknown_name(name, err);
    dlab_model *m = calloc(1, sizeof *m);
    if (!m) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a synthetic model");
    snprintf(m->name, sizeof m->name, "synthetic:%s", s->name);
    snprintf(m->label, sizeof m->label, "%s", m->name);
    m->arch = dlab_arch_find("llama");
    m->info.n_layers = s->n_layers;
    m->info.n_heads = s->n_heads;
    m->info.n_kv_heads = s->n_kv_heads;
    m->info.head_dim = s->head_dim;
    m->info.width = s->width;
    m->info.ffn = s->ffn;
    m->info.vocab = s->vocab;
    m->info.context = s->context;
    m->info.eps = s->eps;
    m->info.rope_base = s->rope_base;
    m->info.synthetic = true;
    DLAB_TRY_DONE(st, make_weights(m, s, err));
    DLAB_TRY_DONE(st, dlab_model_finish(m, err));
    parts[0] = XXH3_64bits(m->name, strlen(m->name));
    DLAB_TRY_DONE(st, dlab_model_verify(m, &parts[1], err));
    m->info.hash = XXH3_64bits(parts, sizeof parts);
    *out = m;
    m = NULL;
done:
    dlab_model_close(m);
    return st;
}

/* Weights that are not finite are found when a model is opened, not as NaN logits later. One pass over the data: the
 * quantized types need only their scales looked at, every bit pattern of the rest is a number. The same pass hashes. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/cores.h"
#include "base/team.h"
#include "engine/model/model_own.h"

#define VERIFY_PIECE 16384 /* elements or blocks: a piece stays in the cache between its hash and its check */

typedef struct {
    const dlab_tensor *t;
    size_t first, n; /* elements or blocks */
    bool bad;
} piece;

typedef struct {
    piece *pieces;
    uint64_t *hashes; /* [n] */
    size_t n;
} job;

/* f16, f32 and bf16 numbers are not finite when all bits of the exponent are set. */
static bool bad_u16(const uint16_t *p, size_t n, uint16_t exponent)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (p[i] & exponent) == exponent;
    return bad != 0;
}

static bool bad_u32(const uint32_t *p, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (p[i] & 0x7f800000u) == 0x7f800000u;
    return bad != 0;
}

/* n_scales f16 at the head of each block. */
static bool bad_blocks(const uint8_t *p, size_t n, size_t block_bytes, size_t n_scales)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < n_scales; s++) {
            uint16_t h;
            memcpy(&h, p + i * block_bytes + s * sizeof h, sizeof h);
            bad |= (h & 0x7c00u) == 0x7c00u;
        }
    return bad != 0;
}

static bool bad_units(dlab_dtype t, const uint8_t *p, size_t n)
{
    switch (t) {
    case DLAB_F32:
        return bad_u32((const uint32_t *)(const void *)p, n);
    case DLAB_F16:
        return bad_u16((const uint16_t *)(const void *)p, n, 0x7c00);
    case DLAB_BF16:
        return bad_u16((const uint16_t *)(const void *)p, n, 0x7f80);
    case DLAB_Q8_0:
    case DLAB_Q4_0:
        return bad_blocks(p, n, (size_t)dlab_dtype_block_bytes(t), 1);
    case DLAB_Q4_1:
        return bad_blocks(p, n, (size_t)dlab_dtype_block_bytes(t), 2);
    case DLAB_U8: /* of the KV cache alone: no weight has them */
    case DLAB_E4M3:
    case DLAB_E5M2:
    case DLAB_U4:
    case DLAB_DTYPE_N:
        break;
    }
    return true;
}

/* Where in the piece that is known to be bad. */
static dlab_status report(const dlab_model *m, const piece *p, dlab_error *err)
{
    const dlab_tensor *t = p->t;
    const uint8_t *data = t->data;
    const size_t unit = (size_t)dlab_dtype_block_bytes(t->dtype);
    size_t at = p->first;
    while (!bad_units(t->dtype, data + at * unit, 1)) at++;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' has a %s that is not finite in %s %zu of %zu",
                     m->label, (size_t)(data - (const uint8_t *)m->map) + at * unit, t->name,
                     dlab_dtype_block(t->dtype) > 1 ? "scale" : "weight",
                     dlab_dtype_block(t->dtype) > 1 ? "block" : "element", at, t->bytes / unit);
}

static void verify_piece(void *ctx, size_t i)
{
    const job *j = ctx;
    piece *p = &j->pieces[i];
    const size_t unit = (size_t)dlab_dtype_block_bytes(p->t->dtype);
    const uint8_t *data = (const uint8_t *)p->t->data + p->first * unit;
    j->hashes[i] = XXH3_64bits(data, p->n * unit);
    p->bad = bad_units(p->t->dtype, data, p->n);
}

static size_t pieces_of(const dlab_tensor *t)
{
    const size_t n = t->bytes / (size_t)dlab_dtype_block_bytes(t->dtype);
    return (n + VERIFY_PIECE - 1) / VERIFY_PIECE;
}

static void fill_pieces(const dlab_model *m, piece *out)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const dlab_tensor *t = &m->tensors[i];
        const size_t n = t->bytes / (size_t)dlab_dtype_block_bytes(t->dtype);
        for (size_t at = 0; at < n; at += VERIFY_PIECE)
            *out++ = (piece){t, at, n - at < VERIFY_PIECE ? n - at : VERIFY_PIECE, false};
    }
}

dlab_status dlab_model_verify(const dlab_model *m, uint64_t *hash, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    job j = {0};
    size_t bytes = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        j.n += pieces_of(&m->tensors[i]);
        bytes += m->tensors[i].bytes;
    }
    j.pieces = malloc((j.n + 1) * sizeof *j.pieces);
    j.hashes = malloc((j.n + 1) * sizeof *j.hashes);
    if (!j.pieces || !j.hashes) {
        st = DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to look through its weights", m->label);
        goto done;
    }
    fill_pieces(m, j.pieces);
    DLAB_TRY_DONE(st, dlab_team_once(dlab_cores_usable(), bytes, j.n, verify_piece, &j, err));
    for (size_t i = 0; i < j.n && st == DLAB_OK; i++)
        if (j.pieces[i].bad) st = report(m, &j.pieces[i], err);
    *hash = XXH3_64bits(j.hashes, j.n * sizeof *j.hashes);
done:
    free(j.pieces);
    free(j.hashes);
    return st;
}

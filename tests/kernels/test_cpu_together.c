/* Commands that share a phase give what they give one after another: random programs whose operands are apart, the same
 * rows, or overlap by some rows, listed at once and run by several threads, against the same one by one. */
#include "test_cpu_lab.h"

enum { ROWS = 6, DIM = 32, BUFFERS = 5, BUFFER_ROWS = 2 * ROWS, PROGRAM = 40, PROGRAMS = 60 };

typedef struct {
    dlab_desc_head head;
    dlab_desc_row row[ROWS];
    dlab_desc_logit logit[ROWS];
} description;

typedef struct {
    lab l;
    dlab_at buffer[BUFFERS], norm, desc, quantized[2];
    dlab_matrix matrix, blocks;
} machine;

/* Rows in an order that is not theirs. */
static dlab_at put_description(lab *l)
{
    description d = {
        .head = {.n_rows = ROWS, .row_off = offsetof(description, row), .logit_off = offsetof(description, logit)}};
    for (int i = 0; i < ROWS; i++) {
        d.row[i].token = (5 * i + 3) % DIM;
        d.logit[i].row = (5 * i + 1) % ROWS;
    }
    return lab_put(l, &d, sizeof d);
}

static machine open_machine(int threads)
{
    dlab_rng r;
    dlab_rng_seed(&r, 5);
    machine m = {.l = lab_open("cpu", "auto", threads)};
    float *w = random_floats(&r, (size_t)DIM * DIM, 0.1), *norm = random_floats(&r, DIM, 1);
    m.matrix = lab_weights(&m.l, w, DLAB_F32, DIM, DIM);
    size_t bytes;
    uint8_t *blocks = random_weights(&r, DLAB_Q8_0, DIM, DIM, &bytes);
    m.blocks = lab_weights(&m.l, blocks, DLAB_Q8_0, DIM, DIM);
    free(blocks);
    m.desc = put_description(&m.l);
    for (int i = 0; i < 2; i++)
        m.quantized[i] = lab_put(&m.l, NULL, ROWS * DIM / DLAB_QACT_BLOCK * sizeof(dlab_qact_block));
    m.norm = lab_put(&m.l, norm, DIM * sizeof *norm);
    for (int i = 0; i < BUFFERS; i++) {
        float *x = random_floats(&r, (size_t)BUFFER_ROWS * DIM, 1);
        m.buffer[i] = lab_put(&m.l, x, (size_t)BUFFER_ROWS * DIM * sizeof *x);
        free(x);
    }
    free(w);
    free(norm);
    return m;
}

/* A half of a buffer, sometimes shifted. */
static dlab_at pick(machine *m, dlab_rng *r)
{
    dlab_at at = m->buffer[dlab_rng_below(r, BUFFERS)];
    const uint64_t kind = dlab_rng_below(r, 5);
    if (kind < 3) at.off = (kind == 0 ? dlab_rng_below(r, ROWS) : ROWS) * DIM * sizeof(float);
    return at;
}

/* Whether ROWS rows from a on and from b on share any. */
static bool touches(dlab_at a, dlab_at b)
{
    const size_t bytes = ROWS * DIM * sizeof(float);
    return a.buf.ptr == b.buf.ptr && a.off < b.off + bytes && b.off < a.off + bytes;
}

static void submit_random(machine *m, dlab_rng *r)
{
    const dlab_at a = pick(m, r), b = pick(m, r), c = pick(m, r), q = m->quantized[dlab_rng_below(r, 2)];
    const bool in_place = a.buf.ptr == b.buf.ptr && a.off == b.off, add = dlab_rng_below(r, 2);
    dlab_op_args u = {0};
    switch (dlab_rng_below(r, 7)) {
    case 0:
        if (touches(a, b) && !in_place) return;
        u.rmsnorm = (dlab_rmsnorm_args){.x = a, .w = m->norm, .y = b, .n_rows = ROWS, .dim = DIM, .eps = 1};
        lab_submit(&m->l, DLAB_OP_rmsnorm, &u);
        break;
    case 1:
        if (touches(a, c) || touches(b, c)) return;
        u.swiglu = (dlab_swiglu_args){.gate = a, .up = b, .out = c, .n_rows = ROWS, .dim = DIM};
        lab_submit(&m->l, DLAB_OP_swiglu, &u);
        break;
    case 2:
        if (a.buf.ptr == b.buf.ptr) return; /* what it reads may be anywhere */
        u.gather = (dlab_gather_args){.x = a, .out = b, .desc = m->desc, .n_logits = ROWS, .dim = DIM};
        lab_submit(&m->l, DLAB_OP_gather, &u);
        break;
    case 3:
        u.embed = (dlab_embed_args){.table = m->matrix, .desc = m->desc, .out = a, .n_rows = ROWS};
        lab_submit(&m->l, DLAB_OP_embed, &u);
        break;
    case 4:
        u.quant_act = (dlab_quant_act_args){.x = a, .y = q, .n_rows = ROWS, .k = DIM, .to = DLAB_ACT_INT8};
        lab_submit(&m->l, DLAB_OP_quant_act, &u);
        break;
    case 5:
        u.matmul = (dlab_matmul_args){
            .x = q, .y = a, .w = m->blocks, .n_rows = ROWS, .input = DLAB_ACT_INT8, .accumulate = add};
        lab_submit(&m->l, DLAB_OP_matmul, &u);
        break;
    default:
        if (touches(a, b)) return;
        u.matmul = (dlab_matmul_args){.x = a, .y = b, .w = m->matrix, .n_rows = ROWS, .accumulate = add};
        lab_submit(&m->l, DLAB_OP_matmul, &u);
        break;
    }
}

START_TEST(random_programs_do_not_tell_how_they_ran)
{
    const size_t bytes = (size_t)BUFFER_ROWS * DIM * sizeof(float);
    for (int threads = 2; threads <= 4; threads++) {
        machine together = open_machine(threads), alone = open_machine(1);
        dlab_rng r[2];
        dlab_rng_seed(&r[0], (uint64_t)threads);
        dlab_rng_seed(&r[1], (uint64_t)threads);
        float *want = malloc(bytes), *got = malloc(bytes);
        for (int p = 0; p < PROGRAMS; p++) {
            for (int i = 0; i < PROGRAM; i++) {
                submit_random(&together, &r[0]);
                submit_random(&alone, &r[1]);
                ck_assert_int_eq(alone.l.dev->ops->sync(alone.l.dev, NULL), DLAB_OK);
            }
            for (int b = 0; b < BUFFERS; b++) {
                lab_get(&together.l, together.buffer[b], got, bytes);
                lab_get(&alone.l, alone.buffer[b], want, bytes);
                ck_assert_msg(memcmp(got, want, bytes) == 0, "%d threads, program %d, buffer %d", threads, p, b);
            }
        }
        ck_assert_uint_eq(together.l.dev->ops->launches(together.l.dev), alone.l.dev->ops->launches(alone.l.dev));
        free(want);
        free(got);
        lab_close(&together.l);
        lab_close(&alone.l);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpu together");
    TCase *t = tcase_create("together");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, random_programs_do_not_tell_how_they_ran);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

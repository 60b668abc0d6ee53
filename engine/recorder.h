/* Submits ops of one step and sums what they declare. */
#ifndef DLAB_ENGINE_RECORDER_H
#define DLAB_ENGINE_RECORDER_H

#include "kernels/device.h"

typedef struct {
    dlab_device *dev;
    const dlab_desc_head *desc; /* the host's copy of the step's descriptor */
    dlab_op_cost cost;
    bool counted; /* what comes is counted elsewhere */
} dlab_recorder;

static inline dlab_status dlab_record_op(dlab_recorder *r, dlab_op op, void *args, dlab_error *err)
{
    if (!r->counted) dlab_op_add_cost(op, args, r->desc, &r->cost);
    return r->dev->ops->submit(r->dev, op, args, err);
}

/* Adds what b is more than a. */
static inline void dlab_cost_add_difference(dlab_op_cost *to, const dlab_op_cost *a, const dlab_op_cost *b)
{
    to->bytes_read += b->bytes_read - a->bytes_read;
    to->bytes_written += b->bytes_written - a->bytes_written;
    to->kv_bytes += b->kv_bytes - a->kv_bytes;
    to->kv_dense_bytes += b->kv_dense_bytes - a->kv_dense_bytes;
    to->inter_bytes += b->inter_bytes - a->inter_bytes;
    to->flops += b->flops - a->flops;
    to->int8_flops += b->int8_flops - a->int8_flops;
    to->bf16_flops += b->bf16_flops - a->bf16_flops;
}

#endif

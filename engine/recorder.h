/* Submits ops of one step and sums what they declare. */
#ifndef DLAB_ENGINE_RECORDER_H
#define DLAB_ENGINE_RECORDER_H

#include "kernels/device.h"

typedef struct {
    dlab_device *dev;
    const dlab_desc_head *desc; /* the host's copy of the step's descriptor */
    dlab_op_cost cost;
} dlab_recorder;

static inline dlab_status dlab_record_op(dlab_recorder *r, dlab_op op, void *args, dlab_error *err)
{
    dlab_op_add_cost(op, args, r->desc, &r->cost);
    return r->dev->ops->submit(r->dev, op, args, err);
}

#endif

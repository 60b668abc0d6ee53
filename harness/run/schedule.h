/* In which order the repeats of an experiment's points are run, and which workers stay alive between them. */
#ifndef DLAB_HARNESS_RUN_SCHEDULE_H
#define DLAB_HARNESS_RUN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int32_t point, repeat;
} dlab_slot;

/* All (point, repeat) pairs, each once. order: interleaved (a round over all points a repeat), grouped (all repeats of a
 * point together), random (shuffled by seed). *out is malloc'd, points · repeats long. */
dlab_status dlab_schedule_make(const char *order, size_t points, size_t repeats, uint64_t seed, dlab_slot **out,
                               dlab_error *err);

/* Index of the next slot of `point` at or after `from`, or n. */
size_t dlab_schedule_next(const dlab_slot *slots, size_t n, size_t from, int32_t point);

/* Which of the living workers to close so that one more of `need_bytes` fits: the one whose point comes last, or never
 * again, in what is left of the schedule. −1: it fits as it is, or nobody is left to close. bytes [points]: what a point's
 * worker takes; alive [points]. */
typedef struct {
    const int64_t *bytes;
    const bool *alive;
    size_t points;
    int64_t budget_bytes;
    size_t max_alive;
} dlab_room;
int32_t dlab_schedule_evict(const dlab_room *room, int64_t need_bytes, const dlab_slot *slots, size_t n, size_t from);

#endif

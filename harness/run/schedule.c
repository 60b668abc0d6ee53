#include "harness/run/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static void shuffle(dlab_slot *slots, size_t n, uint64_t seed)
{
    dlab_rng rng;
    dlab_rng_seed(&rng, seed);
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)dlab_rng_below(&rng, i);
        dlab_slot t = slots[i - 1];
        slots[i - 1] = slots[j];
        slots[j] = t;
    }
}

dlab_status dlab_schedule_make(const char *order, size_t points, size_t repeats, uint64_t seed, dlab_slot **out,
                               dlab_error *err)
{
    *out = NULL;
    size_t n = points * repeats;
    if (points > INT32_MAX || repeats > INT32_MAX || (points && n / points != repeats)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "%zu points of %zu repeats are too many", points, repeats);
    }
    dlab_slot *slots = calloc(n ? n : 1, sizeof *slots);
    if (!slots) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a schedule of %zu runs", n);
    bool grouped = strcmp(order, "grouped") == 0;
    for (size_t i = 0; i < n; i++) {
        slots[i].point = (int32_t)(grouped ? i / repeats : i % points);
        slots[i].repeat = (int32_t)(grouped ? i % repeats : i / points);
    }
    if (strcmp(order, "random") == 0) shuffle(slots, n, seed);
    *out = slots;
    return DLAB_OK;
}

size_t dlab_schedule_next(const dlab_slot *slots, size_t n, size_t from, int32_t point)
{
    while (from < n && slots[from].point != point) from++;
    return from;
}

int32_t dlab_schedule_evict(const dlab_room *room, int64_t need_bytes, const dlab_slot *slots, size_t n, size_t from)
{
    int64_t taken = need_bytes;
    size_t alive = 0, latest = 0;
    int32_t victim = -1;
    for (size_t i = 0; i < room->points; i++) {
        if (!room->alive[i]) continue;
        size_t next = dlab_schedule_next(slots, n, from, (int32_t)i);
        alive++;
        taken += room->bytes[i];
        if (victim < 0 || next > latest) {
            victim = (int32_t)i;
            latest = next;
        }
    }
    return taken > room->budget_bytes || alive >= room->max_alive ? victim : -1;
}

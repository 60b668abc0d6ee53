/* Arrays that grow. */
#ifndef DLAB_BASE_GROW_H
#define DLAB_BASE_GROW_H

#include <stdlib.h>

/* list, or where it has moved to, with room for `need` elements of `size` bytes and then *cap of them; at least twice as many
 * as there were, so that growing is rare. NULL: no memory, and list is as it was. Starts with NULL and 0; need ≥ 1. */
static inline void *dlab_grow(void *list, size_t need, size_t *cap, size_t size)
{
    if (need <= *cap) return list;
    size_t more = *cap < 32 ? 64 : *cap * 2;
    if (more < need) more = need;
    void *moved = more <= (size_t)-1 / size ? realloc(list, more * size) : NULL;
    if (moved) *cap = more;
    return moved;
}

#endif

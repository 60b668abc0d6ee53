#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"

/* From here on a buffer is mapped by itself: zero pages come free, and freed memory goes back to the system at once. */
#define MAP_FROM_BYTES  ((size_t)1 << 20)
#define HUGE_FROM_BYTES ((size_t)4 << 20)
#define ALIGN_BYTES     64

struct dlab_mem {
    dlab_mem_stats stats;
};

const char *dlab_pool_name(dlab_pool p)
{
    static const char *const names[DLAB_POOL_N] = {
#define NAME(name, text) [DLAB_POOL_##name] = text,
        DLAB_POOL_LIST(NAME)
#undef NAME
    };
    return (unsigned)p < DLAB_POOL_N ? names[p] : "unknown";
}

dlab_status dlab_mem_create(size_t limit_bytes, dlab_mem **out, dlab_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the memory accounts");
    (*out)->stats.limit_bytes = limit_bytes;
    return DLAB_OK;
}

void dlab_mem_destroy(dlab_mem *m)
{
    if (!m) return;
    assert(m->stats.used_bytes == 0 && "a pool's owner forgot to free");
    free(m);
}

typedef struct {
    char text[32];
} byte_text;

static byte_text bytes_text(size_t bytes)
{
    byte_text t;
    dlab_text_bytes((double)bytes, t.text, sizeof t.text);
    return t;
}

dlab_status dlab_mem_charge(dlab_mem *m, dlab_pool pool, size_t bytes, dlab_error *err)
{
    dlab_mem_stats *s = &m->stats;
    if (pool == DLAB_POOL_NONE) return DLAB_OK;
    const size_t cap = s->limit_bytes ? s->limit_bytes : SIZE_MAX, left = cap > s->used_bytes ? cap - s->used_bytes : 0;
    if (bytes > left)
        return DLAB_FAIL(err, DLAB_EOOM, "pool %s: asked %s, %s of %s left", dlab_pool_name(pool),
                         bytes_text(bytes).text, bytes_text(left).text, bytes_text(cap).text);
    dlab_pool_stats *p = &s->pool[pool];
    p->used_bytes += bytes;
    s->used_bytes += bytes;
    if (p->used_bytes > p->peak_bytes) p->peak_bytes = p->used_bytes;
    if (s->used_bytes > s->peak_bytes) s->peak_bytes = s->used_bytes;
    s->n_allocs++;
    return DLAB_OK;
}

void dlab_mem_discharge(dlab_mem *m, dlab_pool pool, size_t bytes)
{
    if (pool == DLAB_POOL_NONE) return;
    assert(m->stats.pool[pool].used_bytes >= bytes && "more freed than was charged");
    m->stats.pool[pool].used_bytes -= bytes;
    m->stats.used_bytes -= bytes;
}

/* NULL when the system refuses. Which way it was got follows from the size alone, so that free need not be told. */
static void *system_alloc(size_t bytes, int page_align)
{
    if (bytes >= MAP_FROM_BYTES) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return NULL;
        if (bytes >= HUGE_FROM_BYTES) (void)madvise(p, bytes, MADV_HUGEPAGE);
        return p;
    }
    const size_t align = page_align ? (size_t)sysconf(_SC_PAGESIZE) : ALIGN_BYTES;
    const size_t size = bytes ? (bytes + align - 1) / align * align : align;
    void *p = aligned_alloc(align, size);
    if (p) memset(p, 0, size);
    return p;
}

dlab_status dlab_mem_alloc(dlab_mem *m, dlab_pool pool, size_t bytes, int page_align, void **out, dlab_error *err)
{
    *out = NULL;
    DLAB_TRY(dlab_mem_charge(m, pool, bytes, err));
    void *p = system_alloc(bytes, page_align);
    if (!p) {
        dlab_mem_discharge(m, pool, bytes);
        return DLAB_FAIL(err, DLAB_EOOM, "pool %s: asked %s, the system refused: %s", dlab_pool_name(pool),
                         bytes_text(bytes).text, strerror(errno));
    }
    *out = p;
    return DLAB_OK;
}

void dlab_mem_free(dlab_mem *m, dlab_pool pool, void *ptr, size_t bytes)
{
    if (!ptr) return;
    if (bytes >= MAP_FROM_BYTES)
        munmap(ptr, bytes);
    else
        free(ptr);
    dlab_mem_discharge(m, pool, bytes);
}

void dlab_mem_get_stats(const dlab_mem *m, dlab_mem_stats *out) { *out = m->stats; }

void dlab_mem_reset_peaks(dlab_mem *m)
{
    dlab_mem_stats *s = &m->stats;
    for (int i = 0; i < DLAB_POOL_N; i++) s->pool[i].peak_bytes = s->pool[i].used_bytes;
    s->peak_bytes = s->used_bytes;
}

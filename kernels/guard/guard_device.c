/* The device `guard`: the CPU's kernels under the strictest reading of the device contract, for tests.
 *
 *   - Every buffer has a mapping of its own, closed to all access but while a command that declares it runs; then only
 *     the pages of the declared range are open, and for reading only where the command only reads. The buffer's end
 *     lies at the end of a page and a closed page follows, so that most overruns fault too.
 *   - Of the pages at both ends of a range that an op writes, the bytes beside the range must be the same after it.
 *   - Commands run one by one at `sync`, never before; the caller's arguments are overwritten at the call and the
 *     destination of a download is filled with 0xFF until then.
 *   - Imported memory is a copy that no command may write. Freed buffers are unmapped.
 *
 * So an op that touches what it does not declare, or a host that reads device memory or results early, faults or sees
 * nonsense. Its results are the cpu device's, bit by bit. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_pack.h"

#define DATA_ALIGNMENT  64
#define ARGS_SCRIBBLE   0xA5
#define UNREAD_SCRIBBLE 0xFF

typedef struct {
    char *map, *data;
    size_t map_bytes, bytes;
    bool imported;
} guard_buffer;

typedef enum { COMMAND_OP, COMMAND_UPLOAD, COMMAND_DOWNLOAD, COMMAND_COPY } command_kind;

typedef struct {
    command_kind kind;
    dlab_op op;
    dlab_op_args args;
    dlab_operand ranges[DLAB_MAX_OPERANDS]; /* of a copy: destination, source */
    int n_ranges;
    void *host; /* an upload's captured source (owned), a download's destination */
} command;

typedef struct {
    dlab_device base;
    dlab_device *inner;
    dlab_mem *mem;
    size_t page;
    guard_buffer *buffers;
    size_t n_buffers, cap_buffers;
    command *commands;
    size_t n_commands, cap_commands;
    char *edges; /* two pages for each operand */
} guard_device;

extern const dlab_device_ops dlab_device_guard; /* also in the generated table of devices */

static guard_device *self(dlab_device *dev) { return (guard_device *)dev; }

/* Room for one more element behind n. */
static dlab_status make_room(void **array, size_t n, size_t *cap, size_t size, dlab_error *err)
{
    if (n < *cap) return DLAB_OK;
    const size_t bigger = *cap ? 2 * *cap : 64;
    void *p = realloc(*array, bigger * size);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the guard device's lists");
    *array = p;
    *cap = bigger;
    return DLAB_OK;
}

/* ---- life ---- */

static void guard_destroy(dlab_device *dev)
{
    if (!dev) return;
    guard_device *d = self(dev);
    for (size_t i = 0; i < d->n_commands; i++)
        if (d->commands[i].kind == COMMAND_UPLOAD) free(d->commands[i].host);
    dlab_device_close(d->inner);
    free(d->commands);
    free(d->buffers);
    free(d->edges);
    free(d);
}

static dlab_status guard_create(const dlab_device_opts *opts, dlab_device **out, dlab_error *err)
{
    *out = NULL;
    guard_device *d = calloc(1, sizeof *d);
    if (!d) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the guard device");
    d->base.ops = &dlab_device_guard;
    d->mem = opts->mem;
    d->page = (size_t)sysconf(_SC_PAGESIZE);
    d->edges = malloc(2 * DLAB_MAX_OPERANDS * d->page);
    const dlab_status st = d->edges ? dlab_device_cpu.create(opts, &d->inner, err)
                                    : DLAB_FAIL(err, DLAB_EOOM, "no memory for the guard device's pages");
    if (st == DLAB_OK)
        *out = &d->base;
    else
        guard_destroy(&d->base);
    return st;
}

/* ---- access ---- */

static guard_buffer *find_buffer(guard_device *d, dlab_buf buf)
{
    for (size_t i = 0; i < d->n_buffers; i++)
        if (d->buffers[i].data == buf.ptr && d->buffers[i].bytes == buf.bytes) return &d->buffers[i];
    return NULL;
}

static dlab_status check_range(guard_device *d, const dlab_operand *o, const char *what, dlab_error *err)
{
    if (o->bytes == 0) return DLAB_OK;
    const guard_buffer *b = find_buffer(d, o->at.buf);
    if (!b) return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: a buffer that this device does not have (freed?)", what);
    if (o->at.off > b->bytes || o->bytes > b->bytes - o->at.off)
        return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: %zu bytes at %zu leave a buffer of %zu", what, o->bytes, o->at.off,
                         b->bytes);
    if ((o->access & DLAB_WRITE) && b->imported)
        return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: writes to imported memory, which is read-only", what);
    return DLAB_OK;
}

static dlab_status protect(const guard_device *d, const dlab_operand *o, int protection, dlab_error *err)
{
    if (o->bytes == 0) return DLAB_OK;
    const uintptr_t begin = (uintptr_t)dlab_host_ptr(o->at), end = begin + o->bytes;
    const uintptr_t first = begin / d->page * d->page, last = (end + d->page - 1) / d->page * d->page;
    if (mprotect((void *)first, last - first, protection) == 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EOOM, "the system does not change the access to %zu bytes", (size_t)(last - first));
}

/* Ranges to be written come last, so that a page they share with a read one is writable. */
static dlab_status open_ranges(const guard_device *d, const dlab_operand *o, int n, dlab_error *err)
{
    for (int i = 0; i < n; i++)
        if (!(o[i].access & DLAB_WRITE)) DLAB_TRY(protect(d, &o[i], PROT_READ, err));
    for (int i = 0; i < n; i++)
        if (o[i].access & DLAB_WRITE) DLAB_TRY(protect(d, &o[i], PROT_READ | PROT_WRITE, err));
    return DLAB_OK;
}

static dlab_status close_ranges(const guard_device *d, const dlab_operand *o, int n, dlab_error *err)
{
    for (int i = 0; i < n; i++) DLAB_TRY(protect(d, &o[i], PROT_NONE, err));
    return DLAB_OK;
}

/* What lies before a range in its first page (side 0), or behind it in its last (side 1): open with it, but not the op's. */
static char *edge_of(const guard_device *d, const dlab_operand *o, int side, size_t *bytes)
{
    char *begin = dlab_host_ptr(o->at), *end = begin + o->bytes;
    const size_t before = (uintptr_t)begin % d->page, last = (uintptr_t)end % d->page;
    *bytes = side == 0 ? before : last ? d->page - last : 0;
    return side == 0 ? begin - before : end;
}

static bool is_writable(const command *c, const char *byte)
{
    for (int i = 0; i < c->n_ranges; i++) {
        const char *begin = dlab_host_ptr(c->ranges[i].at);
        if ((c->ranges[i].access & DLAB_WRITE) && byte >= begin && byte < begin + c->ranges[i].bytes) return true;
    }
    return false;
}

static void keep_edges(guard_device *d, const command *c)
{
    for (int i = 0; i < 2 * c->n_ranges; i++) {
        const dlab_operand *o = &c->ranges[i / 2];
        if (!(o->access & DLAB_WRITE) || o->bytes == 0) continue;
        size_t bytes;
        const char *edge = edge_of(d, o, i % 2, &bytes);
        memcpy(d->edges + (size_t)i * d->page, edge, bytes);
    }
}

static dlab_status check_edges(const guard_device *d, const command *c, dlab_error *err)
{
    for (int i = 0; i < 2 * c->n_ranges; i++) {
        const dlab_operand *o = &c->ranges[i / 2];
        if (!(o->access & DLAB_WRITE) || o->bytes == 0) continue;
        size_t bytes;
        const char *edge = edge_of(d, o, i % 2, &bytes), *kept = d->edges + (size_t)i * d->page;
        for (size_t b = 0; b < bytes; b++) {
            if (edge[b] == kept[b] || is_writable(c, edge + b)) continue;
            return DLAB_FAIL(err, DLAB_EINTERNAL, "op %s, operand %d: wrote at %zu bytes %s its range",
                             dlab_op_name(c->op), i / 2, i % 2 ? b + 1 : bytes - b, i % 2 ? "behind" : "before");
        }
    }
    return DLAB_OK;
}

/* ---- running ---- */

static dlab_status run_command(guard_device *d, command *c, dlab_error *err)
{
    DLAB_TRY(open_ranges(d, c->ranges, c->n_ranges, err));
    void *first = dlab_host_ptr(c->ranges[0].at);
    switch (c->kind) {
    case COMMAND_OP:
        keep_edges(d, c);
        DLAB_TRY(d->inner->ops->submit(d->inner, c->op, &c->args, err));
        DLAB_TRY(d->inner->ops->sync(d->inner, err));
        DLAB_TRY(check_edges(d, c, err));
        break;
    case COMMAND_UPLOAD:
        memcpy(first, c->host, c->ranges[0].bytes);
        break;
    case COMMAND_DOWNLOAD:
        memcpy(c->host, first, c->ranges[0].bytes);
        break;
    case COMMAND_COPY:
        memmove(first, dlab_host_ptr(c->ranges[1].at), c->ranges[0].bytes);
        break;
    }
    return close_ranges(d, c->ranges, c->n_ranges, err);
}

static dlab_status guard_sync(dlab_device *dev, dlab_error *err)
{
    guard_device *d = self(dev);
    dlab_status st = DLAB_OK;
    for (size_t i = 0; i < d->n_commands; i++) {
        command *c = &d->commands[i];
        if (st == DLAB_OK) st = run_command(d, c, err);
        if (c->kind == COMMAND_UPLOAD) free(c->host);
    }
    d->n_commands = 0;
    return st;
}

static dlab_status add_command(guard_device *d, const command *c, const char *what, dlab_error *err)
{
    for (int i = 0; i < c->n_ranges; i++) DLAB_TRY(check_range(d, &c->ranges[i], what, err));
    DLAB_TRY(make_room((void **)&d->commands, d->n_commands, &d->cap_commands, sizeof *c, err));
    d->commands[d->n_commands++] = *c;
    return DLAB_OK;
}

static dlab_status guard_submit(dlab_device *dev, dlab_op op, void *args, dlab_error *err)
{
    command c = {.kind = COMMAND_OP, .op = op};
    DLAB_TRY(dlab_op_check_operands(op, args, c.ranges, &c.n_ranges, err));
    memcpy(&c.args, args, dlab_op_args_size(op));
    DLAB_TRY(add_command(self(dev), &c, dlab_op_name(op), err));
    memset(args, ARGS_SCRIBBLE, dlab_op_args_size(op));
    return DLAB_OK;
}

static dlab_status guard_upload(dlab_device *dev, dlab_at dst, const void *src, size_t bytes, dlab_error *err)
{
    if (bytes == 0) return DLAB_OK;
    command c = {.kind = COMMAND_UPLOAD, .ranges = {{dst, bytes, DLAB_WRITE}}, .n_ranges = 1, .host = malloc(bytes)};
    if (!c.host) return DLAB_FAIL(err, DLAB_EOOM, "no memory to keep an upload of %zu bytes", bytes);
    memcpy(c.host, src, bytes);
    const dlab_status st = add_command(self(dev), &c, "upload", err);
    if (st != DLAB_OK) free(c.host);
    return st;
}

static dlab_status guard_download(dlab_device *dev, void *dst, dlab_at src, size_t bytes, dlab_error *err)
{
    if (bytes == 0) return DLAB_OK;
    const command c = {.kind = COMMAND_DOWNLOAD, .ranges = {{src, bytes, DLAB_READ}}, .n_ranges = 1, .host = dst};
    DLAB_TRY(add_command(self(dev), &c, "download", err));
    memset(dst, UNREAD_SCRIBBLE, bytes);
    return DLAB_OK;
}

static dlab_status guard_copy(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err)
{
    if (bytes == 0) return DLAB_OK;
    const command c = {
        .kind = COMMAND_COPY, .ranges = {{dst, bytes, DLAB_WRITE}, {src, bytes, DLAB_READ}}, .n_ranges = 2};
    return add_command(self(dev), &c, "copy", err);
}

/* ---- memory ---- */

static dlab_status map_buffer(guard_device *d, dlab_pool pool, const void *content, size_t bytes, dlab_buf *out,
                              dlab_error *err)
{
    *out = (dlab_buf){0};
    if (bytes == 0) return DLAB_OK;
    if (bytes > SIZE_MAX / 2) return DLAB_FAIL(err, DLAB_EOOM, "a buffer of %zu bytes is impossible", bytes);
    DLAB_TRY(make_room((void **)&d->buffers, d->n_buffers, &d->cap_buffers, sizeof *d->buffers, err));
    DLAB_TRY(dlab_mem_charge(d->mem, pool, bytes, err));
    const size_t aligned = (bytes + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    const size_t pages = (aligned + d->page - 1) / d->page * d->page;
    char *map = mmap(NULL, pages + d->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        dlab_mem_discharge(d->mem, pool, bytes);
        return DLAB_FAIL(err, DLAB_EOOM, "the system does not map %zu bytes", pages + d->page);
    }
    guard_buffer *b = &d->buffers[d->n_buffers];
    *b = (guard_buffer){map, map + (pages - aligned), pages + d->page, bytes, content != NULL};
    if (content) memcpy(b->data, content, bytes);
    if (mprotect(map, b->map_bytes, PROT_NONE) != 0) {
        munmap(map, b->map_bytes);
        dlab_mem_discharge(d->mem, pool, bytes);
        return DLAB_FAIL(err, DLAB_EOOM, "the system does not close %zu bytes", b->map_bytes);
    }
    d->n_buffers++;
    *out = (dlab_buf){b->data, bytes};
    return DLAB_OK;
}

static dlab_status guard_alloc(dlab_device *dev, dlab_pool pool, size_t bytes, dlab_buf *out, dlab_error *err)
{
    return map_buffer(self(dev), pool, NULL, bytes, out, err);
}

static dlab_status guard_import(dlab_device *dev, dlab_pool pool, const void *host, size_t bytes, dlab_buf *out,
                                dlab_error *err)
{
    return map_buffer(self(dev), pool, host, bytes, out, err);
}

/* Commands listed before may use the buffer, so they run first; should one fail, its error has nowhere to go. */
static void guard_free(dlab_device *dev, dlab_pool pool, dlab_buf buf)
{
    guard_device *d = self(dev);
    if (!buf.ptr) return;
    (void)guard_sync(dev, NULL);
    guard_buffer *b = find_buffer(d, buf);
    if (!b) return;
    munmap(b->map, b->map_bytes);
    dlab_mem_discharge(d->mem, pool, b->bytes);
    *b = d->buffers[--d->n_buffers];
}

static dlab_status guard_packed(dlab_device *dev, const dlab_matrix *in, dlab_at at, dlab_matrix *out, dlab_error *err)
{
    *out = dlab_packed_matrix(in, at, dlab_isa_lanes(self(dev)->inner->ops->variant(self(dev)->inner)));
    const dlab_operand range = {out->at, out->packed_bytes, DLAB_READ};
    return check_range(self(dev), &range, "pack", err);
}

/* Packed here and now. */
static dlab_status guard_pack(dlab_device *dev, const dlab_matrix *in, dlab_at to, dlab_matrix *out, dlab_error *err)
{
    guard_device *d = self(dev);
    DLAB_TRY(guard_packed(dev, in, to, out, err));
    DLAB_TRY(guard_sync(dev, err)); /* what was uploaded before is there */
    const dlab_operand ranges[] = {{in->at, (size_t)in->n * dlab_dtype_bytes(in->dtype, in->k), DLAB_READ},
                                   {out->at, out->packed_bytes, DLAB_WRITE}};
    const dlab_pack_args args = {*in, *out};
    DLAB_TRY(open_ranges(d, ranges, 2, err));
    dlab_cpu_pack_kernel.run(&args, 0, 0, dlab_cpu_pack_kernel.tasks(&args, 0), NULL);
    return close_ranges(d, ranges, 2, err);
}

static size_t guard_packed_bytes(const dlab_device_opts *opts, const dlab_matrix *in)
{
    return dlab_device_cpu.packed_bytes(opts, in);
}

static uint64_t guard_launches(const dlab_device *dev)
{
    const guard_device *d = (const guard_device *)dev;
    return d->inner->ops->launches(d->inner);
}

static const char *guard_variant(const dlab_device *dev)
{
    const guard_device *d = (const guard_device *)dev;
    return d->inner->ops->variant(d->inner);
}

static size_t guard_own_bytes(const dlab_device_opts *opts) { return dlab_device_cpu.own_bytes(opts); }

const dlab_device_ops dlab_device_guard = {
    .name = "guard",
    .summary = "the CPU's kernels with all memory closed but an op's declared operands, for tests",
    .create = guard_create,
    .destroy = guard_destroy,
    .own_bytes = guard_own_bytes,
    .alloc = guard_alloc,
    .free = guard_free,
    .import = guard_import,
    .pack = guard_pack,
    .packed = guard_packed,
    .packed_bytes = guard_packed_bytes,
    .upload = guard_upload,
    .download = guard_download,
    .copy = guard_copy,
    .submit = guard_submit,
    .sync = guard_sync,
    .launches = guard_launches,
    .variant = guard_variant,
};

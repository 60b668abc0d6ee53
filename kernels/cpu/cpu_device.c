/* The device `cpu`: commands are listed as they are submitted and run in one go at `sync`, by all threads of a team.
 * Every thread walks the list; the tasks of a phase are claimed from a counter, and all meet before the next phase.
 * Commands that do not need each other's results share one phase: side by side where their operands are apart, or row by row
 * where each goes on with the rows that the one before has made.
 *
 * The list, the staging area for uploads and the threads' scratch are made with the device, from its scratch pool;
 * scratch grows only for an op larger than any before it. When the list or the staging area is
 * full, what is listed runs early, which nobody can tell from the outside. */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/team.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_pack.h"
#include "kernels/cpu/cpu_peak.h"

#define MAX_COMMANDS  1024
#define STAGING_BYTES ((size_t)1 << 20)
#define SCRATCH_BYTES ((size_t)1 << 20)
#define CLAIM_SHARE   2 /* a claim is what is left of a phase by so many times the threads: a short end */
#define COPY_PIECE    ((size_t)1 << 18)
#define CACHE_LINE    64
#define MAX_GROUP     6 /* commands of one phase */

typedef struct {
    void *dst;
    const void *src;
    size_t bytes;
} copy_args;

typedef enum {
    LINK_AFTER,  /* all meet before it */
    LINK_BESIDE, /* at once with the ones before */
    LINK_ROWS    /* each claim of the one before goes on with it */
} command_link;

/* What threads claim from is apart from what they only read while the list runs. */
typedef struct {
    alignas(CACHE_LINE) _Atomic int64_t next[DLAB_CPU_MAX_PHASES]; /* of each phase the next unclaimed task */
    alignas(CACHE_LINE) const dlab_cpu_kernel *kernel;
    command_link link;
    union {
        dlab_op_args op;
        copy_args copy;
        dlab_pack_args pack;
    } args;
} command;

typedef struct {
    dlab_device base;
    dlab_host_mem mem;
    const dlab_cpu_kernel *const *kernels; /* of the instruction set in use */
    const char *isa;
    dlab_team *team;
    command *commands;
    size_t n_commands;
    char *staging;
    size_t n_staged;
    char *scratch;
    size_t scratch_bytes; /* a thread */
    uint64_t n_launches;
    /* The group that the next command may join: what its commands touch. */
    struct {
        size_t first; /* command */
        int n;        /* 0: none may join */
        dlab_operand operand[MAX_GROUP][DLAB_MAX_OPERANDS];
        int n_operands[MAX_GROUP];
    } group;
} cpu_device;

#define COMMAND_BYTES (MAX_COMMANDS * sizeof(command))

static cpu_device *self(dlab_device *dev) { return (cpu_device *)dev; }

/* ---- running the list ---- */

static int64_t copy_tasks(const void *args, int phase)
{
    (void)phase;
    const copy_args *a = args;
    const uintptr_t d = (uintptr_t)a->dst, s = (uintptr_t)a->src;
    const bool apart = d + a->bytes <= s || s + a->bytes <= d;
    return apart ? (int64_t)((a->bytes + COPY_PIECE - 1) / COPY_PIECE) : 1;
}

static void copy_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const copy_args *a = args;
    const size_t from = (size_t)begin * COPY_PIECE;
    const size_t to = end == copy_tasks(args, phase) ? a->bytes : (size_t)end * COPY_PIECE;
    memmove((char *)a->dst + from, (const char *)a->src + from, to - from);
}

static const dlab_cpu_kernel copy_kernel = {"copy", 1, copy_tasks, copy_run, NULL, false};

/* A command's tasks, and of the `followers` that go on row by row the same. */
static void run_phase(command *c, int followers, int phase, int n_threads, void *scratch)
{
    const int64_t n = c->kernel->tasks(&c->args, phase), share = n_threads > 1 ? CLAIM_SHARE * n_threads : 1;
    int64_t begin = atomic_load_explicit(&c->next[phase], memory_order_relaxed);
    while (begin < n) {
        const int64_t end = begin + dlab_max_i64(1, (n - begin) / share);
        if (!atomic_compare_exchange_weak_explicit(&c->next[phase], &begin, end, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        for (int i = 0; i <= followers; i++) c[i].kernel->run(&c[i].args, phase, begin, end, scratch);
        begin = atomic_load_explicit(&c->next[phase], memory_order_relaxed);
    }
}

static bool is_op(const command *c) { return c->kernel != &copy_kernel && c->kernel != &dlab_cpu_pack_kernel; }

/* Whether there was anything to do, which all threads find the same. */
static bool run_group(cpu_device *d, command *c, const command *end, int phase, int thread, int n_threads)
{
    bool any = false;
    char *scratch = d->scratch + (size_t)thread * d->scratch_bytes;
    while (c < end) {
        int followers = 0;
        while (c + followers + 1 < end && c[followers + 1].link == LINK_ROWS) followers++;
        if (c->kernel->tasks(&c->args, phase) > 0) {
            any = true;
            if (thread == 0 && is_op(c)) d->n_launches += 1 + (uint64_t)followers;
            run_phase(c, followers, phase, n_threads, scratch);
        }
        c += 1 + followers;
    }
    return any;
}

static void walk(void *ctx, int thread, int n_threads)
{
    cpu_device *d = ctx;
    for (size_t i = 0, next; i < d->n_commands; i = next) {
        for (next = i + 1; next < d->n_commands && d->commands[next].link != LINK_AFTER; next++)
            ;
        for (int phase = 0; phase < d->commands[i].kernel->n_phases; phase++)
            if (run_group(d, &d->commands[i], &d->commands[next], phase, thread, n_threads)) dlab_team_barrier(d->team);
    }
}

static void run_list(cpu_device *d)
{
    if (d->n_commands > 0) dlab_team_run(d->team, walk, d);
    d->n_commands = 0;
    d->n_staged = 0;
    d->group.n = 0;
}

static command *new_command(cpu_device *d, const dlab_cpu_kernel *kernel)
{
    if (d->n_commands == MAX_COMMANDS) run_list(d);
    command *c = &d->commands[d->n_commands++];
    c->kernel = kernel;
    c->link = LINK_AFTER;
    for (int i = 0; i < DLAB_CPU_MAX_PHASES; i++) atomic_store_explicit(&c->next[i], 0, memory_order_relaxed);
    return c;
}

/* One that no op shares a phase with. */
static command *new_command_alone(cpu_device *d, const dlab_cpu_kernel *kernel)
{
    command *c = new_command(d, kernel);
    d->group.n = 0;
    return c;
}

/* ---- which commands share a phase ---- */

typedef enum { APART, SAME_ROWS, TANGLED } relation;

/* Of one command's operands to another's: apart where no byte that either writes is the other's. */
static relation relate(const dlab_operand *a, int n_a, const dlab_operand *b, int n_b)
{
    relation r = APART;
    for (int i = 0; i < n_a; i++) {
        const char *from = dlab_host_ptr(a[i].at);
        for (int j = 0; j < n_b; j++) {
            if (((a[i].access | b[j].access) & DLAB_WRITE) == 0) continue;
            const char *other = dlab_host_ptr(b[j].at);
            if (from + a[i].bytes <= other || other + b[j].bytes <= from) continue;
            if (from != other || a[i].bytes != b[j].bytes || ((a[i].access | b[j].access) & DLAB_ANYWHERE))
                return TANGLED;
            r = SAME_ROWS;
        }
    }
    return r;
}

/* How a command with these operands may go along with the group. */
static command_link link_of(const cpu_device *d, const command *c, const dlab_operand *o, int n)
{
    const int count = d->group.n;
    if (count == 0 || count == MAX_GROUP || c->kernel->n_phases > 1) return LINK_AFTER;
    const command *members = &d->commands[d->group.first];
    int chain = count - 1; /* where the last chain begins */
    while (members[chain].link == LINK_ROWS) chain--;
    command_link link = LINK_BESIDE;
    for (int i = count - 1; i >= 0; i--) {
        const relation r = relate(d->group.operand[i], d->group.n_operands[i], o, n);
        if (r == APART) continue;
        const bool aligned = r == SAME_ROWS && i >= chain && members[i].kernel->by_row && c->kernel->by_row &&
                             members[i].kernel->tasks(&members[i].args, 0) == c->kernel->tasks(&c->args, 0);
        if (!aligned) return LINK_AFTER;
        link = LINK_ROWS;
    }
    return link;
}

/* Behind the group if it may, else a group of its own. */
static void join_group(cpu_device *d, command *c, const dlab_operand *o, int n)
{
    c->link = link_of(d, c, o, n);
    if (c->link == LINK_AFTER) {
        d->group.first = (size_t)(c - d->commands);
        d->group.n = 0;
    }
    memcpy(d->group.operand[d->group.n], o, (size_t)n * sizeof *o);
    d->group.n_operands[d->group.n++] = n;
    if (c->kernel->n_phases > 1) d->group.n = 0;
}

static void list_copy(cpu_device *d, void *dst, const void *src, size_t bytes)
{
    new_command_alone(d, &copy_kernel)->args.copy = (copy_args){dst, src, bytes};
}

static dlab_status grow_scratch(cpu_device *d, size_t bytes, dlab_error *err)
{
    bytes = (bytes + 4095) / 4096 * 4096;
    const size_t n = (size_t)dlab_team_size(d->team);
    void *bigger = NULL;
    if (bytes > SIZE_MAX / n)
        return DLAB_FAIL(err, DLAB_EOOM, "%zu bytes of scratch for each of %zu threads", bytes, n);
    DLAB_TRY(dlab_mem_alloc(d->mem.mem, DLAB_POOL_SCRATCH, bytes * n, 0, &bigger, err));
    run_list(d);
    dlab_mem_free(d->mem.mem, DLAB_POOL_SCRATCH, d->scratch, d->scratch_bytes * n);
    d->scratch = bigger;
    d->scratch_bytes = bytes;
    return DLAB_OK;
}

/* ---- life ---- */

static dlab_status pick_isa(cpu_device *d, const char *name, dlab_error *err)
{
    char supported[64] = "";
    if (strcmp(name, "auto") == 0) name = dlab_isa_best();
    for (int i = 0; dlab_isa_list[i]; i++) {
        if (dlab_isa_supported(dlab_isa_list[i])) {
            if (supported[0]) strncat(supported, ", ", sizeof supported - strlen(supported) - 1);
            strncat(supported, dlab_isa_list[i], sizeof supported - strlen(supported) - 1);
        }
        if (strcmp(dlab_isa_list[i], name) == 0) {
            d->isa = dlab_isa_list[i];
            d->kernels = dlab_cpu_tables[i];
        }
    }
    if (!d->isa) {
        const char *nearest = dlab_nearest(name, dlab_isa_list);
        return DLAB_FAIL(err, DLAB_EUSAGE, "unknown instruction set '%s'%s%s%s, expected auto or one of: %s", name,
                         nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'" : "", supported);
    }
    if (dlab_isa_supported(name)) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "this CPU has no %s, it supports: %s", name, supported);
}

static void cpu_destroy(dlab_device *dev)
{
    if (!dev) return;
    cpu_device *d = self(dev);
    const size_t n = d->team ? (size_t)dlab_team_size(d->team) : 0;
    dlab_team_destroy(d->team);
    dlab_mem_free(d->mem.mem, DLAB_POOL_SCRATCH, d->scratch, d->scratch_bytes * n);
    dlab_mem_free(d->mem.mem, DLAB_POOL_SCRATCH, d->staging, STAGING_BYTES);
    dlab_mem_free(d->mem.mem, DLAB_POOL_SCRATCH, d->commands, COMMAND_BYTES);
    dlab_host_mem_clear(&d->mem);
    free(d);
}

static dlab_status cpu_create(const dlab_device_opts *opts, dlab_device **out, dlab_error *err)
{
    *out = NULL;
    cpu_device *d = calloc(1, sizeof *d);
    if (!d) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the cpu device");
    d->base.ops = &dlab_device_cpu;
    d->mem.mem = opts->mem;
    dlab_status st;
    DLAB_TRY_DONE(st, pick_isa(d, opts->isa, err));
    DLAB_TRY_DONE(st, dlab_team_create(opts->threads, &d->team, err));
    void *memory = NULL;
    DLAB_TRY_DONE(st, dlab_mem_alloc(opts->mem, DLAB_POOL_SCRATCH, COMMAND_BYTES, 0, &memory, err));
    d->commands = memory;
    DLAB_TRY_DONE(st, dlab_mem_alloc(opts->mem, DLAB_POOL_SCRATCH, STAGING_BYTES, 0, &memory, err));
    d->staging = memory;
    DLAB_TRY_DONE(st, grow_scratch(d, SCRATCH_BYTES, err));
    *out = &d->base;
done:
    if (st != DLAB_OK) cpu_destroy(&d->base);
    return st;
}

static size_t cpu_own_bytes(const dlab_device_opts *opts)
{
    return COMMAND_BYTES + STAGING_BYTES + (size_t)opts->threads * SCRATCH_BYTES;
}

/* ---- memory ---- */

static dlab_status cpu_alloc(dlab_device *dev, dlab_pool pool, size_t bytes, dlab_buf *out, dlab_error *err)
{
    return dlab_host_alloc(&self(dev)->mem, pool, bytes, out, err);
}

static void cpu_free(dlab_device *dev, dlab_pool pool, dlab_buf buf)
{
    run_list(self(dev)); /* commands listed before may use it */
    dlab_host_free(&self(dev)->mem, pool, buf);
}

static dlab_status cpu_import(dlab_device *dev, dlab_pool pool, const void *host, size_t bytes, dlab_buf *out,
                              dlab_error *err)
{
    return dlab_host_import(&self(dev)->mem, pool, host, bytes, out, err);
}

static dlab_status check_range(dlab_at at, size_t bytes, const char *what, dlab_error *err)
{
    if (at.off <= at.buf.bytes && bytes <= at.buf.bytes - at.off) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%s: %zu bytes at %zu leave a buffer of %zu", what, bytes, at.off,
                     at.buf.bytes);
}

static size_t cpu_packed_bytes(const dlab_device_opts *opts, const dlab_matrix *in)
{
    const char *isa = strcmp(opts->isa, "auto") == 0 ? dlab_isa_best() : opts->isa;
    return dlab_pack_bytes(in, dlab_isa_lanes(isa));
}

static dlab_status cpu_packed(dlab_device *dev, const dlab_matrix *in, dlab_at at, dlab_matrix *out, dlab_error *err)
{
    *out = dlab_packed_matrix(in, at, dlab_isa_lanes(self(dev)->isa));
    return check_range(at, out->packed_bytes, "pack", err);
}

static dlab_status cpu_pack(dlab_device *dev, const dlab_matrix *in, dlab_at to, dlab_matrix *out, dlab_error *err)
{
    DLAB_TRY(cpu_packed(dev, in, to, out, err));
    new_command_alone(self(dev), &dlab_cpu_pack_kernel)->args.pack = (dlab_pack_args){*in, *out};
    return DLAB_OK;
}

static dlab_status cpu_upload(dlab_device *dev, dlab_at dst, const void *src, size_t bytes, dlab_error *err)
{
    cpu_device *d = self(dev);
    DLAB_TRY(check_range(dst, bytes, "upload", err));
    if (bytes == 0) return DLAB_OK;
    /* A full list would be run, and the staging area with it, between here and the new command. */
    if (bytes > STAGING_BYTES - d->n_staged || d->n_commands == MAX_COMMANDS) run_list(d);
    if (d->n_commands == 0) {
        memcpy(dlab_host_ptr(dst), src, bytes);
        return DLAB_OK;
    }
    char *staged = d->staging + d->n_staged;
    memcpy(staged, src, bytes);
    d->n_staged += bytes;
    list_copy(d, dlab_host_ptr(dst), staged, bytes);
    return DLAB_OK;
}

static dlab_status cpu_download(dlab_device *dev, void *dst, dlab_at src, size_t bytes, dlab_error *err)
{
    DLAB_TRY(check_range(src, bytes, "download", err));
    if (bytes) list_copy(self(dev), dst, dlab_host_ptr(src), bytes);
    return DLAB_OK;
}

static dlab_status cpu_copy(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err)
{
    DLAB_TRY(check_range(dst, bytes, "copy to", err));
    DLAB_TRY(check_range(src, bytes, "copy from", err));
    if (bytes) list_copy(self(dev), dlab_host_ptr(dst), dlab_host_ptr(src), bytes);
    return DLAB_OK;
}

/* ---- ops ---- */

static dlab_status check_product(const cpu_device *d, const dlab_matmul_args *a, dlab_error *err)
{
    if (a->w.layout != dlab_isa_lanes(d->isa))
        return DLAB_FAIL(err, DLAB_EINTERNAL, "matmul: the cpu device multiplies packed weights only");
    if (!dlab_act_fits(a->input, a->w.dtype))
        return DLAB_FAIL(err, DLAB_EINTERNAL, "matmul: inputs of kind %d do not go with weights in %s", (int)a->input,
                         dlab_dtype_name(a->w.dtype));
    return DLAB_OK;
}

static dlab_status cpu_submit(dlab_device *dev, dlab_op op, void *args, dlab_error *err)
{
    cpu_device *d = self(dev);
    dlab_operand o[DLAB_MAX_OPERANDS];
    int n = 0;
    DLAB_TRY(dlab_op_check_operands(op, args, o, &n, err));
    if (op == DLAB_OP_matmul) DLAB_TRY(check_product(d, args, err));
    const dlab_cpu_kernel *kernel = d->kernels[op];
    const size_t need = kernel->scratch_bytes ? kernel->scratch_bytes(args) : 0;
    if (need > d->scratch_bytes) DLAB_TRY(grow_scratch(d, need, err));
    command *c = new_command(d, kernel);
    memcpy(&c->args.op, args, dlab_op_args_size(op));
    join_group(d, c, o, n);
    return DLAB_OK;
}

static dlab_status cpu_sync(dlab_device *dev, dlab_error *err)
{
    (void)err;
    run_list(self(dev));
    return DLAB_OK;
}

static uint64_t cpu_launches(const dlab_device *dev) { return ((const cpu_device *)dev)->n_launches; }

static const char *cpu_variant(const dlab_device *dev) { return ((const cpu_device *)dev)->isa; }

static dlab_status cpu_peak(dlab_device *dev, const dlab_peak *what, double *per_second, dlab_error *err)
{
    cpu_device *d = self(dev);
    run_list(d);
    return dlab_cpu_peak_run(d->team, d->isa, d->mem.mem, what, per_second, err);
}

const dlab_device_ops dlab_device_cpu = {
    .name = "cpu",
    .summary = "this machine's CPU, with the best instruction set it has (isa) and a team of threads",
    .create = cpu_create,
    .destroy = cpu_destroy,
    .own_bytes = cpu_own_bytes,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .import = cpu_import,
    .pack = cpu_pack,
    .packed = cpu_packed,
    .packed_bytes = cpu_packed_bytes,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .submit = cpu_submit,
    .sync = cpu_sync,
    .launches = cpu_launches,
    .variant = cpu_variant,
    .peak = cpu_peak,
};

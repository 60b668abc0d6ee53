/* The device contract. Ops and copies are asynchronous until `sync`: nothing they write may be read, and no destination
 * of a download looked at, before it returns. Arguments are taken by value at the call (a device may scribble on the
 * caller's copy), an upload's source too. Ops run as if in order of submission. Not thread safe: one caller. */
#ifndef DLAB_KERNELS_DEVICE_H
#define DLAB_KERNELS_DEVICE_H

#include "base/mem.h"
#include "base/status.h"
#include "kernels/op.h"
#include "kernels/peak.h"

typedef struct dlab_device dlab_device;

/* Raised whenever a device packs weights in other bytes than before: packed weights are kept in files. */
#define DLAB_PACK_LAYOUT 1

typedef struct {
    int threads;     /* ≥ 1 */
    const char *isa; /* "auto" or a name of dlab_isa_list */
    dlab_mem *mem;   /* borrowed; must outlive the device */
} dlab_device_opts;

typedef struct {
    const char *name, *summary;
    dlab_status (*create)(const dlab_device_opts *opts, dlab_device **out, dlab_error *err);
    void (*destroy)(dlab_device *dev);
    /* Bytes of the scratch pool that the device takes for itself at creation: lists, staging, threads' scratch. */
    size_t (*own_bytes)(const dlab_device_opts *opts);
    dlab_status (*alloc)(dlab_device *dev, dlab_pool pool, size_t bytes, dlab_buf *out, dlab_error *err);
    void (*free)(dlab_device *dev, dlab_pool pool, dlab_buf buf);
    /* Read-only host memory (a mapped model file) that ops may use in place for as long as it stays mapped; charged to
     * the pool (DLAB_POOL_NONE: to none). Undone by `free`. */
    dlab_status (*import)(dlab_device *dev, dlab_pool pool, const void *host, size_t bytes, dlab_buf *out,
                          dlab_error *err);
    /* Bytes of a weight in the layout that the device's products want; 0: they take it as stored. */
    size_t (*packed_bytes)(const dlab_device_opts *opts, const dlab_matrix *in);
    /* Brings it into that layout at `to`, aligned to 64 bytes, and describes it in *out. `in` is not needed any more after
     * the next sync. `embed` takes a packed table too. Not for weights that are used as stored. */
    dlab_status (*pack)(dlab_device *dev, const dlab_matrix *in, dlab_at to, dlab_matrix *out, dlab_error *err);
    /* Describes what pack once left at `at`, for a device of the same variant and DLAB_PACK_LAYOUT. */
    dlab_status (*packed)(dlab_device *dev, const dlab_matrix *in, dlab_at at, dlab_matrix *out, dlab_error *err);
    dlab_status (*upload)(dlab_device *dev, dlab_at dst, const void *src, size_t bytes, dlab_error *err);
    dlab_status (*download)(dlab_device *dev, void *dst, dlab_at src, size_t bytes, dlab_error *err);
    dlab_status (*copy)(dlab_device *dev, dlab_at dst, dlab_at src, size_t bytes, dlab_error *err);
    /* args: the op's struct of kernels/op.h. */
    dlab_status (*submit)(dlab_device *dev, dlab_op op, void *args, dlab_error *err);
    dlab_status (*sync)(dlab_device *dev, dlab_error *err);
    /* Kernels launched since creation; on a CPU, phases of ops run by the team. */
    uint64_t (*launches)(const dlab_device *dev);
    /* The instruction set or the like that is in use: "avx2", … */
    const char *(*variant)(const dlab_device *dev);
    /* Bytes or operations (two a multiply-add) in a second, the best of the tries. Runs what is submitted first. NULL: the
     * device has no probes. */
    dlab_status (*peak)(dlab_device *dev, const dlab_peak *what, double *per_second, dlab_error *err);
} dlab_device_ops;

struct dlab_device {
    const dlab_device_ops *ops; /* first member of every device */
};

/* All devices, NULL-terminated: cpu, guard, ref. */
extern const dlab_device_ops *const dlab_devices[];
/* DLAB_EUSAGE names the nearest; DLAB_ENOTBUILT for cuda and sim. *out is NULL on failure. */
dlab_status dlab_device_open(const char *name, const dlab_device_opts *opts, dlab_device **out, dlab_error *err);
void dlab_device_close(dlab_device *dev); /* NULL is fine */
/* DLAB_ENOTBUILT where the device has no probes. */
dlab_status dlab_device_peak(dlab_device *dev, const dlab_peak *what, double *per_second, dlab_error *err);

/* Instruction sets that the CPU kernels are compiled for, from least to most: plain, avx2, avxvnni, avx512, vnni (AVX-512 with
 * VNNI), bf16 (with VNNI and BF16). NULL-terminated. */
extern const char *const dlab_isa_list[];
bool dlab_isa_supported(const char *isa); /* by this CPU */
const char *dlab_isa_best(void);

/* Typed submission: dlab_submit_rmsnorm(dev, (dlab_rmsnorm_args){…}, err). */
#define DLAB_OP_SUBMIT(name, args)                                                                                     \
    static inline dlab_status dlab_submit_##name(dlab_device *dev, args a, dlab_error *err)                            \
    {                                                                                                                  \
        return dev->ops->submit(dev, DLAB_OP_##name, &a, err);                                                         \
    }
DLAB_OP_LIST(DLAB_OP_SUBMIT)
#undef DLAB_OP_SUBMIT

#endif

/* What this machine does at most, by instruction set, threads and working set: measured by `dlab calibrate`, or in passing
 * by `dlab bench` and `dlab run`, and kept in the user's cache folder for the metrics that compare a run with it. */
#ifndef DLAB_HARNESS_PROBES_CALIBRATION_H
#define DLAB_HARNESS_PROBES_CALIBRATION_H

#include <signal.h>

#include "base/clock.h"
#include "base/json.h"
#include "engine/engine.h"
#include "results/run.h"

#define DLAB_CALIBRATION_THREADS 64  /* thread counts of one calibration at most */
#define DLAB_CALIBRATION_S       16  /* what `dlab calibrate` spends on tries; with all around it under 20 s */
#define DLAB_CALIBRATION_QUICK_S 2.0 /* and one in passing, of one thread count */

/* Of one number of threads. */
typedef struct {
    int64_t threads;
    bool quick;       /* measured in passing */
    int64_t measured; /* when: unix seconds */
    dlab_peak_row rows[DLAB_PEAK_ROWS];
    size_t n; /* rows */
} dlab_calibrated;

typedef struct {
    const char *isa;       /* of dlab_engine_isas */
    dlab_settings machine; /* what the fingerprint is made of */
    char fingerprint[17];
    dlab_calibrated *threads; /* [n] ascending */
    size_t n;
} dlab_calibration;

/* False: DLAB_CALIBRATION=off. Nothing is measured in passing then, and what is kept is not used. */
bool dlab_calibration_wanted(void);

/* Without figures, for this machine, the CPUs that we may use here, and an instruction set ("auto": the best). */
dlab_status dlab_calibration_init(dlab_calibration *c, const char *isa, dlab_error *err);
void dlab_calibration_free(dlab_calibration *c);
const dlab_calibrated *dlab_calibration_find(const dlab_calibration *c, int64_t threads); /* or NULL */
/* Adds it, or replaces the one of as many threads. */
dlab_status dlab_calibration_put(dlab_calibration *c, const dlab_calibrated *of, dlab_error *err);

/* Where the figures of c's machine and instruction set are kept: decodelab/calibration/FINGERPRINT.json. */
dlab_status dlab_calibration_path(const dlab_calibration *c, char *buf, size_t size, dlab_error *err);
/* Adds what the file has. No file is fine. A file that is not one of ours, whole and of this machine is DLAB_EFORMAT, and
 * leaves c as it was. */
dlab_status dlab_calibration_load(dlab_calibration *c, const char *path, dlab_error *err);
/* The same for its content; path: how it is named in errors. */
dlab_status dlab_calibration_parse(dlab_calibration *c, const char *path, const char *text, size_t n, dlab_error *err);
dlab_status dlab_calibration_save(const dlab_calibration *c, const char *path, dlab_error *err);
/* Saves c's figures for these numbers of threads, which it has, beside what the file has by now, which c has then, too: another
 * process may have measured others. */
dlab_status dlab_calibration_save_with(dlab_calibration *c, const int64_t *threads, size_t n, const char *path,
                                       dlab_error *err);
/* Makes the file's folder, and fails where that takes no file: to be found out before anything is measured. */
dlab_status dlab_calibration_make_room(const char *path, dlab_error *err);
json_t *dlab_calibration_json(const dlab_calibration *c); /* NULL when memory is out */

/* ---- measuring ---- */

typedef struct {
    dlab_peak what;
    int64_t threads;
} dlab_ask;

typedef struct {
    const int64_t *threads; /* [n_threads], at most DLAB_CALIBRATION_THREADS */
    size_t n_threads;
    double seconds; /* for all tries together; where they are many, working sets are further apart */
    bool quick;
    int64_t most_bytes;                       /* the largest working set; 0: as memory allows, up to 256 MiB */
    const volatile sig_atomic_t *interrupted; /* DLAB_EINTERRUPTED between tries; NULL: never */
    dlab_clock *clock;                        /* NULL: the real one */
    /* NULL: the probes of the cpu device */
    dlab_status (*probe)(void *ctx, const dlab_ask *ask, double *per_second, dlab_error *err);
    void *ctx;
} dlab_calibration_opts;

/* Measures and puts the figures into c. Working sets of which a thread's part would be under 8 KiB are left out, but for
 * the largest. */
dlab_status dlab_calibration_measure(dlab_calibration *c, const dlab_calibration_opts *opts, dlab_error *err);

/* ---- for runs ---- */

/* Sees to it that there are figures for an effective plan: a quick calibration where none are kept, after a line to `say`
 * that tells, where they are wanted. */
void dlab_calibration_ensure(const dlab_plan *plan, const volatile sig_atomic_t *interrupted,
                             void (*say)(void *ctx, const char *line), void *ctx);
/* The kept figures for an effective plan. False: there are none, or none are wanted; *out is empty then. */
bool dlab_calibration_kept(const dlab_plan *plan, dlab_calibrated *out);

#endif

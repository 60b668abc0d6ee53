/* Another program that measures the same things: run as a process of its own, one test a process, its answer checked. */
#ifndef DLAB_HARNESS_PEER_PEER_H
#define DLAB_HARNESS_PEER_PEER_H

#include <signal.h>
#include <stdbool.h>

#include "engine/engine.h"

/* Every kind takes llama-bench's flags and prints llama-bench's JSON lines. */
typedef struct {
    const char *name, *about;
    bool side_by_side; /* knows -npl */
    bool offloads;     /* has to be told that no layer goes to a GPU */
} dlab_peer_kind;
extern const dlab_peer_kind dlab_peer_kinds[];
extern const size_t dlab_n_peer_kinds;

typedef struct {
    const dlab_peer_kind *kind;
    const char *path;  /* looked for on PATH where it has no slash */
    const char *model; /* a GGUF file */
    int64_t timeout_ns;
    const volatile sig_atomic_t *interrupted; /* NULL: never */
} dlab_peer;

typedef struct {
    int64_t n_prompt, n_gen, depth, npl, n_batch, n_ubatch, threads;
    int64_t n_params;            /* of our model: the peer's file may be another, its model may not */
    const char *type_k, *type_v; /* the peer's names */
    int flash;                   /* 1: its fused attention */
} dlab_peer_test;

#define DLAB_PEER_BUILD 160

typedef struct {
    double time_ns, rate;        /* of all the test's tokens */
    char build[DLAB_PEER_BUILD]; /* "0c1e570 (6123), CPU", as the program calls itself */
} dlab_peer_sample;

/* KIND=PATH into *kind and *path, which points into text. The program must be there and executable. */
dlab_status dlab_peer_parse(const char *text, const dlab_peer_kind **kind, const char **path, dlab_error *err);
/* The peer's name for one of our formats of cached elements; NULL: it has none. */
const char *dlab_peer_cache_type(const char *ours);
/* The peer's side of a cell (dimensions set in *test), from the plan that ours runs with: settings and names. What the
 * peer cannot do is DLAB_EIMPOSSIBLE, with the reason. flash is left alone. */
dlab_status dlab_peer_test_fit(const dlab_peer *p, const dlab_plan *plan, dlab_peer_test *test, dlab_error *err);
/* Runs the test once. A program that cannot be run, fails, or answers something else than what was asked is DLAB_EIO or
 * DLAB_EFORMAT; one that does not end in time is killed: DLAB_ETIMEOUT. */
dlab_status dlab_peer_measure(const dlab_peer *p, const dlab_peer_test *test, dlab_peer_sample *out, dlab_error *err);

/* The parts of it, for tests. */
/* Runs argv[0] (its own process group, nothing to read) to its end; *out is malloc'd standard output, NUL-terminated. */
dlab_status dlab_peer_exec(char *const argv[], int64_t timeout_ns, const volatile sig_atomic_t *interrupted, char **out,
                           size_t *n, dlab_error *err);
/* The one test in a program's JSON lines; lines that do not begin with a brace are passed over. */
dlab_status dlab_peer_read(const char *name, const char *text, size_t n, const dlab_peer_test *test,
                           dlab_peer_sample *out, dlab_error *err);

#endif

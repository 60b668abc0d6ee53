/* What another program measured beside ours, run by run in pairs. Part of the record of `dlab bench --peer`. */
#ifndef DLAB_RESULTS_PEER_H
#define DLAB_RESULTS_PEER_H

#include "results/run.h"

/* One pair: a run of ours and one of the peer, one after the other. */
typedef struct {
    int32_t point, pair, peer_first; /* pair: from 0, ours is the run of this repeat */
    double ours_rate, peer_rate;     /* tok/s */
    double ours_ns, peer_ns;
} dlab_peer_pair;

/* What came of it at a point. */
typedef struct {
    int32_t point, flash; /* flash: the peer's fused attention, 1 on, 0 off, −1 not known */
    char status[16], reason[512], type_k[16], type_v[16];
    double ratio, low, high; /* ours over the peer's rate, and its interval; NaN: missing */
} dlab_peer_point;

typedef struct {
    dlab_settings about; /* kind, path, model, build */
    dlab_peer_pair *pairs;
    dlab_peer_point *points;
    size_t n_pairs, n_points; /* n_points 0: no peer was measured */
} dlab_peer_result;

void dlab_peer_result_free(dlab_peer_result *r);
dlab_status dlab_peer_result_add_pair(dlab_peer_result *r, const dlab_peer_pair *pair, dlab_error *err);
dlab_status dlab_peer_result_add_point(dlab_peer_result *r, const dlab_peer_point *point, dlab_error *err);
const dlab_peer_point *dlab_peer_result_find(const dlab_peer_result *r, size_t point); /* or NULL */

#endif

/* /peer and /peer_points: what another program measured in turns with ours. A record without a peer has neither. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "results/record_parts.h"

#define N_OF(a) (sizeof(a) / sizeof *(a))

static const dlab_h5_column pair_columns[] = {
    DLAB_H5_COLUMN(dlab_peer_pair, point, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "point, from 0"),
    DLAB_H5_COLUMN(dlab_peer_pair, pair, DLAB_H5_I32, DLAB_H5_NEEDED, "1",
                   "pair, from 0; ours is the point's run of this repeat"),
    DLAB_H5_COLUMN(dlab_peer_pair, peer_first, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "0: ours ran first, 1: the peer did"),
    DLAB_H5_COLUMN(dlab_peer_pair, ours_rate, DLAB_H5_F64, DLAB_H5_NEEDED, "tok/s",
                   "our rate over all tokens of the test"),
    DLAB_H5_COLUMN(dlab_peer_pair, peer_rate, DLAB_H5_F64, DLAB_H5_NEEDED, "tok/s", "the peer's"),
    DLAB_H5_COLUMN(dlab_peer_pair, ours_ns, DLAB_H5_F64, DLAB_H5_NEEDED, "ns", "our time"),
    DLAB_H5_COLUMN(dlab_peer_pair, peer_ns, DLAB_H5_F64, DLAB_H5_NEEDED, "ns", "the peer's"),
};

static const dlab_h5_column point_columns[] = {
    DLAB_H5_COLUMN(dlab_peer_point, point, DLAB_H5_I32, DLAB_H5_NEEDED, "1", "point, from 0"),
    DLAB_H5_COLUMN(dlab_peer_point, status, DLAB_H5_STR, DLAB_H5_NEEDED, "",
                   "of the peer's part: ok, skipped (it cannot do this), failed, hung, pending"),
    DLAB_H5_COLUMN(dlab_peer_point, reason, DLAB_H5_STR, DLAB_H5_NEEDED, "", "why it is not ok"),
    DLAB_H5_COLUMN(dlab_peer_point, type_k, DLAB_H5_STR, DLAB_H5_NEEDED, "", "the peer's format of cached keys"),
    DLAB_H5_COLUMN(dlab_peer_point, type_v, DLAB_H5_STR, DLAB_H5_NEEDED, "", "the peer's format of cached values"),
    DLAB_H5_COLUMN(dlab_peer_point, flash, DLAB_H5_I32, DLAB_H5_NEEDED, "1",
                   "1: the peer's fused attention, 0: its unfused, -1: not known"),
    DLAB_H5_COLUMN(dlab_peer_point, ratio, DLAB_H5_F64, DLAB_H5_NEEDED, "1",
                   "geometric mean over the pairs of our rate divided by the peer's"),
    DLAB_H5_COLUMN(dlab_peer_point, low, DLAB_H5_F64, DLAB_H5_NEEDED, "1",
                   "lower end of its 95 % interval (Student's t on the logarithms)"),
    DLAB_H5_COLUMN(dlab_peer_point, high, DLAB_H5_F64, DLAB_H5_NEEDED, "1", "upper end"),
};

static const char *const attributes[] = {"kind", "path", "model", "build"};

void dlab_peer_result_free(dlab_peer_result *r)
{
    dlab_settings_free(&r->about);
    free(r->pairs);
    free(r->points);
    *r = (dlab_peer_result){0};
}

/* Room for one more row. */
static dlab_status grow(void **rows, size_t n, size_t row_bytes, dlab_error *err)
{
    void *more = realloc(*rows, (n + 1) * row_bytes);
    if (!more) return DLAB_FAIL(err, DLAB_EOOM, "no memory for what the peer measured");
    *rows = more;
    return DLAB_OK;
}

dlab_status dlab_peer_result_add_pair(dlab_peer_result *r, const dlab_peer_pair *pair, dlab_error *err)
{
    void *rows = r->pairs;
    dlab_status st = grow(&rows, r->n_pairs, sizeof *pair, err);
    r->pairs = rows;
    if (st == DLAB_OK) r->pairs[r->n_pairs++] = *pair;
    return st;
}

dlab_status dlab_peer_result_add_point(dlab_peer_result *r, const dlab_peer_point *point, dlab_error *err)
{
    void *rows = r->points;
    dlab_status st = grow(&rows, r->n_points, sizeof *point, err);
    r->points = rows;
    if (st == DLAB_OK) r->points[r->n_points++] = *point;
    return st;
}

const dlab_peer_point *dlab_peer_result_find(const dlab_peer_result *r, size_t point)
{
    for (size_t i = 0; i < r->n_points; i++)
        if (r->points[i].point >= 0 && (size_t)r->points[i].point == point) return &r->points[i];
    return NULL;
}

static dlab_status put_attributes(const dlab_h5_out *o, const dlab_peer_result *r, dlab_error *err)
{
    hid_t table = H5Dopen2(o->file, "peer", H5P_DEFAULT);
    if (table < 0) return dlab_h5_fail(o->path, DLAB_EINTERNAL, "peer", err);
    dlab_status st = DLAB_OK;
    for (size_t i = 0; st == DLAB_OK && i < N_OF(attributes); i++) {
        const char *value = dlab_settings_get(&r->about, attributes[i]);
        st = dlab_h5_put_str(o, table, attributes[i], value ? value : "", err);
    }
    H5Dclose(table);
    return st;
}

dlab_status dlab_record_put_peer(const dlab_h5_out *o, const dlab_peer_result *r, dlab_error *err)
{
    if (r->n_points == 0) return DLAB_OK;
    DLAB_TRY(dlab_h5_put_table(o, o->file, "peer", pair_columns, N_OF(pair_columns), r->pairs, sizeof *r->pairs,
                               r->n_pairs, err));
    DLAB_TRY(put_attributes(o, r, err));
    return dlab_h5_put_table(o, o->file, "peer_points", point_columns, N_OF(point_columns), r->points,
                             sizeof *r->points, r->n_points, err);
}

static dlab_status get_attributes(const dlab_h5_in *in, dlab_peer_result *r, dlab_error *err)
{
    char value[4096];
    hid_t table = H5Dopen2(in->file, "peer", H5P_DEFAULT);
    if (table < 0) return dlab_h5_fail(in->path, DLAB_EFORMAT, "peer", err);
    dlab_status st = DLAB_OK;
    for (size_t i = 0; st == DLAB_OK && i < N_OF(attributes); i++) {
        st = dlab_h5_get_str(in, table, attributes[i], value, sizeof value, err);
        if (st == DLAB_OK) st = dlab_settings_set(&r->about, attributes[i], value, err);
    }
    H5Dclose(table);
    return st;
}

static dlab_status check_points(const dlab_h5_in *in, const dlab_peer_result *r, size_t n_points, dlab_error *err)
{
    for (size_t i = 0; i < r->n_pairs; i++)
        if (r->pairs[i].point < 0 || (size_t)r->pairs[i].point >= n_points)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: a pair of the peer's belongs to point %d of %zu", in->path,
                             r->pairs[i].point, n_points);
    for (size_t i = 0; i < r->n_points; i++) {
        const dlab_peer_point *p = &r->points[i];
        if (p->point < 0 || (size_t)p->point >= n_points)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the peer's part belongs to point %d of %zu", in->path, p->point,
                             n_points);
        if (dlab_run_status_parse(p->status) == DLAB_RUN_STATUS_N)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the status of the peer's part of point %d is none", in->path,
                             p->point);
        if (p->flash < -1 || p->flash > 1)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the peer's part of point %d has attention %d, not -1, 0 or 1",
                             in->path, p->point, p->flash);
    }
    return DLAB_OK;
}

dlab_status dlab_record_get_peer(const dlab_h5_in *in, size_t n_points, dlab_peer_result *r, dlab_error *err)
{
    void *rows = NULL;
    if (H5Lexists(in->file, "peer", H5P_DEFAULT) <= 0) return DLAB_OK;
    DLAB_TRY(dlab_h5_get_table(in, in->file, "peer", pair_columns, N_OF(pair_columns), sizeof *r->pairs, &rows,
                               &r->n_pairs, err));
    r->pairs = rows;
    DLAB_TRY(dlab_h5_get_table(in, in->file, "peer_points", point_columns, N_OF(point_columns), sizeof *r->points,
                               &rows, &r->n_points, err));
    r->points = rows;
    DLAB_TRY(get_attributes(in, r, err));
    return check_points(in, r, n_points, err);
}

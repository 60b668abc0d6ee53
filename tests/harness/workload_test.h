/* Shared by the tests of workloads: one from the tables' defaults, its requests, and what both say of one that cannot be. */
#ifndef DLAB_TESTS_HARNESS_WORKLOAD_TEST_H
#define DLAB_TESTS_HARNESS_WORKLOAD_TEST_H

#include <unistd.h>

#include "harness/workload/workload.h"
#include "tests/harness/spec_test.h"

static inline dlab_workload default_workload(void)
{
    dlab_workload w = {0};
    size_t n;
    const dlab_param *table = dlab_workload_params(&n);
    dlab_param_defaults(table, n, &w);
    return w;
}

static inline dlab_workload_host host_of(int64_t batch_size)
{
    return (dlab_workload_host){.batch_size = batch_size, .context = 2048, .first_id = 100, .vocab = 1000};
}

static inline dlab_status try_build(const dlab_workload *w, const dlab_workload_host *host, bool warmup,
                                    dlab_requests *out, dlab_error *err)
{
    dlab_shape *s = NULL;
    *out = (dlab_requests){0};
    dlab_status st = dlab_shape_create(w, host, &s, err);
    if (st == DLAB_OK) st = dlab_shape_build(s, warmup, out, err);
    dlab_shape_destroy(s);
    return st;
}

static inline dlab_requests build_on(const dlab_workload *w, const dlab_workload_host *host)
{
    dlab_requests r;
    dlab_error err = {0};
    ck_assert_msg(try_build(w, host, false, &r, &err) == DLAB_OK, "%s", err.msg);
    return r;
}

static inline dlab_requests build_warmup(const dlab_workload *w, const dlab_workload_host *host)
{
    dlab_requests r;
    dlab_error err = {0};
    ck_assert_msg(try_build(w, host, true, &r, &err) == DLAB_OK, "%s", err.msg);
    return r;
}

static inline dlab_requests build(const dlab_workload *w, int64_t batch_size)
{
    const dlab_workload_host host = host_of(batch_size);
    return build_on(w, &host);
}

static inline dlab_engine_needs needs_on(const dlab_workload *w, const dlab_workload_host *host)
{
    dlab_shape *s = NULL;
    dlab_error err = {0};
    ck_assert_msg(dlab_shape_create(w, host, &s, &err) == DLAB_OK, "%s", err.msg);
    const dlab_engine_needs needs = dlab_shape_needs(s);
    dlab_shape_destroy(s);
    return needs;
}

static inline dlab_engine_needs needs_of(const dlab_workload *w, int64_t batch_size)
{
    const dlab_workload_host host = host_of(batch_size);
    return needs_on(w, &host);
}

static inline void check_refused_on(const dlab_workload *w, const dlab_workload_host *host, dlab_status status,
                                    const char *message)
{
    dlab_requests r;
    dlab_error err = {0};
    ck_assert_int_eq(try_build(w, host, false, &r, &err), status);
    ck_assert_str_eq(err.msg, message);
    ck_assert_ptr_null(r.ids);
}

static inline void check_impossible(const dlab_workload *w, int64_t batch_size, const char *message)
{
    const dlab_workload_host host = host_of(batch_size);
    check_refused_on(w, &host, DLAB_EIMPOSSIBLE, message);
}

/* A file of this text, its name in path [DLAB_PARAM_STR]; the test removes it. */
static inline void write_file(char *path, const char *text)
{
    snprintf(path, DLAB_PARAM_STR, "/tmp/dlab-workload-XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

#endif

/* The kept figures as JSON. A cache folder may hold anything: whatever is not as we write it is refused whole. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/team.h"
#include "base/text.h"
#include "harness/probes/calibration.h"
#include "harness/probes/probes.h"

#define FILE_VERSION 2
#define FILE_MAX     ((size_t)1 << 20)
#define RATE_MAX     1e18 /* bytes or operations a second: beyond any machine */
#define DATE_FORMAT  "%Y-%m-%dT%H:%M:%SZ"

/* ---- whose figures ---- */

/* What the peaks depend on, as far as it can be seen. */
static dlab_status describe_machine(dlab_calibration *c, dlab_error *err)
{
    static const char *const keys[] = {"cpu_model", "microcode",    "cache",  "cores",
                                       "cpu_quota", "memory_bytes", "kernel", "hypervisor"};
    char usable[16];
    dlab_settings env = {0};
    dlab_status st = dlab_probe_environment(&env, err);
    for (size_t i = 0; st == DLAB_OK && i < sizeof keys / sizeof *keys; i++) {
        const char *value = dlab_settings_get(&env, keys[i]);
        if (value) st = dlab_settings_set(&c->machine, keys[i], value, err);
    }
    dlab_settings_free(&env);
    snprintf(usable, sizeof usable, "%d", dlab_cores_usable());
    if (st == DLAB_OK) st = dlab_settings_set(&c->machine, "cores_usable", usable, err);
    return st;
}

static dlab_status take_fingerprint(dlab_calibration *c, dlab_error *err)
{
    XXH64_state_t *h = XXH64_createState();
    if (!h) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a hash");
    XXH64_reset(h, FILE_VERSION);
    XXH64_update(h, c->isa, strlen(c->isa) + 1);
    for (size_t i = 0; i < c->machine.n; i++) {
        const dlab_setting *s = &c->machine.items[i];
        XXH64_update(h, s->key, strlen(s->key) + 1);
        XXH64_update(h, s->value, strlen(s->value) + 1);
    }
    snprintf(c->fingerprint, sizeof c->fingerprint, "%016" PRIx64, (uint64_t)XXH64_digest(h));
    XXH64_freeState(h);
    return DLAB_OK;
}

dlab_status dlab_calibration_init(dlab_calibration *c, const char *isa, dlab_error *err)
{
    *c = (dlab_calibration){.isa = strcmp(isa, "auto") == 0 ? dlab_engine_isa_best() : isa};
    dlab_status st = describe_machine(c, err);
    if (st == DLAB_OK) st = take_fingerprint(c, err);
    if (st != DLAB_OK) dlab_calibration_free(c);
    return st;
}

void dlab_calibration_free(dlab_calibration *c)
{
    dlab_settings_free(&c->machine);
    free(c->threads);
    *c = (dlab_calibration){0};
}

const dlab_calibrated *dlab_calibration_find(const dlab_calibration *c, int64_t threads)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->threads[i].threads == threads) return &c->threads[i];
    return NULL;
}

dlab_status dlab_calibration_put(dlab_calibration *c, const dlab_calibrated *of, dlab_error *err)
{
    size_t at = 0;
    while (at < c->n && c->threads[at].threads < of->threads) at++;
    if (at == c->n || c->threads[at].threads != of->threads) {
        dlab_calibrated *more = realloc(c->threads, (c->n + 1) * sizeof *more);
        if (!more) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the peaks of %" PRId64 " threads", of->threads);
        c->threads = more;
        memmove(more + at + 1, more + at, (c->n - at) * sizeof *more);
        c->n++;
    }
    c->threads[at] = *of;
    return DLAB_OK;
}

dlab_status dlab_calibration_path(const dlab_calibration *c, char *buf, size_t size, dlab_error *err)
{
    char rel[64];
    snprintf(rel, sizeof rel, "calibration/%s.json", c->fingerprint);
    if (dlab_cache_path(rel, buf, size)) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "no cache folder to keep peaks in: neither XDG_CACHE_HOME nor HOME is set");
}

/* ---- writing ---- */

static json_t *calibrated_json(const dlab_calibrated *of)
{
    json_t *read = json_array();
    char measured[32] = "";
    struct tm utc;
    const time_t t = (time_t)of->measured;
    if (gmtime_r(&t, &utc)) strftime(measured, sizeof measured, DATE_FORMAT, &utc);
    for (size_t i = 0; i < of->n; i++) {
        json_array_append_new(read,
                              json_pack("{s:f, s:f}", "bytes", of->rows[i].bytes, "bytes_ps", of->rows[i].read_ps));
    }
    return json_pack("{s:I, s:b, s:s, s:f, s:f, s:f, s:o}", "threads", (json_int_t)of->threads, "quick", (int)of->quick,
                     "measured", measured, "f32_flop_ps", of->rows[0].f32_ps, "int8_op_ps", of->rows[0].int8_ps,
                     "bf16_flop_ps", of->rows[0].bf16_ps, "read", read);
}

json_t *dlab_calibration_json(const dlab_calibration *c)
{
    json_t *machine = json_object(), *peaks = json_array();
    char text[1024];
    for (size_t i = 0; i < c->machine.n; i++) {
        dlab_text_copy(text, sizeof text, c->machine.items[i].value);
        json_object_set_new(machine, c->machine.items[i].key, json_string(text));
    }
    for (size_t i = 0; i < c->n; i++) json_array_append_new(peaks, calibrated_json(&c->threads[i]));
    json_t *j = json_pack("{s:i, s:s, s:s, s:o, s:o}", "v", FILE_VERSION, "fingerprint", c->fingerprint, "isa", c->isa,
                          "machine", machine, "peaks", peaks);
    if (j && json_array_size(json_object_get(j, "peaks")) == c->n) return j;
    json_decref(j);
    return NULL;
}

dlab_status dlab_calibration_make_room(const char *path, dlab_error *err)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    DLAB_TRY(dlab_dir_make(dir, err));
    if (access(dir, W_OK | X_OK) == 0) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "%s cannot be written", dir);
}

dlab_status dlab_calibration_save(const dlab_calibration *c, const char *path, dlab_error *err)
{
    DLAB_TRY(dlab_calibration_make_room(path, err));
    json_t *j = dlab_calibration_json(c);
    char *text = j ? dlab_json_dump(j, 2) : NULL;
    json_decref(j);
    if (!text) return DLAB_FAIL(err, DLAB_EOOM, "no memory to write %s", path);
    dlab_status st = dlab_file_write_atomic(path, text, strlen(text), err);
    free(text);
    return st;
}

dlab_status dlab_calibration_save_with(dlab_calibration *c, const int64_t *threads, size_t n, const char *path,
                                       dlab_error *err)
{
    dlab_error unreadable = {0};
    dlab_status st = DLAB_OK;
    dlab_calibrated *ours = calloc(n + 1, sizeof *ours);
    if (!ours) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the peaks of %zu numbers of threads", n);
    for (size_t i = 0; i < n; i++) ours[i] = *dlab_calibration_find(c, threads[i]);
    (void)dlab_calibration_load(c, path, &unreadable); /* what cannot be read is replaced */
    for (size_t i = 0; st == DLAB_OK && i < n; i++) st = dlab_calibration_put(c, &ours[i], err);
    if (st == DLAB_OK) st = dlab_calibration_save(c, path, err);
    free(ours);
    return st;
}

/* ---- reading ---- */

typedef struct {
    const char *path;
    dlab_error *err;
} reader;

static dlab_status wrong(const reader *r, const char *what)
{
    return DLAB_FAIL(r->err, DLAB_EFORMAT, "%s: %s; `dlab calibrate --force` writes it anew", r->path, what);
}

static dlab_status read_text(const reader *r, const json_t *j, const char *key, const char *expected)
{
    const char *text = json_string_value(json_object_get(j, key));
    char what[160];
    if (text && strcmp(text, expected) == 0) return DLAB_OK;
    snprintf(what, sizeof what, "\"%s\" is not \"%s\"", key, expected);
    return wrong(r, what);
}

static dlab_status read_rate(const reader *r, const json_t *j, const char *key, double *out)
{
    const json_t *v = json_object_get(j, key);
    char what[96];
    *out = json_number_value(v);
    if (json_is_number(v) && isfinite(*out) && *out > 0 && *out < RATE_MAX) return DLAB_OK;
    snprintf(what, sizeof what, "\"%s\" is not a number above 0", key);
    return wrong(r, what);
}

static dlab_status read_rows(const reader *r, const json_t *j, dlab_calibrated *out)
{
    const json_t *read = json_object_get(j, "read");
    double f32_ps = 0, int8_ps = 0, bf16_ps = 0;
    DLAB_TRY(read_rate(r, j, "f32_flop_ps", &f32_ps));
    DLAB_TRY(read_rate(r, j, "int8_op_ps", &int8_ps));
    DLAB_TRY(read_rate(r, j, "bf16_flop_ps", &bf16_ps));
    out->n = json_array_size(read);
    if (out->n < 1 || out->n > DLAB_PEAK_ROWS) return wrong(r, "\"read\" is not a list of 1 to 32 working sets");
    for (size_t i = 0; i < out->n; i++) {
        dlab_peak_row *row = &out->rows[i];
        *row = (dlab_peak_row){.f32_ps = f32_ps, .int8_ps = int8_ps, .bf16_ps = bf16_ps};
        DLAB_TRY(read_rate(r, json_array_get(read, i), "bytes", &row->bytes));
        DLAB_TRY(read_rate(r, json_array_get(read, i), "bytes_ps", &row->read_ps));
        if (i > 0 && row->bytes <= row[-1].bytes) return wrong(r, "the working sets of \"read\" do not ascend");
    }
    return DLAB_OK;
}

static dlab_status read_date(const reader *r, const json_t *j, int64_t *out)
{
    const char *text = json_string_value(json_object_get(j, "measured"));
    struct tm utc = {0};
    const char *end = text ? strptime(text, DATE_FORMAT, &utc) : NULL;
    if (!end || *end) return wrong(r, "\"measured\" is not a date such as 2026-01-31T12:00:00Z");
    *out = timegm(&utc);
    return DLAB_OK;
}

static dlab_status read_calibrated(const reader *r, const json_t *j, dlab_calibrated *out)
{
    const json_t *threads = json_object_get(j, "threads"), *quick = json_object_get(j, "quick");
    out->threads = json_integer_value(threads);
    out->quick = json_is_true(quick);
    if (!json_is_integer(threads) || out->threads < 1 || out->threads > DLAB_TEAM_MAX)
        return wrong(r, "\"threads\" is not a whole number from 1 to 1024");
    if (!json_is_boolean(quick)) return wrong(r, "\"quick\" is not true or false");
    DLAB_TRY(read_date(r, j, &out->measured));
    return read_rows(r, j, out);
}

static dlab_status read_all(const reader *r, const json_t *j, dlab_calibration *c)
{
    const json_t *peaks = json_object_get(j, "peaks");
    if (json_integer_value(json_object_get(j, "v")) != FILE_VERSION)
        return wrong(r, "is not a calibration of version 2");
    DLAB_TRY(read_text(r, j, "fingerprint", c->fingerprint));
    DLAB_TRY(read_text(r, j, "isa", c->isa));
    if (!json_is_array(peaks)) return wrong(r, "\"peaks\" is not a list");
    for (size_t i = 0; i < json_array_size(peaks); i++) {
        dlab_calibrated of = {0};
        DLAB_TRY(read_calibrated(r, json_array_get(peaks, i), &of));
        if (dlab_calibration_find(c, of.threads)) return wrong(r, "has a number of threads twice");
        DLAB_TRY(dlab_calibration_put(c, &of, r->err));
    }
    return DLAB_OK;
}

dlab_status dlab_calibration_parse(dlab_calibration *c, const char *path, const char *text, size_t n, dlab_error *err)
{
    const reader r = {path, err};
    json_t *j = NULL;
    dlab_calibration found = {.isa = c->isa};
    memcpy(found.fingerprint, c->fingerprint, sizeof found.fingerprint);
    dlab_status st = dlab_json_parse(path, text, n, &j, err);
    if (st == DLAB_OK) st = read_all(&r, j, &found);
    for (size_t i = 0; st == DLAB_OK && i < found.n; i++) st = dlab_calibration_put(c, &found.threads[i], err);
    json_decref(j);
    dlab_calibration_free(&found);
    return st;
}

dlab_status dlab_calibration_load(dlab_calibration *c, const char *path, dlab_error *err)
{
    char *text = NULL;
    size_t n = 0;
    if (!dlab_file_exists(path)) return DLAB_OK;
    dlab_status st = dlab_file_read(path, FILE_MAX, &text, &n, err);
    if (st == DLAB_OK) st = dlab_calibration_parse(c, path, text, n, err);
    free(text);
    return st;
}

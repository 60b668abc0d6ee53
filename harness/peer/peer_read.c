/* What a peer printed. It may be anything: every field is checked before it is used, and what was done against what was
 * asked. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "harness/peer/peer.h"

#define NS_MAX 1e17 /* three years */

/* A program's words for a message or a table: cut at a character's end, without line breaks and the like. */
static void copy_line(char *buf, size_t size, const char *text)
{
    dlab_text_copy(buf, size, text);
    for (char *c = buf; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = ' ';
}

/* What a program does not say it may not have done. Only what older ones do not know, and was not asked for, need not be
 * there. */
static dlab_status same_int(const char *name, const json_t *o, const char *key, int64_t asked, bool needed,
                            dlab_error *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v && !needed) return DLAB_OK;
    if (json_is_boolean(v) && json_is_true(v) == (asked != 0)) return DLAB_OK;
    if (json_is_integer(v) && json_integer_value(v) == asked) return DLAB_OK;
    char got[48] = "nothing of the kind";
    if (json_is_integer(v)) snprintf(got, sizeof got, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    if (json_is_boolean(v)) snprintf(got, sizeof got, "%s", json_is_true(v) ? "true" : "false");
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: asked for %s %" PRId64 ", it answers %s", name, key, asked, got);
}

static dlab_status same_text(const char *name, const json_t *o, const char *key, const char *asked, dlab_error *err)
{
    const char *answer = json_string_value(json_object_get(o, key));
    char got[48];
    if (answer && strcmp(answer, asked) == 0) return DLAB_OK;
    copy_line(got, sizeof got, answer ? answer : "nothing of the kind");
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: asked for %s %s, it answers %s", name, key, asked, got);
}

static dlab_status check_test(const char *name, const json_t *o, const dlab_peer_test *t, dlab_error *err)
{
    DLAB_TRY(same_int(name, o, "n_prompt", t->n_prompt, true, err));
    DLAB_TRY(same_int(name, o, "n_gen", t->n_gen, true, err));
    DLAB_TRY(same_int(name, o, "n_depth", t->depth, t->depth > 0, err));
    DLAB_TRY(same_int(name, o, "npl", t->npl, t->npl > 1, err));
    DLAB_TRY(same_int(name, o, "n_threads", t->threads, true, err));
    DLAB_TRY(same_int(name, o, "n_batch", t->n_batch, true, err));
    DLAB_TRY(same_int(name, o, "n_ubatch", t->n_ubatch, true, err));
    DLAB_TRY(same_int(name, o, "flash_attn", t->flash, true, err));
    DLAB_TRY(same_int(name, o, "model_n_params", t->n_params, true, err));
    DLAB_TRY(same_text(name, o, "type_k", t->type_k, err));
    return same_text(name, o, "type_v", t->type_v, err);
}

static dlab_status read_time(const char *name, const json_t *o, double *ns, dlab_error *err)
{
    const json_t *samples = json_object_get(o, "samples_ns");
    if (!json_is_array(samples) || json_array_size(samples) != 1)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: samples_ns is not a list of one number", name);
    const json_t *v = json_array_get(samples, 0);
    *ns = json_is_number(v) ? json_number_value(v) : NAN;
    if (*ns >= 1 && *ns <= NS_MAX) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: samples_ns has no time that could be one (%g ns)", name, *ns);
}

static void read_build(const json_t *o, char *buf, size_t size)
{
    const char *commit = json_string_value(json_object_get(o, "build_commit"));
    const json_t *number = json_object_get(o, "build_number");
    const char *backend = json_string_value(json_object_get(o, "backends"));
    char text[512], counted[32] = "";
    if (!backend) backend = json_string_value(json_object_get(o, "backend"));
    if (json_is_integer(number))
        snprintf(counted, sizeof counted, " (%" JSON_INTEGER_FORMAT ")", json_integer_value(number));
    snprintf(text, sizeof text, "%.160s%s%s%.160s", commit ? commit : "unknown build", counted, backend ? ", " : "",
             backend ? backend : "");
    copy_line(buf, size, text);
}

static dlab_status read_test(const char *name, const json_t *o, const dlab_peer_test *t, dlab_peer_sample *out,
                             dlab_error *err)
{
    DLAB_TRY(check_test(name, o, t, err));
    DLAB_TRY(read_time(name, o, &out->time_ns, err));
    out->rate = (double)((t->n_prompt + t->n_gen) * t->npl) / out->time_ns * 1e9;
    read_build(o, out->build, sizeof out->build);
    return DLAB_OK;
}

dlab_status dlab_peer_read(const char *name, const char *text, size_t n, const dlab_peer_test *test,
                           dlab_peer_sample *out, dlab_error *err)
{
    size_t found = 0;
    for (size_t at = 0; at < n;) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        size_t length = end ? (size_t)(end - line) : n - at;
        at += length + 1;
        if (*line != '{') continue;
        json_t *o = NULL;
        DLAB_TRY(dlab_json_parse(name, line, length, &o, err));
        dlab_status st = found++ ? DLAB_FAIL(err, DLAB_EFORMAT, "%s: answered with more than one test", name)
                                 : read_test(name, o, test, out, err);
        json_decref(o);
        DLAB_TRY(st);
    }
    if (found) return DLAB_OK;
    char first[64] = "";
    copy_line(first, sizeof first, n ? text : "");
    return DLAB_FAIL(err, DLAB_EFORMAT, "%s: printed no line of JSON%s%s%s", name, *first ? ", but \"" : "", first,
                     *first ? "…\"" : "");
}

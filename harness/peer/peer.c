#include "harness/peer/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/param.h"

const dlab_peer_kind dlab_peer_kinds[] = {
    {"llama-bench", "llama.cpp's own", false, true},
    {"llama-python", "tools/peer/llama_bench.py on llama.cpp's Python binding; knows -npl", true, false},
};
const size_t dlab_n_peer_kinds = sizeof dlab_peer_kinds / sizeof *dlab_peer_kinds;

/* ---- KIND=PATH ------------------------------------------------------------------------------------------------------- */

static bool runs(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

static bool on_path(const char *name)
{
    const char *at = getenv("PATH");
    while (at && *at) {
        char full[PATH_MAX];
        int n = (int)strcspn(at, ":");
        snprintf(full, sizeof full, "%.*s/%s", n, at, name);
        if (n > 0 && runs(full)) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

dlab_status dlab_peer_parse(const char *text, const dlab_peer_kind **kind, const char **path, dlab_error *err)
{
    const size_t n = strcspn(text, "=");
    char all[128] = "";
    *kind = NULL;
    for (size_t i = 0; i < dlab_n_peer_kinds; i++) {
        const char *name = dlab_peer_kinds[i].name;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", name);
        if (strlen(name) == n && strncmp(name, text, n) == 0) *kind = &dlab_peer_kinds[i];
    }
    if (!text[n] || !text[n + 1])
        return DLAB_FAIL(err, DLAB_EUSAGE, "--peer: \"%s\" is not KIND=PATH; the kinds are %s", text, all);
    if (!*kind) return DLAB_FAIL(err, DLAB_EUSAGE, "--peer: \"%.*s\" is not one of %s", (int)n, text, all);
    *path = text + n + 1;
    if (strchr(*path, '/') ? runs(*path) : on_path(*path)) return DLAB_OK;
    if (!strchr(*path, '/')) return DLAB_FAIL(err, DLAB_EUSAGE, "--peer: %s is not a program on PATH", *path);
    return DLAB_FAIL(err, DLAB_EUSAGE, "--peer: %s is not there or not executable", *path);
}

/* ---- what it is asked ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *ours, *theirs;
} cache_types[] = {{"f16", "f16"}, {"f32", "f32"}, {"bf16", "bf16"}, {"int8", "q8_0"}};

const char *dlab_peer_cache_type(const char *ours)
{
    for (size_t i = 0; i < sizeof cache_types / sizeof *cache_types; i++)
        if (strcmp(cache_types[i].ours, ours) == 0) return cache_types[i].theirs;
    return NULL;
}

static dlab_status cache_type(const char *key, const char *ours, const char **theirs, dlab_error *err)
{
    *theirs = dlab_peer_cache_type(ours);
    return *theirs ? DLAB_OK : DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "the peer has nothing like %s=%s", key, ours);
}

dlab_status dlab_peer_test_fit(const dlab_peer *p, const dlab_plan *plan, dlab_peer_test *test, dlab_error *err)
{
    if (test->npl > 1 && !p->kind->side_by_side)
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s has no -npl", p->kind->name);
    if (strcmp(plan->attention_pattern, "dense") != 0)
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "the peer's attention is dense, not %s", plan->attention_pattern);
    if (strcmp(plan->kv_store, "none") == 0)
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "the peer does not run without a cache");
    if (strncmp(p->model, "synthetic:", 10) == 0)
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s is no file that the peer could read; --peer-model names one",
                         p->model);
    DLAB_TRY(cache_type("kv.k", plan->kv_k, &test->type_k, err));
    DLAB_TRY(cache_type("kv.v", plan->kv_v, &test->type_v, err));
    test->n_batch = plan->batch_token_budget;
    test->n_ubatch = plan->batch_chunk;
    test->threads = plan->threads;
    return DLAB_OK;
}

/* ---- one run ---------------------------------------------------------------------------------------------------------- */

#define MAX_ARGS 32

typedef struct {
    char *argv[MAX_ARGS + 1];
    char numbers[MAX_ARGS][48];
    size_t n;
} arguments;

static void add(arguments *a, const char *flag, const char *value)
{
    a->argv[a->n++] = (char *)(uintptr_t)flag;
    a->argv[a->n++] = (char *)(uintptr_t)value;
}

static void add_int(arguments *a, const char *flag, int64_t value)
{
    snprintf(a->numbers[a->n], sizeof *a->numbers, "%" PRId64, value);
    add(a, flag, a->numbers[a->n]);
}

dlab_status dlab_peer_measure(const dlab_peer *p, const dlab_peer_test *test, dlab_peer_sample *out, dlab_error *err)
{
    arguments a = {.argv = {(char *)(uintptr_t)p->path}, .n = 1};
    char *text = NULL;
    size_t n = 0;
    const bool both = test->n_prompt && test->n_gen; /* -p and -n would be two tests */
    add(&a, "-m", p->model);
    add_int(&a, "-p", both ? 0 : test->n_prompt);
    add_int(&a, "-n", both ? 0 : test->n_gen);
    if (both) {
        char *pair = a.numbers[a.n];
        snprintf(pair, sizeof *a.numbers, "%" PRId64 ",%" PRId64, test->n_prompt, test->n_gen);
        add(&a, "-pg", pair);
    }
    add_int(&a, "-d", test->depth);
    add_int(&a, "-b", test->n_batch);
    add_int(&a, "-ub", test->n_ubatch);
    add_int(&a, "-t", test->threads);
    add_int(&a, "-fa", test->flash);
    add(&a, "-ctk", test->type_k);
    add(&a, "-ctv", test->type_v);
    if (p->kind->side_by_side) add_int(&a, "-npl", test->npl);
    if (p->kind->offloads) add_int(&a, "-ngl", 0);
    add_int(&a, "-r", 1);
    add(&a, "-o", "jsonl");
    dlab_status st = dlab_peer_exec(a.argv, p->timeout_ns, p->interrupted, &text, &n, err);
    if (st == DLAB_OK) st = dlab_peer_read(p->path, text, n, test, out, err);
    free(text);
    return st;
}

#include "harness/cmd/cmd_util.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/file.h"
#include "harness/spec/spec.h"

int dlab_cmd_exit_code(dlab_status s)
{
    switch (s) {
    case DLAB_OK:
        return 0;
    case DLAB_EINTERRUPTED:
        return 130;
    case DLAB_EOOM:
    case DLAB_ETIMEOUT:
    case DLAB_EINTERNAL:
        return 1;
    default:
        return 2;
    }
}

/* ---- models and files ----------------------------------------------------------------------------------------------- */

static dlab_status fill_path(char *buf, size_t size, dlab_error *err, const char *path)
{
    int n = snprintf(buf, size, "%s", path);
    if (n < 0 || (size_t)n >= size) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "the model's path is longer than %zu bytes: %.60s…", size - 1, path);
    }
    return DLAB_OK;
}

dlab_status dlab_cmd_model_path(const char *given, char *buf, size_t size, dlab_error *err)
{
    if (given && !*given) return DLAB_FAIL(err, DLAB_EUSAGE, "-m: empty, expected a GGUF file or synthetic:NAME");
    if (given) return fill_path(buf, size, err, given);
    const char *env = getenv("DLAB_MODEL");
    if (env && *env) return fill_path(buf, size, err, env);
    if (dlab_cache_path(DLAB_CMD_MODEL_FILE, buf, size) && dlab_file_exists(buf)) return DLAB_OK;
    *buf = 0;
    return DLAB_FAIL(
        err, DLAB_EUSAGE,
        "no model: give -m FILE.gguf or set DLAB_MODEL, fetch one with `make demo` or tools/fetch_model.sh, "
        "or measure shapes alone with -m synthetic:smollm2-135m");
}

dlab_status dlab_cmd_model_open(const char *given, dlab_model **out, dlab_error *err)
{
    char path[PATH_MAX];
    *out = NULL;
    DLAB_TRY(dlab_cmd_model_path(given, path, sizeof path, err));
    return dlab_model_open(path, out, err);
}

static bool join_exists(const char *dir, const char *mid, const char *rel, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s%s/%s", dir, mid, rel);
    return n > 0 && (size_t)n < size && access(buf, R_OK) == 0;
}

bool dlab_cmd_share_path(const char *rel, char *buf, size_t size)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = 0;
        char *slash = strrchr(exe, '/');
        if (slash) *slash = 0;
        if (join_exists(exe, "/../share/decodelab", rel, buf, size)) return true;
    }
    if (join_exists(DLAB_SOURCE_DIR, "", rel, buf, size)) return true;
    if (join_exists(DLAB_DATA_DIR, "", rel, buf, size)) return true;
    if (size) *buf = 0;
    return false;
}

#define MAX_TEXT ((size_t)1 << 30)

static dlab_status read_stream(FILE *f, const char *name, char **out, size_t *n, dlab_error *err)
{
    size_t cap = 1 << 16, used = 0;
    char *text = malloc(cap + 1);
    dlab_status st = DLAB_OK;
    if (!text) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its text", name);
    while ((used += fread(text + used, 1, cap - used, f)) == cap) {
        char *more = cap < MAX_TEXT ? realloc(text, 2 * cap + 1) : NULL;
        if (!more) {
            st = DLAB_FAIL(err, DLAB_EUSAGE, "%s: more than %zu bytes of text", name, cap);
            goto done;
        }
        text = more;
        cap *= 2;
    }
    if (ferror(f)) {
        st = DLAB_FAIL(err, DLAB_EIO, "%s: %s", name, strerror(errno));
        goto done;
    }
    text[used] = 0;
    *n = used;
    *out = text;
    return DLAB_OK;
done:
    free(text);
    return st;
}

/* Any file that can be read, a pipe too: dlab_file_read takes regular files only. */
dlab_status dlab_cmd_read_text(const char *path, char **out, size_t *n, dlab_error *err)
{
    *out = NULL;
    *n = 0;
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", out, n, err);
    FILE *f = fopen(path, "rbe");
    if (!f) return DLAB_FAIL(err, DLAB_EIO, "%s: %s", path, strerror(errno));
    dlab_status st = read_stream(f, path, out, n, err);
    fclose(f);
    return st;
}

dlab_status dlab_cmd_get_text(const char *text, const char *file, char **out, size_t *n, dlab_error *err)
{
    *out = NULL;
    *n = 0;
    if (!text == !file) return DLAB_FAIL(err, DLAB_EUSAGE, "give one of -p TEXT and -f FILE");
    if (file) return dlab_cmd_read_text(file, out, n, err);
    *out = strdup(text);
    if (!*out) return DLAB_FAIL(err, DLAB_EOOM, "-p: no memory for the text");
    *n = strlen(text);
    return DLAB_OK;
}

/* ---- output --------------------------------------------------------------------------------------------------------- */

bool dlab_cmd_reader_gone(void) { return ferror(stdout) != 0; }

/* Asked of the pipe itself, because errno may be from something later than the failed write. */
static bool pipe_broken(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

static dlab_status stdout_failed(dlab_error *err)
{
    if (pipe_broken()) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIO, "standard output: cannot be written (%s)", strerror(errno ? errno : EIO));
}

dlab_status dlab_cmd_print(const char *text, dlab_error *err)
{
    return fputs(text, stdout) == EOF ? stdout_failed(err) : DLAB_OK;
}

dlab_status dlab_cmd_print_json(json_t *j, dlab_error *err)
{
    char *text = j ? dlab_json_dump(j, 2) : NULL;
    json_decref(j);
    if (!text) return DLAB_FAIL(err, DLAB_EOOM, "no memory for the JSON document");
    dlab_status st = dlab_cmd_print(text, err);
    if (st == DLAB_OK) st = dlab_cmd_print("\n", err);
    free(text);
    return st;
}

dlab_status dlab_cmd_flush(dlab_error *err)
{
    errno = 0;
    return fflush(stdout) == EOF || ferror(stdout) ? stdout_failed(err) : DLAB_OK;
}

json_t *dlab_cmd_params_json(const dlab_param *table, size_t n, const void *obj)
{
    json_t *j = json_object();
    for (size_t i = 0; j && i < n; i++) {
        const char *at = (const char *)obj + table[i].offset;
        char text[DLAB_PARAM_STR];
        json_t *v = NULL;
        switch (table[i].type) {
        case DLAB_PARAM_INT:
        case DLAB_PARAM_SIZE:
        case DLAB_PARAM_DURATION:
            v = json_integer(*(const int64_t *)(const void *)at);
            break;
        case DLAB_PARAM_FLOAT:
            v = dlab_json_number(*(const double *)(const void *)at);
            break;
        case DLAB_PARAM_BOOL:
            v = json_boolean(*(const bool *)at);
            break;
        default:
            dlab_param_print(&table[i], obj, text, sizeof text);
            v = dlab_cmd_text_json(text, strlen(text));
        }
        if (json_object_set_new(j, table[i].key, v) != 0) {
            json_decref(j);
            j = NULL;
        }
    }
    return j;
}

json_t *dlab_cmd_plan_json(const dlab_plan *plan)
{
    size_t n = 0;
    const dlab_param *table = dlab_plan_params(&n);
    return dlab_cmd_params_json(table, n, plan);
}

json_t *dlab_cmd_model_json(const dlab_model *m)
{
    const dlab_model_info *i = dlab_model_get_info(m);
    char hash[17];
    /* not under the name of the record's model_hash, which is of the whole file */
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)i->hash);
    return json_pack("{s:o, s:s*, s:s*, s:s, s:b, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "name",
                     dlab_cmd_text_json(i->name, strlen(i->name)), "arch", i->arch, "type", i->type, "fingerprint",
                     hash, "synthetic", (int)i->synthetic, "params", (json_int_t)i->n_params, "weight_bytes",
                     (json_int_t)i->weight_bytes, "layers", i->n_layers, "heads", i->n_heads, "kv_heads", i->n_kv_heads,
                     "head_dim", i->head_dim, "width", i->width, "vocab", i->vocab, "context", i->context);
}

json_t *dlab_cmd_text_json(const char *text, size_t n)
{
    static const char replacement[3] = {'\xef', '\xbf', '\xbd'};
    char *clean = malloc(3 * n + 1);
    if (!clean) return NULL;
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t cp = -1;
        utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &cp);
        if (len > 0) {
            memcpy(clean + used, text + i, (size_t)len);
            used += (size_t)len;
            i += (size_t)len;
        } else {
            memcpy(clean + used, replacement, sizeof replacement);
            used += sizeof replacement;
            i++;
        }
    }
    json_t *j = json_stringn(clean, used);
    free(clean);
    return j;
}

void dlab_cmd_error_text(const dlab_error *err, char *buf, size_t size)
{
    const char *text = *err->msg ? err->msg : dlab_status_text(err->code), *file = err->file;
    size_t n = strlen(DLAB_SOURCE_DIR "/");
    if (file && strncmp(file, DLAB_SOURCE_DIR "/", n) == 0) file += n;
    if (err->code == DLAB_EINTERNAL && file)
        snprintf(buf, size, "%s [%s:%d]", text, file, err->line);
    else
        snprintf(buf, size, "%s", text);
    for (char *c = buf; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    }
}

dlab_status dlab_cmd_set_isa(dlab_plan *plan, const char *name, dlab_error *err)
{
    char set[64];
    snprintf(set, sizeof set, "isa=%.48s", name);
    return dlab_spec_plan_set(plan, set, err);
}

char *dlab_cmd_line(int argc, char **argv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    fputs("dlab", f);
    for (int i = 0; i < argc; i++) {
        bool plain = *argv[i] && !argv[i][strcspn(argv[i], " \t\n'\"\\$`*?[]{}()<>|&;#~!")];
        fprintf(f, plain ? " %s" : " '%s'", argv[i]);
    }
    return fclose(f) == 0 ? text : NULL;
}

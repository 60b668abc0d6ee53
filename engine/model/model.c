#include "engine/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "engine/model/gguf.h"
#include "engine/model/model_own.h"

#define SYNTHETIC_PREFIX  "synthetic:"
#define MAX_CHAT_TEMPLATE (64 << 10)

/* ---- what all models share ------------------------------------------------------------------------------------------ */

const dlab_model_info *dlab_model_get_info(const dlab_model *m) { return &m->info; }
const char *dlab_model_label(const dlab_model *m) { return m->label; }
const dlab_arch *dlab_model_arch(const dlab_model *m) { return m->arch; }
const dlab_gguf *dlab_model_gguf(const dlab_model *m) { return m->gguf; }
const char *dlab_model_chat_template(const dlab_model *m) { return m->chat_template; }

const dlab_tensor *dlab_model_tensors(const dlab_model *m, size_t *n)
{
    *n = m->n_tensors;
    return m->tensors;
}

void dlab_model_release(const dlab_model *m, const dlab_tensor *t)
{
    if (!m->from_file) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)(t ? t->data : m->map), end = begin + (t ? t->bytes : m->map_bytes);
    const uintptr_t first = begin / page * page;              /* a neighbour's pages too: they come again */
    (void)madvise((void *)first, end - first, MADV_DONTNEED); /* if refused, merely more memory */
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const dlab_tensor *)a)->name, ((const dlab_tensor *)b)->name);
}

const dlab_tensor *dlab_model_tensor(const dlab_model *m, const char *name)
{
    dlab_tensor key = {.dtype = DLAB_F32};
    if (m->n_tensors == 0 || strlen(name) >= sizeof key.name) return NULL;
    memcpy(key.name, name, strlen(name) + 1);
    return bsearch(&key, m->tensors, m->n_tensors, sizeof key, compare_names);
}

const dlab_tensor *dlab_model_layer_tensor(const dlab_model *m, int layer, const char *suffix)
{
    char name[2 * DLAB_TENSOR_NAME];
    snprintf(name, sizeof name, "blk.%d.%s", layer, suffix);
    return dlab_model_tensor(m, name);
}

void dlab_model_close(dlab_model *m)
{
    if (!m) return;
    dlab_gguf_destroy(m->gguf);
    free(m->chat_template);
    free(m->tensors);
    if (m->owns_map) munmap((void *)(uintptr_t)m->map, m->map_bytes);
    free(m);
}

const dlab_arch *dlab_arch_find(const char *name)
{
    for (size_t i = 0; dlab_archs[i]; i++)
        if (strcmp(dlab_archs[i]->name, name) == 0) return dlab_archs[i];
    return NULL;
}

/* The type of most bytes among the matrices; vectors (norms) are f32 in every file and say nothing. */
static void set_type(dlab_model *m)
{
    size_t bytes[DLAB_DTYPE_N] = {0}, all = 0;
    int most = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].n_dims > 1) bytes[m->tensors[i].dtype] += m->tensors[i].bytes;
    for (int t = 0; t < DLAB_DTYPE_N; t++) {
        all += bytes[t];
        if (bytes[t] > bytes[most]) most = t;
    }
    snprintf(m->type, sizeof m->type, "%s%s", dlab_gguf_type_name((dlab_dtype)most),
             bytes[most] == all ? "" : " (mixed)");
    m->info.type = m->type;
}

dlab_status dlab_model_finish(dlab_model *m, dlab_error *err)
{
    if (m->n_tensors > 1) qsort(m->tensors, m->n_tensors, sizeof *m->tensors, compare_names);
    for (size_t i = 1; i < m->n_tensors; i++)
        if (compare_names(&m->tensors[i - 1], &m->tensors[i]) == 0)
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: tensor '%s' is there twice", m->label, m->tensors[i].name);
    m->info.arch = m->arch->name;
    m->info.name = m->name;
    m->info.tied_head = dlab_model_tensor(m, "output.weight") == NULL;
    DLAB_TRY(m->arch->check(m, err));
    set_type(m);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const dlab_tensor *t = &m->tensors[i];
        m->info.n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        m->info.weight_bytes += (int64_t)t->bytes;
    }
    m->info.step_weight_bytes = m->info.weight_bytes;
    if (!m->info.tied_head) m->info.step_weight_bytes -= (int64_t)dlab_model_tensor(m, "token_embd.weight")->bytes;
    return DLAB_OK;
}

/* ---- from a GGUF image ---------------------------------------------------------------------------------------------- */

/* general.name in one line, or the file's name without folder and ending. */
static void set_name(dlab_model *m, const char *file)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    size_t n = strlen(base);
    dlab_gguf_str s = {0};
    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0) n -= 5;
    if (dlab_gguf_get_str(m->gguf, "general.name", &s, NULL) != DLAB_OK || s.n == 0) s = (dlab_gguf_str){base, n};
    for (size_t at = 0, len = 0; at < s.n; at += len) {
        utf8proc_int32_t c = 0;
        utf8proc_ssize_t got =
            utf8proc_iterate((const utf8proc_uint8_t *)s.text + at, (utf8proc_ssize_t)(s.n - at), &c);
        len = got > 0 ? (size_t)got : 1;
        if (at + len >= sizeof m->name) break;
        if (got <= 0 || c < 0x20 || c == 0x7f)
            memset(m->name + at, '?', len);
        else
            memcpy(m->name + at, s.text + at, len);
    }
}

/* A template that is unusual is none: completions need it not. */
static dlab_status read_chat_template(dlab_model *m, dlab_error *err)
{
    dlab_gguf_str s = {0};
    if (dlab_gguf_get_str(m->gguf, "tokenizer.chat_template", &s, NULL) != DLAB_OK || s.n > MAX_CHAT_TEMPLATE ||
        memchr(s.text, 0, s.n)) {
        return DLAB_OK;
    }
    m->chat_template = strndup(s.text, s.n);
    return m->chat_template ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "%s: no memory for its chat template", m->label);
}

static dlab_status find_arch(dlab_model *m, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN], built[256] = "";
    dlab_gguf_str name = {0};
    DLAB_TRY(dlab_gguf_get_str(m->gguf, "general.architecture", &name, err));
    m->arch = dlab_arch_find(dlab_gguf_show(shown, name));
    if (m->arch) return DLAB_OK;
    for (size_t i = 0, used = 0; dlab_archs[i] && used < sizeof built; i++)
        used += (size_t)snprintf(built + used, sizeof built - used, "%s%s", i > 0 ? ", " : "", dlab_archs[i]->name);
    return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the architecture '%s' is not built; built: %s", m->label, shown, built);
}

/* m->map is set. */
static dlab_status read_image(dlab_model *m, const char *name, dlab_error *err)
{
    size_t data_off = 0;
    DLAB_TRY(dlab_gguf_parse(name, m->map, m->map_bytes, &m->gguf, err));
    snprintf(m->label, sizeof m->label, "%s", dlab_gguf_label(m->gguf));
    DLAB_TRY(find_arch(m, err));
    DLAB_TRY(dlab_gguf_read_tensors(m->gguf, &m->tensors, &m->n_tensors, &data_off, err));
    DLAB_TRY(m->arch->read(m->gguf, &m->info, err));
    set_name(m, name);
    DLAB_TRY(read_chat_template(m, err));
    DLAB_TRY(dlab_model_finish(m, err));
    uint64_t parts[2] = {XXH3_64bits(m->map, data_off), 0};
    DLAB_TRY(dlab_model_verify(m, &parts[1], err));
    m->info.hash = XXH3_64bits(parts, sizeof parts);
    return DLAB_OK;
}

dlab_status dlab_model_from_memory(const char *name, const void *data, size_t n, dlab_model **out, dlab_error *err)
{
    *out = NULL;
    dlab_model *m = calloc(1, sizeof *m);
    if (!m) return DLAB_FAIL(err, DLAB_EOOM, "%s: no memory to open it", name);
    m->map = data;
    m->map_bytes = n;
    dlab_status st = read_image(m, name, err);
    if (st == DLAB_OK)
        *out = m;
    else
        dlab_model_close(m);
    return st;
}

/* Maps a regular file that is not empty. */
static dlab_status map_file(const char *path, const void **map, size_t *bytes, dlab_error *err)
{
    dlab_status st = DLAB_OK;
    struct stat info;
    void *p = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must not hang us */
    if (fd < 0 || fstat(fd, &info) != 0) {
        st = DLAB_FAIL(err, DLAB_EIO, "cannot open the model file '%.400s': %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = DLAB_FAIL(err, DLAB_EIO, "the model '%.400s' is %s, expected a GGUF file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "not a regular file");
        goto done;
    }
    if (info.st_size == 0) {
        st = DLAB_FAIL(err, DLAB_EFORMAT, "the model file '%.400s' is empty, expected GGUF", path);
        goto done;
    }
    p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        st = DLAB_FAIL(err, DLAB_EIO, "cannot map the model file '%.400s': %s", path, strerror(errno));
        goto done;
    }
    *map = p;
    *bytes = (size_t)info.st_size;
done:
    if (fd >= 0) close(fd);
    return st;
}

dlab_status dlab_model_open(const char *spec, dlab_model **out, dlab_error *err)
{
    const void *map = NULL;
    size_t bytes = 0;
    *out = NULL;
    if (strncmp(spec, SYNTHETIC_PREFIX, strlen(SYNTHETIC_PREFIX)) == 0)
        return dlab_model_synthesize(spec + strlen(SYNTHETIC_PREFIX), out, err);
    DLAB_TRY(map_file(spec, &map, &bytes, err));
    dlab_status st = dlab_model_from_memory(spec, map, bytes, out, err);
    if (*out) {
        (*out)->owns_map = (*out)->from_file = true;
        dlab_model_release(*out, NULL);
    } else {
        munmap((void *)(uintptr_t)map, bytes);
    }
    return st;
}

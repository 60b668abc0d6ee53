/* Packed weights in a file: the same results as in memory, whatever lies in the cache folder. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/model/model_own.h"
#include "engine_test.h"

#define N_IDS     24
#define N_AT_ONCE 6

/* Places in the file that the tests damage. */
enum { AT_VERSION = 8, AT_LAYOUT = 12, AT_MODEL = 16, AT_VARIANT = 24, AT_DATA_OFF = 64, AT_HASH = 80, AT_ROWS = 88 };

static char folder[PATH_MAX], packed[PATH_MAX + 32];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/dlab pack XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(packed, sizeof packed, "%s/decodelab/packed", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void remove_folder(void)
{
    char command[PATH_MAX + 64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* The only file in the cache folder. */
static void only_file(char path[PATH_MAX])
{
    DIR *d = opendir(packed);
    int n = 0;
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, PATH_MAX, "%.2000s/%s", packed, e->d_name);
        n++;
    }
    closedir(d);
    ck_assert_int_eq(n, 1);
}

static char *content(const char *path, size_t *n)
{
    char *bytes = NULL;
    OK(dlab_file_read(path, (size_t)1 << 28, &bytes, n, err));
    return bytes;
}

static void put(const char *path, const void *bytes, size_t n) { OK(dlab_file_write_atomic(path, bytes, n, err)); }

static const char *fixture(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", DLAB_FIXTURES, name);
    return path;
}

typedef struct {
    int32_t ids[N_IDS];
    size_t bytes;
    float *want; /* logits with weights packed in memory */
    dlab_model *m;
    char sets[128];
} lab;

static lab open_lab(const char *spec, const char *device, const char *isa)
{
    lab l = {.m = open_model(spec)};
    const int32_t vocab = dlab_model_get_info(l.m)->vocab;
    fill_ids(l.ids, N_IDS, vocab, 3);
    l.bytes = (size_t)N_IDS * (size_t)vocab * sizeof(float);
    snprintf(l.sets, sizeof l.sets, "device=%s isa=%s threads=2 weights.packed=file", device, isa);
    char memory[128];
    snprintf(memory, sizeof memory, "device=%s isa=%s threads=2 weights.packed=memory", device, isa);
    l.want = logits_of(l.m, memory, l.ids, N_IDS);
    return l;
}

static void close_lab(lab *l)
{
    free(l->want);
    dlab_model_close(l->m);
}

static void same_from_file(const lab *l, const char *what)
{
    float *got = logits_of(l->m, l->sets, l->ids, N_IDS);
    ck_assert_msg(memcmp(got, l->want, l->bytes) == 0, "%s: other logits", what);
    free(got);
}

/* ---- a file that is good --------------------------------------------------------------------------------------------- */

static const char *const models[] = {"tiny-mixed.gguf", "tiny-q4_1.gguf", "tiny-f32.gguf", NULL};

START_TEST(the_same_bits_as_in_memory)
{
    static const char *const devices[] = {"cpu", "guard"};
    for (int i = 0; dlab_isa_list[i]; i++) {
        if (!dlab_isa_supported(dlab_isa_list[i])) continue;
        lab l = open_lab(models[_i] ? fixture(models[_i]) : "synthetic:tiny-q4", devices[i % 2], dlab_isa_list[i]);
        same_from_file(&l, "when it is made");
        same_from_file(&l, "when it is there");
        close_lab(&l);
    }
}
END_TEST

START_TEST(a_good_file_is_used_as_it_is)
{
    char path[PATH_MAX];
    struct stat first, then;
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    same_from_file(&l, "first");
    only_file(path);
    ck_assert_int_eq(stat(path, &first), 0);
    ck_assert_int_eq(chmod(packed, 0500), 0);
    same_from_file(&l, "second");
    ck_assert_int_eq(chmod(packed, 0700), 0);
    ck_assert_int_eq(stat(path, &then), 0);
    ck_assert_uint_eq(first.st_ino, then.st_ino);
    ck_assert_int_eq(first.st_mtim.tv_sec, then.st_mtim.tv_sec);
    ck_assert_int_eq(first.st_mtim.tv_nsec, then.st_mtim.tv_nsec);
    ck_assert_int_eq(then.st_mode & 0222, 0);
    only_file(path);
    close_lab(&l);
}
END_TEST

START_TEST(what_is_mapped_is_counted)
{
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    const dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = N_IDS, .max_prompt = N_IDS};
    dlab_mem_stats in_file, in_memory;
    size_t estimate[DLAB_POOL_N];
    dlab_engine *e = open_engine(l.m, l.sets, 1, N_IDS, 1);
    dlab_engine_memory(e, &in_file);
    dlab_engine_destroy(e);
    e = open_engine(l.m, "isa=plain threads=2", 1, N_IDS, 1);
    dlab_engine_memory(e, &in_memory);
    dlab_engine_destroy(e);
    const dlab_plan p = plan_of(l.sets);
    OK(dlab_engine_estimate(&p, l.m, &needs, estimate, err));
    ck_assert_uint_gt(in_file.pool[DLAB_POOL_WEIGHTS].used_bytes, 0);
    ck_assert_uint_eq(in_file.pool[DLAB_POOL_WEIGHTS].used_bytes, in_memory.pool[DLAB_POOL_WEIGHTS].used_bytes);
    ck_assert_uint_eq(in_file.pool[DLAB_POOL_WEIGHTS].used_bytes, estimate[DLAB_POOL_WEIGHTS]);
    close_lab(&l);
}
END_TEST

/* Weights outweigh all else here, and no matrix fits into what else there is: packing must not need room for one. */
START_TEST(a_limit_of_what_is_estimated_is_enough)
{
    static const char *const ways[] = {"cpu weights.packed=memory", "cpu weights.packed=file",
                                       "cpu weights.packed=file", "guard weights.packed=memory",
                                       "guard weights.packed=file"};
    const dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = 2, .max_prompt = 1};
    dlab_model *m = open_model("synthetic:attn-64");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char sets[128];
        size_t estimate[DLAB_POOL_N], all = 0;
        dlab_error fault = {0};
        dlab_mem_stats stats;
        dlab_engine *e = NULL;
        snprintf(sets, sizeof sets, "isa=plain threads=1 device=%s", ways[i]);
        dlab_plan p = plan_of(sets);
        OK(dlab_engine_estimate(&p, m, &needs, estimate, err));
        for (int pool = 0; pool < DLAB_POOL_N; pool++) all += estimate[pool];
        const dlab_tensor *t = dlab_model_layer_tensor(m, 0, "ffn_up.weight");
        ck_assert_uint_lt(estimate[DLAB_POOL_KV] + estimate[DLAB_POOL_ACTIVATIONS], t->bytes);
        p.memory_limit_bytes = (int64_t)all;
        ck_assert_msg(dlab_engine_create(&p, m, &needs, &e, &fault) == DLAB_OK, "%s: %s", ways[i], fault.msg);
        dlab_engine_memory(e, &stats);
        ck_assert_uint_eq(stats.used_bytes, all);
        ck_assert_uint_eq(stats.peak_bytes, all);
        dlab_engine_destroy(e);
        p.memory_limit_bytes--;
        ck_assert_int_eq(dlab_engine_create(&p, m, &needs, &e, &fault), DLAB_EOOM);
    }
    dlab_model_close(m);
}
END_TEST

/* ---- a file that is not ---------------------------------------------------------------------------------------------- */

/* One byte at `at` other than it was; from the end if negative; of the data if `data`. */
static const struct {
    const char *what;
    long at;
    bool data;
} damages[] = {
    {"magic", 0, false},        {"version", AT_VERSION, false}, {"layout", AT_LAYOUT, false},
    {"model", AT_MODEL, false}, {"variant", AT_VARIANT, false}, {"place of the data", AT_DATA_OFF, false},
    {"hash", AT_HASH, false},   {"table", AT_ROWS + 3, false},  {"zeros before the data", -1, true},
    {"first of data", 0, true}, {"in the data", 1000, true},    {"last of data", -1, false},
};

START_TEST(a_damaged_file_is_made_anew)
{
    char path[PATH_MAX];
    size_t n = 0;
    uint64_t data_off;
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    same_from_file(&l, "made");
    only_file(path);
    char *good = content(path, &n), *bad = malloc(n);
    memcpy(&data_off, good + AT_DATA_OFF, sizeof data_off);
    ck_assert_uint_lt(data_off, n);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const long base = damages[i].data ? (long)data_off : damages[i].at < 0 ? (long)n : 0;
        memcpy(bad, good, n);
        bad[base + damages[i].at] ^= 0x10;
        put(path, bad, n);
        same_from_file(&l, damages[i].what);
        size_t n_now = 0;
        char *now = content(path, &n_now);
        ck_assert_msg(n_now == n && memcmp(now, good, n) == 0, "%s: not mended", damages[i].what);
        free(now);
        only_file(path);
    }
    free(good);
    free(bad);
    close_lab(&l);
}
END_TEST

START_TEST(a_cut_or_foreign_file_is_made_anew)
{
    char path[PATH_MAX];
    size_t n = 0;
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    same_from_file(&l, "made");
    only_file(path);
    char *good = content(path, &n), *bad = calloc(1, 2 * n);
    memcpy(bad, good, n);
    const size_t sizes[] = {0, 1, AT_ROWS, 4096, n / 2, n - 1, n + 1, 2 * n};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[32];
        snprintf(what, sizeof what, "%zu bytes", sizes[i]);
        put(path, bad, sizes[i]);
        same_from_file(&l, what);
        size_t n_now = 0;
        char *now = content(path, &n_now);
        ck_assert_msg(n_now == n && memcmp(now, good, n) == 0, "%s: not mended", what);
        free(now);
    }
    memset(bad, 'x', n);
    put(path, bad, n);
    same_from_file(&l, "text");
    free(good);
    free(bad);
    close_lab(&l);
}
END_TEST

/* Two files of the same size, one under the other's name. */
static void swap_test(const char *spec_a, const char *isa_a, const char *spec_b, const char *isa_b)
{
    char path_a[PATH_MAX], path_b[PATH_MAX];
    size_t n_a = 0, n_b = 0;
    lab a = open_lab(spec_a, "cpu", isa_a), b = open_lab(spec_b, "cpu", isa_b);
    same_from_file(&a, "the one");
    only_file(path_a);
    char *file_a = content(path_a, &n_a);
    unlink(path_a);
    same_from_file(&b, "the other");
    only_file(path_b);
    ck_assert_str_ne(path_a, path_b);
    char *file_b = content(path_b, &n_b);
    put(path_b, file_a, n_a);
    same_from_file(&b, "with the one's file");
    size_t n_now = 0;
    char *now = content(path_b, &n_now);
    ck_assert(n_now == n_b && memcmp(now, file_b, n_b) == 0);
    free(file_a);
    free(file_b);
    free(now);
    close_lab(&a);
    close_lab(&b);
}

/* One weight of the last matrix differs: no sample, no size and no name tells. */
START_TEST(another_models_file_is_not_used)
{
    char other[PATH_MAX];
    size_t n = 0;
    lab l = open_lab(fixture("tiny-q4_1.gguf"), "cpu", "plain");
    const dlab_tensor *t = dlab_model_layer_tensor(l.m, 1, "ffn_up.weight");
    ck_assert_ptr_nonnull(t);
    const size_t map_bytes = l.m->map_bytes;
    const size_t at = (size_t)((const char *)t->data - (const char *)l.m->map) + t->bytes / 2 / 20 * 20 + 7;
    close_lab(&l);
    char *image = content(fixture("tiny-q4_1.gguf"), &n);
    ck_assert_uint_eq(n, map_bytes);
    image[at] ^= 0x77;
    snprintf(other, sizeof other, "%.2000s/other.gguf", folder);
    put(other, image, n);
    free(image);
    swap_test(fixture("tiny-q4_1.gguf"), "plain", other, "plain");
}
END_TEST

START_TEST(another_isas_file_is_not_used)
{
    if (!dlab_isa_supported("avx2")) return;
    swap_test(fixture("tiny-q4_1.gguf"), "avx2", fixture("tiny-q4_1.gguf"), "plain");
    remove_folder();
    make_folder();
    swap_test("synthetic:tiny-q4", "plain", "synthetic:tiny-q4", "avx2");
}
END_TEST

/* Its hash goes with its data, but who may say what that is? */
START_TEST(another_users_file_is_made_anew)
{
    char path[PATH_MAX];
    struct stat info;
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    same_from_file(&l, "made");
    only_file(path);
    if (chown(path, geteuid() + 1, getegid()) != 0) {
        fprintf(stderr, "skipped: another_users_file_is_made_anew (only root gives files away)\n");
    } else {
        same_from_file(&l, "with another's file");
        only_file(path);
        ck_assert_int_eq(stat(path, &info), 0);
        ck_assert_uint_eq(info.st_uid, geteuid());
    }
    close_lab(&l);
}
END_TEST

static void age(const char *path, int seconds)
{
    const struct timespec then = {.tv_sec = time(NULL) - seconds};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0), 0);
}

/* A new one may be somebody's who is at it. */
START_TEST(what_killed_processes_left_is_removed)
{
    char path[PATH_MAX], old[PATH_MAX + 16], fresh[PATH_MAX + 16];
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    same_from_file(&l, "made");
    only_file(path);
    ck_assert_int_eq(unlink(path), 0);
    snprintf(old, sizeof old, "%s.tmp.AbCdEf", path);
    snprintf(fresh, sizeof fresh, "%s.tmp.GhIjKl", path);
    put(old, "x", 1);
    put(fresh, "x", 1);
    age(old, 2 * 3600);
    age(fresh, 60);
    same_from_file(&l, "made again");
    ck_assert(dlab_file_exists(path) && dlab_file_exists(fresh) && !dlab_file_exists(old));
    age(fresh, 2 * 3600);
    put(path, "x", 1);
    same_from_file(&l, "and again");
    only_file(path);
    close_lab(&l);
}
END_TEST

/* ---- a folder that is none ------------------------------------------------------------------------------------------- */

static void refused(const lab *l, const char *expect)
{
    const dlab_plan p = plan_of(l->sets);
    const dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = N_IDS, .max_prompt = N_IDS};
    dlab_engine *e = NULL;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_engine_create(&p, l->m, &needs, &e, &err), DLAB_EIO);
    ck_assert_ptr_null(e);
    ck_assert_msg(strstr(err.msg, "weights.packed") && strstr(err.msg, expect) && !strchr(err.msg, '\n'), "'%s'",
                  err.msg);
}

START_TEST(without_a_folder_it_is_refused_in_one_line)
{
    char path[PATH_MAX], file[PATH_MAX];
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    same_from_file(&l, "made");
    only_file(path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    refused(&l, "cannot put the new file in place");
    only_file(file); /* nothing else stays */
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refused(&l, "not a regular file");
    ck_assert_int_eq(unlink(path), 0);
    snprintf(file, sizeof file, "%.2000s/file", folder);
    put(file, "x", 1);
    setenv("XDG_CACHE_HOME", file, 1);
    refused(&l, "folder");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    refused(&l, "XDG_CACHE_HOME");
    setenv("XDG_CACHE_HOME", folder, 1);
    same_from_file(&l, "with a folder again");
    close_lab(&l);
}
END_TEST

/* ---- many at once ---------------------------------------------------------------------------------------------------- */

/* Children that begin together, when the pipe is closed; 0: all had the same logits. */
static int children(const lab *l)
{
    int gate[2], failed = 0;
    ck_assert_int_eq(pipe(gate), 0);
    for (int i = 0; i < N_AT_ONCE; i++) {
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid > 0) continue;
        char c;
        close(gate[1]);
        if (read(gate[0], &c, 1) != 0) _exit(2);
        float *got = logits_of(l->m, l->sets, l->ids, N_IDS);
        _exit(memcmp(got, l->want, l->bytes) == 0 ? 0 : 1);
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < N_AT_ONCE; i++) {
        int status = 0;
        ck_assert_int_gt(wait(&status), 0);
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return failed;
}

START_TEST(any_number_may_make_it_at_once)
{
    char path[PATH_MAX];
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    for (int round = 0; round < 4; round++) {
        ck_assert_int_eq(children(&l), 0);
        only_file(path);
        same_from_file(&l, "afterwards");
        if (round % 2 == 0) ck_assert_int_eq(unlink(path), 0);
    }
    close_lab(&l);
}
END_TEST

/* An engine keeps the file that it mapped, whatever takes its name. */
START_TEST(engines_share_a_file_and_outlive_its_name)
{
    char path[PATH_MAX];
    lab l = open_lab(fixture("tiny-mixed.gguf"), "cpu", "plain");
    dlab_engine *a = open_engine(l.m, l.sets, 1, N_IDS, N_IDS), *b = open_engine(l.m, l.sets, 1, N_IDS, N_IDS);
    only_file(path);
    put(path, "nonsense", 8);
    float *got = malloc(l.bytes);
    OK(dlab_engine_score(a, l.ids, N_IDS, N_IDS, NULL, NULL, got, err));
    ck_assert_int_eq(memcmp(got, l.want, l.bytes), 0);
    dlab_engine_destroy(a);
    OK(dlab_engine_score(b, l.ids, N_IDS, N_IDS, NULL, NULL, got, err));
    ck_assert_int_eq(memcmp(got, l.want, l.bytes), 0);
    dlab_engine_destroy(b);
    free(got);
    close_lab(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pack_file");
    TCase *c = tcase_create("file");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_loop_test(c, the_same_bits_as_in_memory, 0, sizeof models / sizeof *models);
    tcase_add_test(c, a_good_file_is_used_as_it_is);
    tcase_add_test(c, what_is_mapped_is_counted);
    tcase_add_test(c, a_limit_of_what_is_estimated_is_enough);
    tcase_add_test(c, a_damaged_file_is_made_anew);
    tcase_add_test(c, a_cut_or_foreign_file_is_made_anew);
    tcase_add_test(c, another_users_file_is_made_anew);
    tcase_add_test(c, what_killed_processes_left_is_removed);
    tcase_add_test(c, another_models_file_is_not_used);
    tcase_add_test(c, another_isas_file_is_not_used);
    tcase_add_test(c, without_a_folder_it_is_refused_in_one_line);
    tcase_add_test(c, any_number_may_make_it_at_once);
    tcase_add_test(c, engines_share_a_file_and_outlive_its_name);
    suite_add_tcase(s, c);
    return run_suite(s);
}

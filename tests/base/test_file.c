#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char folder[64];
static char path[256];
static dlab_error err;

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/dlab-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static int entries(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

START_TEST(what_is_written_is_read)
{
    const char data[] = "one\0two";
    char *back;
    size_t n;
    const char *p = in_folder("a file with spaces");
    ck_assert_int_eq(dlab_file_write_atomic(p, data, sizeof data, &err), DLAB_OK);
    ck_assert_int_eq(dlab_file_read(p, 100, &back, &n, &err), DLAB_OK);
    ck_assert_uint_eq(n, sizeof data);
    ck_assert_mem_eq(back, data, n);
    ck_assert_int_eq(back[n], '\0');
    free(back);
    ck_assert_int_eq(dlab_file_write_atomic(p, "x", 1, &err), DLAB_OK); /* replaces */
    ck_assert_int_eq(dlab_file_read(p, 100, &back, &n, &err), DLAB_OK);
    ck_assert_uint_eq(n, 1);
    free(back);
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(large_files_and_the_greatest_size)
{
    const size_t size = 300001;
    char *data = malloc(size), *back;
    for (size_t i = 0; i < size; i++) data[i] = (char)(i * 7);
    const char *p = in_folder("large");
    size_t n;
    ck_assert_int_eq(dlab_file_write_atomic(p, data, size, &err), DLAB_OK);
    ck_assert_int_eq(dlab_file_read(p, size, &back, &n, &err), DLAB_OK);
    ck_assert_uint_eq(n, size);
    ck_assert_int_eq(memcmp(back, data, size), 0);
    free(back);
    ck_assert_int_eq(dlab_file_read(p, size - 1, &back, &n, &err), DLAB_EFORMAT);
    ck_assert_ptr_null(back);
    ck_assert_ptr_nonnull(strstr(err.msg, "is larger than 300000 bytes"));
    free(data);
}
END_TEST

START_TEST(files_of_unknown_size_are_read_to_the_end)
{
    char *back;
    size_t n;
    ck_assert_int_eq(dlab_file_read("/proc/self/status", 1 << 20, &back, &n, &err), DLAB_OK);
    ck_assert_uint_gt(n, 100);
    ck_assert_uint_eq(strlen(back), n);
    free(back);
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    char *back;
    size_t n;
    ck_assert_int_eq(dlab_file_read(in_folder("absent"), 10, &back, &n, &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "absent: cannot open: No such file or directory"));
    ck_assert_int_eq(dlab_file_read(folder, 10, &back, &n, &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "is a folder, expected a regular file"));
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    ck_assert_int_eq(dlab_file_read(in_folder("pipe"), 10, &back, &n, &err), DLAB_EIO); /* and does not hang */
    ck_assert(!dlab_file_exists(in_folder("absent")));
    ck_assert(dlab_file_exists(in_folder("pipe")));
}
END_TEST

START_TEST(a_failed_write_leaves_nothing)
{
    ck_assert_int_eq(dlab_file_write_atomic(in_folder("no/such/folder"), "x", 1, &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "no/such/folder: cannot create"));
    ck_assert_int_eq(dlab_dir_make(in_folder("taken/by"), &err), DLAB_OK);
    ck_assert_int_eq(dlab_file_write_atomic(in_folder("taken"), "x", 1, &err), DLAB_EIO); /* a folder is in the way */
    ck_assert_ptr_nonnull(strstr(err.msg, "taken: cannot put the new file in place"));
    ck_assert_int_eq(entries(), 1);
    ck_assert_int_eq(dlab_file_write_atomic("/dev/full/x", "x", 1, &err), DLAB_EIO);
}
END_TEST

START_TEST(publish_moves_a_finished_file)
{
    char tmp[256];
    snprintf(tmp, sizeof tmp, "%s", in_folder("draft"));
    FILE *f = fopen(tmp, "w");
    fputs("done", f);
    fclose(f);
    ck_assert_int_eq(dlab_file_publish(tmp, in_folder("final"), &err), DLAB_OK);
    ck_assert(!dlab_file_exists(tmp));
    ck_assert(dlab_file_exists(in_folder("final")));
    ck_assert_int_eq(dlab_file_publish(tmp, in_folder("final"), &err), DLAB_EIO);
    ck_assert(dlab_file_exists(in_folder("final")));
}
END_TEST

START_TEST(folders_are_made_with_their_parents)
{
    ck_assert_int_eq(dlab_dir_make(in_folder("a/b/c/"), &err), DLAB_OK);
    ck_assert_int_eq(dlab_dir_make(in_folder("a/b/c"), &err), DLAB_OK);
    struct stat st;
    ck_assert_int_eq(stat(in_folder("a/b/c"), &st), 0);
    ck_assert(S_ISDIR(st.st_mode));
    ck_assert_int_eq(dlab_file_write_atomic(in_folder("a/file"), "x", 1, &err), DLAB_OK);
    ck_assert_int_eq(dlab_dir_make(in_folder("a/file/d"), &err), DLAB_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "is there already and is not a folder"));
    ck_assert_int_eq(dlab_dir_make("", &err), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_dir_make("/", &err), DLAB_OK);
}
END_TEST

START_TEST(hashes_are_xxhash64)
{
    uint64_t h;
    ck_assert_int_eq(dlab_file_write_atomic(in_folder("empty"), "", 0, &err), DLAB_OK);
    ck_assert_int_eq(dlab_file_hash(in_folder("empty"), &h, &err), DLAB_OK);
    ck_assert(h == UINT64_C(0xEF46DB3751D8E999)); /* the algorithm's value for no input, seed 0 */
    ck_assert_int_eq(dlab_file_write_atomic(in_folder("abc"), "abc", 3, &err), DLAB_OK);
    ck_assert_int_eq(dlab_file_hash(in_folder("abc"), &h, &err), DLAB_OK);
    ck_assert(h == UINT64_C(0x44BC2CF5AD770999));
    ck_assert_int_eq(dlab_file_hash(in_folder("absent"), &h, &err), DLAB_EIO);
}
END_TEST

START_TEST(what_is_not_a_regular_file_is_never_replaced)
{
    char fifo[] = "/tmp/dlab-fifo-XXXXXX", tmp[64], link_name[64], target[64];
    ck_assert_ptr_nonnull(mkdtemp(fifo));
    snprintf(tmp, sizeof tmp, "%s/tmp", fifo);
    snprintf(target, sizeof target, "%s/target", fifo);
    snprintf(link_name, sizeof link_name, "%s/link", fifo);
    struct stat st;
    /* a pipe of our own: a mistake here must not cost the system a device */
    char pipe_name[64];
    snprintf(pipe_name, sizeof pipe_name, "%s/pipe", fifo);
    ck_assert_int_eq(mkfifo(pipe_name, 0600), 0);
    ck_assert_int_eq(dlab_file_write_atomic(tmp, "new", 3, &err), DLAB_OK);
    ck_assert_int_eq(dlab_file_publish(tmp, pipe_name, &err), DLAB_EIO);
    ck_assert_int_eq(stat(pipe_name, &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
    ck_assert(!dlab_file_exists(tmp));
    const int fd = open(pipe_name, O_RDWR | O_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dlab_file_write_atomic(pipe_name, "through", 7, &err), DLAB_OK);
    char got[8] = {0};
    ck_assert_int_eq(read(fd, got, 7), 7);
    ck_assert_str_eq(got, "through");
    close(fd);
    /* a link stays a link */
    ck_assert_int_eq(dlab_file_write_atomic(target, "old", 3, &err), DLAB_OK);
    ck_assert_int_eq(symlink(target, link_name), 0);
    ck_assert_int_eq(dlab_file_write_atomic(link_name, "newer", 5, &err), DLAB_OK);
    ck_assert_int_eq(lstat(link_name, &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    char *text = NULL;
    size_t n = 0;
    ck_assert_int_eq(dlab_file_read(target, 100, &text, &n, &err), DLAB_OK);
    ck_assert_str_eq(text, "newer");
    free(text);
    unlink(link_name);
    unlink(target);
    unlink(pipe_name);
    rmdir(fifo);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("file");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_written_is_read);
    tcase_add_test(t, large_files_and_the_greatest_size);
    tcase_add_test(t, files_of_unknown_size_are_read_to_the_end);
    tcase_add_test(t, what_is_no_file_is_refused);
    tcase_add_test(t, a_failed_write_leaves_nothing);
    tcase_add_test(t, publish_moves_a_finished_file);
    tcase_add_test(t, folders_are_made_with_their_parents);
    tcase_add_test(t, hashes_are_xxhash64);
    tcase_add_test(t, what_is_not_a_regular_file_is_never_replaced);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failures = srunner_ntests_failed(r);
    srunner_free(r);
    return failures ? 1 : 0;
}

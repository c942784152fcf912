/* atomic_file: the new file in the old one's place in one step, with its owner, mode and
 * attributes; what somebody else put there is never lost. Needs -Wl,--wrap=renameat2,--wrap=fsync.
 */
#include "pack/atomic_file.h"

#include "editkit.h"
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>
#include <unistd.h>

int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags);
int __real_fsync(int fd);
int __wrap_fsync(int fd);

static void (*before_rename)(void); /* called once */
static int rename_error;            /* every call fails with it */
static int fsync_calls_left = -1;   /* the call that fails is 0 */

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags) {
    if (before_rename) {
        void (*call)(void) = before_rename;
        before_rename = NULL;
        call();
    }
    if (rename_error) {
        errno = rename_error;
        return -1;
    }
    return __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_fsync(int fd) {
    if (fsync_calls_left >= 0 && fsync_calls_left-- == 0) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

/* ---- a folder with one file ------------------------------------------------------------------ */

static char folder[TEMP_PATH];
static char path[TEMP_PATH + 300];
static struct stat old;

static void write_file(const char *where, const char *text) {
    int fd = open(where, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void check_file(const char *where, const char *text) {
    char got[100] = "";
    int fd = open(where, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s is not there", where);
    ck_assert_int_ge(read(fd, got, sizeof(got) - 1), 0);
    ck_assert_str_eq(got, text);
    close(fd);
}

static void begin_folder(void) {
    kit_folder(folder);
    snprintf(path, sizeof(path), "%s/p.bpk", folder);
    write_file(path, "old");
    ck_assert_int_eq(stat(path, &old), 0);
}

static void end_folder(int files) {
    ck_assert_int_eq(kit_count_files(folder), files);
    kit_remove_folder(folder);
}

static struct bpk_atomic_file begin(const char *where, const struct stat *replaced) {
    struct bpk_atomic_file file;
    struct bpk_diag diag = {0};
    int r = bpk_atomic_begin(where, replaced, &file, &diag);
    ck_assert_msg(r == 0, "begin: %s", diag.sentence);
    ck_assert_int_eq(write(file.fd, "new", 3), 3);
    return file;
}

static void seal(struct bpk_atomic_file *file, int from) {
    struct bpk_diag diag = {0};
    int r = bpk_atomic_seal(file, from, false, &diag);
    ck_assert_msg(r == 0, "seal: %s", diag.sentence);
}

static int publish(struct bpk_atomic_file *file) {
    struct bpk_diag diag = {0};
    int r = bpk_atomic_publish(file, &diag);
    ck_assert_int_eq(diag.code, r);
    ck_assert((r == 0) == (diag.sentence[0] == '\0'));
    return r;
}

/* ---- what should happen ---------------------------------------------------------------------- */

START_TEST(the_new_file_takes_the_place) {
    begin_folder();
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    struct bpk_atomic_file file = begin(path, &old);
    struct stat attr;
    ck_assert_int_eq(fstat(file.fd, &attr), 0);
    ck_assert_uint_eq(attr.st_mode & 07777, 0600);
    ck_assert_int_eq(kit_count_files(folder), 2);
    ck_assert(bpk_atomic_is_temp("p.bpk", file.temp));
    char temp[TEMP_PATH + 300];
    snprintf(temp, sizeof(temp), "%s/%s", folder, file.temp);
    int other = open(temp, O_RDONLY | O_CLOEXEC);
    ck_assert_int_lt(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    check_file(path, "old");
    seal(&file, reader);
    check_file(path, "old");
    ck_assert_int_eq(publish(&file), 0);
    ck_assert(file.published);
    check_file(path, "new");
    char got[4] = "";
    ck_assert_int_eq(pread(reader, got, 3, 0), 3);
    ck_assert_str_eq(got, "old");
    bpk_atomic_end(&file);
    check_file(path, "new");
    close(reader);
    end_folder(1);
}

START_TEST(a_new_file_is_made) {
    begin_folder();
    mode_t mask = umask(027);
    struct stat attr;
    snprintf(path, sizeof(path), "%s/q.bpk", folder);
    struct bpk_atomic_file file = begin(path, NULL);
    seal(&file, -1);
    ck_assert_int_eq(publish(&file), 0);
    bpk_atomic_end(&file);
    check_file(path, "new");
    ck_assert_int_eq(stat(path, &attr), 0);
    ck_assert_uint_eq(attr.st_mode & 07777, 0640);
    umask(mask);
    end_folder(2);
}

START_TEST(abort_leaves_nothing) {
    begin_folder();
    struct bpk_atomic_file file = begin(path, &old);
    bpk_atomic_end(&file);
    file = begin(path, &old);
    seal(&file, -1);
    bpk_atomic_end(&file);
    bpk_atomic_end(&file); /* once more does no harm */
    check_file(path, "old");
    end_folder(1);
}

START_TEST(a_symbolic_link_is_followed) {
    begin_folder();
    char link[TEMP_PATH + 20];
    char inner[TEMP_PATH + 20];
    char target[TEMP_PATH + 30];
    struct stat attr;
    snprintf(inner, sizeof(inner), "%s/inner", folder);
    snprintf(target, sizeof(target), "%s/t.bpk", inner);
    snprintf(link, sizeof(link), "%s/link.bpk", folder);
    ck_assert_int_eq(mkdir(inner, 0700), 0);
    write_file(target, "old");
    ck_assert_int_eq(symlink("inner/t.bpk", link), 0);
    ck_assert_int_eq(stat(link, &attr), 0);
    struct bpk_atomic_file file = begin(link, &attr);
    ck_assert_str_eq(file.name, "t.bpk");
    ck_assert_int_eq(kit_count_files(folder), 3); /* the temporary one is beside the target */
    seal(&file, -1);
    ck_assert_int_eq(publish(&file), 0);
    bpk_atomic_end(&file);
    check_file(target, "new");
    ck_assert_int_eq(lstat(link, &attr), 0);
    ck_assert(S_ISLNK(attr.st_mode));
    check_file(path, "old");
    end_folder(3);
}

/* The folder was moved, and the link turned elsewhere: it goes where it was going. */
START_TEST(the_folder_is_held) {
    begin_folder();
    char inner[TEMP_PATH + 20];
    char moved[TEMP_PATH + 20];
    char target[TEMP_PATH + 40];
    struct stat attr;
    snprintf(inner, sizeof(inner), "%s/inner", folder);
    snprintf(moved, sizeof(moved), "%s/moved", folder);
    ck_assert_int_eq(mkdir(inner, 0700), 0);
    snprintf(target, sizeof(target), "%s/t.bpk", inner);
    write_file(target, "old");
    ck_assert_int_eq(stat(target, &attr), 0);
    struct bpk_atomic_file file = begin(target, &attr);
    ck_assert_int_eq(rename(inner, moved), 0);
    ck_assert_int_eq(mkdir(inner, 0700), 0);
    write_file(target, "decoy");
    seal(&file, -1);
    ck_assert_int_eq(publish(&file), 0);
    bpk_atomic_end(&file);
    check_file(target, "decoy");
    snprintf(target, sizeof(target), "%s/t.bpk", moved);
    check_file(target, "new");
    end_folder(3);
}

START_TEST(mode_and_attributes_are_kept) {
    begin_folder();
    struct stat attr;
    char value[20] = "";
    ck_assert_int_eq(chmod(path, 0751), 0);
    bool has_attributes = setxattr(path, "user.note", "hello", 5, 0) == 0;
    if (has_attributes)
        ck_assert_int_eq(setxattr(path, "user.empty", "", 0, 0), 0);
    bool is_root = geteuid() == 0 && chown(path, 12345, 23456) == 0;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(stat(path, &old), 0);
    struct bpk_atomic_file file = begin(path, &old);
    seal(&file, from);
    ck_assert_int_eq(publish(&file), 0);
    bpk_atomic_end(&file);
    ck_assert_int_eq(stat(path, &attr), 0);
    ck_assert_uint_eq(attr.st_mode & 07777, 0751);
    if (is_root) {
        ck_assert_uint_eq(attr.st_uid, 12345);
        ck_assert_uint_eq(attr.st_gid, 23456);
    }
    if (has_attributes) {
        ck_assert_int_eq(getxattr(path, "user.note", value, sizeof(value)), 5);
        ck_assert_str_eq(value, "hello");
        ck_assert_int_eq(getxattr(path, "user.empty", value, sizeof(value)), 0);
    }
    close(from);
    check_file(path, "new");
    end_folder(1);
}

/* Set-user-ID bits would be cut by the change of owner: they come after it. */
START_TEST(special_bits_are_kept) {
    begin_folder();
    struct stat attr;
    if (geteuid() == 0)
        ck_assert_int_eq(chown(path, 12345, 23456), 0);
    ck_assert_int_eq(chmod(path, 06711), 0);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(fstat(from, &old), 0);
    struct bpk_atomic_file file = begin(path, &old);
    seal(&file, from);
    ck_assert_int_eq(publish(&file), 0);
    bpk_atomic_end(&file);
    ck_assert_int_eq(stat(path, &attr), 0);
    ck_assert_uint_eq(attr.st_mode & 07777, 06711);
    close(from);
    end_folder(1);
}

START_TEST(long_names_fit) {
    begin_folder();
    char name[256];
    memset(name, 'n', sizeof(name));
    for (size_t len = 225; len <= 255; len++) {
        name[len] = '\0';
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        write_file(path, "old");
        ck_assert_int_eq(stat(path, &old), 0);
        struct bpk_atomic_file file = begin(path, &old);
        ck_assert_uint_le(strlen(file.temp), 255);
        seal(&file, -1);
        ck_assert_int_eq(publish(&file), 0);
        bpk_atomic_end(&file);
        check_file(path, "new");
        ck_assert_int_eq(unlink(path), 0);
        name[len] = 'n';
    }
    end_folder(1);
}

/* ---- what somebody else does meanwhile ------------------------------------------------------- */

static void replace_target(void) {
    char other[TEMP_PATH + 20];
    snprintf(other, sizeof(other), "%s/other", folder);
    write_file(other, "theirs");
    ck_assert_int_eq(rename(other, path), 0);
}

static void append_to_target(void) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "!", 1), 1);
    close(fd);
}

static void remove_target(void) {
    ck_assert_int_eq(unlink(path), 0);
}

static const struct {
    void (*change)(void);
    const char *left; /* NULL: nothing */
} changes[] = {{replace_target, "theirs"}, {append_to_target, "old!"}, {remove_target, NULL}};

static void check_left(int i) {
    if (changes[i].left)
        check_file(path, changes[i].left);
    end_folder(changes[i].left != NULL);
}

START_TEST(a_changed_target_is_stale) {
    begin_folder();
    struct bpk_atomic_file file = begin(path, &old);
    seal(&file, -1);
    changes[_i].change();
    ck_assert_int_eq(publish(&file), -ESTALE);
    ck_assert(!file.published);
    bpk_atomic_end(&file);
    check_left(_i);
}

/* Between the last look and the exchange: what came out is put back. */
START_TEST(changed_in_the_last_moment_it_is_put_back) {
    begin_folder();
    struct bpk_atomic_file file = begin(path, &old);
    seal(&file, -1);
    before_rename = changes[_i].change;
    ck_assert_int_eq(publish(&file), -ESTALE);
    ck_assert(!file.published);
    bpk_atomic_end(&file);
    check_left(_i);
}

/* Where there is to be a new file. */
static void check_refused(const char *sentence) {
    struct bpk_atomic_file file;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_atomic_begin(path, NULL, &file, &diag), -EEXIST);
    ck_assert_str_eq(diag.sentence, sentence);
}

START_TEST(an_existing_file_is_not_replaced_unasked) {
    begin_folder();
    check_refused("there is a file of that name already");
    check_file(path, "old");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("nowhere", path), 0);
    check_refused("there is a link of that name, which leads nowhere, already");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    check_refused("there is a folder of that name already");
    ck_assert_int_eq(rmdir(path), 0);
    end_folder(0);
}

START_TEST(a_file_made_meanwhile_is_not_replaced) {
    begin_folder();
    ck_assert_int_eq(unlink(path), 0);
    struct bpk_atomic_file file = begin(path, NULL);
    seal(&file, -1);
    write_file(path, "theirs");
    ck_assert_int_eq(publish(&file), -EEXIST);
    bpk_atomic_end(&file);
    check_file(path, "theirs");
    end_folder(1);
}

START_TEST(a_link_made_meanwhile_is_not_replaced) {
    begin_folder();
    struct stat attr;
    ck_assert_int_eq(unlink(path), 0);
    struct bpk_atomic_file file = begin(path, NULL);
    seal(&file, -1);
    ck_assert_int_eq(symlink("nowhere", path), 0);
    ck_assert_int_eq(publish(&file), -EEXIST);
    bpk_atomic_end(&file);
    ck_assert_int_eq(lstat(path, &attr), 0);
    ck_assert(S_ISLNK(attr.st_mode));
    end_folder(1);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Filesystems without exchange: a plain rename. */
START_TEST(without_exchange_it_is_renamed) {
    begin_folder();
    struct bpk_atomic_file file = begin(path, &old);
    seal(&file, -1);
    rename_error = EINVAL;
    ck_assert_int_eq(publish(&file), 0);
    rename_error = 0;
    bpk_atomic_end(&file);
    check_file(path, "new");
    end_folder(1);
}

START_TEST(a_rename_that_fails_changes_nothing) {
    begin_folder();
    struct bpk_atomic_file file = begin(path, &old);
    seal(&file, -1);
    rename_error = EACCES;
    ck_assert_int_eq(publish(&file), -EACCES);
    rename_error = 0;
    bpk_atomic_end(&file);
    check_file(path, "old");
    end_folder(1);
}

START_TEST(a_failed_fsync_is_told) {
    struct bpk_diag diag = {0};
    begin_folder();
    struct bpk_atomic_file file = begin(path, &old);
    fsync_calls_left = 0;
    ck_assert_int_eq(bpk_atomic_seal(&file, -1, false, &diag), -EIO);
    fsync_calls_left = -1;
    bpk_atomic_end(&file);
    check_file(path, "old");
    /* of the folder: back to the old file, or it says that the new one is there */
    file = begin(path, &old);
    seal(&file, -1);
    fsync_calls_left = 0;
    ck_assert_int_eq(publish(&file), -EIO);
    fsync_calls_left = -1;
    bool published = file.published;
    bpk_atomic_end(&file);
    check_file(path, published ? "new" : "old");
    end_folder(1);
}

START_TEST(begin_needs_a_folder) {
    struct bpk_atomic_file file;
    struct bpk_diag diag = {0};
    begin_folder();
    char missing[TEMP_PATH + 300];
    snprintf(missing, sizeof(missing), "%s/no/p.bpk", folder);
    ck_assert_int_eq(bpk_atomic_begin(missing, NULL, &file, &diag), -ENOENT);
    ck_assert_int_eq(diag.code, -ENOENT);
    snprintf(missing, sizeof(missing), "%s/p.bpk/q", folder);
    ck_assert_int_eq(bpk_atomic_begin(missing, NULL, &file, &diag), -ENOTDIR);
    end_folder(1);
}

START_TEST(names_of_temporary_files) {
    static const char *const no[] = {
        "p.bpk",
        ".p.bpk.tmp",
        ".p.bpk.0123456789abcde.tmp",
        ".p.bpk.0123456789abcdeF.tmp",
        ".p.bpk.0123456789abcdef.tmp2",
        ".q.bpk.0123456789abcdef.tmp",
        ".p.bpk.0123456789abcdef0.tmp",
        ".p.bpk.edits",
    };
    ck_assert(bpk_atomic_is_temp("p.bpk", ".p.bpk.0123456789abcdef.tmp"));
    for (int i = 0; i < ROWS(no); i++)
        ck_assert_msg(!bpk_atomic_is_temp("p.bpk", no[i]), "%s", no[i]);
}

int main(void) {
    Suite *suite = suite_create("atomic_file");
    TCase *tc = suite_case(suite, "replacing");
    tcase_add_test(tc, the_new_file_takes_the_place);
    tcase_add_test(tc, a_new_file_is_made);
    tcase_add_test(tc, abort_leaves_nothing);
    tcase_add_test(tc, a_symbolic_link_is_followed);
    tcase_add_test(tc, the_folder_is_held);
    tcase_add_test(tc, mode_and_attributes_are_kept);
    tcase_add_test(tc, special_bits_are_kept);
    tcase_add_test(tc, long_names_fit);
    tc = suite_case(suite, "others");
    tcase_add_loop_test(tc, a_changed_target_is_stale, 0, ROWS(changes));
    tcase_add_loop_test(tc, changed_in_the_last_moment_it_is_put_back, 0, ROWS(changes));
    tcase_add_test(tc, an_existing_file_is_not_replaced_unasked);
    tcase_add_test(tc, a_file_made_meanwhile_is_not_replaced);
    tcase_add_test(tc, a_link_made_meanwhile_is_not_replaced);
    tc = suite_case(suite, "failures");
    tcase_add_test(tc, without_exchange_it_is_renamed);
    tcase_add_test(tc, a_rename_that_fails_changes_nothing);
    tcase_add_test(tc, a_failed_fsync_is_told);
    tcase_add_test(tc, begin_needs_a_folder);
    tcase_add_test(tc, names_of_temporary_files);
    return suite_run(suite);
}

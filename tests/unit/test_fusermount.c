/* fusermount: what comes of it where umount2 is not permitted, with helpers that are scripts. */
#include "pack/fusermount.h"

#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

int __wrap_umount2(const char *path, int flags);

static int umount_errno;

int __wrap_umount2(const char *path, int flags) {
    ck_assert(path && (flags & UMOUNT_NOFOLLOW));
    errno = umount_errno;
    return umount_errno == 0 ? 0 : -1;
}

/* PATH is a fresh folder with the script as fusermount3; NULL: with none. */
static char folder[] = "/var/tmp/bpk-fusermount-XXXXXX";
static char program[64];

static void use_helper(const char *script) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(program, sizeof(program), "%s/fusermount3", folder);
    if (script) {
        FILE *file = fopen(program, "w");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_gt(fprintf(file, "#!/bin/sh\n%s\n", script), 0);
        ck_assert_int_eq(fclose(file), 0);
        ck_assert_int_eq(chmod(program, 0755), 0);
    }
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    umount_errno = EPERM;
}

static void clear(void) {
    (void)unlink(program);
    ck_assert_int_eq(rmdir(folder), 0);
}

static const struct {
    const char *script;
    int expected;
    const char *sentence;
} rows[] = {
    {"exit 0", 0, "untouched"},
    {"echo noise >&2", 0, "untouched"},
    {"echo 'fusermount3: failed to unmount /m: Device or resource busy' >&2; exit 1", -EBUSY,
     "Device or resource busy"},
    {"echo 'fusermount3: failed to open /etc/mtab: No such file or directory' >&2; exit 1", -EPERM,
     "fusermount3: failed to open /etc/mtab: No such file or directory"},
    {"printf 'fusermount3: entry for /\\033[m not found in /etc/mtab\\nmore\\n' >&2; exit 1",
     -EPERM, "fusermount3: entry for /\\x1b[m not found in /etc/mtab"},
    {"exit 1", -EPERM, "fusermount3 failed and did not say why"},
    {"kill -9 $$", -EPERM, "fusermount3 failed and did not say why"},
    {NULL, -ENOENT, "cannot run fusermount3: No such file or directory"},
};

START_TEST(reasons) {
    struct bpk_diag diag = {.sentence = "untouched"};
    use_helper(rows[_i].script);
    ck_assert_int_eq(bpk_unmount("/m", false, &diag), rows[_i].expected);
    ck_assert_str_eq(diag.sentence, rows[_i].sentence);
    ck_assert_int_eq(bpk_unmount("/m", true, NULL), rows[_i].expected);
    clear();
}

/* More than a pipe holds, so it must be read on. */
START_TEST(long_reason) {
    struct bpk_diag diag;
    use_helper(
        "i=0; while [ $i -lt 9000 ]; do i=$((i + 1)); printf 'a line of it' >&2; done; exit 1");
    ck_assert_int_eq(bpk_unmount("/m", false, &diag), -EPERM);
    ck_assert_int_eq(strncmp(diag.sentence, "a line of ita line of it", 24), 0);
    clear();
}

START_TEST(helper_gets_the_path) {
    use_helper("[ \"$*\" = '-u -- -m' ]");
    ck_assert_int_eq(bpk_unmount("-m", false, NULL), 0);
    ck_assert_int_eq(bpk_unmount("-m", true, NULL), -EPERM);
    clear();
}

START_TEST(not_asked_for_nothing) {
    struct bpk_diag diag = {.sentence = "untouched"};
    use_helper("exit 1");
    umount_errno = 0;
    ck_assert_int_eq(bpk_unmount("/m", false, &diag), 0);
    ck_assert_str_eq(diag.sentence, "untouched");
    umount_errno = EINVAL;
    ck_assert_int_eq(bpk_unmount("/m", false, &diag), -EINVAL);
    ck_assert_str_eq(diag.sentence, "Invalid argument");
    clear();
}

int main(void) {
    Suite *suite = suite_create("fusermount");
    TCase *tc = suite_case(suite, "unmount");
    tcase_add_loop_test(tc, reasons, 0, ROWS(rows));
    tcase_add_test(tc, long_reason);
    tcase_add_test(tc, helper_gets_the_path);
    tcase_add_test(tc, not_asked_for_nothing);
    return suite_run(suite);
}

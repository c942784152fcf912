/* sandbox: what is given up, and what still works. It holds for a thread: the one that cleans up is
 * another. */
#include "sandbox.h"

#include "editkit.h"
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char inside[TEMP_PATH];
static char outside[TEMP_PATH];
static char path[TEMP_PATH + 40];

static const char *in(const char *folder, const char *name) {
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *where) {
    int fd = open(where, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "text", 4), 4);
    close(fd);
}

static int open_code(const char *where, int flags) {
    int fd = open(where, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int code(long result) {
    return result < 0 ? -errno : 0;
}

static int rules;

/* Two folders with a file each; the rules are those of `inside`. False: no Landlock here. */
static bool begin(void) {
    kit_folder(inside);
    kit_folder(outside);
    put(in(outside, "file"));
    put(in(inside, "pack"));
    rules = bpk_sandbox_make_rules(path);
    if (rules == -ENOSYS || rules == -EOPNOTSUPP)
        return false;
    ck_assert_int_ge(rules, 0);
    return true;
}

static void end(void) {
    if (rules >= 0)
        close(rules);
    kit_remove_folder(inside);
    kit_remove_folder(outside);
}

static void in_a_thread(void *(*body)(void *), void *context) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, body, context), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void confine(void) {
    ck_assert_int_eq(bpk_sandbox_begin(), 0);
    ck_assert_int_eq(bpk_sandbox_confine(rules), 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void *use_the_folder(void *unused) {
    char other[TEMP_PATH + 40];
    char link[64];
    int folder = open(inside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    confine();
    put(in(inside, "new"));
    ck_assert_int_eq(code(truncate(path, 2)), 0);
    int fd = openat(folder, "new", O_RDWR | O_TRUNC | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(code(ftruncate(fd, 5)), 0);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ck_assert_int_eq(open_code(link, O_RDONLY), 0);
    ck_assert_int_eq(code(fchmod(fd, 0640)), 0);
    close(fd);
    snprintf(other, sizeof(other), "%s/pack", inside);
    ck_assert_int_eq(code(renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_EXCHANGE)), 0);
    ck_assert_int_eq(code(rename(path, other)), 0);
    ck_assert_int_eq(code(mkdirat(folder, "edits", 0700)), 0);
    put(in(inside, "edits/journal.new"));
    snprintf(other, sizeof(other), "%s/edits/journal", inside);
    ck_assert_int_eq(code(rename(path, other)), 0);
    ck_assert_int_eq(open_code(in(inside, "edits"), O_RDONLY | O_DIRECTORY), 0);
    ck_assert_int_eq(code(unlink(other)), 0);
    ck_assert_int_eq(code(unlinkat(folder, "edits", AT_REMOVEDIR)), 0);
    ck_assert_int_eq(code(unlink(in(inside, "pack"))), 0);
    close(folder);
    return unused;
}

START_TEST(the_folder_stays_whole) {
    if (begin())
        in_a_thread(use_the_folder, NULL);
    end();
}

static void *reach_out(void *unused) {
    struct stat attr;
    char to[TEMP_PATH + 40];
    int open_before = open(in(outside, "file"), O_RDWR | O_CLOEXEC);
    confine();
    ck_assert_int_eq(code(unlink(path)), -EACCES);
    ck_assert_int_eq(code(rmdir(outside)), -EACCES);
    ck_assert_int_eq(code(symlink("x", in(inside, "link"))), -EACCES);
    ck_assert_int_eq(code(mkfifo(in(inside, "fifo"), 0600)), -EACCES);
    snprintf(to, sizeof(to), "%s/moved", outside);
    ck_assert_int_lt(code(rename(in(inside, "pack"), to)), 0);
    ck_assert_int_lt(code(link(path, to)), 0);
#ifndef BPK_INSTRUMENTED
    ck_assert_int_eq(open_code(in(outside, "file"), O_RDONLY), -EACCES);
    ck_assert_int_eq(open_code(path, O_WRONLY), -EACCES);
    ck_assert_int_eq(code(truncate(path, 0)), -EACCES);
    ck_assert_int_eq(open_code(in(outside, "new"), O_WRONLY | O_CREAT), -EACCES);
    ck_assert_int_eq(open_code(outside, O_RDONLY | O_DIRECTORY), -EACCES);
    ck_assert_int_eq(open_code("/etc/passwd", O_RDONLY), -EACCES);
    ck_assert_int_eq(open_code("/dev/null", O_RDWR), -EACCES);
    ck_assert_int_eq(open_code("/proc/self/maps", O_RDONLY), -EACCES);
#endif
    ck_assert_int_eq(open_code("/dev/urandom", O_RDONLY), 0);
    ck_assert_int_eq(code(stat(in(outside, "file"), &attr)), 0);
    ck_assert_int_eq(write(open_before, "more", 4), 4);
    close(open_before);
    return unused;
}

START_TEST(nothing_else_can_be_reached) {
    if (begin())
        in_a_thread(reach_out, NULL);
    end();
}

static void *use_the_moved_folder(void *moved) {
    confine();
    ck_assert_int_eq(code(unlink(in(inside, "other"))), -EACCES);
    put(in(moved, "new"));
    ck_assert_int_eq(code(unlink(path)), 0);
    return NULL;
}

/* The rules are of the folder, not of its path. */
START_TEST(the_folder_can_be_moved) {
    char moved[TEMP_PATH + 40];
    if (begin()) {
        snprintf(moved, sizeof(moved), "%s/moved", outside);
        ck_assert_int_eq(code(rename(inside, moved)), 0);
        ck_assert_int_eq(code(mkdir(inside, 0700)), 0);
        put(in(inside, "other"));
        in_a_thread(use_the_moved_folder, moved);
    }
    end();
}

static pthread_barrier_t barrier;

static void *unlink_outside(void *result) {
    (void)pthread_barrier_wait(&barrier);
    *(int *)result = code(unlink(in(outside, "file")));
    return NULL;
}

/* One from before, and one from after. */
static void *start_threads(void *results) {
    pthread_t thread;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, unlink_outside, results), 0);
    confine();
    for (int i = 0; i < 2; i++) {
        (void)pthread_barrier_wait(&barrier);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        if (i == 0)
            ck_assert_int_eq(pthread_create(&thread, NULL, unlink_outside, (int *)results + 1), 0);
    }
    return NULL;
}

START_TEST(threads_from_before_are_free) {
    int results[2] = {1, 1};
    if (begin()) {
        put(in(outside, "file"));
        in_a_thread(start_threads, results);
        ck_assert_int_eq(results[0], 0);
        ck_assert_int_eq(results[1], -ENOENT);
    }
    end();
}

/* ---- system calls ---------------------------------------------------------------------------- */

static bool has_filter(void) {
    ck_assert_int_eq(bpk_sandbox_begin(), 0);
    ck_assert_int_eq(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
    int r = bpk_sandbox_forbid_calls();
    if (r == -EOPNOTSUPP || r == -EINVAL)
        return false;
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(prctl(PR_GET_SECCOMP), 2);
    return true;
}

static void *make_calls(void *unused) {
    char name[] = "true";
    char *const argv[] = {name, NULL};
    if (!has_filter())
        return NULL;
    ck_assert_int_eq(code(execve("/bin/true", argv, NULL)), -EPERM);
    ck_assert_int_eq(code(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, NULL, 0)), -EPERM);
    ck_assert_int_eq(code(umount2("/nowhere", 0)), -EPERM);
    ck_assert_int_eq(code(mount("x", "/nowhere", "tmpfs", 0, NULL)), -EPERM);
    ck_assert_int_eq(code(chroot("/nowhere")), -EPERM);
    ck_assert_int_eq(code(syscall(SYS_bpf, -1, NULL, 0)), -EPERM);
    ck_assert_int_eq(code(syscall(SYS_keyctl, 0, 0, 0, 0, 0)), -EPERM);
    ck_assert_int_eq(code(syscall(425, 1, NULL)), -EPERM);    /* io_uring_setup */
    ck_assert_int_eq(code(syscall(430, "tmpfs", 0)), -EPERM); /* fsopen */
#ifndef BPK_INSTRUMENTED
    ck_assert_int_eq(code(ptrace(PTRACE_TRACEME, 0, NULL, NULL)), -EPERM);
#endif
    return unused;
}

START_TEST(calls_are_refused) {
    in_a_thread(make_calls, NULL);
}

static int make_socket(int domain, int type) {
    int fd = socket(domain, type, 0);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static void *make_sockets(void *unused) {
    if (!has_filter())
        return NULL;
    ck_assert_int_eq(make_socket(AF_INET, SOCK_STREAM), -EPERM);
    ck_assert_int_eq(make_socket(AF_INET6, SOCK_DGRAM), -EPERM);
    ck_assert_int_eq(make_socket(AF_NETLINK, SOCK_RAW), -EPERM);
    ck_assert_int_eq(make_socket(AF_UNIX, SOCK_STREAM), -EPERM);
    ck_assert_int_eq(make_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC), -EPERM);
    ck_assert_int_eq(make_socket(AF_UNIX, SOCK_DGRAM), 0);
    ck_assert_int_eq(make_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK), 0);
    return unused;
}

START_TEST(of_sockets_syslog_s_are_left) {
    in_a_thread(make_sockets, NULL);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void *sleep_long(void *unused) {
    (void)sleep(1000);
    return unused;
}

static void *cancel_a_thread(void *unused) {
    pthread_t thread;
    void *result;
    confine();
    (void)has_filter();
    ck_assert_int_eq(pthread_create(&thread, NULL, sleep_long, NULL), 0);
    ck_assert_int_eq(pthread_cancel(thread), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, PTHREAD_CANCELED);
    return unused;
}

/* The C library loads its unwinder for that. */
START_TEST(threads_can_be_cancelled) {
    if (begin())
        in_a_thread(cancel_a_thread, NULL);
    end();
}

START_TEST(rules_need_a_folder) {
    ck_assert_int_lt(bpk_sandbox_make_rules("/nowhere/pack"), 0);
}

int main(void) {
    Suite *suite = suite_create("sandbox");
    TCase *tc = suite_case(suite, "files");
    tcase_add_test(tc, the_folder_stays_whole);
    tcase_add_test(tc, nothing_else_can_be_reached);
    tcase_add_test(tc, the_folder_can_be_moved);
    tcase_add_test(tc, threads_from_before_are_free);
    tcase_add_test(tc, rules_need_a_folder);
    tc = suite_case(suite, "calls");
    tcase_add_test(tc, calls_are_refused);
    tcase_add_test(tc, of_sockets_syslog_s_are_left);
    tc = suite_case(suite, "both");
    tcase_add_test(tc, threads_can_be_cancelled);
    return suite_run(suite);
}

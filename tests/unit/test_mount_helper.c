/* mount_helper: of what mount(8) passes, what reaches bpkfs. */
#include "mount_helper.h"

#include "suite.h"

#include <stdio.h>
#include <string.h>

START_TEST(test_names) {
    ck_assert(bpk_mount_helper_is("mount.bpkfs"));
    ck_assert(bpk_mount_helper_is("/sbin/mount.bpkfs"));
    ck_assert(bpk_mount_helper_is("/sbin/mount.fuse.bpkfs"));
    ck_assert(!bpk_mount_helper_is("/usr/bin/bpkfs"));
    ck_assert(!bpk_mount_helper_is("/srv/mount.bpkfs/bpkfs"));
    ck_assert(!bpk_mount_helper_is("mount.bpkfs.real"));
    ck_assert(!bpk_mount_helper_is(""));
}
END_TEST

/* The words of a call, with the program's name before them. */
static struct fuse_args args_of(const char *call) {
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    char words[200];
    snprintf(words, sizeof(words), "/sbin/mount.bpkfs %s", call);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        ck_assert_int_eq(fuse_opt_add_arg(&args, word), 0);
    return args;
}

/* What mount(8) of util-linux passes, and what is left of it. */
static const struct {
    const char *call;
    const char *left;
    bool fake;
} calls[] = {
    {"p m -o rw", "-o rw p m", false},
    {"p m -o ro", "-o ro p m", false},
    {"p m -s -n -v -o rw", "-o rw p m", false},
    {"p m -s -f -n -v -o rw", "-o rw p m", true},
    {"p m -N /proc/1/ns/mnt -t fuse.bpkfs -o ro", "-o ro p m", false},
    {"-t bpkfs p m", "p m", false},
    {"p m -o ro,noexec,nosuid,nodev,allow_other,user", "-o ro,noexec,nosuid,nodev,allow_other p m",
     false},
    {"p m -o rw,relatime,uid=5,umask=022,user=ada,nofail,_netdev", "-o rw,uid=5,umask=022 p m",
     false},
    {"p m -o rw,silent,iversion,sync,dirsync,uhelper=x,helper=y,exec,suid,dev",
     "-o rw,sync,dirsync,exec p m", false},
    {"p m -o defaults,noauto,users,owner,group,comment=a,x-systemd.automount,X-mount.mkdir", "p m",
     false},
    {"p m -o strictatime,lazytime,loud,mand,symfollow", "p m", false},
    /* what is not of mount(8) is passed on, whether bpkfs has it or not */
    {"p m -o layout=legacy,commit=5,nouserx,xattr,x",
     "-o layout=legacy,commit=5,nouserx,xattr,x p m", false},
    /* a pack and a folder may be called like options */
    {"x-y user -o rw,user", "-o rw x-y user", false},
};

START_TEST(test_calls) {
    struct fuse_args args = args_of(calls[_i].call);
    char left[200] = "";
    bool fake = !calls[_i].fake;
    ck_assert_int_eq(bpk_mount_helper_translate(&args, &fake), 0);
    ck_assert_int_eq(fake, calls[_i].fake);
    for (int i = 1; i < args.argc; i++) {
        strcat(left, i > 1 ? " " : "");
        strcat(left, args.argv[i]);
    }
    ck_assert_str_eq(left, calls[_i].left);
    fuse_opt_free_args(&args);
}
END_TEST

START_TEST(test_options_are_parsed_after_it) {
    struct fuse_args args = args_of("p m -s -o ro,noauto,user,grace=3");
    struct bpk_options options;
    bool fake;
    ck_assert_int_eq(bpk_mount_helper_translate(&args, &fake), 0);
    ck_assert_int_eq(bpk_options_parse(&args, &options), 0);
    ck_assert_str_eq(options.pack, "p");
    ck_assert_str_eq(options.mountpoint, "m");
    ck_assert_int_eq(options.read_only, 1);
    ck_assert_int_eq(options.single_thread, 0); /* -s is "sloppy" here */
    ck_assert_uint_eq(options.grace, 3);
    bpk_options_clear(&options);
    fuse_opt_free_args(&args);
}
END_TEST

START_TEST(test_remount_is_refused) {
    struct fuse_args args = args_of("p m -o ro,remount");
    bool fake = false;
    ck_assert_int_eq(bpk_mount_helper_status(bpk_mount_helper_translate(&args, &fake)), 32);
    fuse_opt_free_args(&args);
}
END_TEST

START_TEST(test_exit_status) {
    ck_assert_int_eq(bpk_mount_helper_status(0), 0);
    ck_assert_int_eq(bpk_mount_helper_status(1), 32);
    ck_assert_int_eq(bpk_mount_helper_status(2), 1);
    ck_assert_int_eq(bpk_mount_helper_status(3), 32);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mount_helper");
    TCase *tc = suite_case(suite, "mount_helper");
    tcase_add_test(tc, test_names);
    tcase_add_loop_test(tc, test_calls, 0, ROWS(calls));
    tcase_add_test(tc, test_options_are_parsed_after_it);
    tcase_add_test(tc, test_remount_is_refused);
    tcase_add_test(tc, test_exit_status);
    return suite_run(suite);
}

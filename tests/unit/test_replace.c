/* replace: a planned pack takes the place of the old one, or nothing changes. */
#include "pack/replace.h"

#include "editkit.h"
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static char folder[TEMP_PATH];
static char path[TEMP_PATH + 20];

static void put_file(const char *where, const struct packspec *spec) {
    struct bytes file;
    spec_file(spec, &file);
    int fd = open(where, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, file.data, file.len), (ssize_t)file.len);
    close(fd);
    bytes_clear(&file);
}

static struct bpk_pack *open_pack(const char *where) {
    struct bpk_pack *pack;
    struct bpk_diag diag = {0};
    int r = bpk_pack_open(where, NULL, &pack, &diag);
    ck_assert_msg(r == 0, "%s", diag.sentence);
    return pack;
}

/* A plan of the pack there, with one tensor fewer and one key more. */
static struct bpk_plan changed_plan(const char *where) {
    struct bpk_plan plan;
    struct bpk_pack *base = open_pack(where);
    ck_assert_int_eq(bpk_plan_from_pack(base, &plan), 0);
    bpk_pack_unref(base);
    plan.tensors[0] = plan.tensors[--plan.tensor_count];
    plan.metadata[plan.metadata_count++] = (struct bpk_plan_entry){str("new"), str("value")};
    return plan;
}

static void begin(size_t size) {
    struct packspec spec;
    kit_folder(folder);
    snprintf(path, sizeof(path), "%s/p.bpk", folder);
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 100);
    spec_u8(&spec, "b", size);
    put_file(path, &spec);
    spec_clear(&spec);
}

static void end(int files) {
    ck_assert_int_eq(kit_count_files(folder), files);
    kit_remove_folder(folder);
}

static void check_is_new(const char *where) {
    struct bpk_pack *pack = open_pack(where);
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("a"), &index), -ENOENT);
    ck_assert_int_eq(bpk_pack_find_metadata(pack, str("new"), &index), 0);
    bpk_pack_unref(pack);
}

static void check_is_old(void) {
    struct bpk_pack *pack = open_pack(path);
    uint32_t index;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("a"), &index), 0);
    ck_assert_int_eq(bpk_pack_find_metadata(pack, str("new"), &index), -ENOENT);
    bpk_pack_unref(pack);
}

START_TEST(the_pack_is_replaced) {
    struct bpk_written written = {0};
    struct bpk_diag diag = {0};
    struct stat attr;
    begin(5000);
    struct bpk_plan plan = changed_plan(path);
    ck_assert_int_eq(bpk_replace(&plan, path, NULL, &written, &diag), 0);
    ck_assert(written.published);
    ck_assert_uint_ge(written.copied + written.cloned, 5000);
    check_is_new(path);
    ck_assert_int_eq(stat(path, &attr), 0);
    ck_assert_uint_eq(attr.st_mode & 0777, 0640);
    ck_assert_uint_eq((uint64_t)attr.st_size, bpk_plan_file_size(&plan));
    bpk_plan_clear(&plan);
    end(1);
}

/* A plan without base takes the place of whatever file it is given, and has its mode. */
START_TEST(a_file_that_is_given_is_replaced) {
    struct bpk_replace_options options = {0};
    struct bpk_diag diag = {0};
    struct stat attr;
    begin(5000);
    struct bpk_plan plan = changed_plan(path);
    struct bpk_pack *base = plan.base;
    plan.base = NULL;
    ck_assert_int_eq(bpk_replace(&plan, path, &options, NULL, &diag), -EEXIST);
    check_is_old();
    options.old_fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(bpk_replace(&plan, path, &options, NULL, &diag), 0);
    check_is_new(path);
    ck_assert_int_eq(stat(path, &attr), 0);
    ck_assert_uint_eq(attr.st_mode & 0777, 0640);
    ck_assert_int_eq(bpk_replace(&plan, path, &options, NULL, &diag), -ESTALE);
    close(options.old_fd);
    bpk_plan_clear(&plan);
    bpk_pack_unref(base);
    end(1);
}

static int refuse(void *context, int fd, struct bpk_diag *diag) {
    struct bpk_pack *pack;
    char there[64];
    snprintf(there, sizeof(there), "/proc/self/fd/%d", fd);
    ck_assert_int_eq(bpk_pack_open(there, NULL, &pack, diag), 0); /* it is whole */
    bpk_pack_unref(pack);
    check_is_old();
    *(int *)context += 1;
    diag->code = -ECANCELED;
    return -ECANCELED;
}

START_TEST(a_hook_that_fails_leaves_the_old_pack) {
    struct bpk_written written = {0};
    struct bpk_diag diag = {0};
    int calls = 0;
    struct bpk_replace_options options = {.before_publish = refuse, .context = &calls};
    begin(5000);
    struct bpk_plan plan = changed_plan(path);
    ck_assert_int_eq(bpk_replace(&plan, path, &options, &written, &diag), -ECANCELED);
    ck_assert_int_eq(calls, 1);
    ck_assert(!written.published);
    check_is_old();
    bpk_plan_clear(&plan);
    end(1);
}

START_TEST(a_new_file_is_made_and_none_replaced) {
    struct bpk_written written = {0};
    struct bpk_diag diag = {0};
    struct bpk_plan plan = {0};
    char where[TEMP_PATH + 20];
    begin(100);
    ck_assert_int_eq(bpk_replace(&plan, path, NULL, &written, &diag), -EEXIST);
    check_is_old();
    snprintf(where, sizeof(where), "%s/q.bpk", folder);
    ck_assert_int_eq(bpk_replace(&plan, where, NULL, &written, &diag), 0);
    bpk_plan_clear(&plan);
    struct bpk_pack *pack = open_pack(where);
    ck_assert_uint_eq(pack->meta.tensor_count, 0);
    bpk_pack_unref(pack);
    end(2);
}

START_TEST(a_copy_of_a_pack_is_made_elsewhere) {
    struct bpk_written written = {0};
    struct bpk_diag diag = {0};
    struct bpk_replace_options options = {.new_file = true};
    char where[TEMP_PATH + 20];
    begin(100);
    struct bpk_plan plan = changed_plan(path);
    ck_assert_int_eq(bpk_replace(&plan, path, &options, &written, &diag), -EEXIST);
    snprintf(where, sizeof(where), "%s/q.bpk", folder);
    ck_assert_int_eq(bpk_replace(&plan, where, &options, &written, &diag), 0);
    check_is_old();
    check_is_new(where);
    bpk_plan_clear(&plan);
    end(2);
}

/* A base that was replaced, changed in place or cut since it was opened. */
START_TEST(a_changed_base_is_stale) {
    for (int i = 0; i < 3; i++) {
        struct bpk_written written = {0};
        struct bpk_diag diag = {0};
        char other[TEMP_PATH + 20];
        begin(5000);
        snprintf(other, sizeof(other), "%s/other", folder);
        struct bpk_plan plan = changed_plan(path);
        if (i == 0) {
            struct packspec spec;
            spec_init(&spec, BPK_LAYOUT_ALIGNED);
            spec_u8(&spec, "a", 7);
            put_file(other, &spec);
            spec_clear(&spec);
            ck_assert_int_eq(rename(other, path), 0);
        } else if (i == 1) {
            int fd = open(path, O_WRONLY | O_CLOEXEC);
            ck_assert_int_eq(pwrite(fd, "x", 1, 600), 1);
            close(fd);
        } else {
            ck_assert_int_eq(truncate(path, 3000), 0);
        }
        ck_assert_int_eq(bpk_replace(&plan, path, NULL, &written, &diag), -ESTALE);
        ck_assert(!written.published);
        ck_assert_int_ne(diag.sentence[0], '\0');
        if (i < 2)
            check_is_old();
        bpk_plan_clear(&plan);
        end(1);
    }
}

START_TEST(limits_stop_it_before_it_begins) {
    struct bpk_written written = {0};
    struct bpk_diag diag = {0};
    begin(100);
    struct bpk_plan plan = changed_plan(path);
    plan.tensors[0].size = BPK_MAX_TENSOR + 1;
    ck_assert_int_eq(bpk_replace(&plan, path, NULL, &written, &diag), -EFBIG);
    check_is_old();
    bpk_plan_clear(&plan);
    end(1);
}

/* A filesystem of 1 MB, of which the pack takes more than half; only root can make one. */
START_TEST(a_full_disk_changes_nothing) {
    struct bpk_written written = {0};
    struct bpk_diag diag = {0};
    char note[] = "skipped: needs root and a mount namespace of its own\n";
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        fputs(note, stdout);
        return;
    }
    begin(10);
    ck_assert_int_eq(mount("none", folder, "tmpfs", 0, "size=1m"), 0);
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "a", 100);
    spec_u8(&spec, "b", 600 << 10);
    put_file(path, &spec);
    spec_clear(&spec);
    struct bpk_plan plan = changed_plan(path);
    ck_assert_int_eq(bpk_replace(&plan, path, NULL, &written, &diag), -ENOSPC);
    ck_assert_ptr_nonnull(strstr(diag.sentence, "room"));
    check_is_old();
    ck_assert_int_eq(kit_count_files(folder), 1);
    /* and once there is room it works */
    ck_assert_int_eq(mount("none", folder, "tmpfs", MS_REMOUNT, "size=4m"), 0);
    ck_assert_int_eq(bpk_replace(&plan, path, NULL, &written, &diag), 0);
    check_is_new(path);
    bpk_plan_clear(&plan);
    ck_assert_int_eq(kit_count_files(folder), 1);
    umount2(folder, MNT_DETACH);
    kit_remove_folder(folder);
}

int main(void) {
    Suite *suite = suite_create("replace");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, the_pack_is_replaced);
    tcase_add_test(tc, a_file_that_is_given_is_replaced);
    tcase_add_test(tc, a_hook_that_fails_leaves_the_old_pack);
    tcase_add_test(tc, a_new_file_is_made_and_none_replaced);
    tcase_add_test(tc, a_copy_of_a_pack_is_made_elsewhere);
    tcase_add_test(tc, a_changed_base_is_stale);
    tcase_add_test(tc, limits_stop_it_before_it_begins);
    tcase_add_test(tc, a_full_disk_changes_nothing);
    return suite_run(suite);
}

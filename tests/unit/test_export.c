/* export: the pack as a commit would write it, read at any place without being built. */
#include "editbase.h"

#include "edit/export.h"
#include "pack/util.h"

#include <stdlib.h>

static struct bpk_export *take(void) {
    struct bpk_export *export;
    ck_assert_int_eq(bpk_export_of_edits(kit.edits, BPK_EXPORT_PACK, &export, NULL), 0);
    return export;
}

/* All of it, read in pieces of `step` bytes from the end to the begin. */
static void read_all(struct bpk_export *export, size_t step, struct bytes *ret_data) {
    size_t size = (size_t)bpk_export_size(export);
    char *whole = calloc(size + 1, 1);
    ck_assert_ptr_nonnull(whole);
    for (size_t end = size; end > 0;) {
        size_t start = end > step ? end - step : 0;
        size_t n = 0;
        ck_assert_int_eq(bpk_export_read(export, start, whole + start, end - start, &n), 0);
        ck_assert_uint_eq(n, end - start);
        end = start;
    }
    *ret_data = (struct bytes){0};
    bytes_add(ret_data, whole, size);
    free(whole);
}

static void read_file(const char *path, struct bytes *ret_data) {
    char buffer[4096];
    size_t n;
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    *ret_data = (struct bytes){0};
    while ((n = fread(buffer, 1, sizeof(buffer), file)) > 0)
        bytes_add(ret_data, buffer, n);
    ck_assert_int_eq(fclose(file), 0);
}

/* What is exported now is what the commit then writes, byte for byte, however it is read. */
static void check_against_commit(void) {
    static const size_t steps[] = {1, 7, 255, 256, 4096, 1 << 20};
    struct bytes exported[BPK_ARRAY_LEN(steps)];
    struct bytes written;
    struct bpk_export *export = take();
    ck_assert(bpk_export_is_whole(export));
    for (size_t i = 0; i < BPK_ARRAY_LEN(steps); i++)
        read_all(export, steps[i], &exported[i]);
    bpk_export_unref(export);
    kit_commit_all(&kit);
    read_file(kit.path, &written);
    for (size_t i = 0; i < BPK_ARRAY_LEN(steps); i++) {
        ck_assert_uint_eq(exported[i].len, written.len);
        ck_assert_int_eq(memcmp(exported[i].data, written.data, written.len), 0);
        bytes_clear(&exported[i]);
    }
    bytes_clear(&written);
}

START_TEST(without_edits_it_is_the_pack) {
    check_against_commit();
}

START_TEST(changed_bytes_are_in_it) {
    kit_write(&kit, "c", 4090, "over a block's end");
    check_against_commit();
}

START_TEST(metadata_are_in_it) {
    kit_put(&kit, M, "note", "a much longer value than the one before\n");
    check_against_commit();
}

START_TEST(new_renamed_and_removed_tensors_are_in_it) {
    kit_put(&kit, T, "new", "0123456789");
    kit_sidecar(&kit, "new", 10);
    ck_assert_int_eq(kit_rename(&kit, T, "c", "e"), 0);
    ck_assert_int_eq(kit_unlink(&kit, T, "a"), 0);
    check_against_commit();
}

START_TEST(holes_are_zeros) {
    ck_assert_int_eq(kit_truncate(&kit, T, "c", 100), 0);
    ck_assert_int_eq(kit_truncate(&kit, T, "c", 90000), 0);
    kit_sidecar(&kit, "c", 90000);
    kit_write(&kit, "c", 70000, "x");
    check_against_commit();
}

START_TEST(any_edit_makes_it_stale) {
    char byte;
    size_t n;
    struct bpk_export *export = take();
    uint64_t size = bpk_export_size(export);
    ck_assert_int_eq(bpk_export_read(export, size - 1, &byte, 1, &n), 0);
    kit_write(&kit, "a", 0, "x");
    ck_assert_int_eq(bpk_export_read(export, 0, &byte, 1, &n), -ESTALE);
    struct bpk_export *other = take();
    ck_assert_uint_ne(bpk_export_generation(export), bpk_export_generation(other));
    bpk_export_unref(export);
    kit_commit_all(&kit);
    ck_assert_int_eq(bpk_export_read(other, 0, &byte, 1, &n), -ESTALE);
    bpk_export_unref(other);
}

START_TEST(what_is_not_valid_is_left_out) {
    struct bytes before;
    struct bytes after;
    struct bpk_export *export = take();
    read_all(export, 4096, &before);
    bpk_export_unref(export);
    ck_assert_int_eq(kit_truncate(&kit, T, "b", 20), 0);
    export = take();
    ck_assert(!bpk_export_is_whole(export));
    read_all(export, 4096, &after);
    ck_assert_uint_eq(before.len, after.len);
    ck_assert_int_eq(memcmp(before.data, after.data, after.len), 0);
    bpk_export_unref(export);
    bytes_clear(&before);
    bytes_clear(&after);
}

START_TEST(reading_past_the_end_is_short) {
    char buffer[64];
    size_t n = 99;
    struct bpk_export *export = take();
    uint64_t size = bpk_export_size(export);
    ck_assert_int_eq(bpk_export_read(export, size, buffer, 64, &n), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(bpk_export_read(export, UINT64_MAX, buffer, 64, &n), 0);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(bpk_export_read(export, size - 3, buffer, 64, &n), 0);
    ck_assert_uint_eq(n, 3);
    bpk_export_unref(export);
}

START_TEST(looking_freezes_nothing) {
    struct bpk_export *export;
    kit_write(&kit, "a", 0, "x");
    export = take();
    kit_write(&kit, "a", 1, "y");
    kit_write(&kit, "a", 2, "z");
    bpk_export_unref(export);
    kit_reopen(&kit);
    kit_commit_all(&kit);
    struct bytes data;
    kit_read(&kit, T, "a", &data);
    ck_assert_int_eq(memcmp(data.data, "xyz", 3), 0);
    bytes_clear(&data);
}

int main(void) {
    Suite *suite = suite_create("export");
    TCase *tc = editbase_case(suite, "all");
    tcase_add_test(tc, without_edits_it_is_the_pack);
    tcase_add_test(tc, changed_bytes_are_in_it);
    tcase_add_test(tc, metadata_are_in_it);
    tcase_add_test(tc, new_renamed_and_removed_tensors_are_in_it);
    tcase_add_test(tc, holes_are_zeros);
    tcase_add_test(tc, any_edit_makes_it_stale);
    tcase_add_test(tc, what_is_not_valid_is_left_out);
    tcase_add_test(tc, reading_past_the_end_is_short);
    tcase_add_test(tc, looking_freezes_nothing);
    return suite_run(suite);
}

/* edits: bytes as tools change them, what stays over a close or a kill, what a commit writes. */
#include "editbase.h"

#include <sys/stat.h>
#include <unistd.h>

static int commit(enum bpk_commit_mode mode, struct bpk_commit_result *ret_result) {
    return kit_commit(&kit, mode, ret_result);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

START_TEST(nothing_is_made_without_an_edit) {
    struct bpk_commit_result result;
    struct stat before;
    struct stat after;
    struct bytes data;
    ck_assert_int_eq(stat(kit.path, &before), 0);
    kit_read(&kit, T, "c", &data);
    ck_assert_uint_eq(data.len, 5000);
    ck_assert_uint_eq(data.data[4999], pattern_byte(PLACE_C + 4999));
    bytes_clear(&data);
    ck_assert(kit_contains(&kit, T, "b.json", "\"F32\""));
    ck_assert(kit_says(&kit, M, "note", "x\n"));
    ck_assert(!kit_has_edits_folder(&kit));
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), 0);
    ck_assert(!result.wrote);
    ck_assert_int_eq(stat(kit.path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
}

START_TEST(a_write_is_there_at_once_and_after_a_commit) {
    kit_write(&kit, "a", 2, "XY");
    ck_assert(kit_has_edits_folder(&kit));
    ck_assert(is_as_made("a", PLACE_A, 10));
    kit_commit_all(&kit);
    ck_assert(!kit_has_edits_folder(&kit));
    struct bytes data;
    kit_read(&kit, T, "a", &data);
    ck_assert_uint_eq(data.len, 10);
    ck_assert_int_eq(memcmp(data.data + 2, "XY", 2), 0);
    ck_assert_uint_eq(data.data[1], pattern_byte(PLACE_A + 1));
    ck_assert(kit_pack_holds(&kit, "a", data.data, 10));
    ck_assert(is_as_made("b", PLACE_B, 24));
    ck_assert(is_as_made("c", PLACE_C, 5000));
    bytes_clear(&data);
}

START_TEST(a_length_that_does_not_fit_is_told_and_refused) {
    struct bpk_commit_result result;
    ck_assert_int_eq(kit_truncate(&kit, T, "b", 20), 0);
    ck_assert_ptr_nonnull(strstr(kit_problem(&kit, "tensors/b", NULL), "needs 24"));
    ck_assert(kit_contains(&kit, T, "b.json", "problem"));
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(kit.diag.sentence, "tensors/b"));
    ck_assert(!result.wrote);
    ck_assert(is_as_made("b", PLACE_B, 24));
    /* mended, it goes: four zeros at the end */
    ck_assert_int_eq(kit_truncate(&kit, T, "b", 24), 0);
    ck_assert_str_eq(kit_problem(&kit, "tensors/b", NULL), "");
    kit_commit_all(&kit);
    struct bytes data;
    kit_read(&kit, T, "b", &data);
    ck_assert_uint_eq(data.data[19], pattern_byte(PLACE_B + 19));
    ck_assert_uint_eq(data.data[20] | data.data[21] | data.data[22] | data.data[23], 0);
    bytes_clear(&data);
}

START_TEST(limits_are_efbig) {
    struct bpk_place place = kit_place(&kit, T, "a");
    ck_assert_int_eq(bpk_edits_truncate(kit.edits, &place, BPK_MAX_TENSOR), 0);
    ck_assert_int_eq(bpk_edits_truncate(kit.edits, &place, BPK_MAX_TENSOR + 1), -EFBIG);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &place, BPK_MAX_TENSOR - 1, "xy", 2), -EFBIG);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &place, INT64_MAX, "x", 1), -EFBIG);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &place, UINT64_MAX, "x", 1), -EFBIG);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &place, BPK_MAX_TENSOR - 1, "x", 1), 0);
    ck_assert_int_eq(bpk_edits_truncate(kit.edits, &place, 0), 0);
}

START_TEST(a_new_tensor_needs_bytes_and_sidecar_in_either_order) {
    kit_put(&kit, T, "n1", "abc");
    kit_sidecar(&kit, "n1", 3);
    kit_sidecar(&kit, "n2", 2);
    struct bpk_commit_result result;
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), -EBADMSG); /* no bytes yet */
    kit_put(&kit, T, "n2", "de");
    kit_commit_all(&kit);
    ck_assert(pack_says("n1", "abc"));
    ck_assert(pack_says("n2", "de"));
    ck_assert(kit_says(&kit, T, "n1", "abc"));
    ck_assert(kit_contains(&kit, T, "n2.json", "\"data_offsets\": ["));
}

/* ---- what is listed -------------------------------------------------------------------------- */

static void check_change(const char *path, const char *change) {
    const char *found = kit_change(&kit, path);
    ck_assert_msg(found != NULL, "%s is not listed", path);
    ck_assert_msg(strcmp(found, change) == 0, "%s: %s", path, found);
}

START_TEST(each_edit_is_of_a_kind) {
    kit_write(&kit, "a", 0, "x");
    ck_assert_int_eq(kit_rename(&kit, T, "b", "b2"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "b2", "b3"), 0);
    kit_write(&kit, "b3", 0, "x");
    ck_assert_int_eq(kit_unlink(&kit, T, "c"), 0);
    kit_put(&kit, T, "d.json", "{\"dtype\": \"F64\", \"shape\": [0]}");
    kit_put(&kit, T, "new", "abc");
    kit_sidecar(&kit, "new", 3);
    kit_sidecar(&kit, "no bytes", 3);
    kit_put(&kit, M, "note", "changed\n");
    kit_put(&kit, M, "key", "new\n");
    ck_assert_int_eq(kit_unlink(&kit, M, "producer"), 0);
    ck_assert_int_eq(kit_unlink(&kit, R, "scalars.json"), 0);
    kit_put(&kit, R, "metadata.json", "{\"note\": \"all\"}");
    for (int i = 0; i < 2; i++) {
        check_change("tensors/a", "changed");
        check_change("tensors/b", "removed");
        check_change("tensors/b3", "renamed from tensors/b");
        check_change("tensors/c", "removed");
        check_change("tensors/d", "changed");
        check_change("tensors/new", "new");
        check_change("tensors/no bytes", "new");
        check_change("metadata/note", "changed");
        check_change("metadata/producer", "removed");
        check_change("scalars.json", "removed");
        check_change("metadata.json", "changed");
        kit_reopen(&kit);
    }
    /* a change that a commit left out is of the same kind after it */
    struct bpk_commit_result result;
    ck_assert_int_eq(kit_truncate(&kit, T, "b3", 7), 0);
    ck_assert_int_eq(commit(BPK_COMMIT_VALID, &result), 0);
    check_change("tensors/b", "removed");
    check_change("tensors/b3", "renamed from tensors/b");
    ck_assert_ptr_null(kit_change(&kit, "tensors/new"));
}

START_TEST(names_that_were_changed_have_each_others_bytes) {
    ck_assert_int_eq(kit_rename(&kit, T, "a", "tmp"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "c", "a"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "tmp", "c"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "b", "d"), 0);
    check_change("tensors/a", "renamed from tensors/c");
    check_change("tensors/c", "renamed from tensors/a");
    check_change("tensors/d", "renamed from tensors/b");
    kit_put(&kit, T, "b", "abcdefghijklmnopqrstuvwx");
    check_change("tensors/b", "changed");
    ck_assert_int_eq(kit_rename(&kit, T, "b", "b~"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "d", "b"), 0);
    ck_assert_ptr_null(kit_change(&kit, "tensors/b"));
    check_change("tensors/d", "removed");
}

/* ---- what stays ------------------------------------------------------------------------------ */

static void edit_all_kinds(void) {
    kit_write(&kit, "a", 0, "0123456789");
    ck_assert_int_eq(kit_truncate(&kit, T, "c", 100), 0);
    ck_assert_int_eq(kit_truncate(&kit, T, "c", 4000), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "b", "b2"), 0);
    ck_assert_int_eq(kit_unlink(&kit, T, "d"), 0);
    kit_put(&kit, T, "pending", "somebody's only copy");
    kit_put(&kit, T, "new", "xyz");
    kit_sidecar(&kit, "new", 3);
    kit_put(&kit, M, "key", "value\n");
    ck_assert_int_eq(kit_unlink(&kit, M, "note"), 0);
    kit_put(&kit, R, "scalars.json", "{\"lr\": {\"Float\": 0.5}}");
}

static void check_all_kinds(void) {
    struct bytes data;
    ck_assert(kit_says(&kit, T, "a", "0123456789"));
    kit_read(&kit, T, "c", &data);
    ck_assert_uint_eq(data.len, 4000);
    ck_assert_uint_eq(data.data[99], pattern_byte(PLACE_C + 99));
    ck_assert_uint_eq(data.data[100], 0);
    bytes_clear(&data);
    ck_assert(!kit_exists(&kit, T, "b"));
    kit_read(&kit, T, "b2", &data);
    ck_assert_uint_eq(data.len, 24);
    bytes_clear(&data);
    ck_assert(kit_contains(&kit, T, "b2.json", "\"param_id\": \"7\"") ||
              kit_contains(&kit, T, "b2.json", "\"param_id\": 7"));
    ck_assert(kit_contains(&kit, T, "b.json", "no tensor"));
    ck_assert(!kit_exists(&kit, T, "d"));
    ck_assert(kit_says(&kit, T, "pending", "somebody's only copy"));
    ck_assert(kit_says(&kit, T, "new", "xyz"));
    ck_assert(kit_says(&kit, M, "key", "value\n"));
    ck_assert(!kit_exists(&kit, M, "note"));
    ck_assert(kit_contains(&kit, R, "scalars.json", "lr"));
    ck_assert(kit_contains(&kit, R, "metadata.json", "\"key\": \"value\""));
    ck_assert(!kit_contains(&kit, R, "metadata.json", "note"));
}

START_TEST(closed_and_opened_all_is_back) {
    edit_all_kinds();
    check_all_kinds();
    kit_reopen(&kit);
    ck_assert_uint_gt(kit.recovered, 8);
    check_all_kinds();
    kit_reopen(&kit); /* once more, from the compacted journal */
    check_all_kinds();
    kit_sidecar(&kit, "c", 4000);
    kit_commit_all(&kit);
    ck_assert(pack_says("a", "0123456789"));
    ck_assert(is_as_made("b2", PLACE_B, 24));
    ck_assert(pack_says("new", "xyz"));
    ck_assert(!kit_pack_has(&kit, "b"));
    ck_assert(!kit_pack_has(&kit, "d"));
    ck_assert(!kit_pack_has(&kit, "pending"));
    ck_assert(kit_says(&kit, T, "pending", "somebody's only copy"));
    kit_reopen(&kit);
    ck_assert_uint_eq(kit.recovered, 1);
    ck_assert(kit_says(&kit, T, "pending", "somebody's only copy"));
}

/* A kill after the n-th operation leaves what the first n have done. */
START_TEST(killed_after_any_operation_it_is_all_there) {
    static const char *const texts[] = {"1", "22", "333", "4444", "55555", "666666"};
    for (int n = 0; n < ROWS(texts); n++) {
        char copy[TEMP_PATH];
        char name[20];
        snprintf(name, sizeof(name), "n%d", n);
        kit_put(&kit, T, name, texts[n]);
        kit_sidecar(&kit, name, (uint64_t)n + 1);
        kit_write(&kit, "c", (uint64_t)n * 700, texts[n]);
        kit_keep_edits(&kit, copy);
        kit_put(&kit, T, name, "not there yet at the kill");
        kit_close(&kit);
        kit_put_back_edits(&kit, copy);
        kit_open(&kit);
        for (int i = 0; i <= n; i++) {
            struct bytes data;
            snprintf(name, sizeof(name), "n%d", i);
            ck_assert(kit_says(&kit, T, name, texts[i]));
            kit_read(&kit, T, "c", &data);
            ck_assert_int_eq(memcmp(data.data + i * 700, texts[i], strlen(texts[i])), 0);
            bytes_clear(&data);
        }
    }
    kit_commit_all(&kit);
    ck_assert(pack_says("n5", "666666"));
}

/* Between the new pack and the clean-up: what the commit took in is not there twice. */
START_TEST(killed_after_the_commit_it_is_not_done_again) {
    char copy[TEMP_PATH];
    kit_write(&kit, "a", 0, "committed!");
    kit_put(&kit, T, "pending", "stays");
    kit_keep_edits(&kit, copy);
    kit_commit_all(&kit);
    kit_close(&kit);
    kit_put_back_edits(&kit, copy); /* an older journal, without the record of the commit */
    ck_assert_int_eq(kit_try_open(&kit, NULL), -ESTALE);
    ck_assert_ptr_nonnull(strstr(kit.diag.sentence, "another version"));
    ck_assert(kit_has_edits_folder(&kit));
    const struct bpk_edits_options force = {.force = true};
    ck_assert_int_eq(kit_try_open(&kit, &force), 0);
    ck_assert(kit_says(&kit, T, "pending", "stays"));
    kit_close(&kit);
    kit_open(&kit);
    ck_assert_int_eq(bpk_edits_discard(kit.edits, NULL, NULL), 0);
    ck_assert(!kit_exists(&kit, T, "pending"));
    ck_assert(kit_says(&kit, T, "a", "committed!"));
}

START_TEST(discard_gives_the_base_back) {
    edit_all_kinds();
    ck_assert_int_eq(bpk_edits_discard(kit.edits, NULL, NULL), 0);
    ck_assert(!kit_has_edits_folder(&kit));
    ck_assert(kit_exists(&kit, T, "b"));
    ck_assert(kit_exists(&kit, T, "d"));
    ck_assert(!kit_exists(&kit, T, "b2"));
    ck_assert(!kit_exists(&kit, T, "pending"));
    ck_assert(kit_says(&kit, M, "note", "x\n"));
    ck_assert(kit_contains(&kit, R, "scalars.json", "epoch"));
    struct bpk_commit_result result;
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), 0);
    ck_assert(!result.wrote);
    kit_write(&kit, "a", 0, "z"); /* and goes on working */
    kit_commit_all(&kit);
}

START_TEST(discarded_at_opening) {
    edit_all_kinds();
    kit_close(&kit);
    const struct bpk_edits_options options = {.discard = true};
    ck_assert_int_eq(kit_try_open(&kit, &options), 0);
    ck_assert_uint_eq(kit.recovered, 0);
    ck_assert(!kit_has_edits_folder(&kit));
    ck_assert(kit_exists(&kit, T, "b"));
}

START_TEST(one_at_a_time) {
    struct kit other = kit;
    other.mounted = NULL;
    ck_assert_int_eq(kit_try_open(&other, NULL), -EBUSY);
    ck_assert_int_ne(other.diag.sentence[0], '\0');
    bpk_pack_unref(other.mounted);
    kit_write(&kit, "a", 0, "x");
    kit_commit_all(&kit); /* the new file is locked too */
    other.mounted = NULL;
    ck_assert_int_eq(kit_try_open(&other, NULL), -EBUSY);
    bpk_pack_unref(other.mounted);
}

START_TEST(a_pack_changed_by_others_is_not_committed_over) {
    struct bpk_commit_result result;
    kit_write(&kit, "a", 0, "mine");
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "theirs", 3);
    kit_replace_pack(&kit, &spec);
    ck_assert_int_eq(commit(BPK_COMMIT_ALL, &result), -ESTALE);
    ck_assert(kit_pack_has(&kit, "theirs"));
    struct bytes data;
    kit_read(&kit, T, "a", &data); /* what was edited can be saved */
    ck_assert_int_eq(memcmp(data.data, "mine", 4), 0);
    bytes_clear(&data);
    kit_read(&kit, T, "c", &data);
    ck_assert_uint_eq(data.len, 5000);
    bytes_clear(&data);
    spec_clear(&spec);
}

/* ---- handles --------------------------------------------------------------------------------- */

START_TEST(an_unlinked_file_lives_while_it_is_open) {
    struct bpk_place c = kit_place(&kit, T, "c");
    struct bpk_file_stat attr;
    char byte;
    size_t n;
    bpk_edits_opened(kit.edits, &c, true);
    ck_assert_int_eq(kit_unlink(&kit, T, "c"), 0);
    c.name = NULL;
    ck_assert_int_eq(bpk_edits_stat(kit.edits, &c, &attr), 0);
    ck_assert_uint_eq(attr.size, 5000);
    ck_assert_int_eq(bpk_edits_read(kit.edits, &c, 4999, &byte, 1, &n), 0);
    ck_assert_uint_eq((uint8_t)byte, pattern_byte(PLACE_C + 4999));
    ck_assert_int_eq(bpk_edits_write(kit.edits, &c, 6000, "x", 1), 0);
    kit_commit_all(&kit);
    ck_assert(!kit_pack_has(&kit, "c"));
    ck_assert_int_eq(bpk_edits_read(kit.edits, &c, 6000, &byte, 1, &n), 0);
    ck_assert_int_eq(byte, 'x');
    ck_assert_int_eq(bpk_edits_write(kit.edits, &c, 0, "y", 1), 0);
    ck_assert_int_eq(bpk_edits_truncate(kit.edits, &c, 3), 0);
    ck_assert_int_eq(bpk_edits_fsync(kit.edits, &c), 0);
    kit_write(&kit, "a", 0, "z");
    bpk_edits_released(kit.edits, c.number, true);
    ck_assert_int_eq(bpk_edits_stat(kit.edits, &c, &attr), -ESTALE);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &c, 0, "y", 1), -ESTALE);
    kit_reopen(&kit);
    ck_assert(!kit_exists(&kit, T, "c"));
    kit_commit_all(&kit);
}

/* What was only touched goes on showing the base to who has it open, and takes what they write. */
START_TEST(a_touched_file_is_there_after_a_discard_while_it_is_open) {
    struct bpk_place c = kit_place(&kit, T, "c");
    struct bpk_place note = kit_place(&kit, M, "note");
    char bytes[10];
    size_t n;
    bpk_edits_opened(kit.edits, &c, true);
    bpk_edits_opened(kit.edits, &note, true);
    ck_assert_int_eq(kit_chmod(&kit, &c, 0600), 0);
    ck_assert_int_eq(kit_chmod(&kit, &note, 0600), 0);
    ck_assert_int_eq(bpk_edits_discard(kit.edits, NULL, NULL), 0);
    ck_assert(!kit_has_edits_folder(&kit));
    c.name = NULL;
    note.name = NULL;
    ck_assert_int_eq(bpk_edits_read(kit.edits, &c, 4990, bytes, 10, &n), 0);
    ck_assert_uint_eq(n, 10);
    ck_assert_uint_eq((uint8_t)bytes[9], pattern_byte(PLACE_C + 4999));
    ck_assert_int_eq(bpk_edits_read(kit.edits, &note, 0, bytes, 10, &n), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(memcmp(bytes, "x\n", 2), 0);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &c, 0, "mine", 4), 0);
    ck_assert_int_eq(bpk_edits_read(kit.edits, &c, 3, bytes, 2, &n), 0);
    ck_assert_int_eq(bytes[0], 'e');
    ck_assert_uint_eq((uint8_t)bytes[1], pattern_byte(PLACE_C + 4));
    kit_write(&kit, "a", 0, "0123456789"); /* and the rest of the mount goes on */
    kit_reopen(&kit);
    kit_commit_all(&kit);
    ck_assert(is_as_made("c", PLACE_C, 5000));
    ck_assert(pack_says("a", "0123456789"));
}

/* So does what it was renamed over. */
START_TEST(a_replaced_file_lives_while_it_is_open) {
    struct bpk_place a = kit_place(&kit, T, "a");
    char byte;
    size_t n;
    bpk_edits_opened(kit.edits, &a, false);
    kit_put(&kit, T, "tmp", "replacing!");
    ck_assert_int_eq(kit_rename(&kit, T, "tmp", "a"), 0);
    a.name = NULL;
    ck_assert_int_eq(bpk_edits_read(kit.edits, &a, 9, &byte, 1, &n), 0);
    ck_assert_uint_eq((uint8_t)byte, pattern_byte(9));
    kit_commit_all(&kit);
    ck_assert(pack_says("a", "replacing!"));
    ck_assert_int_eq(bpk_edits_read(kit.edits, &a, 9, &byte, 1, &n), 0);
    ck_assert_uint_eq((uint8_t)byte, pattern_byte(9));
    bpk_edits_released(kit.edits, a.number, false);
}

START_TEST(modes_and_times_last_as_long_as_the_mount) {
    struct bpk_place a = kit_place(&kit, T, "a");
    struct bpk_file_stat attr;
    const struct timespec when = {1234567890, 5};
    ck_assert_int_eq(kit_chmod(&kit, &a, 0100640), 0);
    ck_assert_int_eq(kit_touch(&kit, &a, when), 0);
    ck_assert_int_eq(bpk_edits_stat(kit.edits, &a, &attr), 0);
    ck_assert_uint_eq(attr.mode, 0640);
    ck_assert_int_eq(attr.mtime.tv_sec, 1234567890);
    ck_assert(is_as_made("a", PLACE_A, 10));
    struct bpk_place none = {T, "none", 99};
    ck_assert_int_eq(kit_chmod(&kit, &none, 0600), -ENOENT);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &none, 0, "x", 1), -ENOENT);
}

/* More edited tensors than a process may have files open. */
START_TEST(many_tensors_need_few_descriptors) {
    char name[20];
    for (int i = 0; i < 1500; i++) {
        snprintf(name, sizeof(name), "m%d", i);
        kit_put(&kit, T, name, "abc");
        kit_sidecar(&kit, name, 3);
    }
    kit_commit_all(&kit);
    ck_assert(pack_says("m1499", "abc"));
}

int main(void) {
    Suite *suite = suite_create("edits");
    TCase *tc = editbase_case(suite, "bytes");
    tcase_add_test(tc, nothing_is_made_without_an_edit);
    tcase_add_test(tc, a_write_is_there_at_once_and_after_a_commit);
    tcase_add_test(tc, a_length_that_does_not_fit_is_told_and_refused);
    tcase_add_test(tc, limits_are_efbig);
    tcase_add_test(tc, a_new_tensor_needs_bytes_and_sidecar_in_either_order);
    tc = editbase_case(suite, "listed");
    tcase_add_test(tc, each_edit_is_of_a_kind);
    tcase_add_test(tc, names_that_were_changed_have_each_others_bytes);
    tc = editbase_case(suite, "staying");
    tcase_add_test(tc, closed_and_opened_all_is_back);
    tcase_add_test(tc, killed_after_any_operation_it_is_all_there);
    tcase_add_test(tc, killed_after_the_commit_it_is_not_done_again);
    tcase_add_test(tc, discard_gives_the_base_back);
    tcase_add_test(tc, discarded_at_opening);
    tcase_add_test(tc, one_at_a_time);
    tcase_add_test(tc, a_pack_changed_by_others_is_not_committed_over);
    tc = editbase_case(suite, "handles");
    tcase_add_test(tc, an_unlinked_file_lives_while_it_is_open);
    tcase_add_test(tc, a_touched_file_is_there_after_a_discard_while_it_is_open);
    tcase_add_test(tc, a_replaced_file_lives_while_it_is_open);
    tcase_add_test(tc, modes_and_times_last_as_long_as_the_mount);
    tcase_add_test(tc, many_tensors_need_few_descriptors);
    return suite_run(suite);
}

/* edits of another version of the pack, taken with force: what goes with the pack at hand is in
 * force, and what was made on a tensor that it does not have, or not of that length, waits. */
#include "editbase.h"

static const struct bpk_edits_options force = {.force = true};
static const char own_c[] = "written over the middle";
enum { AT_C = 4500 };

/* One edit of each kind, and some that need no tensor of the base. */
static void edit(void) {
    kit_write(&kit, "a", 2, "XY");                       /* a part of its only block */
    ck_assert_int_eq(kit_rename(&kit, T, "b", "b2"), 0); /* nothing of its own */
    kit_write(&kit, "c", AT_C, own_c);                   /* one block of two */
    ck_assert_int_eq(kit_unlink(&kit, T, "d"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "e", "e.bak"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "f", "tmp"), 0); /* f and g change names */
    ck_assert_int_eq(kit_rename(&kit, T, "g", "f"), 0);
    ck_assert_int_eq(kit_rename(&kit, T, "tmp", "g"), 0);
    struct bpk_place h = kit_place(&kit, T, "h");
    struct bpk_place sidecar = kit_place(&kit, T, "h.json");
    struct bpk_place producer = kit_place(&kit, M, "producer");
    ck_assert_int_eq(kit_chmod(&kit, &h, 0600), 0); /* touched, not written */
    ck_assert_int_eq(kit_chmod(&kit, &sidecar, 0600), 0);
    ck_assert_int_eq(kit_chmod(&kit, &producer, 0600), 0);
    kit_put(&kit, T, "new", "xyz");
    kit_sidecar(&kit, "new", 3);
    kit_put(&kit, M, "note", "edited\n");
}

static void spec_of(struct packspec *spec, size_t longer) {
    spec_init(spec, BPK_LAYOUT_ALIGNED);
    spec_u8(spec, "k", 300);
    spec_u8(spec, "a", 10 + longer);
    spec_u8(spec, "b", 24 + longer);
    spec_u8(spec, "c", 5000 + longer);
    spec_u8(spec, "e", 5 + longer);
    spec_u8(spec, "f", 6 + longer);
    spec_u8(spec, "g", 7 + longer);
    spec_u8(spec, "h", 8);
}

static void setup(void) {
    struct packspec spec;
    spec_of(&spec, 0);
    spec_u8(&spec, "d", 0);
    spec_metadata(&spec, "note", "x");
    spec_metadata(&spec, "producer", "burn");
    kit_begin(&kit, &spec);
    spec_clear(&spec);
    edit();
    kit_close(&kit);
}

static void open_by_force(const struct packspec *spec) {
    kit_replace_pack(&kit, spec);
    ck_assert_int_eq(kit_try_open(&kit, NULL), -ESTALE);
    int r = kit_try_open(&kit, &force);
    ck_assert_msg(r == 0, "%s", kit.diag.sentence);
}

static void check_problem(const char *path, const char *part) {
    const char *problem = kit_problem(&kit, path, NULL);
    ck_assert_msg(problem != NULL, "%s is not listed", path);
    ck_assert_msg(strstr(problem, part) != NULL && (*part || !*problem), "%s: %s", path, problem);
}

/* The last byte that was written, and those before the block that it is in. */
static void check_own_bytes(const char *name, bool readable) {
    struct bpk_place c = kit_place(&kit, T, name);
    struct bpk_file_stat attr;
    char bytes[sizeof(own_c)];
    size_t n;
    ck_assert_int_eq(bpk_edits_stat(kit.edits, &c, &attr), 0);
    ck_assert_uint_eq(attr.size, 5000);
    ck_assert_int_eq(bpk_edits_read(kit.edits, &c, AT_C, bytes, strlen(own_c), &n), 0);
    ck_assert_uint_eq(n, strlen(own_c));
    ck_assert_int_eq(memcmp(bytes, own_c, n), 0);
    ck_assert_int_eq(bpk_edits_read(kit.edits, &c, 0, bytes, 1, &n), readable ? 0 : -EIO);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &c, 7, "z", 1), readable ? 0 : -EIO);
}

static const struct {
    const char *path, *missing, *longer;
} left_out[] = {
    {"tensors/a", "\"a\" is not in this pack", "has 10 bytes, but shape [13]"},
    {"tensors/b2", "\"b\" is not in this pack", "\"b\" had 24 bytes, and has 27 in this pack"},
    {"tensors/c", "\"c\" is not in this pack", "\"c\" had 5000 bytes, and has 5003"},
    {"tensors/e", "\"e\" is not in this pack", "\"e\" had 5 bytes, and has 8"},
    {"tensors/e.bak", "\"e\" is not in this pack", "\"e\" had 5 bytes, and has 8"},
    {"tensors/f", "\"g\" is not in this pack", "\"g\" had 7 bytes, and has 10"},
    {"tensors/g", "\"f\" is not in this pack", "\"f\" had 6 bytes, and has 9"},
};

static void check_left_out(bool longer) {
    for (int i = 0; i < ROWS(left_out); i++)
        check_problem(left_out[i].path, longer ? left_out[i].longer : left_out[i].missing);
}

static void check_committed(size_t count_left_out) {
    struct bpk_commit_result result;
    check_problem("tensors/new", "");
    check_problem("metadata/note", "");
    ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_ALL, &result), -EBADMSG);
    ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_VALID, &result), 0);
    ck_assert(result.wrote);
    ck_assert_uint_eq(result.left_out, count_left_out);
    ck_assert(pack_says("new", "xyz"));
    ck_assert(!kit_pack_has(&kit, "b2"));
    char *value = kit_pack_value(&kit, "note");
    ck_assert_str_eq(value, "edited");
    free(value);
    ck_assert_ptr_null(kit_problem(&kit, "tensors/new", NULL));
}

START_TEST(tensors_that_the_pack_lacks) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "k", 300);
    open_by_force(&spec);
    check_left_out(false);
    check_own_bytes("c", false);
    ck_assert(!kit_exists(&kit, T, "h"));
    ck_assert(!kit_exists(&kit, T, "h.json"));
    ck_assert(!kit_exists(&kit, M, "producer"));
    check_committed(6);
    check_left_out(false);
    kit_reopen(
        &kit); /* by now it is their own pack, and they wait for their tensors all the same */
    check_left_out(false);
    check_own_bytes("c", false);
    spec_clear(&spec);
}

START_TEST(tensors_of_another_length) {
    struct packspec spec;
    spec_of(&spec, 3);
    open_by_force(&spec);
    check_left_out(true);
    check_own_bytes("c", false);
    ck_assert(kit_exists(&kit, T, "h"));
    check_committed(7);
    ck_assert(kit_pack_has(&kit, "b")); /* as long as b2 waits for it */
    ck_assert(!kit_exists(&kit, T, "b"));
    ck_assert(!kit_pack_has(&kit, "d"));
    kit_reopen(&kit);
    check_left_out(true);
    struct bpk_pack *pack = kit_pack(&kit); /* the pack's own are as they were */
    uint32_t index;
    struct bpk_tensor t;
    ck_assert_int_eq(bpk_pack_find_tensor(pack, str("c"), &index), 0);
    bpk_pack_tensor(pack, index, &t);
    ck_assert_uint_eq(t.end - t.start, 5003);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* Names that the edits made and removed again, and that this pack has: they are the pack's. */
START_TEST(names_that_came_and_went) {
    struct packspec spec;
    kit_open(&kit);
    kit_put(&kit, T, "k2", "abc");
    kit_sidecar(&kit, "k2", 3);
    ck_assert_int_eq(kit_unlink(&kit, T, "k2"), 0);
    kit_put(&kit, R, "metadata.json", "{\"note\": \"all\"}");
    kit_reopen(&kit); /* from now on the journal only says what is */
    kit_close(&kit);
    spec_of(&spec, 0);
    spec_u8(&spec, "k2", 9);
    spec_metadata(&spec, "theirs", "gone with the map");
    open_by_force(&spec);
    ck_assert(kit_exists(&kit, T, "k2"));
    ck_assert(!kit_exists(&kit, M, "theirs"));
    ck_assert(!kit_contains(&kit, R, "metadata.json", "theirs"));
    kit_commit_all(&kit);
    ck_assert(kit_pack_has(&kit, "k2"));
    ck_assert(!kit_pack_has(&kit, "b"));
    ck_assert(kit_exists(&kit, T, "k2.json"));
    ck_assert_ptr_null(kit_pack_value(&kit, "theirs"));
    spec_clear(&spec);
}

/* Bytes of the next tensor must not show through. */
START_TEST(shorter_tensors) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "c", 100);
    spec_u8(&spec, "k", 6000);
    open_by_force(&spec);
    check_problem("tensors/c", "\"c\" had 5000 bytes, and has 100");
    check_own_bytes("c", false);
    spec_clear(&spec);
}

START_TEST(the_right_pack_has_all_again) {
    struct packspec other;
    struct packspec spec;
    struct bpk_commit_result result;
    spec_init(&other, BPK_LAYOUT_ALIGNED);
    spec_u8(&other, "k", 300);
    open_by_force(&other);
    kit_close(&kit);
    spec_of(&spec, 0);
    open_by_force(&spec);
    check_problem("tensors/c", "");
    check_own_bytes("c", true);
    ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_ALL, &result), 0);
    ck_assert(kit_pack_has(&kit, "b2"));
    ck_assert(kit_pack_has(&kit, "b")); /* it had gone: with the pack that did not have it */
    ck_assert(kit_pack_has(&kit, "e"));
    ck_assert(kit_exists(&kit, T, "e"));
    spec_clear(&other);
    spec_clear(&spec);
}

/* What is left can be made whole, or removed. */
START_TEST(what_is_left_out_can_be_mended) {
    struct packspec spec;
    char bytes[5000];
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "k", 300);
    open_by_force(&spec);
    kit_sidecar(&kit, "a", 10); /* all of its bytes are its own */
    kit_sidecar(&kit, "c", 5000);
    check_problem("tensors/c", "write all of it");
    struct bpk_place c = kit_place(&kit, T, "c");
    memset(bytes, 'c', sizeof(bytes));
    ck_assert_int_eq(bpk_edits_write(kit.edits, &c, 0, bytes, 5000), 0);
    check_problem("tensors/c", "");
    ck_assert_int_eq(kit_unlink(&kit, T, "b2"), 0);
    ck_assert_int_eq(kit_unlink(&kit, T, "e.bak"), 0);
    kit_put(&kit, T, "f", "1234567");
    kit_put(&kit, T, "g", "123456");
    kit_commit_all(&kit);
    ck_assert(kit_pack_holds(&kit, "c", bytes, 5000));
    ck_assert(kit_pack_has(&kit, "a"));
    ck_assert(pack_says("f", "1234567"));
    ck_assert(!kit_has_edits_folder(&kit));
    spec_clear(&spec);
}

/* A commit under way has put layers over it. */
START_TEST(what_is_lost_shows_through_layers) {
    struct packspec spec;
    struct bpk_commit_result result;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "k", 300);
    open_by_force(&spec);
    for (int i = 0; i < 3; i++) {
        kit_write(&kit, "c", AT_C, own_c);
        kit_put(&kit, T, "new", i ? "abc" : "def");
        ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_VALID, &result), 0);
        ck_assert_int_eq(kit_fsync(&kit, T, "c"), 0);
        check_own_bytes("c", false);
        kit_reopen(&kit);
    }
    spec_clear(&spec);
}

static void teardown(void) {
    kit_end(&kit);
}

int main(void) {
    Suite *suite = suite_create("edits_force");
    TCase *tc = suite_case(suite, "force");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, tensors_that_the_pack_lacks);
    tcase_add_test(tc, tensors_of_another_length);
    tcase_add_test(tc, names_that_came_and_went);
    tcase_add_test(tc, shorter_tensors);
    tcase_add_test(tc, the_right_pack_has_all_again);
    tcase_add_test(tc, what_is_left_out_can_be_mended);
    tcase_add_test(tc, what_is_lost_shows_through_layers);
    return suite_run(suite);
}

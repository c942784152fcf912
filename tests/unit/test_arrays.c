/* arrays: .npy files that come into views/npy/ and become tensors, whole or in pieces. */
#include "editbase.h"

#include "view/npy.h"

#include <stdlib.h>

#define N BPK_IN_NPY

/* A .npy file of `count` floats 0, 1, 2 … */
static void make_array(struct bpk_outbuf *out, uint64_t count) {
    bpk_npy_header(out, "<f4", &count, 1);
    for (uint64_t i = 0; i < count; i++) {
        float value = (float)i;
        bpk_out(out, (const char *)&value, sizeof(value));
    }
    ck_assert(!out->failed);
}

static void put(const char *name, const struct bpk_outbuf *array) {
    kit_put_bytes(&kit, N, name, array->text, array->len);
}

/* Whether the tensor's bytes are those behind the array's header. */
static bool is_tensor(const char *name, const struct bpk_outbuf *array, uint64_t count) {
    struct bytes data;
    kit_read(&kit, T, name, &data);
    bool same = data.len == count * 4 &&
                memcmp(data.data, array->text + array->len - count * 4, count * 4) == 0;
    bytes_clear(&data);
    return same;
}

START_TEST(a_whole_array_is_a_tensor) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    struct bpk_place place;
    uint64_t number;
    make_array(&array, 3000);
    ck_assert_int_eq(bpk_edits_create(kit.edits, N, "new.npy", 0644, &number), 0);
    ck_assert_uint_gt(number, BPK_ARRAY_NUMBERS);
    put("new.npy", &array);
    ck_assert(!kit_exists(&kit, N, "new.npy"));
    ck_assert(!bpk_edits_has_file(kit.edits, number));
    place = kit_place(&kit, T, "new");
    ck_assert_uint_eq(place.number + BPK_ARRAY_NUMBERS, number);
    ck_assert(is_tensor("new", &array, 3000));
    ck_assert(kit_contains(&kit, T, "new.json", "\"shape\": [3000]"));
    kit_reopen(&kit);
    ck_assert(is_tensor("new", &array, 3000));
    kit_commit_all(&kit);
    ck_assert(is_tensor("new", &array, 3000));
    ck_assert(kit_pack_holds(&kit, "new", array.text + array.len - 12000, 12000));
}

START_TEST(over_a_tensor_its_number_and_param_id_stay) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    uint64_t number = kit_place(&kit, T, "b").number;
    make_array(&array, 5);
    ck_assert_int_eq(bpk_edits_begin_array(kit.edits, "b.npy", BPK_ARRAY_NUMBERS + number), 0);
    kit_put_bytes(&kit, N, "b.npy", array.text, 9);
    ck_assert_int_eq(bpk_edits_begin_array(kit.edits, "b.npy", BPK_ARRAY_NUMBERS + number), 0);
    ck_assert_int_eq(bpk_edits_begin_array(kit.edits, "b.npy", BPK_ARRAY_NUMBERS + 1), -EEXIST);
    ck_assert(kit_contains(&kit, T, "b.json", "\"shape\": [2, 3]")); /* nothing has come yet */
    put("b.npy", &array);
    ck_assert_uint_eq(kit_place(&kit, T, "b").number, number);
    ck_assert(kit_contains(&kit, T, "b.json", "\"shape\": [5]"));
    ck_assert(kit_contains(&kit, T, "b.json", "\"param_id\": 7"));
    kit_commit_all(&kit);
    ck_assert(kit_pack_holds(&kit, "b", array.text + array.len - 20, 20));
}

START_TEST(a_part_is_an_invalid_edit_until_the_rest_comes) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    struct bpk_commit_result result;
    enum bpk_edit_kind kind;
    make_array(&array, 3000);
    for (size_t part = 1; part < array.len; part += 4999) {
        kit_put_bytes(&kit, N, "new.npy", array.text, part);
        ck_assert_ptr_nonnull(kit_problem(&kit, "views/npy/new.npy", &kind));
        ck_assert_int_eq(kind, BPK_EDIT);
        ck_assert(!kit_exists(&kit, T, "new"));
        ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_ALL, &result), -EBADMSG);
        ck_assert_ptr_nonnull(strstr(kit.diag.sentence, "views/npy/new.npy"));
        kit_write(&kit, "a", 0, "x");
        ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_VALID, &result), 0);
        ck_assert(result.wrote);
        ck_assert_uint_eq(result.left_out, 1);
        kit_reopen(&kit);
    }
    put("new.npy", &array);
    kit_commit_all(&kit);
    ck_assert(kit_pack_holds(&kit, "new", array.text + array.len - 12000, 12000));
}

START_TEST(what_burn_cannot_hold_is_refused_while_it_comes) {
    static const char *const wrong[] = {"<c8", "|O", "<U3", "|S2", "<f16", "<M8[D]"};
    uint64_t dims = 4;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        _cleanup_outbuf_ struct bpk_outbuf head = {0};
        struct bpk_commit_result result;
        bpk_npy_header(&head, wrong[i], &dims, 1);
        ck_assert_int_eq(kit_try_put(&kit, N, "x.npy", head.text, head.len), -EINVAL);
        ck_assert_ptr_nonnull(strstr(kit_problem(&kit, "views/npy/x.npy", NULL), wrong[i]));
        ck_assert_int_eq(kit_commit(&kit, BPK_COMMIT_ALL, &result), -EBADMSG);
        ck_assert_int_eq(kit_unlink(&kit, N, "x.npy"), 0);
        ck_assert(!kit_has_edits_folder(&kit) || !kit_problem(&kit, "views/npy/x.npy", NULL));
    }
}

START_TEST(an_empty_file_is_scratch) {
    enum bpk_edit_kind kind;
    uint64_t number;
    ck_assert_int_eq(bpk_edits_create(kit.edits, N, "x.npy", 0644, &number), 0);
    ck_assert_str_eq(kit_problem(&kit, "views/npy/x.npy", &kind), "");
    ck_assert_int_eq(kind, BPK_EDIT_SCRATCH);
    kit_commit_all(&kit);
    ck_assert_int_eq(bpk_edits_drop_scratch(kit.edits), 0);
    ck_assert(!kit_exists(&kit, N, "x.npy"));
    ck_assert(!kit_has_edits_folder(&kit));
}

/* The data lies behind its header in the data file: whatever is done to it then comes out right,
 * after a kill too. */
START_TEST(an_array_is_edited_like_any_tensor) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    enum { COUNT = 5000, SIZE = COUNT * 4, LIMIT = SIZE + 9000 };
    static uint8_t model[LIMIT];
    uint64_t size = SIZE;
    make_array(&array, COUNT);
    memcpy(model, array.text + array.len - SIZE, SIZE);
    put("new.npy", &array);
    srand(20);
    for (int turn = 0; turn < 400; turn++) {
        struct bpk_place place = kit_place(&kit, T, "new");
        uint8_t chunk[9000];
        uint64_t offset = (uint64_t)rand() % (size + 1);
        size_t n = (size_t)rand() % sizeof(chunk);
        switch (rand() % 4) {
        case 0: { /* cut or grown */
            uint64_t now = (uint64_t)rand() % LIMIT;
            ck_assert_int_eq(bpk_edits_truncate(kit.edits, &place, now), 0);
            if (now > size)
                memset(model + size, 0, now - size);
            size = now;
            break;
        }
        case 1: {
            struct bytes data;
            if (turn % 20 == 0)
                kit_reopen(&kit);
            kit_read(&kit, T, "new", &data);
            ck_assert_uint_eq(data.len, size);
            ck_assert(size == 0 || memcmp(data.data, model, size) == 0);
            bytes_clear(&data);
            break;
        }
        default:
            if (offset + n > LIMIT)
                n = LIMIT - offset;
            for (size_t i = 0; i < n; i++)
                chunk[i] = (uint8_t)rand();
            ck_assert_int_eq(bpk_edits_write(kit.edits, &place, offset, chunk, n), 0);
            memcpy(model + offset, chunk, n);
            size = n > 0 && offset + n > size ? offset + n : size;
        }
    }
    ck_assert_int_eq(kit_fsync(&kit, T, "new"), 0);
    ck_assert_int_eq(kit_truncate(&kit, T, "new", SIZE), 0);
    if (size < SIZE)
        memset(model + size, 0, SIZE - size);
    kit_reopen(&kit);
    kit_commit_all(&kit);
    ck_assert(kit_pack_holds(&kit, "new", model, SIZE));
}

START_TEST(a_kill_at_any_moment_leaves_the_old_or_the_new) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    char copy[TEMP_PATH];
    uint64_t number = BPK_ARRAY_NUMBERS + kit_place(&kit, T, "b").number;
    make_array(&array, 2000);
    ck_assert_int_eq(bpk_edits_begin_array(kit.edits, "b.npy", number), 0);
    for (size_t at = 0; at < array.len; at += 1000) {
        struct bpk_place place = kit_place(&kit, N, "b.npy");
        size_t n = array.len - at < 1000 ? array.len - at : 1000;
        ck_assert_int_eq(bpk_edits_write(kit.edits, &place, at, array.text + at, n), 0);
        kit_keep_edits(&kit, copy);
        kit_close(&kit);
        kit_put_back_edits(&kit, copy);
        kit_open(&kit);
        ck_assert(kit_contains(&kit, T, "b.json", "\"shape\": [2, 3]"));
    }
    ck_assert_int_eq(kit_flush(&kit, N, "b.npy"), 0);
    kit_keep_edits(&kit, copy);
    kit_close(&kit);
    kit_put_back_edits(&kit, copy);
    kit_open(&kit);
    ck_assert(is_tensor("b", &array, 2000));
    kit_commit_all(&kit);
    ck_assert(kit_pack_holds(&kit, "b", array.text + array.len - 8000, 8000));
}

static uint64_t begin(const char *tensor, const char *name) {
    uint64_t number = bpk_edits_view_number(kit.edits, kit_place(&kit, T, tensor).number);
    ck_assert_int_eq(bpk_edits_begin_array(kit.edits, name, number), 0);
    ck_assert(bpk_edits_has_file(kit.edits, number)); /* it is the array's */
    return number;
}

/* Whether the numbers of tensor and view lead to each other. */
static bool is_view(uint64_t number, const char *tensor) {
    uint64_t of = kit_place(&kit, T, tensor).number;
    return bpk_edits_viewed(kit.edits, bpk_edits_view_number(kit.edits, of)) == of &&
           bpk_edits_viewed(kit.edits, number) == of;
}

START_TEST(an_array_that_is_removed_keeps_its_number_from_the_view) {
    struct bpk_place place;
    uint64_t tensor = kit_place(&kit, T, "b").number;
    uint64_t number = begin("b", "b.npy");
    place = kit_place(&kit, N, "b.npy");
    bpk_edits_opened(kit.edits, &place, true);
    ck_assert_int_eq(bpk_edits_unlink(kit.edits, &place), 0);
    ck_assert(bpk_edits_has_file(kit.edits, number));
    ck_assert_uint_eq(kit_place(&kit, T, "b").number, tensor);
    ck_assert_uint_ne(bpk_edits_view_number(kit.edits, tensor), number);
    ck_assert(is_view(bpk_edits_view_number(kit.edits, tensor), "b"));
    bpk_edits_released(kit.edits, number, true);
    ck_assert(!bpk_edits_has_file(kit.edits, number));
    ck_assert_uint_eq(bpk_edits_viewed(kit.edits, number), 0); /* and for ever */
}

START_TEST(an_array_keeps_its_number_when_the_tensor_is_moved) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    uint64_t tensor = kit_place(&kit, T, "b").number;
    uint64_t number = begin("b", "b.npy");
    make_array(&array, 5);
    ck_assert_int_eq(kit_rename(&kit, T, "b", "c"), 0);
    ck_assert_uint_eq(kit_place(&kit, T, "c").number, tensor);
    ck_assert_uint_ne(bpk_edits_view_number(kit.edits, tensor), number);
    put("b.npy", &array);
    ck_assert(is_tensor("b", &array, 5));
    ck_assert_uint_ne(kit_place(&kit, T, "b").number, tensor);
    ck_assert(is_view(number, "b"));
    ck_assert(is_view(bpk_edits_view_number(kit.edits, tensor), "c"));
}

START_TEST(an_array_that_is_moved_becomes_a_tensor_with_a_number_of_its_own) {
    _cleanup_outbuf_ struct bpk_outbuf array = {0};
    uint64_t tensor = kit_place(&kit, T, "b").number;
    uint64_t number = begin("b", "b.npy");
    struct bpk_place place = kit_place(&kit, N, "b.npy");
    make_array(&array, 5);
    ck_assert_int_eq(bpk_edits_write(kit.edits, &place, 0, array.text, array.len), 0);
    ck_assert_int_eq(kit_rename(&kit, N, "b.npy", "new.npy"), 0);
    ck_assert(is_tensor("new", &array, 5));
    ck_assert_uint_eq(kit_place(&kit, T, "b").number, tensor);
    ck_assert_uint_ne(kit_place(&kit, T, "new").number, tensor);
    ck_assert(is_view(number, "new"));
    ck_assert(is_view(bpk_edits_view_number(kit.edits, tensor), "b"));
}

int main(void) {
    Suite *suite = suite_create("arrays");
    TCase *tc = editbase_case(suite, "all");
    tcase_add_test(tc, a_whole_array_is_a_tensor);
    tcase_add_test(tc, over_a_tensor_its_number_and_param_id_stay);
    tcase_add_test(tc, a_part_is_an_invalid_edit_until_the_rest_comes);
    tcase_add_test(tc, what_burn_cannot_hold_is_refused_while_it_comes);
    tcase_add_test(tc, an_empty_file_is_scratch);
    tcase_add_test(tc, an_array_is_edited_like_any_tensor);
    tcase_add_test(tc, a_kill_at_any_moment_leaves_the_old_or_the_new);
    tcase_add_test(tc, an_array_that_is_removed_keeps_its_number_from_the_view);
    tcase_add_test(tc, an_array_keeps_its_number_when_the_tensor_is_moved);
    tcase_add_test(tc, an_array_that_is_moved_becomes_a_tensor_with_a_number_of_its_own);
    return suite_run(suite);
}

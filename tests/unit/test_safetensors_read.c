/* safetensors_read: the header of a safetensors file, good, bad and cut anywhere. */
#include "view/safetensors_read.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <string.h>

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

#define ALL "\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}"

#define TWO(first, second)                                                                         \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":" first "},\"b\":{\"dtype\":\"U8\",\"shape\":" second "}}"

static const struct {
    const char *text;
    int result;
    const char *says; /* a part of the sentence */
} rows[] = {
    {TENSOR("F32", "[4]", "[0,16]"), 0, ""},
    {TENSOR("BOOL", "[4,4]", "[0,16]"), 0, ""},
    {TENSOR("F32", "[2]", "[8,16]"), -EINVAL, "\"a\" starts at byte 8, after bytes of no tensor"},
    {TENSOR("BOOL", "[]", "[15,16]"), -EINVAL, "\"a\" starts at byte 15, after bytes of no tensor"},
    {TENSOR("F32", "[2]", "[0,8]"), -EINVAL, "8 bytes come after the last tensor"},
    {"{}", -EINVAL, "16 bytes come after the last tensor"},
    {TWO("[9],\"data_offsets\":[7,16]", "[7],\"data_offsets\":[0,7]"), 0, ""},
    {TWO("[0],\"data_offsets\":[16,16]", "[16],\"data_offsets\":[0,16]"), 0, ""},
    {TWO("[16],\"data_offsets\":[0,16]", "[0],\"data_offsets\":[0,0]"), 0, ""},
    {TWO("[16],\"data_offsets\":[0,16]", "[0],\"data_offsets\":[3,3]"), -EINVAL,
     "\"b\" starts at byte 3, inside another tensor"},
    {TWO("[9],\"data_offsets\":[7,16]", "[8],\"data_offsets\":[0,8]"), -EINVAL,
     "\"a\" starts at byte 7, inside another tensor"},
    {TWO("[16],\"data_offsets\":[0,16]", "[16],\"data_offsets\":[0,16]"), -EINVAL,
     "starts at byte 0, inside another tensor"},
    {TWO("[9],\"data_offsets\":[7,16]", "[6],\"data_offsets\":[0,6]"), -EINVAL,
     "\"a\" starts at byte 7, after bytes of no tensor"},
    {TENSOR("BOOL", "[]", "[16,17]"), -EINVAL, "beyond the file's end"},
    {TENSOR("F32", "[2]", "[12,4]"), -EINVAL, "no range"},
    {TENSOR("F32", "[2]", "[0]"), -EINVAL, "has no data_offsets"},
    {TENSOR("F32", "[2]", "[0,8,9]"), -EINVAL, "has no data_offsets"},
    {TENSOR("F32", "[2.5]", "[0,8]"), -EINVAL, "no list of numbers"},
    {TENSOR("F32", "{}", "[0,8]"), -EINVAL, "has no shape"},
    {TENSOR("QFloat", "[8]", "[0,8]"), -EINVAL, "which Burn has not"},
    {TENSOR("Bool", "[8]", "[0,8]"), -EINVAL, "which Burn has not"},
    {"{\"a\":null}", -EINVAL, "has no dtype"},
    {"[]", -EINVAL, "must be an object"},
    {"{\"__metadata__\":null," ALL "}", 0, ""},
    {"{\"__metadata__\":[]," ALL "}", -EINVAL, "__metadata__ is no object"},
    {"{\"__metadata__\":{\"k\":[]}," ALL "}", -EINVAL, "must be a string"},
};

START_TEST(headers) {
    struct bpk_safetensors_file file = {0};
    struct bpk_diag diag = {0};
    int r = bpk_safetensors_parse(str(rows[_i].text), 16, &file, &diag);
    ck_assert_msg(r == rows[_i].result, "%s: %d %s", rows[_i].text, r, diag.sentence);
    ck_assert_ptr_nonnull(strstr(diag.sentence, rows[_i].says));
    bpk_safetensors_file_clear(&file);
}

static const char whole[] =
    "{\"__metadata__\":{\"k\":\"v\",\"scalar:n\":\"{\\\"UInt\\\": 3}\",\"scalar:m\":\"{}\"},"
    "\"w\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[2,14]},"
    "\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";

START_TEST(what_is_in_it) {
    struct bpk_safetensors_file file;
    ck_assert_int_eq(bpk_safetensors_parse(str(whole), 14, &file, NULL), 0);
    ck_assert_uint_eq(file.count, 2);
    ck_assert_uint_eq(file.entries[0].name_len, 1);
    ck_assert_int_eq(file.entries[0].descriptor.dtype.kind, BPK_F16);
    ck_assert_uint_eq(file.entries[0].descriptor.rank, 2);
    ck_assert_uint_eq(file.entries[0].descriptor.dims[1], 3);
    ck_assert_uint_eq(file.entries[0].start, 2);
    ck_assert_uint_eq(file.entries[0].end, 14);
    ck_assert_uint_eq(file.entries[1].name_len, 0);
    ck_assert_uint_eq(file.scalars.count, 1);
    ck_assert_uint_eq(file.scalars.scalars[0].bits, 3);
    ck_assert_uint_eq(file.metadata.count, 2);
    bpk_safetensors_file_clear(&file);
}

START_TEST(cut_anywhere) {
    for (size_t len = 0; len + 1 < sizeof(whole); len++) {
        struct bpk_safetensors_file file;
        struct bpk_diag diag = {0};
        int r = bpk_safetensors_parse((struct bpk_str){whole, len}, 16, &file, &diag);
        ck_assert_int_eq(r, -EINVAL);
        ck_assert_str_ne(diag.sentence, "");
    }
}

int main(void) {
    Suite *suite = suite_create("safetensors_read");
    TCase *tc = suite_case(suite, "parsing");
    tcase_add_loop_test(tc, headers, 0, ROWS(rows));
    tcase_add_test(tc, what_is_in_it);
    tcase_add_test(tc, cut_anywhere);
    return suite_run(suite);
}

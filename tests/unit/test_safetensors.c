/* safetensors: heads of files. The first ones are the library's own (safetensors/src/tensor.rs). */
#include "view/safetensors.h"

#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct bpk_str str(const char *text) {
    return (struct bpk_str){text, strlen(text)};
}

/* Up to 6 dimensions. */
struct row {
    const char *name;
    struct bpk_dtype dtype;
    uint32_t rank;
    uint64_t dims[6];
    uint64_t size;
};

enum { TENSORS = 20 };

static void fill(struct bpk_safetensors *file, struct bpk_safetensors_tensor *tensors,
                 const struct row *rows, size_t count) {
    ck_assert_uint_le(count, TENSORS);
    for (size_t i = 0; i < count; i++)
        tensors[i] = (struct bpk_safetensors_tensor){.name = str(rows[i].name),
                                                     .array = {rows[i].dtype, rows[i].rank,
                                                               rows[i].rank ? rows[i].dims : NULL,
                                                               rows[i].size}};
    file->tensors = tensors;
    file->tensor_count = count;
}

/* Length, JSON and padding; and the same size when only counted. */
static void expect(const struct bpk_safetensors *file, const char *json, uint64_t data_size) {
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    struct bpk_outbuf counted = {.counting = true};
    uint64_t size = 77;
    bpk_out_str(&out, "before");
    ck_assert_int_eq(bpk_safetensors_head(file, &out, &size), 0);
    ck_assert_uint_eq(size, data_size);
    size_t len = strlen(json);
    size_t padded = (len + 7) / 8 * 8;
    ck_assert_uint_eq(out.len, 6 + 8 + padded);
    for (size_t i = 0; i < 8; i++)
        ck_assert_uint_eq((unsigned char)out.text[6 + i], padded >> 8 * i & 0xff);
    if (memcmp(out.text + 14, json, len) != 0)
        ck_abort_msg("%.*s instead of %s", (int)(out.len - 14), out.text + 14, json);
    for (size_t i = len; i < padded; i++)
        ck_assert_int_eq(out.text[14 + i], ' ');
    ck_assert_int_eq(bpk_safetensors_head(file, &counted, &size), 0);
    ck_assert_uint_eq(counted.len, 8 + padded);
}

/* ---- the library's own ----------------------------------------------------------------------- */

START_TEST(nothing) {
    const struct bpk_safetensors none = {0};
    _cleanup_outbuf_ struct bpk_outbuf out = {0};
    uint64_t size;
    ck_assert_int_eq(bpk_safetensors_head(&none, &out, &size), 0);
    ck_assert_uint_eq(out.len, 16);
    ck_assert_mem_eq(out.text, "\10\0\0\0\0\0\0\0{}      ", 16);
    expect(&none, "{}", 0);
}

START_TEST(metadata_alone) {
    const struct bpk_plan_entry entry = {str("framework"), str("pt")};
    const struct bpk_safetensors file = {.metadata = &entry, .metadata_count = 1};
    expect(&file, "{\"__metadata__\":{\"framework\":\"pt\"}}", 0);
}

START_TEST(one_tensor) {
    static const struct row long_name = {"attn.0", {.kind = BPK_F32}, 3, {1, 2, 3}, 24};
    static const struct row short_name = {"attn0", {.kind = BPK_F32}, 4, {1, 1, 2, 3}, 24};
    struct bpk_safetensors_tensor tensors[TENSORS];
    struct bpk_safetensors file = {0};
    fill(&file, tensors, &long_name, 1);
    expect(&file, "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}", 24);
    fill(&file, tensors, &short_name, 1);
    expect(&file, "{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}",
           24);
}

/* ---- everything ------------------------------------------------------------------------------ */

static const struct row every_dtype[] = {
    {"f64", {.kind = BPK_F64}, 1, {2}, 16},
    {"f32", {.kind = BPK_F32}, 2, {1, 3}, 12},
    {"flex", {.kind = BPK_FLEX32}, 1, {1}, 4},
    {"f16", {.kind = BPK_F16}, 1, {1}, 2},
    {"bf16", {.kind = BPK_BF16}, 1, {1}, 2},
    {"i64", {.kind = BPK_I64}, 0, {0}, 8},
    {"i32", {.kind = BPK_I32}, 1, {0}, 0},
    {"i16", {.kind = BPK_I16}, 1, {1}, 2},
    {"i8", {.kind = BPK_I8}, 1, {1}, 1},
    {"u64", {.kind = BPK_U64}, 1, {1}, 8},
    {"u32", {.kind = BPK_U32}, 1, {1}, 4},
    {"u16", {.kind = BPK_U16}, 1, {1}, 2},
    {"u8", {.kind = BPK_U8}, 1, {1}, 1},
    {"bool", {.kind = BPK_BOOL, .bool_store = BPK_BOOL_NATIVE}, 1, {1}, 1},
    {"old", {.kind = BPK_BOOL, .bool_store = BPK_BOOL_TEXT}, 1, {1}, 1},
    {"byte", {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U8}, 1, {1}, 1},
    {"wide", {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32}, 1, {2}, 8},
};

START_TEST(every_dtype_has_a_name) {
    struct bpk_safetensors_tensor tensors[TENSORS];
    struct bpk_safetensors file = {0};
    fill(&file, tensors, every_dtype, ROWS(every_dtype));
    expect(&file,
           "{\"f64\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
           "\"f32\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[16,28]},"
           "\"flex\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[28,32]},"
           "\"f16\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[32,34]},"
           "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[34,36]},"
           "\"i64\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[36,44]},"
           "\"i32\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[44,44]},"
           "\"i16\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[44,46]},"
           "\"i8\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[46,47]},"
           "\"u64\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[47,55]},"
           "\"u32\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[55,59]},"
           "\"u16\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[59,61]},"
           "\"u8\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[61,62]},"
           "\"bool\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[62,63]},"
           "\"old\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[63,64]},"
           "\"byte\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[64,65]},"
           "\"wide\":{\"dtype\":\"U32\",\"shape\":[2],\"data_offsets\":[65,73]}}",
           73);
}

static const struct bpk_dtype quantised = {
    .kind = BPK_QFLOAT,
    .scheme = {.value = BPK_Q8S,
               .store = BPK_STORE_NATIVE,
               .has_tensor = true,
               .tensor_scale = BPK_SCALE_F32},
};

#define QUANTISED                                                                                  \
    "{\\\"dtype\\\": {\\\"QFloat\\\": {\\\"value\\\": \\\"Q8S\\\", \\\"store\\\": "                \
    "\\\"Native\\\", "                                                                             \
    "\\\"mode\\\": \\\"Symmetric\\\", \\\"tensor\\\": \\\"F32\\\", \\\"block\\\": null}}, "        \
    "\\\"shape\\\": "

/* The order: the user's, quantised tensors, scalars, tensors. Strings are JSON's. */
START_TEST(all_at_once) {
    const struct row rows[] = {{"w", {.kind = BPK_U8}, 1, {3}, 3},
                               {"q\"1", quantised, 2, {4, 5}, 24},
                               {"q0", quantised, 0, {0}, 5}};
    const struct bpk_plan_entry metadata[] = {{{"\0k", 2}, str("\x1b[0m\n")},
                                              {str("é"), str("\xf0\x9f\x98\x80")}};
    const struct bpk_scalar scalars[] = {
        {str("epoch"), BPK_SCALAR_UINT, UINT64_MAX},
        {str("lr"), BPK_SCALAR_FLOAT, UINT64_C(0x3fe0000000000000)},
    };
    struct bpk_safetensors_tensor tensors[TENSORS];
    struct bpk_safetensors file = {.metadata = metadata,
                                   .metadata_count = ROWS(metadata),
                                   .scalars = scalars,
                                   .scalar_count = ROWS(scalars)};
    fill(&file, tensors, rows, ROWS(rows));
    expect(&file,
           "{\"__metadata__\":{\"\\u0000k\":\"\\u001b[0m\\n\",\"é\":\"😀\","
           "\"qfloat:q\\\"1\":\"" QUANTISED "[4, 5]}\",\"qfloat:q0\":\"" QUANTISED "[]}\","
           "\"scalar:epoch\":\"{\\\"UInt\\\": \\\"18446744073709551615\\\"}\","
           "\"scalar:lr\":\"{\\\"Float\\\": 0.5}\"},"
           "\"w\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
           "\"q\\\"1\":{\"dtype\":\"U8\",\"shape\":[24],\"data_offsets\":[3,27]},"
           "\"q0\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[27,32]}}",
           32);
}

/* ---- keys that are taken --------------------------------------------------------------------- */

struct keys {
    char text[200];
};

static void note_key(void *context, struct bpk_str key) {
    struct keys *keys = context;
    size_t len = strlen(keys->text);
    (void)snprintf(keys->text + len, sizeof(keys->text) - len, "%.*s;", (int)key.len, key.bytes);
}

START_TEST(the_users_keys_win) {
    const struct row rows[] = {{"a", quantised, 1, {1}, 5}, {"b", quantised, 1, {1}, 5}};
    const struct bpk_plan_entry metadata[] = {
        {str("a"), str("1")},         {str("qfloat:"), str("2")},  {str("qfloat:a"), str("3")},
        {str("qfloat:aa"), str("4")}, {str("scalar:s"), str("5")},
    };
    const struct bpk_scalar scalars[] = {{str("r"), BPK_SCALAR_BOOL, 1},
                                         {str("s"), BPK_SCALAR_BOOL, 0}};
    struct bpk_safetensors_tensor tensors[TENSORS];
    struct keys keys = {""};
    struct bpk_safetensors file = {.metadata = metadata,
                                   .metadata_count = ROWS(metadata),
                                   .scalars = scalars,
                                   .scalar_count = ROWS(scalars),
                                   .left_out = note_key,
                                   .context = &keys};
    fill(&file, tensors, rows, ROWS(rows));
    const char *json =
        "{\"__metadata__\":{\"a\":\"1\",\"qfloat:\":\"2\",\"qfloat:a\":\"3\",\"qfloat:aa\":\"4\","
        "\"scalar:s\":\"5\",\"qfloat:b\":\"" QUANTISED "[1]}\","
        "\"scalar:r\":\"{\\\"Bool\\\": true}\"},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[5,10]}}";
    expect(&file, json, 10);
    ck_assert_str_eq(keys.text, "qfloat:a;scalar:s;qfloat:a;scalar:s;"); /* twice: counted too */
    file.left_out = NULL;
    expect(&file, json, 10);
}

/* ---- what can be in it ----------------------------------------------------------------------- */

START_TEST(what_is_taken) {
    static const uint64_t huge[] = {UINT64_C(1) << 32, UINT64_C(1) << 32, 0};
    static const uint64_t empty[] = {0, UINT64_C(1) << 32, UINT64_C(1) << 32};
    static const uint64_t plain[] = {2, 3};
    const struct {
        const char *name;
        struct bpk_array array;
        const char *reason; /* NULL: taken */
    } cases[] = {
        {"a", {{.kind = BPK_F32}, 2, plain, 24}, NULL},
        {"", {{.kind = BPK_F32}, 2, plain, 24}, NULL},
        {"a",
         {{.kind = BPK_F32}, 2, plain, 23},
         "has another length than its shape and dtype need"},
        {"a", {{.kind = BPK_F32}, 0, NULL, 4}, NULL},
        {"a", {{.kind = BPK_F32}, 3, empty, 0}, NULL},
        {"a", {{.kind = BPK_F32}, 3, huge, 0}, "has another length than its shape and dtype need"},
        {"a", {quantised, 2, plain, 1234}, NULL},
        {"__metadata__",
         {{.kind = BPK_F32}, 2, plain, 24},
         "has the name under which safetensors files keep their metadata"},
        {"__metadata__.a", {{.kind = BPK_F32}, 2, plain, 24}, NULL},
    };
    for (int i = 0; i < ROWS(cases); i++) {
        const char *reason = NULL;
        bool takes = bpk_safetensors_takes(str(cases[i].name), &cases[i].array, &reason);
        ck_assert_int_eq(takes, cases[i].reason == NULL);
        ck_assert_pstr_eq(reason, cases[i].reason);
    }
}

START_TEST(the_librarys_order) {
    const struct row rows[] = {
        {"z", {.kind = BPK_U8}, 1, {1}, 1},
        {"e", {.kind = BPK_U64}, 1, {1}, 8},
        {"q", quantised, 1, {1}, 5},
        {"f", {.kind = BPK_F64}, 1, {1}, 8},
        {"b", {.kind = BPK_F32}, 1, {1}, 4},
        {"a", {.kind = BPK_FLEX32}, 1, {1}, 4},
        {"ab", {.kind = BPK_F32}, 1, {1}, 4},
        {"t", {.kind = BPK_BOOL}, 1, {1}, 1},
        {"u", {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32}, 1, {1}, 4},
        {"h", {.kind = BPK_BF16}, 1, {1}, 2},
        {"i", {.kind = BPK_I64}, 1, {1}, 8},
        {"n", {.kind = BPK_U32}, 1, {1}, 4},
    };
    struct bpk_safetensors_tensor tensors[TENSORS];
    struct bpk_safetensors file = {0};
    char order[100] = "";
    fill(&file, tensors, rows, ROWS(rows));
    qsort(tensors, ROWS(rows), sizeof(tensors[0]), bpk_safetensors_compare);
    for (int i = 0; i < ROWS(rows); i++)
        (void)snprintf(order + strlen(order), sizeof(order) - strlen(order), "%.*s ",
                       (int)tensors[i].name.len, tensors[i].name.bytes);
    ck_assert_str_eq(order, "e i f a ab b n u h q z t ");
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* A header of exactly the 100,000,000 bytes that the library takes, and 8 more. */
START_TEST(header_too_long) {
    static const char around[] = "{\"__metadata__\":{\"k\":\"\"}}";
    size_t len = BPK_SAFETENSORS_MAX_HEADER - (sizeof(around) - 1);
    char *text = malloc(len + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', len + 1);
    for (size_t more = 0; more <= 1; more++) {
        const struct bpk_plan_entry entry = {str("k"), {text, len + more}};
        const struct bpk_safetensors file = {.metadata = &entry, .metadata_count = 1};
        struct bpk_outbuf out = {.counting = true};
        uint64_t size = 77;
        ck_assert_int_eq(bpk_safetensors_head(&file, &out, &size), more ? -EFBIG : 0);
        ck_assert_uint_eq(size, more ? 77 : 0);
        if (!more)
            ck_assert_uint_eq(out.len, 8 + BPK_SAFETENSORS_MAX_HEADER);
    }
    free(text);
}

START_TEST(data_too_long) {
    const struct row rows[] = {{"a", quantised, 0, {0}, UINT64_MAX}, {"b", quantised, 0, {0}, 1}};
    struct bpk_safetensors_tensor tensors[TENSORS];
    struct bpk_safetensors file = {0};
    struct bpk_outbuf out = {.counting = true};
    uint64_t size = 77;
    fill(&file, tensors, rows, 2);
    ck_assert_int_eq(bpk_safetensors_head(&file, &out, &size), -EFBIG);
    ck_assert_uint_eq(size, 77);
}

START_TEST(no_memory) {
    const struct bpk_safetensors none = {0};
    struct bpk_outbuf out = {.failed = true};
    uint64_t size;
    ck_assert_int_eq(bpk_safetensors_head(&none, &out, &size), -ENOMEM);
}

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, nothing);
    tcase_add_test(tc, metadata_alone);
    tcase_add_test(tc, one_tensor);
    tcase_add_test(tc, every_dtype_has_a_name);
    tcase_add_test(tc, all_at_once);
    tcase_add_test(tc, the_users_keys_win);
    tcase_add_test(tc, what_is_taken);
    tcase_add_test(tc, the_librarys_order);
    tcase_add_test(tc, header_too_long);
    tcase_add_test(tc, data_too_long);
    tcase_add_test(tc, no_memory);
    return suite_run(suite);
}

/* dtype: names, sizes and NumPy strings of every dtype, lengths, lengths of quantised tensors
 * (format.md 2.2, 3.2, 3.5). */
#include "pack/dtype.h"

#include "packbuild.h"
#include "suite.h"

#include <string.h>

static const struct {
    enum bpk_kind kind;
    enum bpk_bool_store store;
    const char *name;
    unsigned size;
    const char *numpy;
} dtypes[] = {
    {BPK_F64, 0, "F64", 8, "<f8"},
    {BPK_F32, 0, "F32", 4, "<f4"},
    {BPK_FLEX32, 0, "Flex32", 4, "<f4"},
    {BPK_F16, 0, "F16", 2, "<f2"},
    {BPK_BF16, 0, "BF16", 2, "<V2"},
    {BPK_I64, 0, "I64", 8, "<i8"},
    {BPK_I32, 0, "I32", 4, "<i4"},
    {BPK_I16, 0, "I16", 2, "<i2"},
    {BPK_I8, 0, "I8", 1, "|i1"},
    {BPK_U64, 0, "U64", 8, "<u8"},
    {BPK_U32, 0, "U32", 4, "<u4"},
    {BPK_U16, 0, "U16", 2, "<u2"},
    {BPK_U8, 0, "U8", 1, "|u1"},
    {BPK_BOOL, BPK_BOOL_TEXT, "Bool", 1, "|b1"},
    {BPK_BOOL, BPK_BOOL_NATIVE, "Bool", 1, "|b1"},
    {BPK_BOOL, BPK_BOOL_U8, "Bool", 1, "|b1"},
    {BPK_BOOL, BPK_BOOL_U32, "Bool", 4, "<u4"},
    {BPK_QFLOAT, 0, "QFloat", 0, "|u1"},
};

START_TEST(names_and_sizes) {
    struct bpk_dtype dtype = {.kind = dtypes[_i].kind, .bool_store = dtypes[_i].store};
    ck_assert_str_eq(bpk_kind_name(dtype.kind), dtypes[_i].name);
    ck_assert_uint_eq(bpk_dtype_size(&dtype), dtypes[_i].size);
    ck_assert_str_eq(bpk_dtype_numpy(&dtype), dtypes[_i].numpy);
    enum bpk_kind kind;
    ck_assert(bpk_kind_from_name(str(dtypes[_i].name), &kind));
    ck_assert_int_eq(kind, dtype.kind);
}

/* Each name leads back to its value, and no other spelling does. */
#define CHECK_NAMES(from, name_of, last)                                                           \
    do {                                                                                           \
        __typeof__(last) found_ = 0;                                                               \
        for (int i_ = 0; i_ <= (int)(last); i_++) {                                                \
            ck_assert(from(str(name_of((__typeof__(last))i_)), &found_));                          \
            ck_assert_int_eq(found_, i_);                                                          \
        }                                                                                          \
        static const char *const wrong_[] = {"",    "f32",    "F3",        "F320", "q8s",          \
                                             "Q16", "native", "symmetric", " F32", "F32 "};        \
        for (int i_ = 0; i_ < ROWS(wrong_); i_++)                                                  \
            ck_assert(!from(str(wrong_[i_]), &found_));                                            \
    } while (0)

START_TEST(names_lead_back) {
    CHECK_NAMES(bpk_kind_from_name, bpk_kind_name, (enum bpk_kind)BPK_QFLOAT);
    CHECK_NAMES(bpk_quant_value_from_name, bpk_quant_value_name, (enum bpk_quant_value)BPK_Q2S);
    CHECK_NAMES(bpk_scale_from_name, bpk_scale_name, (enum bpk_scale)BPK_SCALE_UE4M3);
    CHECK_NAMES(bpk_quant_mode_from_name, bpk_quant_mode_name,
                (enum bpk_quant_mode)BPK_MODE_LOOKUP);
}

START_TEST(stores_of_quantised_values) {
    for (int i = 0; i <= BPK_STORE_U32; i++) {
        enum bpk_quant_store store;
        bool takes_dim;
        const char *name = bpk_quant_store_name((enum bpk_quant_store)i);
        ck_assert(bpk_quant_store_from_name(str(name), &store, &takes_dim));
        ck_assert_int_eq(store, i);
        ck_assert_int_eq(takes_dim, strncmp(name, "Packed", 6) == 0);
        ck_assert(!bpk_quant_store_from_name(str("packed"), &store, &takes_dim));
    }
}

START_TEST(stores_of_a_bool) {
    enum bpk_bool_store store = BPK_BOOL_TEXT;
    ck_assert(bpk_bool_store_from_name(str("Native"), &store));
    ck_assert_int_eq(store, BPK_BOOL_NATIVE);
    ck_assert(bpk_bool_store_from_name(str("U8"), &store));
    ck_assert_int_eq(store, BPK_BOOL_U8);
    ck_assert(bpk_bool_store_from_name(str("U32"), &store));
    ck_assert_int_eq(store, BPK_BOOL_U32);
    ck_assert(!bpk_bool_store_from_name(str("Bool"), &store));
    ck_assert(!bpk_bool_store_from_name(str("U16"), &store));
    ck_assert_int_eq(store, BPK_BOOL_U32);
    ck_assert_str_eq(bpk_bool_store_name(BPK_BOOL_NATIVE), "Native");
    ck_assert_str_eq(bpk_bool_store_name(BPK_BOOL_TEXT), "Bool");
}

START_TEST(strings_equal_whole) {
    ck_assert(bpk_str_is(str("ab"), "ab"));
    ck_assert(!bpk_str_is(str("ab"), "a"));
    ck_assert(!bpk_str_is(str("a"), "ab"));
    ck_assert(!bpk_str_is((struct bpk_str){"a\0", 2}, "a"));
    ck_assert(bpk_str_is((struct bpk_str){"", 0}, ""));
}

START_TEST(lengths_overflow) {
    struct bpk_dtype f64 = {.kind = BPK_F64};
    uint64_t bytes = 42;
    ck_assert(bpk_dtype_length(&f64, 3, &bytes));
    ck_assert_uint_eq(bytes, 24);
    ck_assert(bpk_dtype_length(&f64, UINT64_MAX / 8, &bytes));
    ck_assert(!bpk_dtype_length(&f64, UINT64_MAX / 8 + 1, &bytes));
    struct bpk_dtype wide = {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32};
    ck_assert(bpk_dtype_length(&wide, 5, &bytes));
    ck_assert_uint_eq(bytes, 20);
}

/* ---- quantised ------------------------------------------------------------------------------- */

enum { NATIVE = BPK_STORE_NATIVE, PN = BPK_STORE_PACKED_NATIVE, PU32 = BPK_STORE_PACKED_U32 };
enum { NONE = -1, F32 = BPK_SCALE_F32, F16 = BPK_SCALE_F16, BF16 = BPK_SCALE_BF16 };
enum { UE8M0 = BPK_SCALE_UE8M0, UE4M3 = BPK_SCALE_UE4M3 };
#define BAD    UINT64_MAX
#define HUGE_2 (UINT64_C(1) << 63)

static const struct {
    enum bpk_quant_value value;
    int store;
    uint64_t packed;
    int tensor; /* scale dtypes, or NONE */
    int block;
    uint8_t block_len;
    uint8_t block_dims[5];
    uint32_t rank;
    uint64_t dims[8];
    uint64_t bytes;
} schemes[] = {
    /* the four examples of format.md 3.2 */
    {BPK_Q4S, PU32, 0, NONE, NONE, 0, {0}, 2, {3, 3}, 16},
    {BPK_Q4F, PU32, 0, NONE, NONE, 0, {0}, 3, {2, 5, 9}, 84},
    {BPK_Q8S, NATIVE, 0, F32, UE4M3, 1, {4, 1, 1, 1, 1}, 1, {8}, 14},
    {BPK_Q8S, NATIVE, 0, NONE, NONE, 0, {0}, 2, {3, 4}, 16},
    /* the dequantisation examples of 3.6, by their bytes */
    {BPK_Q8S, NATIVE, 0, F32, NONE, 0, {0}, 1, {6}, 10},
    {BPK_Q4S, PU32, 0, NONE, F16, 1, {4, 1, 1, 1, 1}, 2, {2, 8}, 16},
    {BPK_Q8S, PU32, 1, F32, NONE, 0, {0}, 2, {4, 2}, 12},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 2, {2, 3, 1, 1, 1}, 2, {4, 6}, 40},
    {BPK_E2M1, PN, 0, F32, UE4M3, 1, {16, 1, 1, 1, 1}, 1, {16}, 13},
    {BPK_E4M3, NATIVE, 0, F32, NONE, 0, {0}, 1, {8}, 12},
    {BPK_E5M2, NATIVE, 0, F16, NONE, 0, {0}, 1, {8}, 10},
    {BPK_Q8S, NATIVE, 0, NONE, BF16, 1, {4, 1, 1, 1, 1}, 2, {2, 5}, 18},
    {BPK_Q2F, PU32, 1, BF16, NONE, 0, {0}, 2, {16, 2}, 10},
    /* one byte a value, however few bits it has */
    {BPK_Q4S, NATIVE, 0, NONE, NONE, 0, {0}, 1, {5}, 9},
    {BPK_Q2S, NATIVE, 0, UE8M0, NONE, 0, {0}, 1, {5}, 6},
    {BPK_E2M1, NATIVE, 0, UE4M3, NONE, 0, {0}, 1, {5}, 6},
    {BPK_Q4S, PN, 0, F16, NONE, 0, {0}, 1, {5}, 7}, /* packs nothing but E2M1 */
    {BPK_Q4S, PN, 9, F16, NONE, 0, {0}, 1, {5}, 7}, /* so its dimension is not looked at */
    {BPK_E2M1, PN, 0, F32, NONE, 0, {0}, 1, {5}, 7},
    {BPK_E2M1, PN, 1, F32, NONE, 0, {0}, 2, {5, 3}, 13},
    /* no rank: an empty product is 1 */
    {BPK_Q8S, NATIVE, 0, NONE, NONE, 0, {0}, 0, {0}, 5},
    {BPK_Q2S, PU32, 0, NONE, NONE, 0, {0}, 0, {0}, 8},
    {BPK_Q8S, PU32, 0, NONE, NONE, 0, {0}, 1, {0}, 4},
    {BPK_Q2S, PU32, 2, NONE, NONE, 0, {0}, 3, {17, 3, 1}, 28},
    {BPK_Q4S, BPK_STORE_U32, 0, F32, NONE, 0, {0}, 2, {3, 9}, 28}, /* as PackedU32(0) */
    /* blocks */
    {BPK_Q8S, NATIVE, 0, NONE, UE4M3, 1, {32, 1, 1, 1, 1}, 2, {3, 33}, 99 + 6},
    {BPK_Q8S, NATIVE, 0, NONE, UE4M3, 2, {2, 32, 1, 1, 1}, 2, {3, 33}, 99 + 4},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 5, {1, 1, 1, 1, 2}, 5, {1, 1, 1, 2, 4}, 8 + 16},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 0, {0}, 1, {3}, 3 + 12},
    {BPK_Q8S, NATIVE, 0, F16, F16, 1, {4, 1, 1, 1, 1}, 1, {8}, 8 + 4 + 4}, /* global is 4 */
    /* what does not fit (3.5) */
    {BPK_Q4S, PU32, 1, NONE, NONE, 0, {0}, 1, {8}, BAD},
    {BPK_Q4S, PU32, 99, NONE, NONE, 0, {0}, 2, {8, 8}, BAD},
    {BPK_Q4S, PU32, UINT64_MAX, NONE, NONE, 0, {0}, 2, {8, 8}, BAD},
    {BPK_E2M1, PN, 1, NONE, NONE, 0, {0}, 1, {8}, BAD},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 1, {0, 1, 1, 1, 1}, 1, {8}, BAD},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 9, {1, 1, 1, 1, 1}, 8, {1, 1, 1, 1, 1, 1, 1, 1}, BAD},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 6, {1, 1, 1, 1, 1}, 8, {1, 1, 1, 1, 1, 1, 1, 1}, BAD},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 2, {1, 1, 1, 1, 1}, 1, {8}, BAD},
    {BPK_Q8S, NATIVE, 0, NONE, NONE, 0, {0}, 2, {HUGE_2, 2}, BAD},
    {BPK_Q8S, NATIVE, 0, NONE, NONE, 0, {0}, 1, {UINT64_MAX}, BAD},
    {BPK_Q8S, PU32, 0, NONE, NONE, 0, {0}, 1, {UINT64_MAX}, BAD},
    {BPK_Q2S, PU32, 0, NONE, NONE, 0, {0}, 1, {UINT64_MAX}, ((HUGE_2 >> 3) * 4) + 4},
    {BPK_Q8S, NATIVE, 0, NONE, F32, 1, {1, 1, 1, 1, 1}, 1, {HUGE_2}, BAD},
};

START_TEST(lengths_of_quantised_tensors) {
    struct bpk_scheme scheme = {
        .value = schemes[_i].value,
        .store = (enum bpk_quant_store)schemes[_i].store,
        .packed_dim = schemes[_i].packed,
        .has_tensor = schemes[_i].tensor != NONE,
        .has_block = schemes[_i].block != NONE,
        .block_len = schemes[_i].block_len,
    };
    if (scheme.has_tensor)
        scheme.tensor_scale = (enum bpk_scale)schemes[_i].tensor;
    if (scheme.has_block)
        scheme.block_scale = (enum bpk_scale)schemes[_i].block;
    for (int i = 0; i < 5; i++)
        scheme.block_dims[i] = schemes[_i].block_dims[i];
    uint64_t bytes = 42;
    bool fits = bpk_scheme_length(&scheme, schemes[_i].dims, schemes[_i].rank, &bytes);
    ck_assert_int_eq(fits, schemes[_i].bytes != BAD);
    ck_assert_uint_eq(bytes, fits ? schemes[_i].bytes : 42);
}

int main(void) {
    Suite *suite = suite_create("dtype");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, names_and_sizes, 0, ROWS(dtypes));
    tcase_add_test(tc, names_lead_back);
    tcase_add_test(tc, stores_of_quantised_values);
    tcase_add_test(tc, stores_of_a_bool);
    tcase_add_test(tc, strings_equal_whole);
    tcase_add_test(tc, lengths_overflow);
    tcase_add_loop_test(tc, lengths_of_quantised_tensors, 0, ROWS(schemes));
    return suite_run(suite);
}

/* f32: plain dtypes by range, what is refused, faults of the source, memory that fails
 * (format.md 3.5, 3.6). Linked with --wrap=malloc and the like. */
#include "f32kit.h"

#include "failalloc.h"
#include "pack/dtype.h"

START_TEST(all_plain_dtypes_by_range) {
    for (int kind = BPK_F64; kind <= BPK_BOOL; kind++) {
        for (int store = 0; store <= (kind == BPK_BOOL ? BPK_BOOL_U32 : 0); store++) {
            uint64_t seed = (uint64_t)(kind * 10 + store);
            struct bpk_dtype dtype = {.kind = (enum bpk_kind)kind,
                                      .bool_store = (enum bpk_bool_store)store};
            static const uint64_t dims[] = {3, 1, 7001};
            uint64_t count = 3 * 7001;
            struct bpk_array array = array_of(dtype, dims, 3, count * bpk_dtype_size(&dtype));
            struct bpk_f32 *f32;
            ck_assert_int_eq(bpk_f32_new(&array, &f32, NULL), 0);
            ck_assert_uint_eq(bpk_f32_count(f32), count);
            struct bytes bytes = noise(array.size, &seed);
            struct memory memory = memory_of(&bytes);
            static float whole[3 * 7001];
            for (size_t i = 0; i < count; i++)
                HOLDS(read_range(f32, &memory, i, 1, &whole[i]) == 0);
            check_ranges(f32, &memory, whole, &seed);
            if (kind == BPK_F32 || kind == BPK_FLEX32)
                ck_assert_mem_eq(whole, bytes.data, bytes.len);
            bytes_clear(&bytes);
            bpk_f32_free(f32);
        }
    }
}

START_TEST(without_dimensions_and_without_elements) {
    static const uint64_t none[] = {3, 0, 5};
    struct bpk_dtype f16 = {.kind = BPK_F16};
    struct bpk_array scalar = array_of(f16, NULL, 0, 2);
    struct bytes bytes = bytes_from_hex("003c");
    struct memory memory = memory_of(&bytes);
    struct bpk_f32 *f32;
    float value;
    ck_assert_int_eq(bpk_f32_new(&scalar, &f32, NULL), 0);
    ck_assert_uint_eq(bpk_f32_count(f32), 1);
    ck_assert_int_eq(read_range(f32, &memory, 0, 1, &value), 0);
    ck_assert(value == 1);
    bpk_f32_free(f32);
    struct bpk_array empty = array_of(f16, none, 3, 0);
    ck_assert_int_eq(bpk_f32_new(&empty, &f32, NULL), 0);
    ck_assert_uint_eq(bpk_f32_count(f32), 0);
    memory.fail_at = 0;
    ck_assert_int_eq(read_range(f32, &memory, 0, 0, NULL), 0);
    bpk_f32_free(f32);
    bpk_f32_free(NULL);
    bytes_clear(&bytes);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void check_refused(const struct bpk_array *array, int code, const char *words) {
    struct bpk_f32 *f32 = NULL;
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_f32_new(array, &f32, &diag), code);
    ck_assert_ptr_null(f32);
    ck_assert_int_eq(diag.code, code);
    ck_assert_msg(strstr(diag.sentence, words) != NULL, "\"%s\"", diag.sentence);
    ck_assert_int_eq(bpk_f32_new(array, &f32, NULL), code);
}

START_TEST(what_burn_does_not_dequantise) {
    static const struct {
        enum bpk_quant_value value;
        int store;
    } odd[] = {{BPK_E4M3, PU32}, {BPK_E5M2, PU32},   {BPK_E2M1, PU32}, {BPK_E2M1, U32},
               {BPK_E4M3, U32},  {BPK_E2M1, NATIVE}, {BPK_Q8S, PN},    {BPK_Q4F, PN},
               {BPK_Q2S, PN},    {BPK_E4M3, PN},     {BPK_E5M2, PN}};
    static const uint64_t dims[] = {16};
    for (int i = 0; i < ROWS(odd); i++) {
        struct bpk_dtype dtype = quantised(odd[i].value, odd[i].store, 0, NONE, NONE, "");
        uint64_t size;
        ck_assert(bpk_scheme_length(&dtype.scheme, dims, 1, &size));
        struct bpk_array array = array_of(dtype, dims, 1, size);
        check_refused(&array, -ENOTSUP, bpk_quant_value_name(odd[i].value));
        check_refused(&array, -ENOTSUP, bpk_quant_store_name(array.dtype.scheme.store));
    }
    struct bpk_array array = array_of(quantised(BPK_Q8S, NATIVE, 0, F16, F16, "\4"), dims, 1, 28);
    check_refused(&array, -ENOTSUP, "has a scale of F16 over the scales of its blocks");
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, NONE, NONE, ""), dims, 1, 20);
    array.dtype.scheme.mode = BPK_MODE_LOOKUP;
    check_refused(&array, -ENOTSUP, "Lookup");
    array = array_of(levelled(quantised(BPK_Q8S, NATIVE, 0, F32, F32, "\4")), dims, 1, 36);
    array.dtype.scheme.level = BPK_LEVEL_BLOCK_TENSOR;
    check_refused(&array, -ENOTSUP, "BlockTensor");
}

START_TEST(schemes_that_fit_no_shape) {
    static const uint64_t dims[] = {8, 8};
    static const uint64_t vast[] = {UINT64_C(1) << 62, 4};
    static const uint64_t wide[] = {UINT64_C(1) << 61, 8};
    const char *words = "does not fit its shape";
    struct bpk_array array = array_of(quantised(BPK_Q4S, PU32, 2, NONE, NONE, ""), dims, 2, 36);
    check_refused(&array, -EINVAL, words);
    array.dtype.scheme.packed_dim = UINT64_MAX;
    check_refused(&array, -EINVAL, words);
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, NONE, F32, "\4\4\4"), dims, 2, 80);
    check_refused(&array, -EINVAL, words);
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, NONE, F32, "\4\4"), dims, 2, 80);
    array.dtype.scheme.block_dims[1] = 0;
    check_refused(&array, -EINVAL, words);
    static const uint64_t many[] = {1, 1, 1, 1, 1, 1, 8};
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, NONE, F32, "\1\1\1\1\1"), many, 7, 40);
    struct bpk_f32 *f32;
    ck_assert_int_eq(bpk_f32_new(&array, &f32, NULL), 0);
    bpk_f32_free(f32);
    array.dtype.scheme.block_len = 6;
    check_refused(&array, -EINVAL, words);
    array.dtype.scheme.block_len = 255;
    check_refused(&array, -EINVAL, words);
    array = array_of(quantised(BPK_Q2S, PU32, 0, NONE, NONE, ""), wide, 2, 4);
    check_refused(&array, -EINVAL, "overflows"); /* though packed it would be countable */
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, NONE, NONE, ""), vast, 2, UINT64_MAX);
    check_refused(&array, -EINVAL, "overflows");
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, NONE, F32, "\1"), vast, 1, 8);
    check_refused(&array, -EINVAL, words); /* the scales overflow */
}

START_TEST(lengths_that_do_not_fit) {
    static const uint64_t dims[] = {4, 4};
    static const uint64_t vast[] = {UINT64_C(1) << 62, 2};
    static const uint64_t zero[] = {UINT64_C(1) << 62, 4, 0};
    struct bpk_array array = array_of(quantised(BPK_Q8S, NATIVE, 0, F16, NONE, ""), dims, 2, 20);
    check_refused(&array, -ENOTSUP,
                  "has 20 bytes, its shape and quantization scheme would give 18");
    struct bpk_dtype f16 = {.kind = BPK_F16};
    array = array_of(f16, dims, 2, 31);
    check_refused(&array, -EINVAL, "has 31 bytes, but shape [4, 4] of F16 needs 32");
    array.size = 34;
    check_refused(&array, -EINVAL, "has 34 bytes, but shape [4, 4] of F16 needs 32");
    array = array_of(f16, NULL, 0, 0);
    check_refused(&array, -EINVAL, "has 0 bytes, but shape [] of F16 needs 2");
    array = array_of(f16, vast, 2, 0);
    check_refused(&array, -EINVAL,
                  "has 0 bytes, but the size of shape [4611686018427387904, 2] "
                  "overflows");
    array = array_of(f16, zero, 3, 0);
    check_refused(&array, -EINVAL, "overflows");
}

START_TEST(memory_that_fails) {
    static const uint64_t dims[] = {8};
    struct bpk_array array = array_of(quantised(BPK_Q8S, NATIVE, 0, F32, UE4M3, "\4"), dims, 1, 14);
    int failures = 0;
    for (long n = 0;; n++) {
        struct bpk_f32 *f32 = NULL;
        struct bpk_diag diag = {0};
        failed = false;
        countdown = n;
        int r = bpk_f32_new(&array, &f32, &diag);
        countdown = -1;
        if (!failed) {
            ck_assert_int_eq(r, 0);
            bpk_f32_free(f32);
            break;
        }
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_ptr_null(f32);
        ck_assert_str_eq(diag.sentence, "out of memory");
        failures++;
    }
    ck_assert_int_ge(failures, 2);
}

/* ---- the source ------------------------------------------------------------------------------ */

static void check_failures(const struct bpk_array *array, unsigned least) {
    struct bpk_f32 *f32;
    ck_assert_int_eq(bpk_f32_new(array, &f32, NULL), 0);
    struct bytes bytes = {0};
    bytes_fill(&bytes, 0, (size_t)array->size);
    size_t count = (size_t)bpk_f32_count(f32);
    float *values = malloc(count * sizeof(*values));
    ck_assert_ptr_nonnull(values);
    struct memory memory = memory_of(&bytes);
    ck_assert_int_eq(read_range(f32, &memory, 0, count, values), 0);
    unsigned reads = memory.reads;
    ck_assert_uint_ge(reads, least);
    for (unsigned i = 0; i < reads; i++) {
        memory = memory_of(&bytes);
        memory.fail_at = (int)i;
        ck_assert_int_eq(read_range(f32, &memory, 0, count, values), -ESTALE);
        ck_assert_uint_eq(memory.reads, i);
    }
    free(values);
    bytes_clear(&bytes);
    bpk_f32_free(f32);
}

START_TEST(faults_of_the_source) {
    static const uint64_t dims[] = {50000};
    static const uint64_t rows[] = {100, 500};
    struct bpk_array array = array_of((struct bpk_dtype){.kind = BPK_F64}, dims, 1, 400000);
    check_failures(&array, 2);
    array.dtype.kind = BPK_F32;
    array.size = 200000;
    check_failures(&array, 1);
    array = array_of(quantised(BPK_Q8S, NATIVE, 0, F32, UE4M3, "\4"), dims, 1, 50000 + 12500 + 4);
    check_failures(&array, 5);
    array = array_of(quantised(BPK_Q8S, PU32, 1, NONE, F16, "\3\10"), rows, 2, 50000 + 34 * 63 * 2);
    check_failures(&array, 4);
}

int main(void) {
    Suite *suite = suite_create("f32");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, all_plain_dtypes_by_range);
    tcase_add_test(tc, without_dimensions_and_without_elements);
    tcase_add_test(tc, what_burn_does_not_dequantise);
    tcase_add_test(tc, schemes_that_fit_no_shape);
    tcase_add_test(tc, lengths_that_do_not_fit);
    tcase_add_test(tc, memory_that_fails);
    tcase_add_test(tc, faults_of_the_source);
    return suite_run(suite);
}

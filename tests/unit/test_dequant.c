/* dequant: the values of quantised tensors, whole and by range, of every scheme and form; how they
 * are read from their source (format.md 3.6). */
#include "f32kit.h"

#include "pack/dtype.h"

/* ---- the ten examples of format.md 3.6 ------------------------------------------------------- */

static const struct {
    enum bpk_quant_value value;
    int store;
    uint64_t packed_dim;
    int tensor;
    int block;
    const char *block_dims;
    uint32_t rank;
    uint64_t dims[2];
    const char *hex;
    float values[32];
} examples[] = {
    {BPK_Q8S, NATIVE, 0, NONE, NONE, "", 1, {6}, "0019334c667f e547213d", {0}}, /* by its bits */
    {BPK_Q4S,
     PU32,
     0,
     NONE,
     F16,
     "\4",
     2,
     {2, 8},
     "10325476 99abcdef 0038 003c 0040 0034",
     {0, .5F, 1, 1.5F, 4, 5, 6, 7, -14, -14, -10, -12, -.75F, -1, -.25F, -.5F}},
    {BPK_Q8S,
     NATIVE,
     0,
     F32,
     UE4M3,
     "\4",
     1,
     {8},
     "0019334c667f80ff 30 20 00004040",
     {0, 37.5F, 76.5F, 114, 38.25F, 47.625F, -48, -.375F}},
    {BPK_Q8S,
     PU32,
     1,
     F32,
     NONE,
     "",
     2,
     {4, 2},
     "01020304 fffefdfc 0000003f",
     {.5F, -.5F, 1, -1, 1.5F, -1.5F, 2, -2}},
    {BPK_Q8S,
     NATIVE,
     0,
     NONE,
     F32,
     "\2\3",
     2,
     {4, 6},
     "010101010101010101010101010101010101010101010101 0000803f 00000040 00008040 00000041",
     {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 4, 4, 4, 8, 8, 8}},
    {BPK_E2M1,
     PN,
     0,
     F32,
     UE4M3,
     "\20",
     1,
     {16},
     "1032547698badcfe 38 0000003f",
     {0, .25F, .5F, .75F, 1, 1.5F, 2, 3, -0.F, -.25F, -.5F, -.75F, -1, -1.5F, -2, -3}},
    {BPK_E4M3,
     NATIVE,
     0,
     F32,
     NONE,
     "",
     1,
     {8},
     "003801007eb87f81 0000003f",
     {0, .5F, 0.0009765625F, 0, 224, -.5F, NAN, -0.0009765625F}},
    {BPK_E5M2,
     NATIVE,
     0,
     F16,
     NONE,
     "",
     1,
     {8},
     "003c017b7cbc7dfc 0038",
     {0, .5F, 0x1p-17F, 28672, INFINITY, -.5F, NAN, -INFINITY}},
    {BPK_Q8S,
     NATIVE,
     0,
     NONE,
     BF16,
     "\4",
     2,
     {2, 5},
     "0102030405060708090a 803f 0040 8040 0041",
     {1, 2, 3, 4, 10, 24, 28, 32, 36, 80}},
    {BPK_Q2F, PU32, 1, BF16, NONE, "", 2, {16, 2}, "e4e4e4e4 1b1b1b1b 803f", {0,  -1, 1,  -2, -2,
                                                                              1,  -1, 0,  0,  -1,
                                                                              1,  -2, -2, 1,  -1,
                                                                              0,  0,  -1, 1,  -2,
                                                                              -2, 1,  -1, 0,  0,
                                                                              -1, 1,  -2, -2, 1,
                                                                              -1, 0}},
};

START_TEST(examples_of_the_format) {
    static const uint32_t first[] = {0x00000000, 0x3f7c0056, 0x4000854a,
                                     0x403f8560, 0x4080854a, 0x40a00555};
    struct bytes bytes = bytes_from_hex(examples[_i].hex);
    struct bpk_dtype dtype =
        quantised(examples[_i].value, examples[_i].store, examples[_i].packed_dim,
                  examples[_i].tensor, examples[_i].block, examples[_i].block_dims);
    struct bpk_array array = array_of(dtype, examples[_i].dims, examples[_i].rank, bytes.len);
    struct bpk_f32 *f32;
    struct bpk_diag diag = {0};
    ck_assert_msg(bpk_f32_new(&array, &f32, &diag) == 0, "%s", diag.sentence);
    size_t count = (size_t)bpk_f32_count(f32);
    float values[32];
    ck_assert_uint_le(count, 32);
    struct memory memory = memory_of(&bytes);
    ck_assert_int_eq(read_range(f32, &memory, 0, count, values), 0);
    for (size_t i = 0; i < count; i++) {
        float expected = examples[_i].values[i];
        if (_i == 0)
            memcpy(&expected, &first[i], sizeof(expected));
        ck_assert_msg(same(values[i], expected), "%zu: %a, not %a", i, (double)values[i],
                      (double)expected);
    }
    bpk_f32_free(f32);
    bytes_clear(&bytes);
}

/* ---- an independent reading, value by value -------------------------------------------------- */

static float small_float(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
    int mantissa = (int)(code & ((1U << mantissa_bits) - 1));
    int exponent = (int)(code >> mantissa_bits & ((1U << exponent_bits) - 1));
    float sign = code >> (mantissa_bits + exponent_bits) & 1 ? -1 : 1;
    if (exponent == 0)
        return sign * ldexpf((float)mantissa, 1 - bias - mantissa_bits);
    return sign * ldexpf((float)(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
}

static float e4m3(unsigned code) {
    return (code & 0x7f) == 0x7f ? NAN : small_float(code, 4, 3, 7);
}

static float with_infinity(unsigned code, int mantissa_bits) {
    unsigned magnitude = code & ((32U << mantissa_bits) - 1);
    if (magnitude > 31U << mantissa_bits)
        return NAN;
    if (magnitude == 31U << mantissa_bits)
        return code > magnitude ? -INFINITY : INFINITY;
    return small_float(code, 5, mantissa_bits, 15);
}

static float scale_at(const uint8_t *bytes, enum bpk_scale scale, uint64_t index) {
    const uint8_t *at = bytes + index * bpk_scale_size(scale);
    uint32_t word = 0;
    float value;
    memcpy(&word, at, bpk_scale_size(scale));
    switch (scale) {
    case BPK_SCALE_F16:
        return with_infinity(word, 10);
    case BPK_SCALE_UE8M0:
        return word == 255 ? NAN : ldexpf(1, (int)word - 127);
    case BPK_SCALE_UE4M3:
        return e4m3(word);
    default:
        word <<= scale == BPK_SCALE_BF16 ? 16 : 0;
        memcpy(&value, &word, sizeof(value));
        return value;
    }
}

static float stored_value(enum bpk_quant_value value, unsigned code, unsigned bits) {
    if (value == BPK_E4M3)
        return e4m3(code);
    if (value == BPK_E5M2)
        return with_infinity(code, 2);
    if (value == BPK_E2M1)
        return small_float(code, 2, 1, 1);
    return (float)(code >> (bits - 1) ? (int)code - (1 << bits) : (int)code);
}

/* Element `index`, by the sentences of format.md 3.6. `scale`: the dtype the scales really have. */
static float defined(const struct bpk_array *array, const uint8_t *bytes, enum bpk_scale scale,
                     uint64_t index) {
    const struct bpk_scheme *scheme = &array->dtype.scheme;
    struct bpk_scheme_parts parts;
    HOLDS(bpk_scheme_split(scheme, array->dims, array->rank, &parts));
    uint64_t coords[8] = {0};
    for (uint32_t i = array->rank; i-- > 0; index /= array->dims[i])
        coords[i] = index % array->dims[i];
    uint64_t per_element = parts.element_bits / parts.value_bits;
    uint64_t element = 0;
    uint64_t lane = 0;
    uint64_t block = 0;
    for (uint32_t i = 0; i < array->rank; i++) {
        uint64_t at = coords[i];
        uint64_t dim = array->dims[i];
        if (per_element > 1 && i == array->rank - 1 - scheme->packed_dim) {
            lane = at % per_element;
            at /= per_element;
            dim = (dim + per_element - 1) / per_element;
        }
        element = element * dim + at;
        if (scheme->has_block) {
            uint64_t along = bpk_scheme_block(scheme, array->rank, i);
            block = block * ((array->dims[i] + along - 1) / along) + coords[i] / along;
        }
    }
    unsigned bits = per_element == 1 ? 8 : parts.value_bits;
    unsigned element_size = (parts.element_bits + 7) / 8;
    uint32_t word = 0;
    memcpy(&word, bytes + element * element_size, element_size);
    unsigned code = word >> lane * bits & ((1U << bits) - 1);
    float s = scale_at(bytes + parts.value_bytes, scale, block);
    if (scheme->has_block && scheme->has_tensor)
        s *= scale_at(bytes + parts.value_bytes + parts.scales * bpk_scale_size(scale),
                      BPK_SCALE_F32, 0);
    return s * stored_value(scheme->value, code, bits);
}

/* ---- ranges
 * -------------------------------------------------------------------------------------- */

static void check_scheme(const struct bpk_array *array, enum bpk_scale scale, uint64_t *seed) {
    struct bpk_f32 *f32;
    struct bpk_diag diag;
    int r = bpk_f32_new(array, &f32, &diag);
    if (r != 0)
        ck_abort_msg("%s", diag.sentence);
    struct bytes bytes = noise(array->size, seed);
    struct memory memory = memory_of(&bytes);
    size_t count = (size_t)bpk_f32_count(f32);
    float *whole = malloc(count * sizeof(*whole) + 1);
    ck_assert_ptr_nonnull(whole);
    HOLDS(read_range(f32, &memory, 0, count, whole) == 0);
    for (size_t i = 0; i < count; i++)
        HOLDS(same(whole[i], defined(array, bytes.data, scale, i)));
    check_ranges(f32, &memory, whole, seed);
    free(whole);
    bytes_clear(&bytes);
    bpk_f32_free(f32);
}

static const struct {
    enum bpk_quant_value value;
    int store;
} stored[] = {
    {BPK_Q8F, NATIVE}, {BPK_Q8S, NATIVE}, {BPK_Q4F, NATIVE},  {BPK_Q4S, NATIVE},  {BPK_Q2F, NATIVE},
    {BPK_Q2S, NATIVE}, {BPK_Q8F, PU32},   {BPK_Q8S, PU32},    {BPK_Q4F, PU32},    {BPK_Q4S, PU32},
    {BPK_Q2F, PU32},   {BPK_Q2S, PU32},   {BPK_E4M3, NATIVE}, {BPK_E5M2, NATIVE}, {BPK_E2M1, PN},
};

/* Random shapes with random blocks, packed dimensions and scales; the last dimensions are often 1
 * or multiples of what is packed, so that dimensions merge. */
START_TEST(random_schemes_and_ranges) {
    uint64_t seed = (uint64_t)_i;
    for (int k = 0; k < 150; k++) {
        static const uint8_t sizes[] = {1, 1, 2, 3, 4, 5, 8, 16, 16, 17, 32, 7};
        uint32_t rank = (uint32_t)(suite_random(&seed) % 5);
        uint64_t dims[5];
        uint64_t count = 1;
        for (uint32_t i = 0; i < rank; i++) {
            dims[i] = sizes[suite_random(&seed) % sizeof(sizes)];
            dims[i] = count * dims[i] > 3000 ? 1 : dims[i];
            dims[i] = suite_random(&seed) % 60 == 0 ? 0 : dims[i];
            count *= dims[i];
        }
        bool has_block = suite_random(&seed) % 4 != 0;
        bool has_tensor = suite_random(&seed) % 2;
        enum bpk_scale tensor =
            has_block ? BPK_SCALE_F32 : (enum bpk_scale)(suite_random(&seed) % 5);
        enum bpk_scale block = (enum bpk_scale)(suite_random(&seed) % 5);
        struct bpk_dtype dtype =
            quantised(stored[_i].value, stored[_i].store, rank ? suite_random(&seed) % rank : 3,
                      has_tensor ? (int)tensor : NONE, has_block ? (int)block : NONE, "");
        struct bpk_scheme *scheme = &dtype.scheme;
        if (has_block)
            scheme->block_len = (uint8_t)(suite_random(&seed) % (rank + 1));
        for (int i = 0; i < scheme->block_len; i++)
            scheme->block_dims[i] = sizes[suite_random(&seed) % sizeof(sizes)];
        uint64_t size;
        HOLDS(bpk_scheme_length(scheme, dims, rank, &size));
        struct bpk_array array = array_of(dtype, dims, rank, size);
        check_scheme(&array, has_block ? block : has_tensor ? tensor : BPK_SCALE_F32, &seed);
    }
}

/* Larger than the windows, in one dimension and in rows that cross their ends. */
START_TEST(large_tensors) {
    static const uint64_t line[] = {140000};
    static const uint64_t rows[] = {9, 20011};
    uint64_t seed = (uint64_t)_i;
    for (int two = 0; two < 2; two++) {
        const uint64_t *dims = two ? rows : line;
        uint32_t rank = two ? 2 : 1;
        for (uint64_t packed_dim = 0; packed_dim < rank; packed_dim++) {
            struct bpk_dtype dtype = quantised(stored[_i].value, stored[_i].store, packed_dim,
                                               BPK_SCALE_F32, BPK_SCALE_F16, two ? "\2\5" : "\7");
            uint64_t size;
            HOLDS(bpk_scheme_length(&dtype.scheme, dims, rank, &size));
            struct bpk_array array = array_of(dtype, dims, rank, size);
            check_scheme(&array, BPK_SCALE_F16, &seed);
        }
    }
}

/* ---- older forms ----------------------------------------------------------------------------- */

START_TEST(older_forms) {
    static const uint64_t dims[] = {4, 16};
    uint64_t seed = 5;
    for (int scale = F32; scale <= UE4M3; scale++) {
        unsigned size = bpk_scale_size((enum bpk_scale)scale);
        const struct {
            struct bpk_dtype dtype;
            uint64_t values;
            uint64_t scales;
        } cases[] = {
            {quantised(BPK_Q8S, NATIVE, 0, scale, NONE, ""), 64, 1},
            {quantised(BPK_Q4F, U32, 0, scale, NONE, ""), 32, 1},
            {quantised(BPK_Q2S, PU32, 0, scale, NONE, ""), 16, 1},
            {quantised(BPK_Q4S, PU32, 1, NONE, scale, "\10"), 64, 8},
            {quantised(BPK_Q8F, U32, 0, NONE, scale, "\2\20"), 64, 2},
        };
        for (int i = 0; i < ROWS(cases); i++) {
            struct bpk_dtype dtype = levelled(cases[i].dtype);
            struct bpk_array array =
                array_of(dtype, dims, 2, cases[i].values + cases[i].scales * size);
            check_scheme(&array, (enum bpk_scale)scale, &seed);
            array.size = cases[i].values + cases[i].scales * 4;
            check_scheme(&array, BPK_SCALE_F32, &seed);
            struct bpk_f32 *f32;
            array.size++;
            ck_assert_int_eq(bpk_f32_new(&array, &f32, NULL), -ENOTSUP);
        }
    }
}

/* Rectangles and runs of as many values are the same, or are refused. */
START_TEST(blocks_of_older_forms) {
    static const struct {
        const char *block;
        uint32_t rank;
        uint64_t dims[4];
        bool good;
    } cases[] = {
        {"\4", 2, {2, 8}, true},        {"\4", 2, {2, 5}, false},
        {"\4", 1, {5}, true},           {"\4", 2, {1, 5}, true},
        {"\2\10", 2, {4, 8}, true},     {"\2\10", 2, {5, 8}, true},
        {"\2\4", 2, {4, 8}, false},     {"\2\11", 2, {4, 8}, false},
        {"\5\11", 2, {4, 8}, true},     {"\1\4", 2, {4, 8}, true},
        {"\2\3\4", 3, {4, 3, 4}, true}, {"\2\3\4", 3, {4, 6, 4}, false},
        {"\1\3\4", 3, {4, 6, 4}, true}, {"\4", 3, {3, 1, 4}, true},
        {"\2\1\4", 3, {4, 1, 4}, true}, {"\2\2\4", 3, {4, 1, 4}, false},
        {"\2", 4, {2, 1, 2, 1}, false}, {"\2\1", 4, {2, 1, 2, 1}, true},
        {"\2\4", 3, {0, 4, 8}, true},
    };
    for (int i = 0; i < ROWS(cases); i++) {
        struct bpk_dtype dtype = levelled(quantised(BPK_Q8S, NATIVE, 0, NONE, F32, cases[i].block));
        uint64_t size;
        ck_assert(bpk_scheme_length(&dtype.scheme, cases[i].dims, cases[i].rank, &size));
        struct bpk_array array = array_of(dtype, cases[i].dims, cases[i].rank, size);
        struct bpk_diag diag = {0};
        struct bpk_f32 *f32 = NULL;
        int r = bpk_f32_new(&array, &f32, &diag);
        ck_assert_msg(r == (cases[i].good ? 0 : -ENOTSUP), "%d: %d %s", i, r, diag.sentence);
        if (r != 0)
            ck_assert_ptr_nonnull(strstr(diag.sentence, "two ways"));
        bpk_f32_free(f32);
        array.dtype.scheme.form = BPK_SCHEME_SCALED;
        ck_assert_int_eq(bpk_f32_new(&array, &f32, NULL), 0);
        bpk_f32_free(f32);
    }
}

/* What one read of values costs of the source: not a read for each row, not the whole tensor. */
START_TEST(reads_are_few_and_small) {
    static const uint64_t rows[] = {4096, 16};
    static const uint64_t cube[] = {64, 3, 1024};
    static const struct {
        int store;
        uint64_t packed_dim;
        const char *block;
        uint32_t rank;
        const uint64_t *dims;
    } cases[] = {
        {NATIVE, 0, "\4", 2, rows},    {NATIVE, 0, "\1\5", 2, rows}, {NATIVE, 0, "\7\5", 2, rows},
        {PU32, 1, "\4\3", 2, rows},    {PU32, 0, "\4\3", 2, rows},   {NATIVE, 0, "\2\3\4", 3, cube},
        {PU32, 2, "\2\2\40", 3, cube}, {PU32, 1, "\100\1", 3, cube},
    };
    for (int i = 0; i < ROWS(cases); i++) {
        struct bpk_dtype dtype =
            quantised(BPK_Q8S, cases[i].store, cases[i].packed_dim, NONE, UE4M3, cases[i].block);
        uint64_t size;
        ck_assert(bpk_scheme_length(&dtype.scheme, cases[i].dims, cases[i].rank, &size));
        struct bpk_array array = array_of(dtype, cases[i].dims, cases[i].rank, size);
        struct bpk_f32 *f32;
        ck_assert_int_eq(bpk_f32_new(&array, &f32, NULL), 0);
        struct bytes bytes = {0};
        bytes_fill(&bytes, 1, (size_t)size);
        size_t count = (size_t)bpk_f32_count(f32);
        float *values = malloc(count * sizeof(*values));
        ck_assert_ptr_nonnull(values);
        struct memory memory = memory_of(&bytes);
        ck_assert_int_eq(read_range(f32, &memory, 0, count, values), 0);
        ck_assert_uint_le(memory.reads, 50);
        ck_assert_uint_le(memory.bytes_read, 3 * size);
        for (size_t first = 0; first < count; first += 997) {
            memory = memory_of(&bytes);
            ck_assert_int_eq(read_range(f32, &memory, first, 1, values), 0);
            ck_assert_uint_eq(memory.reads, 2);
            ck_assert_uint_le(memory.bytes_read, 5);
        }
        free(values);
        bytes_clear(&bytes);
        bpk_f32_free(f32);
    }
}

START_TEST(a_range_reads_its_own_bytes) {
    static const uint64_t dims[] = {64, 1024};
    struct bpk_dtype dtype = quantised(BPK_Q4S, PU32, 0, NONE, F16, "\40");
    struct bpk_array array = array_of(dtype, dims, 2, 32768 + 2048 * 2);
    struct bytes bytes = {0};
    bytes_fill(&bytes, 1, (size_t)array.size);
    struct bpk_f32 *f32;
    ck_assert_int_eq(bpk_f32_new(&array, &f32, NULL), 0);
    float values[2000];
    struct memory memory = memory_of(&bytes);
    ck_assert_int_eq(read_range(f32, &memory, 3200, 2000, values), 0);
    ck_assert_uint_eq(memory.reads, 2);
    ck_assert_uint_eq(memory.bytes_read, 1000 + 63 * 2);
    bpk_f32_free(f32);
    bytes_clear(&bytes);
}

int main(void) {
    Suite *suite = suite_create("dequant");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, examples_of_the_format, 0, ROWS(examples));
    tcase_add_loop_test(tc, random_schemes_and_ranges, 0, ROWS(stored));
    tcase_add_loop_test(tc, large_tensors, 0, ROWS(stored));
    tcase_add_test(tc, older_forms);
    tcase_add_test(tc, blocks_of_older_forms);
    tcase_add_test(tc, reads_are_few_and_small);
    tcase_add_test(tc, a_range_reads_its_own_bytes);
    return suite_run(suite);
}

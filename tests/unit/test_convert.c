/* convert: every code of the small floats, rounding of wide numbers, packed values, at any
 * alignment and count (format.md 3.3, 3.6). */
#include "view/convert.h"

#include "suite.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static bpk_convert_fn *plain(enum bpk_kind kind) {
    struct bpk_dtype dtype = {.kind = kind};
    return bpk_convert_for_dtype(&dtype);
}

static float one(bpk_convert_fn *convert, const void *bytes) {
    float value;
    convert(bytes, 1, &value);
    return value;
}

/* ---- small floats ---------------------------------------------------------------------------- */

/* A float by its definition. `bias` and widths in bits; NaNs and infinities are not its matter. */
static double defined(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
    int mantissa = (int)(code & ((1U << mantissa_bits) - 1));
    int exponent = (int)(code >> mantissa_bits & ((1U << exponent_bits) - 1));
    double sign = code >> (mantissa_bits + exponent_bits) & 1 ? -1 : 1;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void check_exact(float value, double expected) {
    HOLDS((double)value == expected);
    HOLDS(!signbit(value) == !signbit(expected));
}

START_TEST(every_f16) {
    static uint16_t codes[65536];
    static float values[65536];
    for (unsigned i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    plain(BPK_F16)((const uint8_t *)codes, 65536, values);
    for (unsigned i = 0; i < 65536; i++) {
        if ((i & 0x7c00) == 0x7c00) /* infinity, or a NaN that keeps its payload */
            HOLDS(bits_of(values[i]) == ((i & 0x8000) << 16 | 0x7f800000 | (i & 0x3ff) << 13));
        else
            check_exact(values[i], defined(i, 5, 10, 15));
        HOLDS(bits_of(one(plain(BPK_F16), &codes[i])) == bits_of(values[i]));
    }
    bpk_convert_for_scale(BPK_SCALE_F16)((const uint8_t *)codes, 1024, values);
    for (unsigned i = 0; i < 1024; i++)
        check_exact(values[i], ldexp(i, -24));
}

START_TEST(every_bf16) {
    for (unsigned i = 0; i < 65536; i++) {
        uint16_t code = (uint16_t)i;
        HOLDS(bits_of(one(plain(BPK_BF16), &code)) == i << 16);
        HOLDS(bits_of(one(bpk_convert_for_scale(BPK_SCALE_BF16), &code)) == i << 16);
    }
}

START_TEST(every_float_of_8_bits) {
    for (unsigned i = 0; i < 256; i++) {
        uint8_t code = (uint8_t)i;
        float e4m3 = one(bpk_convert_for_value(BPK_E4M3), &code);
        float scale = one(bpk_convert_for_scale(BPK_SCALE_UE4M3), &code);
        if ((i & 0x7f) == 0x7f)
            HOLDS(isnan(e4m3) && isnan(scale));
        else
            check_exact(e4m3, defined(i, 4, 3, 7));
        HOLDS(bits_of(scale) == bits_of(e4m3));
        float e5m2 = one(bpk_convert_for_value(BPK_E5M2), &code);
        if ((i & 0x7f) == 0x7c)
            HOLDS(isinf(e5m2) && !signbit(e5m2) == (i < 128));
        else if ((i & 0x7f) > 0x7c)
            HOLDS(isnan(e5m2));
        else
            check_exact(e5m2, defined(i, 5, 2, 15));
        float ue8m0 = one(bpk_convert_for_scale(BPK_SCALE_UE8M0), &code);
        if (i == 255)
            HOLDS(isnan(ue8m0));
        else
            check_exact(ue8m0, ldexp(1, (int)i - 127));
    }
}

START_TEST(floats_stay_as_they_are) {
    static const uint32_t codes[] = {0,          0x80000000, 1,          0x7f7fffff, 0x7f800000,
                                     0x7f800001, 0xffbfffff, 0x7fc12345, 0x3f800000};
    for (int i = 0; i < ROWS(codes); i++) {
        float value[1];
        plain(BPK_F32)((const uint8_t *)&codes[i], 1, value);
        ck_assert_mem_eq(value, &codes[i], 4);
        plain(BPK_FLEX32)((const uint8_t *)&codes[i], 1, value);
        ck_assert_mem_eq(value, &codes[i], 4);
        bpk_convert_for_scale(BPK_SCALE_F32)((const uint8_t *)&codes[i], 1, value);
        ck_assert_mem_eq(value, &codes[i], 4);
    }
}

/* ---- rounding -------------------------------------------------------------------------------- */

static const struct {
    double wide;
    uint32_t bits;
} roundings[] = {
    {0.0, 0},
    {-0.0, 0x80000000},
    {1.0, 0x3f800000},
    {1.0 + 0x1p-24, 0x3f800000}, /* ties, to even */
    {1.0 + 0x3p-24, 0x3f800002},
    {1.0 + 0x1p-24 + 0x1p-52, 0x3f800001},
    {-1.0 - 0x3p-24, 0xbf800002},
    {0x1p-149, 1},
    {0x1p-150, 0},
    {0x1.8p-149, 2},
    {0x1.8p-150, 1},
    {0x1.fffffep127, 0x7f7fffff},
    {0x1.fffffefffffffp127, 0x7f7fffff},
    {0x1.ffffffp127, 0x7f800000},
    {1e300, 0x7f800000},
    {-1e300, 0xff800000},
    {INFINITY, 0x7f800000},
    {-INFINITY, 0xff800000},
};

START_TEST(f64_rounds_to_even) {
    ck_assert_uint_eq(bits_of(one(plain(BPK_F64), &roundings[_i].wide)), roundings[_i].bits);
    double nan = NAN;
    ck_assert(isnan(one(plain(BPK_F64), &nan)));
}

/* x rounded to 24 bits, ties to even, by integers alone. */
static double rounded(uint64_t x) {
    int shift = 0;
    while (x >> shift >> 24)
        shift++;
    if (shift == 0)
        return (double)x;
    uint64_t kept = x >> shift;
    uint64_t rest = x & ((UINT64_C(1) << shift) - 1);
    uint64_t half = UINT64_C(1) << (shift - 1);
    kept += rest > half || (rest == half && kept % 2 == 1);
    return ldexp((double)kept, shift);
}

static void check_integer(uint64_t x) {
    HOLDS((double)one(plain(BPK_U64), &x) == rounded(x));
    int64_t i64 = (int64_t)x;
    double magnitude = rounded(i64 < 0 ? -x : x);
    HOLDS((double)one(plain(BPK_I64), &i64) == (i64 < 0 ? -magnitude : magnitude));
    uint32_t u32 = (uint32_t)x;
    HOLDS((double)one(plain(BPK_U32), &u32) == rounded(u32));
    int32_t i32 = (int32_t)x;
    magnitude = rounded(i32 < 0 ? -(uint64_t)i32 : (uint64_t)i32);
    HOLDS((double)one(plain(BPK_I32), &i32) == (i32 < 0 ? -magnitude : magnitude));
}

START_TEST(integers_round_to_even) {
    uint64_t seed = 1;
    for (int k = 0; k < 64; k++)
        for (int d = -3; d <= 3; d++)
            check_integer((UINT64_C(1) << k) + (uint64_t)d);
    for (int k = 24; k < 64; k++) /* ties, and what lies next to them */
        for (uint64_t d = 0; d < 9; d++)
            check_integer((UINT64_C(1) << k) + (d / 3 << (k - 24)) + d % 3 - 1);
    for (int i = 0; i < 100000; i++) {
        uint64_t x = suite_random(&seed);
        check_integer(x >> (x % 64));
    }
}

START_TEST(small_integers_are_exact) {
    for (int i = 0; i < 65536; i++) {
        uint16_t code = (uint16_t)i;
        HOLDS(one(plain(BPK_U16), &code) == (float)i);
        HOLDS(one(plain(BPK_I16), &code) == (float)(i < 32768 ? i : i - 65536));
    }
    for (int i = 0; i < 256; i++) {
        uint8_t code = (uint8_t)i;
        float as_signed = (float)(i < 128 ? i : i - 256);
        HOLDS(one(plain(BPK_U8), &code) == (float)i);
        HOLDS(one(plain(BPK_I8), &code) == as_signed);
        HOLDS(one(plain(BPK_BOOL), &code) == (i ? 1.0F : 0.0F));
        static const enum bpk_quant_value whole[] = {BPK_Q8F, BPK_Q8S, BPK_Q4F,
                                                     BPK_Q4S, BPK_Q2F, BPK_Q2S};
        for (int k = 0; k < ROWS(whole); k++)
            HOLDS(one(bpk_convert_for_value(whole[k]), &code) == as_signed);
    }
}

START_TEST(bools_of_every_store) {
    for (int store = BPK_BOOL_TEXT; store <= BPK_BOOL_U32; store++) {
        struct bpk_dtype dtype = {.kind = BPK_BOOL, .bool_store = (enum bpk_bool_store)store};
        static const uint8_t bytes[] = {0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0};
        float values[3];
        bpk_convert_for_dtype (&dtype)(bytes, 3, values);
        bool wide = store == BPK_BOOL_U32;
        ck_assert(values[0] == 0.0F);
        ck_assert(values[1] == (wide ? 1.0F : 0.0F));
        ck_assert(values[2] == (wide ? 1.0F : 0.0F));
    }
}

/* ---- any alignment, any count ---------------------------------------------------------------- */

enum { MOST = 70, SLACK = 8 };

/* A loop over many is the same as one by one, and writes nothing else. */
static void check_loop(bpk_convert_fn *convert, size_t size) {
    uint8_t bytes[MOST * 8 + SLACK];
    uint64_t seed = size;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)suite_random(&seed);
    for (size_t shift = 0; shift < SLACK; shift++) {
        for (size_t count = 0; count <= MOST; count++) {
            float values[MOST + 1];
            values[count] = 42;
            convert(bytes + shift, count, values);
            HOLDS(values[count] == 42);
            for (size_t i = 0; i < count; i++) {
                float value = one(convert, bytes + shift + i * size);
                HOLDS(bits_of(value) == bits_of(values[i]) || (isnan(value) && isnan(values[i])));
            }
        }
    }
}

START_TEST(loops_over_dtypes) {
    for (int kind = BPK_F64; kind <= BPK_BOOL; kind++) {
        struct bpk_dtype dtype = {.kind = (enum bpk_kind)kind};
        check_loop(bpk_convert_for_dtype(&dtype), bpk_dtype_size(&dtype));
    }
    struct bpk_dtype wide = {.kind = BPK_BOOL, .bool_store = BPK_BOOL_U32};
    check_loop(bpk_convert_for_dtype(&wide), 4);
    check_loop(bpk_convert_for_value(BPK_E4M3), 1);
    check_loop(bpk_convert_for_value(BPK_E5M2), 1);
    check_loop(bpk_convert_for_scale(BPK_SCALE_UE8M0), 1);
}

/* ---- packed ---------------------------------------------------------------------------------- */

/* The value of a packed code by the tables of format.md 3.6. */
static float packed_value(enum bpk_quant_value value, unsigned code) {
    static const float e2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    switch (value) {
    case BPK_E2M1:
        return code < 8 ? e2m1[code] : -e2m1[code - 8];
    case BPK_Q2F:
    case BPK_Q2S:
        return (float)(code < 2 ? (int)code : (int)code - 4);
    case BPK_Q4F:
    case BPK_Q4S:
        return (float)(code < 8 ? (int)code : (int)code - 16);
    default:
        return (float)(code < 128 ? (int)code : (int)code - 256);
    }
}

static const struct {
    enum bpk_quant_value value;
    unsigned bits;
    unsigned element; /* bytes, where a lane is picked */
} packings[] = {
    {BPK_Q8F, 8, 4}, {BPK_Q8S, 8, 4}, {BPK_Q4F, 4, 4},  {BPK_Q4S, 4, 4},
    {BPK_Q2F, 2, 4}, {BPK_Q2S, 2, 4}, {BPK_E2M1, 4, 1},
};

static unsigned field(const uint8_t *bytes, size_t index, unsigned bits) {
    return bytes[index * bits / 8] >> index * bits % 8 & ((1U << bits) - 1);
}

START_TEST(packed_values) {
    unsigned bits = packings[_i].bits;
    unsigned element = packings[_i].element;
    unsigned lanes = element * 8 / bits;
    uint8_t bytes[4 * MOST];
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i < 256 ? i : suite_random(&seed));
    for (size_t count = 0; count <= MOST; count++) {
        float values[MOST + 1];
        for (unsigned lane = 0; lane < lanes; lane++) {
            values[count] = 42;
            bpk_unpack_for_lane(packings[_i].value)(bytes, lane, count, values);
            HOLDS(values[count] == 42);
            for (size_t i = 0; i < count; i++)
                HOLDS(bits_of(values[i]) ==
                      bits_of(
                          packed_value(packings[_i].value, field(bytes, i * lanes + lane, bits))));
        }
        for (unsigned lane = 0; bits < 8 && lane < 8 / bits; lane++) {
            values[count] = 42;
            bpk_unpack_for_neighbours(packings[_i].value)(bytes, lane, count, values);
            HOLDS(values[count] == 42);
            for (size_t i = 0; i < count; i++)
                HOLDS(bits_of(values[i]) ==
                      bits_of(packed_value(packings[_i].value, field(bytes, lane + i, bits))));
        }
    }
}

START_TEST(every_packed_code) {
    for (int i = 0; i < ROWS(packings); i++) {
        for (unsigned code = 0; code < 1U << packings[i].bits; code++) {
            uint8_t bytes[4] = {(uint8_t)code};
            float value;
            bpk_unpack_for_lane(packings[i].value)(bytes, 0, 1, &value);
            HOLDS(bits_of(value) == bits_of(packed_value(packings[i].value, code)));
        }
    }
}

START_TEST(scales_of_blocks) {
    static const float scales[] = {2, 3, 5, 7, 11, 13, 17, 19};
    for (uint64_t block = 1; block <= 9; block++) {
        for (uint64_t done = 0; done < block; done++) {
            for (size_t count = 0; (done + count) <= block * 8; count++) {
                float values[9 * 8 + 1];
                for (size_t i = 0; i <= count; i++)
                    values[i] = (float)i;
                bpk_convert_scale(values, count, done, block, scales);
                for (size_t i = 0; i < count; i++)
                    HOLDS(values[i] == (float)i * scales[(done + i) / block]);
                HOLDS(values[count] == (float)count);
            }
        }
    }
}

int main(void) {
    Suite *suite = suite_create("convert");
    TCase *tc = suite_case(suite, "all");
    tcase_add_test(tc, every_f16);
    tcase_add_test(tc, every_bf16);
    tcase_add_test(tc, every_float_of_8_bits);
    tcase_add_test(tc, floats_stay_as_they_are);
    tcase_add_loop_test(tc, f64_rounds_to_even, 0, ROWS(roundings));
    tcase_add_test(tc, integers_round_to_even);
    tcase_add_test(tc, small_integers_are_exact);
    tcase_add_test(tc, bools_of_every_store);
    tcase_add_test(tc, loops_over_dtypes);
    tcase_add_loop_test(tc, packed_values, 0, ROWS(packings));
    tcase_add_test(tc, every_packed_code);
    tcase_add_test(tc, scales_of_blocks);
    return suite_run(suite);
}

#include "view/convert.h"

#include <string.h>

/* A second version of each loop for processors with AVX2, chosen when the program starts. */
#if defined(BPK_CLONE_LOOPS) && defined(__x86_64__) && defined(__GLIBC__) &&                       \
    defined(__has_attribute)
#if __has_attribute(target_clones)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef VECTORISED
#define VECTORISED
#endif

#define LOAD(type, bytes)                                                                          \
    ({                                                                                             \
        type loaded_;                                                                              \
        memcpy(&loaded_, bytes, sizeof(loaded_));                                                  \
        loaded_;                                                                                   \
    })

static inline float float_of(uint32_t bits) {
    return LOAD(float, &bits);
}

/* ---- small floats ---------------------------------------------------------------------------- */

/* The bits of a float without its sign. `lowest` is the smallest subnormal number; infinities and
 * NaN are the callers'. Without branches, so that loops over it can be vectorised. */
static inline uint32_t widen(uint32_t magnitude, unsigned mantissa_bits, unsigned bias,
                             float lowest) {
    uint32_t normal = (magnitude << (23 - mantissa_bits)) + ((127 - bias) << 23);
    float subnormal = (float)(int32_t)magnitude * lowest;
    return magnitude >> mantissa_bits ? normal : LOAD(uint32_t, &subnormal);
}

static inline float from_f16(uint16_t x) {
    uint32_t magnitude = x & 0x7fff;
    uint32_t bits = widen(magnitude, 10, 15, 0x1p-24F);
    bits += magnitude >= 0x7c00 ? UINT32_C(112) << 23 : 0; /* to the exponent of infinity */
    return float_of((uint32_t)(x & 0x8000) << 16 | bits);
}

static inline float from_bf16(uint16_t x) {
    return float_of((uint32_t)x << 16);
}

static inline float from_e4m3(uint8_t x) {
    uint32_t magnitude = x & 0x7f;
    uint32_t bits = widen(magnitude, 3, 7, 0x1p-9F);
    bits = magnitude == 0x7f ? 0x7fc00000 : bits;
    return float_of((uint32_t)(x & 0x80) << 24 | bits);
}

/* F16 without its last 8 bits. */
static inline float from_e5m2(uint8_t x) {
    return from_f16((uint16_t)(x << 8));
}

static inline float from_e2m1(unsigned x) {
    return float_of((uint32_t)(x & 8) << 28 | widen(x & 7, 1, 1, 0.5F));
}

static inline float from_ue8m0(uint8_t x) {
    uint32_t bits = (uint32_t)x << 23;
    bits = x == 0 ? 0x00400000 : bits; /* 2^-127 */
    return float_of(x == 0xff ? 0x7fc00000 : bits);
}

/* The lowest `bits` bits in two's complement. */
static inline int32_t sign_extend(uint32_t x, unsigned bits) {
    return (int32_t)(x << (32 - bits)) >> (32 - bits);
}

/* Processors convert signed numbers alone, and compilers branch on the highest bit: here it is
 * halved, the bit that falls out stays for the rounding. */
static inline float from_u64(uint64_t x) {
    uint64_t high = x >> 63;
    return (float)(int64_t)(x >> high | (x & high)) * (float)(int64_t)(1 + high);
}

/* ---- side by side ---------------------------------------------------------------------------- */

/* A loop over numbers of a type; `expression` makes a float of `x`. */
#define CONVERT(name, type, expression)                                                            \
    VECTORISED static void name(const uint8_t *restrict bytes, size_t count,                       \
                                float *restrict values) {                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            type x = LOAD(type, bytes + i * sizeof(type));                                         \
            values[i] = (expression);                                                              \
        }                                                                                          \
    }

CONVERT(convert_f64, double, (float)x)
CONVERT(convert_f16, uint16_t, from_f16(x))
CONVERT(convert_bf16, uint16_t, from_bf16(x))
CONVERT(convert_i64, int64_t, (float)x)
CONVERT(convert_i32, int32_t, (float)x)
CONVERT(convert_i16, int16_t, x)
CONVERT(convert_i8, int8_t, x)
CONVERT(convert_u64, uint64_t, from_u64(x))
CONVERT(convert_u32, uint32_t, (float)x)
CONVERT(convert_u16, uint16_t, x)
CONVERT(convert_u8, uint8_t, x)
CONVERT(convert_bool, uint8_t, x != 0)
CONVERT(convert_wide_bool, uint32_t, x != 0)
CONVERT(convert_e4m3, uint8_t, from_e4m3(x))
CONVERT(convert_e5m2, uint8_t, from_e5m2(x))
CONVERT(convert_ue8m0, uint8_t, from_ue8m0(x))

static void convert_f32(const uint8_t *bytes, size_t count, float *values) {
    memcpy(values, bytes, count * sizeof(*values));
}

bpk_convert_fn *bpk_convert_for_dtype(const struct bpk_dtype *dtype) {
    static bpk_convert_fn *const of_kinds[] = {
        [BPK_F64] = convert_f64, [BPK_F32] = convert_f32,   [BPK_FLEX32] = convert_f32,
        [BPK_F16] = convert_f16, [BPK_BF16] = convert_bf16, [BPK_I64] = convert_i64,
        [BPK_I32] = convert_i32, [BPK_I16] = convert_i16,   [BPK_I8] = convert_i8,
        [BPK_U64] = convert_u64, [BPK_U32] = convert_u32,   [BPK_U16] = convert_u16,
        [BPK_U8] = convert_u8,   [BPK_BOOL] = convert_bool,
    };
    if (dtype->kind == BPK_BOOL && dtype->bool_store == BPK_BOOL_U32)
        return convert_wide_bool;
    return of_kinds[dtype->kind];
}

bpk_convert_fn *bpk_convert_for_scale(enum bpk_scale scale) {
    static bpk_convert_fn *const of_scales[] = {
        [BPK_SCALE_F32] = convert_f32,    [BPK_SCALE_F16] = convert_f16,
        [BPK_SCALE_BF16] = convert_bf16,  [BPK_SCALE_UE8M0] = convert_ue8m0,
        [BPK_SCALE_UE4M3] = convert_e4m3, /* with its sign */
    };
    return of_scales[scale];
}

bpk_convert_fn *bpk_convert_for_value(enum bpk_quant_value value) {
    static bpk_convert_fn *const of_values[] = {
        [BPK_Q8F] = convert_i8, [BPK_E5M2] = convert_e5m2, [BPK_E4M3] = convert_e4m3,
        [BPK_Q4F] = convert_i8, [BPK_Q2F] = convert_i8,    [BPK_Q8S] = convert_i8,
        [BPK_Q4S] = convert_i8, [BPK_Q2S] = convert_i8,
    };
    return of_values[value];
}

/* ---- packed ---------------------------------------------------------------------------------- */

/* A loop over values of `bits` bits; `expression` makes a float of `x`, whose higher bits are not
 * its own. Single values lead to the first whole byte, and follow the last. */
#define UNPACK(name, bits, expression)                                                             \
    static inline float name##_one(unsigned x) {                                                   \
        return (expression);                                                                       \
    }                                                                                              \
    VECTORISED static void name(const uint8_t *restrict bytes, unsigned lane, size_t count,        \
                                float *restrict values) {                                          \
        enum { LANES = 8 / (bits) };                                                               \
        for (; lane > 0 && count > 0; count--) {                                                   \
            *values++ = name##_one((unsigned)*bytes >> lane * (bits));                             \
            lane = (lane + 1) % LANES;                                                             \
            bytes += lane == 0;                                                                    \
        }                                                                                          \
        size_t whole = count / LANES;                                                              \
        for (size_t i = 0; i < whole; i++)                                                         \
            _Pragma("GCC unroll 4") for (unsigned k = 0; k < LANES; k++) values[i * LANES + k] =   \
                name##_one((unsigned)bytes[i] >> k * (bits));                                      \
        for (unsigned k = 0; k < count % LANES; k++)                                               \
            values[whole * LANES + k] = name##_one((unsigned)bytes[whole] >> k * (bits));          \
    }

UNPACK(unpack_q4, 4, (float)sign_extend(x, 4))
UNPACK(unpack_q2, 2, (float)sign_extend(x, 2))
UNPACK(unpack_e2m1, 4, from_e2m1(x))

bpk_unpack_fn *bpk_unpack_for_neighbours(enum bpk_quant_value value) {
    static bpk_unpack_fn *const of_values[] = {
        [BPK_Q4F] = unpack_q4, [BPK_Q4S] = unpack_q4,    [BPK_Q2F] = unpack_q2,
        [BPK_Q2S] = unpack_q2, [BPK_E2M1] = unpack_e2m1,
    };
    return of_values[value];
}

#define PICK(name, type, expression)                                                               \
    VECTORISED static void name(const uint8_t *restrict bytes, unsigned lane, size_t count,        \
                                float *restrict values) {                                          \
        for (size_t i = 0; i < count; i++) {                                                       \
            uint32_t x = LOAD(type, bytes + i * sizeof(type));                                     \
            values[i] = (expression);                                                              \
        }                                                                                          \
    }

PICK(pick_q8, uint32_t, (float)sign_extend(x >> lane * 8, 8))
PICK(pick_q4, uint32_t, (float)sign_extend(x >> lane * 4, 4))
PICK(pick_q2, uint32_t, (float)sign_extend(x >> lane * 2, 2))
PICK(pick_e2m1, uint8_t, from_e2m1(x >> lane * 4))

bpk_unpack_fn *bpk_unpack_for_lane(enum bpk_quant_value value) {
    static bpk_unpack_fn *const of_values[] = {
        [BPK_Q8F] = pick_q8, [BPK_Q8S] = pick_q8, [BPK_Q4F] = pick_q4,    [BPK_Q4S] = pick_q4,
        [BPK_Q2F] = pick_q2, [BPK_Q2S] = pick_q2, [BPK_E2M1] = pick_e2m1,
    };
    return of_values[value];
}

/* Static, as all clones here: for others clang 14 names them in a way of its own. */
VECTORISED static void scale_blocks(float *restrict values, size_t count, uint64_t done,
                                    uint64_t block, const float *restrict scales) {
    while (count > 0) {
        size_t n = block - done < count ? (size_t)(block - done) : count;
        float scale = *scales++;
        for (size_t i = 0; i < n; i++)
            values[i] *= scale;
        values += n;
        count -= n;
        done = 0;
    }
}

void bpk_convert_scale(float *values, size_t count, uint64_t done, uint64_t block,
                       const float *scales) {
    scale_blocks(values, count, done, block, scales);
}

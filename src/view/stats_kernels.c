#include "view/stats_kernels.h"

#include "view/stats.h"

#include <string.h>

/* A version of a function for each width of vectors, chosen when the program starts. */
#ifdef BPK_CLONE_LOOPS
#define VECTORISED __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define VECTORISED
#endif

enum { LANES = 4, VECTORS = 4 };
typedef double vector __attribute__((vector_size(LANES * sizeof(double))));

static inline double add_lanes(const vector sums[VECTORS]) {
    double s[LANES];
    vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    memcpy(s, &sum, sizeof(s));
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* As np.histogram has it: a guess, which rounding may have put off by one, and then the edges
 * themselves decide. */
static inline int bin_of(double value, const struct bpk_stats_range *range) {
    int bin = (int)((value - range->first) * range->per_unit);
    double place = (double)bin;
    bin -= value < place * range->step + range->first;
    bin += value >= (place + 1) * range->step + range->first;
    return bin;
}

struct bpk_stats_range bpk_stats_range_of(double min, double max) {
    return (struct bpk_stats_range){
        .first = min,
        .step = (max - min) / BPK_STATS_BINS,
        .per_unit = BPK_STATS_BINS / (max - min),
    };
}

unsigned bpk_stats_bin(double value, const struct bpk_stats_range *range) {
    int bin = bin_of(value, range);
    return bin < BPK_STATS_BINS ? (unsigned)bin : BPK_STATS_BINS - 1;
}

/* Four tables, so that equal values in a row need not wait for each other. */
void bpk_stats_pairs(const uint8_t *bins, size_t count, uint64_t counts[4 * BPK_STATS_PAIRS]) {
    const unsigned mask = BPK_STATS_PAIRS - 1;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t eight;
        memcpy(&eight, bins + i, sizeof(eight));
        /* Four pairs: a bin in bits 0-5, the next one in bits 6-11. */
        eight =
            (eight & UINT64_C(0x003f003f003f003f)) | (eight >> 2 & UINT64_C(0x0fc00fc00fc00fc0));
        counts[eight & mask]++;
        counts[BPK_STATS_PAIRS + (eight >> 16 & mask)]++;
        counts[2 * BPK_STATS_PAIRS + (eight >> 32 & mask)]++;
        counts[3 * BPK_STATS_PAIRS + (eight >> 48 & mask)]++;
    }
    for (; i < count; i += 2)
        counts[(bins[i] | bins[i + 1] << 6) & mask]++;
}

void bpk_stats_patterns(const void *patterns, size_t count,
                        uint64_t counts[2 * BPK_STATS_PATTERNS]) {
    const uint16_t *x = patterns;
    uint64_t *others = counts + BPK_STATS_PATTERNS;
    size_t i = 0;
    for (; i + 2 <= count; i += 2) {
        counts[x[i]]++;
        others[x[i + 1]]++;
    }
    if (i < count)
        counts[x[i]]++;
}

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
#define FUNCTION(x) JOIN(x, SUFFIX)

#define ELEMENT  float
#define SUFFIX   f32
#define BITS     uint32_t
#define EXPONENT UINT32_C(0x7f800000)
#include "view/stats_element.h"
#undef ELEMENT
#undef SUFFIX
#undef BITS
#undef EXPONENT

#define ELEMENT  double
#define SUFFIX   f64
#define BITS     uint64_t
#define EXPONENT (UINT64_C(0x7ff) << 52)
#include "view/stats_element.h"
#undef ELEMENT
#undef SUFFIX
#undef BITS
#undef EXPONENT

#define ELEMENT int32_t
#define SUFFIX  i32
#include "view/stats_element.h"
#undef ELEMENT
#undef SUFFIX

#define ELEMENT int64_t
#define SUFFIX  i64
#include "view/stats_element.h"
#undef ELEMENT
#undef SUFFIX

#define ELEMENT uint32_t
#define SUFFIX  u32
#include "view/stats_element.h"
#undef ELEMENT
#undef SUFFIX

#define ELEMENT uint64_t
#define SUFFIX  u64
#include "view/stats_element.h"

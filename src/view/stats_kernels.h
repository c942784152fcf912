/* The inner loops of stats, over elements in memory: plain C that the compiler vectorises, in a
 * version for each width of vectors. Pure. Sums are made in a fixed number of lanes, so that every
 * version adds in the same order and gives the same bits.
 */
#ifndef BPK_VIEW_STATS_KERNELS_H
#define BPK_VIEW_STATS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BPK_STATS_BLOCK = 2048,       /* elements that the loops take at once, at most */
    BPK_STATS_PATTERNS = 1 << 16, /* of 16 bits */
    BPK_STATS_BIN_CODES = 64,     /* more than the loops have for bins */
    BPK_STATS_PAIRS = BPK_STATS_BIN_CODES * BPK_STATS_BIN_CODES,
};

/* What is not finite in a run of floats. */
struct bpk_stats_odd {
    uint64_t nan;
    uint64_t pos_inf;
    uint64_t neg_inf;
};

struct bpk_stats_extremes {
    uint64_t zeros;
    double min;
    double max;
    __int128 integer_min; /* of integers, exactly; 0 of floats */
    __int128 integer_max;
};

/* Of the distances of elements to an origin. */
struct bpk_stats_sums {
    double distances;
    double squares;
};

/* Equal bins: bin i begins at first + i * step. */
struct bpk_stats_range {
    double first;
    double step;
    double per_unit; /* bins per unit of value */
};

/* The loops for one type of element. `count` is from 1 to BPK_STATS_BLOCK, and all elements are
 * finite but for the first two functions, which are NULL for integers. Where they are not, what the
 * others return is of no use, and the sums are not finite. */
struct bpk_stats_kernels {
    size_t size; /* of an element, bytes */
    bool (*are_finite)(const void *elements, size_t count);
    /* Counts what is not finite and copies the rest; returns how many elements that is. */
    size_t (*keep_finite)(const void *elements, size_t count, void *kept,
                          struct bpk_stats_odd *odd);
    struct bpk_stats_extremes (*extremes)(const void *elements, size_t count);
    struct bpk_stats_sums (*sums)(const void *elements, size_t count, double origin);
    /* The bin of each element; a value on the last edge is in bin 31 or 32. */
    void (*bins)(const void *elements, size_t count, const struct bpk_stats_range *range,
                 uint8_t *ret_bins);
};

extern const struct bpk_stats_kernels bpk_stats_f32, bpk_stats_f64, bpk_stats_i32, bpk_stats_u32,
    bpk_stats_i64, bpk_stats_u64;

/* Counts bins in twos: `counts` are four tables, to be added up, with bin + 64 * next bin as the
 * index. `count` is even. */
void bpk_stats_pairs(const uint8_t *bins, size_t count, uint64_t counts[4 * BPK_STATS_PAIRS]);

/* Counts 16-bit patterns; `counts` are two tables, to be added up. */
void bpk_stats_patterns(const void *patterns, size_t count,
                        uint64_t counts[2 * BPK_STATS_PATTERNS]);

struct bpk_stats_range bpk_stats_range_of(double min, double max);

/* The bin of one value, by the same rule as above. */
unsigned bpk_stats_bin(double value, const struct bpk_stats_range *range);

#endif

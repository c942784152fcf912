#include "view/stats_patterns.h"

#include "pack/diag.h"
#include "pack/util.h"
#include "view/f32.h"
#include "view/stats_kernels.h"

#include <errno.h>
#include <math.h>

/* The tensor that has every pattern once, in order. */
static int read_pattern(void *context, uint64_t offset, void *buffer, size_t size) {
    unsigned element_size = *(const unsigned *)context;
    uint8_t *bytes = buffer;
    for (size_t i = 0; i < size; i++, offset++)
        bytes[i] = (uint8_t)(offset / element_size >> 8 * (offset % element_size));
    return 0;
}

/* What each pattern stands for. */
static int read_values(const struct bpk_dtype *dtype, size_t patterns, float *ret_values,
                       struct bpk_diag *diag) {
    unsigned element_size = bpk_dtype_size(dtype);
    const struct bpk_array array = {
        .dtype = *dtype,
        .rank = 1,
        .dims = (const uint64_t[]){patterns},
        .size = patterns * element_size,
    };
    const struct bpk_source source = {read_pattern, &element_size};
    struct bpk_f32 *f32;
    int r = bpk_f32_new(&array, &f32, diag);
    if (r < 0)
        return r;
    r = bpk_f32_read(f32, &source, 0, patterns, ret_values);
    bpk_f32_free(f32);
    return r;
}

/* A sum that keeps what its rounding takes away (Kahan). */
struct sum {
    double total;
    double lost;
};

static void add(struct sum *sum, double term) {
    double wanted = term - sum->lost;
    double total = sum->total + wanted;
    sum->lost = (total - sum->total) - wanted;
    sum->total = total;
}

/* Counts, extremes, and the mean. */
static double look(const uint64_t *counts, const float *values, size_t patterns,
                   struct bpk_stats *stats) {
    struct sum sum = {0};
    for (size_t i = 0; i < patterns; i++) {
        double value = values[i];
        if (counts[i] == 0)
            continue;
        if (isnan(value)) {
            stats->nan += counts[i];
        } else if (isinf(value)) {
            *(value > 0 ? &stats->pos_inf : &stats->neg_inf) += counts[i];
        } else {
            stats->min = stats->finite > 0 ? fmin(stats->min, value) : value;
            stats->max = stats->finite > 0 ? fmax(stats->max, value) : value;
            stats->zeros += value == 0 ? counts[i] : 0;
            stats->finite += counts[i];
            add(&sum, (double)counts[i] * value);
        }
    }
    return sum.total / (double)stats->finite;
}

/* The histogram, and the deviation from `mean`. */
static double sort(const uint64_t *counts, const float *values, size_t patterns, double mean,
                   struct bpk_stats *stats) {
    struct bpk_stats_range range = bpk_stats_range_of(stats->min, stats->max);
    struct sum squares = {0};
    for (size_t i = 0; i < patterns; i++) {
        double value = values[i];
        if (counts[i] == 0 || !isfinite(value))
            continue;
        add(&squares, (double)counts[i] * ((value - mean) * (value - mean)));
        stats->histogram[bpk_stats_bin(value, &range)] += counts[i];
    }
    return sqrt(squares.total / (double)stats->finite);
}

int bpk_stats_of_patterns(const struct bpk_dtype *dtype, const uint64_t *counts,
                          struct bpk_stats *stats, struct bpk_diag *diag) {
    size_t patterns = (size_t)1 << 8 * bpk_dtype_size(dtype);
    _cleanup_free_ float *values = calloc(patterns, sizeof(*values));
    if (!values)
        return bpk_diag_set(diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    int r = read_values(dtype, patterns, values, diag);
    if (r < 0)
        return r;
    double mean = look(counts, values, patterns, stats);
    double std = 0;
    if (stats->min < stats->max)
        std = sort(counts, values, patterns, mean, stats);
    bpk_stats_set_moments(stats, mean, std);
    return 0;
}

void bpk_stats_set_moments(struct bpk_stats *stats, double mean, double std) {
    if (stats->finite == 0)
        return;
    stats->mean = fmin(fmax(mean, stats->min), stats->max);
    stats->std = stats->min < stats->max ? std : 0;
}

static bool is_integer(enum bpk_kind kind) {
    switch (kind) {
    case BPK_F64:
    case BPK_F32:
    case BPK_FLEX32:
    case BPK_F16:
    case BPK_BF16:
    case BPK_QFLOAT:
        return false;
    default:
        return true;
    }
}

void bpk_stats_complete(struct bpk_stats *stats, const struct bpk_dtype *dtype, bool has_integers) {
    stats->is_integer = is_integer(dtype->kind);
    if (stats->finite == 0)
        return;
    stats->bins_min = stats->min;
    stats->bins_max = stats->max;
    if (stats->min == stats->max) {
        stats->bins_min -= 0.5;
        stats->bins_max += 0.5;
        stats->histogram[BPK_STATS_BINS / 2] = stats->finite;
    }
    stats->abs_max = fmax(fabs(stats->min), fabs(stats->max));
    if (stats->is_integer && !has_integers) {
        stats->integer_min = (int32_t)stats->min;
        stats->integer_max = (int32_t)stats->max;
    }
    /* Which of the two zeros came first does not matter. */
    double *const values[] = {&stats->min, &stats->max, &stats->mean, &stats->bins_min,
                              &stats->bins_max};
    for (size_t i = 0; i < BPK_ARRAY_LEN(values); i++)
        *values[i] += 0.0;
}

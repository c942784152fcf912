/* The loops of stats_kernels.c for one type of element; included there once for each type, with
 * ELEMENT (the type), FUNCTION(x) (the name of its function x), and for floats BITS (an integer of
 * their size) and EXPONENT (the bits of their exponent in it). */

#ifdef BITS
VECTORISED static bool FUNCTION(are_finite)(const void *elements, size_t count) {
    const ELEMENT *x = elements;
    BITS odd = 0;
    for (size_t i = 0; i < count; i++) {
        BITS bits;
        memcpy(&bits, &x[i], sizeof(bits));
        odd |= (bits & EXPONENT) == EXPONENT;
    }
    return odd == 0;
}

VECTORISED static struct bpk_stats_odd FUNCTION(count_odd)(const ELEMENT *x, size_t count) {
    BITS nan = 0;
    BITS pos_inf = 0;
    BITS neg_inf = 0;
    for (size_t i = 0; i < count; i++) {
        BITS bits;
        memcpy(&bits, &x[i], sizeof(bits));
        pos_inf += bits == EXPONENT;
        neg_inf += bits == (EXPONENT | ~(~(BITS)0 >> 1));
        nan += (bits & ~(BITS)0 >> 1) > EXPONENT;
    }
    return (struct bpk_stats_odd){.nan = nan, .pos_inf = pos_inf, .neg_inf = neg_inf};
}

static size_t FUNCTION(keep_finite)(const void *elements, size_t count, void *restrict kept,
                                    struct bpk_stats_odd *odd) {
    const ELEMENT *x = elements;
    ELEMENT *to = kept;
    struct bpk_stats_odd more = FUNCTION(count_odd)(x, count);
    odd->nan += more.nan;
    odd->pos_inf += more.pos_inf;
    odd->neg_inf += more.neg_inf;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        BITS bits;
        memcpy(&bits, &x[i], sizeof(bits));
        to[n] = x[i];
        n += (bits & EXPONENT) != EXPONENT;
    }
    return n;
}
#endif

VECTORISED static struct bpk_stats_extremes FUNCTION(extremes)(const void *elements, size_t count) {
    const ELEMENT *x = elements;
    ELEMENT min = x[0];
    ELEMENT max = x[0];
    uint32_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        zeros += x[i] == 0;
    }
    return (struct bpk_stats_extremes){
        .zeros = zeros,
        .min = (double)min,
        .max = (double)max,
#ifndef BITS
        .integer_min = min,
        .integer_max = max,
#endif
    };
}

static inline __attribute__((always_inline)) struct bpk_stats_sums
FUNCTION(sums_from)(const ELEMENT *x, size_t count, double origin) {
    vector distances[VECTORS] = {{0}};
    vector squares[VECTORS] = {{0}};
    size_t whole = count - count % (VECTORS * LANES);
    for (size_t i = 0; i < whole;)
        for (size_t k = 0; k < VECTORS; k++, i += LANES) {
            double wide[LANES];
            vector distance;
            for (size_t lane = 0; lane < LANES; lane++)
                wide[lane] = (double)x[i + lane] - origin;
            memcpy(&distance, wide, sizeof(distance));
            distances[k] += distance;
            squares[k] += distance * distance;
        }
    struct bpk_stats_sums sums = {add_lanes(distances), add_lanes(squares)};
    for (size_t i = whole; i < count; i++) {
        double distance = (double)x[i] - origin;
        sums.distances += distance;
        sums.squares += distance * distance;
    }
    return sums;
}

/* Twice, because a difference to nothing takes a sixth of the time. */
VECTORISED static struct bpk_stats_sums FUNCTION(sums)(const void *elements, size_t count,
                                                       double origin) {
    return origin == 0 ? FUNCTION(sums_from)(elements, count, 0)
                       : FUNCTION(sums_from)(elements, count, origin);
}

VECTORISED static void FUNCTION(bins)(const void *elements, size_t count,
                                      const struct bpk_stats_range *range,
                                      uint8_t *restrict ret_bins) {
    const ELEMENT *x = elements;
    const struct bpk_stats_range local = *range;
    for (size_t i = 0; i < count; i++)
        ret_bins[i] = (uint8_t)bin_of((double)x[i], &local);
}

const struct bpk_stats_kernels FUNCTION(bpk_stats) = {
    .size = sizeof(ELEMENT),
#ifdef BITS
    .are_finite = FUNCTION(are_finite),
    .keep_finite = FUNCTION(keep_finite),
#endif
    .extremes = FUNCTION(extremes),
    .sums = FUNCTION(sums),
    .bins = FUNCTION(bins),
};

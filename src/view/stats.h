/* What a tensor's values are like: how many are NaN, infinite, zero; extremes, mean, deviation and
 * a histogram of the finite ones. Bytes come from the source, in chunks; a tensor is read once or
 * twice and never held.
 */
#ifndef BPK_VIEW_STATS_H
#define BPK_VIEW_STATS_H

#include "pack/outbuf.h"
#include "view/array.h"

enum { BPK_STATS_BINS = 32 };

struct bpk_stats {
    uint64_t count;
    uint64_t nan;
    uint64_t pos_inf;
    uint64_t neg_inf;
    uint64_t zeros; /* of either sign */

    /* Of what is finite; all 0 if nothing is. */
    uint64_t finite;
    double min;
    double max;
    double mean;
    double std; /* of the population, as np.std */
    double abs_max;
    /* Equal bins over [bins_min, bins_max], each with its lower edge, the last with both: what
     * np.histogram counts of float64 values. That is [min, max], or, if these are equal, half a
     * unit more at both ends. */
    double bins_min;
    double bins_max;
    uint64_t histogram[BPK_STATS_BINS];

    /* Integers and Bools: min and max, exactly. */
    bool is_integer;
    __int128 integer_min;
    __int128 integer_max;
};

/* Computes with up to `threads` threads (0: as many as the machine has, at most 8); the result does
 * not depend on their number. Values are taken as they are, QFloat dequantized, Bool as 0 and 1.
 * Without `histogram` its counts mean nothing, and the pass over all bytes that they take is saved.
 * -ENOTSUP, -EINVAL (see view/f32.h) or -ENOMEM with a sentence in diag, or what the source said.
 * `cancel`, which may be NULL, is looked at now and then: true ends it with -EINTR. */
int bpk_stats_compute(const struct bpk_array *array, const struct bpk_source *source,
                      unsigned threads, bool histogram, const _Atomic bool *cancel,
                      struct bpk_stats *ret_stats, struct bpk_diag *diag);

/* One object, two-space indent, `indent` spaces before each line but the first, no newline at the
 * end: {"name", "dtype", "shape", "count", "nan", "inf", "neg_inf", "zeros", "min", "max", "mean",
 * "std", "abs_max", "histogram": {"min", "max", "counts"}}; null for what is of finite values if
 * there is none, and then nothing in the histogram. */
void bpk_stats_object(struct bpk_outbuf *out, struct bpk_str name, const struct bpk_array *array,
                      const struct bpk_stats *stats, unsigned indent);

/* The same as a file: with a newline at the end, and numbers padded, so that the length is the same
 * whatever the values are. */
void bpk_stats_json(struct bpk_outbuf *out, struct bpk_str name, const struct bpk_array *array,
                    const struct bpk_stats *stats);

#endif

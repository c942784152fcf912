/* Statistics of elements of 8 and 16 bits, from how often each pattern of bits occurs; and what all
 * ways to compute them have in common at the end. Pure. Used by view/stats. */
#ifndef BPK_VIEW_STATS_PATTERNS_H
#define BPK_VIEW_STATS_PATTERNS_H

#include "view/stats.h"

/* `counts`: 256 for elements of a byte, else 65536. Fills in what bpk_stats_complete does not.
 * -ENOMEM, with a sentence in diag. */
int bpk_stats_of_patterns(const struct bpk_dtype *dtype, const uint64_t *counts,
                          struct bpk_stats *stats, struct bpk_diag *diag);

/* Mean and deviation; min and max are there already and keep what rounding did in bounds. */
void bpk_stats_set_moments(struct bpk_stats *stats, double mean, double std);

/* What follows from the rest: bins of a single value, the integers if they are not there yet. */
void bpk_stats_complete(struct bpk_stats *stats, const struct bpk_dtype *dtype, bool has_integers);

#endif

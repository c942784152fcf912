/* Loops that make float32 of stored numbers: plain dtypes, scales and quantised values.
 * Pure, and compiled so that they are vectorised. Where the bytes lie is the callers' matter. */
#ifndef BPK_VIEW_CONVERT_H
#define BPK_VIEW_CONVERT_H

#include "bpk.h"

/* Converts `count` numbers that lie side by side, at any alignment. What has no exact float32 is
 * rounded to nearest, ties to even. NaNs of F32, F16 and BF16 keep their bits. */
typedef void bpk_convert_fn(const uint8_t *bytes, size_t count, float *ret_values);

bpk_convert_fn *bpk_convert_for_dtype(const struct bpk_dtype *dtype); /* not for QFloat */
bpk_convert_fn *bpk_convert_for_scale(enum bpk_scale scale);

/* Quantised values with a byte each, before they are scaled. Those of fewer than 8 bits are signed
 * bytes; E2M1 has no such form. */
bpk_convert_fn *bpk_convert_for_value(enum bpk_quant_value value);

/* Quantised values in parts of bytes or words, low bits first. */
typedef void bpk_unpack_fn(const uint8_t *bytes, unsigned lane, size_t count, float *ret_values);

/* `count` neighbours, from the value `lane` of the first byte on. For Q4*, Q2* and E2M1. */
bpk_unpack_fn *bpk_unpack_for_neighbours(enum bpk_quant_value value);

/* The value `lane` of each of `count` elements: bytes for E2M1, words of 32 bits for Q*. */
bpk_unpack_fn *bpk_unpack_for_lane(enum bpk_quant_value value);

/* Multiplies each value by the scale of its block. The blocks have `block` values each, but for the
 * first, `done` of which are behind already. */
void bpk_convert_scale(float *values, size_t count, uint64_t done, uint64_t block,
                       const float *scales);

#endif

/* The values of a quantised tensor as float32. Where each value, its block and its scale lie is
 * Burn's layout (burn-std, tensor/quantization.rs; CubeCL's packing). Used by view/f32. */
#ifndef BPK_VIEW_DEQUANT_H
#define BPK_VIEW_DEQUANT_H

#include "view/array.h"

struct bpk_dequant; /* immutable */

/* `count`: the elements of the shape. -ENOTSUP where Burn would not dequantise it, or where it is
 * unknown how; -EINVAL: the scheme does not fit the shape; -ENOMEM; each with a sentence. */
int bpk_dequant_new(const struct bpk_array *array, uint64_t count, struct bpk_dequant **ret_dequant,
                    struct bpk_diag *diag);
void bpk_dequant_free(struct bpk_dequant *dequant); /* NULL is fine */

/* Elements [first, first + count), at least one. */
int bpk_dequant_read(const struct bpk_dequant *dequant, const struct bpk_source *source,
                     uint64_t first, size_t count, float *ret_values);

#endif

/* The values of a tensor of any dtype as float32: floats and integers are converted, quantised
 * values are scaled. Where the bytes come from is the source's matter. */
#ifndef BPK_VIEW_F32_H
#define BPK_VIEW_F32_H

#include "view/array.h"

struct bpk_f32; /* how one tensor becomes float32; immutable, any thread may use it */

/* Makes a conversion. -ENOTSUP with a sentence in diag: no version of Burn dequantises this
 * combination, or the length fits no size of scales; -EINVAL with a sentence: dtype, length and
 * shape disagree; -ENOMEM. `array` is copied, `diag` may be NULL. */
int bpk_f32_new(const struct bpk_array *array, struct bpk_f32 **ret_f32, struct bpk_diag *diag);
void bpk_f32_free(struct bpk_f32 *f32); /* NULL is fine */

uint64_t bpk_f32_count(const struct bpk_f32 *f32); /* elements */

/* Converts elements [first, first + count) in row-major order, which must be inside. 0 or what the
 * source said; *ret_values is then unfinished. Values come in chunks; from the source comes hardly
 * more than they need. */
int bpk_f32_read(const struct bpk_f32 *f32, const struct bpk_source *source, uint64_t first,
                 size_t count, float *ret_values);

#endif

/* The data of a .npy file in the order that a pack wants: little-endian, last dimension fastest.
 * Memory is bounded whatever the array's size. */
#ifndef BPK_VIEW_NPY_ORDER_H
#define BPK_VIEW_NPY_ORDER_H

#include "view/npy.h"

/* Whether the bytes behind the header are not the tensor's own as they stand. */
bool bpk_npy_needs_order(const struct bpk_npy *npy);

/* Reverses the bytes of each item, in place; `size` is a multiple of `item_size`: 1, 2, 4 or 8. */
void bpk_npy_swap(void *bytes, size_t size, unsigned item_size);

/* Puts an array in order, whatever its header says. `source` has npy->size bytes, those behind the
 * header. `write` gets every byte of the tensor once, in pieces of at most 8 MiB at any offsets;
 * its first error, or one of `source`, ends all. 0, -ENOMEM, or that error.
 *
 * The array is cut in boxes of 8 MiB, as long as can be both in the order of the source and in that
 * of the tensor: of a matrix that is large both ways, a piece is about 6 KiB (items of 4 bytes). */
int bpk_npy_reorder(const struct bpk_npy *npy, const struct bpk_source *source,
                    int (*write)(void *context, uint64_t offset, const void *bytes, size_t size),
                    void *context);

#endif

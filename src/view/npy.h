/* The header of a .npy file, as NumPy writes it. Pure. The data behind it is not this module's. */
#ifndef BPK_VIEW_NPY_H
#define BPK_VIEW_NPY_H

#include "pack/outbuf.h"
#include "view/array.h"

/* Byte for byte what numpy.save writes for an array in C order (numpy/lib/format.py of 1.24
 * to 2.x): format 1.0, or 2.0 where the text is too long for it, with room for the first dimension
 * to grow to 21 digits, and padded to a multiple of 64 bytes. `descr` is NumPy's dtype string. */
void bpk_npy_header(struct bpk_outbuf *out, const char *descr, const uint64_t *dims, uint32_t rank);

/* The header of a tensor's own bytes. A QFloat's are bytes in one dimension. */
void bpk_npy_array_header(struct bpk_outbuf *out, const struct bpk_array *array);

#endif

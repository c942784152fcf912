/* The header of a .npy file: written as NumPy writes it, and read as strictly as NumPy reads it.
 * Pure. The data behind it is not this module's: see npy_order.h. */
#ifndef BPK_VIEW_NPY_H
#define BPK_VIEW_NPY_H

#include "pack/outbuf.h"
#include "view/array.h"

#define BPK_NPY_MAGIC "\x93NUMPY"

/* Byte for byte what numpy.save writes for an array in C order (numpy/lib/format.py of 1.24
 * to 2.x): format 1.0, or 2.0 where the text is too long for it, with room for the first dimension
 * to grow to 21 digits, and padded to a multiple of 64 bytes. `descr` is NumPy's dtype string. */
void bpk_npy_header(struct bpk_outbuf *out, const char *descr, const uint64_t *dims, uint32_t rank);

/* The header of a tensor's own bytes. A QFloat's are bytes in one dimension. */
void bpk_npy_array_header(struct bpk_outbuf *out, const struct bpk_array *array);

/* NumPy 2 takes no more dimensions, and reads no longer text, than this. */
enum { BPK_NPY_MAX_RANK = 64, BPK_NPY_MAX_TEXT = 10000 };
enum { BPK_NPY_MAX_HEADER = BPK_NPY_MAX_TEXT + 12 }; /* bytes before the data */

/* A header that was read. */
struct bpk_npy {
    size_t header_size; /* bytes before the data */
    char descr[32];     /* NumPy's dtype string, printable, maybe cut: for messages */
    enum bpk_kind kind; /* what the items are; V2 is BF16, b1 is Bool */
    unsigned item_size; /* bytes */
    bool is_big_endian;
    bool is_fortran; /* the first dimension varies fastest */
    uint32_t rank;
    uint64_t dims[BPK_NPY_MAX_RANK];
    uint64_t size; /* of the data, bytes */
};

/* Reads a header of format 1.0, 2.0 or 3.0. `len` may be anything: what is behind the header is not
 * looked at. 0; -EAGAIN if nothing is wrong so far and more bytes are needed, at most
 * BPK_NPY_MAX_HEADER in all; -EINVAL if this is no .npy file, or its items are nothing that a
 * Burn tensor can have; -EFBIG if the data is larger than a pack takes. `diag` is filled in but for
 * -EAGAIN and may be NULL. */
int bpk_npy_parse(const void *bytes, size_t len, struct bpk_npy *ret_npy, struct bpk_diag *diag);

/* The dtype that a tensor has when it gets this array: `old`, its present one or NULL, where that
 * has the same NumPy string (byte order aside: the data will be swapped), else the array's own.
 * Returns whether the present shape stays too: a QFloat's does, whose bytes are an array of |u1 in
 * one dimension; of any other array a QFloat becomes plain. */
bool bpk_npy_dtype(const struct bpk_npy *npy, const struct bpk_dtype *old,
                   struct bpk_dtype *ret_dtype);

#endif

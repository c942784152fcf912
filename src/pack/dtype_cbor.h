/* A dtype's CBOR, in every spelling of every Burn version. */
#ifndef BPK_PACK_DTYPE_CBOR_H
#define BPK_PACK_DTYPE_CBOR_H

#include "pack/cbor_reader.h"

/* Reads the dtype at the reader's position, `depth` levels of nesting being left. `ret_head` is
 * the offset of its head (after any tags). 0 or -EBADMSG. */
int bpk_dtype_parse(struct bpk_cbor *cbor, unsigned depth, struct bpk_dtype *ret_dtype,
                    uint32_t *ret_head);

/* Whether only writers of the aligned layout spelled dtypes like this. */
bool bpk_dtype_is_modern(const struct bpk_dtype *dtype);

#endif

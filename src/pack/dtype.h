/* What is known about dtypes: names, sizes, lengths of quantised tensors. One table a kind, pure.
 * Their CBOR is in dtype_cbor. */
#ifndef BPK_PACK_DTYPE_H
#define BPK_PACK_DTYPE_H

#include "bpk.h"

/* The value whose name is `name`; false if there is none. */
bool bpk_kind_from_name(struct bpk_str name, enum bpk_kind *ret_kind);
bool bpk_bool_store_from_name(struct bpk_str name, enum bpk_bool_store *ret_store);
bool bpk_quant_value_from_name(struct bpk_str name, enum bpk_quant_value *ret_value);
bool bpk_scale_from_name(struct bpk_str name, enum bpk_scale *ret_scale);
bool bpk_quant_mode_from_name(struct bpk_str name, enum bpk_quant_mode *ret_mode);
/* *ret_takes_dim: whether the packed dimension goes with it. */
bool bpk_quant_store_from_name(struct bpk_str name, enum bpk_quant_store *ret_store,
                               bool *ret_takes_dim);

bool bpk_str_is(struct bpk_str a, const char *b);

/* Bytes that `elements` elements of a dtype other than QFloat take; false if that overflows. */
bool bpk_dtype_length(const struct bpk_dtype *dtype, uint64_t elements, uint64_t *ret_bytes);

/* Bytes of one scale. */
unsigned bpk_scale_size(enum bpk_scale scale);

/* What a QFloat tensor consists of by the formula of Burn's quantization.rs: values, then scales,
 * then one F32 for the whole tensor where the scheme has both kinds of scales. */
struct bpk_scheme_parts {
    unsigned value_bits;
    unsigned
        element_bits; /* of an element of storage, which holds element_bits / value_bits values */
    bool packs_a_dim; /* elements hold neighbours along scheme.packed_dim */
    uint64_t value_bytes; /* of all values together */
    uint64_t scales;      /* how many */
    enum bpk_scale scale; /* their dtype */
};

/* False where the scheme does not fit the shape (packed dimension or block beyond the rank, block
 * of 0) or a product overflows. */
bool bpk_scheme_split(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                      struct bpk_scheme_parts *ret_parts);

/* The block's size along dimension `i` of a scheme with blocks that fits the shape: blocks are
 * right-aligned to it, missing leading dimensions are 1. */
uint8_t bpk_scheme_block(const struct bpk_scheme *scheme, uint32_t rank, uint32_t i);

/* Bytes of all parts together; false as bpk_scheme_split. */
bool bpk_scheme_length(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                       uint64_t *ret_bytes);

/* Bytes that a tensor of any dtype and this shape takes; false as the two above. */
bool bpk_dtype_shape_length(const struct bpk_dtype *dtype, const uint64_t *dims, uint32_t rank,
                            uint64_t *ret_bytes);

#endif

#include "pack/dtype.h"

#include "pack/util.h"

#include <string.h>

/* Names as Burn's serde derives spell them; sizes in bytes (burn-std, tensor/dtype.rs). */
static const struct {
    const char *name;
    unsigned size;
    const char *numpy;
} kinds[] = {
    [BPK_F64] = {"F64", 8, "<f8"},       [BPK_F32] = {"F32", 4, "<f4"},
    [BPK_FLEX32] = {"Flex32", 4, "<f4"}, [BPK_F16] = {"F16", 2, "<f2"},
    [BPK_BF16] = {"BF16", 2, "<V2"},     [BPK_I64] = {"I64", 8, "<i8"},
    [BPK_I32] = {"I32", 4, "<i4"},       [BPK_I16] = {"I16", 2, "<i2"},
    [BPK_I8] = {"I8", 1, "|i1"},         [BPK_U64] = {"U64", 8, "<u8"},
    [BPK_U32] = {"U32", 4, "<u4"},       [BPK_U16] = {"U16", 2, "<u2"},
    [BPK_U8] = {"U8", 1, "|u1"},         [BPK_BOOL] = {"Bool", 1, "|b1"},
    [BPK_QFLOAT] = {"QFloat", 0, "|u1"},
};

static const char *const bool_stores[] = {
    [BPK_BOOL_TEXT] = "Bool",
    [BPK_BOOL_NATIVE] = "Native",
    [BPK_BOOL_U8] = "U8",
    [BPK_BOOL_U32] = "U32",
};

static const struct {
    const char *name;
    unsigned bits;
} quant_values[] = {
    [BPK_Q8F] = {"Q8F", 8}, [BPK_E5M2] = {"E5M2", 8}, [BPK_E4M3] = {"E4M3", 8},
    [BPK_Q4F] = {"Q4F", 4}, [BPK_E2M1] = {"E2M1", 4}, [BPK_Q2F] = {"Q2F", 2},
    [BPK_Q8S] = {"Q8S", 8}, [BPK_Q4S] = {"Q4S", 4},   [BPK_Q2S] = {"Q2S", 2},
};

static const struct {
    const char *name;
    unsigned size;
} scales[] = {
    [BPK_SCALE_F32] = {"F32", 4},     [BPK_SCALE_F16] = {"F16", 2},
    [BPK_SCALE_BF16] = {"BF16", 2},   [BPK_SCALE_UE8M0] = {"UE8M0", 1},
    [BPK_SCALE_UE4M3] = {"UE4M3", 1},
};

static const char *const modes[] = {
    [BPK_MODE_SYMMETRIC] = "Symmetric",
    [BPK_MODE_LOOKUP] = "Lookup",
};

bool bpk_str_is(struct bpk_str a, const char *b) {
    return a.len == strlen(b) && memcmp(a.bytes, b, a.len) == 0;
}

/* Index of `name` among `count` names that lie `stride` bytes apart, or -1. */
static int find_name(struct bpk_str name, const void *names, size_t count, size_t stride) {
    for (size_t i = 0; i < count; i++)
        if (bpk_str_is(name, *(const char *const *)((const char *)names + i * stride)))
            return (int)i;
    return -1;
}

#define FIND_NAME(name, table, ret)                                                                \
    ({                                                                                             \
        int found_ = find_name(name, table, BPK_ARRAY_LEN(table), sizeof((table)[0]));             \
        if (found_ >= 0)                                                                           \
            *(ret) = (__typeof__(*(ret)))found_;                                                   \
        found_ >= 0;                                                                               \
    })

bool bpk_kind_from_name(struct bpk_str name, enum bpk_kind *ret_kind) {
    return FIND_NAME(name, kinds, ret_kind);
}

/* "Bool" is no store: only the three of the newtype variant are found. */
bool bpk_bool_store_from_name(struct bpk_str name, enum bpk_bool_store *ret_store) {
    enum bpk_bool_store store;
    if (!FIND_NAME(name, bool_stores, &store) || store == BPK_BOOL_TEXT)
        return false;
    *ret_store = store;
    return true;
}

bool bpk_quant_value_from_name(struct bpk_str name, enum bpk_quant_value *ret_value) {
    return FIND_NAME(name, quant_values, ret_value);
}

bool bpk_scale_from_name(struct bpk_str name, enum bpk_scale *ret_scale) {
    return FIND_NAME(name, scales, ret_scale);
}

bool bpk_quant_mode_from_name(struct bpk_str name, enum bpk_quant_mode *ret_mode) {
    return FIND_NAME(name, modes, ret_mode);
}

bool bpk_quant_store_from_name(struct bpk_str name, enum bpk_quant_store *ret_store,
                               bool *ret_takes_dim) {
    static const struct {
        const char *name;
        enum bpk_quant_store store;
        bool takes_dim;
    } stores[] = {
        {"Native", BPK_STORE_NATIVE, false},
        {"PackedNative", BPK_STORE_PACKED_NATIVE, true},
        {"PackedU32", BPK_STORE_PACKED_U32, true},
        {"U32", BPK_STORE_U32, false},
    };
    for (size_t i = 0; i < BPK_ARRAY_LEN(stores); i++) {
        if (!bpk_str_is(name, stores[i].name))
            continue;
        *ret_store = stores[i].store;
        *ret_takes_dim = stores[i].takes_dim;
        return true;
    }
    return false;
}

const char *bpk_kind_name(enum bpk_kind kind) {
    return kinds[kind].name;
}

const char *bpk_bool_store_name(enum bpk_bool_store store) {
    return bool_stores[store];
}

const char *bpk_quant_value_name(enum bpk_quant_value value) {
    return quant_values[value].name;
}

const char *bpk_scale_name(enum bpk_scale scale) {
    return scales[scale].name;
}

const char *bpk_quant_mode_name(enum bpk_quant_mode mode) {
    return modes[mode];
}

static bool is_wide_bool(const struct bpk_dtype *dtype) {
    return dtype->kind == BPK_BOOL && dtype->bool_store == BPK_BOOL_U32;
}

unsigned bpk_dtype_size(const struct bpk_dtype *dtype) {
    return is_wide_bool(dtype) ? 4 : kinds[dtype->kind].size;
}

const char *bpk_dtype_numpy(const struct bpk_dtype *dtype) {
    return is_wide_bool(dtype) ? "<u4" : kinds[dtype->kind].numpy;
}

bool bpk_dtype_length(const struct bpk_dtype *dtype, uint64_t elements, uint64_t *ret_bytes) {
    return bpk_mul_u64(elements, bpk_dtype_size(dtype), ret_bytes);
}

/* Elements of storage that the values take (Burn's storage_elements), each of *ret_bits bits. */
static bool scheme_storage(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                           uint64_t *ret_elements, unsigned *ret_bits) {
    unsigned value_bits = quant_values[scheme->value].bits;
    bool packed = scheme->store != BPK_STORE_NATIVE;
    unsigned stored_bits = value_bits;
    if (scheme->store == BPK_STORE_PACKED_U32 || scheme->store == BPK_STORE_U32)
        stored_bits = 32;
    else if (scheme->store == BPK_STORE_PACKED_NATIVE && scheme->value == BPK_E2M1)
        stored_bits = 2 * value_bits;
    uint64_t per_element = stored_bits / value_bits;
    bool pack_a_dim = packed && per_element > 1 && rank > 0;
    if (pack_a_dim && scheme->packed_dim >= rank)
        return false;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t dim = dims[i];
        if (pack_a_dim && i == rank - 1 - scheme->packed_dim)
            dim = dim / per_element + (dim % per_element != 0);
        if (!bpk_mul_u64(elements, dim, &elements))
            return false;
    }
    if (!pack_a_dim)
        elements = elements / per_element + (elements % per_element != 0);
    *ret_elements = elements;
    *ret_bits = stored_bits;
    return true;
}

/* Scales of a scheme with blocks: the block is right-aligned to the shape, missing leading block
 * dimensions are 1. */
static bool block_count(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                        uint64_t *ret_blocks) {
    if (scheme->block_len > BPK_ARRAY_LEN(scheme->block_dims) || scheme->block_len > rank)
        return false;
    uint64_t blocks = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t block = 1;
        if (i + scheme->block_len >= rank)
            block = scheme->block_dims[i + scheme->block_len - rank];
        if (block == 0)
            return false;
        if (!bpk_mul_u64(blocks, dims[i] / block + (dims[i] % block != 0), &blocks))
            return false;
    }
    *ret_blocks = blocks;
    return true;
}

bool bpk_scheme_length(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                       uint64_t *ret_bytes) {
    uint64_t elements;
    unsigned bits;
    uint64_t bytes;
    if (!scheme_storage(scheme, dims, rank, &elements, &bits) ||
        !bpk_mul_u64(elements, (bits + 7) / 8, &bytes))
        return false;
    uint64_t scale_count = 1;
    enum bpk_scale scale = scheme->has_tensor ? scheme->tensor_scale : BPK_SCALE_F32;
    if (scheme->has_block) {
        if (!block_count(scheme, dims, rank, &scale_count))
            return false;
        scale = scheme->block_scale;
    }
    uint64_t scale_bytes;
    if (!bpk_mul_u64(scale_count, scales[scale].size, &scale_bytes) ||
        !bpk_add_u64(bytes, scale_bytes, &bytes))
        return false;
    if (scheme->has_block && scheme->has_tensor &&
        !bpk_add_u64(bytes, scales[BPK_SCALE_F32].size, &bytes))
        return false;
    *ret_bytes = bytes;
    return true;
}

bool bpk_dtype_shape_length(const struct bpk_dtype *dtype, const uint64_t *dims, uint32_t rank,
                            uint64_t *ret_bytes) {
    if (dtype->kind == BPK_QFLOAT)
        return bpk_scheme_length(&dtype->scheme, dims, rank, ret_bytes);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; i++)
        if (!bpk_mul_u64(elements, dims[i], &elements))
            return false;
    return bpk_dtype_length(dtype, elements, ret_bytes);
}

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

static const struct {
    const char *name;
    bool takes_dim;
} stores[] = {
    [BPK_STORE_NATIVE] = {"Native", false},
    [BPK_STORE_PACKED_NATIVE] = {"PackedNative", true},
    [BPK_STORE_PACKED_U32] = {"PackedU32", true},
    [BPK_STORE_U32] = {"U32", false},
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
    if (!FIND_NAME(name, stores, ret_store))
        return false;
    *ret_takes_dim = stores[*ret_store].takes_dim;
    return true;
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

const char *bpk_quant_store_name(enum bpk_quant_store store) {
    return stores[store].name;
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

unsigned bpk_scale_size(enum bpk_scale scale) {
    return scales[scale].size;
}

/* How the values are stored (Burn's storage_elements). */
static bool split_values(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                         struct bpk_scheme_parts *parts) {
    parts->value_bits = quant_values[scheme->value].bits;
    parts->element_bits = parts->value_bits;
    if (scheme->store == BPK_STORE_PACKED_U32 || scheme->store == BPK_STORE_U32)
        parts->element_bits = 32;
    else if (scheme->store == BPK_STORE_PACKED_NATIVE && scheme->value == BPK_E2M1)
        parts->element_bits = 2 * parts->value_bits;
    uint64_t per_element = parts->element_bits / parts->value_bits;
    parts->packs_a_dim = scheme->store != BPK_STORE_NATIVE && per_element > 1 && rank > 0;
    if (parts->packs_a_dim && scheme->packed_dim >= rank)
        return false;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t dim = dims[i];
        if (parts->packs_a_dim && i == rank - 1 - scheme->packed_dim)
            dim = dim / per_element + (dim % per_element != 0);
        if (!bpk_mul_u64(elements, dim, &elements))
            return false;
    }
    if (!parts->packs_a_dim)
        elements = elements / per_element + (elements % per_element != 0);
    return bpk_mul_u64(elements, (parts->element_bits + 7) / 8, &parts->value_bytes);
}

uint8_t bpk_scheme_block(const struct bpk_scheme *scheme, uint32_t rank, uint32_t i) {
    return i + scheme->block_len >= rank ? scheme->block_dims[i + scheme->block_len - rank] : 1;
}

static bool count_blocks(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                         uint64_t *ret_blocks) {
    if (scheme->block_len > BPK_ARRAY_LEN(scheme->block_dims) || scheme->block_len > rank)
        return false;
    uint64_t blocks = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t block = bpk_scheme_block(scheme, rank, i);
        if (block == 0)
            return false;
        if (!bpk_mul_u64(blocks, dims[i] / block + (dims[i] % block != 0), &blocks))
            return false;
    }
    *ret_blocks = blocks;
    return true;
}

bool bpk_scheme_split(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                      struct bpk_scheme_parts *ret_parts) {
    struct bpk_scheme_parts parts = {
        .scales = 1,
        .scale = scheme->has_block    ? scheme->block_scale
                 : scheme->has_tensor ? scheme->tensor_scale
                                      : BPK_SCALE_F32,
    };
    if (!split_values(scheme, dims, rank, &parts))
        return false;
    if (scheme->has_block && !count_blocks(scheme, dims, rank, &parts.scales))
        return false;
    *ret_parts = parts;
    return true;
}

bool bpk_scheme_length(const struct bpk_scheme *scheme, const uint64_t *dims, uint32_t rank,
                       uint64_t *ret_bytes) {
    struct bpk_scheme_parts parts;
    uint64_t bytes;
    if (!bpk_scheme_split(scheme, dims, rank, &parts) ||
        !bpk_mul_u64(parts.scales, bpk_scale_size(parts.scale), &bytes) ||
        !bpk_add_u64(bytes, parts.value_bytes, &bytes))
        return false;
    if (scheme->has_block && scheme->has_tensor &&
        !bpk_add_u64(bytes, bpk_scale_size(BPK_SCALE_F32), &bytes))
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

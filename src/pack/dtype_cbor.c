#include "pack/dtype_cbor.h"

#include "pack/diag.h"
#include "pack/dtype.h"
#include "pack/text.h"

#include <errno.h>

static int unknown(struct bpk_cbor *cbor, const char *what,
                   const struct bpk_cbor_variant *variant) {
    char shown[80];
    /* A variant that was a byte string may be anything. */
    bool printable = bpk_text_is_utf8((const uint8_t *)variant->name.bytes, variant->name.len);
    return bpk_diag_set(
        cbor->diag, -EBADMSG, cbor->file_offset + variant->head, "unknown %s \"%s\"", what,
        printable ? bpk_text_escape(variant->name.bytes, variant->name.len, shown, sizeof(shown))
                  : "?");
}

static int misplaced_value(struct bpk_cbor *cbor, const char *what,
                           const struct bpk_cbor_variant *variant) {
    return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + variant->head,
                        variant->has_value ? "a %s that takes no value has one"
                                           : "a %s that takes a value has none",
                        what);
}

/* A variant without a value, looked up with `find`. */
#define READ_UNIT(cbor, what, find, ret)                                                           \
    ({                                                                                             \
        struct bpk_cbor_variant variant_;                                                          \
        int r_ = bpk_cbor_enum(cbor, &variant_);                                                   \
        if (r_ == 0 && !find(variant_.name, ret))                                                  \
            r_ = unknown(cbor, what, &variant_);                                                   \
        else if (r_ == 0 && variant_.has_value)                                                    \
            r_ = misplaced_value(cbor, what, &variant_);                                           \
        r_;                                                                                        \
    })

static int read_scale(struct bpk_cbor *cbor, enum bpk_scale *ret_scale) {
    return READ_UNIT(cbor, "scale dtype", bpk_scale_from_name, ret_scale);
}

static int read_store(struct bpk_cbor *cbor, struct bpk_scheme *scheme) {
    struct bpk_cbor_variant variant;
    int r = bpk_cbor_enum(cbor, &variant);
    if (r < 0)
        return r;
    bool takes_dim;
    if (!bpk_quant_store_from_name(variant.name, &scheme->store, &takes_dim))
        return unknown(cbor, "quantization store", &variant);
    if (variant.has_value != takes_dim)
        return misplaced_value(cbor, "quantization store", &variant);
    return variant.has_value ? bpk_cbor_uint(cbor, &scheme->packed_dim) : 0;
}

static int read_u8(struct bpk_cbor *cbor, uint8_t *ret_value) {
    size_t at = cbor->pos;
    uint64_t value;
    int r = bpk_cbor_uint(cbor, &value);
    if (r < 0)
        return r;
    if (value > UINT8_MAX)
        return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + at,
                            "a block size holds %llu, more than 255", (unsigned long long)value);
    *ret_value = (uint8_t)value;
    return 0;
}

static int missing(struct bpk_cbor *cbor, size_t at, const char *where, const char *field) {
    return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + at, "%s without the field \"%s\"",
                        where, field);
}

static int duplicate(struct bpk_cbor *cbor, size_t at, const char *where, const char *field) {
    return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + at, "%s with two fields \"%s\"",
                        where, field);
}

/* Five numbers, as an array of exactly five or as a byte string of at least five. */
static int read_block_storage(struct bpk_cbor *cbor, uint8_t dims[5]) {
    struct bpk_cbor_item item;
    uint64_t count = 0;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r == 0 && item.kind == BPK_CBOR_ARRAY && item.value == 5)
        for (; count < 5 && r == 0; count++)
            r = read_u8(cbor, &dims[count]);
    else if (r == 0 && (item.kind == BPK_CBOR_BYTES || item.kind == BPK_CBOR_BYTES_START))
        r = bpk_cbor_bytes(cbor, &item, dims, 5, &count);
    if (r == 0 && count < 5)
        r = bpk_cbor_unexpected(cbor, &item, "five block dimensions");
    return r;
}

/* {"storage": [u8; 5], "len": u8} */
static int read_block_size(struct bpk_cbor *cbor, unsigned depth, struct bpk_scheme *scheme) {
    static const char where[] = "a block size";
    size_t at = cbor->pos;
    struct bpk_cbor_map map;
    bool has_storage = false;
    bool has_len = false;
    int r = bpk_cbor_map_begin(cbor, &map);
    while (r == 0 && bpk_cbor_map_next(cbor, &map)) {
        struct bpk_str field;
        size_t key_at = cbor->pos;
        r = bpk_cbor_ident(cbor, &field);
        if (r < 0)
            break;
        bool *seen = bpk_str_is(field, "storage") ? &has_storage
                     : bpk_str_is(field, "len")   ? &has_len
                                                  : NULL;
        if (!seen)
            r = bpk_cbor_skip(cbor, depth - 1);
        else if (*seen)
            r = duplicate(cbor, key_at, where, seen == &has_len ? "len" : "storage");
        else if (seen == &has_len)
            r = read_u8(cbor, &scheme->block_len);
        else
            r = read_block_storage(cbor, scheme->block_dims);
        if (seen)
            *seen = true;
    }
    if (r == 0)
        r = map.error;
    if (r == 0 && !has_storage)
        return missing(cbor, at, where, "storage");
    if (r == 0 && !has_len)
        return missing(cbor, at, where, "len");
    return r;
}

/* A map of a block size under `size_field` and a scale under `scale_field`: the block of the
 * SCALED form and the BlockTensor of the LEVELLED one. */
static int read_block(struct bpk_cbor *cbor, unsigned depth, const char *size_field,
                      const char *scale_field, struct bpk_scheme *scheme,
                      enum bpk_scale *ret_scale) {
    static const char where[] = "a quantization block";
    size_t at = cbor->pos;
    struct bpk_cbor_map map;
    bool has_size = false;
    bool has_scale = false;
    int r = bpk_cbor_map_begin(cbor, &map);
    while (r == 0 && bpk_cbor_map_next(cbor, &map)) {
        struct bpk_str field;
        size_t key_at = cbor->pos;
        r = bpk_cbor_ident(cbor, &field);
        if (r < 0)
            break;
        bool *seen = bpk_str_is(field, size_field)    ? &has_size
                     : bpk_str_is(field, scale_field) ? &has_scale
                                                      : NULL;
        if (!seen)
            r = bpk_cbor_skip(cbor, depth - 1);
        else if (*seen)
            r = duplicate(cbor, key_at, where, seen == &has_size ? size_field : scale_field);
        else if (seen == &has_size)
            r = read_block_size(cbor, depth - 1, scheme);
        else
            r = read_scale(cbor, ret_scale);
        if (seen)
            *seen = true;
    }
    if (r == 0)
        r = map.error;
    if (r == 0 && !has_size)
        return missing(cbor, at, where, size_field);
    if (r == 0 && !has_scale)
        return missing(cbor, at, where, scale_field);
    return r;
}

static int read_level(struct bpk_cbor *cbor, unsigned depth, struct bpk_scheme *scheme) {
    struct bpk_cbor_variant variant;
    int r = bpk_cbor_enum(cbor, &variant);
    if (r < 0)
        return r;
    if (bpk_str_is(variant.name, "Tensor") && !variant.has_value) {
        scheme->level = BPK_LEVEL_TENSOR;
        return 0;
    }
    if (bpk_str_is(variant.name, "Block") && variant.has_value) {
        scheme->level = BPK_LEVEL_BLOCK;
        return read_block_size(cbor, depth - 1, scheme);
    }
    if (bpk_str_is(variant.name, "BlockTensor") && variant.has_value) {
        scheme->level = BPK_LEVEL_BLOCK_TENSOR;
        return read_block(cbor, depth - 1, "block", "global", scheme, &scheme->tensor_scale);
    }
    return unknown(cbor, "quantization level", &variant);
}

/* Reads a field that the newest reader ignores, and so must first be good as an unknown key. Then 0
 * if it reads as what older writers meant, 1 if not. */
#define TRY_READ(cbor, depth, read)                                                                \
    ({                                                                                             \
        size_t start_ = (cbor)->pos;                                                               \
        int r_ = bpk_cbor_skip(cbor, depth);                                                       \
        if (r_ == 0) {                                                                             \
            size_t end_ = (cbor)->pos;                                                             \
            struct bpk_diag *diag_ = (cbor)->diag;                                                 \
            (cbor)->pos = start_;                                                                  \
            (cbor)->diag = NULL;                                                                   \
            r_ = (read) == 0 ? 0 : 1;                                                              \
            (cbor)->pos = end_;                                                                    \
            (cbor)->diag = diag_;                                                                  \
        }                                                                                          \
        r_;                                                                                        \
    })

enum scheme_field { VALUE, STORE, MODE, TENSOR, BLOCK, PARAM, LEVEL, FIELDS };

static const char *const scheme_fields[] = {"value", "store", "mode", "tensor",
                                            "block", "param", "level"};

/* What was read of a scheme while its form was not known. */
struct raw_scheme {
    struct bpk_scheme scheme;
    struct bpk_scheme levelled; /* level, block size and global scale */
    enum bpk_scale param;
    bool seen[FIELDS];
    bool has_param;
    bool has_level;
};

static int read_optional(struct bpk_cbor *cbor, bool *ret_some) {
    struct bpk_cbor_item item;
    size_t start = cbor->pos;
    int r = bpk_cbor_next(cbor, &item);
    if (r < 0)
        return r;
    *ret_some = item.kind != BPK_CBOR_NULL;
    if (*ret_some)
        cbor->pos = start;
    return 0;
}

static int read_scheme_field(struct bpk_cbor *cbor, unsigned depth, enum scheme_field field,
                             struct raw_scheme *raw) {
    struct bpk_scheme *scheme = &raw->scheme;
    int r;
    switch (field) {
    case VALUE:
        return READ_UNIT(cbor, "quantization value", bpk_quant_value_from_name, &scheme->value);
    case STORE:
        return read_store(cbor, scheme);
    case MODE:
        return READ_UNIT(cbor, "quantization mode", bpk_quant_mode_from_name, &scheme->mode);
    case TENSOR:
        r = read_optional(cbor, &scheme->has_tensor);
        return r == 0 && scheme->has_tensor ? read_scale(cbor, &scheme->tensor_scale) : r;
    case BLOCK:
        r = read_optional(cbor, &scheme->has_block);
        return r == 0 && scheme->has_block
                   ? read_block(cbor, depth, "size", "dtype", scheme, &scheme->block_scale)
                   : r;
    case PARAM:
        r = TRY_READ(cbor, depth, read_scale(cbor, &raw->param));
        raw->has_param = r == 0;
        return r < 0 ? r : 0;
    case LEVEL:
        r = TRY_READ(cbor, depth, read_level(cbor, depth, &raw->levelled));
        raw->has_level = r == 0;
        return r < 0 ? r : 0;
    default:
        return bpk_cbor_skip(cbor, depth);
    }
}

static int decide_form(struct bpk_cbor *cbor, size_t at, struct raw_scheme *raw,
                       struct bpk_scheme *ret_scheme) {
    static const char where[] = "a quantization scheme";
    bool levelled = raw->has_param && raw->has_level;
    if (raw->scheme.store == BPK_STORE_U32 && !levelled)
        return missing(cbor, at, where, raw->has_param ? "level" : "param");
    if (raw->scheme.store != BPK_STORE_U32 && (raw->seen[TENSOR] || raw->seen[BLOCK]))
        levelled = false;
    struct bpk_scheme scheme = raw->scheme;
    if (levelled) {
        scheme = raw->levelled;
        scheme.form = BPK_SCHEME_LEVELLED;
        scheme.value = raw->scheme.value;
        scheme.store = raw->scheme.store;
        scheme.packed_dim = raw->scheme.packed_dim;
        scheme.mode = raw->scheme.mode;
        scheme.has_block = scheme.level != BPK_LEVEL_TENSOR;
        scheme.has_tensor = scheme.level != BPK_LEVEL_BLOCK;
        scheme.block_scale = raw->param;
        if (scheme.level == BPK_LEVEL_TENSOR)
            scheme.tensor_scale = raw->param;
    }
    *ret_scheme = scheme;
    return 0;
}

static int read_scheme(struct bpk_cbor *cbor, unsigned depth, struct bpk_scheme *ret_scheme) {
    static const char where[] = "a quantization scheme";
    size_t at = cbor->pos;
    struct raw_scheme raw = {0};
    struct bpk_cbor_map map;
    int r = bpk_cbor_map_begin(cbor, &map);
    while (r == 0 && bpk_cbor_map_next(cbor, &map)) {
        struct bpk_str name;
        size_t key_at = cbor->pos;
        r = bpk_cbor_ident(cbor, &name);
        if (r < 0)
            return r;
        int field = VALUE;
        while (field < FIELDS && !bpk_str_is(name, scheme_fields[field]))
            field++;
        if (field <= BLOCK && raw.seen[field])
            return duplicate(cbor, key_at, where, scheme_fields[field]);
        if (field < FIELDS)
            raw.seen[field] = true;
        r = read_scheme_field(cbor, depth - 1, (enum scheme_field)field, &raw);
    }
    if (r == 0)
        r = map.error;
    if (r < 0)
        return r;
    for (int field = VALUE; field <= MODE; field++)
        if (!raw.seen[field])
            return missing(cbor, at, where, scheme_fields[field]);
    return decide_form(cbor, at, &raw, ret_scheme);
}

int bpk_dtype_parse(struct bpk_cbor *cbor, unsigned depth, struct bpk_dtype *ret_dtype,
                    uint32_t *ret_head) {
    struct bpk_cbor_variant variant;
    int r = bpk_cbor_enum(cbor, &variant);
    if (r < 0)
        return r;
    struct bpk_dtype dtype = {0};
    if (!bpk_kind_from_name(variant.name, &dtype.kind))
        return unknown(cbor, "dtype", &variant);
    if (dtype.kind == BPK_QFLOAT) {
        if (!variant.has_value)
            return misplaced_value(cbor, "dtype", &variant);
        r = read_scheme(cbor, depth - 1, &dtype.scheme);
    } else if (dtype.kind == BPK_BOOL && variant.has_value) {
        r = READ_UNIT(cbor, "store of a Bool", bpk_bool_store_from_name, &dtype.bool_store);
    } else if (variant.has_value) {
        return misplaced_value(cbor, "dtype", &variant);
    }
    if (r < 0)
        return r;
    *ret_dtype = dtype;
    *ret_head = (uint32_t)variant.head;
    return 0;
}

bool bpk_dtype_is_modern(const struct bpk_dtype *dtype) {
    if (dtype->kind == BPK_BOOL)
        return dtype->bool_store != BPK_BOOL_TEXT;
    if (dtype->kind != BPK_QFLOAT)
        return false;
    return dtype->scheme.form == BPK_SCHEME_SCALED || dtype->scheme.store == BPK_STORE_PACKED_U32 ||
           dtype->scheme.store == BPK_STORE_PACKED_NATIVE;
}

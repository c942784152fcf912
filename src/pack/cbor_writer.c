#include "pack/cbor_writer.h"

#include "pack/util.h"

#include <string.h>

enum major { UINT = 0x00, NEGINT = 0x20, TEXT = 0x60, ARRAY = 0x80, MAP = 0xa0 };

/* A head byte and `bytes` bytes of `value`, big-endian. */
static void out_big_endian(struct bpk_outbuf *out, uint8_t head, uint64_t value, unsigned bytes) {
    char text[9];
    text[0] = (char)head;
    for (unsigned i = 0; i < bytes; i++)
        text[1 + i] = (char)(uint8_t)(value >> 8 * (bytes - 1 - i));
    bpk_out(out, text, 1 + bytes);
}

static void out_head(struct bpk_outbuf *out, enum major major, uint64_t value) {
    if (value < 24)
        out_big_endian(out, (uint8_t)(major | value), 0, 0);
    else if (value <= UINT8_MAX)
        out_big_endian(out, (uint8_t)(major | 24), value, 1);
    else if (value <= UINT16_MAX)
        out_big_endian(out, (uint8_t)(major | 25), value, 2);
    else if (value <= UINT32_MAX)
        out_big_endian(out, (uint8_t)(major | 26), value, 4);
    else
        out_big_endian(out, (uint8_t)(major | 27), value, 8);
}

void bpk_cbor_out_uint(struct bpk_outbuf *out, uint64_t value) {
    out_head(out, UINT, value);
}

void bpk_cbor_out_int(struct bpk_outbuf *out, int64_t value) {
    if (value < 0)
        out_head(out, NEGINT, (uint64_t)(-1 - value));
    else
        out_head(out, UINT, (uint64_t)value);
}

void bpk_cbor_out_text(struct bpk_outbuf *out, struct bpk_str text) {
    out_head(out, TEXT, text.len);
    bpk_out(out, text.bytes, text.len);
}

void bpk_cbor_out_cstring(struct bpk_outbuf *out, const char *text) {
    bpk_cbor_out_text(out, (struct bpk_str){text, strlen(text)});
}

void bpk_cbor_out_array(struct bpk_outbuf *out, uint64_t count) {
    out_head(out, ARRAY, count);
}

void bpk_cbor_out_map(struct bpk_outbuf *out, uint64_t count) {
    out_head(out, MAP, count);
}

void bpk_cbor_out_bool(struct bpk_outbuf *out, bool value) {
    out_big_endian(out, value ? 0xf5 : 0xf4, 0, 0);
}

void bpk_cbor_out_null(struct bpk_outbuf *out) {
    out_big_endian(out, 0xf6, 0, 0);
}

/* ---- floats ---------------------------------------------------------------------------------- */

enum { FRACTION_BITS = 52 };

/* Narrows a double to a format with `fraction_bits` and exponents from `min` to `max` (of normal
 * numbers, unbiased). False unless the value, or the payload of a quiet NaN, fits exactly. */
static bool narrow(uint64_t bits, unsigned fraction_bits, int min, int max, uint64_t *ret_bits) {
    uint64_t fraction = bits & ((UINT64_C(1) << FRACTION_BITS) - 1);
    int biased = (int)(bits >> FRACTION_BITS & 0x7ff);
    unsigned drop = FRACTION_BITS - fraction_bits;
    uint64_t narrow_exponent;
    if (biased == 0x7ff) {
        /* Widening makes a NaN quiet: a signalling one would not come back. */
        if (fraction != 0 && !(fraction >> (FRACTION_BITS - 1)))
            return false;
        narrow_exponent = (uint64_t)(max - min + 2);
    } else if (biased == 0) {
        if (fraction != 0)
            return false; /* far below any subnormal of a shorter format */
        narrow_exponent = 0;
    } else {
        int exponent = biased - 1023;
        if (exponent > max)
            return false;
        narrow_exponent = (uint64_t)(exponent - min + 1);
        if (exponent < min) { /* a subnormal, if enough low bits are free */
            unsigned extra = (unsigned)(min - exponent);
            if (extra > fraction_bits)
                return false;
            fraction |= UINT64_C(1) << FRACTION_BITS;
            drop += extra;
            narrow_exponent = 0;
        }
    }
    if (fraction & ((UINT64_C(1) << drop) - 1))
        return false;
    unsigned exponent_bits = fraction_bits == 10 ? 5 : 8;
    *ret_bits = (bits >> 63) << (fraction_bits + exponent_bits) | narrow_exponent << fraction_bits |
                fraction >> drop;
    return true;
}

void bpk_cbor_out_float(struct bpk_outbuf *out, uint64_t bits) {
    uint64_t shorter;
    if (narrow(bits, 10, -14, 15, &shorter))
        out_big_endian(out, 0xf9, shorter, 2);
    else if (narrow(bits, 23, -126, 127, &shorter))
        out_big_endian(out, 0xfa, shorter, 4);
    else
        out_big_endian(out, 0xfb, bits, 8);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static void out_block_size(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    bpk_cbor_out_map(out, 2);
    bpk_cbor_out_cstring(out, "storage");
    bpk_cbor_out_array(out, BPK_ARRAY_LEN(scheme->block_dims));
    for (size_t i = 0; i < BPK_ARRAY_LEN(scheme->block_dims); i++)
        bpk_cbor_out_uint(out, scheme->block_dims[i]);
    bpk_cbor_out_cstring(out, "len");
    bpk_cbor_out_uint(out, scheme->block_len);
}

static void out_store(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    bpk_cbor_out_cstring(out, "store");
    switch (scheme->store) {
    case BPK_STORE_NATIVE:
        bpk_cbor_out_cstring(out, "Native");
        return;
    case BPK_STORE_U32:
        bpk_cbor_out_cstring(out, "U32");
        return;
    case BPK_STORE_PACKED_NATIVE:
    case BPK_STORE_PACKED_U32:
        bpk_cbor_out_map(out, 1);
        bpk_cbor_out_cstring(out,
                             scheme->store == BPK_STORE_PACKED_U32 ? "PackedU32" : "PackedNative");
        bpk_cbor_out_uint(out, scheme->packed_dim);
        return;
    }
}

static void out_level(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    bpk_cbor_out_cstring(out, "level");
    switch (scheme->level) {
    case BPK_LEVEL_TENSOR:
        bpk_cbor_out_cstring(out, "Tensor");
        return;
    case BPK_LEVEL_BLOCK:
        bpk_cbor_out_map(out, 1);
        bpk_cbor_out_cstring(out, "Block");
        out_block_size(out, scheme);
        return;
    case BPK_LEVEL_BLOCK_TENSOR:
        bpk_cbor_out_map(out, 1);
        bpk_cbor_out_cstring(out, "BlockTensor");
        bpk_cbor_out_map(out, 2);
        bpk_cbor_out_cstring(out, "block");
        out_block_size(out, scheme);
        bpk_cbor_out_cstring(out, "global");
        bpk_cbor_out_cstring(out, bpk_scale_name(scheme->tensor_scale));
        return;
    }
}

static void out_tensor_and_block(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    bpk_cbor_out_cstring(out, "tensor");
    if (scheme->has_tensor)
        bpk_cbor_out_cstring(out, bpk_scale_name(scheme->tensor_scale));
    else
        bpk_cbor_out_null(out);
    bpk_cbor_out_cstring(out, "block");
    if (!scheme->has_block) {
        bpk_cbor_out_null(out);
        return;
    }
    bpk_cbor_out_map(out, 2);
    bpk_cbor_out_cstring(out, "size");
    out_block_size(out, scheme);
    bpk_cbor_out_cstring(out, "dtype");
    bpk_cbor_out_cstring(out, bpk_scale_name(scheme->block_scale));
}

static void out_scheme(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    bool levelled = scheme->form == BPK_SCHEME_LEVELLED;
    bpk_cbor_out_map(out, 5);
    bpk_cbor_out_cstring(out, "value");
    bpk_cbor_out_cstring(out, bpk_quant_value_name(scheme->value));
    if (levelled) {
        bpk_cbor_out_cstring(out, "param");
        bpk_cbor_out_cstring(out, bpk_scale_name(scheme->level == BPK_LEVEL_TENSOR
                                                     ? scheme->tensor_scale
                                                     : scheme->block_scale));
    }
    out_store(out, scheme);
    if (levelled)
        out_level(out, scheme);
    bpk_cbor_out_cstring(out, "mode");
    bpk_cbor_out_cstring(out, bpk_quant_mode_name(scheme->mode));
    if (!levelled)
        out_tensor_and_block(out, scheme);
}

void bpk_cbor_out_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype) {
    if (dtype->kind == BPK_QFLOAT) {
        bpk_cbor_out_map(out, 1);
        bpk_cbor_out_cstring(out, "QFloat");
        out_scheme(out, &dtype->scheme);
    } else if (dtype->kind == BPK_BOOL && dtype->bool_store != BPK_BOOL_TEXT) {
        bpk_cbor_out_map(out, 1);
        bpk_cbor_out_cstring(out, "Bool");
        bpk_cbor_out_cstring(out, bpk_bool_store_name(dtype->bool_store));
    } else {
        bpk_cbor_out_cstring(out, bpk_kind_name(dtype->kind));
    }
}

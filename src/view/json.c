#include "view/json.h"

#include "pack/text.h"
#include "pack/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings --------------------------------------------------------------------------------- */

static void out_escape(struct bpk_outbuf *out, uint32_t code_point) {
    static const struct {
        uint32_t code_point;
        const char *text;
    } short_forms[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\t', "\\t"},
                       {'\r', "\\r"}, {'\b', "\\b"},  {'\f', "\\f"}};
    for (size_t i = 0; i < BPK_ARRAY_LEN(short_forms); i++) {
        if (short_forms[i].code_point == code_point) {
            bpk_out_str(out, short_forms[i].text);
            return;
        }
    }
    char text[8];
    int n = snprintf(text, sizeof(text), "\\u%04x", (unsigned)code_point & 0xffff);
    bpk_out(out, text, (size_t)n);
}

void bpk_json_string(struct bpk_outbuf *out, struct bpk_str text) {
    bpk_out(out, "\"", 1);
    size_t plain = 0; /* start of the run that needs no escape */
    size_t i = 0;
    while (i < text.len) {
        unsigned char c = (unsigned char)text.bytes[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            i++;
            continue;
        }
        uint32_t code;
        size_t n = bpk_text_char((const uint8_t *)text.bytes + i, &code);
        if (c == '"' || c == '\\' || bpk_text_is_unsafe(code)) {
            bpk_out(out, text.bytes + plain, i - plain);
            out_escape(out, code);
            plain = i + n;
        }
        i += n;
    }
    bpk_out(out, text.bytes + plain, text.len - plain);
    bpk_out(out, "\"", 1);
}

void bpk_json_cstring(struct bpk_outbuf *out, const char *text) {
    bpk_json_string(out, (struct bpk_str){text, strlen(text)});
}

/* ---- numbers --------------------------------------------------------------------------------- */

void bpk_json_u64(struct bpk_outbuf *out, uint64_t number) {
    bool quote = number > BPK_JSON_SAFE_INTEGER;
    if (quote)
        bpk_out(out, "\"", 1);
    bpk_out_u64(out, number);
    if (quote)
        bpk_out(out, "\"", 1);
}

void bpk_json_i64(struct bpk_outbuf *out, int64_t number) {
    uint64_t magnitude = number < 0 ? -(uint64_t)number : (uint64_t)number;
    bool quote = magnitude > BPK_JSON_SAFE_INTEGER;
    if (quote)
        bpk_out(out, "\"", 1);
    if (number < 0)
        bpk_out(out, "-", 1);
    bpk_out_u64(out, magnitude);
    if (quote)
        bpk_out(out, "\"", 1);
}

/* Finds the fewest digits that read back to the same double. */
static void out_finite(struct bpk_outbuf *out, double value) {
    char text[40];
    int precision = 1;
    do {
        snprintf(text, sizeof(text), "%.*g", precision, value);
    } while (precision++ < 17 && strtod(text, NULL) != value);
    bpk_out_str(out, text);
    if (!strpbrk(text, ".e"))
        bpk_out(out, ".0", 2); /* a float stays one for whoever reads it */
}

void bpk_json_double(struct bpk_outbuf *out, uint64_t bits) {
    const uint64_t infinity = UINT64_C(0x7ff) << 52;
    const uint64_t plain_nan = infinity | UINT64_C(1) << 51;
    if ((bits & infinity) != infinity) {
        double value;
        memcpy(&value, &bits, sizeof(value));
        out_finite(out, value);
    } else if (bits == infinity) {
        bpk_out_str(out, "\"Infinity\"");
    } else if (bits == (infinity | UINT64_C(1) << 63)) {
        bpk_out_str(out, "\"-Infinity\"");
    } else if (bits == plain_nan) {
        bpk_out_str(out, "\"NaN\"");
    } else {
        char text[24];
        snprintf(text, sizeof(text), "\"0x%016" PRIx64 "\"", bits);
        bpk_out_str(out, text);
    }
}

/* ---- objects --------------------------------------------------------------------------------- */

void bpk_json_field(struct bpk_outbuf *out, unsigned indent, bool first, const char *key) {
    bpk_out_str(out, first ? "\n" : ",\n");
    for (unsigned i = 0; i < indent + 2; i++)
        bpk_out(out, " ", 1);
    bpk_json_cstring(out, key);
    bpk_out_str(out, ": ");
}

void bpk_json_end_object(struct bpk_outbuf *out, unsigned indent) {
    bpk_out_str(out, "\n");
    for (unsigned i = 0; i < indent; i++)
        bpk_out(out, " ", 1);
    bpk_out_str(out, "}");
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* ", "KEY": " or, for the first one, ""KEY": ". */
static void out_key(struct bpk_outbuf *out, const char *separator, const char *key) {
    bpk_out_str(out, separator);
    bpk_json_cstring(out, key);
    bpk_out_str(out, ": ");
}

static void out_store(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    out_key(out, ", ", "store");
    switch (scheme->store) {
    case BPK_STORE_NATIVE:
        bpk_out_str(out, "\"Native\"");
        return;
    case BPK_STORE_U32:
        bpk_out_str(out, "\"U32\"");
        return;
    case BPK_STORE_PACKED_NATIVE:
        out_key(out, "{", "PackedNative");
        break;
    case BPK_STORE_PACKED_U32:
        out_key(out, "{", "PackedU32");
        break;
    }
    bpk_json_u64(out, scheme->packed_dim);
    bpk_out_str(out, "}");
}

static void out_block_size(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    out_key(out, "{", "storage");
    for (size_t i = 0; i < BPK_ARRAY_LEN(scheme->block_dims); i++) {
        bpk_out_str(out, i == 0 ? "[" : ", ");
        bpk_out_u64(out, scheme->block_dims[i]);
    }
    bpk_out_str(out, "]");
    out_key(out, ", ", "len");
    bpk_out_u64(out, scheme->block_len);
    bpk_out_str(out, "}");
}

static void out_level(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    out_key(out, ", ", "level");
    switch (scheme->level) {
    case BPK_LEVEL_TENSOR:
        bpk_out_str(out, "\"Tensor\"");
        break;
    case BPK_LEVEL_BLOCK:
        out_key(out, "{", "Block");
        out_block_size(out, scheme);
        bpk_out_str(out, "}");
        break;
    case BPK_LEVEL_BLOCK_TENSOR:
        out_key(out, "{", "BlockTensor");
        out_key(out, "{", "block");
        out_block_size(out, scheme);
        out_key(out, ", ", "global");
        bpk_json_cstring(out, bpk_scale_name(scheme->tensor_scale));
        bpk_out_str(out, "}}");
        break;
    }
}

static void out_tensor_and_block(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    out_key(out, ", ", "tensor");
    if (scheme->has_tensor)
        bpk_json_cstring(out, bpk_scale_name(scheme->tensor_scale));
    else
        bpk_out_str(out, "null");
    out_key(out, ", ", "block");
    if (scheme->has_block) {
        out_key(out, "{", "size");
        out_block_size(out, scheme);
        out_key(out, ", ", "dtype");
        bpk_json_cstring(out, bpk_scale_name(scheme->block_scale));
        bpk_out_str(out, "}");
    } else {
        bpk_out_str(out, "null");
    }
}

/* The fields in the order in which each form's writer has them. */
static void out_scheme(struct bpk_outbuf *out, const struct bpk_scheme *scheme) {
    bool levelled = scheme->form == BPK_SCHEME_LEVELLED;
    out_key(out, "{", "value");
    bpk_json_cstring(out, bpk_quant_value_name(scheme->value));
    if (levelled) {
        out_key(out, ", ", "param");
        bpk_json_cstring(out,
                         bpk_scale_name(scheme->level == BPK_LEVEL_TENSOR ? scheme->tensor_scale
                                                                          : scheme->block_scale));
    }
    out_store(out, scheme);
    if (levelled)
        out_level(out, scheme);
    out_key(out, ", ", "mode");
    bpk_json_cstring(out, bpk_quant_mode_name(scheme->mode));
    if (!levelled)
        out_tensor_and_block(out, scheme);
    bpk_out_str(out, "}");
}

void bpk_json_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype) {
    if (dtype->kind == BPK_QFLOAT) {
        out_key(out, "{", "QFloat");
        out_scheme(out, &dtype->scheme);
        bpk_out_str(out, "}");
    } else if (dtype->kind == BPK_BOOL && dtype->bool_store != BPK_BOOL_TEXT) {
        out_key(out, "{", "Bool");
        bpk_json_cstring(out, bpk_bool_store_name(dtype->bool_store));
        bpk_out_str(out, "}");
    } else {
        bpk_json_cstring(out, bpk_kind_name(dtype->kind));
    }
}

void bpk_json_shape(struct bpk_outbuf *out, struct bpk_shape shape) {
    uint64_t dim;
    bool first = true;
    bpk_out_str(out, "[");
    while (bpk_shape_next(&shape, &dim)) {
        if (!first)
            bpk_out_str(out, ", ");
        bpk_json_u64(out, dim);
        first = false;
    }
    bpk_out_str(out, "]");
}

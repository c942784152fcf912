/* One item of CBOR at a time: libcbor's callbacks, and what they leave out. */
#include "pack/cbor_reader.h"

#include "pack/diag.h"
#include "pack/text.h"

#include <cbor.h>
#include <errno.h>
#include <string.h>

/* ---- libcbor's callbacks: each notes what was read in the item under way --------------------- */

static void on_uint8(void *context, uint8_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_UINT, .value = value};
}
static void on_uint16(void *context, uint16_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_UINT, .value = value};
}
static void on_uint32(void *context, uint32_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_UINT, .value = value};
}
static void on_uint64(void *context, uint64_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_UINT, .value = value};
}
static void on_negint8(void *context, uint8_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_NEGINT, .value = value};
}
static void on_negint16(void *context, uint16_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_NEGINT, .value = value};
}
static void on_negint32(void *context, uint32_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_NEGINT, .value = value};
}
static void on_negint64(void *context, uint64_t value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_NEGINT, .value = value};
}
static void on_bytes(void *context, cbor_data data, size_t len) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_BYTES, .value = len, .data = data};
}
static void on_bytes_start(void *context) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_BYTES_START};
}
static void on_text(void *context, cbor_data data, size_t len) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_TEXT, .value = len, .data = data};
}
static void on_text_start(void *context) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_TEXT_START};
}
static void on_array(void *context, size_t count) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_ARRAY, .value = count};
}
static void on_array_start(void *context) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_ARRAY_START};
}
static void on_map(void *context, size_t count) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_MAP, .value = count};
}
static void on_map_start(void *context) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_MAP_START};
}
static void on_tag(void *context, uint64_t tag) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_TAG, .value = tag};
}
/* The values of floats are taken from the bytes, see float_bits: a NaN would lose its payload. */
static void on_float(void *context, float value) {
    (void)value;
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_FLOAT};
}
static void on_double(void *context, double value) {
    (void)value;
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_FLOAT};
}
static void on_null(void *context) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_NULL};
}
static void on_bool(void *context, bool value) {
    *(struct bpk_cbor_item *)context =
        (struct bpk_cbor_item){.kind = BPK_CBOR_BOOL, .value = value};
}
static void on_break(void *context) {
    *(struct bpk_cbor_item *)context = (struct bpk_cbor_item){.kind = BPK_CBOR_BREAK};
}

static const struct cbor_callbacks callbacks = {
    .uint8 = on_uint8,
    .uint16 = on_uint16,
    .uint32 = on_uint32,
    .uint64 = on_uint64,
    .negint8 = on_negint8,
    .negint16 = on_negint16,
    .negint32 = on_negint32,
    .negint64 = on_negint64,
    .byte_string = on_bytes,
    .byte_string_start = on_bytes_start,
    .string = on_text,
    .string_start = on_text_start,
    .array_start = on_array,
    .indef_array_start = on_array_start,
    .map_start = on_map,
    .indef_map_start = on_map_start,
    .tag = on_tag,
    .float2 = on_float,
    .float4 = on_float,
    .float8 = on_double,
    .null = on_null,
    .undefined = on_null,
    .boolean = on_bool,
    .indef_break = on_break,
};

/* ---- one item at a time ---------------------------------------------------------------------- */

int bpk_cbor_fail(struct bpk_cbor *cbor, size_t at, const char *sentence) {
    return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + at, "%s", sentence);
}

uint64_t bpk_cbor_read_be(const uint8_t *p, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | p[i];
    return value;
}

/* Bits of the double that equals a half; of a NaN the payload is kept and made quiet, as the
 * reader in Rust has it. */
static uint64_t half_bits(uint16_t half) {
    uint64_t sign = (uint64_t)(half >> 15) << 63;
    unsigned exponent = half >> 10 & 0x1f;
    uint64_t fraction = half & 0x3ff;
    if (exponent == 0x1f)
        return sign | UINT64_C(0x7ff) << 52 | fraction << 42 | (fraction ? UINT64_C(1) << 51 : 0);
    if (exponent == 0) {
        if (fraction == 0)
            return sign;
        unsigned shift = (unsigned)__builtin_clzll(fraction) - 53; /* to bit 10 */
        fraction = fraction << shift & 0x3ff;
        return sign | (uint64_t)(1023 - 14 - shift) << 52 | fraction << 42;
    }
    return sign | (uint64_t)(exponent + 1023 - 15) << 52 | fraction << 42;
}

static uint64_t float_bits(const uint8_t *head) {
    if (head[0] == 0xf9)
        return half_bits((uint16_t)bpk_cbor_read_be(head + 1, 2));
    if (head[0] == 0xfb)
        return bpk_cbor_read_be(head + 1, 8);
    uint32_t single_bits = (uint32_t)bpk_cbor_read_be(head + 1, 4);
    if ((single_bits & 0x7f800000) == 0x7f800000) {
        uint64_t fraction = single_bits & 0x7fffff;
        return (uint64_t)(single_bits >> 31) << 63 | UINT64_C(0x7ff) << 52 | fraction << 29 |
               (fraction ? UINT64_C(1) << 51 : 0);
    }
    float single;
    memcpy(&single, &single_bits, sizeof(single));
    double wide = single;
    uint64_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    return bits;
}

/* libcbor 0.8 takes the tags 6 to 20 for malformed; they are as good as any. */
static bool is_unassigned_tag(uint8_t head) {
    return head >= 0xc6 && head <= 0xd4;
}

int bpk_cbor_next(struct bpk_cbor *cbor, struct bpk_cbor_item *ret_item) {
    struct bpk_cbor_item item = {0};
    size_t at = cbor->pos;
    if (at >= cbor->size)
        return bpk_cbor_fail(cbor, at, "the CBOR metadata ends in the middle of a value");
    if (is_unassigned_tag(cbor->data[at])) {
        *ret_item = (struct bpk_cbor_item){
            .kind = BPK_CBOR_TAG,
            .head = at,
            .value = cbor->data[at] & 0x1f,
        };
        cbor->pos = at + 1;
        return 0;
    }
    struct cbor_decoder_result result =
        cbor_stream_decode(cbor->data + at, cbor->size - at, &callbacks, &item);
    if (result.status == CBOR_DECODER_NEDATA)
        return bpk_cbor_fail(cbor, at, "the CBOR metadata ends in the middle of a value");
    if (result.status != CBOR_DECODER_FINISHED)
        return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + at,
                            "the CBOR metadata is malformed: no value starts with the byte %02x",
                            cbor->data[at]);
    item.head = at;
    if (item.kind == BPK_CBOR_FLOAT)
        item.value = float_bits(cbor->data + at);
    if (item.kind == BPK_CBOR_TEXT && !bpk_text_is_utf8(item.data, item.value))
        return bpk_cbor_fail(cbor, at, "invalid UTF-8 in a text of the CBOR metadata");
    cbor->pos = at + result.read;
    *ret_item = item;
    return 0;
}

int bpk_cbor_next_untagged(struct bpk_cbor *cbor, struct bpk_cbor_item *ret_item) {
    for (unsigned tags = 0; tags <= BPK_CBOR_MAX_TAGS; tags++) {
        struct bpk_cbor_item item;
        int r = bpk_cbor_next(cbor, &item);
        if (r < 0)
            return r;
        if (item.kind != BPK_CBOR_TAG) {
            *ret_item = item;
            return 0;
        }
    }
    return bpk_cbor_fail(cbor, cbor->pos, "more than 1024 CBOR tags before one value");
}

int bpk_cbor_unexpected(struct bpk_cbor *cbor, const struct bpk_cbor_item *item, const char *what) {
    static const char *const names[] = {
        [BPK_CBOR_UINT] = "an integer",
        [BPK_CBOR_NEGINT] = "a negative integer",
        [BPK_CBOR_BYTES] = "a byte string",
        [BPK_CBOR_BYTES_START] = "a byte string in chunks",
        [BPK_CBOR_TEXT] = "a text",
        [BPK_CBOR_TEXT_START] = "a text in chunks",
        [BPK_CBOR_ARRAY] = "an array",
        [BPK_CBOR_ARRAY_START] = "an array of indefinite length",
        [BPK_CBOR_MAP] = "a map",
        [BPK_CBOR_MAP_START] = "a map of indefinite length",
        [BPK_CBOR_TAG] = "a tag",
        [BPK_CBOR_BOOL] = "a boolean",
        [BPK_CBOR_NULL] = "null",
        [BPK_CBOR_FLOAT] = "a float",
        [BPK_CBOR_BREAK] = "a break",
    };
    return bpk_diag_set(cbor->diag, -EBADMSG, cbor->file_offset + item->head,
                        "expected %s, found %s", what, names[item->kind]);
}

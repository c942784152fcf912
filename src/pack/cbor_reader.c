#include "pack/cbor_reader.h"

#include <string.h>

enum { TAG_BIGNUM = 2, TAG_NEGATIVE_BIGNUM = 3 };

/* ---- skipping -------------------------------------------------------------------------------- */

/* Reads the chunks after a BYTES_START or TEXT_START up to the break; chunks do not nest. */
static int skip_chunks(struct bpk_cbor *cbor, enum bpk_cbor_kind chunk_kind) {
    for (;;) {
        struct bpk_cbor_item chunk;
        int r = bpk_cbor_next(cbor, &chunk);
        if (r < 0)
            return r;
        if (chunk.kind == BPK_CBOR_BREAK)
            return 0;
        if (chunk.kind != chunk_kind)
            return bpk_cbor_unexpected(cbor, &chunk, "a chunk of the same string");
    }
}

/* Value of a byte string as a big-endian number of at most 16 significant bytes; larger ones set
 * `huge`. */
struct bignum {
    unsigned __int128 value;
    unsigned digits;
    bool huge;
};

static void bignum_append(struct bignum *number, const struct bpk_cbor_item *bytes) {
    for (uint64_t i = 0; i < bytes->value; i++) {
        if (number->digits == 0 && bytes->data[i] == 0)
            continue;
        if (number->digits == 16) {
            number->huge = true;
            return;
        }
        number->value = number->value << 8 | bytes->data[i];
        number->digits++;
    }
}

/* After a tag 2 or 3: its byte string. */
static int read_bignum(struct bpk_cbor *cbor, struct bignum *ret_number) {
    struct bpk_cbor_item item;
    struct bignum number = {0};
    int r = bpk_cbor_next(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind == BPK_CBOR_BYTES) {
        bignum_append(&number, &item);
    } else if (item.kind == BPK_CBOR_BYTES_START) {
        for (;;) {
            r = bpk_cbor_next(cbor, &item);
            if (r < 0)
                return r;
            if (item.kind == BPK_CBOR_BREAK)
                break;
            if (item.kind != BPK_CBOR_BYTES)
                return bpk_cbor_unexpected(cbor, &item, "a chunk of a big number");
            bignum_append(&number, &item);
        }
    } else {
        return bpk_cbor_unexpected(cbor, &item, "the bytes of a big number");
    }
    *ret_number = number;
    return 0;
}

/* A level of nesting under way: how many items are left in it; in a map keys and values count
 * one each. */
struct level {
    uint64_t left;
    bool indefinite;
    bool is_map;
    bool odd; /* indefinite map: a key was read and its value was not */
};

/* Whether the item opens a level; fills it. */
static bool opens_level(const struct bpk_cbor_item *item, struct level *ret_level) {
    struct level level = {0};
    switch (item->kind) {
    case BPK_CBOR_TAG:
        level.left = 1;
        break;
    case BPK_CBOR_ARRAY:
        level.left = item->value;
        break;
    case BPK_CBOR_MAP:
        level.left = item->value > UINT64_MAX / 2 ? UINT64_MAX : item->value * 2;
        break;
    case BPK_CBOR_ARRAY_START:
        level.indefinite = true;
        break;
    case BPK_CBOR_MAP_START:
        level.indefinite = true;
        level.is_map = true;
        break;
    default:
        return false;
    }
    *ret_level = level;
    return true;
}

/* What skip does with an item that opens no level. */
static int skip_leaf(struct bpk_cbor *cbor, const struct bpk_cbor_item *item) {
    switch (item->kind) {
    case BPK_CBOR_BYTES_START:
        return skip_chunks(cbor, BPK_CBOR_BYTES);
    case BPK_CBOR_TEXT_START:
        return skip_chunks(cbor, BPK_CBOR_TEXT);
    case BPK_CBOR_BREAK:
        return bpk_cbor_unexpected(cbor, item, "a value");
    default:
        return 0;
    }
}

/* A big number is one value without a level; ciborium refuses a negative one below -2^127. */
static int skip_bignum(struct bpk_cbor *cbor, const struct bpk_cbor_item *tag) {
    struct bignum number;
    int r = read_bignum(cbor, &number);
    if (r < 0)
        return r;
    if (tag->value == TAG_NEGATIVE_BIGNUM && !number.huge && number.value >> 127)
        return bpk_cbor_fail(cbor, tag->head, "a big number is too large");
    return 0;
}

int bpk_cbor_skip(struct bpk_cbor *cbor, unsigned depth) {
    struct level levels[BPK_CBOR_MAX_DEPTH];
    unsigned open = 0;
    if (depth > BPK_CBOR_MAX_DEPTH)
        depth = BPK_CBOR_MAX_DEPTH;
    do {
        struct bpk_cbor_item item;
        int r = bpk_cbor_next(cbor, &item);
        if (r < 0)
            return r;
        struct level *top = open > 0 ? &levels[open - 1] : NULL;
        if (item.kind == BPK_CBOR_BREAK && top && top->indefinite && !top->odd) {
            open--;
        } else {
            if (top && top->indefinite)
                top->odd = top->is_map && !top->odd;
            else if (top)
                top->left--;
            struct level inner;
            if (item.kind == BPK_CBOR_TAG &&
                (item.value == TAG_BIGNUM || item.value == TAG_NEGATIVE_BIGNUM)) {
                r = skip_bignum(cbor, &item);
            } else if (opens_level(&item, &inner)) {
                if (open == depth)
                    return bpk_cbor_fail(cbor, item.head, "the CBOR metadata is nested too deeply");
                levels[open++] = inner;
            } else {
                r = skip_leaf(cbor, &item);
            }
            if (r < 0)
                return r;
        }
        while (open > 0 && !levels[open - 1].indefinite && levels[open - 1].left == 0)
            open--;
    } while (open > 0);
    return 0;
}

/* ---- typed values ---------------------------------------------------------------------------- */

/* An integer of any size up to 128 bits; tags before it do not count. */
static int read_integer(struct bpk_cbor *cbor, bool *ret_negative, unsigned __int128 *ret_value) {
    for (unsigned tags = 0; tags <= BPK_CBOR_MAX_TAGS; tags++) {
        struct bpk_cbor_item item;
        int r = bpk_cbor_next(cbor, &item);
        if (r < 0)
            return r;
        if (item.kind == BPK_CBOR_UINT || item.kind == BPK_CBOR_NEGINT) {
            *ret_negative = item.kind == BPK_CBOR_NEGINT;
            *ret_value = item.value;
            return 0;
        }
        if (item.kind != BPK_CBOR_TAG)
            return bpk_cbor_unexpected(cbor, &item, "an integer");
        if (item.value != TAG_BIGNUM && item.value != TAG_NEGATIVE_BIGNUM)
            continue;
        struct bignum number;
        r = read_bignum(cbor, &number);
        if (r < 0)
            return r;
        if (number.huge)
            return bpk_cbor_fail(cbor, item.head, "a big number is too large");
        *ret_negative = item.value == TAG_NEGATIVE_BIGNUM;
        *ret_value = number.value;
        return 0;
    }
    return bpk_cbor_fail(cbor, cbor->pos, "more than 1024 CBOR tags before one value");
}

int bpk_cbor_uint(struct bpk_cbor *cbor, uint64_t *ret_value) {
    size_t at = cbor->pos;
    bool negative = false;
    unsigned __int128 value = 0;
    int r = read_integer(cbor, &negative, &value);
    if (r < 0)
        return r;
    if (negative)
        return bpk_cbor_fail(cbor, at, "expected an unsigned integer, found a negative integer");
    if (value > UINT64_MAX)
        return bpk_cbor_fail(cbor, at, "an integer is too large");
    *ret_value = (uint64_t)value;
    return 0;
}

int bpk_cbor_int(struct bpk_cbor *cbor, int64_t *ret_value) {
    size_t at = cbor->pos;
    bool negative = false;
    unsigned __int128 value = 0;
    int r = read_integer(cbor, &negative, &value);
    if (r < 0)
        return r;
    if (value > INT64_MAX)
        return bpk_cbor_fail(cbor, at, "an integer is too large");
    *ret_value = negative ? -1 - (int64_t)value : (int64_t)value;
    return 0;
}

int bpk_cbor_bool(struct bpk_cbor *cbor, uint64_t *ret_value) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind != BPK_CBOR_BOOL)
        return bpk_cbor_unexpected(cbor, &item, "a boolean");
    *ret_value = item.value;
    return 0;
}

int bpk_cbor_float(struct bpk_cbor *cbor, uint64_t *ret_bits) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind != BPK_CBOR_FLOAT)
        return bpk_cbor_unexpected(cbor, &item, "a float");
    *ret_bits = item.value;
    return 0;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Writes the head of a definite text of `len` bytes; returns its size. */
static size_t write_text_head(uint8_t *out, uint64_t len) {
    unsigned bytes = len < 24 ? 0 : len <= 0xff ? 1 : len <= 0xffff ? 2 : len <= 0xffffffff ? 4 : 8;
    static const uint8_t info[] = {[1] = 24, [2] = 25, [4] = 26, [8] = 27};
    out[0] = (uint8_t)(0x60 | (bytes == 0 ? len : info[bytes]));
    for (unsigned i = 0; i < bytes; i++)
        out[1 + i] = (uint8_t)(len >> 8 * (bytes - 1 - i));
    return 1 + bytes;
}

/* Turns the chunks that follow a TEXT_START into one definite text at the same place. It always
 * fits: a definite head is never longer than start, chunk heads and break together. */
static int join_chunks(struct bpk_cbor *cbor, size_t start) {
    size_t joined = 0;
    for (;;) {
        struct bpk_cbor_item chunk;
        int r = bpk_cbor_next(cbor, &chunk);
        if (r < 0)
            return r;
        if (chunk.kind == BPK_CBOR_BREAK)
            break;
        if (chunk.kind != BPK_CBOR_TEXT)
            return bpk_cbor_unexpected(cbor, &chunk, "a chunk of the same text");
        memmove(cbor->data + start + joined, chunk.data, chunk.value);
        joined += chunk.value;
    }
    uint8_t head[9];
    size_t head_size = write_text_head(head, joined);
    memmove(cbor->data + start + head_size, cbor->data + start, joined);
    memcpy(cbor->data + start, head, head_size);
    return 0;
}

int bpk_cbor_bytes(struct bpk_cbor *cbor, const struct bpk_cbor_item *item, uint8_t *out,
                   size_t max, uint64_t *ret_count) {
    struct bpk_cbor_item chunk = *item;
    uint64_t count = 0;
    for (;;) {
        if (item->kind == BPK_CBOR_BYTES_START) {
            int r = bpk_cbor_next(cbor, &chunk);
            if (r < 0)
                return r;
            if (chunk.kind == BPK_CBOR_BREAK)
                break;
            if (chunk.kind != BPK_CBOR_BYTES)
                return bpk_cbor_unexpected(cbor, &chunk, "a chunk of the same string");
        }
        for (uint64_t i = 0; i < chunk.value && count + i < max; i++)
            out[count + i] = chunk.data[i];
        count += chunk.value;
        if (item->kind == BPK_CBOR_BYTES)
            break;
    }
    *ret_count = count;
    return 0;
}

int bpk_cbor_text(struct bpk_cbor *cbor, uint32_t *ret_head) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind == BPK_CBOR_TEXT_START)
        r = join_chunks(cbor, item.head);
    else if (item.kind != BPK_CBOR_TEXT)
        r = bpk_cbor_unexpected(cbor, &item, "a text");
    if (r < 0)
        return r;
    *ret_head = (uint32_t)item.head;
    return 0;
}

struct bpk_str bpk_cbor_text_at(const uint8_t *block, uint32_t head) {
    const uint8_t *p = block + head;
    unsigned info = p[0] & 0x1f;
    if (info < 24)
        return (struct bpk_str){.bytes = (const char *)p + 1, .len = info};
    unsigned bytes = 1U << (info - 24);
    return (struct bpk_str){.bytes = (const char *)p + 1 + bytes,
                            .len = bpk_cbor_read_be(p + 1, bytes)};
}

int bpk_cbor_ident(struct bpk_cbor *cbor, struct bpk_str *ret_ident) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind != BPK_CBOR_TEXT && item.kind != BPK_CBOR_BYTES)
        return bpk_cbor_unexpected(cbor, &item, "a name");
    if (item.value > BPK_CBOR_MAX_IDENT)
        return bpk_cbor_fail(cbor, item.head, "a field name is longer than 4096 bytes");
    *ret_ident = (struct bpk_str){.bytes = (const char *)item.data, .len = item.value};
    return 0;
}

/* ---- maps and enums -------------------------------------------------------------------------- */

int bpk_cbor_map_begin(struct bpk_cbor *cbor, struct bpk_cbor_map *ret_map) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    if (item.kind != BPK_CBOR_MAP && item.kind != BPK_CBOR_MAP_START)
        return bpk_cbor_unexpected(cbor, &item, "a map");
    *ret_map = (struct bpk_cbor_map){
        .indefinite = item.kind == BPK_CBOR_MAP_START,
        .left = item.value,
    };
    return 0;
}

bool bpk_cbor_map_next(struct bpk_cbor *cbor, struct bpk_cbor_map *map) {
    if (!map->indefinite)
        return map->left > 0 && map->left--;
    if (cbor->pos >= cbor->size) {
        map->error =
            bpk_cbor_fail(cbor, cbor->pos, "the CBOR metadata ends in the middle of a map");
        return false;
    }
    if (cbor->data[cbor->pos] == 0xff) {
        cbor->pos++;
        return false;
    }
    return true;
}

int bpk_cbor_enum(struct bpk_cbor *cbor, struct bpk_cbor_variant *ret_variant) {
    struct bpk_cbor_item item;
    int r = bpk_cbor_next_untagged(cbor, &item);
    if (r < 0)
        return r;
    struct bpk_cbor_variant variant = {.head = item.head};
    if (item.kind == BPK_CBOR_TEXT && item.value <= BPK_CBOR_MAX_IDENT) {
        variant.name = (struct bpk_str){.bytes = (const char *)item.data, .len = item.value};
    } else if (item.kind == BPK_CBOR_MAP && item.value == 1) {
        variant.has_value = true;
        r = bpk_cbor_ident(cbor, &variant.name);
        if (r < 0)
            return r;
    } else {
        return bpk_cbor_unexpected(cbor, &item, "a variant (a text or a map of one entry)");
    }
    *ret_variant = variant;
    return 0;
}

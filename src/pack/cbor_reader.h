/* A bounded pull reader over untrusted CBOR in memory, on libcbor's streaming decoder.
 *
 * It reads one item's head at a time and allocates nothing, so that a declared length or count
 * costs nothing until its bytes are there; nesting is counted, not recursed. It takes what
 * ciborium 0.2.2 takes (tags before a value, bignums that fit, byte strings as field names) and
 * refuses what is not well-formed. A string in chunks that is read for its value is made definite
 * in place, so that it can be found again from the offset of its head.
 */
#ifndef BPK_PACK_CBOR_READER_H
#define BPK_PACK_CBOR_READER_H

#include "bpk.h"

#define BPK_CBOR_MAX_DEPTH                                                                         \
    128                         /* containers, the top one included; as ciborium's recursion limit \
                                 */
#define BPK_CBOR_MAX_TAGS  1024 /* tags before one value */
#define BPK_CBOR_MAX_IDENT 4096 /* bytes of a field name or variant */

struct bpk_cbor {
    uint8_t *data; /* the block; written to only where a text in chunks is made definite */
    size_t size;
    size_t pos;           /* next byte to read */
    uint64_t file_offset; /* where data[0] lies in the file, for diagnostics */
    struct bpk_diag *diag;
};

enum bpk_cbor_kind {
    BPK_CBOR_UINT,
    BPK_CBOR_NEGINT, /* the number is -1 - value */
    BPK_CBOR_BYTES,
    BPK_CBOR_BYTES_START, /* chunks follow, then BREAK */
    BPK_CBOR_TEXT,
    BPK_CBOR_TEXT_START,
    BPK_CBOR_ARRAY,
    BPK_CBOR_ARRAY_START,
    BPK_CBOR_MAP,
    BPK_CBOR_MAP_START,
    BPK_CBOR_TAG,
    BPK_CBOR_BOOL,
    BPK_CBOR_NULL, /* null or undefined */
    BPK_CBOR_FLOAT,
    BPK_CBOR_BREAK,
};

struct bpk_cbor_item {
    enum bpk_cbor_kind kind;
    size_t head;         /* offset of the item's first byte in the block */
    uint64_t value;      /* integer, tag, count of a container, bits of a double, or 0/1 */
    const uint8_t *data; /* BYTES and TEXT: the payload, `value` bytes */
};

/* Every function returns 0 or -EBADMSG with the reader's diag filled. */

/* The next item as it stands, tags included. Text is checked to be UTF-8. */
int bpk_cbor_next(struct bpk_cbor *cbor, struct bpk_cbor_item *ret_item);

/* The next item that is no tag. */
int bpk_cbor_next_untagged(struct bpk_cbor *cbor, struct bpk_cbor_item *ret_item);

/* Skips one value of any kind, which may nest `depth` levels deep; a tag is a level. */
int bpk_cbor_skip(struct bpk_cbor *cbor, unsigned depth);

int bpk_cbor_uint(struct bpk_cbor *cbor, uint64_t *ret_value);
int bpk_cbor_int(struct bpk_cbor *cbor, int64_t *ret_value);
int bpk_cbor_bool(struct bpk_cbor *cbor, uint64_t *ret_value);
int bpk_cbor_float(struct bpk_cbor *cbor, uint64_t *ret_bits);

/* Text, chunked or not. ret_head is the offset of a definite text's head in the block. */
int bpk_cbor_text(struct bpk_cbor *cbor, uint32_t *ret_head);

/* A field name or an enum's variant: a definite text or byte string of at most
 * BPK_CBOR_MAX_IDENT bytes. */
int bpk_cbor_ident(struct bpk_cbor *cbor, struct bpk_str *ret_ident);

/* The bytes of a byte string, in chunks or not, whose BYTES or BYTES_START was just read: up to
 * `max` are stored in `out`, all are counted in *ret_count. Nothing is changed in the block. */
int bpk_cbor_bytes(struct bpk_cbor *cbor, const struct bpk_cbor_item *item, uint8_t *out,
                   size_t max, uint64_t *ret_count);

/* The definite text whose head is at `head`: pointer and length. */
struct bpk_str bpk_cbor_text_at(const uint8_t *block, uint32_t head);

/* Walking a map: begin reads its head; next returns true while an entry follows and false at the
 * end or on failure, which is then in `error`. */
struct bpk_cbor_map {
    bool indefinite;
    uint64_t left;
    int error;
};
int bpk_cbor_map_begin(struct bpk_cbor *cbor, struct bpk_cbor_map *ret_map);
bool bpk_cbor_map_next(struct bpk_cbor *cbor, struct bpk_cbor_map *map);

/* A serde enum: a text (a unit variant) or a map of one entry, whose value then follows. */
struct bpk_cbor_variant {
    struct bpk_str name;
    bool has_value;
    size_t head;
};
int bpk_cbor_enum(struct bpk_cbor *cbor, struct bpk_cbor_variant *ret_variant);

/* -EBADMSG with the sentence, about the byte `at` of the block. */
int bpk_cbor_fail(struct bpk_cbor *cbor, size_t at, const char *sentence);

/* A big-endian number of up to 8 bytes. */
uint64_t bpk_cbor_read_be(const uint8_t *p, unsigned bytes);

/* -EBADMSG with a sentence about the item: "expected WHAT, found a map". */
int bpk_cbor_unexpected(struct bpk_cbor *cbor, const struct bpk_cbor_item *item, const char *what);

#endif

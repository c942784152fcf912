/* meta: the tables that a block of CBOR becomes, and the blocks that are refused: order and
 * duplicates, unknown keys, missing and double fields, byte strings for arrays, limits
 * (format.md 2.1, 2.5, 2.6). */
#include "pack/meta.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TENSORS  "67 74656e736f7273"
#define METADATA "68 6d65746164617461"
#define SCALARS  "67 7363616c617273"
#define DTYPE    "65 6474797065"
#define SHAPE    "65 7368617065"
#define OFFSETS  "6c 646174615f6f666673657473"
#define PARAM_ID "68 706172616d5f6964"
#define F32      DTYPE " 63463332"
#define OFF_0_4  OFFSETS " 820004"
#define GOOD     "a3 " F32 SHAPE "80" OFF_0_4 /* a descriptor */

/* Takes the bytes over, as bpk_meta_parse does. */
static int parse_bytes(struct bytes *b, struct bpk_meta *ret_meta, struct bpk_diag *diag) {
    uint8_t *block = malloc(b->len + !b->len); /* exactly, for the sanitizers */
    ck_assert_ptr_nonnull(block);
    if (b->len > 0)
        memcpy(block, b->data, b->len);
    size_t len = b->len;
    bytes_clear(b);
    return bpk_meta_parse(block, len, 10, ret_meta, diag);
}

static int parse_hex(const char *hex, struct bpk_meta *ret_meta, struct bpk_diag *diag) {
    struct bytes b = bytes_from_hex(hex);
    return parse_bytes(&b, ret_meta, diag);
}

static struct bpk_meta parse_good(const char *hex) {
    struct bpk_meta meta;
    struct bpk_diag diag = {0};
    ck_assert_msg(parse_hex(hex, &meta, &diag) == 0, "%s", diag.sentence);
    return meta;
}

static void check_text(const struct bpk_meta *meta, uint32_t head, const char *text) {
    struct bpk_str found = bpk_meta_text(meta, head);
    ck_assert_uint_eq(found.len, strlen(text));
    ck_assert(memcmp(found.bytes, text, found.len) == 0);
}

START_TEST(smallest_pack) {
    struct bpk_meta meta = parse_good("a1" TENSORS "a0");
    ck_assert_uint_eq(meta.tensor_count, 0);
    ck_assert_uint_eq(meta.block_size, 10);
    ck_assert(meta.tail_is_zero && !meta.has_metadata && !meta.has_scalars);
    bpk_meta_clear(&meta);
    ck_assert_ptr_null(meta.block);
}

START_TEST(pack_of_everything) {
    /* the sample of format.md 2.1 */
    struct bpk_meta meta = parse_good(
        "a3" TENSORS "a2 60 a3" DTYPE "a1 64426f6f6c 664e6174697665" SHAPE "80" OFFSETS
        "82 190a00 190a01 61 77 a4" F32 SHAPE "82 02 19012c" OFFSETS "82 00 190960" PARAM_ID
        "1b ffffffffffffffff" METADATA "a1 6166 626b76" SCALARS "a1 6473746570 a1 6455496e74 01");
    ck_assert_uint_eq(meta.tensor_count, 2);
    const struct bpk_meta_tensor *t = meta.tensors;
    check_text(&meta, t[0].name, "");
    ck_assert_int_eq(t[0].kind, BPK_BOOL);
    ck_assert_uint_eq(t[0].start, 0xa00);
    ck_assert_uint_eq(t[0].end, 0xa01);
    ck_assert_uint_eq(t[0].rank, 0);
    ck_assert_uint_eq(t[0].elements, 1);
    ck_assert_int_eq(t[0].flags, BPK_TENSOR_MODERN_DTYPE);
    check_text(&meta, t[1].name, "w");
    ck_assert_uint_eq(t[1].elements, 600);
    ck_assert_int_eq(t[1].flags, BPK_TENSOR_HAS_PARAM_ID);
    ck_assert_uint_eq(t[1].param_id, UINT64_MAX);
    struct bpk_shape shape = bpk_meta_shape(&meta, &t[1]);
    uint64_t dim;
    ck_assert(bpk_shape_next(&shape, &dim) && dim == 2);
    ck_assert(bpk_shape_next(&shape, &dim) && dim == 300);
    ck_assert(!bpk_shape_next(&shape, &dim));
    struct bpk_dtype dtype;
    bpk_meta_dtype(&meta, &t[0], &dtype);
    ck_assert_int_eq(dtype.bool_store, BPK_BOOL_NATIVE);
    bpk_meta_dtype(&meta, &t[1], &dtype);
    ck_assert_int_eq(dtype.kind, BPK_F32);
    ck_assert_uint_eq(meta.entry_count, 1);
    check_text(&meta, meta.entries[0].key, "f");
    check_text(&meta, meta.entries[0].value, "kv");
    ck_assert_uint_eq(meta.scalar_count, 1);
    check_text(&meta, meta.scalars[0].key, "step");
    ck_assert_int_eq(meta.scalars[0].kind, BPK_SCALAR_UINT);
    ck_assert_uint_eq(meta.scalars[0].bits, 1);
    bpk_meta_clear(&meta);
}

/* ---- order and duplicates -------------------------------------------------------------------- */

/* Names in any order, some of them twice: sorted bytewise, a prefix first, the last one counts. */
START_TEST(sorted_and_the_last_counts) {
    static const char *const names[] = {"b", "a.b", "a", "", "b", "é", "a-b", "a", "B", "b"};
    static const char *const sorted[] = {"", "B", "a", "a-b", "a.b", "b", "é"};
    static const uint64_t starts[] = {3, 8, 7, 6, 1, 9, 5};
    struct bytes b = bytes_from_hex("a3" TENSORS "aa");
    for (unsigned i = 0; i < 10; i++) {
        cbor_text(&b, names[i]);
        bytes_hex(&b, "a3" F32 SHAPE "80" OFFSETS "82");
        cbor_head(&b, CBOR_UINT, i);
        cbor_head(&b, CBOR_UINT, i + 4);
    }
    bytes_hex(&b, METADATA "a3");
    bytes_hex(&b, "6162 6131 6161 6132 6162 6133"); /* b: 1, a: 2, b: 3 */
    bytes_hex(&b, SCALARS "a3 6162 a163496e7401 6161 a163496e7402 6162 a163496e7403");
    struct bpk_meta meta;
    ck_assert_int_eq(parse_bytes(&b, &meta, NULL), 0);
    ck_assert_uint_eq(meta.tensor_count, ROWS(sorted));
    ck_assert_uint_eq(meta.tensor_duplicates, 3);
    for (int i = 0; i < ROWS(sorted); i++) {
        check_text(&meta, meta.tensors[i].name, sorted[i]);
        ck_assert_uint_eq(meta.tensors[i].start, starts[i]);
    }
    ck_assert_uint_eq(meta.entry_count, 2);
    ck_assert_uint_eq(meta.entry_duplicates, 1);
    check_text(&meta, meta.entries[0].value, "2");
    check_text(&meta, meta.entries[1].value, "3");
    ck_assert_uint_eq(meta.scalar_count, 2);
    ck_assert_uint_eq(meta.scalar_duplicates, 1);
    ck_assert_uint_eq(meta.scalars[0].bits, 2);
    ck_assert_uint_eq(meta.scalars[1].bits, 3);
    bpk_meta_clear(&meta);
}

START_TEST(many_shuffled_names) {
    enum { COUNT = 3000 };
    struct bytes b = bytes_from_hex("a1" TENSORS);
    uint64_t state = 1;
    cbor_head(&b, CBOR_MAP, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%u.w", (unsigned)(suite_random(&state) % 2000));
        cbor_text(&b, name);
        bytes_hex(&b, GOOD);
    }
    struct bpk_meta meta;
    HOLDS(parse_bytes(&b, &meta, NULL) == 0);
    HOLDS(meta.tensor_count + meta.tensor_duplicates == COUNT);
    HOLDS(meta.tensor_duplicates > 0);
    for (size_t i = 1; i < meta.tensor_count; i++)
        HOLDS(bpk_str_compare(bpk_meta_text(&meta, meta.tensors[i - 1].name),
                              bpk_meta_text(&meta, meta.tensors[i].name)) < 0);
    bpk_meta_clear(&meta);
}

START_TEST(comparing) {
    ck_assert_int_lt(bpk_str_compare(str("a"), str("ab")), 0);
    ck_assert_int_gt(bpk_str_compare(str("ab"), str("a")), 0);
    ck_assert_int_eq(bpk_str_compare(str(""), (struct bpk_str){NULL, 0}), 0);
    ck_assert_int_lt(bpk_str_compare(str("z"), str("\x80")), 0); /* bytes are unsigned */
    ck_assert_int_lt(bpk_str_compare((struct bpk_str){"a\0a", 3}, (struct bpk_str){"a\0b", 3}), 0);
}

/* ---- odd but good ---------------------------------------------------------------------------- */

/* Each has one tensor "w" of rank 2, [2, 3], [16, 40) of the data, F32. */
#define W_SHAPE SHAPE "820203"
#define W_OFF   OFFSETS "82101828"

static const char *const same_tensor[] = {
    "a1" TENSORS "a1 6177 a3" F32 W_SHAPE W_OFF,
    "a1" TENSORS "a1 6177 a3" W_OFF F32 W_SHAPE,
    "bf" TENSORS "bf 6177 bf" F32 W_SHAPE W_OFF "ff ff ff",
    "b801" TENSORS "b90001 780177 ba00000003" F32 W_SHAPE W_OFF,
    "a1" TENSORS "a1 6177 a3" F32 SHAPE "9f0203ff" W_OFF,
    "a1" TENSORS "a1 6177 a3" F32 SHAPE "42 0203" W_OFF,
    "a1" TENSORS "a1 6177 a3" F32 SHAPE "5f 40 41 02 41 03 ff" W_OFF,
    "a1" TENSORS "a1 6177 a3" F32 SHAPE "82 c24102 1b0000000000000003" W_OFF,
    "a1" TENSORS "a1 6177 a3" F32 W_SHAPE OFFSETS "42 1028",
    "a1" TENSORS "a1 6177 a3" F32 W_SHAPE OFFSETS "43 102899",
    "a1" TENSORS "a1 6177 a3" F32 W_SHAPE OFFSETS "5f 41 10 41 28 ff",
    "a1" TENSORS "a1 7f 61 77 ff a3" F32 W_SHAPE W_OFF,
    "a1" TENSORS "a1 7f 60 61 77 60 ff a3" F32 W_SHAPE W_OFF,
    "d9d9f7 a1 c1" TENSORS "c1 a1 c1 6177 c1 a3 c1" DTYPE "c1 63463332 c1" SHAPE
    "c1 82 c1 02 03 c1" OFFSETS "c1 82 c1 10 1828",
    "a1 47 74656e736f7273 a1 6177 a3 45 6474797065 63463332" W_SHAPE W_OFF,
    "a1" TENSORS "a1 6177 a4" F32 W_SHAPE W_OFF PARAM_ID "f6",
    "a1" TENSORS "a1 6177 a4" F32 W_SHAPE W_OFF PARAM_ID "f7",
    "a3" METADATA "a0" SCALARS "bf ff" TENSORS "a1 6177 a3" F32 W_SHAPE W_OFF,
    "a2 6178 a1 8100 c1f7" TENSORS "a1 6177 a4 65 6f74686572 9f 5f4100ff ff" F32 W_SHAPE W_OFF,
    "a2 60 f6" TENSORS "a1 6177 a3" F32 W_SHAPE W_OFF, /* an empty field name is unknown */
    "a1" TENSORS "a2 6177" GOOD "6177 a3" F32 W_SHAPE W_OFF,
};

START_TEST(one_tensor_in_many_spellings) {
    struct bpk_meta meta = parse_good(same_tensor[_i]);
    struct bpk_dtype dtype;
    uint64_t dim;
    ck_assert_uint_eq(meta.tensor_count, 1);
    const struct bpk_meta_tensor *t = &meta.tensors[0];
    check_text(&meta, t->name, "w");
    ck_assert_uint_eq(t->start, 0x10);
    ck_assert_uint_eq(t->end, 0x28);
    ck_assert_uint_eq(t->elements, 6);
    ck_assert_uint_eq(t->rank, 2);
    ck_assert_int_eq(t->flags & BPK_TENSOR_HAS_PARAM_ID, 0);
    struct bpk_shape shape = bpk_meta_shape(&meta, t);
    ck_assert(bpk_shape_next(&shape, &dim) && dim == 2);
    ck_assert(bpk_shape_next(&shape, &dim) && dim == 3);
    ck_assert(!bpk_shape_next(&shape, &dim));
    bpk_meta_dtype(&meta, t, &dtype);
    ck_assert_int_eq(dtype.kind, BPK_F32);
    bpk_meta_clear(&meta);
}

START_TEST(products_of_dimensions) {
    static const struct {
        const char *shape;
        uint64_t elements;
        bool overflow;
    } shapes[] = {
        {"80", 1, false},
        {"8100", 0, false},
        {"8200 1bffffffffffffffff", 0, false},
        {"81 1bffffffffffffffff", UINT64_MAX, false},
        {"82 1bffffffffffffffff 02", 0, true},
        {"83 1bffffffffffffffff 02 00", 0, true}, /* in the order of the file */
        {"40", 1, false},
        {"43 ff02ff", 255 * 255 * 2, false},
    };
    for (int i = 0; i < ROWS(shapes); i++) {
        struct bytes b = bytes_from_hex("a1" TENSORS "a1 6177 a3" F32 SHAPE);
        struct bpk_meta meta;
        bytes_hex(&b, shapes[i].shape);
        bytes_hex(&b, OFF_0_4);
        ck_assert_int_eq(parse_bytes(&b, &meta, NULL), 0);
        ck_assert_int_eq(meta.tensors[0].elements_overflow, shapes[i].overflow);
        if (!shapes[i].overflow)
            ck_assert_uint_eq(meta.tensors[0].elements, shapes[i].elements);
        bpk_meta_clear(&meta);
    }
}

START_TEST(bytes_after_the_top_map) {
    struct bpk_meta meta = parse_good("a1" TENSORS "a0 0000000000");
    ck_assert_uint_eq(meta.block_size, 10);
    ck_assert(meta.tail_is_zero);
    bpk_meta_clear(&meta);
    static const char *const tails[] = {"01", "ff", "00000001", "0100", "a0"};
    for (int i = 0; i < ROWS(tails); i++) {
        struct bytes b = bytes_from_hex("a1" TENSORS "a0");
        bytes_hex(&b, tails[i]);
        ck_assert_int_eq(parse_bytes(&b, &meta, NULL), 0);
        ck_assert_uint_eq(meta.block_size, 10);
        ck_assert(!meta.tail_is_zero);
        bpk_meta_clear(&meta);
    }
}

/* ---- what we do not know is kept ------------------------------------------------------------- */

static void check_unknown(const struct bpk_meta *meta, size_t tensor, size_t entries,
                          const char *hex) {
    struct bpk_outbuf out = {0};
    struct bytes expected = bytes_from_hex(hex);
    ck_assert_uint_eq(bpk_meta_unknown(meta, &meta->tensors[tensor], &out), entries);
    ck_assert_uint_eq(out.len, expected.len);
    ck_assert(out.len == 0 || memcmp(out.text, expected.data, out.len) == 0);
    bpk_outbuf_clear(&out);
    bytes_clear(&expected);
}

START_TEST(unknown_keys_are_kept_verbatim) {
    struct bpk_meta meta = parse_good(
        "a8 6178 c101 4179 f6" TENSORS "a2 6161 bf c1 6170 9f01ff" F32 SHAPE "80 c2 6171 00" OFF_0_4
        "6172 7f6161ff ff 6162" GOOD "617a 80" METADATA "a0 6175 60 6176 20" SCALARS "a0");
    static const uint32_t lengths[] = {7, 3, 6};
    ck_assert_uint_eq(meta.unknown_entries, 5);
    ck_assert_uint_eq(meta.unknown_runs, ROWS(lengths));
    for (int i = 0; i < ROWS(lengths); i++)
        ck_assert_uint_eq(meta.unknown[i].end - meta.unknown[i].start, lengths[i]);
    ck_assert_mem_eq(meta.block + meta.unknown[0].start, "\x61x\xc1\x01\x41y\xf6", 7);
    check_unknown(&meta, 0, 3, "c1 6170 9f01ff c2 6171 00 6172 7f6161ff");
    check_unknown(&meta, 1, 0, "");
    ck_assert_int_eq(meta.tensors[0].flags & BPK_TENSOR_HAS_UNKNOWN, BPK_TENSOR_HAS_UNKNOWN);
    ck_assert_int_eq(meta.tensors[1].flags & BPK_TENSOR_HAS_UNKNOWN, 0);
    bpk_meta_clear(&meta);
}

/* Tags that mean a big number are passed over where none can be: what follows is kept all the same.
 */
START_TEST(unknown_keys_behind_tags_of_big_numbers) {
    static const char *const descriptors[] = {
        "a4" DTYPE "c2 63463332" SHAPE "80" OFF_0_4 "6170 01",
        "a4" F32 SHAPE "c2 80" OFF_0_4 "6170 01",
        "a4" F32 SHAPE "80" OFFSETS "c3 82 00 04 6170 01",
    };
    for (int i = 0; i < ROWS(descriptors); i++) {
        struct bytes b = bytes_from_hex("a1" TENSORS "a1 6177");
        struct bpk_meta meta;
        bytes_hex(&b, descriptors[i]);
        ck_assert_int_eq(parse_bytes(&b, &meta, NULL), 0);
        check_unknown(&meta, 0, 1, "6170 01");
        bpk_meta_clear(&meta);
    }
}

START_TEST(the_cbor_of_a_dtype) {
    struct bpk_meta meta = parse_good("a1" TENSORS "a2 6161 a3 " DTYPE
                                      "c1 a1 64426f6f6c c2 625538" SHAPE "80" OFF_0_4 "6162" GOOD);
    struct bpk_str dtype = bpk_meta_dtype_cbor(&meta, &meta.tensors[0]);
    ck_assert_uint_eq(dtype.len, 10);
    ck_assert_mem_eq(dtype.bytes,
                     "\xa1\x64"
                     "Bool\xc2\x62U8",
                     10);
    dtype = bpk_meta_dtype_cbor(&meta, &meta.tensors[1]);
    ck_assert_uint_eq(dtype.len, 4);
    ck_assert_mem_eq(dtype.bytes,
                     "\x63"
                     "F32",
                     4);
    bpk_meta_clear(&meta);
}

static const struct {
    const char *hex;
    enum bpk_scalar_kind kind;
    uint64_t bits;
} scalars[] = {
    {"a1 63496e74 22", BPK_SCALAR_INT, (uint64_t)-3},
    {"a1 63496e74 3b7fffffffffffffff", BPK_SCALAR_INT, UINT64_C(1) << 63},
    {"a1 63496e74 1b7fffffffffffffff", BPK_SCALAR_INT, INT64_MAX},
    {"a1 6455496e74 182a", BPK_SCALAR_UINT, 42},
    {"a1 6455496e74 1bffffffffffffffff", BPK_SCALAR_UINT, UINT64_MAX},
    {"a1 64426f6f6c f5", BPK_SCALAR_BOOL, 1},
    {"a1 64426f6f6c f4", BPK_SCALAR_BOOL, 0},
    {"a1 65466c6f6174 f93800", BPK_SCALAR_FLOAT, UINT64_C(0x3fe0000000000000)},
    {"a1 65466c6f6174 f97e00", BPK_SCALAR_FLOAT, UINT64_C(0x7ff8000000000000)},
    {"a1 65466c6f6174 fb7ff0000000000001", BPK_SCALAR_FLOAT, UINT64_C(0x7ff0000000000001)},
};

START_TEST(scalars_of_every_kind) {
    struct bytes b = bytes_from_hex("a2" TENSORS "a0" SCALARS "a1 6173");
    struct bpk_meta meta;
    bytes_hex(&b, scalars[_i].hex);
    ck_assert_int_eq(parse_bytes(&b, &meta, NULL), 0);
    ck_assert(meta.has_scalars);
    ck_assert_uint_eq(meta.scalars[0].kind, scalars[_i].kind);
    ck_assert_uint_eq(meta.scalars[0].bits, scalars[_i].bits);
    bpk_meta_clear(&meta);
}

/* ---- refused --------------------------------------------------------------------------------- */

#define ONE(descriptor)  "a1" TENSORS "a1 6177" descriptor
#define SCALAR(variants) "a2" TENSORS "a0" SCALARS "a1 6173" variants

static const struct {
    const char *hex;
    const char *says;
} refused[] = {
    {"", "ends in the middle"},
    {"80", "expected a map"},
    {"a0", "no field \"tensors\""},
    {"bf ff", "no field \"tensors\""},
    {"a1" METADATA "a0", "no field \"tensors\""},
    {"a1" TENSORS "f6", "expected a map"},
    {"a1" TENSORS "80", "expected a map"},
    {"a1" TENSORS "a1", "ends in the middle"},
    {"a1" TENSORS "bf", "ends in the middle"},
    {"a2" TENSORS "a0", "ends in the middle"},
    {"a2" TENSORS "a0" TENSORS "a0", "two fields \"tensors\""},
    {"a3" TENSORS "a0" METADATA "a0" METADATA "a0", "two fields \"metadata\""},
    {"a3" TENSORS "a0" SCALARS "a0" SCALARS "a0", "two fields \"scalars\""},
    {"a2" TENSORS "a0" METADATA "f6", "found null"},
    {"a2" TENSORS "a0" SCALARS "f6", "found null"},
    {"a2" TENSORS "a0 00 00", "expected a name"},
    {"a2" TENSORS "a0 f6 00", "expected a name"},
    {"a2" TENSORS "a0 80 00", "expected a name"},
    {"a2" TENSORS "a0 7f6161ff 00", "expected a name"},
    {"a2" TENSORS "a0 6161 f0", "malformed"},
    {"a2" TENSORS "a0 6161 1c", "malformed"},
    {"a2" TENSORS "a0 6161 ff", "expected a value"},
    {"a1" TENSORS "a1 4177" GOOD, "expected a text"},
    {"a1" TENSORS "a1 00" GOOD, "expected a text"},
    {"a1" TENSORS "a1 f6" GOOD, "expected a text"},
    {"a1" TENSORS "a1 61ff" GOOD, "UTF-8"},
    {"a1" TENSORS "a1 7f 61c3 61bc ff" GOOD, "UTF-8"},
    {ONE("80"), "expected a map"},
    {ONE("a0"), "without the field \"dtype\""},
    {ONE("a2" SHAPE "80" OFF_0_4), "without the field \"dtype\""},
    {ONE("a2" F32 OFF_0_4), "without the field \"shape\""},
    {ONE("a2" F32 SHAPE "80"), "without the field \"data_offsets\""},
    {ONE("a4" F32 SHAPE "80" SHAPE "80" OFF_0_4), "two fields \"shape\""},
    {ONE("a4" F32 F32 SHAPE "80" OFF_0_4), "two fields \"dtype\""},
    {ONE("a4" F32 SHAPE "80" OFF_0_4 OFF_0_4), "two fields \"data_offsets\""},
    {ONE("a5" F32 SHAPE "80" OFF_0_4 PARAM_ID "f6" PARAM_ID "f6"), "two fields \"param_id\""},
    {ONE("a3" F32 SHAPE "f6" OFF_0_4), "expected a shape"},
    {ONE("a3" F32 SHAPE "a0" OFF_0_4), "expected a shape"},
    {ONE("a3" F32 SHAPE "05" OFF_0_4), "expected a shape"},
    {ONE("a3" F32 SHAPE "8120" OFF_0_4), "unsigned"},
    {ONE("a3" F32 SHAPE "81f90000" OFF_0_4), "an integer"},
    {ONE("a3" F32 SHAPE "81c249010000000000000000" OFF_0_4), "too large"},
    {ONE("a3" F32 SHAPE "9bffffffffffffffff 01" OFF_0_4), "an integer"},
    {ONE("a3" F32 SHAPE "9f01"), "ends in the middle"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "8100"), "data_offsets"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "83000405"), "data_offsets"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "9f0004ff"), "data_offsets"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "4100"), "data_offsets"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "f6"), "data_offsets"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "820020"), "unsigned"},
    {ONE("a3" F32 SHAPE "80" OFFSETS "82f9000004"), "an integer"},
    {ONE("a4" F32 SHAPE "80" OFF_0_4 PARAM_ID "20"), "unsigned"},
    {ONE("a4" F32 SHAPE "80" OFF_0_4 PARAM_ID "6137"), "an integer"},
    {ONE("a4" F32 SHAPE "80" OFF_0_4 PARAM_ID "c249010000000000000000"), "too large"},
    {ONE("a4" F32 SHAPE "80" OFF_0_4 "6161 f0"), "malformed"},
    {ONE("a3" DTYPE "63463333" SHAPE "80" OFF_0_4), "tensor 'w': unknown dtype \"F33\""},
    {"a2" TENSORS "a0" METADATA "a1 6161 00", "expected a text"},
    {"a2" TENSORS "a0" METADATA "a1 6161 f6", "expected a text"},
    {"a2" TENSORS "a0" METADATA "a1 6161 4161", "expected a text"},
    {"a2" TENSORS "a0" METADATA "a1 00 6161", "expected a text"},
    {"a2" TENSORS "a0" METADATA "a1 6161 61ff", "UTF-8"},
    {SCALAR("63496e74"), "a scalar is not"},
    {SCALAR("63496e74 05"), "a scalar is not"},
    {SCALAR("05"), "variant"},
    {SCALAR("a1 63696e74 05"), "a scalar is not"},
    {SCALAR("a1 64496e7433 05"), "a scalar is not"},
    {SCALAR("bf 63496e74 05 ff"), "variant"},
    {SCALAR("a2 63496e74 05 63496e74 06"), "variant"},
    {SCALAR("a1 63496e74 1b8000000000000000"), "too large"},
    {SCALAR("a1 6455496e74 20"), "unsigned"},
    {SCALAR("a1 6455496e74 f93c00"), "an integer"},
    {SCALAR("a1 65466c6f6174 01"), "expected a float, found an integer"},
    {SCALAR("a1 65466c6f6174 f5"), "expected a float"},
    {SCALAR("a1 64426f6f6c 01"), "expected a boolean"},
    {SCALAR("a1 64426f6f6c f814"), "malformed"},
    {"a1 67 74656e736f7273", "ends in the middle"},
    {"a1 7b7fffffffffffffff 74", "ends in the middle"},
};

START_TEST(blocks_that_are_refused) {
    struct bpk_meta meta = {.block_size = 77};
    struct bpk_diag diag = {0};
    ck_assert_int_eq(parse_hex(refused[_i].hex, &meta, &diag), -EBADMSG);
    ck_assert_msg(strstr(diag.sentence, refused[_i].says), "%s", diag.sentence);
    ck_assert_int_eq(diag.code, -EBADMSG);
    ck_assert_uint_ge(diag.offset, 10);
    ck_assert_uint_eq(meta.block_size, 77);
    ck_assert_int_eq(parse_hex(refused[_i].hex, &meta, NULL), -EBADMSG);
}

/* Every good block, cut anywhere, is refused; and the tail of nothing is freed each time. */
START_TEST(blocks_cut_short) {
    struct bytes whole = bytes_from_hex(same_tensor[_i]);
    for (size_t len = 0; len < whole.len; len++) {
        struct bytes part = {0};
        struct bpk_meta meta;
        bytes_add(&part, whole.data, len);
        ck_assert_int_eq(parse_bytes(&part, &meta, NULL), -EBADMSG);
    }
    bytes_clear(&whole);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Under an unknown key of the top map 127 arrays pass, 128 fail; in a descriptor two less; tags
 * count. */
START_TEST(nesting) {
    for (int in_descriptor = 0; in_descriptor < 2; in_descriptor++) {
        for (int level = 0; level < 2; level++) {
            for (unsigned extra = 0; extra < 2; extra++) {
                struct bytes b = {0};
                struct bpk_meta meta;
                bytes_hex(&b, in_descriptor ? ONE("a4 6178") : "a2 6178");
                bytes_fill(&b, level ? 0xc1 : 0x81, (in_descriptor ? 125 : 127) + extra);
                bytes_fill(&b, 0, 1);
                bytes_hex(&b, in_descriptor ? F32 SHAPE "80" OFF_0_4 : TENSORS "a0");
                int r = parse_bytes(&b, &meta, NULL);
                ck_assert_int_eq(r, extra ? -EBADMSG : 0);
                if (r == 0)
                    bpk_meta_clear(&meta);
            }
        }
    }
}

START_TEST(tags_before_the_top_map) {
    for (unsigned tags = 1024; tags <= 1025; tags++) {
        struct bytes b = {0};
        struct bpk_meta meta;
        bytes_fill(&b, 0xc1, tags);
        bytes_hex(&b, "a1" TENSORS "a0");
        int r = parse_bytes(&b, &meta, NULL);
        ck_assert_int_eq(r, tags > 1024 ? -EBADMSG : 0);
        if (r == 0)
            bpk_meta_clear(&meta);
    }
}

/* Of 100,001 tensors one too many is refused, unless two of them have one name. */
START_TEST(number_of_tensors) {
    struct bytes descriptor = bytes_from_hex(GOOD);
    for (int duplicate = 0; duplicate < 2; duplicate++) {
        struct bytes b = bytes_from_hex("a1" TENSORS);
        struct bpk_meta meta;
        struct bpk_diag diag = {0};
        cbor_head(&b, CBOR_MAP, BPK_MAX_TENSORS + 1);
        for (unsigned i = 0; i <= BPK_MAX_TENSORS; i++) {
            char name[16];
            snprintf(name, sizeof(name), "%06u", duplicate && i == BPK_MAX_TENSORS ? i - 1 : i);
            cbor_text_n(&b, name, 6);
            bytes_add(&b, descriptor.data, descriptor.len);
        }
        int r = parse_bytes(&b, &meta, &diag);
        if (duplicate) {
            ck_assert_int_eq(r, 0);
            ck_assert_uint_eq(meta.tensor_count, BPK_MAX_TENSORS);
            bpk_meta_clear(&meta);
        } else {
            ck_assert_int_eq(r, -EBADMSG);
            ck_assert_msg(strstr(diag.sentence, "limit of 100000"), "%s", diag.sentence);
        }
    }
    bytes_clear(&descriptor);
}

int main(void) {
    Suite *suite = suite_create("meta");
    TCase *tc = suite_case(suite, "good");
    tcase_add_test(tc, smallest_pack);
    tcase_add_test(tc, pack_of_everything);
    tcase_add_test(tc, sorted_and_the_last_counts);
    tcase_add_test(tc, many_shuffled_names);
    tcase_add_test(tc, comparing);
    tcase_add_loop_test(tc, one_tensor_in_many_spellings, 0, ROWS(same_tensor));
    tcase_add_test(tc, products_of_dimensions);
    tcase_add_test(tc, bytes_after_the_top_map);
    tcase_add_test(tc, unknown_keys_are_kept_verbatim);
    tcase_add_test(tc, unknown_keys_behind_tags_of_big_numbers);
    tcase_add_test(tc, the_cbor_of_a_dtype);
    tcase_add_loop_test(tc, scalars_of_every_kind, 0, ROWS(scalars));
    tc = suite_case(suite, "refused");
    tcase_add_loop_test(tc, blocks_that_are_refused, 0, ROWS(refused));
    tcase_add_loop_test(tc, blocks_cut_short, 0, ROWS(same_tensor));
    tcase_add_test(tc, nesting);
    tcase_add_test(tc, tags_before_the_top_map);
    tcase_add_test(tc, number_of_tensors);
    return suite_run(suite);
}

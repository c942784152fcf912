/* cbor_item and cbor_reader: heads of every kind, what is ill-formed, integers and bignums, floats
 * by bits, nesting and tags (format.md 2.6). Strings, maps and enums are in test_cbor_strings.c. */
#include "pack/cbor_reader.h"

#include "cborinput.h"
#include "suite.h"

#include <errno.h>
#include <string.h>

/* ---- heads ----------------------------------------------------------------------------------- */

static const struct {
    const char *hex;
    enum bpk_cbor_kind kind;
    uint64_t value;
    size_t read; /* 0: all */
} heads[] = {
    {"00", BPK_CBOR_UINT, 0, 0},
    {"17", BPK_CBOR_UINT, 23, 0},
    {"1818", BPK_CBOR_UINT, 24, 0},
    {"1800", BPK_CBOR_UINT, 0, 0}, /* non-minimal */
    {"190100", BPK_CBOR_UINT, 256, 0},
    {"190001", BPK_CBOR_UINT, 1, 0},
    {"1a00010000", BPK_CBOR_UINT, 65536, 0},
    {"1a00000002", BPK_CBOR_UINT, 2, 0},
    {"1bffffffffffffffff", BPK_CBOR_UINT, UINT64_MAX, 0},
    {"1b0000000000000003", BPK_CBOR_UINT, 3, 0},
    {"20", BPK_CBOR_NEGINT, 0, 0},
    {"37", BPK_CBOR_NEGINT, 23, 0},
    {"38ff", BPK_CBOR_NEGINT, 255, 0},
    {"39ffff", BPK_CBOR_NEGINT, 65535, 0},
    {"3a0000ffff", BPK_CBOR_NEGINT, 65535, 0},
    {"3bffffffffffffffff", BPK_CBOR_NEGINT, UINT64_MAX, 0},
    {"40", BPK_CBOR_BYTES, 0, 0},
    {"43ff00fe", BPK_CBOR_BYTES, 3, 0},
    {"5802ffff", BPK_CBOR_BYTES, 2, 0},
    {"590001ff", BPK_CBOR_BYTES, 1, 0},
    {"5a0000000100", BPK_CBOR_BYTES, 1, 0},
    {"5b000000000000000100", BPK_CBOR_BYTES, 1, 0},
    {"5f", BPK_CBOR_BYTES_START, 0, 0},
    {"60", BPK_CBOR_TEXT, 0, 0},
    {"63e282ac", BPK_CBOR_TEXT, 3, 0},
    {"780161", BPK_CBOR_TEXT, 1, 0},
    {"79000161", BPK_CBOR_TEXT, 1, 0},
    {"7a0000000161", BPK_CBOR_TEXT, 1, 0},
    {"7b000000000000000161", BPK_CBOR_TEXT, 1, 0},
    {"7f", BPK_CBOR_TEXT_START, 0, 0},
    {"80", BPK_CBOR_ARRAY, 0, 0},
    {"83010203", BPK_CBOR_ARRAY, 3, 1},
    {"98ff", BPK_CBOR_ARRAY, 255, 0}, /* a count costs nothing */
    {"990100", BPK_CBOR_ARRAY, 256, 0},
    {"9affffffff", BPK_CBOR_ARRAY, 0xffffffff, 0},
    {"9bffffffffffffffff", BPK_CBOR_ARRAY, UINT64_MAX, 0},
    {"9f", BPK_CBOR_ARRAY_START, 0, 0},
    {"a0", BPK_CBOR_MAP, 0, 0},
    {"b818", BPK_CBOR_MAP, 24, 0},
    {"b90100", BPK_CBOR_MAP, 256, 0},
    {"baffffffff", BPK_CBOR_MAP, 0xffffffff, 0},
    {"bbffffffffffffffff", BPK_CBOR_MAP, UINT64_MAX, 0},
    {"bf", BPK_CBOR_MAP_START, 0, 0},
    {"c0", BPK_CBOR_TAG, 0, 0},
    {"c2", BPK_CBOR_TAG, 2, 0},
    {"c1", BPK_CBOR_TAG, 1, 0},
    {"c5", BPK_CBOR_TAG, 5, 0},
    {"c6", BPK_CBOR_TAG, 6, 0}, /* libcbor 0.8 does not know 6 to 20 */
    {"d4", BPK_CBOR_TAG, 20, 0},
    {"d5", BPK_CBOR_TAG, 21, 0},
    {"d7", BPK_CBOR_TAG, 23, 0},
    {"d818", BPK_CBOR_TAG, 24, 0},
    {"d9d9f7", BPK_CBOR_TAG, 55799, 0},
    {"daffffffff", BPK_CBOR_TAG, 0xffffffff, 0},
    {"dbffffffffffffffff", BPK_CBOR_TAG, UINT64_MAX, 0},
    {"f4", BPK_CBOR_BOOL, 0, 0},
    {"f5", BPK_CBOR_BOOL, 1, 0},
    {"f6", BPK_CBOR_NULL, 0, 0},
    {"f7", BPK_CBOR_NULL, 0, 0},
    {"f93c00", BPK_CBOR_FLOAT, UINT64_C(0x3ff0000000000000), 0},
    {"ff", BPK_CBOR_BREAK, 0, 0},
};

START_TEST(every_head) {
    struct input in;
    struct bpk_cbor_item item;
    input_hex(&in, heads[_i].hex);
    ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), 0);
    ck_assert_int_eq(item.kind, heads[_i].kind);
    ck_assert_uint_eq(item.value, heads[_i].value);
    ck_assert_uint_eq(item.head, 0);
    ck_assert_uint_eq(in.cbor.pos, heads[_i].read ? heads[_i].read : in.bytes.len);
    if (item.kind == BPK_CBOR_TEXT || item.kind == BPK_CBOR_BYTES)
        ck_assert_ptr_eq(item.data + item.value, in.bytes.data + in.bytes.len);
    input_finish(&in);
}

/* The same heads cut anywhere are incomplete; none is read past its end. */
START_TEST(every_head_cut_short) {
    struct bytes whole = bytes_from_hex(heads[_i].hex);
    size_t needed = heads[_i].read ? heads[_i].read : whole.len;
    for (size_t len = 0; len < needed; len++) {
        struct input in = {0};
        struct bpk_cbor_item item;
        bytes_add(&in.bytes, whole.data, len);
        input_start(&in);
        ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), -EBADMSG);
        ck_assert_uint_eq(in.cbor.pos, 0);
        ck_assert_msg(strstr(in.diag.sentence, "ends in the middle"), "%s", in.diag.sentence);
        ck_assert_uint_eq(in.diag.offset, 10);
        input_finish(&in);
    }
    bytes_clear(&whole);
}

/* Reserved additional information, simple values that mean nothing, the two-byte form of the
 * others: whether asked for or skipped. */
START_TEST(ill_formed_heads) {
    static const uint8_t reserved[] = {28, 29, 30};
    for (unsigned major = 0; major < 8; major++) {
        for (size_t k = 0; k < sizeof(reserved); k++) {
            struct input in = {0};
            struct bpk_cbor_item item;
            bytes_fill(&in.bytes, (uint8_t)(major << 5 | reserved[k]), 1);
            bytes_fill(&in.bytes, 0, 20);
            input_start(&in);
            ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), -EBADMSG);
            ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 5), -EBADMSG);
            input_finish(&in);
        }
    }
    for (unsigned info = 0; info < 20; info++) {
        struct input in = {0};
        bytes_fill(&in.bytes, (uint8_t)(0xe0 | info), 1);
        input_start(&in);
        ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 5), -EBADMSG);
        input_finish(&in);
    }
    for (unsigned value = 0; value < 256; value++) {
        struct input in = {0};
        bytes_fill(&in.bytes, 0xf8, 1);
        bytes_fill(&in.bytes, (uint8_t)value, 1);
        input_start(&in);
        ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 5), -EBADMSG);
        input_finish(&in);
    }
}

/* Indefinite integers and tags do not exist. */
static const char *const huge_or_ill[] = {
    "1f",
    "3f",
    "df",
    "5a7fffffff41",
    "5bffffffffffffffff41",
    "7a7fffffff61",
    "7b7fffffffffffffff61",
    "7bffffffffffffffff61",
    "7bfffffffffffffff661",
};

START_TEST(huge_lengths_and_other_nonsense) {
    struct input in;
    struct bpk_cbor_item item;
    input_hex(&in, huge_or_ill[_i]);
    ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), -EBADMSG);
    input_finish(&in);
}

START_TEST(text_must_be_utf8) {
    static const char *const bad[] = {"61ff", "62c328", "63eda080", "61c3", "7f61c361bcff"};
    for (int i = 0; i < ROWS(bad); i++) {
        struct input in;
        uint32_t head;
        input_hex(&in, bad[i]);
        ck_assert_int_eq(bpk_cbor_text(&in.cbor, &head), -EBADMSG);
        ck_assert_msg(strstr(in.diag.sentence, "UTF-8"), "%s", in.diag.sentence);
        in.cbor.pos = 0;
        ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 5), -EBADMSG); /* skipped ones too */
        input_finish(&in);
    }
}

/* ---- integers -------------------------------------------------------------------------------- */

enum { NO = 0, YES = 1 };

static const struct {
    const char *hex;
    int is_uint;
    uint64_t number;
    int is_int;
    int64_t signed_number;
} integers[] = {
    {"05", YES, 5, YES, 5},
    {"1b000000000000000a", YES, 10, YES, 10},
    {"1b7fffffffffffffff", YES, INT64_MAX, YES, INT64_MAX},
    {"1b8000000000000000", YES, UINT64_C(1) << 63, NO, 0},
    {"1bffffffffffffffff", YES, UINT64_MAX, NO, 0},
    {"20", NO, 0, YES, -1},
    {"3b7fffffffffffffff", NO, 0, YES, INT64_MIN},
    {"3b8000000000000000", NO, 0, NO, 0},
    {"3bffffffffffffffff", NO, 0, NO, 0},
    {"d9d9f7c105", YES, 5, YES, 5},
    {"c240", YES, 0, YES, 0},
    {"c24105", YES, 5, YES, 5},
    {"c1c24105", YES, 5, YES, 5},
    {"c25101000000000000000000000000000000ff", NO, 0, NO, 0},     /* 17 digits */
    {"c251000000000000000000000000000000000f", YES, 15, YES, 15}, /* 17 bytes, 1 digit */
    {"c25000000000000000000000000000000007", YES, 7, YES, 7},     /* 16 bytes */
    {"c250ffffffffffffffffffffffffffffffff", NO, 0, NO, 0},
    {"c248ffffffffffffffff", YES, UINT64_MAX, NO, 0},
    {"c249010000000000000000", NO, 0, NO, 0},           /* 2^64 */
    {"c25f4101410041ffff", YES, 0x100ff, YES, 0x100ff}, /* in chunks */
    {"c25fff", YES, 0, YES, 0},
    {"c25f40410540ff", YES, 5, YES, 5},
    {"c340", NO, 0, YES, -1},
    {"c34104", NO, 0, YES, -5},
    {"c3487fffffffffffffff", NO, 0, YES, INT64_MIN},
    {"c3488000000000000000", NO, 0, NO, 0},
    {"c35f4104ff", NO, 0, YES, -5},
    {"c205", NO, 0, NO, 0}, /* no bytes behind the tag */
    {"c26105", NO, 0, NO, 0},
    {"c2c14105", NO, 0, NO, 0},
    {"c25f6105ff", NO, 0, NO, 0},
    {"c25f5f4105ffff", NO, 0, NO, 0},
    {"c25f4105", NO, 0, NO, 0},
    {"c2", NO, 0, NO, 0},
    {"4105", NO, 0, NO, 0},
    {"f90000", NO, 0, NO, 0},
    {"f93c00", NO, 0, NO, 0},
    {"6131", NO, 0, NO, 0},
    {"f6", NO, 0, NO, 0},
    {"f5", NO, 0, NO, 0},
    {"8101", NO, 0, NO, 0},
    {"ff", NO, 0, NO, 0},
    {"", NO, 0, NO, 0},
};

START_TEST(integers_of_both_kinds) {
    struct input in;
    uint64_t number = 42;
    int64_t signed_number = 42;
    input_hex(&in, integers[_i].hex);
    ck_assert_int_eq(bpk_cbor_uint(&in.cbor, &number), integers[_i].is_uint ? 0 : -EBADMSG);
    ck_assert_uint_eq(number, integers[_i].is_uint ? integers[_i].number : 42);
    if (integers[_i].is_uint)
        ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
    else
        ck_assert_int_eq(in.diag.code, -EBADMSG);
    in.cbor.pos = 0;
    ck_assert_int_eq(bpk_cbor_int(&in.cbor, &signed_number), integers[_i].is_int ? 0 : -EBADMSG);
    ck_assert_int_eq(signed_number, integers[_i].is_int ? integers[_i].signed_number : 42);
    input_finish(&in);
}

/* A big number under an unknown key: its bytes only need to be there; ciborium's reader refuses a
 * negative one that does not fit 128 bits signed. */
static const struct {
    const char *hex;
    bool skips;
} skipped_bignums[] = {
    {"c24105", true},
    {"c250ffffffffffffffffffffffffffffffff", true},
    {"c25101ffffffffffffffffffffffffffffffff", true},
    {"c3507fffffffffffffffffffffffffffffff", true},
    {"c35080000000000000000000000000000000", false},
    {"c25f4105ff", true},
    {"c205", false},
    {"c2c24105", false},
};

START_TEST(big_numbers_are_skipped) {
    struct input in;
    input_hex(&in, skipped_bignums[_i].hex);
    ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 0), skipped_bignums[_i].skips ? 0 : -EBADMSG);
    input_finish(&in);
}

/* ---- floats and booleans --------------------------------------------------------------------- */

static const struct {
    const char *hex;
    uint64_t bits;
} floats[] = {
    {"f90000", 0},
    {"f98000", UINT64_C(0x8000000000000000)},
    {"f93800", UINT64_C(0x3fe0000000000000)},
    {"f97bff", UINT64_C(0x40effc0000000000)}, /* 65504 */
    {"f90001", UINT64_C(0x3e70000000000000)}, /* 2^-24 */
    {"f983ff", UINT64_C(0xbf0ff80000000000)}, /* the largest subnormal, negative */
    {"f90400", UINT64_C(0x3f10000000000000)}, /* the smallest normal */
    {"f97c00", UINT64_C(0x7ff0000000000000)},
    {"f9fc00", UINT64_C(0xfff0000000000000)},
    {"f97e00", UINT64_C(0x7ff8000000000000)},
    {"f9fe00", UINT64_C(0xfff8000000000000)},
    {"f97e01", UINT64_C(0x7ff8040000000000)},
    {"f97c01", UINT64_C(0x7ff8040000000000)}, /* signalling becomes quiet */
    {"fa3dcccccd", UINT64_C(0x3fb99999a0000000)},
    {"fa00000001", UINT64_C(0x36a0000000000000)}, /* 2^-149 */
    {"fa807fffff", UINT64_C(0xb80fffffc0000000)},
    {"fa477fe100", UINT64_C(0x40effc2000000000)},
    {"fa80000000", UINT64_C(0x8000000000000000)},
    {"fa7f800000", UINT64_C(0x7ff0000000000000)},
    {"faff800000", UINT64_C(0xfff0000000000000)},
    {"fa7fc00001", UINT64_C(0x7ff8000020000000)},
    {"fa7f800001", UINT64_C(0x7ff8000020000000)}, /* signalling becomes quiet */
    {"faffbfffff", UINT64_C(0xffffffffe0000000)},
    {"fb3f50624dd2f1a9fc", UINT64_C(0x3f50624dd2f1a9fc)},
    {"fb0000000000000001", 1},
    {"fb7ff8000000000001", UINT64_C(0x7ff8000000000001)},
    {"fb7ff0000000000001", UINT64_C(0x7ff0000000000001)}, /* a long one stays as it is */
    {"c1d9d9f7f93800", UINT64_C(0x3fe0000000000000)},
};

START_TEST(floats_by_bits) {
    struct input in;
    uint64_t bits;
    input_hex(&in, floats[_i].hex);
    ck_assert_int_eq(bpk_cbor_float(&in.cbor, &bits), 0);
    ck_assert_msg(bits == floats[_i].bits, "%s is %016lx", floats[_i].hex, (unsigned long)bits);
    ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
    input_finish(&in);
}

/* All halves against the arithmetic definition. */
START_TEST(every_half) {
    for (unsigned half = 0; half < 0x10000; half++) {
        unsigned exponent = half >> 10 & 31;
        if (exponent == 31)
            continue;
        double value = exponent ? (double)(half & 0x3ff) + 1024 : (double)(half & 0x3ff);
        for (unsigned e = exponent ? exponent : 1; e < 25; e++)
            value /= 2;
        for (unsigned e = 25; e < exponent; e++)
            value *= 2;
        uint8_t bytes[] = {0xf9, (uint8_t)(half >> 8), (uint8_t)half};
        struct bpk_cbor cbor = {.data = bytes, .size = 3};
        uint64_t bits;
        HOLDS(bpk_cbor_float(&cbor, &bits) == 0);
        double read;
        memcpy(&read, &bits, sizeof(read));
        if (read != (half & 0x8000 ? -value : value) || bits >> 63 != half >> 15)
            ck_abort_msg("half %04x", half);
    }
}

START_TEST(no_floats_and_no_booleans) {
    static const char *const no_float[] = {"00", "20", "f5", "f6", "6130", "c24100", "f97c", "ff"};
    static const char *const no_bool[] = {"00", "f6", "f90000", "6130", "f814", "80", ""};
    struct input in;
    uint64_t value;
    for (int i = 0; i < ROWS(no_float); i++) {
        input_hex(&in, no_float[i]);
        ck_assert_int_eq(bpk_cbor_float(&in.cbor, &value), -EBADMSG);
        input_finish(&in);
    }
    for (int i = 0; i < ROWS(no_bool); i++) {
        input_hex(&in, no_bool[i]);
        ck_assert_int_eq(bpk_cbor_bool(&in.cbor, &value), -EBADMSG);
        input_finish(&in);
    }
    input_hex(&in, "c1f5f4");
    ck_assert_int_eq(bpk_cbor_bool(&in.cbor, &value), 0);
    ck_assert_uint_eq(value, 1);
    ck_assert_int_eq(bpk_cbor_bool(&in.cbor, &value), 0);
    ck_assert_uint_eq(value, 0);
    input_finish(&in);
}

/* ---- nesting and tags ------------------------------------------------------------------------ */

static const struct {
    const char *level; /* each opens one more level */
    const char *inner;
    const char *close;
} nests[] = {
    {"81", "00", ""},       {"81", "f6", ""},     {"9f", "", "ff"},
    {"a1f6", "00", ""},     {"bf00", "00", "ff"}, {"c1", "00", ""},
    {"d9d9f7", "6161", ""}, {"a1", "00", "00"},   {"8200", "7f6161ff", ""},
};

/* `depth` levels pass where `depth` are left, one more does not. */
START_TEST(nesting_is_limited) {
    static const unsigned limits[] = {1, 2, 125, 127, 128};
    for (int k = 0; k < ROWS(limits); k++) {
        for (unsigned extra = 0; extra < 2; extra++) {
            struct input in = {0};
            for (unsigned i = 0; i < limits[k] + extra; i++)
                bytes_hex(&in.bytes, nests[_i].level);
            bytes_hex(&in.bytes, nests[_i].inner);
            for (unsigned i = 0; i < limits[k] + extra; i++)
                bytes_hex(&in.bytes, nests[_i].close);
            input_start(&in);
            int r = bpk_cbor_skip(&in.cbor, limits[k]);
            ck_assert_int_eq(r, extra ? -EBADMSG : 0);
            if (r == 0)
                ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
            input_finish(&in);
        }
    }
}

START_TEST(a_depth_past_the_limit_is_the_limit) {
    struct input in = {0};
    bytes_fill(&in.bytes, 0x81, 129);
    bytes_fill(&in.bytes, 0, 1);
    input_start(&in);
    ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 100000), -EBADMSG);
    in.cbor.pos = 1;
    ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 100000), 0);
    input_finish(&in);
}

static const struct {
    const char *hex;
    size_t read; /* 0: refused */
} values[] = {
    {"00", 1},
    {"8000", 1},
    {"a000", 1},
    {"820102 03", 3},
    {"a201020304 05", 5},
    {"9fff00", 2},
    {"bfff00", 2},
    {"bf0102 ff00", 4},
    {"9f018202039f04ffff00", 9},
    {"5f41004100ff00", 6},
    {"7f6161ff00", 4},
    {"7fff00", 2},
    {"c1c1c100", 4},
    {"f700", 1},
    {"ff", 0},   /* a break alone */
    {"81ff", 0}, /* in a definite array */
    {"a1ff", 0},
    {"a100ff", 0},
    {"bf00ff", 0}, /* between key and value */
    {"9fc1ff", 0}, /* behind a tag */
    {"c1ff", 0},
    {"8201", 0}, /* too short */
    {"9f01", 0},
    {"bf01", 0},
    {"a101", 0},
    {"9bffffffffffffffff01", 0},
    {"bbffffffffffffffff0101", 0},
    {"bb800000000000000001", 0},
    {"5f6161ff", 0}, /* chunks of another kind */
    {"7f4161ff", 0},
    {"7f7f6161ffff", 0}, /* nested chunks */
    {"5f5f4161ffff", 0},
    {"7fc16161ff", 0}, /* a tag before a chunk */
    {"7f00ff", 0},
    {"7f6161", 0},
    {"81f0", 0},
    {"811c", 0},
    {"81f818", 0},
};

START_TEST(values_are_skipped_whole) {
    struct input in;
    input_hex(&in, values[_i].hex);
    ck_assert_int_eq(bpk_cbor_skip(&in.cbor, 20), values[_i].read ? 0 : -EBADMSG);
    if (values[_i].read)
        ck_assert_uint_eq(in.cbor.pos, values[_i].read);
    input_finish(&in);
}

/* Before a value that is wanted, 1024 tags pass and 1025 do not. */
START_TEST(tags_before_a_value_are_limited) {
    for (unsigned tags = BPK_CBOR_MAX_TAGS; tags <= BPK_CBOR_MAX_TAGS + 1; tags++) {
        int expected = tags == BPK_CBOR_MAX_TAGS ? 0 : -EBADMSG;
        struct input in = {0};
        struct bpk_cbor_item item;
        uint64_t number;
        bytes_fill(&in.bytes, 0xc1, tags);
        bytes_fill(&in.bytes, 7, 1);
        input_start(&in);
        ck_assert_int_eq(bpk_cbor_next_untagged(&in.cbor, &item), expected);
        in.cbor.pos = 0;
        ck_assert_int_eq(bpk_cbor_uint(&in.cbor, &number), expected);
        input_finish(&in);
    }
}

int main(void) {
    Suite *suite = suite_create("cbor_reader");
    TCase *tc = suite_case(suite, "heads");
    tcase_add_loop_test(tc, every_head, 0, ROWS(heads));
    tcase_add_loop_test(tc, every_head_cut_short, 0, ROWS(heads));
    tcase_add_test(tc, ill_formed_heads);
    tcase_add_loop_test(tc, huge_lengths_and_other_nonsense, 0, ROWS(huge_or_ill));
    tcase_add_test(tc, text_must_be_utf8);
    tc = suite_case(suite, "numbers");
    tcase_add_loop_test(tc, integers_of_both_kinds, 0, ROWS(integers));
    tcase_add_loop_test(tc, big_numbers_are_skipped, 0, ROWS(skipped_bignums));
    tcase_add_loop_test(tc, floats_by_bits, 0, ROWS(floats));
    tcase_add_test(tc, every_half);
    tcase_add_test(tc, no_floats_and_no_booleans);
    tc = suite_case(suite, "nesting");
    tcase_add_loop_test(tc, nesting_is_limited, 0, ROWS(nests));
    tcase_add_test(tc, a_depth_past_the_limit_is_the_limit);
    tcase_add_loop_test(tc, values_are_skipped_whole, 0, ROWS(values));
    tcase_add_test(tc, tags_before_a_value_are_limited);
    return suite_run(suite);
}

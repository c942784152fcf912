/* cbor_reader, the rest: strings in chunks made definite in place, field names, maps, enums. Heads
 * and numbers are in test_cbor_reader.c. */
#include "cborinput.h"

#include <errno.h>

/* ---- strings in chunks ----------------------------------------------------------------------- */

/* Chunk sizes, each ended by -1: totals where the definite head grows, empty chunks anywhere. */
static const int chunkings[][8] = {
    {-1},
    {0, -1},
    {0, 0, 0, -1},
    {1, -1},
    {0, 5, -1},
    {5, 0, -1},
    {1, 1, 1, 1, 1, -1},
    {23, -1},
    {23, 1, -1},
    {24, -1},
    {0, 24, -1},
    {23, 23, -1},
    {255, -1},
    {255, 1, -1},
    {256, -1},
    {0, 256, -1},
    {1, 255, -1},
    {23, 233, -1},
    {65535, -1},
    {65535, 1, -1},
    {65536, -1},
    {0, 65536, -1},
    {1, 65535, -1},
    {255, 255, 255, 65536, -1},
    {70000, 70000, -1},
};

static void emit_chunks(struct bytes *b, unsigned major, const int *sizes, struct bytes *content) {
    bytes_fill(b, (uint8_t)(major << 5 | 31), 1);
    for (; *sizes >= 0; sizes++) {
        cbor_head(b, major, (uint64_t)*sizes);
        for (int i = 0; i < *sizes; i++) {
            uint8_t byte = (uint8_t)('a' + content->len % 23);
            bytes_add(content, &byte, 1);
            bytes_add(b, &byte, 1);
        }
    }
    bytes_fill(b, 0xff, 1);
}

START_TEST(chunks_become_one_text_in_place) {
    struct input in = {0};
    struct bytes content = {0};
    uint32_t head;
    bytes_hex(&in.bytes, "05 d9d9f7"); /* something before it, and a tag */
    emit_chunks(&in.bytes, CBOR_TEXT, chunkings[_i], &content);
    bytes_hex(&in.bytes, "18 2a");
    input_start(&in);
    in.cbor.pos = 1;
    ck_assert_int_eq(bpk_cbor_text(&in.cbor, &head), 0);
    ck_assert_uint_eq(head, 4); /* where the text's own head was */
    struct bpk_str text = bpk_cbor_text_at(in.cbor.data, head);
    ck_assert_uint_eq(text.len, content.len);
    size_t shortest = text.len < 24 ? 1 : text.len < 256 ? 2 : text.len < 65536 ? 3 : 5;
    ck_assert_ptr_eq(text.bytes, in.cbor.data + head + shortest);
    ck_assert(content.len == 0 || memcmp(text.bytes, content.data, content.len) == 0);
    uint64_t next;
    ck_assert_int_eq(bpk_cbor_uint(&in.cbor, &next), 0);
    ck_assert_uint_eq(next, 42);
    ck_assert_mem_eq(in.cbor.data, "\x05\xd9\xd9\xf7", 4);
    in.cbor.pos = head; /* it is a definite text now */
    struct bpk_cbor_item item;
    ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), 0);
    ck_assert_int_eq(item.kind, BPK_CBOR_TEXT);
    ck_assert_uint_eq(item.value, content.len);
    bytes_clear(&content);
    input_finish(&in);
}

/* Bytes are counted and copied up to a limit; the block stays as it is. */
START_TEST(chunks_of_bytes_are_gathered) {
    static const size_t limits[] = {0, 1, 2, 30, 300, 200000};
    for (int k = 0; k < ROWS(limits); k++) {
        struct input in = {0};
        struct bytes content = {0};
        struct bpk_cbor_item item;
        uint64_t count;
        uint8_t *out = calloc(limits[k] + 1, 1);
        ck_assert_ptr_nonnull(out);
        emit_chunks(&in.bytes, CBOR_BYTES, chunkings[_i], &content);
        input_start(&in);
        struct bytes before = {0};
        bytes_add(&before, in.cbor.data, in.cbor.size);
        ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), 0);
        ck_assert_int_eq(bpk_cbor_bytes(&in.cbor, &item, out, limits[k], &count), 0);
        ck_assert_uint_eq(count, content.len);
        ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
        size_t stored = content.len < limits[k] ? content.len : limits[k];
        ck_assert(stored == 0 || memcmp(out, content.data, stored) == 0);
        ck_assert_int_eq(out[stored], 0);
        ck_assert_mem_eq(in.cbor.data, before.data, before.len);
        free(out);
        bytes_clear(&before);
        bytes_clear(&content);
        input_finish(&in);
    }
}

/* Chunks with long heads, many of one byte: the joined text is found again. */
START_TEST(chunks_with_heads_of_every_width) {
    static const unsigned widths[] = {1, 2, 4, 8};
    struct input in = {0};
    uint32_t head;
    bytes_hex(&in.bytes, "7f");
    for (int i = 0; i < 300; i++) {
        cbor_wide_head(&in.bytes, CBOR_TEXT, 1, widths[i % 4]);
        bytes_fill(&in.bytes, (uint8_t)('a' + i % 26), 1);
    }
    bytes_hex(&in.bytes, "ff");
    input_start(&in);
    HOLDS(bpk_cbor_text(&in.cbor, &head) == 0);
    struct bpk_str text = bpk_cbor_text_at(in.cbor.data, head);
    HOLDS(text.len == 300);
    for (int i = 0; i < 300; i++)
        HOLDS(text.bytes[i] == 'a' + i % 26);
    HOLDS(in.cbor.pos == in.cbor.size);
    input_finish(&in);
}

START_TEST(definite_strings) {
    struct input in;
    uint32_t head;
    struct bpk_cbor_item item;
    uint8_t out[2];
    uint64_t count;
    input_hex(&in, "c1 62 6869 43 010203");
    ck_assert_int_eq(bpk_cbor_text(&in.cbor, &head), 0);
    ck_assert_uint_eq(head, 1);
    ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), 0);
    ck_assert_int_eq(bpk_cbor_bytes(&in.cbor, &item, out, 2, &count), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert_mem_eq(out, "\x01\x02", 2);
    ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
    input_finish(&in);
}

/* Heads that are longer than they need be. */
START_TEST(strings_are_found_behind_any_head) {
    static const unsigned widths[] = {1, 2, 4, 8};
    for (int i = 0; i < ROWS(widths); i++) {
        struct bytes b = {0};
        bytes_fill(&b, 0, 3);
        cbor_wide_head(&b, CBOR_TEXT, 2, widths[i]);
        bytes_add(&b, "xy", 2);
        struct bpk_str text = bpk_cbor_text_at(b.data, 3);
        ck_assert_uint_eq(text.len, 2);
        ck_assert_mem_eq(text.bytes, "xy", 2);
        bytes_clear(&b);
    }
}

static const char *const no_texts[] = {
    "7f 61c3 61bc ff", /* a character in two chunks */
    "7f 6161 41 62 ff",
    "7f 7f6161ff ff",
    "7f c16161 ff",
    "7f 00 ff",
    "7f f6 ff",
    "7f 6161",
    "7f",
    "4161",
    "5f4161ff",
    "00",
    "80",
    "a0",
    "f6",
    "ff",
    "",
    "7a7fffffff61",
    "7f 7b7fffffffffffffff61 ff",
};

START_TEST(what_is_no_text) {
    struct input in;
    uint32_t head = 77;
    input_hex(&in, no_texts[_i]);
    ck_assert_int_eq(bpk_cbor_text(&in.cbor, &head), -EBADMSG);
    ck_assert_int_eq(in.diag.code, -EBADMSG);
    ck_assert_uint_eq(head, 77);
    input_finish(&in);
}

START_TEST(chunks_of_bytes_are_of_bytes) {
    static const char *const bad[] = {"5f 6161 ff", "5f 5f4161ff ff", "5f c14161 ff", "5f 4161"};
    for (int i = 0; i < ROWS(bad); i++) {
        struct input in;
        struct bpk_cbor_item item;
        input_hex(&in, bad[i]);
        ck_assert_int_eq(bpk_cbor_next(&in.cbor, &item), 0);
        uint64_t count = 77;
        ck_assert_int_eq(bpk_cbor_bytes(&in.cbor, &item, NULL, 0, &count), -EBADMSG);
        ck_assert_uint_eq(count, 77);
        input_finish(&in);
    }
}

/* ---- field names ----------------------------------------------------------------------------- */

START_TEST(field_names) {
    static const char *const good[] = {"626162", "426162", "c1c2626162", "78026162", "590002 6162"};
    static const char *const bad[] = {"7f626162ff", "5f426162ff", "00", "f6", "80",
                                      "a0",         "61ff",       "ff", ""};
    struct input in;
    struct bpk_str name;
    for (int i = 0; i < ROWS(good); i++) {
        input_hex(&in, good[i]);
        ck_assert_int_eq(bpk_cbor_ident(&in.cbor, &name), 0);
        ck_assert_uint_eq(name.len, 2);
        ck_assert_mem_eq(name.bytes, "ab", 2);
        input_finish(&in);
    }
    for (int i = 0; i < ROWS(bad); i++) {
        input_hex(&in, bad[i]);
        ck_assert_int_eq(bpk_cbor_ident(&in.cbor, &name), -EBADMSG);
        input_finish(&in);
    }
}

START_TEST(field_names_are_limited) {
    static const unsigned majors[] = {CBOR_TEXT, CBOR_BYTES};
    for (int k = 0; k < 2; k++) {
        for (size_t len = BPK_CBOR_MAX_IDENT; len <= BPK_CBOR_MAX_IDENT + 1; len++) {
            struct input in = {0};
            struct bpk_str name;
            cbor_head(&in.bytes, majors[k], len);
            bytes_fill(&in.bytes, 'n', len);
            input_start(&in);
            ck_assert_int_eq(bpk_cbor_ident(&in.cbor, &name),
                             len > BPK_CBOR_MAX_IDENT ? -EBADMSG : 0);
            input_finish(&in);
        }
    }
}

/* ---- maps ------------------------------------------------------------------------------------ */

static const struct {
    const char *hex;
    int entries; /* -1: refused */
    bool at_begin;
} maps[] = {
    {"a0", 0, false},
    {"a2 0001 0203", 2, false},
    {"b802 0001 0203", 2, false},
    {"bf ff", 0, false},
    {"bf 0001 0203 ff", 2, false},
    {"c1d9d9f7 a1 0001", 1, false},
    {"a1 00", -1, false},
    {"bf 0001", -1, false},
    {"a1 ff", -1, false},
    {"80", -1, true},
    {"9f ff", -1, true},
    {"00", -1, true},
    {"f6", -1, true},
    {"", -1, true},
};

START_TEST(maps_are_walked) {
    struct input in;
    struct bpk_cbor_map map;
    int entries = 0;
    input_hex(&in, maps[_i].hex);
    int r = bpk_cbor_map_begin(&in.cbor, &map);
    ck_assert_int_eq(r, maps[_i].at_begin ? -EBADMSG : 0);
    while (r == 0 && bpk_cbor_map_next(&in.cbor, &map)) {
        r = bpk_cbor_skip(&in.cbor, 3);
        if (r == 0)
            r = bpk_cbor_skip(&in.cbor, 3);
        entries += r == 0;
    }
    if (r == 0)
        r = map.error;
    ck_assert_int_eq(r, maps[_i].entries < 0 ? -EBADMSG : 0);
    if (r == 0) {
        ck_assert_int_eq(entries, maps[_i].entries);
        ck_assert_uint_eq(in.cbor.pos, in.cbor.size);
    }
    input_finish(&in);
}

/* ---- enums ----------------------------------------------------------------------------------- */

static const struct {
    const char *hex;
    bool good;
    bool has_value;
    size_t head;
} enums[] = {
    {"626162", true, false, 0},
    {"c1626162", true, false, 1},
    {"a1 626162 00", true, true, 0},
    {"b801 626162 00", true, true, 0},
    {"c1 a1 c1 626162 00", true, true, 1},
    {"a1 426162 00", true, true, 0}, /* the variant in bytes */
    {"426162", false, false, 0},     /* but not alone */
    {"7f626162ff", false, false, 0},
    {"a0", false, false, 0},
    {"a2 626162 00 626163 00", false, false, 0},
    {"bf 626162 00 ff", false, false, 0},
    {"a1 7f626162ff 00", false, false, 0},
    {"a1 00 00", false, false, 0},
    {"81 626162", false, false, 0},
    {"00", false, false, 0},
    {"f6", false, false, 0},
    {"a1", false, false, 0},
    {"", false, false, 0},
};

START_TEST(enums_are_a_text_or_a_map_of_one) {
    struct input in;
    struct bpk_cbor_variant variant;
    input_hex(&in, enums[_i].hex);
    ck_assert_int_eq(bpk_cbor_enum(&in.cbor, &variant), enums[_i].good ? 0 : -EBADMSG);
    if (enums[_i].good) {
        ck_assert_int_eq(variant.has_value, enums[_i].has_value);
        ck_assert_uint_eq(variant.head, enums[_i].head);
        ck_assert_uint_eq(variant.name.len, 2);
        ck_assert_mem_eq(variant.name.bytes, "ab", 2);
        ck_assert_uint_eq(in.cbor.pos, in.cbor.size - enums[_i].has_value);
    }
    input_finish(&in);
}

START_TEST(complaints_say_where) {
    struct input in;
    struct bpk_cbor_item item = {.kind = BPK_CBOR_MAP, .head = 5};
    input_hex(&in, "00");
    ck_assert_int_eq(bpk_cbor_fail(&in.cbor, 7, "100% wrong"), -EBADMSG);
    ck_assert_uint_eq(in.diag.offset, 17);
    ck_assert_str_eq(in.diag.sentence, "100% wrong");
    ck_assert_int_eq(bpk_cbor_unexpected(&in.cbor, &item, "a cat"), -EBADMSG);
    ck_assert_uint_eq(in.diag.offset, 15);
    ck_assert_str_eq(in.diag.sentence, "expected a cat, found a map");
    ck_assert_uint_eq(bpk_cbor_read_be((const uint8_t *)"\x01\x02\x03\x04\x05\x06\x07\x08", 8),
                      UINT64_C(0x0102030405060708));
    input_finish(&in);
}

int main(void) {
    Suite *suite = suite_create("cbor_strings");
    TCase *tc = suite_case(suite, "chunks");
    tcase_add_loop_test(tc, chunks_become_one_text_in_place, 0, ROWS(chunkings));
    tcase_add_loop_test(tc, chunks_of_bytes_are_gathered, 0, ROWS(chunkings));
    tcase_add_test(tc, chunks_with_heads_of_every_width);
    tcase_add_test(tc, definite_strings);
    tcase_add_test(tc, strings_are_found_behind_any_head);
    tcase_add_loop_test(tc, what_is_no_text, 0, ROWS(no_texts));
    tcase_add_test(tc, chunks_of_bytes_are_of_bytes);
    tc = suite_case(suite, "names, maps, enums");
    tcase_add_test(tc, field_names);
    tcase_add_test(tc, field_names_are_limited);
    tcase_add_loop_test(tc, maps_are_walked, 0, ROWS(maps));
    tcase_add_loop_test(tc, enums_are_a_text_or_a_map_of_one, 0, ROWS(enums));
    tcase_add_test(tc, complaints_say_where);
    return suite_run(suite);
}

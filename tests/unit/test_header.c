/* header: the ten bytes, the order of the checks, the limits (format.md 1.1 and 6.1). */
#include "pack/header.h"

#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *hex;
    uint16_t version;
    uint32_t metadata_size;
} good[] = {
    {"4e525542 0100 00000000", 1, 0},
    {"4e525542 0000 0a000000", 0, 10},
    {"4e525542 0100 01020304 ffff", 1, 0x04030201},
    {"4e525542 0100 00004006", 1, BPK_MAX_METADATA},
};

START_TEST(good_headers) {
    struct bytes b = bytes_from_hex(good[_i].hex);
    struct bpk_header header;
    ck_assert_int_eq(bpk_header_parse(b.data, b.len, &header, NULL), 0);
    ck_assert_uint_eq(header.version, good[_i].version);
    ck_assert_uint_eq(header.metadata_size, good[_i].metadata_size);
    bytes_clear(&b);
}

static const struct {
    const char *hex;
    uint64_t offset;
    const char *says;
} bad[] = {
    {"", 0, "too few"},
    {"4e525542 0100 000000", 0, "too few"},
    {"00000000 0100 00000000", 0, "not a burnpack"},
    {"42555242 0100 00000000", 0, "not a burnpack"},
    {"deadbeef ffff ffffffff", 0, "not a burnpack"}, /* the magic first */
    {"4e525542 0200 ffffffff", 4, "version 2"},      /* then the version */
    {"4e525542 0001 00000000", 4, "version 256"},
    {"4e525542 0100 01004006", 6, "104857601"},
    {"4e525542 0100 ffffffff", 6, "limit"},
};

START_TEST(bad_headers) {
    struct bytes b = bytes_from_hex(bad[_i].hex);
    struct bpk_header header = {.version = 77};
    struct bpk_diag diag = {0};
    ck_assert_int_eq(bpk_header_parse(b.data, b.len, &header, &diag), -EBADMSG);
    ck_assert_int_eq(diag.code, -EBADMSG);
    ck_assert_uint_eq(diag.offset, bad[_i].offset);
    ck_assert_msg(strstr(diag.sentence, bad[_i].says), "%s", diag.sentence);
    ck_assert_uint_eq(header.version, 77);
    bytes_clear(&b);
}

int main(void) {
    Suite *suite = suite_create("header");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, good_headers, 0, ROWS(good));
    tcase_add_loop_test(tc, bad_headers, 0, ROWS(bad));
    return suite_run(suite);
}

/* names: the file name of a tensor or a metadata key: encoding, decoding, long names and their
 * clashes, and that only the one spelling is found (semantics.md 1). */
#include "view/names.h"

#include "pack/text.h"
#include "packbuild.h"
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* The linker gives us the hash (--wrap): a test makes it clash. */
XXH64_hash_t __real_XXH3_64bits(const void *data, size_t len);
XXH64_hash_t __wrap_XXH3_64bits(const void *data, size_t len);
static uint64_t (*fake_hash)(const char *data, size_t len);

XXH64_hash_t __wrap_XXH3_64bits(const void *data, size_t len) {
    return fake_hash ? fake_hash(data, len) : __real_XXH3_64bits(data, len);
}

static const struct {
    const char *name;
    size_t len;
    const char *file;
} encodings[] = {
    {"", 0, "%"},
    {"a", 1, "a"},
    {"conv1.weight", 12, "conv1.weight"},
    {"a/b", 3, "a%2Fb"},
    {"/", 1, "%2F"},
    {"a\0b", 3, "a%00b"},
    {"\0", 1, "%00"},
    {"\x01\x1f", 2, "%01%1F"},
    {"a b", 3, "a b"},
    {"\x7f", 1, "%7F"},
    {"\n\t", 2, "%0A%09"},
    {"%", 1, "%25"},
    {"%41", 3, "%2541"},
    {"100%", 4, "100%25"},
    {".", 1, "%2E"},
    {"..", 2, "%2E."},
    {".a", 2, "%2Ea"},
    {"a.", 2, "a."},
    {"a.b", 3, "a.b"},
    {"~", 1, "%7E"},
    {"a~", 2, "a%7E"},
    {"~a", 2, "~a"},
    {"a~~", 3, "a~%7E"},
    {"a.json", 6, "a%2Ejson"},
    {".json", 5, "%2Ejson"},
    {"json", 4, "json"},
    {"a.json.json", 11, "a.json%2Ejson"},
    {"a.json.b", 8, "a.json.b"},
    {"a.JSON", 6, "a.JSON"},
    {"a.json~", 7, "a.json%7E"},
    {"..json", 6, "%2E%2Ejson"},
    {"@", 1, "@"},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"\xc2\x85", 2, "\xc2\x85"},
    {"a\\b:c*?\"<>|", 11, "a\\b:c*?\"<>|"},
};

START_TEST(names_are_encoded) {
    char out[BPK_FILE_NAME_BUF];
    char back[BPK_FILE_NAME_BUF];
    struct bpk_str name = {encodings[_i].name, encodings[_i].len};
    ck_assert_uint_eq(bpk_name_encode(name, out), strlen(encodings[_i].file));
    ck_assert_str_eq(out, encodings[_i].file);
    ck_assert_int_eq(bpk_name_decode(str(out), back), (int)name.len);
    ck_assert(name.len == 0 || memcmp(back, name.bytes, name.len) == 0);
}

static const struct {
    const char *file;
    int len; /* -EINVAL, or that of the name */
    const char *name;
} decodings[] = {
    {"%", 0, ""},         {"%61", 1, "a"},      {"%2f", 1, "/"},       {"%2F", 1, "/"},
    {"%fF", 1, "\xff"},   {"50%", -EINVAL, ""}, {"50%2", -EINVAL, ""}, {"%%", -EINVAL, ""},
    {"%g0", -EINVAL, ""}, {"%0g", -EINVAL, ""}, {"a%~", -EINVAL, ""},  {"% 1", -EINVAL, ""},
    {"%+1", -EINVAL, ""}, {"%2541", 3, "%41"},  {"a%00", 2, "a\0"},    {"", 0, ""},
};

START_TEST(names_are_decoded) {
    char out[BPK_FILE_NAME_BUF];
    int len = bpk_name_decode(str(decodings[_i].file), out);
    ck_assert_int_eq(len, decodings[_i].len);
    if (len > 0)
        ck_assert_mem_eq(out, decodings[_i].name, (size_t)len);
}

/* A random name of up to `max` bytes, of pieces that matter to the encoding. */
static size_t random_name(uint64_t *state, char *out, size_t max) {
    static const struct bpk_str pieces[] = {
        {"a", 1}, {"b", 1},   {".", 1},    {".json", 5}, {"~", 1},     {"%", 1},
        {"/", 1}, {"\0", 1},  {"\x1f", 1}, {"\x7f", 1},  {"é", 2},     {"€", 3},
        {"😀", 4}, {"%7E", 3}, {"%~", 2},   {"@", 1},     {"weight", 6}};
    size_t used = 0;
    for (;;) {
        const struct bpk_str *piece = &pieces[suite_random(state) % (size_t)ROWS(pieces)];
        if (used + piece->len > max || suite_random(state) % 12 == 0)
            return used;
        memcpy(out + used, piece->bytes, piece->len);
        used += piece->len;
    }
}

START_TEST(random_names_come_back) {
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        char name[80];
        char file[BPK_FILE_NAME_BUF];
        char back[BPK_FILE_NAME_BUF];
        size_t len = random_name(&state, name, sizeof(name));
        size_t file_len = bpk_name_encode((struct bpk_str){name, len}, file);
        HOLDS(file_len > 0);
        HOLDS(file_len == strlen(file));
        HOLDS(!strchr(file, '/'));
        HOLDS(file[0] != '.' && file[file_len - 1] != '~');
        HOLDS(file_len < 5 || strcmp(file + file_len - 5, ".json") != 0);
        HOLDS(bpk_text_is_utf8((const uint8_t *)file, file_len));
        HOLDS(bpk_name_decode(str(file), back) == (int)len);
        HOLDS(len == 0 || memcmp(back, name, len) == 0);
    }
}

START_TEST(up_to_250_bytes) {
    char name[300];
    char out[BPK_FILE_NAME_BUF];
    memset(name, 'n', sizeof(name));
    ck_assert_uint_eq(bpk_name_encode((struct bpk_str){name, 250}, out), 250);
    ck_assert_uint_eq(bpk_name_encode((struct bpk_str){name, 251}, out), 0);
    name[0] = '/';
    ck_assert_uint_eq(bpk_name_encode((struct bpk_str){name, 248}, out), 250);
    ck_assert_uint_eq(bpk_name_encode((struct bpk_str){name, 249}, out), 0);
}

/* ---- the names of a pack --------------------------------------------------------------------- */

static struct bpk_names *open_names(struct packspec *spec, enum bpk_names_of of) {
    struct bpk_names *names;
    struct bpk_pack *pack = spec_open(spec);
    ck_assert_int_eq(bpk_names_new(pack, of, &names), 0);
    bpk_pack_unref(pack); /* the names have a reference of their own */
    spec_clear(spec);
    return names;
}

static void expect_found(const struct bpk_names *names, const char *file, int index) {
    uint32_t found = 77;
    int r = bpk_names_find(names, str(file), &found);
    if (r != (index < 0 ? -ENOENT : 0) || found != (index < 0 ? 77 : (uint32_t)index))
        ck_abort_msg("%s: %d, %u", file, r, found);
}

static void check_one_to_one(const struct bpk_names *names, uint32_t count) {
    char before[BPK_FILE_NAME_BUF] = "";
    for (uint32_t i = 0; i < count; i++) {
        char file[BPK_FILE_NAME_BUF];
        HOLDS(bpk_names_file(names, i, file) == strlen(file));
        HOLDS(strlen(file) <= BPK_FILE_NAME_MAX);
        HOLDS(bpk_text_is_utf8((const uint8_t *)file, strlen(file)));
        HOLDS(strcmp(file, before) != 0);
        expect_found(names, file, (int)i);
        strcpy(before, file);
    }
}

START_TEST(one_spelling_is_found) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8(&spec, "", 1);
    spec_u8(&spec, "50%", 1);
    spec_u8(&spec, "a", 1);
    spec_u8(&spec, "a.json", 1);
    spec_u8(&spec, "x/y", 1);
    spec_u8(&spec, "é", 1);
    struct bpk_names *names = open_names(&spec, BPK_NAMES_TENSORS);
    check_one_to_one(names, 6);
    static const struct {
        const char *file;
        int index;
    } rows[] = {
        {"%", 0},
        {"50%25", 1},
        {"a", 2},
        {"a%2Ejson", 3},
        {"x%2Fy", 4},
        {"é", 5},
        {"", -1},
        {"50%", -1},
        {"%61", -1},
        {"x%2fy", -1},
        {"x/y", -1},
        {"a.json", -1},
        {"a%2ejson", -1},
        {"%C3%A9", -1},
        {"\xc3", -1},
        {"%00", -1},
        {"%25", -1},
        {"A", -1},
        {"a%", -1},
        {"b", -1},
        {"%~0000000000000000", -1},
        {"a%~0000000000000000", -1},
    };
    for (int i = 0; i < ROWS(rows); i++)
        expect_found(names, rows[i].file, rows[i].index);
    char big[300];
    memset(big, 'a', sizeof(big));
    uint32_t index;
    for (size_t len = 249; len < sizeof(big); len++)
        ck_assert_int_eq(bpk_names_find(names, (struct bpk_str){big, len}, &index), -ENOENT);
    bpk_names_free(names);
    bpk_names_free(NULL);
}

START_TEST(keys_of_metadata) {
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_metadata(&spec, "", "empty");
    spec_metadata(&spec, "a/b", "slash");
    spec_u8(&spec, "tensor", 1);
    struct bpk_names *names = open_names(&spec, BPK_NAMES_METADATA);
    check_one_to_one(names, 2);
    expect_found(names, "a%2Fb", 1);
    expect_found(names, "tensor", -1);
    bpk_names_free(names);
}

START_TEST(random_names_of_a_pack) {
    struct packspec spec;
    uint64_t state = 99;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    for (int i = 0; i < 1200; i++) {
        char name[400];
        size_t len = random_name(&state, name, sizeof(name) - 300);
        for (int k = 0; k < 10 && i % 3 == 0; k++)
            len += random_name(&state, name + len, 30); /* some are long */
        spec_u8_n(&spec, (struct bpk_str){name, len}, 0);
    }
    struct bpk_pack *pack = spec_open(&spec);
    struct bpk_pack_info info;
    struct bpk_names *names;
    bpk_pack_get_info(pack, &info);
    ck_assert_uint_gt(info.tensors, 700);
    ck_assert_int_eq(bpk_names_new(pack, BPK_NAMES_TENSORS, &names), 0);
    check_one_to_one(names, info.tensors);
    bpk_names_free(names);
    bpk_pack_unref(pack);
    spec_clear(&spec);
}

/* A long name is cut after the last whole character or escape that leaves 18 bytes of the 250. */
static const struct {
    const char *filler; /* repeated before and after */
    size_t before;      /* plain letters at the start, so that the cut moves */
    size_t kept;        /* bytes of the encoded name that stay */
    const char *encoded;
} cuts[] = {
    {"x", 0, 232, "x"}, {"é", 0, 232, "é"},   {"é", 1, 231, "é"},   {"€", 0, 231, "€"},
    {"€", 1, 232, "€"}, {"€", 2, 230, "€"},   {"😀", 0, 232, "😀"},   {"😀", 1, 229, "😀"},
    {"😀", 3, 231, "😀"}, {"/", 0, 231, "%2F"}, {"/", 1, 232, "%2F"}, {"/", 2, 230, "%2F"},
};

static void expect_cut(const char *file, const char *name, size_t len, bool is_cut) {
    struct bpk_str text = {file, strlen(file)};
    ck_assert_int_eq(bpk_name_is_cut(text, (struct bpk_str){name, len}), is_cut);
}

START_TEST(long_names_are_cut) {
    struct packspec spec;
    char name[1200];
    char file[BPK_FILE_NAME_BUF];
    char expected[2000];
    size_t len = cuts[_i].before;
    memset(name, 'n', len);
    memset(expected, 'n', len);
    size_t used = len;
    while (len < 1000) {
        memcpy(name + len, cuts[_i].filler, strlen(cuts[_i].filler));
        len += strlen(cuts[_i].filler);
        if (used + strlen(cuts[_i].encoded) <= cuts[_i].kept) {
            strcpy(expected + used, cuts[_i].encoded);
            used += strlen(cuts[_i].encoded);
        }
    }
    ck_assert_uint_eq(used, cuts[_i].kept);
    sprintf(expected + used, "%%~%016llx", (unsigned long long)__real_XXH3_64bits(name, len));
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    spec_u8_n(&spec, (struct bpk_str){name, len}, 1);
    struct bpk_names *names = open_names(&spec, BPK_NAMES_TENSORS);
    bpk_names_file(names, 0, file);
    ck_assert_str_eq(file, expected);
    expect_found(names, file, 0);
    expect_cut(file, name, len, true);
    expect_cut(file, name, len - 1, false);
    expect_cut("n", "n", 1, false);
    char wrong[BPK_FILE_NAME_BUF];
    strcpy(wrong, file);
    wrong[0] ^= 1; /* another start with the same hash */
    expect_found(names, wrong, -1);
    expect_cut(wrong, name, len, false);
    strcpy(wrong, file);
    char *digit = wrong + strlen(wrong) - 1;
    *digit = *digit == '0' ? '1' : '0';
    expect_found(names, wrong, -1);
    for (char *p = strcpy(wrong, file) + used; *p; p++) /* the digits are lower-case */
        if (*p >= 'a' && *p <= 'f') {
            *p = (char)(*p - 'a' + 'A');
            expect_found(names, wrong, -1);
            break;
        }
    bpk_names_free(names);
}

/* Encoded to 250 bytes a name is whole, to 251 it is cut: escapes count. */
START_TEST(where_long_begins) {
    for (size_t extra = 0; extra < 2; extra++) {
        struct packspec spec;
        char name[300];
        char file[BPK_FILE_NAME_BUF];
        memset(name, 'n', sizeof(name));
        name[248 + extra - 1] = '~'; /* encoded: 2 more */
        spec_init(&spec, BPK_LAYOUT_ALIGNED);
        spec_u8_n(&spec, (struct bpk_str){name, 248 + extra}, 1);
        struct bpk_names *names = open_names(&spec, BPK_NAMES_TENSORS);
        ck_assert_uint_eq(bpk_names_file(names, 0, file), 250);
        ck_assert_int_eq(strcmp(file + 232, "%~") > 0 && file[232] == '%', extra == 1);
        expect_found(names, file, 0);
        bpk_names_free(names);
    }
}

/* ---- clashes --------------------------------------------------------------------------------- */

static uint64_t by_last_digit(const char *data, size_t len) {
    return (uint64_t)(data[len - 1] - '0'); /* "…0" to "…9" */
}

/* Of names with one hash the later in byte order takes the next number, and so may push others. */
START_TEST(hashes_that_clash) {
    static const char *const tails[] = {"a5", "b5", "c5", "d6", "e7", "f9"};
    static const unsigned numbers[] = {5, 6, 7, 8, 9, 10};
    struct packspec spec;
    spec_init(&spec, BPK_LAYOUT_ALIGNED);
    for (int i = 0; i < ROWS(tails); i++) {
        char name[300];
        memset(name, 'n', sizeof(name));
        memcpy(name + 298, tails[i], 2);
        spec_u8_n(&spec, (struct bpk_str){name, 300}, 1);
    }
    fake_hash = by_last_digit;
    struct bpk_names *names = open_names(&spec, BPK_NAMES_TENSORS);
    check_one_to_one(names, ROWS(tails));
    for (uint32_t i = 0; i < (uint32_t)ROWS(tails); i++) {
        char file[BPK_FILE_NAME_BUF];
        char digits[20];
        bpk_names_file(names, i, file);
        snprintf(digits, sizeof(digits), "%%~%016x", numbers[i]);
        ck_assert_str_eq(file + 232, digits);
    }
    bpk_names_free(names);
    fake_hash = NULL;
}

int main(void) {
    Suite *suite = suite_create("names");
    TCase *tc = suite_case(suite, "encoding");
    tcase_add_loop_test(tc, names_are_encoded, 0, ROWS(encodings));
    tcase_add_loop_test(tc, names_are_decoded, 0, ROWS(decodings));
    tcase_add_test(tc, random_names_come_back);
    tcase_add_test(tc, up_to_250_bytes);
    tc = suite_case(suite, "of a pack");
    tcase_add_test(tc, one_spelling_is_found);
    tcase_add_test(tc, keys_of_metadata);
    tcase_add_test(tc, random_names_of_a_pack);
    tcase_add_loop_test(tc, long_names_are_cut, 0, ROWS(cuts));
    tcase_add_test(tc, where_long_begins);
    tcase_add_test(tc, hashes_that_clash);
    return suite_run(suite);
}

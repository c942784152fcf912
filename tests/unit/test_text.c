/* text: which bytes are UTF-8 at any alignment, code points, what is unsafe on a terminal, escapes
 * and cuts. */
#include "pack/text.h"

#include "suite.h"

#include <string.h>

static const struct {
    const char *bytes;
    size_t len;
    bool valid;
} sequences[] = {
    {"", 0, true},
    {"\0", 1, true},
    {"\x7f", 1, true},
    {"\x80", 1, false},
    {"\xbf", 1, false},
    {"\xc1\xbf", 2, false}, /* overlong */
    {"\xc2\x80", 2, true},
    {"\xdf\xbf", 2, true},
    {"\xc3", 1, false},
    {"\xc3(", 2, false},
    {"\xe0\x9f\xbf", 3, false}, /* overlong */
    {"\xe0\xa0\x80", 3, true},
    {"\xed\x9f\xbf", 3, true},
    {"\xed\xa0\x80", 3, false}, /* a surrogate */
    {"\xed\xbf\xbf", 3, false},
    {"\xee\x80\x80", 3, true},
    {"\xef\xbf\xbf", 3, true},
    {"\xe2\x82", 2, false},
    {"\xe2\x82\xc0", 3, false},
    {"\xf0\x8f\xbf\xbf", 4, false}, /* overlong */
    {"\xf0\x90\x80\x80", 4, true},
    {"\xf4\x8f\xbf\xbf", 4, true},
    {"\xf4\x90\x80\x80", 4, false}, /* past U+10FFFF */
    {"\xf5\x80\x80\x80", 4, false},
    {"\xf0\x9f\x98", 3, false},
    {"\xf0\x9f\x98\xff", 4, false},
    {"\xff", 1, false},
    {"\xfe", 1, false},
};

/* The sequence stands after 0 to 16 plain letters and before as many: eight at a time are skipped
 * where they can be. */
START_TEST(utf8_is_told_at_any_place) {
    for (size_t before = 0; before <= 16; before++) {
        for (size_t after = 0; after <= 16; after++) {
            char text[40];
            memset(text, 'a', sizeof(text));
            memcpy(text + before, sequences[_i].bytes, sequences[_i].len);
            HOLDS(bpk_text_is_utf8((const uint8_t *)text, before + sequences[_i].len + after) ==
                  sequences[_i].valid);
        }
    }
}

/* Every code point, encoded here, is taken and read back. */
START_TEST(every_code_point) {
    for (uint32_t c = 0; c <= 0x110010; c++) {
        uint8_t text[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (size_t k = n; k-- > 1;)
            text[k] = (uint8_t)(0x80 | (c >> 6 * (n - 1 - k) & 0x3f));
        text[0] = (uint8_t)(leads[n] | c >> 6 * (n - 1));
        bool valid = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
        if (bpk_text_is_utf8(text, n) != valid)
            ck_abort_msg("U+%04X", (unsigned)c);
        uint32_t code;
        if (valid && (bpk_text_char(text, &code) != n || code != c))
            ck_abort_msg("U+%04X is read wrong", (unsigned)c);
    }
}

static const struct {
    uint32_t from, to;
    bool unsafe;
} ranges[] = {
    {0, 0x1f, true},        {0x20, 0x7e, false},       {0x7f, 0x9f, true},
    {0xa0, 0x2029, false},  {0x202a, 0x202e, true},    {0x202f, 0x2065, false},
    {0x2066, 0x2069, true}, {0x206a, 0x10ffff, false},
};

START_TEST(unsafe_code_points) {
    for (uint32_t c = ranges[_i].from; c <= ranges[_i].to; c++)
        if (bpk_text_is_unsafe(c) != ranges[_i].unsafe)
            ck_abort_msg("U+%04X", (unsigned)c);
}

static const struct {
    const char *text;
    size_t len;
    const char *shown;
} escapes[] = {
    {"", 0, ""},
    {"plain", 5, "plain"},
    {"a\nb\t", 4, "a\\x0ab\\x09"},
    {"\0", 1, "\\x00"},
    {"\x7f", 1, "\\x7f"},
    {"\xc2\x9b", 2, "\\x9b"},
    {"\xe2\x80\xae", 3, "\\u{202e}"},
    {"\xe2\x81\xa6", 3, "\\u{2066}"},
    {"ü€😀", 9, "ü€😀"},
    {"back\\slash", 10, "back\\slash"},
};

START_TEST(unsafe_characters_are_escaped) {
    char out[64];
    ck_assert_ptr_eq(bpk_text_escape(escapes[_i].text, escapes[_i].len, out, sizeof(out)), out);
    ck_assert_str_eq(out, escapes[_i].shown);
}

/* Whatever the room: terminated, within it, valid, a prefix and an ellipsis. */
START_TEST(what_does_not_fit_is_cut) {
    static const char text[] = "aü€😀\n\xe2\x80\xae-and-some-more";
    char whole[128];
    bpk_text_escape(text, sizeof(text) - 1, whole, sizeof(whole));
    for (size_t size = 1; size <= strlen(whole) + 8; size++) {
        char out[140];
        memset(out, 0x55, sizeof(out));
        bpk_text_escape(text, sizeof(text) - 1, out, size);
        size_t len = strnlen(out, size);
        ck_assert_uint_lt(len, size);
        ck_assert_int_eq(out[size], 0x55);
        ck_assert(bpk_text_is_utf8((const uint8_t *)out, len));
        if (strcmp(out, whole) == 0 || size < sizeof("…"))
            continue;
        ck_assert_str_eq(out + len - strlen("…"), "…");
        ck_assert_int_eq(strncmp(out, whole, len - strlen("…")), 0);
    }
}

static const struct {
    const char *before, *after;
} mendings[] = {
    {"", ""},
    {"plain/ü", "plain/ü"},
    {"\xff", "?"},
    {"a\xc3", "a?"},
    {"\xe2\x82z", "??z"},
    {"\xed\xa0\x80", "???"},
    {"\xc3\xc3\xbc", "?ü"},
};

START_TEST(broken_bytes_become_question_marks) {
    char text[32];
    strcpy(text, mendings[_i].before);
    bpk_text_make_utf8(text);
    ck_assert_str_eq(text, mendings[_i].after);
}

START_TEST(escape_keeps_what_fits) {
    char out[4];
    ck_assert_str_eq(bpk_text_escape("abc", 3, out, sizeof(out)), "abc");
}

int main(void) {
    Suite *suite = suite_create("text");
    TCase *tc = suite_case(suite, "all");
    tcase_add_loop_test(tc, utf8_is_told_at_any_place, 0, ROWS(sequences));
    tcase_add_test(tc, every_code_point);
    tcase_add_loop_test(tc, unsafe_code_points, 0, ROWS(ranges));
    tcase_add_loop_test(tc, unsafe_characters_are_escaped, 0, ROWS(escapes));
    tcase_add_test(tc, what_does_not_fit_is_cut);
    tcase_add_loop_test(tc, broken_bytes_become_question_marks, 0, ROWS(mendings));
    tcase_add_test(tc, escape_keeps_what_fits);
    return suite_run(suite);
}

#include "pack/text.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the sequence that `lead` starts, 0 if none does. */
static size_t sequence_length(uint8_t lead) {
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    if (lead >= 0xf0 && lead <= 0xf4)
        return 4;
    return 0;
}

/* The second byte has narrower bounds after some leads: no surrogates, nothing overlong, nothing
 * past U+10FFFF (Unicode, table 3-7). */
static bool second_byte_fits(uint8_t lead, uint8_t second) {
    switch (lead) {
    case 0xe0:
        return second >= 0xa0 && second <= 0xbf;
    case 0xed:
        return second >= 0x80 && second <= 0x9f;
    case 0xf0:
        return second >= 0x90 && second <= 0xbf;
    case 0xf4:
        return second >= 0x80 && second <= 0x8f;
    default:
        return second >= 0x80 && second <= 0xbf;
    }
}

/* Bytes of the character at the start of `text`, 0 if none is well-formed there. */
static size_t character_length(const uint8_t *text, size_t len) {
    size_t n = sequence_length(text[0]);
    if (n == 0 || n > len || (n > 1 && !second_byte_fits(text[0], text[1])))
        return 0;
    for (size_t k = 2; k < n; k++)
        if ((text[k] & 0xc0) != 0x80)
            return 0;
    return n;
}

void bpk_text_make_utf8(char *text) {
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        size_t n = character_length((const uint8_t *)text + i, len - i);
        if (n == 0)
            text[i] = '?';
        i += n > 0 ? n : 1;
    }
}

bool bpk_text_is_utf8(const uint8_t *text, size_t len) {
    size_t i = 0;
    while (i < len) {
        uint64_t eight;
        if (len - i >= sizeof(eight)) {
            memcpy(&eight, text + i, sizeof(eight));
            if (!(eight & UINT64_C(0x8080808080808080))) {
                i += sizeof(eight);
                continue;
            }
        }
        size_t n = character_length(text + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

size_t bpk_text_char(const uint8_t *text, uint32_t *ret_code_point) {
    static const uint8_t lead_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t n = sequence_length(text[0]);
    if (n == 0)
        n = 1;
    uint32_t code = text[0] & lead_mask[n];
    for (size_t k = 1; k < n; k++)
        code = code << 6 | (text[k] & 0x3f);
    *ret_code_point = code;
    return n;
}

bool bpk_text_is_unsafe(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* One character as it is shown; returns its bytes in `out`. */
static size_t show_char(const char *text, size_t len, size_t *ret_len, char out[16]) {
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t code = bytes[0];
    size_t n = 1;
    bool is_character = character_length(bytes, len) > 0;
    if (is_character)
        n = bpk_text_char(bytes, &code);
    *ret_len = n;
    if (!is_character || bpk_text_is_unsafe(code))
        return (size_t)snprintf(out, 16, code < 0x100 ? "\\x%02x" : "\\u{%x}", (unsigned)code);
    memcpy(out, text, n);
    return n;
}

char *bpk_text_escape(const char *text, size_t len, char *out, size_t size) {
    static const char ellipsis[] = "…";
    size_t used = 0;
    size_t cut = 0; /* how far it may go for the ellipsis to fit behind */
    size_t i = 0;
    while (i < len) {
        char piece[16];
        size_t n;
        size_t piece_len = show_char(text + i, len - i, &n, piece);
        if (used + piece_len + 1 > size)
            break;
        memcpy(out + used, piece, piece_len);
        used += piece_len;
        i += n;
        if (used + sizeof(ellipsis) <= size)
            cut = used;
    }
    if (i < len && sizeof(ellipsis) <= size) {
        memcpy(out + cut, ellipsis, sizeof(ellipsis));
        return out;
    }
    if (size > 0)
        out[used] = '\0';
    return out;
}

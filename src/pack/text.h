/* Text from a pack: is it UTF-8, and how it is shown on a terminal or in a log. Pure. */
#ifndef BPK_PACK_TEXT_H
#define BPK_PACK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool bpk_text_is_utf8(const uint8_t *text, size_t len);

/* Replaces every byte of a terminated string that is no part of UTF-8 by "?": for paths. */
void bpk_text_make_utf8(char *text);

/* Length of the UTF-8 character at text[0] (1 to 4), and its code point. `text` is valid UTF-8
 * of at least one byte. */
size_t bpk_text_char(const uint8_t *text, uint32_t *ret_code_point);

/* Whether the code point must never reach a terminal as it is: controls, DEL, C1, and the marks
 * that reorder text (U+202A–U+202E, U+2066–U+2069). */
bool bpk_text_is_unsafe(uint32_t code_point);

/* Writes `text` into `out` with unsafe characters, and bytes that are no part of UTF-8, as \xNN or
 * \u{NNNN}; what does not fit is cut and ends in "…". Always terminated. Returns `out`. */
char *bpk_text_escape(const char *text, size_t len, char *out, size_t size);

#endif

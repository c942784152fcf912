/* Writing JSON: strings, integers and floats that survive any reader. The layout of a file (its
 * lines and indents) is the caller's. */
#ifndef BPK_VIEW_JSON_H
#define BPK_VIEW_JSON_H

#include "bpk.h"
#include "pack/outbuf.h"

/* Largest integer that every JSON reader keeps: beyond it we write strings. */
#define BPK_JSON_SAFE_INTEGER (UINT64_C(1) << 53)

/* A quoted string. What must not reach a terminal is escaped as \uXXXX. `text` is UTF-8. */
void bpk_json_string(struct bpk_outbuf *out, struct bpk_str text);
void bpk_json_cstring(struct bpk_outbuf *out, const char *text);

/* A number, or beyond 2^53 a string of its digits. */
void bpk_json_u64(struct bpk_outbuf *out, uint64_t number);
void bpk_json_i64(struct bpk_outbuf *out, int64_t number);

/* The shortest number that reads back to the same double; "NaN", "Infinity", "-Infinity", and
 * "0x…" with 16 digits for any other NaN. */
void bpk_json_double(struct bpk_outbuf *out, uint64_t bits);

/* An object with a line for each field: after "{", each begins with bpk_json_field, which writes a
 * new line up to and with `"KEY": `. `indent` is that of the object's own lines. */
void bpk_json_field(struct bpk_outbuf *out, unsigned indent, bool first, const char *key);
void bpk_json_end_object(struct bpk_outbuf *out, unsigned indent);

/* Compact JSON of a dtype, spelled as the pack spells it: "F32" (with quotes), {"Bool": "U8"},
 * {"QFloat": {…}}. */
void bpk_json_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype);

/* "[64, 1, 3, 3]" */
void bpk_json_shape(struct bpk_outbuf *out, struct bpk_shape shape);

#endif

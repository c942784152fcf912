#include "view/json_read.h"

#include "pack/diag.h"
#include "pack/text.h"
#include "pack/util.h"
#include "view/json_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- faults ---------------------------------------------------------------------------------- */

static void say(const struct bpk_json_source *source, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct bpk_json_source *source, const char *format, ...) {
    char sentence[sizeof(source->diag->sentence)];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    bpk_diag_set(source->diag, -EBADMSG, BPK_NO_OFFSET, "%s", sentence);
}

struct place {
    size_t line;
    size_t column; /* in characters, from 1 */
};

static void step(struct place *place, char c) {
    if (c == '\n') {
        place->line++;
        place->column = 0;
    } else if (((unsigned char)c & 0xc0) != 0x80) {
        place->column++;
    }
}

/* Takes the next byte of a text that is known to be good. False inside of strings. */
static bool scan(struct bpk_json_cursor *cursor, char c) {
    cursor->at++;
    if (cursor->in_string) {
        cursor->in_string = cursor->is_escaped || c != '"';
        cursor->is_escaped = c == '\\' && !cursor->is_escaped;
        return false;
    }
    cursor->in_string = c == '"';
    if (c == '{' || c == '[')
        cursor->depth++;
    else if (c == '}' || c == ']')
        cursor->depth--;
    else if (c == ',' && cursor->depth == 1)
        cursor->entry++;
    return true;
}

/* Where the key of an entry begins. The text is known to be an object with that many entries. */
static struct place find_entry(struct bpk_str text, size_t entry) {
    struct place place = {1, 0};
    struct bpk_json_cursor cursor = {0};
    while (cursor.at < text.len) {
        char c = text.bytes[cursor.at];
        step(&place, c);
        if (scan(&cursor, c) && c == '"' && cursor.depth == 1 && cursor.entry == entry)
            break;
    }
    return place;
}

bool bpk_json_has_minus(const struct bpk_json_source *source, struct bpk_json_cursor *cursor) {
    bool found = false;
    while (cursor->at < source->text.len && cursor->entry <= source->entry) {
        char c = source->text.bytes[cursor->at];
        if (scan(cursor, c) && c == '-' && cursor->entry == source->entry)
            found = true;
    }
    return found;
}

enum bpk_text_verdict bpk_json_fault(const struct bpk_json_source *source, const char *format,
                                     ...) {
    char sentence[300]; /* leaves room for the place */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    bpk_text_make_utf8(sentence);
    if (source->entry == BPK_JSON_NO_ENTRY) {
        say(source, "%s", sentence);
    } else {
        struct place place = find_entry(source->text, source->entry);
        say(source, "%s, at line %zu, column %zu", sentence, place.line, place.column);
    }
    return BPK_TEXT_BAD;
}

enum bpk_text_verdict bpk_json_no_memory(const struct bpk_json_source *source) {
    bpk_diag_set(source->diag, -ENOMEM, BPK_NO_OFFSET, "out of memory");
    return BPK_TEXT_NO_MEMORY;
}

const char *bpk_json_show(struct bpk_str name, char buffer[BPK_JSON_SHOWN]) {
    return bpk_text_escape(name.bytes, name.len, buffer, BPK_JSON_SHOWN);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A text, and what follows it. */
struct feed {
    struct bpk_str parts[2];
};

static size_t feed_some(void *buffer, size_t size, void *context) {
    struct feed *feed = context;
    struct bpk_str *part = feed->parts[0].len > 0 ? &feed->parts[0] : &feed->parts[1];
    size_t n = part->len < size ? part->len : size;
    if (n > 0)
        memcpy(buffer, part->bytes, n);
    part->bytes += n;
    part->len -= n;
    return n;
}

static json_t *load(struct bpk_str text, struct bpk_str rest, json_error_t *ret_error) {
    struct feed feed = {{text, rest}};
    *ret_error = (json_error_t){0};
    return json_load_callback(feed_some, &feed, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, ret_error);
}

static bool ends_with(struct bpk_str text, const char *end) {
    size_t len = strlen(end);
    return text.len >= len && memcmp(text.bytes + text.len - len, end, len) == 0;
}

/* Whether the text with `rest` behind it is good as far as it goes, but not whole. */
static bool ends_early_with(struct bpk_str text, const char *rest) {
    json_error_t error;
    json_t *root = load(text, (struct bpk_str){rest, strlen(rest)}, &error);
    json_decref(root);
    return !root && error.text[0] != '\0' &&
           json_error_code(&error) == json_error_premature_end_of_input;
}

/* How many digits of a \uXXXX the text ends in; 4 if it does not end inside of one. */
static size_t escape_digits(struct bpk_str text) {
    size_t n = 0;
    while (n < 4 && n < text.len && strchr("0123456789abcdefABCDEF", text.bytes[text.len - 1 - n]))
        n++;
    return ends_with((struct bpk_str){text.bytes, text.len - n}, "\\u") ? n : 4;
}

/* Bytes that would make a character of the one that the end of the text cuts; "" if none is. */
static const char *rest_of_character(struct bpk_str text, char rest[4]) {
    size_t have = 1;
    while (have < 4 && have < text.len &&
           ((unsigned char)text.bytes[text.len - have] & 0xc0) == 0x80)
        have++;
    unsigned char lead = (unsigned char)text.bytes[text.len - have];
    size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
    size_t n = need > have ? need - have : 0;
    memset(rest, 0x80, n);
    rest[n] = '\0';
    if (have == 1 && (lead == 0xe0 || lead == 0xf0))
        rest[0] = (char)(lead == 0xe0 ? 0xa0 : 0x90); /* 0x80 would be overlong */
    return rest;
}

/* jansson takes a token that the end of the text has cut for a wrong one: it is right if the text
 * is, with the rest of the token behind it. */
static bool is_cut(struct bpk_str text) {
    static const struct {
        const char *end;
        const char *rest;
    } tokens[] = {
        {"t", "rue"},  {"tr", "ue"}, {"tru", "e"}, {"f", "alse"}, {"fa", "lse"}, {"fal", "se"},
        {"fals", "e"}, {"n", "ull"}, {"nu", "ll"}, {"nul", "l"},  {"-", "0"},    {"+", "0"},
        {".", "0"},    {"e", "0"},   {"E", "0"},   {"\\", "n"},
    };
    for (size_t i = 0; i < BPK_ARRAY_LEN(tokens); i++)
        if (ends_with(text, tokens[i].end) && ends_early_with(text, tokens[i].rest))
            return true;
    size_t digits = escape_digits(text);
    if (digits < 4 && ends_early_with(text, &"0000"[digits]))
        return true;
    char rest[4];
    return *rest_of_character(text, rest) && ends_early_with(text, rest);
}

/* Whether jansson lacked memory: it says nothing then, or calls a whole string a wrong token. */
static bool lacked_memory(struct bpk_str text, const json_error_t *error) {
    static const char *const messages[] = {"invalid token", "string or '}' expected"};
    if (error->text[0] == '\0' || json_error_code(error) == json_error_out_of_memory)
        return true;
    size_t at = (size_t)error->position;
    if (error->position <= 0 || at > text.len || text.bytes[at - 1] != '"')
        return false;
    for (size_t i = 0; i < BPK_ARRAY_LEN(messages); i++)
        if (strncmp(error->text, messages[i], strlen(messages[i])) == 0)
            return true;
    return false;
}

static bool digits_value(struct bpk_str text, uint64_t *ret_value) {
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++)
        if (!bpk_mul_u64(value, 10, &value) ||
            !bpk_add_u64(value, (uint64_t)(text.bytes[i] - '0'), &value))
            return false;
    *ret_value = value;
    return true;
}

static bool all_digits(struct bpk_str text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.bytes[i] < '0' || text.bytes[i] > '9')
            return false;
    return text.len > 0;
}

/* The token that ends where jansson stopped. */
static struct bpk_str token_before(struct bpk_str text, const json_error_t *error, bool is_string) {
    size_t end = error->position > 0 ? (size_t)error->position : 0;
    if (end > text.len)
        end = text.len;
    if (is_string && end > 0)
        end--; /* the closing quote */
    size_t start = end;
    if (is_string) {
        bool opened = false;
        while (start > 0 && !opened) {
            size_t slashes = 0;
            while (slashes + 1 < start && text.bytes[start - 2 - slashes] == '\\')
                slashes++;
            opened = text.bytes[start - 1] == '"' && slashes % 2 == 0;
            if (!opened)
                start--;
        }
    } else {
        while (start > 0 && memchr("0123456789+-.eE", text.bytes[start - 1], 15))
            start--;
    }
    return (struct bpk_str){text.bytes + start, end - start};
}

static void say_overflow(const struct bpk_json_source *source, const json_error_t *error) {
    struct bpk_str token = token_before(source->text, error, false);
    const char *hint = source->big_hint ? source->big_hint : "";
    char shown[BPK_JSON_SHOWN];
    uint64_t value;
    bpk_json_show(token, shown);
    if (all_digits(token) && digits_value(token, &value))
        say(source,
            "the integer %s is too big for a bare number, at line %d, column %d: write it as a "
            "string: \"%s\"%s",
            shown, error->line, error->column, shown, hint);
    else
        say(source, "the number %s is out of range, at line %d, column %d%s", shown, error->line,
            error->column, all_digits(token) ? hint : "");
}

static enum bpk_text_verdict judge(const struct bpk_json_source *source, json_error_t *error) {
    enum json_error_code code = json_error_code(error);
    char shown[300];
    if (lacked_memory(source->text, error))
        return bpk_json_no_memory(source);
    bool at_end = error->position >= 0 && (size_t)error->position + 4 > source->text.len;
    bool early = code == json_error_premature_end_of_input;
    if (at_end && (code == json_error_invalid_syntax || code == json_error_invalid_utf8))
        early = is_cut(source->text);
    else if (at_end && code == json_error_numeric_overflow)
        early = ends_early_with(source->text, ".0");
    if (early) {
        say(source, "the text ends too early, at line %d, column %d", error->line, error->column);
        return BPK_TEXT_EARLY_END;
    }
    switch (code) {
    case json_error_numeric_overflow:
        say_overflow(source, error);
        break;
    case json_error_duplicate_key:
        say(source, "the key \"%s\" is there twice, at line %d, column %d",
            bpk_json_show(token_before(source->text, error, true), shown), error->line,
            error->column);
        break;
    case json_error_null_byte_in_key:
        say(source,
            "a key holds a NUL (\\u0000), which JSON libraries cannot keep, at line %d, "
            "column %d",
            error->line, error->column);
        break;
    default:
        bpk_text_make_utf8(error->text);
        say(source, "not JSON: %s, at line %d, column %d",
            bpk_text_escape(error->text, strlen(error->text), shown, sizeof(shown)), error->line,
            error->column);
    }
    return BPK_TEXT_BAD;
}

static bool is_blank(struct bpk_str text) {
    for (size_t i = 0; i < text.len; i++)
        if (!memchr(" \t\r\n", text.bytes[i], 4))
            return false;
    return true;
}

enum bpk_text_verdict bpk_json_open(struct bpk_json_source *source) {
    struct bpk_str text = source->text;
    source->root = NULL;
    source->entry = BPK_JSON_NO_ENTRY;
    if (is_blank(text)) {
        say(source, "the text is empty");
        return BPK_TEXT_EARLY_END;
    }
    /* jansson takes a NUL for the end, here and there. */
    const char *nul = memchr(text.bytes, '\0', text.len);
    if (nul) {
        struct place place = {1, 0};
        for (const char *p = text.bytes; p <= nul; p++)
            step(&place, *p);
        say(source, "not JSON: a NUL byte, at line %zu, column %zu", place.line, place.column);
        return BPK_TEXT_BAD;
    }
    if (text.len >= 3 && memcmp(text.bytes, "\xef\xbb\xbf", 3) == 0)
        return bpk_json_fault(source, "not JSON: the text starts with a byte order mark");
    json_error_t error;
    json_t *root = load(text, (struct bpk_str){"", 0}, &error);
    if (!root)
        return judge(source, &error);
    if (!json_is_object(root)) {
        json_decref(root);
        return bpk_json_fault(source, "the text must be an object, {…}, not an array");
    }
    source->root = root;
    return BPK_TEXT_GOOD;
}

void bpk_json_close(struct bpk_json_source *source) {
    json_decref(source->root);
    source->root = NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct bpk_str bpk_json_text(const json_t *string) {
    return (struct bpk_str){json_string_value(string), json_string_length(string)};
}

const char *bpk_json_only_key(json_t *value, json_t **ret_inner) {
    if (json_object_size(value) != 1)
        return NULL;
    void *entry = json_object_iter(value);
    *ret_inner = json_object_iter_value(entry);
    return json_object_iter_key(entry);
}

/* The sign and the magnitude of an integer. */
static enum bpk_text_verdict take_integer(const struct bpk_json_source *source, const json_t *value,
                                          const char *what, bool *ret_negative,
                                          uint64_t *ret_magnitude) {
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        *ret_negative = number < 0;
        *ret_magnitude = number < 0 ? -(uint64_t)number : (uint64_t)number;
        return BPK_TEXT_GOOD;
    }
    struct bpk_str text = json_is_string(value) ? bpk_json_text(value) : (struct bpk_str){"", 0};
    *ret_negative = text.len > 0 && text.bytes[0] == '-';
    if (*ret_negative) {
        text.bytes++;
        text.len--;
    }
    if (!all_digits(text))
        return bpk_json_fault(source, "%s must be an integer, or a string of its digits", what);
    if (!digits_value(text, ret_magnitude))
        return bpk_json_fault(source, "%s is out of range: it does not fit 64 bits", what);
    return BPK_TEXT_GOOD;
}

enum bpk_text_verdict bpk_json_take_u64(const struct bpk_json_source *source, const json_t *value,
                                        const char *what, uint64_t max, uint64_t *ret_number) {
    bool negative;
    uint64_t magnitude;
    enum bpk_text_verdict verdict = take_integer(source, value, what, &negative, &magnitude);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    if (negative)
        return bpk_json_fault(source, "%s is out of range: it must not be negative", what);
    if (magnitude > max)
        return bpk_json_fault(source, "%s is out of range: it is at most %" PRIu64, what, max);
    *ret_number = magnitude;
    return BPK_TEXT_GOOD;
}

enum bpk_text_verdict bpk_json_take_i64(const struct bpk_json_source *source, const json_t *value,
                                        const char *what, int64_t *ret_number) {
    bool negative;
    uint64_t magnitude;
    enum bpk_text_verdict verdict = take_integer(source, value, what, &negative, &magnitude);
    if (verdict != BPK_TEXT_GOOD)
        return verdict;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return bpk_json_fault(source, "%s is out of range: an Int is from %" PRId64 " to %" PRId64,
                              what, INT64_MIN, INT64_MAX);
    *ret_number = (int64_t)(negative ? -magnitude : magnitude);
    return BPK_TEXT_GOOD;
}

/* metadata.json and scalars.json, read. */
#include "pack/dtype.h"
#include "pack/util.h"
#include "view/json_load.h"

#include <stdio.h>
#include <string.h>

/* Appends a string to storage that has room for it. */
static struct bpk_str keep(char **end, struct bpk_str text) {
    struct bpk_str kept = {*end, text.len};
    if (text.len > 0)
        memcpy(*end, text.bytes, text.len);
    *end += text.len;
    return kept;
}

/* One allocation of an item for each entry of the object, and all the object's strings. */
static char *allocate(json_t *object, size_t item_size) {
    size_t size = json_object_size(object) * item_size;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) size +=
        strlen(key) + json_string_length(value); /* 0 for what is no string */
    return malloc(size);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static enum bpk_text_verdict take_metadata(struct bpk_json_source *source,
                                           struct bpk_string_map *map) {
    size_t count = json_object_size(source->root);
    if (count == 0)
        return BPK_TEXT_GOOD;
    map->storage = allocate(source->root, sizeof(map->pairs[0]));
    if (!map->storage)
        return bpk_json_no_memory(source);
    map->pairs = (struct bpk_string_pair *)(void *)map->storage;
    char *end = (char *)(map->pairs + count);
    const char *key_text;
    json_t *value;
    source->entry = 0;
    json_object_foreach(source->root, key_text, value) {
        struct bpk_str key = {key_text, strlen(key_text)};
        if (!json_is_string(value)) {
            char shown[BPK_JSON_SHOWN];
            return bpk_json_fault(source, "the value of \"%s\" must be a string",
                                  bpk_json_show(key, shown));
        }
        map->pairs[map->count].key = keep(&end, key);
        map->pairs[map->count].value = keep(&end, bpk_json_text(value));
        map->count++;
        source->entry++;
    }
    return BPK_TEXT_GOOD;
}

void bpk_string_map_clear(struct bpk_string_map *map) {
    free(map->storage);
    *map = (struct bpk_string_map){0};
}

enum bpk_text_verdict bpk_metadata_parse(struct bpk_str text, struct bpk_string_map *ret_map,
                                         struct bpk_diag *diag) {
    struct bpk_json_source source = {.text = text, .diag = diag};
    struct bpk_string_map map = {0};
    enum bpk_text_verdict verdict = bpk_json_open(&source);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_metadata(&source, &map);
    bpk_json_close(&source);
    if (verdict == BPK_TEXT_GOOD)
        *ret_map = map;
    else
        bpk_string_map_clear(&map);
    return verdict;
}

/* ---- scalars --------------------------------------------------------------------------------- */

static bool is_nan(uint64_t bits) {
    return (bits & ~(UINT64_C(1) << 63)) > UINT64_C(0x7ff) << 52;
}

/* "0x" and 16 hex digits of a NaN. */
static bool nan_from_hex(struct bpk_str text, uint64_t *ret_bits) {
    static const char digits[] = "0123456789abcdef";
    if (text.len != 18 || memcmp(text.bytes, "0x", 2) != 0)
        return false;
    uint64_t bits = 0;
    for (size_t i = 2; i < text.len; i++) {
        char c = text.bytes[i];
        const char *digit = memchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c, 16);
        if (!digit)
            return false;
        bits = bits << 4 | (uint64_t)(digit - digits);
    }
    *ret_bits = bits;
    return is_nan(bits);
}

static bool float_from_name(struct bpk_str name, uint64_t *ret_bits) {
    static const struct {
        const char *name;
        uint64_t bits;
    } names[] = {{"NaN", UINT64_C(0x7ff8) << 48},
                 {"Infinity", UINT64_C(0x7ff0) << 48},
                 {"-Infinity", UINT64_C(0xfff0) << 48}};
    for (size_t i = 0; i < BPK_ARRAY_LEN(names); i++) {
        if (bpk_str_is(name, names[i].name)) {
            *ret_bits = names[i].bits;
            return true;
        }
    }
    return nan_from_hex(name, ret_bits);
}

static enum bpk_text_verdict take_float(const struct bpk_json_source *source, const json_t *value,
                                        const char *what, struct bpk_json_cursor *cursor,
                                        uint64_t *ret_bits) {
    if (json_is_number(value)) {
        double number = json_number_value(value);
        /* jq writes -0.0 so. */
        if (json_is_integer(value) && number == 0 && bpk_json_has_minus(source, cursor))
            number = -0.0;
        memcpy(ret_bits, &number, sizeof(number));
        return BPK_TEXT_GOOD;
    }
    if (json_is_string(value) && float_from_name(bpk_json_text(value), ret_bits))
        return BPK_TEXT_GOOD;
    return bpk_json_fault(source,
                          "%s must be a number, \"NaN\", \"Infinity\", \"-Infinity\", or \"0x\" "
                          "and the 16 hex digits of a NaN",
                          what);
}

static enum bpk_text_verdict take_scalar(const struct bpk_json_source *source, json_t *value,
                                         struct bpk_json_cursor *cursor,
                                         struct bpk_scalar *scalar) {
    json_t *inner = NULL;
    const char *kind = bpk_json_only_key(value, &inner);
    char shown[BPK_JSON_SHOWN];
    char what[BPK_JSON_SHOWN + 32];
    bpk_json_show(scalar->name, shown);
    for (int i = BPK_SCALAR_INT; kind && i <= BPK_SCALAR_BOOL; i++) {
        scalar->kind = (enum bpk_scalar_kind)i;
        if (strcmp(kind, bpk_scalar_kind_name(scalar->kind)) != 0)
            continue;
        (void)snprintf(what, sizeof(what), "the %s \"%s\"", kind, shown);
        switch (scalar->kind) {
        case BPK_SCALAR_INT: {
            int64_t number = 0;
            enum bpk_text_verdict verdict = bpk_json_take_i64(source, inner, what, &number);
            scalar->bits = (uint64_t)number;
            return verdict;
        }
        case BPK_SCALAR_UINT:
            return bpk_json_take_u64(source, inner, what, UINT64_MAX, &scalar->bits);
        case BPK_SCALAR_FLOAT:
            return take_float(source, inner, what, cursor, &scalar->bits);
        case BPK_SCALAR_BOOL:
            scalar->bits = json_is_true(inner);
            return json_is_boolean(inner)
                       ? BPK_TEXT_GOOD
                       : bpk_json_fault(source, "%s must be true or false", what);
        }
    }
    return bpk_json_fault(source,
                          "\"%s\" must be {\"Int\": …}, {\"UInt\": …}, {\"Float\": …} or "
                          "{\"Bool\": …}",
                          shown);
}

static enum bpk_text_verdict take_scalars(struct bpk_json_source *source,
                                          struct bpk_scalar_map *map) {
    size_t count = json_object_size(source->root);
    if (count == 0)
        return BPK_TEXT_GOOD;
    map->storage = allocate(source->root, sizeof(map->scalars[0]));
    if (!map->storage)
        return bpk_json_no_memory(source);
    map->scalars = (struct bpk_scalar *)(void *)map->storage;
    char *end = (char *)(map->scalars + count);
    const char *key;
    json_t *value;
    struct bpk_json_cursor cursor = {0};
    source->entry = 0;
    json_object_foreach(source->root, key, value) {
        struct bpk_scalar *scalar = &map->scalars[map->count];
        scalar->name = keep(&end, (struct bpk_str){key, strlen(key)});
        enum bpk_text_verdict verdict = take_scalar(source, value, &cursor, scalar);
        if (verdict != BPK_TEXT_GOOD)
            return verdict;
        map->count++;
        source->entry++;
    }
    return BPK_TEXT_GOOD;
}

void bpk_scalar_map_clear(struct bpk_scalar_map *map) {
    free(map->storage);
    *map = (struct bpk_scalar_map){0};
}

enum bpk_text_verdict bpk_scalars_parse(struct bpk_str text, struct bpk_scalar_map *ret_map,
                                        struct bpk_diag *diag) {
    struct bpk_json_source source = {
        .text = text, .diag = diag, .big_hint = " (a Float: with \".0\" behind it)"};
    struct bpk_scalar_map map = {0};
    enum bpk_text_verdict verdict = bpk_json_open(&source);
    if (verdict == BPK_TEXT_GOOD)
        verdict = take_scalars(&source, &map);
    bpk_json_close(&source);
    if (verdict == BPK_TEXT_GOOD)
        *ret_map = map;
    else
        bpk_scalar_map_clear(&map);
    return verdict;
}

/* bpk set: metadata and scalars get values. */
#include "cli/entries.h"

#include "pack/text.h"
#include "pack/util.h"
#include "view/json.h"
#include "view/json_read.h"
#include "view/maps.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "KEY=VALUE": the first "=" parts them. */
static bool split(const char *path, const char *argument, struct bpk_str *ret_key,
                  struct bpk_str *ret_value) {
    const char *equals = strchr(argument, '=');
    if (!equals)
        return bpk_cli_argument_fault(path, argument, "KEY=VALUE is wanted");
    if (!bpk_text_is_utf8((const uint8_t *)argument, strlen(argument)))
        return bpk_cli_argument_fault(path, argument, "keys and values must be UTF-8");
    *ret_key = (struct bpk_str){argument, (size_t)(equals - argument)};
    *ret_value = (struct bpk_str){equals + 1, strlen(equals + 1)};
    return true;
}

static bool take_key(const struct bpk_cli_change *change, const char *argument,
                     struct bpk_cli_entries *entries) {
    struct bpk_str key;
    struct bpk_str value;
    if (!split(change->pack.path, argument, &key, &value))
        return false;
    struct bpk_cli_entry *entry = bpk_cli_entries_add(entries, BPK_CLI_METADATA, key);
    if (entry)
        bpk_json_string(&entry->json, value);
    return entry != NULL;
}

/* ---- scalars --------------------------------------------------------------------------------- */

static bool kind_of(struct bpk_str name, enum bpk_scalar_kind *ret_kind) {
    for (int i = BPK_SCALAR_INT; i <= BPK_SCALAR_BOOL; i++) {
        const char *kind = bpk_scalar_kind_name((enum bpk_scalar_kind)i);
        *ret_kind = (enum bpk_scalar_kind)i;
        if (strlen(kind) == name.len && strncasecmp(kind, name.bytes, name.len) == 0)
            return true;
    }
    return false;
}

/* The value as the reader of scalars.json takes it; whether it is one is the reader's business. */
static void out_value(struct bpk_outbuf *out, enum bpk_scalar_kind kind, const char *value) {
    char *end;
    double number = strtod(value, &end);
    bool is_number = *value && !*end && strspn(value, "0123456789+-.eE") == strlen(value);
    if (kind == BPK_SCALAR_FLOAT && is_number && isfinite(number)) {
        uint64_t bits;
        memcpy(&bits, &number, sizeof(bits));
        bpk_json_double(out, bits);
    } else if (kind == BPK_SCALAR_BOOL &&
               (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)) {
        bpk_out_str(out, value);
    } else {
        bpk_json_cstring(out, value);
    }
}

/* {"NAME": {"Float": 0.1}} of "NAME=Float:0.1", of "NAME=0.1" where the type is known, or of
 * "NAME={"Float": 0.1}". */
static bool compose(const struct bpk_cli_change *change, const char *argument, struct bpk_str name,
                    const char *value, struct bpk_outbuf *out) {
    struct bpk_scalar old;
    const char *colon = strchr(value, ':');
    bpk_out_str(out, "{");
    bpk_json_string(out, name);
    bpk_out_str(out, ": ");
    if (value[0] == '{') {
        bpk_out_str(out, value);
    } else {
        if (colon && !kind_of((struct bpk_str){value, (size_t)(colon - value)}, &old.kind))
            return bpk_cli_argument_fault(change->pack.path, argument,
                                          "a type is Int, UInt, Float or Bool");
        if (!colon && !bpk_cli_has_entry(change, BPK_CLI_SCALARS, name, &old))
            return bpk_cli_argument_fault(change->pack.path, argument,
                                          "a new scalar needs its type: NAME=UInt:3, Int:-3, "
                                          "Float:0.5 or Bool:true");
        bpk_out_str(out, "{");
        bpk_json_cstring(out, bpk_scalar_kind_name(old.kind));
        bpk_out_str(out, ": ");
        out_value(out, old.kind, colon ? colon + 1 : value);
        bpk_out_str(out, "}");
    }
    bpk_out_str(out, "}");
    return true;
}

static bool take_scalar(const struct bpk_cli_change *change, const char *argument,
                        struct bpk_cli_entries *entries) {
    struct bpk_str name;
    struct bpk_str value = {"", 0};
    struct bpk_scalar_map map;
    struct bpk_diag diag = {.sentence = ""};
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    if (!split(change->pack.path, argument, &name, &value) ||
        !compose(change, argument, name, value.bytes, &text))
        return false;
    struct bpk_str json = {text.text, text.len};
    if (text.failed || bpk_scalars_parse(json, &map, &diag) != BPK_TEXT_GOOD)
        return bpk_cli_argument_fault(change->pack.path, argument,
                                      text.failed ? "out of memory" : diag.sentence);
    bool single = map.count == 1; /* a value in braces may have closed them early */
    struct bpk_cli_entry *entry =
        single ? bpk_cli_entries_add(entries, BPK_CLI_SCALARS, name) : NULL;
    if (entry)
        bpk_scalar_value(&entry->json, &map.scalars[0]);
    bpk_scalar_map_clear(&map);
    return single ? entry != NULL
                  : bpk_cli_argument_fault(change->pack.path, argument, "this is not one value");
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int run(int argc, char **argv) {
    static const struct bpk_cli_entry_takers takers = {take_key, take_scalar, NULL};
    return bpk_cli_run_entries(&bpk_verb_set, &takers, argc, argv);
}

const struct bpk_verb bpk_verb_set = {
    .name = "set",
    .arguments = "FILE [KEY=VALUE ...] [--scalar NAME=VALUE]",
    .summary = "set metadata and scalars",
    .options = "    --scalar NAME=VALUE    set a scalar; VALUE may have its type before it, as in "
               "Float:1\n",
    .run = run,
    .writes = true,
};

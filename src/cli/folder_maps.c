#include "cli/folder_maps.h"

#include "cli/cli.h"
#include "edit/rules.h"
#include "pack/meta.h"
#include "pack/text.h"
#include "pack/util.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- metadata/ ------------------------------------------------------------------------------- */

/* Keys and values that only metadata/ has, with the strings behind each other in `text`. */
struct found {
    struct bpk_outbuf text;
    struct place {
        size_t key;
        size_t key_len;
        size_t value;
        size_t value_len;
    } * places;
    size_t count;
    size_t capacity;
};

static int compare_keys(const void *a, const void *b) {
    return bpk_str_compare(((const struct bpk_string_pair *)a)->key,
                           ((const struct bpk_string_pair *)b)->key);
}

/* The pair of metadata.json, which is sorted, that a file of metadata/ shows. */
static const struct bpk_string_pair *find_pair(const struct bpk_string_map *map, const char *file,
                                               struct bpk_str key) {
    const struct bpk_string_pair wanted = {key, {NULL, 0}};
    if (map->count == 0)
        return NULL;
    if (key.bytes)
        return bsearch(&wanted, map->pairs, map->count, sizeof(wanted), compare_keys);
    for (size_t i = 0; i < map->count; i++)
        if (bpk_name_is_cut((struct bpk_str){file, strlen(file)}, map->pairs[i].key))
            return &map->pairs[i];
    return NULL;
}

static bool take_value(struct bpk_cli_newpack *pack, const char *name, bool has_file,
                       struct found *found) {
    char file[NAME_MAX + 32];
    char decoded[NAME_MAX + 1];
    struct bpk_str key = {NULL, 0};
    _cleanup_outbuf_ struct bpk_outbuf text = {0};
    (void)snprintf(file, sizeof(file), "metadata/%s", name);
    if (bpk_rules_is_spelled_right(name, decoded, &key.len))
        key.bytes = decoded;
    const struct bpk_string_pair *pair = find_pair(&pack->metadata, name, key);
    if (!pair && (bpk_rules_is_scratch(name) || bpk_rules_is_backup(name))) {
        (void)bpk_cli_folder_error(pack->from, file, "left out: an editor's file or a backup");
        return true;
    }
    if (!pair && !key.bytes)
        return bpk_cli_folder_error(pack->from, file,
                                    "this is not how a key is spelled: see bpk(5)");
    if (!pair && has_file && !memchr(key.bytes, '\0', key.len))
        return bpk_cli_folder_error(pack->from, file,
                                    "the key is not in metadata.json: remove one of them");
    int r = bpk_cli_read_text(pack, file, &text);
    if (r < 0)
        return bpk_cli_folder_error(pack->from, file, bpk_cli_newpack_reason(r));
    struct bpk_str value = {text.text ? text.text : "", text.len};
    if (value.len > 0 && value.bytes[value.len - 1] == '\n')
        value.len--;
    if (!bpk_text_is_utf8((const uint8_t *)value.bytes, value.len))
        return bpk_cli_folder_error(pack->from, file, "the value is not UTF-8");
    if (pair)
        return bpk_str_compare(pair->value, value) == 0 ||
               bpk_cli_folder_error(pack->from, file,
                                    "metadata.json says otherwise: remove one of them");
    if (bpk_grow((void **)&found->places, &found->capacity, found->count, sizeof(*found->places)) <
        0)
        return bpk_cli_folder_error(pack->from, file, "out of memory");
    struct place *place = &found->places[found->count++];
    *place = (struct place){found->text.len, key.len, found->text.len + key.len, value.len};
    bpk_out(&found->text, key.bytes, key.len);
    bpk_out(&found->text, value.bytes, value.len);
    return !found->text.failed || bpk_cli_folder_error(pack->from, file, "out of memory");
}

/* The map of metadata.json and what was found beside, in one allocation. */
static bool join(struct bpk_string_map *map, const struct found *found) {
    size_t size = found->text.len + 1;
    for (size_t i = 0; i < map->count; i++)
        size += map->pairs[i].key.len + map->pairs[i].value.len;
    size_t count = map->count + found->count;
    char *storage = malloc(size + count * sizeof(*map->pairs));
    if (!storage)
        return false;
    struct bpk_string_pair *pairs = (struct bpk_string_pair *)(void *)storage;
    char *at = (char *)(pairs + count);
    for (size_t i = 0; i < count; i++) {
        const struct place *place = i < map->count ? NULL : &found->places[i - map->count];
        struct bpk_str key = place ? (struct bpk_str){found->text.text + place->key, place->key_len}
                                   : map->pairs[i].key;
        struct bpk_str value =
            place ? (struct bpk_str){found->text.text + place->value, place->value_len}
                  : map->pairs[i].value;
        pairs[i] = (struct bpk_string_pair){{at, key.len}, {at + key.len, value.len}};
        if (key.len > 0)
            memcpy(at, key.bytes, key.len);
        at += key.len;
        if (value.len > 0)
            memcpy(at, value.bytes, value.len);
        at += value.len;
    }
    bpk_string_map_clear(map);
    *map = (struct bpk_string_map){pairs, count, storage};
    return true;
}

static bool take_values(struct bpk_cli_newpack *pack, bool has_file) {
    struct bpk_cli_names names;
    struct found found = {0};
    if (!bpk_cli_list_names(pack->folder, "metadata", &names))
        return errno == ENOENT || bpk_cli_folder_error(pack->from, "metadata", strerror(errno));
    if (pack->metadata.count > 0)
        qsort(pack->metadata.pairs, pack->metadata.count, sizeof(*pack->metadata.pairs),
              compare_keys);
    bool good = true;
    for (size_t i = 0; i < names.count && good; i++)
        good = take_value(pack, names.names[i], has_file, &found);
    if (good && found.count > 0 && !join(&pack->metadata, &found))
        good = bpk_cli_folder_error(pack->from, "metadata", "out of memory");
    bpk_cli_names_clear(&names);
    bpk_outbuf_clear(&found.text);
    free(found.places);
    return good;
}

/* ---- the maps -------------------------------------------------------------------------------- */

/* *ret_there: false if there is no such file, which is as good as an empty map. */
static bool read_map(const struct bpk_cli_newpack *pack, const char *file, struct bpk_outbuf *text,
                     bool *ret_there) {
    int r = bpk_cli_read_text(pack, file, text);
    *ret_there = r != -ENOENT;
    return r == 0 || r == -ENOENT ||
           bpk_cli_folder_error(pack->from, file, bpk_cli_newpack_reason(r));
}

bool bpk_cli_take_maps(struct bpk_cli_newpack *pack) {
    _cleanup_outbuf_ struct bpk_outbuf metadata = {0};
    _cleanup_outbuf_ struct bpk_outbuf scalars = {0};
    struct bpk_diag diag = {.sentence = ""};
    bool there;
    if (!read_map(pack, "scalars.json", &scalars, &there))
        return false;
    if (there && bpk_scalars_parse((struct bpk_str){scalars.text, scalars.len}, &pack->scalars,
                                   &diag) != BPK_TEXT_GOOD)
        return bpk_cli_folder_error(pack->from, "scalars.json", diag.sentence);
    if (!read_map(pack, "metadata.json", &metadata, &there))
        return false;
    if (there && bpk_metadata_parse((struct bpk_str){metadata.text, metadata.len}, &pack->metadata,
                                    &diag) != BPK_TEXT_GOOD)
        return bpk_cli_folder_error(pack->from, "metadata.json", diag.sentence);
    return take_values(pack, there);
}

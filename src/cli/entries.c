#include "cli/entries.h"

#include "pack/meta.h"
#include "pack/util.h"
#include "view/json.h"
#include "view/maps.h"

#include <getopt.h>
#include <string.h>

struct bpk_cli_entry *bpk_cli_entries_add(struct bpk_cli_entries *entries, enum bpk_cli_map map,
                                          struct bpk_str key) {
    if (bpk_grow((void **)&entries->entries, &entries->capacity, entries->count,
                 sizeof(*entries->entries)) < 0) {
        bpk_cli_error(NULL, "out of memory");
        return NULL;
    }
    struct bpk_cli_entry *entry = &entries->entries[entries->count++];
    *entry = (struct bpk_cli_entry){.map = map, .key = key};
    return entry;
}

void bpk_cli_entries_clear(struct bpk_cli_entries *entries) {
    for (size_t i = 0; i < entries->count; i++)
        bpk_outbuf_clear(&entries->entries[i].json);
    free(entries->entries);
    *entries = (struct bpk_cli_entries){0};
}

bool bpk_cli_has_entry(const struct bpk_cli_change *change, enum bpk_cli_map map,
                       struct bpk_str key, struct bpk_scalar *ret_scalar) {
    uint32_t index;
    if (map == BPK_CLI_METADATA)
        return bpk_pack_find_metadata(change->pack.pack, key, &index) == 0;
    for (index = 0; index < change->pack.info.scalars; index++) {
        struct bpk_scalar scalar;
        bpk_pack_scalar(change->pack.pack, index, &scalar);
        if (bpk_str_compare(scalar.name, key) != 0)
            continue;
        if (ret_scalar)
            *ret_scalar = scalar;
        return true;
    }
    return false;
}

/* The last one of that key, from `from` on. */
static const struct bpk_cli_entry *find(const struct bpk_cli_entries *entries, size_t from,
                                        enum bpk_cli_map map, struct bpk_str key) {
    for (size_t i = entries->count; i > from; i--)
        if (entries->entries[i - 1].map == map &&
            bpk_str_compare(entries->entries[i - 1].key, key) == 0)
            return &entries->entries[i - 1];
    return NULL;
}

static void out_entry(struct bpk_map_writer *writer, const struct bpk_cli_entry *entry) {
    if (entry->json.len == 0)
        return;
    bpk_map_key(writer, entry->key);
    bpk_out(writer->out, entry->json.text, entry->json.len);
    writer->out->failed |= entry->json.failed;
}

/* An entry of the pack, or what becomes of it. A key with a NUL is not in JSON, and left alone. */
static void out_old(struct bpk_map_writer *writer, const struct bpk_pack *pack, uint32_t index,
                    const struct bpk_cli_entries *entries, enum bpk_cli_map map) {
    struct bpk_scalar scalar = {.name = {NULL, 0}};
    struct bpk_str value;
    if (map == BPK_CLI_SCALARS)
        bpk_pack_scalar(pack, index, &scalar);
    else
        bpk_pack_metadata(pack, index, &scalar.name, &value);
    if (memchr(scalar.name.bytes, '\0', scalar.name.len))
        return;
    const struct bpk_cli_entry *entry = find(entries, 0, map, scalar.name);
    if (entry) {
        out_entry(writer, entry);
        return;
    }
    bpk_map_key(writer, scalar.name);
    if (map == BPK_CLI_SCALARS)
        bpk_scalar_value(writer->out, &scalar);
    else
        bpk_json_string(writer->out, value);
}

static void compose(const struct bpk_cli_change *change, const struct bpk_cli_entries *entries,
                    enum bpk_cli_map map, struct bpk_outbuf *out) {
    const struct bpk_pack_info *info = &change->pack.info;
    uint32_t count = map == BPK_CLI_SCALARS ? info->scalars : info->metadata_entries;
    struct bpk_map_writer writer = bpk_map_begin(out, 0);
    for (uint32_t i = 0; i < count; i++)
        out_old(&writer, change->pack.pack, i, entries, map);
    for (size_t i = 0; i < entries->count; i++) {
        const struct bpk_cli_entry *entry = &entries->entries[i];
        if (entry->map == map && !find(entries, i + 1, map, entry->key) &&
            !bpk_cli_has_entry(change, map, entry->key, NULL))
            out_entry(&writer, entry);
    }
    bpk_map_end(&writer);
    bpk_out_str(out, "\n");
}

static bool change_map(struct bpk_cli_change *change, const struct bpk_cli_entries *entries,
                       enum bpk_cli_map map) {
    _cleanup_outbuf_ struct bpk_outbuf before = {0};
    _cleanup_outbuf_ struct bpk_outbuf after = {0};
    if (map == BPK_CLI_SCALARS)
        bpk_scalars_file(&before, change->pack.pack);
    else
        bpk_metadata_file(&before, change->pack.pack);
    compose(change, entries, map, &after);
    if (!after.failed && before.len == after.len && memcmp(before.text, after.text, after.len) == 0)
        return true;
    return bpk_cli_change_text(change, BPK_IN_ROOT,
                               map == BPK_CLI_SCALARS ? "scalars.json" : "metadata.json", &after);
}

bool bpk_cli_change_entries(struct bpk_cli_change *change, const struct bpk_cli_entries *entries) {
    return change_map(change, entries, BPK_CLI_METADATA) &&
           change_map(change, entries, BPK_CLI_SCALARS);
}

/* ---- the verbs ------------------------------------------------------------------------------- */

int bpk_cli_run_entries(const struct bpk_verb *verb, const struct bpk_cli_entry_takers *takers,
                        int argc, char **argv) {
    static const struct option options[] = {{"scalar", required_argument, NULL, 's'}, {0}};
    struct bpk_open_options how = {0};
    struct bpk_cli_change change;
    struct bpk_cli_entries entries = {0};
    _cleanup_free_ char **scalars = calloc((size_t)argc, sizeof(*scalars));
    int scalar_count = 0;
    int c;
    if (!scalars) {
        bpk_cli_error(NULL, "out of memory");
        return BPK_EXIT_FAILED;
    }
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 's')
            scalars[scalar_count++] = optarg;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(verb);
    }
    if (optind >= argc || argc - optind - 1 + scalar_count == 0)
        return bpk_cli_usage(verb);
    if (!bpk_cli_change_begin(argv[optind], &how, &change))
        return BPK_EXIT_FAILED;
    bool good = true;
    for (int i = optind + 1; i < argc && good; i++)
        good = takers->key(&change, argv[i], &entries);
    for (int i = 0; i < scalar_count && good; i++)
        good = takers->scalar(&change, scalars[i], &entries);
    good = good && bpk_cli_change_entries(&change, &entries) &&
           (!takers->finish || takers->finish(&change, &entries));
    bpk_cli_entries_clear(&entries);
    return bpk_cli_change_end(&change, good);
}

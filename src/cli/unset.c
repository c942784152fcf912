/* bpk unset: metadata and scalars go. */
#include "cli/entries.h"

#include "pack/util.h"

#include <string.h>

/* A key as it is, or else the name of its file in metadata/. One with a NUL has no other name, and
 * is in no JSON. */
static bool take_key(const struct bpk_cli_change *change, const char *argument,
                     struct bpk_cli_entries *entries) {
    struct bpk_str key = {argument, strlen(argument)};
    struct bpk_str value;
    uint32_t index;
    if (!bpk_cli_has_entry(change, BPK_CLI_METADATA, key, NULL)) {
        if (bpk_names_find(change->keys, key, &index) < 0)
            return bpk_cli_argument_fault(change->pack.path, argument,
                                          "the metadata has no such key; 'bpk info' shows it");
        bpk_pack_metadata(change->pack.pack, index, &key, &value);
    }
    return bpk_cli_entries_add(entries, BPK_CLI_METADATA, key) != NULL;
}

static bool take_scalar(const struct bpk_cli_change *change, const char *argument,
                        struct bpk_cli_entries *entries) {
    struct bpk_str name = {argument, strlen(argument)};
    if (!bpk_cli_has_entry(change, BPK_CLI_SCALARS, name, NULL))
        return bpk_cli_argument_fault(change->pack.path, argument,
                                      "there is no such scalar; 'bpk info' shows them");
    return bpk_cli_entries_add(entries, BPK_CLI_SCALARS, name) != NULL;
}

static bool remove_hidden(struct bpk_cli_change *change, const struct bpk_cli_entries *entries) {
    char file[BPK_FILE_NAME_BUF];
    bool good = true;
    for (size_t i = 0; i < entries->count && good; i++) {
        struct bpk_str key = entries->entries[i].key;
        uint32_t index;
        if (!memchr(key.bytes, '\0', key.len) ||
            bpk_pack_find_metadata(change->pack.pack, key, &index) < 0)
            continue;
        bpk_names_file(change->keys, index, file);
        const struct bpk_place place = bpk_cli_change_place(change, BPK_IN_METADATA, file);
        if (place.number != 0) /* else it was named twice */
            good = bpk_cli_change_done(change, file, bpk_edits_unlink(change->edits, &place));
    }
    return good;
}

static int run(int argc, char **argv) {
    static const struct bpk_cli_entry_takers takers = {take_key, take_scalar, remove_hidden};
    return bpk_cli_run_entries(&bpk_verb_unset, &takers, argc, argv);
}

const struct bpk_verb bpk_verb_unset = {
    .name = "unset",
    .arguments = "FILE [KEY ...] [--scalar NAME]",
    .summary = "remove metadata and scalars",
    .options = "    --scalar NAME    remove a scalar\n",
    .run = run,
    .writes = true,
};

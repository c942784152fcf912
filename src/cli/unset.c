/* bpk unset: metadata and scalars go. */
#include "cli/entries.h"

#include "pack/util.h"

#include <getopt.h>
#include <string.h>

/* A key as it is, or else the name of its file in metadata/. One with a NUL has no other name, and
 * is in no JSON. */
static bool take_key(struct bpk_cli_change *change, const char *argument,
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

static bool take_scalar(struct bpk_cli_change *change, const char *argument,
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
            return bpk_cli_usage(&bpk_verb_unset);
    }
    if (optind >= argc || argc - optind - 1 + scalar_count == 0)
        return bpk_cli_usage(&bpk_verb_unset);
    if (!bpk_cli_change_begin(argv[optind], &how, &change))
        return BPK_EXIT_FAILED;
    bool good = true;
    for (int i = optind + 1; i < argc && good; i++)
        good = take_key(&change, argv[i], &entries);
    for (int i = 0; i < scalar_count && good; i++)
        good = take_scalar(&change, scalars[i], &entries);
    good = good && bpk_cli_change_entries(&change, &entries) && remove_hidden(&change, &entries);
    bpk_cli_entries_clear(&entries);
    return bpk_cli_change_end(&change, good);
}

const struct bpk_verb bpk_verb_unset = {
    .name = "unset",
    .arguments = "FILE [KEY ...] [--scalar NAME]",
    .summary = "remove metadata and scalars",
    .options = "    --scalar NAME    remove a scalar\n",
    .run = run,
};

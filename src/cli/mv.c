/* bpk mv: another name for a tensor. */
#include "cli/change.h"

#include <getopt.h>
#include <string.h>

static bool move(struct bpk_cli_change *change, const char *old, const char *new, bool force) {
    char from[BPK_FILE_NAME_BUF];
    char to[BPK_FILE_NAME_BUF];
    uint32_t index;
    uint32_t other;
    if (!bpk_cli_change_find(change, old, from, &index))
        return false;
    bool exists = bpk_cli_find(&change->pack, new, &other) == 0;
    if (exists && other == index)
        return true;
    if (exists && !force) {
        bpk_cli_error(change->pack.path,
                      "there is a tensor of the new name already; '--force' replaces it");
        return false;
    }
    if (exists)
        bpk_names_file(change->pack.names, other, to);
    else if (!bpk_cli_change_new_name(change, new, to))
        return false;
    const struct bpk_place place = bpk_cli_change_place(change, BPK_IN_TENSORS, from);
    int r = bpk_edits_rename(change->edits, &place, BPK_IN_TENSORS, to, false);
    return bpk_cli_change_done(change, old, r);
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"force", no_argument, NULL, 'f'}, {0}};
    struct bpk_open_options how = {0};
    struct bpk_cli_change change;
    bool force = false;
    int c;
    while ((c = getopt_long(argc, argv, "fo:", options, NULL)) != -1) {
        if (c == 'f')
            force = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_mv);
    }
    if (optind + 3 != argc)
        return bpk_cli_usage(&bpk_verb_mv);
    if (!bpk_cli_change_begin(argv[optind], &how, &change))
        return BPK_EXIT_FAILED;
    return bpk_cli_change_end(&change, move(&change, argv[optind + 1], argv[optind + 2], force));
}

const struct bpk_verb bpk_verb_mv = {
    .name = "mv",
    .arguments = "[--force] FILE OLD NEW",
    .summary = "rename a tensor",
    .options = "    --force    replace the tensor that is called NEW\n",
    .run = run,
    .writes = true,
};

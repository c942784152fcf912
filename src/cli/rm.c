/* bpk rm: a pack without some of its tensors. */
#include "cli/change.h"

#include "pack/util.h"

#include <getopt.h>

/* All names are looked up before the first tensor goes. */
static bool remove_all(struct bpk_cli_change *change, int count, char **names) {
    _cleanup_free_ bool *goes = calloc((size_t)change->pack.info.tensors + 1, sizeof(*goes));
    char file[BPK_FILE_NAME_BUF];
    uint32_t index;
    bool good = true;
    if (!goes) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    for (int i = 0; i < count; i++) {
        bool found = bpk_cli_change_find(change, names[i], file, &index);
        good = good && found;
        if (found)
            goes[index] = true;
    }
    for (uint32_t i = 0; good && i < change->pack.info.tensors; i++) {
        if (!goes[i])
            continue;
        bpk_names_file(change->pack.names, i, file);
        const struct bpk_place place = bpk_cli_change_place(change, BPK_IN_TENSORS, file);
        good = bpk_cli_change_done(change, file, bpk_edits_unlink(change->edits, &place));
    }
    return good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{0}};
    struct bpk_open_options how = {0};
    struct bpk_cli_change change;
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_rm);
    }
    if (argc - optind < 2)
        return bpk_cli_usage(&bpk_verb_rm);
    if (!bpk_cli_change_begin(argv[optind], &how, &change))
        return BPK_EXIT_FAILED;
    return bpk_cli_change_end(&change, remove_all(&change, argc - optind - 1, argv + optind + 1));
}

const struct bpk_verb bpk_verb_rm = {
    .name = "rm",
    .arguments = "FILE TENSOR ...",
    .summary = "remove tensors",
    .run = run,
    .writes = true,
};

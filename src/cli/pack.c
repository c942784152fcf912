/* bpk pack: a pack of the files in a folder, as bpk unpack and mounts have them. */
#include "cli/cli.h"
#include "cli/folder.h"

#include <getopt.h>

static int run(int argc, char **argv) {
    static const struct option options[] = {{"force", no_argument, NULL, 'f'}, {0}};
    struct bpk_cli_newpack pack;
    bool force = false;
    int c;
    while ((c = getopt_long(argc, argv, "f", options, NULL)) != -1) {
        if (c != 'f')
            return bpk_cli_usage(&bpk_verb_pack);
        force = true;
    }
    if (optind + 2 != argc)
        return bpk_cli_usage(&bpk_verb_pack);
    if (!bpk_cli_read_folder(argv[optind], &pack))
        return BPK_EXIT_FAILED;
    bool good = bpk_cli_newpack_write(&pack, argv[optind + 1], force);
    bpk_cli_newpack_clear(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_pack = {
    .name = "pack",
    .arguments = "[--force] DIR FILE",
    .summary = "make a pack of the files in a folder",
    .options = "    --force    replace FILE if it is there\n",
    .run = run,
    .writes = true,
};

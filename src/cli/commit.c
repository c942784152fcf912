/* bpk commit, bpk discard: the edits of a live mount become the pack, or go. */
#include "cli/cli.h"
#include "cli/live.h"

#include "pack/util.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

/* The daemon writes the file; it needs the whole path, whatever its own folder is. */
static int save_to(const char *mountpoint, const char *file, bool valid) {
    const char *option = valid ? "--valid " : "";
    _cleanup_free_ char *command = NULL;
    _cleanup_free_ char *folder = realpath(".", NULL);
    /* A newline of our own: one that ends the name is part of it. */
    int n = file[0] == '/'
                ? asprintf(&command, "save %s%s\n", option, file)
                : asprintf(&command, "save %s%s/%s\n", option, folder ? folder : "", file);
    if (n < 0 || (file[0] != '/' && !folder)) {
        bpk_cli_error(file, "cannot name this file");
        return -ENOMEM;
    }
    return bpk_live_command(mountpoint, command);
}

static int run_commit(int argc, char **argv) {
    static const struct option options[] = {
        {"to", required_argument, NULL, 't'}, {"valid", no_argument, NULL, 'v'}, {0}};
    const char *to = NULL;
    bool valid = false;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 't')
            to = optarg;
        else if (c == 'v')
            valid = true;
        else
            return bpk_cli_usage(&bpk_verb_commit);
    }
    if (optind + 1 != argc)
        return bpk_cli_usage(&bpk_verb_commit);
    int r = to ? save_to(argv[optind], to, valid)
               : bpk_live_command(argv[optind], valid ? "commit --valid" : "commit");
    if (r == 0 && !to)
        bpk_live_print_waiting(argv[optind]);
    return r == 0 ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

static int run_discard(int argc, char **argv) {
    static const struct option options[] = {{0}};
    if (getopt_long(argc, argv, "", options, NULL) != -1 || optind + 1 != argc)
        return bpk_cli_usage(&bpk_verb_discard);
    return bpk_live_command(argv[optind], "discard") == 0 ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_commit = {
    .name = "commit",
    .arguments = "[--valid] [--to FILE] MNT",
    .summary = "write the edits of a mount into its pack",
    .options = "    --valid      leave out what is not valid; it stays an edit\n"
               "    --to FILE    write a new file instead; pack and edits stay as they are\n",
    .run = run_commit,
};

const struct bpk_verb bpk_verb_discard = {
    .name = "discard",
    .arguments = "MNT",
    .summary = "drop the edits of a mount",
    .run = run_discard,
};

/* bpk status: what a live mount holds that is not in its pack, and what is wrong with it. */
#include "cli/cli.h"
#include "cli/live.h"

#include "pack/text.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char *shown(const char *text, char buffer[600]) {
    return bpk_text_escape(text, strlen(text), buffer, 600);
}

static void print_edit(const struct bpk_status_edit *edit) {
    char buffer[600];
    printf("edited       %s", shown(edit->path, buffer));
    if (edit->change)
        printf(": %s", shown(edit->change, buffer));
    if (edit->from)
        printf(" from %s", shown(edit->from, buffer));
    printf("\n");
}

static void print_status(const struct bpk_status *status) {
    char buffer[600];
    printf("pack         %s\n", shown(status->pack, buffer));
    printf("mounted      %s\n", status->read_only ? "read-only" : "for reading and writing");
    printf("tensors      %llu\n", (unsigned long long)status->tensors);
    if (status->last_commit)
        printf("committed    %s\n", shown(status->last_commit, buffer));
    for (size_t i = 0; i < status->edit_count; i++)
        print_edit(&status->edits[i]);
    for (size_t i = 0; status->scratch[i]; i++)
        printf("scratch      %s\n", shown(status->scratch[i], buffer));
    for (size_t i = 0; i < status->problem_count; i++) {
        printf("problem      %s: ", shown(status->problems[i].file, buffer));
        printf("%s\n", shown(status->problems[i].reason, buffer));
    }
    if (status->edit_count == 0)
        printf("nothing to commit\n");
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    bool json = false;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 'j')
            return bpk_cli_usage(&bpk_verb_status);
        json = true;
    }
    if (optind + 1 != argc)
        return bpk_cli_usage(&bpk_verb_status);
    struct bpk_status status;
    struct bpk_outbuf text = {0};
    if (bpk_live_status(argv[optind], &status, &text) < 0)
        return BPK_EXIT_FAILED;
    bool good = true;
    if (json)
        good = bpk_cli_print(&text);
    else
        print_status(&status);
    bpk_outbuf_clear(&text);
    bpk_status_clear(&status);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_status = {
    .name = "status",
    .arguments = "[--json] MNT",
    .summary = "what a mount holds that is not in its pack",
    .options = "    --json    .bpkfs/status.json as it is\n",
    .run = run,
};

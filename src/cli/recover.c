/* bpk recover: the edits that a mount left beside a pack, without mounting it again. */
#include "cli/busy.h"
#include "cli/change.h"
#include "cli/interrupt.h"

#include "edit/edits.h"
#include "pack/text.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

/* Nothing is mounted: no file needs a number. */
static uint64_t no_number(enum bpk_folder folder, const char *name, const void *context) {
    (void)folder;
    (void)name;
    (void)context;
    return 0;
}

struct counts {
    size_t all;
    size_t edits;
};

static void print_edit(void *context, const struct bpk_edit *edit) {
    static const char *const labels[] = {
        [BPK_EDIT] = "edited ",
        [BPK_EDIT_PENDING] = "pending",
        [BPK_EDIT_BACKUP] = "backup ",
        [BPK_EDIT_SCRATCH] = "scratch",
    };
    char shown[600];
    struct counts *counts = context;
    printf("%s  %s", labels[edit->kind],
           bpk_text_escape(edit->path, strlen(edit->path), shown, sizeof(shown)));
    if (edit->kind == BPK_EDIT)
        printf(": %s", bpk_change_name(edit->change));
    if (edit->kind == BPK_EDIT && edit->change == BPK_RENAMED)
        printf(" from %s", bpk_text_escape(edit->from, strlen(edit->from), shown, sizeof(shown)));
    if (edit->problem)
        printf("  ! %s",
               bpk_text_escape(edit->problem, strlen(edit->problem), shown, sizeof(shown)));
    printf("\n");
    counts->all++;
    counts->edits += edit->kind == BPK_EDIT;
}

static int show(struct bpk_edits *edits, bool force) {
    struct counts counts = {0};
    bpk_edits_list(edits, print_edit, &counts);
    if (counts.all == 0)
        printf("no edits\n");
    else if (counts.edits == 0)
        printf("nothing that could be committed; 'bpk recover --discard' drops it\n");
    else
        printf("'bpk recover %s--commit' writes the edits into the pack, '--discard' drops all\n",
               force ? "--force " : "");
    return BPK_EXIT_OK;
}

static int tell_dropped(void) {
    printf("the edits that were waiting are dropped\n");
    return BPK_EXIT_OK;
}

/* With force, what does not go with this pack stays, and is named. */
static int commit(struct bpk_edits *edits, const char *path, bool force) {
    struct bpk_commit_result result;
    struct counts counts = {0};
    if (!bpk_cli_commit(edits, path, force ? BPK_COMMIT_VALID : BPK_COMMIT_ALL, &result))
        return BPK_EXIT_FAILED;
    (void)bpk_edits_drop_scratch(edits); /* as an unmount does */
    if (result.kept == 0 && result.left_out == 0 && !bpk_cli_has_edits(path))
        return BPK_EXIT_OK;
    bpk_edits_list(edits, print_edit, &counts);
    return BPK_EXIT_EDITS_LEFT;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"commit", no_argument, NULL, 'c'},
                                            {"discard", no_argument, NULL, 'd'},
                                            {"force", no_argument, NULL, 'F'},
                                            {0}};
    struct bpk_edits_options how = {.number_of = no_number, .is_cancelled = bpk_cli_interrupted};
    struct bpk_open_options layout = {0};
    bool wants_commit = false;
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 'c')
            wants_commit = true;
        else if (c == 'd')
            how.discard = true;
        else if (c == 'F')
            how.force = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &layout))
            return bpk_cli_usage(&bpk_verb_recover);
    }
    if (optind + 1 != argc || (wants_commit && how.discard))
        return bpk_cli_usage(&bpk_verb_recover);
    if (wants_commit || how.discard)
        bpk_cli_interrupt_catch();
    how.only_looks = how.force && !wants_commit && !how.discard;
    struct bpk_cli_pack pack;
    struct bpk_edits *edits;
    struct bpk_diag diag = {.sentence = ""};
    size_t found;
    if (bpk_cli_open(argv[optind], &layout, &pack) < 0)
        return BPK_EXIT_FAILED;
    int status = BPK_EXIT_FAILED;
    bool drops = how.discard && bpk_cli_has_edits(argv[optind]);
    if (bpk_edits_open(argv[optind], pack.pack, &how, &edits, &found, &diag) < 0) {
        bpk_cli_error(argv[optind], "%s", diag.sentence);
    } else {
        if (bpk_edits_are_damaged(edits))
            bpk_cli_error(argv[optind], "the journal of the edits is damaged: those made after the "
                                        "damage are lost");
        status = wants_commit ? commit(edits, argv[optind], how.force)
                 : drops      ? tell_dropped()
                              : show(edits, how.force);
        bpk_edits_close(edits);
    }
    bpk_cli_close(&pack);
    return status;
}

const struct bpk_verb bpk_verb_recover = {
    .name = "recover",
    .arguments = "[--commit|--discard] [--force] FILE",
    .summary = "the edits that a mount left beside a pack",
    .options = "    --commit     write the edits into the pack\n"
               "    --discard    drop them\n"
               "    --force      take them even if the pack was replaced since\n",
    .run = run,
};

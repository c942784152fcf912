/* bpk: looks into packs and changes them without a mount, and controls mounts. */
#include "cli/cli.h"
#include "cli/interrupt.h"

#include "pack/util.h"

#include <stdio.h>
#include <string.h>

static const struct bpk_verb *const verbs[] = {
    &bpk_verb_info,    &bpk_verb_ls,      &bpk_verb_cat,    &bpk_verb_verify, &bpk_verb_stats,
    &bpk_verb_diff,    &bpk_verb_set,     &bpk_verb_unset,  &bpk_verb_mv,     &bpk_verb_rm,
    &bpk_verb_put,     &bpk_verb_unpack,  &bpk_verb_pack,   &bpk_verb_import, &bpk_verb_export,
    &bpk_verb_salvage, &bpk_verb_recover, &bpk_verb_status, &bpk_verb_commit, &bpk_verb_discard,
    &bpk_verb_umount,
};

static void print_help(FILE *to) {
    (void)fprintf(to, "usage: bpk VERB [OPTIONS] FILE|MNT ...\n\n"
                      "Looks into Burn checkpoint packs (.bpk) and changes them without mounting "
                      "them, and controls mounts.\n\n");
    for (size_t i = 0; i < BPK_ARRAY_LEN(verbs); i++)
        (void)fprintf(to, "    %-8s %-42s %s\n", verbs[i]->name, verbs[i]->arguments,
                      verbs[i]->summary);
    (void)fprintf(to,
                  "\n    -o layout=aligned|legacy    where a pack leaves it open (what reads one)\n"
                  "    --help, --version\n\nSee bpk(1).\n");
}

static void print_verb_help(const struct bpk_verb *verb) {
    printf("usage: bpk %s %s\n\n%s\n", verb->name, verb->arguments, verb->summary);
    if (verb->options)
        printf("\n%s", verb->options);
    printf("\nSee bpk(1).\n");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return BPK_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return bpk_cli_finish(BPK_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("bpk %s\n", BPK_VERSION_TEXT);
        return bpk_cli_finish(BPK_EXIT_OK);
    }
    for (size_t i = 0; i < BPK_ARRAY_LEN(verbs); i++) {
        if (strcmp(argv[1], verbs[i]->name) != 0)
            continue;
        if (argc == 3 && strcmp(argv[2], "--help") == 0) {
            print_verb_help(verbs[i]);
            return bpk_cli_finish(BPK_EXIT_OK);
        }
        static char program[] = "bpk"; /* what getopt's messages start with */
        argv[1] = program;
        if (verbs[i]->writes)
            bpk_cli_interrupt_catch();
        int status = verbs[i]->run(argc - 1, argv + 1);
        bpk_cli_interrupt_end();
        return bpk_cli_finish(status);
    }
    bpk_cli_error(NULL, "'%s' is no verb; see 'bpk --help'", argv[1]);
    return BPK_EXIT_USAGE;
}

/* bpk verify: is a pack whole, and would every version of Burn take it? */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

struct findings {
    const struct bpk_cli_pack *pack;
    const char *label;
    size_t count;
};

static void print_finding(void *context, uint32_t tensor, const char *sentence) {
    struct findings *findings = context;
    struct bpk_outbuf line = {0};
    bpk_out_str(&line, findings->label);
    if (tensor != BPK_NO_TENSOR) {
        bpk_out_str(&line, "tensor '");
        bpk_cli_show_name(findings->pack, tensor, &line);
        bpk_out_str(&line, "': ");
    }
    bpk_out_str(&line, sentence);
    bpk_out_str(&line, "\n");
    (void)bpk_cli_print(&line);
    findings->count++;
}

static int verify(const struct bpk_cli_pack *pack) {
    struct findings problems = {pack, "problem: ", 0};
    struct findings notes = {pack, "note: ", 0};
    int r = bpk_pack_check(pack->pack, print_finding, &problems);
    if (r < 0) {
        bpk_cli_error(pack->path, "cannot read: %s", strerror(-r));
        return BPK_EXIT_FAILED;
    }
    bpk_pack_notes(pack->pack, print_finding, &notes);
    if (problems.count > 0)
        printf("%zu problem%s\n", problems.count, problems.count == 1 ? "" : "s");
    else
        printf("good: %u tensor%s\n", pack->info.tensors, pack->info.tensors == 1 ? "" : "s");
    return problems.count > 0 ? BPK_EXIT_FAILED : BPK_EXIT_OK;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{0}};
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1)
        if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_verify);
    if (optind + 1 != argc)
        return bpk_cli_usage(&bpk_verb_verify);
    struct bpk_cli_pack pack;
    int r = bpk_cli_open(argv[optind], &how, &pack);
    if (r < 0)
        return r == -EBADMSG ? BPK_EXIT_FAILED : BPK_EXIT_UNREADABLE;
    int status = verify(&pack);
    bpk_cli_close(&pack);
    return status;
}

const struct bpk_verb bpk_verb_verify = {
    .name = "verify",
    .arguments = "FILE",
    .summary = "every check; status 1 if there is a fault",
    .run = run,
};

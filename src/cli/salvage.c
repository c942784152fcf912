/* bpk salvage: a new pack of what is whole in a truncated one. */
#include "cli/cli.h"
#include "cli/progress.h"

#include "pack/replace.h"

#include <getopt.h>

static bool write_new(const struct bpk_cli_pack *pack, const char *out) {
    struct bpk_cli_counter counter = {0};
    struct bpk_cli_progress progress = {
        .ask = bpk_cli_ask_counter, .context = &counter, .what = "salvaging"};
    _cleanup_outbuf_ struct bpk_outbuf said = {0};
    const struct bpk_replace_options options = {
        .new_file = true,
        .ignore_owner = true,
        .progress = {bpk_cli_count, &counter},
        .remarks = {bpk_remarks_collect, &said},
    };
    struct bpk_diag diag = {.sentence = "out of memory"};
    struct bpk_plan plan = {0};
    int r = bpk_plan_from_pack(pack->pack, &plan);
    bpk_cli_progress_begin(&progress);
    if (r == 0)
        r = bpk_replace(&plan, out, &options, NULL, &diag);
    bpk_cli_progress_end(&progress);
    bpk_plan_clear(&plan);
    if (pack->pack->lost_count == 0) /* else bytes of no tensor are those of lost ones */
        (void)bpk_cli_lines(pack->path, &said);
    if (r < 0)
        bpk_cli_error(out, "%s", diag.sentence);
    return r == 0;
}

static void tell_lost(void *context, uint32_t tensor, const char *sentence) {
    if (tensor == BPK_NO_TENSOR)
        bpk_cli_error(context, "%s", sentence);
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{0}};
    struct bpk_open_options how = {.salvage = true};
    struct bpk_cli_pack pack;
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_salvage);
    }
    if (optind + 2 != argc)
        return bpk_cli_usage(&bpk_verb_salvage);
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    bool good = write_new(&pack, argv[optind + 1]);
    if (good && pack.pack->lost_count > 0) {
        (void)bpk_pack_check(pack.pack, tell_lost, argv[optind]);
        good = false;
    }
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_salvage = {
    .name = "salvage",
    .arguments = "FILE OUT",
    .summary = "make a pack of what is whole in a truncated one",
    .run = run,
    .writes = true,
};

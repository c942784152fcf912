/* bpk ls: the tensors of a pack. */
#include "cli/hash.h"
#include "cli/table.h"
#include "pack/util.h"
#include "view/sidecar.h"

#include <getopt.h>
#include <stdio.h>

enum style { SHORT, LONG, JSON };

/* `hash` may be NULL. */
static void out_row(const struct bpk_cli_pack *pack, uint32_t index, bool with_place,
                    const struct bpk_cli_hash *hash, struct bpk_outbuf *out) {
    struct bpk_tensor tensor;
    char number[32];
    bpk_pack_tensor(pack->pack, index, &tensor);
    bpk_cli_dtype_and_shape(pack, index, out);
    bpk_out(out, number,
            (size_t)snprintf(number, sizeof(number), "%12llu  ",
                             (unsigned long long)(tensor.end - tensor.start)));
    if (with_place) {
        bpk_out(
            out, number,
            (size_t)snprintf(number, sizeof(number), "%14llu  ", (unsigned long long)tensor.start));
        size_t column = out->len;
        if (tensor.has_param_id)
            bpk_out_u64(out, tensor.param_id);
        else
            bpk_out_str(out, "-");
        bpk_cli_pad(out, column, 22);
    }
    if (hash) {
        size_t column = out->len;
        bpk_out_str(out, hash->text[0] ? hash->text : "-");
        bpk_cli_pad(out, column, BPK_CLI_HASH_DIGITS + 2);
    }
    bpk_cli_show_name(pack, index, out);
    char problem[400];
    if (bpk_pack_tensor_problem(pack->pack, index, problem, sizeof(problem))) {
        bpk_out_str(out, "  ! ");
        bpk_out_str(out, problem);
    }
    bpk_out_str(out, "\n");
}

static void out_head(bool with_place, bool with_hash, struct bpk_outbuf *out) {
    bpk_out_str(out, BPK_CLI_DTYPE_AND_SHAPE "       BYTES  ");
    if (with_place)
        bpk_out_str(out, "        OFFSET  PARAM_ID              ");
    bpk_out_str(out, with_hash ? "XXH3              NAME\n" : "NAME\n");
}

/* `hashes`: of the selection, or NULL. */
static bool print_all(const struct bpk_cli_pack *pack, enum style style,
                      const struct bpk_cli_selection *selection,
                      const struct bpk_cli_hash *hashes) {
    enum { FLUSH_AT = 1 << 20 };
    struct bpk_outbuf out = {0};
    bool good = true;
    if (style == JSON)
        bpk_out_str(&out, "[");
    else
        out_head(style == LONG, hashes, &out);
    for (uint32_t i = 0; i < selection->count && good; i++) {
        const struct bpk_cli_hash *hash = hashes ? &hashes[i] : NULL;
        if (style == JSON) {
            bpk_out_str(&out, i > 0 ? ",\n  " : "\n  ");
            bpk_sidecar_of_tensor(&out, pack->pack, selection->tensors[i],
                                  hash && hash->text[0] ? hash->text : NULL, 2);
        } else {
            out_row(pack, selection->tensors[i], style == LONG, hash, &out);
        }
        if (out.len > FLUSH_AT)
            good = bpk_cli_print(&out);
    }
    if (style == JSON)
        bpk_out_str(&out, selection->count > 0 ? "\n]\n" : "]\n");
    return bpk_cli_print(&out) && good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"long", no_argument, NULL, 'l'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"hash", no_argument, NULL, 'h'},
                                            {0}};
    enum style style = SHORT;
    bool with_hash = false;
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "lo:", options, NULL)) != -1) {
        if (c == 'l')
            style = style == JSON ? JSON : LONG;
        else if (c == 'j')
            style = JSON;
        else if (c == 'h')
            with_hash = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_ls);
    }
    if (optind >= argc)
        return bpk_cli_usage(&bpk_verb_ls);
    struct bpk_cli_pack pack;
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    _cleanup_selection_ struct bpk_cli_selection selection;
    bool good = bpk_cli_select(&pack, argc - optind - 1, argv + optind + 1, &selection);
    _cleanup_free_ struct bpk_cli_hash *hashes = NULL;
    if (with_hash)
        good = bpk_cli_hash(&pack, &selection, &hashes) && good;
    good = print_all(&pack, style, &selection, hashes) && good;
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_ls = {
    .name = "ls",
    .arguments = "[-l] [--hash] [--json] FILE [PATTERN ...]",
    .summary = "a table of the tensors",
    .options = "    -l        the offset in the file and the param_id too\n"
               "    --hash    the XXH3-64 hash of each tensor's bytes, which takes reading them\n"
               "    --json    an array of sidecars, for programs\n",
    .run = run,
};

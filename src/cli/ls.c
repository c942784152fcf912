/* bpk ls: the tensors of a pack. */
#include "cli/table.h"
#include "view/sidecar.h"

#include <getopt.h>
#include <stdio.h>

enum style { SHORT, LONG, JSON };

static void out_row(const struct bpk_cli_pack *pack, uint32_t index, bool with_place,
                    struct bpk_outbuf *out) {
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
    bpk_cli_show_name(pack, index, out);
    char problem[400];
    if (bpk_pack_tensor_problem(pack->pack, index, problem, sizeof(problem))) {
        bpk_out_str(out, "  ! ");
        bpk_out_str(out, problem);
    }
    bpk_out_str(out, "\n");
}

static bool print_all(const struct bpk_cli_pack *pack, enum style style,
                      const struct bpk_cli_selection *selection) {
    enum { FLUSH_AT = 1 << 20 };
    struct bpk_outbuf out = {0};
    bool good = true;
    if (style == JSON)
        bpk_out_str(&out, "[");
    else
        bpk_out_str(&out, style == LONG ? BPK_CLI_DTYPE_AND_SHAPE
                              "       BYTES          OFFSET  PARAM_ID              NAME\n"
                                        : BPK_CLI_DTYPE_AND_SHAPE "       BYTES  NAME\n");
    for (uint32_t i = 0; i < selection->count && good; i++) {
        if (style == JSON) {
            bpk_out_str(&out, i > 0 ? ",\n  " : "\n  ");
            bpk_sidecar_of_tensor(&out, pack->pack, selection->tensors[i], 2);
        } else {
            out_row(pack, selection->tensors[i], style == LONG, &out);
        }
        if (out.len > FLUSH_AT)
            good = bpk_cli_print(&out);
    }
    if (style == JSON)
        bpk_out_str(&out, selection->count > 0 ? "\n]\n" : "]\n");
    return bpk_cli_print(&out) && good;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {
        {"long", no_argument, NULL, 'l'}, {"json", no_argument, NULL, 'j'}, {0}};
    enum style style = SHORT;
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "lo:", options, NULL)) != -1) {
        if (c == 'l')
            style = style == JSON ? JSON : LONG;
        else if (c == 'j')
            style = JSON;
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
    good = print_all(&pack, style, &selection) && good;
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_ls = {
    .name = "ls",
    .arguments = "[-l] [--json] FILE [PATTERN ...]",
    .summary = "a table of the tensors",
    .run = run,
};

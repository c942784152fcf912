/* bpk ls: the tensors of a pack. */
#include "cli/cli.h"
#include "pack/util.h"
#include "view/index.h"
#include "view/json.h"
#include "view/sidecar.h"

#include <fnmatch.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum style { SHORT, LONG, JSON };

/* A pattern matches a file name as the shell would, but "*" also a leading dot and any slash. One
 * that is a name as we show it is that tensor (`exact`). */
static bool matches(const struct bpk_cli_pack *pack, uint32_t index, int patterns, char **pattern,
                    const uint32_t *exact) {
    char file[BPK_FILE_NAME_BUF];
    bpk_names_file(pack->names, index, file);
    for (int i = 0; i < patterns; i++)
        if (fnmatch(pattern[i], file, 0) == 0 || exact[i] == index)
            return true;
    return patterns == 0;
}

/* Pads what was written since `from` to `width` columns; names may hold wide characters, which
 * then stand a little off. */
static void pad(struct bpk_outbuf *out, size_t from, size_t width) {
    size_t columns = 0;
    for (size_t i = from; i < out->len && out->text; i++)
        if (((unsigned char)out->text[i] & 0xc0) != 0x80)
            columns++;
    for (; columns < width; columns++)
        bpk_out(out, " ", 1);
}

static void out_dtype(struct bpk_outbuf *out, const struct bpk_dtype *dtype) {
    if (dtype->kind == BPK_QFLOAT) {
        bpk_out_str(out, "QFloat ");
        bpk_out_str(out, bpk_quant_value_name(dtype->scheme.value));
    } else if (dtype->kind == BPK_BOOL && dtype->bool_store == BPK_BOOL_U32) {
        bpk_out_str(out, "Bool U32");
    } else {
        bpk_out_str(out, bpk_kind_name(dtype->kind));
    }
}

static void out_row(const struct bpk_cli_pack *pack, uint32_t index, bool with_place,
                    struct bpk_outbuf *out) {
    struct bpk_tensor tensor;
    struct bpk_dtype dtype;
    char number[32];
    bpk_pack_tensor(pack->pack, index, &tensor);
    bpk_pack_tensor_dtype(pack->pack, index, &dtype);

    size_t column = out->len;
    out_dtype(out, &dtype);
    pad(out, column, 10);
    column = out->len;
    if (tensor.rank == 0)
        bpk_out_str(out, "scalar");
    else
        bpk_index_shape(out, bpk_pack_tensor_shape(pack->pack, index));
    bpk_out_str(out, " ");
    pad(out, column, 16);
    bpk_out(out, number,
            (size_t)snprintf(number, sizeof(number), "%12llu  ",
                             (unsigned long long)(tensor.end - tensor.start)));
    if (with_place) {
        bpk_out(
            out, number,
            (size_t)snprintf(number, sizeof(number), "%14llu  ", (unsigned long long)tensor.start));
        column = out->len;
        if (tensor.has_param_id)
            bpk_out_u64(out, tensor.param_id);
        else
            bpk_out_str(out, "-");
        pad(out, column, 22);
    }
    bpk_cli_show_name(pack, index, out);
    char problem[400];
    if (bpk_pack_tensor_problem(pack->pack, index, problem, sizeof(problem))) {
        bpk_out_str(out, "  ! ");
        bpk_out_str(out, problem);
    }
    bpk_out_str(out, "\n");
}

static bool print_all(const struct bpk_cli_pack *pack, enum style style, int patterns,
                      char **pattern) {
    enum { FLUSH_AT = 1 << 20 };
    struct bpk_outbuf out = {0};
    _cleanup_free_ uint32_t *exact = calloc((size_t)patterns + 1, sizeof(*exact));
    if (!exact) {
        bpk_cli_error(NULL, "out of memory");
        return false;
    }
    for (int i = 0; i < patterns; i++)
        if (bpk_cli_find(pack, pattern[i], &exact[i]) < 0)
            exact[i] = BPK_NO_TENSOR;
    bool any = false;
    bool good = true;
    if (style == JSON)
        bpk_out_str(&out, "[");
    else
        bpk_out_str(&out, style == LONG ? "DTYPE     SHAPE                  BYTES          OFFSET  "
                                          "PARAM_ID              NAME\n"
                                        : "DTYPE     SHAPE                  BYTES  NAME\n");
    for (uint32_t i = 0; i < pack->info.tensors && good; i++) {
        if (!matches(pack, i, patterns, pattern, exact))
            continue;
        if (style == JSON) {
            bpk_out_str(&out, any ? ",\n  " : "\n  ");
            bpk_sidecar_of_tensor(&out, pack->pack, i, 2);
        } else {
            out_row(pack, i, style == LONG, &out);
        }
        any = true;
        if (out.len > FLUSH_AT)
            good = bpk_cli_print(&out);
    }
    if (style == JSON)
        bpk_out_str(&out, any ? "\n]\n" : "]\n");
    good = bpk_cli_print(&out) && good;
    if (good && patterns > 0 && !any) {
        bpk_cli_error(pack->path, "no tensor matches");
        good = false;
    }
    return good;
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
    bool good = print_all(&pack, style, argc - optind - 1, argv + optind + 1);
    bpk_cli_close(&pack);
    return good ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_ls = {
    .name = "ls",
    .arguments = "[-l] [--json] FILE [PATTERN ...]",
    .summary = "a table of the tensors",
    .run = run,
};

/* bpk info: a pack at a glance. */
#include "cli/cli.h"
#include "pack/text.h"
#include "view/json.h"
#include "view/maps.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The list of problems under way, as JSON strings or as lines. */
struct problems {
    const struct bpk_cli_pack *pack;
    struct bpk_outbuf *out;
    bool json;
    size_t count;
};

static void add_problem(void *context, uint32_t tensor, const char *sentence) {
    struct problems *problems = context;
    struct bpk_outbuf *out = problems->out;
    _cleanup_outbuf_ struct bpk_outbuf line = {0};
    if (tensor != BPK_NO_TENSOR) {
        bpk_out_str(&line, "tensor '");
        bpk_cli_show_name(problems->pack, tensor, &line);
        bpk_out_str(&line, "': ");
    }
    bpk_out_str(&line, sentence);
    out->failed |= line.failed;
    if (problems->json) {
        bpk_out_str(out, problems->count > 0 ? ",\n    " : "\n    ");
        bpk_json_string(out, (struct bpk_str){line.text, line.len});
    } else {
        bpk_out_str(out, "problem    ");
        bpk_out(out, line.text, line.len);
        bpk_out_str(out, "\n");
    }
    problems->count++;
}

static const char *layout_name(const struct bpk_pack_info *info) {
    return info->layout == BPK_LAYOUT_LEGACY ? "legacy" : "aligned";
}

static int write_json(const struct bpk_cli_pack *pack, struct bpk_outbuf *out) {
    bpk_out_str(out, "{\n  \"path\": ");
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s", pack->path);
    bpk_text_make_utf8(path);
    bpk_json_cstring(out, path);
    bpk_out_str(out, ",\n  \"version\": ");
    bpk_out_u64(out, pack->info.version);
    bpk_out_str(out, ",\n  \"layout\": ");
    bpk_json_cstring(out, layout_name(&pack->info));
    bpk_out_str(out, ",\n  \"data_start\": ");
    bpk_out_u64(out, pack->info.data_start);
    bpk_out_str(out, ",\n  \"metadata\": ");
    bpk_metadata_object(out, pack->pack, 2);
    bpk_out_str(out, ",\n  \"scalars\": ");
    bpk_scalars_object(out, pack->pack, 2);
    bpk_out_str(out, ",\n  \"tensors\": ");
    bpk_out_u64(out, pack->info.tensors);
    bpk_out_str(out, ",\n  \"problems\": [");
    struct problems problems = {pack, out, true, 0};
    int r = bpk_pack_check(pack->pack, add_problem, &problems);
    bpk_out_str(out, problems.count > 0 ? "\n  ]\n}\n" : "]\n}\n");
    return r;
}

static void out_count(struct bpk_outbuf *out, const char *label, uint64_t count, const char *unit) {
    bpk_out_str(out, label);
    bpk_out_u64(out, count);
    bpk_out_str(out, unit);
}

/* A map of the pack below its label, or nothing where it is empty. */
static void out_map(struct bpk_outbuf *out, const char *label, uint32_t count,
                    const struct bpk_pack *pack,
                    void (*write)(struct bpk_outbuf *, const struct bpk_pack *, unsigned)) {
    if (count == 0)
        return;
    bpk_out_str(out, label);
    write(out, pack, 0);
    bpk_out_str(out, "\n");
}

static int write_text(const struct bpk_cli_pack *pack, struct bpk_outbuf *out) {
    const struct bpk_pack_info *info = &pack->info;
    uint64_t data = 0;
    for (uint32_t i = 0; i < info->tensors; i++) {
        struct bpk_tensor tensor;
        bpk_pack_tensor(pack->pack, i, &tensor);
        data += tensor.end - tensor.start;
    }
    out_count(out, "version    ", info->version, "\n");
    bpk_out_str(out, "layout     ");
    bpk_out_str(out, info->layout == BPK_LAYOUT_LEGACY ? "legacy (Burn 0.19)\n" : "aligned\n");
    out_count(out, "file       ", (uint64_t)bpk_pack_stat(pack->pack)->st_size, " bytes\n");
    out_count(out, "data       from byte ", info->data_start, "");
    out_count(out, ", ", data, " bytes in ");
    out_count(out, "", info->tensors, info->tensors == 1 ? " tensor\n" : " tensors\n");
    out_map(out, "metadata   ", info->metadata_entries, pack->pack, bpk_metadata_object);
    out_map(out, "scalars    ", info->scalars, pack->pack, bpk_scalars_object);
    struct problems problems = {pack, out, false, 0};
    return bpk_pack_check(pack->pack, add_problem, &problems);
}

static int run(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    bool json = false;
    struct bpk_open_options how = {0};
    int c;
    while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (c == 'j')
            json = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_info);
    }
    if (optind + 1 != argc)
        return bpk_cli_usage(&bpk_verb_info);
    struct bpk_cli_pack pack;
    if (bpk_cli_open(argv[optind], &how, &pack) < 0)
        return BPK_EXIT_FAILED;
    struct bpk_outbuf out = {0};
    int r = json ? write_json(&pack, &out) : write_text(&pack, &out);
    if (r < 0)
        bpk_cli_error(pack.path, "cannot read: %s", strerror(-r));
    bool printed = bpk_cli_print(&out);
    bpk_cli_close(&pack);
    return r == 0 && printed ? BPK_EXIT_OK : BPK_EXIT_FAILED;
}

const struct bpk_verb bpk_verb_info = {
    .name = "info",
    .arguments = "[--json] FILE",
    .summary = "the pack at a glance",
    .options = "    --json    one object, for programs\n",
    .run = run,
};

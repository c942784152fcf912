/* bpk diff: what one pack has and another has not, or has otherwise. */
#include "cli/compare.h"
#include "cli/table.h"

#include "pack/meta.h"
#include "pack/text.h"
#include "pack/util.h"
#include "view/index.h"
#include "view/json.h"
#include "view/maps.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { SAME = 0, DIFFERENT = 1, TROUBLE = 2 }; /* as diff(1) */
enum change { REMOVED, ADDED, CHANGED, CHANGES };

static const char *const words[CHANGES] = {"removed", "added", "changed"};
static const char marks[CHANGES] = {'-', '+', '!'};

struct diff {
    const struct bpk_cli_pack *a;
    const struct bpk_cli_pack *b;
    bool json;
    bool quiet;
    bool differs;
    struct bpk_outbuf lists[CHANGES]; /* of the section at hand, for JSON */
    struct bpk_outbuf out;
};

/* Begins an item of its list and returns it. */
static struct bpk_outbuf *begin_item(struct diff *diff, enum change change) {
    struct bpk_outbuf *list = &diff->lists[change];
    bpk_out_str(list, list->len > 0 ? ",\n      " : "\n      ");
    return list;
}

static void end_section(struct diff *diff, const char *name, bool is_first) {
    bpk_json_field(&diff->out, 0, is_first, name);
    bpk_out_str(&diff->out, "{");
    for (int i = 0; i < CHANGES; i++) {
        bpk_json_field(&diff->out, 2, i == 0, words[i]);
        bpk_out_str(&diff->out, "[");
        bpk_out(&diff->out, diff->lists[i].text, diff->lists[i].len);
        bpk_out_str(&diff->out, diff->lists[i].len > 0 ? "\n    ]" : "]");
        diff->out.failed |= diff->lists[i].failed;
        bpk_outbuf_clear(&diff->lists[i]);
    }
    bpk_json_end_object(&diff->out, 2);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void out_dtype(struct bpk_outbuf *out, const struct bpk_cli_pack *pack, uint32_t index) {
    struct bpk_dtype dtype;
    bpk_pack_tensor_dtype(pack->pack, index, &dtype);
    bpk_json_dtype(out, &dtype);
}

static void out_shape(struct bpk_outbuf *out, const struct bpk_cli_pack *pack, uint32_t index) {
    struct bpk_shape shape = bpk_pack_tensor_shape(pack->pack, index);
    if (shape.left == 0)
        bpk_out_str(out, "scalar");
    else
        bpk_index_shape(out, shape);
}

static void out_param_id(struct bpk_outbuf *out, const struct bpk_cli_pack *pack, uint32_t index) {
    struct bpk_tensor tensor;
    bpk_pack_tensor(pack->pack, index, &tensor);
    if (tensor.has_param_id)
        bpk_out_u64(out, tensor.param_id);
    else
        bpk_out_str(out, "none");
}

static const struct {
    unsigned flag;
    const char *name;
    void (*show)(struct bpk_outbuf *out, const struct bpk_cli_pack *pack, uint32_t index);
} facts[] = {
    {BPK_DIFF_DTYPE, "dtype", out_dtype},
    {BPK_DIFF_SHAPE, "shape", out_shape},
    {BPK_DIFF_PARAM_ID, "param_id", out_param_id},
    {BPK_DIFF_BYTES, "bytes", NULL},
};

static void out_facts(struct diff *diff, const struct bpk_cli_pair *pair) {
    bool first = true;
    for (size_t i = 0; i < BPK_ARRAY_LEN(facts); i++) {
        if (!(pair->differs & facts[i].flag))
            continue;
        bpk_out_str(&diff->out, first ? "" : ", ");
        bpk_out_str(&diff->out, facts[i].name);
        first = false;
        if (!facts[i].show)
            continue;
        bpk_out_str(&diff->out, " ");
        facts[i].show(&diff->out, diff->a, pair->a);
        bpk_out_str(&diff->out, " -> ");
        facts[i].show(&diff->out, diff->b, pair->b);
    }
}

static void print_pair(struct diff *diff, const struct bpk_cli_pair *pair, enum change change) {
    const struct bpk_cli_pack *pack = change == ADDED ? diff->b : diff->a;
    uint32_t index = change == ADDED ? pair->b : pair->a;
    bpk_out(&diff->out, &marks[change], 1);
    bpk_out_str(&diff->out, " tensors/");
    bpk_cli_show_name(pack, index, &diff->out);
    bpk_out_str(&diff->out, "  ");
    if (change == CHANGED) {
        out_facts(diff, pair);
    } else {
        out_dtype(&diff->out, pack, index);
        bpk_out_str(&diff->out, " ");
        out_shape(&diff->out, pack, index);
    }
    bpk_out_str(&diff->out, "\n");
}

static void list_pair(struct diff *diff, const struct bpk_cli_pair *pair, enum change change) {
    struct bpk_outbuf *list = begin_item(diff, change);
    struct bpk_str name = change == ADDED ? bpk_pack_tensor_name(diff->b->pack, pair->b)
                                          : bpk_pack_tensor_name(diff->a->pack, pair->a);
    if (change != CHANGED) {
        bpk_json_string(list, name);
        return;
    }
    bpk_out_str(list, "{\"name\": ");
    bpk_json_string(list, name);
    for (size_t i = 0; i < BPK_ARRAY_LEN(facts); i++) {
        bpk_out_str(list, ", ");
        bpk_json_cstring(list, facts[i].name);
        bpk_out_str(list, pair->differs & facts[i].flag ? ": true" : ": false");
    }
    bpk_out_str(list, "}");
}

static void tell_tensors(struct diff *diff, const struct bpk_cli_comparison *comparison) {
    for (size_t i = 0; i < comparison->count; i++) {
        const struct bpk_cli_pair *pair = &comparison->pairs[i];
        if (bpk_cli_pair_is_same(pair))
            continue;
        enum change change = pair->a == BPK_NO_TENSOR   ? ADDED
                             : pair->b == BPK_NO_TENSOR ? REMOVED
                                                        : CHANGED;
        diff->differs = true;
        if (diff->json)
            list_pair(diff, pair, change);
        else if (!diff->quiet)
            print_pair(diff, pair, change);
    }
    if (diff->json)
        end_section(diff, "tensors", true);
}

/* ---- maps ------------------------------------------------------------------------------------ */

struct map {
    const char *name;
    uint32_t (*count)(const struct bpk_cli_pack *pack);
    /* The key, and the value as JSON. */
    struct bpk_str (*entry)(const struct bpk_pack *pack, uint32_t index, struct bpk_outbuf *out);
};

static uint32_t metadata_count(const struct bpk_cli_pack *pack) {
    return pack->info.metadata_entries;
}

static struct bpk_str metadata_entry(const struct bpk_pack *pack, uint32_t index,
                                     struct bpk_outbuf *out) {
    struct bpk_str key;
    struct bpk_str value;
    bpk_pack_metadata(pack, index, &key, &value);
    bpk_json_string(out, value);
    return key;
}

static uint32_t scalar_count(const struct bpk_cli_pack *pack) {
    return pack->info.scalars;
}

static struct bpk_str scalar_entry(const struct bpk_pack *pack, uint32_t index,
                                   struct bpk_outbuf *out) {
    struct bpk_scalar scalar;
    bpk_pack_scalar(pack, index, &scalar);
    bpk_scalar_value(out, &scalar);
    return scalar.name;
}

static const struct map metadata = {"metadata", metadata_count, metadata_entry};
static const struct map scalars = {"scalars", scalar_count, scalar_entry};

/* A text that is JSON, cut where it is long. */
static void out_cut(struct bpk_outbuf *out, const struct bpk_outbuf *json) {
    char shown[100];
    bpk_out_str(out, bpk_text_escape(json->text, json->len, shown, sizeof(shown)));
}

static void tell_entry(struct diff *diff, const struct map *map, struct bpk_str key,
                       const struct bpk_outbuf *a, const struct bpk_outbuf *b) {
    enum change change = a->len == 0 ? ADDED : b->len == 0 ? REMOVED : CHANGED;
    _cleanup_outbuf_ struct bpk_outbuf name = {0};
    bpk_json_string(&name, key);
    diff->differs = true;
    diff->out.failed |= name.failed || a->failed || b->failed;
    if (diff->json) {
        bpk_out(begin_item(diff, change), name.text, name.len);
    } else if (!diff->quiet && !diff->out.failed) {
        bpk_out(&diff->out, &marks[change], 1);
        bpk_out_str(&diff->out, " ");
        bpk_out_str(&diff->out, map->name);
        bpk_out_str(&diff->out, ".json  ");
        out_cut(&diff->out, &name);
        bpk_out_str(&diff->out, ": ");
        if (change != ADDED)
            out_cut(&diff->out, a);
        bpk_out_str(&diff->out, change == CHANGED ? " -> " : "");
        if (change != REMOVED)
            out_cut(&diff->out, b);
        bpk_out_str(&diff->out, "\n");
    }
}

static bool is_same(const struct bpk_outbuf *a, const struct bpk_outbuf *b) {
    return !a->failed && !b->failed && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static void tell_map(struct diff *diff, const struct map *map) {
    uint32_t a_count = map->count(diff->a);
    uint32_t b_count = map->count(diff->b);
    uint32_t i = 0;
    uint32_t k = 0;
    while (i < a_count || k < b_count) {
        _cleanup_outbuf_ struct bpk_outbuf a = {0};
        _cleanup_outbuf_ struct bpk_outbuf b = {0};
        struct bpk_str a_key = {NULL, 0};
        struct bpk_str b_key = {NULL, 0};
        if (i < a_count)
            a_key = map->entry(diff->a->pack, i, &a);
        if (k < b_count)
            b_key = map->entry(diff->b->pack, k, &b);
        int order = i == a_count ? 1 : k == b_count ? -1 : bpk_str_compare(a_key, b_key);
        i += order <= 0;
        k += order >= 0;
        if (order > 0)
            bpk_outbuf_clear(&a);
        if (order < 0)
            bpk_outbuf_clear(&b);
        if (!is_same(&a, &b))
            tell_entry(diff, map, order > 0 ? b_key : a_key, &a, &b);
    }
    if (diff->json)
        end_section(diff, map->name, false);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int compare(struct diff *diff) {
    struct bpk_cli_comparison comparison;
    if (diff->json)
        bpk_out_str(&diff->out, "{");
    if (!bpk_cli_compare(diff->a, diff->b, &comparison))
        return TROUBLE;
    bool good = bpk_cli_compare_bytes(&comparison, diff->quiet);
    if (good) {
        tell_tensors(diff, &comparison);
        tell_map(diff, &metadata);
        tell_map(diff, &scalars);
    }
    bpk_cli_comparison_clear(&comparison);
    if (good && diff->json) {
        bpk_json_end_object(&diff->out, 0);
        bpk_out_str(&diff->out, "\n");
    }
    if (!good || !bpk_cli_print(&diff->out) || fflush(stdout) != 0)
        return TROUBLE;
    return diff->differs ? DIFFERENT : SAME;
}

static int run(int argc, char **argv) {
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"quiet", no_argument, NULL, 'q'}, {0}};
    struct bpk_open_options how = {0};
    struct bpk_cli_pack a;
    struct bpk_cli_pack b;
    struct diff diff = {.a = &a, .b = &b};
    int c;
    while ((c = getopt_long(argc, argv, "qo:", options, NULL)) != -1) {
        if (c == 'j')
            diff.json = true;
        else if (c == 'q')
            diff.quiet = true;
        else if (c != 'o' || !bpk_cli_layout(optarg, &how))
            return bpk_cli_usage(&bpk_verb_diff);
    }
    if (optind + 2 != argc || (diff.json && diff.quiet))
        return bpk_cli_usage(&bpk_verb_diff);
    if (bpk_cli_open(argv[optind], &how, &a) < 0)
        return TROUBLE;
    int status = TROUBLE;
    if (bpk_cli_open(argv[optind + 1], &how, &b) == 0) {
        status = compare(&diff);
        bpk_outbuf_clear(&diff.out);
        bpk_cli_close(&b);
    }
    bpk_cli_close(&a);
    return status;
}

const struct bpk_verb bpk_verb_diff = {
    .name = "diff",
    .arguments = "[-q | --json] FILE FILE",
    .summary = "how two packs differ; status 1 if they do",
    .options = "    -q        print nothing, and stop at the first difference\n"
               "    --json    one object, for programs\n",
    .run = run,
};

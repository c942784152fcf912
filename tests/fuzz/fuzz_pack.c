/* Any bytes as a pack: refused with a sentence, or all that can be asked of it has an answer, and
 * its texts read back as what they were made from. */
#include "fuzz.h"

#include "view/f32.h"
#include "view/index.h"
#include "view/json_read.h"
#include "view/maps.h"
#include "view/sidecar.h"
#include "view/tree.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- tensors --------------------------------------------------------------------------------- */

static void check_sidecar(const struct bpk_pack *pack, uint32_t index) {
    struct bpk_outbuf out = {0};
    struct bpk_descriptor descriptor;
    struct bpk_tensor tensor;
    struct bpk_dtype dtype;
    uint64_t dim;
    bpk_pack_tensor(pack, index, &tensor);
    bpk_pack_tensor_dtype(pack, index, &dtype);
    bpk_sidecar_file(&out, pack, index);
    HOLDS(!out.failed);
    struct bpk_str text = {out.text, out.len};
    struct bpk_diag diag = {0};
    enum bpk_text_verdict verdict = bpk_sidecar_parse(text, &descriptor, &diag);
    ck_assert_msg(verdict == BPK_TEXT_GOOD, "%.*s: %s", (int)text.len, text.bytes, diag.sentence);
    HOLDS(bpk_dtype_equal(&descriptor.dtype, &dtype));
    HOLDS(descriptor.has_param_id == tensor.has_param_id);
    HOLDS(!tensor.has_param_id || descriptor.param_id == tensor.param_id);
    HOLDS(descriptor.rank == tensor.rank);
    struct bpk_shape shape = bpk_pack_tensor_shape(pack, index);
    for (uint32_t i = 0; i < tensor.rank; i++)
        HOLDS(bpk_shape_next(&shape, &dim) && dim == descriptor.dims[i]);
    HOLDS(!bpk_shape_next(&shape, &dim));
    bpk_descriptor_clear(&descriptor);
    bpk_outbuf_clear(&out);
}

struct source {
    const struct bpk_pack *pack;
    uint32_t index;
};

static int read_source(void *context, uint64_t offset, void *buffer, size_t size) {
    const struct source *source = context;
    size_t n;
    HOLDS(bpk_pack_read(source->pack, source->index, offset, buffer, size, &n) == 0);
    HOLDS(n == size);
    return 0;
}

/* Values read one by one are those read at once. */
static void check_values(const struct bpk_pack *pack, const struct bpk_tensor *tensor,
                         uint32_t index) {
    enum { MAX_RANK = 8, MAX_VALUES = 2000 };
    uint64_t dims[MAX_RANK];
    float values[MAX_VALUES];
    struct bpk_array array = {.dims = dims, .size = tensor->end - tensor->start};
    struct source context = {pack, index};
    const struct bpk_source source = {read_source, &context};
    struct bpk_f32 *f32;
    struct bpk_diag diag = {0};
    if (tensor->rank > MAX_RANK)
        return;
    struct bpk_shape shape = bpk_pack_tensor_shape(pack, index);
    while (bpk_shape_next(&shape, &dims[array.rank]))
        array.rank++;
    bpk_pack_tensor_dtype(pack, index, &array.dtype);
    int r = bpk_f32_new(&array, &f32, &diag);
    if (r < 0) {
        HOLDS(r == -ENOTSUP || r == -EINVAL);
        fuzz_check_sentence(diag.sentence);
        return;
    }
    uint64_t count = bpk_f32_count(f32);
    size_t n = count < MAX_VALUES ? (size_t)count : MAX_VALUES;
    HOLDS(bpk_f32_read(f32, &source, count - n, n, values) == 0);
    for (size_t i = 0; i < n; i += 1 + n / 10) {
        float value;
        HOLDS(bpk_f32_read(f32, &source, count - n + i, 1, &value) == 0);
        HOLDS(memcmp(&value, &values[i], sizeof(value)) == 0);
    }
    bpk_f32_free(f32);
}

static void check_tensor(const struct bpk_pack *pack, uint32_t index) {
    struct bpk_tensor tensor;
    char problem[400];
    uint8_t buffer[100];
    uint32_t found;
    size_t n;
    bpk_pack_tensor(pack, index, &tensor);
    /* One of no bytes may lie where a file without data has ended. */
    HOLDS(tensor.start <= tensor.end);
    HOLDS(tensor.start == tensor.end || tensor.end <= (uint64_t)bpk_pack_stat(pack)->st_size);
    HOLDS(fuzz_str_equal(tensor.name, bpk_pack_tensor_name(pack, index)));
    HOLDS(bpk_pack_find_tensor(pack, tensor.name, &found) == 0 && found == index);
    HOLDS(bpk_pack_lower_bound(pack, tensor.name) == index);
    HOLDS(bpk_kind_name(tensor.kind) != NULL);
    if (bpk_pack_tensor_problem(pack, index, problem, sizeof(problem)))
        fuzz_check_sentence(problem);
    uint64_t size = tensor.end - tensor.start;
    HOLDS(bpk_pack_read(pack, index, size / 2, buffer, sizeof(buffer), &n) == 0);
    HOLDS(n == (size - size / 2 < sizeof(buffer) ? size - size / 2 : sizeof(buffer)));
    HOLDS(bpk_pack_read(pack, index, UINT64_MAX, buffer, sizeof(buffer), &n) == 0 && n == 0);
    check_sidecar(pack, index);
    check_values(pack, &tensor, index);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static bool has_nul(struct bpk_str text) {
    return memchr(text.bytes, '\0', text.len) != NULL;
}

static void check_metadata(const struct bpk_pack *pack, uint32_t entries) {
    struct bpk_outbuf out = {0};
    struct bpk_string_map map;
    struct bpk_str key;
    struct bpk_str value;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t found;
        bpk_pack_metadata(pack, i, &key, &value);
        HOLDS(bpk_pack_find_metadata(pack, key, &found) == 0 && found == i);
        shown += !has_nul(key);
        struct bpk_outbuf file = {0};
        bpk_metadata_value_file(&file, pack, i);
        HOLDS(file.len == value.len + 1);
        bpk_outbuf_clear(&file);
    }
    bpk_metadata_file(&out, pack);
    HOLDS(bpk_metadata_parse((struct bpk_str){out.text, out.len}, &map, NULL) == BPK_TEXT_GOOD);
    HOLDS(map.count == shown);
    for (size_t i = 0; i < map.count; i++) {
        uint32_t found;
        HOLDS(bpk_pack_find_metadata(pack, map.pairs[i].key, &found) == 0);
        bpk_pack_metadata(pack, found, &key, &value);
        HOLDS(fuzz_str_equal(value, map.pairs[i].value));
    }
    bpk_string_map_clear(&map);
    bpk_outbuf_clear(&out);
}

static void check_scalars(const struct bpk_pack *pack, uint32_t count) {
    struct bpk_outbuf out = {0};
    struct bpk_scalar_map map;
    struct bpk_scalar scalar;
    size_t same = 0;
    size_t shown = 0;
    bpk_scalars_file(&out, pack);
    HOLDS(bpk_scalars_parse((struct bpk_str){out.text, out.len}, &map, NULL) == BPK_TEXT_GOOD);
    for (uint32_t i = 0; i < count; i++) {
        bpk_pack_scalar(pack, i, &scalar);
        HOLDS(bpk_scalar_kind_name(scalar.kind) != NULL);
        shown += !has_nul(scalar.name);
        for (size_t k = 0; k < map.count; k++)
            same += fuzz_str_equal(map.scalars[k].name, scalar.name) &&
                    map.scalars[k].kind == scalar.kind && map.scalars[k].bits == scalar.bits;
    }
    HOLDS(map.count == shown && same == shown);
    bpk_scalar_map_clear(&map);
    bpk_outbuf_clear(&out);
}

/* ---- names and the tree ---------------------------------------------------------------------- */

static void check_names(struct bpk_pack *pack, enum bpk_names_of of, uint32_t count) {
    struct bpk_names *names;
    struct bpk_outbuf index = {0};
    HOLDS(bpk_names_new(pack, of, &names) == 0);
    for (uint32_t i = 0; i < count; i++) {
        char file[BPK_FILE_NAME_BUF];
        uint32_t found;
        size_t len = bpk_names_file(names, i, file);
        HOLDS(len > 0 && len <= BPK_FILE_NAME_MAX && strlen(file) == len && !strchr(file, '/'));
        HOLDS(bpk_names_find(names, (struct bpk_str){file, len}, &found) == 0 && found == i);
    }
    if (of == BPK_NAMES_TENSORS) {
        uint32_t lines = 0;
        bpk_index_file(&index, pack, names);
        for (size_t i = 0; i < index.len; i++)
            lines += index.text[i] == '\n';
        HOLDS(lines == count + 1);
    }
    bpk_outbuf_clear(&index);
    bpk_names_free(names);
}

/* Counts the tensors in it. */
static uint32_t walk_tree(const struct bpk_pack *pack, const struct bpk_tree_node *folder) {
    char file[BPK_FILE_NAME_BUF];
    struct bpk_tree_node node;
    struct bpk_tree_node found;
    uint64_t cursor = 0;
    uint32_t tensors = 0;
    while (bpk_tree_next(pack, folder, &cursor, file, &node)) {
        struct bpk_str name = {file, strlen(file)};
        HOLDS(bpk_tree_find(pack, folder, name, &found) == 0);
        HOLDS(found.kind == node.kind && found.tensor == node.tensor);
        if (node.kind == BPK_TREE_FOLDER) {
            struct bpk_tree_node parent = bpk_tree_parent(pack, &node);
            HOLDS(parent.segments == folder->segments);
            tensors += walk_tree(pack, &node);
        }
        tensors += node.kind == BPK_TREE_TENSOR;
    }
    return tensors;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void take_finding(void *context, uint32_t tensor, const char *sentence) {
    const struct bpk_pack_info *info = context;
    HOLDS(tensor == BPK_NO_TENSOR || tensor < info->tensors);
    fuzz_check_sentence(sentence);
}

static void walk(struct bpk_pack *pack) {
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    for (uint32_t i = 0; i < info.tensors; i++)
        check_tensor(pack, i);
    check_metadata(pack, info.metadata_entries);
    check_scalars(pack, info.scalars);
    check_names(pack, BPK_NAMES_TENSORS, info.tensors);
    check_names(pack, BPK_NAMES_METADATA, info.metadata_entries);
    HOLDS(walk_tree(pack, &(struct bpk_tree_node){BPK_TREE_FOLDER, 0, 0}) <= info.tensors);
    HOLDS(bpk_pack_check(pack, take_finding, &info) == 0);
    bpk_pack_notes(pack, take_finding, &info);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct bpk_open_options options[] = {
        {0},
        {.salvage = true},
        {.force_layout = true, .layout = BPK_LAYOUT_LEGACY},
        {.force_layout = true, .layout = BPK_LAYOUT_ALIGNED},
    };
    char path[FUZZ_PATH];
    uint32_t whole = BPK_NO_TENSOR;
    int fd = fuzz_file(data, size, path);
    for (int i = 0; i < ROWS(options); i++) {
        struct bpk_pack_info info;
        struct bpk_pack *pack = fuzz_open(path, &options[i]);
        HOLDS(pack || !options[i].salvage || whole == BPK_NO_TENSOR);
        if (!pack)
            continue;
        walk(pack);
        bpk_pack_get_info(pack, &info);
        if (i == 0)
            whole = info.tensors;
        HOLDS(!options[i].salvage || whole == BPK_NO_TENSOR || info.tensors == whole);
        bpk_pack_unref(pack);
    }
    close(fd);
    return 0;
}

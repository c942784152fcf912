#include "view/tree.h"

#include "pack/util.h"

#include <errno.h>
#include <string.h>

enum { MAX_SEGMENTS = 64 };

/* ---- names and their segments ---------------------------------------------------------------- */

/* The segment that starts at `from`: up to the next dot or the end. */
static struct bpk_str segment_at(struct bpk_str name, size_t from) {
    const char *start = name.bytes + from;
    const char *dot = memchr(start, '.', name.len - from);
    return (struct bpk_str){start, dot ? (size_t)(dot - start) : name.len - from};
}

/* A segment as a file name: as any name, but for "@", which is taken. 0 if it is too long. */
static size_t encode_segment(struct bpk_str segment, char out[BPK_FILE_NAME_BUF]) {
    if (segment.len == 1 && segment.bytes[0] == '@') {
        memcpy(out, "%40", 4);
        return 3;
    }
    return bpk_name_encode(segment, out);
}

static bool is_in_tree(struct bpk_str name) {
    char file[BPK_FILE_NAME_BUF];
    size_t at = 0;
    for (unsigned i = 0; i < MAX_SEGMENTS; i++) {
        struct bpk_str segment = segment_at(name, at);
        if (encode_segment(segment, file) == 0)
            return false;
        at += segment.len;
        if (at == name.len)
            return true;
        at++; /* the dot; an empty segment may follow it */
    }
    return false;
}

/* The name's first `segments` segments, with the dot behind the last one. */
static struct bpk_str prefix_of(struct bpk_str name, unsigned segments) {
    size_t at = 0;
    for (unsigned i = 0; i < segments; i++)
        at += segment_at(name, at).len + 1;
    return (struct bpk_str){name.bytes, at};
}

static bool starts_with(struct bpk_str name, struct bpk_str prefix) {
    return name.len >= prefix.len && memcmp(name.bytes, prefix.bytes, prefix.len) == 0;
}

static uint32_t tensor_count(const struct bpk_pack *pack) {
    struct bpk_pack_info info;
    bpk_pack_get_info(pack, &info);
    return info.tensors;
}

/* The first tensor at or after `low` whose name does not start with `prefix`; the one at `low`
 * does. */
static uint32_t end_of_prefix(const struct bpk_pack *pack, uint32_t low, struct bpk_str prefix) {
    uint32_t high = tensor_count(pack);
    uint32_t step = 1;
    /* Most prefixes are short runs: gallop, then halve. */
    while (low + step < high && starts_with(bpk_pack_tensor_name(pack, low + step), prefix)) {
        low += step;
        step *= 2;
    }
    if (low + step < high)
        high = low + step;
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (starts_with(bpk_pack_tensor_name(pack, middle), prefix))
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

/* ---- folders --------------------------------------------------------------------------------- */

/* Whether any of the tensors from `low` under `prefix` is shown. */
static bool has_content(const struct bpk_pack *pack, uint32_t low, struct bpk_str prefix) {
    uint32_t count = tensor_count(pack);
    for (uint32_t i = low; i < count; i++) {
        struct bpk_str name = bpk_pack_tensor_name(pack, i);
        if (!starts_with(name, prefix))
            return false;
        if (is_in_tree(name))
            return true;
    }
    return false;
}

/* The folder of `prefix` (which ends in a dot), if there is one. */
static bool find_folder(const struct bpk_pack *pack, struct bpk_str prefix, unsigned segments,
                        struct bpk_tree_node *ret_node) {
    uint32_t low = bpk_pack_lower_bound(pack, prefix);
    if (!has_content(pack, low, prefix))
        return false;
    *ret_node = (struct bpk_tree_node){BPK_TREE_FOLDER, low, segments};
    return true;
}

/* Writes `prefix`, `segment` and, if wanted, a dot into a new string. NULL: out of memory. */
static char *join(struct bpk_str prefix, struct bpk_str segment, bool dot, struct bpk_str *ret) {
    char *text = malloc(prefix.len + segment.len + 2);
    if (!text)
        return NULL;
    if (prefix.len > 0)
        memcpy(text, prefix.bytes, prefix.len);
    if (segment.len > 0)
        memcpy(text + prefix.len, segment.bytes, segment.len);
    *ret = (struct bpk_str){text, prefix.len + segment.len};
    if (dot)
        text[ret->len++] = '.';
    return text;
}

/* Whether the tensor's own name is the prefix of others that are shown. */
static bool is_also_folder(const struct bpk_pack *pack, struct bpk_str name) {
    struct bpk_str prefix;
    _cleanup_free_ char *text = join(name, (struct bpk_str){0}, true, &prefix);
    struct bpk_tree_node ignored;
    return text && find_folder(pack, prefix, 0, &ignored);
}

static struct bpk_str folder_prefix(const struct bpk_pack *pack,
                                    const struct bpk_tree_node *folder) {
    if (folder->segments == 0)
        return (struct bpk_str){"", 0};
    return prefix_of(bpk_pack_tensor_name(pack, folder->tensor), folder->segments);
}

/* The tensor that bears the folder's own name. */
static bool find_self(const struct bpk_pack *pack, const struct bpk_tree_node *folder,
                      uint32_t *ret_index) {
    struct bpk_str name = folder_prefix(pack, folder);
    if (folder->segments == 0)
        return false;
    name.len--;
    return bpk_pack_find_tensor(pack, name, ret_index) == 0;
}

struct bpk_tree_node bpk_tree_parent(const struct bpk_pack *pack,
                                     const struct bpk_tree_node *folder) {
    struct bpk_tree_node parent = {BPK_TREE_FOLDER, 0, folder->segments - 1};
    if (parent.segments > 0)
        parent.tensor = bpk_pack_lower_bound(
            pack, prefix_of(bpk_pack_tensor_name(pack, folder->tensor), parent.segments));
    return parent;
}

/* ---- looking up ------------------------------------------------------------------------------ */

/* Takes ".json" off the end; false if there is none. */
static bool strip_json(struct bpk_str *file) {
    if (file->len < 5 || memcmp(file->bytes + file->len - 5, ".json", 5) != 0)
        return false;
    file->len -= 5;
    return true;
}

/* The segment whose file name is exactly `file`. */
static bool decode_segment(struct bpk_str file, char out[BPK_FILE_NAME_BUF],
                           struct bpk_str *ret_segment) {
    char again[BPK_FILE_NAME_BUF];
    if (file.len == 0 || file.len > BPK_FILE_NAME_MAX)
        return false;
    int len = bpk_name_decode(file, out);
    if (len < 0)
        return false;
    struct bpk_str segment = {out, (size_t)len};
    *ret_segment = segment;
    return memchr(out, '.', segment.len) == NULL && encode_segment(segment, again) == file.len &&
           memcmp(again, file.bytes, file.len) == 0;
}

int bpk_tree_find(const struct bpk_pack *pack, const struct bpk_tree_node *folder,
                  struct bpk_str file, struct bpk_tree_node *ret_node) {
    struct bpk_str stem = file;
    bool is_sidecar = strip_json(&stem);
    enum bpk_tree_kind kind = is_sidecar ? BPK_TREE_SIDECAR : BPK_TREE_TENSOR;
    uint32_t index;
    if (stem.len == 1 && stem.bytes[0] == '@') {
        if (!find_self(pack, folder, &index) || !is_in_tree(bpk_pack_tensor_name(pack, index)))
            return -ENOENT;
        *ret_node = (struct bpk_tree_node){kind, index, folder->segments};
        return 0;
    }
    char decoded[BPK_FILE_NAME_BUF];
    struct bpk_str segment;
    if (!decode_segment(stem, decoded, &segment))
        return -ENOENT;
    struct bpk_str path;
    _cleanup_free_ char *text = join(folder_prefix(pack, folder), segment, true, &path);
    if (!text)
        return -ENOMEM;
    struct bpk_tree_node inner;
    if (find_folder(pack, path, folder->segments + 1, &inner)) {
        if (is_sidecar)
            return -ENOENT;
        *ret_node = inner;
        return 0;
    }
    path.len--;
    if (bpk_pack_find_tensor(pack, path, &index) < 0 || !is_in_tree(path))
        return -ENOENT;
    *ret_node = (struct bpk_tree_node){kind, index, folder->segments};
    return 0;
}

/* ---- listing --------------------------------------------------------------------------------- */

/* Cursors: 0 and 1 are "@" and "@.json"; then two for each tensor from the folder's first one:
 * a folder or a link that it begins, and the link to its sidecar. */
enum { CURSOR_SELF, CURSOR_SELF_JSON, CURSOR_FIRST };

static bool next_self(const struct bpk_pack *pack, const struct bpk_tree_node *folder,
                      uint64_t *cursor, char ret_file[BPK_FILE_NAME_BUF],
                      struct bpk_tree_node *ret_node) {
    uint32_t index;
    if (!find_self(pack, folder, &index) || !is_in_tree(bpk_pack_tensor_name(pack, index))) {
        *cursor = CURSOR_FIRST;
        return false;
    }
    bool is_sidecar = *cursor == CURSOR_SELF_JSON;
    strcpy(ret_file, is_sidecar ? "@.json" : "@");
    *ret_node = (struct bpk_tree_node){is_sidecar ? BPK_TREE_SIDECAR : BPK_TREE_TENSOR, index,
                                       folder->segments};
    (*cursor)++;
    return true;
}

bool bpk_tree_next(const struct bpk_pack *pack, const struct bpk_tree_node *folder,
                   uint64_t *cursor, char ret_file[BPK_FILE_NAME_BUF],
                   struct bpk_tree_node *ret_node) {
    if (*cursor < CURSOR_FIRST && next_self(pack, folder, cursor, ret_file, ret_node))
        return true;
    struct bpk_str prefix = folder_prefix(pack, folder);
    uint32_t count = tensor_count(pack);
    uint64_t at;
    while ((at = folder->tensor + (*cursor - CURSOR_FIRST) / 2) < count) {
        uint32_t i = (uint32_t)at;
        bool is_sidecar = (*cursor - CURSOR_FIRST) % 2 == 1;
        struct bpk_str name = bpk_pack_tensor_name(pack, i);
        if (!starts_with(name, prefix))
            return false;
        struct bpk_str segment = segment_at(name, prefix.len);
        size_t end = prefix.len + segment.len;
        if (end < name.len) { /* a folder begins here */
            struct bpk_str inner = {name.bytes, end + 1};
            *cursor = CURSOR_FIRST + 2 * (uint64_t)(end_of_prefix(pack, i, inner) - folder->tensor);
            if (!has_content(pack, i, inner))
                continue;
            encode_segment(segment, ret_file);
            *ret_node = (struct bpk_tree_node){BPK_TREE_FOLDER, i, folder->segments + 1};
            return true;
        }
        if (!is_in_tree(name) || is_also_folder(pack, name)) {
            *cursor += is_sidecar ? 1 : 2;
            continue;
        }
        (*cursor)++;
        size_t len = encode_segment(segment, ret_file);
        if (is_sidecar)
            strcpy(ret_file + len, ".json");
        *ret_node = (struct bpk_tree_node){is_sidecar ? BPK_TREE_SIDECAR : BPK_TREE_TENSOR, i,
                                           folder->segments};
        return true;
    }
    return false;
}

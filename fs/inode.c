#include "inode.h"

#include "tree_nodes.h"
#include "views.h"

#include <errno.h>
#include <string.h>

enum { NAME_LIMIT = 255 }; /* newer kernels pass longer ones through */

bool bpk_node_is_folder(const struct bpk_node *node) {
    return node->kind <= BPK_NODE_CONTROL;
}

bool bpk_node_is_link(const struct bpk_node *node) {
    return node->kind >= BPK_NODE_LINK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Bits 0-31: index (in tree/ 0-16, and 17-31 the generation), 32-39: segments, 40 and up: kind. A
 * folder or file that there is only one of has its kind as number, as the root must. */
enum { GENERATION_SHIFT = 17, SEGMENTS_SHIFT = 32, KIND_SHIFT = 40 };

static bool is_indexed(const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_TENSOR:
    case BPK_NODE_SIDECAR:
    case BPK_NODE_KEY:
    case BPK_NODE_LINK:
    case BPK_NODE_SIDECAR_LINK:
        return true;
    case BPK_NODE_TREE:
        return node->segments > 0;
    default:
        return false;
    }
}

static bool is_in_tree(const struct bpk_node *node) {
    return node->kind == BPK_NODE_TREE || bpk_node_is_link(node);
}

uint64_t bpk_node_number(const struct bpk_node *node) {
    if (node->kind == BPK_NODE_EDITED)
        return node->number;
    if (bpk_view_is_file(node))
        return bpk_view_number(node);
    if (!is_indexed(node))
        return (uint64_t)node->kind;
    return (uint64_t)node->kind << KIND_SHIFT | (uint64_t)node->segments << SEGMENTS_SHIFT |
           (uint64_t)node->generation << GENERATION_SHIFT | node->index;
}

int bpk_node_from_number(struct bpk_mount *mount, uint64_t number, struct bpk_node *ret_node) {
    if (bpk_view_is_number(number))
        return bpk_view_from_number(mount, number, ret_node);
    if (number >= BPK_FIRST_NEW_NUMBER && mount->edits) {
        if (bpk_edits_viewed(mount->edits, number) != 0)
            return bpk_view_from_number(mount, number, ret_node);
        *ret_node = (struct bpk_node){.kind = BPK_NODE_EDITED, .number = number};
        return 0;
    }
    struct bpk_node node = {.kind = (enum bpk_node_kind)number};
    if (number >> KIND_SHIFT != 0) {
        node.kind = (enum bpk_node_kind)(number >> KIND_SHIFT);
        node.segments = (unsigned)(number >> SEGMENTS_SHIFT & 0xff);
        node.index = (uint32_t)number;
    }
    if (is_in_tree(&node)) {
        node.generation = node.index >> GENERATION_SHIFT;
        node.index &= (UINT32_C(1) << GENERATION_SHIFT) - 1;
        if (bpk_node_number(&node) != number || !bpk_tree_node_is_current(mount, &node))
            return -ESTALE;
        *ret_node = node;
        return 0;
    }
    uint32_t limit = node.kind == BPK_NODE_KEY ? mount->info.metadata_entries : mount->info.tensors;
    bool known = node.kind >= BPK_NODE_ROOT && node.kind <= BPK_NODE_SIDECAR_LINK &&
                 node.kind != BPK_NODE_EDITED && !bpk_view_is_file(&node);
    if (!known || bpk_node_number(&node) != number || (is_indexed(&node) && node.index >= limit))
        return -ESTALE;
    *ret_node = node;
    return 0;
}

/* ---- folders with fixed content -------------------------------------------------------------- */

struct fixed_entry {
    const char *name;
    enum bpk_node_kind kind;
    bool listed; /* false: only with -o views=listed */
};

static const struct fixed_entry root_entries[] = {
    {"tensors", BPK_NODE_TENSORS, true},
    {"tree", BPK_NODE_TREE, true},
    {"metadata", BPK_NODE_METADATA, true},
    {"metadata.json", BPK_NODE_METADATA_JSON, true},
    {"scalars.json", BPK_NODE_SCALARS_JSON, true},
    {"index.tsv", BPK_NODE_INDEX_TSV, true},
    {"views", BPK_NODE_VIEWS, false},
    {".bpkfs", BPK_NODE_CONTROL, false},
    {NULL, 0, false},
};

static const struct fixed_entry control_entries[] = {
    {"status.json", BPK_NODE_STATUS_JSON, true},
    {"control", BPK_NODE_COMMAND, true},
    {NULL, 0, false},
};

static const struct fixed_entry *fixed_entries(const struct bpk_node *folder) {
    return folder->kind == BPK_NODE_ROOT ? root_entries : control_entries;
}

static int lookup_fixed(const struct fixed_entry *entry, const char *name,
                        struct bpk_node *ret_node) {
    for (; entry->name; entry++) {
        if (strcmp(entry->name, name) == 0) {
            *ret_node = (struct bpk_node){.kind = entry->kind};
            return 0;
        }
    }
    return -ENOENT;
}

/* The cursor is whatever the reader of the folder seeked to. */
static bool next_fixed(const struct bpk_mount *mount, const struct fixed_entry *entries,
                       uint64_t *cursor, char ret_name[BPK_FILE_NAME_BUF],
                       struct bpk_node *ret_node) {
    uint64_t count = 0;
    while (entries[count].name)
        count++;
    while (*cursor < count) {
        const struct fixed_entry *entry = &entries[(*cursor)++];
        if (!entry->listed && !mount->lists_views)
            continue;
        strcpy(ret_name, entry->name);
        *ret_node = (struct bpk_node){.kind = entry->kind};
        return true;
    }
    return false;
}

/* ---- tensors/ and metadata/ ------------------------------------------------------------------ */

static int lookup_tensor(const struct bpk_mount *mount, struct bpk_str name,
                         struct bpk_node *ret_node) {
    struct bpk_node node = {.kind = BPK_NODE_TENSOR};
    /* No tensor's own file name ends in ".json": that dot would be encoded. */
    if (name.len > 5 && memcmp(name.bytes + name.len - 5, ".json", 5) == 0) {
        node.kind = BPK_NODE_SIDECAR;
        name.len -= 5;
    }
    int r = bpk_names_find(mount->tensor_names, name, &node.index);
    if (r == 0)
        *ret_node = node;
    return r;
}

/* Whether a listing of the pack's own names shows this one: what was touched is listed by the
 * edits. */
static bool is_untouched(const struct bpk_mount *mount, enum bpk_folder folder, const char *name) {
    uint64_t number;
    if (mount->edits && folder == BPK_IN_TENSORS &&
        bpk_edits_is_as_in(mount->edits, mount->pack, name))
        return true;
    return !mount->edits || bpk_edits_lookup(mount->edits, folder, name, &number) == BPK_FOUND_BASE;
}

/* Whether no edit has a file of that name. */
static bool is_unwritten(const struct bpk_mount *mount, enum bpk_folder folder, const char *name) {
    uint64_t number;
    return !mount->edits || bpk_edits_lookup(mount->edits, folder, name, &number) != BPK_FOUND_FILE;
}

static bool next_tensor(const struct bpk_mount *mount, uint64_t *cursor,
                        char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node) {
    if (*cursor / 2 >= mount->info.tensors)
        return false;
    bool is_sidecar = *cursor % 2 == 1;
    *ret_node = (struct bpk_node){
        .kind = is_sidecar ? BPK_NODE_SIDECAR : BPK_NODE_TENSOR,
        .index = (uint32_t)(*cursor / 2),
    };
    size_t len = bpk_names_file(mount->tensor_names, ret_node->index, ret_name);
    if (is_sidecar)
        strcpy(ret_name + len, ".json");
    (*cursor)++;
    return true;
}

static int lookup_key(const struct bpk_mount *mount, struct bpk_str name,
                      struct bpk_node *ret_node) {
    struct bpk_node node = {.kind = BPK_NODE_KEY};
    int r = bpk_names_find(mount->key_names, name, &node.index);
    if (r == 0)
        *ret_node = node;
    return r;
}

static bool next_key(const struct bpk_mount *mount, uint64_t *cursor,
                     char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node) {
    if (*cursor >= mount->info.metadata_entries)
        return false;
    *ret_node = (struct bpk_node){.kind = BPK_NODE_KEY, .index = (uint32_t)(*cursor)++};
    bpk_names_file(mount->key_names, ret_node->index, ret_name);
    return true;
}

/* ---- any folder ------------------------------------------------------------------------------ */

static int lookup_unedited(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                           struct bpk_node *ret_node) {
    struct bpk_str text = {name, strlen(name)};
    switch (folder->kind) {
    case BPK_NODE_ROOT:
    case BPK_NODE_CONTROL:
        return lookup_fixed(fixed_entries(folder), name, ret_node);
    case BPK_NODE_TENSORS:
        return lookup_tensor(mount, text, ret_node);
    case BPK_NODE_TREE:
        return bpk_tree_node_lookup(mount, folder, text, ret_node);
    case BPK_NODE_METADATA:
        return lookup_key(mount, text, ret_node);
    default:
        return bpk_view_is_folder(folder) ? bpk_view_lookup(mount, folder, name, ret_node)
                                          : -ENOTDIR;
    }
}

int bpk_node_lookup(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                    struct bpk_node *ret_node) {
    enum bpk_folder edit_folder;
    uint64_t number;
    if (strlen(name) > NAME_LIMIT)
        return -ENAMETOOLONG;
    if (!mount->edits || !bpk_node_edit_folder(folder, &edit_folder))
        return lookup_unedited(mount, folder, name, ret_node);
    switch (bpk_edits_lookup(mount->edits, edit_folder, name, &number)) {
    case BPK_FOUND_FILE:
        return bpk_node_from_number(mount, number, ret_node);
    case BPK_FOUND_BASE:
        return lookup_unedited(mount, folder, name, ret_node);
    case BPK_FOUND_NOTHING:
        break;
    }
    /* The root has folders, too, and views/npy/ views, which are nobody's edits. */
    bool has_others = folder->kind == BPK_NODE_ROOT || folder->kind == BPK_NODE_NPY_FOLDER;
    int r = has_others ? lookup_unedited(mount, folder, name, ret_node) : -ENOENT;
    return r == 0 && bpk_node_is_editable(ret_node) ? -ENOENT : r;
}

/* ---- what the edits know --------------------------------------------------------------------- */

bool bpk_node_edit_folder(const struct bpk_node *node, enum bpk_folder *ret_folder) {
    switch (node->kind) {
    case BPK_NODE_ROOT:
        *ret_folder = BPK_IN_ROOT;
        return true;
    case BPK_NODE_TENSORS:
        *ret_folder = BPK_IN_TENSORS;
        return true;
    case BPK_NODE_METADATA:
        *ret_folder = BPK_IN_METADATA;
        return true;
    case BPK_NODE_NPY_FOLDER:
        *ret_folder = BPK_IN_NPY;
        return true;
    default:
        return false;
    }
}

bool bpk_node_is_editable(const struct bpk_node *node) {
    switch (node->kind) {
    case BPK_NODE_TENSOR:
    case BPK_NODE_SIDECAR:
    case BPK_NODE_KEY:
    case BPK_NODE_METADATA_JSON:
    case BPK_NODE_SCALARS_JSON:
    case BPK_NODE_EDITED:
        return true;
    default:
        return false;
    }
}

struct bpk_place bpk_node_place(const struct bpk_mount *mount, const struct bpk_node *node,
                                char name[BPK_FILE_NAME_BUF + 8]) {
    struct bpk_place place = {.name = name, .number = bpk_node_number(node)};
    size_t len;
    switch (node->kind) {
    case BPK_NODE_TENSOR:
    case BPK_NODE_SIDECAR:
        place.folder = BPK_IN_TENSORS;
        len = bpk_names_file(mount->tensor_names, node->index, name);
        if (node->kind == BPK_NODE_SIDECAR)
            strcpy(name + len, ".json");
        break;
    case BPK_NODE_KEY:
        place.folder = BPK_IN_METADATA;
        bpk_names_file(mount->key_names, node->index, name);
        break;
    case BPK_NODE_METADATA_JSON:
        strcpy(name, "metadata.json");
        break;
    case BPK_NODE_SCALARS_JSON:
        strcpy(name, "scalars.json");
        break;
    default:
        place.name = NULL;
        break;
    }
    return place;
}

uint64_t bpk_node_number_of(enum bpk_folder folder, const char *name, const void *context) {
    /* Only tree/ changes anything in the mount, and it is not asked for here. */
    struct bpk_mount *mount = (struct bpk_mount *)(uintptr_t)context;
    static const enum bpk_node_kind kinds[] = {
        [BPK_IN_ROOT] = BPK_NODE_ROOT,
        [BPK_IN_TENSORS] = BPK_NODE_TENSORS,
        [BPK_IN_METADATA] = BPK_NODE_METADATA,
    };
    struct bpk_node parent;
    struct bpk_node node;
    if (folder == BPK_IN_NPY) /* what is there was never in the pack */
        return 0;
    parent = (struct bpk_node){.kind = kinds[folder]};
    return lookup_unedited(mount, &parent, name, &node) == 0 ? bpk_node_number(&node) : 0;
}

static struct bpk_node parent_of(struct bpk_mount *mount, const struct bpk_node *folder) {
    if (folder->kind == BPK_NODE_TREE)
        return bpk_tree_node_parent(mount, folder);
    if (bpk_view_is_folder(folder))
        return bpk_view_parent(folder);
    return (struct bpk_node){.kind = BPK_NODE_ROOT};
}

bool bpk_node_next(struct bpk_mount *mount, const struct bpk_node *folder, uint64_t *cursor,
                   char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node) {
    enum { DOTS = 2 };
    if (*cursor < DOTS) {
        strcpy(ret_name, *cursor == 0 ? "." : "..");
        *ret_node = *cursor == 0 ? *folder : parent_of(mount, folder);
        (*cursor)++;
        return true;
    }
    uint64_t at = *cursor - DOTS;
    bool found;
    switch (folder->kind) {
    case BPK_NODE_ROOT:
    case BPK_NODE_CONTROL:
        found = next_fixed(mount, fixed_entries(folder), &at, ret_name, ret_node);
        break;
    case BPK_NODE_TENSORS:
        found = next_tensor(mount, &at, ret_name, ret_node);
        break;
    case BPK_NODE_TREE:
        found = bpk_tree_node_next(mount, folder, &at, ret_name, ret_node);
        break;
    case BPK_NODE_METADATA:
        found = next_key(mount, &at, ret_name, ret_node);
        break;
    default:
        found = bpk_view_is_folder(folder) && bpk_view_next(mount, folder, &at, ret_name, ret_node);
        break;
    }
    *cursor = at + DOTS;
    return found;
}

bool bpk_node_now(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                  struct bpk_node *node) {
    enum bpk_folder edit_folder;
    char buffer[BPK_FILE_NAME_BUF];
    bool edited = bpk_node_edit_folder(folder, &edit_folder);
    const char *tensor = bpk_view_tensor_name(folder, name, buffer);
    if (tensor ? is_untouched(mount, BPK_IN_TENSORS, tensor) &&
                     (!edited || is_unwritten(mount, edit_folder, name))
               : !edited || !bpk_node_is_editable(node) || is_untouched(mount, edit_folder, name))
        return true;
    return bpk_node_lookup(mount, folder, name, node) == 0;
}

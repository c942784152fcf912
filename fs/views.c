#include "views.h"

#include "view_exports.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

/* The folders of views/ that have a file for each tensor. */
static const struct tensor_folder {
    enum bpk_node_kind folder;
    enum bpk_node_kind file;
    const char *name;
    const char *suffix;
} tensor_folders[] = {
    {BPK_NODE_NPY_FOLDER, BPK_NODE_NPY, "npy", ".npy"},
    {BPK_NODE_F32_FOLDER, BPK_NODE_F32, "f32", ".npy"},
    {BPK_NODE_STATS_FOLDER, BPK_NODE_STATS, "stats", ".json"},
};
enum { TENSOR_FOLDERS = sizeof(tensor_folders) / sizeof(tensor_folders[0]) };

static const struct {
    enum bpk_node_kind file;
    const char *name;
} exports[] = {
    {BPK_NODE_EXPORT_PACK, "model.bpk"},
    {BPK_NODE_EXPORT_SAFETENSORS, "model.safetensors"},
};
enum { EXPORTS = sizeof(exports) / sizeof(exports[0]) };

static const struct tensor_folder *find_folder(const struct bpk_node *folder) {
    for (size_t i = 0; i < TENSOR_FOLDERS; i++)
        if (tensor_folders[i].folder == folder->kind)
            return &tensor_folders[i];
    return NULL;
}

bool bpk_view_is_of_tensors(const struct bpk_node *folder) {
    return find_folder(folder) != NULL;
}

bool bpk_view_is_folder(const struct bpk_node *node) {
    return node->kind == BPK_NODE_VIEWS || node->kind == BPK_NODE_EXPORT_FOLDER ||
           bpk_view_is_of_tensors(node);
}

bool bpk_view_is_export(const struct bpk_node *node) {
    return node->kind == BPK_NODE_EXPORT_PACK || node->kind == BPK_NODE_EXPORT_SAFETENSORS;
}

bool bpk_view_is_file(const struct bpk_node *node) {
    return node->kind == BPK_NODE_NPY || node->kind == BPK_NODE_F32 ||
           node->kind == BPK_NODE_STATS || bpk_view_is_export(node);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Those of views/npy/ are the edits' numbers of arrays. */
enum { VIEW_SHIFT = 56 };
static_assert(UINT64_C(1) << VIEW_SHIFT == BPK_ARRAY_NUMBERS, "one kind of number");

bool bpk_view_is_number(uint64_t number) {
    return number >> VIEW_SHIFT != 0;
}

uint64_t bpk_view_number(const struct bpk_node *node) {
    if (node->npy_number)
        return node->npy_number;
    return (uint64_t)(node->kind - BPK_NODE_NPY + 1) << VIEW_SHIFT | node->number;
}

int bpk_view_from_number(struct bpk_mount *mount, uint64_t number, struct bpk_node *ret_node) {
    struct bpk_node tensor;
    struct bpk_node node = {
        .kind = (enum bpk_node_kind)((number >> VIEW_SHIFT) + BPK_NODE_NPY - 1),
        .number = number & ((UINT64_C(1) << VIEW_SHIFT) - 1),
    };
    /* An array that is coming into the view's place. */
    if (node.kind == BPK_NODE_NPY && mount->edits && bpk_edits_has_file(mount->edits, number)) {
        *ret_node = (struct bpk_node){.kind = BPK_NODE_EDITED, .number = number};
        return 0;
    }
    if (mount->edits && (node.kind == BPK_NODE_NPY || !bpk_view_is_number(number)))
        node = (struct bpk_node){.kind = BPK_NODE_NPY,
                                 .number = bpk_edits_viewed(mount->edits, number),
                                 .npy_number = number};
    if (!bpk_view_is_file(&node))
        return -ESTALE;
    int r = bpk_view_is_export(&node) ? 0 : bpk_view_tensor(mount, &node, &tensor);
    if (r == 0)
        *ret_node = node;
    return r;
}

int bpk_view_tensor(struct bpk_mount *mount, const struct bpk_node *view,
                    struct bpk_node *ret_tensor) {
    struct bpk_node tensor;
    int r = bpk_node_from_number(mount, view->number, &tensor);
    if (r < 0 || (tensor.kind != BPK_NODE_TENSOR && tensor.kind != BPK_NODE_EDITED))
        return -ESTALE;
    *ret_tensor = tensor;
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

int bpk_view_current(struct bpk_mount *mount, const struct bpk_node *view,
                     struct bpk_current *ret_current) {
    struct bpk_node tensor;
    int r = bpk_view_tensor(mount, view, &tensor);
    if (r < 0)
        return r;
    if (!mount->edits)
        return bpk_current_of_pack(mount->pack, mount->tensor_names, tensor.index, view->number,
                                   ret_current);
    char name[BPK_FILE_NAME_BUF + 8];
    struct bpk_place place = bpk_node_place(mount, &tensor, name);
    return bpk_edits_current_of(mount->edits, &place, ret_current);
}

/* The number of the file of that name in tensors/, if it is a tensor. */
static int find_tensor(struct bpk_mount *mount, const char *name, uint64_t *ret_number) {
    struct bpk_current current;
    struct bpk_node node = {.kind = BPK_NODE_TENSOR};
    if (mount->edits) {
        int r = bpk_edits_current(mount->edits, name, &current);
        if (r < 0)
            return r;
        *ret_number = current.number;
        bpk_current_clear(&current);
        return 0;
    }
    int r = bpk_names_find(mount->tensor_names, (struct bpk_str){name, strlen(name)}, &node.index);
    if (r == 0)
        *ret_number = bpk_node_number(&node);
    return r;
}

/* The view of the tensor whose file has that number. */
static struct bpk_node view_of_tensor(struct bpk_mount *mount, enum bpk_node_kind kind,
                                      uint64_t tensor) {
    struct bpk_node node = {.kind = kind, .number = tensor};
    if (kind == BPK_NODE_NPY && mount->edits)
        node.npy_number = bpk_edits_view_number(mount->edits, tensor);
    return node;
}

const char *bpk_view_tensor_name(const struct bpk_node *folder, const char *name,
                                 char buffer[BPK_FILE_NAME_BUF]) {
    const struct tensor_folder *found = find_folder(folder);
    size_t len = strlen(name);
    size_t suffix = found ? strlen(found->suffix) : 0;
    if (!found || len <= suffix || len - suffix >= BPK_FILE_NAME_BUF ||
        strcmp(name + len - suffix, found->suffix) != 0)
        return NULL;
    memcpy(buffer, name, len - suffix);
    buffer[len - suffix] = '\0';
    return buffer;
}

bool bpk_view_name(const struct bpk_node *folder, const char *tensor,
                   char ret_name[BPK_FILE_NAME_BUF]) {
    size_t len = strlen(tensor);
    if (len > BPK_FILE_NAME_MAX)
        return false;
    memcpy(ret_name, tensor, len);
    strcpy(ret_name + len, find_folder(folder)->suffix);
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int lookup_export(struct bpk_mount *mount, const char *name, struct bpk_node *ret_node) {
    for (size_t i = 0; i < EXPORTS; i++) {
        struct bpk_node node = {.kind = exports[i].file};
        if (strcmp(exports[i].name, name) != 0)
            continue;
        int r = bpk_view_export_generation(mount, node.kind, &node.number);
        if (r == 0)
            *ret_node = node;
        return r;
    }
    return -ENOENT;
}

static int lookup_folder(const char *name, struct bpk_node *ret_node) {
    for (size_t i = 0; i < TENSOR_FOLDERS; i++) {
        if (strcmp(tensor_folders[i].name, name) == 0) {
            *ret_node = (struct bpk_node){.kind = tensor_folders[i].folder};
            return 0;
        }
    }
    if (strcmp(name, "export") != 0)
        return -ENOENT;
    *ret_node = (struct bpk_node){.kind = BPK_NODE_EXPORT_FOLDER};
    return 0;
}

int bpk_view_lookup(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                    struct bpk_node *ret_node) {
    char buffer[BPK_FILE_NAME_BUF];
    if (folder->kind == BPK_NODE_VIEWS)
        return lookup_folder(name, ret_node);
    if (folder->kind == BPK_NODE_EXPORT_FOLDER)
        return lookup_export(mount, name, ret_node);
    const char *tensor = bpk_view_tensor_name(folder, name, buffer);
    uint64_t number;
    int r = tensor ? find_tensor(mount, tensor, &number) : -ENOENT;
    if (r == 0)
        *ret_node = view_of_tensor(mount, find_folder(folder)->file, number);
    return r;
}

static bool next_tensor(struct bpk_mount *mount, const struct tensor_folder *folder,
                        uint64_t *cursor, char ret_name[BPK_FILE_NAME_BUF],
                        struct bpk_node *ret_node) {
    struct bpk_node tensor = {.kind = BPK_NODE_TENSOR, .index = (uint32_t)*cursor};
    if (*cursor >= mount->info.tensors)
        return false;
    (*cursor)++;
    size_t len = bpk_names_file(mount->tensor_names, tensor.index, ret_name);
    strcpy(ret_name + len, folder->suffix);
    *ret_node = view_of_tensor(mount, folder->file, bpk_node_number(&tensor));
    return true;
}

bool bpk_view_next(struct bpk_mount *mount, const struct bpk_node *folder, uint64_t *cursor,
                   char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node) {
    if (bpk_view_is_of_tensors(folder))
        return next_tensor(mount, find_folder(folder), cursor, ret_name, ret_node);
    bool is_root = folder->kind == BPK_NODE_VIEWS;
    if (*cursor >= (is_root ? TENSOR_FOLDERS + 1 : EXPORTS))
        return false;
    uint64_t i = (*cursor)++;
    const char *name = !is_root              ? exports[i].name
                       : i == TENSOR_FOLDERS ? "export"
                                             : tensor_folders[i].name;
    strcpy(ret_name, name);
    return bpk_view_lookup(mount, folder, name, ret_node) == 0;
}

struct bpk_node bpk_view_parent(const struct bpk_node *folder) {
    return (struct bpk_node){.kind =
                                 folder->kind == BPK_NODE_VIEWS ? BPK_NODE_ROOT : BPK_NODE_VIEWS};
}

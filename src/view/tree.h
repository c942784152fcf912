/* Dotted names as folders: what the tree/ of a mount holds.
 *
 * Nothing is stored. Tensors are sorted bytewise, so those under one prefix stand together; a
 * folder is the first of them and the number of segments that make the prefix, and its content is
 * found by looking at the names again. A tensor whose name is also a folder (as LoRA makes them) is
 * shown inside that folder as "@". Names of over 64 segments, or with a segment whose file name
 * would be too long, are not in the tree.
 */
#ifndef BPK_VIEW_TREE_H
#define BPK_VIEW_TREE_H

#include "bpk.h"
#include "view/names.h"

enum bpk_tree_kind { BPK_TREE_FOLDER, BPK_TREE_TENSOR, BPK_TREE_SIDECAR };

/* A place in the tree. FOLDER: the first tensor under it, and how many segments its prefix has
 * (the root of the tree: tensor 0, 0 segments). TENSOR, SIDECAR: the tensor that a link leads to,
 * and the segments of the folder that the link is in. */
struct bpk_tree_node {
    enum bpk_tree_kind kind;
    uint32_t tensor;
    unsigned segments;
};

/* `file` in `folder`; -ENOENT if it is not there. */
int bpk_tree_find(const struct bpk_pack *pack, const struct bpk_tree_node *folder,
                  struct bpk_str file, struct bpk_tree_node *ret_node);

/* Walks a folder. *cursor is 0 at first, and at any time says where to go on; entries come in an
 * order that stays. False at the end. */
bool bpk_tree_next(const struct bpk_pack *pack, const struct bpk_tree_node *folder,
                   uint64_t *cursor, char ret_file[BPK_FILE_NAME_BUF],
                   struct bpk_tree_node *ret_node);

/* The folder that `folder`, which is not the root of the tree, is in. */
struct bpk_tree_node bpk_tree_parent(const struct bpk_pack *pack,
                                     const struct bpk_tree_node *folder);

#endif

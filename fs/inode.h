/* What there is in the mount: names, inode numbers, the order of listings.
 *
 * Identities. A file is known by what it is (kind) and of what (index of a tensor or metadata key;
 * for a folder of tree/ also how many segments its prefix has). The inode number is these packed
 * into 64 bits, so that no table is kept, no number can dangle, and forget has nothing to free: a
 * mount of 100,000 tensors costs no more than one of ten. Numbers are the same in every mount of
 * the same pack.
 *
 * In a writable mount that holds for what was never touched. What was is in the edits' tables: a
 * file that was moved keeps its number under its new name, and a new file has a number from
 * BPK_FIRST_NEW_NUMBER on. So a name is asked of the edits first, and a number that the edits do
 * not know is good only while its own name still leads to it.
 */
#ifndef BPKFS_INODE_H
#define BPKFS_INODE_H

#include "mount.h"

enum bpk_node_kind {
    BPK_NODE_ROOT = 1, /* FUSE_ROOT_ID */
    BPK_NODE_TENSORS,
    BPK_NODE_TREE, /* segments: 0 for tree/ itself; index: first tensor in the folder */
    BPK_NODE_METADATA,
    BPK_NODE_VIEWS, /* views/ and the folders in it, see views.h */
    BPK_NODE_NPY_FOLDER,
    BPK_NODE_F32_FOLDER,
    BPK_NODE_STATS_FOLDER,
    BPK_NODE_EXPORT_FOLDER,
    BPK_NODE_CONTROL, /* .bpkfs/ */
    /* files from here on */
    BPK_NODE_TENSOR,  /* index: tensor */
    BPK_NODE_SIDECAR, /* index: tensor */
    BPK_NODE_KEY,     /* index: metadata entry */
    BPK_NODE_METADATA_JSON,
    BPK_NODE_SCALARS_JSON,
    BPK_NODE_INDEX_TSV,
    BPK_NODE_STATUS_JSON,
    BPK_NODE_COMMAND, /* .bpkfs/control */
    BPK_NODE_EDITED,  /* number: a file that the pack did not have when it was mounted */
    BPK_NODE_NPY,     /* number: of the tensor's file */
    BPK_NODE_F32,
    BPK_NODE_STATS,
    BPK_NODE_EXPORT_PACK, /* number: generation of the edits */
    BPK_NODE_EXPORT_SAFETENSORS,
    /* symbolic links in tree/; segments: of the folder that they are in */
    BPK_NODE_LINK,
    BPK_NODE_SIDECAR_LINK,
};

struct bpk_node {
    enum bpk_node_kind kind;
    unsigned segments;
    uint32_t index;
    unsigned generation; /* of nodes in tree/, see tree_nodes.h */
    uint64_t number;     /* of EDITED and of views */
    uint64_t npy_number; /* of NPY: its own; 0: the usual */
};

bool bpk_node_is_folder(const struct bpk_node *node);
bool bpk_node_is_link(const struct bpk_node *node);

uint64_t bpk_node_number(const struct bpk_node *node);

/* -ESTALE for a number that names nothing in this mount. */
int bpk_node_from_number(struct bpk_mount *mount, uint64_t number, struct bpk_node *ret_node);

/* `name` in `folder`: 0, -ENOENT, -ENAMETOOLONG. */
int bpk_node_lookup(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                    struct bpk_node *ret_node);

/* The next entry of a folder, "." and ".." included. *cursor is 0 at first; the same cursor always
 * gives the same entry. False at the end. */
bool bpk_node_next(struct bpk_mount *mount, const struct bpk_node *folder, uint64_t *cursor,
                   char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node);

/* Makes such an entry's node the one that the name leads to by now; false if it is gone. */
bool bpk_node_now(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                  struct bpk_node *node);

/* The folder of the edits that a node is; false for those that cannot be written to. */
bool bpk_node_edit_folder(const struct bpk_node *node, enum bpk_folder *ret_folder);

/* Whether the edits may know the file: tensors, sidecars, keys, the JSON files, new files. */
bool bpk_node_is_editable(const struct bpk_node *node);

/* The node as the edits know it. `name` is a buffer for the place to point to. */
struct bpk_place bpk_node_place(const struct bpk_mount *mount, const struct bpk_node *node,
                                char name[BPK_FILE_NAME_BUF + 8]);

/* The number of a file of the pack as it was mounted; for bpk_edits_options. */
uint64_t bpk_node_number_of(enum bpk_folder folder, const char *name, const void *mount);

#endif

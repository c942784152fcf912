/* The nodes of tree/: folders and links, as the pack was last committed.
 *
 * They are places among the sorted names of one pack. In a writable mount a commit brings another
 * pack, where the same place is another name: so the numbers of these nodes have the generation of
 * the pack in them, and those of an earlier one are stale. Edits that are not committed do not show
 * here.
 */
#ifndef BPKFS_TREE_NODES_H
#define BPKFS_TREE_NODES_H

#include "inode.h"

/* The same as the functions on any node, for folders of tree/. -ESTALE: of an earlier generation.
 */
int bpk_tree_node_lookup(struct bpk_mount *mount, const struct bpk_node *folder,
                         struct bpk_str name, struct bpk_node *ret_node);
bool bpk_tree_node_next(struct bpk_mount *mount, const struct bpk_node *folder, uint64_t *cursor,
                        char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node);
struct bpk_node bpk_tree_node_parent(struct bpk_mount *mount, const struct bpk_node *folder);

/* Where a link leads. */
int bpk_tree_node_target(struct bpk_mount *mount, const struct bpk_node *node,
                         struct bpk_outbuf *ret_target);

/* Whether the number is of the pack that tree/ shows now. */
bool bpk_tree_node_is_current(struct bpk_mount *mount, const struct bpk_node *node);

/* Frees what the mount keeps for them. */
void bpk_tree_nodes_close(struct bpk_mount *mount);

#endif

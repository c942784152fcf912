/* What each kind of node is: its attributes and its content. */
#ifndef BPKFS_NODES_H
#define BPKFS_NODES_H

#include "inode.h"

/* Fills every field that stat shows. 0, -ENOMEM, or -ESTALE for what is gone. */
int bpk_node_stat(struct bpk_mount *mount, const struct bpk_node *node, struct stat *ret_stat);

/* The same of a view that is open, and was that long, whose tensor has no name any more. */
void bpk_node_stat_gone(const struct bpk_mount *mount, const struct bpk_node *node, uint64_t size,
                        struct stat *ret_stat);

/* Whether the content is a text that is composed, rather than bytes of the pack. */
bool bpk_node_is_text(const struct bpk_node *node);

/* Composes the whole text of a node that is one. 0, -ENOMEM, -EIO. */
int bpk_node_text(struct bpk_mount *mount, const struct bpk_node *node,
                  struct bpk_outbuf *ret_text);

/* Reads from a tensor's file; as bpk_pack_read. */
int bpk_node_read(struct bpk_mount *mount, const struct bpk_node *node, uint64_t offset,
                  void *buffer, size_t size, size_t *ret_read);

/* Says once that reading failed, if `r` is -EIO. */
void bpk_node_note_change(struct bpk_mount *mount, int r);

/* The value of a tensor's extended attribute, as edits make it: -ENODATA if it has none, -ENOTSUP
 * for other names and other files. */
int bpk_node_xattr(const struct bpk_mount *mount, const struct bpk_node *node, const char *name,
                   struct bpk_outbuf *ret_value);

/* The names of a node's extended attributes, each with its NUL. */
int bpk_node_xattr_names(const struct bpk_mount *mount, const struct bpk_node *node,
                         struct bpk_outbuf *ret_names);

#endif

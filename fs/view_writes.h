/* Writing to views/npy/: a view that is cut to nothing is an array that comes anew (edit/arrays.c);
 * what is written in place goes to the tensor's bytes. */
#ifndef BPKFS_VIEW_WRITES_H
#define BPKFS_VIEW_WRITES_H

#include "view_files.h"

/* Whether a node is a view that can be written to. */
bool bpk_view_is_writable(const struct bpk_mount *mount, const struct bpk_node *node);

/* Its name in views/npy/. */
int bpk_view_npy_name(struct bpk_mount *mount, const struct bpk_node *node,
                      char ret_name[BPK_FILE_NAME_BUF]);

/* The view is to be empty: 0, or to be as long as it is; -EINVAL for any other size. */
int bpk_view_truncate(struct bpk_mount *mount, const struct bpk_node *node, uint64_t size);

/* Writes to the tensor's bytes; -EINVAL for what would change the header or the size. */
int bpk_view_write(struct bpk_view *view, uint64_t offset, const char *bytes, size_t size);

/* Makes what was written to the tensor last. */
int bpk_view_fsync(struct bpk_mount *mount, const struct bpk_node *node);

/* The tensor's file, as the edits know it. `name` is a buffer for the place to point to. */
int bpk_view_place(struct bpk_mount *mount, const struct bpk_node *node,
                   char name[BPK_FILE_NAME_BUF + 8], struct bpk_place *ret_place);

#endif

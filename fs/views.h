/* The nodes of views/: folders that answer to their names without being listed, and in them a file
 * for each tensor as it is now, or an export of the whole pack.
 *
 * A view of a tensor has the number of the tensor's own file with its kind above it, so that it
 * goes with that file through renames and commits. An export has the generation of the edits in its
 * number: after an edit the name leads to another file, and the old one is stale. Views in
 * views/npy/ that an array came into may have another number (edit/view_numbers.c).
 */
#ifndef BPKFS_VIEWS_H
#define BPKFS_VIEWS_H

#include "edit/current.h"
#include "inode.h"

/* views/ and the folders in it. */
bool bpk_view_is_folder(const struct bpk_node *node);
/* A folder with a file for each tensor. */
bool bpk_view_is_of_tensors(const struct bpk_node *folder);
/* A file in one of them, or an export. */
bool bpk_view_is_file(const struct bpk_node *node);
bool bpk_view_is_export(const struct bpk_node *node);

/* The same as the functions on any node, for those folders. The cursor of a folder of tensors
 * counts the tensors of the pack as it was mounted. */
int bpk_view_lookup(struct bpk_mount *mount, const struct bpk_node *folder, const char *name,
                    struct bpk_node *ret_node);
bool bpk_view_next(struct bpk_mount *mount, const struct bpk_node *folder, uint64_t *cursor,
                   char ret_name[BPK_FILE_NAME_BUF], struct bpk_node *ret_node);
struct bpk_node bpk_view_parent(const struct bpk_node *folder);

/* In a folder of tensors: the name of the view of the file of that name in tensors/; false if it is
 * too long for a tensor's. */
bool bpk_view_name(const struct bpk_node *folder, const char *tensor,
                   char ret_name[BPK_FILE_NAME_BUF]);

/* The name in tensors/ of what `name` is a view of; NULL if it is none. `buffer` holds it. */
const char *bpk_view_tensor_name(const struct bpk_node *folder, const char *name,
                                 char buffer[BPK_FILE_NAME_BUF]);

/* Whether the number is one of a view, and if so which: 0, or -ESTALE. */
bool bpk_view_is_number(uint64_t number);
int bpk_view_from_number(struct bpk_mount *mount, uint64_t number, struct bpk_node *ret_node);
uint64_t bpk_view_number(const struct bpk_node *node);

/* The file in tensors/ that a view is of. */
int bpk_view_tensor(struct bpk_mount *mount, const struct bpk_node *view,
                    struct bpk_node *ret_tensor);

/* The tensor as it is now. -ESTALE if it is gone. */
int bpk_view_current(struct bpk_mount *mount, const struct bpk_node *view,
                     struct bpk_current *ret_current);

#endif

/* What is in the files of views/: a NumPy header and the tensor's bytes, its values as float32,
 * their statistics, an export. Nothing is kept that is as large as a tensor. */
#ifndef BPKFS_VIEW_FILES_H
#define BPKFS_VIEW_FILES_H

#include "pack/outbuf.h"
#include "views.h"

#include <sys/types.h>

/* An open view. */
struct bpk_view;

/* -ENOTSUP where a tensor has no such view, -EBADMSG for a pack with edits that are not valid,
 * -ESTALE if the tensor is gone or, for an export, something was edited since the lookup. */
int bpk_view_open(struct bpk_mount *mount, const struct bpk_node *node, struct bpk_view **ret_view);
void bpk_view_close(struct bpk_view *view); /* NULL is fine */

/* Whether the kernel may keep the pages that it has of the view. */
bool bpk_view_keeps_cache(const struct bpk_view *view);

/* How long it was when it was opened. */
uint64_t bpk_view_size(const struct bpk_view *view);

/* For who writes to it: what it is a view of, and NumPy's header in front. */
struct bpk_mount *bpk_view_mount(const struct bpk_view *view);
const struct bpk_node *bpk_view_node(const struct bpk_view *view);
const struct bpk_outbuf *bpk_view_head(const struct bpk_view *view);

/* Reads up to `size` bytes; short only at the end. */
int bpk_view_read(struct bpk_view *view, uint64_t offset, void *buffer, size_t size,
                  size_t *ret_read);

/* The size of the file, and the file in tensors/ whose times it has (`ret_tensor->kind` 0: the
 * pack's). Reads no tensor. */
int bpk_view_stat(struct bpk_mount *mount, const struct bpk_node *node, uint64_t *ret_size,
                  struct bpk_node *ret_tensor);

#endif

/* What the answers to all FUSE requests share. */
#ifndef BPKFS_REQUESTS_H
#define BPKFS_REQUESTS_H

#include "inode.h"

struct bpk_mount *bpk_mount_of(fuse_req_t req);

/* Answers with a negative errno, or 0. */
void bpk_reply_error(fuse_req_t req, int r);

/* The same, after the kernel was told to forget the attributes that the request changed beside its
 * own. */
void bpk_reply_changed(fuse_req_t req, int r);
void bpk_tell_changed(struct bpk_mount *mount);

/* Finds the node of an inode number; on failure the request is answered. */
bool bpk_find_node(fuse_req_t req, fuse_ino_t ino, struct bpk_node *ret_node);

/* How long the kernel may keep a name in the folder, and a node's attributes. */
double bpk_timeout_in(const struct bpk_node *folder);
double bpk_timeout_of(const struct bpk_mount *mount, const struct bpk_node *node);

int bpk_fill_entry(struct bpk_mount *mount, const struct bpk_node *folder,
                   const struct bpk_node *node, struct fuse_entry_param *ret_entry);

/* A buffer of this thread's own that holds the largest read the kernel asks for. It lives as long
 * as the thread. NULL: out of memory, or `size` is more than it holds. */
void *bpk_thread_buffer(size_t size);

#endif

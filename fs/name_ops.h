/* FUSE requests that change names and attributes. */
#ifndef BPKFS_NAME_OPS_H
#define BPKFS_NAME_OPS_H

#include "options.h"

void bpk_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                    struct fuse_file_info *fi);
void bpk_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void bpk_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void bpk_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void bpk_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void bpk_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void bpk_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                   const char *new_name, unsigned flags);
void bpk_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);

#endif

/* FUSE requests on open files. */
#ifndef BPKFS_FILE_OPS_H
#define BPKFS_FILE_OPS_H

#include "options.h"

/* Whether a handle is of a view, and how long that was when it was opened. */
bool bpk_is_open_view(const struct fuse_file_info *fi, uint64_t *ret_size);

void bpk_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void bpk_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                   struct fuse_file_info *fi);
void bpk_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                 struct fuse_file_info *fi);
void bpk_op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
                  struct fuse_file_info *fi);
void bpk_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void bpk_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void bpk_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void bpk_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                      struct fuse_file_info *fi);

#endif

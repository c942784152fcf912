/* The table of FUSE operations. Their user data is a struct bpk_mount. */
#ifndef BPKFS_OPS_H
#define BPKFS_OPS_H

#include "mount.h"

extern const struct fuse_lowlevel_ops bpk_ops;

#endif

/* .bpkfs/status.json: what is mounted, and what is wrong with it. */
#ifndef BPKFS_STATUS_H
#define BPKFS_STATUS_H

#include "mount.h"

/* 0, -ENOMEM, or -EIO if the pack could not be read. */
int bpk_status_file(struct bpk_mount *mount, struct bpk_outbuf *out);

#endif

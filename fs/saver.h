/* A thread for `commit --to FILE`. FILE may be anywhere, in a folder that the daemon confines
 * itself from: the thread is started before, and does nothing else. And no request waits for it, so
 * that a mount that is served by one thread (-s) goes on while the file is written. */
#ifndef BPKFS_SAVER_H
#define BPKFS_SAVER_H

#include "mount.h"

/* Starts it, for a writable mount. 0 or a negative errno. */
int bpk_saver_start(struct bpk_mount *mount, const char *mountpoint);

/* Has the thread save to `path` (copied), absolute, and answer the write `req` of `size` bytes.
 * -EBUSY: it is at work already; then the request is not answered. Or -ENOMEM. */
int bpk_saver_save(fuse_req_t req, size_t size, const char *path, enum bpk_commit_mode mode);

/* Waits for what it does, and ends it. */
void bpk_saver_stop(void);

#endif

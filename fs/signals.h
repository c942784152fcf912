/* What SIGTERM, SIGINT and SIGHUP do: unmount, and end when the last open file is closed. */
#ifndef BPKFS_SIGNALS_H
#define BPKFS_SIGNALS_H

#include "mount.h"
#include "mountpoint.h"

/* Blocks the signals in this thread and all it starts. Call before any thread is started. */
void bpk_signals_block(void);

/* Starts the thread that waits for them. When one comes, the dirty pages of shared maps are brought
 * in and the mount is detached, both by the helper of `point`; files that are still open are served
 * for `grace` seconds, then the edits are committed and the process ends, with status 3 if files
 * were open for writing. Where the mount cannot be detached, only files that are open for writing
 * are waited for. Both must live as long as the process. 0 or a negative errno. */
int bpk_signals_start(struct bpk_mount *mount, struct bpk_mountpoint *point, unsigned grace);

#endif

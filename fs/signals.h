/* What SIGTERM, SIGINT and SIGHUP do: unmount, and end when the last open file is closed. */
#ifndef BPKFS_SIGNALS_H
#define BPKFS_SIGNALS_H

#include "mountpoint.h"

/* Blocks the signals in this thread and all it starts. Call before any thread is started. */
void bpk_signals_block(void);

/* Starts the thread that waits for them. After one came, files that are still open are served for
 * `grace` seconds; then the process ends. `point` must live as long as the process.
 * 0 or a negative errno. */
int bpk_signals_start(struct bpk_mountpoint *point, unsigned grace);

#endif

/* Making a mount writable: may it be, who has the pack, what was left by an earlier mount. */
#ifndef BPKFS_WRITABLE_H
#define BPKFS_WRITABLE_H

#include "mount.h"

/* Opens the edits of the mount's pack, unless the mount is to be read-only or has to be.
 * -EAGAIN: the pack was replaced meanwhile: open it again. Other failures: a message was printed.
 */
int bpk_writable_open(struct bpk_mount *mount, const struct bpk_options *options);

/* Once it is mounted: why it is read-only, and what an earlier mount left. Touches no file. */
void bpk_writable_tell(const struct bpk_mount *mount);

/* Starts the thread of -o commit=SECONDS, if it was asked for. 0 or a negative errno. */
int bpk_writable_start_timer(struct bpk_mount *mount, unsigned seconds);

/* Waits for its end, and for that of a commit that it has begun. */
void bpk_writable_stop_timer(void);

#endif

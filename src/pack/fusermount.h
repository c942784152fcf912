/* Unmounting as an ordinary user: through the helper that libfuse installs. */
#ifndef BPK_PACK_FUSERMOUNT_H
#define BPK_PACK_FUSERMOUNT_H

#include "bpk.h"

#include <stdbool.h>

/* Unmounts what is at `path`, with umount2 or, where that is not permitted, fusermount3. `lazy`: at
 * once from the tree of files, for good at the last close. 0, -EBUSY, or another errno: -EPERM
 * where fusermount3 refuses, and the sentence is then its own. `ret_diag` may be NULL. */
int bpk_unmount(const char *path, bool lazy, struct bpk_diag *ret_diag);

#endif

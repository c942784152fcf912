/* bpkfs as mount(8) calls it, under the name mount.bpkfs or mount.fuse.bpkfs:
 *
 *     mount.bpkfs PACK MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
 *
 * Its letters mean other things than those of bpkfs, and among OPTIONS are some that are for
 * mount(8) and fstab(5) alone. See EXTERNAL HELPERS in mount(8). */
#ifndef BPKFS_MOUNT_HELPER_H
#define BPKFS_MOUNT_HELPER_H

#include "options.h"

#include <stdbool.h>

/* Whether a program of this name is one. */
bool bpk_mount_helper_is(const char *program);

/* Takes from `args` what bpkfs does not know, so that bpk_options_parse takes the rest.
 * `ret_fake`: nothing is to be mounted (mount -f). Returns 0, or an exit status of bpkfs after a
 * message was printed. */
int bpk_mount_helper_translate(struct fuse_args *args, bool *ret_fake);

/* What mount(8) is to exit with for an exit status of bpkfs. */
int bpk_mount_helper_status(int status);

#endif

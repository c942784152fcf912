/* The folder that a pack is mounted on: made where none was given, cleaned where a killed daemon
 * left it dead, unmounted, removed. */
#ifndef BPKFS_MOUNTPOINT_H
#define BPKFS_MOUNTPOINT_H

#include "helper.h"

#include <stdbool.h>

struct bpk_mountpoint {
    char *path;               /* absolute */
    bool remove;              /* it was ours to make: removed after the unmount */
    struct bpk_helper helper; /* not started yet */
};

/* Finds the mount point `given`, or makes ./NAME for `pack` where it is NULL. Prints a message on
 * failure. 0 or a negative errno. */
int bpk_mountpoint_prepare(const char *given, const char *pack, struct bpk_mountpoint *ret_point);

/* Removes the folder if it was made: through the helper, if it was started. */
void bpk_mountpoint_remove(struct bpk_mountpoint *point);

/* Removes, stops the helper and frees. */
void bpk_mountpoint_finish(struct bpk_mountpoint *point);

#endif

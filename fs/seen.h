/* Which content the kernel's pages of a file are of. One tensor has several names in the mount (its
 * own and its views), each with pages of its own: an open whose content changed through another
 * name is answered so that the kernel drops them. Files that were never opened have no entry. */
#ifndef BPKFS_SEEN_H
#define BPKFS_SEEN_H

#include "mount.h"

/* Whether the file of that number was last opened with this version of its content; it is from now
 * on. */
bool bpk_seen_version(struct bpk_mount *mount, uint64_t number, uint64_t version);

/* The content of a file changed by another of its names; whether it did since its last open. */
void bpk_seen_changed_elsewhere(struct bpk_mount *mount, uint64_t number);
bool bpk_seen_take_change(struct bpk_mount *mount, uint64_t number);

/* Frees what the mount keeps. */
void bpk_seen_close(struct bpk_mount *mount);

#endif

/* Texts that are large, composed once for all who have them open: metadata.json, scalars.json,
 * index.tsv. Others are small, and each handle has its own. */
#ifndef BPKFS_SNAPSHOTS_H
#define BPKFS_SNAPSHOTS_H

#include "inode.h"

/* What a text said when it was opened. */
struct bpk_snapshot {
    unsigned references; /* guarded by the mount's snapshots_lock */
    uint64_t generation; /* of the edits */
    struct bpk_outbuf text;
};

/* A reference to what the node says now. 0 or a negative errno. */
int bpk_snapshot_take(struct bpk_mount *mount, const struct bpk_node *node,
                      struct bpk_snapshot **ret_snapshot);
void bpk_snapshot_drop(struct bpk_mount *mount, struct bpk_snapshot *snapshot); /* NULL is fine */

#endif

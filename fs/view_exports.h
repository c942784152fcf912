/* views/export/: whole files of the tensors as they are now, kept while nothing changes. */
#ifndef BPKFS_VIEW_EXPORTS_H
#define BPKFS_VIEW_EXPORTS_H

#include "edit/export.h"
#include "inode.h"

/* The generation that the name of an export leads to now. */
int bpk_view_export_generation(struct bpk_mount *mount, enum bpk_node_kind kind,
                               uint64_t *ret_generation);

/* The export that a node is; a new reference. -ESTALE if something was edited since its name was
 * looked up; what bpk_export_of_edits says. */
int bpk_view_export(struct bpk_mount *mount, const struct bpk_node *node,
                    struct bpk_export **ret_export);

/* Calls `report` for what the safetensors file leaves out, if it was looked at since the last
 * change. */
void bpk_view_export_left_out(struct bpk_mount *mount, bpk_left_out_fn *report, void *context);

/* Drops those that something was edited since: they hold the pack as it was, and its disk space. */
void bpk_view_exports_forget(struct bpk_mount *mount);

/* Frees what the mount keeps. */
void bpk_view_exports_close(struct bpk_mount *mount);

#endif

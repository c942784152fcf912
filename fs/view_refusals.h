/* Views that somebody wanted and that a tensor cannot have: the status says why. */
#ifndef BPKFS_VIEW_REFUSALS_H
#define BPKFS_VIEW_REFUSALS_H

#include "views.h"

/* The view was refused with ENOTSUP. */
void bpk_view_note_refusal(struct bpk_mount *mount, const struct bpk_node *node);

/* Calls `report` for each that is still so: its path in the mount, and a sentence. */
typedef void bpk_view_refusal_fn(void *context, const char *path, const char *reason);
void bpk_view_each_refusal(struct bpk_mount *mount, bpk_view_refusal_fn *report, void *context);

/* Frees what the mount keeps. */
void bpk_view_refusals_close(struct bpk_mount *mount);

#endif

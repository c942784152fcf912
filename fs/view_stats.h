/* views/stats/: statistics of tensors, kept until the tensor changes. */
#ifndef BPKFS_VIEW_STATS_H
#define BPKFS_VIEW_STATS_H

#include "edit/current.h"
#include "mount.h"

/* The length of the text, which is the same whatever the values are. */
uint64_t bpk_view_stats_size(const struct bpk_current *current);

/* Composes the text; reads the whole tensor if its statistics are not known. What
 * bpk_stats_compute says. */
int bpk_view_stats(struct bpk_mount *mount, const struct bpk_current *current,
                   const struct bpk_source *source, struct bpk_outbuf *ret_text);

/* Frees what the mount keeps. */
void bpk_view_stats_close(struct bpk_mount *mount);

#endif
